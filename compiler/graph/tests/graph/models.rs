//! Layers against their formulas; derivatives of whole models; the interpreter's errors.

use crate::common::{Random, close, slope};
use crate::tiny;
use odec_graph::graph::Pass;
use odec_graph::ops::{Attention, Input, Mul, Parameter, SumCols, matmul::Layout};
use odec_graph::{
    Builder, DiffError, Exact, Graph, OpKind, RunError, Tensor, TensorType, Value, gradient, nn,
    ops, run, verify,
};
use odec_program::Bindings;
use odec_program::manifest::Init;
use petgraph::visit::{DfsPostOrder, Walker};
use proptest::prelude::*;
use std::collections::BTreeMap;

const B: Bindings = Bindings::new(2, 3);

/// Random values for everything a graph is fed with.
fn feeds(graph: &Graph, random: &mut Random, indices: u64) -> BTreeMap<String, Tensor> {
    let mut feeds = BTreeMap::new();
    for (_, node) in graph.nodes() {
        let name = match &node.op {
            OpKind::Parameter(p) => &p.path,
            OpKind::Input(i) => &i.name,
            _ => continue,
        };
        let t = random.tensor(&node.types[0], B, (-0.8, 0.8), indices);
        feeds.insert(name.clone(), t);
    }
    feeds
}

fn parameters(graph: &Graph) -> Vec<(String, Value)> {
    let parameter = |(n, node): (u32, &odec_graph::Node)| match &node.op {
        OpKind::Parameter(p) => Some((p.path.clone(), Value { node: n, port: 0 })),
        _ => None,
    };
    graph.nodes().filter_map(parameter).collect()
}

fn loss(graph: &Graph) -> Value {
    let (_, loss) = graph
        .outputs()
        .iter()
        .find(|(n, _)| n == "loss")
        .expect("a loss");
    *loss
}

/// The graph with an output `grad.<path>` for every parameter the loss depends on.
pub fn with_gradients(graph: Graph) -> Result<Graph, DiffError> {
    let (names, values): (Vec<String>, Vec<Value>) = parameters(&graph).into_iter().unzip();
    let at = loss(&graph);
    let (graph, found) = gradient(graph, at, &values)?;
    let mut b = Builder::extend(graph);
    for (name, d) in names.into_iter().zip(found) {
        if let Some(d) = d {
            b.output(format!("grad.{name}"), d);
        }
    }
    Ok(b.finish())
}

/// The derivative along a random direction of all parameters: by the graph, and by differences.
fn directional(graph: Graph, indices: u64, seed: u64) -> (f64, f64) {
    let graph = with_gradients(graph).expect("differentiable");
    verify(&graph).expect("sound");
    let mut random = Random(seed);
    let feeds = feeds(&graph, &mut random, indices);
    let results = run(&graph, &feeds, B).expect("a safe model");
    let mut direction = BTreeMap::new();
    let mut analytic = 0.0;
    for (name, _) in parameters(&graph) {
        let mut v = feeds[&name].clone();
        v.data.iter_mut().for_each(|v| *v = random.real(-1.0, 1.0));
        if let Some(d) = results.get(&format!("grad.{name}")) {
            assert_eq!(d.shape, v.shape);
            analytic += d.data.iter().zip(&v.data).map(|(d, v)| d * v).sum::<f64>();
        }
        direction.insert(name, v);
    }
    let numeric = slope(|h| {
        let mut feeds = feeds.clone();
        for (name, v) in &direction {
            let x = &mut feeds.get_mut(name).expect("fed").data;
            x.iter_mut().zip(&v.data).for_each(|(x, v)| *x += h * v);
        }
        run(&graph, &feeds, B).expect("still safe")["loss"].data[0]
    });
    (analytic, numeric)
}

#[test]
fn whole_models_have_the_right_derivative() {
    for graph in [tiny::iie(2, 3), tiny::rk4_shared(2)] {
        let (analytic, numeric) = directional(graph, tiny::VOCAB, 5);
        assert!(
            close(analytic, numeric, 1e-7),
            "{analytic} is not {numeric}"
        );
        assert!(analytic.abs() > 1e-3, "the direction says nothing");
    }
}

