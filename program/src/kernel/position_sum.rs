//! Sums of rows of the same position ([`Gather`]), and of all that are beyond the last: signature and meaning.

use super::gather::Gather;
use super::signature::{Count, Dimension, Mode, Signature, Work};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;

pub(super) struct PositionSumKind;

impl Kind for PositionSumKind {
    type Spec = Gather;
    const NAME: &'static str = "position_sum";

    fn dtype(g: &Gather) -> DType {
        g.dtype
    }

    fn validate(g: &Gather) -> Result<(), String> {
        g.validate()
    }

    fn signature(g: &Gather) -> Signature {
        Signature {
            dtype: g.dtype,
            operands: vec![
                g.rows("rows", Mode::Read, &[0, 1]),
                g.rows("table", Mode::Write, &[2]),
            ],
            dims: ["batch", "seq", "table rows"].map(Dimension::any).into(),
            coeffs: 0,
            scratch: vec![],
            work: Work::others(Count::rows(&[0, 1], g.cols)),
        }
    }

    fn tiles(_: &Gather, dims: &[u64]) -> u64 {
        dims[2]
    }

    fn headline(g: &Gather) -> String {
        g.headline()
    }

    fn run<T: Real>(g: &Gather, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let (batch, seq) = (at.dims[0], at.dims[1]);
        for p in 0..at.dims[2] {
            let sequences = if p < seq { batch } else { 0 };
            // The last row takes what is beyond it as well.
            let end = if p + 1 == at.dims[2] { seq } else { p + 1 };
            for c in 0..g.cols {
                let rows = (p..end).flat_map(|p| (0..sequences).map(move |b| b * seq + p));
                let add = |sum: T, row: u64| {
                    let x = m.load(0, row * g.cols + c);
                    T::binary(BinaryOp::Add, sum, x)
                };
                let sum = rows.fold(T::ZERO, add);
                m.store(1, p * g.cols + c, sum);
            }
        }
    }

    fn samples() -> Vec<Sample<Gather>> {
        let beyond = Gather::samples_at(&[2, 5, 3]);
        Gather::samples_at(&[2, 3, 5])
            .into_iter()
            .chain(beyond)
            .collect()
    }
}
