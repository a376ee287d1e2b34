//! Values that a run logs: `report energy = recall |> columns(from: width)` in an evolve, the mean of a field over tokens and columns after
//! each step.
//!
//! The field is evaluated at the state that the step leads to, in training and in evaluation, without dropout, and no gradient passes through it. It
//! reads the parameters that the step reads, by the names of fields that are named in both; it has none of its own. Takes the options of an
//! evolve; gives a result of the graph for each report, a number for each step.

use super::evolve::{EvolveSpec, Sharing};
use super::graph_builder::GraphBuilder;
use super::layers::network::Network;
use super::layers::pipeline;
use super::layers::{Angles, LayerParam, OfModel, Routed, Weights};
use super::params::path;
use super::phase::Layers;
use super::step_count::StepCount;
use crate::codes;
use crate::error::BuildError;
use crate::scheme::names::Definition;
use crate::scheme::resolve::Resolver;
use crate::scheme::{Coeff, Field, Leaf};
use odec_grammar::Span;
use odec_grammar::ast::{Body, Evolve, EvolveOption, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{Attention, Concat, InverseCount, Mul, SumCols, SumRows};
use odec_graph::{Builder, Exact, Site, TypeError, TypeResult, Value, nn};
use odec_program::ResultId;
use odec_program::manifest::Waves;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Most values that are put side by side at once.
const SIDE_BY_SIDE: usize = 8;

/// A report of an evolve.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: Ident,
    leaf: Rc<Leaf>,
    /// The field's inside, when the sizes are known.
    layer: Option<Network>,
    /// For each program of the evolve, where the field's parameters are.
    reads: Vec<Reads>,
    span: Span,
}

/// Of each parameter of a report, which field of the step has it, and its path below that field.
type Reads = BTreeMap<String, (usize, String)>;

/// Reads the reports among an evolve's options.
pub fn read(e: &Evolve, depth: &StepCount, r: &mut Resolver) -> Option<Vec<Report>> {
    let mut found: Vec<Report> = Vec::new();
    for o in &e.options {
        let EvolveOption::Report { name, value, span } = o else {
            continue;
        };
        if let Some(first) = found.iter().find(|f| f.name.name == name.name) {
            let message = format!("two reports are called `{}`", name.name);
            let d = Diagnostic::error(codes::REPEATED_ITEM, name.span, message);
            r.sink.push(d.also(first.name.span, "the first one"));
            return None;
        }
        if *depth != StepCount::Known {
            let message = "`report` needs steps that all tokens take, and a number of steps that is written in the file";
            let d = Diagnostic::error(codes::INCOMPATIBLE, *span, message);
            r.sink.push(
                d.also(
                    e.extent.span,
                    "the number is decided here while the model runs",
                )
                .help("write a number, `for 6 steps`, or leave the report out"),
            );
            return None;
        }
        let body = Body::Expr(value.clone());
        let Field::Leaf(leaf) = &*r.pipeline(&name.name, Vec::new(), &body)? else {
            return None;
        };
        if leaf.facts.reads_time {
            let message = "a report depends on the state alone";
            let d = Diagnostic::error(codes::INCOMPATIBLE, value.span, message);
            r.sink.push(d.label("this reads the time").help(
                "a field without the layer `time` is expected; weights of time are those that the step begins with",
            ));
            return None;
        }
        found.push(Report {
            name: name.clone(),
            leaf: leaf.clone(),
            layer: None,
            reads: Vec::new(),
            span: value.span,
        });
    }
    Some(found)
}

/// Reads what reports compute, now that sizes and the fields of steps are known.
pub fn fit(e: &mut EvolveSpec, model: &OfModel, r: &mut Resolver) -> Option<()> {
    let mut reports = std::mem::take(&mut e.reports);
    for report in &mut reports {
        let (layer, _) = pipeline::read(&report.leaf, &[model.sizes.width], model, r.sink)?;
        // What runs before the first step has no reports.
        let programs = 0..e.unrolled.programs.len();
        let reads = programs.map(|n| match e.unrolled.steps.contains(&n) {
            true => report.parameters(&layer, (e, n), r),
            false => Some(Reads::new()),
        });
        report.reads = reads.collect::<Option<_>>()?;
        report.layer = Some(layer);
    }
    e.reports = reports;
    Some(())
}

