//! Contractions, and what is made of their right-hand operands.
//!
//! Where the target wants panels, a right-hand operand is packed once per (value, layout) and shared by all contractions that read
//! it: a weight by every evaluation of a step, an activation by the weight gradients that start from it. In the
//! backward pass a weight is packed anew for each step, so that no panel waits for steps that are computed again.

use super::{LowerError, Lowering};
use crate::body::{self, dtype};
use crate::facts::{Role, kind, only};
use crate::launch_list::{BufferId, Placement};
use crate::rounding;
use odec_graph::op::Kind;
use odec_graph::{Pass, Site, TensorType, Value};
use odec_program::gpu::tensor::warpgroup::{self, Tokens};
use odec_program::kernel::{
    Blocking, Contract, Extent, Grouped, Groups, KernelSpec, Layout, Order, Pack, Parts,
};
use odec_program::{DType, Quantized, Size, Slot, Target};

/// How contractions of one real type are cut up for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    pub blocking: Blocking,
    /// Whether right-hand operands are packed into panels first.
    pub packs: bool,
    /// Order and blocking of factors rounded to bf16, where those are multiplied in pairs.
    pub pairs: Option<(Order, Blocking)>,
    /// Where contractions run by warpgroups: how many rows they have.
    pub warpgroups: Option<Tokens>,
}

impl Tiling {
    /// Order and blocking of contractions whose right-hand operands are made into such panels. Integers are not multiplied in pairs: what they stand
    /// for is no bf16.
    fn of(self, right: Panels) -> (Order, Blocking) {
        match self.pairs {
            Some(pairs) if right.dtype == DType::Bf16 && right.weights.is_none() => pairs,
            _ => (Order::Chain, self.blocking),
        }
    }

    /// Order of attention to inputs of a type.
    pub(super) fn attends(self, inputs: DType) -> Order {
        match self.pairs {
            Some((order, _)) if inputs == DType::Bf16 => order,
            _ => Order::Chain,
        }
    }
}

/// What a right-hand operand is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Panels {
    /// The type of both factors,
    pub dtype: DType,
    /// or, of weights in integers, of the other one.
    pub weights: Option<Quantized>,
}

/// A run of contractions for the same step of the backward pass, or the forward pass.
#[derive(Default)]
pub(super) struct StepRun {
    number: u32,
    of: Option<(String, Option<u32>)>,
}

impl StepRun {
    /// The number of the run that a site continues or begins.
    fn at(&mut self, site: &Site) -> u32 {
        let of = (site.pass == Pass::Backward).then(|| (site.evolve.clone(), site.step));
        if of != self.of {
            self.of = of;
            self.number += 1;
        }
        self.number
    }
}

/// A right-hand operand made ready, by a launch, and the run of contractions that it was last used in.
#[derive(Clone, Copy)]
pub(super) struct PreparedOperand {
    buffer: BufferId,
    launch: usize,
    step_run: u32,
}

