//! A model's parts, checked on their own and against each other: sizes, flows, stage programs, weights policies.
//!
//! Takes the syntax of a model; gives a [`Spec`] from which nothing can fail any more but a name clash of parameters.
//! Everything that is multiplied out later is counted here first. Leaves graphs to `build.rs`, what an input or an output is to its file.

use super::args::Bounds;
use super::beginnings::{self, Beginning, Stage};
use super::evolve::{EvolveSpec, evolve};
use super::layers::network::Network;
use super::layers::pipeline;
use super::layers::{CONDITION, OfModel, Sizes, State, States};
use super::loss::Objective;
use super::outputs::{Embedded, OUTPUTS, OutputSpec};
use super::part::expect;
use super::reports;
use super::routed;
use super::sources::Ends;
use super::step_count::StepCount;
use super::widths;
use crate::codes;
use crate::scheme::resolve::Resolver;
use crate::scheme::run::{MAX_EVALUATIONS, MAX_MIXING, too_many_evaluations, too_much_mixing};
use crate::step_rule::Steps;
use odec_grammar::Span;
use odec_grammar::ast::{Body, Evolve, Expr, ExprKind, Ident, Model, ModelItem};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Predicts, Tune};
use odec_program::names;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub struct Spec {
    pub name: Ident,
    /// Of the state that the output reads.
    pub sizes: Sizes,
    pub evolves: Vec<EvolveSpec>,
    /// The sequences that are read before the one that is predicted: what encoders read.
    pub sources: Vec<Beginning>,
    /// Their labels.
    pub labels: Vec<String>,
    /// The state that the output reads.
    pub begin: Beginning,
    pub output: OutputSpec,
    /// Outputs with labels, in the order in which they are written.
    pub also: Vec<OutputSpec>,
    /// What is made small while it is trained.
    pub objective: Objective,
    /// Which parameters are trained.
    pub tune: Tune,
    /// The most that the spectral norm of a field's matrix may be.
    pub spectral: Option<f64>,
    /// Standard deviation of freshly drawn matrices.
    pub std: f64,
}

impl Spec {
    /// All sequences, in the order in which their states are computed.
    pub fn begins(&self) -> impl Iterator<Item = &Beginning> {
        self.sources.iter().chain([&self.begin])
    }

    /// The evolves that move the state of the n-th of these.
    pub fn evolves_of(&self, n: usize) -> &[EvolveSpec] {
        let at = |n: usize| self.begins().nth(n).map(|b| b.evolves_before);
        let from = at(n).unwrap_or(0);
        let to = at(n + 1).unwrap_or(self.evolves.len());
        self.evolves.get(from..to).unwrap_or_default()
    }

    /// All states, in the order in which they are computed, each with the evolves that move it.
    pub fn stages(&self) -> impl Iterator<Item = (&Stage, &[EvolveSpec])> {
        let all = || self.begins().flat_map(|b| &b.stages);
        let ends = all().skip(1).map(|s| s.evolves_before);
        let ends = ends.chain([self.evolves.len()]);
        all().zip(ends).map(|(stage, end)| {
            let own = self.evolves.get(stage.evolves_before..end);
            (stage, own.unwrap_or_default())
        })
    }

    /// Those that move the state which the output reads.
    pub fn last_evolves(&self) -> &[EvolveSpec] {
        self.evolves_of(self.sources.len())
    }

    /// All outputs, the one without a label first.
    pub fn outputs(&self) -> impl Iterator<Item = &OutputSpec> {
        [&self.output].into_iter().chain(&self.also)
    }

    /// The padding token, of models of several sequences and of classifiers of texts.
    pub fn padding(&self) -> Option<u64> {
        let filled_up = !self.sources.is_empty() || self.classifies();
        filled_up.then_some(self.sizes.vocab?.saturating_sub(1))
    }

    /// Whether it classifies texts.
    pub fn classifies(&self) -> bool {
        self.sizes.vocab.is_some() && self.output.kind.says() == Predicts::Class
    }

    /// The most tokens of each source that a run reads; 0, where there is none.
    pub fn source_context(&self) -> u64 {
        self.sources.first().map_or(0, Beginning::context)
    }

    /// The most tokens of a row of either.
    pub fn longest_row(&self) -> u64 {
        self.source_context().max(self.begin.context())
    }

