//! Recurrences of first order along tokens, and their derivative: specification, signature and meaning.

use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::{Indices, Kind, Launch, Sample, validate};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// `h[t] = a[t] · h[t−1] + b[t]`, in each column of each sequence by itself, tokens in order, each step rounded once (a fused
/// multiply-add). Without factors, `h[t] = h[t−1] + b[t]`.
///
/// a, b, h, d and their derivatives are rows of `cols` columns, one for each token of each sequence; tiles: blocks of
/// [`Scan::TILE`] columns of a sequence, so a launch's parallelism is that of sequences and columns.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Scan {
    pub dtype: DType,
    pub cols: u64,
    /// Whether there is an a.
    pub factors: bool,
    pub form: ScanForm,
}

/// Where a recurrence begins, and which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanForm {
    /// From zero. Operands a, b, h; dims `[batch, seq]`.
    Whole,
    /// From the row that the last run left for each sequence, or from zero where `past` is 0; the last h takes its place. Operands a, b,
    /// h, carry; dims `[batch, seq, past]`.
    Carried,
    /// The derivative, last tokens first: `g[t] = a[t+1] · g[t+1] + d[t]` from zero behind the last one is that with respect to b;
    /// `g[t] · h[t−1]` that with respect to a, 0 for the first token. Operands a, h, d, d_a, d_b, without factors d, d_b; dims `[batch, seq]`.
    Backward,
}

impl Scan {
    pub const TILE: u64 = 64;

    /// Blocks of columns of a sequence.
    pub fn blocks(&self) -> u64 {
        self.cols.div_ceil(Scan::TILE)
    }

    /// Products for each token: one for each step, and for the derivative with respect to a.
    pub fn products(&self) -> u64 {
        match (self.factors, self.form) {
            (false, _) => 0,
            (true, ScanForm::Backward) => 2 * self.cols,
            (true, _) => self.cols,
        }
    }

    /// The numbers of its operands.
    fn places(&self) -> Places {
        let (a, rest) = match (self.factors, self.form) {
            (false, _) => (None, 0),
            (true, ScanForm::Backward) => (Some(0), 2),
            (true, _) => (Some(0), 1),
        };
        let d_a = (self.factors && self.form == ScanForm::Backward).then_some(3);
        Places {
            a,
            given: rest,
            d_a,
            out: d_a.unwrap_or(rest) + 1,
        }
    }
}

/// Numbers of operands.
struct Places {
    a: Option<u32>,
    /// b, or d.
    given: u32,
    d_a: Option<u32>,
    /// h, or d_b.
    out: u32,
}

pub(super) struct ScanKind;

impl Kind for ScanKind {
    type Spec = Scan;
    const NAME: &'static str = "scan";

    fn dtype(k: &Scan) -> DType {
        k.dtype
    }

    fn validate(k: &Scan) -> Result<(), String> {
        validate::sums(k.dtype)?;
        validate::length("columns", k.cols)
    }

    fn signature(k: &Scan) -> Signature {
        let operand =
            |name, mode, dims| OperandAccess::new(name, k.dtype, mode, [Count::rows(dims, k.cols)]);
        let read = |name| operand(name, Mode::Read, &[0, 1]);
        let write = |name| operand(name, Mode::Write, &[0, 1]);
        let (names, results): (&[_], &[_]) = match (k.form, k.factors) {
            (ScanForm::Backward, true) => (&["a", "h", "d"], &["d_a", "d_b"]),
            (ScanForm::Backward, false) => (&["d"], &["d_b"]),
            (_, true) => (&["a", "b"], &["h"]),
            (_, false) => (&["b"], &["h"]),
        };
        let mut operands: Vec<OperandAccess> = names.iter().map(|name| read(name)).collect();
        if let (ScanForm::Backward, [_, h, _, ..]) = (k.form, &mut operands[..]) {
            let (dims, each) = (&[0, 1], k.cols);
            h.extent = vec![Count::Earlier { dims, each }];
        }
        operands.extend(results.iter().map(|name| write(name)));
        let mut dims = vec![Dimension::any("batch"), Dimension::any("seq")];
        if k.form == ScanForm::Carried {
            operands.push(operand("carry", Mode::Accumulate, &[0]));
            dims.push(Dimension::any("past"));
        }
        Signature {
            dtype: k.dtype,
            operands,
            dims,
            coeffs: 0,
            scratch: vec![],
            work: match k.factors {
                true => Work::recurrences(Count::rows(&[0, 1], k.products())),
                false => Work::others(Count::rows(&[0, 1], k.cols)),
            },
        }
    }

    fn tiles(k: &Scan, dims: &[u64]) -> u64 {
        dims[0] * k.blocks()
    }

    fn headline(k: &Scan) -> String {
        let what = match k.factors {
            true => "recurrence",
            false => "running sums",
        };
        let form = match k.form {
            ScanForm::Whole => "",
            ScanForm::Carried => ", carried on",
            ScanForm::Backward => ", backward",
        };
        format!("{what} of {} columns{form}", k.cols)
    }

    fn run<T: Real>(k: &Scan, m: &mut (impl Memory<T> + Indices), at: Launch) {
        for sequence in 0..at.dims[0] {
            for c in 0..k.cols {
                match k.form {
                    ScanForm::Backward => backward::<T>(k, m, [sequence, at.dims[1], c]),
                    ScanForm::Whole => {
                        forward::<T>(k, m, [sequence, at.dims[1], c], T::ZERO);
                    }
                    ScanForm::Carried => {
                        let (carry, place) = (k.places().out + 1, sequence * k.cols + c);
                        let start = match at.dims[2] {
                            0 => T::ZERO,
                            _ => m.load(carry, place),
                        };
                        let end = forward::<T>(k, m, [sequence, at.dims[1], c], start);
                        m.store(carry, place, end);
                    }
                }
            }
        }
    }

