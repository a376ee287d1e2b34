//! A run: a model in training, its folder, and the operations on both.
//!
//! Takes an artifact with a train block, or the folder of a run; fills the run's folder: `model.odex` (a copy of the
//! artifact), `tokenizer.json` (a copy, when it has one), `checkpoint.safetensors`, parameters of earlier steps in `kept` where the train block asks for them, `metrics.jsonl`, `loss.svg`; token
//! files made from texts are kept beside it, for all runs in that place. A run that is resumed gives the bits and metrics of one that never stopped, unless it
//! has a time limit (see [`odec_program::schedules`]). One process at a time trains in a folder; anyone may read it ([`mod@crate::train::lock`]). Leaves what a step is to [`mod@crate::train::step`], the texts it trains on to [`mod@crate::train::dataset`], when
//! to evaluate, save and stop to [`mod@crate::train`], clipping and the optimiser's arithmetic to the program.

use crate::artifact::{Artifact, ArtifactError, DeviceChoice, Unsigned};
use crate::data::DataError;
use crate::data::dataset::Dataset;
use crate::data::tokenizer::Tokenizer;
use crate::device::Device;
use crate::executor::Executor;
use crate::infer::evaluate::{EvaluateError, Evaluation, evaluate, window};
use crate::parameters::checkpoint::{self, Checkpoint, CheckpointError, Progress, Weights};
use crate::parameters::import::Init;
use crate::system::files;
use crate::system::files::remedy;
use crate::system::input;
use crate::system::owned::{CHART, CHECKPOINT, KEPT, METRICS, MODEL, TOKENIZER};
use crate::system::shown::Shown;
use crate::train::chart::{self, Curve};
use crate::train::dataset::{open_dataset, same_data, saved_tokenizer, with_files};
use crate::train::failure::TrainError;
use crate::train::kept;
use crate::train::lock::{self, Lock};
use crate::train::metrics::{self, HeldOut, Metrics, Record, Step, Warning};
use crate::train::stall::Stall;
use crate::train::step::{Pending, draw};
use crate::train::{OfSteps, Settings};
use odec_program::manifest::{self, Keep, Train};
use odec_program::schedules::Position;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A run in memory.
pub struct Run {
    pub(crate) x: Executor,
    pub(crate) dataset: Box<dyn Dataset>,
    pub(crate) train: Train,
    pub(crate) progress: Progress,
    pub(crate) pending: Pending,
    metrics: Metrics,
    stall: Stall,
    pub(crate) out: PathBuf,
    /// The step of the last checkpoint.
    pub(crate) saved: u64,
    held_out: Option<Evaluation>,
    /// Held as long as the run is in memory.
    lock: Lock,
}

impl Run {
    /// Prepares a new run: initial parameters, empty metrics, a first checkpoint.
    ///
    /// # Errors
    /// When the artifact cannot be trained, the text not used, or the folder not written to.
    pub fn start(artifact: &Artifact, out: &Path, s: &Settings) -> Result<Run, TrainError> {
        Run::start_on(artifact, out, s, |a| a.device(s.device, s.threads))
    }

