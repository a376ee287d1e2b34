//! What evolves report: the mean of a field after each step, and nothing else of the program changed by it.

use crate::numbers::{executor, feeds, tokens};
use crate::plain::{self, times};
use crate::source::built;
use crate::systems::options;
use odec_compiler::cost::{cost, text};
use odec_compiler::model::Built;
use odec_compiler::passes::{ModelParts, assemble};
use odec_compiler::text::page::{Page, Screen};
use odec_graph::interp::{self, Tensor};
use odec_program::manifest::Manifest;
use odec_program::{Bindings, EntryId, noise};
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::system::owned::METRICS;
use odec_runtime::train::metrics::{self, Record};
use odec_runtime::{Artifact, Run, Settings, Show, State, Value};
use std::collections::BTreeMap;
use std::fs;

const AT: Bindings = Bindings::new(2, 7);
const WIDTH: usize = 8;
const VOCAB: u64 = 19;

/// A memory that is asked again and again: each step is an update.
const MEMORY: &str = "
scheme update(M) { step x { return M(x) } }
field recall = hopfield(patterns: 12, beta: 2, energy)
field memory = recall |> columns(to: width)
field energy = recall |> columns(from: width)";

fn model(fields: &str, evolves: &str, train: &str) -> (Built, String) {
    let text = format!(
        "{fields}\nmodel small {{\n  input tokens(vocab: 256, context: 16)\n  embed learned(width: {WIDTH})\n  \
         {evolves}\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.7) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  loss cross_entropy\n\
         steps 10;  {train} }}\n"
    );
    (built(&text), text)
}

fn manifest((built, text): &(Built, String)) -> Manifest {
    let made = assemble(&ModelParts::new(built, text), options());
    made.unwrap_or_else(|e| panic!("{e}\n{text}")).manifest
}

fn given(manifest: &Manifest) -> BTreeMap<String, Tensor> {
    let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
    feeds(&executor(manifest), AT, &[("tokens", &x), ("targets", &y)])
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// The mean energy of all tokens after each update, in plain loops.
fn energies(f: &BTreeMap<String, Tensor>, path: &str, steps: usize) -> Vec<f64> {
    let (beta, patterns) = (2.0f64, &f[path].data);
    let table: Vec<&[f64]> = f["embed.token.weight"].data.chunks(WIDTH).collect();
    let tokens = f["tokens"].data.iter();
    let mut states: Vec<Vec<f64>> = tokens.map(|t| table[*t as usize].to_vec()).collect();
    let rows: Vec<&[f64]> = patterns.chunks(WIDTH).collect();
    let longest = rows.iter().map(|w| dot(w, w)).fold(0.0, f64::max);
    let sum = |x: &[f64]| -> (Vec<f64>, f64) {
        let each: Vec<f64> = times(patterns, x)
            .iter()
            .map(|s| (beta * s).exp())
            .collect();
        let all = each.iter().sum();
        (each, all)
    };
    (0..steps)
        .map(|_| {
            let mut energy = 0.0;
            for x in &mut states {
                let (each, all) = sum(x);
                let mut next = vec![0.0; WIDTH];
                for (share, w) in each.iter().zip(&rows) {
                    let pairs = next.iter_mut().zip(*w);
                    pairs.for_each(|(y, w)| *y += share / all * w);
                }
                let (_, all) = sum(&next);
                energy += -all.ln() / beta
                    + dot(&next, &next) / 2.0
                    + (rows.len() as f64).ln() / beta
                    + longest / 2.0;
                *x = next;
            }
            energy / states.len() as f64
        })
        .collect()
}

/// Ten steps, so that more values than one node takes are put side by side.
#[test]
fn a_reported_energy_falls_along_the_steps() {
    let evolve = "evolve update(memory) for 10 steps { weights shared;  report energy = energy }";
    for (train, bound) in [
        ("batch 2", 1e-5),
        ("batch 2;  memory revolve(slots: 1)", 1e-5),
        ("batch 2;  precision f64", 1e-12),
        ("batch 2;  precision bf16", 0.1),
    ] {
        let model = model(MEMORY, evolve, train);
        let manifest = manifest(&model);
        let f = given(&manifest);
        let want = energies(&f, "memory.recall.stored.weight", 10);
        assert!(
            want.is_sorted_by(|a, b| a >= b) && want[0] > want[9] + 0.05,
            "{want:?}"
        );
        let mut e = executor(&manifest);
        let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        for (entry, graph) in [("loss", &model.0.loss), ("grad", &model.0.grad)] {
            let meant = &interp::run(graph, &f, AT).unwrap()["report.energy"].data;
            assert_eq!(meant.len(), 10);
            let near = meant.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-11);
            assert!(near, "{meant:?}, not {want:?}");
            let out = e.run(entry, AT, &io, &[]).unwrap();
            let got: Vec<f64> = out.reals("report.energy").unwrap().iter().collect();
            assert!(
                got.is_sorted_by(|a, b| a + 1e-5 > *b) && got[0] > got[9] + 0.05,
                "{train}: {got:?}"
            );
            let mut pairs = got.iter().zip(meant);
            assert!(
                pairs.all(|(a, b)| (a - b).abs() < bound),
                "{train} {entry}: {got:?}, not {meant:?}"
            );
        }
        assert!(!manifest.program.entries.iter().any(|(name, entry)| {
            let reports = entry.outputs.iter().any(|o| o.name.starts_with("report."));
            reports != ["loss", "grad"].contains(&name.as_str())
        }));
    }
}

