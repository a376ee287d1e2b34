//! Tensor graphs of a model: forward, loss, gradient.
//!
//! Takes a checked [`Spec`]; gives graphs in which every node has its site and the span it comes from. Stage programs
//! are unrolled step by step: an `Eval` becomes the field's layer, a `Combine` one op with exact coefficients.
//! A parameter is made once: before the steps if all share it, else where it is first used. Leaves everything about speed to the passes.

use super::coefficient::Coefficients;
use super::depth::Depth;
use super::evolve::{EvolveSpec, Sharing};
use super::layers::network::Network;
use super::layers::{Angles, SINUSOID_BASE, Weights};
use super::of_time::{At, OfTime, Timed};
use super::params::{
    EMBEDDING, LOGITS, POSITIONS, factor_path, field_name, field_path, learned_path,
};
use super::spec::{Positions, Spec};
use super::step::{Evaluation, Fields, Function, Kept, Place};
use super::terms::Collected;
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::stage::Phase;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{
    AddPositions, Append, Attention, Cache, CachedAttention, Dropout, Embedding, FromPast, Input,
    Mul, Parameter, Phi, RegionBegin, Table,
};
use odec_graph::types::Elem;
use odec_graph::{Builder, Exact, Graph, Site, TensorType, TypeError, Value, gradient, nn};
use odec_program::manifest::{Loss, Waves};
use odec_program::{Dim, ResultId, manifest, names, noise};
use std::collections::BTreeMap;

pub use super::error::{BuildError, MAX_NODES};

/// What is said of a model that is too large.
pub fn too_large(step: usize, span: Span) -> Diagnostic {
    let message = format!("the tensor graph of this model has more than {MAX_NODES} nodes");
    Diagnostic::error(codes::TOO_LARGE, span, message)
        .label(format!("step {step} of this evolve exceeds the limit"))
        .help("fewer steps, fewer iterations, or a cheaper scheme")
}

/// Token numbers per position, `[B, S, 1]`.
fn index(name: &str) -> Input {
    Input {
        name: name.into(),
        ty: TensorType::index([Dim::Batch, Dim::Seq, Dim::Fixed(1)]),
    }
}

/// `tokens → logits`.
pub fn forward(spec: &Spec, params: &[Parameter]) -> Result<Graph, BuildError> {
    let mut b = Builder::new();
    let mut model = Model::new(spec, params);
    let logits = model.logits(&mut b)?;
    b.output(ResultId::Logits.to_string(), logits);
    outputs(&mut b, model.decided);
    Ok(b.finish())
}

/// `tokens → logits` for tokens that come after others, whose keys and values are kept. `None` when some token's
/// result depends on later ones, as all do where the steps are those of a whole text, or none is to be predicted.
pub fn decode(spec: &Spec, params: &[Parameter]) -> Result<Option<Graph>, BuildError> {
    let layers = spec.evolves.iter().flat_map(EvolveSpec::all_layers);
    let next = matches!(spec.loss, Loss::Next);
    let adaptive = |e: &EvolveSpec| matches!(e.depth, Depth::Adaptive(_));
    if !next
        || spec.evolves.iter().any(adaptive)
        || layers.chain(&spec.output).any(Network::looks_ahead)
    {
        return Ok(None);
    }
    let mut b = Builder::new();
    let mut model = Model::new(spec, params);
    model.reach = Reach::Past;
    let logits = model.logits(&mut b)?;
    b.output(ResultId::Logits.to_string(), logits);
    Ok(Some(b.finish()))
}

/// `tokens, targets → loss`: cross-entropy in nats, the mean over all target tokens, or over those that are hidden.
pub fn loss(spec: &Spec, params: &[Parameter]) -> Result<Graph, BuildError> {
    let mut b = Builder::new();
    let (loss, model) = loss_in(spec, params, false, &mut b)?;
    b.output(ResultId::Loss.to_string(), loss);
    outputs(&mut b, model.decided);
    Ok(b.finish())
}

