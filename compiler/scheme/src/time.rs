//! The time of every evaluation.
//!
//! A field F(x, t) becomes autonomous when t is one more component of the state whose rate is 1; in a sum of fields each has a
//! component of its own, also where one field is given for two arguments of a scheme, so that the flows of a splitting begin at the time that their own field has come to (Hairer, Nørsett & Wanner
//! 1993, II.2; Hairer, Lubich & Wanner 2006, II.5 for splittings). An evaluation of F at x + Σ aⱼ h F(Yⱼ) + … then happens at t + c h, c = Σ aⱼ
//! being the row sum of the equivalent tableau, whatever the method is written as, and every proof about autonomous
//! fields holds. Inside `increment(Φ)` and `map(Φ)` time stands still; `F(y, at: 1/2)` and implicit multistep methods say it.
//! A value of an earlier step has the time that it had there: on steps of size h, x[-1] is at t − h, and f[-1] is a rate.
//! `start { … }` has no step size and comes before the first step: time stands still there too. What it sets once and adds to no state counts by the
//! step sizes that it is multiplied with: of z = F(x), x + h z is at t + h, and x + z, an input that each step reads anew, at t.
//! Takes the instructions so far, and the times of what earlier steps kept; gives times in `t` and `h`, none where a value is no state plus
//! multiples of rates. Learned coefficients count with their initial values. Leaves it to `odec-model` to say where a time is missing.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::flow::Field;
use super::run::StageTracer;
use super::stage::{Moment, Phase, StageInstr};
use super::value::Names;
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_numerics::exponential::sums::over_factorial;
use std::collections::BTreeMap;

/// The symbol of the time a step begins at.
const T: &str = "t";

/// The times of values.
#[derive(Default)]
pub(super) struct Clocks {
    /// Who sees times: of each the field, and the argument that it is given for.
    viewers: Vec<(usize, Option<*const Field>)>,
    /// Of each viewer, of each value.
    of: Vec<Vec<Option<Clock>>>,
    /// Whose rates evaluations are.
    rates: BTreeMap<ValueId, Viewer>,
    /// What says the time of evaluations: that of a value, and how much later; and `at:`, where that says so.
    said: Option<(ValueId, Coeff, Option<AtLabel>)>,
    /// Whether `at:` gave an evaluation another time than that of its argument, or one that cannot be compared with it.
    pub differ: bool,
    /// Whether an evaluation keeps the time of the initial values of learned coefficients, while its argument moves with them.
    pub stay: bool,
    /// Initial values of learned coefficients, by name.
    starts: BTreeMap<String, Exact>,
}

/// A field as one argument of the scheme, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Viewer(usize);

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
#[derive(Clone, Debug, PartialEq)]
struct Clock {
    state: Coeff,
    ahead: Coeff,
    /// What rates that `start` set once are multiplied by.
    once: Coeff,
    /// Whether learned coefficients stand in it with their initial values.
    initial: bool,
}

/// A leaf by name and place, and which of the arguments that it is given for; none for any that a phase does not evaluate.
type LeafKey = Option<(String, Span, usize)>;

/// The times of what a phase keeps for later steps, by name, as each field sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptTimes(BTreeMap<String, BTreeMap<LeafKey, Option<Clock>>>);

impl KeptTimes {
    fn of(&self, name: &str, leaf: &LeafKey) -> Option<&Clock> {
        let seen = self.0.get(name)?;
        seen.get(leaf).or_else(|| seen.get(&None))?.as_ref()
    }
}

impl Clock {
    fn new(state: Coeff, ahead: Coeff) -> Clock {
        let once = Coeff::zero();
        Clock {
            state,
            ahead,
            once,
            initial: false,
        }
    }

    fn try_map<E>(&self, to: impl Fn(&Coeff) -> Result<Coeff, E>) -> Option<Clock> {
        let [state, ahead, once] = [&self.state, &self.ahead, &self.once].map(|c| to(c).ok());
        Some(Clock {
            state: state?,
            ahead: ahead?,
            once: once?,
            initial: self.initial,
        })
    }

