//! Random numbers of steps in training (Geiping et al. 2025, arXiv:2502.05171), gradients through the last steps only, and random initial
//! states and noise.
//!
//! While the model is trained the most steps that can be drawn are unrolled; the number is an input of the program, and steps
//! beyond it are passed over. Evaluation and generation take a number that is known, and have no such input. Leaves the draw to the
//! runtime.

use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::passed::Passed;
use super::phase::Pass;
use super::step::Kept;
use super::step_count::Random;
use crate::error::BuildError;
use crate::scheme::stage::Phase;
use odec_graph::ops::{
    Broadcast, Exceeds, Input, Normal, Predicate, RegionBegin, Select, Shift, StopGradient, Table,
};
use odec_graph::solve::choose;
use odec_graph::{Builder, Exact, Value, nn};
use odec_program::manifest::{self, depth};

/// Whether a step is made: numbers that are positive where
pub(super) struct Perhaps {
    /// it is,
    pub made: Value,
    /// the gradient goes through it,
    pub counts: Value,
    /// a token makes it; all do by default.
    pub tokens: Option<Value>,
}

/// One number everywhere, in the shape of a state.
fn filled(b: &mut Builder, like: Value, value: Exact) -> Result<Value, BuildError> {
    let to = b.ty(like).clone();
    let each = nn::constant(b, value)?;
    Ok(b.push1(Broadcast { to }, &[each])?)
}

impl GraphBuilder<'_> {
    /// Normal numbers in the shape of a state, of the run's key, so that every text of every step has its own: while the model is
    /// trained, and none else, as masks of dropout are.
    pub(super) fn noise(
        &mut self,
        b: &mut Builder,
        like: Value,
        std: &Exact,
        number: usize,
    ) -> Result<Option<Value>, BuildError> {
        let place = format!("{} {number}", b.site);
        let Some((stream, key)) = self.mask(b, place)? else {
            return Ok(None);
        };
        let each = filled(b, like, std.clone())?;
        Ok(Some(b.push1(Normal { stream }, &[each, key])?))
    }

    /// The same for a state that an evolution starts with. Where the model is not trained, a table by position, the same for all texts,
    /// so that reading in pieces gives the bits of reading the whole.
    pub(super) fn normal(
        &mut self,
        b: &mut Builder,
        like: Value,
        std: &Exact,
        number: usize,
    ) -> Result<Value, BuildError> {
        if let Some(noise) = self.noise(b, like, std, number)? {
            return Ok(noise);
        }
        let width = b.ty(like).cols();
        let each = filled(b, like, Exact::zero())?;
        let table = manifest::Table::Normal {
            positions: self.sizes.context,
            width,
            std: std.to_f64(),
            stream: self.drawn,
        };
        self.drawn += 1;
        let table = b.push1(Table { table }, &[])?;
        let table = self.positions(b, table)?;
        Ok(nn::with_positions(b, each, table)?)
    }

    /// The state after a known number of steps.
    pub(super) fn known(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        steps: u64,
        mut x: Value,
    ) -> Result<Value, BuildError> {
        let mut kept = Kept::new();
        let from = e.last.map_or(0, |last| steps.saturating_sub(last));
        for (at, program) in e.unrolled.phases() {
            match at {
                Phase::Step(k) if k as u64 >= steps => break,
                Phase::Step(k) if k as u64 == from && from > 0 => {
                    // What `start` sets once is read by the last steps as any value from outside is.
                    let once = |name: &str| {
                        let mut flows = e.flows.iter();
                        flows.any(|(f, _)| f.scheme.history.constants.contains(name))
                    };
                    let earlier = kept.iter_mut().filter(|(name, _)| !once(name));
                    let values = earlier.flat_map(|(_, values)| values).chain([&mut x]);
                    for v in values {
                        *v = b.push1(StopGradient, &[*v])?;
                    }
                    self.collected.stop(b)?;
                }
                _ => {}
            }
            let pass = Pass {
                kept: Some(&mut kept),
                ..Pass::default()
            };
            x = self.phase(b, e, (at, program), x, pass)?.0;
            if let Phase::Step(k) = at {
                self.passed.push(Passed::after(&e.h[k], x));
            }
            self.collected.settle();
        }
        Ok(x)
    }

    /// The state after as many steps as the model is trained with, or the mean number.
    pub(super) fn random(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        r: &Random,
        mut x: Value,
    ) -> Result<Value, BuildError> {
        if !self.drops {
            return self.known(b, e, r.mean, x);
        }
        let outside = e.outside();
        b.site = outside.clone().into();
        b.span = Some(e.span);
        let drawn = Input {
            name: depth::input(&e.label),
            ty: Exceeds::number(),
        };
        let drawn = b.push1(drawn, &[])?;
        let zero = nn::constant(b, Exact::zero())?;
        let mut kept = Kept::new();
        for (at, program) in e.unrolled.phases() {
            let Phase::Step(k) = at else {
                let pass = Pass {
                    kept: Some(&mut kept),
                    ..Pass::default()
                };
                x = self.phase(b, e, (at, program), x, pass)?.0;
                continue;
            };
            b.site = outside.clone().into();
            b.span = Some(e.span);
            let exceeds = |b: &mut Builder, than: u64| {
                let than = than.try_into().unwrap_or(u32::MAX);
                b.push1(Exceeds { than }, &[drawn])
            };
            let made = exceeds(b, k as u64)?;
            let counts = match e.last {
                None => made,
                Some(last) => {
                    let early = exceeds(b, k as u64 + last)?;
                    let late = nn::combine(b, &[(Exact::int(-1), early)])?;
                    let late = b.push1(Shift { by: Exact::one() }, &[late])?;
                    b.push1(Select, &[made, late, zero])?
                }
            };
            let perhaps = Perhaps {
                made,
                counts,
                tokens: None,
            };
            x = self.perhaps(b, e, (at, program), (x, &kept), perhaps)?;
        }
        Ok(x)
    }

    /// The state after a step that may not be made; as it was, where it is not. Only what is the same in all steps is `kept`.
    pub(super) fn perhaps(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        at: (Phase, usize),
        (x, kept): (Value, &Kept),
        whether: Perhaps,
    ) -> Result<Value, BuildError> {
        let Perhaps {
            made,
            counts,
            tokens,
        } = whether;
        let region = self.params.enter_region();
        b.push1(Predicate { region }, &[counts])?;
        let mut entered = Kept::new();
        let enter = |b: &mut Builder, v: Value| b.push1(RegionBegin { region }, &[v]);
        for (name, values) in kept {
            let values = values.iter().map(|v| enter(b, *v));
            entered.insert(name.clone(), values.collect::<Result<_, _>>()?);
        }
        let from = enter(b, x)?;
        let pass = Pass {
            kept: Some(&mut entered),
            ..Pass::default()
        };
        let mut stepped = self.phase(b, e, at, from, pass)?.0;
        self.params.leave_region();
        b.site.path = "scheme".into();
        if let Some(open) = tokens {
            stepped = choose(b, open, stepped, from)?;
            self.collected.only(b, open)?;
        }
        let x = b.push1(Select, &[made, stepped, x])?;
        self.collected.hold(b, made)?;
        Ok(x)
    }
}
