//! Commands that evaluate and use the model of a run.

use clap::Args;
use odec_program::Quantized;
use odec_runtime::DeviceChoice;
use std::path::PathBuf;

/// Where a trained model runs, and whose code.
#[derive(Args)]
pub struct On {
    /// cpu, reference (scalar, slow, needs no compiled code), or a GPU by its number: cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Run the compiled code of an artifact that was not built here, instead of recompiling its kernels; such code can do
    /// anything that you can do
    #[arg(long)]
    pub trust: bool,
}

#[derive(Args)]
pub struct Eval {
    /// Folder of the run
    pub run: PathBuf,
    /// Take the weights of the last step, not their running means, of a run with `ema`
    #[arg(long)]
    pub no_ema: bool,
    /// Evaluate on all of this file instead of the held-out part: text, .jsonl, tokens in a .bin, or images (repeatable)
    #[arg(long)]
    pub data: Vec<PathBuf>,
    /// Evaluate at most this many sequences, images or pairs
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub windows: Option<u64>,
    /// Draw the confusion matrix of a classifier into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Judge beside it the model that reads weights in integers of 8 or 4 bits, as `generate --weights` does
    #[arg(long, value_name = "int8|int4")]
    pub weights: Option<Quantized>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub on: On,
}

/// A weight of guidance.
fn guidance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(w) if (0.0..=100.0).contains(&w) => Ok(w),
        _ => Err("a number from 0 to 100 is expected".into()),
    }
}

#[derive(Args)]
pub struct Generate {
    /// Folder of the run
    pub run: PathBuf,
    /// Take the weights of the last step, not their running means, of a run with `ema`
    #[arg(long)]
    pub no_ema: bool,
    /// The text to continue; several are read together, in one pass over the weights for a token of each
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["output", "scheme", "errors", "steps", "class", "guidance", "count", "classifier"])]
    pub prompt: Vec<String>,
    /// Continuations of each text, with the seeds --seed, --seed + 1, …
    #[arg(long, value_name = "N", conflicts_with = "output", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub samples: u64,
    /// Of a model that moves noise to data: draw images into this PNG file, a row for each class, or sequences of vectors into FILE.npz or, as a picture, FILE.svg; with --errors, an SVG file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The explicit Runge–Kutta scheme of the library that integrates the model's velocity
    #[arg(long, value_name = "SCHEME", conflicts_with = "errors")]
    pub scheme: Option<String>,
    /// Instead of samples, draw how far each of these schemes is from many small steps, over step sizes and evaluations
    #[arg(
        long,
        value_name = "SCHEME,…",
        value_delimiter = ',',
        conflicts_with = "classifier"
    )]
    pub errors: Vec<String>,
    /// Steps of the scheme from noise to data
    #[arg(long, value_name = "N", conflicts_with = "errors", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: Option<u64>,
    /// Only samples of this class
    #[arg(long, value_name = "CLASS")]
    pub class: Option<u64>,
    /// How far samples are moved towards their class: w of v(x, t) + w (v(x, t, class) − v(x, t)); 1, the default, is the velocity of the class itself
    #[arg(long, value_name = "W", allow_negative_numbers = true, value_parser = guidance)]
    pub guidance: Option<f64>,
    /// Images in a row; sequences of each class: 8 unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub count: Option<u64>,
    /// A run that tells the classes of such samples: print the share that it takes for the class asked for
    #[arg(long, value_name = "RUN")]
    pub classifier: Option<PathBuf>,
    /// Read weights in integers of 8 or 4 bits, with a scale for each group of 32; parameters stay as they are
    #[arg(long, value_name = "int8|int4", conflicts_with = "output")]
    pub weights: Option<Quantized>,
    /// Print what was drawn as JSON; of texts a line for each
    #[arg(long)]
    pub json: bool,
    /// The tokenizer.json of a model that was trained on token files
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Tokens to generate; when the context is full, only its later half is kept
    #[arg(long, default_value_t = 300)]
    pub tokens: u64,
    /// Go on when the model gives the `separator` of its data, which ends a text otherwise
    #[arg(long, conflicts_with = "output")]
    pub past_end: bool,
    /// Sampling temperature; 0 takes the likeliest token each time
    #[arg(long, default_value_t = 0.8, value_parser = super::at_least_0)]
    pub temperature: f64,
    /// Sample from the k likeliest tokens only
    #[arg(long)]
    pub top_k: Option<usize>,
    /// Seed of the sampling
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub on: On,
}

impl Generate {
    /// The options given that only a model which draws has a use for.
    pub fn of_drawing(&self) -> Vec<&'static str> {
        let all = [
            ("--output", self.output.is_some()),
            ("--scheme", self.scheme.is_some()),
            ("--errors", !self.errors.is_empty()),
            ("--steps", self.steps.is_some()),
            ("--class", self.class.is_some()),
            ("--guidance", self.guidance.is_some()),
            ("--count", self.count.is_some()),
            ("--classifier", self.classifier.is_some()),
        ];
        let given = all.into_iter().filter(|(_, given)| *given);
        given.map(|(name, _)| name).collect()
    }

    pub fn guidance(&self) -> f64 {
        self.guidance.unwrap_or(1.0)
    }

    /// Of each class.
    pub fn count(&self) -> u64 {
        self.count.unwrap_or(8)
    }
}

#[derive(Args)]
pub struct Classify {
    /// Folder of the run
    pub run: PathBuf,
    /// The texts, or PNG files of the size that the model reads
    pub given: Vec<String>,
    /// Print this many classes, the likeliest first; with --json all of them are printed
    #[arg(long, value_name = "N", conflicts_with = "json", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub top: u64,
    /// Take the weights of the last step, not their running means, of a run with `ema`
    #[arg(long)]
    pub no_ema: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub on: On,
}

#[derive(Args)]
pub struct Translate {
    /// Folder of the run
    pub run: PathBuf,
    /// Take the weights of the last step, not their running means, of a run with `ema`
    #[arg(long)]
    pub no_ema: bool,
    /// The texts; for a model that reads several, one for each input, in their order
    pub texts: Vec<String>,
    /// Translate the pairs that the run holds out, beside their own translations
    #[arg(long, conflicts_with = "texts")]
    pub held_out: bool,
    /// The same of all pairs in this file: .jsonl, .tsv, or the first of two (repeatable)
    #[arg(long, conflicts_with_all = ["texts", "held_out"])]
    pub data: Vec<PathBuf>,
    /// Translate at most this many pairs, spread evenly
    #[arg(long, value_name = "N")]
    pub pairs: Option<u64>,
    /// Texts that are kept at each length; 1 takes the likeliest token each time
    #[arg(long, default_value_t = 4)]
    pub beam: usize,
    /// α of log p / ((5 + n) / 6)^α, by which texts of n tokens are compared; 0 compares their probabilities
    #[arg(long, value_name = "ALPHA", default_value_t = 0.6)]
    pub length_penalty: f64,
    /// The fewest tokens of a translation, its end among them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min_length: u64,
    /// The most tokens of a translation, its end among them; as many as the context has room for, unless given
    #[arg(long, value_name = "N")]
    pub max_length: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub on: On,
}

#[derive(Args)]
pub struct Average {
    /// Folder of a run, or of several
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Only the last checkpoints that the run has kept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub last: Option<u64>,
    /// Folder of the run to write
    #[arg(long)]
    pub out: PathBuf,
}
