//! The command line: commands, options and their help. `commands/` implements them.

mod measure;
mod trained;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
pub use measure::{Bench, By, Compare, Profile, Replay, Timed};
use odec_compiler::simulate::clusters::WITHIN;
use odec_explore::work::{Engine, RETRIES};
use odec_program::Target;
use odec_runtime::DeviceChoice;
use std::error::Error;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
pub use trained::{Average, Classify, Eval, Generate, Translate};

#[derive(Parser)]
#[command(
    name = "odec",
    version,
    disable_help_subcommand = true,
    about = "Numerical schemes in, trained Transformers out",
    long_about = "odec compiles a numerical scheme and a few learned fields (a .ode file) to CPU code and trains, evaluates and runs the model.",
    after_help = "Examples:\n  odec new mine\n  odec check schemes/models/iiet.ode\n  odec graph schemes/models/iiet.ode -o iiet.svg\n  odec train schemes/models/iiet.ode --out runs/iiet\n  odec generate runs/iiet --prompt 'ROMEO:'\n\nExit codes: 0 good, 1 the input is wrong, 2 usage, 3 odec's own fault, 129, 130 or 143 stopped by a signal.\nA closed pipe (`| head -1`) changes no exit code."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line that the program was given. A number may begin with a minus, so `--steps -1` is answered with what is expected in its place.
    pub fn given() -> Cli {
        let numbers = |a: Arg| match a.get_action().takes_values() {
            true => a.allow_negative_numbers(true),
            false => a,
        };
        let all = Cli::command().mut_subcommands(|command| command.mut_args(numbers));
        let matches = all.try_get_matches().map_err(without_hidden);
        let matches = matches.map_err(of_whole_number);
        let given = matches.and_then(|matches| Cli::from_arg_matches(&matches));
        given.unwrap_or_else(|e| e.exit())
    }
}

/// Ends a command whose arguments do not go together, as is known only when a run is read.
pub fn misused(command: &str, message: String) -> ! {
    let mut all = Cli::command();
    all.build();
    let mut one = all.find_subcommand(command).cloned().unwrap_or(all);
    one.error(ErrorKind::MissingRequiredArgument, message)
        .exit()
}

/// Commands that odec gives itself are not proposed to users.
fn without_hidden(mut e: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    if let Some(ContextValue::Strings(near)) = e.get(kind) {
        let shown = near.iter().filter(|name| !name.starts_with("__"));
        let shown: Vec<String> = shown.cloned().collect();
        match shown.is_empty() {
            true => e.remove(kind),
            false => e.insert(kind, ContextValue::Strings(shown)),
        };
    }
    e
}

/// Says of a whole number what is expected: clap shows what Rust's parser says, "invalid digit found in string".
fn of_whole_number(e: clap::Error) -> clap::Error {
    let source = e.source().and_then(|e| e.downcast_ref::<ParseIntError>());
    let expected = match source.map(ParseIntError::kind) {
        None => return e,
        Some(IntErrorKind::PosOverflow) => "a smaller whole number is expected",
        Some(_) => "a whole number, 0 or above, is expected",
    };
    let said = |kind| e.get(kind).map(ContextValue::to_string).unwrap_or_default();
    let (value, option) = (
        said(ContextKind::InvalidValue),
        said(ContextKind::InvalidArg),
    );
    let message = format!(
        "invalid value '{value}' for '{option}': {expected}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(e.kind(), message)
}

fn at_least_0(text: &str) -> Result<f64, String> {
    number(text, "a number of at least 0 is expected", |x| x >= 0.0)
}

fn above_0(text: &str) -> Result<f64, String> {
    number(text, "a number above 0 is expected", |x| x > 0.0)
}

fn number(text: &str, expected: &str, is: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && is(*x));
    number.ok_or_else(|| expected.to_string())
}

/// The name of a target, or of this machine.
fn target(name: &str) -> Result<String, String> {
    if name != "cpu" {
        name.parse::<Target>().map_err(|e| e.to_string())?;
    }
    Ok(name.to_string())
}

