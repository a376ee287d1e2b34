//! The artifact's table of contents: what was built, its parameters, how to train it.

mod data;
mod loss;
mod tables;

use crate::optimizers::{Group, LR, OptimizerKind, SLOTS, of_group};
use crate::schedules::ScheduleKind;
use crate::{DType, Dim, Program, Size, Slot, names};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use data::{
    Data, Flow, Form, Images, Labelled, MOST_REGISTERS, Pairs, Read, Sentences, Target, Times,
    Tokenizer, Vectors,
};
pub use loss::{Counted, Loss, Masked, Predicts};
pub use tables::{LongWaves, Places, Table, Turns, Waves};

/// Bumped whenever an older runtime could misread a newer artifact or the reverse.
pub const FORMAT: u32 = 25;

/// File names inside `name.odex/`.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The manifest's SHA-256, as `sha256sum -c` reads it.
pub const HASH_FILE: &str = "manifest.sha256";
/// Whose key signed that hash.
pub const SIGNATURE_FILE: &str = "manifest.hmac";
pub const CPU_OBJECT_FILE: &str = "kernels.so";
/// All kernels as PTX text, for the driver of the GPU to compile.
pub const GPU_OBJECT_FILE: &str = "kernels.ptx";

/// `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Version of odec that wrote it.
    pub odec: String,
    /// Name of the model.
    pub name: String,
    /// The `.ode` source, whole: with what follows, a run can always be rebuilt from its artifact.
    pub source: String,
    /// What `--set` replaced in it, as it was given: `model.width=256`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// The files that it imports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<Import>,
    pub model: Model,
    pub params: Vec<Param>,
    pub constants: Vec<Constant>,
    /// Absent when the file has no train block.
    pub train: Option<Train>,
    pub program: Program,
    /// Compiled code for this program; empty when built without code generation.
    pub objects: Vec<Object>,
    /// What was claimed and what was proved, as printed by `odec check`.
    pub claims: Vec<Claim>,
    /// Evolves whose number of steps is decided while they run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depths: Vec<StepCount>,
}

/// A file that a source imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// From the folder of the source.
    pub path: String,
    pub text: String,
}

/// An evolve whose number of steps is decided while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepCount {
    /// By the errors of steps; entries tell in their outputs how far they came ([`depth`]).
    Adaptive {
        /// Empty where there is one evolve without a label.
        evolve: String,
        /// Attempts that are planned for.
        max: u64,
        /// The time to reach.
        until: f64,
    },
    /// By a draw for each step of training, an input of `grad` ([`depth::input`]): a Poisson number whose logarithmic rate is
    /// normal with mean log(mean) − 1/8 and deviation 1/2, plus 1, but at most `max` (Geiping et al. 2025, arXiv:2502.05171, 3.3).
    Random {
        evolve: String,
        /// Steps of evaluation and generation.
        mean: u64,
        max: u64,
    },
    /// By each token for itself, after each step (`halting`) or before the first (`routed`); entries tell in an output the mean number of steps made ([`depth::MADE`]).
    Halting { evolve: String, max: u64 },
}

impl StepCount {
    /// The input that says the number of steps, where it is one.
    pub fn input(&self) -> Option<String> {
        match self {
            StepCount::Adaptive { .. } | StepCount::Halting { .. } => None,
            StepCount::Random { evolve, .. } => Some(depth::input(evolve)),
        }
    }

    /// The most steps, or attempts.
    pub fn max(&self) -> u64 {
        match self {
            StepCount::Adaptive { max, .. }
            | StepCount::Random { max, .. }
            | StepCount::Halting { max, .. } => *max,
        }
    }
}

/// Names of inputs and outputs of evolves whose number of steps is decided while they run.
pub mod depth {
    /// Time that was left after the last attempt: above 0, the end was not reached.
    pub const REST: &str = "rest";
    /// Steps that were tried, and those that were accepted.
    pub const ATTEMPTS: &str = "attempts";
    pub const ACCEPTED: &str = "accepted";
    /// Steps that a token makes, the mean over all.
    pub const MADE: &str = "made";

    /// An output of an evolve: `core.steps.rest`.
    pub fn output(evolve: &str, what: &str) -> String {
        format!("{}.{what}", input(evolve))
    }

    /// The number of steps that is drawn for an evolve: `core.steps`.
    pub fn input(evolve: &str) -> String {
        match evolve {
            "" => "steps".into(),
            label => format!("{label}.steps"),
        }
    }
}

