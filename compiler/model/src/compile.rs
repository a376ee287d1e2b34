//! The front half of the compiler in one call: from a parsed file to everything that later stages need.

use super::build;
use super::evolve::EvolveSpec;
use super::layers::Capacity;
use super::layers::network::Network;
use super::passed::{self, Passed};
use super::step_count::StepCount;
use super::train::Named;
use super::{
    constrain, groups, layers, lora, parametrization, params, spec, train, unread, untrained,
};
use crate::analysis::claims::{self, Instance};
use crate::analysis::keep;
use crate::analysis::opaque_field::{self, Settings};
use crate::analysis::report::Evolved;
use crate::codes;
use crate::error::BuildError;
use crate::inputs::Unit;
use crate::scheme::flow::{Applied, Field, Setting};
use crate::scheme::names::{Definition, Loader, MAX_MESSAGES, Namespace};
use crate::scheme::per_use::SHARED;
use crate::scheme::resolve::{Resolver, count};
use crate::scheme::run::Grid;
use crate::scheme::scalar::{Scope, exact};
use crate::scheme::unroll::unroll;
use crate::scheme::work::EvolveWork;
use crate::scheme::{Coeff, StageProgram, define::SchemeDef};
use odec_grammar::ast::{Block, File, Item, Model};
use odec_grammar::diag::Diagnostic;
use odec_grammar::{Severity, Sources, work};
use odec_graph::Graph;
use odec_graph::ops::Parameter;
use odec_program::manifest::added;
use odec_program::{DType, manifest};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thiserror::Error;

/// What a file says.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Stage programs: of the file's own schemes, on nameless fields, then of its model's evolves.
    pub programs: Vec<StageProgram>,
    /// Of each of the last of these, which are those of evolves, the fields with weights of the end of its steps (`at: right`).
    of_end: Vec<Vec<String>>,
    /// The model, if the file has one.
    pub built: Option<Built>,
    /// Claims of all schemes that are defined here or used by the model.
    pub claims: Vec<manifest::Claim>,
    /// The schemes behind them, with the settings they are applied with.
    pub instances: Vec<Instance>,
    /// The model's flows.
    pub evolved: Vec<Evolved>,
    pub warnings: Vec<Diagnostic>,
}

impl Checked {
    /// All stage programs as text. What is no part of a program, as where weights are taken, is a comment below its title.
    pub fn stages(&self) -> String {
        let alone = self.programs.len() - self.of_end.len();
        let of_end = std::iter::repeat_n(&[][..], alone).chain(self.of_end.iter().map(|f| &f[..]));
        let each = self.programs.iter().zip(of_end).map(|(p, fields)| {
            let text = p.to_string();
            match (text.split_once('\n'), fields) {
                (Some((title, lines)), [_, ..]) => {
                    let fields = fields.join(", ");
                    format!(
                        "{title}\n  // weights of {fields} at t + h, the end of the step\n{lines}"
                    )
                }
                _ => text,
            }
        });
        each.collect::<Vec<_>>().join("\n")
    }
}

/// A model, ready for the passes.
#[derive(Clone, Debug)]
pub struct Built {
    pub name: String,
    /// In the order of first use.
    pub params: Vec<Parameter>,
    /// From the input to the output's result: `tokens → logits`.
    pub forward: Graph,
    /// States of [`Built::forward`], in the order in which they are passed; or why they are no paths of points.
    pub passed: Result<Vec<Passed>, Diagnostic>,
    /// `tokens → logits` after other tokens, unless some token's result depends on later ones.
    pub decode: Option<Graph>,
    /// The same of a token of each of several texts.
    pub several: Option<Graph>,
    /// The same of two sequences.
    pub translation: Option<build::Translation>,
    /// `tokens, targets → loss`.
    pub loss: Graph,
    /// `tokens, targets → loss, grad.<path> …` of what is trained, in the order of `params`.
    pub grad: Graph,
    pub config: manifest::Model,
    /// What stands at a position of its input.
    pub unit: Unit,
    /// Rows that stand before those of the input: the context has room for them.
    pub leading: u64,
    pub claims: Vec<manifest::Claim>,
    pub depths: Vec<manifest::StepCount>,
    pub train: Option<manifest::Train>,
    /// The files that the train block names.
    pub named: Named,
    /// Planned maximum of the batch: the train block's, as many of the longest texts as it has tokens for, or 1.
    pub batch: u64,
    pub summary: Summary,
    /// Of each evolve, which steps share weights.
    pub weights: BTreeMap<String, String>,
}

