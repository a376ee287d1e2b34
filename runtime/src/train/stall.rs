//! Detects runs that learn nothing: the gradient is exactly zero, or the loss stays at that of guessing.
//!
//! Takes the steps of a run in their order, those of earlier sittings too, so that a resumed run says what an uninterrupted one says; gives one
//! warning at most. Leaves diverging runs, whose numbers are not finite, to [`mod@crate::train::step`].

use crate::train::metrics::Step;
use odec_program::manifest::Manifest;

/// Steps one after the other whose gradient is exactly zero.
const ZERO: u64 = 3;
/// Steps one after the other, behind the warm-up, whose loss is that of guessing.
const FLAT: u64 = 20;
/// How near to it, in nats per token.
const NEAR: f64 = 1e-3;

pub(crate) struct Stall {
    /// 0 where numbers are compared, or several outputs: no loss is known to be that of guessing.
    vocabulary: u64,
    warmup: u64,
    /// Steps so far that were so, without a gap to the last one.
    zero: u64,
    flat: u64,
    /// A gradient other than zero was seen.
    moved: bool,
    said: bool,
}

impl Stall {
    pub fn new(m: &Manifest) -> Stall {
        let warmup = m.train.as_ref().map_or(0, |t| t.schedule.warmup());
        let in_nats = m.train.as_ref().is_none_or(|t| t.measured().is_none());
        let vocabulary = if in_nats { m.model.vocab } else { 0 };
        Stall {
            vocabulary,
            warmup,
            zero: 0,
            flat: 0,
            moved: false,
            said: false,
        }
    }

    /// The next step. The warning, when it is time for it.
    pub fn after(&mut self, s: &Step) -> Option<String> {
        // Where the loss is a sum, its terms stand beside it.
        let terms = ["cross_entropy", "masked"];
        let cross_entropy = terms
            .iter()
            .find_map(|t| s.terms.get(*t))
            .unwrap_or(&s.loss);
        let guessing = (self.vocabulary as f64).ln();
        let flat = s.step > self.warmup && (cross_entropy - guessing).abs() < NEAR;
        let count = |n: u64, so: bool| if so { n + 1 } else { 0 };
        self.zero = count(self.zero, s.grad_norm == 0.0);
        self.flat = count(self.flat, flat);
        self.moved |= s.grad_norm != 0.0;
        let why = match (self.zero >= ZERO, self.flat >= FLAT) {
            (true, _) if self.moved => format!(
                "the gradient has been exactly zero for {ZERO} steps: the model is saturated, most likely by too large a learning rate ({:e}); \
                 start again with a smaller one, or a longer warm-up",
                s.lr
            ),
            (true, _) => format!(
                "the gradient has been exactly zero for the first {ZERO} steps: no trained parameter affects the loss (a field is multiplied by 0, or never evaluated)"
            ),
            (false, true) => format!(
                "the loss has been ln {} = {guessing:.3} for {FLAT} steps, which is that of guessing: the learning rate ({:e}) is too small, or so large \
                 that the model is saturated, or the tokens are random",
                self.vocabulary, s.lr
            ),
            (false, false) => return None,
        };
        let first = !std::mem::replace(&mut self.said, true);
        first.then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(warmup: u64) -> Stall {
        Stall {
            vocabulary: 256,
            warmup,
            zero: 0,
            flat: 0,
            moved: false,
            said: false,
        }
    }

    /// The steps at which something is said, and what.
    fn said(mut of: Stall, steps: impl IntoIterator<Item = (f64, f64)>) -> Vec<(u64, String)> {
        let step = |(n, (loss, grad_norm)): (usize, (f64, f64))| Step {
            step: n as u64 + 1,
            loss,
            grad_norm,
            lr: 1e3,
            ..Step::default()
        };
        let steps = steps.into_iter().enumerate().map(step);
        let said = steps.filter_map(|s| of.after(&s).map(|w| (s.step, w)));
        said.collect()
    }

    #[test]
    fn a_gradient_of_zero_is_said_once_with_its_cause() {
        let saturated = [(5.7, 2.0), (80.0, 3.0)]
            .into_iter()
            .chain([(9.0, 0.0); 40]);
        insta::assert_debug_snapshot!(said(stall(5), saturated));
        insta::assert_debug_snapshot!(said(stall(5), [(9.0, 0.0); 40]));
        let now_and_then = (0..40).map(|n| (3.0, f64::from(n % 3)));
        assert!(said(stall(0), now_and_then).is_empty());
    }

    #[test]
    fn a_loss_of_guessing_is_said_behind_the_warm_up() {
        let guessing = 256f64.ln();
        insta::assert_debug_snapshot!(said(stall(30), [(guessing, 1e-4); 60]));
        assert!(said(stall(0), [(guessing - 2e-3, 1.0); 60]).is_empty());
        assert!(said(stall(30), [(guessing, 1.0); 49]).is_empty());
    }
}
