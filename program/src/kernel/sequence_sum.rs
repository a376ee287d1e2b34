//! Sums of the rows of each sequence ([`Gather`]): signature and meaning.

use super::gather::Gather;
use super::signature::{Count, Dimension, Mode, Signature, Work};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;

pub(super) struct SequenceSumKind;

impl Kind for SequenceSumKind {
    type Spec = Gather;
    const NAME: &'static str = "sequence_sum";

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
                g.rows("out", Mode::Write, &[0]),
            ],
            dims: ["batch", "seq"].map(Dimension::any).into(),
            coeffs: 0,
            scratch: vec![],
            work: Work::others(Count::rows(&[0, 1], g.cols)),
        }
    }

    fn tiles(_: &Gather, dims: &[u64]) -> u64 {
        dims[0]
    }

    fn headline(g: &Gather) -> String {
        g.headline()
    }

    fn run<T: Real>(g: &Gather, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let seq = at.dims[1];
        for sequence in 0..at.dims[0] {
            for c in 0..g.cols {
                let add = |sum: T, t: u64| {
                    let x = m.load(0, (sequence * seq + t) * g.cols + c);
                    T::binary(BinaryOp::Add, sum, x)
                };
                let sum = (0..seq).fold(T::ZERO, add);
                m.store(1, sequence * g.cols + c, sum);
            }
        }
    }

    fn samples() -> Vec<Sample<Gather>> {
        Gather::samples_at(&[2, 3])
    }
}
