//! The parameter table: every tensor's path, shape and start, counted and checked for clashes before anything is built.
//!
//! Paths: `embed.token.weight`, `embed.position.weight`; `[evolve.]step.3.att.q.weight`; under `weights per use`, a field that is written
//! several times has `step.3.ffn.1.up.weight`, `step.3.ffn.2.up.weight`; shared fields have no `step.k`; learned
//! coefficients of a scheme stand at `[evolve.]step.3.scheme.b`, shared ones at `[evolve.]scheme.b`, a learned step size at
//! `[evolve.]step.3.h`, a shared one at `[evolve.]h`; then
//! `output.norm.gain` and, untied, `output.logits.weight`.

use super::evolve::{EvolveSpec, Sharing};
use super::spec::{Positions, Spec};
use crate::codes;
use crate::scheme::Learned;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Parameter;
use odec_program::manifest::Init;
use std::collections::BTreeMap;

/// Most elements of all parameters together.
pub const MAX_PARAMETERS: u64 = 1_000_000_000_000;

pub const EMBEDDING: &str = "embed.token.weight";
pub const POSITIONS: &str = "embed.position.weight";
pub const LOGITS: &str = "output.logits.weight";

/// What a field's parameter paths begin with: `step.3.ffn.2`.
pub fn field_path(
    evolve: &EvolveSpec,
    program: usize,
    field: usize,
    usage: usize,
    step: u64,
) -> String {
    let mut parts = Vec::new();
    if !evolve.label.is_empty() {
        parts.push(evolve.label.clone());
    }
    let sharing = evolve.policies[program][field];
    if let Some(k) = sharing.owner(step) {
        parts.push(format!("step.{k}"));
    }
    parts.push(field_name(evolve, program, field, usage));
    parts.join(".")
}

/// Where a learned coefficient is stored: `step.3.scheme.b`, or `scheme.b` when all steps share it.
pub fn learned_path(evolve: &EvolveSpec, learned: &Learned, step: u64) -> String {
    let step = (!learned.shared).then(|| format!("step.{step}"));
    let label = Some(evolve.label.clone()).filter(|l| !l.is_empty());
    let path = match learned.path.as_str() {
        // A scheme has no coefficient of this name.
        "h" => "h".to_string(),
        path => format!("scheme.{path}"),
    };
    let parts = [label, step, Some(path)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// `ffn`, or `ffn.2` where each use has its own parameters.
pub fn field_name(evolve: &EvolveSpec, program: usize, field: usize, usage: usize) -> String {
    let p = &evolve.programs[program];
    let name = &p.fields[field].name;
    match evolve.policies[program][field] {
        Sharing::PerUse if p.usages[field] > 1 => format!("{name}.{}", usage + 1),
        _ => name.clone(),
    }
}

/// All parameters, in the order the model uses them first.
pub fn table(spec: &Spec, sink: &mut Vec<Diagnostic>) -> Option<Vec<Parameter>> {
    let mut t = Table {
        params: Vec::new(),
        owners: BTreeMap::new(),
        elements: 0,
    };
    let normal = Init::Normal { std: spec.std };
    t.add(
        EMBEDDING.into(),
        vec![spec.sizes.vocab, spec.sizes.width],
        normal.clone(),
        "the embedding",
        spec.embed_span,
        sink,
    )?;
    if spec.positions == Some(Positions::Learned) {
        t.add(
            POSITIONS.into(),
            vec![spec.sizes.context, spec.sizes.width],
            normal.clone(),
            "the positions",
            spec.embed_span,
            sink,
        )?;
    }
    for e in &spec.evolves {
        for (k, program) in e.program_of.iter().enumerate() {
            for l in &e.learned(k as u64) {
                let path = learned_path(e, l, k as u64);
                let owner = format!("the coefficient `{}` ({path})", l.name);
                let width = Some(spec.sizes.width).filter(|_| l.per_channel);
                let shape = width.into_iter().collect();
                let init = Init::Constant(l.init.to_f64());
                t.add(path, shape, init, &owner, l.span, sink)?;
            }
            for (field, layer) in e.layers[*program].iter().enumerate() {
                let leaf = &e.programs[*program].fields[field];
                let uses = match e.policies[*program][field] {
                    Sharing::PerUse => e.programs[*program].usages[field],
                    // A field that only an embedded partner evaluates has no parameters in steps of a fixed size.
                    _ => e.programs[*program].usages[field].min(1),
                };
                for usage in 0..uses {
                    let prefix = field_path(e, *program, field, usage, k as u64);
                    let owner = format!("field `{}` ({prefix})", leaf.name);
                    for p in layer.params() {
                        let init = p.init(spec.std);
                        t.add(
                            format!("{prefix}.{}", p.path),
                            p.shape,
                            init,
                            &owner,
                            leaf.span,
                            sink,
                        )?;
                    }
                }
            }
        }
    }
    for p in spec.output.iter().flat_map(|l| l.params()) {
        let init = p.init(spec.std);
        t.add(
            format!("output.{}", p.path),
            p.shape,
            init,
            "the output",
            spec.output_span,
            sink,
        )?;
    }
    if !spec.tied {
        t.add(
            LOGITS.into(),
            vec![spec.sizes.vocab, spec.sizes.width],
            normal,
            "the output",
            spec.output_span,
            sink,
        )?;
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
    fn add(
        &mut self,
        path: String,
        shape: Vec<u64>,
        init: Init,
        owner: &str,
        span: Span,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<()> {
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
                .label(format!("the count passes that at `{path}`")),
            );
            return None;
        }
        self.owners.insert(path.clone(), (owner.to_string(), span));
        self.params.push(Parameter { path, shape, init });
        Some(())
    }
}
