//! What is known of an exploration while it runs: what each trial has come to, what is under way, how much time is left.
//!
//! Takes a plan and its folder; gives requests, and keeps what comes out of them. Everything that is decided is written down before it has a consequence, so a process that is
//! killed at any instant goes on as this one would have. Leaves who carries requests out to `run.rs`.

use crate::folder::{Folder, Outcome, Promoted, State};
use crate::ladder::{Best, Ladder, Next, Promotion, Task};
use crate::plan::Plan;
use crate::space::Rank;
use crate::trial::Request;
use odec_compiler::text::number::duration;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::Parsed;
use odec_runtime::parameters::checkpoint::Checkpoint;
use odec_runtime::system::hash::sha256;
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::{DeviceChoice, Show};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Seconds after which the time that was spent is written down again.
const NOTED: f64 = 5.0;

/// Who runs trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// This process.
    #[default]
    Local,
    /// Tasks of a Ray cluster: at an address, else where Ray finds or starts one. A task whose worker is lost is run again, so many times.
    Ray {
        address: Option<String>,
        retries: u32,
    },
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(s: &str) -> Result<Engine, String> {
        let ray = |address| Engine::Ray {
            address,
            retries: RETRIES,
        };
        match s.split_once("://") {
            _ if s == "local" => Ok(Engine::Local),
            _ if s == "ray" => Ok(ray(None)),
            Some(("ray", at)) if !at.is_empty() => Ok(ray(Some(s.to_string()))),
            _ => Err(format!(
                "`{s}` is no engine; engines are local, ray, and ray://HOST:10001 for a cluster elsewhere"
            )),
        }
    }
}

/// How often a task whose worker was lost is run again, unless something else is said: as often as Ray does.
pub const RETRIES: u32 = 3;

/// How trials are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// At once; as many as there are cores and memory for where nothing is said.
    pub jobs: Option<usize>,
    /// Bytes that trials may take together; what is free where nothing is said.
    pub memory: Option<u64>,
    /// Seconds after which all trials are saved and the exploration ends.
    pub time_limit: Option<f64>,
    pub checkpoint_seconds: f64,
    pub device: DeviceChoice,
    pub engine: Engine,
    /// Set from elsewhere (a signal) to end after the steps under way, with checkpoints.
    pub stop: Arc<AtomicBool>,
    pub show: Show,
}

/// What all workers know.
pub struct Work<'p> {
    pub plan: &'p Plan,
    pub folder: &'p Folder,
    path: &'p Path,
    /// The SHA-256 of the file when it was planned.
    known: String,
    /// Settings over the file that all trials have.
    set: &'p [String],
    pub o: &'p Options,
    ladder: Mutex<Ladder>,
    promotions: Mutex<Vec<Promoted>>,
    /// By worker: what it does.
    pub under_way: Mutex<BTreeMap<usize, Task>>,
    pub halt: Arc<AtomicBool>,
    refused: Mutex<Option<Failure>>,
    /// Lines about what has happened.
    said: Mutex<Vec<String>>,
    start: Instant,
    /// Seconds of earlier sittings.
    before: f64,
    noted: Mutex<f64>,
}

pub fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a trial is known by.
fn hash(plan: &Plan, trial: usize) -> Done<&str> {
    let known = plan.trials[trial].hash.as_deref();
    known.ok_or_else(|| Failure::internal("a trial is run without its data"))
}

/// What a file of results is called by: the last step of a rung; `None` at the end of training.
fn step_of(plan: &Plan, task: Task) -> Option<u64> {
    let rungs = &plan.models[plan.trials[task.trial].model].rungs;
    (task.rung + 1 < rungs.len()).then(|| rungs[task.rung])
}

/// What came out of a trial of a plan at the ends of its rungs, where it has got so far.
///
/// # Errors
/// When a result cannot be read.
pub fn outcomes(plan: &Plan, folder: &Folder, trial: usize) -> Done<Vec<Option<Outcome>>> {
    let rungs = plan.models[plan.trials[trial].model].rungs.len();
    let each = (0..rungs).map(|rung| {
        let step = step_of(plan, Task { trial, rung });
        folder.outcome(hash(plan, trial)?, step)
    });
    each.collect()
}

