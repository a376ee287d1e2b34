//! The training loop.
//!
//! Takes an artifact with a train block, or the folder of a run; fills the run's folder: `model.odex` (a
//! copy of the artifact), `checkpoint.safetensors`, `metrics.jsonl`, `loss.svg`. Each step draws a batch by (seed, step),
//! runs entry `grad`, then `update`. A run that is resumed gives the bits of one that never
//! stopped, unless it has a time limit (see [`crate::schedule`]). Leaves clipping and the optimiser's arithmetic to the
//! program.

use crate::artifact::{Artifact, ArtifactError, DeviceChoice};
use crate::chart::{self, Curve};
use crate::checkpoint::{self, CheckpointError, Progress};
use crate::data::{Corpus, DataError};
use crate::evaluate::{EvaluateError, Evaluation, evaluate, window};
use crate::executor::{Executor, RunError, Value};
use crate::files;
use crate::metrics::{HeldOut, Metrics, Record, Step};
use crate::progress::{Display, Show, State};
use crate::schedule::{self, Position};
use odec_program::Bindings;
use odec_program::manifest::{Train, named};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// File names in a run's folder.
pub const MODEL: &str = "model.odex";
pub const CHECKPOINT: &str = "checkpoint.safetensors";
pub const METRICS: &str = "metrics.jsonl";
pub const CHART: &str = "loss.svg";

/// How to train. What is `None` comes from the manifest, or from the run when it is resumed.
#[derive(Clone, Debug)]
pub struct Settings {
    pub steps: Option<u64>,
    /// Seconds of training, over all sittings, evaluations included.
    pub time_limit: Option<f64>,
    pub data: Option<PathBuf>,
    /// Ignored when a run is resumed.
    pub seed: Option<u64>,
    pub device: DeviceChoice,
    pub threads: Option<usize>,
    /// Held-out evaluations, evenly over the run (fewer when they would eat up a time limit).
    pub evaluations: u64,
    /// Windows of each.
    pub held_out_windows: u64,
    /// Seconds between checkpoints (one is also written at each evaluation).
    pub checkpoint_seconds: f64,
    pub show: Show,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            steps: None,
            time_limit: None,
            data: None,
            seed: None,
            device: DeviceChoice::Cpu,
            threads: None,
            evaluations: 10,
            held_out_windows: 64,
            checkpoint_seconds: 60.0,
            show: Show::Auto,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub steps: u64,
    pub seconds: f64,
    /// The last training loss.
    pub loss: Option<f32>,
    /// On the windows that were looked at during the run; nothing when no text is held out.
    pub held_out: Option<Evaluation>,
    /// Whether the time limit ended it.
    pub stopped_by_time: bool,
}

/// Why a run cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(
        "{path} has no train block; add one to the source: train {{ data text(\"…\", tokenizer: bytes) … }}"
    )]
    NoTrainBlock { path: String },
    #[error(
        "a batch of {batch} does not fit the {planned} that the artifact was planned for; build it again"
    )]
    Batch { batch: u64, planned: u64 },
    #[error(
        "{path} holds a run already; continue it with `--resume {path}`, or choose another folder with --out"
    )]
    Occupied { path: String },
    #[error(
        "{path} is not the folder of a run ({source}); start one with `odec train FILE --out {path}`"
    )]
    NotARun {
        path: String,
        source: CheckpointError,
    },
    #[error("a time limit of {0} seconds is none; give a positive number")]
    TimeLimit(f64),
    #[error(
        "the {what} is not finite at step {step}{place}; the last checkpoint (step {saved}) is from before. \
         A lower learning rate, a longer warm-up or a smaller step size h may help"
    )]
    NonFinite {
        what: &'static str,
        step: u64,
        saved: u64,
        /// Where it started, as a clause.
        place: String,
    },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<EvaluateError> for TrainError {
    fn from(e: EvaluateError) -> TrainError {
        match e {
            EvaluateError::Data(e) => e.into(),
            EvaluateError::Run(e) => e.into(),
        }
    }
}

/// Trains a model from its start and keeps everything in the folder `out`.
///
/// # Errors
/// When the artifact cannot be trained, the text not used, or numbers stop being finite.
pub fn train(artifact: &Artifact, out: &Path, s: &Settings) -> Result<Summary, TrainError> {
    Run::start(artifact, out, s)?.finish(s)
}

