//! What the folder of a run says, without running or compiling anything.
//!
//! Takes folders; finds the runs in them and below. Gives for each its artifact's manifest, where its checkpoint stands, and its metrics; and
//! for each folder that is no run, or a damaged one, why. Leaves what the compiler can say of the model to `facts.rs`.

use odec_compiler::text::number::thousands;
use odec_explore::executed::Ended;
use odec_explore::fit::Fit;
use odec_explore::folder::{EXECUTED, Outcome, PICTURE, PLAN, RANKING, TRIALS, latest};
use odec_grammar::ast::{Item, ModelItem};
use odec_grammar::{MAX_BYTES, parse};
use odec_program::manifest::{Form, Manifest, Train};
use odec_runtime::parameters::checkpoint::{Progress, is_there, stands};
use odec_runtime::system::input::{self, most};
use odec_runtime::system::owned::{self, CHECKPOINT, METRICS, MODEL};
use odec_runtime::train::chart::Curve;
use odec_runtime::train::metrics::{self, HeldOut, Record, Step};
use odec_runtime::{Artifact, Shown};
use odec_source::escape::escaped;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folders below the ones that were named in which runs are sought: `explorations/NAME/trials/HASH` is three below the first.
const DEPTH: usize = 4;

/// A run, as its folder says it.
#[derive(Clone, Debug)]
pub struct Run {
    pub folder: PathBuf,
    /// The folder as it is shown, without what those of all runs begin with.
    pub name: String,
    /// Of a trial of an exploration: what tells it from the others, and its seed.
    pub label: Option<String>,
    /// Of a trial: its model, with all seeds, and the exploration's folder.
    pub trial: Option<Trial>,
    pub manifest: Manifest,
    pub progress: Progress,
    /// In the order they were written, none of a mean of checkpoints; those of steps behind the last checkpoint too: the run may be under way.
    pub records: Vec<Record>,
    /// When its metrics were last written to.
    pub modified: Option<SystemTime>,
}

/// What an exploration says of one of its runs.
#[derive(Clone, Debug)]
pub struct Trial {
    pub exploration: PathBuf,
    /// What the model is called.
    pub model: String,
    /// What came out at the end of the last rung that it has finished.
    pub outcome: Option<Outcome>,
}

/// The loss by which a run is compared with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub loss: f64,
    /// Of what: so many tokens.
    pub of: String,
}

/// A folder of trials that were ranked.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The folder as it is shown.
    pub name: String,
    /// An SVG, as the folder has it.
    pub ranking: String,
    /// What its models took beside what was predicted.
    pub executed: Vec<Ended>,
    /// The laws that losses follow.
    pub fits: Vec<Fit>,
}

/// What is read of a `ranking.json`; one of an odec that did not write it has nothing of it.
#[derive(Default, Deserialize)]
struct Evidence {
    #[serde(default)]
    fits: Vec<Fit>,
}

/// What is read of an `executed.json`.
#[derive(Default, Deserialize)]
struct Costs {
    models: Vec<Ended>,
}

/// A file of an exploration; nothing where it is not there, or cannot be read.
fn said<T: Default + for<'d> Deserialize<'d>>(path: &Path) -> T {
    let text = input::read_text(path, most::MAP).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A folder that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub folder: PathBuf,
    pub why: String,
}

/// What was found in folders.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub runs: Vec<Run>,
    pub explorations: Vec<Exploration>,
    pub refused: Vec<Refused>,
}

/// The runs that folders are, or that lie below them, each once, in the order of their paths below each.
pub fn find(folders: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for folder in folders {
        look(folder, DEPTH, &mut found);
    }
    name(&mut found.runs);
    found
}

