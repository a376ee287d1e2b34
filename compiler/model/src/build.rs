//! The graphs of a model: forward, decoding, loss, gradient.
//!
//! Takes a checked [`Spec`]; gives graphs in which every node has its site and the span it comes from. Leaves what stands in them to
//! [`GraphBuilder`], everything about speed to the passes.

use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::kv::KvMode;
use super::layers::network::Network;
use super::passed::Passed;
use super::recent::Windows;
use super::spec::Spec;
use super::step_count::StepCount;
use crate::codes;
use crate::error::{BuildError, MAX_NODES};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{OpKind, Parameter};
use odec_graph::{Builder, Exact, Graph, Site, TypeError, Value, gradient, nn};
use odec_program::ResultId;
use std::collections::BTreeMap;

/// What is said of a model that is too large.
pub fn too_large(step: usize, span: Span) -> Diagnostic {
    let message = format!("the tensor graph of this model has more than {MAX_NODES} nodes");
    Diagnostic::error(codes::TOO_LARGE, span, message)
        .label(format!("step {step} of this evolve exceeds the limit"))
        .help("fewer steps, fewer iterations, or a cheaper scheme")
}

/// From the input to the output's result: `tokens → logits`; and the states on the way.
pub fn forward(spec: &Spec, params: &[Parameter]) -> Result<(Graph, Vec<Passed>), BuildError> {
    let mut b = Builder::new();
    let mut model = GraphBuilder::new(spec, params);
    let state = model.state(&mut b)?;
    for output in spec.outputs() {
        let made = model.said(&mut b, output, state, 0)?;
        b.output(output.result(), made);
    }
    outputs(&mut b, model.decided);
    Ok((b.finish(), model.passed))
}

/// The same for tokens that come after others, whose keys and values are kept. `None` when some token's
/// result depends on later ones, as all do where the steps are those of a whole text, or none is to be predicted.
pub fn decode(spec: &Spec, params: &[Parameter]) -> Result<Option<Graph>, BuildError> {
    let layers = spec.evolves.iter().flat_map(EvolveSpec::all_layers);
    let needs_whole_text =
        |e: &EvolveSpec| matches!(e.depth, StepCount::Adaptive(_)) || e.chooses_ahead();
    if spec.output.loss.continues().is_err()
        || !spec.begin.input.grows()
        || spec.evolves.iter().any(needs_whole_text)
        || layers.chain(&spec.output.before).any(Network::looks_ahead)
    {
        return Ok(None);
    }
    decoding(spec, params, KvMode::Cached).map(Some)
}

/// The same for a token of each of several texts, each of which is as long as it is, of a model whose texts `decode` reads.
pub fn several(
    spec: &Spec,
    params: &[Parameter],
    decode: Option<&Graph>,
) -> Result<Option<Graph>, BuildError> {
    let made = decode.map(|_| decoding(spec, params, KvMode::Several));
    made.transpose()
}

fn decoding(spec: &Spec, params: &[Parameter], kv: KvMode) -> Result<Graph, BuildError> {
    let (mut b, _, made) = continuing(spec, params, kv)?;
    b.output(spec.output.result(), made);
    Ok(b.finish())
}

/// The result of a model for tokens that come after others, and what it was built with: once more where windows need recent tokens alone.
fn continuing<'s>(
    spec: &'s Spec,
    params: &'s [Parameter],
    kv: KvMode,
) -> Result<(Builder, GraphBuilder<'s>, Value), BuildError> {
    let build = |windows: Windows| {
        let mut b = Builder::new();
        let mut model = GraphBuilder::new(spec, params);
        (model.kv, model.windows) = (kv, windows);
        let made = model.result(&mut b)?;
        Ok((b, model, made))
    };
    let built = build(Windows::default())?;
    match built.1.windows.found(spec.sizes.context) {
        None => Ok(built),
        Some(windows) => build(windows),
    }
}

/// How one text is made of another, token by token.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Sources `→` nothing: what the last sequence reads of them is kept.
    pub encode: Graph,
    /// `tokens → logits` of one more token of each of several texts, all of them translations of these sources.
    pub extend: Graph,
}

impl Translation {
    /// Whether all keys and values that are kept of a source have an even number of columns, as have queries: then attention reads all of them in bf16, and
    /// their rows begin at whole words.
    pub fn keeps_even_rows(&self) -> bool {
        let even = |graph: &Graph, v: Value| graph.ty(v).cols().is_multiple_of(2);
        self.extend.nodes().all(|(_, n)| match &n.op {
            OpKind::CachedAttention(_) => n.operands[..3].iter().all(|v| even(&self.extend, *v)),
            _ => true,
        })
    }
}

