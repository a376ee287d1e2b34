//! The train block: entries checked, defaults filled in.
//!
//! | entry | default | |
//! |---|---|---|
//! | `data text("…", tokenizer: bytes)`, `tokens("…")`, `images("…", classes: 10)` or `vectors("…")` | required | see [`super::sources`] |
//! | `batch n`, `batch tokens(n)` | required | sequences, or images, per step; or as many pairs as take so many places of either text, with padding |
//! | `accumulate n` | 1 | micro-batches that a step's sequences are taken in, one after the other; n divides `batch` |
//! | `steps n` | required | optimiser steps |
//! | `keep checkpoints(last: 5, every: 500)` | none | parameters that stay beside the last checkpoint, for `odec average` |
//! | `loss cross_entropy + 1e-4*kinetic` | `cross_entropy`; none, where the output gives numbers | see [`super::loss`] |
//! | `optimizer adamw(lr: …)` | required | see [`odec_program::optimizers`], read by [`super::settings`] |
//! | `… except norm, embed { weight_decay: 0 }` | all parameters alike | behind `optimizer`: see [`super::groups`] |
//! | `ema 0.999` | none | how much of the running mean of each parameter a step keeps: see [`odec_program::manifest::ema_decay`] |
//! | `schedule cosine(warmup: 5%)` | `constant` | see [`odec_program::schedules`], read by [`super::settings`] |
//! | `evaluations n` | 10 | evaluations on held-out data, evenly over the run |
//! | `patience n` | all steps | evaluations without a lower held-out loss, after which a run ends; at most `evaluations` |
//! | `clip x` | no clipping | largest global gradient norm |
//! | `seed n` | 0 | |
//! | `precision f32` / `bf16` / `f64` | `f32` | the real type; with `bf16`, what contractions and attention read: see `passes/precision.rs` |
//! | `memory store` / `revolve(slots: n)` / `budget(4 GiB)` | `store` | what the gradient keeps of the forward pass |
//! | `from "runs/a"`, `from "a.safetensors", "names.json"` | random numbers | parameters to start from, and a map of names; relative to the file |
//! | `constrain spectral(max: 1.0)` | no bound | on the spectral norm of fields' matrices: see [`super::constrain`] |
//! | `parametrization mup(width: 256)` / `complete_p(width: 256, depth: 8)` | as written | how rates and deviations follow the size: see [`super::parametrization`] |
//! | `tune all` / `lora(rank: 8)` | `all` | which parameters are trained: see [`super::lora`]; `lora` needs `from` |

use super::args::{Args, Bounds, real, report};
use super::constrain;
use super::groups;
use super::lora;
use super::loss::{self, Objective, Of};
use super::parametrization::{self, Parametrization};
use super::part::{expect, incompatible, one_of};
use super::settings;
use super::sources::{Ends, NamedTokenizer, SOURCES, Tokenized};
use crate::codes;
use crate::scheme::scalar::{Scope, exact, in_range, name_of, not_supported, whole};
use odec_grammar::Span;
use odec_grammar::ast::{Block, Entry, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::manifest::{
    Data, Flow, Form, Keep, Loss, Memory, Pairs, Precision, Predicts, Pretrained, Train, Tune,
};
use odec_program::schedules::Constant;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest batch and number of steps.
const MAX_BATCH: u64 = 1 << 20;
const MAX_STEPS: u64 = 1 << 40;
/// Most evaluations of a run, and how many there are where nothing is said.
const MAX_EVALUATIONS: u64 = 1 << 20;
const EVALUATIONS: u64 = 10;
/// Units of memory, in bytes.
const UNITS: [(&str, i64); 6] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];
/// Largest budget of memory, in bytes.
const MAX_BUDGET: u64 = 1 << 50;
/// Most checkpoints that are kept.
const MAX_KEPT: u64 = 1 << 10;
/// Most states that a memory policy keeps.
const MAX_SLOTS: u64 = 1 << 12;