impl Report {
    /// Where the parameters are in a program's fields.
    fn parameters(
        &self,
        layer: &Network,
        (e, program): (&EvolveSpec, usize),
        r: &mut Resolver,
    ) -> Option<Reads> {
        let mut reads = Reads::new();
        for p in layer.params() {
            let first = p.path.split('.').next().unwrap_or_default();
            let first = Ident {
                name: first.to_string(),
                span: self.span,
            };
            let is_named = matches!(
                r.names.get(&first, &mut Vec::new()),
                Ok(Definition::Field(_))
            );
            let places = match is_named {
                true => places(&p, &first.name, (e, program)),
                false => Vec::new(),
            };
            match &places[..] {
                [place] => _ = reads.insert(p.path, place.clone()),
                [] => {
                    r.sink.push(self.own(&p.path));
                    return None;
                }
                [(a, _), (b, _), ..] => {
                    let fields = &e.unrolled.programs[program].fields;
                    let message = format!("`{}` has parameters in two places", first.name);
                    let d = Diagnostic::error(codes::INCOMPATIBLE, self.span, message);
                    let d = d
                        .also(fields[*a].span, "here")
                        .also(fields[*b].span, "and here");
                    r.sink.push(d.help(
                        "name a field that has one set of parameters in a step: a field that two others name has one in each",
                    ));
                    return None;
                }
            }
        }
        Some(reads)
    }

    /// What is said of a parameter that no step reads.
    fn own(&self, path: &str) -> Diagnostic {
        let message = format!(
            "the report `{}` has a parameter that no step reads: `{path}`",
            self.name.name
        );
        Diagnostic::error(codes::INCOMPATIBLE, self.span, message)
            .label("no gradient passes through a report, so it would never be trained")
            .help(
                "name a field that the step evaluates, or that its fields name: with `field recall = hopfield(patterns: 64, energy)` \
                 and `field memory = recall |> columns(to: width)`, write `report energy = recall |> columns(from: width)`",
            )
    }

    /// The name of its result, with the evolve's label.
    fn path(&self, e: &EvolveSpec) -> String {
        path(e, None, self.name.name.clone())
    }
}

/// The fields of a program that have a parameter which a report finds below the field `named`.
fn places(p: &LayerParam, named: &str, (e, program): (&EvolveSpec, usize)) -> Vec<(usize, String)> {
    let stages = &e.unrolled.programs[program];
    let mut found = Vec::new();
    for (field, layer) in e.layers[program].iter().enumerate() {
        let uses = match e.policies[program][field] {
            Sharing::PerUse => stages.usages[field],
            _ => stages.usages[field].min(1),
        };
        let below = match stages.fields[field].name == named {
            true => p.path[named.len()..].trim_start_matches('.'),
            false => &p.path,
        };
        let has = layer
            .params()
            .iter()
            .any(|own| own.path == below && own.shape == p.shape);
        if has {
            found.extend((0..uses).map(|_| (field, below.to_string())));
        }
    }
    found
}

impl Layers<'_, '_> {
    /// Evaluates the reports of the evolve at the state after step `k`.
    pub(super) fn report(
        &mut self,
        b: &mut Builder,
        k: usize,
        state: Value,
    ) -> Result<(), BuildError> {
        let e = self.evolve;
        for report in &e.reports {
            let missing = || BuildError::Missing(format!("the report `{}`", report.name.name));
            let layer = report.layer.as_ref().ok_or_else(missing)?;
            b.site = Site {
                evolve: e.label.clone(),
                step: Some(k as u32),
                path: format!("report.{}", report.name.name),
                ..Site::default()
            }
            .into();
            b.span = Some(report.span);
            let reads = report.reads.get(self.number).ok_or_else(missing)?;
            let mut read = Read {
                fields: self,
                reads,
            };
            let value = layer.build(b, &[state], &mut read)?;
            let columns = i64::try_from(b.ty(value).cols()).unwrap_or(i64::MAX);
            let mean = match columns {
                1 => value,
                _ => {
                    let sum = b.push1(SumCols, &[value])?;
                    nn::combine(b, &[(Exact::ratio(1, columns), sum)])?
                }
            };
            let mean = self.model.over_tokens(b, mean)?;
            let reports = &mut self.model.collected.reports;
            reports.entry(report.path(e)).or_default().push(mean);
        }
        Ok(())
    }
}