    /// What a data source is read for.
    pub fn ends(&self) -> Ends<'_> {
        Ends {
            input: &*self.begin.input,
            source: self.sources.first().map(|b| &*b.input),
            labels: &self.labels,
            output: &*self.output.kind,
            also: &self.also,
            leading: self.begin.empty_rows(),
            separator: self.begin.embed.marks.as_ref().map(|m| m.separator()),
            told: self.begin.embed.told(),
            sizes: self.sizes,
        }
    }
}

/// Reads a model.
pub fn read(model: &Model, r: &mut Resolver) -> Option<Spec> {
    let before = errors(r.sink);
    let begins = beginnings::read(model, r.sink);
    let sizes = begins.as_ref().and_then(|b| Some(b.last()?.sizes()));
    let output = single(
        model,
        "output",
        r.sink,
        |i| matches!(i, ModelItem::Output { label: None, .. }),
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
    let evolves: Vec<&Evolve> = evolves(model).collect();
    labels(model, &evolves, r.sink);
    let all = begins.as_deref().unwrap_or_default();
    let known = states(&evolves, all);
    let of_evolve = |sizes: Sizes, at: usize| OfModel {
        sizes: stage(all, at).map_or(sizes, |stage| stage.sizes),
        states: States {
            known: Some(known.clone()),
            at,
            sequence: Some(sequence(all, at)),
            stage: Some(stage_number(all, at)),
            condition: condition(all),
        },
        steps: Steps::Outside,
    };
    let outputs = model.items.iter().filter(|item| {
        output.is_some_and(|first| std::ptr::eq(*item, first)) || labelled(item).is_some()
    });
    let last = sizes.map(|sizes| of_evolve(sizes, evolves.len()));
    let mut ends: Vec<Option<OutputSpec>> = Vec::new();
    for item in outputs {
        if let ModelItem::Output { label, value, span } = item {
            let label = label.as_ref().map_or("", |l| &l.name);
            ends.push(end(label, value, *span, last.as_ref(), r));
        }
    }
    output_labels(model, r.sink);
    // The one without a label comes first.
    let ends: Option<Vec<OutputSpec>> = ends.into_iter().collect();
    let ends = ends.map(|ends| ends.into_iter().partition(|o| o.label.is_empty()));
    let (output, also): (Option<OutputSpec>, Vec<OutputSpec>) = match ends {
        Some((first, also)) => (Vec::into_iter(first).next(), also),
        None => (None, Vec::new()),
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
    let says_class = |o: &OutputSpec| o.kind.says() == Predicts::Class;
    let of_classes = sizes.vocab.is_some() && output.as_ref().is_some_and(says_class);
    let mut fit = true;
    for (n, e) in read.iter_mut().enumerate() {
        let model = &of_evolve(sizes, n);
        let in_steps = OfModel {
            steps: e.depth.of(e.steps),
            ..model.clone()
        };
        let layers = |p| widths::layers(p, &in_steps, r.sink);
        let layers: Vec<Option<Vec<Network>>> = e.unrolled.programs.iter().map(layers).collect();
        match layers.into_iter().collect::<Option<_>>() {
            Some(layers) => e.layers = layers,
            None => fit = false,
        }
        fit &= match &mut e.depth {
            StepCount::Halting(halting) => halting.read(model, r.sink).is_some(),
            StepCount::Routed(router) => router.read(e.steps, model, r.sink).is_some(),
            StepCount::Known | StepCount::Adaptive(_) | StepCount::Random(_) => true,
        };
        fit &= routed::fit(e, r.sink).is_some();
        if !e.layers.is_empty() {
            fit &= reports::fit(e, &in_steps, r).is_some();
        }
        if all.len() > 1 || of_classes {
            fit &= sees_no_padding(e, r.sink).is_some();
        }
    }
    let output = output.filter(|_| fit)?;
    let std = std?;
    sources_are_read(all, &read, r.sink);
    let outputs = || [&output].into_iter().chain(&also);
    condition_is_read(all, &read, outputs().flat_map(|o| &o.before), r.sink);
    let mut begins = begins?;
    let begin = begins.pop()?;
    let embedded = Embedded {
        table: begin.embed.kind.table(),
        // The first token of a labelled text stands in its place.
        class_token: of_classes || begin.stages.iter().any(|s| s.embed.has_class_token()),
        registers: begin.stages.iter().any(|s| s.embed.has_registers()),
        own_tokens: sizes.grid.is_some_and(|grid| grid.fixed),
    };
    for o in outputs() {
        o.kind.fit(o.span, sizes, embedded, r.sink);
    }
    if output.kind.ahead() > 0 {
        let message = "the output without a label predicts the next token";
        let d = Diagnostic::error(codes::INCOMPATIBLE, output.span, message);
        let d = d.label("text is continued by what it says");
        r.sink.push(d.help(
            "write `output rmsnorm |> logits(tied)`, and beside it `output further: rmsnorm |> logits(tied, ahead: 1)`",
        ));
    }
    if let Some(exit) = also.iter().find(|o| o.is_exit())
        && output.kind.says() != Predicts::Tokens
    {
        let message = "`logits` beside an output of another kind";
        let d = Diagnostic::error(codes::INCOMPATIBLE, exit.span, message);
        let d = d.also(
            output.span,
            "this output is compared with something else than tokens",
        );
        r.sink.push(d.help("leave it out"));
    }
    let other = |o: &&OutputSpec| o.kind.says() != Predicts::Tokens;
    if let (Some(source), Some(o)) = (begins.first(), outputs().find(other)) {
        let message = "a model of several sequences says the tokens of the last one";
        let d = Diagnostic::error(codes::INCOMPATIBLE, o.span, message);
        let d = d.also(source.embed.span, "the first sequence");
        r.sink
            .push(d.help("write `output rmsnorm |> logits(tied)`"));
    }
    if errors(r.sink) > before {
        return None;
    }
    let mut spec = Spec {
        name: model.name.clone(),
        labels: begins.iter().map(|b| b.label.clone()).collect(),
        sources: begins,
        begin,
        objective: Objective::default(),
        tune: Tune::All,
        spectral: None,
        sizes,
        evolves: read,
        output,
        also,
        std,
    };
    spec.output.loss = spec.ends().asks();
    Some(spec)
}

/// Says so where a model is told what nothing reads.
fn condition_is_read<'s>(
    begins: &[Beginning],
    evolves: &'s [EvolveSpec],
    before: impl Iterator<Item = &'s Network>,
    sink: &mut Vec<Diagnostic>,
) {
    let (Some(begin), Some(_)) = (begins.last(), condition(begins)) else {
        return;
    };
    let layers = evolves.iter().flat_map(EvolveSpec::all_layers);
    let reads = |l: &Network| l.reads().states.iter().any(|s| s == CONDITION);
    if !layers.chain(before).any(reads) {
        let message = "no field reads the condition";
        let d = Diagnostic::error(codes::NO_EFFECT, begin.embed.span, message);
        sink.push(d.help("a field begins with it: `condition |> silu |> linear(bias, zero)`"));
    }
}

/// Says which sequence does not reach the output.
fn sources_are_read(begins: &[Beginning], evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
    let reads = |e: &EvolveSpec| e.all_layers().flat_map(|l| l.reads().states).collect();
    let read: Vec<Vec<String>> = evolves.iter().map(reads).collect();
    for pair in begins.windows(2) {
        let (from, to) = (pair[0].evolves_before, pair[1].evolves_before);
        let own = &evolves[from..to];
        let is_own = |label: &String| own.iter().any(|e| e.label == *label);
        if !read[to..].iter().flatten().any(is_own) {
            let label = &pair[0].label;
            let message = format!("nothing of `{label}` reaches the output");
            let d = Diagnostic::error(codes::NO_EFFECT, pair[0].embed.span, message);
            let last = own.last().map_or("encoder", |e| e.label.as_str());
            sink.push(d.label("no field of a later evolve reads this state").help(format!(
                "write, for example, `field cross = rmsnorm |> attention(heads: 4, from: {last})`"
            )));
        }
    }
}

/// Says which part of an evolve would take what fills up rows for tokens.
fn sees_no_padding(e: &EvolveSpec, sink: &mut Vec<Diagnostic>) -> Option<()> {
    let what = match &e.depth {
        StepCount::Adaptive(_) => Some("the error of a step is that of all rows"),
        StepCount::Routed(_) => Some("a router compares all tokens of a row"),
        StepCount::Known | StepCount::Random(_) | StepCount::Halting(_) => None,
    };
    if let Some(what) = what {
        let message = "this number of steps would depend on what fills up rows";
        let d = Diagnostic::error(codes::INCOMPATIBLE, e.span, message);
        sink.push(
            d.label(what)
                .help("rows have padding; write the number: `for 6 steps`"),
        );
        return None;
    }
    let programs = e.unrolled.programs.iter().zip(&e.layers);
    let mut fields = programs.flat_map(|(p, layers)| p.fields.iter().zip(layers));
    let found = fields.find_map(|(leaf, layer)| {
        let reads = layer.reads();
        let places = (!reads.capacities.is_empty()).then_some("experts have a number of places");
        let later = reads
            .padding
            .then_some("tokens that it reads may be what fills up a row");
        Some((leaf, places.or(later)?))
    });
    let Some((leaf, what)) = found else {
        return Some(());
    };
    let message = format!("`{}` would take what fills up rows for tokens", leaf.name);
    let d = Diagnostic::error(codes::INCOMPATIBLE, leaf.span, message);
    sink.push(d.label(what).help(
        "rows have padding; in such a model tokens meet by attention, and in layers that look back alone",
    ));
    None
}

/// Says so once when a model is to predict tokens that it has already seen. `models`: what its fields may name.
pub fn warn_of_lookahead(evolves: &[EvolveSpec], models: &[OfModel], sink: &mut Vec<Diagnostic>) {
    let fields = |e: &EvolveSpec| {
        let programs = e.unrolled.programs.iter().zip(&e.layers);
        let each = programs.flat_map(|(p, layers)| p.fields.iter().cloned().zip(layers.clone()));
        let decider = e.decider();
        let decider = decider.and_then(|d| Some((d.leaf.clone(), d.layer.clone()?)));
        each.chain(decider).collect::<Vec<_>>()
    };
    let mut all = evolves.iter().flat_map(fields);
    if let Some((leaf, _)) = all.find(|(_, layer)| layer.looks_ahead()) {
        let message = format!(
            "`{}` reads later tokens, which the model is to predict",
            leaf.name
        );
        let at_layer = models.iter().find_map(|m| pipeline::ahead(&leaf, m));
        sink.push(match at_layer {
            Some(d) => Diagnostic { message, ..d },
            None => Diagnostic::warning(codes::LOOKS_AHEAD, leaf.span, message),
        });
    } else if let Some(e) = evolves.iter().find(|e| e.chooses_ahead()) {
        sink.push(routed::looks_ahead(e));
    }
}

/// What the fields of a model may name, whichever evolve they belong to: of each size that its states have.
pub fn of_model(model: &Model, sink: &mut Vec<Diagnostic>) -> Vec<OfModel> {
    let begins = beginnings::read(model, sink).unwrap_or_default();
    let evolves: Vec<&Evolve> = evolves(model).collect();
    let mut all: Vec<Sizes> = Vec::new();
    for stage in begins.iter().flat_map(|b| &b.stages) {
        if !all.contains(&stage.sizes) {
            all.push(stage.sizes);
        }
    }
    let states = States {
        known: Some(states(&evolves, &begins)),
        at: evolves.len(),
        sequence: None,
        stage: None,
        condition: condition(&begins),
    };
    let each = all.into_iter().map(|sizes| OfModel {
        sizes,
        states: states.clone(),
        steps: Steps::Unknown,
    });
    each.collect()
}

fn evolves(model: &Model) -> impl Iterator<Item = &Evolve> {
    model.items.iter().filter_map(|i| match i {
        ModelItem::Evolve(e) => Some(e),
        _ => None,
    })
}

/// Which of the sequences the n-th evolve is of.
fn sequence(begins: &[Beginning], n: usize) -> usize {
    begins.iter().filter(|b| b.evolves_before <= n).count()
}

/// All states before evolve n, the one that it moves last.
fn stages(begins: &[Beginning], n: usize) -> impl Iterator<Item = &Stage> {
    let all = begins.iter().flat_map(|b| &b.stages);
    all.filter(move |s| s.evolves_before <= n)
}

fn stage(begins: &[Beginning], n: usize) -> Option<&Stage> {
    stages(begins, n).last()
}

/// Columns of what the model is told beside its input.
fn condition(begins: &[Beginning]) -> Option<u64> {
    let first = begins.last()?.stages.first()?;
    (!first.embed.condition.is_empty()).then_some(first.sizes.width)
}

fn stage_number(begins: &[Beginning], n: usize) -> usize {
    stages(begins, n).count()
}

/// The evolves with labels.
fn states(evolves: &[&Evolve], begins: &[Beginning]) -> Rc<BTreeMap<String, State>> {
    let labelled = evolves.iter().enumerate().filter_map(|(number, e)| {
        let label = e.label.as_ref()?;
        let state = State {
            label: label.span,
            number,
            sequence: sequence(begins, number),
            stage: stage_number(begins, number),
        };
        Some((label.name.clone(), state))
    });
    Rc::new(labelled.collect())
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
        let d = Diagnostic::error(
            codes::REPEATED_ITEM,
            item_span(second),
            format!("a model has one `{word}`"),
        )
        .label("a second one")
        .also(item_span(first), "the first one");
        sink.push(match second {
            ModelItem::Output { .. } => d.help("another one has a label: `output class: …`"),
            _ => d,
        });
    }
    if first.is_none() && required {
        sink.push(missing(model, word, "output rmsnorm |> logits(tied)"));
    }
    first
}

