//! The whole: graphs of a model to a manifest with every entry planned.
//!
//! Takes a [`Model`]: its graphs, what it is called, how it is trained; gives the [`Manifest`] that `odec-mlir` adds
//! object code to and the runtime executes. Leaves making graphs to `model`, files to the caller.

use super::body::dtype;
use super::epilogue_fusion::fuse_epilogues;
use super::fuse::{Fusion, fuse};
use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::layout::{ParamTable, TooManyParams, constants};
use super::lower::{Homes, LowerError, lower};
pub use super::parts::{Model, Options};
use super::plan::{CheckError, Layout, PlanError, check, plan};
use super::update::{accumulate, update};
use super::{Policy, body, row_chunking, run_graph_passes};
use crate::model::Built;
use odec_graph::ops::OpKind;
use odec_graph::{Graph, TensorType, TypeError};
use odec_program::kernel::KernelSpec;
use odec_program::manifest::{Constant, FORMAT, Manifest, Memory, Tune};
use odec_program::{
    Bindings, Coeff, DType, Dim, Entry, EntryId, Instr, Io, Kernel, Operand, Program, ResultId,
    Size, Slot,
};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Why no program was made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AssembleError {
    #[error(transparent)]
    Params(#[from] TooManyParams),
    /// The entry does not fit into memory: the model is too large.
    #[error("entry `{entry}`: {error}")]
    Plan { entry: String, error: PlanError },
    /// The same, for memory that outlives its runs.
    #[error("entry `{entry}`: its keys, values and packed parameters do not fit into memory")]
    Cache { entry: String },
    #[error("internal: a pass made a node that does not type: {0}")]
    Type(#[from] TypeError),
    #[error("internal: entry `{entry}`: {error}")]
    Lower { entry: String, error: LowerError },
    #[error("internal: entry `{entry}`: {error}")]
    Check { entry: String, error: CheckError },
}

/// What planning one entry found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMemory {
    pub entry: EntryId,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of the same values side by side.
    pub unshared: u64,
    /// Bytes alive at the busiest launch.
    pub lower_bound: u64,
}

/// A manifest and how well its memory is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    pub manifest: Manifest,
    pub memory: Vec<EntryMemory>,
}

/// The manifest of a model, with every entry planned.
///
/// # Errors
/// As [`assemble`].
pub fn build_manifest(
    built: &Built,
    source: &str,
    options: Options,
) -> Result<Assembled, AssembleError> {
    assemble(&Model::new(built, source), options)
}

/// Builds every entry.
///
/// # Errors
/// [`AssembleError::Params`] and [`AssembleError::Plan`] when the model does not fit into memory; anything else is a
/// fault of the compiler.
pub fn assemble(model: &Model, options: Options) -> Result<Assembled, AssembleError> {
    let alone = Bindings::new(1, model.maxima.seq);
    let graphs: Vec<(EntryId, &Graph, Bindings)> = [
        (EntryId::Forward, Some(model.forward), model.maxima),
        (EntryId::Decode, model.decode, alone),
        (EntryId::Loss, model.loss, model.maxima),
        (EntryId::Grad, model.grad, model.maxima),
    ]
    .into_iter()
    .filter_map(|(name, g, maxima)| Some((name, g?, maxima)))
    .collect();
    let real = model.precision.real();
    let table = ParamTable::new(model.params, real, tune(model))?;
    let (constants, const_bytes) = tables(graphs.iter().map(|(_, g, _)| *g), real);
    let mut maker = Maker::new(&table, &constants, options, policy(model));
    let mut entries = BTreeMap::new();
    for (name, graph, maxima) in graphs {
        let made = maker.graph_entries(name, graph, maxima)?;
        entries.extend(made);
    }
    if let (Some(train), Some(_)) = (&model.train, model.grad) {
        let from = match train.accumulate {
            1 => Slot::Grads,
            _ => {
                let (name, code) = (EntryId::Accumulate, accumulate(&table));
                let e = maker.entry(name, code, model.maxima, vec![], vec![])?;
                entries.insert(name, e);
                Slot::Sums
            }
        };
        let code = update(&table, train, from);
        let outputs = vec![Io {
            name: ResultId::GradientNorm.to_string(),
            dtype: real,
            shape: vec![],
        }];
        let name = EntryId::Update;
        let e = maker.entry(name, code, model.maxima, vec![], outputs)?;
        entries.insert(name, e);
    }
    let Maker {
        kernels,
        memory,
        prepared,
        cache,
        ..
    } = maker;
    let program = Program {
        real,
        maxima: model.maxima,
        kernels: kernels.list,
        entries,
        param_bytes: table.bytes,
        trained_bytes: table.trained,
        const_bytes,
        prepared_bytes: prepared,
        cache_bytes: cache,
    };
    let manifest = Manifest {
        format: FORMAT,
        odec: env!("CARGO_PKG_VERSION").into(),
        name: model.name.into(),
        source: model.source.into(),
        model: model.model.clone(),
        params: table.params.clone(),
        constants,
        train: model.train.clone(),
        program,
        objects: vec![],
        claims: model.claims.clone(),
        depths: model.depths.clone(),
    };
    Ok(Assembled { manifest, memory })
}

