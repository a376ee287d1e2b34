//! Launches that a run may pass over, and values that a launch leaves as they are.
//!
//! Takes the flags of nodes from `predication`; gives every launch the flag that guards it, and units of `select`s their values.

use super::{LowerError, Lowering};
use crate::facts::{kind, only};
use crate::fuse::{Shape, Unit};
use crate::launch_list::{BufferId, Held};
use odec_graph::Value;
use odec_graph::op::Kind;
use odec_graph::ops::OpKind;
use std::collections::{BTreeMap, BTreeSet};

impl Lowering<'_> {
    /// The flags that all results of a unit have.
    pub(super) fn flags_of(&self, unit: &Unit) -> BTreeSet<u32> {
        let guards = &self.units.guards;
        match unit.shape {
            Shape::Single => guards.of_all(unit.nodes.last().copied().into_iter()),
            Shape::Rows(_) => {
                let stored = |n: &u32| self.units.stored.contains(&only(*n));
                guards.of_all(unit.nodes.iter().copied().filter(stored))
            }
        }
    }

    /// Guards every launch by the latest of its flags that is known by then.
    pub(super) fn guard(&mut self) {
        let mut written: BTreeMap<BufferId, usize> = BTreeMap::new();
        for (i, l) in self.code.launches.iter().enumerate() {
            for (b, _) in l.uses().filter(|(_, mode)| mode.writes()) {
                written.entry(b).or_insert(i);
            }
        }
        for i in 0..self.flags.len() {
            let known = self.flags[i].iter().rev().find_map(|flag| {
                let buffer = *self.buffers.get(&self.canonical(only(*flag)))?;
                let given = matches!(kind(self.graph, *flag), Kind::Source);
                (given || written.get(&buffer).is_some_and(|w| *w < i)).then_some(buffer)
            });
            self.code.launches[i].guard = known;
        }
    }

    /// What a unit holds, if it does nothing else: its results are one flag's, computed outside.
    pub(super) fn held(
        &mut self,
        unit: &Unit,
        results: &[Value],
    ) -> Result<Option<Held>, LowerError> {
        let node = |v: &Value| self.graph.node(v.node);
        let inside = |v: Value| unit.nodes.contains(&v.node);
        let is_number = |v: Value| matches!(kind(self.graph, v.node), Kind::Scalar(_));
        let mut found: Option<(Value, Vec<(Value, Value)>)> = None;
        for v in results {
            let [flag, _, kept] = node(v).operands[..] else {
                return Ok(None);
            };
            let holds = matches!(node(v).op, OpKind::Select(_));
            let (_, pairs) = found.get_or_insert((flag, Vec::new()));
            pairs.push((*v, kept));
            if !holds || inside(flag) || inside(kept) || is_number(flag) || is_number(kept) {
                return Ok(None);
            }
        }
        let Some((flag, pairs)) = found else {
            return Ok(None);
        };
        if results.iter().any(|v| node(v).operands[0] != flag) {
            return Ok(None);
        }
        let mut held = Held {
            flag: self.buffer(flag)?,
            pairs: Vec::new(),
        };
        for (made, kept) in pairs {
            held.pairs.push((self.buffer(made)?, self.buffer(kept)?));
        }
        Ok(Some(held))
    }
}
