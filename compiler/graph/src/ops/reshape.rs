//! The same elements in another shape: what a linear map gives as one row becomes a matrix.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::{Access, Dim};

/// `x` in the shape `to`, row by row; both are of a fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    pub to: Vec<u64>,
}

impl Reshape {
    fn ty(&self) -> TensorType {
        TensorType::real(dims(&self.to))
    }
}

fn dims(shape: &[u64]) -> Vec<Dim> {
    shape.iter().map(|n| Dim::Fixed(*n)).collect()
}

/// The extents of a tensor of fixed size.
fn fixed(t: &TensorType) -> Option<Vec<u64>> {
    let extent = |d: &Dim| match d {
        Dim::Fixed(n) => Some(*n),
        _ => None,
    };
    t.shape.iter().map(extent).collect()
}

impl Op for Reshape {
    const NAME: &'static str = "reshape";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Reshape { to: given.shape()? })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        let elements = |shape: &[u64]| shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let same = fixed(x).is_some_and(|from| elements(&from) == elements(&self.to));
        if self.to.is_empty() || !same {
            return fail(Self::NAME, format!("{x} does not become {}", self.ty()));
        }
        Ok(vec![self.ty()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        Ok(vec![Tensor::new(self.to.clone(), ins[0].data.clone())])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let back = fixed(&cx.in_type(0)).expect("of a fixed size");
        let (back, d) = (Reshape { to: back }, cx.d());
        let back = cx.b.push1(back, &[d]).expect("the same elements");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = self.ty().cols();
        let read = match ins[0].cols() == cols {
            true => Read::Pointwise,
            // One row after another.
            false => Read::Through(vec![Access::full(cols)]),
        };
        Kind::Rows {
            reads: vec![read],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, from: &[u64], to: &[u64]| {
            let from = TensorType::real(dims(from));
            Sample::new(Reshape { to: to.to_vec() }, name, vec![from])
        };
        vec![
            sample("matrix_of_row", &[1, 35], &[5, 7]),
            sample("row_of_matrix", &[5, 7], &[1, 35]),
            sample("vector_of_row", &[1, 20], &[20]),
            sample("row_of_vector", &[20], &[1, 20]),
            sample("other_rows", &[6, 10], &[4, 15]),
        ]
    }
}