const ENTRIES: &[&str] = &[
    "data",
    "loss",
    "optimizer",
    "ema",
    "schedule",
    "evaluations",
    "patience",
    "batch",
    "accumulate",
    "steps",
    "keep",
    "clip",
    "seed",
    "precision",
    "memory",
    "from",
    "tune",
    "constrain",
    "parametrization",
];

/// What a train block says that can only be judged where files and targets are known, with the places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named {
    pub tokenizer: Option<Tokenized>,
    /// Where the files are named that it is trained on.
    pub data: Option<Span>,
    pub from: Option<(Pretrained, Span)>,
    /// Where it is said what is trained.
    pub tune: Option<Span>,
    /// Where it is said what matrices keep to.
    pub constrain: Option<Span>,
    /// How rates and deviations follow the size of the model, and where that is said.
    pub parametrization: Option<(Parametrization, Span)>,
    /// The names of each group of parameters.
    pub groups: Vec<Vec<Ident>>,
    /// The terms of the loss.
    pub objective: Objective,
    /// Bytes that the gradient may work with, in the place of a policy (`passes/budget.rs`).
    pub budget: Option<(u64, Span)>,
    /// Where the precision is said.
    pub precision: Option<Span>,
}

/// Reads a train block; `ends` are the model's, if that is right, `source` is the name of the file.
pub fn read(
    block: &Block,
    ends: Option<Ends>,
    source: &str,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Train, Named)> {
    let before = sink.len();
    let mut found: Vec<(&str, &Entry)> = Vec::new();
    let mut misspelt = Vec::new();
    for e in &block.entries {
        let key: Vec<&str> = e.key.iter().map(|k| k.name.as_str()).collect();
        let key = key.join(".");
        match ENTRIES.iter().find(|n| **n == key) {
            Some(name) => {
                if let Some((_, first)) = found.iter().find(|(n, _)| n == name) {
                    sink.push(
                        Diagnostic::error(
                            codes::REPEATED_ITEM,
                            e.span,
                            format!("`{name}` is given twice"),
                        )
                        .also(first.span, "first given here"),
                    );
                }
                if let Some(more) = e.values.get(1).filter(|_| *name != "from") {
                    sink.push(Diagnostic::error(
                        codes::ARGUMENT_COUNT,
                        more.span,
                        format!("`{name}` takes one value"),
                    ));
                }
                if let Some(more) = e.exceptions.first().filter(|_| *name != "optimizer") {
                    let message = format!("`{name}` has no exceptions");
                    let d = Diagnostic::error(codes::MISPLACED, more.span, message);
                    let help = "`optimizer adamw(lr: 3e-4) except norm { weight_decay: 0 }` is where `except` stands";
                    sink.push(d.help(help));
                }
                found.push((name, e));
            }
            None => {
                let d = Diagnostic::error(
                    codes::UNKNOWN_ENTRY,
                    e.span,
                    format!("a train block has no entry `{key}`"),
                );
                sink.push(match odec_grammar::nearest(&key, ENTRIES.iter().copied()) {
                    Some(near) => {
                        misspelt.push(near);
                        d.help(format!("did you mean `{near}`?"))
                    }
                    None => d.help(format!("it has {}", ENTRIES.join(", "))),
                });
            }
        }
    }
    let value = |name: &str| {
        found
            .iter()
            .find(|(n, _)| *n == name)
            .and_then(|(_, e)| e.values.first())
    };
    let mut required = |name: &str, example: &str| {
        let v = value(name);
        if v.is_none() && !misspelt.contains(&name) {
            sink.push(
                Diagnostic::error(
                    codes::MISSING_ITEM,
                    block.span,
                    format!("the train block has no `{name}`"),
                )
                .help(format!("add, for example, `{example}`")),
            );
        }
        v
    };
    let data = required("data", "data text(\"corpus.txt\", tokenizer: bytes)");
    let optimizer = required("optimizer", "optimizer adamw(lr: 3e-4)");
    let batch_at = required("batch", "batch 8");
    let steps = required("steps", "steps 1000");
    let trained_on = data.and_then(|e| SOURCES.read(e, sink));
    let told = ends.zip(trained_on.as_ref());
    if let (Some((ends, source)), Some(e)) = (told, data)
        && let Some(other) = ends.also.iter().find(|o| !source.has_targets(o))
    {
        let message = "this data has something to compare one output with";
        let d = Diagnostic::error(codes::INCOMPATIBLE, e.span, message);
        let d = d.also(other.span, "nothing is known of what this one says");
        sink.push(d.help(
            "several outputs are trained on `data vectors(…)`, with an array for each, or on `data sentences(…)`; those that give `logits` of tokens are compared with the tokens of a text; leave the others out",
        ));
    }
    let told = told.map(|(ends, source)| source.data(ends, sink));
    let optimizer = optimizer.and_then(|e| settings::optimizer(e, sink));
    let batch = batch_at.and_then(|e| batch(e, sink));
    let exceptions = found.iter().find(|(n, _)| *n == "optimizer");
    let exceptions = exceptions.map_or(&[][..], |(_, e)| &e.exceptions);
    let groups = optimizer
        .as_ref()
        .map_or(Vec::new(), |o| groups::read(o, exceptions, sink));
    let steps = steps.and_then(|e| report(whole(e, &Scope::new(), 1, MAX_STEPS), sink));
    let accumulate = match value("accumulate") {
        Some(e) => accumulate(e, batch, sink),
        None => Some(1),
    };
    if let (Some(Batch::Tokens(n)), Some(e), Some(parts)) = (batch, batch_at, accumulate) {
        let of_texts = |d: &Data| d.form.is_padded();
        let several_lengths = told.iter().flatten().any(of_texts);
        let context = ends.map_or(0, |e| {
            let source = e.source.map_or(0, |source| source.context());
            e.sizes.context.max(source)
        });
        if told.as_ref().is_some_and(Option::is_some) && !several_lengths {
            let d = incompatible(
                e.span,
                "`pairs` and `labelled` alone have batches of tokens",
            );
            sink.push(
                d.label("this data gives rows of one length")
                    .help("write `batch 8`"),
            );
        } else if n / parts < context {
            let message = format!(
                "a text may have {context} tokens, and a batch {}",
                n / parts
            );
            let d = Diagnostic::error(codes::INVALID_VALUE, e.span, message);
            let least = context.saturating_mul(parts);
            sink.push(d.help(format!(
                "write `batch tokens({least})` or more, or a shorter context"
            )));
        }
    }
    let schedule = match value("schedule") {
        Some(e) => settings::schedule(e, steps, sink),
        None => Some(Constant.into()),
    };
    let keep = value("keep").map(|e| keep(e, sink));
    let ema = value("ema").and_then(|e| report(real(e, Bounds::BelowOne), sink));
    let evaluations = value("evaluations");
    let evaluations =
        evaluations.and_then(|e| report(whole(e, &Scope::new(), 1, MAX_EVALUATIONS), sink));
    let most = evaluations.unwrap_or(EVALUATIONS);
    let patience = value("patience");
    let patience = patience.and_then(|e| report(whole(e, &Scope::new(), 1, most), sink));
    let clip = value("clip").and_then(|e| report(real(e, Bounds::Positive), sink));
    let seed = value("seed").map_or(Some(0), |e| {
        report(whole(e, &Scope::new(), 0, u64::MAX), sink)
    });
    let precision = match value("precision") {
        Some(e) => precision(e, sink),
        None => Some(Precision::F32),
    };
    let numbers = ends.is_some_and(|e| e.output.says() == Predicts::Numbers);
    let loss = match value("loss") {
        Some(e) => loss::read(e, sink),
        None if ends.is_some_and(|e| !e.also.is_empty()) => {
            let message = "the train block has no `loss`";
            let d = Diagnostic::error(codes::MISSING_ITEM, block.span, message);
            let d = d.label("this model has several outputs: what each counts must be said");
            sink.push(d.help("add, for example, `loss mse + 1/10*cross_entropy(of: class)`"));
            None
        }
        None if numbers => {
            let message = "the train block has no `loss`";
            let d = Diagnostic::error(codes::MISSING_ITEM, block.span, message);
            let d = d.label("this model gives numbers: how they are compared must be said");
            sink.push(d.help(
                "add `loss mse`, or `loss bce` where each number says how likely something is; of images, `loss velocity`",
            ));
            None
        }
        None => Some(Objective::default()),
    };
    let mut also = BTreeMap::new();
    let at = value("loss").map_or(block.span, |e| e.span);
    let loss = loss.and_then(|mut objective| {
        if !objective.compares_first() {
            let message = "no term of the loss compares the output without a label";
            let d = Diagnostic::error(codes::MISSING_ITEM, at, message);
            sink.push(d.help("add a term without `of`: `mse + 1/10*cross_entropy(of: class)`"));
            return None;
        }
        let tokenizer = trained_on.as_ref().and_then(|source| source.tokenizer());
        let of = Of {
            ends: ends?,
            kinds: tokenizer.and_then(NamedTokenizer::kinds),
            at,
        };
        also = objective.fit_others(of, sink).unwrap_or_default();
        let loss = objective.fit_output(of, sink)?;
        // What is predicted of the same tokens is the same.
        let exits = also
            .values_mut()
            .filter(|l| l.predicts() == Predicts::Tokens);
        exits.for_each(|of_exit| *of_exit = loss);
        let further = of.ends.also.iter().find(|o| o.kind.ahead() > 0);
        if let Some(further) = further.filter(|_| loss != Loss::Next) {
            let message = "this loss is not of the tokens that come next";
            let d = Diagnostic::error(codes::INCOMPATIBLE, at, message);
            let d = d.also(further.span, "this output predicts tokens further ahead");
            sink.push(
                d.help("write `loss cross_entropy` and `data text(…)`, or leave `ahead` out"),
            );
            return None;
        }
        for term in &mut objective.terms {
            let of = of.ends.also.iter().find(|o| o.label == term.of);
            term.ahead = of.map_or(0, |o| o.kind.ahead());
        }
        Some((loss, objective))
    });
    let entry = found.iter().find(|(n, _)| *n == "from");
    let from = entry.and_then(|(_, e)| from(e, source, sink));
    let tuned = value("tune").map(|e| (lora::read(e, sink), e.span));
    if let (Some((Some(Tune::Lora { .. }), span)), None) = (&tuned, entry) {
        let message = "`tune lora` needs parameters to start from";
        sink.push(
            Diagnostic::error(codes::MISSING_ITEM, *span, message)
                .label("everything but factors would stay at random numbers")
                .help("add, for example, `from \"runs/pretrained\"`"),
        );
    }
    let constrain = value("constrain");
    let spectral = constrain.and_then(|e| constrain::read(e, sink));
    let parametrization = value("parametrization");
    let parametrization =
        parametrization.and_then(|e| parametrization::read(e, sink).map(|found| (found, e.span)));
    let budget = value("memory").filter(|e| Args::of(e).is_some_and(|a| a.callee.name == "budget"));
    let (memory, budget) = match (value("memory"), budget) {
        (_, Some(e)) => (Some(Memory::Store), budget_of(e, sink).map(|n| (n, e.span))),
        (Some(e), None) => (memory(e, sink), None),
        (None, None) => (Some(Memory::Store), None),
    };
    let held_out = told
        .as_ref()
        .and_then(|d| Some(d.as_ref()?.held_out_percent));
    if let (Some(e), Some(0)) = (value("evaluations").or(value("patience")), held_out) {
        let message = "nothing is held out that could be evaluated";
        let d = Diagnostic::error(codes::NO_EFFECT, e.span, message);
        sink.push(d.help("write, for example, `held_out: 10%` among the arguments of `data`"));
    }
    if sink.len() > before {
        return None;
    }
    let trained_on = trained_on?;
    let (loss, objective) = loss?;
    let mut data = told??;
    let told = ends.map(|e| e.told);
    let flow = |times| Flow {
        times,
        labelled: told.is_some_and(|t| t.classes.is_some()),
        dropped_percent: told.map_or(0, |t| t.dropped_percent),
    };
    match &mut data.form {
        Form::Vectors(vectors) => {
            for target in &mut vectors.targets {
                let loss = also.get(&target.output).unwrap_or(&loss);
                target.events = loss.is_of_events();
            }
            vectors.flow = objective.times().map(flow);
        }
        Form::Images(images) => images.flow = objective.times().map(flow),
        Form::Text { .. }
        | Form::Sentences(_)
        | Form::Tokens
        | Form::Pairs(_)
        | Form::Labelled(_) => {}
    }
    let train = Train {
        data,
        optimizer: optimizer?,
        groups,
        ema,
        schedule: schedule?,
        evaluations,
        patience,
        batch: batch.zip(accumulate).map(|(b, parts)| b.rows(parts))?,
        tokens: match batch? {
            Batch::Rows(_) => None,
            Batch::Tokens(n) => Some(n),
        },
        accumulate: accumulate?,
        steps: steps?,
        keep: keep.flatten(),
        clip,
        seed: seed?,
        memory: memory?,
        precision: precision?,
        loss,
        also,
        from: from.as_ref().map(|(from, _)| from.clone()),
        tune: tuned.map_or(Some(Tune::All), |(tune, _)| tune)?,
        spectral,
    };
    let named = Named {
        tokenizer: trained_on.tokenizer().and_then(NamedTokenizer::file),
        data: value("data").map(|e| e.span),
        from,
        tune: value("tune").map(|e| e.span),
        constrain: value("constrain").map(|e| e.span),
        parametrization,
        groups: exceptions.iter().map(|e| e.names.clone()).collect(),
        objective,
        budget,
        precision: value("precision").map(|e| e.span),
    };
    Some((train, named))
}