/// Continues a run where its last checkpoint left it.
///
/// # Errors
/// As [`train`], or when `out` is not the folder of a run.
pub fn resume(out: &Path, s: &Settings) -> Result<Summary, TrainError> {
    Run::resume(out, s)?.finish(s)
}

/// A run in memory.
pub struct Run {
    x: Executor,
    corpus: Corpus,
    train: Train,
    progress: Progress,
    metrics: Metrics,
    out: PathBuf,
    /// The step of the last checkpoint.
    saved: u64,
    held_out: Option<Evaluation>,
    /// Seconds spent on held-out text in this sitting.
    looked: f64,
}

impl Run {
    /// Prepares a new run: initial parameters, empty metrics, a first checkpoint.
    ///
    /// # Errors
    /// As [`train`].
    pub fn start(artifact: &Artifact, out: &Path, s: &Settings) -> Result<Run, TrainError> {
        if out.join(CHECKPOINT).exists() {
            return Err(TrainError::Occupied {
                path: out.display().to_string(),
            });
        }
        let train = train_block(artifact)?;
        let progress = Progress {
            step: 0,
            steps: s.steps.unwrap_or(train.steps),
            seed: s.seed.unwrap_or(train.seed),
            seconds: 0.0,
            time_limit: s.time_limit,
            data: s
                .data
                .as_ref()
                .map_or(train.data.path.clone(), |p| p.display().to_string()),
        };
        check_limit(&progress)?;
        let corpus = open_corpus(artifact, &train, &progress)?;
        let mut x = Executor::new(artifact, artifact.device(s.device, s.threads)?)?;
        x.initialise(progress.seed);
        artifact.copy_to(&out.join(MODEL))?;
        let mut run = Run::assemble(x, corpus, train, progress, out)?;
        run.save()?;
        Ok(run)
    }

    /// Reads a run back.
    ///
    /// # Errors
    /// As [`resume`].
    pub fn resume(out: &Path, s: &Settings) -> Result<Run, TrainError> {
        let file = out.join(CHECKPOINT);
        let mut progress = checkpoint::progress(&file).map_err(|source| TrainError::NotARun {
            path: out.display().to_string(),
            source,
        })?;
        let artifact = Artifact::load(&out.join(MODEL))?;
        let train = train_block(&artifact)?;
        progress.steps = s.steps.unwrap_or(progress.steps);
        progress.time_limit = s.time_limit.or(progress.time_limit);
        if let Some(data) = &s.data {
            progress.data = data.display().to_string();
        }
        check_limit(&progress)?;
        let corpus = open_corpus(&artifact, &train, &progress)?;
        let mut x = Executor::new(&artifact, artifact.device(s.device, s.threads)?)?;
        checkpoint::load(&file, &mut x)?;
        Run::assemble(x, corpus, train, progress, out)
    }

    fn assemble(
        x: Executor,
        corpus: Corpus,
        train: Train,
        progress: Progress,
        out: &Path,
    ) -> Result<Run, TrainError> {
        let path = out.join(METRICS);
        let metrics =
            Metrics::open(&path, progress.step).map_err(|source| write_error(&path, source))?;
        let saved = progress.step;
        Ok(Run {
            x,
            corpus,
            train,
            progress,
            metrics,
            out: out.to_path_buf(),
            saved,
            held_out: None,
            looked: 0.0,
        })
    }

    /// Where the run stands.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The model's memories.
    pub fn executor(&self) -> &Executor {
        &self.x
    }

    fn position(&self) -> Position {
        let p = &self.progress;
        Position::new(
            p.step,
            p.steps,
            p.time_limit.map(|limit| (p.seconds, limit)),
        )
    }

    fn out_of_time(&self) -> bool {
        self.progress
            .time_limit
            .is_some_and(|limit| self.progress.seconds >= limit)
    }

