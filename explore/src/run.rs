//! Runs what is planned and not there yet, several trials at once.
//!
//! Takes a plan and its folder; leaves a run and results of each trial. A trial is trained in this process as `odec train` would, with a checkpoint
//! now and then, so that an exploration that is killed goes on where its trials were. What goes wrong beside numbers
//! ends the exploration after the trials under way are saved. Leaves trials on other machines to `ray.rs`.

use crate::display::{Display, started, watch};
use crate::folder::Folder;
use crate::ladder::Next;
use crate::plan::Plan;
use crate::ray;
use crate::share::{Share, cores, fit, share};
use crate::trial::carry_out;
use crate::work::{Engine, Options, Work};
use odec_driver::fail::Done;
use odec_driver::source::Parsed;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Complete,
    TimeLimit,
    /// Nothing new was begun: the budget of the file is used up.
    Budget,
    Asked,
}

/// Runs all trials that have no result yet.
///
/// # Errors
/// When a trial cannot be run, for another reason than its numbers.
pub fn run(
    plan: &Plan,
    folder: &Folder,
    base: &Parsed,
    path: &Path,
    set: &[String],
    o: &Options,
) -> Done<Ended> {
    let work = Work::new(plan, folder, base, path, set, o)?;
    if work.is_complete() {
        return Ok(Ended::Complete);
    }
    match &o.engine {
        Engine::Local => here(
            &work,
            share(cores(), work.left().max(1), fit(plan, base, o)?, o.jobs),
        ),
        Engine::Ray { address, retries } => ray::run(&work, base, address.as_deref(), *retries)?,
    }
    ended(&work)
}

/// Runs what is left in this process.
fn here(work: &Work, share: Share) {
    started(work, share.jobs, share.threads, "");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..share.jobs)
            .map(|n| scope.spawn(move || local(work, n, share.threads)))
            .collect();
        let mut display = Display::new(work, share.jobs);
        while threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            watch(work, &mut display);
        }
        display.finish(work);
    });
}

/// Why everything has ended.
fn ended(work: &Work) -> Done<Ended> {
    if let Some(failure) = work.refused() {
        return Err(failure);
    }
    work.note_time(true)?;
    Ok(match work.is_complete() {
        true => Ended::Complete,
        false if work.o.stop.load(Ordering::Relaxed) => Ended::Asked,
        // Trials that were stopped are the time limit's, not the budget's.
        false if work.halt.load(Ordering::Relaxed) => Ended::TimeLimit,
        false => Ended::Budget,
    })
}

/// Carries out one task after the other in this process.
fn local(work: &Work, worker: usize, threads: usize) {
    while !work.halt.load(Ordering::Relaxed) {
        let done = match work.next(worker) {
            Ok(Next::Task(task)) => work
                .request(task, threads)
                .and_then(|r| carry_out(&r, work.o.device, &work.halt))
                .and_then(|outcome| work.ended(worker, task, outcome)),
            Ok(Next::Nothing) => return,
            Ok(_) => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = done {
            work.refuse(failure);
        }
    }
}
