//! How many trials run at once, with how many threads each: as many as there are cores and memory for.

use crate::plan::{Candidate, Plan};
use crate::work::Options;
use odec_compiler::codes;
use odec_compiler::text::number;
use odec_driver::fail::Done;
use odec_driver::source::{Parsed, report};
use odec_grammar::Diagnostic;
use odec_runtime::DeviceChoice;

/// How much runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub jobs: usize,
    /// Of each trial.
    pub threads: usize,
}

/// How many trials run at once, and with how many threads each.
pub fn share(cores: usize, trials: usize, fit: usize, asked: Option<usize>) -> Share {
    let jobs = asked.unwrap_or(cores).min(trials).min(fit).max(1);
    Share {
        jobs,
        threads: (cores / jobs).max(1),
    }
}

/// Bytes that programs may still take, as Linux says; `None` elsewhere.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// How many of the largest trials fit into memory; a trial that does not is told where its value is written.
///
/// # Errors
/// When one needs more than there is.
pub fn fit(plan: &Plan, base: &Parsed, o: &Options) -> Done<usize> {
    let room = match (o.memory, o.device) {
        (Some(room), _) => room,
        (None, DeviceChoice::Cpu | DeviceChoice::Reference) => free_memory().unwrap_or(u64::MAX),
        // A GPU's memory is asked for by the program that is built for it; its trials run one by one.
        (None, DeviceChoice::Cuda(_) | DeviceChoice::Dry { .. }) => return Ok(1),
    };
    larger(plan, base, room)?;
    let largest = plan.models.iter().map(|m| m.examined.memory).max();
    let fit = room / largest.unwrap_or(1).max(1);
    Ok(usize::try_from(fit).unwrap_or(usize::MAX))
}

/// Tells which trials need more memory than there is, where their values are written.
///
/// # Errors
/// When one does.
pub(crate) fn larger(plan: &Plan, base: &Parsed, room: u64) -> Done {
    let too_large = |m: &&Candidate| m.examined.memory > room;
    let refused: Vec<Diagnostic> = (plan.models.iter().filter(too_large))
        .filter_map(|m| {
            let at = m.settings.first().map(|(_, v)| v.span)?;
            let needs = number::bytes(m.examined.memory);
            let message = format!("`{}` needs {needs} of memory", m.label);
            let d = Diagnostic::error(codes::TOO_LARGE, at, message);
            let d = d.label(format!("there are {}", number::bytes(room)));
            Some(d.help("a smaller batch, `accumulate`, or `memory revolve(slots: 3)` takes less"))
        })
        .collect();
    report(&refused, &base.sources)
}

/// Of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
