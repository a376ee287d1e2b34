//! Exact costs of a model: evaluations, parameters, operations, memory.
//!
//! Takes a built model; gives numbers that the executed program has as well (`compiler/tests/passes/costs.rs` counts them). Work
//! of stage programs is counted in `work.rs`, operations on graphs in `operations.rs`, where numbers of steps are drawn with the shares of
//! `drawn.rs`; memory is what the passes plan.
//! Leaves how it looks to `text.rs` and `json.rs`.

pub mod drawn;
pub mod json;
pub mod operations;
pub mod text;

use drawn::Draw;
pub use operations::{Operations, RowShare};

use crate::model::inputs::Unit;
use crate::model::step::SOLVE;
use crate::model::{Built, Capacity};
use crate::passes::assemble::{
    AssembleError, Assembled, ModelParts, Options, Passed, gradient, recent_caches,
};
use crate::passes::body::dtype;
use crate::passes::layout::{ParamTable, TooManyParams};
use crate::passes::revolve::replays;
use crate::passes::{Policy, run_graph_passes};
use crate::scheme::work::{EvolveWork, Routing};
use odec_graph::{Graph, OpKind, Pass, Site};
use odec_program::manifest::{Memory, StepCount};
use odec_program::optimizers::SLOTS;
use odec_program::{Bindings, DType, EntryId, Program};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// All numbers of a model. Operations are those of one sequence of `context` tokens, beside a source of `source` where there is one, or of one image of as many patches;
/// in training with its share of what is made of parameters once for a micro-batch, as the sum of a matrix and its low-rank change is.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub context: u64,
    /// 0: no source.
    pub source: u64,
    /// What stands at a position.
    pub unit: Unit,
    /// Sequences of a micro-batch, for which memory is planned.
    pub batch: u64,
    pub evolves: Vec<EvolveWork>,
    /// Of mixtures of experts: operations are then the most that there can be.
    pub capacities: Vec<Capacity>,
    /// Whether some equation is solved to a tolerance: all iterations that it may take are counted.
    pub solves: bool,
    /// Whether states decide how many steps are made, in their errors or by a halting probability: all that there can be are counted.
    pub decides: bool,
    pub parameters: Parameters,
    /// Of the forward pass of a training step, with what evolves report.
    pub forward: Operations,
    pub backward: Operations,
    /// Of reading a text of `context` tokens before the first token is generated, or of classifying an image.
    pub prefill: Operations,
    /// The three where routers use all numbers of steps alike; absent where no token chooses one.
    pub even: Option<Even>,
    /// The means over all draws, where numbers of steps are drawn in training. The others are of the most.
    pub drawn: Option<Drawn>,
    /// Of generating; absent where no next token is predicted.
    pub decode: Option<Decode>,
    /// Under each memory policy, the model's own among them.
    pub policies: Vec<UnderPolicy>,
    /// The model's own policy.
    pub own: Memory,
    /// Bytes of parameters and what the optimiser keeps.
    pub state_bytes: u64,
    /// Bytes of the keys and values of a whole context and of what runs carry over, as they are planned; 0 where none are kept.
    pub cache_bytes: u64,
}

/// Operations where routers use all numbers of steps alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Even {
    pub forward: Operations,
    pub backward: Operations,
    pub prefill: Operations,
}

/// Operations of training, in the mean over all draws of numbers of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub forward: Operations,
    pub backward: Operations,
}

/// Numbers that are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Of tokens and positions; with tied logits, those of the logits too.
    pub embedding: u64,
    /// All others.
    pub other: u64,
}

/// One more token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// The first token's.
    pub first: Operations,
    /// The last token's that the context holds.
    pub last: Operations,
    /// Bytes of keys and values that each token adds, those of windows aside.
    pub bytes_per_token: u64,
    /// Bytes of keys and values that windows keep, where these are fewer than those of a whole context.
    pub window_bytes: u64,
    /// Bytes that a run leaves to the next, however many tokens it read.
    pub carried_bytes: u64,
}

/// What the gradient takes under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderPolicy {
    pub memory: Memory,
    /// Bytes of the arena of the gradient; absent: too large to be planned.
    pub activations: Option<u64>,
    /// Steps that are computed again.
    pub replayed: u64,
    /// What is computed again, of a sequence.
    pub again: Operations,
    /// Forward and backward pass of a whole micro-batch, with what is computed again; where numbers of steps are drawn, in the mean over all draws.
    pub training: Operations,
}

