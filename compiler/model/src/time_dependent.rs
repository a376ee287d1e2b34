//! `weights of time { embed: 128, hidden: 144 }`: parameters that are functions of time (Tong et al. 2025, "Neural ODE Transformers", ICLR,
//! §4.2 and appendix A).
//! ```text
//! e(t) = [t, sin ωt, cos ωt],  ωᵢ = scale · 10⁴^(−i/embed)
//! W(t) = W + Proj (down silu(up e(t)))         a matrix, with up and down of its own, hidden numbers wide
//! g(t) = g + G e(t)                            a gain, a shift, a bias; G = 0 at the start
//! g(t) = g + Proj (down silu(up e(t)))         the same with `vectors: mlp`; Proj = 0 at the start
//! ```
//! W, what the paper's projection has as its bias, starts as the matrix of other policies does, and so does g: at the start all times
//! have nearly the same weights. The appendix prints ωᵢ as an exponent; the exponential, the scale 1000, and maps of their own for norms and
//! biases are those of the released code (qkvflow), where a norm's gain and shift have one MLP together, and a bias that of its matrix. Takes the words and the time of an evaluation; gives parameters and their values. Leaves times to `scheme/time.rs`.

use super::evolve::{EvolveSpec, Sharing};
use super::graph_builder::GraphBuilder;
use super::layers::{LayerParam, MAX_WIDTH};
use crate::codes;
use crate::scheme::args::{Args, report};
use crate::scheme::scalar::{Scope, name_of, whole};
use crate::scheme::stage::StageProgram;
use crate::scheme::{Coeff, StageInstr};
use odec_grammar::Span;
use odec_grammar::ast::Arg;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{Add, Broadcast, Concat, Mul, Reshape, Sin, Slice, SumRows, Table};
use odec_graph::{Builder, Exact, TensorType, TypeError, Value, nn};
use odec_program::Dim;
use odec_program::manifest::{self, Init, Waves};
use std::collections::BTreeMap;

/// The part of a site that what is made of the time stands at.
const TIME: &str = "time";
const BASE: f64 = 10_000.0;
const SCALE: u64 = 1000;
/// Most waves: beyond this an angle has no digit left in f32.
const MAX_SCALE: u64 = 1_000_000;

/// How parameters depend on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeDependent {
    /// Waves, each with sine and cosine.
    pub embed: u64,
    pub hidden: u64,
    pub scale: u64,
    /// Whether all evaluations of a step take the weights of its end.
    pub at_end: bool,
    /// Whether vectors have maps of their own, as matrices have.
    pub vectors_by_mlp: bool,
}

/// A time: known when the model is built, or computed by the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Time {
    Known(Exact),
    Made(Value),
}

/// When a field is evaluated, and how its parameters depend on time.
pub struct At {
    /// How, and the time that they are taken at.
    pub weights: Option<(TimeDependent, Time)>,
    /// Of the evaluation, where it is known: what the layer `time` reads.
    pub evaluated: Option<Time>,
    /// What the paths of its factors begin with.
    pub factors: String,
}

/// What the evaluations of a phase share.
#[derive(Default)]
pub struct Timed {
    features: Vec<(Waves, Time, Value)>,
    params: Vec<(Time, BTreeMap<String, Value>)>,
    /// Parameters of other policies, with what factors add to them.
    pub(super) adapted: BTreeMap<String, Value>,
}

/// Reads `{ embed: 128, hidden: 144, at: left }`.
pub fn read(span: Span, args: &[Arg], sink: &mut Vec<Diagnostic>) -> Option<TimeDependent> {
    let before = sink.len();
    let mut args = Args::listed("of time", span, args);
    let none = Scope::new();
    let embed = args.size("embed", &none, MAX_WIDTH / 4, sink);
    let hidden = args.size("hidden", &none, MAX_WIDTH, sink);
    let scale = match args.labelled("scale", sink) {
        Some(e) => report(whole(e, &none, 1, MAX_SCALE), sink),
        None => Some(SCALE),
    };
    let at_end = second(&mut args, "at", ["left", "right"], sink, |span| {
        Diagnostic::error(codes::UNKNOWN_OPTION, span, "this is not a side of a step").help(
            "`left` takes weights at the time of each evaluation, `right` at the end of the step",
        )
    });
    let vectors_by_mlp = second(&mut args, "vectors", ["linear", "mlp"], sink, |span| {
        let message = "vectors cannot depend on time in this way";
        Diagnostic::error(codes::UNKNOWN_OPTION, span, message)
            .help("`linear` adds `G e(t)` to gains, shifts and biases, `mlp` what matrices have")
    });
    args.finish(&[], sink);
    let read = TimeDependent {
        embed: embed?,
        hidden: hidden?,
        scale: scale?,
        at_end: at_end?,
        vectors_by_mlp: vectors_by_mlp?,
    };
    Some(read).filter(|_| sink.len() == before)
}

