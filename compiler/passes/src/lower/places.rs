//! Where values live: sources where they are given, results where they are wanted.
//!
//! A result is computed in its place; what cannot be (a source, a number, a value that is a result twice) is copied there.

use super::{LowerError, Lowering};
use crate::body::{self, dtype};
use crate::facts::kind;
use crate::launch_list::Placement;
use odec_graph::Value;
use odec_graph::op::Kind;
use odec_graph::ops::OpKind;
use odec_program::kernel::{Keep, KernelSpec};
use odec_program::{Dim, Operand, Size};

impl Lowering<'_> {
    /// Results computed in place; gives those that must be copied at the end: sources, launch arguments, and values
    /// that are a result twice.
    pub(super) fn claim_outputs(&mut self) -> Result<Vec<(Value, Operand)>, LowerError> {
        let mut late = Vec::new();
        for (i, (name, v)) in self.graph.outputs().iter().enumerate() {
            if matches!(kind(self.graph, v.node), Kind::Append { .. }) {
                continue;
            }
            let home = self
                .homes
                .outputs
                .get(i)
                .ok_or_else(|| LowerError::NoHome {
                    what: format!("result `{name}`"),
                })?;
            let v = self.canonical(*v);
            if !self.claim(v, *home) {
                late.push((v, *home));
            }
        }
        for (n, node) in self.graph.nodes() {
            if matches!(node.op, OpKind::Append(_))
                && let Kind::Append { each: false, .. } = kind(self.graph, n)
            {
                let home = self.appended(n)?;
                self.claim(self.canonical(node.operands[1]), home);
            }
        }
        Ok(late)
    }

    /// Has a value computed at a place, unless it is not computed or has another place.
    fn claim(&mut self, v: Value, home: Operand) -> bool {
        let made = kind(self.graph, v.node);
        let not_computed = matches!(made, Kind::Source | Kind::Scalar(_) | Kind::FromPast);
        let has_place = not_computed || made.replaces(v.port).is_some();
        let free = !has_place && !self.claimed.contains_key(&v);
        if free {
            self.claimed.insert(v, home);
        }
        free
    }

    /// Where an append puts its rows: the cache behind those of the tokens so far.
    pub(super) fn appended(&self, n: u32) -> Result<Operand, LowerError> {
        let cache = self.graph.node(n).operands[0];
        let row = self.row_bytes(cache);
        let [stride, recent] = match kind(self.graph, n) {
            Kind::Append { recent: true, .. } => [0, row],
            _ => [row, 0],
        };
        Ok(Operand {
            stride,
            recent,
            ..self.home_of_source(cache)?
        })
    }

    pub(super) fn row_bytes(&self, v: Value) -> u64 {
        let ty = self.graph.ty(v);
        ty.cols() * dtype(ty, self.real).bytes()
    }

    pub(super) fn home_of_source(&self, v: Value) -> Result<Operand, LowerError> {
        let home = self.homes.sources.get(&v.node).copied();
        home.ok_or_else(|| LowerError::NoHome {
            what: format!("source {}", self.name(v)),
        })
    }

    /// Puts a row of each sequence at its place among those that are kept.
    pub(super) fn append_each(&mut self, n: u32) -> Result<(), LowerError> {
        let operands = &self.graph.node(n).operands;
        let (cache, x, places) = (operands[0], self.canonical(operands[1]), operands[2]);
        let (kept, ty) = (self.graph.ty(cache), self.graph.ty(x));
        let Some(Dim::Fixed(room)) = kept.shape.get(1).copied() else {
            unreachable!("a cache has a number of rows")
        };
        let spec = Keep {
            dtype: self.real,
            elements: dtype(ty, self.real),
            cols: ty.cols(),
            room,
        };
        let args = self.buffers(&[places, x, cache])?;
        let dims = vec![Size::BATCH, Size::fixed(room)];
        self.launch(KernelSpec::Keep(spec), args, dims, vec![], n);
        Ok(())
    }

    pub(super) fn copy_out(&mut self, v: Value, home: Operand) -> Result<(), LowerError> {
        let ty = self.graph.ty(v);
        let from = self.buffer(v)?;
        let to = self.code.buffer(
            "copy",
            dtype(ty, self.real),
            ty.size(),
            Placement::Fixed(home),
        );
        let (spec, dims) = body::copy(ty, self.real);
        self.launch(KernelSpec::Rows(spec), vec![from, to], dims, vec![], v.node);
        Ok(())
    }
}