impl Lowering<'_> {
    pub(super) fn contract(
        &mut self,
        n: u32,
        a_transposed: bool,
        b_transposed: bool,
        panels: Panels,
    ) -> Result<(), LowerError> {
        let [a, b] = self.graph.node(n).operands[..] else {
            unreachable!("contractions have two operands")
        };
        let (ta, tb) = (self.graph.ty(a), self.graph.ty(b));
        let cols = |t: &TensorType| Size::fixed(t.cols());
        let (m, k) = if a_transposed {
            (cols(ta), ta.rows())
        } else {
            (ta.rows(), cols(ta))
        };
        let width = if b_transposed { tb.rows() } else { cols(tb) };

        let layout = match (self.tiling.packs, panels.weights, b_transposed) {
            (true, None, _) => Layout::Panels,
            (true, Some(q), _) => Layout::Quantized(q),
            (false, Some(_), _) => {
                let op = self.graph.node(n).op.name();
                return Err(LowerError::Unpacked { op });
            }
            (false, None, false) => Layout::Rows,
            (false, None, true) => Layout::Columns,
        };
        let right = match layout {
            Layout::Panels | Layout::Quantized(_) => {
                self.packed(n, (b, b_transposed, panels), width, k)?
            }
            _ if dtype(tb, self.real) == panels.dtype => self.buffer(b)?,
            _ => self.rounded(n, b, panels)?,
        };
        let (order, blocking) = self.tiling.of(panels);
        let spec = Contract {
            a: dtype(ta, self.real),
            b: panels.dtype,
            a_transposed,
            layout,
            accumulate: self.accumulates(n),
            order,
            ..Contract::new(self.real, [m, width, k].map(extent), blocking)
        };
        let spec = match self.tiling.warpgroups {
            Some(tokens) if warpgroup::runs(&spec, Target::Sm90a) => warpgroup::tiled(spec, tokens),
            _ => spec,
        };
        let (a, c) = (self.buffer(a)?, self.buffer(only(n))?);
        let dims = vec![m, width, k];
        if spec.parts == Parts::ONE {
            self.launch(
                KernelSpec::Contract(spec),
                vec![a, right, c],
                dims,
                vec![],
                n,
            );
            return Ok(());
        }
        let (parts, accumulate) = (u64::from(spec.parts.0), spec.accumulate);
        let spec = Contract {
            accumulate: false,
            ..spec
        };
        let size = Size {
            factor: width.factor * parts * m.factor,
            ..m
        };
        let name = self.name_of(only(n), Some("in parts"));
        let apart = self.code.buffer(name, self.real, size, Placement::Arena);
        self.launch(
            KernelSpec::Contract(spec),
            vec![a, right, apart],
            dims,
            vec![],
            n,
        );
        let sum = body::sum_of_parts(width.factor, parts, accumulate, self.real);
        let dims = vec![m, Size::ONE];
        self.launch(KernelSpec::Rows(sum), vec![apart, c], dims, vec![], n);
        Ok(())
    }

    /// Products of rows with the matrices of their groups. Where these are parameters, and the entry runs many times, they are packed
    /// once, as one matrix: each is whole panels of it.
    pub(super) fn rows_of_groups(
        &mut self,
        node: u32,
        spec: Grouped,
        [experts, x, w, out]: [Value; 4],
    ) -> Result<(), LowerError> {
        let Groups { groups, n, k, .. } = spec.of;
        let panels = Panels {
            dtype: if spec.rounded { DType::Bf16 } else { self.real },
            weights: None,
        };
        let source = self.canonical(w);
        let is_parameter = matches!(kind(self.graph, source.node), Kind::Source);
        let whole = n.is_multiple_of(spec.blocking.nr.into())
            && spec.layout == Layout::Columns
            && self.tiling.of(panels) == (spec.order, spec.blocking);
        let (right, spec) = match self.tiling.packs && self.homes.lasting && is_parameter && whole {
            false => (self.buffer(w)?, spec),
            true => {
                let columns = Size::fixed(groups * n);
                let right = self.packed(node, (w, true, panels), columns, Size::fixed(k))?;
                let factors = [spec.factors[0], panels.dtype];
                let spec = Grouped {
                    factors,
                    layout: Layout::Panels,
                    ..spec
                };
                (right, spec)
            }
        };
        let (experts, a, out) = (self.buffer(experts)?, self.buffer(x)?, self.buffer(out)?);
        let (args, dims) = (vec![experts, a, right, out], vec![self.parts(x, k)]);
        self.launch(KernelSpec::Grouped(spec), args, dims, vec![], node);
        Ok(())
    }

    /// The panels of a right-hand operand with `n` columns and inner length `k`: those made before, or new ones.
    fn packed(
        &mut self,
        node: u32,
        layout: (Value, bool, Panels),
        n: Size,
        k: Size,
    ) -> Result<BufferId, LowerError> {
        let step_run = self.step_run.at(&self.graph.node(node).site);
        let packed = match self.found(layout, step_run) {
            Some(p) => p,
            None => self.pack(node, layout, n, k)?,
        };
        self.use_made(layout, packed, step_run);
        Ok(packed)
    }

    /// A right-hand operand as it lies, in another element type: a parameter where it is there so, or a copy, made before or new.
    fn rounded(&mut self, node: u32, b: Value, to: Panels) -> Result<BufferId, LowerError> {
        if let Some(there) = self.rounded_parameter(b, to.dtype)? {
            return Ok(there);
        }
        let step_run = self.step_run.at(&self.graph.node(node).site);
        let layout = (b, false, to);
        let copy = match self.found(layout, step_run) {
            Some(copy) => copy,
            None => {
                let ty = self.graph.ty(b);
                let name = self.name_of(b, Some("rounded"));
                let copy = self
                    .code
                    .buffer(name, to.dtype, ty.size(), Placement::Arena);
                let (mut spec, dims) = body::copy(ty, self.real);
                spec.operands[1] = to.dtype;
                let from = self.buffer(b)?;
                self.launch(KernelSpec::Rows(spec), vec![from, copy], dims, vec![], node);
                copy
            }
        };
        self.use_made(layout, copy, step_run);
        Ok(copy)
    }

    /// The buffer of a parameter where it lies rounded.
    fn rounded_parameter(&mut self, b: Value, to: DType) -> Result<Option<BufferId>, LowerError> {
        let source = self.canonical(b);
        let is_source = matches!(kind(self.graph, source.node), Kind::Source);
        if !self.homes.rounded || to != DType::Bf16 || !is_source {
            return Ok(None);
        }
        let home = self.home_of_source(source)?;
        if home.slot != Slot::Params {
            return Ok(None);
        }
        let home = rounding::place(home.offset, self.real);
        let name = self.name_of(b, Some("rounded"));
        let size = self.graph.ty(b).size();
        let there = self.code.buffer(name, to, size, Placement::Fixed(home));
        Ok(Some(there))
    }

    /// Notes that the unit at hand reads what was made of a right-hand operand, by the latest launch unless it is there.
    fn use_made(&mut self, layout: (Value, bool, Panels), buffer: BufferId, step_run: u32) {
        let last = self.code.launches.len().saturating_sub(1);
        let earlier = self.packs.get(&layout).filter(|m| m.buffer == buffer);
        let launch = earlier.map_or(last, |m| m.launch);
        self.flags[launch].retain(|f| self.unneeded.contains(f));
        let made = PreparedOperand {
            buffer,
            launch,
            step_run,
        };
        self.packs.insert(layout, made);
    }

    /// What was made of a right-hand operand before, unless it is a weight in another step_run.
    fn found(&self, layout: (Value, bool, Panels), step_run: u32) -> Option<BufferId> {
        let node = layout.0.node;
        let weight = *self.facts.role(node) == Role::Source
            && matches!(kind(self.graph, node), Kind::Source);
        let made = self.packs.get(&layout)?;
        (made.step_run == step_run || !weight).then_some(made.buffer)
    }

    /// Packs a right-hand operand with `n` columns and inner length `k`.
    fn pack(
        &mut self,
        node: u32,
        (b, transposed, panels): (Value, bool, Panels),
        n: Size,
        k: Size,
    ) -> Result<BufferId, LowerError> {
        let (order, Blocking { nr, .. }) = self.tiling.of(panels);
        let overflow = || LowerError::Overflow {
            what: "the packed operand",
            op: self.graph.node(node).op.name(),
        };
        let columns = match extent(n) {
            Extent::Static(n) => n.checked_next_multiple_of(nr as u64).ok_or_else(overflow)?,
            // The right-hand operand of a contraction is a matrix of fixed width.
            Extent::Dynamic => return Err(overflow()),
        };
        // What a launch's inner length is rounded up to is less than a chunk longer.
        let (k_factor, more) = match extent(k) {
            Extent::Static(k) => (order.depth(k), 0),
            Extent::Dynamic => (Some(k.factor), order.depth(1).map_or(0, |chunk| chunk - 1)),
        };
        let factor = match panels.weights {
            None => k_factor.and_then(|k| columns.checked_mul(k)),
            Some(q) => k_factor.and_then(|k| q.bytes(columns, nr.into(), k)),
        };
        let size = Size {
            factor: factor.ok_or_else(overflow)?,
            ..k
        };
        let name = self.name_of(b, Some("packed"));
        let dtype = match panels.weights {
            None => panels.dtype,
            Some(_) => DType::I8,
        };
        let packed = self.code.buffer(name, dtype, size, Placement::Arena);
        self.code.buffers[packed.0 as usize].more =
            columns.checked_mul(more).ok_or_else(overflow)?;
        let spec = Pack {
            dtype,
            from: body::dtype(self.graph.ty(b), self.real),
            n: extent(n),
            k: extent(k),
            nr,
            transposed,
            order,
            quantized: panels.weights,
        };
        let from = self.buffer(b)?;
        self.launch(
            KernelSpec::Pack(spec),
            vec![from, packed],
            vec![n, k],
            vec![],
            node,
        );
        Ok(packed)
    }
}

/// Part of the kernel when it is fixed, a launch argument otherwise.
fn extent(s: Size) -> Extent {
    match s {
        Size {
            factor,
            batch: 0,
            seq: 0,
            past: 0,
            recent: 0,
            source: 0,
        } => Extent::Static(factor),
        _ => Extent::Dynamic,
    }
}