/// `tokens, targets → loss` and `grad.<path>` of every parameter that is trained, in the order of `params`.
pub fn grad(spec: &Spec, params: &[Parameter]) -> Result<Graph, BuildError> {
    let mut b = Builder::new();
    let (loss, model) = loss_in(spec, params, true, &mut b)?;
    let values = model.values;
    let trained = params.iter().filter(|p| spec.tune.trains(&p.path));
    let wrt: Vec<Value> = trained
        .clone()
        .filter_map(|p| values.get(&p.path).copied())
        .collect();
    let (graph, grads) = gradient(b.finish(), loss, &wrt)?;
    let mut b = Builder::extend(graph);
    b.output(ResultId::Loss.to_string(), loss);
    outputs(&mut b, model.decided);
    let mut grads = wrt.iter().zip(grads);
    for p in trained {
        let g = match values.get(&p.path) {
            Some(_) => {
                let (value, g) = grads
                    .next()
                    .ok_or_else(|| BuildError::Missing(p.path.clone()))?;
                match g {
                    Some(g) => g,
                    None => zeros(&mut b, *value)?,
                }
            }
            None => {
                let value = b.push1(p.clone(), &[])?;
                zeros(&mut b, value)?
            }
        };
        b.output(ResultId::Gradient(&p.path).to_string(), g);
    }
    Ok(b.finish())
}

fn outputs(b: &mut Builder, named: Vec<(String, Value)>) {
    for (name, v) in named {
        b.output(name, v);
    }
}

fn zeros(b: &mut Builder, like: Value) -> Result<Value, TypeError> {
    nn::combine(b, &[(Exact::zero(), like)])
}

/// `drops`: while the model is trained, parts of what its fields compute are dropped.
fn loss_in<'s>(
    spec: &'s Spec,
    params: &'s [Parameter],
    drops: bool,
    b: &mut Builder,
) -> Result<(Value, Model<'s>), BuildError> {
    let mut model = Model::new(spec, params);
    model.drops = drops;
    let logits = model.logits(b)?;
    b.site = Site {
        path: "loss".into(),
        ..Site::default()
    };
    b.span = None;
    let targets = b.push1(index(names::TARGETS), &[])?;
    let loss = model.loss(b, logits, targets)?;
    Ok((loss, model))
}

/// What has been made so far.
pub(super) struct Model<'s> {
    pub(super) spec: &'s Spec,
    params: BTreeMap<&'s str, &'s Parameter>,
    /// Parameters in the graph, by path.
    values: BTreeMap<String, Value>,
    /// Those that were made before the steps, with what factors add to them.
    shared: BTreeMap<String, Value>,
    /// Rotary tables, by the columns of a head.
    /// By the columns of a head and the bits of the base.
    rotary: BTreeMap<(u64, u64), nn::Rotary>,
    /// Sinusoids of the tokens' positions, where something reads them.
    sinusoids: Option<Value>,
    pub(super) reach: Reach,
    /// The input.
    pub(super) tokens: Option<Value>,
    pub(super) drops: bool,
    /// What masks are chosen by, where something is dropped.
    key: Option<Value>,
    /// The stream of each mask, by the place of its weights.
    streams: BTreeMap<String, u32>,
    /// Tables of random numbers so far.
    pub(super) drawn: u32,
    /// Regions so far that may not be made.
    regions: u32,
    /// What was made of parameters and times in the phase at hand.
    pub(super) timed: Timed,
    /// The one at hand, and parameters as it reads them.
    region: Option<(u32, BTreeMap<String, Value>)>,
    /// What the steps so far give to the terms of the loss.
    pub(super) collected: Collected,
    /// What was decided while it ran, and the terms of the loss: results beside the others, by name.
    pub(super) decided: Vec<(String, Value)>,
}

/// What a phase is given.
#[derive(Default)]
pub(super) struct Pass<'k> {
    /// Values of earlier steps; none, where a method of one step needs none.
    pub kept: Option<&'k mut Kept>,
    /// The time and the step size, where the graph computes them.
    pub clock: Option<[Value; 2]>,
}

/// The parameters below a prefix.
pub(super) struct Below<'m, 's> {
    pub model: &'m mut Model<'s>,
    pub prefix: String,
    /// When it is evaluated, and how the parameters depend on that.
    pub time: Option<At>,
}

