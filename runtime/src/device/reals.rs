//! Numbers of a program's real type, f32 or f64: parameters, gradients, moments, constants, results.
//!
//! Takes slices; gives views that read and write them as f64. Reading is exact; writing rounds where the program computes in f32.
//! Leaves the memory itself to [`crate::device::memory`].

use crate::device::memory::bytes_of;
use odec_program::DType;
use std::ops::Range;

/// Numbers to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reals<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
}

/// Numbers to write.
#[derive(Debug, PartialEq)]
pub enum RealsMut<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
}

impl<'a> Reals<'a> {
    /// Adds a share of each number to a sum.
    pub fn add_to(self, sums: &mut Vec<f64>, share: f64) {
        sums.resize(self.len(), 0.0);
        let pairs = sums.iter_mut().zip(self.iter());
        pairs.for_each(|(sum, x)| *sum += share * x);
    }

    pub fn len(self) -> usize {
        match self {
            Reals::F32(x) => x.len(),
            Reals::F64(x) => x.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn dtype(self) -> DType {
        match self {
            Reals::F32(_) => DType::F32,
            Reals::F64(_) => DType::F64,
        }
    }

    /// A part of them.
    ///
    /// # Panics
    /// When they are fewer.
    pub fn part(self, range: Range<usize>) -> Reals<'a> {
        match self {
            Reals::F32(x) => Reals::F32(&x[range]),
            Reals::F64(x) => Reals::F64(&x[range]),
        }
    }

    /// One of them.
    ///
    /// # Panics
    /// When there is none with this number.
    pub fn at(self, i: usize) -> f64 {
        match self {
            Reals::F32(x) => x[i].into(),
            Reals::F64(x) => x[i],
        }
    }

    pub fn iter(self) -> impl Iterator<Item = f64> + 'a {
        (0..self.len()).map(move |i| self.at(i))
    }

    /// Their bytes, as files hold them.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Reals::F32(x) => bytes_of(x),
            Reals::F64(x) => bytes_of(x),
        }
    }

    /// The numbers of an f32 program.
    ///
    /// # Panics
    /// When they are f64.
    pub fn f32(self) -> &'a [f32] {
        match self {
            Reals::F32(x) => x,
            Reals::F64(_) => panic!("these numbers are f64"),
        }
    }
}

impl<'a> RealsMut<'a> {
    pub fn dtype(&self) -> DType {
        match self {
            RealsMut::F32(_) => DType::F32,
            RealsMut::F64(_) => DType::F64,
        }
    }

    /// A part of them.
    ///
    /// # Panics
    /// When they are fewer.
    pub fn part(&mut self, range: Range<usize>) -> RealsMut<'_> {
        match self {
            RealsMut::F32(x) => RealsMut::F32(&mut x[range]),
            RealsMut::F64(x) => RealsMut::F64(&mut x[range]),
        }
    }

    /// Writes numbers from the first on, as many as there are or fit.
    pub fn fill(&mut self, values: impl Iterator<Item = f64>) {
        match self {
            RealsMut::F32(x) => x.iter_mut().zip(values).for_each(|(x, v)| *x = v as f32),
            RealsMut::F64(x) => x.iter_mut().zip(values).for_each(|(x, v)| *x = v),
        }
    }

    /// The numbers of an f32 program.
    ///
    /// # Panics
    /// When they are f64.
    pub fn f32(self) -> &'a mut [f32] {
        match self {
            RealsMut::F32(x) => x,
            RealsMut::F64(_) => panic!("these numbers are f64"),
        }
    }
}

/// A result as it is printed: of an f32 the shortest decimal that is that f32.
pub fn decimal(x: f64, real: DType) -> f64 {
    match real {
        DType::F64 => x,
        _ => (x as f32).to_string().parse().unwrap_or(x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_their_type_once() {
        let (mut narrow, mut wide) = ([7.0f32; 4], [7.0f64; 4]);
        let values = [0.1, 1.0 + 2f64.powi(-40), f64::NEG_INFINITY];
        RealsMut::F32(&mut narrow)
            .part(1..4)
            .fill(values.into_iter());
        RealsMut::F64(&mut wide).part(1..4).fill(values.into_iter());
        assert_eq!(narrow, [7.0, 0.1, 1.0, f32::NEG_INFINITY]);
        assert_eq!(wide[1..], values);
        let (narrow, wide) = (Reals::F32(&narrow), Reals::F64(&wide));
        assert_eq!(wide.part(1..4).iter().collect::<Vec<_>>(), values);
        assert_eq!((narrow.at(1), narrow.len()), (0.1f32.into(), 4));
        assert_eq!(wide.part(1..2).bytes(), 0.1f64.to_le_bytes());
    }

    #[test]
    fn an_f32_is_printed_short() {
        assert_eq!(decimal(0.1f32.into(), DType::F32), 0.1);
        assert_eq!(decimal(0.1f32.into(), DType::F64), 0.100_000_001_490_116_12);
        assert!(decimal(f64::INFINITY, DType::F32).is_infinite());
    }
}
