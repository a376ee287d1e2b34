//! Where the time of a program goes, kernel by kernel.
//!
//! Takes launches and how long they took, where somebody knows; gives a table, or rows for programs to read. Leaves measuring
//! to [`crate::executor`] and the device.

use crate::device::memory::WORD;
use odec_program::KernelSpec;
use odec_program::kernel::Signature;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Time and launches per kernel and entry.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    rows: BTreeMap<(String, u32), Sum>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    kernel: String,
    dims: Vec<u64>,
    launches: u64,
    /// Of the launches whose time is known,
    time: Option<Duration>,
    /// multiply-adds times two of contractions, 0 for other kernels,
    flops: f64,
    /// and bytes of operands, each counted once.
    bytes: f64,
}

/// One launch.
pub struct Launched<'a> {
    pub kernel: u32,
    pub spec: &'a KernelSpec,
    pub dims: &'a [u64],
    pub signature: &'a Signature,
    /// Nothing where nothing was computed.
    pub time: Option<Duration>,
}

/// All launches of a kernel in an entry. Rates and times are absent where they are not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub entry: String,
    pub kernel: String,
    /// Of the first launch.
    pub dims: Vec<u64>,
    pub launches: u64,
    pub ms: Option<f64>,
    /// Of all the time measured, between 0 and 1.
    pub share: Option<f64>,
    /// 10⁹ operations per second, of contractions.
    pub gflop_per_s: Option<f64>,
    /// 10⁹ bytes of operands per second.
    pub gbyte_per_s: Option<f64>,
}

impl Profile {
    /// Counts one launch of a kernel.
    pub fn add(&mut self, entry: &str, l: Launched) {
        let multiply_adds = l.signature.work.contractions.at(l.dims);
        let row = self.rows.entry((entry.to_string(), l.kernel));
        let row = row.or_insert_with(|| Sum {
            kernel: l.spec.symbol(),
            dims: l.dims.to_vec(),
            ..Sum::default()
        });
        row.launches += 1;
        if let Some(time) = l.time {
            *row.time.get_or_insert_default() += time;
            row.flops += 2.0 * multiply_adds.unwrap_or(0) as f64;
            row.bytes += l.signature.words(l.dims).saturating_mul(WORD) as f64;
        }
    }

    /// All the time measured.
    pub fn total(&self) -> Duration {
        self.rows.values().filter_map(|r| r.time).sum()
    }

    /// One row per kernel and entry, the longest first.
    pub fn rows(&self) -> Vec<Row> {
        let total = self.total().as_secs_f64().max(1e-12);
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|((entry, kernel), r)| {
            (std::cmp::Reverse(r.time), entry.clone(), *kernel)
        });
        let row = |((entry, _), r): (&(String, u32), &Sum)| {
            let seconds = r.time.map(|t| t.as_secs_f64());
            let rate = |of: f64| seconds.map(|s| of / s.max(1e-12) / 1e9);
            Row {
                entry: entry.clone(),
                kernel: r.kernel.clone(),
                dims: r.dims.clone(),
                launches: r.launches,
                ms: seconds.map(|s| s * 1e3),
                share: seconds.map(|s| s / total),
                gflop_per_s: rate(r.flops).filter(|_| r.flops > 0.0),
                gbyte_per_s: rate(r.bytes),
            }
        };
        rows.into_iter().map(row).collect()
    }
}

impl fmt::Display for Profile {
    /// One line per kernel, the longest first: share, milliseconds, launches, Gflop/s, GB/s, entry, symbol and dims of
    /// the first launch.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let number = |x: Option<f64>, digits| match x {
            Some(x) => format!("{x:.digits$}"),
            None => "-".into(),
        };
        for r in self.rows() {
            writeln!(
                f,
                "{:>5} % {:>10} ms {:7} × {:>8} Gflop/s {:>7} GB/s  {:8} {} {:?}",
                number(r.share.map(|s| 100.0 * s), 1),
                number(r.ms, 2),
                r.launches,
                number(r.gflop_per_s, 1),
                number(r.gbyte_per_s, 1),
                r.entry,
                r.kernel,
                r.dims
            )?;
        }
        Ok(())
    }
}
