//! The parameter table: path, shape and initial values of every tensor, checked for clashes before anything is built.
//!
//! Paths: `embed.token.weight`, `embed.position.weight`, of another sequence `source.embed.token.weight`;
//! `[evolve.]step.3.att.q.weight`; under `weights per use`, a field that is written several times has `step.3.ffn.1.up.weight`, `step.3.ffn.2.up.weight`; shared fields have no `step.k`; what
//! runs before the first step has `start` instead; factors stand below their matrix, `step.3.att.q.weight.lora.a`, with a step of their
//! own where weights are functions of time; learned coefficients of a scheme stand at `[evolve.]step.3.scheme.b`,
//! shared ones at `[evolve.]scheme.b`, a learned step size at `[evolve.]step.3.h`, a shared one at `[evolve.]h`; then
//! `output.norm.gain` and, untied, `output.logits.weight`.

use super::beginnings::Stage;
use super::decider::Decider;
use super::evolve::{EvolveSpec, Sharing};
use super::layers::LayerParam;
use super::outputs::OutputSpec;
use super::spec::Spec;
use super::{constrain, lora};
use crate::codes;
use crate::scheme::Learned;
use crate::scheme::stage::Phase;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Parameter;
use odec_program::manifest::Init;
use std::collections::BTreeMap;

/// Most elements of all parameters together.
pub const MAX_PARAMETERS: u64 = 1_000_000_000_000;

/// What the paths of the two ends' parameters begin with.
pub const EMBED: &str = "embed";

/// What a field's parameter paths begin with: `step.3.ffn.2`.
pub fn field_path(
    evolve: &EvolveSpec,
    program: usize,
    field: usize,
    usage: usize,
    at: Phase,
) -> String {
    let owner = evolve.policies[program][field].owner(at);
    path(evolve, owner, field_name(evolve, program, field, usage))
}

/// The same for the factors of its matrices: those of weights of time belong to steps.
pub fn factor_path(
    evolve: &EvolveSpec,
    program: usize,
    field: usize,
    usage: usize,
    at: Phase,
) -> String {
    match evolve.policies[program][field] {
        Sharing::TimeDependent(_) => {
            path(evolve, Some(at), field_name(evolve, program, field, usage))
        }
        _ => field_path(evolve, program, field, usage, at),
    }
}

/// Where a learned coefficient is stored: `step.3.scheme.b`, or `scheme.b` when all steps share it.
pub fn learned_path(evolve: &EvolveSpec, learned: &Learned, at: Phase) -> String {
    let owner = Some(at).filter(|_| !learned.shared);
    // A scheme has no coefficient called `h`: this is the step size.
    let name = match learned.path.as_str() {
        "h" => "h".to_string(),
        path => format!("scheme.{path}"),
    };
    path(evolve, owner, name)
}

/// What the parameter paths of a field that decides begin with: it is the same in all steps.
pub fn decider_path(evolve: &EvolveSpec, decider: &Decider) -> String {
    path(evolve, None, decider.leaf.name.clone())
}

