//! What a model's graph is made from, and what has been made of it so far.
//!
//! Stage programs are unrolled step by step (`phase.rs`): an `Eval` becomes the field's layer, a `Combine` one op with exact coefficients.
//! A parameter is made once: before the steps if all share it (`shared_values.rs`), else where it is first used.

use super::kv::KvMode;
use super::param_values::ParamValues;
use super::position_tables::PositionTables;
use super::spec::Spec;
use super::step_count::StepCount;
use super::terms::Collected;
use super::time_dependent::Timed;
use crate::error::BuildError;
use odec_graph::ops::{Dropout, Input, Parameter};
use odec_graph::{Builder, TypeError, Value};
use odec_program::noise;
use std::collections::{BTreeMap, BTreeSet};

/// What has been made so far.
pub(super) struct GraphBuilder<'s> {
    pub(super) spec: &'s Spec,
    pub(super) params: ParamValues<'s>,
    pub(super) tables: PositionTables,
    pub(super) kv: KvMode,
    /// Names of what outlives a run.
    pub(super) kept: BTreeSet<String>,
    pub(super) input: Option<Value>,
    pub(super) drops: bool,
    /// Whether what evolves report is computed.
    pub(super) reports: bool,
    /// What masks are chosen by, where something is dropped.
    key: Option<Value>,
    /// The stream of each mask, by the place of its weights.
    streams: BTreeMap<String, u32>,
    /// Tables of random numbers so far.
    pub(super) drawn: u32,
    /// What was made of parameters and times in the phase at hand.
    pub(super) timed: Timed,
    /// What the steps so far give to the terms of the loss.
    pub(super) collected: Collected,
    /// What was decided while it ran, and the terms of the loss: results beside the others, by name.
    pub(super) decided: Vec<(String, Value)>,
}

impl<'s> GraphBuilder<'s> {
    pub(super) fn new(spec: &'s Spec, params: &'s [Parameter]) -> Self {
        GraphBuilder {
            spec,
            params: ParamValues::new(params),
            tables: PositionTables::default(),
            kv: KvMode::Prefill,
            kept: BTreeSet::new(),
            input: None,
            drops: false,
            reports: false,
            key: None,
            streams: BTreeMap::new(),
            drawn: 0,
            timed: Timed::default(),
            collected: Collected::default(),
            decided: Vec::new(),
        }
    }

    /// The mask of a place: a stream of its own, the same however often the place is evaluated.
    pub(super) fn mask(
        &mut self,
        b: &mut Builder,
        place: String,
    ) -> Result<Option<(u32, Value)>, TypeError> {
        if !self.drops {
            return Ok(None);
        }
        let key = match self.key {
            Some(key) => key,
            None => b.push1(
                Input {
                    name: noise::KEY.into(),
                    ty: Dropout::key(),
                },
                &[],
            )?,
        };
        self.key = Some(key);
        let next = self.streams.len() as u32 + 2;
        Ok(Some((*self.streams.entry(place).or_insert(next), key)))
    }

    /// What the model says of its input.
    pub(super) fn result(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        let mut x = self.first_state(b)?;
        self.common(b)?;
        for e in &self.spec.evolves {
            x = match &e.depth {
                StepCount::Known => self.known(b, e, e.steps, x)?,
                StepCount::Adaptive(a) => self.adaptive(b, e, a, x)?,
                StepCount::Random(r) => self.random(b, e, r, x)?,
                StepCount::Halting(h) => self.halting(b, e, h, x)?,
                StepCount::Routed(router) => self.recursions(b, e, router, x)?,
            };
        }
        self.last_state(b, x)
    }
}