impl Weights for Below<'_, '_> {
    fn param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        let own = format!("{}.{path}", self.prefix);
        match &self.time {
            Some(At {
                weights: Some(weights),
                time,
                factors,
            }) => {
                let factors = format!("{factors}.{path}");
                self.model.param_at(b, &own, *weights, time, &factors)
            }
            _ => self.model.param(b, &own),
        }
    }
    fn rotary(&mut self, b: &mut Builder, angles: Angles) -> Result<nn::Rotary, TypeError> {
        self.model.rotary(b, angles)
    }
    fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        qkv: [Value; 3],
    ) -> Result<Value, TypeError> {
        match self.model.reach {
            Reach::Run => nn::attend(b, attention, qkv),
            Reach::Past => self.model.attend_to_past(b, attention, qkv),
        }
    }
    /// One mask for each field and step, whatever the weights policy and however often the field is evaluated in it: the
    /// stages of a scheme see one right-hand side.
    fn mask(&mut self, b: &mut Builder, number: u32) -> Result<Option<(u32, Value)>, TypeError> {
        let place = Site {
            evaluation: None,
            ..b.site.clone()
        };
        self.model.mask(b, format!("{place} {number}"))
    }
    fn time(&mut self, b: &mut Builder, waves: Waves) -> Result<Value, TypeError> {
        let missing = || TypeError {
            op: "time",
            what: "is not known here".into(),
        };
        let at = self.time.as_ref().ok_or_else(missing)?;
        self.model.features(b, waves, &at.time)
    }
    fn positions(&mut self, b: &mut Builder) -> Result<Value, TypeError> {
        self.model.sinusoids(b)
    }
}

/// The tokens that attention sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those of the run.
    Run,
    /// Those of earlier runs as well: keys and values are kept, one pair per evaluation.
    Past,
}

impl<'s> Model<'s> {
    fn new(spec: &'s Spec, params: &'s [Parameter]) -> Self {
        Model {
            spec,
            params: params.iter().map(|p| (p.path.as_str(), p)).collect(),
            values: BTreeMap::new(),
            shared: BTreeMap::new(),
            rotary: BTreeMap::new(),
            sinusoids: None,
            reach: Reach::Run,
            tokens: None,
            drops: false,
            key: None,
            streams: BTreeMap::new(),
            drawn: 0,
            regions: 0,
            timed: Timed::default(),
            region: None,
            collected: Collected::default(),
            decided: Vec::new(),
        }
    }

    /// The mask of a place: a stream of its own, the same however often the place is evaluated.
    pub(super) fn mask(
        &mut self,
        b: &mut Builder,
        place: String,
    ) -> Result<Option<(u32, Value)>, TypeError> {
        if !self.drops {
            return Ok(None);
        }
        let key = match self.key {
            Some(key) => key,
            None => b.push1(
                Input {
                    name: noise::KEY.into(),
                    ty: Dropout::key(),
                },
                &[],
            )?,
        };
        self.key = Some(key);
        let next = self.streams.len() as u32 + 2;
        Ok(Some((*self.streams.entry(place).or_insert(next), key)))
    }

    pub(super) fn rotary(
        &mut self,
        b: &mut Builder,
        angles: Angles,
    ) -> Result<nn::Rotary, TypeError> {
        let Angles { head, base } = angles;
        let key = (head, base.to_bits());
        if let Some(r) = self.rotary.get(&key) {
            return Ok(*r);
        }
        let outside = Site {
            path: "rotary".into(),
            ..Site::default()
        };
        let site = std::mem::replace(&mut b.site, outside);
        let made = nn::rotary(b, self.spec.sizes.context, head, base);
        let made = made.and_then(|r| {
            Ok(nn::Rotary {
                cos: self.positions(b, r.cos)?,
                sin: self.positions(b, r.sin)?,
                ..r
            })
        });
        b.site = site;
        self.rotary.insert(key, made.clone()?);
        made
    }

    /// A table with a row for each position, as the tokens of a run see it.
    pub(super) fn positions(&self, b: &mut Builder, table: Value) -> Result<Value, TypeError> {
        match self.reach {
            Reach::Run => Ok(table),
            Reach::Past => b.push1(FromPast, &[table]),
        }
    }

