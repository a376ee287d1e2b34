//! Parameters as values of the graph: each made once, entered where a region begins.

use super::graph_builder::GraphBuilder;
use odec_graph::ops::{Parameter, RegionBegin};
use odec_graph::{Builder, TypeError, Value};
use std::collections::BTreeMap;

/// Those of a model, and those that are in its graph, by path.
pub(super) struct ParamValues<'s> {
    table: BTreeMap<&'s str, &'s Parameter>,
    made: BTreeMap<String, Value>,
    /// Those that were made before the steps, with what factors add to them.
    shared: BTreeMap<String, Value>,
    /// Regions so far that may not be made.
    regions: u32,
    /// The region at hand, and parameters as it reads them.
    region: Option<(u32, BTreeMap<String, Value>)>,
}

impl<'s> ParamValues<'s> {
    pub(super) fn new(params: &'s [Parameter]) -> Self {
        ParamValues {
            table: params.iter().map(|p| (p.path.as_str(), p)).collect(),
            made: BTreeMap::new(),
            shared: BTreeMap::new(),
            regions: 0,
            region: None,
        }
    }

    /// Whether there is a parameter of this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.table.contains_key(path)
    }

    /// The parameter of this path, where the graph reads it.
    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.made.get(path).copied()
    }

    fn stored(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        if let Some(v) = self.made.get(path) {
            return Ok(*v);
        }
        let Some(p) = self.table.get(path) else {
            return Err(TypeError {
                op: "parameter",
                what: format!("`{path}` is not in the table"),
            });
        };
        let v = b.push1((*p).clone(), &[])?;
        self.made.insert(path.to_string(), v);
        Ok(v)
    }

    /// What is made so far, with what factors add to it, is that of all steps.
    pub(super) fn share(&mut self, adapted: BTreeMap<String, Value>) {
        self.shared = adapted;
    }

    /// Enters a region that may not be made; what is read in it from now on comes from outside.
    pub(super) fn enter_region(&mut self) -> u32 {
        self.regions += 1;
        self.region = Some((self.regions, BTreeMap::new()));
        self.regions
    }

    /// Leaves it.
    pub(super) fn leave_region(&mut self) {
        self.region = None;
    }
}

impl GraphBuilder<'_> {
    pub(super) fn param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        let v = self.outer_param(b, path)?;
        let Some((region, entered)) = &mut self.params.region else {
            return Ok(v);
        };
        if let Some(v) = entered.get(path) {
            return Ok(*v);
        }
        let region = *region;
        let inside = b.push1(RegionBegin { region }, &[v])?;
        entered.insert(path.to_string(), inside);
        Ok(inside)
    }

    /// A parameter with what factors add to it: made before all steps, or once in each.
    fn outer_param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        let made = self.params.shared.get(path);
        if let Some(v) = made.or_else(|| self.timed.adapted.get(path)) {
            return Ok(*v);
        }
        let own = self.params.stored(b, path)?;
        let v = self.adapted(b, own, path)?;
        self.timed.adapted.insert(path.to_string(), v);
        Ok(v)
    }
}
