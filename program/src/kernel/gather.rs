//! Rows gathered from a table: the specification that kernels of tables share, signature and meaning.

use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::{Indices, Kind, Launch, Sample, validate};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// Gather: `out[r, :] = table[index[r], :]`; operands index (i32), table, out; tiles: one per row.
/// ScatterAdd: `table[index[r], :] += rows[r, :]` for r in order; operands index, rows, table;
/// tiles: blocks of [`Gather::TILE`] columns.
///
/// dims: `[rows, table rows]`. The caller guarantees indices in range (the runtime checks inputs).
///
/// PositionSum: `table[p, :] = Σ_b rows[b · seq + p, :]` for b in order, from zero; rows of the table from `seq` on are
/// zero. dims: `[batch, seq, table rows]`; operands rows, table; tiles: one per row of the table.
///
/// SequenceSum: `out[b, :] = Σ_t rows[b · seq + t, :]` for t in order, from zero. dims: `[batch, seq]`; operands rows, out; tiles:
/// one per sequence.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Gather {
    pub dtype: DType,
    pub cols: u64,
}

impl Gather {
    pub const TILE: u64 = 32;

    pub(super) fn validate(&self) -> Result<(), String> {
        validate::sums(self.dtype)?;
        validate::length("columns", self.cols)
    }

    pub(super) fn headline(&self) -> String {
        format!("rows of {} columns", self.cols)
    }

    /// Rows of the table's width, as many as a product of dims.
    pub(super) fn rows(
        &self,
        name: &'static str,
        mode: Mode,
        dims: &'static [usize],
    ) -> OperandAccess {
        OperandAccess::new(name, self.dtype, mode, [Count::rows(dims, self.cols)])
    }

    /// What kernels that find their rows by an index take: the index, then rows or table, then the other.
    pub(super) fn indexed(&self, operands: [OperandAccess; 2]) -> Signature {
        let index = Count::rows(&[0], 1);
        let index = OperandAccess::new("index", DType::I32, Mode::Index { rows: 1 }, [index]);
        Signature {
            dtype: self.dtype,
            operands: [index].into_iter().chain(operands).collect(),
            dims: vec![Dimension::any("rows"), Dimension::any("table rows")],
            coeffs: 0,
            scratch: vec![],
            work: Work::others(Count::rows(&[0], self.cols)),
        }
    }

    pub(super) fn samples_at(dims: &[u64]) -> Vec<Sample<Gather>> {
        let sample = |dtype| Sample::new(Gather { dtype, cols: 3 }, dims, &[]);
        [DType::F32, DType::F64].map(sample).into()
    }
}

pub(super) struct GatherKind;

impl Kind for GatherKind {
    type Spec = Gather;
    const NAME: &'static str = "gather";

    fn dtype(g: &Gather) -> DType {
        g.dtype
    }

    fn validate(g: &Gather) -> Result<(), String> {
        g.validate()
    }

    fn signature(g: &Gather) -> Signature {
        let table = g.rows("table", Mode::Read, &[1]);
        g.indexed([table, g.rows("out", Mode::Write, &[0])])
    }

    fn tiles(_: &Gather, dims: &[u64]) -> u64 {
        dims[0]
    }

    fn headline(g: &Gather) -> String {
        g.headline()
    }

    fn run<T: Real>(g: &Gather, m: &mut (impl Memory<T> + Indices), at: Launch) {
        for r in 0..at.dims[0] {
            let from = m.index(0, r);
            for c in 0..g.cols {
                let value: T = m.load(1, from * g.cols + c);
                m.store(2, r * g.cols + c, value);
            }
        }
    }

    fn samples() -> Vec<Sample<Gather>> {
        Gather::samples_at(&[4, 6])
    }
}
