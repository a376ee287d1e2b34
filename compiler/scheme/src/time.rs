//! The time of every evaluation.
//!
//! A field F(x, t) becomes autonomous when t is one more component of the state whose rate is 1; in a sum of fields each has a
//! component of its own, so that the flows of a splitting begin at the time that their own field has come to (Hairer, Nørsett & Wanner
//! 1993, II.2; Hairer, Lubich & Wanner 2006, II.5 for splittings). An evaluation of F at x + Σ aⱼ h F(Yⱼ) + … then happens at t + c h, c = Σ aⱼ
//! being the row sum of the equivalent tableau, whatever the method is written as, and every proof about autonomous
//! fields holds. Inside `increment(Φ)` and `map(Φ)` time stands still; `F(y, at: 1/2)` and implicit multistep methods say it.
//! Takes the instructions so far; gives times in `t` and `h`, none where a value is no state plus multiples of rates. Learned
//! coefficients count with their initial values. Leaves it to `odec-model` to say where a time is missing.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::run::StageTracer;
use super::stage::StageInstr;
use super::value::Names;
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_numerics::exponential::sums::over_factorial;

/// The symbol of the time a step begins at.
const T: &str = "t";

/// The times of values.
#[derive(Default)]
pub(super) struct Clocks {
    /// Of each field, of each value.
    of: Vec<Vec<Option<Clock>>>,
    /// What says the time of evaluations: that of a value, and how much later; and `at:`, where that says so.
    said: Option<(ValueId, Coeff, Option<AtLabel>)>,
    /// Whether `at:` gave an evaluation another time than that of its argument, or one that cannot be compared with it.
    pub differ: bool,
}

/// `at: 1/2`.
#[derive(Clone, Copy)]
pub(super) struct AtLabel {
    pub place: Span,
    /// Whether its scheme claims an order.
    pub claims: bool,
}

/// Whether a time was not said before.
#[must_use]
pub(super) struct Said {
    first: bool,
}

/// The component of time of a value: a multiple of the step's beginning, and what is added to it.
#[derive(Clone)]
struct Clock {
    state: Coeff,
    ahead: Coeff,
}

impl Clocks {
    /// The time that is said of evaluations.
    pub fn said(&self) -> Option<(ValueId, Coeff)> {
        let (of, ahead, _) = self.said.as_ref()?;
        Some((*of, ahead.clone()))
    }

    /// The time that is said of an evaluation at a value, where it is not the value's own.
    pub fn said_of(&self, at: ValueId) -> Option<(ValueId, Coeff)> {
        let (of, ahead) = self.said()?;
        let own = of == at && ahead.is_zero();
        (!own).then_some((of, ahead))
    }

    /// Forgets values and fields.
    pub fn back_to(&mut self, instrs: usize, fields: usize) {
        self.of.truncate(fields);
        self.of.iter_mut().for_each(|c| c.truncate(instrs + 1));
    }
}

/// Puts the initial values of learned coefficients into times; what then holds another symbol is not known.
pub(super) fn resolve_times(instrs: &mut [StageInstr], starts: &dyn Fn(&str) -> Option<Exact>) {
    for i in instrs {
        let StageInstr::Eval { when, .. } = i else {
            continue;
        };
        let Some(time) = when.take() else {
            continue;
        };
        let symbols = time.symbols();
        let learned = symbols.iter().filter(|s| !matches!(&***s, "h" | T));
        let known = learned.clone().try_fold(time, |time, s| {
            let value = starts(s)?;
            time.with(s, &value).ok()
        });
        *when = known;
    }
}

fn not_of_row_sum(place: Span) -> Diagnostic {
    let message =
        "the order that this scheme claims holds only for fields that do not depend on time";
    Diagnostic::warning(codes::UNPROVED_CLAIM, place, message)
        .label("this time is not the row sum of the argument, and a field here depends on time")
}

fn not_compared(place: Span) -> Diagnostic {
    let message = "the order that this scheme claims is proved only for fields that do not depend on time, and a field here does";
    Diagnostic::warning(codes::UNPROVED_CLAIM, place, message)
        .label("the time of the argument is not known, so that this one cannot be compared with it")
}

