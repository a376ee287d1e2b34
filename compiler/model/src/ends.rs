//! The two ends of a model in its graph: the first state is made of the input, the result of the last state.
//!
//! Leaves what an input, an embedding or an output is to their files, the steps between to `phase.rs`.

use super::beginnings::{Beginning, Stage};
use super::graph_builder::GraphBuilder;
use super::scoped_params::ScopedParams;
use crate::embeddings::EmbedScope;
use crate::error::BuildError;
use crate::layers::{CONDITION, Weights};
use crate::leading;
use crate::outputs::{OutputScope, OutputSpec};
use odec_graph::ops::{Add, Equals};
use odec_graph::{Builder, Exact, Site, TypeResult, Value, nn};

impl<'s> GraphBuilder<'s> {
    /// What the first state of a sequence is made of.
    pub(super) fn given(
        &mut self,
        b: &mut Builder,
        begin: &Beginning,
    ) -> Result<Value, BuildError> {
        b.site = site(&begin.path()).into();
        b.span = Some(begin.embed.span);
        let input = b.push1(begin.value(), &[])?;
        self.input = Some(input);
        // Before the embedding: what pictures call a sequence is what its first layer reads.
        if let Some(to) = self.spec.padding() {
            let padding = b.part("padding", |b| {
                let padding = b.push1(Equals { to }, &[input])?;
                nn::combine(b, &[(Exact::int(-1), padding)])
            })?;
            self.padding.insert(self.sequence, padding);
        }
        Ok(input)
    }

    /// The state before the first step of a stage, made of the input or of the state before it.
    pub(super) fn first_state(
        &mut self,
        b: &mut Builder,
        (begin, stage): (&Beginning, &Stage),
        input: Value,
    ) -> Result<Value, BuildError> {
        b.site = site(&stage.path).into();
        b.span = Some(stage.embed.span);
        self.sizes = stage.sizes;
        let path = match stage.embed.tied {
            Some(_) => begin.embedding_path(),
            None => stage.path.clone(),
        };
        let mut scope = self.below(&path);
        let mut x = stage.embed.kind.build(b, (&*stage.of, input), &mut scope)?;
        let mut scope = self.below(&stage.path);
        // The last one first: each is put before all that stand there.
        for leading in stage.embed.leading.iter().rev() {
            x = leading::before(b, x, &**leading, &mut scope)?;
        }
        let told = leading::condition(b, &stage.embed.condition, stage.sizes.width, &mut scope)?;
        if let Some(positions) = &stage.embed.positions {
            let rows = positions.rows(b, &mut scope, stage.sizes)?;
            x = nn::with_positions(b, x, rows)?;
        }
        if let Some(marks) = &stage.embed.marks {
            let rows = marks.rows(b, input, &mut scope)?;
            x = b.push1(Add, &[x, rows])?;
        }
        if let Some(told) = told {
            let of = self.sequence;
            self.states.insert(CONDITION.into(), (told, of));
        }
        Ok(x)
    }

    /// What an output says of the last state, and of the state `ahead` rows before each.
    pub(super) fn said(
        &mut self,
        b: &mut Builder,
        output: &OutputSpec,
        mut x: Value,
        ahead: u64,
    ) -> Result<Value, BuildError> {
        let path = output.path();
        b.site = site(&path).into();
        b.span = Some(output.span);
        let mut scope = self.below(&path);
        if let Some(before) = &output.before {
            x = before.build(b, &[x], &mut scope)?;
        }
        if ahead > 0 {
            x = nn::earlier(b, x, ahead)?;
        }
        Ok(output.kind.build(b, x, &mut scope)?)
    }

    fn below(&mut self, end: &str) -> ScopedParams<'_, 's> {
        ScopedParams {
            model: self,
            prefix: end.into(),
            time: None,
        }
    }
}

fn site(end: &str) -> Site {
    Site {
        path: end.into(),
        ..Site::default()
    }
}

impl EmbedScope for ScopedParams<'_, '_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult {
        Weights::param(self, b, path)
    }

    fn rows(&mut self, b: &mut Builder, table: Value) -> TypeResult {
        self.model.positions(b, table)
    }

    fn carry(&mut self, b: &mut Builder, name: &str, shape: [u64; 2]) -> TypeResult<Option<Value>> {
        self.model.carry(b, name, shape)
    }

    fn sinusoids(&mut self, b: &mut Builder) -> TypeResult {
        self.model.sinusoids(b)
    }
}

impl OutputScope for ScopedParams<'_, '_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult {
        Weights::param(self, b, path)
    }

    fn embedded(&mut self, b: &mut Builder, state: Value) -> TypeResult {
        let begin = &self.model.spec.begin;
        let mut scope = self.model.below(&begin.embedding_path());
        begin.embed.kind.read_by(b, state, &mut scope)
    }

    fn leading(&self) -> u64 {
        self.model.spec.begin.embed.leading_rows()
    }

    fn token_mask(&mut self, b: &mut Builder) -> TypeResult<Option<Value>> {
        self.model.token_mask(b)
    }
}
