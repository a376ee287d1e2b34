//! What a model's graph is made from, and what has been made of it so far.
//!
//! Stage programs are unrolled step by step (`phase.rs`): an `Eval` becomes the field's layer, a `Combine` one op with exact coefficients.
//! A parameter is made once: before the steps if all share it (`shared_values.rs`), else where it is first used.

use super::kv::{Kept, KvMode};
use super::layers::Sizes;
use super::param_values::ParamValues;
use super::passed::Passed;
use super::position_tables::PositionTables;
use super::recent::Windows;
use super::spec::Spec;
use super::step_count::StepCount;
use super::terms::Collected;
use super::time_dependent::Timed;
use crate::error::BuildError;
use odec_graph::ops::{Broadcast, Dropout, Input, Parameter, Shift};
use odec_graph::{Builder, Exact, TensorType, TypeError, Value, nn};
use odec_program::{Dim, noise};
use std::collections::{BTreeMap, BTreeSet};

/// What has been made so far.
pub(super) struct GraphBuilder<'s> {
    pub(super) spec: &'s Spec,
    pub(super) params: ParamValues<'s>,
    pub(super) tables: PositionTables,
    pub(super) kv: KvMode,
    /// Where the tokens of several texts stand in them, and among those that windows keep.
    pub(super) places: [Option<Value>; 2],
    /// Which attention reads recent tokens alone.
    pub(super) windows: Windows,
    /// Names of what outlives a run.
    pub(super) kept: BTreeSet<String>,
    /// What attention reads in the place of a value of this run, or of the other sequence: all rows that are kept of it.
    pub(super) kept_rows: BTreeMap<(Value, Kept), Value>,
    /// Keys and values of the first sequence, behind what is kept of it.
    pub(super) of_source: Vec<Value>,
    /// What holds the tokens of the sequence at hand.
    pub(super) input: Option<Value>,
    /// Which sequence of the model is at hand.
    pub(super) sequence: usize,
    /// Of the state at hand.
    pub(super) sizes: Sizes,
    /// Of each sequence, −1 at what fills up its rows and 0 at its tokens: `[.., 1]`.
    pub(super) padding: BTreeMap<usize, Value>,
    /// The first state, and those after the steps whose number is known.
    pub(super) passed: Vec<Passed>,
    /// The states that evolves ended with, by label, and the sequences they are of.
    pub(super) states: BTreeMap<String, (Value, usize)>,
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
            places: [None; 2],
            windows: Windows::default(),
            kept: BTreeSet::new(),
            kept_rows: BTreeMap::new(),
            of_source: Vec::new(),
            input: None,
            sequence: 0,
            sizes: spec.sizes,
            padding: BTreeMap::new(),
            passed: Vec::new(),
            states: BTreeMap::new(),
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

    /// What the output without a label says of the input.
    pub(super) fn result(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        let state = self.state(b)?;
        self.said(b, &self.spec.output, state, 0)
    }

    /// The last state.
    pub(super) fn state(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        let (mut last, mut done) = (None, 0);
        let (of_last, count) = (self.kv, self.spec.begins().count());
        for (n, begin) in self.spec.begins().enumerate() {
            self.sequence = n;
            // Sequences before the last one are read whole, and their positions begin with the first.
            let kv = match n + 1 == count {
                true => of_last,
                false => KvMode::Prefill,
            };
            if kv != self.kv {
                self.kv = kv;
                self.tables = PositionTables::default();
            }
            let mut x = self.given(b, begin)?;
            for stage in &begin.stages {
                x = self.first_state(b, (begin, stage), x)?;
                self.passed.push(Passed::first(x));
                if done == 0 {
                    self.common(b)?;
                }
                let own = self.spec.stages().nth(done).map(|(_, own)| own);
                for e in own.unwrap_or_default() {
                    x = match &e.depth {
                        StepCount::Known => self.known(b, e, e.steps, x)?,
                        StepCount::Adaptive(a) => self.adaptive(b, e, a, x)?,
                        StepCount::Random(r) => self.random(b, e, r, x)?,
                        StepCount::Halting(h) => self.halting(b, e, h, x)?,
                        StepCount::Routed(router) => self.recursions(b, e, router, x)?,
                    };
                    self.states.insert(e.label.clone(), (x, n));
                }
                done += 1;
            }
            last = Some(x);
        }
        let missing = || BuildError::Missing("a state".into());
        last.ok_or_else(missing)
    }

    /// The state that an evolve ended with.
    pub(super) fn ended(&self, label: &str) -> Result<Value, TypeError> {
        self.states
            .get(label)
            .map(|(x, _)| *x)
            .ok_or_else(|| TypeError {
                op: "field",
                what: format!("the evolve `{label}` has not ended"),
            })
    }

    /// A number for each token of the last state, whose mean is that over the tokens at hand: of another sequence, or of a stage on another grid.
    pub(super) fn over_targets(
        &mut self,
        b: &mut Builder,
        rows: Value,
    ) -> Result<Value, TypeError> {
        let last = self.spec.sizes.tokens();
        if b.ty(rows).tokens() == last {
            return Ok(rows);
        }
        let mean = match self.mean_of_tokens(b, rows)? {
            Some(mean) => mean,
            None => nn::mean_rows(b, rows)?,
        };
        let to = TensorType::real([Dim::Batch, last, Dim::Fixed(1)]);
        b.push1(Broadcast { to }, &[mean])
    }

    /// A number for each token, or, where rows are filled up, its mean over the tokens at hand in the place of each.
    pub(super) fn over_tokens(&mut self, b: &mut Builder, rows: Value) -> Result<Value, TypeError> {
        let Some(mean) = self.mean_of_tokens(b, rows)? else {
            return Ok(rows);
        };
        let to = b.ty(rows).clone();
        b.push1(Broadcast { to }, &[mean])
    }

    /// The mean of a number for each token, without what fills up rows; `None` where nothing does.
    fn mean_of_tokens(&self, b: &mut Builder, rows: Value) -> Result<Option<Value>, TypeError> {
        let weights = self.token_mask(b)?;
        let mean = weights.map(|weights| nn::weighted_mean(b, rows, weights));
        mean.transpose()
    }

    /// The padding mask of the sequence at hand: 1 for tokens, 0 for padding, `[.., 1]`; `None` where rows have no padding.
    pub(super) fn token_mask(&self, b: &mut Builder) -> Result<Option<Value>, TypeError> {
        let padding = self.padding.get(&self.sequence);
        let by = Exact::one();
        let mask = padding.map(|padding| b.push1(Shift { by }, &[*padding]));
        mask.transpose()
    }
}