impl StageTracer<'_> {
    /// Has evaluations take place at the time of a value, or that much later, until [`Self::unsay`] is given what comes back; unless
    /// what is around them says when. `label`: what says so in a step program.
    #[inline(never)]
    pub(super) fn say(&mut self, of: ValueId, ahead: Coeff, label: Option<AtLabel>) -> Said {
        let first = self.clocks.said.is_none();
        if first {
            self.clocks.said = Some((of, ahead, label));
        }
        Said { first }
    }

    pub(super) fn unsay(&mut self, said: Said) {
        if said.first {
            self.clocks.said = None;
        }
    }

    /// When a field is evaluated at a value; `Some(None)`: it is not known.
    #[inline(never)]
    pub(super) fn time_of(
        &mut self,
        field: usize,
        at: ValueId,
        span: Span,
    ) -> Option<Option<Coeff>> {
        let said = self.clocks.said.clone();
        let (of, later, label) = said.unwrap_or((at, Coeff::zero(), None));
        if let Some(AtLabel { place, claims }) = label {
            let own = self.clock(field, at, span)?;
            let own = own.filter(|c| c.state.is_one()).map(|c| c.ahead);
            let begin = self.clock(field, of, span)?;
            let then = begin.and_then(|c| c.ahead.add(&later).ok());
            let differs = own.is_none() || own != then;
            self.clocks.differ |= differs;
            if differs && claims {
                self.warn(match own {
                    None => not_compared(place),
                    Some(_) => not_of_row_sum(place),
                });
            }
        }
        let Some(clock) = self.clock(field, of, span)?.filter(|c| c.state.is_one()) else {
            return Some(None);
        };
        let ahead = self.exact(clock.ahead.add(&later), span)?;
        self.exact(Coeff::symbol(T).add(&ahead), span).map(Some)
    }

    fn clock(&mut self, field: usize, of: ValueId, span: Span) -> Option<Option<Clock>> {
        let mut known = std::mem::take(&mut self.clocks.of);
        known.resize_with(known.len().max(field + 1), Vec::new);
        let own = &mut known[field];
        while own.len() <= of.0 as usize && own.len() <= self.instrs.len() {
            let next = self.next(field, own, span)?;
            own.push(next);
        }
        let found = own.get(of.0 as usize).cloned().flatten();
        self.clocks.of = known;
        Some(found)
    }

    /// The clock of the value behind those that are known.
    fn next(&mut self, field: usize, known: &[Option<Clock>], span: Span) -> Option<Option<Clock>> {
        self.charge(1, span)?;
        let of = |v: ValueId| known.get(v.0 as usize).cloned().flatten();
        let rate = |own: bool| Clock {
            state: Coeff::zero(),
            ahead: if own { Coeff::one() } else { Coeff::zero() },
        };
        let Some(i) = known.len().checked_sub(1) else {
            return Some(Some(Clock {
                state: Coeff::one(),
                ahead: Coeff::zero(),
            }));
        };
        Some(match &self.instrs[i] {
            StageInstr::Eval { field: f, .. } => Some(rate(*f == field)),
            StageInstr::Combine(c) => {
                let c = c.clone();
                return self.added(&c, known, span);
            }
            StageInstr::Project { at, .. } | StageInstr::Stop(at) => of(*at),
            StageInstr::Mix { of: n, seen, .. } => of(seen[0][*n][1]),
            StageInstr::Solution {
                of: n, unknowns, ..
            } => of(unknowns[*n][1]),
            // The time decays in no linear field.
            StageInstr::Phi { index, at, .. } => {
                let part = Coeff::constant(over_factorial(*index));
                let scaled = of(*at).map(|c| (c.state.mul(&part), c.ahead.mul(&part)));
                match scaled {
                    Some((Ok(state), Ok(ahead))) => Some(Clock { state, ahead }),
                    _ => None,
                }
            }
            // Noise is added to states, and time goes on without it.
            StageInstr::Normal { .. } => Some(rate(false)),
            StageInstr::Past { .. }
            | StageInstr::Product(_)
            | StageInstr::Flow { .. }
            | StageInstr::Unknown(_) => None,
        })
    }

    fn added(
        &mut self,
        c: &Combination,
        known: &[Option<Clock>],
        span: Span,
    ) -> Option<Option<Clock>> {
        let mut sum = Clock {
            state: Coeff::zero(),
            ahead: Coeff::zero(),
        };
        for (v, c) in c.terms() {
            let Some(clock) = known.get(v.0 as usize).cloned().flatten() else {
                return Some(None);
            };
            let plus = |machine: &mut Self, to: &mut Coeff, part: &Coeff| {
                machine.charge(to.weight() + c.weight() * part.weight(), span)?;
                let added = c.mul(part).and_then(|more| to.add(&more));
                *to = machine.exact(added, span)?;
                Some(())
            };
            plus(self, &mut sum.state, &clock.state)?;
            plus(self, &mut sum.ahead, &clock.ahead)?;
        }
        Some(Some(sum))
    }

    /// The time as a number of a step program.
    #[inline(never)]
    pub(super) fn time(&mut self, span: Span, names: &Names) -> Option<Coeff> {
        if names.before {
            return Some(Coeff::zero());
        }
        if names.frame.outermost {
            return Some(Coeff::symbol(T));
        }
        let d = Diagnostic::error(
            codes::MISPLACED,
            span,
            "`t` is not defined in a scheme inside another scheme",
        )
        .label("the outer scheme's fields may be at different times");
        self.fail(d.help("give the time to a field instead: `time(embed: 16)` in its pipeline"))
    }
}