/// What a caller must know to feed the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Kinds that logits tell apart: of tokens, whose ids are `0..vocab`, or classes.
    pub vocab: u64,
    /// Kinds of tokens that the model reads, where its logits tell classes apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Longest sequence.
    pub context: u64,
    /// Longest source, where there are two sequences; 0 where there is none.
    #[serde(default, skip_serializing_if = "crate::size::nothing")]
    pub source: u64,
    pub width: u64,
    /// The same of what outputs with labels tell apart, or how many numbers they give, by these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, u64>,
}

impl Model {
    /// What the whole numbers of an input are below: of targets the kinds that their output tells apart.
    pub fn kinds(&self, input: &str) -> u64 {
        if input == names::TOKENS {
            return self.tokens.unwrap_or(self.vocab);
        }
        let of = |(label, kinds): (&String, &u64)| {
            (names::of_output(label, names::TARGETS) == input).then_some(*kinds)
        };
        self.also.iter().find_map(of).unwrap_or(self.vocab)
    }
}

/// Elements of a row of the optimiser's view of all parameters.
pub const ROW: u64 = 1024;

/// A named parameter: of the program's real type, row-major, at `offset` bytes of `Slot::Params` (64-byte aligned; gaps are
/// zero and stay zero). Those that are trained come first, before [`Program::trained_bytes`]: group after group, those that the optimiser
/// keeps more of first; of each, those that decay (matrices, of rank ≥ 2) in path order, then the others. Each such area fills whole rows of
/// [`ROW`] elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// `[evolve.]step.3.att.q.weight`; unique.
    pub path: String,
    pub shape: Vec<u64>,
    pub offset: u64,
    pub init: Init,
    /// Whether weight decay applies.
    pub decay: bool,
}

impl Param {
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// How a parameter starts. Random ones are drawn by a counter-based generator keyed by
/// (seed, path, element), so equal paths start alike in different schemes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    Zeros,
    Ones,
    Constant(f64),
    Normal { std: f64 },
}

/// A table in `Slot::Consts`, computed by the runtime in f64 and rounded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    pub offset: u64,
    pub table: Table,
}

fn is_false(x: &bool) -> bool {
    !x
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One object file of the artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub file: String,
    /// `cpu:avx512`, `cpu:avx2`, `cpu:portable`, `sm_80`, `sm_90a`.
    pub target: String,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub scheme: String,
    /// `order 1`.
    pub claim: String,
    pub status: ClaimStatus,
    /// What else was found, or why nothing was: `order 1 with Euler sub-steps`. Empty when there is nothing to add.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStatus {
    Proved,
    ClaimedNotProved,
}

/// The train block, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    pub data: Data,
    pub optimizer: OptimizerKind,
    /// Parameters that follow something else; the last group that names a parameter has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// How much of the running mean of each parameter a step keeps ([`ema_decay`]); absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema: Option<f64>,
    pub schedule: ScheduleKind,
    /// Evaluations on held-out data, evenly over the run; absent: as whoever trains likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<u64>,
    /// The run ends after so many of them that do not lower the lowest loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Sequences per step,
    pub batch: u64,
    /// or as many, up to that, as have so many tokens together with what fills them up to the longest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// taken in so many micro-batches of equal size.
    pub accumulate: u64,
    pub steps: u64,
    /// Parameters that stay beside the last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// Largest global gradient norm; absent: no clipping.
    pub clip: Option<f64>,
    pub seed: u64,
    pub memory: Memory,
    pub precision: Precision,
    #[serde(default)]
    pub loss: Loss,
    /// The same of outputs with labels, by these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, Loss>,
    /// Parameters to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Pretrained>,
    #[serde(default, skip_serializing_if = "Tune::is_all")]
    pub tune: Tune,
    /// The most that the spectral norm of matrices with a vector ([`added::SPECTRAL`]) may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spectral: Option<f64>,
}

/// The parameters of how many steps are kept, and how far these are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// The last so many
    pub last: u64,
    /// of all steps whose numbers this divides.
    pub every: u64,
}

impl Train {
    /// Tokens of a micro-batch, where they say how many sequences it has.
    pub fn tokens_at_once(&self) -> Option<u64> {
        self.tokens.map(|n| n / self.accumulate.max(1))
    }

    /// All losses, that of the output without a label first.
    pub fn losses(&self) -> impl Iterator<Item = Loss> {
        [self.loss].into_iter().chain(self.also.values().copied())
    }