/// A name of an evolve, below its label and a phase.
pub fn path(evolve: &EvolveSpec, owner: Option<Phase>, name: String) -> String {
    let label = Some(evolve.label.clone()).filter(|l| !l.is_empty());
    let owner = owner.map(|at| match at {
        Phase::Start => "start".to_string(),
        Phase::Step(k) => format!("step.{k}"),
    });
    let parts = [label, owner, Some(name)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// `ffn`, or `ffn.2` where each use has its own parameters.
pub fn field_name(evolve: &EvolveSpec, program: usize, field: usize, usage: usize) -> String {
    let p = &evolve.unrolled.programs[program];
    let name = &p.fields[field].name;
    match evolve.policies[program][field] {
        Sharing::PerUse if p.usages[field] > 1 => format!("{name}.{}", usage + 1),
        _ => name.clone(),
    }
}

/// The parameters that make the first state of a stage, each with whose it is.
fn of_stage(stage: &Stage) -> Vec<(LayerParam, &'static str)> {
    let own = match stage.embed.tied {
        Some(_) => Vec::new(),
        None => stage.embed.kind.params(&*stage.of),
    };
    let positions = stage.embed.positions.iter();
    let positions = positions.flat_map(|p| p.params(stage.sizes));
    let own = own.into_iter().map(|p| (p, "the embedding"));
    let leading = stage.embed.leading.iter();
    let leading = leading.flat_map(|l| l.params(stage.sizes.width));
    let own = own.chain(leading.map(|p| (p, "rows before the input")));
    let condition = stage.embed.condition.iter();
    let condition = condition.flat_map(|l| l.params(stage.sizes.width));
    let own = own.chain(condition.map(|p| (p, "the condition")));
    let marks = stage.embed.marks.iter();
    let marks = marks.flat_map(|m| m.params(stage.sizes.width));
    own.chain(positions.map(|p| (p, "the positions")))
        .chain(marks.map(|p| (p, "the segments")))
        .collect()
}

/// How many numbers these are.
pub fn elements_of_input(spec: &Spec) -> u64 {
    let all = spec.stages().flat_map(|(stage, _)| of_stage(stage));
    let each = all.map(|(p, _)| p.shape.iter().product::<u64>());
    each.sum()
}

/// All parameters, in the order the model uses them first.
pub fn table(spec: &Spec, sink: &mut Vec<Diagnostic>) -> Option<Vec<Parameter>> {
    let mut t = Table {
        params: Vec::new(),
        owners: BTreeMap::new(),
        elements: 0,
    };
    for (stage, evolves) in spec.stages() {
        for (p, owner) in of_stage(stage) {
            t.end(&stage.path, p, owner, (spec, stage.embed.span), sink)?;
        }
        t.evolves(spec, evolves, stage.sizes.width, sink)?;
    }
    for output in spec.outputs() {
        t.output(spec, output, sink)?;
    }
    Some(t.params)
}

struct Table {
    params: Vec<Parameter>,
    /// Who has a path, and where that is written.
    owners: BTreeMap<String, (String, Span)>,
    elements: u64,
}

impl Table {
    /// Adds the parameters of an output.
    fn output(
        &mut self,
        spec: &Spec,
        output: &OutputSpec,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<()> {
        let path = output.path();
        let before: Vec<LayerParam> = output.before.iter().flat_map(|l| l.params()).collect();
        let last = output.kind.params(spec.sizes);
        if let Some(p) = last
            .iter()
            .find(|p| before.iter().any(|b| b.path == p.path))
        {
            let message = format!("two parameters are called `{path}.{}`", p.path);
            let d = Diagnostic::error(codes::PARAMETER_COLLISION, output.span, message)
                .label("one is the output's own, the other belongs to a layer before it");
            sink.push(d.help("give its value a name in a layer: `layer scaled(x: value) { scale = linear(x)  return … }`"));
            return None;
        }
        for p in before.into_iter().chain(last) {
            self.end(&path, p, "the output", (spec, output.span), sink)?;
        }
        Some(())
    }

    /// Adds the parameters of evolves, step by step.
    fn evolves(
        &mut self,
        spec: &Spec,
        evolves: &[EvolveSpec],
        width: u64,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<()> {
        for e in evolves {
            for (at, n) in e.unrolled.phases() {
                let program = &e.unrolled.programs[n];
                for l in &e.learned(at) {
                    let path = learned_path(e, l, at);
                    let owner = format!("the coefficient `{}` ({path})", l.name);
                    let width = Some(width).filter(|_| l.per_channel);
                    let shape = width.into_iter().collect();
                    let init = Init::Constant(l.init.to_f64());
                    self.add(path, shape, init, &owner, l.span, sink)?;
                }
                for (field, layer) in e.layers[n].iter().enumerate() {
                    let leaf = &program.fields[field];
                    let uses = match e.policies[n][field] {
                        Sharing::PerUse => program.usages[field],
                        // A field that only an embedded partner evaluates has no parameters in steps of a fixed size.
                        _ => program.usages[field].min(1),
                    };
                    for usage in 0..uses {
                        let prefix = field_path(e, n, field, usage, at);
                        let of_factors = factor_path(e, n, field, usage, at);
                        let owner = format!("field `{}` ({prefix})", leaf.name);
                        for p in layer.params() {
                            let own = (p.path.clone(), p.shape.clone(), p.init(spec.std));
                            let more = match e.policies[n][field] {
                                Sharing::TimeDependent(o) => o.params(&p, spec.std),
                                _ => Vec::new(),
                            };
                            for (path, shape, init) in [own].into_iter().chain(more) {
                                let path = format!("{prefix}.{path}");
                                self.add(path, shape, init, &owner, leaf.span, sink)?;
                            }
                            let vector = constrain::vector(spec.spectral, &p);
                            let factors = lora::factors(spec.tune, &p).into_iter();
                            for (path, shape, init) in factors.chain(vector) {
                                let path = format!("{of_factors}.{path}");
                                self.add(path, shape, init, &owner, leaf.span, sink)?;
                            }
                        }
                    }
                }
            }
            let deciders = e.decider().into_iter();
            for (d, layer) in deciders.flat_map(|d| d.layer.iter().map(move |l| (d, l))) {
                let prefix = decider_path(e, d);
                let owner = format!("field `{}` ({prefix})", d.leaf.name);
                for p in layer.params() {
                    let more = lora::factors(spec.tune, &p).into_iter();
                    let more = more.chain(constrain::vector(spec.spectral, &p));
                    let own = (p.path.clone(), p.shape.clone(), p.init(spec.std));
                    for (path, shape, init) in [own].into_iter().chain(more) {
                        let path = format!("{prefix}.{path}");
                        self.add(path, shape, init, &owner, d.leaf.span, sink)?;
                    }
                }
            }
        }
        Some(())
    }

    /// Adds a parameter of one of the model's ends.
    fn end(
        &mut self,
        end: &str,
        p: LayerParam,
        owner: &str,
        (spec, span): (&Spec, Span),
        sink: &mut Vec<Diagnostic>,
    ) -> Option<()> {
        let init = p.init(spec.std);
        self.add(
            format!("{end}.{}", p.path),
            p.shape,
            init,
            owner,
            span,
            sink,
        )
    }

    fn add(
        &mut self,
        path: String,
        shape: Vec<u64>,
        init: Init,
        owner: &str,
        span: Span,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<()> {
        if let Init::Constant(x) = init
            && x.abs() > f64::from(f32::MAX)
        {
            let message = format!("the start of `{path}` is too large");
            let d = Diagnostic::error(codes::OUT_OF_RANGE, span, message);
            let d = d.label("the largest number of f32 is 3.4e38");
            sink.push(d.help("begin with a smaller number"));
            return None;
        }
        match self.owners.get(&path) {
            Some((known, at)) if known == owner && *at == span => return Some(()),
            Some((_, first)) => {
                sink.push(
                    Diagnostic::error(
                        codes::PARAMETER_COLLISION,
                        span,
                        format!("two parameters are called `{path}`"),
                    )
                    .also(*first, "the other one belongs here")
                    .help("rename the field, or label the evolve"),
                );
                return None;
            }
            None => {}
        }
        let n = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        self.elements = n
            .and_then(|n| self.elements.checked_add(n))
            .unwrap_or(u64::MAX);
        if self.elements > MAX_PARAMETERS {
            sink.push(
                Diagnostic::error(
                    codes::TOO_LARGE,
                    span,
                    "the model has more than 10^12 parameters",
                )
                .label(format!("the count passes that at `{path}`, {}", by(&shape)))
                .help("write smaller sizes, or share weights between steps: `weights shared`"),
            );
            return None;
        }
        self.owners.insert(path.clone(), (owner.to_string(), span));
        self.params.push(Parameter { path, shape, init });
        Some(())
    }
}

/// `1024 × 64`.
fn by(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    sizes.join(" × ")
}
