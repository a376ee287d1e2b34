//! Launches added up: by origin and kernel, by kernel, by field, by kind of kernel.
//!
//! Takes named launches; gives rows, the longest first, whose times add up to the time of all launches.

use crate::profile::{Named, NamedProfile};
use odec_program::site::Role;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Some launches together. Times and rates are absent where nothing was computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    pub launches: u64,
    pub ms: Option<f64>,
    /// Of the time of all launches, between 0 and 1.
    pub share: Option<f64>,
    /// 10⁹ operations per second, of those kernels that multiply and add.
    pub gflop_per_s: Option<f64>,
    /// 10⁹ bytes of operands per second.
    pub gbyte_per_s: Option<f64>,
    /// The least time by the roof in proportion to the time taken; absent where the roof of one of them is not known.
    pub roof: Option<f64>,
}

/// All launches of one origin and one kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub name: String,
    pub entry: String,
    pub field: String,
    pub role: Role,
    pub step: Option<u32>,
    pub kernel: String,
    pub kind: &'static str,
    #[serde(flatten)]
    pub sum: Sum,
}

/// All launches of a kernel in an entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    pub entry: String,
    pub kernel: String,
    /// Of the first launch.
    pub dims: Vec<u64>,
    #[serde(flatten)]
    pub sum: Sum,
}

/// All launches of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Field {
    pub field: String,
    /// Milliseconds by what they were done for; of each role, absent where there are none.
    pub roles: BTreeMap<Role, Option<f64>>,
    #[serde(flatten)]
    pub sum: Sum,
}

/// All launches of a kind of kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kind {
    pub kind: &'static str,
    #[serde(flatten)]
    pub sum: Sum,
}

#[derive(Default)]
struct Adding {
    launches: u64,
    time: Option<Duration>,
    operations: f64,
    bytes: f64,
    /// Seconds, and whether all are known.
    least: f64,
    unknown: bool,
}

impl Adding {
    fn add(&mut self, n: &Named, least: Option<f64>) {
        self.launches += 1;
        let Some(time) = n.launch.time else {
            return;
        };
        *self.time.get_or_insert_default() += time;
        self.operations += n.launch.operations;
        self.bytes += n.launch.bytes;
        self.least += least.unwrap_or_default();
        self.unknown |= least.is_none();
    }

    fn sum(&self, total: Duration) -> Sum {
        let seconds = self.time.map(|t| t.as_secs_f64().max(1e-12));
        let rate = |of: f64| seconds.map(|s| of / s / 1e9);
        let total = total.as_secs_f64().max(1e-12);
        Sum {
            launches: self.launches,
            ms: seconds.map(|s| s * 1e3),
            share: seconds.map(|s| s / total),
            gflop_per_s: rate(self.operations).filter(|_| self.operations > 0.0),
            gbyte_per_s: rate(self.bytes),
            roof: seconds.map(|s| self.least / s).filter(|_| !self.unknown),
        }
    }
}

impl NamedProfile<'_> {
    /// Launches added up by a key, the longest first; of equal ones that with the least key.
    fn by<K: Ord>(&self, key: impl Fn(&Named) -> K) -> Vec<(Adding, Named<'_>)> {
        let mut found: BTreeMap<K, (Adding, Named)> = BTreeMap::new();
        for n in self.launches() {
            let (adding, _) = found.entry(key(&n)).or_insert((Adding::default(), n));
            adding.add(&n, self.least(&n));
        }
        let mut rows: Vec<_> = found.into_values().collect();
        rows.sort_by_key(|(adding, _)| Reverse(adding.time));
        rows
    }

    /// All launches.
    pub fn whole(&self) -> Sum {
        let all = self.by(|_| ()).into_iter().next();
        all.map_or(Sum::default(), |(adding, _)| {
            adding.sum(self.profile.total())
        })
    }

    pub fn lines(&self) -> Vec<Line> {
        let total = self.profile.total();
        let rows = self.by(|n| (n.launch.entry, n.numbers));
        let line = |(adding, n): (Adding, Named)| Line {
            name: n.name.into(),
            entry: n.launch.entry.to_string(),
            field: n.field.into(),
            role: n.role(),
            step: n.site.step,
            kernel: n.kernel.symbol.clone(),
            kind: n.kernel.spec.kind(),
            sum: adding.sum(total),
        };
        rows.into_iter().map(line).collect()
    }

    pub fn kernels(&self) -> Vec<KernelRow> {
        let total = self.profile.total();
        let rows = self.by(|n| (n.launch.entry, n.numbers.1));
        let row = |(adding, n): (Adding, Named)| KernelRow {
            entry: n.launch.entry.to_string(),
            kernel: n.kernel.symbol.clone(),
            dims: n.launch.dims.clone(),
            sum: adding.sum(total),
        };
        rows.into_iter().map(row).collect()
    }

    pub fn fields(&self) -> Vec<Field> {
        let total = self.profile.total();
        let none: BTreeMap<Role, Option<f64>> = Role::ALL.map(|r| (r, None)).into();
        let mut roles: BTreeMap<&str, BTreeMap<Role, Option<f64>>> = BTreeMap::new();
        for n in self.launches() {
            if let Some(time) = n.launch.time {
                let of_field = roles.entry(n.field).or_insert_with(|| none.clone());
                let ms = of_field.entry(n.role()).or_default();
                *ms.get_or_insert_default() += time.as_secs_f64() * 1e3;
            }
        }
        let rows = self.by(|n| n.field.to_string());
        let row = |(adding, n): (Adding, Named)| Field {
            field: n.field.into(),
            roles: roles.get(n.field).unwrap_or(&none).clone(),
            sum: adding.sum(total),
        };
        rows.into_iter().map(row).collect()
    }

    pub fn kinds(&self) -> Vec<Kind> {
        let total = self.profile.total();
        let rows = self.by(|n| n.kernel.spec.kind());
        let row = |(adding, n): (Adding, Named)| Kind {
            kind: n.kernel.spec.kind(),
            sum: adding.sum(total),
        };
        rows.into_iter().map(row).collect()
    }
}