/// Whether a label says the second of two words; the first is what it means to say nothing.
fn second(
    args: &mut Args,
    label: &'static str,
    words: [&str; 2],
    sink: &mut Vec<Diagnostic>,
    wrong: impl FnOnce(Span) -> Diagnostic,
) -> Option<bool> {
    let Some(e) = args.labelled(label, sink) else {
        return Some(false);
    };
    let name = name_of(e);
    let found = words
        .iter()
        .position(|w| name.as_ref().is_some_and(|n| n.name == *w));
    if found.is_none() {
        let expected = format!("`{}` or `{}` is expected", words[0], words[1]);
        sink.push(wrong(e.span).label(expected));
    }
    found.map(|i| i == 1)
}

impl TimeDependent {
    fn waves(self) -> Waves {
        Waves::Weights {
            n: self.embed,
            base: BASE,
            scale: self.scale as f64,
        }
    }

    /// The end of a step.
    pub fn end() -> Coeff {
        let end = Coeff::symbol("t").add(&Coeff::symbol("h"));
        end.unwrap_or_else(|_| Coeff::symbol("t"))
    }

    /// What a parameter needs beside itself: paths below the field, shapes and starts. `std` is the deviation of matrices.
    pub fn params(self, p: &LayerParam, std: f64) -> Vec<(String, Vec<u64>, Init)> {
        let (features, hidden) = (self.waves().columns(), self.hidden);
        let normal = |std: f64, inputs: u64| Init::Normal {
            std: std / (inputs as f64).sqrt(),
        };
        let path = |part: &str| format!("{}.time.{part}", p.path);
        let elements = p.shape.iter().fold(1u64, |n, d| n.saturating_mul(*d));
        if self.is_linear(p.shape.len()) {
            return vec![(path("weight"), vec![elements, features], Init::Zeros)];
        }
        let proj = match p.shape.len() {
            0 | 1 => Init::Zeros,
            _ => normal(std, hidden),
        };
        vec![
            (
                path("up.weight"),
                vec![hidden, features],
                normal(1.0, features),
            ),
            (path("up.bias"), vec![hidden], Init::Zeros),
            (
                path("down.weight"),
                vec![hidden, hidden],
                normal(1.0, hidden),
            ),
            (path("down.bias"), vec![hidden], Init::Zeros),
            (path("proj.weight"), vec![elements, hidden], proj),
        ]
    }

    /// Whether a parameter of so many dimensions has one matrix beside itself, and no maps.
    fn is_linear(self, rank: usize) -> bool {
        rank < 2 && !self.vectors_by_mlp
    }
}

impl EvolveSpec {
    /// Finds when each step begins, if something depends on it, and says where it is not known when a field is evaluated.
    pub(super) fn find_times(&mut self, sink: &mut Vec<Diagnostic>) -> Option<()> {
        let mut reads = false;
        for (p, policies) in self.unrolled.programs.iter().zip(&self.policies) {
            reads |= p.all_symbols().contains("t");
            let timed: Vec<bool> = p.fields.iter().map(|f| f.facts.reads_time).collect();
            let partner = p.embedded.iter().flat_map(|e| &e.instrs);
            for i in p.instrs.iter().chain(partner) {
                if let StageInstr::Phi { field, .. } = i {
                    reads |= matches!(policies[*field], Sharing::TimeDependent(_));
                }
                let StageInstr::Eval {
                    field, when, span, ..
                } = i
                else {
                    continue;
                };
                let policy = match policies[*field] {
                    Sharing::TimeDependent(o) => Some(o),
                    _ => None,
                };
                let read = timed[*field] || policy.is_some_and(|o| !o.at_end);
                reads |= read || policy.is_some();
                if read && when.is_none() {
                    sink.push(unknown(p, *field, *span));
                    return None;
                }
            }
        }
        if !reads {
            return Some(());
        }
        let mut t = Exact::zero();
        for h in &self.h {
            self.t.push(t.clone());
            let next = (&t + h).checked();
            t = report(
                next.map_err(|why| crate::scheme::scalar::arithmetic(why.into(), self.span)),
                sink,
            )?;
        }
        Some(())
    }
}