/// What a random model does next to its state.
#[derive(Clone, Debug)]
enum Layer {
    Attention { causal: bool },
    Ffn,
    Silu,
    Gelu,
    Square,
    Norm,
    Standard,
    Gate,
    Mix(i64, i64),
    Earlier(usize),
}

fn layers() -> impl Strategy<Value = Vec<Layer>> {
    let layer = prop_oneof![
        any::<bool>().prop_map(|causal| Layer::Attention { causal }),
        Just(Layer::Ffn),
        Just(Layer::Silu),
        Just(Layer::Gelu),
        Just(Layer::Square),
        Just(Layer::Norm),
        Just(Layer::Standard),
        Just(Layer::Gate),
        (-3..4i64, 1..4i64).prop_map(|(n, d)| Layer::Mix(n, d)),
        (0..4usize).prop_map(Layer::Earlier),
    ];
    prop::collection::vec((layer, 0..3u32), 1..8)
        .prop_map(|l| l.into_iter().map(|(l, _)| l).collect())
}

/// Layers one after the other; weights of the same kind are shared, so that gradients add up.
fn random_model(layers: &[Layer]) -> Graph {
    let mut m = tiny::Tiny::new().expect("sound");
    let mut x = m.embed().expect("sound");
    let mut states = vec![x];
    for layer in layers {
        let one = Exact::one();
        let eps = Exact::ratio(1, 10);
        let y = match layer {
            Layer::Attention { causal: true } => m.attention("shared", x),
            Layer::Attention { causal: false } => {
                let attention = Attention::new(1, false);
                m.b.push(attention, &[x, x, states[0]]).map(|v| v[0])
            }
            Layer::Ffn => m.ffn("shared", x),
            Layer::Silu => nn::silu(&mut m.b, x),
            Layer::Gelu => nn::gelu(&mut m.b, x),
            Layer::Square => m.b.push1(Mul, &[x, x]),
            Layer::Norm => {
                let gain = m.parameter("gain", &[tiny::WIDTH]).expect("sound");
                nn::rmsnorm(&mut m.b, x, gain, &eps)
            }
            Layer::Standard => {
                let gain = m.parameter("gain", &[tiny::WIDTH]).expect("sound");
                let bias = m.parameter("bias", &[tiny::WIDTH]).expect("sound");
                nn::layernorm(&mut m.b, x, gain, bias, &eps)
            }
            Layer::Gate => {
                let scalar = m.parameter("scalar", &[]).expect("sound");
                let row = m.b.push1(SumCols, &[x]).expect("sound");
                let row = m.b.push1(ops::Sigmoid, &[row]).expect("sound");
                let row = m.b.push1(Mul, &[row, scalar]).expect("sound");
                m.b.push1(Mul, &[row, x])
            }
            Layer::Mix(n, d) => {
                nn::combine(&mut m.b, &[(one, x), (Exact::ratio(*n, *d), states[0])])
            }
            Layer::Earlier(i) => {
                let earlier = states[i % states.len()];
                nn::combine(&mut m.b, &[(one, earlier), (Exact::ratio(-1, 2), x)])
            }
        };
        x = y.expect("sound");
        states.push(x);
    }
    m.head(x).expect("sound")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_models_have_the_right_derivative(layers in layers(), seed in any::<u64>()) {
        let (analytic, numeric) = directional(random_model(&layers), tiny::VOCAB, seed);
        prop_assert!(close(analytic, numeric, 1e-7), "{analytic} is not {numeric}");
    }
}

/// One layer on fed operands.
fn layer(
    shapes: &[TensorType],
    build: impl FnOnce(&mut Builder, &[Value]) -> Result<Value, odec_graph::TypeError>,
    values: &[Tensor],
) -> Tensor {
    let mut b = Builder::new();
    let input = |(i, ty): (usize, &TensorType)| {
        let (name, ty) = (format!("in{i}"), ty.clone());
        b.push1(Input { name, ty }, &[]).expect("an input")
    };
    let ins: Vec<Value> = shapes.iter().enumerate().map(input).collect();
    let y = build(&mut b, &ins).expect("sound");
    b.output("y", y);
    let feeds = values
        .iter()
        .enumerate()
        .map(|(i, t)| (format!("in{i}"), t.clone()));
    run(&b.finish(), &feeds.collect(), B).expect("safe")["y"].clone()
}