impl Built {
    /// What its program computes in.
    pub fn real(&self) -> DType {
        self.precision().real()
    }

    /// That of the train block.
    pub fn precision(&self) -> manifest::Precision {
        let train = self.train.as_ref().map(|t| t.precision);
        train.unwrap_or_default()
    }
}

/// Numbers to know before spending hours.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Steps of all evolves; the most that there can be.
    pub steps: u64,
    /// Field evaluations of the first step, and of all steps.
    pub evaluations_per_step: u64,
    pub evaluations: u64,
    pub parameters: u64,
    /// Those that are trained.
    pub trained: u64,
    /// Those that make the first state of the input.
    pub embedding: u64,
    pub evolves: Vec<EvolveWork>,
    /// Of mixtures of experts that do not take all tokens.
    pub capacities: Vec<Capacity>,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum CompileError {
    /// The user's.
    #[error("{} messages", .0.len())]
    Source(Vec<Diagnostic>),
    /// Ours.
    #[error(transparent)]
    Internal(#[from] BuildError),
}

/// Checks and builds a file. `main` is its number in `sources`; imports and library texts are added there.
pub fn compile(
    file: &File,
    main: u32,
    sources: &mut Sources,
    loader: &mut dyn Loader,
) -> Result<Checked, CompileError> {
    let mut sink = Vec::new();
    let path = sources.name(main).to_string();
    let mut names = Namespace::new(
        (file, main),
        &layers::VOCABULARY,
        sources,
        loader,
        &mut sink,
    );
    let own = names.own.clone();
    let mut r = Resolver::new(&mut names, &mut sink);
    let mut programs = Vec::new();
    let mut claims = Claims::default();
    let (mut fields, mut written) = (Vec::new(), Vec::new());
    for name in &own {
        let Ok(def) = r.names.get(name, r.sink) else {
            continue;
        };
        match def {
            // What is made of a scheme that is too large takes as long to refuse, one scheme after the other.
            Definition::Scheme(_) if too_large(r.sink) => {}
            Definition::Scheme(def) => {
                if let Some((instance, made)) = alone(&def, &mut r) {
                    claims.add(instance, r.sink);
                    programs.extend(made);
                }
            }
            Definition::Field(_) => fields.extend(r.named_field(name)),
            Definition::Layer(layer) => written.extend(r.written(&layer)),
        }
    }
    let models: Vec<&Model> = file
        .items
        .iter()
        .filter_map(|i| {
            if let Item::Model(m) = i {
                Some(m)
            } else {
                None
            }
        })
        .collect();
    let trains: Vec<&Block> = file
        .items
        .iter()
        .filter_map(|i| {
            if let Item::Train(t) = i {
                Some(t)
            } else {
                None
            }
        })
        .collect();
    let explores = file.items.iter().filter_map(|i| match i {
        Item::Explore(b) => Some((b.span, "explore block")),
        _ => None,
    });
    for (span, what) in models
        .iter()
        .skip(1)
        .map(|m| (m.span, "model"))
        .chain(trains.iter().skip(1).map(|t| (t.span, "train block")))
        .chain(explores.skip(1))
    {
        r.sink.push(
            Diagnostic::error(
                codes::REPEATED_ITEM,
                span,
                format!("a second {what} in one file"),
            )
            .help(format!("put each {what} in a file of its own")),
        );
    }
    if let (Some(t), None) = (trains.first(), models.first()) {
        r.sink.push(
            Diagnostic::error(
                codes::MISSING_ITEM,
                t.span,
                "this file has a train block but no model",
            )
            .help("add `model name { … }`"),
        );
    }
    let of_model = models.first().map(|m| spec::of_model(m, r.sink));
    let of_model = of_model.unwrap_or_default();
    let mut seen = BTreeSet::new();
    for f in &fields {
        look_inside(f, &of_model, &mut seen, r.sink);
    }
    let mut spec = None;
    let mut settings = None;
    if let Some(model) = models.first() {
        spec = spec::read(model, &mut r);
        let ends = spec.as_ref().map(spec::Spec::ends);
        settings = trains.first().map(|t| train::read(t, ends, &path, r.sink));
        if let (Some(spec), Some(Some((train, named)))) = (&mut spec, &settings) {
            spec.output.loss = train.loss;
            for output in &mut spec.also {
                output.loss = train
                    .also
                    .get(&output.label)
                    .copied()
                    .unwrap_or(output.loss);
            }
            spec.objective = named.objective.clone();
            spec.objective.fit(&spec.evolves, r.sink);
            spec.tune = train.tune;
            if let Some(at) = named.tune {
                lora::fits(spec, (train.tune, at), r.sink);
            }
            spec.spectral = train.spectral;
            if let Some(at) = named.constrain {
                constrain::fits(spec, at, r.sink);
            }
        }
        let writes = |s: &&spec::Spec| {
            let loss = s.output.loss;
            loss.continues().is_ok() || loss.translates()
        };
        if let Some(spec) = spec.as_ref().filter(writes) {
            spec::warn_of_lookahead(spec.last_evolves(), &of_model, r.sink);
        }
        if spec::errors(r.sink) == 0 {
            unread::check(file, model, r.names, r.sink);
            for applied in r.used().to_vec() {
                claims.add_applied(&applied, &mut r);
            }
            let evolves = spec.iter().flat_map(|s| &s.evolves);
            for e in evolves {
                let schemes = e.warn_of_unequal_steps(r.sink);
                claims.hold_on_equal_steps(&schemes);
            }
        }
    }
    // After what is said of their uses, which says the same and more.
    written
        .iter()
        .for_each(|l| layers::written::check(l, r.sink));
    let mut table = spec.as_ref().and_then(|s| params::table(s, &mut sink));
    if let (Some(params), Some(Some((train, named)))) = (&mut table, &mut settings) {
        groups::fit(params, train, &named.groups, &mut sink);
        if let (Some(rule), Some(spec)) = (named.parametrization, &spec) {
            parametrization::apply(rule, spec, params, train, &mut sink);
        }
    }
    tidy(&mut sink);
    if sink.iter().any(|d| d.severity == Severity::Error) {
        return Err(CompileError::Source(sink));
    }
    if let Some(spec) = &spec {
        let all = spec.evolves.iter().map(|e| &e.unrolled.programs);
        programs.extend(all.flatten().cloned());
    }
    let of_end = spec.iter().flat_map(|s| &s.evolves);
    let of_end = of_end.flat_map(EvolveSpec::of_end).collect();
    let evolves = spec.iter().flat_map(|s| &s.evolves);
    let evolved = evolves.flat_map(|e| e.evolved()).collect();
    let built = match (&spec, table) {
        (Some(spec), Some(params)) => {
            let made = assemble(
                spec,
                params,
                settings.flatten(),
                claims.list.clone(),
                &mut sink,
            );
            Some(made.map_err(|e| match e {
                BuildError::TooLarge { step, span } => {
                    sink.push(build::too_large(step, span));
                    CompileError::Source(std::mem::take(&mut sink))
                }
                ours => CompileError::Internal(ours),
            })?)
        }
        _ => None,
    };
    Ok(Checked {
        programs,
        of_end,
        built,
        claims: claims.list,
        instances: claims.done,
        evolved,
        warnings: sink,
    })
}

/// The schemes that a file defines, for their analysis: what they claim may be false. Those that cannot be read are not among them.
pub fn schemes(
    file: &File,
    main: u32,
    sources: &mut Sources,
    loader: &mut dyn Loader,
) -> Vec<Instance> {
    let mut sink = Vec::new();
    let at = (file, main);
    let mut names = Namespace::new(at, &layers::VOCABULARY, sources, loader, &mut sink);
    let own = names.own.clone();
    let mut r = Resolver::new(&mut names, &mut sink);
    let mut claims = Claims::default();
    for name in &own {
        if let Ok(Definition::Scheme(def)) = r.names.get(name, r.sink)
            && let Some((instance, _)) = alone(&def, &mut r)
        {
            claims.add(instance, r.sink);
        }
    }
    claims.done
}

/// The capacities of all mixtures of experts, with the paths of their routers in a step.
fn capacities(spec: &spec::Spec) -> Vec<Capacity> {
    let below = |owner: String, of: &Network| {
        let each = of.reads().capacities.into_iter();
        let each = each.map(move |c| Capacity {
            router: format!("{owner}.{}", c.router),
            ..c
        });
        each.collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for e in &spec.evolves {
        found.extend(e.expert_capacities().into_iter().map(|c| Capacity {
            router: params::path(e, None, c.router),
            ..c
        }));
        let decider = e.decider().and_then(|d| Some((d, d.layer.as_ref()?)));
        found.extend(
            decider
                .into_iter()
                .flat_map(|(d, l)| below(params::decider_path(e, d), l)),
        );
    }
    for output in spec.outputs() {
        let before = output.before.iter();
        found.extend(before.flat_map(|l| below(output.path(), l)));
    }
    found
}

fn assemble(
    spec: &spec::Spec,
    params: Vec<Parameter>,
    train: Option<(manifest::Train, Named)>,
    claims: Vec<manifest::Claim>,
    sink: &mut Vec<Diagnostic>,
) -> Result<Built, BuildError> {
    let (forward, passed) = build::forward(spec, &params)?;
    let decode = build::decode(spec, &params)?;
    let several = build::several(spec, &params, decode.as_ref())?;
    let loss = build::loss(spec, &params)?;
    let (grad, no_gradient) = build::grad(spec, &params)?;
    let trained = params.iter().filter(|p| spec.tune.trains(&p.path));
    let trained: Vec<&str> = trained.map(|p| p.path.as_str()).collect();
    untrained::check(spec, &trained, &no_gradient, sink);
    let (train, named) = train.unzip();
    let halves = train
        .as_ref()
        .is_some_and(|t| t.precision == manifest::Precision::Bf16);
    let translation = build::translation(spec, &params)?;
    let translation = translation.filter(|t| !halves || t.keeps_even_rows());
    let elements = |p: &Parameter| p.shape.iter().product::<u64>();
    let (first, evolves) = (spec.evolves.first(), spec.evolves.iter());
    let summary = Summary {
        steps: spec.evolves.iter().map(|e| e.steps).sum(),
        evaluations_per_step: first.map_or(0, |e| {
            let u = &e.unrolled;
            u.programs[u.steps[0]].evaluations() as u64
        }),
        evaluations: evolves
            .clone()
            .map(|e| e.unrolled.evaluations() as u64 + e.decisions())
            .sum(),
        parameters: (params.iter().filter(|p| !p.path.ends_with(added::SPECTRAL)))
            .map(elements)
            .sum(),
        trained: (params.iter().filter(|p| spec.tune.trains(&p.path)))
            .map(elements)
            .sum(),
        embedding: params::elements_of_input(spec),
        capacities: capacities(spec),
        evolves: evolves
            .map(|e| {
                let work = EvolveWork {
                    at_most: e.depth != StepCount::Known && e.step_capacities().is_none(),
                    routed: e.routing().cloned(),
                    ..EvolveWork::of(&e.label, &e.unrolled)
                };
                match e.decider() {
                    Some(d) => work.deciding(&d.leaf.name, e.decisions()),
                    None => work,
                }
            })
            .collect(),
    };
    let weights = spec.evolves.iter().map(|e| (e.label.clone(), e.sharing()));
    Ok(Built {
        weights: weights.collect(),
        name: spec.name.name.clone(),
        unit: spec.begin.input.unit(),
        leading: spec.begin.empty_rows(),
        forward,
        passed: passed::of_points(spec).map(|()| passed),
        decode,
        several,
        translation,
        loss,
        grad,
        config: manifest::Model {
            vocab: spec.output.kind.columns(spec.sizes),
            tokens: spec.sizes.vocab.filter(|_| spec.classifies()),
            context: spec.begin.context(),
            source: spec.source_context(),
            width: spec.sizes.width,
            also: {
                let columns =
                    |o: &crate::outputs::OutputSpec| (o.label.clone(), o.kind.columns(spec.sizes));
                spec.also.iter().map(columns).collect()
            },
        },
        claims,
        depths: spec
            .evolves
            .iter()
            .filter_map(EvolveSpec::decided)
            .collect(),
        batch: train.as_ref().map_or(1, |t| match t.tokens_at_once() {
            None => t.batch / t.accumulate,
            Some(tokens) => (tokens / spec.longest_row().max(1)).max(1),
        }),
        train,
        named: named.unwrap_or_default(),
        summary,
        params,
    })
}

fn too_large(sink: &[Diagnostic]) -> bool {
    sink.iter().any(|d| d.code == codes::TOO_LARGE)
}

/// Steps of a scheme that is looked at without a model: enough for a history of a few entries to fill.
const STEPS_ALONE: usize = 5;

/// The default settings of a scheme.
fn defaults(def: &SchemeDef, sink: &mut Vec<Diagnostic>) -> Option<Settings> {
    let (mut settings, mut scope) = (Settings::new(), Scope::new());
    for (name, default) in &def.values {
        let value = exact(default, &scope).map_err(|d| sink.push(d)).ok()?;
        scope.insert(name.name.clone(), Coeff::constant(value.clone()));
        settings.push((name.name.clone(), value));
    }
    Some(settings)
}

/// A scheme as it stands, and its stage programs on fields called like its parameters.
fn alone(def: &Rc<SchemeDef>, r: &mut Resolver) -> Option<(Instance, Vec<StageProgram>)> {
    let scheme = r.concrete(def.clone())?;
    let start_by = match &scheme.start_by {
        Some(by) => Some(r.start_by(by)?),
        None => None,
    };
    let sink = &mut *r.sink;
    let settings = defaults(&scheme, sink)?;
    let mut shown: Vec<String> = scheme.fields.iter().map(|f| f.name.clone()).collect();
    let listed = opaque_field::listed(&scheme);
    if let Some(list) = &scheme.list {
        let entries = (1..=listed).map(|i| format!("{}.{i}", list.name));
        shown.push(format!("[{}]", entries.collect::<Vec<_>>().join(", ")));
    }
    shown.extend(settings.iter().map(|(name, v)| format!("{name}: {v}")));
    let flow = opaque_field::alone(&scheme, start_by.clone(), settings.clone(), listed);
    let title = format!("scheme {}({})", scheme.name.name, shown.join(", "));
    let flows = [(Rc::new(flow), title)];
    let steps = |n: usize, sink: &mut Vec<Diagnostic>| {
        let all = (n, Grid::default());
        unroll(&flows, all, false, &SHARED, scheme.name.span, sink)
    };
    let mut said = Vec::new();
    let mut unrolled = steps(STEPS_ALONE, &mut said);
    // What depends on the number of the step may be made for fewer steps: `1/(2 - k)`. Those of a model are looked at there.
    if unrolled.is_none() && scheme.numbered {
        said.clear();
        unrolled = steps(1, &mut said);
    }
    sink.append(&mut said);
    let mut unrolled = unrolled?;
    keep::rewrite(&mut unrolled.programs, sink)?;
    let instance = Instance {
        scheme,
        settings,
        listed,
        start_by,
        applied: None,
    };
    Some((instance, unrolled.programs))
}

/// Says what is wrong inside a field, whether or not a model uses it. `seen`: fields that were looked at, for sums share their terms.
fn look_inside(
    field: &Rc<Field>,
    model: &[layers::OfModel],
    seen: &mut BTreeSet<*const Field>,
    sink: &mut Vec<Diagnostic>,
) {
    if !seen.insert(Rc::as_ptr(field)) {
        return;
    }
    work::add(1);
    match &**field {
        Field::Leaf(leaf) => layers::pipeline::check(leaf, model, sink),
        Field::Sum(terms) => terms
            .iter()
            .for_each(|(_, f, _)| look_inside(f, model, seen, sink)),
        // The fields of a flow have names of their own, or are seen when a model uses it.
        Field::Increment(_) | Field::Map(_) => {}
    }
}

/// Claims of schemes, each scheme once; proved for every setting that it is applied with.
#[derive(Default)]
struct Claims {
    list: Vec<manifest::Claim>,
    done: Vec<Instance>,
}

impl Claims {
    fn add(&mut self, instance: Instance, sink: &mut Vec<Diagnostic>) {
        let named = |i: &&Instance| i.scheme.name.name == instance.scheme.name.name;
        let mut known = self.done.iter().filter(named);
        let same = |i: &Instance| i.settings == instance.settings && i.listed == instance.listed;
        if known.clone().any(same) {
            return;
        }
        let first = known.next().is_none();
        let found = claims::claims(&instance, sink);
        self.done.push(instance);
        if first {
            self.list.extend(found);
        }
    }

    /// Orders that these schemes have where steps are equal, which those of the model are not.
    fn hold_on_equal_steps(&mut self, schemes: &[String]) {
        let order = |c: &&mut manifest::Claim| {
            let about = c.claim.starts_with("order") || c.claim.starts_with("keep order");
            about && schemes.contains(&c.scheme)
        };
        for c in self.list.iter_mut().filter(order) {
            let said = std::mem::take(&mut c.note);
            let notes = ["on equal steps", &said];
            let notes = notes.into_iter().filter(|n| !n.is_empty());
            c.note = notes.collect::<Vec<_>>().join("; ");
        }
    }

    fn add_applied(&mut self, applied: &Applied, r: &mut Resolver) {
        let default = defaults(&applied.scheme, r.sink);
        let lists = applied.settings.iter().filter_map(|(_, s)| match s {
            Setting::PerStep(values, _) => Some(values.len()),
            Setting::One(_) => None,
        });
        for step in 0..lists.max().unwrap_or(1) {
            let settings = opaque_field::settings(&applied.settings, step);
            let own = default.as_ref() == Some(&settings);
            let instance = Instance {
                scheme: applied.scheme.clone(),
                settings,
                listed: applied.listed,
                start_by: applied.start_by.clone(),
                applied: (!own).then_some(applied.span),
            };
            self.add(instance, r.sink);
        }
    }
}

/// In the order of their places, each once (a scheme that is applied several times says the same several times), and
/// not more than anyone would read; then how many more there are.
fn tidy(sink: &mut Vec<Diagnostic>) {
    // What is wrong may be what would have read it.
    if sink.iter().any(|d| d.severity == Severity::Error) {
        sink.retain(|d| d.severity == Severity::Error || d.code != codes::UNUSED_NAME);
    }
    let mut seen = BTreeSet::new();
    sink.retain(|d| seen.insert((d.labels.first().map(|l| l.span), d.code, d.message.clone())));
    sink.sort_by_key(|d| {
        (
            d.severity != Severity::Error,
            d.labels.first().map(|l| l.span),
        )
    });
    let rest = sink.split_off(sink.len().min(MAX_MESSAGES));
    sink.sort_by_key(|d| d.labels.first().map(|l| l.span));
    if let Some(next) = rest.first() {
        let more = count(rest.len(), "more message");
        let mut note = Diagnostic {
            severity: Severity::Note,
            message: format!("and {more}"),
            help: None,
            ..next.clone()
        };
        note.labels.truncate(1);
        sink.push(note.label("the next one"));
    }
}
