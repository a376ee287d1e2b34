//! Passes from a tensor graph to a planned program.
//!
//! | step | takes → gives |
//! |---|---|
//! | [`GRAPH_PASSES`] | graph → graph, in the order of the table |
//! | [`fuse`] | graph → units: what runs in one launch, in which order, and where it need not run ([`predication`]) |
//! | [`lower`] ([`body`]) | units → launches over virtual buffers ([`launch_list`]) |
//! | [`epilogue_fusion`] | launches → contractions with what becomes of their sums (epilogues) |
//! | [`product_fusion`] | launches → contractions that add onto others, joined with them |
//! | [`row_chunking`] | launches with rows too wide for all tokens at once → the same, some rows after others |
//! | [`plan`] | virtual buffers → offsets in one arena |
//! | [`update`], [`whole`], [`spectral`] | the optimiser step, built directly as launches |
//! | [`rounding`] | parameters in bf16 beside f32, where contractions read them as they lie |
//! | [`mod@assemble`] | model → manifest with all entries |
//! | [`budget`] | a number of bytes → the memory policy that fits |
//!
//! Leaves autodiff to `odec-graph` and object code to `odec-mlir`. Invariant: everything here is deterministic.
//!
//! # Invariants
//!
//! - Precision is a graph pass (`precision.rs`), after derivatives are taken. Rounding is an op or part of a
//!   contraction's meaning, so what is stored in bf16 is a question of memory, never of bits.
//! - Weights in integers are a graph pass too (`quantize.rs`), so the interpreter says what they mean. Only entries without a gradient have them.
//! - A memory policy is a graph pass (`revolve.rs`): replayed nodes carry their own `Site::replay`, and nothing
//!   downstream knows of it.
//! - What only the unchosen side of a `select` reads is not computed (`predication.rs`): a program stays a straight
//!   line, and an instruction may have a guard, a number that must be positive for a run to need it. Devices that run
//!   everything get the same bits: a guard is never part of a result, and memory that was passed over is never read.
//! - An entry is a straight line of instructions, but for stretches that take the tokens' rows in pieces
//!   (`row_chunking.rs`, `Entry::launches`). The order of every sum stays, so pieces change no bit (but on tensor
//!   cores, whose order is the card's).
//! - A target is chosen when a program is assembled (`parts.rs`); kernels keep to it.
//! - The memory a program needs is known when it is built: arena, packed panels and per-thread scratch are planned. Gradients lie in the arena
//!   (`plan.rs`), each from the launch that writes it on.
//! - Of parameters, those that are trained lie first (`layout.rs`, `Program::trained_bytes`): gradients, their
//!   sums and moments are as large as these, and nothing else writes to the others but the vectors of
//!   `spectral.rs`. What training adds to a model's own parameters is known by the ends of paths
//!   (`manifest::added`).
//! - Compiling takes work linear in the nodes of the graph, but for sorting: a chain of sums is opened once, sources
//!   are found by their paths, readers of a node by place, gaps of the arena by time (`timeline.rs`), launches
//!   around a wide value by numbers that no cut moves (`row_chunking.rs`). What is asked of a kernel is asked once, however many
//!   launches it has (`spec.rs`). A pass that changes nothing copies nothing, and costs are counted on the graphs that planning has made
//!   ([`assemble::Passed`]). What is larger than `MAX_NODES` is refused at its evolve.

use odec_model as model;
use odec_source::codes;

pub mod assemble;
pub mod body;
pub mod budget;
pub mod chains;
pub mod epilogue_fusion;
pub mod facts;
pub mod fuse;
pub mod launch_list;
pub mod layout;
pub mod lower;
pub mod order;
pub mod parts;
pub mod plan;
pub mod precision;
pub mod predication;
pub mod print;
pub mod producer_fusion;
pub mod product_fusion;
pub mod quantize;
pub mod recompute;
pub mod revolve;
pub mod rewrite;
pub mod rounding;
pub mod row_chunking;
pub mod simplify;
mod spec;
pub mod spectral;
pub mod sums;
mod timeline;
pub mod update;
mod uses;
pub mod whole;

pub use assemble::{AssembleError, Assembled, ModelParts, Options, assemble, build_manifest};
use odec_graph::{Graph, TypeError};
use odec_program::Quantized;
use odec_program::manifest::{Memory, Precision};

/// What passes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// For [`mod@precision`].
    pub precision: Precision,
    /// For [`mod@revolve`].
    pub memory: Memory,
    /// For [`mod@quantize`].
    pub weights: Option<Quantized>,
    /// For [`mod@precision`]: whether factors of contractions are copied to tensor cores as they are stored, not rounded on their way.
    pub copied: bool,
}

/// A pass over a graph.
pub struct GraphPass {
    pub name: &'static str,
    /// What it makes of a graph; none: the graph stays as it is.
    pub run: fn(&Graph, Policy) -> Result<Option<Graph>, TypeError>,
}

/// The graph passes, in order.
pub const GRAPH_PASSES: &[GraphPass] = &[
    GraphPass {
        name: "simplify",
        run: |g, _| simplify::simplify(g).map(Some),
    },
    GraphPass {
        name: "precision",
        run: |g, policy| precision::round(g, policy.precision, policy.copied),
    },
    GraphPass {
        name: "quantize",
        run: |g, policy| match policy.weights {
            None => Ok(None),
            Some(q) => quantize::quantize(g, q).map(Some),
        },
    },
    GraphPass {
        name: "revolve",
        run: |g, policy| match policy.memory {
            Memory::Store => Ok(None),
            Memory::Revolve { slots } => revolve::revolve(g, slots).map(Some),
        },
    },
    GraphPass {
        name: "recompute",
        run: |g, _| recompute::recompute(g, recompute::Scope::All),
    },
    GraphPass {
        name: "sums",
        run: |g, _| sums::group_sums(g),
    },
];

/// How many of them stand before the first that asks for the memory policy.
const BEFORE_MEMORY: usize = 3;

/// Runs all graph passes; the verifier looks at every result in debug builds.
///
/// # Errors
/// Only through a fault in a pass: a rewrite that does not type, or a graph that contradicts itself.
pub fn run_graph_passes(graph: &Graph, policy: Policy) -> Result<Graph, TypeError> {
    run(GRAPH_PASSES, graph, policy)
}

/// Runs the passes that do not ask for the memory policy; [`from_memory`] runs the others.
fn before_memory(graph: &Graph, policy: Policy) -> Result<Graph, TypeError> {
    run(&GRAPH_PASSES[..BEFORE_MEMORY], graph, policy)
}

fn from_memory(graph: &Graph, policy: Policy) -> Result<Graph, TypeError> {
    debug_assert_eq!(GRAPH_PASSES[BEFORE_MEMORY].name, "revolve");
    run(&GRAPH_PASSES[BEFORE_MEMORY..], graph, policy)
}

fn run(passes: &[GraphPass], graph: &Graph, policy: Policy) -> Result<Graph, TypeError> {
    let mut made: Option<Graph> = None;
    for pass in passes {
        if let Some(g) = (pass.run)(made.as_ref().unwrap_or(graph), policy)? {
            debug_assert_eq!(odec_graph::verify(&g), Ok(()), "after `{}`", pass.name);
            made = Some(g);
        }
    }
    Ok(made.unwrap_or_else(|| graph.clone()))
}
