//! Units to launches: operands, packing, accumulation.
//!
//! Takes a graph with its [`Units`] and the homes of its sources and results; gives a [`LaunchList`] over virtual buffers.
//! Right-hand operands of contractions are, where the target wants panels, packed once per (value, layout) and shared by all contractions that read
//! them: a weight by every evaluation of a step, an activation by the weight gradients that start from it. In the
//! backward pass a weight is packed anew for each step, so that no panel waits for steps that are computed again. Results
//! go straight to their homes. Leaves arena offsets to `plan`.

use super::body::{self, Bound, dtype};
use super::facts::{kind, only};
use super::fuse::{Shape, Unit, Units, neighbourhood};
use super::launch_list::{BufferId, Held, Launch, LaunchList, Placement};
use odec_graph::op::Kind;
use odec_graph::ops::OpKind;
use odec_graph::{Graph, Pass, Site, Value};
use odec_program::kernel::{
    Attend, Blocking, Contract, Extent, Gather, KernelSpec, Layout, Order, Pack,
};
use odec_program::{Coeff, DType, Operand, Size};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Where a graph's sources and results live.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Homes {
    /// Source node → its place.
    pub sources: BTreeMap<u32, Operand>,
    /// One place per result of the graph, in order.
    pub outputs: Vec<Operand>,
}

/// How contractions of one real type are cut up for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    pub blocking: Blocking,
    /// Whether right-hand operands are packed into panels first.
    pub packs: bool,
    /// The blocking of factors rounded to bf16, where those are multiplied in pairs.
    pub pairs: Option<Blocking>,
}

impl Tiling {
    /// Order and blocking of contractions whose right-hand operands are of a type.
    fn of(self, right: DType) -> (Order, Blocking) {
        match self.pairs {
            Some(pairs) if right == DType::Bf16 => (Order::Pairs, pairs),
            _ => (Order::Chain, self.blocking),
        }
    }
}

/// Why a graph cannot be lowered: a fault of the compiler.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LowerError {
    #[error(transparent)]
    Body(#[from] body::BodyError),
    #[error("{what} of `{op}` is too large to count")]
    Overflow {
        what: &'static str,
        op: &'static str,
    },
    #[error("no place was given for {what}")]
    NoHome { what: String },
}

/// Turns units into launches, in their order; reals are `real`.
pub fn lower(
    graph: &Graph,
    units: &Units,
    homes: &Homes,
    tiling: Tiling,
    real: DType,
) -> Result<LaunchList, LowerError> {
    let mut l = Lowering {
        graph,
        units,
        homes,
        tiling,
        real,
        code: LaunchList::default(),
        buffers: BTreeMap::new(),
        packs: BTreeMap::new(),
        stretch: Stretch::default(),
        claimed: BTreeMap::new(),
        unneeded: BTreeSet::new(),
        flags: Vec::new(),
    };
    let late = l.claim_outputs()?;
    for unit in &units.in_order {
        l.unneeded = l.flags_of(unit);
        l.unit(unit)?;
    }
    l.unneeded.clear();
    for (v, home) in late {
        l.copy_out(v, home)?;
    }
    l.guard();
    Ok(l.code)
}

/// A run of contractions for the same step of the backward pass, or the forward pass.
#[derive(Default)]
struct Stretch {
    number: u32,
    of: Option<(String, Option<u32>)>,
}

impl Stretch {
    /// The number of the stretch that a site continues or begins.
    fn at(&mut self, site: &Site) -> u32 {
        let of = (site.pass == Pass::Backward).then(|| (site.evolve.clone(), site.step));
        if of != self.of {
            self.of = of;
            self.number += 1;
        }
        self.number
    }
}

struct Lowering<'a> {
    graph: &'a Graph,
    units: &'a Units,
    homes: &'a Homes,
    tiling: Tiling,
    /// What reals are computed in.
    real: DType,
    code: LaunchList,
    buffers: BTreeMap<Value, BufferId>,
    /// (right-hand operand, stored transposed, element type of its panels) → packed panels.
    packs: BTreeMap<(Value, bool, DType), Made>,
    stretch: Stretch,
    /// Values computed straight into a result's place.
    claimed: BTreeMap<Value, Operand>,
    /// Flags of the unit at hand: where one is not positive, it is not needed.
    unneeded: BTreeSet<u32>,
    /// Those of every launch.
    flags: Vec<BTreeSet<u32>>,
}