/// What the folder says of a plan's trials.
fn ladder(plan: &Plan, folder: &Folder, promotions: &[Promoted]) -> Done<Ladder> {
    let models: Vec<usize> = plan.trials.iter().map(|t| t.model).collect();
    let rungs: Vec<Vec<u64>> = plan.models.iter().map(|m| m.rungs.clone()).collect();
    let best = match plan.rank {
        Rank::HeldOut => Best::Smallest,
        Rank::Accuracy => Best::Largest,
    };
    let factor = plan.halving.map_or(1, |h| h.factor);
    let mut ladder = Ladder::new(&models, &rungs, factor, best);
    for (trial, model) in models.iter().enumerate() {
        let hash = hash(plan, trial)?;
        for p in promotions
            .iter()
            .filter(|p| p.trials.iter().any(|t| t == hash))
        {
            if let Some(to) = rungs[*model].iter().position(|end| *end == p.to) {
                ladder.promoted(*model, to);
            }
        }
        if let Some(step) = position(&folder.run(hash)) {
            ladder.stands(trial, step);
        }
        for (rung, outcome) in outcomes(plan, folder, trial)?.iter().enumerate() {
            if let Some(outcome) = outcome {
                ladder.done(Task { trial, rung }, outcome.value(plan.rank));
            }
        }
    }
    Ok(ladder)
}

/// The step of a run's checkpoint. One that cannot be read is told of when the run is continued.
fn position(run: &Path) -> Option<u64> {
    let checkpoint = Checkpoint::open(&run.join(CHECKPOINT)).ok()?;
    Some(checkpoint.progress().ok()?.step)
}