    /// The sinusoids of the tokens' positions, as wide as the state.
    fn sinusoids(&mut self, b: &mut Builder) -> Result<Value, TypeError> {
        if let Some(known) = self.sinusoids {
            return Ok(known);
        }
        let table = manifest::Table::Sinusoid {
            positions: self.spec.sizes.context,
            width: self.spec.sizes.width,
            base: SINUSOID_BASE,
        };
        let table = b.push1(Table { table }, &[])?;
        let table = self.positions(b, table)?;
        self.sinusoids = Some(table);
        Ok(table)
    }

    /// Keeps keys and values under the site's name, and attends to all that are kept.
    fn attend_to_past(
        &self,
        b: &mut Builder,
        attention: Attention,
        [q, k, v]: [Value; 3],
    ) -> Result<Value, TypeError> {
        let site = b.site.to_string();
        let (positions, width) = (self.spec.sizes.context, b.ty(k).cols());
        let mut kept = |x: Value, what: &str| {
            let path = format!("{site}.{what}");
            let cache = Cache {
                elem: Elem::Real,
                path,
                positions,
                width,
            };
            let cache = b.push1(cache, &[])?;
            b.push1(Append, &[cache, x])
        };
        let (k, v) = (kept(k, "k")?, kept(v, "v")?);
        b.push1(CachedAttention { attention }, &[q, k, v])
    }