#[test]
fn layers_are_their_formulas() {
    let mut random = Random(2);
    let (state, row) = (TensorType::state(4), TensorType::state(1));
    let at = TensorType::index(row.shape.clone());
    let vector = TensorType::real([odec_program::Dim::Fixed(4)]);
    let x = random.tensor(&state, B, (-2.0, 2.0), 0);
    let gain = random.tensor(&vector, B, (0.5, 1.5), 0);
    let targets = random.tensor(&at, B, (0.0, 0.0), 4);
    let same = |found: &Tensor, expected: Vec<f64>| {
        assert_eq!(found.data.len(), expected.len());
        for (a, b) in found.data.iter().zip(&expected) {
            assert!(close(*a, *b, 1e-13), "{a} is not {b}");
        }
    };

    let eps = Exact::ratio(1, 100_000);
    let norm = |b: &mut Builder, v: &[Value]| nn::rmsnorm(b, v[0], v[1], &eps);
    let found = layer(
        &[state.clone(), vector.clone()],
        norm,
        &[x.clone(), gain.clone()],
    );
    let expected = x.data.chunks(4).flat_map(|x| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / 4.0;
        let root = (mean + 1e-5).sqrt();
        x.iter()
            .zip(&gain.data)
            .map(move |(x, g)| x / root * g)
            .collect::<Vec<_>>()
    });
    same(&found, expected.collect());

    let bias = random.tensor(&vector, B, (-1.0, 1.0), 0);
    let norm = |b: &mut Builder, v: &[Value]| nn::layernorm(b, v[0], v[1], v[2], &eps);
    let found = layer(
        &[state.clone(), vector.clone(), vector],
        norm,
        &[x.clone(), gain.clone(), bias.clone()],
    );
    let expected = x.data.chunks(4).flat_map(|x| {
        let mean = x.iter().sum::<f64>() / 4.0;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4.0;
        let affine = gain.data.iter().zip(&bias.data);
        x.iter()
            .zip(affine)
            .map(move |(x, (g, b))| (x - mean) / (variance + 1e-5).sqrt() * g + b)
            .collect::<Vec<_>>()
    });
    same(&found, expected.collect());

    let found = layer(
        std::slice::from_ref(&state),
        |b, v| nn::silu(b, v[0]),
        std::slice::from_ref(&x),
    );
    same(
        &found,
        x.data.iter().map(|x| x / (1.0 + (-x).exp())).collect(),
    );

    // Two columns of the state and one of the other value in each head, then both of what all heads share.
    let (two, shared) = (TensorType::state(2), TensorType::state(2));
    let y = random.tensor(&two, B, (-2.0, 2.0), 0);
    let z = random.tensor(&shared, B, (-2.0, 2.0), 0);
    let heads = |b: &mut Builder, v: &[Value]| nn::concat_heads(b, &v[..2], Some(v[2]), 2);
    let found = layer(
        &[state.clone(), two, shared],
        heads,
        &[x.clone(), y.clone(), z.clone()],
    );
    let rows = x.data.chunks(4).zip(y.data.chunks(2).zip(z.data.chunks(2)));
    let expected =
        rows.flat_map(|(x, (y, z))| [x[0], x[1], y[0], z[0], z[1], x[2], x[3], y[1], z[0], z[1]]);
    same(&found, expected.collect());

    let gelu = |b: &mut Builder, v: &[Value]| nn::gelu(b, v[0]);
    let found = layer(std::slice::from_ref(&state), gelu, std::slice::from_ref(&x));
    let root = std::f64::consts::FRAC_1_SQRT_2;
    same(
        &found,
        x.data
            .iter()
            .map(|x| x * (1.0 + libm::erf(root * x)) / 2.0)
            .collect(),
    );

    let relu = |b: &mut Builder, v: &[Value]| nn::relu(b, v[0]);
    let found = layer(std::slice::from_ref(&state), relu, std::slice::from_ref(&x));
    same(&found, x.data.iter().map(|x| x.max(0.0)).collect());

    let rows: Vec<f64> = x
        .data
        .chunks(4)
        .zip(&targets.data)
        .map(|(x, t)| x.iter().map(|x| x.exp()).sum::<f64>().ln() - x[*t as usize])
        .collect();
    let fed = [x.clone(), targets.clone()];
    let entropy = |b: &mut Builder, v: &[Value]| nn::cross_entropy(b, v[0], v[1]);
    same(
        &layer(&[state.clone(), at.clone()], entropy, &fed),
        rows.clone(),
    );
    let mean = |b: &mut Builder, v: &[Value]| nn::mean_cross_entropy(b, v[0], v[1]);
    same(
        &layer(&[state.clone(), at.clone()], mean, &fed),
        vec![rows.iter().sum::<f64>() / 6.0],
    );

    // far from zero the shift keeps exponentials finite
    let mut far = x.clone();
    far.data.iter_mut().for_each(|x| *x += 1e4);
    let found = layer(&[state, at], entropy, &[far, targets]);
    assert!(
        found
            .data
            .iter()
            .zip(&rows)
            .all(|(a, b)| close(*a, *b, 1e-9))
    );
}

