//! The matrices that a tensor's elements are, transposed: parameters whose order in files is not the order they are read in.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::Reshape;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::reshape::{dims, fixed};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Access;
use odec_program::expr::ColMap;

/// `x`, of a fixed size, in the shape `to = [.., N]`: each N elements after one another are a matrix of `rows` rows, of which
/// the result holds the transpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose {
    pub rows: u64,
    pub to: Vec<u64>,
}

impl Transpose {
    fn ty(&self) -> TensorType {
        TensorType::real(dims(&self.to))
    }

    /// Columns of the matrices.
    fn cols(&self) -> u64 {
        self.ty().cols() / self.rows
    }
}

impl Op for Transpose {
    const NAME: &'static str = "transpose";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("rows", self.rows.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Transpose {
            rows: given.need("rows")?,
            to: given.shape()?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        let elements = |shape: &[u64]| shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let same = fixed(x).is_some_and(|from| elements(&from) == elements(&self.to));
        let whole = self.rows > 0 && self.to.last().is_some_and(|n| n.is_multiple_of(self.rows));
        if !same || !whole {
            let what = format!("{x} is no matrices of {} rows in {}", self.rows, self.ty());
            return fail(Self::NAME, what);
        }
        Ok(vec![self.ty()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (rows, cols) = (self.rows as usize, self.cols() as usize);
        let mut data = Vec::with_capacity(ins[0].data.len());
        for matrix in ins[0].data.chunks_exact(rows * cols) {
            let places = (0..cols).flat_map(|j| (0..rows).map(move |i| i * cols + j));
            data.extend(places.map(|at| matrix[at]));
        }
        Ok(vec![Tensor::new(self.to.clone(), data)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let to = fixed(&cx.in_type(0)).expect("of a fixed size");
        let (rows, same) = (self.cols(), self.to.clone());
        let (back, d) = (Transpose { rows, to: same }, cx.d());
        let mut back = cx.b.push1(back, &[d]).expect("the same elements");
        if to != self.to {
            back = (cx.b.push1(Reshape::fixed(&to), &[back])).expect("the same elements");
        }
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let (rows, cols) = (self.rows, self.cols());
        let read = Access {
            col: ColMap::Transposed { rows, cols },
            ..Access::full(rows * cols)
        };
        Kind::Rows {
            reads: vec![Read::Through(vec![read])],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, from: &[u64], rows, to: &[u64]| {
            let from = TensorType::real(dims(from));
            let to = to.to_vec();
            Sample::new(Transpose { rows, to }, name, vec![from])
        };
        vec![
            sample("taps", &[20, 1, 3], 20, &[60]),
            sample("matrices", &[4, 6, 3], 6, &[4, 18]),
            sample("a row", &[1, 7], 1, &[7]),
            sample("a column", &[7, 1], 7, &[7]),
        ]
    }
}