    /// One optimiser step.
    ///
    /// # Errors
    /// When the loss or the gradient's norm is not finite.
    pub fn step(&mut self) -> Result<Step, TrainError> {
        let start = Instant::now();
        let step = self.progress.step;
        let lr = self.train.optimizer.lr * schedule::factor(&self.train.schedule, self.position());
        let batch = self.corpus.training_batch(
            self.progress.seed,
            step,
            self.train.batch,
            window(&self.x),
        )?;
        let at = Bindings {
            batch: batch.rows,
            seq: batch.columns,
        };
        let io = [
            ("tokens", Value::I32(&batch.tokens)),
            ("targets", Value::I32(&batch.targets)),
        ];
        let loss = self.x.run("grad", at, &io, &[])?.scalar("loss")?;
        if !loss.is_finite() {
            return Err(self.broken("loss", at, &io));
        }
        let t = (step + 1) as f64;
        let (beta1, beta2) = self.train.optimizer.betas;
        let scalars = [
            (named::LR, lr),
            (named::BIAS1, 1.0 / (1.0 - beta1.powf(t))),
            (named::BIAS2, 1.0 / (1.0 - beta2.powf(t))),
        ];
        let grad_norm = self
            .x
            .run("update", at, &[], &scalars)?
            .scalar("grad_norm")?;
        if !grad_norm.is_finite() {
            return Err(self.broken("gradient norm", at, &io));
        }
        let seconds = start.elapsed().as_secs_f64();
        self.progress.step += 1;
        self.progress.seconds += seconds;
        let tokens_per_s = (batch.rows * batch.columns) as f64 / seconds.max(1e-9);
        let done = Step {
            step: step + 1,
            loss,
            lr,
            grad_norm,
            tokens_per_s,
            seconds: self.progress.seconds,
        };
        self.record(Record::Step(done))?;
        Ok(done)
    }

    /// Runs the step again, watching every launch, to say where numbers stop being finite.
    fn broken(&mut self, what: &'static str, at: Bindings, io: &[(&str, Value)]) -> TrainError {
        self.x.set_watch(true);
        let place = match self.x.run("grad", at, io, &[]) {
            Err(RunError::NonFinite { site }) => format!(", first in {site}"),
            _ => String::new(),
        };
        self.x.set_watch(false);
        let (step, saved) = (self.progress.step + 1, self.saved);
        TrainError::NonFinite {
            what,
            step,
            saved,
            place,
        }
    }

    /// Looks at the held-out text.
    ///
    /// # Errors
    /// When the program cannot.
    pub fn look(&mut self, windows: u64) -> Result<(), TrainError> {
        if self.corpus.held_out_bytes() < 2 || windows == 0 {
            return Ok(());
        }
        let start = Instant::now();
        let e = evaluate(&mut self.x, &self.corpus, Some(windows), &mut |_| {})?;
        self.held_out = Some(e);
        let took = start.elapsed().as_secs_f64();
        self.looked += took;
        self.progress.seconds += took;
        let (step, seconds) = (self.progress.step, self.progress.seconds);
        self.record(Record::HeldOut(HeldOut {
            step,
            held_out_loss: e.loss,
            tokens: e.tokens,
            seconds,
        }))
    }

    fn record(&mut self, r: Record) -> Result<(), TrainError> {
        self.metrics
            .add(r)
            .map_err(|source| write_error(&self.out.join(METRICS), source))
    }

    /// Writes checkpoint and chart.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn save(&mut self) -> Result<(), TrainError> {
        let start = Instant::now();
        checkpoint::save(&self.out.join(CHECKPOINT), &self.x, &self.progress)?;
        self.saved = self.progress.step;
        let path = self.out.join(CHART);
        let picture = chart::svg(&self.curve());
        files::write_file(&path, |w| w.write_all(picture.as_bytes()))
            .map_err(|source| write_error(&path, source))?;
        self.progress.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// The losses so far.
    pub fn curve(&self) -> Curve {
        Curve::of(&self.x.manifest().name, self.metrics.records())
    }

    /// Trains to the end.
    ///
    /// # Errors
    /// As [`train`].
    pub fn finish(&mut self, s: &Settings) -> Result<Summary, TrainError> {
        let mut display = Display::new(s.show);
        let result = self.train_to_the_end(s, &mut display);
        display.finish();
        result
    }

