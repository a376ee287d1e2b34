//! In what two runs differ: source, settings, facts of their artifacts, data, results at equal steps.
//!
//! Takes two runs, and what the compiler says of their models; gives the differences, as text and as JSON. What is equal is left out, but for
//! results. Leaves which of them is better to the reader.

use crate::facts::ModelFacts;
use crate::runs::Run;
use crate::settings;
use crate::table::loss;
use odec_compiler::text::number::{bytes, duration, flops, thousands};
use odec_compiler::text::page::{Page, Screen};
use odec_compiler::text::table::{Cell, Table};
use odec_program::EntryId;
use odec_runtime::Shown;
use odec_source::escape::{escaped, escaped_lines};
use serde_json::{Value, json};
use similar::TextDiff;
use std::collections::{BTreeMap, BTreeSet};

/// Lines of context around what differs in sources.
const AROUND: usize = 3;
/// Evaluations that are shown, the last one among them.
const EVALUATIONS: usize = 10;
/// The part of the steps over which training losses are a mean.
const PART: u64 = 20;

/// A value of both runs; absent where a run has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Differs {
    pub name: String,
    pub values: [Option<String>; 2],
}

/// A number of both runs after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct At {
    pub step: u64,
    pub values: [f64; 2],
}

#[derive(Clone, Debug)]
pub struct Diff {
    /// The runs' folders.
    pub folders: [String; 2],
    /// As `diff -u` prints it; empty where the sources are equal.
    pub source: String,
    pub settings: Vec<Differs>,
    pub facts: Vec<Differs>,
    pub data: Vec<Differs>,
    /// Held-out losses after the same steps.
    pub held_out: Vec<At>,
    /// The step that both have made, over how many steps before it the losses are a mean, and these.
    pub training: Option<(u64, At)>,
    /// Seconds, and operations where they are known, until that step.
    pub seconds: Option<[f64; 2]>,
    pub flops: Option<[f64; 2]>,
    /// Whether the losses are of the same data and kind.
    pub comparable: bool,
}

/// Compares two runs.
pub fn diff(runs: [&Run; 2], models: [Option<&ModelFacts>; 2]) -> Diff {
    let [a, b] = runs;
    let step = a.done().min(b.done());
    let over = (step / PART).max(1);
    let mean = |r: &Run| {
        let steps = r.steps().filter(|s| s.step <= step && s.step + over > step);
        let losses: Vec<f64> = steps.map(|s| s.loss).collect();
        (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
    };
    let seconds = |r: &Run| r.steps().find(|s| s.step == step).map(|s| s.seconds);
    let of_steps =
        |r: &Run, m: Option<&ModelFacts>| m.map(|m| m.step_flops(r.batch()) * step as f64);
    let names = runs.map(|r| r.folder.shown());
    Diff {
        source: unified(runs, &names),
        settings: settings(runs),
        facts: differing([facts(a, models[0]), facts(b, models[1])]),
        data: differing(runs.map(data)),
        held_out: held_out(a, b),
        training: both(mean(a), mean(b)).map(|values| (over, At { step, values })),
        seconds: both(seconds(a), seconds(b)),
        flops: both(of_steps(a, models[0]), of_steps(b, models[1])),
        comparable: a.data_key() == b.data_key(),
        folders: names,
    }
}

fn both<T>(a: Option<T>, b: Option<T>) -> Option<[T; 2]> {
    a.zip(b).map(|(a, b)| [a, b])
}

/// The sources, and what they import, as one text.
fn text(r: &Run) -> String {
    let imports = r.manifest.imports.iter();
    let imports = imports.map(|i| format!("\n// {}\n{}", i.path, i.text));
    r.manifest.source.clone() + &imports.collect::<String>()
}

fn unified(runs: [&Run; 2], names: &[String; 2]) -> String {
    let [a, b] = runs.map(text);
    if a == b {
        return String::new();
    }
    let diff = TextDiff::from_lines(&a, &b);
    let mut diff = diff.unified_diff();
    let diff = diff.context_radius(AROUND).header(&names[0], &names[1]);
    diff.to_string()
}

/// Held-out losses after the same steps, the last few.
fn held_out(a: &Run, b: &Run) -> Vec<At> {
    let of = |r: &Run| -> BTreeMap<u64, f64> {
        let all = r.evaluations();
        all.map(|h| (h.step, h.held_out_loss)).collect()
    };
    let (a, b) = (of(a), of(b));
    let same = a.iter().filter_map(|(step, x)| {
        let values = [*x, *b.get(step)?];
        Some(At {
            step: *step,
            values,
        })
    });
    let same: Vec<At> = same.collect();
    same[same.len().saturating_sub(EVALUATIONS)..].to_vec()
}

/// The leaves of a value by their paths.
fn leaves(v: &Value, at: &str, into: &mut BTreeMap<String, String>) {
    let below = |key: &str| match at {
        "" => key.to_string(),
        at => format!("{at}.{key}"),
    };
    match v {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, v)| leaves(v, &below(key), into)),
        Value::Array(list) if list.iter().any(|v| v.is_object()) => {
            let each = list.iter().enumerate();
            each.for_each(|(n, v)| leaves(v, &below(&n.to_string()), into));
        }
        Value::Null => {}
        Value::String(text) => _ = into.insert(at.into(), escaped(text)),
        v => _ = into.insert(at.into(), escaped(&v.to_string())),
    }
}

