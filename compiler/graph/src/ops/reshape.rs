//! The same elements in another shape: what a linear map gives as one row becomes a matrix.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::{Access, Dim, Size};
use std::sync::Arc;

/// `x` in the shape `to`, row by row: `[B, S, C]` as `[B, S, heads, C/heads]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    pub to: Arc<[Dim]>,
}

impl Reshape {
    pub fn of(to: impl Into<Arc<[Dim]>>) -> Reshape {
        Reshape { to: to.into() }
    }

    /// To a fixed size.
    pub fn fixed(shape: &[u64]) -> Reshape {
        Reshape { to: dims(shape) }
    }

    fn ty(&self) -> TensorType {
        TensorType::real(self.to.clone())
    }
}

pub(super) fn dims(shape: &[u64]) -> Arc<[Dim]> {
    shape.iter().map(|n| Dim::Fixed(*n)).collect()
}

/// The extents of a tensor of fixed size.
pub(super) fn fixed(t: &TensorType) -> Option<Vec<u64>> {
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
        let to = given.result()?.shape;
        Ok(Reshape { to })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        let elements = Size::of(&self.to);
        if elements != Size::of(&x.shape) {
            return fail(Self::NAME, format!("{x} does not become {}", self.ty()));
        }
        Ok(vec![self.ty()])
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let shape = self.ty().concrete(cx.bindings);
        Ok(vec![Tensor::new(shape, ins[0].data.clone())])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let to = cx.in_type(0).shape;
        let (back, d) = (Reshape { to }, cx.d());
        let back = cx.b.push1(back, &[d]).expect("the same elements");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = self.ty().cols();
        let read = match ins[0].fit(&self.ty()).or(self.ty().fit(&ins[0])) {
            Some(_) if ins[0].cols() == cols => Read::Pointwise,
            _ if ins[0].elem == Elem::Real => return Kind::View,
            // What is kept in bf16 is widened, one row after another.
            _ if cols == 1 => Read::Through(vec![Access::PER_ROW]),
            _ => Read::Through(vec![Access::full(cols)]),
        };
        Kind::Rows {
            reads: vec![read],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, from: &[u64], to: &[u64]| {
            let from = TensorType::real(dims(from));
            Sample::new(Reshape::fixed(to), name, vec![from])
        };
        let heads = vec![Dim::Batch, Dim::Seq, Dim::Fixed(4), Dim::Fixed(5)];
        let (state, split) = (TensorType::state(20), TensorType::real(heads));
        let to = |name, from: &TensorType, to: &TensorType| {
            let to = to.shape.clone();
            Sample::new(Reshape { to }, name, vec![from.clone()])
        };
        vec![
            to("heads", &state, &split),
            to("columns", &split, &state),
            to("a_number_for_each_head", &split.per_row(), &TensorType::state(4)),
            to("a_head_for_each_number", &TensorType::state(4), &split.per_row()),
            sample("matrix_of_row", &[1, 35], &[5, 7]),
            sample("row_of_matrix", &[5, 7], &[1, 35]),
            sample("vector_of_row", &[1, 20], &[20]),
            sample("row_of_vector", &[20], &[1, 20]),
            sample("other_rows", &[6, 10], &[4, 15]),
            sample("number_of_vector", &[1], &[]),
            sample("vector_of_number", &[], &[1]),
        ]
    }
}
