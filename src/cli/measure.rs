//! Options of the commands that time a device, or compare it with the reference device.

use super::SourceOrArtifact;
use clap::{Args, ValueEnum};
use odec_program::Quantized;
use odec_runtime::DeviceChoice;
use std::path::PathBuf;

/// Training steps on random tokens, timed.
#[derive(Args)]
pub struct Timed {
    #[command(flatten)]
    pub model: SourceOrArtifact,
    /// Timed steps
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Untimed steps before them
    #[arg(long, default_value_t = 2)]
    pub warmup: u64,
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Profile {
    #[command(flatten)]
    pub timed: Timed,
    /// Draw the fastest step as a timeline
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write all launches as a trace that Perfetto opens
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// What a line of the last table is of
    #[arg(long, value_enum, default_value_t = By::Origin)]
    pub by: By,
    /// Its most lines; 0: all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A step of the model, a part of a field, and what it is done for
    Origin,
    /// A kernel, wherever it is launched
    Kernel,
}

#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    pub timed: Timed,
    /// Time inference of this many tokens one by one instead, as in `generate`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tokens: Option<u64>,
    /// Of so many texts at once, a token of each in one pass
    #[arg(long, value_name = "N", requires = "tokens", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Read weights in integers of 8 or 4 bits, with a scale for each group of 32; parameters stay as they are
    #[arg(long, value_name = "int8|int4", requires = "tokens")]
    pub weights: Option<Quantized>,
}

#[derive(Args)]
pub struct Compare {
    #[command(flatten)]
    pub model: SourceOrArtifact,
    /// Training steps
    #[arg(long, default_value_t = 2)]
    pub steps: u64,
    /// Compare every launch, from the same operands, instead of the results of entries
    #[arg(long, conflicts_with = "steps")]
    pub launches: bool,
    /// A new folder for the operands and results of the first launch that differs
    #[arg(long, value_name = "DIR", requires = "launches")]
    pub dump: Option<PathBuf>,
    /// cpu, or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Print JSON
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
    /// Run the files' code on a GPU; such code can do anything that you can do
    #[arg(long)]
    pub trust: bool,
}
