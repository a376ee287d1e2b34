//! A small thread pool that splits `0..tiles` over threads.
//!
//! Takes a number of tiles and a closure; every tile is run exactly once, in chunks. Each thread has a share of neighbouring
//! tiles, the same part in every job, and takes chunks from its front: what it wrote in one launch is mostly what it reads in the next, so
//! rows stay in the caches of its core. One that is done takes chunks from the back of others' shares. A chunk is a part of what is left, so the
//! last ones are small. Workers spin for a moment after a job,
//! because the next launch usually follows within microseconds, then sleep. A job waits only for workers that took part in it: one
//! that the system has put aside does not hold it up.
//!
//! # How it is synchronised
//! `state` holds the job's number (upper bits), whether it is open (bit 16), and how many workers are inside
//! (lower 16 bits). A worker enters by compare-and-swap while the job is open; the caller closes it when
//! all tiles are taken, and returns when nobody is inside. The job itself and the shares are written before
//! it is opened and used only between entering and leaving.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How often an idle worker looks for work before it sleeps: some tens of microseconds.
const SPINS: u32 = 4_000;
/// A chunk is this part of what is left of a share: large enough at first that a kernel can reuse its cache.
const PART: u64 = 4;
/// Units per thread, of which chunks are made: small enough to even out, large enough that taking one costs little beside its work.
const UNITS: u64 = 64;
/// More units than there ever are.
const MANY: u64 = 1 << 32;

const OPEN: u64 = 1 << 16;
const NUMBER: u64 = 1 << 17;
const INSIDE: u64 = OPEN - 1;

/// Runs tiles `begin..end` on thread `n`: `f(n, begin, end)`.
type Task<'a> = dyn Fn(usize, u64, u64) + Sync + 'a;

struct Job {
    task: *const Task<'static>,
    tiles: u64,
    /// Tiles of a unit.
    unit: u64,
}

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Job>,
    /// What is left of each thread's share.
    shares: Box<[Share]>,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleeping: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

/// The units of a thread's share that nobody has taken: the first one in the lower half, the one behind the last in the upper half. On a line of a cache
/// of its own, with the neighbour that processors fetch along.
#[derive(Default)]
#[repr(align(128))]
struct Share(AtomicU64);

impl Share {
    fn fill(&self, units: Range<u64>) {
        let packed = units.start + units.end * MANY;
        self.0.store(packed, Ordering::Relaxed);
    }

    /// Takes a chunk from the front.
    fn front(&self) -> Option<Range<u64>> {
        self.take(|left, n| (left.start..left.start + n, left.start + n..left.end))
    }

    /// Takes a chunk from the back.
    fn back(&self) -> Option<Range<u64>> {
        self.take(|left, n| (left.end - n..left.end, left.start..left.end - n))
    }

    /// Takes from what is left, as `cut` says of that and of a number of units: what is taken, and the rest.
    fn take(
        &self,
        cut: impl Fn(Range<u64>, u64) -> (Range<u64>, Range<u64>),
    ) -> Option<Range<u64>> {
        let mut packed = self.0.load(Ordering::Relaxed);
        loop {
            let left = packed % MANY..packed / MANY;
            if left.is_empty() {
                return None;
            }
            let n = (left.end - left.start).div_ceil(PART);
            let (taken, rest) = cut(left, n);
            let rest = rest.start + rest.end * MANY;
            match self
                .0
                .compare_exchange_weak(packed, rest, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(taken),
                Err(now) => packed = now,
            }
        }
    }
}

// SAFETY: `job` is written only while no job is open and nobody is inside, and read only from inside
// (see the module's text); the task it points to is `Sync`. Everything else is synchronised itself.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is dereferenced only while the caller that made it waits.
unsafe impl Send for Shared {}

/// Threads, the caller included.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    number: u64,
}

impl Pool {
    /// A pool of `threads` threads: the caller and `threads − 1` workers.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let idle: &'static Task<'static> = &|_, _, _| {};
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(Job {
                task: idle,
                tiles: 0,
                unit: 1,
            }),
            shares: (0..threads.max(1)).map(|_| Share::default()).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut pool = Pool {
            shared,
            workers: Vec::new(),
            number: 0,
        };
        for n in 1..threads.clamp(1, INSIDE as usize) {
            let shared = pool.shared.clone();
            pool.workers.push(
                std::thread::Builder::new()
                    .name(format!("odec-{n}"))
                    .spawn(move || worker(&shared, n))?,
            );
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs all tiles, and returns when they are done. With one thread, or `alone`, they run here.
    ///
    /// # Panics
    /// When the task did, on any thread.
    pub fn run(&mut self, tiles: u64, alone: bool, task: &Task<'_>) {
        if tiles == 0 {
            return;
        }
        if alone || tiles == 1 || self.workers.is_empty() {
            return task(0, 0, tiles);
        }
        let s = &*self.shared;
        let unit = (tiles / (self.threads() as u64 * UNITS)).max(1);
        // SAFETY: only the lifetime is erased. `Close` below, also when the task panics here, waits until
        // nobody is inside, so no worker holds the pointer when this function returns.
        let task: &'static Task<'static> = unsafe { std::mem::transmute(task) };
        // SAFETY: the job is closed and nobody is inside: this is the only access.
        unsafe { *s.job.get() = Job { task, tiles, unit } };
        let units = tiles.div_ceil(unit);
        let first = |n: usize| units * n as u64 / s.shares.len() as u64;
        for (n, share) in s.shares.iter().enumerate() {
            share.fill(first(n)..first(n + 1));
        }
        self.number += 1;
        s.state
            .store((self.number * NUMBER) | OPEN, Ordering::SeqCst);
        if s.sleeping.load(Ordering::SeqCst) > 0 {
            drop(s.lock.lock().unwrap_or_else(PoisonError::into_inner));
            s.wake.notify_all();
        }
        {
            let _close = Close(s);
            s.take_chunks(task, tiles, unit, 0);
        }
        assert!(
            !s.panicked.load(Ordering::Relaxed),
            "a kernel panicked on another thread"
        );
    }
}

impl Shared {
    fn take_chunks(&self, task: &Task<'_>, tiles: u64, unit: u64, thread: usize) {
        let own = std::iter::from_fn(|| self.shares[thread].front());
        let others = (1..self.shares.len()).map(|n| (thread + n) % self.shares.len());
        let others = others.flat_map(|n| std::iter::from_fn(move || self.shares[n].back()));
        for chunk in own.chain(others) {
            task(thread, chunk.start * unit, (chunk.end * unit).min(tiles));
        }
    }