    /// The same on a device of one's own, which is asked for before any text is read.
    ///
    /// # Errors
    /// As [`Run::start`].
    pub fn start_on(
        artifact: &Artifact,
        out: &Path,
        s: &Settings,
        device: impl FnOnce(&Artifact) -> Result<Box<dyn Device>, ArtifactError>,
    ) -> Result<Run, TrainError> {
        lock::claim(out)?;
        let train = train_block(artifact)?;
        let tokenizer = match train.data.form.tokenizer() {
            Some(tokenizer) => Tokenizer::named(tokenizer)?,
            None => Tokenizer::bytes(),
        };
        let mut progress = Progress {
            model: artifact.identity().into(),
            step: 0,
            steps: s.steps.unwrap_or(train.steps),
            seed: s.seed.unwrap_or(train.seed),
            seconds: 0.0,
            time_limit: s.time_limit,
            looked: 0.0,
            of_steps: Some(0.0),
            looks: 0,
            last_look: 0,
            tokenizer: tokenizer.identity().map(String::from),
            tokens: 0,
            files: vec![],
            data: with_files(&train.data, &s.data)?,
            mean_of: 0,
        };
        check_limit(&progress)?;
        let device = device(artifact)?;
        let dataset = open_dataset(artifact, &progress.data, &tokenizer, out, s.show)?;
        progress.tokens = dataset.len();
        progress.files = dataset.files().to_vec();
        let mut x = Executor::new(artifact, device)?;
        x.initialise(progress.seed);
        match (&s.init, &train.from) {
            (Some(init), _) => _ = init.import(&mut x)?,
            (None, Some(from)) => {
                let map = from.map.as_deref().map(Path::new);
                Init::open(Path::new(&from.path), map)?.import(&mut x)?;
            }
            (None, None) => {}
        }
        x.begin_averages()?;
        // What no step can be made of is refused before there is a folder.
        if progress.steps > 0 {
            let draw = draw(&train, progress.seed, 0);
            dataset.training_batch(draw, 0..1, window(&x))?;
        }
        let lock = Lock::take(out)?;
        lock::claim(out)?;
        // The copy is written anew, and may say the same in other words.
        progress.model = artifact.copy_to(&out.join(MODEL))?.identity().into();
        if let Some(manifest::Tokenizer::File(from)) = train.data.form.tokenizer() {
            let to = out.join(TOKENIZER);
            let copied = input::read(Path::new(from), input::most::TOKENIZER)
                .and_then(|bytes| files::write_file(&to, |w| w.write_all(&bytes)));
            copied.map_err(|e| TrainError::write(&to, e))?;
        }
        let mut run = Run::assemble(x, dataset, train, progress, out, lock)?;
        run.save()?;
        Ok(run)
    }

    /// Reads a run back.
    ///
    /// # Errors
    /// When `out` is not the folder of a run, something in it is damaged, or another process trains in it.
    pub fn resume(out: &Path, s: &Settings) -> Result<Run, TrainError> {
        Run::resume_on(out, s, |a| a.device(s.device, s.threads))
    }

    /// The same on a device of one's own.
    ///
    /// # Errors
    /// As [`Run::resume`].
    pub fn resume_on(
        out: &Path,
        s: &Settings,
        device: impl FnOnce(&Artifact) -> Result<Box<dyn Device>, ArtifactError>,
    ) -> Result<Run, TrainError> {
        let file = out.join(CHECKPOINT);
        let not_a_run = |source| TrainError::not_a_run(out, source);
        if !checkpoint::is_there(&file)? {
            let path = file.shown();
            return Err(not_a_run(CheckpointError::Missing { path }));
        }
        if !checkpoint::is_of_run(&file)? {
            let path = file.shown();
            return Err(not_a_run(CheckpointError::NotResumable { path }));
        }
        let lock = Lock::take(out)?;
        let checkpoint = Checkpoint::open(&file)?;
        let mut progress = checkpoint.progress().map_err(not_a_run)?.clone();
        if progress.mean_of > 0 {
            let path = file.shown();
            return Err(CheckpointError::NotResumable { path }.into());
        }
        let artifact = Artifact::load(&out.join(MODEL))?.with(s.unsigned);
        let train = train_block(&artifact)?;
        if let Some(asked) = s.steps.filter(|asked| *asked < progress.step) {
            return Err(TrainError::Behind {
                path: out.shown(),
                done: progress.step,
                asked,
            });
        }
        progress.steps = s.steps.unwrap_or(progress.steps);
        progress.time_limit = s.time_limit.or(progress.time_limit);
        progress.data = with_files(&progress.data, &s.data)?;
        check_limit(&progress)?;
        let tokenizer = saved_tokenizer(out, &progress)?;
        let device = device(&artifact)?;
        let dataset = open_dataset(&artifact, &progress.data, &tokenizer, out, s.show)?;
        if s.data.is_empty() {
            same_data(&progress, &*dataset)?;
        }
        progress.tokens = dataset.len();
        progress.files = dataset.files().to_vec();
        let mut x = Executor::new(&artifact, device)?;
        checkpoint.all_into(&mut x)?;
        Run::assemble(x, dataset, train, progress, out, lock)
    }

