//! Units to launches: operands, packing, accumulation.
//!
//! Takes a graph with its [`Units`] and the homes of its sources and results; gives a [`LaunchList`] over virtual buffers.
//! Results go straight to their homes. Leaves arena offsets to `plan`.

mod contract;
mod guards;
mod places;

pub use contract::Tiling;

use crate::body::{self, Bound, dtype};
use crate::facts::{Facts, Role, kind, only};
use crate::fuse::{Shape, Unit, Units};
use crate::launch_list::{BufferId, Launch, LaunchList, Name, Placement};
use crate::spec::Specs;
use contract::{Panels, PreparedOperand, StepRun};
use odec_graph::op::Kind;
use odec_graph::{Graph, Site, Value};
use odec_program::kernel::{Attend, Columns, Gather, Grouped, Groups, KernelSpec, Layout, Order};
use odec_program::site::naming_site;
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
    /// Whether parameters are there rounded to bf16, too ([`odec_program::Slot::Rounded`]).
    pub rounded: bool,
    /// Whether what follows from parameters alone is made once for many runs ([`odec_program::EntryId::Prepare`]).
    pub lasting: bool,
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
    #[error("`{op}` reads weights in integers, which the target does not pack")]
    Unpacked { op: &'static str },
    #[error("no place was given for {what}")]
    NoHome { what: String },
}

