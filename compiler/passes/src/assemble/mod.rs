//! The whole: graphs of a model to a manifest with every entry planned.
//!
//! Takes a [`ModelParts`]: its graphs, what it is called, how it is trained; gives the [`Manifest`] that `odec-mlir` adds
//! object code to and the runtime executes. Leaves making graphs to `model`, files to the caller.

mod entries;
mod hoist;

pub use super::parts::{EntryMemory, ModelParts, Options};

use crate::Policy;
use crate::layout::{ParamTable, TooManyParams, constants};
use crate::lower::LowerError;
use crate::model::Built;
use crate::plan::{CheckError, PlanError};
use crate::rounding::rounding;
use crate::update::{accumulate, update};
use entries::Maker;
pub use entries::recent_caches;
use odec_graph::ops::OpKind;
use odec_graph::{Graph, TypeError};
use odec_program::manifest::{Constant, FORMAT, Manifest, Memory, Pairs, Precision, Train};
use odec_program::{DType, Dim, Entry, EntryId, Io, Maxima, Program, Recent, ResultId, Size, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// The most texts that generation reads at once.
const TEXTS: u64 = 32;

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

/// A manifest and how well its memory is shared.
#[derive(Clone, Debug)]
pub struct Assembled {
    pub manifest: Manifest,
    pub memory: Vec<EntryMemory>,
    pub graphs: Passed,
}

/// What the graph passes made of the graph of each entry, under a policy. Costs are counted on it.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    made: Vec<(EntryId, Policy, Graph)>,
    /// The gradient before its memory policy, so that other memory policies begin there; the policy without memory.
    before_memory: Option<(Policy, Arc<Graph>)>,
}

impl Passed {
    pub fn get(&self, entry: EntryId, policy: Policy) -> Option<&Graph> {
        let mut all = self.made.iter();
        let found = all.find(|(e, p, _)| (*e, *p) == (entry, policy));
        found.map(|(.., graph)| graph)
    }

    /// What other memory policies begin with.
    pub fn before_memory(&self) -> Passed {
        Passed {
            made: vec![],
            before_memory: self.before_memory.clone(),
        }
    }

    fn add(&mut self, entry: EntryId, policy: Policy, graph: Graph) {
        self.made.push((entry, policy, graph));
    }

    /// The gradient under a policy.
    fn gradient(&mut self, graph: &Graph, policy: Policy) -> Result<Graph, TypeError> {
        let of = Policy {
            memory: Memory::Store,
            ..policy
        };
        let known = self.before_memory.take().filter(|(p, _)| *p == of);
        let (_, before) = match known {
            Some(known) => self.before_memory.insert(known),
            None => {
                let before = crate::before_memory(graph, policy)?;
                self.before_memory.insert((of, Arc::new(before)))
            }
        };
        crate::from_memory(before, policy)
    }
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
    assemble(&ModelParts::new(built, source), options)
}

