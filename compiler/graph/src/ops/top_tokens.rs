//! Which tokens of a text have the largest scores: what a step that chooses its tokens takes.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::{self, KernelSpec, Share};

/// `scores[B, S, 1], open[B, S, 1] → [B, S, 1]`: 1 where a token is one of the open ones of its text (above 0) with the largest scores, as many
/// as a share of all its tokens, rounded up; else 0. Of equal scores the earlier come first; one that is no number counts as −∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopTokens {
    pub share: Share,
}

impl Op for TopTokens {
    const NAME: &'static str = "top_tokens";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let Share { of, from } = self.share;
        vec![("of", of.to_string()), ("from", from.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let (of, from) = (given.need("of")?, given.need("from")?);
        let share = Share { of, from };
        Ok(TopTokens { share })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [scores, open] = reals(Self::NAME, ins)?;
        if !scores.is_state() || scores.cols() != 1 || scores != open {
            let what = format!("{scores} and {open} are not a number for each token");
            return fail(Self::NAME, what);
        }
        match self.share.is_valid() {
            true => Ok(vec![scores.clone()]),
            false => fail(Self::NAME, "a share is above 0 and at most 1"),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (scores, seq) = (ins[0], ins[0].shape[1].max(1));
        let most = self.share.rounded_up(seq) as usize;
        let mut data = vec![0.0; scores.data.len()];
        let texts = scores.data.chunks(seq as usize);
        let texts = texts.zip(ins[1].data.chunks(seq as usize));
        for ((scores, open), chosen) in texts.zip(data.chunks_mut(seq as usize)) {
            let score = |t: &usize| match scores[*t] {
                x if x.is_nan() => f64::NEG_INFINITY,
                // −0 is 0.
                x => x + 0.0,
            };
            let mut tokens: Vec<usize> = (0..scores.len()).filter(|t| open[*t] > 0.0).collect();
            // Sorting keeps equal ones in their order.
            tokens.sort_by(|a, b| score(b).total_cmp(&score(a)));
            tokens.iter().take(most).for_each(|t| chosen[*t] = 1.0);
        }
        Ok(vec![Tensor::new(scores.shape.clone(), data)])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let share = self.share;
        let kernel = move |dtype| KernelSpec::TopTokens(kernel::TopTokens { dtype, share });
        Kind::One(OneLaunch::along(kernel, ins))
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, of, from, seq| {
            let share = Share { of, from };
            let token = TensorType::state(1);
            Sample::new(TopTokens { share }, name, vec![token.clone(), token]).bindings(2, seq)
        };
        vec![
            sample("a quarter", 1, 4, 7),
            sample("all that are open", 1, 1, 5),
            sample("a third of many", 1, 3, 37),
        ]
    }
}