/// Loss and gradients, with masks where something is dropped.
fn bits(manifest: &Manifest) -> Vec<u64> {
    let mut e = executor(manifest);
    let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
    let mut io = vec![("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    if e.has_input(EntryId::Grad, noise::KEY) {
        io.push((noise::KEY, Value::I32(&[9])));
    }
    let loss = e.run("grad", AT, &io, &[]).unwrap().scalar("loss").unwrap();
    let gradients = e.state(State::Grads);
    let all = [loss].into_iter().chain(gradients.iter());
    plain::bits(all)
}

/// The loss, all gradients and their order are those without the report, to the last bit.
#[test]
fn a_report_changes_nothing_else() {
    let fields = format!(
        "{MEMORY}\nfield att = rmsnorm |> attention(heads: 2, causal, rope) |> dropout(0.25)\n\
         field mlp = rmsnorm |> swiglu(hidden: 12)\nfield looked = attend(mlp, id, id, heads: 2, causal) |> square"
    );
    let reports = "report energy = energy;  report size = 1/3*square";
    for (before, options, after, train) in [
        ("lie(att, memory)", "weights shared", reports, ""),
        (
            "lie(att, memory)",
            "weights per step",
            reports,
            "memory revolve(slots: 1)",
        ),
        (
            "lie(att, memory)",
            "weights of time { embed: 4, hidden: 4 }",
            reports,
            "",
        ),
        (
            "strang(memory, att)",
            "weights per use, memory every 2",
            reports,
            "precision bf16",
        ),
        (
            "lie(att, mlp)",
            "learn h = 1/2",
            "report map = mlp;  report seen = looked",
            "memory budget(1 MiB)",
        ),
        (
            "rk4(mlp)",
            "gradient last(2)",
            "report map = mlp |> sum",
            "tune lora(rank: 2);  from \"runs/pretrained\"",
        ),
    ] {
        let evolves = |report: &str| {
            format!(
                "evolve a: {before} for 4 steps {{ {options};  {report} }}\n  \
                 evolve b: lie(mlp, memory) for 2 steps {{ {report} }}"
            )
        };
        let evolves = |report: &str| match before.contains("memory") {
            true => evolves(report),
            false => format!(
                "evolve a: {before} for 4 steps {{ {options};  {report} }}\n  evolve b: lie(mlp, att) for 1 step"
            ),
        };
        let train = format!("batch 2;  {train}");
        let with = model(&fields, &evolves(after), &train);
        let without = model(&fields, &evolves(""), &train);
        let (with, without) = (manifest(&with), manifest(&without));
        let paths = |m: &Manifest| m.params.iter().map(|p| p.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&with), paths(&without));
        assert_eq!(bits(&with), bits(&without), "{before} {options} {train}");
    }
}

/// What reports compute is work of a training step, and none of reading a text.
#[test]
fn reports_are_no_work_of_prefill() {
    let counted = |report: &str| {
        let evolve = format!("evolve euler(mlp) for 2 steps {{ {report} }}");
        let model = model(
            "field mlp = rmsnorm |> swiglu(hidden: 12)",
            &evolve,
            "batch 2",
        );
        let costs = cost(&model.0, &manifest(&model).program, options()).unwrap();
        let mut page = Page::new(Screen::PLAIN);
        text::write(&mut page, &costs);
        (costs, page.finish())
    };
    let (without, plain) = counted("");
    let (with, said) = counted("report map = mlp |> sum");
    assert_eq!(without.prefill, without.forward);
    assert_eq!(with.prefill, without.prefill);
    // Three maps of 12 columns for each token, once a step.
    let map = 2 * 16 * 3 * 12 * WIDTH as u64;
    assert_eq!(
        with.forward.contractions - without.forward.contractions,
        map
    );
    assert_eq!(with.backward, without.backward);
    assert!(plain.contains("forward, prefill ") && !said.contains("forward, prefill"));
    assert!(said.contains("\n    prefill "), "{said}");
}

/// A run logs the list of each step of training, and that of held-out text.
#[test]
fn a_run_logs_a_number_for_each_step() {
    let evolves = "evolve core: update(memory) for 3 steps { weights shared;  report energy = energy }\n  \
                   evolve end: update(memory) for 1 step { report energy = energy }";
    let manifest = manifest(&model(MEMORY, evolves, "batch 4;  accumulate 2"));
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("corpus.txt");
    fs::write(
        &corpus,
        "the quick brown fox jumps over the lazy dog. ".repeat(40),
    )
    .unwrap();
    let settings = Settings {
        data: vec![corpus],
        show: Show::Nothing,
        evaluations: 1,
        held_out_windows: 2,
        ..Settings::default()
    };
    let run = dir.path().join("run");
    let artifact = Artifact::in_memory(manifest).unwrap();
    let mut run = Run::start_on(&artifact, &run, &settings, |a| {
        Ok(Box::new(ReferenceDevice::new(
            &a.manifest().program.kernels,
        )))
    })
    .unwrap();
    run.finish(&settings).unwrap();
    let logged = fs::read_to_string(dir.path().join("run").join(METRICS)).unwrap();
    let (mut steps, mut looks) = (0, 0);
    for record in metrics::parse(&logged) {
        let reports = match record {
            Record::Step(s) => {
                steps += 1;
                s.reports
            }
            Record::HeldOut(h) => {
                looks += 1;
                h.reports
            }
            Record::Warning(w) => panic!("{}", w.warning),
            Record::Movement(_) => continue,
        };
        let names: Vec<&str> = reports.keys().map(String::as_str).collect();
        assert_eq!(names, ["core.energy", "end.energy"]);
        let (core, end) = (&reports["core.energy"], &reports["end.energy"]);
        assert_eq!((core.len(), end.len()), (3, 1));
        assert!(core.is_sorted_by(|a, b| a > b) && core[2] > 0.0, "{core:?}");
    }
    assert_eq!((steps, looks), (10, 1));
    let held_out = run.held_out().unwrap().reports;
    assert_eq!(held_out["core.energy"].len(), 3);
}
