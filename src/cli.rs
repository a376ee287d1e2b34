//! The command line's shape: commands, options and their help. What they do is in `commands/`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use odec_runtime::DeviceChoice;
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    name = "odec",
    version,
    disable_help_subcommand = true,
    about = "Numerical schemes in, trained Transformers out",
    long_about = "odec compiles a numerical scheme and a few learned fields (a .ode file) to CPU code and trains, evaluates and runs the model.",
    after_help = "Examples:\n  odec new mine\n  odec check schemes/models/iiet.ode\n  odec graph schemes/models/iiet.ode --format svg -o iiet.svg\n  odec train schemes/models/iiet.ode --out runs/iiet\n  odec generate runs/iiet --prompt 'ROMEO:'\n\nExit codes: 0 good, 1 the input is wrong, 2 usage, 3 odec's own fault, 129, 130 or 143 stopped by a signal.\nA reader of the output who goes away (`| head -1`) changes no exit code."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Write a commented file to start from
    #[command(after_help = "Example:\n  odec new mine && odec check mine.ode")]
    New(New),
    /// Parse and resolve files; print what each model is
    #[command(
        after_help = "Examples:\n  odec check schemes/models/iiet.ode schemes/runge_kutta/explicit/rk4.ode\n  odec check schemes/models/iiet.ode --paths"
    )]
    Check(Check),
    /// What the code of an error means, a file that gives it, and how to mend it
    #[command(
        after_help = "Examples:\n  odec explain not-a-field\n  odec explain\n  odec explain --markdown > docs/errors.md\n\nWithout CODE: all codes with their meanings."
    )]
    Explain(Explain),
    /// What is true of schemes: tableau, order and what limits it, error constants, stability
    #[command(
        after_help = "Examples:\n  odec analyze schemes/runge_kutta/explicit/rk4.ode\n  odec analyze schemes/models/macaron.ode strang\n  odec analyze schemes/runge_kutta/implicit/gauss4.ode --json\n  odec analyze schemes/runge_kutta/explicit/rk4.ode --latex\n  odec analyze schemes/models/rk4_layer.ode --lipschitz 20 --svg pictures\n\nWithout NAME: the file's own schemes, or those its model applies, and the model's flows as they are computed."
    )]
    Analyze(Analyze),
    /// Methods with their orders: claimed, proved, and measured of the machine code
    #[command(
        after_help = "Examples:\n  odec methods > docs/methods.md\n  odec methods rk4 dormand_prince gauss6 --svg work_precision.svg\n  odec methods --file mine.ode --svg mine.svg\n\nMeasured: the slope of log error against log h, in f64, on systems with known solutions. --svg draws the errors on a general system against step\nsizes and against field evaluations."
    )]
    Methods(Methods),
    /// The schemes of the library by family: order, size, embedded order, what is proved, citation
    #[command(
        after_help = "Examples:\n  odec schemes > docs/schemes.md\n  odec schemes runge_kutta/implicit\n  odec schemes splitting partitioned --json"
    )]
    Schemes(Schemes),
    /// Design a method: best in one respect among those of given stages and order, with exact coefficients, proved
    #[command(
        after_help = "Examples:\n  odec design --stages 4 --order 3 --maximize ssp -o best.ode --svg best.svg\n  odec design --stages 4 --order 4 --maximize imaginary_axis\n  odec design --stages 3 --order 3 --minimize error_bound\n  odec design --stages 4 --order 3 --maximize real_axis --zero b2\n  odec design --stages 5 --order 4 --low-storage 2n --maximize imaginary_axis\n  odec design --stages 2 --order 2 --splitting\n  odec design --stages 2 --order 2 --diagonal --l-stable\n\nThe search is deterministic. What is printed of the result is computed from its exact coefficients, and the file's claims are proved before\nit is written (docs/design.md)."
    )]
    Design(Design),
    /// Format files in place: indentation, columns, blanks; comments and meaning stay
    #[command(
        after_help = "Examples:\n  odec fmt mine.ode\n  odec fmt --check schemes/models/*.ode\n  odec fmt - < mine.ode\n\nPrints the files it changed, or with --check those it would change. Files with errors stay as they are."
    )]
    Fmt(Fmt),
    /// Draw or print the graph of a model
    #[command(
        after_help = "Example:\n  odec graph schemes/models/iiet.ode --format svg -o iiet.svg"
    )]
    Graph(Graph),
    /// Compile a model to an artifact, or show a stage of its compilation
    #[command(
        after_help = "Examples:\n  odec build schemes/models/iiet.ode -o iiet.odex --set model.width=256\n  odec build schemes/models/iiet.ode --emit stages"
    )]
    Build(Build),
    /// Train a model and save the run
    #[command(
        after_help = "Example:\n  odec train schemes/models/iiet.ode --out runs/iiet --time-limit 170"
    )]
    Train(Train),
    /// Loss and perplexity of a run on held-out text
    Eval(Eval),
    /// Generate text from a run
    #[command(
        after_help = "Example:\n  odec generate runs/iiet --prompt 'ROMEO:' --tokens 300 --temperature 0.8"
    )]
    Generate(Generate),
    /// Write a run's parameters, and nothing else, as safetensors
    #[command(after_help = "Example:\n  odec export runs/iiet -o iiet.safetensors")]
    Export(Export),
    /// Write the tokens of texts to a file that `data tokens(…)` and --data take
    #[command(
        after_help = "Example:\n  odec tokenize a.txt b.jsonl --tokenizer tokenizer.json -o train.bin\n\nTokens are unsigned and little-endian: 4 bytes each when the file is named ….u32.bin, else 2."
    )]
    Tokenize(Tokenize),
    /// Run one entry of a model on tensors from a safetensors file
    #[command(
        after_help = "Example:\n  odec exec iiet.odex --entry grad --inputs in.safetensors --outputs out.safetensors\n\nInputs: `tokens`, `targets` ([batch, sequence], i32 or i64) and every parameter by its path; for `grad`, where the model draws in training,\nalso `noise` ([1], the key of dropout's masks and of states that start at random) and `LABEL.steps` ([1], the number of steps of an evolve\nthat draws it; `steps` without a label). Outputs: `logits`, `loss`, `grad.<path>`."
    )]
    Exec(Exec),
    /// Time the training step on random tokens, or the reading of tokens one by one
    #[command(after_help = "Example:\n  odec bench schemes/models/rk4_layer.ode --steps 10 --json")]
    Bench(Bench),
    /// Time each kernel of the training step: its share, launches and rates
    #[command(
        after_help = "Example:\n  odec profile schemes/models/rk4_layer.ode --device cuda:0\n\nEach launch is measured by itself, so a step takes longer than `odec bench` says."
    )]
    Profile(Timed),
    /// Run every entry of a model on a device and on the reference device, and compare what they compute
    #[command(
        after_help = "Example:\n  odec compare schemes/models/prenorm.ode --set model.width=32 --device cuda:0\n\nEvery bit must be the same, but on tensor cores (precision bf16), where the distance in the Euclidean norm may be 2% of the size,\nor twice what moving every parameter by 1/512 of itself does. The reference device is slow: make the model small."
    )]
    Compare(Compare),
    /// Run launches of single kernels from files on a device, and compare with what they must give
    #[command(
        after_help = "Example:\n  odec replay launches --device cuda:0 --trust\n\nThe files are made by the tests of kernels for GPUs (docs/gpu.md). Every bit must be the reference device's, but on tensor cores, where\neach element has a bound."
    )]
    Replay(Replay),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  odec completions bash > ~/.local/share/bash-completion/completions/odec"
    )]
    Completions(Completions),
    /// Print this message, the help of a command, or the page of a layer or another part of a model or its training
    #[command(after_help = "Examples:
  odec help train
  odec help attention
  odec help sgd
  odec help layers > docs/layers.md
  odec help parts > docs/parts.md")]
    Help(Help),
    /// Code generation, run as a child process so that a crash in LLVM is contained
    #[command(name = "__codegen", hide = true)]
    Codegen,
}

