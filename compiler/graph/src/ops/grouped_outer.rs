//! Outer products summed over the rows of each expert: the gradient of the experts' matrices.

use super::grouped_matmul::{
    choices, factor, matrices, named, read_factors, sum_parts, written_factors, written_most,
};
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::GroupedMatMul;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals, spread_parts};
use crate::tensor::{EvalCx, Tensor, add_scaled};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::kernel::Groups;

/// `experts[.., k]`, `a[.., k·N]`, `b[.., K]` or `b[.., k·K] → [groups, N, K]`, K = `cols`: `Σ a bᵀ` over the parts of rows that have the same
/// expert, zero where none have it. A number names an expert as in a [`GroupedMatMul`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedOuter {
    pub groups: u64,
    pub cols: u64,
    pub partial: bool,
    pub most: Option<u64>,
    /// Whether factors are rounded to bf16 first.
    pub rounded: bool,
}

impl GroupedOuter {
    fn of(&self, ins: &[TensorType]) -> Result<Groups, TypeError> {
        let [experts, a, b] = reals(Self::NAME, ins)?;
        let of = choices(Self::NAME, experts, a)?;
        choices(Self::NAME, experts, b)?;
        let copies = match b.cols() {
            own if self.cols.checked_mul(of) == Some(own) => Some(1),
            one if one == self.cols => Some(of),
            _ => None,
        };
        match copies {
            Some(copies) if a.cols().is_multiple_of(of) => Ok(Groups {
                groups: self.groups,
                copies,
                n: a.cols() / of,
                k: self.cols,
                partial: self.partial,
            }),
            _ => {
                let cols = self.cols;
                let what = format!("{a} and {b} are no rows of {of} parts, the second of {cols}");
                fail(Self::NAME, what)
            }
        }
    }
}

impl Op for GroupedOuter {
    const NAME: &'static str = "grouped_outer";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let own = [("partial", self.partial.to_string())];
        let last = written_most(self.most).into_iter().chain(written_factors(self.rounded));
        own.into_iter().chain(last).collect()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let [groups, _, cols] =
            matrices(Self::NAME, &given.result()?).or_else(|e| given.refuse("", e.what))?;
        Ok(GroupedOuter {
            groups,
            cols,
            partial: given.need("partial")?,
            most: given.optional("most")?,
            rounded: read_factors(given)?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let of = self.of(ins)?;
        let extents = [of.groups, of.n, of.k].map(Dim::Fixed);
        Ok(vec![TensorType::real(extents)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (experts, a) = (ins[0], factor(ins[1], self.rounded));
        let (n, k) = (a.cols() / experts.cols(), self.cols as usize);
        let b = factor(ins[2], self.rounded);
        let b = spread_parts(&b, k, experts.cols());
        let mut out = Tensor::zeros(vec![self.groups, n as u64, self.cols]);
        let rows = a.data.chunks_exact(n).zip(b.chunks_exact(k));
        for (number, (a, b)) in experts.data.iter().zip(rows) {
            let Some(group) = named(self.groups, self.partial, *number) else {
                continue;
            };
            let sums = &mut out.data[group * n * k..][..n * k];
            for (a, sums) in a.iter().zip(sums.chunks_exact_mut(k)) {
                add_scaled(sums, *a, b);
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        if self.rounded {
            return Vjp::NotDifferentiable("precision is chosen after derivatives are taken");
        }
        let (experts, a, b, d) = (cx.ins[0], cx.ins[1], cx.ins[2], cx.d());
        let types: Vec<TensorType> = (0..3).map(|i| cx.in_type(i)).collect();
        let copies = self.of(&types).expect("inferred").copies;
        let mut rows = |transposed, x| {
            let op = GroupedMatMul {
                transposed,
                partial: self.partial,
                most: self.most,
                rounded: false,
            };
            cx.b.push1(op, &[x, experts, d]).expect("the same matrices")
        };
        let (d_a, d_b) = (rows(false, b), rows(true, a));
        let d_b = sum_parts(cx.b, d_b, copies);
        Vjp::Rule(vec![None, Some(d_a), Some(d_b)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let ins: Vec<TensorType> = ins.iter().map(TensorType::widened).collect();
        Kind::GroupedOuter {
            of: self.of(&ins).expect("inferred"),
            rounded: self.rounded,
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, (groups, partial, rounded), [experts, a, b]: [u64; 3]| {
            let op = GroupedOuter {
                groups,
                cols: 5,
                partial,
                most: partial.then_some(3),
                rounded,
            };
            let ins = [experts, a, b].map(TensorType::state).into();
            let from = if partial { -2.0 } else { 0.0 };
            Sample::new(op, name, ins).range(from, 4.0).tolerance(1e-5)
        };
        vec![
            sample("one of four", (4, false, false), [1, 7, 5]),
            sample("two of a row", (4, false, false), [2, 14, 5]),
            sample("two of parts", (4, false, false), [2, 14, 10]),
            sample("some rows", (1, true, false), [1, 7, 5]),
            sample("rounded", (4, false, true), [2, 14, 5]),
        ]
    }
}