impl Cost {
    pub fn evaluations(&self) -> u64 {
        self.evolves.iter().map(|e| e.evaluations).sum()
    }
    /// Evaluations of the longest chain in which each needs the one before it.
    pub fn depth(&self) -> u64 {
        self.evolves.iter().map(|e| e.depth).sum()
    }
    /// Whether operations are the most that there can be, because routers leave rows out, or states decide how many steps are made.
    pub fn at_most(&self) -> bool {
        let full = self.capacities.iter().any(|c| c.tokens < self.context);
        full || self.even.is_some() || self.decides
    }
    /// Whether tokens choose for themselves in steps that take their share of them while the model is trained: work is known of training alone.
    pub fn chooses_later(&self) -> bool {
        let some = |e: &EvolveWork| match &e.routed {
            Some(Routing::Steps(shares)) => shares.iter().any(|s| !s.is_all()),
            Some(Routing::Tokens) | None => false,
        };
        self.decode.is_some() && self.evolves.iter().any(some)
    }
    /// Floating-point operations per token of the context, or per patch.
    pub fn per_token(&self, of: Operations) -> f64 {
        of.flops() as f64 / self.context as f64
    }
    /// Floating-point operations per token, or per image.
    pub fn per_unit(&self, of: Operations) -> f64 {
        match self.unit {
            Unit::Patch | Unit::Pixel => of.flops() as f64,
            Unit::Token | Unit::Vector => self.per_token(of),
        }
    }
    /// Forward and backward pass of a micro-batch, with what the model's own policy computes again.
    pub fn training(&self) -> Operations {
        self.chosen().map(|p| p.training).unwrap_or_default()
    }
    /// The model's own policy.
    pub fn chosen(&self) -> Option<&UnderPolicy> {
        self.policies.iter().find(|p| p.memory == self.own)
    }
}

/// Most nodes of a gradient that is planned under policies other than the model's own.
const MAX_NODES: usize = 40_000;

/// Counts everything of a model and its program.
///
/// # Errors
/// As [`crate::passes::assemble()`]; a policy that is not the model's own may fail to be planned without being an error.
pub fn cost(built: &Built, program: &Program, options: Options) -> Result<Cost, AssembleError> {
    counted(built, program, &Passed::default(), options)
}

/// The same of a program that has just been assembled: its graphs are there.
///
/// # Errors
/// As [`cost`].
pub fn of_assembled(
    built: &Built,
    planned: &Assembled,
    options: Options,
) -> Result<Cost, AssembleError> {
    counted(built, &planned.manifest.program, &planned.graphs, options)
}

fn counted(
    built: &Built,
    program: &Program,
    passed: &Passed,
    options: Options,
) -> Result<Cost, AssembleError> {
    let train = built.train.as_ref();
    let own = train.map_or(Memory::default(), |t| t.memory);
    let policy = Policy {
        precision: train.map_or(Default::default(), |t| t.precision),
        memory: Memory::Store,
        weights: None,
        copied: false,
    };
    let sequence = Bindings::new(1, built.config.context).beside(built.config.source);
    let evolves = &built.summary.evolves;
    let draws = Draw::all(&built.depths);
    let count = |g: &Graph, part: Part, even: bool| {
        of_batch(built, g, (&[], even), &[part]).shared_by(built.batch)
    };
    let counted = |g: &Graph, part: Part| count(g, part, false);
    // Where tokens choose once the model is trained, any of them may take any step.
    let later = built.decode.is_some();
    let prefill = |g: &Graph, even: bool| {
        let wanted = |s: &Site| Part::of(s) == Part::Forward;
        let share = |s: &Site| match taking(evolves, s, sequence.seq, even) {
            _ if later && !even => RowShare::ALL,
            share => share,
        };
        match later {
            // What is made of parameters alone was made before.
            true => operations::count_varying(g, sequence, wanted, share),
            false => operations::count_shares(g, sequence, wanted, share),
        }
    };
    let mean =
        |part: Part, g: &Graph| of_batch(built, g, (&draws, false), &[part]).shared_by(built.batch);
    let made = |entry, graph: &Graph| match passed.get(entry, policy) {
        Some(graph) => Ok(Cow::Borrowed(graph)),
        None => run_graph_passes(graph, policy).map(Cow::Owned),
    };
    let stored = made(EntryId::Grad, &built.grad)?;
    let alone = made(EntryId::Forward, &built.forward)?;
    let decode = match &built.decode {
        None => None,
        Some(graph) => {
            let graph = made(EntryId::Decode, graph)?;
            Some(decode(&graph, sequence.seq, built.real()))
        }
    };
    let summary = &built.summary;
    let model = ModelParts::new(built, "");
    let (forward, backward) = (
        counted(&stored, Part::Forward),
        counted(&stored, Part::Backward),
    );
    let mut policies = Vec::new();
    for memory in to_compare(summary.steps, own, stored.len() as usize) {
        let there = program.entries.get(&EntryId::Grad);
        let other = match there.filter(|_| memory == own) {
            Some(_) => None,
            None => match gradient(&model, options, memory, passed.before_memory()) {
                Ok(made) => made,
                Err(AssembleError::Plan { .. }) => None,
                Err(e) => return Err(e),
            },
        };
        let activations = match &other {
            None => there.filter(|_| memory == own).map(|e| e.arena_bytes),
            Some((entry, _)) => Some(entry.arena_bytes),
        };
        let under = Policy { memory, ..policy };
        let graphs = other.as_ref().map_or(passed, |(_, graphs)| graphs);
        let graph = match (memory, graphs.get(EntryId::Grad, under)) {
            (Memory::Store, _) => Cow::Borrowed(&*stored),
            (_, Some(graph)) => Cow::Borrowed(graph),
            (_, None) => Cow::Owned(run_graph_passes(&built.grad, under)?),
        };
        let again = counted(&graph, Part::Again);
        policies.push(UnderPolicy {
            memory,
            activations,
            replayed: match memory {
                Memory::Store => 0,
                Memory::Revolve { slots } => replays(summary.steps, slots),
            },
            again,
            training: of_batch(built, &graph, (&draws, false), &Part::ALL),
        });
    }
    let chosen = evolves.iter().any(|e| e.routed == Some(Routing::Tokens));
    let even = chosen.then(|| Even {
        forward: count(&stored, Part::Forward, true),
        backward: count(&stored, Part::Backward, true),
        prefill: prefill(&alone, true),
    });
    Ok(Cost {
        context: built.config.context,
        source: built.config.source,
        unit: built.unit,
        batch: built.batch,
        evolves: summary.evolves.clone(),
        capacities: summary.capacities.clone(),
        solves: built.forward.nodes().any(|(_, n)| n.site.path == SOLVE),
        decides: decides(built),
        parameters: Parameters {
            embedding: summary.embedding,
            other: summary.parameters - summary.embedding,
        },
        forward,
        backward,
        prefill: prefill(&alone, false),
        even,
        drawn: (!draws.is_empty()).then(|| Drawn {
            forward: mean(Part::Forward, &stored),
            backward: mean(Part::Backward, &stored),
        }),
        decode,
        policies,
        own,
        state_bytes: state_bytes(built, program)?,
        cache_bytes: program.generation_bytes(),
    })
}

