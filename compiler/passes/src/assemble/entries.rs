//! One entry of a program: a graph through all passes to planned instructions.
//!
//! Takes graphs and lists of launches; gives entries, and keeps what they share: kernels, prepared memory, caches.

use super::hoist::Prepared;
use super::{AssembleError, EntryMemory, Options, Passed};
use crate::body::{self, dtype};
use crate::epilogue_fusion::fuse_epilogues;
use crate::facts::Facts;
use crate::fuse::{Fusion, fuse};
use crate::launch_list::{Buffer, BufferId, Launch, LaunchList, Placement, Spec};
use crate::layout::{ALIGN, ParamTable, ROW};
use crate::lower::{Homes, lower};
use crate::plan::{Layout, check, plan};
use crate::product_fusion::fuse_products;
use crate::{Policy, row_chunking, run_graph_passes};
use odec_graph::ops::{Cache as OpCache, Carry as OpCarry, OpKind};
use odec_graph::{Graph, TensorType};
use odec_program::gpu::tensor::warpgroup::Tokens;
use odec_program::kernel::KernelSpec;
use odec_program::manifest::{Constant, Memory, Param};
use odec_program::site::{Pass, Site, Sites};
use odec_program::{
    Coeff, Dim, Entry, EntryId, Instr, Io, Kept, Kernel, Maxima, Operand, ResultId, Size, Slot,
};
use std::collections::{BTreeMap, BTreeSet};

/// Distinct kernels, numbered as they come.
#[derive(Default)]
pub(super) struct Kernels {
    pub(super) list: Vec<Kernel>,
    by_symbol: BTreeMap<String, u32>,
}

impl Kernels {
    fn add(&mut self, spec: &Spec) -> u32 {
        let symbol = spec.symbol();
        if let Some(known) = self.by_symbol.get(symbol) {
            return *known;
        }
        let number = self.list.len() as u32;
        self.by_symbol.insert(symbol.into(), number);
        self.list.push(Kernel {
            symbol: symbol.into(),
            spec: (**spec).clone(),
        });
        number
    }
}