    /// Whether no multiple of it is another time.
    fn stands(&self) -> bool {
        self.state.is_zero() && self.ahead.is_zero() && self.once.is_zero()
    }

    /// With what rates that `start` set once add: step sizes alone.
    fn counted(self) -> Option<Clock> {
        let still = self.once.with("h", &Exact::zero()).ok()?;
        let moved = self.once.sub(&still).ok()?;
        let ahead = self.ahead.add(&moved).ok()?;
        Some(Clock {
            initial: self.initial,
            ..Clock::new(self.state, ahead)
        })
    }
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
        let kept = self.viewers.iter().take_while(|(f, _)| *f < fields).count();
        self.viewers.truncate(kept);
        self.of.truncate(kept);
        self.of.iter_mut().for_each(|c| c.truncate(instrs + 1));
        self.rates
            .retain(|v, by| v.0 as usize <= instrs && by.0 < kept);
    }

    /// Who sees the times of a field that is given for an argument.
    pub fn viewer(&mut self, field: usize, operand: Option<*const Field>) -> Viewer {
        let known = self.viewers.iter().position(|v| *v == (field, operand));
        Viewer(known.unwrap_or_else(|| {
            self.viewers.push((field, operand));
            self.viewers.len() - 1
        }))
    }

    /// An evaluation was made.
    pub fn evaluated(&mut self, v: ValueId, by: Option<Viewer>) {
        if let Some(by) = by {
            self.rates.insert(v, by);
        }
    }
}

/// Puts the initial values of learned coefficients into times; what then holds another symbol is not known.
pub(super) fn resolve_times(instrs: &mut [StageInstr], starts: &dyn Fn(&str) -> Option<Exact>) {
    for i in instrs {
        if let StageInstr::Eval { when, .. } = i {
            *when = when
                .take()
                .and_then(|time| resolved(time, &["h", T], starts));
        }
    }
}