/// Operations of training, for which no memory is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Sequences of a micro-batch.
    pub batch: u64,
    /// Of the forward pass of a micro-batch of sequences of `context` tokens, or of images; where numbers of steps are drawn, in the mean over all draws.
    pub forward: Operations,
    /// Of its forward and backward pass, with what the model's own memory policy computes again, in the same mean.
    pub whole: Operations,
    /// Of a token that attends to a whole context; absent where no next token is predicted.
    pub decode: Option<Operations>,
    /// Whether all of this is the most that there can be: steps are decided while the model runs, or routers leave rows out.
    pub at_most: bool,
}

/// Counts the operations of training alone: as [`cost`] does, without planning.
///
/// # Errors
/// Only through a fault in a pass.
pub fn training(built: &Built) -> Result<Training, AssembleError> {
    let train = built.train.as_ref();
    let policy = Policy {
        precision: train.map_or(Default::default(), |t| t.precision),
        memory: train.map_or(Memory::default(), |t| t.memory),
        weights: None,
        copied: false,
    };
    let graph = run_graph_passes(&built.grad, policy)?;
    let draws = Draw::all(&built.depths);
    let counted = |parts: &[Part]| of_batch(built, &graph, (&draws, false), parts);
    let last = |graph: &Graph| -> Result<Operations, AssembleError> {
        let graph = run_graph_passes(graph, policy)?;
        Ok(decode(&graph, built.config.context, built.real()).last)
    };
    let summary = &built.summary;
    let routed = summary.evolves.iter().any(|e| e.routed.is_some());
    Ok(Training {
        batch: built.batch,
        forward: counted(&[Part::Forward]),
        whole: counted(&Part::ALL),
        decode: built.decode.as_ref().map(last).transpose()?,
        at_most: routed || decides(built) || !summary.capacities.is_empty(),
    })
}

/// Whether states decide how many steps are made.
fn decides(built: &Built) -> bool {
    let evolves = built.summary.evolves.iter().filter(|e| e.at_most);
    let drawn = built
        .depths
        .iter()
        .filter(|d| matches!(d, StepCount::Random { .. }));
    evolves.count() > drawn.count()
}

