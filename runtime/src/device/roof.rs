//! What this machine can do at most, measured: multiply-adds per second, and bytes read per second.
//!
//! Takes the threads that launches run on; gives a [`Roof`], of which each rate is measured for 50 ms. Multiply-adds are in registers; reading is that of a
//! buffer, of several sizes, because what lies in a cache is read faster. All threads work at once, and of many short tries of each the
//! fastest tenth says how fast it is: what other processes interrupt does not count. Leaves what is timed to [`crate::device::loops`].

use crate::device::loops::{self, Sum};
use crate::system::pool::Pool;
use odec_program::kernel::{KernelSpec, Order};
use odec_program::{DType, Target};
use serde::Serialize;
use std::hint::black_box;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the buffers that are read: of a core's own caches, of the shared one, of none.
const SIZES: [usize; 4] = [256 << 10, 1 << 20, 8 << 20, 256 << 20];
/// How long tries of one rate take together.
const WHILE: Duration = Duration::from_millis(50);
/// Words that a try reads: so few that the system seldom interrupts it.
const TRY: usize = 1 << 18;

/// What all threads together can do at most. A launch that does some operations on some bytes takes at least [`Roof::seconds`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roof {
    pub threads: usize,
    /// 10⁹ operations per second, two of each multiply-add.
    pub gflop_per_s: f64,
    /// The same of dot products of pairs of bf16, or of products of tiles, where the target has them.
    pub pairs_gflop_per_s: Option<f64>,
    /// By rising size.
    pub reading: Vec<Reading>,
}

/// How fast a buffer is read again and again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub bytes: u64,
    pub gbyte_per_s: f64,
}

impl Roof {
    /// Measures what threads can do with a target's instructions, computing in `real`; `None` where nobody knows how.
    pub fn measure(pool: &mut Pool, target: Target, real: DType) -> Option<Roof> {
        let work = loops::multiply_adds(target, real)?;
        let pairs = loops::pairs(target);
        let sum = loops::sum(target)?;
        let words = vec![1u64; SIZES[SIZES.len() - 1] / size_of::<u64>()];
        let reading = SIZES.iter().map(|bytes| Reading {
            bytes: *bytes as u64,
            gbyte_per_s: reading(pool, &words[..bytes / size_of::<u64>()], sum),
        });
        let reading = reading.collect();
        Some(Roof {
            threads: pool.threads(),
            gflop_per_s: rate(pool, work.operations, &|_| (work.run)()),
            pairs_gflop_per_s: pairs.map(|work| rate(pool, work.operations, &|_| (work.run)())),
            reading,
        })
    }

    /// The least time of a launch that does so many operations (multiply-adds times two) on so many bytes. `None` of products that are not measured.
    pub fn seconds(&self, spec: &KernelSpec, operations: f64, bytes: f64) -> Option<f64> {
        let order = match spec {
            KernelSpec::Contract(c) => c.order,
            KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
                a.order
            }
            _ => Order::Chain,
        };
        let rate = match order.in_pairs() {
            true => self.pairs_gflop_per_s?,
            false => self.gflop_per_s,
        };
        Some((operations / rate).max(bytes / self.reading(bytes)) / 1e9)
    }

    /// 10⁹ bytes per second where so many are used: those of the smallest buffer that holds them, and at least those of larger ones.
    pub fn reading(&self, bytes: f64) -> f64 {
        let smaller = |r: &&Reading| (r.bytes as f64) < bytes;
        let from = self.reading.iter().take_while(smaller).count();
        let from = from.min(self.reading.len() - 1);
        let rates = self.reading[from..].iter().map(|r| r.gbyte_per_s);
        rates.fold(0.0, f64::max)
    }
}

/// 10⁹ units per second of all threads at once, by a good try of each; `work` is a try of a thread, of so many units.
fn rate(pool: &mut Pool, units: f64, work: &(dyn Fn(usize) + Sync)) -> f64 {
    let threads = pool.threads();
    let tries: Vec<Mutex<Vec<Duration>>> = (0..threads).map(|_| Mutex::default()).collect();
    let begin = Instant::now();
    while begin.elapsed() < WHILE {
        pool.run(32 * threads as u64, false, &|thread, begin, end| {
            let mut own = tries[thread].lock().unwrap_or_else(PoisonError::into_inner);
            for _ in begin..end {
                let start = Instant::now();
                work(thread);
                own.push(start.elapsed());
            }
        });
    }
    let good = |own: Mutex<Vec<Duration>>| {
        let mut own = own.into_inner().unwrap_or_else(PoisonError::into_inner);
        own.sort_unstable();
        let time = own.get(own.len() / 10)?;
        Some(units / time.as_secs_f64().max(1e-9) / 1e9)
    };
    // A thread that the system has kept from working all the while counts as the others do.
    let rates: Vec<f64> = tries.into_iter().filter_map(good).collect();
    rates.iter().sum::<f64>() / rates.len().max(1) as f64 * threads as f64
}

/// Of reading some words again and again, a part of them on each thread.
fn reading(pool: &mut Pool, words: &[u64], sum: Sum) -> f64 {
    let part = (words.len() / pool.threads()).max(1);
    let next: Vec<AtomicUsize> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
    rate(pool, (TRY * size_of::<u64>()) as f64, &|thread| {
        let own = &words[thread * part..(thread + 1) * part];
        let (mut at, mut left) = (next[thread].load(Relaxed), TRY);
        while left > 0 {
            let n = left.min(own.len() - at);
            black_box(sum(black_box(&own[at..at + n])));
            at = (at + n) % own.len();
            left -= n;
        }
        next[thread].store(at, Relaxed);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_program::kernel::Rows;

    fn map() -> KernelSpec {
        KernelSpec::Rows(Rows {
            dtype: DType::F32,
            cols: 1,
            operands: vec![],
            uniforms: 0,
            body: Default::default(),
            stores: vec![],
        })
    }

    #[test]
    fn the_longer_of_computing_and_reading_counts() {
        let reading = [(1 << 10, 8.0), (1 << 20, 10.0), (1 << 30, 2.0)];
        let reading = reading.map(|(bytes, gbyte_per_s)| Reading { bytes, gbyte_per_s });
        let roof = Roof {
            threads: 1,
            gflop_per_s: 100.0,
            pairs_gflop_per_s: None,
            reading: reading.to_vec(),
        };
        let seconds = |operations, bytes| roof.seconds(&map(), operations, bytes).unwrap();
        assert_eq!(seconds(1e11, 0.0), 1.0);
        // Of few bytes what is measured of more holds at least.
        assert_eq!(seconds(0.0, 1e3), 1e-7);
        assert_eq!(seconds(1e2, 2e9), 1.0);
    }

    #[test]
    fn rates_of_this_machine_are_positive() {
        let mut pool = Pool::new(2).unwrap();
        let Some(roof) = Roof::measure(&mut pool, Target::Portable, DType::F32) else {
            return;
        };
        assert!(roof.gflop_per_s > 0.0 && roof.reading.iter().all(|r| r.gbyte_per_s > 0.0));
        assert_eq!(roof.threads, 2);
    }
}
