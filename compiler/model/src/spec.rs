//! A model's parts, checked on their own and against each other: sizes, flows, stage programs, weights policies.
//!
//! Takes the syntax of a model; gives a [`Spec`] from which nothing can fail any more but a name clash of parameters.
//! Everything that is multiplied out later is counted here first. Leaves graphs to `build.rs`.

use super::args::{Args, Bounds};
use super::depth::Depth;
use super::evolve::{EvolveSpec, evolve};
use super::layers::MAX_WIDTH;
use super::layers::network::Network;
use super::layers::pipeline::{self, Sizes};
use super::loss::Objective;
use super::widths;
use crate::codes;
use crate::scheme::resolve::Resolver;
use crate::scheme::run::{MAX_EVALUATIONS, MAX_MIXING, too_many_evaluations, too_much_mixing};
use crate::scheme::scalar::{Scope, not_supported};
use odec_grammar::Span;
use odec_grammar::ast::{Evolve, Expr, ExprKind, Ident, Model, ModelItem};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Loss, Tune};
use std::collections::BTreeMap;

/// Largest vocabulary and longest context.
const MAX_VOCAB: u64 = 1 << 24;
const MAX_CONTEXT: u64 = 1 << 24;

#[derive(Clone, Debug)]
pub struct Spec {
    pub name: Ident,
    pub sizes: Sizes,
    pub evolves: Vec<EvolveSpec>,
    /// What stands before the logits.
    pub output: Option<Network>,
    /// Whether the logits use the embedding's table.
    pub tied: bool,
    pub output_span: Span,
    pub embed_span: Span,
    /// What is added to the embedding.
    pub positions: Option<Positions>,
    /// What it is trained for.
    pub loss: Loss,
    /// What is made small while it is trained.
    pub objective: Objective,
    /// Which parameters are trained.
    pub tune: Tune,
    /// The most that the spectral norm of a field's matrix may be.
    pub spectral: Option<f64>,
    /// Standard deviation of freshly drawn matrices.
    pub std: f64,
}

/// A row for each position, added to the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// A table that is trained.
    Learned,
    /// Sines and cosines of rising wave lengths (Vaswani et al. 2017).
    Sinusoidal,
}

/// Reads a model.
pub fn read(model: &Model, r: &mut Resolver) -> Option<Spec> {
    let before = errors(r.sink);
    let sizes = sizes(model, r.sink);
    let embed = model.items.iter().find_map(|i| match i {
        ModelItem::Embed { values, span } => Some((&values[..], *span)),
        _ => None,
    });
    let (values, embed_span) = embed.unwrap_or((&[], model.span));
    let positions = values.get(1).and_then(|e| positions(e, r.sink));
    let output = single(
        model,
        "output",
        r.sink,
        |i| matches!(i, ModelItem::Output { .. }),
        true,
    );
    let init = single(
        model,
        "init",
        r.sink,
        |i| matches!(i, ModelItem::Init { .. }),
        false,
    );
    let std = match init {
        Some(ModelItem::Init { value, .. }) => normal(value, r.sink),
        _ => Some(DEFAULT_STD),
    };
    let evolves = model.items.iter().filter_map(|i| {
        if let ModelItem::Evolve(e) = i {
            Some(e)
        } else {
            None
        }
    });
    let evolves: Vec<&Evolve> = evolves.collect();
    labels(model, &evolves, r.sink);
    let output = match output {
        Some(ModelItem::Output { value, span }) => {
            logits(value, sizes, r.sink).map(|(layer, tied)| (layer, tied, *span))
        }
        _ => None,
    };
    let (mut evaluations, mut mixing) = (0, 0);
    let mut read: Vec<Option<EvolveSpec>> = Vec::new();
    for e in &evolves {
        let spec = evolve(e, r);
        evaluations += spec.as_ref().map_or(0, |s| s.unrolled.evaluations());
        mixing += spec.as_ref().map_or(0, |s| s.unrolled.mixing());
        read.push(spec);
        if evaluations > MAX_EVALUATIONS {
            r.sink
                .push(too_many_evaluations(e.span).label("with all evolves before it"));
            return None;
        }
        if mixing > MAX_MIXING {
            r.sink.push(too_much_mixing(e.span));
            return None;
        }
    }
    let mut read: Vec<EvolveSpec> = read.into_iter().collect::<Option<_>>()?;
    let sizes = sizes?;
    let mut fit = true;
    for e in &mut read {
        let layers = |p| widths::layers(p, sizes, r.sink);
        let layers: Vec<Option<Vec<Network>>> = e.unrolled.programs.iter().map(layers).collect();
        match layers.into_iter().collect::<Option<_>>() {
            Some(layers) => e.layers = layers,
            None => fit = false,
        }
        if let Depth::Halting(halting) = &mut e.depth {
            fit &= halting.read(sizes, r.sink).is_some();
        }
    }
    let (output, tied, output_span) = output.filter(|_| fit)?;
    let std = std?;
    if errors(r.sink) > before {
        return None;
    }
    Some(Spec {
        name: model.name.clone(),
        positions,
        loss: Loss::Next,
        objective: Objective::default(),
        tune: Tune::All,
        spectral: None,
        sizes,
        evolves: read,
        output,
        tied,
        output_span,
        embed_span,
        std,
    })
}