    fn assemble(
        x: Executor,
        dataset: Box<dyn Dataset>,
        train: Train,
        progress: Progress,
        out: &Path,
        lock: Lock,
    ) -> Result<Run, TrainError> {
        let path = out.join(METRICS);
        let metrics =
            Metrics::open(&path, progress.step).map_err(|e| TrainError::write(&path, e))?;
        let held_out = metrics.records().iter().rev().find_map(|r| match r {
            Record::HeldOut(h) => Some(Evaluation {
                loss: h.held_out_loss,
                measure: train.measured(),
                terms: h.terms.clone(),
                reports: h.reports.clone(),
                of: h.of,
                accuracy: h.accuracy,
            }),
            Record::Step(_) | Record::Warning(_) | Record::Movement(_) => None,
        });
        let mut stall = Stall::new(x.manifest());
        for r in metrics.records() {
            if let Record::Step(s) = r {
                stall.after(s);
            }
        }
        let saved = progress.step;
        Ok(Run {
            x,
            dataset,
            train,
            progress,
            pending: Pending::default(),
            metrics,
            stall,
            out: out.to_path_buf(),
            saved,
            held_out,
            lock,
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

    /// The same, to change.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.x
    }

    /// What its steps took so far.
    pub fn of_steps(&self) -> OfSteps {
        let counted = metrics::flops(self.metrics.records(), self.progress.step);
        OfSteps {
            flops: counted.map(|[gradient, _]| gradient),
            optimizer_flops: counted.map(|[_, optimizer]| optimizer),
            seconds: self.progress.of_steps,
        }
    }

    /// The latest evaluation, in this sitting or an earlier one.
    pub fn held_out(&self) -> Option<Evaluation> {
        self.held_out.clone()
    }

    /// How far the run is, in steps or by its time limit, those under way among them.
    pub fn position(&self) -> Position {
        let p = &self.progress;
        Position::new(
            self.enqueued(),
            p.steps,
            p.time_limit.map(|limit| (p.seconds, limit)),
        )
    }

    /// Whether the time limit is reached.
    pub fn out_of_time(&self) -> bool {
        self.progress
            .time_limit
            .is_some_and(|limit| self.progress.seconds >= limit)
    }

    /// Evaluations since the one with the lowest held-out loss, in all sittings.
    pub fn waited(&self) -> u64 {
        let mut lowest = f64::INFINITY;
        let mut waited = 0;
        for r in self.metrics.records() {
            if let Record::HeldOut(h) = r {
                waited += 1;
                if h.held_out_loss < lowest {
                    (lowest, waited) = (h.held_out_loss, 0);
                }
            }
        }
        waited
    }

    /// Whether the held-out loss was not lowered for as long as the train block waits.
    pub fn out_of_patience(&self) -> bool {
        self.train
            .patience
            .is_some_and(|most| self.waited() >= most)
    }

    /// Looks at the held-out text, with running means of the parameters where they are kept. `due` counts the evaluations that are due so far, this one too.
    ///
    /// # Errors
    /// When the program cannot.
    pub fn look(&mut self, windows: u64, due: u64) -> Result<(), TrainError> {
        self.progress.looks = due;
        self.progress.last_look = self.progress.step;
        if windows == 0 || self.dataset.held_out_rows(1) == 0 {
            return Ok(());
        }
        let start = Instant::now();
        self.x.exchange_averages()?;
        let e = evaluate(&mut self.x, &*self.dataset, Some(windows), &mut |_| {});
        self.x.exchange_averages()?;
        let e = e.map_err(|e| match e {
            EvaluateError::Data(e) => self.cannot_read(e),
            e => e.into(),
        })?;
        let took = start.elapsed().as_secs_f64();
        self.progress.looked += took;
        self.progress.seconds += took;
        let (step, seconds) = (self.progress.step, self.progress.seconds);
        let record = HeldOut {
            step,
            held_out_loss: e.loss,
            terms: e.terms.clone(),
            reports: e.reports.clone(),
            of: e.of,
            accuracy: e.accuracy,
            seconds,
        };
        self.held_out = Some(e);
        self.record(Record::HeldOut(record))
    }

    pub(crate) fn record(&mut self, r: Record) -> Result<(), TrainError> {
        let added = self.metrics.add(r);
        added.map_err(|e| self.cannot_save(METRICS, e))
    }

    /// Writes checkpoint and chart. Metrics are made durable first: a checkpoint never outlives the lines before it.
    ///
    /// # Errors
    /// When the disk refuses, or a number to be saved is not finite; the last checkpoint is then still there.
    pub fn save(&mut self) -> Result<(), TrainError> {
        let start = Instant::now();
        self.ready_to_save()?;
        self.metrics
            .sync()
            .map_err(|e| self.cannot_save(METRICS, e))?;
        // `not_finite` has fetched what is saved.
        match checkpoint::save(&self.out.join(CHECKPOINT), &self.x, &self.progress) {
            Err(CheckpointError::Write { source, .. }) => {
                return Err(self.cannot_save(CHECKPOINT, source));
            }
            done => done?,
        }
        self.saved = self.progress.step;
        let picture = chart::svg(&self.curve());
        files::write_file(&self.out.join(CHART), |w| w.write_all(picture.as_bytes()))
            .map_err(|e| self.cannot_save(CHART, e))?;
        self.progress.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Whether there is something to save, and a place; then it has been fetched.
    fn ready_to_save(&mut self) -> Result<(), TrainError> {
        debug_assert_eq!(self.enqueued(), self.progress.step, "steps are under way");
        if !self.lock.is_held() {
            return Err(self.lost());
        }
        match self.x.not_finite()? {
            Some(tensor) => Err(self.not_finite(&tensor, self.progress.step, String::new())),
            None => Ok(()),
        }
    }

    /// Whether the parameters of the last step that was asked for are to be kept.
    pub(crate) fn keep_due(&self) -> bool {
        let step = self.enqueued();
        let divides = |keep: Keep| step.is_multiple_of(keep.every);
        step > 0 && self.train.keep.is_some_and(divides)
    }

    /// Keeps the parameters of this step beside the checkpoint, and removes the oldest where there are too many.
    ///
    /// # Errors
    /// As [`Run::save`].
    pub(crate) fn keep(&mut self) -> Result<(), TrainError> {
        let Some(Keep { last, .. }) = self.train.keep else {
            return Ok(());
        };
        let start = Instant::now();
        self.ready_to_save()?;
        let file = kept::name(self.progress.step);
        let folder = self.out.join(KEPT);
        let saved = files::create_folder(&folder).map_err(|e| (KEPT, e));
        let saved = saved.and_then(|()| {
            let path = self.out.join(&file);
            checkpoint::save_params(&path, &self.x, &self.progress).map_err(|e| match e {
                CheckpointError::Write { source, .. } => (&*file, source),
                e => (&*file, io::Error::other(e.to_string())),
            })
        });
        let saved = saved.and_then(|()| {
            let older = kept::steps(&self.out, self.progress.step).map_err(|e| (KEPT, e))?;
            let too_many = older.len().saturating_sub(last as usize);
            let remove = |step: &u64| std::fs::remove_file(self.out.join(kept::name(*step)));
            let removed = older[..too_many].iter().try_for_each(remove);
            removed.map_err(|e| (KEPT, e))
        });
        saved.map_err(|(file, e)| self.cannot_save(file, e))?;
        self.progress.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn lost(&self) -> TrainError {
        TrainError::Lost {
            run: self.out.shown(),
            step: self.progress.step,
            saved: self.saved,
        }
    }

    /// What a text that cannot be read any more means for the run.
    pub(crate) fn cannot_read(&self, source: DataError) -> TrainError {
        match source {
            DataError::Altered { .. } | DataError::Read { .. } => TrainError::Text {
                source,
                step: self.progress.step,
                saved: self.saved,
                run: self.out.shown(),
            },
            source => source.into(),
        }
    }

    /// Whether a step shows that the run learns nothing; that becomes part of the metrics, once.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn judge(&mut self, s: &Step) -> Result<Option<String>, TrainError> {
        let Some(warning) = self.stall.after(s) else {
            return Ok(None);
        };
        let step = s.step;
        self.record(Record::Warning(Warning {
            step,
            warning: warning.clone(),
        }))?;
        Ok(Some(warning))
    }

    /// What the run was warned of, in this sitting or an earlier one.
    pub fn warning(&self) -> Option<String> {
        let mut records = self.metrics.records().iter();
        records.find_map(|r| match r {
            Record::Warning(w) => Some(format!("step {}: {}", w.step, w.warning)),
            Record::Step(_) | Record::HeldOut(_) | Record::Movement(_) => None,
        })
    }

    /// What is not in the metrics though it happened before the checkpoint that this sitting began with.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.metrics.damage()
    }

    fn cannot_save(&self, file: &str, source: io::Error) -> TrainError {
        if !self.lock.is_held() {
            return self.lost();
        }
        let remedy = remedy(&source);
        TrainError::Save {
            path: self.out.join(file).shown(),
            source,
            step: self.progress.step,
            saved: self.saved,
            run: self.out.shown(),
            remedy,
        }
    }

    /// The losses so far.
    pub fn curve(&self) -> Curve {
        let train = self.x.manifest().train.as_ref();
        Curve {
            of_numbers: train.is_some_and(|t| t.measured().is_some()),
            ..Curve::of(&self.x.manifest().name, self.metrics.records())
        }
    }
}

fn train_block(a: &Artifact) -> Result<Train, TrainError> {
    let train = a.manifest().train.clone();
    let train = train.ok_or_else(|| TrainError::NoTrainBlock {
        path: a.path().shown(),
    })?;
    let planned = a.manifest().program.maxima.batch;
    let batch = train.batch / train.accumulate.max(1);
    if batch == 0 || batch > planned {
        return Err(TrainError::Batch { batch, planned });
    }
    Ok(train)
}

fn check_limit(p: &Progress) -> Result<(), TrainError> {
    match p.time_limit {
        Some(limit) if !(limit > 0.0 && limit.is_finite()) => Err(TrainError::TimeLimit(limit)),
        _ => Ok(()),
    }
}

/// A trained model: the artifact and parameters of a run, or an artifact and the checkpoint of another place.
///
/// # Errors
/// When there is no artifact or no checkpoint, they do not fit, or the code was not compiled here.
pub fn open_run(
    run: &Path,
    device: DeviceChoice,
    threads: Option<usize>,
) -> Result<Executor, TrainError> {
    open_run_with(run, device, threads, Unsigned::Refuse, Weights::default())
}

/// The same, and what is done with code that this user did not sign, and which weights are meant.
///
/// # Errors
/// As [`open_run`].
pub fn open_run_with(
    run: &Path,
    device: DeviceChoice,
    threads: Option<usize>,
    unsigned: Unsigned,
    weights: Weights,
) -> Result<Executor, TrainError> {
    let file = run.join(CHECKPOINT);
    if !checkpoint::is_there(&file)? {
        let source = CheckpointError::Missing { path: file.shown() };
        return Err(TrainError::not_a_run(run, source));
    }
    let artifact = Artifact::load(&run.join(MODEL))?.with(unsigned);
    let mut x = Executor::new(&artifact, artifact.device(device, threads)?)?;
    Checkpoint::open(&file)?.params_into(&mut x, weights)?;
    Ok(x)
}