/// Adds what is in a folder; whether a run, or something that should be one, is there.
fn look(folder: &Path, depth: usize, found: &mut Found) -> bool {
    if owned::is_run(folder) || owned::is_unreadable(folder) {
        let same = |r: &Run| r.folder.canonicalize().ok() == folder.canonicalize().ok();
        match read(folder) {
            _ if found.runs.iter().any(same) => {}
            Ok(run) => found.runs.push(run),
            Err(why) => found.refuse(folder, why),
        }
        return true;
    }
    let trials = folder.join(TRIALS);
    if folder.join(PLAN).is_file() && trials.is_dir() {
        explored(folder, found);
        let before = found.runs.len();
        let any = look(&trials, depth.saturating_sub(1), found);
        let planned = planned(&folder.join(PLAN));
        let number = |run: &Run| {
            let hash = run.folder.file_name()?.to_string_lossy();
            planned.iter().position(|p| p.hash == hash)
        };
        for run in &mut found.runs[before..] {
            let Some(p) = number(run).map(|n| &planned[n]) else {
                continue;
            };
            run.label = Some(format!("{}, seed {}", p.model, p.seed));
            run.trial = Some(Trial {
                exploration: folder.to_path_buf(),
                model: p.model.clone(),
                outcome: latest(folder, &p.hash, &p.rungs),
            });
        }
        // In the order of the plan; those that it does not know last.
        found.runs[before..].sort_by_key(|run| number(run).unwrap_or(usize::MAX));
        return any;
    }
    let children = match children(folder) {
        Ok(children) if depth > 0 => children,
        Ok(_) => Vec::new(),
        Err(why) => {
            found.refuse(folder, why);
            return true;
        }
    };
    let mut foreign = Vec::new();
    let mut any = false;
    for child in children {
        match look(&child, depth - 1, found) {
            true => any = true,
            false => foreign.push(child),
        }
    }
    // What lies beside runs is looked at as if it were to be one; where there are none, the folder itself is.
    match any {
        true => foreign
            .iter()
            .for_each(|f| found.refuse(f, "it is no run, and holds none".into())),
        false if depth == DEPTH => found.refuse(folder, "it is no run, and holds none".into()),
        false => {}
    }
    any
}

/// Adds the ranking of an exploration, where there is one.
fn explored(folder: &Path, found: &mut Found) {
    let path = folder.join(PICTURE);
    if !path.exists() {
        return;
    }
    let name = folder.shown();
    match input::read(&path, most::PICTURE) {
        Ok(bytes) => found.explorations.push(Exploration {
            name,
            ranking: String::from_utf8_lossy(&bytes).into_owned(),
            executed: said::<Costs>(&folder.join(EXECUTED)).models,
            fits: said::<Evidence>(&folder.join(RANKING)).fits,
        }),
        Err(e) => found.refuse(folder, format!("{PICTURE}: {e}")),
    }
}

/// A trial, as the plan of its exploration has it.
struct Planned {
    hash: String,
    model: String,
    seed: u64,
    /// The steps at which its rungs end.
    rungs: Vec<u64>,
}

/// The trials of an exploration; none where its plan cannot be read.
fn planned(plan: &Path) -> Vec<Planned> {
    let text = input::read_text(plan, most::MAP).unwrap_or_default();
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let trials = plan["trials"].as_array().map_or(&[][..], Vec::as_slice);
    let one = |t: &serde_json::Value| {
        let model = usize::try_from(t["model"].as_u64()?).ok()?;
        let model = plan["models"].get(model)?;
        let rungs = model["rungs"].as_array().map_or(&[][..], Vec::as_slice);
        Some(Planned {
            hash: t["hash"].as_str()?.to_string(),
            model: escaped(model["label"].as_str()?),
            seed: t["seed"].as_u64()?,
            rungs: rungs.iter().filter_map(|n| n.as_u64()).collect(),
        })
    };
    trials.iter().filter_map(one).collect()
}

/// The folders in a folder, by name, without those that are hidden, artifacts, or behind links.
fn children(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| e.to_string())?;
    let entries = entries.flatten().filter(|e| {
        let hidden = e.file_name().to_string_lossy().starts_with('.');
        !hidden && e.file_type().is_ok_and(|kind| kind.is_dir())
    });
    let paths = entries.map(|e| e.path());
    let mut all: Vec<PathBuf> = paths.filter(|p| !owned::is_artifact(p)).collect();
    all.sort();
    Ok(all)
}

impl Found {
    fn refuse(&mut self, folder: &Path, why: String) {
        let folder = folder.to_path_buf();
        self.refused.push(Refused { folder, why });
    }
}