fn unknown(p: &StageProgram, field: usize, span: Span) -> Diagnostic {
    let name = &p.fields[field].name;
    let message = format!("`{name}` depends on time, and the time of this evaluation is not known");
    Diagnostic::error(codes::MISSING_ARGUMENT, span, message)
        .label("this is not a state plus multiples of rates")
        .help(format!(
            "say when it is, as a part of the step: `{name}(…, at: c)`, where c is 0 at the beginning of the step and 1 at its end"
        ))
}

impl GraphBuilder<'_> {
    /// Features of a time, `[1, columns]`.
    pub(super) fn features(
        &mut self,
        b: &mut Builder,
        waves: Waves,
        time: &Time,
    ) -> Result<Value, TypeError> {
        let known = self.timed.features.iter();
        if let Some((.., v)) = known.into_iter().find(|(w, t, _)| *w == waves && t == time) {
            return Ok(*v);
        }
        let table = |b: &mut Builder, table| b.push1(Table { table }, &[]);
        let made = b.part(TIME, |b| match time {
            Time::Known(t) => table(
                b,
                manifest::Table::Time {
                    t: t.to_f64(),
                    waves,
                },
            ),
            Time::Made(t) if waves == Waves::NONE => {
                let to = TensorType::real([Dim::Fixed(1), Dim::Fixed(1)]);
                b.push1(Broadcast { to }, &[*t])
            }
            Time::Made(t) => {
                let frequencies = table(b, manifest::Table::Frequencies(waves))?;
                let phases = table(b, manifest::Table::Phases(waves))?;
                let angles = b.push1(Mul, &[frequencies, *t])?;
                let angles = b.push1(Add, &[angles, phases])?;
                let features = b.push1(Sin, &[angles])?;
                let (from, cols) = (waves.first(), waves.columns() - waves.first());
                if from == 0 {
                    return Ok(features);
                }
                let to = TensorType::real([Dim::Fixed(1), Dim::Fixed(from)]);
                let t = b.push1(Broadcast { to }, &[*t])?;
                let features = b.push1(Slice { from, cols }, &[features])?;
                b.push1(Concat, &[t, features])
            }
        })?;
        self.timed.features.push((waves, time.clone(), made));
        Ok(made)
    }

    /// A parameter at a time, with what the factors of this path add to it; made once for each time of a phase.
    pub(super) fn param_at(
        &mut self,
        b: &mut Builder,
        path: &str,
        of: TimeDependent,
        time: &Time,
        factors: &str,
    ) -> Result<Value, TypeError> {
        let at = |(t, _): &&mut (Time, BTreeMap<String, Value>)| t == time;
        if let Some((_, made)) = self.timed.params.iter_mut().find(at)
            && let Some(v) = made.get(path)
        {
            return Ok(*v);
        }
        let features = self.features(b, of.waves(), time)?;
        let own = self.param(b, path)?;
        let shape = b.ty(own).shape.clone();
        let mut part = |b: &mut Builder, part: &str| self.param(b, &format!("{path}.time.{part}"));
        let row = match of.is_linear(shape.len()) {
            true => {
                let weight = part(b, "weight")?;
                b.part(TIME, |b| nn::linear(b, features, weight))?
            }
            false => {
                let mut map = |b: &mut Builder, name: &str| {
                    let weight = part(b, &format!("{name}.weight"))?;
                    let bias = Some(part(b, &format!("{name}.bias"))?);
                    Ok::<_, TypeError>(nn::Affine { weight, bias })
                };
                let (up, down) = (map(b, "up")?, map(b, "down")?);
                let proj = part(b, "proj.weight")?;
                b.part(TIME, |b| {
                    let hidden = nn::affine(b, features, up)?;
                    let hidden = nn::silu(b, hidden)?;
                    let hidden = nn::affine(b, hidden, down)?;
                    nn::linear(b, hidden, proj)
                })?
            }
        };
        let value = b.part(TIME, |b| {
            let more = match shape.is_empty() {
                true => b.push1(SumRows, &[row])?,
                false => b.push1(Reshape::of(shape), &[row])?,
            };
            nn::combine(b, &[(Exact::one(), own), (Exact::one(), more)])
        })?;
        let value = self.adapted(b, value, factors)?;
        match self.timed.params.iter_mut().find(at) {
            Some((_, made)) => _ = made.insert(path.to_string(), value),
            None => {
                let made = BTreeMap::from([(path.to_string(), value)]);
                self.timed.params.push((time.clone(), made));
            }
        }
        Ok(value)
    }
}