/// `from "runs/a"`, or `from "theirs.safetensors", "names.json"`; relative to the folder of the file that says so.
fn from(e: &Entry, source: &str, sink: &mut Vec<Diagnostic>) -> Option<(Pretrained, Span)> {
    const HELP: &str =
        "write `from \"runs/pretrained\"`, or `from \"theirs.safetensors\", \"names.json\"`";
    let folder = Path::new(source).parent().unwrap_or(Path::new(""));
    let mut paths = Vec::new();
    for value in &e.values {
        let ExprKind::Str(path) = &value.kind else {
            let message = "this is not the path of a run or of a file";
            let d = Diagnostic::error(codes::NOT_A_STRING, value.span, message);
            sink.push(d.help(HELP));
            return None;
        };
        paths.push(folder.join(path).display().to_string());
    }
    if let Some(third) = e.values.get(2) {
        let message = "`from` takes a run or a file, and a map of names";
        sink.push(Diagnostic::error(codes::ARGUMENT_COUNT, third.span, message).help(HELP));
        return None;
    }
    let mut paths = paths.into_iter();
    let from = Pretrained {
        path: paths.next()?,
        map: paths.next(),
    };
    Some((from, e.span))
}

/// What a step takes.
#[derive(Clone, Copy)]
enum Batch {
    Rows(u64),
    Tokens(u64),
}

