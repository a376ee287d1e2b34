//! One trial, trained to the end of a rung and evaluated there.
//!
//! Takes what `odec train` would, and the step at which to stop; gives what came out. A run that is there is continued from its checkpoint, so the trial may be asked for
//! again, elsewhere too, after whatever ended it. Numbers that stop being finite are a result; everything else that goes wrong is an error.

use crate::folder::{Outcome, State};
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::read;
use odec_runtime::system::hash::sha256;
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::train::lock;
use odec_runtime::{
    DeviceChoice, End, Run, Settings, Show, Shown, Summary, TrainError, Weights, dataset_of,
    evaluate, open_run_with,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is to be trained.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// As messages call it.
    pub name: String,
    /// The file that is explored,
    pub file: PathBuf,
    /// and the SHA-256 of its text when it was planned.
    pub known: String,
    /// As `--set` takes them.
    pub set: Vec<String>,
    /// The run's folder.
    pub run: PathBuf,
    /// The step at which the rung ends; `None`: the end of training.
    pub pause: Option<u64>,
    pub threads: usize,
    /// Between checkpoints.
    pub checkpoint_seconds: f64,
    /// Seconds to wait for another process that still trains in the run's folder.
    pub let_go: f64,
}

/// Trains a trial to the end of its rung, and evaluates it on all held-out data. `None`: `stop` was set before, and there is a checkpoint.
///
/// # Errors
/// When it cannot be trained, for another reason than its numbers.
pub fn carry_out(
    r: &Request,
    device: DeviceChoice,
    stop: &Arc<AtomicBool>,
) -> Done<Option<Outcome>> {
    let settings = Settings {
        pause: r.pause,
        device,
        threads: Some(r.threads),
        unsigned: artifact::unsigned(false),
        checkpoint_seconds: r.checkpoint_seconds,
        show: Show::Nothing,
        stop: stop.clone(),
        ..Settings::default()
    };
    let start = Instant::now();
    let trained = loop {
        let done = train(r, &settings)?;
        let wait = start.elapsed().as_secs_f64() < r.let_go && !stop.load(Ordering::Relaxed);
        match done {
            // Begun by a process that is about to end; then it is continued.
            Err(TrainError::Busy { .. } | TrainError::Occupied { .. }) if wait => {
                std::thread::sleep(Duration::from_millis(100));
            }
            done => break done,
        }
    };
    match trained {
        Ok(summary) if summary.end == End::Asked => Ok(None),
        Ok(summary) => {
            let held_out = evaluated(&r.run, &settings)?;
            let state = match r.pause {
                Some(_) => State::Stopped,
                None => State::Complete,
            };
            Ok(Some(Outcome {
                state,
                steps: summary.steps,
                seconds: summary.seconds,
                step_seconds: summary.of_steps.seconds,
                flops: summary.of_steps.flops,
                optimizer_flops: summary.of_steps.optimizer_flops,
                ..held_out
            }))
        }
        Err(TrainError::NonFinite {
            what, step, place, ..
        }) => Ok(Some(Outcome {
            state: State::Diverged,
            steps: step,
            seconds: 0.0,
            step_seconds: None,
            flops: None,
            optimizer_flops: None,
            held_out_loss: None,
            of: None,
            number: None,
            accuracy: None,
            why: Some(format!("the {what} is not finite at step {step}{place}")),
        })),
        Err(e) => Err(Failure::Input(format!("{}: {e}", r.name))),
    }
}

fn train(r: &Request, s: &Settings) -> Done<Result<Summary, TrainError>> {
    let out = &r.run;
    if out.join(CHECKPOINT).exists() {
        return Ok(Run::resume(out, s).and_then(|mut run| run.finish(s)));
    }
    // What was planned is what is trained.
    if sha256(read(&r.file)?.as_bytes()) != r.known {
        let path = r.file.shown();
        return Err(Failure::Input(format!(
            "{path} was changed while it was explored; start the exploration again"
        )));
    }
    if let Err(e) = lock::claim(out) {
        return Ok(Err(e));
    }
    let claim = |_: &str| Ok(());
    let (artifact, _guard) = artifact::trainable(&r.file, &r.set, s.device, false, claim)?;
    Ok(Run::start(&artifact, out, s).and_then(|mut run| run.finish(s)))
}

/// What `odec eval` says of a run.
fn evaluated(run: &Path, s: &Settings) -> Done<Outcome> {
    let x = open_run_with(run, s.device, s.threads, s.unsigned, Weights::default());
    let mut x = x.map_err(Failure::input)?;
    let data = dataset_of(run, &[], Show::Nothing).map_err(Failure::input)?;
    let e = evaluate(&mut x, &*data, None, &mut |_| {}).map_err(Failure::input)?;
    let finite = e.loss.is_finite();
    Ok(Outcome {
        state: State::Complete,
        steps: 0,
        seconds: 0.0,
        step_seconds: None,
        flops: None,
        optimizer_flops: None,
        held_out_loss: Some(e.loss).filter(|_| finite),
        of: Some(e.of.unit().name().to_string()),
        number: Some(e.of.number()),
        accuracy: e.accuracy,
        why: (!finite).then(|| "the held-out loss is not finite".to_string()),
    })
}