/// Turns units into launches, in their order; reals are `real`.
pub fn lower(
    facts: &Facts,
    units: &Units,
    homes: &Homes,
    tiling: Tiling,
    real: DType,
) -> Result<LaunchList, LowerError> {
    let mut l = Lowering {
        facts,
        graph: facts.graph(),
        units,
        homes,
        tiling,
        real,
        code: LaunchList::default(),
        specs: Specs::default(),
        buffers: BTreeMap::new(),
        packs: BTreeMap::new(),
        step_run: StepRun::default(),
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

struct Lowering<'a> {
    facts: &'a Facts<'a>,
    graph: &'a Graph,
    units: &'a Units,
    homes: &'a Homes,
    tiling: Tiling,
    /// What reals are computed in.
    real: DType,
    code: LaunchList,
    specs: Specs,
    buffers: BTreeMap<Value, BufferId>,
    /// (right-hand operand, stored transposed, element type of its panels) → packed panels.
    packs: BTreeMap<(Value, bool, Panels), PreparedOperand>,
    step_run: StepRun,
    /// Values computed straight into a result's place.
    claimed: BTreeMap<Value, Operand>,
    /// Flags of the unit at hand: where one is not positive, it is not needed.
    unneeded: BTreeSet<u32>,
    /// Those of every launch.
    flags: Vec<BTreeSet<u32>>,
}

impl Lowering<'_> {
    /// Sums accumulated in place share one buffer with their terms, and a view is the buffer of what it shows.
    fn canonical(&self, v: Value) -> Value {
        let v = self.facts.behind(self.graph, v);
        match self.units.chains.place.get(&v.node) {
            Some((sum, _)) => only(*sum),
            None => v,
        }
    }

    fn name(&self, v: Value) -> Name {
        self.name_of(v, None)
    }

    /// What is made of a value.
    fn name_of(&self, v: Value, made: Option<&'static str>) -> Name {
        let node = self.graph.node(v.node);
        Name::Value {
            op: node.op.name(),
            site: node.site.clone(),
            node: v.node,
            made,
        }
    }

    fn buffer(&mut self, v: Value) -> Result<BufferId, LowerError> {
        let v = self.canonical(v);
        if let Some(b) = self.buffers.get(&v) {
            return Ok(*b);
        }
        let (node, ty) = (self.graph.node(v.node), self.graph.ty(v));
        let name = self.name(v);
        // Other kinds know neither a place nor a number of their own.
        let special = matches!(
            self.facts.role(v.node),
            Role::Source | Role::Scalar | Role::Fresh
        );
        let kind = special.then(|| kind(self.graph, v.node));
        let claimed = || self.claimed.get(&v).copied();
        let arena = || claimed().map_or(Placement::Arena, Placement::Fixed);
        let home = match &kind {
            None => arena(),
            Some(Kind::Source) => Placement::Fixed(self.home_of_source(v)?),
            Some(Kind::FromPast) => {
                let table = self.graph.node(v.node).operands[0];
                Placement::Fixed(Operand {
                    stride: self.row_bytes(table),
                    ..self.home_of_source(table)?
                })
            }
            Some(made) => match made.replaces(v.port) {
                Some(n) => Placement::Fixed(self.home_of_source(node.operands[n])?),
                None => arena(),
            },
        };
        let scalar = match kind {
            Some(Kind::Scalar(c)) => Some(c),
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
        let site = self.graph.node(node).site.clone();
        let spec = self.specs.of(spec);
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

    /// Sums over rows: of each part of a batch's rows, then of these.
    fn columns(&mut self, n: u32, nodes: &[u32]) -> Result<(), LowerError> {
        let accumulate = self.accumulates(n);
        let mut bound = body::columns(self.facts, nodes, accumulate, self.real)?;
        if bound.dims[0] == Size::fixed(bound.dims[0].factor) {
            return self.bound(bound, KernelSpec::Columns, n);
        }
        let (cols, parts) = (bound.spec.cols, Columns::PARTS);
        (bound.spec.parts, bound.spec.accumulate) = (parts, false);
        let name = self.name_of(only(n), Some("in parts"));
        let size = Size::fixed(parts * cols);
        let apart = self.code.buffer(name, self.real, size, Placement::Arena);
        let mut args = self.buffers(&bound.inputs)?;
        args.push(apart);
        let spec = KernelSpec::Columns(bound.spec);
        self.launch(spec, args, bound.dims, bound.coeffs, n);
        let sum = KernelSpec::Columns(body::sum_of_rows(cols, accumulate, self.real));
        let (out, dims) = (self.buffer(only(n))?, vec![Size::fixed(parts), Size::ONE]);
        self.launch(sum, vec![apart, out], dims, vec![], n);
        Ok(())
    }

    fn fill(&mut self, b: BufferId, v: Value, c: Coeff) {
        let (spec, dims, coeffs) = body::fill(self.graph.ty(v), c, self.real);
        self.launch(KernelSpec::Rows(spec), vec![b], dims, coeffs, v.node);
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
        match (kind(self.graph, n), &unit.shape) {
            (Kind::Source | Kind::Scalar(_) | Kind::FromPast | Kind::View, _) => Ok(()),
            (Kind::Append { each: true, .. }, _) => self.append_each(n),
            (Kind::Append { each: false, .. }, _) => {
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
                let bound = body::rows(self.facts, &unit.nodes, *domain, stored, self.real)?;
                self.bound(bound, KernelSpec::Rows, self.naming_node(&unit.nodes))?;
                if let Some(launch) = self.code.launches.last_mut() {
                    launch.held = held;
                }
                Ok(())
            }
            (Kind::Rows { .. }, Shape::Single) => unreachable!("row ops have a domain"),
            (Kind::Columns, _) => self.columns(n, &unit.nodes),
            (
                Kind::Contract {
                    a_transposed,
                    b_transposed,
                    rounded,
                    weights,
                },
                _,
            ) => {
                let dtype = if rounded { DType::Bf16 } else { self.real };
                let panels = Panels { dtype, weights };
                self.contract(n, a_transposed, b_transposed, panels)
            }
            (
                Kind::Grouped {
                    of,
                    transposed,
                    rounded,
                },
                _,
            ) => {
                let [x, experts, w] = operands[..] else {
                    unreachable!("products of rows have three operands")
                };
                let layout = match transposed {
                    false => Layout::Columns,
                    true => Layout::Rows,
                };
                let spec = self.grouped(of, layout, [x, w], rounded);
                self.rows_of_groups(n, spec, [experts, x, w, results[0]])
            }
            (Kind::GroupedOuter { of, rounded }, _) => {
                let factors = [operands[1], operands[2]];
                let spec = self.grouped(of, Layout::Columns, factors, rounded);
                let spec = KernelSpec::GroupedOuter(spec);
                let args = self.buffers(&[operands.clone(), results].concat())?;
                self.launch(spec, args, vec![self.parts(operands[2], of.k)], vec![], n);
                Ok(())
            }
            (Kind::Attend(spec), _) => {
                // Behind results, sinks, biases and the numbers of those that take part.
                let values = [&operands[..3], &results[..], &operands[3..]].concat();
                let spec = self.attends(spec, operands[0]);
                let args = self.buffers(&values)?;
                let dims = self.whole(&spec, n);
                self.launch(KernelSpec::Attend(spec), args, dims, vec![], n);
                Ok(())
            }
            (Kind::AttendBackward(spec), _) => {
                let spec = self.attends(spec, operands[0]);
                // Behind results, biases and the numbers of those that take part.
                let values = [&operands[..6], &results[..], &operands[6..]].concat();
                let mut args = self.buffers(&values)?;
                if spec.reads_delta() {
                    args[3] = self.delta(&spec, n)?;
                }
                let dims = self.whole(&spec, n);
                self.launch(KernelSpec::AttendBackward(spec), args, dims, vec![], n);
                Ok(())
            }
            (Kind::AttendCached(spec, past), _) => {
                // Behind results, positions, sinks, biases and the numbers of those that take part.
                let values = [&operands[..3], &results[..], &operands[3..]].concat();
                let spec = self.attends(spec, operands[0]);
                let args = self.buffers(&values)?;
                let dims = match (spec.room, spec.causal) {
                    (None, _) => vec![Size::SEQ, past],
                    // A query of each, at a position of its own.
                    (Some(room), true) => {
                        vec![Size::ONE, past, Size::BATCH, Size::fixed(room)]
                    }
                    // All queries are those of the one sequence that keys are of.
                    (Some(_), false) => vec![Size::TOKENS, past, Size::ONE],
                };
                self.launch(KernelSpec::AttendCached(spec), args, dims, vec![], n);
                Ok(())
            }
            (Kind::One(launch), _) => {
                let given =
                    |all: &[usize]| -> Vec<Value> { all.iter().map(|i| operands[*i]).collect() };
                let mut args = self.buffers(&given(&launch.operands))?;
                for before in launch.before {
                    let name = self.name_of(only(n), Some(before.name));
                    let made = (self.code).buffer(name, self.real, before.size, Placement::Arena);
                    let reads = self.buffers(&given(&before.operands))?;
                    let reads = [reads, vec![made]].concat();
                    self.launch(
                        (before.kernel)(self.real),
                        reads,
                        launch.dims.clone(),
                        vec![],
                        n,
                    );
                    args.push(made);
                }
                args.extend(self.buffers(&results)?);
                self.launch((launch.kernel)(self.real), args, launch.dims, vec![], n);
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

    /// A kernel of attention in the types of the program and of its queries.
    fn attends(&self, spec: Attend, q: Value) -> Attend {
        let inputs = dtype(self.graph.ty(q), self.real);
        Attend {
            dtype: self.real,
            inputs,
            order: self.tiling.attends(inputs),
            ..spec
        }
    }

    /// Sequences and their tokens, and the tokens that keys are of where these are others.
    fn whole(&self, spec: &Attend, n: u32) -> Vec<Size> {
        let [q, k] = [0, 1].map(|i| self.graph.ty(self.graph.node(n).operands[i]));
        let mut dims = vec![q.shape[0], q.shape[1]];
        dims.extend(spec.others.then(|| k.tokens()));
        let size = |d| Size::of(&[d]).expect("one dimension");
        dims.into_iter().map(size).collect()
    }

    /// δ of the gradients of attention, a number for each token and head: once, before all blocks that read it.
    fn delta(&mut self, spec: &Attend, n: u32) -> Result<BufferId, LowerError> {
        let [o, lse, d_o] = [3, 4, 5].map(|i| self.graph.node(n).operands[i]);
        let size = self.graph.ty(lse).size();
        let name = self.name_of(only(n), Some("delta"));
        let delta = (self.code).buffer(name, self.real, size, Placement::Arena);
        let products = body::products_of_rows(spec.value_head(), spec.inputs, self.real);
        let args = [self.buffers(&[o, d_o])?, vec![delta]].concat();
        self.launch(
            KernelSpec::Rows(products),
            args,
            vec![size, Size::ONE],
            vec![],
            n,
        );
        Ok(delta)
    }

    /// Rounded factors are multiplied in pairs where the target has dot products of them.
    fn grouped(&self, of: Groups, layout: Layout, factors: [Value; 2], rounded: bool) -> Grouped {
        let pairs = self
            .tiling
            .pairs
            .filter(|(order, _)| rounded && *order == Order::Dots);
        let (order, blocking) = pairs.unwrap_or((Order::Chain, self.tiling.blocking));
        Grouped {
            dtype: self.real,
            factors: factors.map(|v| dtype(self.graph.ty(v), self.real)),
            rounded,
            of,
            layout,
            blocking,
            order,
        }
    }

    /// How many rows of `cols` columns a value is.
    fn parts(&self, v: Value, cols: u64) -> Size {
        let ty = self.graph.ty(v);
        let rows = ty.rows();
        let factor = rows.factor * (ty.cols() / cols);
        Size { factor, ..rows }
    }

    /// The member of a unit that names its place.
    fn naming_node(&self, nodes: &[u32]) -> u32 {
        let sites: Vec<&Site> = nodes.iter().map(|n| &*self.graph.node(*n).site).collect();
        nodes[naming_site(&sites)]
    }
}
