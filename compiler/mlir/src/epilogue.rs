//! Epilogues of contractions: an expression applied to finished elements on their way to memory.
//!
//! Takes a vector of sums at a row and column of C; gives the vector to store. What is the same for the
//! whole launch is computed at the start of the kernel, what is the same for a column once per register
//! tile.

use crate::body::{Lowered, Values};
use crate::emit::{Emitter, Type, Val};
use odec_program::expr::{ColMap, Expr, Level, RowMap};
use odec_program::kernel::Contract;

/// Consecutive columns of C, one vector of them.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub first: Val,
    /// Which of them exist; all of them if there is no mask.
    pub mask: Option<Val>,
}

/// An epilogue within its kernel.
pub(crate) struct Epilogue {
    body: Lowered,
    root: usize,
    marks: Vec<bool>,
    operands: Vec<Val>,
    /// The values that do not depend on row and column.
    fixed: Values,
}

/// Operands before the epilogue's own: A and the packed B.
const FIRST: u32 = 2;

impl Epilogue {
    /// Emits what is computed once per launch. `None` when the contraction has no epilogue.
    ///
    /// # Errors
    /// Reductions, and operands that are read by position, repeated or swapped.
    pub fn new(e: &mut Emitter, spec: &Contract) -> Result<Option<Epilogue>, String> {
        let Some(epilogue) = &spec.epilogue else {
            return Ok(None);
        };
        for node in &epilogue.body.nodes {
            match node {
                Expr::Load { operand, .. }
                    if !(FIRST..FIRST + epilogue.operands).contains(operand) =>
                {
                    return Err(format!(
                        "the epilogue reads operand {operand}, which is not its own"
                    ));
                }
                Expr::Load { access, .. } => match (access.row, access.col) {
                    (RowMap::Row | RowMap::Zero, ColMap::Col | ColMap::Zero) => {}
                    _ => return Err(format!("the epilogue reads an operand by {access:?}")),
                },
                Expr::Uniform(n) if *n >= epilogue.uniforms => {
                    return Err(format!(
                        "the epilogue reads coefficient {n} of {}",
                        epilogue.uniforms
                    ));
                }
                Expr::Reduce(..) => return Err("the epilogue contains a reduction".into()),
                _ => {}
            }
        }
        let operands: Vec<Val> = (0..epilogue.operands)
            .map(|n| e.operand((FIRST + n) as u64))
            .collect();
        let body = Lowered::new(&epilogue.body, spec.dtype);
        let root = body.node(epilogue.value);
        let marks = body.needed(&[root]);
        let fixed = body.no_values();
        let mut out = Epilogue {
            body,
            root,
            marks,
            operands,
            fixed,
        };
        let zero = e.int(0);
        let nowhere = Columns {
            first: zero,
            mask: None,
        };
        out.fixed = out.advance(e, &out.fixed, Level::Uniform, None, zero, nowhere);
        Ok(Some(out))
    }

    /// Adds the values that depend on the column only.
    pub fn at_columns(&self, e: &mut Emitter, columns: Columns) -> Values {
        let zero = e.int(0);
        self.advance(e, &self.fixed, Level::Col, None, zero, columns)
    }

    /// The finished element of the sums `acc` of a row, `values` being those of its columns.
    pub fn apply(
        &self,
        e: &mut Emitter,
        values: &Values,
        acc: Val,
        row: Val,
        columns: Columns,
    ) -> Val {
        let values = self.advance(e, values, Level::Element, Some(acc), row, columns);
        values[self.root].expect("the root is marked")
    }

    /// Emits the nodes of a level (all that are left for `Element`).
    fn advance(
        &self,
        e: &mut Emitter,
        values: &Values,
        level: Level,
        acc: Option<Val>,
        row: Val,
        columns: Columns,
    ) -> Values {
        let wanted = |l: Level| l == level || level == Level::Element;
        let marks: Vec<bool> = self
            .marks
            .iter()
            .zip(&self.body.levels)
            .map(|(m, l)| *m && wanted(*l))
            .collect();
        let mut values = values.clone();
        let ty = e.vector();
        self.body.emit(e, &marks, ty, &mut values, |e, node| {
            self.leaf(e, node, acc, row, columns)
        });
        values
    }

    fn leaf(
        &self,
        e: &mut Emitter,
        node: &Expr,
        acc: Option<Val>,
        row: Val,
        columns: Columns,
    ) -> Val {
        match *node {
            Expr::Acc => acc.expect("sums are per element"),
            Expr::Uniform(n) => {
                let x = e.coeff(n as u64);
                e.broadcast(x, e.lanes)
            }
            Expr::RowIndex => {
                let row = e.convert(row, e.elem);
                e.broadcast(row, e.lanes)
            }
            Expr::ColIndex => crate::access::column_numbers(
                e,
                crate::access::Columns::full(columns.first, e.lanes),
            ),
            Expr::Load { operand, access } => {
                let (pointer, elem) = (self.operands[(operand - FIRST) as usize], e.elem);
                let mut offset = match access.row {
                    RowMap::Row => e.mul_int(row, access.stride as i64),
                    _ => e.int(0),
                };
                if access.col == ColMap::Zero {
                    let p = e.at(pointer, offset, elem);
                    let x = e.load(p, Type::scalar(elem));
                    return e.broadcast(x, e.lanes);
                }
                offset = e.add(offset, columns.first);
                let p = e.at(pointer, offset, elem);
                e.load_lanes(p, columns.mask, e.vector())
            }
            _ => unreachable!("constants and arithmetic are emitted by the body"),
        }
    }
}