/// Builds every entry.
///
/// # Errors
/// [`AssembleError::Params`] and [`AssembleError::Plan`] when the model does not fit into memory; anything else is a
/// fault of the compiler.
pub fn assemble(model: &ModelParts, options: Options) -> Result<Assembled, AssembleError> {
    let alone = Maxima::new(1, model.maxima.seq).beside(model.maxima.source);
    let (whole, trained) = (Maxima::from(model.maxima), trained(model));
    let together = Maxima {
        tokens: Some(model.maxima.seq.max(TEXTS)),
        ..Maxima::new(TEXTS, model.maxima.seq)
    };
    // Attention on tensor cores reads one text, and adds in another order than what reads several.
    let on_tensor_cores = !options.tiling.packs && model.precision == Precision::Bf16;
    let several = model.several.filter(|_| !on_tensor_cores);
    let translation = model.translation.filter(|_| !on_tensor_cores);
    let graphs: Vec<(EntryId, &Graph, Maxima)> = [
        (EntryId::Forward, Some(model.forward), whole),
        (EntryId::Decode, model.decode, alone),
        (EntryId::Encode, translation.map(|t| &t.encode), alone),
        (EntryId::Extend, translation.map(|t| &t.extend), whole),
        (EntryId::Extend, several, together),
        (EntryId::Loss, model.loss, trained),
        (EntryId::Grad, model.grad, trained),
    ]
    .into_iter()
    .filter_map(|(name, g, maxima)| Some((name, g?, of_graph(g?, maxima))))
    .collect();
    // Of what reads no sequence.
    let (alone, steps) = (alone.beside(0), trained.beside(0));
    let real = model.precision.real();
    let table = ParamTable::new(model.params, real, model.train.as_ref())?;
    let (constants, const_bytes) = tables(graphs.iter().map(|(_, g, _)| *g), real);
    let mut maker = Maker::new(&table, &constants, options, policy(model, options));
    let mut entries = BTreeMap::new();
    for (name, graph, maxima) in graphs {
        entries.insert(name, maker.graph_entry(name, graph, maxima)?);
    }
    if let Some(prepare) = maker.prepare() {
        entries.insert(EntryId::Prepare, prepare);
    }
    let rounds = maker.rounded;
    if rounds {
        let e = maker.entry(EntryId::Round, rounding(&table), alone, vec![], vec![])?;
        entries.insert(EntryId::Round, e);
    }
    if let (Some(train), Some(_)) = (&model.train, model.grad) {
        let from = match train.accumulate {
            1 => Slot::Grads,
            _ => {
                let (name, code) = (EntryId::Accumulate, accumulate(&table));
                let e = maker.entry(name, code, steps, vec![], vec![])?;
                entries.insert(name, e);
                Slot::Sums
            }
        };
        let code = update(&table, train, from, options.tiling, rounds);
        let outputs = vec![Io {
            name: ResultId::GradientNorm.to_string(),
            dtype: real,
            shape: vec![],
        }];
        let name = EntryId::Update;
        let e = maker.entry(name, code, steps, vec![], outputs)?;
        entries.insert(name, e);
    }
    let Maker {
        kernels,
        sites,
        memory,
        prepared,
        cache,
        graphs,
        ..
    } = maker;
    let program = Program {
        real,
        maxima: trained,
        kernels: kernels.list,
        sites: sites.list,
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
        settings: vec![],
        imports: vec![],
        model: model.model.clone(),
        params: table.params.clone(),
        constants,
        train: model.train.clone(),
        program,
        objects: vec![],
        claims: model.claims.clone(),
        depths: model.depths.clone(),
    };
    Ok(Assembled {
        manifest,
        memory,
        graphs,
    })
}

/// The gradient's entry alone, under a memory policy that need not be the model's own, and its graph; none without a gradient. Begins with
/// what is known of other memory policies.
///
/// # Errors
/// As [`assemble`].
pub fn gradient(
    model: &ModelParts,
    options: Options,
    memory: Memory,
    known: Passed,
) -> Result<Option<(Entry, Passed)>, AssembleError> {
    let Some(graph) = model.grad else {
        return Ok(None);
    };
    let real = model.precision.real();
    let table = ParamTable::new(model.params, real, model.train.as_ref())?;
    let (constants, _) = tables([graph].into_iter(), real);
    let policy = Policy {
        memory,
        ..policy(model, options)
    };
    let mut maker = Maker::new(&table, &constants, options, policy);
    maker.graphs = known;
    let entry = maker.graph_entry(EntryId::Grad, graph, of_graph(graph, trained(model)))?;
    Ok(Some((entry, maker.graphs)))
}

/// What the entry of a graph is planned for: without sources, where it reads none, and in pieces, where windows keep recent tokens alone.
fn of_graph(graph: &Graph, maxima: Maxima) -> Maxima {
    let windows = graph.nodes().filter_map(|(_, node)| match &node.op {
        OpKind::CachedAttention(a) if a.recent => {
            let rows = Size::of(&graph.ty(node.operands[1]).shape[1..2])?;
            Some((a.attention.window?, rows.factor))
        }
        _ => None,
    });
    let kept = windows.max().map(|(window, rows)| Recent { window, rows });
    let maxima = Maxima { kept, ..maxima };
    let reads = graph.nodes().any(|(_, n)| match &n.op {
        OpKind::Input(input) => input.ty.shape.contains(&Dim::Source),
        _ => false,
    });
    match reads {
        true => maxima,
        false => maxima.beside(0),
    }
}

/// What loss and gradient are planned for.
fn trained(model: &ModelParts) -> Maxima {
    let at_once = model.train.as_ref().and_then(Train::tokens_at_once);
    match at_once {
        None => model.maxima.into(),
        Some(tokens) => Maxima {
            batch: (tokens / Pairs::SHORTEST).max(1),
            tokens: Some(tokens),
            ..Maxima::from(model.maxima)
        },
    }
}

/// How a model computes, and what its gradient keeps.
fn policy(model: &ModelParts, options: Options) -> Policy {
    Policy {
        precision: model.precision,
        memory: model.train.as_ref().map_or(Memory::Store, |t| t.memory),
        weights: options.weights,
        // What is packed into panels is rounded there.
        copied: !options.tiling.packs,
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
