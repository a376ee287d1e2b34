//! A model's parts, checked on their own and against each other: sizes, flows, stage programs, weights policies.
//!
//! Takes the syntax of a model; gives a [`Spec`] from which nothing can fail any more but a name clash of parameters.
//! Everything that is multiplied out later is counted here first. Leaves graphs to `build.rs`, what an input or an output is to its file.

use super::args::Bounds;
use super::embeddings::{EMBEDDINGS, Embedding};
use super::evolve::{EvolveSpec, evolve};
use super::inputs::{INPUTS, Input};
use super::layers::network::Network;
use super::layers::pipeline::{self, Sizes};
use super::loss::Objective;
use super::outputs::{OUTPUTS, Output};
use super::part::expect;
use super::positions::{self, Positions};
use super::reports;
use super::routed;
use super::sources::Ends;
use super::step_count::StepCount;
use super::widths;
use crate::codes;
use crate::scheme::resolve::Resolver;
use crate::scheme::run::{MAX_EVALUATIONS, MAX_MIXING, too_many_evaluations, too_much_mixing};
use crate::scheme::scalar::not_supported;
use odec_grammar::Span;
use odec_grammar::ast::{Body, Evolve, Expr, ExprKind, Ident, Model, ModelItem};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Loss, Tune};
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub struct Spec {
    pub name: Ident,
    pub sizes: Sizes,
    pub evolves: Vec<EvolveSpec>,
    pub input: Rc<dyn Input>,
    pub embed: EmbedSpec,
    pub output: OutputSpec,
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

/// How the first state is made of the input.
#[derive(Clone, Debug)]
pub struct EmbedSpec {
    pub kind: Rc<dyn Embedding>,
    /// What is added to it.
    pub positions: Option<Rc<dyn Positions>>,
    pub span: Span,
}

/// How the result is made of the last state.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    pub before: Option<Network>,
    pub kind: Rc<dyn Output>,
    pub span: Span,
}

impl Spec {
    /// What a data source is read for.
    pub fn ends(&self) -> Ends<'_> {
        Ends {
            input: &*self.input,
            source: None,
            output: &*self.output.kind,
            sizes: self.sizes,
        }
    }
}

/// Reads a model.
pub fn read(model: &Model, r: &mut Resolver) -> Option<Spec> {
    let before = errors(r.sink);
    let beginning = beginning(model, r.sink);
    let sizes = beginning.as_ref().map(Beginning::sizes);
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
        Some(ModelItem::Output { value, span }) => end(value, *span, sizes, r),
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
        fit &= match &mut e.depth {
            StepCount::Halting(halting) => halting.read(sizes, r.sink).is_some(),
            StepCount::Routed(router) => router.read(e.steps, sizes, r.sink).is_some(),
            StepCount::Known | StepCount::Adaptive(_) | StepCount::Random(_) => true,
        };
        fit &= routed::fit(e, r.sink).is_some();
        if !e.layers.is_empty() {
            fit &= reports::fit(e, sizes, r).is_some();
        }
    }
    let output = output.filter(|_| fit)?;
    let std = std?;
    let Beginning { input, embed } = beginning?;
    embed.kind.fit(embed.span, &*input, r.sink);
    let table = embed.kind.table();
    output.kind.fit(output.span, sizes, table, r.sink);
    if errors(r.sink) > before {
        return None;
    }
    Some(Spec {
        name: model.name.clone(),
        input,
        embed,
        loss: output.kind.asks(),
        objective: Objective::default(),
        tune: Tune::All,
        spectral: None,
        sizes,
        evolves: read,
        output,
        std,
    })
}