/// Operations of parts of a gradient, of a micro-batch, in the mean over all draws of numbers of steps; `even`: as [`taking`].
fn of_batch(
    built: &Built,
    g: &Graph,
    (draws, even): (&[Draw], bool),
    parts: &[Part],
) -> Operations {
    let at = Bindings::new(built.batch, built.config.context).beside(built.config.source);
    let wanted = |s: &Site| parts.contains(&Part::of(s));
    let share = |s: &Site| taking(&built.summary.evolves, s, at.seq, even);
    match draws {
        [] => operations::count_shares(g, at, wanted, share),
        draws => operations::count_mean(g, at, wanted, share, &drawn::computed(g, draws)),
    }
}

/// The tokens of a text that take a routed step. Where tokens choose, the most; if they use all numbers of steps `even`ly, of M tokens
/// M − k take the step after k others.
fn taking(evolves: &[EvolveWork], at: &Site, tokens: u64, even: bool) -> RowShare {
    let all = RowShare::ALL;
    let routed = evolves.iter().find(|e| e.label == at.evolve);
    let Some((e, step)) = routed.zip(at.step) else {
        return all;
    };
    match &e.routed {
        Some(Routing::Tokens) if even => RowShare {
            of: e.steps.saturating_sub(step.into()),
            from: e.steps,
        },
        Some(Routing::Steps(shares)) => shares.get(step as usize).map_or(all, |share| RowShare {
            of: share.rounded_up(tokens),
            from: tokens,
        }),
        Some(Routing::Tokens) | None => all,
    }
}

/// Parameters, rounded ones too where contractions read them so, what the optimiser keeps; with micro-batches, sums of gradients as well; running means of parameters.
///
/// # Errors
/// When there are more parameters than can be counted.
pub fn state_bytes(built: &Built, program: &Program) -> Result<u64, TooManyParams> {
    let train = built.train.as_ref();
    let areas = ParamTable::new(&built.params, program.real, train)?.areas;
    let keeps = |group: usize| train.map_or(SLOTS.len(), |t| t.optimizer_of(group).states().len());
    let kept = |n: usize| {
        let kept = areas.iter().filter(|a| keeps(a.group) > n);
        kept.map(|a| a.end).max().unwrap_or(0)
    };
    let kept: u64 = (0..SLOTS.len()).map(kept).sum();
    let sums = program.entries.contains_key(&EntryId::Accumulate);
    let averages = train.is_some_and(|t| t.ema.is_some());
    let alike = u64::from(sums) + u64::from(averages);
    Ok(program.param_bytes + program.rounded_bytes() + alike * program.trained_bytes + kept)
}

/// Parts of a gradient's graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Forward,
    Backward,
    Again,
}

impl Part {
    const ALL: [Part; 3] = [Part::Forward, Part::Backward, Part::Again];

    fn of(site: &Site) -> Part {
        match (site.replay, site.pass) {
            (0, Pass::Forward) => Part::Forward,
            (0, Pass::Backward) => Part::Backward,
            _ => Part::Again,
        }
    }
}

fn decode(graph: &Graph, context: u64, real: DType) -> Decode {
    let after = |past| {
        let at = Bindings::new(1, 1).after(past);
        operations::count_varying(graph, at, |_| true, |_| RowShare::ALL)
    };
    let recent = recent_caches(graph);
    let (mut bytes_per_token, mut window_bytes, mut carried_bytes) = (0, 0, 0);
    for (number, n) in graph.nodes() {
        let each = dtype(&n.types[0], real).bytes();
        match &n.op {
            OpKind::Cache(c) if recent.contains(&number) => {
                window_bytes += c.positions * c.width * each;
            }
            OpKind::Cache(c) => bytes_per_token += c.width * each,
            OpKind::Carry(c) => carried_bytes += c.rows * c.width * each,
            _ => {}
        }
    }
    Decode {
        first: after(0),
        last: after(context - 1),
        bytes_per_token,
        window_bytes,
        carried_bytes,
    }
}

/// The policies to show side by side: all steps kept, two states, the square root of the steps (where recomputation costs about one
/// forward pass more), and the model's own.
fn to_compare(steps: u64, own: Memory, nodes: usize) -> Vec<Memory> {
    let mut slots: BTreeSet<u64> = BTreeSet::new();
    if nodes <= MAX_NODES {
        let root = (1..).find(|r| r * r >= steps).unwrap_or(1);
        slots.extend([2, root].into_iter().filter(|s| {
            // Few slots for many steps are a program of millions of launches.
            *s > 1 && *s < steps && replays(steps, *s) <= 4 * steps
        }));
    }
    let mut list = vec![Memory::Store];
    if let Memory::Revolve { slots: own } = own {
        slots.insert(own);
    }
    // Fewer slots take less memory: falling, as the memory does.
    list.extend(
        slots
            .into_iter()
            .rev()
            .map(|slots| Memory::Revolve { slots }),
    );
    list
}