    pub(super) fn param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        let v = self.outer_param(b, path)?;
        let Some((region, entered)) = &mut self.region else {
            return Ok(v);
        };
        if let Some(v) = entered.get(path) {
            return Ok(*v);
        }
        let region = *region;
        let inside = b.push1(RegionBegin { region }, &[v])?;
        entered.insert(path.to_string(), inside);
        Ok(inside)
    }

    /// Whether there is a parameter of this path.
    pub(super) fn knows(&self, path: &str) -> bool {
        self.params.contains_key(path)
    }

    /// A parameter with what factors add to it: made before all steps, or once in each.
    fn outer_param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        let made = self.shared.get(path);
        if let Some(v) = made.or_else(|| self.timed.adapted.get(path)) {
            return Ok(*v);
        }
        let own = self.stored(b, path)?;
        let v = self.adapted(b, own, path)?;
        self.timed.adapted.insert(path.to_string(), v);
        Ok(v)
    }

    fn stored(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError> {
        if let Some(v) = self.values.get(path) {
            return Ok(*v);
        }
        let Some(p) = self.params.get(path) else {
            return Err(TypeError {
                op: "parameter",
                what: format!("`{path}` is not in the table"),
            });
        };
        let v = b.push1((*p).clone(), &[])?;
        self.values.insert(path.to_string(), v);
        Ok(v)
    }

    fn logits(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        let spec = self.spec;
        b.site = Site {
            path: "embed".into(),
            ..Site::default()
        };
        b.span = Some(spec.embed_span);
        let tokens = b.push1(index(names::TOKENS), &[])?;
        self.tokens = Some(tokens);
        let table = self.param(b, EMBEDDING)?;
        let mut x = b.push1(Embedding, &[table, tokens])?;
        if let Some(positions) = spec.positions {
            let table = match positions {
                Positions::Learned => {
                    let table = self.param(b, POSITIONS)?;
                    self.positions(b, table)?
                }
                Positions::Sinusoidal => self.sinusoids(b)?,
            };
            x = b.push1(AddPositions, &[x, table])?;
        }
        self.common(b)?;
        for e in &spec.evolves {
            x = match &e.depth {
                Depth::Known => self.known(b, e, e.steps, x)?,
                Depth::Adaptive(a) => self.adaptive(b, e, a, x)?,
                Depth::Random(r) => self.random(b, e, r, x)?,
                Depth::Halting(h) => self.halting(b, e, h, x)?,
            };
        }
        b.site = Site {
            path: "output".into(),
            ..Site::default()
        };
        b.span = Some(spec.output_span);
        if let Some(layer) = &spec.output {
            x = layer.build(
                b,
                &[x],
                &mut Below {
                    model: self,
                    prefix: "output".into(),
                    time: None,
                },
            )?;
        }
        let w = self.param(b, if spec.tied { EMBEDDING } else { LOGITS })?;
        Ok(b.part("logits", |b| nn::linear(b, x, w))?)
    }

    /// What belongs to no step stands before all of them, so that equal steps look equal: rotary tables, and the
    /// parameters of fields and the learned coefficients that all steps share.
    fn common(&mut self, b: &mut Builder) -> Result<(), BuildError> {
        for e in &self.spec.evolves {
            if e.all_layers().any(Network::sees_positions) {
                b.span = Some(e.span);
                b.site = Site {
                    path: "positions".into(),
                    ..Site::default()
                };
                self.sinusoids(b)?;
            }
            self.halting_params(b, e)?;
            for l in e.unrolled.phases().flat_map(|(at, _)| e.learned(at)) {
                if l.shared {
                    b.span = Some(l.span);
                    b.site = Site {
                        evolve: e.label.clone(),
                        path: "scheme".into(),
                        ..Site::default()
                    };
                    self.param(b, &learned_path(e, &l, Phase::Start))?;
                }
            }
            for (program, layers) in e.layers.iter().enumerate() {
                for (field, layer) in layers.iter().enumerate() {
                    b.span = Some(e.unrolled.programs[program].fields[field].span);
                    for angles in layer.rotated() {
                        self.rotary(b, angles)?;
                    }
                    let used = e.unrolled.programs[program].usages[field] > 0;
                    let policy = e.policies[program][field];
                    if used && matches!(policy, Sharing::Shared | Sharing::OfTime(_)) {
                        b.site = Site {
                            evolve: e.label.clone(),
                            path: field_name(e, program, field, 0),
                            ..Site::default()
                        };
                        let prefix = field_path(e, program, field, 0, Phase::Start);
                        for p in layer.params() {
                            self.param(b, &format!("{prefix}.{}", p.path))?;
                            if let Sharing::OfTime(o) = policy {
                                for (path, ..) in o.params(&p, 0.0) {
                                    self.param(b, &format!("{prefix}.{path}"))?;
                                }
                            }
                        }
                    }
                }
            }
        }
        self.shared = std::mem::take(&mut self.timed.adapted);
        Ok(())
    }

    /// Enters a region that may not be made; what is read in it from now on comes from outside.
    pub(super) fn region(&mut self) -> u32 {
        self.regions += 1;
        self.region = Some((self.regions, BTreeMap::new()));
        self.regions
    }

    /// Leaves it.
    pub(super) fn leave(&mut self) {
        self.region = None;
    }

    /// The state after a phase, and its error where the program has a partner that was made part of it.
    pub(super) fn phase(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        (at, number): (Phase, usize),
        x: Value,
        pass: Pass,
    ) -> Result<(Value, Option<Value>), BuildError> {
        let program = &e.unrolled.programs[number];
        let (step, h) = match at {
            Phase::Start => (None, None),
            Phase::Step(k) => (Some(k as u32), Some(e.h[k].clone())),
        };
        let path = match at {
            Phase::Start => "start".into(),
            Phase::Step(_) => String::new(),
        };
        let site = Site {
            evolve: e.label.clone(),
            step,
            path,
            ..Site::default()
        };
        b.site = site.clone();
        b.site.path = "scheme".into();
        let mut symbols = BTreeMap::new();
        for l in &e.learned(at) {
            b.span = Some(l.span);
            let value = self.param(b, &learned_path(e, l, at))?;
            symbols.insert(l.name.clone(), value);
        }
        let computed = pass.clock.map(|[_, h]| h);
        let named = |[t, h]: [Value; 2]| [("t".to_string(), t), ("h".to_string(), h)];
        let made: BTreeMap<_, _> = pass.clock.into_iter().flat_map(named).collect();
        let begin = match at {
            Phase::Step(k) => e.t.get(k).cloned(),
            Phase::Start => Some(Exact::zero()),
        };
        let known = [("t", begin), ("h", h)].map(|(n, v)| Some((n.to_string(), v?)));
        let mut known: BTreeMap<String, Exact> = known.into_iter().flatten().collect();
        if pass.clock.is_some() {
            known.clear();
        }
        let clock = Coefficients::new(known.clone(), made.clone());
        self.timed = Timed::default();
        symbols.extend(made);
        if e.learn_h.is_some() {
            known.remove("h");
        }
        let mut coefficients = Coefficients::new(known, symbols);
        for d in &program.derived {
            coefficients.derive(b, d)?;
        }
        let place = Place {
            program,
            site,
            span: Some(e.span),
        };
        let mut fields = Layers {
            model: self,
            evolve: e,
            number,
            at,
            clock,
        };
        let mut none = Kept::new();
        let kept = pass.kept.unwrap_or(&mut none);
        let (made, error) = place.with_error(b, x, &mut coefficients, kept, &mut fields)?;
        if b.graph().len() > MAX_NODES {
            return Err(BuildError::TooLarge {
                step: match at {
                    Phase::Start => 0,
                    Phase::Step(k) => k,
                },
                span: e.span,
            });
        }
        if let Phase::Step(k) = at {
            self.collect(b, (e, k), [x, made], computed)?;
        }
        Ok((made, error))
    }
}