/// Says so once when a model is to predict tokens that it has already seen.
pub fn warn_of_lookahead(evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
    let fields = |e: &EvolveSpec| {
        let programs = e.unrolled.programs.iter().zip(&e.layers);
        let each = programs.flat_map(|(p, layers)| p.fields.iter().cloned().zip(layers.clone()));
        let decider = e.decider();
        let decider = decider.and_then(|d| Some((d.leaf.clone(), d.layer.clone()?)));
        each.chain(decider).collect::<Vec<_>>()
    };
    let ahead = evolves
        .iter()
        .flat_map(fields)
        .find_map(|(leaf, layer)| Some((leaf, layer.ahead()?)));
    if let Some((leaf, layer)) = ahead {
        let (verb, written) = match layer {
            "attention" => ("attends to", "attention(heads: …, causal)"),
            "attend" => ("attends to", "attend(q, k, v, heads: …, causal)"),
            "conv" => ("reads", "conv(kernel: …, causal)"),
            "hopfield" => ("reads", "hopfield(causal)"),
            "shift" => ("reads", "shift(by: …)"),
            _ => ("reads", ""),
        };
        let message = format!(
            "`{}` {verb} later tokens, which the model is to predict",
            leaf.name
        );
        let d = Diagnostic::warning(codes::LOOKS_AHEAD, leaf.span, message);
        let d = match layer == leaf.name {
            true => d,
            false => d.label(format!("by its `{layer}`")),
        };
        sink.push(match written {
            "" => d.help("a model that generates reads tokens up to each place, and none after it"),
            _ => d.help(format!("for a model that generates, write `{written}`")),
        });
    } else if let Some(e) = evolves.iter().find(|e| e.chooses_ahead()) {
        sink.push(routed::looks_ahead(e));
    }
}

/// What a model reads, and the first state that is made of it.
struct Beginning {
    input: Rc<dyn Input>,
    embed: EmbedSpec,
}

impl Beginning {
    fn sizes(&self) -> Sizes {
        Sizes {
            vocab: self.input.vocab(),
            context: self.input.context(),
            width: self.embed.kind.width(),
        }
    }
}

/// The sizes that a model's fields may name.
pub fn sizes(model: &Model, sink: &mut Vec<Diagnostic>) -> Option<Sizes> {
    beginning(model, sink).map(|b| b.sizes())
}

fn beginning(model: &Model, sink: &mut Vec<Diagnostic>) -> Option<Beginning> {
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
    let input = match input {
        Some(ModelItem::Input { value, .. }) => INPUTS.read(value, sink),
        _ => None,
    };
    let embed = match embed {
        Some(ModelItem::Embed { values, span }) => embedding(values, *span, sink),
        _ => None,
    };
    let (input, embed) = input.zip(embed)?;
    Some(Beginning { input, embed })
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

/// `learned(width: 256), positions(learned)`: an embedding, and what is added to it.
fn embedding(values: &[Expr], span: Span, sink: &mut Vec<Diagnostic>) -> Option<EmbedSpec> {
    for more in values.iter().skip(2) {
        sink.push(not_supported(more.span, "a third part of an embedding"));
    }
    let Some(first) = values.first() else {
        let message = "this embedding is empty";
        sink.push(Diagnostic::error(codes::MISSING_ARGUMENT, span, message));
        return None;
    };
    let kind = EMBEDDINGS.read(first, sink);
    let positions = values.get(1).and_then(|e| positions::read(e, sink));
    let kind = kind?;
    Some(EmbedSpec {
        kind,
        positions,
        span,
    })
}

/// `normal(std: 0.02)`.
fn normal(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<f64> {
    let mut args = expect(e, "normal", &[], "normal(std: 0.02)", sink)?;
    let std = args.number("std", Bounds::NotNegative, DEFAULT_STD, sink);
    args.finish(&[], sink);
    std
}

/// `rmsnorm |> logits(tied)`: layers, and what is said of the last state.
fn end(e: &Expr, span: Span, sizes: Option<Sizes>, r: &mut Resolver) -> Option<OutputSpec> {
    let (before, last) = match &e.kind {
        ExprKind::Pipe(a, b) => (Some(&**a), &**b),
        _ => (None, e),
    };
    let kind = OUTPUTS.read(last, r.sink)?;
    let before = match before {
        Some(before) => {
            let before = Body::Expr(before.clone());
            let layers = r.layers_of(&before, &[])?;
            Some(pipeline::output(&before, &layers, sizes?, r.sink)?)
        }
        None => None,
    };
    Some(OutputSpec { before, kind, span })
}