    /// What values of its loss are called, unless they are nats for each token, image or sequence: then a perplexity has a meaning.
    pub fn measured(&self) -> Option<&'static str> {
        match self.loss.predicts() {
            _ if self.also.values().any(|l| l.predicts() != Predicts::Tokens) => Some("loss"),
            Predicts::Tokens | Predicts::Class => None,
            Predicts::Numbers => Some(self.loss.measured()),
        }
    }

    /// The group of a parameter, counted from 1; 0 of those that are in none.
    pub fn group_of(&self, path: &str, shape: &[u64]) -> usize {
        group_of(&self.groups, path, shape)
    }

    /// What the parameters of a group follow.
    pub fn optimizer_of(&self, group: usize) -> &OptimizerKind {
        let of = group.checked_sub(1).and_then(|n| self.groups.get(n));
        of.map_or(&self.optimizer, |g| &g.optimizer)
    }

    /// What the updates of step `t`, counted from 1, read, where the schedule multiplies rates by `factor`.
    pub fn scalars(&self, t: u64, factor: f64) -> Vec<(String, f64)> {
        let groups = (0..=self.groups.len()).flat_map(|n| {
            let o = self.optimizer_of(n);
            let rate = (LR, o.rate() * factor);
            let all = [rate].into_iter().chain(o.scalars(t));
            all.map(move |(name, x)| (of_group(name, n), x))
        });
        let ema = self.ema.map(|most| (named::EMA.into(), ema_decay(most, t)));
        groups.chain(ema).collect()
    }
}

/// What step `t`, counted from 1, keeps of the running mean of a parameter: `min(most, (1 + t)/(10 + t))`, so that the first parameters are
/// soon forgotten (`tf.train.ExponentialMovingAverage` with `num_updates`).
pub fn ema_decay(most: f64, t: u64) -> f64 {
    let t = t as f64;
    most.min((1.0 + t) / (10.0 + t))
}

/// The last of these groups that has a parameter, counted from 1; 0 where none has it.
pub fn group_of(groups: &[Group], path: &str, shape: &[u64]) -> usize {
    let last = groups.iter().rposition(|g| g.has(path, shape));
    last.map_or(0, |n| n + 1)
}

/// Which parameters are trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tune {
    #[default]
    All,
    /// Factors of so many columns that are added to matrices (Hu et al. 2021, arXiv:2106.09685), and nothing else.
    Lora { rank: u64 },
}

impl Tune {
    fn is_all(&self) -> bool {
        *self == Tune::All
    }

    /// Whether a parameter is trained.
    pub fn trains(self, path: &str) -> bool {
        match self {
            Tune::All => added::beside(path).is_none(),
            Tune::Lora { .. } => added::factor_of(path).is_some(),
        }
    }
}

/// Parameters that training adds to a model's own: ends of their paths, behind that of the matrix they belong to.
pub mod added {
    /// `[rank, in]`: A of `W + B A`.
    pub const LORA_A: &str = ".lora.a";
    /// `[out, rank]`: B.
    pub const LORA_B: &str = ".lora.b";
    /// `[out]`: the vector of power iteration (Miyato et al. 2018, arXiv:1802.05957), which no gradient trains.
    pub const SPECTRAL: &str = ".spectral.u";

    /// Running means of squares (Shazeer & Stern 2018): of rows, and of columns.
    pub const ADAFACTOR_ROWS: &str = ".adafactor.rows";
    pub const ADAFACTOR_COLS: &str = ".adafactor.cols";

    /// The path of the parameter beside which a step keeps this.
    pub fn beside(path: &str) -> Option<&str> {
        let ends = [SPECTRAL, ADAFACTOR_ROWS, ADAFACTOR_COLS];
        ends.iter().find_map(|end| path.strip_suffix(end))
    }

    /// The path of the matrix that a factor belongs to.
    pub fn factor_of(path: &str) -> Option<&str> {
        let ends = [LORA_A, LORA_B];
        ends.iter().find_map(|end| path.strip_suffix(end))
    }

    /// The path of the matrix that anything added belongs to.
    pub fn matrix(path: &str) -> Option<&str> {
        factor_of(path).or_else(|| beside(path))
    }

    /// The part that a weight belongs to, without its number: `depthwise` of `depthwise.weight` and of `att.depthwise.2.weight`.
    fn part(path: &str) -> Option<&str> {
        let part = path.strip_suffix(".weight")?;
        let number = |text: &&str| text.bytes().all(|b| b.is_ascii_digit());
        part.rsplit('.').find(|text| !number(text))
    }

    /// Whether a parameter is the weight of a depthwise convolution, `[width, 1, kernel]`. Such a weight has no vector, as it is bounded row
    /// by row.
    pub fn is_depthwise(path: &str, shape: &[u64]) -> bool {
        part(path) == Some("depthwise") && matches!(shape, [_, 1, _])
    }