/// A time with numbers for all symbols but these.
fn resolved(time: Coeff, but: &[&str], starts: &dyn Fn(&str) -> Option<Exact>) -> Option<Coeff> {
    let symbols = time.symbols();
    let mut learned = symbols.iter().filter(|s| !but.contains(&&***s));
    learned.try_fold(time, |time, s| time.with(s, &starts(s)?).ok())
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

fn stays(place: Span) -> Diagnostic {
    let message = "the order that is kept holds only for fields that do not depend on time, and a field here does";
    Diagnostic::warning(codes::UNPROVED_CLAIM, place, message)
        .label("this argument moves with learned coefficients, and its time stays that of their initial values")
        .help("keep the coefficients that it depends on as numbers, and learn the others")
}

impl StageTracer<'_> {
    fn keeps_order(&self) -> bool {
        self.learned.iter().any(|l| l.owner.is_some())
    }

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
        viewer: Viewer,
        at: ValueId,
        span: Span,
    ) -> Option<Option<Coeff>> {
        if self.at.phase == Phase::Start {
            return Some(Some(Coeff::symbol(T)));
        }
        let said = self.clocks.said.clone();
        let (of, later, label) = said.unwrap_or((at, Coeff::zero(), None));
        if let Some(AtLabel { place, claims }) = label {
            let own = self.clock(viewer, at, span)?;
            let own = own.and_then(Clock::counted);
            let own = own.filter(|c| c.state.is_one());
            let own = own.and_then(|c| self.of_size(&c.ahead));
            let begin = self.clock(viewer, of, span)?.and_then(Clock::counted);
            let then = begin.and_then(|c| c.ahead.add(&later).ok());
            let then = then.and_then(|c| self.at_start(&c));
            let then = then.and_then(|c| self.of_size(&c));
            let differs = own.is_none() || own != then;
            self.clocks.differ |= differs;
            if differs && claims {
                self.warn(match own {
                    None => not_compared(place),
                    Some(_) => not_of_row_sum(place),
                });
            }
        }
        let clock = self.clock(viewer, of, span)?.and_then(Clock::counted);
        let Some(clock) = clock.filter(|c| c.state.is_one()) else {
            return Some(None);
        };
        if clock.initial && !std::mem::replace(&mut self.clocks.stay, true) && self.keeps_order() {
            self.warn(stays(span));
        }
        let ahead = self.exact(clock.ahead.add(&later), span)?;
        self.exact(Coeff::symbol(T).add(&ahead), span).map(Some)
    }

    fn clock(&mut self, viewer: Viewer, of: ValueId, span: Span) -> Option<Option<Clock>> {
        let mut known = std::mem::take(&mut self.clocks.of);
        known.resize_with(known.len().max(viewer.0 + 1), Vec::new);
        let own = &mut known[viewer.0];
        while own.len() <= of.0 as usize && own.len() <= self.instrs.len() {
            let next = self.next(viewer, own, span)?;
            own.push(next);
        }
        let found = own.get(of.0 as usize).cloned().flatten();
        self.clocks.of = known;
        Some(found)
    }

    /// The clock of the value behind those that are known.
    fn next(
        &mut self,
        viewer: Viewer,
        known: &[Option<Clock>],
        span: Span,
    ) -> Option<Option<Clock>> {
        self.charge(1, span)?;
        let of = |v: ValueId| known.get(v.0 as usize).cloned().flatten();
        let rate = |own: bool| {
            let ahead = if own { Coeff::one() } else { Coeff::zero() };
            Clock::new(Coeff::zero(), ahead)
        };
        let Some(i) = known.len().checked_sub(1) else {
            return Some(Some(Clock::new(Coeff::one(), Coeff::zero())));
        };
        Some(match &self.instrs[i] {
            StageInstr::Eval { .. } => {
                let made = ValueId(i as u32 + 1);
                Some(rate(self.clocks.rates.get(&made) == Some(&viewer)))
            }
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
                of(*at).and_then(|c| c.try_map(|c| c.mul(&part)))
            }
            // Noise is added to states, and time goes on without it.
            StageInstr::Normal { .. } => Some(rate(false)),
            StageInstr::Past { name, when } => self.past_clock(viewer, name, *when),
            StageInstr::Product(_) | StageInstr::Flow { .. } | StageInstr::Unknown(_) => None,
        })
    }

    /// That of a value that an earlier phase kept.
    fn past_clock(&self, viewer: Viewer, name: &str, when: Moment) -> Option<Clock> {
        let (Phase::Step(now), Some(pasts)) = (self.at.phase, self.at.pasts) else {
            return None;
        };
        // What `start` made is kept before step 0, at whose time.
        let started = pasts.len().checked_sub(now)?;
        let place = match when {
            Moment::Ago(steps) => pasts.len().checked_sub(steps)?,
            Moment::Start => started.checked_sub(1)?,
        };
        let step = place.saturating_sub(started);
        let clock = pasts[place].of(name, &self.leaf_key(viewer))?;
        let (state, none) = (Coeff::zero(), Coeff::zero());
        // The time is counted from that of the start, 0.
        if when == Moment::Start {
            return Some(match clock.state.is_zero() {
                true => Clock {
                    once: clock.ahead.clone(),
                    ..Clock::new(state, none)
                },
                false => Clock::new(state, none),
            });
        }
        let (clock, since) = match self.at.grid.sizes {
            [] => {
                let steps = Coeff::constant(Exact::int((now - step) as i64));
                (clock.clone(), Coeff::symbol("h").mul(&steps).ok()?)
            }
            sizes => {
                let since = sizes[step..now].iter().cloned().sum();
                let clock = clock.try_map(|c| c.with("h", &sizes[step]))?;
                (clock, Coeff::constant(since))
            }
        };
        let earlier = clock.state.mul(&since).ok()?;
        let ahead = clock.ahead.sub(&earlier).ok()?;
        Some(Clock { ahead, ..clock })
    }

    fn leaf_key(&self, viewer: Viewer) -> LeafKey {
        let (field, _) = self.clocks.viewers[viewer.0];
        let used = self.leaves.get(field)?;
        let before = self.clocks.viewers[..viewer.0].iter();
        let before = before.filter(|(f, _)| *f == field).count();
        Some((used.leaf.name.clone(), used.leaf.span, before))
    }

    /// A time in parts of h, which is a number where steps are not equal.
    fn of_size(&self, ahead: &Coeff) -> Option<Coeff> {
        match (self.at.phase, self.at.grid.sizes) {
            (Phase::Step(k), [_, ..]) => ahead.with("h", self.at.grid.sizes.get(k)?).ok(),
            _ => Some(ahead.clone()),
        }
    }

    /// The times of what later steps may read, where they are wanted.
    pub(super) fn kept_times(
        &mut self,
        keeps: &[(String, ValueId)],
        span: Span,
    ) -> Option<KeptTimes> {
        let mut times = KeptTimes::default();
        if self.at.pasts.is_none() {
            return Some(times);
        }
        // And of any field that it does not evaluate, whose number none has.
        self.clocks.viewer(usize::MAX, None);
        let viewers = (0..self.clocks.viewers.len()).map(Viewer);
        for (name, v) in keeps {
            let mut seen = BTreeMap::new();
            for viewer in viewers.clone() {
                let clock = self.clock(viewer, *v, span)?;
                // `t` is another number in a later step.
                let is_known =
                    |c: &Clock| !c.state.symbols().contains(T) && !c.ahead.symbols().contains(T);
                let clock = clock.and_then(Clock::counted).filter(is_known);
                // Rates that are added to a state move it in steps alone.
                let is_still = |c: &Clock| self.at.phase == Phase::Start && !c.state.is_zero();
                let clock = clock.map(|c| match is_still(&c) {
                    true => Clock::new(c.state, Coeff::zero()),
                    false => c,
                });
                seen.insert(self.leaf_key(viewer), clock);
            }
            times.0.insert(name.clone(), seen);
        }
        Some(times)
    }

    fn added(
        &mut self,
        c: &Combination,
        known: &[Option<Clock>],
        span: Span,
    ) -> Option<Option<Clock>> {
        let mut sum = Clock::new(Coeff::zero(), Coeff::zero());
        for (v, c) in c.terms() {
            let Some(clock) = known.get(v.0 as usize).and_then(Option::as_ref) else {
                return Some(None);
            };
            self.charge(c.weight(), span)?;
            let learned = |s: &str| ![T, "h"].contains(&s);
            let moves = c.symbols().iter().any(|s| learned(s)) && !clock.stands();
            sum.initial |= moves || clock.initial;
            let Some(c) = self.at_start(c) else {
                return Some(None);
            };
            let parts = [&clock.state, &clock.ahead, &clock.once];
            let sums = [&mut sum.state, &mut sum.ahead, &mut sum.once];
            for (to, part) in sums.into_iter().zip(parts) {
                self.charge(to.weight() + c.weight() * part.weight(), span)?;
                // What has too many terms is not known.
                let Ok(more) = c.mul(part).and_then(|more| to.add(&more)) else {
                    return Some(None);
                };
                *to = more;
            }
        }
        Some(Some(sum))
    }

    /// With the initial values of learned coefficients: a sum over a history has one for each entry.
    fn at_start(&mut self, c: &Coeff) -> Option<Coeff> {
        let starts = &mut self.clocks.starts;
        let more = self.learned.iter().skip(starts.len());
        starts.extend(more.map(|l| (l.name.clone(), l.init.clone())));
        resolved(c.clone(), &["h", T], &|s| starts.get(s).cloned())
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
