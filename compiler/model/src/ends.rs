//! The two ends of a model in its graph: the first state is made of the input, the result of the last state.
//!
//! Leaves what an input, an embedding or an output is to their files, the steps between to `phase.rs`.

use super::graph_builder::GraphBuilder;
use super::scoped_params::ScopedParams;
use crate::embeddings::EmbedScope;
use crate::error::BuildError;
use crate::layers::Weights;
use crate::outputs::OutputScope;
use crate::params::{EMBED, OUTPUT};
use odec_graph::ops::AddPositions;
use odec_graph::{Builder, Site, TypeError, TypeResult, Value};

impl<'s> GraphBuilder<'s> {
    /// The state before the first step.
    pub(super) fn first_state(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        let spec = self.spec;
        b.site = site(EMBED);
        b.span = Some(spec.embed.span);
        let input = b.push1(spec.input.value(), &[])?;
        self.input = Some(input);
        let mut scope = self.below(EMBED);
        let mut x = spec.embed.kind.build(b, input, &mut scope)?;
        if let Some(leading) = &spec.embed.leading {
            x = leading.build(b, x, &mut scope)?;
        }
        let Some(positions) = &spec.embed.positions else {
            return Ok(x);
        };
        let rows = positions.rows(b, &mut scope)?;
        Ok(b.push1(AddPositions, &[x, rows])?)
    }

    /// What is said of the last state.
    pub(super) fn last_state(
        &mut self,
        b: &mut Builder,
        mut x: Value,
    ) -> Result<Value, BuildError> {
        let spec = self.spec;
        b.site = site(OUTPUT);
        b.span = Some(spec.output.span);
        let mut scope = self.below(OUTPUT);
        if let Some(before) = &spec.output.before {
            x = before.build(b, &[x], &mut scope)?;
        }
        Ok(spec.output.kind.build(b, x, &mut scope)?)
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

    fn sinusoids(&mut self, b: &mut Builder) -> TypeResult {
        self.model.sinusoids(b)
    }
}

impl OutputScope for ScopedParams<'_, '_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult {
        Weights::param(self, b, path)
    }

    fn embedding(&mut self, b: &mut Builder) -> TypeResult {
        let missing = || TypeError {
            op: "parameter",
            what: "the embedding has no table".into(),
        };
        let table = self.model.spec.embed.kind.table().ok_or_else(missing)?;
        self.model.param(b, &format!("{EMBED}.{table}"))
    }
}
