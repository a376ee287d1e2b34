//! A row for each position, added to the tokens there.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::PositionSum;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::{Access, RowMap};

/// `x[B, S, C]`, `table[P, C] → [B, S, C]`, S ≤ P: `y[b, p] = x[b, p] + table[p]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddPositions;

impl Op for AddPositions {
    const NAME: &'static str = "add_positions";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(AddPositions)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, table] = reals(Self::NAME, ins)?;
        let short = |rows: u64| !matches!(x.tokens(), Dim::Fixed(n) if n > rows);
        let fits = |rows, cols| x.is_state() && short(rows) && cols == x.cols();
        match table.shape[..] {
            [Dim::Fixed(rows), Dim::Fixed(c)] if fits(rows, c) => Ok(vec![x.clone()]),
            _ => fail(
                Self::NAME,
                format!("{table} holds no row for positions of {x}"),
            ),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, table) = (ins[0], ins[1]);
        let seq = x.shape[1] as usize;
        if seq > table.rows() {
            let what = format!("sequence of {seq} in a table of {} positions", table.rows());
            let op = Self::NAME;
            return Err(EvalError { op, what });
        }
        let mut out = x.clone();
        for (i, y) in out.data.iter_mut().enumerate() {
            *y += table.data[i % (seq * x.cols())];
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, table) = (cx.d(), cx.in_type(1));
        let Some(Dim::Fixed(positions)) = table.shape.first().copied() else {
            unreachable!("infer asked for a fixed number of rows")
        };
        let sum = PositionSum { positions, beyond: false };
        let rows = cx.b.push1(sum, &[d]).expect("a state has positions");
        Vjp::Rule(vec![Some(d), Some(rows)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let table = Access {
            row: RowMap::Position,
            ..Access::full(ins[0].cols())
        };
        Kind::Rows {
            reads: vec![Read::Pointwise, Read::Through(vec![table])],
            rule: Box::new(|s, xs| s.body.add(xs[0], xs[1])),
        }
    }

    fn samples() -> Vec<Sample> {
        let table = TensorType::real([Dim::Fixed(7), Dim::Fixed(5)]);
        let grid = TensorType::real([Dim::Batch, Dim::Fixed(6), Dim::Fixed(5)]);
        vec![
            Sample::new(AddPositions, "longer table", vec![TensorType::state(5), table.clone()]),
            Sample::new(AddPositions, "grid", vec![grid, table]),
        ]
    }
}