/// A right-hand operand made ready, by a launch, and the stretch it was last used in.
#[derive(Clone, Copy)]
struct Made {
    buffer: BufferId,
    launch: usize,
    stretch: u32,
}

impl Lowering<'_> {
    /// The flags that all results of a unit have.
    fn flags_of(&self, unit: &Unit) -> BTreeSet<u32> {
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
    fn guard(&mut self) {
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
    fn held(&mut self, unit: &Unit, results: &[Value]) -> Result<Option<Held>, LowerError> {
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

    /// Sums accumulated in place share one buffer with their terms.
    fn canonical(&self, v: Value) -> Value {
        match self.units.chains.place.get(&v.node) {
            Some((sum, _)) => only(*sum),
            None => v,
        }
    }

    /// Results computed in place; gives those that must be copied at the end: sources, launch arguments, and values
    /// that are a result twice.
    fn claim_outputs(&mut self) -> Result<Vec<(Value, Operand)>, LowerError> {
        let mut late = Vec::new();
        for (i, (name, v)) in self.graph.outputs().iter().enumerate() {
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
            if let Kind::Append = kind(self.graph, n) {
                let home = self.appended(n)?;
                self.claim(self.canonical(node.operands[1]), home);
            }
        }
        Ok(late)
    }

    /// Has a value computed at a place, unless it is not computed or has another place.
    fn claim(&mut self, v: Value, home: Operand) -> bool {
        let not_computed = matches!(
            kind(self.graph, v.node),
            Kind::Source | Kind::Scalar(_) | Kind::FromPast | Kind::Append
        );
        let free = !not_computed && !self.claimed.contains_key(&v);
        if free {
            self.claimed.insert(v, home);
        }
        free
    }

    /// Where an append puts its rows.
    fn appended(&self, n: u32) -> Result<Operand, LowerError> {
        let cache = self.graph.node(n).operands[0];
        let home = self.home_of_source(cache)?;
        Ok(Operand {
            stride: self.row_bytes(cache),
            ..home
        })
    }

    fn row_bytes(&self, v: Value) -> u64 {
        let ty = self.graph.ty(v);
        ty.cols() * dtype(ty, self.real).bytes()
    }

    fn home_of_source(&self, v: Value) -> Result<Operand, LowerError> {
        let home = self.homes.sources.get(&v.node).copied();
        home.ok_or_else(|| LowerError::NoHome {
            what: format!("source {}", self.name(v)),
        })
    }

    /// Op, place in the model and node: `matmul step.0.att.q %7`.
    fn name(&self, v: Value) -> String {
        let node = self.graph.node(v.node);
        let site = node.site.to_string();
        let parts = [node.op.name(), &site, &format!("%{}", v.node)];
        parts
            .into_iter()
            .filter(|p| !p.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn buffer(&mut self, v: Value) -> Result<BufferId, LowerError> {
        let v = self.canonical(v);
        if let Some(b) = self.buffers.get(&v) {
            return Ok(*b);
        }
        let ty = self.graph.ty(v);
        let name = self.name(v);
        let home = match kind(self.graph, v.node) {
            Kind::Source => Placement::Fixed(self.home_of_source(v)?),
            Kind::Append => {
                Placement::Fixed(self.home_of_source(self.graph.node(v.node).operands[0])?)
            }
            Kind::FromPast => {
                let table = self.graph.node(v.node).operands[0];
                Placement::Fixed(Operand {
                    stride: self.row_bytes(table),
                    ..self.home_of_source(table)?
                })
            }
            _ => self
                .claimed
                .get(&v)
                .cloned()
                .map_or(Placement::Arena, Placement::Fixed),
        };
        let scalar = match kind(self.graph, v.node) {
            Kind::Scalar(c) => Some(c),
            _ => None,
        };
        let b = self
            .code
            .buffer(name, dtype(ty, self.real), ty.size(), home);
        self.buffers.insert(v, b);
        if let Some(c) = scalar {
            let unneeded = std::mem::take(&mut self.unneeded);
            self.fill(b, v, c);
            self.unneeded = unneeded;
        }
        Ok(b)
    }

    fn buffers(&mut self, values: &[Value]) -> Result<Vec<BufferId>, LowerError> {
        values.iter().map(|v| self.buffer(*v)).collect()
    }

    fn launch(
        &mut self,
        spec: KernelSpec,
        args: Vec<BufferId>,
        dims: Vec<Size>,
        coeffs: Vec<Coeff>,
        node: u32,
    ) {
        let site = self.graph.node(node).site.to_string();
        self.code.launches.push(Launch {
            spec,
            args,
            dims,
            coeffs,
            site,
            guard: None,
            held: None,
        });
        self.flags.push(self.unneeded.clone());
    }

    fn bound<K>(
        &mut self,
        bound: Bound<K>,
        wrap: impl Fn(K) -> KernelSpec,
        node: u32,
    ) -> Result<(), LowerError> {
        let values: Vec<Value> = bound.inputs.iter().chain(&bound.outputs).copied().collect();
        let args = self.buffers(&values)?;
        self.launch(wrap(bound.spec), args, bound.dims, bound.coeffs, node);
        Ok(())
    }

    fn fill(&mut self, b: BufferId, v: Value, c: Coeff) {
        let (spec, dims, coeffs) = body::fill(self.graph.ty(v), c, self.real);
        self.launch(KernelSpec::Rows(spec), vec![b], dims, coeffs, v.node);
    }

    fn copy_out(&mut self, v: Value, home: Operand) -> Result<(), LowerError> {
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

    /// Whether a launch adds onto what earlier terms of its sum have written.
    fn accumulates(&self, node: u32) -> bool {
        self.units
            .chains
            .place
            .get(&node)
            .is_some_and(|(_, i)| *i > 0)
    }

    fn unit(&mut self, unit: &Unit) -> Result<(), LowerError> {
        let n = *unit.nodes.last().expect("units have members");
        let node = self.graph.node(n);
        let operands = node.operands.clone();
        let results: Vec<Value> = (0..node.types.len() as u32)
            .map(|port| Value { node: n, port })
            .collect();
        let sizes = |dims: &[usize]| {
            dims.iter()
                .map(|d| Size::of(&[self.graph.ty(operands[0]).shape[*d]]).expect("one dimension"))
                .collect::<Vec<_>>()
        };
        match (kind(self.graph, n), &unit.shape) {
            (Kind::Source | Kind::Scalar(_) | Kind::FromPast, _) => Ok(()),
            (Kind::Append, _) => {
                let (x, home) = (self.canonical(operands[1]), self.appended(n)?);
                match self.claimed.get(&x) == Some(&home) {
                    true => Ok(()),
                    false => self.copy_out(x, home),
                }
            }
            (Kind::Rows { .. }, Shape::Rows(domain)) => {
                let made = unit.nodes.iter().map(|n| only(*n));
                let stored = made.filter(|v| self.units.stored.contains(v));
                let stored: Vec<Value> = stored.collect();
                let held = self.held(unit, &stored)?;
                let bound = body::rows(self.graph, &unit.nodes, *domain, stored, self.real)?;
                self.bound(bound, KernelSpec::Rows, self.speaker(&unit.nodes))?;
                if let Some(launch) = self.code.launches.last_mut() {
                    launch.held = held;
                }
                Ok(())
            }
            (Kind::Rows { .. }, Shape::Single) => unreachable!("row ops have a domain"),
            (Kind::Columns, _) => {
                let bound = body::columns(self.graph, &unit.nodes, self.accumulates(n), self.real)?;
                self.bound(bound, KernelSpec::Columns, n)
            }
            (
                Kind::Contract {
                    a_transposed,
                    b_transposed,
                    rounded,
                },
                _,
            ) => {
                let panels = if rounded { DType::Bf16 } else { self.real };
                self.contract(n, a_transposed, b_transposed, panels)
            }
            (Kind::Attend(spec), _) => {
                let dims = sizes(&[0, 1]);
                let args = self.buffers(&[operands.clone(), results].concat())?;
                self.launch(
                    KernelSpec::Attend(Attend {
                        dtype: self.real,
                        inputs: dtype(self.graph.ty(operands[0]), self.real),
                        ..spec
                    }),
                    args,
                    dims,
                    vec![],
                    n,
                );
                Ok(())
            }
            (Kind::AttendBackward(spec), _) => {
                let dims = sizes(&[0, 1]);
                let args = self.buffers(&[operands.clone(), results].concat())?;
                self.launch(
                    KernelSpec::AttendBackward(Attend {
                        dtype: self.real,
                        inputs: dtype(self.graph.ty(operands[0]), self.real),
                        ..spec
                    }),
                    args,
                    dims,
                    vec![],
                    n,
                );
                Ok(())
            }
            (Kind::AttendCached(spec), _) => {
                let args = self.buffers(&[operands.clone(), results].concat())?;
                let spec = Attend {
                    dtype: self.real,
                    inputs: dtype(self.graph.ty(operands[0]), self.real),
                    ..spec
                };
                let dims = vec![Size::SEQ, Size::PAST];
                self.launch(KernelSpec::AttendCached(spec), args, dims, vec![], n);
                Ok(())
            }
            (Kind::Gather, _) => {
                let (table, index) = (operands[0], operands[1]);
                let dims = vec![
                    self.graph.ty(results[0]).rows(),
                    self.graph.ty(table).rows(),
                ];
                let cols = self.graph.ty(table).cols();
                let args = self.buffers(&[index, table, results[0]])?;
                self.launch(
                    KernelSpec::Gather(Gather {
                        dtype: self.real,
                        cols,
                    }),
                    args,
                    dims,
                    vec![],
                    n,
                );
                Ok(())
            }
            (Kind::PositionSum, _) => {
                let rows = self.graph.ty(results[0]).rows();
                let cols = self.graph.ty(results[0]).cols();
                let args = self.buffers(&[operands[0], results[0]])?;
                self.launch(
                    KernelSpec::PositionSum(Gather {
                        dtype: self.real,
                        cols,
                    }),
                    args,
                    vec![Size::BATCH, Size::SEQ, rows],
                    vec![],
                    n,
                );
                Ok(())
            }
            (Kind::ScatterAdd, _) => {
                let (index, rows) = (operands[0], operands[1]);
                let out = self.buffer(results[0])?;
                if !self.accumulates(n) {
                    self.fill(out, results[0], Coeff::Value(0.0));
                }
                let dims = vec![self.graph.ty(rows).rows(), self.graph.ty(results[0]).rows()];
                let cols = self.graph.ty(rows).cols();
                let mut args = self.buffers(&[index, rows])?;
                args.push(out);
                self.launch(
                    KernelSpec::ScatterAdd(Gather {
                        dtype: self.real,
                        cols,
                    }),
                    args,
                    dims,
                    vec![],
                    n,
                );
                Ok(())
            }
        }
    }

    /// The member of a unit that names its place: the last in the step and evaluation that most members belong to.
    fn speaker(&self, nodes: &[u32]) -> u32 {
        let place = |n: &u32| neighbourhood(&self.graph.node(*n).site);
        let votes = |n: &u32| nodes.iter().filter(|m| place(m) == place(n)).count();
        let most = nodes.iter().map(votes).max();
        let speaker = nodes.iter().rev().find(|n| Some(votes(n)) == most);
        *speaker.expect("units have members")
    }

    fn contract(
        &mut self,
        n: u32,
        a_transposed: bool,
        b_transposed: bool,
        panels: DType,
    ) -> Result<(), LowerError> {
        let [a, b] = self.graph.node(n).operands[..] else {
            unreachable!("contractions have two operands")
        };
        let (ta, tb) = (self.graph.ty(a), self.graph.ty(b));
        let cols = |t: &odec_graph::TensorType| Size::fixed(t.cols());
        let (m, k) = if a_transposed {
            (cols(ta), ta.rows())
        } else {
            (ta.rows(), cols(ta))
        };
        let width = if b_transposed { tb.rows() } else { cols(tb) };

        let layout = match (self.tiling.packs, b_transposed) {
            (true, _) => Layout::Panels,
            (false, false) => Layout::Rows,
            (false, true) => Layout::Columns,
        };
        let right = match layout {
            Layout::Panels => self.packed(n, (b, b_transposed, panels), width, k)?,
            _ if dtype(tb, self.real) == panels => self.buffer(b)?,
            _ => self.rounded(n, b, panels)?,
        };
        let (order, blocking) = self.tiling.of(panels);
        let spec = Contract {
            dtype: self.real,
            a: dtype(ta, self.real),
            b: panels,
            m: extent(m),
            n: extent(width),
            k: extent(k),
            a_transposed,
            layout,
            accumulate: self.accumulates(n),
            order,
            blocking,
            epilogue: None,
        };
        let (a, c) = (self.buffer(a)?, self.buffer(only(n))?);
        self.launch(
            KernelSpec::Contract(spec),
            vec![a, right, c],
            vec![m, width, k],
            vec![],
            n,
        );
        Ok(())
    }

    /// The panels of a right-hand operand with `n` columns and inner length `k`: those made before, or new ones.
    fn packed(
        &mut self,
        node: u32,
        layout: (Value, bool, DType),
        n: Size,
        k: Size,
    ) -> Result<BufferId, LowerError> {
        let stretch = self.stretch.at(&self.graph.node(node).site);
        let packed = match self.found(layout, stretch) {
            Some(p) => p,
            None => self.pack(node, layout, n, k)?,
        };
        self.use_made(layout, packed, stretch);
        Ok(packed)
    }

    /// A right-hand operand as it lies, in another element type: made before, or a new copy.
    fn rounded(&mut self, node: u32, b: Value, to: DType) -> Result<BufferId, LowerError> {
        let stretch = self.stretch.at(&self.graph.node(node).site);
        let layout = (b, false, to);
        let copy = match self.found(layout, stretch) {
            Some(copy) => copy,
            None => {
                let ty = self.graph.ty(b);
                let name = format!("{}, rounded", self.name(b));
                let copy = self.code.buffer(name, to, ty.size(), Placement::Arena);
                let (mut spec, dims) = body::copy(ty, self.real);
                spec.operands[1] = to;
                let from = self.buffer(b)?;
                self.launch(KernelSpec::Rows(spec), vec![from, copy], dims, vec![], node);
                copy
            }
        };
        self.use_made(layout, copy, stretch);
        Ok(copy)
    }

    /// Notes that the unit at hand reads what was made of a right-hand operand, by the latest launch unless it is there.
    fn use_made(&mut self, layout: (Value, bool, DType), buffer: BufferId, stretch: u32) {
        let last = self.code.launches.len().saturating_sub(1);
        let earlier = self.packs.get(&layout).filter(|m| m.buffer == buffer);
        let launch = earlier.map_or(last, |m| m.launch);
        self.flags[launch].retain(|f| self.unneeded.contains(f));
        let made = Made {
            buffer,
            launch,
            stretch,
        };
        self.packs.insert(layout, made);
    }

    /// What was made of a right-hand operand before, unless it is a weight in another stretch.
    fn found(&self, layout: (Value, bool, DType), stretch: u32) -> Option<BufferId> {
        let weight = matches!(kind(self.graph, layout.0.node), Kind::Source);
        let made = self.packs.get(&layout)?;
        (made.stretch == stretch || !weight).then_some(made.buffer)
    }

    /// Packs a right-hand operand with `n` columns and inner length `k`.
    fn pack(
        &mut self,
        node: u32,
        (b, transposed, panels): (Value, bool, DType),
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
        let factor = k_factor.and_then(|k| columns.checked_mul(k));
        let size = Size {
            factor: factor.ok_or_else(overflow)?,
            ..k
        };
        let name = format!("{}, packed", self.name(b));
        let packed = self.code.buffer(name, panels, size, Placement::Arena);
        self.code.buffers[packed.0 as usize].more =
            columns.checked_mul(more).ok_or_else(overflow)?;
        let spec = Pack {
            dtype: panels,
            from: dtype(self.graph.ty(b), self.real),
            n: extent(n),
            k: extent(k),
            nr,
            transposed,
            order,
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
        } => Extent::Static(factor),
        _ => Extent::Dynamic,
    }
}