/// Reads the folder of a run.
///
/// # Errors
/// What is missing or damaged, in a sentence.
pub fn read(folder: &Path) -> Result<Run, String> {
    let checkpoint = folder.join(CHECKPOINT);
    if !is_there(&checkpoint).map_err(|e| e.to_string())? {
        return Err("the run has no checkpoint yet".into());
    }
    let progress = stands(&checkpoint).map_err(|e| e.to_string())?;
    let artifact = Artifact::load(&folder.join(MODEL)).map_err(|e| e.to_string())?;
    if artifact.identity() != progress.model {
        return Err("its checkpoint belongs to another model than its artifact".into());
    }
    let path = folder.join(METRICS);
    let unread = |e| format!("{METRICS}: {e}");
    let (modified, text) = match input::open(&path) {
        Ok(file) => {
            let modified = file.metadata().and_then(|m| m.modified()).ok();
            (modified, input::all(file, most::METRICS).map_err(unread)?)
        }
        // A mean of checkpoints has trained nothing.
        Err(e) if e.kind() == ErrorKind::NotFound && progress.mean_of > 0 => (None, Vec::new()),
        Err(e) => return Err(unread(e)),
    };
    let manifest = artifact.manifest();
    if manifest.train.is_none() {
        return Err("its artifact has no train block".into());
    }
    Ok(Run {
        folder: folder.to_path_buf(),
        name: folder.shown(),
        label: None,
        trial: None,
        manifest: manifest.clone(),
        progress,
        records: metrics::parse(&String::from_utf8_lossy(&text)),
        modified,
    })
}

/// The kinds of runs, by run, in the order of their first ones: runs that differ in their seed alone are of one kind.
pub fn kinds(runs: &[Run]) -> Vec<usize> {
    let mut known: Vec<String> = Vec::new();
    let each = runs.iter().map(|r| {
        let kind = r.kind();
        known.iter().position(|k| *k == kind).unwrap_or_else(|| {
            known.push(kind);
            known.len() - 1
        })
    });
    each.collect()
}

/// Names runs by what tells their folders apart.
fn name(runs: &mut [Run]) {
    let parents = runs
        .iter()
        .map(|r| r.folder.parent().unwrap_or(Path::new("")));
    let common = parents.map(Path::to_path_buf).reduce(|a, b| {
        let same = a
            .components()
            .zip(b.components())
            .take_while(|(a, b)| a == b);
        same.map(|(a, _)| a).collect()
    });
    let common = common.unwrap_or_default();
    for r in &mut *runs {
        let below = r.folder.strip_prefix(&common).unwrap_or(&r.folder);
        r.name = below.shown();
    }
    // Names that are no UTF-8, and control characters, may be shown alike.
    let mut taken = BTreeSet::new();
    for r in runs {
        let shown = r.name.clone();
        let mut number = 2;
        while !taken.insert(r.name.clone()) {
            r.name = format!("{shown} ({number})");
            number += 1;
        }
    }
}

impl Run {
    /// What tells it from others: of a trial its label, of other runs the folder.
    pub fn called(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }

    /// The training steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.records.iter().filter_map(|r| match r {
            Record::Step(s) => Some(s),
            Record::HeldOut(_) | Record::Warning(_) | Record::Movement(_) => None,
        })
    }

    /// The evaluations, in order.
    pub fn evaluations(&self) -> impl Iterator<Item = &HeldOut> {
        self.records.iter().filter_map(|r| match r {
            Record::HeldOut(h) => Some(h),
            Record::Step(_) | Record::Warning(_) | Record::Movement(_) => None,
        })
    }

    /// Finished steps.
    pub fn done(&self) -> u64 {
        let last = self.steps().last().map_or(0, |s| s.step);
        last.max(self.progress.step)
    }

    /// Whether nothing is left to do: all planned steps, or the time limit.
    pub fn is_complete(&self) -> bool {
        let p = &self.progress;
        self.done() >= p.steps || p.time_limit.is_some_and(|limit| p.seconds >= limit)
    }

    /// The last training loss.
    pub fn loss(&self) -> Option<f64> {
        self.steps().last().map(|s| s.loss)
    }

    /// The last held-out loss.
    pub fn held_out(&self) -> Option<f64> {
        self.evaluations().last().map(|h| h.held_out_loss)
    }

    /// The held-out loss by which it is compared: of a trial that of all held-out data, as its ranking has it, where it has made no step since; of others, of the last evaluation
    /// while they were trained.
    pub fn judged(&self) -> Option<Judged> {
        let outcome = self.trial.as_ref().and_then(|t| t.outcome.as_ref());
        let ranked = outcome.filter(|o| o.steps == self.done()).and_then(|o| {
            let of = format!("all {} {}", thousands(o.number?), escaped(o.of.as_ref()?));
            Some(Judged {
                loss: o.held_out_loss?,
                of,
            })
        });
        ranked.or_else(|| {
            let last = self.evaluations().last()?;
            Some(Judged {
                loss: last.held_out_loss,
                of: format!("{} {}", thousands(last.of.number()), last.of.unit().name()),
            })
        })
    }

    /// Floating-point operations that its steps launched, for gradients and by the optimiser; `None` where they were not counted.
    pub fn executed(&self) -> Option<[u64; 2]> {
        metrics::flops(&self.records, self.done())
    }

    /// What runs have in common that differ in their seed alone.
    fn kind(&self) -> String {
        let m = &self.manifest;
        match &self.trial {
            Some(t) => format!("{:?}\n{}", t.exploration, t.model),
            None => {
                let is_seed = |s: &&String| {
                    let path = s.split('=').next().unwrap_or_default();
                    ["seed", "train.seed"].contains(&path.trim())
                };
                let set = m.settings.iter().filter(|s| !is_seed(s));
                let set: Vec<&String> = set.collect();
                let imports: Vec<_> = m.imports.iter().map(|i| (&i.path, &i.text)).collect();
                format!("{}\n{set:?}\n{imports:?}", m.source)
            }
        }
    }

    /// Seconds of training.
    pub fn seconds(&self) -> f64 {
        let last = self.steps().last().map_or(0.0, |s| s.seconds);
        last.max(self.progress.seconds)
    }

    /// What a step reads, and what that is counted in: tokens of full sequences; images, sequences of vectors, pairs of texts.
    pub fn per_step(&self) -> (u64, &'static str) {
        let batch = self.batch();
        match self.progress.data.form {
            Form::Text { .. } | Form::Sentences(_) | Form::Tokens => {
                (batch * self.manifest.model.context, "tokens")
            }
            Form::Images(_) => (batch, "images"),
            Form::Vectors(_) | Form::Labelled(_) => (batch, "sequences"),
            Form::Pairs(_) => (batch, "pairs"),
        }
    }

    /// Rows of a step.
    pub fn batch(&self) -> u64 {
        self.manifest.train.as_ref().map_or(0, |t| t.batch)
    }

    /// What its loss is, as axes are named.
    pub fn measure(&self) -> String {
        let train = self.manifest.train.as_ref();
        let name = train.and_then(Train::measured);
        let (_, unit) = self.per_step();
        match (name, unit) {
            (Some(name), _) => name.to_string(),
            (None, "images") => "nats per image".into(),
            (None, "sequences") => "nats per sequence".into(),
            (None, _) => "nats per token".into(),
        }
    }

    /// The losses over steps.
    pub fn curve(&self) -> Curve {
        Curve::of(&self.name, &self.records).finite()
    }

    /// The flows of its model as its source writes them, and what `--set` replaced.
    pub fn scheme(&self) -> String {
        let source = &self.manifest.source;
        if source.len() > MAX_BYTES {
            return String::new();
        }
        let (file, _) = parse(0, source);
        let mut flows = Vec::new();
        for item in &file.items {
            let Item::Model(model) = item else { continue };
            for item in &model.items {
                if let ModelItem::Evolve(e) = item {
                    let span = e.flow.span.start as usize..e.flow.span.end as usize;
                    let label = e.label.as_ref().map(|l| l.name.as_str());
                    let written = self.set_scheme(label);
                    let written = written.unwrap_or(source.get(span).unwrap_or_default());
                    flows.push(written.split_whitespace().collect::<Vec<_>>().join(" "));
                }
            }
        }
        flows.dedup();
        escaped(&flows.join(", "))
    }

    /// The flow that `--set` put in the place of an evolve's: `model.scheme=heun(layer)`, or `model.LABEL.scheme=…`.
    fn set_scheme(&self, label: Option<&str>) -> Option<&str> {
        let set = self.manifest.settings.iter().rev();
        set.filter_map(|s| s.split_once('='))
            .find_map(|(path, value)| {
                let path = path.trim().strip_prefix("model.")?;
                let labelled = path.strip_suffix(".scheme");
                let applies = path == "scheme" || labelled.is_some_and(|of| Some(of) == label);
                applies.then_some(value.trim())
            })
    }

    /// What its losses are losses of: runs of equal keys can be compared.
    pub fn data_key(&self) -> String {
        let p = &self.progress;
        let files: Vec<&str> = p.files.iter().map(|f| f.sha256.as_str()).collect();
        let form = serde_json::to_string(&p.data.form).unwrap_or_default();
        let loss = self.manifest.train.as_ref().map(|t| (t.loss, &t.also));
        let tokenizer = p.tokenizer.as_deref().unwrap_or_default();
        let held_out = p.data.held_out_percent;
        format!("{files:?} {form} {held_out} {tokenizer} {loss:?}")
    }
}