    /// The matrices that a parameter is: how many, and their rows and columns. Those of experts, `[experts, rows, columns]`, are several; the
    /// weight of a convolution, `[out, in, kernel]`, is one whose rows make one column of the result each. `None`: it is no matrix.
    pub fn matrices(path: &str, shape: &[u64]) -> Option<[u64; 3]> {
        let product = |of: &[u64]| of.iter().fold(1, |n: u64, d| n.saturating_mul(*d));
        match shape {
            [] | [_] => None,
            [rows, row @ ..] if convolves(path) => Some([1, *rows, product(row)]),
            [above @ .., rows, cols] => Some([product(above), *rows, *cols]),
        }
    }

    /// How many rows of its input a weight multiplies for one row of its result.
    pub fn kernel(path: &str, shape: &[u64]) -> u64 {
        match shape {
            [_, _, kernel] if convolves(path) => *kernel,
            _ => 1,
        }
    }

    fn convolves(path: &str) -> bool {
        matches!(part(path), Some("conv" | "depthwise"))
    }

    /// Whether a path is that of something added.
    pub fn is(path: &str) -> bool {
        matrix(path).is_some()
    }
}

/// Trained parameters. Paths are relative to the working directory: those of the source, seen from where it was built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pretrained {
    /// The folder of a run, or a safetensors file.
    pub path: String,
    /// A JSON object from parameter paths to tensor names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
}

/// The real type, and what contractions and attention read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    #[default]
    F32,
    /// Numbers rounded to [`crate::bf16`]; sums, states and parameters are f32.
    Bf16,
    /// Everything is f64.
    F64,
}

impl Precision {
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::F64];

    /// The type of sums, states, parameters and results: [`Program::real`].
    pub const fn real(self) -> DType {
        match self {
            Precision::F32 | Precision::Bf16 => DType::F32,
            Precision::F64 => DType::F64,
        }
    }

    /// As it is written in a train block.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F64 => "f64",
        }
    }
}

/// What the gradient keeps of the forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// What it needs of every step.
    #[default]
    Store,
    /// The states of so many steps; the others are computed again.
    Revolve { slots: u64 },
}

/// As a train block says it.
impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Memory::Store => f.write_str("store"),
            Memory::Revolve { slots } => write!(f, "revolve(slots: {slots})"),
        }
    }
}

/// The scalars that the entries `update` and `accumulate` read by name ([`crate::Coeff::Named`]); the runtime passes them each step.
pub mod named {
    pub use crate::optimizers::{BIAS1, BIAS2, LR};
    /// For `accumulate`: 0 at the first micro-batch of a step, then 1.
    pub const KEEP: &str = "keep";
    /// For `update`: [`super::ema_decay`].
    pub const EMA: &str = "ema";
    /// The micro-batch's share of the step's target tokens.
    pub const SHARE: &str = "share";
}

impl Manifest {
    /// The parameters of which there are gradients and moments.
    pub fn trained(&self) -> impl Iterator<Item = &Param> {
        let end = self.program.trained_bytes;
        self.params.iter().filter(move |p| p.offset < end)
    }
    /// Bytes of a memory that holds a number for each one that is trained: gradients, their sums, and what the optimiser keeps. Without
    /// a train block there is room for what any of them does.
    pub fn trained_slot_bytes(&self, slot: Slot) -> u64 {
        let all = self.program.trained_bytes;
        if slot == Slot::Average {
            let kept = self.train.as_ref().is_some_and(|t| t.ema.is_some());
            return if kept { all } else { 0 };
        }
        let Some((n, train)) = (SLOTS.iter().position(|s| *s == slot)).zip(self.train.as_ref())
        else {
            return all;
        };
        let keeps = |group: usize| train.optimizer_of(group).states().len() > n;
        if (0..=train.groups.len()).all(keeps) {
            return all;
        }
        // Those that more is kept of lie before all others, in whole rows.
        let kept = self
            .trained()
            .filter(|p| keeps(train.group_of(&p.path, &p.shape)));
        let end = kept.map(|p| {
            p.offset
                .saturating_add(p.elements().saturating_mul(self.program.real.bytes()))
        });
        let rows = |end: u64| end.checked_next_multiple_of(ROW * self.program.real.bytes());
        end.max().and_then(rows).map_or(0, |n| n.min(all))
    }
    /// Elements of all parameters, without alignment gaps and what a step keeps beside them.
    pub fn param_count(&self) -> u64 {
        let own = self
            .params
            .iter()
            .filter(|p| added::beside(&p.path).is_none());
        own.map(Param::elements).sum()
    }
    /// Elements of those that are trained.
    pub fn trained_count(&self) -> u64 {
        self.trained().map(Param::elements).sum()
    }
    /// Shape of a symbolic tensor as a size.
    pub fn size(shape: &[Dim]) -> Option<Size> {
        Size::of(shape)
    }
}