pub(super) fn missing(model: &Model, word: &str, example: &str) -> Diagnostic {
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
    let labels = evolves.iter().filter_map(|e| e.label.as_ref());
    for l in labels.filter(|l| names::is_taken(&l.name)) {
        let message = format!("an evolve is not called `{}`", l.name);
        sink.push(
            Diagnostic::error(codes::RESERVED_WORD, l.span, message)
                .label(format!(
                    "`{}.…` is what other results of a model are called",
                    l.name
                ))
                .help("choose another label"),
        );
    }
    let labels = evolves.iter().filter_map(|e| e.label.as_ref());
    for l in labels.filter(|l| l.name == CONDITION) {
        let message = format!("an evolve is not called `{CONDITION}`");
        let d = Diagnostic::error(codes::RESERVED_WORD, l.span, message);
        let d = d.label("by this name fields read what a model is told beside its input");
        sink.push(d.help("choose another label"));
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

/// `normal(std: 0.02)`.
fn normal(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<f64> {
    let mut args = expect(e, "normal", &[], "normal(std: 0.02)", sink)?;
    let std = args.number("std", Bounds::NotNegative, DEFAULT_STD, sink);
    args.finish(&[], sink);
    std
}

/// The label of an output that has one.
fn labelled(item: &ModelItem) -> Option<&Ident> {
    match item {
        ModelItem::Output { label, .. } => label.as_ref(),
        _ => None,
    }
}

/// Says which label of an output is that of something else.
fn output_labels(model: &Model, sink: &mut Vec<Diagnostic>) {
    let others = model.items.iter().filter_map(|item| match item {
        ModelItem::Evolve(e) => e.label.as_ref(),
        ModelItem::Input { label, .. } => label.as_ref(),
        _ => None,
    });
    let mut seen: Vec<&Ident> = others.collect();
    for label in model.items.iter().filter_map(labelled) {
        let name = &label.name;
        if let Some(first) = seen.iter().find(|other| other.name == *name) {
            let message = format!("`{name}` is the label of something else");
            let d = Diagnostic::error(codes::REPEATED_ITEM, label.span, message);
            sink.push(d.also(first.span, "the first one"));
        } else if names::is_taken(name) || RESERVED.contains(&name.as_str()) {
            let message = format!("an output is not called `{name}`");
            let d = Diagnostic::error(codes::RESERVED_WORD, label.span, message);
            let d = d.label(format!(
                "`{name}.…` is what other things of a model are called"
            ));
            sink.push(d.help("choose another label"));
        }
        seen.push(label);
    }
}

/// What paths of parameters begin with that belong to no label.
pub(crate) const RESERVED: [&str; 4] = ["embed", "output", "step", "scheme"];

/// `rmsnorm |> logits(tied)`: layers, and what is said of the last state.
fn end(
    label: &str,
    e: &Expr,
    span: Span,
    model: Option<&OfModel>,
    r: &mut Resolver,
) -> Option<OutputSpec> {
    let (before, last) = match &e.kind {
        ExprKind::Pipe(a, b) => (Some(&**a), &**b),
        _ => (None, e),
    };
    let kind = OUTPUTS.read(last, r.sink)?;
    let before = match before {
        Some(before) => {
            let before = Body::Expr(before.clone());
            let layers = r.layers_of(&before, &[])?;
            Some(pipeline::output(label, &before, &layers, model?, r.sink)?)
        }
        None => None,
    };
    Some(OutputSpec {
        label: label.to_string(),
        before,
        loss: kind.says().loss(),
        kind,
        span,
    })
}