/// The gradient's entry alone, under a memory policy that need not be the model's own; none without a gradient.
///
/// # Errors
/// As [`assemble`].
pub fn gradient(
    model: &Model,
    options: Options,
    memory: Memory,
) -> Result<Option<Entry>, AssembleError> {
    let Some(graph) = model.grad else {
        return Ok(None);
    };
    let real = model.precision.real();
    let table = ParamTable::new(model.params, real, tune(model))?;
    let (constants, _) = tables([graph].into_iter(), real);
    let policy = Policy {
        memory,
        ..policy(model)
    };
    let mut maker = Maker::new(&table, &constants, options, policy);
    let mut made = maker.graph_entries(EntryId::Grad, graph, model.maxima)?;
    Ok(made.pop().map(|(_, entry)| entry))
}

/// What is trained of a model.
fn tune(model: &Model) -> Tune {
    model.train.as_ref().map_or(Tune::All, |t| t.tune)
}

/// How a model computes, and what its gradient keeps.
fn policy(model: &Model) -> Policy {
    Policy {
        precision: model.precision,
        memory: model.train.as_ref().map_or(Memory::Store, |t| t.memory),
    }
}

/// The constants of some graphs, and their bytes.
fn tables<'g>(graphs: impl Iterator<Item = &'g Graph>, real: DType) -> (Vec<Constant>, u64) {
    let tables = graphs.flat_map(|g| g.nodes());
    let tables = tables.filter_map(|(_, n)| match &n.op {
        OpKind::Table(t) => Some(&t.table),
        _ => None,
    });
    constants(tables, real)
}

/// Distinct kernels, numbered as they come.
#[derive(Default)]
struct Kernels {
    list: Vec<Kernel>,
    by_symbol: BTreeMap<String, u32>,
}

impl Kernels {
    fn add(&mut self, spec: KernelSpec) -> u32 {
        let symbol = spec.symbol();
        *self.by_symbol.entry(symbol.clone()).or_insert_with(|| {
            self.list.push(Kernel { symbol, spec });
            self.list.len() as u32 - 1
        })
    }
}

/// Which launches of a program always compute the same from the same parameters, into memory that nothing else writes.
fn constant_launches(code: &LaunchList) -> Vec<bool> {
    let mut writers: BTreeMap<BufferId, usize> = BTreeMap::new();
    let writes = |l: &Launch| {
        let written = l.uses().filter(|(_, mode)| mode.writes()).map(|(b, _)| b);
        written.collect::<Vec<_>>()
    };
    for b in code.launches.iter().flat_map(writes) {
        *writers.entry(b).or_default() += 1;
    }
    let of_fixed_size = |s: &Size| s.batch == 0 && s.seq == 0 && s.past == 0;
    let mut made: BTreeSet<BufferId> = BTreeSet::new();
    let is_constant = |l: &Launch| {
        let uses = l.uses().all(|(b, mode)| match &code.get(b).home {
            Placement::Fixed(o) => !mode.writes() && matches!(o.slot, Slot::Params | Slot::Consts),
            Placement::Arena if mode.reads() => !mode.writes() && made.contains(&b),
            Placement::Arena => writers[&b] == 1,
        });
        let alone = l.guard.is_none() && l.held.is_none();
        let constant = uses && alone && l.dims.iter().all(of_fixed_size);
        made.extend(writes(l).into_iter().filter(|_| constant));
        constant
    };
    code.launches.iter().map(is_constant).collect()
}

/// The end of a stretch of memory, aligned for the next.
fn reserve(offset: u64, bytes: u64) -> Option<u64> {
    let end = offset.checked_add(bytes)?.checked_next_multiple_of(64)?;
    (end <= 1 << 44).then_some(end)
}

struct Maker<'a> {
    table: &'a ParamTable,
    constants: &'a [Constant],
    options: Options,
    /// How it computes, and what the gradient keeps.
    policy: Policy,
    /// Bytes of [`Slot::Prepared`] and of [`Slot::Cache`] so far.
    prepared: u64,
    cache: u64,
    kernels: Kernels,
    memory: Vec<EntryMemory>,
}

