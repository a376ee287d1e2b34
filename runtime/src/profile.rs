//! Where the time of a program goes, kernel by kernel.

use odec_program::KernelSpec;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Time and launches per kernel and entry.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    rows: BTreeMap<(String, u32), Row>,
}

#[derive(Clone, Debug)]
struct Row {
    what: String,
    launches: u64,
    time: Duration,
    /// Multiply-adds times two of contractions, 0 for other kernels.
    flops: f64,
}

impl Profile {
    /// Counts one launch of a kernel.
    pub fn add(
        &mut self,
        kernel: u32,
        entry: &str,
        spec: &KernelSpec,
        dims: &[u64],
        time: Duration,
    ) {
        let flops = match spec {
            KernelSpec::Contract(_) => 2.0 * dims.iter().map(|d| *d as f64).product::<f64>(),
            _ => 0.0,
        };
        let what = || format!("{} {dims:?}", spec.symbol());
        let row = self
            .rows
            .entry((entry.to_string(), kernel))
            .or_insert_with(|| Row {
                what: what(),
                launches: 0,
                time: Duration::ZERO,
                flops: 0.0,
            });
        row.launches += 1;
        row.time += time;
        row.flops += flops;
    }

    /// All the time measured.
    pub fn total(&self) -> Duration {
        self.rows.values().map(|r| r.time).sum()
    }
}

impl fmt::Display for Profile {
    /// One line per kernel, the longest first: share, milliseconds, launches, Gflop/s, entry, symbol and dims of
    /// the first launch.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let total = self.total().as_secs_f64().max(1e-12);
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|((entry, kernel), r)| {
            (std::cmp::Reverse(r.time), entry.clone(), *kernel)
        });
        for ((entry, _), r) in rows {
            let seconds = r.time.as_secs_f64();
            let rate = if r.flops > 0.0 {
                format!("{:.1}", r.flops / seconds.max(1e-12) / 1e9)
            } else {
                "-".into()
            };
            let (share, ms) = (100.0 * seconds / total, seconds * 1e3);
            writeln!(
                f,
                "{share:5.1} % {ms:10.2} ms {:7} × {rate:>7} Gflop/s  {entry:8} {}",
                r.launches, r.what
            )?;
        }
        Ok(())
    }
}