/// The fields of a model's step.
struct Layers<'l, 's> {
    model: &'l mut Model<'s>,
    evolve: &'l EvolveSpec,
    number: usize,
    at: Phase,
    clock: Coefficients,
}

impl Fields for Layers<'_, '_> {
    fn normal(
        &mut self,
        b: &mut Builder,
        like: Value,
        std: &Exact,
        number: usize,
    ) -> Result<Value, BuildError> {
        self.model.normal(b, like, std, number)
    }

    fn function(
        &mut self,
        b: &mut Builder,
        of: Function,
        coefficients: &mut Coefficients,
        x: Value,
    ) -> Result<Value, BuildError> {
        let (e, number) = (self.evolve, self.number);
        b.span = Some(e.unrolled.programs[number].fields[of.field].span);
        let site = b.site.clone();
        b.site.path = field_name(e, number, of.field, 0);
        // Weights of time are those that the step begins with.
        let timed = matches!(e.policies[number][of.field], Sharing::OfTime(_));
        let begin = timed.then(|| Coeff::symbol("t"));
        let mut below = self.below(b, of.field, 0, begin.as_ref())?;
        let rates = e.layers[number][of.field].rates(b, &mut below)?;
        let missing = || BuildError::Missing("the decay of a linear field".into());
        let rates = rates.ok_or_else(missing)?;
        let z = coefficients.affine(b, rates, of.over, &Coeff::zero())?;
        let factor = b.push1(Phi { index: of.index }, &[z])?;
        b.site = site;
        Ok(b.push1(Mul, &[x, factor])?)
    }

    fn evaluate(&mut self, b: &mut Builder, of: Evaluation) -> Result<Value, BuildError> {
        let (e, number) = (self.evolve, self.number);
        b.site.path = field_name(e, number, of.field, of.usage);
        b.span = Some(e.unrolled.programs[number].fields[of.field].span);
        let mut below = self.below(b, of.field, of.usage, of.when)?;
        Ok(e.layers[number][of.field].build(b, of.points, &mut below)?)
    }
}

impl<'s> Layers<'_, 's> {
    /// Where a field finds its parameters at a time.
    fn below(
        &mut self,
        b: &mut Builder,
        field: usize,
        usage: usize,
        when: Option<&Coeff>,
    ) -> Result<Below<'_, 's>, BuildError> {
        let (e, number) = (self.evolve, self.number);
        let weights = match e.policies[number][field] {
            Sharing::OfTime(o) => Some(o),
            _ => None,
        };
        let ends = weights.is_some_and(|o| o.at_end).then(OfTime::end);
        let time = match ends.as_ref().or(when) {
            None => None,
            Some(when) => Some(At {
                weights,
                time: self.clock.time(b, when)?,
                factors: factor_path(e, number, field, usage, self.at),
            }),
        };
        Ok(Below {
            model: self.model,
            prefix: field_path(e, number, field, usage, self.at),
            time,
        })
    }
}