#[derive(Subcommand)]
pub enum Command {
    /// Write a commented file to start from
    #[command(after_help = "Example:\n  odec new mine && odec check mine.ode")]
    New(New),
    /// Check files for errors; describe each model
    #[command(
        after_help = "Examples:\n  odec check schemes/models/iiet.ode schemes/runge_kutta/explicit/rk4.ode\n  odec check schemes/models/iiet.ode --paths"
    )]
    Check(Check),
    /// Explain an error code: its meaning, an example, and how to fix it
    #[command(
        after_help = "Examples:\n  odec explain not-a-field\n  odec explain\n  odec explain --markdown > docs/errors.md\n\nWithout CODE: all codes with their meanings."
    )]
    Explain(Explain),
    /// Analyze schemes: tableau, order and what limits it, error constants, stability
    #[command(
        after_help = "Examples:\n  odec analyze schemes/runge_kutta/explicit/rk4.ode\n  odec analyze schemes/models/macaron.ode strang\n  odec analyze schemes/runge_kutta/implicit/gauss4.ode --json\n  odec analyze schemes/runge_kutta/explicit/rk4.ode --latex\n  odec analyze schemes/models/rk4_layer.ode --lipschitz 20 --svg pictures\n\nWithout NAME: the file's own schemes, or those its model applies, and the model's flows as they are computed."
    )]
    Analyze(Analyze),
    /// List methods with their orders: claimed, proved, and measured on compiled code
    #[command(
        after_help = "Examples:\n  odec methods > docs/methods.md\n  odec methods rk4 dormand_prince gauss6 --svg work_precision.svg\n  odec methods --file mine.ode --svg mine.svg\n\nMeasured: the slope of log error against log h, in f64, on systems with known solutions. --svg draws the errors on a general system against step\nsizes and against field evaluations."
    )]
    Methods(Methods),
    /// List the schemes of the library by family: order, size, embedded order, proved properties, citation
    #[command(
        after_help = "Examples:\n  odec schemes > docs/schemes.md\n  odec schemes runge_kutta/implicit\n  odec schemes rk4 rk38\n  odec schemes splitting partitioned --json"
    )]
    Schemes(Schemes),
    /// Design a method of given stages and order that is best by one criterion, with exact coefficients and proved claims
    #[command(
        after_help = "Examples:\n  odec design --stages 4 --order 3 --maximize ssp -o best.ode --svg best.svg\n  odec design --stages 4 --order 4 --maximize imaginary_axis\n  odec design --stages 3 --order 3 --minimize error_bound\n  odec design --stages 4 --order 3 --maximize real_axis --zero b2\n  odec design --stages 5 --order 4 --low-storage 2n --maximize imaginary_axis\n  odec design --stages 2 --order 2 --splitting\n  odec design --stages 2 --order 2 --diagonal --l-stable\n\nThe search is deterministic. Printed properties are computed from the exact coefficients, and the file's claims are proved before\nit is written (docs/design.md)."
    )]
    Design(Design),
    /// Format files in place; comments and meaning stay
    #[command(
        after_help = "Examples:\n  odec fmt mine.ode\n  odec fmt --check schemes/models/*.ode\n  odec fmt - < mine.ode\n\nPrints the files it changed, or with --check those it would change. Files with syntax errors stay as they are."
    )]
    Fmt(Fmt),
    /// Draw or print the graph of a model
    #[command(
        after_help = "Examples:\n  odec graph schemes/models/iiet.ode -o iiet.svg\n  odec graph schemes/models/iiet.ode --stage train --format dot"
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
    /// Explore: train the models of an explore block at equal cost, and rank them with evidence
    #[command(
        after_help = "Examples:\n  odec explore mine.ode --plan\n  odec explore mine.ode --out explorations/mine --time-limit 7200\n\nTrials that the folder has results of are not run again; what was killed goes on (docs/guide/explore.md)."
    )]
    Explore(Explore),
    /// Evaluate a run: loss and perplexity on held-out text
    Eval(Eval),
    /// Generate text from a run, or draw images or vectors
    #[command(
        after_help = "Examples:\n  odec generate runs/iiet --prompt 'ROMEO:' --tokens 300 --temperature 0.8\n  odec generate runs/digits --scheme dormand_prince --steps 8 -o samples.png\n  odec generate runs/moons --scheme heun --steps 16 --count 500 -o samples.svg\n  odec generate runs/digits --errors euler,heun,rk4,dormand_prince -o errors.svg"
    )]
    Generate(Generate),
    /// Classify texts or images with a run that was trained on such
    #[command(
        after_help = "Examples:\n  odec classify runs/text_classifier 'Skråstill det valgte objektet'\n  odec classify runs/vit seven.png nine.png --top 2"
    )]
    Classify(Classify),
    /// Translate texts with a run that was trained on pairs
    #[command(
        after_help = "Examples:\n  odec translate runs/messages 'Open File'\n  odec translate runs/messages --held-out --pairs 500 --json > held_out.json"
    )]
    Translate(Translate),
    /// Take the mean of checkpoints: a run to evaluate, translate with, or start from
    #[command(
        after_help = "Examples:\n  odec average runs/messages --last 5 --out runs/mean\n  odec average runs/a runs/b runs/c --out runs/mean\n\nOf one run, the mean is over parameters that its train block keeps (`keep checkpoints(last: 5, every: 500)`); of several runs of one model,\nover their last checkpoints. The optimiser's state has no mean, so such a run is not resumed; `--init` starts another one from it."
    )]
    Average(Average),
    /// Export a run's parameters as safetensors, or the metrics of runs for other tools
    #[command(
        after_help = "Examples:\n  odec export runs/iiet -o iiet.safetensors\n  odec export runs --metrics tensorboard -o events && tensorboard --logdir events\n  odec export runs/lie runs/strang --metrics csv -o metrics.csv\n\nWith --metrics, runs are also sought below the folders."
    )]
    Export(Export),
    /// List runs: scheme, steps, losses, time, and the curve of the loss
    #[command(
        after_help = "Examples:\n  odec runs\n  odec runs explorations/splittings --json\n\nRuns are sought in the folders and below. Of a folder that is no run, or a damaged one, the reason is printed."
    )]
    Runs(Runs),
    /// Say in what two runs differ: source, settings, artifact, data, results at equal steps
    #[command(after_help = "Example:\n  odec diff runs/lie runs/strang")]
    Diff(Diff),
    /// Write a page about runs: their table, curves, costs, schemes, what is proved of them
    #[command(
        after_help = "Examples:\n  odec report runs -o report.html\n  odec report runs/lie runs/strang -o splittings.html\n\nThe page is one HTML file that needs no network. Equal folders give equal bytes."
    )]
    Report(Report),
    /// Tokenize texts into a file for `data tokens(…)` and --data
    #[command(
        after_help = "Example:\n  odec tokenize a.txt b.jsonl --tokenizer tokenizer.json -o train.bin\n\nTokens are unsigned and little-endian: 4 bytes each when the file is named ….u32.bin, else 2."
    )]
    Tokenize(Tokenize),
    /// Move points by the fields of a model, without training: their paths, and the clusters they form
    #[command(
        after_help = "Examples:\n  odec simulate schemes/models/particles.ode --svg pictures\n  odec simulate schemes/models/particles.ode --set layer.attraction.c0=0 --set layer.attraction.c4=1/2\n  odec simulate mine.ode --points start.npy -o paths.safetensors --json\n\nThe model is computed in f64. Without --points they are drawn by --seed, as the parameters are that no file gives (docs/guide/particles.md)."
    )]
    Simulate(Simulate),
    /// Run one entry of a model on tensors from a safetensors file
    #[command(
        after_help = "Example:\n  odec exec iiet.odex --entry grad --inputs in.safetensors --outputs out.safetensors\n\nInputs: `tokens`, `targets` ([batch, sequence], i32 or i64) and every parameter by its path; of images `patches` ([batch, patches, numbers], f32 or f64)\nand `targets` ([batch]); for `grad`, where the model draws in training,\nalso `noise` ([1], the key of dropout's masks and of states that start at random) and `LABEL.steps` ([1], the number of steps of an evolve\nthat draws it; `steps` without a label). Outputs: `logits`, `loss`, `grad.<path>`."
    )]
    Exec(Exec),
    /// Time the training step on random tokens, or token-by-token inference
    #[command(after_help = "Example:\n  odec bench schemes/models/rk4_layer.ode --steps 10 --json")]
    Bench(Bench),
    /// Time each launch of the training step: by field, by kernel, as a timeline
    #[command(
        after_help = "Examples:\n  odec profile schemes/models/rk4_layer.ode\n  odec profile schemes/models/rk4_layer.ode --svg step.svg\n  odec profile schemes/models/rk4_layer.ode --trace step.json\n  odec profile schemes/models/rk4_layer.ode --by kernel --device cuda:0\n\nEach launch is measured by itself, so a step takes longer than `odec bench` says. --trace is for Perfetto (https://ui.perfetto.dev); what the roof\nis, and how to read the rest, is in docs/guide/profile.md."
    )]
    Profile(Profile),
    /// Run every entry of a model on a device and on the reference device, and compare the results
    #[command(
        after_help = "Example:\n  odec compare schemes/models/prenorm.ode --set model.width=32 --device cuda:0\n\nEvery bit must be the same, except on tensor cores (precision bf16): there the distance in the Euclidean norm may be 2% of the size,\nor twice the effect of changing every parameter by 1/512 of itself. The reference device is slow: make the model small."
    )]
    Compare(Compare),
    /// Run launches of single kernels from files on a device, and compare with the expected results
    #[command(
        after_help = "Example:\n  odec replay launches --device cuda:0 --trust\n\nThe files are made by the tests of kernels for GPUs (docs/gpu.md). Every bit must be the reference device's, except on tensor cores, where\neach element has an error bound."
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
  odec help z_loss
  odec help memory --file mine.ode
  odec help layers > docs/layers.md
  odec help parts > docs/parts.md")]
    Help(Help),
    /// Code generation, run as a child process so that a crash in LLVM is contained
    #[command(name = "__codegen", hide = true)]
    Codegen,
    /// A trial of an exploration, run as a task of a Ray cluster; its request is a line of standard input
    #[command(name = "__trial", hide = true)]
    Trial(Trial),
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
    /// A command, a layer or another part of a model, a scheme of the library, a word of the language; or `layers`, `parts`: all of them
    pub what: Option<String>,
    /// Of the layers and fields of this .ode file: the one of this name, or a list
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Args)]
pub struct New {
    /// The file, which also names the model: `mine` or `mine.ode`
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
    /// List what --set can change: every path with its type and value
    #[arg(long)]
    pub paths: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Explain {
    /// The code in brackets after `error` or `warning`
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
    /// A Lipschitz bound of the fields, |f(x) − f(y)| ≤ K |x − y|: prints which step sizes are stable
    #[arg(long, value_name = "K")]
    pub lipschitz: Option<String>,
    /// Draw into this folder: NAME.tableau.svg, NAME.region.svg (stability), NAME.star.svg (order star), NAME.oscillation.svg (dissipation and dispersion), NAME.convergence.svg (errors of compiled code)
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
    /// The norm of the principal error terms (Prince & Dormand)
    Error,
    /// Lotkin's bound of the error, which Ralston's methods minimize
    ErrorBound,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum LowStorage {
    /// Two registers: q = Aᵢ q + h F(y), y = y + Bᵢ q (Williamson)
    #[value(name = "2n")]
    TwoRegisters,
}

/// The default share of the best value that a design may give up.
pub const LOSS: f64 = 1e-4;

#[derive(Args)]
pub struct Design {
    /// Evaluations per step
    #[arg(long, value_name = "N")]
    pub stages: usize,
    /// The least order of the method
    #[arg(long, value_name = "P")]
    pub order: usize,
    /// The property to maximize
    #[arg(long, value_enum, value_name = "GOAL", conflicts_with = "minimize")]
    pub maximize: Option<Most>,
    /// The property to minimize [default: error]
    #[arg(long, value_enum, value_name = "GOAL")]
    pub minimize: Option<Least>,
    /// A form that needs few registers
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["splitting", "diagonal", "zero"])]
    pub low_storage: Option<LowStorage>,
    /// A symmetric splitting of two fields with STAGES flows of the second one and the least norm of the next commutators
    #[arg(long, conflicts_with_all = ["maximize", "minimize", "zero", "diagonal"])]
    pub splitting: bool,
    /// An A-stable diagonally implicit method with equal diagonal entries (SDIRK) and least error
    #[arg(long, conflicts_with_all = ["maximize", "minimize", "zero"])]
    pub diagonal: bool,
    /// Require L-stability
    #[arg(long, requires = "diagonal")]
    pub l_stable: bool,
    /// A coefficient to keep at 0, such as a31 or b2 (repeatable)
    #[arg(long, value_name = "ENTRY")]
    pub zero: Vec<String>,
    /// The share of the best value that may be given up for simpler fractions
    #[arg(long, value_name = "SHARE", default_value_t = LOSS)]
    pub loss: f64,
    /// Write the scheme into this .ode file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// Draw the least error for each value of the goal into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Args)]
pub struct Schemes {
    /// Only these schemes, by name, and families: a folder or a part of its name, such as implicit
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
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
    /// Draw convergence and work-precision diagrams into this file
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
    /// Which graph
    #[arg(long, value_enum, default_value = "model")]
    pub stage: GraphStage,
    /// How to print it [default: as the file's ending says (.svg, .dot, .txt or .odeg), else text]
    #[arg(long, value_enum)]
    pub format: Option<GraphFormat>,
    /// The file to write, instead of standard output
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
    /// Instructions and planned memory
    Program,
    /// Kernels before lowering
    Mlir,
    /// Kernels as PTX (--target sm_80, sm_90a)
    Ptx,
    /// Parameters as JSON: path and shape
    Params,
}

#[derive(Args)]
pub struct Build {
    #[command(flatten)]
    pub source: Source,
    /// The artifact to write [default: the name of FILE with .odex, in the folder where odec is started]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// cpu (this machine), cpu:amx, cpu:avx512bf16, cpu:avx512, cpu:avx2, cpu:portable, or a GPU: sm_80, sm_90a
    #[arg(long, default_value = "cpu", value_parser = target)]
    pub target: String,
    /// Print a stage of the compilation instead of building
    #[arg(long, value_enum, conflicts_with = "json")]
    pub emit: Option<Emit>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A source file or a built artifact.
#[derive(Args)]
pub struct SourceOrArtifact {
    /// A .ode file or a .odex artifact
    pub model: PathBuf,
    /// Override a number of a .ode file by its path (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Run the compiled code of an artifact that was not built here, instead of recompiling its kernels; such code can do
    /// anything that you can do
    #[arg(long)]
    pub trust: bool,
}

#[derive(Args)]
pub struct Train {
    /// A .ode file or a .odex artifact
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub model: Option<PathBuf>,
    /// Override a number of a .ode file by its path (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "resume")]
    pub set: Vec<String>,
    /// Folder of the run [default: runs/NAME]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Start from the parameters of a run, or in a safetensors file
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub init: Option<PathBuf>,
    /// The tensor names of --init: a file with a JSON object from parameter paths to tensor names; a `*` in
    /// both stands for the same word
    #[arg(
        long,
        value_name = "FILE",
        requires = "init",
        conflicts_with = "resume"
    )]
    pub map: Option<PathBuf>,
    /// Continue an earlier run
    #[arg(long, value_name = "RUN", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Train on this file instead: text, .jsonl, tokens in a .bin, or images (repeatable)
    #[arg(long)]
    pub data: Vec<PathBuf>,
    /// Total number of steps, instead of the file's or the run's; 0: a run of the parameters that it starts with
    #[arg(long)]
    pub steps: Option<u64>,
    /// Stop after this many seconds; the learning-rate schedule ends there
    #[arg(long, value_name = "SECONDS", value_parser = above_0)]
    pub time_limit: Option<f64>,
    /// Seconds between checkpoints; 0 writes one after each step
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = at_least_0)]
    pub checkpoint_every: f64,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Run the compiled code of an artifact that was not built here, instead of recompiling its kernels; such code can do
    /// anything that you can do
    #[arg(long)]
    pub trust: bool,
    /// Print JSON, without a chart
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Explore {
    #[command(flatten)]
    pub source: Source,
    /// Print the trials and what they cost, and run nothing
    #[arg(long, conflicts_with_all = ["out", "time_limit", "checkpoint_every"])]
    pub plan: bool,
    /// Measure how long training steps take, to predict times
    #[arg(long)]
    pub measure: bool,
    /// Folder of the exploration [default: explorations/NAME]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Trials at once [default: as many as there are cores and memory for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
    /// Memory that trials may take together [default: what is free]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<u64>,
    /// Save all trials and stop after this many seconds; the same command goes on
    #[arg(long, value_name = "SECONDS", value_parser = above_0)]
    pub time_limit: Option<f64>,
    /// Seconds between checkpoints of a trial; 0 writes one after each step
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = at_least_0)]
    pub checkpoint_every: f64,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Where trials run: local, in this process; ray, as tasks of a Ray cluster; or ray://HOST:10001, of one elsewhere
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "local",
        conflicts_with = "plan"
    )]
    pub engine: Engine,
    /// How often Ray runs a trial again whose worker was lost
    #[arg(long, value_name = "N", default_value_t = RETRIES)]
    pub max_retries: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Trial {
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
}