/// A source file and overrides of its numbers.
#[derive(Args, Clone)]
pub struct Source {
    /// The .ode file
    pub file: PathBuf,
    /// Override a number by its path, e.g. model.width=256 or model.r=5 (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args)]
pub struct Help {
    /// A command; a layer, an optimiser or a schedule; or `layers`, `optimizers`: all of them
    pub what: Option<String>,
}

#[derive(Args)]
pub struct New {
    /// The file, and with it the model: `mine` or `mine.ode`
    pub file: PathBuf,
}

#[derive(Args)]
pub struct Check {
    /// The .ode files
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Override a number by its path (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// List what --set takes instead: every path with the type and the value it has
    #[arg(long)]
    pub paths: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Explain {
    /// What stands in brackets after `error` or `warning`
    pub code: Option<String>,
    /// Print all codes and examples as a page: docs/errors.md
    #[arg(long, conflicts_with = "code")]
    pub markdown: bool,
}

#[derive(Args)]
pub struct Analyze {
    #[command(flatten)]
    pub source: FileAndName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the tableau and the modified equation in LaTeX
    #[arg(long, conflicts_with = "json")]
    pub latex: bool,
    /// A bound on how fast fields change: |f(x) − f(y)| ≤ K |x − y|; says which steps are stable
    #[arg(long, value_name = "K")]
    pub lipschitz: Option<String>,
    /// Draw into this folder: NAME.tableau.svg, NAME.region.svg (stability), NAME.star.svg (order star), NAME.oscillation.svg (dissipation and dispersion), NAME.convergence.svg (errors of the machine code)
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
#[value(rename_all = "snake_case")]
pub enum Most {
    /// The coefficient of strong stability preservation
    Ssp,
    /// The stable part of the negative real axis
    RealAxis,
    /// The stable part of the imaginary axis
    ImaginaryAxis,
    /// The area of the region of stability
    Area,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
#[value(rename_all = "snake_case")]
pub enum Least {
    /// The norm of the next order's terms (Prince & Dormand)
    Error,
    /// Lotkin's bound of them, which Ralston's methods minimise
    ErrorBound,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum LowStorage {
    /// Two registers: q = Aᵢ q + h F(y), y = y + Bᵢ q (Williamson)
    #[value(name = "2n")]
    TwoRegisters,
}

/// The share of its best value that a design may lose where nothing is said.
pub const LOSS: f64 = 1e-4;

#[derive(Args)]
pub struct Design {
    /// Evaluations of a step
    #[arg(long, value_name = "N")]
    pub stages: usize,
    /// The order that the method has at least
    #[arg(long, value_name = "P")]
    pub order: usize,
    /// What is to be as large as it can be
    #[arg(long, value_enum, value_name = "GOAL", conflicts_with = "minimize")]
    pub maximize: Option<Most>,
    /// What is to be as small as it can be [default: error]
    #[arg(long, value_enum, value_name = "GOAL")]
    pub minimize: Option<Least>,
    /// A form that takes little memory
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["splitting", "diagonal", "zero"])]
    pub low_storage: Option<LowStorage>,
    /// A symmetric splitting of two fields: STAGES flows of the second one, the least norm of the next commutators
    #[arg(long, conflicts_with_all = ["maximize", "minimize", "zero", "diagonal"])]
    pub splitting: bool,
    /// A diagonally implicit method with one diagonal entry, A-stable, of the least error
    #[arg(long, conflicts_with_all = ["maximize", "minimize", "zero"])]
    pub diagonal: bool,
    /// The same, L-stable
    #[arg(long, requires = "diagonal")]
    pub l_stable: bool,
    /// A coefficient that is 0, such as a31 or b2 (repeatable)
    #[arg(long, value_name = "ENTRY")]
    pub zero: Vec<String>,
    /// The share of the best value that may be lost for simpler fractions
    #[arg(long, value_name = "SHARE", default_value_t = LOSS)]
    pub loss: f64,
    /// Write the scheme into this .ode file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// Draw the least error at each level of the goal into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Args)]
pub struct Schemes {
    /// Only these families, by their folder or a part of it, such as implicit
    #[arg(value_name = "FAMILY")]
    pub families: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Methods {
    /// Only these schemes
    pub names: Vec<String>,
    /// The schemes of this .ode file, instead of the library's
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Draw convergence and work against precision into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON, with the points of each curve
    #[arg(long)]
    pub json: bool,
}

/// A source file, one of its schemes, and overrides of its numbers.
#[derive(Args)]
pub struct FileAndName {
    /// The .ode file
    pub file: PathBuf,
    /// Only this scheme
    pub name: Option<String>,
    /// Override a number by its path (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args)]
pub struct Fmt {
    /// The .ode files; `-` formats standard input to standard output
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Change nothing; list the files that are not formatted and exit with 1 if there are any
    #[arg(long)]
    pub check: bool,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum GraphStage {
    /// The model's forward graph
    Model,
    /// Forward and backward
    Train,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum GraphFormat {
    Text,
    Dot,
    Svg,
}

#[derive(Args)]
pub struct Graph {
    #[command(flatten)]
    pub source: Source,
    #[arg(long, value_enum, default_value = "model")]
    pub stage: GraphStage,
    #[arg(long, value_enum, default_value = "text")]
    pub format: GraphFormat,
    /// Write here instead of standard output
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum Emit {
    /// Syntax tree
    Ast,
    /// Stage programs with exact coefficients
    Stages,
    /// Tensor graph of the training step
    Graph,
    /// Instructions over the planned arena
    Program,
    /// Kernels before lowering
    Mlir,
    /// Kernels as the driver of a GPU takes them (--target sm_80, sm_90a)
    Ptx,
    /// Parameters as JSON: path and shape
    Params,
}

#[derive(Args)]
pub struct Build {
    #[command(flatten)]
    pub source: Source,
    /// The artifact to write [default: FILE with .odex]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// cpu (this machine), cpu:amx, cpu:avx512, cpu:avx2, cpu:portable, or a GPU: sm_80, sm_90a
    #[arg(long, default_value = "cpu")]
    pub target: String,
    /// Print a stage of the compilation instead of building
    #[arg(long, value_enum, conflicts_with = "json")]
    pub emit: Option<Emit>,
    /// Print what was built as JSON
    #[arg(long)]
    pub json: bool,
}

/// A source file or a built artifact.
#[derive(Args)]
pub struct Model {
    /// A .ode file or a .odex artifact
    pub model: PathBuf,
    /// Override a number of a .ode file by its path (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Run the compiled code of an artifact that was not built here as it is, instead of compiling its kernels anew: it can do
    /// anything that you can do, so trust whoever made it
    #[arg(long)]
    pub trust: bool,
}

#[derive(Args)]
pub struct Train {
    /// A .ode file or a .odex artifact
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub model: Option<PathBuf>,
    /// Override a number of a .ode file by its path (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Folder of the run [default: runs/NAME]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Start from the parameters of a run, or in a safetensors file
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub init: Option<PathBuf>,
    /// How the tensors of --init are called: a JSON object from parameter paths to tensor names; a `*` in both
    /// stands for the same word
    #[arg(long, value_name = "JSON", requires = "init")]
    pub map: Option<PathBuf>,
    /// Go on with an earlier run
    #[arg(long, value_name = "RUN", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Train on this instead of the file's data: text, .jsonl, or tokens in a .bin (repeatable)
    #[arg(long)]
    pub data: Vec<PathBuf>,
    /// Steps in all, instead of the file's or the run's
    #[arg(long)]
    pub steps: Option<u64>,
    /// Stop after this many seconds; the schedule anneals to that moment
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<f64>,
    /// Seconds between checkpoints; 0 writes one after each step
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub checkpoint_every: f64,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Run the compiled code of an artifact that was not built here as it is, instead of compiling its kernels anew: it can do
    /// anything that you can do, so trust whoever made it
    #[arg(long)]
    pub trust: bool,
    /// Print the result as JSON, and no chart
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Eval {
    /// Folder of the run
    pub run: PathBuf,
    /// Evaluate on all of this instead of the held-out part: text, .jsonl, or tokens in a .bin (repeatable)
    #[arg(long)]
    pub data: Vec<PathBuf>,
    /// At most this many windows
    #[arg(long)]
    pub windows: Option<u64>,
    #[arg(long)]
    pub json: bool,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Run the compiled code of an artifact that was not built here as it is, instead of compiling its kernels anew: it can do
    /// anything that you can do, so trust whoever made it
    #[arg(long)]
    pub trust: bool,
}

#[derive(Args)]
pub struct Generate {
    /// Folder of the run
    pub run: PathBuf,
    #[arg(long)]
    pub prompt: String,
    /// The tokenizer.json of a model that was trained on token files
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Tokens to write; when the context is full, the later half of it is read anew
    #[arg(long, default_value_t = 300)]
    pub tokens: u64,
    /// 0 takes the likeliest token each time
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f64,
    /// Draw from the k likeliest tokens only
    #[arg(long)]
    pub top_k: Option<usize>,
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Run the compiled code of an artifact that was not built here as it is, instead of compiling its kernels anew: it can do
    /// anything that you can do, so trust whoever made it
    #[arg(long)]
    pub trust: bool,
}

#[derive(Args)]
pub struct Completions {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct Export {
    /// Folder of the run
    pub run: PathBuf,
    /// The file to write
    #[arg(short, long)]
    pub output: PathBuf,
}

#[derive(Args)]
pub struct Tokenize {
    /// The texts; .jsonl files hold one per line
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// A Hugging Face tokenizer.json, or `bytes`
    #[arg(long)]
    pub tokenizer: PathBuf,
    /// Where a line of JSON has its text
    #[arg(long, default_value = "text")]
    pub key: String,
    /// What follows the text of each line of JSON
    #[arg(long, default_value = "\n")]
    pub separator: String,
    /// The file to write
    #[arg(short, long)]
    pub output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum EntryName {
    Forward,
    Loss,
    Grad,
}

#[derive(Args)]
pub struct Exec {
    #[command(flatten)]
    pub model: Model,
    #[arg(long, value_enum)]
    pub entry: EntryName,
    #[arg(long)]
    pub inputs: PathBuf,
    #[arg(long)]
    pub outputs: PathBuf,
    /// Interpret the graph in f64 instead of running compiled code (.ode files only)
    #[arg(long)]
    pub interpret: bool,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
}

/// Training steps on random tokens, timed.
#[derive(Args)]
pub struct Timed {
    #[command(flatten)]
    pub model: Model,
    /// Timed steps
    #[arg(long, default_value_t = 10)]
    pub steps: u64,
    /// Untimed steps before
    #[arg(long, default_value_t = 2)]
    pub warmup: u64,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    pub timed: Timed,
    /// Time the reading of so many tokens one by one instead, as `generate` reads them
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
}

#[derive(Args)]
pub struct Compare {
    #[command(flatten)]
    pub model: Model,
    /// Training steps
    #[arg(long, default_value_t = 2)]
    pub steps: u64,
    /// Compare every launch, from the same operands, instead of what entries give
    #[arg(long, conflicts_with = "steps")]
    pub launches: bool,
    /// Where operands and results of the first launch that is wrong go: a new folder
    #[arg(long, value_name = "DIR", requires = "launches")]
    pub dump: Option<PathBuf>,
    /// cpu, or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Replay {
    /// A file of launches, or a folder of them
    pub launches: PathBuf,
    /// reference, cuda:dry, or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    pub device: DeviceChoice,
    /// Run the files' code on a card: whoever made them can do there what this user can
    #[arg(long)]
    pub trust: bool,
}