    /// Whether there is an open job other than number `seen`.
    fn fresh(&self, state: u64, seen: u64) -> bool {
        state & OPEN != 0 && state / NUMBER != seen
    }
}

/// Closes the job and waits for those inside, also while unwinding.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.fetch_and(!OPEN, Ordering::SeqCst) & !OPEN;
        let mut spins = 0u32;
        while state & INSIDE != 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            state = self.0.state.load(Ordering::Acquire);
        }
    }
}

fn worker(s: &Shared, thread: usize) {
    let mut seen = 0;
    let mut spins = 0u32;
    loop {
        let state = s.state.load(Ordering::SeqCst);
        if s.fresh(state, seen) {
            if s.state
                .compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            seen = state / NUMBER;
            // SAFETY: we are inside: the job is not written before we leave, and its task lives.
            let (task, tiles, unit) = unsafe {
                let job = &*s.job.get();
                (&*job.task, job.tiles, job.unit)
            };
            let run = std::panic::AssertUnwindSafe(|| s.take_chunks(task, tiles, unit, thread));
            if std::panic::catch_unwind(run).is_err() {
                s.panicked.store(true, Ordering::Relaxed);
            }
            s.state.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        } else if s.stop.load(Ordering::Relaxed) {
            return;
        } else if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else {
            let mut guard = s.lock.lock().unwrap_or_else(PoisonError::into_inner);
            s.sleeping.fetch_add(1, Ordering::SeqCst);
            while !s.fresh(s.state.load(Ordering::SeqCst), seen) && !s.stop.load(Ordering::SeqCst) {
                guard = s.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            s.sleeping.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(
            self.shared
                .lock
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.shared.wake.notify_all();
        for w in self.workers.drain(..) {
            let _ = w.join();
        }
    }
}

/// What the system offers, asked once: it reads a dozen files of `/proc` and `/sys` for it.
static OFFERED: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// Threads to use: `ODEC_THREADS`, or as many as the system offers.
pub fn default_threads() -> usize {
    let asked = std::env::var("ODEC_THREADS")
        .ok()
        .and_then(|s| s.trim().parse().ok())
        .filter(|n| *n > 0);
    asked.unwrap_or_else(|| *OFFERED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn every_tile_runs_once_on_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads);
            for tiles in [0, 1, 2, 5, 64, 1000] {
                let count: Vec<AtomicU64> = (0..tiles).map(|_| AtomicU64::new(0)).collect();
                pool.run(tiles, false, &|thread, begin, end| {
                    assert!(thread < threads && begin < end);
                    for t in begin..end {
                        count[t as usize].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(
                    count.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {tiles} tiles"
                );
            }
        }
    }

    #[test]
    fn each_thread_begins_with_its_own_share() {
        let mut pool = Pool::new(2).unwrap();
        for (tiles, second) in [(2, 1), (128, 64), (1_000, 497)] {
            let both = Barrier::new(2);
            let first = [const { AtomicU64::new(u64::MAX) }; 2];
            // Neither helps the other before both have begun.
            pool.run(tiles, false, &|thread, begin, _| {
                let none = u64::MAX;
                let set = first[thread].compare_exchange(
                    none,
                    begin,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if set.is_ok() {
                    both.wait();
                }
            });
            assert_eq!(first.map(AtomicU64::into_inner), [0, second]);
        }
    }

    #[test]
    fn thousands_of_jobs_in_a_row_with_and_without_sleep_between() {
        let mut pool = Pool::new(3).unwrap();
        let sum = AtomicU64::new(0);
        for job in 0..20_000u64 {
            if job % 4_000 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            pool.run(7, false, &|_, begin, end| {
                sum.fetch_add((begin..end).sum(), Ordering::Relaxed);
            });
        }
        assert_eq!(sum.into_inner(), 20_000 * 21);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_can_be_dropped() {
        let mut pool = Pool::new(4).unwrap();
        let run = std::panic::AssertUnwindSafe(|| {
            pool.run(64, false, &|_, begin, _| {
                assert!(begin < 10, "tile {begin}")
            })
        });
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