/// Of a model of two sequences; `None` where a token's result depends on later ones.
pub fn translation(spec: &Spec, params: &[Parameter]) -> Result<Option<Translation>, BuildError> {
    let evolves = || spec.last_evolves().iter();
    let layers = evolves().flat_map(EvolveSpec::all_layers);
    let needs_whole_text =
        |e: &EvolveSpec| matches!(e.depth, StepCount::Adaptive(_)) || e.chooses_ahead();
    if !spec.output.loss.translates()
        || evolves().any(needs_whole_text)
        || layers.chain(&spec.output.before).any(Network::looks_ahead)
    {
        return Ok(None);
    }
    let (mut b, model, logits) = continuing(spec, params, KvMode::Several)?;
    // Both are parts of one graph: its appends to what is kept of the source, and what reads that.
    let mut encode = b.clone();
    for (n, kept) in model.of_source.iter().enumerate() {
        encode.output(format!("kept.{n}"), *kept);
    }
    b.output(spec.output.result(), logits);
    Ok(Some(Translation {
        encode: encode.finish().pruned(),
        extend: b.finish().pruned(),
    }))
}

/// `tokens, targets → loss`: cross-entropy in nats, the mean over all target tokens, or over those that are hidden.
pub fn loss(spec: &Spec, params: &[Parameter]) -> Result<Graph, BuildError> {
    let mut b = Builder::new();
    let (loss, model) = loss_in(spec, params, false, &mut b)?;
    b.output(ResultId::Loss.to_string(), loss);
    outputs(&mut b, model.decided);
    Ok(b.finish())
}

/// `tokens, targets → loss` and `grad.<path>` of every parameter that is trained, in the order of `params`; and the paths of those that the
/// loss does not depend on, or only through what stops the gradient.
pub fn grad(spec: &Spec, params: &[Parameter]) -> Result<(Graph, Vec<String>), BuildError> {
    let mut untrained = Vec::new();
    let mut b = Builder::new();
    let (loss, model) = loss_in(spec, params, true, &mut b)?;
    let trained = params.iter().filter(|p| spec.tune.trains(&p.path));
    let wrt: Vec<Value> = trained
        .clone()
        .filter_map(|p| model.params.get(&p.path))
        .collect();
    let (graph, grads) = gradient(b.finish(), loss, &wrt)?;
    let mut b = Builder::extend(graph);
    b.output(ResultId::Loss.to_string(), loss);
    outputs(&mut b, model.decided);
    let mut grads = wrt.iter().zip(grads);
    for p in trained {
        let (value, g) = match model.params.get(&p.path) {
            Some(_) => {
                let (value, g) = grads
                    .next()
                    .ok_or_else(|| BuildError::Missing(p.path.clone()))?;
                (*value, g)
            }
            None => (b.push1(p.clone(), &[])?, None),
        };
        let g = match g {
            Some(g) => g,
            None => {
                untrained.push(p.path.clone());
                zeros(&mut b, value)?
            }
        };
        b.output(ResultId::Gradient(&p.path).to_string(), g);
    }
    Ok((b.finish(), untrained))
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
) -> Result<(Value, GraphBuilder<'s>), BuildError> {
    let mut model = GraphBuilder::new(spec, params);
    model.drops = drops;
    model.reports = true;
    let state = model.state(b)?;
    let mut said = Vec::new();
    for output in spec.outputs() {
        said.push(model.said(b, output, state, output.kind.ahead())?);
    }
    b.site = Site {
        path: "loss".into(),
        ..Site::default()
    }
    .into();
    b.span = None;
    let mut compared = Vec::new();
    let mut given: BTreeMap<String, Value> = BTreeMap::new();
    for (output, made) in spec.outputs().zip(said) {
        let targets = output.targets(spec.sizes);
        let targets = match given.get(&targets.name) {
            Some(targets) => *targets,
            None => {
                let name = targets.name.clone();
                let targets = b.push1(targets, &[])?;
                given.insert(name, targets);
                targets
            }
        };
        compared.push((made, targets));
    }
    model.shares(b)?;
    model.reports(b)?;
    let loss = model.loss(b, &compared)?;
    Ok((loss, model))
}