/// A token sees itself and the past only, and where it stands matters only relative to what it sees.
#[test]
fn attention_is_causal_and_relative() {
    let state = TensorType::state(4);
    let x = Random(8).tensor(&state, B, (-1.0, 1.0), 0);
    let build = |b: &mut Builder, v: &[Value]| {
        let r = nn::rotary(b, 3, (2, 100.0), Default::default())?;
        let rope = ops::Rope {
            head: 2,
            interleaved: false,
            inverse: false,
        };
        let turned = b.push1(rope, &[v[0], r.cos, r.sin])?;
        Ok(b.push(Attention::new(2, true), &[turned, turned, v[0]])?[0])
    };
    let all = layer(
        std::slice::from_ref(&state),
        build,
        std::slice::from_ref(&x),
    );
    let mut later = x.clone();
    later.data[8..12].fill(0.3); // batch 0, position 2
    let found = layer(std::slice::from_ref(&state), build, &[later]);
    assert_eq!(found.data[..8], all.data[..8]);
    assert_ne!(found.data[8..12], all.data[8..12]);
    assert_eq!(found.data[12..], all.data[12..]);
    // the first position attends to itself alone
    assert_eq!(all.data[..4], x.data[..4]);
    // two equal keys share the attention wherever the query turned them to
    let score = |p: usize, q: usize| {
        let angle = (p as f64 - q as f64).cos();
        angle * (0.6f64 * 0.6 + 0.8 * 0.8)
    };
    let mut same = x.clone();
    for token in same.data.chunks_mut(4) {
        token.copy_from_slice(&[0.6, 0.8, 0.6, 0.8]);
    }
    let values = Random(9).tensor(&state, B, (-1.0, 1.0), 0);
    let build = |b: &mut Builder, v: &[Value]| {
        let r = nn::rotary(b, 3, (2, 100.0), Default::default())?;
        let rope = ops::Rope {
            head: 2,
            interleaved: false,
            inverse: false,
        };
        let turned = b.push1(rope, &[v[0], r.cos, r.sin])?;
        Ok(b.push(Attention::new(2, true), &[turned, turned, v[1]])?[0])
    };
    let found = layer(&[state.clone(), state], build, &[same, values.clone()]);
    let weights: Vec<f64> = (0..3).map(|j| (score(2, j) / 2f64.sqrt()).exp()).collect();
    let sum: f64 = weights.iter().sum();
    for c in 0..4 {
        let expected: f64 = (0..3)
            .map(|j| weights[j] / sum * values.data[j * 4 + c])
            .sum();
        assert!(close(found.data[8 + c], expected, 1e-13));
    }
}

fn three(b: &mut Builder) -> (Value, Value) {
    let parameter = |path: &str| Parameter {
        path: path.into(),
        shape: vec![3],
        init: Init::Ones,
    };
    let w = b.push1(parameter("w"), &[]).expect("sound");
    let idle = b.push1(parameter("idle"), &[]).expect("sound");
    (w, idle)
}

