//! One step of an evolve, or what runs before the first, in the graph.
//!
//! Takes the state before it; gives the state after it. Leaves the order of a step's values to `step.rs`, layers to their files.

use super::coefficient::Coefficients;
use super::evolve::{EvolveSpec, Sharing};
use super::graph_builder::GraphBuilder;
use super::params::{factor_path, field_name, field_path, learned_path};
use super::scoped_params::ScopedParams;
use super::step::{Evaluation, Fields, Function, Kept, Place};
use super::time_dependent::{At, TimeDependent, Timed};
use crate::error::{BuildError, MAX_NODES};
use crate::scheme::Coeff;
use crate::scheme::stage::Phase;
use odec_graph::ops::{Mul, Phi};
use odec_graph::{Builder, Exact, Site, Value};
use std::collections::BTreeMap;

/// What a phase is given.
#[derive(Default)]
pub(super) struct Pass<'k> {
    /// Values of earlier steps; none, where a method of one step needs none.
    pub kept: Option<&'k mut Kept>,
    /// The time and the step size, where the graph computes them.
    pub clock: Option<[Value; 2]>,
}

impl GraphBuilder<'_> {
    /// The state after a phase, and its error where the program has a partner that was made part of it.
    pub(super) fn phase(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        (at, number): (Phase, usize),
        x: Value,
        pass: Pass,
    ) -> Result<(Value, Option<Value>), BuildError> {
        let program = &e.unrolled.programs[number];
        let (step, h) = match at {
            Phase::Start => (None, None),
            Phase::Step(k) => (Some(k as u32), Some(e.h[k].clone())),
        };
        let path = match at {
            Phase::Start => "start".into(),
            Phase::Step(_) => String::new(),
        };
        let site = Site {
            evolve: e.label.clone(),
            step,
            path,
            ..Site::default()
        };
        b.site = site.clone().into();
        b.site.path = "scheme".into();
        let mut symbols = BTreeMap::new();
        for l in &e.learned(at) {
            b.span = Some(l.span);
            let value = self.param(b, &learned_path(e, l, at))?;
            symbols.insert(l.name.clone(), value);
        }
        let computed = pass.clock.map(|[_, h]| h);
        let named = |[t, h]: [Value; 2]| [("t".to_string(), t), ("h".to_string(), h)];
        let made: BTreeMap<_, _> = pass.clock.into_iter().flat_map(named).collect();
        let begin = match at {
            Phase::Step(k) => e.t.get(k).cloned(),
            Phase::Start => Some(Exact::zero()),
        };
        let known = [("t", begin), ("h", h)].map(|(n, v)| Some((n.to_string(), v?)));
        let mut known: BTreeMap<String, Exact> = known.into_iter().flatten().collect();
        if pass.clock.is_some() {
            known.clear();
        }
        let clock = Coefficients::new(known.clone(), made.clone());
        self.timed = Timed::default();
        symbols.extend(made);
        if e.learn_h.is_some() {
            known.remove("h");
        }
        let mut coefficients = Coefficients::new(known, symbols);
        for d in &program.derived {
            coefficients.derive(b, d)?;
        }
        let place = Place {
            program,
            site,
            span: Some(e.span),
        };
        let mut fields = Layers {
            model: self,
            evolve: e,
            number,
            at,
            clock,
        };
        let mut none = Kept::new();
        let kept = pass.kept.unwrap_or(&mut none);
        let (made, error) = place.with_error(b, x, &mut coefficients, kept, &mut fields)?;
        if let Phase::Step(k) = at
            && fields.model.reports
        {
            fields.report(b, k, made)?;
        }
        if b.graph().len() > MAX_NODES {
            return Err(BuildError::TooLarge {
                step: match at {
                    Phase::Start => 0,
                    Phase::Step(k) => k,
                },
                span: e.span,
            });
        }
        if let Phase::Step(k) = at {
            self.collect(b, (e, k), [x, made], computed)?;
        }
        Ok((made, error))
    }
}

/// The fields of a model's step.
pub(super) struct Layers<'l, 's> {
    pub(super) model: &'l mut GraphBuilder<'s>,
    pub(super) evolve: &'l EvolveSpec,
    /// Of the program.
    pub(super) number: usize,
    at: Phase,
    clock: Coefficients,
}

impl Fields for Layers<'_, '_> {
    fn normal(
        &mut self,
        b: &mut Builder,
        like: Value,
        std: &Exact,
        number: usize,
    ) -> Result<Option<Value>, BuildError> {
        match self.at {
            Phase::Start => self.model.normal(b, like, std, number).map(Some),
            Phase::Step(_) => self.model.noise(b, like, std, number),
        }
    }

    fn function(
        &mut self,
        b: &mut Builder,
        of: Function,
        coefficients: &mut Coefficients,
        x: Value,
    ) -> Result<Value, BuildError> {
        let (e, number) = (self.evolve, self.number);
        b.span = Some(e.unrolled.programs[number].fields[of.field].span);
        let site = b.site.clone();
        b.site.path = field_name(e, number, of.field, 0);
        // Weights of time are those that the step begins with.
        let timed = matches!(e.policies[number][of.field], Sharing::TimeDependent(_));
        let begin = timed.then(|| Coeff::symbol("t"));
        let mut below = self.below(b, of.field, 0, begin.as_ref())?;
        let rates = e.layers[number][of.field].rates(b, &mut below)?;
        let missing = || BuildError::Missing("the decay of a linear field".into());
        let rates = rates.ok_or_else(missing)?;
        let z = coefficients.affine(b, rates, of.over, &Coeff::zero())?;
        let factor = b.push1(Phi { index: of.index }, &[z])?;
        b.site = site;
        Ok(b.push1(Mul, &[x, factor])?)
    }

    fn evaluate(&mut self, b: &mut Builder, of: Evaluation) -> Result<Value, BuildError> {
        let (e, number) = (self.evolve, self.number);
        b.site.path = field_name(e, number, of.field, of.usage);
        b.span = Some(e.unrolled.programs[number].fields[of.field].span);
        let mut below = self.below(b, of.field, of.usage, of.when)?;
        Ok(e.layers[number][of.field].build(b, of.points, &mut below)?)
    }
}

impl<'s> Layers<'_, 's> {
    /// Where a field finds its parameters at a time.
    pub(super) fn below(
        &mut self,
        b: &mut Builder,
        field: usize,
        usage: usize,
        when: Option<&Coeff>,
    ) -> Result<ScopedParams<'_, 's>, BuildError> {
        let (e, number) = (self.evolve, self.number);
        let weights = match e.policies[number][field] {
            Sharing::TimeDependent(o) => Some(o),
            _ => None,
        };
        // The start is no step, and has no end.
        let ends = weights.is_some_and(|o| o.at_end) && self.at != Phase::Start;
        let ends = ends.then(TimeDependent::end);
        // Beside weights of the end the layer `time` alone reads when it is evaluated.
        let reads = e.unrolled.programs[number].fields[field].facts.reads_time;
        let when = when.filter(|_| ends.is_none() || reads);
        let evaluated = when.map(|w| self.clock.time(b, w)).transpose()?;
        let taken = match &ends {
            Some(end) => Some(self.clock.time(b, end)?),
            None => evaluated.clone(),
        };
        let at = At {
            weights: weights.zip(taken),
            evaluated,
            factors: factor_path(e, number, field, usage, self.at),
        };
        Ok(ScopedParams {
            model: self.model,
            prefix: field_path(e, number, field, usage, self.at),
            time: Some(at),
        })
    }
}
