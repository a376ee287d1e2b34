//! A field that decides for each token how many steps it makes: beside the fields of the flow, with the same parameters in all steps.
//!
//! Leaves what its numbers mean to `halting.rs` and `routed.rs`.

use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::layers::OfModel;
use super::layers::network::Network;
use super::layers::pipeline;
use super::params::decider_path;
use super::scoped_params::ScopedParams;
use crate::error::BuildError;
use crate::scheme::flow::{Field, Leaf};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Site, Value};
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub struct Decider {
    pub leaf: Rc<Leaf>,
    /// The same, when the sizes are known.
    pub layer: Option<Network>,
}

impl Decider {
    /// A pipeline of layers that is applied to a token's state alone.
    pub fn of(field: &Field) -> Option<Decider> {
        match field {
            Field::Leaf(leaf) if leaf.params.len() < 2 && !leaf.facts.reads_time => Some(Decider {
                leaf: leaf.clone(),
                layer: None,
            }),
            _ => None,
        }
    }

    /// Reads the field's inside, now that sizes are known; its width, and whether its numbers are from 0 to 1.
    pub fn read(&mut self, model: &OfModel, sink: &mut Vec<Diagnostic>) -> Option<(u64, bool)> {
        let (layer, out) = pipeline::read(&self.leaf, &[model.sizes.width], model, sink)?;
        let shares = layer.ends_in_shares();
        self.layer = Some(layer);
        Some((out, shares))
    }
}

impl GraphBuilder<'_> {
    /// The parameters of such a field, and the tables that it reads, stand before all steps.
    pub(super) fn decider_params(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
    ) -> Result<(), BuildError> {
        let Some((decider, layer)) = e.decider().and_then(|d| Some((d, d.layer.as_ref()?))) else {
            return Ok(());
        };
        b.span = Some(decider.leaf.span);
        for angles in layer.rotated() {
            self.rotary(b, angles)?;
        }
        b.site = Site {
            evolve: e.label.clone(),
            path: decider.leaf.name.clone(),
            ..Site::default()
        }
        .into();
        let prefix = decider_path(e, decider);
        for p in layer.params() {
            self.param(b, &format!("{prefix}.{}", p.path))?;
        }
        Ok(())
    }

    /// What the field says of a state: after a step, or before all of them.
    pub(super) fn decision(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        (decider, step): (&Decider, Option<u32>),
        x: Value,
    ) -> Result<Value, BuildError> {
        b.site = Site {
            evolve: e.label.clone(),
            step,
            path: decider.leaf.name.clone(),
            ..Site::default()
        }
        .into();
        b.span = Some(decider.leaf.span);
        let missing = || BuildError::Missing(format!("the field `{}`", decider.leaf.name));
        let layer = decider.layer.as_ref().ok_or_else(missing)?;
        let mut below = ScopedParams {
            model: self,
            prefix: decider_path(e, decider),
            time: None,
        };
        Ok(layer.build(b, &[x], &mut below)?)
    }
}