/// Contributions to one value are added as they come, latest user first, two at a time.
#[test]
fn gradients_add_up_in_order() {
    let mut b = Builder::new();
    let (w, idle) = three(&mut b);
    let mut sum = b.push1(Mul, &[w, w]).expect("sound");
    for _ in 0..2 {
        sum = b.push1(Mul, &[sum, w]).expect("sound");
    }
    let columns = b.push1(SumCols, &[sum]).expect("sound");
    let loss = b.push1(ops::SumRows, &[columns]).expect("sound");
    b.output("loss", loss);
    let (graph, found) = gradient(b.finish(), loss, &[w, idle]).expect("differentiable");
    assert_eq!(found[1], None);
    let total = found[0].expect("it depends on w");
    let last = graph.node(total.node);
    let two = ops::Combine::of([Exact::one(), Exact::one()]);
    assert_eq!(last.op, two.clone().into());
    let before = graph.node(last.operands[0].node);
    assert_eq!(before.op, two.into());
    // the first term comes from the latest user, so from the earliest node of the backward pass
    assert!(before.operands[0] < before.operands[1] && before.operands[1] < last.operands[1]);
    assert!(
        graph
            .nodes()
            .skip(7)
            .all(|(_, n)| n.site.pass == Pass::Backward)
    );
    let mut b = Builder::extend(graph);
    b.output("d", total);
    let w = Tensor::new(vec![3], vec![1.0, -2.0, 0.5]);
    let feeds = BTreeMap::from([("w".to_string(), w)]);
    // `idle` is not fed: nothing that is asked for needs it
    let results = run(&b.finish(), &feeds, B).expect("safe");
    assert_eq!(results["d"].data, [4.0, -32.0, 0.5]);
}

#[test]
fn what_cannot_be_differentiated_is_named() {
    let mut b = Builder::new();
    let (w, _) = three(&mut b);
    b.site.path = "head".into();
    let rounded = b.push1(ops::Bf16, &[w]).expect("sound");
    let rounded = b.push1(ops::Exp, &[rounded]).expect("sound");
    let sum = b.push1(ops::SumCols, &[rounded]).expect("sound");
    let loss = b.push1(ops::SumRows, &[sum]).expect("sound");
    let graph = b.finish();
    let no_rule = gradient(graph.clone(), loss, &[w]).expect_err("no rule");
    assert_eq!(
        no_rule.to_string(),
        "`bf16` at `head` cannot be differentiated: precision is chosen after derivatives are taken"
    );
    let no_scalar = gradient(graph, w, &[w]).expect_err("no scalar");
    assert_eq!(
        no_scalar.to_string(),
        "only a scalar can be differentiated, not [3]"
    );
}

#[test]
fn what_cannot_be_run_is_named() {
    let graph = tiny::iie(1, 0);
    let mut good = feeds(&graph, &mut Random(1), tiny::VOCAB);
    let error = |f: &BTreeMap<String, Tensor>, b| run(&graph, f, b).expect_err("wrong").to_string();
    let mut missing = good.clone();
    missing.remove("tokens");
    assert_eq!(error(&missing, B), "nothing is given for `tokens`");
    assert_eq!(
        error(&good, Bindings::new(2, 4)),
        "`tokens` has shape [2, 3, 1]; the graph needs [2, 4, 1] (index[B, S, 1])"
    );
    good.get_mut("targets").expect("an input").data[1] = 7.0;
    assert_eq!(
        error(&good, B),
        "at `loss`: gather_cols: index 7 is not in 0..7"
    );
    assert!(matches!(run(&graph, &good, B), Err(RunError::Op { .. })));
}

/// Types are checked as nodes are made, and a failed push leaves no node behind.
#[test]
fn a_failed_push_changes_nothing() {
    let mut b = Builder::new();
    let (w, _) = three(&mut b);
    let layout = Layout::Nt;
    b.push(ops::MatMul::new(layout), &[w, w])
        .expect_err("vectors");
    assert_eq!(b.graph().len(), 2);
}

/// The operands are the edges that petgraph's algorithms walk.
#[test]
fn petgraph_walks_the_operands() {
    let text = "%x = input() name=x : [B, S, 2]\n%y = mul(%x, %x) : [B, S, 2]\n\
                %unread = exp(%x) : [B, S, 2]\n%z = add(%y, %x) : [B, S, 2]\noutput z = %z\n";
    let graph = odec_graph::text::parse(text).unwrap();
    let z = graph.outputs()[0].1;
    let made: Vec<u32> = DfsPostOrder::new(&graph, z.node).iter(&graph).collect();
    assert_eq!(made, [0, 1, 3]);
    assert!(graph.live([z]).ones().eq([0, 1, 3]));
    assert!(graph.live([]).is_clear());
}