/// Says so once when a model is to predict tokens that it has already seen.
pub fn warn_of_lookahead(evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
    let fields = |e: &EvolveSpec| {
        let programs = e.unrolled.programs.iter().zip(&e.layers);
        let each = programs.flat_map(|(p, layers)| p.fields.iter().cloned().zip(layers.clone()));
        let halting = e.halting();
        let halting = halting.and_then(|h| Some((h.leaf.clone(), h.layer.clone()?)));
        each.chain(halting).collect::<Vec<_>>()
    };
    let ahead = evolves
        .iter()
        .flat_map(fields)
        .find(|(_, layer)| layer.looks_ahead());
    if let Some((leaf, _)) = ahead {
        let message = format!(
            "`{}` attends to later tokens, which the model is to predict",
            leaf.name
        );
        sink.push(
            Diagnostic::warning(codes::LOOKS_AHEAD, leaf.span, message)
                .help("for a model that generates, write `attention(heads: …, causal)`"),
        );
    }
}

/// Vocabulary, context and width of a model.
pub fn sizes(model: &Model, sink: &mut Vec<Diagnostic>) -> Option<Sizes> {
    let input = single(
        model,
        "input",
        sink,
        |i| matches!(i, ModelItem::Input { .. }),
        true,
    );
    let embed = single(
        model,
        "embed",
        sink,
        |i| matches!(i, ModelItem::Embed { .. }),
        true,
    );
    let sizes = match input {
        Some(ModelItem::Input { value, .. }) => tokens(value, sink),
        _ => None,
    };
    let width = match embed {
        Some(ModelItem::Embed { values, span }) => embedding(values, *span, sink),
        _ => None,
    };
    let ((vocab, context), width) = (sizes?, width?);
    Some(Sizes {
        vocab,
        context,
        width,
    })
}

/// Standard deviation of matrices when a model does not say it.
const DEFAULT_STD: f64 = 0.02;

/// Number of errors among messages.
pub fn errors(sink: &[Diagnostic]) -> usize {
    sink.iter()
        .filter(|d| d.severity == odec_grammar::Severity::Error)
        .count()
}

fn item_span(item: &ModelItem) -> Span {
    match item {
        ModelItem::Input { span, .. }
        | ModelItem::Embed { span, .. }
        | ModelItem::Output { span, .. }
        | ModelItem::Init { span, .. } => *span,
        ModelItem::Evolve(e) => e.span,
    }
}

fn single<'m>(
    model: &'m Model,
    word: &str,
    sink: &mut Vec<Diagnostic>,
    is: impl Fn(&ModelItem) -> bool,
    required: bool,
) -> Option<&'m ModelItem> {
    let mut found = model.items.iter().filter(|i| is(i));
    let first = found.next();
    if let (Some(first), Some(second)) = (first, found.next()) {
        sink.push(
            Diagnostic::error(
                codes::REPEATED_ITEM,
                item_span(second),
                format!("a model has one `{word}`"),
            )
            .label("a second one")
            .also(item_span(first), "the first one"),
        );
    }
    if first.is_none() && required {
        let example = match word {
            "input" => "input tokens(vocab: 256, context: 256)",
            "embed" => "embed learned(width: 256)",
            _ => "output rmsnorm |> logits(tied)",
        };
        sink.push(missing(model, word, example));
    }
    first
}

fn missing(model: &Model, word: &str, example: &str) -> Diagnostic {
    let message = format!("model `{}` has no `{word}`", model.name.name);
    Diagnostic::error(codes::MISSING_ITEM, model.name.span, message)
        .help(format!("add, for example, `{example}`"))
}