impl Batch {
    /// The most rows of a step in so many micro-batches.
    fn rows(self, parts: u64) -> u64 {
        match self {
            Batch::Rows(n) => n,
            Batch::Tokens(n) => (n / parts / Pairs::SHORTEST).max(1) * parts,
        }
    }
}

/// `8`, or `tokens(4096)`.
fn batch(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Batch> {
    let Some(mut args) = Args::of(e).filter(|a| a.callee.name == "tokens") else {
        let rows = report(whole(e, &Scope::new(), 1, MAX_BATCH), sink)?;
        return Some(Batch::Rows(rows));
    };
    let Some(number) = args.positional() else {
        let message = "`tokens` needs a number";
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, e.span, message);
        sink.push(d.help("write `batch tokens(4096)`"));
        return None;
    };
    args.finish(&[], sink);
    let tokens = report(whole(number, &Scope::new(), 1, MAX_BATCH), sink)?;
    Some(Batch::Tokens(tokens))
}

/// `checkpoints(last: 5, every: 500)`.
fn keep(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Keep> {
    let example = "keep checkpoints(last: 5, every: 500)";
    let mut args = expect(e, "checkpoints", &[], example, sink)?;
    let last = args.size("last", &Scope::new(), MAX_KEPT, sink);
    let every = args.size("every", &Scope::new(), MAX_STEPS, sink);
    args.finish(&[], sink);
    Some(Keep {
        last: last?,
        every: every?,
    })
}

/// A number of micro-batches of equal size.
fn accumulate(e: &Expr, batch: Option<Batch>, sink: &mut Vec<Diagnostic>) -> Option<u64> {
    let n = report(whole(e, &Scope::new(), 1, MAX_BATCH), sink)?;
    let (batch, unit) = match batch? {
        Batch::Rows(n) => (n, ""),
        Batch::Tokens(n) => (n, " tokens"),
    };
    if batch.is_multiple_of(n) {
        return Some(n);
    }
    let message = format!("a batch of {batch}{unit} cannot be cut into {n} equal parts");
    sink.push(
        Diagnostic::error(codes::INVALID_VALUE, e.span, message)
            .label("a divisor of the batch is expected"),
    );
    None
}

/// `f32`, `bf16` or `f64`.
fn precision(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Precision> {
    let known = Precision::ALL
        .into_iter()
        .find(|p| name_of(e).is_some_and(|n| n.name == p.name()));
    if known.is_none() {
        let d = not_supported(e.span, "this precision");
        sink.push(d.label("only `precision f32`, `precision bf16` and `precision f64`"));
    }
    known
}

/// `store`, or `revolve(slots: 6)`.
fn memory(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Memory> {
    if name_of(e).is_some_and(|n| n.name == "store") {
        return Some(Memory::Store);
    }
    let (known, later) = (["store", "revolve", "budget"], ["online"]);
    let mut args = one_of(e, &known, &later, "memory budget(4 GiB)", sink)?;
    if args.callee.name == "store" {
        args.finish(&[], sink);
        return Some(Memory::Store);
    }
    let slots = args
        .required("slots", sink)
        .and_then(|e| report(whole(e, &Scope::new(), 1, MAX_SLOTS), sink));
    args.finish(&[], sink);
    Some(Memory::Revolve { slots: slots? })
}

/// `budget(4 GiB)`, in bytes.
fn budget_of(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<u64> {
    let mut args = Args::of(e)?;
    let Some(size) = args.positional() else {
        let message = "`budget` needs a number of bytes";
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, e.span, message);
        sink.push(d.help("write `budget(4 GiB)`"));
        return None;
    };
    args.finish(&[], sink);
    let (number, unit) = match &size.kind {
        ExprKind::Quantity(number, unit) => {
            let Some((_, bytes)) = UNITS.iter().find(|(name, _)| name == unit) else {
                let message = format!("`{unit}` is no unit of memory");
                let d = Diagnostic::error(codes::UNKNOWN_OPTION, size.span, message);
                sink.push(d.help("write `budget(4 GiB)`; there are KiB, MiB, GiB, kB, MB and GB"));
                return None;
            };
            let number = Expr {
                kind: ExprKind::Number(number.clone()),
                span: size.span,
            };
            (number, *bytes)
        }
        _ => (size.clone(), 1),
    };
    let value = report(exact(&number, &Scope::new()), sink)?;
    let bytes = &value * &Exact::int(unit);
    report(in_range(&bytes, size, 1, MAX_BUDGET), sink)
}