#[derive(Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum Metrics {
    /// A folder of event files, one in a folder for each run
    Tensorboard,
    /// A table: a line for each step and evaluation
    Csv,
    /// An object on each line, as in metrics.jsonl, with the name of its run
    Jsonl,
}

#[derive(Args)]
pub struct Export {
    /// Folder of the run; with --metrics, folders of runs, or that hold some
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Export what the runs have logged instead
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub metrics: Option<Metrics>,
    /// Take the weights of the last step, not their running means, of a run with `ema`
    #[arg(long, conflicts_with = "metrics")]
    pub no_ema: bool,
    /// The file to write, for TensorBoard the folder
    #[arg(short, long)]
    pub output: PathBuf,
}

#[derive(Args)]
pub struct Runs {
    /// Folders of runs, or that hold some [default: runs]
    #[arg(value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Diff {
    /// Folder of a run
    pub a: PathBuf,
    /// Folder of another run
    pub b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Report {
    /// Folders of runs, or that hold some
    #[arg(value_name = "RUN", required = true)]
    pub folders: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(short, long)]
    pub output: PathBuf,
    /// Show how each model continues this text
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tokens of a continuation
    #[arg(long, value_name = "N", requires = "prompt", default_value_t = 200)]
    pub tokens: u64,
    /// Sampling temperature of continuations; 0 takes the likeliest token each time
    #[arg(long, value_name = "T", requires = "prompt", default_value_t = 0.8, value_parser = at_least_0)]
    pub temperature: f64,
    /// Seed of their sampling
    #[arg(long, value_name = "N", requires = "prompt", default_value_t = 0)]
    pub seed: u64,
    /// For continuations, run the compiled code of artifacts that were not built here, instead of recompiling their kernels; such code can do
    /// anything that you can do
    #[arg(long, requires = "prompt")]
    pub trust: bool,
}