impl GraphBuilder<'_> {
    /// The reports as results: a number for each step, the mean over tokens.
    pub(super) fn reports(&mut self, b: &mut Builder) -> Result<(), BuildError> {
        for (name, mut each) in std::mem::take(&mut self.collected.reports) {
            let made = b.part("report", |b| {
                while each.len() > 1 {
                    let groups = each.chunks(SIDE_BY_SIDE).map(|group| match group {
                        [one] => Ok(*one),
                        several => b.push1(Concat, several),
                    });
                    each = groups.collect::<TypeResult<_>>()?;
                }
                let size = b.ty(each[0]).rows();
                let sums = b.push1(SumRows, &[each[0]])?;
                let inverse = b.push1(InverseCount { size }, &[])?;
                b.push1(Mul, &[sums, inverse])
            })?;
            let name = ResultId::Report(&name).to_string();
            self.decided.push((name, made));
        }
        Ok(())
    }
}

/// The parameters of a step as a report reads them.
struct Read<'r, 'l, 's> {
    fields: &'r mut Layers<'l, 's>,
    reads: &'r Reads,
}

impl Weights for Read<'_, '_, '_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult {
        let wrong = |what: String| TypeError { op: "report", what };
        let place = self.reads.get(path);
        let (field, path) = place.ok_or_else(|| wrong(format!("`{path}` is not in the step")))?;
        let policy = self.fields.evolve.policies[self.fields.number][*field];
        // Weights of time are those that the step begins with.
        let begin = matches!(policy, Sharing::TimeDependent(_)).then(|| Coeff::symbol("t"));
        let below = self.fields.below(b, *field, 0, begin.as_ref());
        below.map_err(|e| wrong(e.to_string()))?.param(b, path)
    }

    fn rotary(&mut self, b: &mut Builder, angles: Angles) -> TypeResult<nn::Rotary> {
        self.fields.model.rotary(b, angles)
    }

    fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
        of: Option<&str>,
    ) -> TypeResult {
        self.fields.model.attend(b, attention, operands, of)
    }

    fn state(&mut self, _: &mut Builder, label: &str) -> TypeResult {
        self.fields.model.ended(label)
    }

    fn carry(&mut self, b: &mut Builder, name: &str, shape: [u64; 2]) -> TypeResult<Option<Value>> {
        self.fields.model.carry(b, name, shape)
    }

    fn shifted(&mut self, b: &mut Builder, x: Value, by: &[i32]) -> TypeResult {
        self.fields.model.shifted(b, x, by)
    }

    fn depthwise(&mut self, b: &mut Builder, x: Value, taps: Value, by: &[i32]) -> TypeResult {
        self.fields.model.depthwise(b, x, taps, by)
    }

    /// Nothing is dropped, so that masks of the step are those without the report.
    fn mask(&mut self, _: &mut Builder, _: u32) -> TypeResult<Option<(u32, Value)>> {
        Ok(None)
    }

    fn time(&mut self, _: &mut Builder, _: Waves) -> TypeResult {
        Err(TypeError {
            op: "report",
            what: "reads the time".into(),
        })
    }

    fn positions(&mut self, b: &mut Builder) -> TypeResult {
        self.fields.model.sinusoids(b)
    }

    /// Choices of a report are no choices of the model.
    fn routed(&mut self, _: &mut Builder, _: &str, _: Routed) -> TypeResult<()> {
        Ok(())
    }
}