/// Makes the entries of one program, which share kernels and memory that outlives runs.
pub(super) struct Maker<'a> {
    table: &'a ParamTable,
    constants: &'a [Constant],
    options: Options,
    /// How it computes, and what the gradient keeps.
    policy: Policy,
    /// Bytes of [`Slot::Prepared`] and of [`Slot::Cache`] so far.
    pub(super) prepared: u64,
    pub(super) cache: u64,
    /// Where that is which is kept of the first of two sequences, by its path; and what the graph at hand keeps of others, the same.
    of_source: BTreeMap<String, u64>,
    kept: BTreeMap<String, Kept>,
    /// What was prepared so far, by what it is made of; and the launches of each entry that make it.
    pub(super) made: BTreeMap<Prepared, Operand>,
    preparations: Vec<Entry>,
    /// Whether an entry reads [`Slot::Rounded`].
    pub(super) rounded: bool,
    pub(super) kernels: Kernels,
    pub(super) sites: Sites,
    pub(super) memory: Vec<EntryMemory>,
    pub(super) graphs: Passed,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        table: &'a ParamTable,
        constants: &'a [Constant],
        options: Options,
        policy: Policy,
    ) -> Maker<'a> {
        Maker {
            table,
            constants,
            options,
            policy,
            prepared: 0,
            cache: 0,
            of_source: BTreeMap::new(),
            kept: BTreeMap::new(),
            made: BTreeMap::new(),
            preparations: vec![],
            rounded: false,
            kernels: Kernels::default(),
            sites: Sites::default(),
            memory: vec![],
            graphs: Passed::default(),
        }
    }

    /// The entry of a graph. What [`EntryId::Decode`] and [`EntryId::Extend`] prepare is left to [`Maker::prepare`].
    pub(super) fn graph_entry(
        &mut self,
        name: EntryId,
        graph: &Graph,
        maxima: Maxima,
    ) -> Result<Entry, AssembleError> {
        let real = self.table.real;
        // Inputs keep their numbers even where a pass finds that one is not needed.
        let inputs: Vec<Io> = graph
            .nodes()
            .filter_map(|(_, n)| match &n.op {
                OpKind::Input(i) => Some(Io {
                    name: i.name.clone(),
                    dtype: dtype(&i.ty, real),
                    shape: i.ty.shape.to_vec(),
                }),
                _ => None,
            })
            .fold(Vec::new(), |mut list: Vec<Io>, io| {
                if list.iter().all(|x| x.name != io.name) {
                    list.push(io);
                }
                list
            });
        let memory = match name {
            EntryId::Grad => self.policy.memory,
            _ => Memory::Store,
        };
        let weights = match name {
            EntryId::Grad | EntryId::Encode => None,
            _ => self.policy.weights,
        };
        let policy = Policy {
            memory,
            weights,
            ..self.policy
        };
        let graph = match name {
            EntryId::Grad => self.graphs.gradient(graph, policy)?,
            _ => run_graph_passes(graph, policy)?,
        };
        let (mut homes, outputs) = self.homes(name, &graph, &inputs, maxima)?;
        // What is not packed into panels is read as it lies.
        homes.rounded = !self.options.tiling.packs;
        let goes_on = matches!(name, EntryId::Decode | EntryId::Extend);
        homes.lasting = goes_on;
        let mut tiling = self.options.tiling;
        if goes_on {
            tiling.warpgroups = tiling.warpgroups.map(|_| Tokens::Few);
        }
        let facts = Facts::new(&graph);
        let units = fuse(&facts, self.options.fusion, !tiling.packs);
        let failed = |error| AssembleError::Lower {
            entry: name.into(),
            error,
        };
        let mut code = lower(&facts, &units, &homes, tiling, real).map_err(failed)?;
        if self.options.fusion == Fusion::On {
            code = fuse_products(fuse_epilogues(code, tiling), tiling);
        }
        if name == EntryId::Grad {
            self.zero_the_rest(&graph, &mut code);
            self.zero_between(&mut code);
        }
        if !goes_on {
            let unit = self.options.tiling.blocking.kc.into();
            code = row_chunking::cut(code, maxima, self.options.piece, unit);
        }
        if goes_on {
            let first = self.hoist_constant(name, &mut code)?;
            if self.preparations.is_empty() || !first.launches.is_empty() {
                // It reads no text.
                let whole = Maxima {
                    kept: None,
                    ..maxima
                };
                let part = self.entry(EntryId::Prepare, first, whole, vec![], vec![])?;
                self.preparations.push(part);
            }
        }
        let kept = std::mem::take(&mut self.kept);
        let mut entry = self.entry(name, code, maxima, inputs, outputs)?;
        if goes_on {
            entry.kept = kept.into_values().collect();
        }
        self.graphs.add(name, policy, graph);
        Ok(entry)
    }

    /// The entry that makes what others have taken out of theirs, one after the other.
    pub(super) fn prepare(&mut self) -> Option<Entry> {
        let mut parts = std::mem::take(&mut self.preparations).into_iter();
        let first = parts.next()?;
        Some(parts.fold(first, |mut all, part| {
            all.arena_bytes = all.arena_bytes.max(part.arena_bytes);
            all.scratch_bytes = all.scratch_bytes.max(part.scratch_bytes);
            all.instrs.extend(part.instrs);
            all
        }))
    }

    /// Where sources and results of a graph live, and the results that are no gradients.
    fn homes(
        &mut self,
        name: EntryId,
        graph: &Graph,
        inputs: &[Io],
        maxima: Maxima,
    ) -> Result<(Homes, Vec<Io>), AssembleError> {
        let real = self.table.real;
        let mut outputs = Vec::new();
        let mut homes = Homes::default();
        for (result, v) in graph.outputs() {
            if matches!(graph.node(v.node).op, OpKind::Append(_)) {
                // It stays where it is kept.
                homes.outputs.push(Operand::at(Slot::Cache, 0));
                continue;
            }
            let param = match ResultId::of(result) {
                ResultId::Gradient(path) => self.table.find(path),
                _ => None,
            };
            homes.outputs.push(match param {
                Some(p) => Operand::at(Slot::Grads, p.offset),
                None => {
                    let ty = graph.ty(*v);
                    outputs.push(Io {
                        name: result.clone(),
                        dtype: dtype(ty, real),
                        shape: ty.shape.to_vec(),
                    });
                    Operand::at(Slot::Output(outputs.len() as u32 - 1), 0)
                }
            });
        }
        let recent = recent_caches(graph);
        for (n, node) in graph.nodes() {
            let home = match &node.op {
                OpKind::Parameter(p) => self.table.find(&p.path).map(|p| (Slot::Params, p.offset)),
                OpKind::Input(i) => inputs
                    .iter()
                    .position(|x| x.name == i.name)
                    .map(|x| (Slot::Input(x as u32), 0)),
                OpKind::Table(t) => self
                    .constants
                    .iter()
                    .find(|c| c.table == t.table)
                    .map(|c| (Slot::Consts, c.offset)),
                OpKind::Cache(c) if c.one && self.of_source.contains_key(&c.path) => {
                    let offset = self.of_source[&c.path];
                    Some((Slot::Cache, offset))
                }
                OpKind::Cache(_) | OpKind::Carry(_) => {
                    let ty = &node.types[0];
                    let bytes = maxima
                        .most(|at| ty.size().at(at))
                        .and_then(|n| n.checked_mul(dtype(ty, real).bytes()));
                    let offset = self.cache;
                    let end = bytes.and_then(|b| reserve(offset, b));
                    self.cache = end.ok_or_else(|| AssembleError::Cache { entry: name.into() })?;
                    let row = ty.cols() * dtype(ty, real).bytes();
                    let positions = Size::of(&ty.shape[1..2]).map_or(0, |n| n.factor);
                    match &node.op {
                        OpKind::Cache(c) if c.one => {
                            self.of_source.insert(c.path.clone(), offset);
                        }
                        OpKind::Cache(OpCache { path, .. })
                        | OpKind::Carry(OpCarry { path, .. }) => {
                            let grows = matches!(node.op, OpKind::Cache(_));
                            let rows = positions;
                            let kept = Kept {
                                offset,
                                rows,
                                row,
                                grows,
                                recent: recent.contains(&n),
                            };
                            self.kept.insert(path.clone(), kept);
                        }
                        _ => {}
                    }
                    Some((Slot::Cache, offset))
                }
                _ => None,
            };
            if let Some((slot, offset)) = home {
                homes.sources.insert(n, Operand::at(slot, offset));
            }
        }
        Ok((homes, outputs))
    }

    /// Gradients of trained parameters that the loss does not depend on.
    fn zero_the_rest(&self, graph: &Graph, code: &mut LaunchList) {
        let given: BTreeSet<&str> = graph
            .outputs()
            .iter()
            .filter_map(|(n, _)| match ResultId::of(n) {
                ResultId::Gradient(path) => Some(path),
                _ => None,
            })
            .collect();
        for p in self
            .table
            .params
            .iter()
            .filter(|p| p.offset < self.table.trained && !given.contains(p.path.as_str()))
        {
            let name = ResultId::Gradient(&p.path).to_string();
            let zero = self.zero(code, name, p.offset, &p.shape);
            code.launches.push(zero);
        }
    }

    /// What of [`Slot::Grads`] is no gradient, but read with them: the ends of areas, and lines that a parameter does not fill. The areas of such parameters
    /// are filled before all else.
    fn zero_between(&self, code: &mut LaunchList) {
        let (real, mut first) = (self.table.real.bytes(), Vec::new());
        for area in &self.table.areas {
            let params = self.table.params.iter();
            let params = params.filter(|p| (area.start..area.end).contains(&p.offset));
            let end = |p: &Param| p.offset + p.elements() * real;
            let is_ragged = |p: &Param| end(p) % ALIGN != 0;
            let from = match params.clone().any(is_ragged) {
                true => area.start,
                false => params.map(end).max().unwrap_or(area.start),
            };
            if from == area.end {
                continue;
            }
            let cols = match (area.end - from) / real % ROW {
                0 => ROW,
                _ => ALIGN / real,
            };
            let shape = [(area.end - from) / real / cols, cols];
            let zero = self.zero(code, "grad.padding".into(), from, &shape);
            match from == area.start {
                true => first.push(zero),
                false => code.launches.push(zero),
            }
        }
        code.launches.splice(..0, first);
    }

    /// A launch that fills a part of [`Slot::Grads`] with zeros.
    fn zero(&self, code: &mut LaunchList, name: String, offset: u64, shape: &[u64]) -> Launch {
        let shape: Vec<Dim> = shape.iter().map(|n| Dim::Fixed(*n)).collect();
        let ty = TensorType::real(shape);
        let (spec, dims, coeffs) = body::fill(&ty, Coeff::Value(0.0), self.table.real);
        let home = Placement::Fixed(Operand::at(Slot::Grads, offset));
        let b = code.buffer(name.clone(), self.table.real, ty.size(), home);
        Launch {
            spec: KernelSpec::Rows(spec).into(),
            args: vec![b],
            dims,
            coeffs,
            site: Site {
                path: name,
                pass: Pass::Backward,
                ..Site::default()
            }
            .into(),
            guard: None,
            held: None,
        }
    }

    pub(super) fn entry(
        &mut self,
        name: EntryId,
        code: LaunchList,
        maxima: Maxima,
        inputs: Vec<Io>,
        outputs: Vec<Io>,
    ) -> Result<Entry, AssembleError> {
        let layout = plan(&code, maxima).map_err(|error| AssembleError::Plan {
            entry: name.into(),
            error,
        })?;
        if cfg!(debug_assertions) {
            check(&code, &layout, maxima).map_err(|error| AssembleError::Check {
                entry: name.into(),
                error,
            })?;
        }
        let is_rounded =
            |b: &Buffer| matches!(b.home, Placement::Fixed(o) if o.slot == Slot::Rounded);
        self.rounded |= code.buffers.iter().any(is_rounded);
        let Layout {
            peak,
            unshared,
            lower_bound,
            ..
        } = layout;
        self.memory.push(EntryMemory {
            entry: name,
            arena: peak,
            unshared,
            lower_bound,
        });
        let mut scratch_bytes = 0;
        let instrs = code
            .launches
            .iter()
            .enumerate()
            .map(|(n, l)| {
                for at in maxima.ends() {
                    let dims: Vec<u64> = l.dims.iter().map(|d| d.at(at).unwrap_or(0)).collect();
                    scratch_bytes = scratch_bytes.max(l.spec.signature().scratch_bytes(&dims));
                }
                let place = |b: &BufferId| match &code.get(*b).home {
                    Placement::Fixed(o) => *o,
                    Placement::Arena => {
                        let offset =
                            layout.offsets[b.0 as usize].expect("launched buffers are planned");
                        Operand::at(Slot::Arena, offset)
                    }
                };
                let operand = |(arg, b): (usize, &BufferId)| Operand {
                    row: code.moves(n, arg),
                    ..place(b)
                };
                let in_place = |l: &Launch| {
                    let held = l.held.as_ref()?;
                    let stays = |(made, kept): &(_, _)| place(made) == place(kept);
                    held.pairs.iter().all(stays).then_some(held.flag)
                };
                Instr {
                    kernel: self.kernels.add(&l.spec),
                    operands: l.args.iter().enumerate().map(operand).collect(),
                    dims: l.dims.clone(),
                    coeffs: l.coeffs.clone(),
                    site: self.sites.number(&l.site),
                    guard: l.guard.or_else(|| in_place(l)).as_ref().map(place),
                }
            })
            .collect();
        Ok(Entry {
            maxima,
            inputs,
            outputs,
            arena_bytes: peak,
            scratch_bytes,
            instrs,
            pieces: code.chunks.iter().map(|s| s.pieces).collect(),
            kept: vec![],
        })
    }
}

/// The caches of a graph that have rows of recent tokens alone.
pub fn recent_caches(graph: &Graph) -> BTreeSet<u32> {
    let appends = graph.nodes().filter_map(|(_, node)| match &node.op {
        OpKind::Append(a) if a.recent => Some(node.operands[0].node),
        _ => None,
    });
    appends.collect()
}

/// The end of a stretch of memory, aligned for the next.
pub(super) fn reserve(offset: u64, bytes: u64) -> Option<u64> {
    let end = offset.checked_add(bytes)?.checked_next_multiple_of(64)?;
    (end <= 1 << 44).then_some(end)
}
