//! Adaptive computation time: each token finds its own number of steps (Graves 2016, arXiv:1603.08983, 2.1), as in the Universal
//! Transformer (Dehghani et al. 2019, arXiv:1807.03819, 2.2).
//!
//! For each token, with Φ a step, H the halting field, θ the threshold and M the most steps,
//! ```text
//! xₙ = Φ(xₙ₋₁),  hₙ = H(xₙ),  N = the first n with h₁ + … + hₙ ≥ θ, or M,  R = 1 − (h₁ + … + h_{N−1})
//! the state after all steps is  Σ_{n<N} hₙ xₙ + R x_N,  and N + R is what it has pondered
//! ```
//! After step N a token keeps x_N, which is what later steps of other tokens attend to. A token's N depends on no token that it does not
//! attend to, so what is causal stays causal. All M steps are unrolled; one that no token makes is passed over. N is a constant to the
//! gradient. A sum that is no number has reached the threshold.

use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::kv::KvMode;
use super::phase::Pass;
use super::random::Perhaps;
use super::step::Kept;
use super::step_count::Halting;
use crate::error::BuildError;
use crate::scheme::stage::Phase;
use odec_graph::ops::{Broadcast, Mul, Shift, WherePositive};
use odec_graph::solve::choose;
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::manifest::depth;

/// What is known of every token between steps, a number each.
struct Tokens {
    /// 1 where it makes the next step, else 0.
    open: Value,
    /// The sum of hₙ over the steps that were not its last.
    sum: Value,
    /// Steps it has made.
    made: Value,
    /// Its R, once it has made its last step; 0 before.
    rest: Value,
}

pub(super) fn plus(b: &mut Builder, x: Value, y: Value) -> Result<Value, TypeError> {
    nn::combine(b, &[(Exact::one(), x), (Exact::one(), y)])
}

/// `1 − x`.
fn left(b: &mut Builder, x: Value) -> Result<Value, TypeError> {
    let minus = nn::combine(b, &[(Exact::int(-1), x)])?;
    b.push1(Shift { by: Exact::one() }, &[minus])
}

impl Tokens {
    fn new(b: &mut Builder, x: Value) -> Result<Tokens, TypeError> {
        let to = b.ty(x).per_row();
        let mut each = |value: Exact| {
            let value = nn::constant(b, value)?;
            b.push1(Broadcast { to: to.clone() }, &[value])
        };
        let (one, zero) = (each(Exact::one())?, each(Exact::zero())?);
        Ok(Tokens {
            open: one,
            sum: zero,
            made: zero,
            rest: zero,
        })
    }

    /// Goes on after a step, with what the halting field made of its state; without it the step is the last. Gives the weight of
    /// that state.
    fn next(
        &mut self,
        b: &mut Builder,
        h: Option<Value>,
        threshold: &Exact,
    ) -> Result<Value, TypeError> {
        let open = self.open;
        self.made = plus(b, self.made, open)?;
        let rest = left(b, self.sum)?;
        let Some(h) = h else {
            let weight = b.push1(Mul, &[open, rest])?;
            self.rest = plus(b, self.rest, weight)?;
            return Ok(weight);
        };
        let minus = Exact::int(-1);
        let under = nn::combine(b, &[(minus.clone(), self.sum), (minus.clone(), h)])?;
        let by = threshold.clone();
        let under = b.push1(Shift { by }, &[under])?;
        self.open = b.push1(WherePositive, &[under, open])?;
        let ends = nn::combine(b, &[(Exact::one(), open), (minus, self.open)])?;
        let (on, end) = (b.push1(Mul, &[self.open, h])?, b.push1(Mul, &[ends, rest])?);
        self.sum = plus(b, self.sum, on)?;
        self.rest = plus(b, self.rest, end)?;
        plus(b, on, end)
    }
}

impl GraphBuilder<'_> {
    /// The state of every token after as many steps as it takes.
    pub(super) fn halting(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        halt: &Halting,
        mut x: Value,
    ) -> Result<Value, BuildError> {
        let outside = e.outside();
        let mut kept = Kept::new();
        let mut found: Option<(Tokens, Value)> = None;
        for (at, program) in e.unrolled.phases() {
            let Phase::Step(k) = at else {
                x = self.whole(b, e, (at, program), x, &mut kept)?;
                continue;
            };
            let open = found.as_ref().map(|(tokens, _)| tokens.open);
            x = match open {
                // All tokens make the first one.
                None => self.whole(b, e, (at, program), x, &mut kept)?,
                // Of what is passed over there would be no keys and values for later tokens.
                Some(open) if self.kv != KvMode::Prefill => {
                    let made = self.whole(b, e, (at, program), x, &mut kept)?;
                    choose(b, open, made, x)?
                }
                Some(open) => {
                    b.site = outside.clone().into();
                    b.span = Some(e.span);
                    let any = nn::mean_rows(b, open)?;
                    let whether = Perhaps {
                        made: any,
                        counts: any,
                        tokens: Some(open),
                    };
                    self.perhaps(b, e, (at, program), (x, &kept), whether)?
                }
            };
            let h = match k as u64 + 1 < e.steps {
                true => Some(self.decision(b, e, (&halt.field, Some(k as u32)), x)?),
                false => None,
            };
            b.site = outside.clone().into();
            b.span = Some(e.span);
            let (mut tokens, sum) = match found.take() {
                None => (Tokens::new(b, x)?, None),
                Some((tokens, sum)) => (tokens, Some(sum)),
            };
            // Outside: the gradient of every weight is asked for at once, and would have all steps computed again at once.
            let weight = tokens.next(b, h, &halt.threshold)?;
            let part = b.push1(Mul, &[weight, x])?;
            let sum = match sum {
                None => part,
                Some(sum) => plus(b, sum, part)?,
            };
            found = Some((tokens, sum));
        }
        let missing = || BuildError::Missing("a step".into());
        let (tokens, sum) = found.ok_or_else(missing)?;
        b.site = outside.into();
        b.span = Some(e.span);
        let made = self.over_tokens(b, tokens.made)?;
        let made = nn::mean_rows(b, made)?;
        let name = depth::output(&e.label, depth::MADE);
        self.decided.push((name, made));
        let pondered = plus(b, tokens.made, tokens.rest)?;
        let pondered = self.over_targets(b, pondered)?;
        self.collected.pondered(pondered);
        Ok(sum)
    }

    /// The state after a step that is made as a whole.
    pub(super) fn whole(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        at: (Phase, usize),
        x: Value,
        kept: &mut Kept,
    ) -> Result<Value, BuildError> {
        let pass = Pass {
            kept: Some(kept),
            ..Pass::default()
        };
        let (x, _) = self.phase(b, e, at, x, pass)?;
        self.collected.settle();
        Ok(x)
    }
}