#[derive(Args)]
pub struct Tokenize {
    /// The texts; .jsonl files hold one per line
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// A Hugging Face tokenizer.json, or `bytes`
    #[arg(long)]
    pub tokenizer: PathBuf,
    /// The key of the text in each line of JSON
    #[arg(long, default_value = "text")]
    pub key: String,
    /// The text to append to each line's text
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
    pub model: SourceOrArtifact,
    /// The entry to run
    #[arg(long, value_enum)]
    pub entry: EntryName,
    /// The safetensors file of the inputs
    #[arg(long)]
    pub inputs: PathBuf,
    /// The safetensors file to write
    #[arg(long)]
    pub outputs: PathBuf,
    /// Interpret the graph in f64 instead of running compiled code (.ode files only)
    #[arg(long)]
    pub interpret: bool,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum Start {
    /// Coordinates from −2 to 2
    Cube,
    /// Length 1
    Sphere,
}

#[derive(Args)]
pub struct Simulate {
    #[command(flatten)]
    pub source: Source,
    /// A .npy file of points, [points, numbers of the input]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["start", "count"])]
    pub points: Option<PathBuf>,
    /// Where random points begin
    #[arg(long, value_enum, default_value = "cube")]
    pub start: Start,
    /// Random points [default: the input's context, at most 1000]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// What random points and parameters are drawn by
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A safetensors file of the model's parameters, such as `odec export` writes
    #[arg(long, value_name = "FILE")]
    pub parameters: Option<PathBuf>,
    /// Points are together at this share of the diameter of all points, now or at the start, whichever is larger
    #[arg(long, value_name = "SHARE", default_value_t = WITHIN)]
    pub within: f64,
    /// Draw into this folder: NAME.paths.svg, NAME.clusters.svg
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,
    /// Write the paths into this safetensors file: `times`, `states` ([times, points, width]), and every parameter by its path, in f64
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
