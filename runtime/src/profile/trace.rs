//! A profile in Chrome's trace event format, which Perfetto and `chrome://tracing` open.
//!
//! Takes a profile; gives JSON: complete events (`ph: X`) with microseconds since the profile began, one track for steps, one for
//! launches, and one for each thread with its part of them; the arena in use as a counter. Events of a track follow each other.
//!
//! Source: Trace Event Format (Google, 2016), docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

use crate::profile::{Named, NamedProfile, arena};
use odec_program::site::Role;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The one process, its tracks of steps and launches, and that of the first thread.
const PROCESS: u32 = 1;
const STEPS: usize = 1;
const LAUNCHES: usize = 2;
const THREADS: usize = 3;

#[derive(Serialize)]
struct Complete<'a> {
    ph: &'static str,
    name: &'a str,
    cat: &'a str,
    pid: u32,
    tid: usize,
    ts: f64,
    dur: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Serialize)]
struct Arguments<'a> {
    entry: &'a str,
    field: &'a str,
    role: Role,
    kernel: &'a str,
    kind: &'a str,
    dims: &'a [u64],
    flops: f64,
    bytes: f64,
    gflop_per_s: f64,
    gbyte_per_s: f64,
    roof: Option<f64>,
}

/// The text of a trace; `device` in words. `None` where nothing was computed.
pub fn text(told: &NamedProfile, device: &str) -> Option<String> {
    if told.profile.launches.iter().all(|l| l.time.is_none()) {
        return None;
    }
    let mut events = vec![
        track(None, &format!("{} on {device}", told.manifest.name)),
        track(Some(STEPS), "steps"),
        track(Some(LAUNCHES), "launches"),
    ];
    let threads = told.profile.launches.iter().flat_map(|l| &l.threads);
    let threads = threads.map(|t| t.thread + 1).max().unwrap_or(0);
    for n in 0..threads {
        events.push(track(Some(THREADS + n), &format!("thread {n}")));
    }
    steps(told, &mut events);
    let entries = told.manifest.program.entries.iter();
    let live: BTreeMap<_, _> = entries
        .map(|(name, e)| (*name, arena::in_use(&told.manifest.program, e)))
        .collect();
    let mut last = None;
    for n in told.launches() {
        let Some(time) = n.launch.time else {
            continue;
        };
        let bytes = live[&n.launch.entry][n.launch.instr];
        if last.replace(bytes) != Some(bytes) {
            let ts = microseconds(n.launch.begin);
            events.push(json!({
                "ph": "C", "name": "arena", "pid": PROCESS, "ts": ts, "args": {"bytes": bytes},
            }));
        }
        events.push(complete(
            &n,
            LAUNCHES,
            (n.launch.begin, time),
            Some(arguments(told, &n, time)),
        ));
        for t in &n.launch.threads {
            events.push(complete(&n, THREADS + t.thread, (t.begin, t.time), None));
        }
    }
    Some(json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string())
}

/// What a track is called, or all of them together.
fn track(of: Option<usize>, name: &str) -> Value {
    let what = match of {
        None => "process_name",
        Some(_) => "thread_name",
    };
    json!({"ph": "M", "name": what, "pid": PROCESS, "tid": of.unwrap_or(0), "args": {"name": name}})
}

/// An event for each step, from its first launch to the end of its last one.
fn steps(told: &NamedProfile, events: &mut Vec<Value>) {
    let launches = &told.profile.launches;
    for of_step in launches.chunk_by(|a, b| a.step == b.step) {
        let (first, last) = (&of_step[0], &of_step[of_step.len() - 1]);
        let begin = microseconds(first.begin);
        events.push(json!({
            "ph": "X", "name": format!("step {}", first.step + 1), "cat": "step", "pid": PROCESS, "tid": STEPS,
            "ts": begin, "dur": microseconds(last.end() - first.begin),
        }));
    }
}

fn complete(
    n: &Named,
    track: usize,
    (begin, time): (Duration, Duration),
    args: Option<Arguments>,
) -> Value {
    json!(Complete {
        ph: "X",
        name: n.name,
        cat: n.role().name(),
        pid: PROCESS,
        tid: track,
        ts: microseconds(begin),
        dur: microseconds(time),
        args,
    })
}

fn arguments<'a>(told: &NamedProfile, n: &Named<'a>, time: Duration) -> Arguments<'a> {
    let seconds = time.as_secs_f64().max(1e-12);
    Arguments {
        entry: n.launch.entry.as_str(),
        field: n.field,
        role: n.role(),
        kernel: &n.kernel.symbol,
        kind: n.kernel.spec.kind(),
        dims: &n.launch.dims,
        flops: n.launch.operations,
        bytes: n.launch.bytes,
        gflop_per_s: n.launch.operations / seconds / 1e9,
        gbyte_per_s: n.launch.bytes / seconds / 1e9,
        roof: told.least(n).map(|least| least / seconds),
    }
}

fn microseconds(t: Duration) -> f64 {
    t.as_nanos() as f64 / 1e3
}