impl<'a> Maker<'a> {
    fn new(
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
            kernels: Kernels::default(),
            memory: vec![],
        }
    }

    /// The entry of a graph; [`EntryId::Decode`] comes with [`EntryId::Prepare`].
    fn graph_entries(
        &mut self,
        name: EntryId,
        graph: &Graph,
        maxima: Bindings,
    ) -> Result<Vec<(EntryId, Entry)>, AssembleError> {
        let real = self.table.real;
        // Inputs keep their numbers even where a pass finds that one is not needed.
        let inputs: Vec<Io> = graph
            .nodes()
            .filter_map(|(_, n)| match &n.op {
                OpKind::Input(i) => Some(Io {
                    name: i.name.clone(),
                    dtype: dtype(&i.ty, real),
                    shape: i.ty.shape.clone(),
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
        let policy = Policy {
            memory,
            ..self.policy
        };
        let graph = run_graph_passes(graph, policy)?;
        let mut outputs = Vec::new();
        let mut homes = Homes::default();
        for (result, v) in graph.outputs() {
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
                        shape: ty.shape.clone(),
                    });
                    Operand::at(Slot::Output(outputs.len() as u32 - 1), 0)
                }
            });
        }
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
                OpKind::Cache(_) => {
                    let ty = &node.types[0];
                    let bytes = ty
                        .size()
                        .at(maxima)
                        .and_then(|n| n.checked_mul(dtype(ty, real).bytes()));
                    let offset = self.cache;
                    let end = bytes.and_then(|b| reserve(offset, b));
                    self.cache = end.ok_or_else(|| AssembleError::Cache { entry: name.into() })?;
                    Some((Slot::Cache, offset))
                }
                _ => None,
            };
            if let Some((slot, offset)) = home {
                homes.sources.insert(n, Operand::at(slot, offset));
            }
        }
        let units = fuse(&graph, self.options.fusion);
        let mut code =
            lower(&graph, &units, &homes, self.options.tiling, real).map_err(|error| {
                AssembleError::Lower {
                    entry: name.into(),
                    error,
                }
            })?;
        if self.options.fusion == Fusion::On {
            code = fuse_epilogues(code);
        }
        if name == EntryId::Grad {
            self.zero_the_rest(&graph, &mut code);
        }
        if name != EntryId::Decode {
            let unit = self.options.tiling.blocking.kc.into();
            code = row_chunking::cut(code, maxima, self.options.piece, unit);
        }
        let mut made = Vec::new();
        if name == EntryId::Decode {
            let first = self.hoist_constant(name, &mut code)?;
            let prepare = self.entry(EntryId::Prepare, first, maxima, vec![], vec![])?;
            made.push((EntryId::Prepare, prepare));
        }
        made.push((name, self.entry(name, code, maxima, inputs, outputs)?));
        Ok(made)
    }

    /// Takes out of a program what follows from parameters and tables alone, packing most of all: they stay the same over many runs.
    fn hoist_constant(
        &mut self,
        entry: EntryId,
        code: &mut LaunchList,
    ) -> Result<LaunchList, AssembleError> {
        let constant = constant_launches(code);
        let launches = std::mem::take(&mut code.launches).into_iter();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for (l, constant) in launches.zip(constant) {
            if constant { &mut first } else { &mut rest }.push(l);
        }
        let read: BTreeSet<BufferId> = rest.iter().flat_map(Launch::uses).map(|(b, _)| b).collect();
        for l in &first {
            for (b, _) in l
                .uses()
                .filter(|(b, mode)| mode.writes() && read.contains(b))
            {
                let b = &mut code.buffers[b.0 as usize];
                let bytes = b.bytes(Bindings::new(1, 1));
                b.home = Placement::Fixed(Operand::at(Slot::Prepared, self.prepared));
                let end = bytes.and_then(|b| reserve(self.prepared, b));
                self.prepared = end.ok_or_else(|| AssembleError::Cache {
                    entry: entry.into(),
                })?;
            }
        }
        code.launches = rest;
        Ok(LaunchList {
            buffers: code.buffers.clone(),
            launches: first,
            chunks: vec![],
        })
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
            let shape: Vec<Dim> = p.shape.iter().map(|n| Dim::Fixed(*n)).collect();
            let ty = TensorType::real(shape);
            let (spec, dims, coeffs) = body::fill(&ty, Coeff::Value(0.0), self.table.real);
            let home = Placement::Fixed(Operand::at(Slot::Grads, p.offset));
            let site = ResultId::Gradient(&p.path).to_string();
            let b = code.buffer(site.clone(), self.table.real, ty.size(), home);
            code.launches.push(Launch {
                spec: KernelSpec::Rows(spec),
                args: vec![b],
                dims,
                coeffs,
                site,
                guard: None,
                held: None,
            });
        }
    }

    fn entry(
        &mut self,
        name: EntryId,
        code: LaunchList,
        maxima: Bindings,
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
                let dims: Vec<u64> = l.dims.iter().map(|d| d.at(maxima).unwrap_or(0)).collect();
                scratch_bytes = scratch_bytes.max(l.spec.signature().scratch_bytes(&dims));
                let place = |b: &super::launch_list::BufferId| match &code.get(*b).home {
                    Placement::Fixed(o) => *o,
                    Placement::Arena => {
                        let offset =
                            layout.offsets[b.0 as usize].expect("launched buffers are planned");
                        Operand::at(Slot::Arena, offset)
                    }
                };
                let operand = |(arg, b): (usize, &super::launch_list::BufferId)| Operand {
                    row: code.moves(n, arg),
                    ..place(b)
                };
                let in_place = |l: &Launch| {
                    let held = l.held.as_ref()?;
                    let stays = |(made, kept): &(_, _)| place(made) == place(kept);
                    held.pairs.iter().all(stays).then_some(held.flag)
                };
                Instr {
                    kernel: self.kernels.add(l.spec.clone()),
                    operands: l.args.iter().enumerate().map(operand).collect(),
                    dims: l.dims.clone(),
                    coeffs: l.coeffs.clone(),
                    site: l.site.clone(),
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
        })
    }
}
