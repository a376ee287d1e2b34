//! Adaptive step sizes: steps are chosen by their errors until a time is reached.
//!
//! Every attempt is unrolled. What differs between runs is decided by numbers: the time that is left, whose being positive says that
//! an attempt is made at all, and whether its error is small enough. Attempts that are not made, and the derivatives of those that
//! are refused, are read by nothing and passed over (`passes/predication.rs`). The control is that of Hairer, Nørsett & Wanner (1993),
//! "Solving Ordinary Differential Equations I", II.4, with the error
//! ```text
//! err = √(mean over all elements of (eᵢ / (atol + rtol·max(|xᵢ|, |x'ᵢ|)))²)                 (4.11)
//! h ← h · min(5, max(1/5, 9/10 · err^(−1/(q+1))))                                           (4.13)
//! ```
//! q being the smaller order of the pair; a step that would end beyond 99% of what is left ends at its end. Step sizes are constants
//! to the gradient: it is that of the steps that were accepted. An error that is no number is too large.

use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::phase::Pass;
use super::step_count::Adaptive;
use crate::error::BuildError;
use crate::scheme::stage::Phase;
use odec_graph::ops::{
    Exp, Log, Mul, Predicate, RegionBegin, ScaledError, Select, Shift, StopGradient, SumCols,
};
use odec_graph::{Builder, Exact, TypeError, TypeResult, Value, nn};
use odec_program::manifest::depth;

fn hold(b: &mut Builder, flag: Value, x: Value, y: Value) -> TypeResult {
    b.push1(Select, &[flag, x, y])
}

fn number(b: &mut Builder, value: Exact) -> TypeResult {
    nn::constant(b, value)
}

/// `c·x + by`.
fn affine(b: &mut Builder, c: Exact, x: Value, by: Exact) -> TypeResult {
    let scaled = nn::combine(b, &[(c, x)])?;
    b.push1(Shift { by }, &[scaled])
}

fn minus(b: &mut Builder, x: Value, y: Value) -> TypeResult {
    nn::combine(b, &[(Exact::one(), x), (Exact::int(-1), y)])
}

/// `c − x`.
fn minus_from(b: &mut Builder, c: &Exact, x: Value) -> TypeResult {
    affine(b, Exact::int(-1), x, c.clone())
}

/// What goes from one attempt to the next.
struct Clock {
    /// Time that is left.
    rest: Value,
    /// The step to try.
    h: Value,
    attempts: Value,
    accepted: Value,
}

impl GraphBuilder<'_> {
    /// The state at the end.
    pub(super) fn adaptive(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        a: &Adaptive,
        mut x: Value,
    ) -> Result<Value, BuildError> {
        let outside = e.outside();
        b.site = outside.clone().into();
        b.span = Some(e.span);
        let zero = number(b, Exact::zero())?;
        let mut clock = Clock {
            rest: number(b, a.until.clone())?,
            h: number(b, a.first.clone())?,
            attempts: zero,
            accepted: zero,
        };
        for k in 0..e.unrolled.steps.len() {
            b.site = outside.clone().into();
            b.span = Some(e.span);
            let near = [
                (Exact::ratio(101, 100), clock.h),
                (Exact::int(-1), clock.rest),
            ];
            let near = nn::combine(b, &near)?;
            let h = hold(b, near, clock.rest, clock.h)?;
            let h = b.push1(StopGradient, &[h])?;
            let region = self.params.enter_region();
            let from = b.push1(RegionBegin { region }, &[x])?;
            let done = minus_from(b, &a.until, clock.rest)?;
            let t = b.push1(StopGradient, &[done])?;
            let pass = Pass {
                clock: Some([t, h]),
                ..Pass::default()
            };
            let at = (Phase::Step(k), e.unrolled.steps[k]);
            let (made, error) = self.phase(b, e, at, from, pass)?;
            self.params.leave_region();
            let error = error.ok_or_else(|| BuildError::Missing("an embedded partner".into()))?;
            b.site.path = "error".into();
            let scaled = ScaledError {
                rtol: a.rtol.clone(),
                atol: a.atol.clone(),
            };
            let scaled = b.push1(scaled, &[error, x, made])?;
            let cols = b.ty(scaled).cols().try_into().unwrap_or(i64::MAX);
            let sums = b.push1(SumCols, &[scaled])?;
            let mean = nn::mean_rows(b, sums)?;
            let mean = nn::combine(b, &[(Exact::ratio(1, cols), mean)])?;
            b.site = outside.clone().into();
            let accept = clock.decide(b, a, (h, mean), region)?;
            b.site.step = Some(k as u32);
            x = hold(b, accept, made, x)?;
            self.collected.hold(b, accept)?;
        }
        let Clock {
            rest,
            attempts,
            accepted,
            ..
        } = clock;
        for (what, v) in [
            (depth::REST, rest),
            (depth::ATTEMPTS, attempts),
            (depth::ACCEPTED, accepted),
        ] {
            self.decided.push((depth::output(&e.label, what), v));
        }
        Ok(x)
    }
}

impl Clock {
    /// Goes on after an attempt of size `h` with the mean square `mean` of its scaled errors; gives whether it is accepted.
    fn decide(
        &mut self,
        b: &mut Builder,
        a: &Adaptive,
        (h, mean): (Value, Value),
        region: u32,
    ) -> TypeResult {
        let zero = number(b, Exact::zero())?;
        let mean = b.push1(StopGradient, &[mean])?;
        let left = affine(b, Exact::int(-1), mean, Exact::one())?;
        let accept = hold(b, self.rest, left, zero)?;
        let accept = b.push1(Predicate { region }, &[accept])?;

        // The logarithm of 0 is not asked for: any error that small has the largest factor.
        let least = Exact::decimal("1e-20").map_err(|e| TypeError {
            op: "adaptive",
            what: e.to_string(),
        })?;
        let under = affine(b, Exact::int(-1), mean, least.clone())?;
        let least = number(b, least)?;
        let mean = hold(b, under, least, mean)?;
        let log = b.push1(Log, &[mean])?;
        let power = nn::combine(b, &[(Exact::ratio(-1, 2 * (a.order as i64 + 1)), log)])?;
        let power = b.push1(Exp, &[power])?;
        let factor = nn::combine(b, &[(Exact::ratio(9, 10), power)])?;
        let (lowest, highest) = (Exact::ratio(1, 5), Exact::int(5));
        let over = affine(b, Exact::one(), factor, -&highest)?;
        let highest = number(b, highest)?;
        let factor = hold(b, over, highest, factor)?;
        // In this order, so that no number becomes the lowest.
        let over = affine(b, Exact::one(), factor, -&lowest)?;
        let lowest = number(b, lowest)?;
        let factor = hold(b, over, factor, lowest)?;
        let next = b.push1(Mul, &[h, factor])?;
        self.h = hold(b, self.rest, next, self.h)?;

        let more = |b: &mut Builder, n: Value| affine(b, Exact::one(), n, Exact::one());
        let attempts = more(b, self.attempts)?;
        self.attempts = hold(b, self.rest, attempts, self.attempts)?;
        let accepted = more(b, self.accepted)?;
        self.accepted = hold(b, accept, accepted, self.accepted)?;
        let rest = minus(b, self.rest, h)?;
        self.rest = hold(b, accept, rest, self.rest)?;
        Ok(accept)
    }
}
