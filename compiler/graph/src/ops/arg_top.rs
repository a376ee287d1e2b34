//! Which column of every row is the largest, or the second largest, …: what a router chooses.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, fold_cols, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{CmpOp, Expr, ReduceOp};

/// `[.., C] → [.., 1]`: the number of the column with `rank` columns before it, those that are larger, and of equal ones those that
/// come first. Of columns that are no numbers, or below all f32, any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgTop {
    pub rank: u64,
}

/// In the place of columns that were found: a number that manifests can hold.
const LOWEST: f64 = f32::MIN as f64;

impl ArgTop {
    /// Largest rank: a row's columns are compared once for each.
    pub const MOST: u64 = 15;
}

impl Op for ArgTop {
    const NAME: &'static str = "arg_top";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("rank", self.rank.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let rank = given.need("rank")?;
        Ok(ArgTop { rank })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        if x.rank() == 0 || self.rank >= x.cols() || self.rank > Self::MOST {
            let what = format!("{x} has no column of rank {}", self.rank);
            return fail(Self::NAME, what);
        }
        Ok(vec![x.per_row()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let column = |row: &[f64]| {
            let mut columns: Vec<usize> = (0..row.len()).collect();
            // Sorting keeps equal ones in their order; −0 is 0.
            columns.sort_by(|a, b| (row[*b] + 0.0).total_cmp(&(row[*a] + 0.0)));
            columns[self.rank as usize] as f64
        };
        fold_cols(ins[0], column)
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let (rank, last) = (self.rank, ins[0].cols() as f64 - 1.0);
        Kind::Rows {
            reads: vec![Read::Pointwise],
            rule: Box::new(move |s, xs| {
                let col = s.body.push(Expr::ColIndex);
                let (last, zero) = (s.body.konst(last), s.body.konst(0.0));
                let none = s.body.konst(LOWEST);
                let from_last = s.body.sub(last, col);
                let (mut x, mut found) = (xs[0], zero);
                for n in 0..=rank {
                    // The first of the columns that are largest is the farthest from the last.
                    let largest = s.body.reduce(ReduceOp::Max, x);
                    let distance = s.body.select(CmpOp::Eq, x, largest, from_last, zero);
                    let distance = s.body.reduce(ReduceOp::Max, distance);
                    found = s.body.sub(last, distance);
                    if n < rank {
                        x = s.body.select(CmpOp::Eq, col, found, none, x);
                    }
                }
                found
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, rank| Sample::new(ArgTop { rank }, name, vec![TensorType::state(9)]);
        vec![
            sample("largest", 0),
            sample("second", 1),
            sample("smallest", 8),
        ]
    }
}
