//! Where launches come from: every one has a step and a field that exist, in words that stay as they are; and what a profile, a trace and
//! a timeline make of them.

use crate::numbers::{executor, tokens};
use crate::source::built;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_library::shipped;
use odec_program::manifest::{Manifest, named};
use odec_program::site::{Pass, Role, SCHEME, UPDATE, names};
use odec_program::{Bindings, EntryId, Site};
use odec_runtime::profile::sums::Sum;
use odec_runtime::profile::{NamedProfile, timeline, trace};
use odec_runtime::{Executor, Value};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Two steps, of which one is computed again.
const SMALL: &str = "\
field att = rmsnorm |> attention(heads: 2, causal)
field ffn = rmsnorm |> swiglu(hidden: 20)

model small {
  input  tokens(vocab: 256, context: 6)
  embed  learned(width: 12)
  evolve lie(att, ffn) for 3 steps { h = 1;  weights per step }
  output rmsnorm |> logits(tied)
}

train {
  data      text(\"corpus.txt\", tokenizer: bytes)
  optimizer adamw(lr: 1e-3)
  batch 2;  steps 10;  clip 1
  memory    revolve(slots: 2)
}
";

fn small() -> Manifest {
    let built = built(SMALL);
    build_manifest(&built, SMALL, options()).unwrap().manifest
}

/// What stands outside of all fields.
const OUTSIDE: [&str; 11] = [
    "embed",
    "output",
    "loss",
    SCHEME,
    "start",
    "steps",
    "error",
    "solve",
    "normalize",
    "report",
    "grad",
];

/// What is wrong with a site of a model; nothing if its step and its field are the model's.
fn wrong(text: &str, built: &Built, site: &Site) -> Option<&'static str> {
    if site.pass == Pass::Update {
        return (site.field() != UPDATE || site.path.is_empty()).then_some("an update of nothing");
    }
    let own = site.path.split('.').next().unwrap_or_default();
    if site.evolve.is_empty() && site.step.is_none() && site.evaluation.is_none() {
        let part = OUTSIDE.contains(&own)
            || text.contains(&format!("input  {own}:"))
            || built.config.also.contains_key(own)
            || built.summary.evolves.iter().any(|e| e.label == own);
        return (!part).then_some("no part of the model");
    }
    let mut evolves = built.summary.evolves.iter();
    let Some(evolve) = evolves.find(|e| e.label == site.evolve) else {
        return Some("no evolve of the model");
    };
    if site.step.is_some_and(|k| u64::from(k) >= evolve.steps) {
        return Some("no step of the model");
    }
    // One that is linear may be read by functions of its rates alone.
    let written = |l: &str| {
        l.strip_prefix("field ")
            .is_some_and(|l| l.trim_start().starts_with(own))
    };
    let evaluated = evolve.fields.iter().any(|(name, _)| name == own);
    let field = own.is_empty() || evaluated || text.lines().any(written);
    (!field && !OUTSIDE.contains(&own)).then_some("no field of the model")
}