fn labels(model: &Model, evolves: &[&Evolve], sink: &mut Vec<Diagnostic>) {
    if evolves.is_empty() {
        sink.push(missing(
            model,
            "evolve",
            "evolve lie(att, ffn) for 6 steps { h = 1;  weights per step }",
        ));
    }
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for e in evolves.iter().filter(|_| evolves.len() > 1) {
        match &e.label {
            None => sink.push(
                Diagnostic::error(codes::MISSING_ITEM, e.span, "this evolve has no label")
                    .help("several evolves are told apart by labels: `evolve core: lie(att, ffn) for 6 steps`"),
            ),
            Some(l) => {
                if let Some(first) = seen.insert(&l.name, l.span) {
                    let message = format!("two evolves are called `{}`", l.name);
                    sink.push(
                        Diagnostic::error(codes::REPEATED_ITEM, l.span, message)
                            .also(first, "the first one"),
                    );
                }
            }
        }
    }
}

/// `tokens(vocab: 256, context: 256)`.
fn tokens(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<(u64, u64)> {
    let mut args = expect(
        e,
        "tokens",
        &["patches", "vectors", "image"],
        "tokens(vocab: 256, context: 256)",
        sink,
    )?;
    let vocab = args.size("vocab", &Scope::new(), MAX_VOCAB, sink);
    let context = args.size("context", &Scope::new(), MAX_CONTEXT, sink);
    args.finish(&[], sink);
    vocab.zip(context)
}

/// `positions(learned)`, `positions(sinusoidal)`.
fn positions(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Positions> {
    let example = "embed learned(width: 256), positions(learned)";
    let mut args = expect(e, "positions", &["class_token"], example, sink)?;
    let (learned, sinusoidal) = (args.flag("learned"), args.flag("sinusoidal"));
    let before = sink.len();
    args.finish(&[], sink);
    match (learned, sinusoidal) {
        _ if sink.len() > before => None,
        (true, false) => Some(Positions::Learned),
        (false, true) => Some(Positions::Sinusoidal),
        _ => {
            let message = "`positions` takes one word";
            sink.push(
                Diagnostic::error(codes::ARGUMENT_COUNT, e.span, message)
                    .help("write `positions(learned)` or `positions(sinusoidal)`"),
            );
            None
        }
    }
}

/// `learned(width: 256)`, the first part of an embedding.
fn embedding(values: &[Expr], span: Span, sink: &mut Vec<Diagnostic>) -> Option<u64> {
    for more in values.iter().skip(2) {
        sink.push(not_supported(more.span, "a third part of an embedding"));
    }
    let Some(first) = values.first() else {
        sink.push(Diagnostic::error(
            codes::MISSING_ARGUMENT,
            span,
            "this embedding is empty",
        ));
        return None;
    };
    let later = ["linear", "conv", "positions", "class_token"];
    let mut args = expect(first, "learned", &later, "learned(width: 256)", sink)?;
    let width = args.size("width", &Scope::new(), MAX_WIDTH, sink);
    args.finish(&[], sink);
    width
}

/// `normal(std: 0.02)`.
fn normal(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<f64> {
    let mut args = expect(e, "normal", &[], "normal(std: 0.02)", sink)?;
    let std = args.number("std", Bounds::NotNegative, DEFAULT_STD, sink);
    args.finish(&[], sink);
    std
}

/// A call of one expected name.
pub fn expect<'e>(
    e: &'e Expr,
    name: &str,
    later: &[&str],
    example: &str,
    sink: &mut Vec<Diagnostic>,
) -> Option<Args<'e>> {
    let args = Args::of(e);
    if let Some(args) = args {
        if args.callee.name == name {
            return Some(args);
        }
        if later.contains(&args.callee.name.as_str()) {
            sink.push(not_supported(
                args.callee.span,
                &format!("`{}` here", args.callee.name),
            ));
            return None;
        }
    }
    sink.push(
        Diagnostic::error(
            codes::UNKNOWN_OPTION,
            e.span,
            format!("`{name}` is expected here"),
        )
        .help(format!("write, for example, `{example}`")),
    );
    None
}

/// `rmsnorm |> logits(tied)`: what stands before the logits, and whether they are tied.
fn logits(
    e: &Expr,
    sizes: Option<Sizes>,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Option<Network>, bool)> {
    let (before, last) = match &e.kind {
        ExprKind::Pipe(a, b) => (Some(&**a), &**b),
        _ => (None, e),
    };
    let later = ["linear", "mean", "class_token", "state"];
    let mut args = expect(
        last,
        "logits",
        &later,
        "output rmsnorm |> logits(tied)",
        sink,
    )?;
    let tied = args.flag("tied");
    args.finish(&[], sink);
    let layer = match before {
        Some(before) => Some(pipeline::output(before, sizes?, sink)?),
        None => None,
    };
    Some((layer, tied))
}
