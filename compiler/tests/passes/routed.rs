//! Steps that a router gives to each token: against plain loops in f64 over the tokens that take a step, read in pieces, and with nothing
//! passed over.

use crate::numbers::{close, executor, feeds, tokens};
use crate::plain::{
    Params, changes_no_bit, gradient_is_of, is_read_in_pieces, nats, of, set, swiglu, times, waves,
};
use crate::source::built;
use crate::systems::options;
use odec_compiler::cost::cost;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_graph::interp::{self, Tensor};
use odec_graph::ops::{Input, Mul, SumCols, SumRows};
use odec_graph::{Graph, OpKind, TensorType, gradient, nn};
use odec_program::manifest::Manifest;
use odec_program::{Bindings, Dim};
use odec_runtime::{Executor, State, Value};
use std::collections::{BTreeMap, BTreeSet};

const SEQ: usize = 7;
const AT: Bindings = Bindings::new(2, SEQ as u64);
const WIDTH: usize = 4;
const HEADS: usize = 2;
const MOST: usize = 4;
const H: f64 = 0.5;

fn planned(flow: &str, fields: &str, train: &str) -> (Built, Manifest) {
    let text = format!(
        "field f = swiglu(hidden: 6)\n{fields}\nfield route = linear({MOST}, bias)\n\
         model m {{\n  input tokens(vocab: 256, context: {SEQ})\n  embed learned(width: {WIDTH})\n  \
         evolve {flow} for routed(route, max: {MOST}, choice: token) steps {{ h = 1/2;  weights shared }}\n  \
         output logits(tied)\n  init normal(std: 0.8)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    let built = built(&text);
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    (built, manifest)
}

/// With scores that differ between tokens, none of them near another.
fn varied(m: &Manifest) -> Executor {
    let mut e = executor(m);
    for (n, p) in m.params.iter().enumerate() {
        let (size, rate) = match p.path.as_str() {
            path if path.starts_with("route.") => (2.0, 0.61),
            path if path.ends_with("gain") => continue,
            _ => (0.9, 0.37 + 0.11 * n as f64),
        };
        set(&mut e, p, waves(p, size, rate));
    }
    e
}

/// Causal attention of the last of some states to all of them.
fn attended(p: &Params, states: &[&[f64]]) -> Vec<f64> {
    let map = |part: &str, x: &[f64]| times(&p[&format!("g.{part}.weight")], x);
    let head = WIDTH / HEADS;
    let q = map("q", states[states.len() - 1]);
    let mut out = Vec::new();
    for n in 0..HEADS {
        let part = n * head..(n + 1) * head;
        let weights: Vec<f64> = states
            .iter()
            .map(|x| {
                let k = map("k", x);
                let dot: f64 = part.clone().map(|i| q[i] * k[i]).sum();
                (dot / (head as f64).sqrt()).exp()
            })
            .collect();
        let total: f64 = weights.iter().sum();
        for i in part {
            let each = states.iter().zip(&weights);
            out.push(each.map(|(x, w)| w / total * map("v", x)[i]).sum());
        }
    }
    map("o", &out)
}

/// The number of steps of a token, from 1, and its share of the router's softmax, with all shares.
fn route(p: &Params, x: &[f64]) -> (usize, f64, Vec<f64>) {
    let scores = times(&p["route.linear.weight"], x);
    let scores: Vec<f64> = scores
        .iter()
        .zip(&p["route.linear.bias"])
        .map(|(s, b)| s + b)
        .collect();
    let total: f64 = scores.iter().map(|s| s.exp()).sum();
    let shares: Vec<f64> = scores.iter().map(|s| s.exp() / total).collect();
    let mut best = 0;
    for n in 1..MOST {
        if scores[n] > scores[best] {
            best = n;
        }
    }
    (best + 1, shares[best], shares)
}

fn embedded(p: &Params, text: &[i32]) -> Vec<Vec<f64>> {
    let table = &p["embed.token.weight"];
    let row = |t: &i32| table[*t as usize * WIDTH..][..WIDTH].to_vec();
    text.iter().map(row).collect()
}

/// The states of a text after all steps: in each, those that take it are a text of their own.
fn recurred(p: &Params, text: &[i32]) -> Vec<Vec<f64>> {
    let mut x = embedded(p, text);
    let routes: Vec<(usize, f64)> = x
        .iter()
        .map(|x| route(p, x))
        .map(|(n, g, _)| (n, g))
        .collect();
    for step in 1..=MOST {
        let mine: Vec<usize> = (0..x.len()).filter(|i| routes[*i].0 >= step).collect();
        let states: Vec<&[f64]> = mine.iter().map(|i| &x[*i][..]).collect();
        let next: Vec<Vec<f64>> = (0..mine.len())
            .map(|n| {
                let (own, gate) = (states[n], routes[mine[n]].1);
                let met = attended(p, &states[..=n]);
                let u: Vec<f64> = own.iter().zip(met).map(|(x, k)| x + H * k).collect();
                let made = u.iter().zip(swiglu(p, "f", &u)).map(|(u, k)| u + H * k);
                own.iter()
                    .zip(made)
                    .map(|(x, y)| x + gate * (y - x))
                    .collect()
            })
            .collect();
        for (i, state) in mine.into_iter().zip(next) {
            x[i] = state;
        }
    }
    x
}

/// Cross-entropy of tied logits, and how unevenly numbers of steps are used: M Σ_n f_n p_n.
fn loss_of(p: &Params, x: &[i32], targets: &[i32]) -> [f64; 2] {
    let mut sum = 0.0;
    for (x, y) in x.chunks(SEQ).zip(targets.chunks(SEQ)) {
        for (state, y) in recurred(p, x).iter().zip(y) {
            let logits = times(&p["embed.token.weight"], state);
            sum += nats(&logits, *y);
        }
    }
    let (mut used, mut shares) = ([0.0; MOST], [0.0; MOST]);
    for x in embedded(p, x) {
        let (n, _, all) = route(p, &x);
        used[n - 1] += 1.0;
        shares.iter_mut().zip(all).for_each(|(s, p)| *s += p);
    }
    let n = x.len() as f64;
    let products = used.iter().zip(shares).map(|(f, p)| f / n * p / n);
    [sum / n, MOST as f64 * products.sum::<f64>()]
}

const REFERENCE: &str = "field g = attention(heads: 2, causal)";
const LOSS: &str = "loss cross_entropy + 1/4*load_balance";

#[test]
fn tokens_recur_as_in_a_plain_loop() {
    let (built, m) = planned("lie(g, f)", REFERENCE, &format!("precision f64;  {LOSS}"));
    let mut e = varied(&m);
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let p = of(&e, State::Params);
    let steps = |p: &Params| {
        let each = embedded(p, &x).into_iter().map(|x| route(p, &x).0);
        each.collect::<Vec<_>>()
    };
    let made = steps(&p);
    let kinds: BTreeSet<usize> = made.iter().copied().collect();
    assert!(kinds.len() >= 3 && kinds.contains(&MOST), "{made:?}");

    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let out = e.run("forward", AT, &io[..1], &[]).unwrap();
    let logits: Vec<f64> = out.reals("logits").unwrap().iter().collect();
    let want: Vec<f64> = x
        .chunks(SEQ)
        .flat_map(|text| recurred(&p, text))
        .flat_map(|x| times(&p["embed.token.weight"], &x))
        .collect();
    let near = |got: &[f64], what: &str| {
        assert_eq!(got.len(), want.len(), "{what}");
        for (g, w) in got.iter().zip(&want) {
            assert!((g - w).abs() < 1e-11, "{what}: {g} is not {w}");
        }
    };
    near(&logits, "compiled");
    let mean = made.iter().sum::<usize>() as f64 / made.len() as f64;
    assert!((out.scalar("steps.made").unwrap() - mean).abs() < 1e-12);
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    near(
        &interp::run(&built.forward, &f, AT).unwrap()["logits"].data,
        "interpreted",
    );
    let out = e.run("grad", AT, &io, &[]).unwrap();
    let terms = loss_of(&p, &x, &y);
    for (name, term) in ["cross_entropy", "load_balance"].into_iter().zip(terms) {
        let told = out.scalar(&format!("loss.{name}")).unwrap();
        assert!((told - term).abs() < 1e-12, "{name}: {told}, not {term}");
    }
    // Differences change no number of steps.
    gradient_is_of(&e, |p| {
        assert_eq!(steps(p), made);
        let [nats, balance] = loss_of(p, &x, &y);
        nats + balance / 4.0
    });
}

const MIXED: &str = "field g = rmsnorm |> attention(heads: 2, kv_heads: 1, causal, rope)";

/// Tokens that did not take a step are not attended to in it, whether they were read before or together.
#[test]
fn a_text_read_in_pieces_is_the_text_read_whole() {
    for fields in [
        MIXED,
        "field g = rmsnorm |> attend(linear, linear, linear, heads: 2, causal, window: 3, bias: alibi, sinks)",
    ] {
        is_read_in_pieces(&mut varied(&planned("strang(f, g)", fields, "").1), MOST);
    }
}

#[test]
fn neither_memory_nor_passing_over_changes_a_bit() {
    // A bias that makes all tokens take two steps: the others are passed over.
    for biased in [false, true] {
        let made = |memory: &str| {
            let train = format!("{LOSS} + 1/4*kinetic;  {memory}");
            let (_, m) = planned("strang(f, g)", MIXED, &train);
            let mut e = varied(&m);
            if biased {
                let bias = m.params.iter().find(|p| p.path == "route.linear.bias");
                set(&mut e, bias.unwrap(), vec![0.0, 100.0, 0.0, 0.0]);
            }
            e
        };
        changes_no_bit(made, AT, biased);
    }
}

/// Programs in f32 against the meaning of their graphs.
#[test]
fn programs_compute_recursions() {
    let (built, m) = planned("strang(f, g)", MIXED, LOSS);
    let mut e = varied(&m);
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let want = interp::run(&built.grad, &f, AT).unwrap();
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let out = e.run("grad", AT, &io, &[]).unwrap();
    close(
        "loss",
        &[out.scalar("loss").unwrap() as f32],
        &want["loss"].data,
        1e-5,
    );
    for p in m.trained() {
        let name = format!("grad.{}", p.path);
        close(&name, e.of(State::Grads, p).f32(), &want[&name].data, 1e-3);
    }
}

/// After the first step, which all tokens take, no product is one of all rows; the work is that of the tokens that take a step.
#[test]
fn only_tokens_that_take_a_step_are_computed() {
    let (built, m) = planned("lie(g, f)", REFERENCE, LOSS);
    let of_all = |g: &Graph| {
        let later = g
            .nodes()
            .filter(|(_, n)| n.site.step.is_some_and(|k| k > 0));
        let all = later.filter(|(_, n)| matches!(n.op, OpKind::MatMul(_)));
        all.count()
    };
    let graphs = [&built.forward, &built.grad, built.decode.as_ref().unwrap()];
    assert_eq!(graphs.map(of_all), [0; 3]);
    let costs = cost(&built, &m.program, options()).unwrap();
    let [forward, backward] = costs.even.unwrap();
    // Four maps of attention and three of 6 columns; of 4 steps the first is whole, then 3/4, 2/4 and 1/4 of all tokens.
    let step = (SEQ * (4 * WIDTH * WIDTH + 3 * 6 * WIDTH)) as u64;
    let saved = step / 4 + step / 4 * 2 + step / 4 * 3;
    assert!(step.is_multiple_of(4) && saved > 0);
    assert_eq!(costs.forward.contractions - forward.contractions, saved);
    assert_eq!(
        costs.backward.contractions - backward.contractions,
        2 * saved
    );
    assert_eq!(costs.forward.attention, forward.attention);
}

/// What a token that does not take a step holds reaches neither results nor gradients of the products.
#[test]
fn rows_of_no_token_are_not_read() {
    let mut b = odec_graph::Builder::new();
    let input = |name: &str, ty| Input {
        name: name.into(),
        ty,
    };
    let x = b.push1(input("x", TensorType::state(2)), &[]).unwrap();
    let rows = b.push1(input("rows", TensorType::state(1)), &[]).unwrap();
    let w = TensorType::real([3, 2].map(Dim::Fixed));
    let w = b.push1(input("w", w), &[]).unwrap();
    b.rows = Some(rows);
    let y = nn::linear(&mut b, x, w).unwrap();
    b.rows = None;
    b.output("y", y);
    // Σ c y, so that c is the derivative by y.
    let c = b.push1(input("c", TensorType::state(3)), &[]).unwrap();
    let each = b.push1(Mul, &[y, c]).unwrap();
    let each = b.push1(SumCols, &[each]).unwrap();
    let sum = b.push1(SumRows, &[each]).unwrap();
    let (graph, found) = gradient(b.finish(), sum, &[x, w]).unwrap();
    let mut b = odec_graph::Builder::extend(graph);
    for (name, d) in ["dx", "dw"].into_iter().zip(found) {
        b.output(name, d.unwrap());
    }
    let of = |shape: &[u64], data: &[f64]| Tensor::new(shape.to_vec(), data.to_vec());
    let lost = f64::NAN;
    let feeds = [
        ("x", of(&[1, 3, 2], &[1.0, 2.0, lost, lost, 3.0, 4.0])),
        ("rows", of(&[1, 3, 1], &[0.0, -1.0, 0.0])),
        ("w", of(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])),
        (
            "c",
            of(
                &[1, 3, 3],
                &[1.0, 0.0, 2.0, lost, lost, lost, 0.0, 5.0, 1.0],
            ),
        ),
    ];
    let feeds: BTreeMap<String, Tensor> = feeds.map(|(n, t)| (n.to_string(), t)).into();
    let made = interp::run(&b.finish(), &feeds, Bindings::new(1, 3)).unwrap();
    let y = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 3.0, 4.0, 7.0];
    assert_eq!(made["y"].data, y);
    // c w, and nothing for the token that is left out.
    assert_eq!(made["dx"].data, [3.0, 2.0, 0.0, 0.0, 1.0, 6.0]);
    // Σ over the other tokens of cᵀ x.
    assert_eq!(made["dw"].data, [1.0, 2.0, 15.0, 20.0, 5.0, 8.0]);
}
