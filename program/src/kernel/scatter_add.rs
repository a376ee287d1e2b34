//! Rows added to rows of a table ([`Gather`]): signature and meaning.

use super::gather::Gather;
use super::signature::{Mode, Signature};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;

pub(super) struct ScatterAddKind;

impl Kind for ScatterAddKind {
    type Spec = Gather;
    const NAME: &'static str = "scatter_add";

    fn dtype(g: &Gather) -> DType {
        g.dtype
    }

    fn validate(g: &Gather) -> Result<(), String> {
        g.validate()
    }

    fn signature(g: &Gather) -> Signature {
        let rows = g.rows("rows", Mode::Read, &[0]);
        g.indexed([rows, g.rows("table", Mode::Accumulate, &[1])])
    }

    fn tiles(g: &Gather, _: &[u64]) -> u64 {
        g.cols.div_ceil(Gather::TILE)
    }

    fn headline(g: &Gather) -> String {
        g.headline()
    }

    fn run<T: Real>(g: &Gather, m: &mut (impl Memory<T> + Indices), at: Launch) {
        for r in 0..at.dims[0] {
            let to = m.index(0, r);
            for c in 0..g.cols {
                let (old, new): (T, T) = (m.load(2, to * g.cols + c), m.load(1, r * g.cols + c));
                m.store(2, to * g.cols + c, T::binary(BinaryOp::Add, old, new));
            }
        }
    }

    fn samples() -> Vec<Sample<Gather>> {
        Gather::samples_at(&[4, 6])
    }
}
