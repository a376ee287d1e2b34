//! Rows of earlier tokens, while a text is read in pieces ([`Delay`]): specification, signature and meaning.

use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::{Indices, Kind, Launch, Sample, validate};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// Row t of y is rows t − by₁, t − by₂, … of x side by side, zeros where the text has no such token.
///
/// The last [`Delay::reach`] tokens' rows outlive a launch in a ring: that of the token after n others is row n mod reach. Operands x
/// `[batch, seq, cols]`, y `[batch, seq, cols · by.len()]`, ring `[batch, reach, cols]`, of which nothing is read that this text has not
/// written; dims `[batch, seq, past]`. Tiles: blocks of [`Delay::TILE`] columns of a sequence. With `places`, there is a token of each sequence and
/// an operand behind x, `[batch]` of i32, that says how many tokens stand before it in the place of `past`: none is negative.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Delay {
    pub dtype: DType,
    pub cols: u64,
    /// Tokens before each: 0 is the token itself.
    pub by: Vec<u32>,
    /// Whether each sequence has a place of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub places: bool,
}

/// Most rows side by side: each is a load of the kernel.
const MOST_ROWS: usize = 128;

impl Delay {
    pub const TILE: u64 = 64;

    /// Rows of a ring: the longest distance.
    pub fn reach(&self) -> u64 {
        self.by.iter().copied().max().unwrap_or(0).into()
    }

    /// Columns of y.
    pub fn columns(&self) -> u64 {
        self.cols * self.by.len() as u64
    }

    /// Blocks of columns of a sequence.
    pub fn blocks(&self) -> u64 {
        self.cols.div_ceil(Delay::TILE)
    }
}

pub(super) struct DelayKind;

impl Kind for DelayKind {
    type Spec = Delay;
    const NAME: &'static str = "delay";

    fn dtype(k: &Delay) -> DType {
        k.dtype
    }

    fn validate(k: &Delay) -> Result<(), String> {
        validate::sums(k.dtype)?;
        if k.reach() == 0 || k.by.len() > MOST_ROWS {
            return Err(format!("it reads {} rows, {} back", k.by.len(), k.reach()));
        }
        validate::length("rows of a ring", k.reach())?;
        validate::length("columns", k.cols.saturating_mul(k.by.len() as u64))
    }

    fn signature(k: &Delay) -> Signature {
        let operand = |name, mode, extent| OperandAccess::new(name, k.dtype, mode, [extent]);
        let mut dims: Vec<Dimension> = ["batch", "seq", "past"].map(Dimension::any).into();
        if k.places {
            dims[1].fixed = Some(1);
        }
        Signature {
            dtype: k.dtype,
            operands: [operand("x", Mode::Read, Count::rows(&[0, 1], k.cols))]
                .into_iter()
                .chain(k.places.then(|| {
                    let each = Count::rows(&[0], 1);
                    OperandAccess::new("places", DType::I32, Mode::Read, [each])
                }))
                .chain([
                    operand("y", Mode::Write, Count::rows(&[0, 1], k.columns())),
                    operand(
                        "ring",
                        Mode::Accumulate,
                        Count::rows(&[0], k.reach() * k.cols),
                    ),
                ])
                .collect(),
            dims,
            coeffs: 0,
            scratch: vec![],
            work: Work::others(Count::rows(&[0, 1], k.columns())),
        }
    }

    fn tiles(k: &Delay, dims: &[u64]) -> u64 {
        dims[0] * k.blocks()
    }

    fn headline(k: &Delay) -> String {
        format!("{} columns of tokens {:?} before", k.cols, k.by)
    }

    fn run<T: Real>(k: &Delay, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let [batch, seq, past] = [at.dims[0], at.dims[1], at.dims[2]];
        let [y, ring] = [1, 2].map(|n| n + u32::from(k.places));
        for (sequence, t) in (0..batch).flat_map(|b| (0..seq).map(move |t| (b, t))) {
            let row = sequence * seq + t;
            let past = match k.places {
                true => m.load(1, sequence).to_f64() as u64,
                false => past,
            };
            let kept = |n: u64| (sequence * k.reach() + n % k.reach()) * k.cols;
            for c in 0..k.cols {
                let x = m.load(0, row * k.cols + c);
                for (number, by) in k.by.iter().enumerate() {
                    let found = match (u64::from(*by), past + t) {
                        (0, _) => x,
                        (by, token) if by > token => T::ZERO,
                        (by, token) => m.load(ring, kept(token - by) + c),
                    };
                    let place = row * k.columns() + number as u64 * k.cols + c;
                    m.store(y, place, found);
                }
                m.store(ring, kept(past + t) + c, x);
            }
        }
    }

    fn samples() -> Vec<Sample<Delay>> {
        let sample = |dtype, cols, by: &[u32], dims: &[u64]| {
            let by = by.to_vec();
            let spec = Delay {
                dtype,
                cols,
                by,
                places: false,
            };
            Sample::new(spec, dims, &[])
        };
        let mut places = sample(DType::F32, 3, &[1], &[2, 1, 4]);
        places.spec.places = true;
        vec![
            places,
            sample(DType::F32, 3, &[1], &[2, 5, 4]),
            sample(DType::F32, 70, &[3, 2, 1, 0], &[2, 5, 3]),
            sample(DType::F64, 64, &[4, 2, 0], &[1, 4, 9]),
        ]
    }
}
