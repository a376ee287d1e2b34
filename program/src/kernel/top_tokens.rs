//! The tokens of each sequence with the largest scores ([`TopTokens`]): specification, signature and meaning.

use super::signature::{Count, Dimension, Mode, OperandAccess, Pairs, Signature, Work};
use super::{Indices, Kind, Launch, Sample, validate};
use crate::DType;
use crate::eval::Memory;
use crate::expr::CmpOp;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// `out[t]` is 1 where token t is open and fewer than k open tokens of its sequence stand before it, and 0 elsewhere.
///
/// A token is open where `open[t]` is above 0. Before a token stand those with larger scores, and of equal ones the earlier; a score that is
/// no number counts as −∞. k is a share of all tokens of the sequence, rounded up. Operands scores, open, out `[batch, seq]`; dims
/// `[batch, seq]`. Tiles: blocks of [`TopTokens::TILE`] tokens of a sequence.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct TopTokens {
    pub dtype: DType,
    pub share: Share,
}

/// `of / from`, above 0 and at most 1, of the tokens of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    pub of: u32,
    pub from: u32,
}

impl Share {
    /// Largest numerator and denominator: products with a number of tokens are far from overflow in 64 bits.
    pub const MOST: u32 = i32::MAX as u32;

    /// Whether it is one that kernels can take.
    pub fn is_valid(self) -> bool {
        (1..=self.from).contains(&self.of) && self.from <= Share::MOST
    }

    pub fn is_all(self) -> bool {
        self.of == self.from
    }

    /// So many of `tokens`, rounded up: at least one, if there is any.
    pub fn rounded_up(self, tokens: u64) -> u64 {
        let exact = u128::from(self.of) * u128::from(tokens);
        let tokens = exact.div_ceil(u128::from(self.from));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

impl TopTokens {
    pub const TILE: u64 = 16;
}

pub(super) struct TopTokensKind;

impl Kind for TopTokensKind {
    type Spec = TopTokens;
    const NAME: &'static str = "top_tokens";

    fn dtype(k: &TopTokens) -> DType {
        k.dtype
    }

    fn validate(k: &TopTokens) -> Result<(), String> {
        validate::sums(k.dtype)?;
        match k.share.is_valid() {
            true => Ok(()),
            false => Err(format!("it takes {} of {}", k.share.of, k.share.from)),
        }
    }

    fn signature(k: &TopTokens) -> Signature {
        let tokens = || [Count::rows(&[0, 1], 1)];
        let operand = |name, mode| OperandAccess::new(name, k.dtype, mode, tokens());
        let compared = Pairs {
            sequences: Some(0),
            queries: 1,
            past: None,
            causal: false,
            window: None,
            each: 1,
        };
        Signature {
            dtype: k.dtype,
            operands: vec![
                operand("scores", Mode::Read),
                operand("open", Mode::Read),
                operand("out", Mode::Write),
            ],
            dims: ["batch", "seq"].map(Dimension::any).into(),
            coeffs: 0,
            scratch: vec![],
            work: Work::others(Count::Pairs(compared)),
        }
    }

    fn tiles(_: &TopTokens, dims: &[u64]) -> u64 {
        dims[0] * dims[1].div_ceil(TopTokens::TILE)
    }

    fn headline(k: &TopTokens) -> String {
        format!("{} of {} tokens", k.share.of, k.share.from)
    }

    fn run<T: Real>(k: &TopTokens, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let [batch, seq] = [at.dims[0], at.dims[1]];
        let most = k.share.rounded_up(seq);
        for sequence in 0..batch {
            let tokens = sequence * seq..(sequence + 1) * seq;
            let score = |t: u64| match m.load(0, t) {
                x if T::compare(CmpOp::Eq, x, x) => x,
                _ => T::of(f64::NEG_INFINITY),
            };
            let scores = tokens.map(|t| (t, score(t), m.load(1, t) > T::ZERO));
            let scores: Vec<(u64, T, bool)> = scores.collect();
            for (t, x, open) in &scores {
                let before = |(u, y, open): &&(u64, T, bool)| *open && (y > x || (y == x && u < t));
                let before = scores.iter().filter(before).count() as u64;
                let chosen = *open && before < most;
                m.store(2, *t, T::of(f64::from(u8::from(chosen))));
            }
        }
    }

    fn samples() -> Vec<Sample<TopTokens>> {
        let sample = |dtype, of, from, dims: &[u64]| {
            let share = Share { of, from };
            Sample::new(TopTokens { dtype, share }, dims, &[])
        };
        vec![
            sample(DType::F32, 1, 3, &[2, 7]),
            sample(DType::F32, 2, 3, &[1, 37]),
            sample(DType::F64, 1, 1, &[3, 16]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn shares_are_rounded_up() {
        let third = Share { of: 1, from: 3 };
        assert_eq!(
            [1, 2, 3, 4, 6, 7].map(|n| third.rounded_up(n)),
            [1, 1, 1, 2, 2, 3]
        );
        let most = Share {
            of: Share::MOST - 1,
            from: Share::MOST,
        };
        assert_eq!(most.rounded_up(1 << 40), (1 << 40) - (1 << 9));
        assert!(most.is_valid() && !Share { of: 0, from: 3 }.is_valid());
        assert!(!Share { of: 4, from: 3 }.is_valid());
    }
}
