//! Launches as they were measured, one by one.
//!
//! Takes each launch with its time, where somebody knows it; keeps them in their order. Leaves measuring to [`crate::executor`] and the
//! device, sums and pictures to [`mod@crate::profile`].

use crate::device::Busy;
use crate::device::memory::WORD;
use odec_program::EntryId;
use odec_program::kernel::Signature;
use std::time::{Duration, Instant};

/// Launches since [`crate::Executor::start_profile`].
#[derive(Clone, Debug)]
pub struct Profile {
    pub launches: Vec<Launched>,
    /// Whole steps so far: each ends with the optimiser's.
    pub steps: u32,
    pub(crate) began: Instant,
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// Number of the step.
    pub step: u32,
    pub entry: EntryId,
    /// Number of the instruction in its entry.
    pub instr: usize,
    pub dims: Vec<u64>,
    /// Multiply-adds times two of contractions, attention and recurrences; 0 for other kernels.
    pub operations: f64,
    /// Of operands, each counted once.
    pub bytes: f64,
    /// Since the profile began. A device that works by itself does not say: its launches follow each other.
    pub begin: Duration,
    /// Nothing where nothing was computed.
    pub time: Option<Duration>,
    /// When threads were busy with it, where the device says so.
    pub threads: Vec<OnThread>,
}

/// A thread's part of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnThread {
    pub thread: usize,
    /// Since the profile began.
    pub begin: Duration,
    pub time: Duration,
}

impl Launched {
    pub fn end(&self) -> Duration {
        self.begin + self.time.unwrap_or_default()
    }
}

/// What is known of a launch on a device in step when it is done.
pub(crate) struct Timing {
    pub start: Instant,
    pub time: Duration,
    pub busy: Vec<Busy>,
}

/// A launch that a run made.
pub(crate) struct TimedLaunch {
    pub instr: usize,
    pub kernel: u32,
    pub dims: Vec<u64>,
    pub timing: Option<Timing>,
}

impl Profile {
    pub(crate) fn new() -> Profile {
        Profile {
            launches: Vec::new(),
            steps: 0,
            began: Instant::now(),
        }
    }

    /// Adds the launches of a run; `later` are the times that a device measured by itself.
    pub(crate) fn add(
        &mut self,
        entry: EntryId,
        made: Vec<TimedLaunch>,
        signatures: &[Signature],
        later: &[Option<Duration>],
    ) {
        for (n, l) in made.into_iter().enumerate() {
            let signature = &signatures[l.kernel as usize];
            let since = |t: Instant| t.duration_since(self.began);
            let (begin, time, threads) = match l.timing {
                Some(t) => {
                    let part = |b: Busy| OnThread {
                        thread: b.thread,
                        begin: since(b.from),
                        time: b.to.duration_since(b.from),
                    };
                    let threads = t.busy.into_iter().map(part).collect();
                    (since(t.start), Some(t.time), threads)
                }
                None => {
                    let before = self.launches.last().map_or(Duration::ZERO, Launched::end);
                    (before, later.get(n).copied().flatten(), vec![])
                }
            };
            self.launches.push(Launched {
                step: self.steps,
                entry,
                instr: l.instr,
                operations: 2.0 * signature.work.multiply_adds(&l.dims) as f64,
                bytes: signature.words(&l.dims).saturating_mul(WORD) as f64,
                dims: l.dims,
                begin,
                time,
                threads,
            });
        }
        if entry == EntryId::Update {
            self.steps += 1;
        }
    }

    /// All the time measured.
    pub fn total(&self) -> Duration {
        self.launches.iter().filter_map(|l| l.time).sum()
    }
}