    fn samples() -> Vec<Sample<Scan>> {
        let mut all = vec![];
        for form in [ScanForm::Whole, ScanForm::Carried, ScanForm::Backward] {
            for (factors, dtype, cols) in [
                (true, DType::F32, 70),
                (false, DType::F32, 3),
                (true, DType::F64, 64),
            ] {
                let spec = Scan {
                    dtype,
                    cols,
                    factors,
                    form,
                };
                let dims: &[u64] = match form {
                    ScanForm::Carried => &[2, 5, 4],
                    _ => &[2, 5],
                };
                all.push(Sample::new(spec, dims, &[]));
            }
        }
        all
    }
}

/// `factor · state + more`, rounded once.
fn step<T: Real>(factor: Option<T>, state: T, more: T) -> T {
    match factor {
        Some(factor) => T::fma(factor, state, more),
        None => T::binary(BinaryOp::Add, state, more),
    }
}

/// The last h of a column of a sequence, after all are written.
fn forward<T: Real>(k: &Scan, m: &mut impl Memory<T>, [sequence, seq, c]: [u64; 3], start: T) -> T {
    let places = k.places();
    (0..seq).fold(start, |h, t| {
        let at = (sequence * seq + t) * k.cols + c;
        let factor = places.a.map(|a| m.load(a, at));
        let h = step(factor, h, m.load(places.given, at));
        m.store(places.out, at, h);
        h
    })
}

fn backward<T: Real>(k: &Scan, m: &mut impl Memory<T>, [sequence, seq, c]: [u64; 3]) {
    let places = k.places();
    let at = |t: u64| (sequence * seq + t) * k.cols + c;
    let mut g = T::ZERO;
    for t in (0..seq).rev() {
        let behind = |a| match t + 1 < seq {
            true => m.load(a, at(t + 1)),
            false => T::ZERO,
        };
        g = step(places.a.map(behind), g, m.load(places.given, at(t)));
        m.store(places.out, at(t), g);
        if let Some(d_a) = places.d_a {
            let slope = match t {
                0 => T::ZERO,
                _ => T::binary(BinaryOp::Mul, g, m.load(1, at(t - 1))),
            };
            m.store(d_a, at(t), slope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values(Vec<Vec<f64>>);

    impl Memory<f64> for Values {
        fn load(&self, operand: u32, index: u64) -> f64 {
            self.0[operand as usize][index as usize]
        }
        fn store(&mut self, operand: u32, index: u64, value: f64) {
            self.0[operand as usize][index as usize] = value;
        }
    }

    impl Indices for Values {
        fn index(&self, _: u32, _: u64) -> u64 {
            0
        }
    }

    fn run(form: ScanForm, factors: bool, operands: &[&[f64]], dims: &[u64]) -> Vec<Vec<f64>> {
        let spec = Scan {
            dtype: DType::F64,
            cols: 1,
            factors,
            form,
        };
        let mut memory = Values(operands.iter().map(|o| o.to_vec()).collect());
        let launch = Launch {
            dims,
            coeffs: &[],
            threads: 1,
        };
        ScanKind::run::<f64>(&spec, &mut memory, launch);
        memory.0
    }

    #[test]
    fn a_recurrence_goes_on_where_it_was_left_unless_it_is_the_first_run() {
        let (a, b) = ([9.0, 0.5, 2.0], [1.0, 3.0, -1.0]);
        let whole = run(ScanForm::Whole, true, &[&a, &b, &[0.0; 3]], &[1, 3]);
        assert_eq!(whole[2], [1.0, 3.5, 6.0]);
        let first = run(
            ScanForm::Carried,
            true,
            &[&a[..2], &b[..2], &[0.0; 2], &[f64::NAN]],
            &[1, 2, 0],
        );
        assert_eq!(
            (&first[2][..], &first[3][..]),
            (&[1.0, 3.5][..], &[3.5][..])
        );
        let then = run(
            ScanForm::Carried,
            true,
            &[&a[2..], &b[2..], &[0.0], &first[3]],
            &[1, 1, 2],
        );
        assert_eq!((&then[2][..], &then[3][..]), (&[6.0][..], &[6.0][..]));
    }

    #[test]
    fn sequences_are_apart_and_sums_have_no_factor() {
        let x = [1.0, 2.0, 10.0, 20.0];
        let sums = run(ScanForm::Whole, false, &[&x, &[0.0; 4]], &[2, 2]);
        assert_eq!(sums[1], [1.0, 3.0, 10.0, 30.0]);
        let slopes = run(ScanForm::Backward, false, &[&x, &[0.0; 4]], &[2, 2]);
        assert_eq!(slopes[1], [3.0, 2.0, 30.0, 20.0]);
    }

    #[test]
    fn the_derivative_runs_backwards() {
        let (a, h, d) = ([9.0, 0.5, 2.0], [1.0, 3.5, 6.0], [1.0, 1.0, 1.0]);
        let zeros = [0.0; 3];
        let found = run(
            ScanForm::Backward,
            true,
            &[&a, &h, &d, &zeros, &zeros],
            &[1, 3],
        );
        assert_eq!(found[4], [2.5, 3.0, 1.0]);
        assert_eq!(found[3], [0.0, 3.0, 3.5]);
    }
}