    fn train_to_the_end(
        &mut self,
        s: &Settings,
        display: &mut Display,
    ) -> Result<Summary, TrainError> {
        let p = &self.progress;
        display.note(&format!(
            "training {} ({} parameters) on {}: {} to {} steps, seed {}, {}",
            self.x.manifest().name,
            self.x.manifest().param_count(),
            p.data,
            p.step,
            p.steps,
            p.seed,
            self.x.device_name(),
        ));
        let mut last_loss = None;
        let mut last_save = Instant::now();
        // Smoothed over about the last twenty steps, for people only.
        let (mut smooth, mut speed) = (None, None);
        let mut count = 0.0;
        let blend = |old: &mut Option<f64>, new: f64, count: f64| {
            *old.insert(old.map_or(new, |o| o + (1.0f64 / count).max(0.1) * (new - o)))
        };
        let marks = |p: Position| (p.fraction() * s.evaluations as f64 + 1e-9) as u64;
        let mut mark = marks(self.position());
        while self.progress.step < self.progress.steps && !self.out_of_time() {
            let done = self.step()?;
            last_loss = Some(done.loss);
            let position = self.position();
            count += 1.0;
            let loss = blend(&mut smooth, done.loss.into(), count);
            let rate = blend(&mut speed, done.tokens_per_s, count);
            let at_end = self.progress.step == self.progress.steps || self.out_of_time();
            if at_end || (marks(position) > mark && self.can_afford_a_look()) {
                mark = marks(position);
                self.look(s.held_out_windows)?;
                self.save()?;
                last_save = Instant::now();
            } else if last_save.elapsed().as_secs_f64() > s.checkpoint_seconds {
                self.save()?;
                last_save = Instant::now();
            }
            display.step(&State {
                step: done.step,
                steps: self.progress.steps,
                fraction: position.fraction(),
                loss,
                held_out: self.held_out.map(|e| e.loss),
                tokens_per_s: rate,
                seconds_left: self.seconds_left(rate),
            });
        }
        let p = &self.progress;
        Ok(Summary {
            steps: p.step,
            seconds: p.seconds,
            loss: last_loss,
            held_out: self.held_out,
            stopped_by_time: p.step < p.steps,
        })
    }

    /// Against a time limit, looking at held-out text may take a twentieth of the time.
    fn can_afford_a_look(&self) -> bool {
        self.progress.time_limit.is_none() || self.looked <= 0.05 * self.progress.seconds
    }

    /// By the steps that are left at this rate, or the time limit.
    fn seconds_left(&self, tokens_per_s: f64) -> f64 {
        let p = &self.progress;
        let tokens = ((p.steps - p.step) * self.train.batch * window(&self.x)) as f64;
        let by_steps = tokens / tokens_per_s.max(1e-9);
        p.time_limit
            .map_or(by_steps, |limit| by_steps.min(limit - p.seconds))
    }
}

/// The text that a run trains on, in its two parts.
///
/// # Errors
/// When there is no run, or its text cannot be read.
pub fn corpus_of(run: &Path) -> Result<Corpus, TrainError> {
    let artifact = Artifact::load(&run.join(MODEL))?;
    let progress = checkpoint::progress(&run.join(CHECKPOINT))?;
    open_corpus(&artifact, &train_block(&artifact)?, &progress)
}

fn write_error(path: &Path, source: io::Error) -> TrainError {
    TrainError::Write {
        path: path.display().to_string(),
        source,
    }
}

fn train_block(a: &Artifact) -> Result<Train, TrainError> {
    let train = a.manifest().train.clone();
    let train = train.ok_or_else(|| TrainError::NoTrainBlock {
        path: a.path().display().to_string(),
    })?;
    let planned = a.manifest().program.maxima.batch;
    if train.batch == 0 || train.batch > planned {
        return Err(TrainError::Batch {
            batch: train.batch,
            planned,
        });
    }
    Ok(train)
}

fn check_limit(p: &Progress) -> Result<(), TrainError> {
    match p.time_limit {
        Some(limit) if !(limit > 0.0 && limit.is_finite()) => Err(TrainError::TimeLimit(limit)),
        _ => Ok(()),
    }
}

fn open_corpus(a: &Artifact, train: &Train, p: &Progress) -> Result<Corpus, TrainError> {
    let vocab = a.manifest().model.vocab;
    Ok(Corpus::open(
        Path::new(&p.data),
        &train.data.tokenizer,
        train.data.held_out_percent,
        vocab,
    )?)
}

/// A trained model: the artifact and parameters of a run, or an artifact and the checkpoint of another place.
///
/// # Errors
/// When there is no artifact or no checkpoint, or they do not fit.
pub fn open_run(
    run: &Path,
    device: DeviceChoice,
    threads: Option<usize>,
) -> Result<Executor, TrainError> {
    let file = run.join(CHECKPOINT);
    if !file.exists() {
        let source = CheckpointError::Missing {
            path: file.display().to_string(),
        };
        return Err(TrainError::NotARun {
            path: run.display().to_string(),
            source,
        });
    }
    let artifact = Artifact::load(&run.join(MODEL))?;
    let mut x = Executor::new(&artifact, artifact.device(device, threads)?)?;
    checkpoint::load_params(&file, &mut x)?;
    Ok(x)
}