#[test]
fn every_launch_of_every_model_comes_from_a_step_and_a_field_of_it() {
    let mut bad = BTreeSet::new();
    for file in shipped::all().iter().filter(|f| f.is_model()) {
        let built = built(&file.text);
        let assembled = build_manifest(&built, &file.text, options()).unwrap();
        let program = &assembled.manifest.program;
        let mut used = BTreeSet::new();
        for (id, e) in &program.entries {
            for i in &e.instrs {
                let site = program.site(i);
                used.insert(i.site as usize);
                let update = matches!(id, EntryId::Update | EntryId::Accumulate);
                assert_eq!(site.role() == Role::Update, update, "{}: {site}", file.name);
                if let Some(why) = wrong(&file.text, &built, site) {
                    bad.insert(format!("{}: {why}: {site}", file.name));
                }
            }
        }
        let all: BTreeSet<usize> = (0..program.sites.len()).collect();
        assert_eq!(used, all, "{}: each site is that of a launch", file.name);
        let distinct: BTreeSet<&Site> = program.sites.iter().collect();
        assert_eq!(distinct.len(), program.sites.len(), "{}", file.name);
        // What is between fields stands at no part, or at that which has the coefficients.
        let between = |s: &&Site| s.path != SCHEME;
        let said: BTreeSet<String> = names(&program.sites).into_iter().collect();
        let apart = program.sites.iter().filter(between).count();
        assert!(said.len() >= apart, "{}: names", file.name);
    }
    let bad: Vec<String> = bad.into_iter().collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn names_of_a_small_model() {
    let m = small();
    let names = names(&m.program.sites);
    let mut text = String::new();
    for id in [EntryId::Grad, EntryId::Update] {
        text += &format!("{id}\n");
        for i in &m.program.entries[&id].instrs {
            let kind = m.program.kernels[i.kernel as usize].spec.kind();
            let site = i.site as usize;
            let field = m.program.sites[site].field();
            text += &format!("  {kind:<16}{field:<8}{}\n", names[site]);
        }
    }
    insta::assert_snapshot!(text);
}

/// Runs two steps of the small model while they are measured.
fn profiled(m: &Manifest) -> Executor {
    let mut x = executor(m);
    let at = Bindings::new(2, 6);
    let (read, next) = (tokens(at, 256, 1), tokens(at, 256, 5));
    let inputs = [
        ("tokens", Value::I32(&read)),
        ("targets", Value::I32(&next)),
    ];
    let train = m.train.as_ref().unwrap();
    x.start_profile();
    for step in 1..=2 {
        x.run("grad", at, &inputs, &[]).unwrap();
        let scalars = train.scalars(step, 1.0);
        let scalars: Vec<_> = scalars.iter().map(|(n, s)| (n.as_str(), *s)).collect();
        assert!(scalars.iter().any(|(name, _)| *name == named::LR));
        x.run("update", at, &[], &scalars).unwrap();
    }
    x
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * b.abs().max(1e-6)
}

#[test]
fn sums_by_whatever_agree_with_the_whole() {
    let m = small();
    let x = profiled(&m);
    let told = NamedProfile::new(&m, x.profile().unwrap(), None);
    let whole = told.whole();
    let sums: [Vec<Sum>; 4] = [
        told.lines().into_iter().map(|l| l.sum).collect(),
        told.kernels().into_iter().map(|k| k.sum).collect(),
        told.fields().into_iter().map(|f| f.sum).collect(),
        told.kinds().into_iter().map(|k| k.sum).collect(),
    ];
    for rows in &sums {
        let add = |of: &dyn Fn(&Sum) -> f64| rows.iter().map(of).sum::<f64>();
        assert_eq!(rows.iter().map(|s| s.launches).sum::<u64>(), whole.launches);
        assert!(close(add(&|s| s.ms.unwrap()), whole.ms.unwrap()));
        assert!(close(add(&|s| s.share.unwrap()), 1.0));
    }
    for f in told.fields() {
        assert!(
            close(f.roles.values().flatten().sum(), f.sum.ms.unwrap()),
            "{}",
            f.field
        );
    }
    let per_step: usize = ["grad", "update"]
        .iter()
        .map(|e| m.program.entries[*e].instrs.len())
        .sum();
    assert_eq!(whole.launches, 2 * per_step as u64);
    assert_eq!(told.profile.steps, 2);
}

/// As Perfetto reads it: complete events with their times, named tracks, nothing that overlaps on one of them.
#[test]
fn a_trace_is_well_formed_and_adds_up_to_the_table() {
    let m = small();
    let x = profiled(&m);
    let told = NamedProfile::new(&m, x.profile().unwrap(), None);
    let text = trace::text(&told, "a \"device\"").unwrap();
    let trace: Json = serde_json::from_str(&text).unwrap();
    let mut tracks: BTreeMap<u64, (String, Vec<(f64, f64)>)> = BTreeMap::new();
    for e in trace["traceEvents"].as_array().unwrap() {
        assert_eq!(e["pid"], 1);
        match e["ph"].as_str().unwrap() {
            "M" if e["name"] == "thread_name" => {
                let name = e["args"]["name"].as_str().unwrap().to_string();
                let known = tracks.insert(e["tid"].as_u64().unwrap(), (name, vec![]));
                assert!(known.is_none());
            }
            "M" => assert_eq!(e["args"]["name"], "small on a \"device\""),
            "X" => {
                let (ts, dur) = (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && !e["name"].as_str().unwrap().is_empty());
                let track = tracks
                    .get_mut(&e["tid"].as_u64().unwrap())
                    .expect("named before");
                if track.0 == "launches" {
                    let args = &e["args"];
                    assert!(args["flops"].is_number() && args["bytes"].as_f64() > Some(0.0));
                    assert!(args["gbyte_per_s"].is_number() && args["kernel"].is_string());
                }
                track.1.push((ts, dur));
            }
            "C" => assert!(e["args"]["bytes"].as_u64() > Some(0)),
            other => panic!("{other}: {e}"),
        }
    }
    for (name, spans) in tracks.values() {
        let ordered = spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0 + 1e-3);
        assert!(ordered, "{name}: {spans:?}");
    }
    let by_name: BTreeMap<&str, f64> = (tracks.values())
        .map(|(name, spans)| (name.as_str(), spans.iter().map(|s| s.1).sum()))
        .collect();
    assert!(close(by_name["launches"], 1e3 * told.whole().ms.unwrap()));
    assert!(by_name["steps"] >= by_name["launches"]);
    assert_eq!(tracks.values().find(|t| t.0 == "steps").unwrap().1.len(), 2);
}

/// With a millisecond for each launch.
#[test]
fn a_timeline_of_equal_launches() {
    let m = small();
    let x = profiled(&m);
    let mut profile = x.profile().unwrap().clone();
    for (n, l) in (0..).zip(&mut profile.launches) {
        (l.begin, l.time) = (Duration::from_millis(n), Some(Duration::from_micros(900)));
    }
    let told = NamedProfile::new(&m, &profile, None);
    insta::assert_snapshot!(timeline::svg(&told, "a <device>").unwrap());
}

/// The most that is in use is what planning knew to be alive at once, and fits into the arena.
#[test]
fn the_arena_in_use_is_what_planning_says() {
    let built = built(SMALL);
    let assembled = build_manifest(&built, SMALL, options()).unwrap();
    let program = &assembled.manifest.program;
    for m in &assembled.memory {
        let e = &program.entries[&m.entry];
        let most = odec_runtime::profile::arena::in_use(program, e);
        let most = most.into_iter().max().unwrap_or(0);
        assert!(most <= m.arena, "{}: {most} of {}", m.entry, m.arena);
        assert!(
            most <= m.lower_bound && 2 * most >= m.lower_bound,
            "{}: {most} of {}",
            m.entry,
            m.lower_bound
        );
    }
}