/// The settings that differ.
fn settings(runs: [&Run; 2]) -> Vec<Differs> {
    let all = settings::differing(&runs).into_iter();
    let each = all.map(|s| Differs {
        name: s.name,
        values: [0, 1].map(|run| s.values[run].clone()),
    });
    each.collect()
}

fn data(r: &Run) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    leaves(&json!(r.progress.data), "", &mut found);
    for (n, f) in r.progress.files.iter().enumerate() {
        let contents = format!(
            "{} bytes, SHA-256 {}…",
            thousands(f.bytes),
            f.sha256.get(..12).unwrap_or_default()
        );
        found.insert(format!("contents.{n}"), escaped(&contents));
    }
    found.insert("whole".into(), thousands(r.progress.tokens));
    found
}

/// What is known of an artifact, and of the model that it was built from.
pub fn facts(r: &Run, model: Option<&ModelFacts>) -> BTreeMap<String, String> {
    let m = &r.manifest;
    let mut found = BTreeMap::from([
        ("model".to_string(), escaped(&m.name)),
        ("scheme".into(), r.scheme()),
        ("parameters".into(), thousands(m.param_count())),
        ("trained parameters".into(), thousands(m.trained_count())),
    ]);
    if let Some(grad) = m.program.entries.get(&EntryId::Grad) {
        found.insert("working memory".into(), bytes(grad.arena_bytes));
    }
    if let Some(model) = model {
        let most = if model.is_at_most(&r.progress.data.form) {
            "at most "
        } else {
            ""
        };
        let (context, training) = (m.model.context.max(1), model.training);
        let mut add =
            |name: &str, n: f64| _ = found.insert(name.into(), format!("{most}{}", flops(n)));
        add("FLOPs of a training step", model.step_flops(r.batch()));
        add(
            "forward FLOPs per position",
            training.forward.flops() as f64 / (context * training.batch) as f64,
        );
        if let Some(decode) = training.decode {
            add(
                "FLOPs of the last token of a context",
                decode.flops() as f64,
            );
        }
        let summary = &model.built.summary;
        found.insert(
            "evaluations per step of the evolve".into(),
            summary.evaluations_per_step.to_string(),
        );
        found.insert("evaluations".into(), summary.evaluations.to_string());
    }
    found
}

