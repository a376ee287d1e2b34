//! Rows of several sequences that take their places among those that are kept ([`Keep`]): specification, signature and meaning.

use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::{Indices, Kind, Launch, Sample, validate};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// `kept[s, place[s], :] = rows[s, :]`: a row of each sequence, of which `room` rows are kept.
///
/// Operands places (i32), each below `room`, rows `[sequences, cols]`, kept `[sequences, room, cols]`, of which all else stays; dims
/// `[sequences, room]`. Tiles: one per sequence.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Keep {
    pub dtype: DType,
    /// The type of rows in memory, which do not change on their way.
    pub elements: DType,
    pub cols: u64,
    pub room: u64,
}

pub(super) struct KeepKind;

impl Kind for KeepKind {
    type Spec = Keep;
    const NAME: &'static str = "keep";

    fn dtype(k: &Keep) -> DType {
        k.dtype
    }

    fn validate(k: &Keep) -> Result<(), String> {
        validate::sums(k.dtype)?;
        validate::reads(k.dtype, k.elements)?;
        validate::length("columns", k.cols)?;
        validate::length("rows that are kept", k.room)
    }

    fn signature(k: &Keep) -> Signature {
        let rows = |name, mode, each| {
            OperandAccess::new(name, k.elements, mode, [Count::rows(&[0], each)])
        };
        let (mode, each) = (Mode::Index { rows: 1 }, Count::rows(&[0], 1));
        let room = Dimension {
            name: "room",
            fixed: Some(k.room),
        };
        Signature {
            dtype: k.dtype,
            operands: vec![
                OperandAccess::new("places", DType::I32, mode, [each]),
                rows("rows", Mode::Read, k.cols),
                rows("kept", Mode::Place, k.room.saturating_mul(k.cols)),
            ],
            dims: vec![Dimension::any("sequences"), room],
            coeffs: 0,
            scratch: vec![],
            work: Work::others(Count::rows(&[0], k.cols)),
        }
    }

    fn tiles(_: &Keep, dims: &[u64]) -> u64 {
        dims[0]
    }

    fn headline(k: &Keep) -> String {
        format!("rows of {} columns among {} kept", k.cols, k.room)
    }

    fn run<T: Real>(k: &Keep, m: &mut (impl Memory<T> + Indices), at: Launch) {
        for sequence in 0..at.dims[0] {
            let to = sequence * k.room + m.index(0, sequence);
            for c in 0..k.cols {
                let x: T = m.load(1, sequence * k.cols + c);
                m.store(2, to * k.cols + c, x);
            }
        }
    }

    fn samples() -> Vec<Sample<Keep>> {
        let sample = |dtype, elements, cols, dims: &[u64]| {
            let spec = Keep {
                dtype,
                elements,
                cols,
                room: dims[1],
            };
            Sample::new(spec, dims, &[])
        };
        vec![
            sample(DType::F32, DType::F32, 3, &[1, 5]),
            sample(DType::F32, DType::Bf16, 18, &[3, 1]),
            sample(DType::F64, DType::F64, 16, &[1, 2]),
        ]
    }
}