impl<'p> Work<'p> {
    /// What is left of a plan.
    ///
    /// # Errors
    /// When something in the folder cannot be read.
    pub fn new(
        plan: &'p Plan,
        folder: &'p Folder,
        base: &Parsed,
        path: &'p Path,
        set: &'p [String],
        o: &'p Options,
    ) -> Done<Work<'p>> {
        let promotions = folder.promotions()?;
        let before = folder.seconds()?;
        Ok(Work {
            plan,
            folder,
            path,
            known: sha256(base.sources.text(base.main).as_bytes()),
            set,
            o,
            ladder: Mutex::new(ladder(plan, folder, &promotions)?),
            promotions: Mutex::new(promotions),
            under_way: Mutex::default(),
            halt: Arc::default(),
            refused: Mutex::new(None),
            said: Mutex::new(Vec::new()),
            start: Instant::now(),
            before,
            noted: Mutex::new(0.0),
        })
    }

    /// Trials that have something to do, those among them that wait for others aside.
    pub fn left(&self) -> usize {
        let ladder = locked(&self.ladder);
        let all = 0..self.plan.trials.len();
        all.filter(|t| ladder.due(*t).is_some()).count()
    }

    pub fn is_complete(&self) -> bool {
        locked(&self.ladder).is_complete()
    }

    /// Of this sitting.
    pub fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Whether the budget is used up.
    pub fn is_spent(&self) -> bool {
        let all = self.before + self.elapsed();
        self.plan.budget.is_some_and(|budget| all >= budget)
    }

    /// Writes down now and then how long was trained; at the end, `always`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn note_time(&self, always: bool) -> Done {
        let elapsed = self.elapsed();
        let mut noted = locked(&self.noted);
        if always || elapsed - *noted >= NOTED {
            *noted = elapsed;
            self.folder.keep_seconds(self.before + elapsed)?;
        }
        Ok(())
    }

    /// What a worker does next; promotions are written down on the way.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn next(&self, worker: usize) -> Done<Next> {
        let mut ladder = locked(&self.ladder);
        loop {
            match ladder.next(!self.is_spent()) {
                Next::Promoted(p) => self.promoted(p)?,
                Next::Task(task) => {
                    locked(&self.under_way).insert(worker, task);
                    return Ok(Next::Task(task));
                }
                other => return Ok(other),
            }
        }
    }

    fn promoted(&self, p: Promotion) -> Done {
        let model = &self.plan.models[p.model];
        let own = (0..self.plan.trials.len()).filter(|t| self.plan.trials[*t].model == p.model);
        let trials = own.map(|t| hash(self.plan, t).map(String::from));
        let mut all = locked(&self.promotions);
        all.push(Promoted {
            trials: trials.collect::<Done<_>>()?,
            label: model.label.clone(),
            from: model.rungs[p.to - 1],
            to: model.rungs[p.to],
            among: p.among,
        });
        self.folder.keep_promotions(&all)?;
        self.say(format!(
            "{} is among the best 1/{} of {} models: it goes on to rung {} of {}",
            model.label,
            self.plan.halving.map_or(1, |h| h.factor),
            p.among,
            p.to + 1,
            model.rungs.len()
        ));
        Ok(())
    }

    pub fn name(&self, trial: usize) -> String {
        let t = &self.plan.trials[trial];
        format!("{}, seed {}", self.plan.models[t.model].label, t.seed)
    }

    /// What is asked of whoever trains.
    ///
    /// # Errors
    /// odec's own.
    pub fn request(&self, task: Task, threads: usize) -> Done<Request> {
        let mut set = self.set.to_vec();
        set.extend(self.plan.trials[task.trial].overrides());
        Ok(Request {
            name: self.name(task.trial),
            file: self.path.to_path_buf(),
            known: self.known.clone(),
            set,
            run: self.folder.run(hash(self.plan, task.trial)?),
            pause: step_of(self.plan, task),
            threads,
            checkpoint_seconds: self.o.checkpoint_seconds,
            let_go: 0.0,
        })
    }

    /// Keeps what came out of a task; `None`: it was ended before.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn ended(&self, worker: usize, task: Task, outcome: Option<Outcome>) -> Done {
        locked(&self.under_way).remove(&worker);
        let hash = hash(self.plan, task.trial)?;
        let Some(outcome) = outcome else {
            let step = position(&self.folder.run(hash));
            locked(&self.ladder).returned(task, step);
            return Ok(());
        };
        self.folder.keep(hash, step_of(self.plan, task), &outcome)?;
        locked(&self.ladder).done(task, outcome.value(self.plan.rank));
        let rungs = self.plan.models[self.plan.trials[task.trial].model]
            .rungs
            .len();
        let at = match rungs {
            1 => String::new(),
            all => format!("rung {} of {all}, ", task.rung + 1),
        };
        let said = match (&outcome.held_out_loss, &outcome.why) {
            (Some(loss), _) => {
                format!("{at}held-out loss {loss:.4}, {}", duration(outcome.seconds))
            }
            (None, why) => why.clone().unwrap_or_default(),
        };
        self.say(format!("{hash}  {}: {said}", self.name(task.trial)));
        Ok(())
    }

    pub fn say(&self, line: String) {
        locked(&self.said).push(line);
    }

    /// What was said since the last time.
    pub fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.said))
    }

    /// Ends everything because of a failure; the first one is told.
    pub fn refuse(&self, failure: Failure) {
        self.halt.store(true, Ordering::Relaxed);
        locked(&self.refused).get_or_insert(failure);
    }

    pub fn refused(&self) -> Option<Failure> {
        locked(&self.refused).take()
    }
}

impl Outcome {
    /// What models are ranked by; `None` of a trial that diverged.
    pub fn value(&self, by: Rank) -> Option<f64> {
        let value = match by {
            Rank::HeldOut => self.held_out_loss,
            Rank::Accuracy => self.accuracy,
        };
        value.filter(|v| v.is_finite() && self.state != State::Diverged)
    }
}