/// The names whose values differ.
pub fn differing(values: [BTreeMap<String, String>; 2]) -> Vec<Differs> {
    let names: BTreeSet<&String> = values.iter().flat_map(BTreeMap::keys).collect();
    let each = names.into_iter().map(|name| Differs {
        name: name.clone(),
        values: [values[0].get(name).cloned(), values[1].get(name).cloned()],
    });
    each.filter(|d| d.values[0] != d.values[1]).collect()
}

impl Diff {
    /// As a terminal shows it.
    pub fn text(&self, screen: Screen) -> String {
        let mut page = Page::new(screen);
        page.title(&self.folders.join(" → "), "what differs");
        page.section("Source");
        for line in self.source.lines() {
            page.verbatim(&escaped(line));
        }
        for (heading, list) in [
            ("Settings", &self.settings),
            ("Artifact", &self.facts),
            ("Data", &self.data),
        ] {
            page.section(heading);
            let mut table = Table::new(1);
            for d in list {
                let [a, b] = d
                    .values
                    .clone()
                    .map(|v| Cell::left(v.unwrap_or("–".into())));
                table.row(vec![Cell::left(d.name.clone()), a, b]);
            }
            page.table(&table);
        }
        page.section("Results at equal steps");
        self.results(&mut page);
        page.finish()
    }

    fn results(&self, page: &mut Page) {
        if !self.comparable {
            page.paragraph(
                "The losses are of other data or of another kind: they cannot be compared.",
            );
        }
        let mut table = Table::new(1);
        let row = |name: String, cells: [String; 3]| {
            let cells = cells.into_iter().map(Cell::right);
            [Cell::left(name)]
                .into_iter()
                .chain(cells)
                .collect::<Vec<_>>()
        };
        let shown = |at: &At| {
            let [a, b] = at.values;
            [loss(a), loss(b), format!("{:+.4}", b - a)]
        };
        let heads = ["first", "second", "difference"].map(String::from);
        if !self.held_out.is_empty() || self.training.is_some() {
            table.row(row(String::new(), heads));
        }
        for at in &self.held_out {
            table.row(row(
                format!("held-out loss after step {}", at.step),
                shown(at),
            ));
        }
        if let Some((over, at)) = &self.training {
            let name = match over {
                1 => format!("training loss of step {}", at.step),
                n => format!(
                    "training loss, mean of steps {} to {}",
                    at.step + 1 - n,
                    at.step
                ),
            };
            table.row(row(name, shown(at)));
            if let Some([a, b]) = self.seconds {
                let name = format!("time until step {}", at.step);
                table.row(row(name, [duration(a), duration(b), String::new()]));
            }
            if let Some([a, b]) = self.flops {
                let name = format!("training FLOPs until step {}", at.step);
                table.row(row(name, [flops(a), flops(b), String::new()]));
            }
        }
        page.table(&table);
        if self.held_out.is_empty() {
            page.paragraph("No step has an evaluation in both runs.");
        }
    }

    pub fn json(&self) -> Value {
        let list = |all: &[Differs]| -> Vec<Value> {
            let each = all
                .iter()
                .map(|d| json!({ "name": d.name, "a": d.values[0], "b": d.values[1] }));
            each.collect()
        };
        let at = |at: &At| json!({ "step": at.step, "a": at.values[0], "b": at.values[1] });
        let pair = |v: Option<[f64; 2]>| v.map(|[a, b]| json!({ "a": a, "b": b }));
        json!({
            "a": self.folders[0], "b": self.folders[1], "comparable": self.comparable, "source": escaped_lines(&self.source),
            "settings": list(&self.settings), "artifact": list(&self.facts), "data": list(&self.data),
            "held_out": self.held_out.iter().map(at).collect::<Vec<_>>(),
            "training": self.training.as_ref().map(|(over, t)| json!({ "mean_over": over, "step": t.step, "a": t.values[0], "b": t.values[1] })),
            "seconds": pair(self.seconds), "flops": pair(self.flops),
        })
    }
}
