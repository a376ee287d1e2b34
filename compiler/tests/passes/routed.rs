//! Steps that a router gives to each token: against plain loops in f64 over the tokens that take a step, read in pieces, and with nothing
//! passed over.

use crate::numbers::{close, feeds, tokens};
use crate::plain::{
    Params, changes_no_bit, expert, gradient_is_of, is_read_in_pieces, nats, of, planned_text, set,
    swiglu, times, varied,
};
use crate::systems::options;
use odec_compiler::cost::cost;
use odec_compiler::model::Built;
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

/// Who decides which tokens take a step.
#[derive(Clone, Copy)]
enum Choice {
    Tokens,
    /// Steps, with the shares of a text that they take, and how many tokens that is.
    Steps(&'static str, [usize; MOST]),
    /// The same while the model is trained; then tokens, by gates above 1/2.
    Above(&'static str, [usize; MOST]),
}

use Choice::Tokens;
/// The second step leaves tokens out, the third none of those that are left.
const STEPS: Choice = Choice::Steps("[1, 2/3, 2/3, 1/3]", [7, 5, 5, 3]);
/// The first step leaves a token out, the last takes one.
const FEW: Choice = Choice::Steps("[6/7, 1/2, 2/5, 1/9]", [6, 4, 3, 1]);

impl Choice {
    fn text(self) -> String {
        match self {
            Tokens => "choice: token".into(),
            Choice::Steps(shares, _) => format!("choice: expert, capacity: {shares}"),
            Choice::Above(shares, _) => {
                format!("choice: expert, capacity: {shares}, threshold: 1/2")
            }
        }
    }
}

fn planned(choice: Choice, flow: &str, fields: &str, train: &str) -> (Built, Manifest) {
    planned_with("swiglu(hidden: 6)", choice, flow, fields, train)
}

fn planned_with(
    mlp: &str,
    choice: Choice,
    flow: &str,
    fields: &str,
    train: &str,
) -> (Built, Manifest) {
    let choice = choice.text();
    let text = format!(
        "field f = {mlp}\n{fields}\nfield route = linear({MOST}, bias)\n\
         model m {{\n  input tokens(vocab: 256, context: {SEQ})\n  embed learned(width: {WIDTH})\n  \
         evolve {flow} for routed(route, max: {MOST}, {choice}) steps {{ h = 1/2;  weights shared }}\n  \
         output logits(tied)\n  init normal(std: 0.8)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    planned_text(&text)
}

/// All tokens take two steps.
fn two_steps(e: &mut Executor, m: &Manifest) {
    let bias = m.params.iter().find(|p| p.path == "route.linear.bias");
    set(e, bias.unwrap(), vec![0.0, 100.0, 0.0, 0.0]);
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

/// What the router says of a state, for each number of steps or each step.
fn scores(p: &Params, x: &[f64]) -> Vec<f64> {
    let scores = times(&p["route.linear.weight"], x);
    let each = scores.iter().zip(&p["route.linear.bias"]);
    each.map(|(s, b)| s + b).collect()
}

/// The number of steps of a token, from 1, and its share of the router's softmax, with all shares.
fn route(p: &Params, x: &[f64]) -> (usize, f64, Vec<f64>) {
    let scores = scores(p, x);
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

/// The tokens of a text that take a step, in order, with what their changes are multiplied by. `open`: those that took the one before.
fn taking(choice: Choice, step: usize, open: &[usize], scores: &[Vec<f64>]) -> Vec<(usize, f64)> {
    let mut each: Vec<(usize, f64)> = open.iter().map(|i| (*i, scores[*i][step])).collect();
    match choice {
        Tokens => unreachable!("tokens choose before the first step"),
        Choice::Steps(_, counts) => {
            each.sort_by(|a, b| b.1.total_cmp(&a.1));
            each.truncate(counts[step]);
            each.sort_by_key(|(i, _)| *i);
        }
        Choice::Above(_, counts) if counts[step] < SEQ => each.retain(|(_, s)| *s > 0.0),
        Choice::Above(..) => {}
    }
    let gate = |(i, s): (usize, f64)| (i, 1.0 / (1.0 + (-s).exp()));
    each.into_iter().map(gate).collect()
}

/// What a field computes of the states of a text that take a step, by the step's number.
type Mlp<'a> = &'a mut dyn FnMut(usize, &[Vec<f64>]) -> Vec<Vec<f64>>;

/// The states of a text after all steps, who takes each, a text of their own in it, and how well scores say so: the sum of
/// `−log sigmoid(s)` or `−log(1 − sigmoid(s))` over all choices of some tokens. `mlp` is the field f.
fn recurred(
    p: &Params,
    text: &[i32],
    choice: Choice,
    mlp: Mlp,
) -> (Vec<Vec<f64>>, Vec<Vec<usize>>, f64) {
    let mut x = embedded(p, text);
    let mut compared = 0.0;
    let routes: Vec<(usize, f64)> = x
        .iter()
        .map(|x| route(p, x))
        .map(|(n, g, _)| (n, g))
        .collect();
    let mut took: Vec<Vec<usize>> = Vec::new();
    for step in 0..MOST {
        let all: Vec<usize> = (0..x.len()).collect();
        let open = took.last().unwrap_or(&all);
        let turns: Vec<(usize, f64)> = match choice {
            Tokens => {
                let mine = open.iter().filter(|i| routes[**i].0 > step);
                mine.map(|i| (*i, routes[*i].1)).collect()
            }
            steps => {
                let scores: Vec<Vec<f64>> = x.iter().map(|x| scores(p, x)).collect();
                let turns = taking(steps, step, open, &scores);
                let (Choice::Steps(_, counts) | Choice::Above(_, counts)) = steps else {
                    unreachable!("steps choose")
                };
                for i in open.iter().filter(|_| counts[step] < SEQ) {
                    let sign = if turns.iter().any(|t| t.0 == *i) {
                        -1.0
                    } else {
                        1.0
                    };
                    compared += (sign * scores[*i][step]).exp().ln_1p();
                }
                turns
            }
        };
        let states: Vec<&[f64]> = turns.iter().map(|(i, _)| &x[*i][..]).collect();
        let met = (0..turns.len()).map(|n| {
            let met = attended(p, &states[..=n]).into_iter();
            states[n].iter().zip(met).map(|(x, k)| x + H * k).collect()
        });
        let met: Vec<Vec<f64>> = met.collect();
        let changes = mlp(step, &met);
        let next: Vec<Vec<f64>> = (0..turns.len())
            .map(|n| {
                let (own, gate) = (states[n], turns[n].1);
                let made = met[n].iter().zip(&changes[n]).map(|(u, k)| u + H * k);
                own.iter()
                    .zip(made)
                    .map(|(x, y)| x + gate * (y - x))
                    .collect()
            })
            .collect();
        let mine: Vec<usize> = turns.iter().map(|(i, _)| *i).collect();
        for (i, state) in mine.iter().zip(next) {
            x[*i] = state;
        }
        took.push(mine);
    }
    (x, took, compared)
}

/// The field `swiglu` of all states.
fn plain(p: &Params) -> impl FnMut(usize, &[Vec<f64>]) -> Vec<Vec<f64>> {
    |_, states| states.iter().map(|x| swiglu(p, "f", x)).collect()
}

/// Cross-entropy of tied logits, and how unevenly numbers of steps are used: M Σ_n f_n p_n.
fn loss_of(p: &Params, x: &[i32], targets: &[i32], choice: Choice, mlp: Mlp) -> [f64; 2] {
    let mut sum = 0.0;
    for (x, y) in x.chunks(SEQ).zip(targets.chunks(SEQ)) {
        for (state, y) in recurred(p, x, choice, mlp).0.iter().zip(y) {
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

const NATS: &str = "loss cross_entropy";

/// Results, terms of the loss and gradients in f64 are those of the plain loop, compiled and interpreted. Gives who took each step.
fn is_the_plain_loop(choice: Choice, loss: &str) -> Vec<Vec<usize>> {
    let train = format!("precision f64;  {loss}");
    let (built, m) = planned(choice, "lie(g, f)", REFERENCE, &train);
    let mut e = varied(&m);
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let p = of(&e, State::Params);
    let took = |p: &Params| {
        let texts = x
            .chunks(SEQ)
            .map(|text| recurred(p, text, choice, &mut plain(p)).1);
        texts.collect::<Vec<_>>()
    };
    let texts = took(&p);
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let out = e.run("forward", AT, &io[..1], &[]).unwrap();
    let logits: Vec<f64> = out.reals("logits").unwrap().iter().collect();
    let want: Vec<f64> = x
        .chunks(SEQ)
        .flat_map(|text| recurred(&p, text, choice, &mut plain(&p)).0)
        .flat_map(|x| times(&p["embed.token.weight"], &x))
        .collect();
    let near = |got: &[f64], what: &str| {
        assert_eq!(got.len(), want.len(), "{what}");
        for (g, w) in got.iter().zip(&want) {
            assert!((g - w).abs() < 1e-11, "{what}: {g} is not {w}");
        }
    };
    near(&logits, "compiled");
    let made: usize = texts.iter().flatten().map(Vec::len).sum();
    let mean = made as f64 / x.len() as f64;
    assert!((out.scalar("steps.made").unwrap() - mean).abs() < 1e-12);
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    near(
        &interp::run(&built.forward, &f, AT).unwrap()["logits"].data,
        "interpreted",
    );
    let out = e.run("grad", AT, &io, &[]).unwrap();
    let [nats, balance] = loss_of(&p, &x, &y, choice, &mut plain(&p));
    let balances = loss != NATS;
    let terms = [("loss.cross_entropy", nats), ("loss.load_balance", balance)];
    let terms = match balances {
        true => terms.to_vec(),
        false => vec![("loss", nats)],
    };
    for (name, term) in terms {
        let told = out.scalar(name).unwrap();
        assert!((told - term).abs() < 1e-12, "{name}: {told}, not {term}");
    }
    // Differences change nobody's steps.
    gradient_is_of(&e, |p| {
        assert_eq!(took(p), texts);
        let [nats, balance] = loss_of(p, &x, &y, choice, &mut plain(p));
        nats + if balances { balance / 4.0 } else { 0.0 }
    });
    texts.concat()
}

#[test]
fn tokens_recur_as_in_a_plain_loop() {
    let took = is_the_plain_loop(Tokens, LOSS);
    let steps = |took: &[Vec<usize>], i: usize| took.iter().filter(|t| t.contains(&i)).count();
    let texts = took.chunks(MOST);
    let made = texts.flat_map(|took| (0..SEQ).map(|i| steps(took, i)));
    let kinds: BTreeSet<usize> = made.collect();
    assert!(kinds.len() >= 3 && kinds.contains(&MOST), "{took:?}");
}

#[test]
fn steps_choose_tokens_as_in_a_plain_loop() {
    for choice in [STEPS, FEW] {
        let took = is_the_plain_loop(choice, NATS);
        let Choice::Steps(_, counts) = choice else {
            unreachable!("steps choose")
        };
        let [first, second] = [&took[..MOST], &took[MOST..]];
        let found = |took: &[Vec<usize>]| took.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!([found(first), found(second)], [counts; 2].map(Vec::from));
        // It is not their places that choose them.
        assert_ne!(first, second);
        assert_ne!(first[MOST - 1], (0..counts[MOST - 1]).collect::<Vec<_>>());
    }
}

/// While the model is trained steps take their share of a text. Then each token that took the step before takes the next by its own score, so
/// that a text read in pieces is the text read whole.
#[test]
fn tokens_choose_for_themselves_once_a_model_is_trained() {
    for (shares, counts) in [
        ("[1, 2/3, 2/3, 1/3]", [7, 5, 5, 3]),
        ("[6/7, 1/2, 2/5, 1/9]", [6, 4, 3, 1]),
    ] {
        let (trained, then) = (Choice::Steps(shares, counts), Choice::Above(shares, counts));
        let train = "precision f64;  loss cross_entropy + 1/4*choice";
        let (built, m) = planned(then, "lie(g, f)", REFERENCE, train);
        let mut e = varied(&m);
        let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
        let p = of(&e, State::Params);
        let run = |p: &Params, choice: Choice| -> Vec<_> {
            let texts = x.chunks(SEQ);
            texts
                .map(|t| recurred(p, t, choice, &mut plain(p)))
                .collect()
        };
        let found = run(&p, then);
        let took: Vec<usize> = found
            .iter()
            .flat_map(|t| t.1.iter().map(Vec::len))
            .collect();
        assert_ne!(took[..MOST], counts);
        assert!(took[MOST - 1] < took[0] && took[1] > 0, "{took:?}");
        let states = found.iter().flat_map(|t| &t.0);
        let want: Vec<f64> = states
            .flat_map(|x| times(&p["embed.token.weight"], x))
            .collect();
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let logits = |e: &mut Executor| -> Vec<f64> {
            let out = e.run("forward", AT, &io[..1], &[]).unwrap();
            out.reals("logits").unwrap().iter().collect()
        };
        let meant = interp::run(&built.forward, &f, AT).unwrap();
        for got in [logits(&mut e), meant["logits"].data.clone()] {
            assert_eq!(got.len(), want.len());
            for (g, w) in got.iter().zip(&want) {
                assert!((g - w).abs() < 1e-11, "{g} is not {w}");
            }
        }
        let [nats, _] = loss_of(&p, &x, &y, then, &mut plain(&p));
        let told = e.run("loss", AT, &io, &[]).unwrap().scalar("loss").unwrap();
        assert!((told - nats).abs() < 1e-12, "{told}, not {nats}");
        let terms = |p: &Params| {
            let [nats, _] = loss_of(p, &x, &y, trained, &mut plain(p));
            let all = run(p, trained);
            let took: Vec<Vec<Vec<usize>>> = all.iter().map(|t| t.1.clone()).collect();
            let compared: f64 = all.iter().map(|t| t.2).sum();
            (nats, compared / x.len() as f64, took)
        };
        let (nats, compared, took) = terms(&p);
        let out = e.run("grad", AT, &io, &[]).unwrap();
        for (name, term) in [("loss.cross_entropy", nats), ("loss.choice", compared)] {
            let told = out.scalar(name).unwrap();
            assert!((told - term).abs() < 1e-12, "{name}: {told}, not {term}");
        }
        gradient_is_of(&e, |p| {
            let (nats, compared, found) = terms(p);
            assert_eq!(found, took);
            nats + compared / 4.0
        });
        let loss = "loss cross_entropy + choice";
        let (_, m) = planned(then, "strang(f, g)", MIXED, loss);
        is_read_in_pieces(&mut varied(&m), MOST);
        let made = |memory: &str| {
            let (_, m) = planned(then, "strang(f, g)", MIXED, &format!("{loss};  {memory}"));
            varied(&m)
        };
        changes_no_bit(made, AT, false);
    }
}

/// Three experts, of which each token chooses two, and which take ⌈3/5 · 7 · 2/3⌉ = 3 tokens of a text.
const EXPERTS: &str = "moe(experts: 3, top_k: 2, hidden: 6, capacity: 3/5)";

/// What routers of experts do in each step: all choices, how many are dropped, how often each expert is chosen, and its sum of shares.
#[derive(Clone, Default, PartialEq, Debug)]
struct Chosen {
    choices: Vec<[usize; 2]>,
    dropped: usize,
    used: [f64; 3],
    shares: [f64; 3],
}

/// The mixture of the states of a text, those of the tokens that take a step: the others choose nothing.
fn mixed(p: &Params, states: &[Vec<f64>], told: &mut Chosen) -> Vec<Vec<f64>> {
    let mut room = [3; 3];
    let of_one = |x: &Vec<f64>| {
        let scores = times(&p["f.router.weight"], x);
        let mut order = [0, 1, 2];
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let [first, second, _] = order;
        let two = scores[first].exp() + scores[second].exp();
        let all: f64 = scores.iter().map(|s| s.exp()).sum();
        (0..3).for_each(|e| told.shares[e] += scores[e].exp() / all);
        told.choices.push([first, second]);
        let mut y = vec![0.0; WIDTH];
        for e in [first, second] {
            told.used[e] += 1.0;
            if room[e] == 0 {
                told.dropped += 1;
                continue;
            }
            room[e] -= 1;
            let each = y.iter_mut().zip(expert(p, "f", (e, 6), x));
            each.for_each(|(y, o)| *y += scores[e].exp() / two * o);
        }
        y
    };
    states.iter().map(of_one).collect()
}

/// Experts take tokens that take the step, and no others; uneven use is that of these.
#[test]
fn mixtures_meet_the_tokens_that_take_a_step() {
    let train = format!("precision f64;  {LOSS}");
    let (built, m) = planned_with(EXPERTS, Tokens, "lie(g, f)", REFERENCE, &train);
    let mut e = varied(&m);
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let p = of(&e, State::Params);
    let terms = |p: &Params| {
        let mut told = vec![Chosen::default(); MOST];
        let [nats, balance] = loss_of(p, &x, &y, Tokens, &mut |k, states| {
            mixed(p, states, &mut told[k])
        });
        let of_experts = told.iter().map(|t| {
            let n = t.choices.len().max(1) as f64;
            let products = t.used.iter().zip(t.shares);
            products.map(|(f, p)| f / (2.0 * n) * p / n).sum::<f64>() * 3.0
        });
        let balance = balance + of_experts.sum::<f64>();
        let choices: Vec<Vec<[usize; 2]>> = told.iter().map(|t| t.choices.clone()).collect();
        (nats, balance, choices, told)
    };
    let (nats, balance, choices, told) = terms(&p);
    let made: Vec<usize> = choices.iter().map(Vec::len).collect();
    assert!(
        made[0] == 14 && made[1] < 14 && made[MOST - 1] > 0,
        "{made:?}"
    );
    assert!(told[0].dropped > 0);
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let meant = interp::run(&built.grad, &f, AT).unwrap();
    let out = e.run("grad", AT, &io, &[]).unwrap();
    for (name, term) in [("loss.cross_entropy", nats), ("loss.load_balance", balance)] {
        for told in [out.scalar(name).unwrap(), meant[name].data[0]] {
            assert!((told - term).abs() < 1e-11, "{name}: {told}, not {term}");
        }
    }
    gradient_is_of(&e, |p| {
        let (nats, balance, found, _) = terms(p);
        assert_eq!(found, choices);
        nats + balance / 4.0
    });
}

/// Two choices in each step that a token takes, whether or not there are steps that none takes.
#[test]
fn routers_of_experts_tell_of_tokens_that_take_steps() {
    let train = format!("precision f64;  {NATS}");
    let (built, m) = planned_with(EXPERTS, Tokens, "lie(g, f)", REFERENCE, &train);
    for biased in [false, true] {
        let mut e = varied(&m);
        if biased {
            two_steps(&mut e, &m);
        }
        let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
        let mut told = vec![Chosen::default(); MOST];
        let p = of(&e, State::Params);
        let mut mixed = |k: usize, states: &[Vec<f64>]| mixed(&p, states, &mut told[k]);
        loss_of(&p, &x, &y, Tokens, &mut mixed);
        let made: Vec<usize> = told.iter().map(|t| t.choices.len()).collect();
        assert_eq!(made == [14, 14, 0, 0], biased, "{made:?}");
        let all = 2.0 * made.iter().sum::<usize>() as f64;
        let used = (0..3).map(|e| told.iter().map(|t| t.used[e]).sum::<f64>() / all);
        let dropped: usize = told.iter().map(|t| t.dropped).sum();
        let wanted: Vec<f64> = used.chain([dropped as f64 / all]).collect();
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let meant = interp::run(&built.grad, &f, AT).unwrap();
        let out = e.run("grad", AT, &io, &[]).unwrap();
        let names = ["moe.share.f.router", "moe.dropped.f.router"];
        let compiled = names.map(|n| out.reals(n).unwrap().iter().collect::<Vec<f64>>());
        let meant = names.map(|n| meant[n].data.clone());
        for told in [compiled.concat(), meant.concat()] {
            assert_eq!(told.len(), wanted.len());
            for (got, want) in told.iter().zip(&wanted) {
                assert!((got - want).abs() < 1e-12, "{got}, not {want}");
            }
        }
    }
}

/// The same bits in pieces, with little memory, and where no token takes some steps.
#[test]
fn mixtures_and_maps_of_heads_in_routed_steps_keep_their_bits() {
    let fields = &format!("{HEADED}\n{MIXED}");
    for mixture in [EXPERTS, "moe(experts: 3, top_k: 1, hidden: 6)", "headed"] {
        let (_, m) = planned_with(mixture, Tokens, "strang(f, g)", fields, "");
        is_read_in_pieces(&mut varied(&m), MOST);
        for biased in [false, true] {
            let made = |memory: &str| {
                let train = format!("{LOSS};  {memory}");
                let (_, m) = planned_with(mixture, Tokens, "strang(f, g)", fields, &train);
                let mut e = varied(&m);
                if biased {
                    two_steps(&mut e, &m);
                }
                e
            };
            changes_no_bit(made, AT, biased);
        }
    }
}

const MIXED: &str = "field g = rmsnorm |> attention(heads: 2, kv_heads: 1, causal, rope)";
/// A bound that no mask among the scores would survive.
const BOUNDED: &str =
    "field g = rmsnorm |> attend(linear, linear, linear, heads: 2, causal, softcap: 3/4, sinks)";
/// Attention in which distances count, those of all tokens.
const DISTANT: &str = "field g = rmsnorm |> attend(linear, linear, linear, heads: 2, causal, window: 3, bias: alibi, distances: 2, sinks)";

/// Maps of heads: a matrix for each, one for all, and one by its transpose.
const HEADED: &str = "layer headed(x: value) {\n  learn w[2, 3, width/2] = normal\n  learn v[8, width] = normal\n  \
     up = linear(x, w) |> gelu |> per_head(linear(4), heads: 2)\n  return linear(up, v, transposed)\n}";

/// Tokens that did not take a step are not attended to in it, whether they were read before or together.
#[test]
fn a_text_read_in_pieces_is_the_text_read_whole() {
    for fields in [MIXED, BOUNDED, DISTANT] {
        let (_, m) = planned(Tokens, "strang(f, g)", fields, "");
        is_read_in_pieces(&mut varied(&m), MOST);
    }
}

#[test]
fn neither_memory_nor_passing_over_changes_a_bit() {
    // A bias that makes all tokens take two steps: the others are passed over. Steps that choose their tokens are taken by some.
    for (choice, loss, biased) in [
        (Tokens, LOSS, false),
        (Tokens, LOSS, true),
        (FEW, NATS, false),
    ] {
        let made = |memory: &str| {
            let train = format!("{loss} + 1/4*kinetic;  {memory}");
            let (_, m) = planned(choice, "strang(f, g)", MIXED, &train);
            let mut e = varied(&m);
            if biased {
                two_steps(&mut e, &m);
            }
            e
        };
        changes_no_bit(made, AT, biased);
    }
}

/// Programs in f32 against the meaning of their graphs.
#[test]
fn programs_compute_recursions() {
    let (mlp, headed) = ("swiglu(hidden: 6)", &format!("{HEADED}\n{MIXED}"));
    for (choice, loss, mlp, fields) in [
        (Tokens, LOSS, mlp, MIXED),
        (STEPS, NATS, mlp, MIXED),
        (STEPS, NATS, mlp, BOUNDED),
        (Tokens, LOSS, mlp, DISTANT),
        (Tokens, LOSS, "headed", headed),
    ] {
        let (built, m) = planned_with(mlp, choice, "strang(f, g)", fields, loss);
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
}

/// The products of later steps that are of all rows.
fn of_all_rows(graphs: &[&Graph]) -> usize {
    let of_all = |g: &&Graph| {
        let later = g
            .nodes()
            .filter(|(_, n)| n.site.step.is_some_and(|k| k > 0));
        let of_all = |op: &OpKind| match op {
            OpKind::MatMul(_) => true,
            OpKind::GroupedMatMul(product) => !product.partial,
            _ => false,
        };
        later.filter(|(_, n)| of_all(&n.op)).count()
    };
    graphs.iter().map(of_all).sum()
}

/// Multiply-adds of the maps of attention for a token.
const OF_ATTENTION: u64 = (4 * WIDTH * WIDTH) as u64;
/// Of the three maps of `swiglu(hidden: 6)`, and of those of `headed`.
const OF_SWIGLU: u64 = (3 * 6 * WIDTH) as u64;
const OF_HEADED: u64 = (2 * 3 * WIDTH / 2 + 2 * 4 * 3 + 8 * WIDTH) as u64;
const MAPS: u64 = OF_ATTENTION + OF_SWIGLU;

/// After the first step, which all tokens take, no product is one of all rows; the work is that of the tokens that take a step.
#[test]
fn only_tokens_that_take_a_step_are_computed() {
    only_these_are_computed("swiglu(hidden: 6)", OF_SWIGLU);
    only_these_are_computed("headed", OF_HEADED);
}

fn only_these_are_computed(mlp: &str, of_mlp: u64) {
    let fields = format!("{HEADED}\n{REFERENCE}");
    let (built, m) = planned_with(mlp, Tokens, "lie(g, f)", &fields, LOSS);
    let graphs = [&built.forward, &built.grad, built.decode.as_ref().unwrap()];
    assert_eq!(of_all_rows(&graphs), 0, "{mlp}");
    let costs = cost(&built, &m.program, options()).unwrap();
    let even = costs.even.unwrap();
    let (forward, backward) = (even.forward, even.backward);
    // Of 4 steps the first is whole, then 3/4, 2/4 and 1/4 of all tokens.
    let step = SEQ as u64 * (OF_ATTENTION + of_mlp);
    let saved = step / 4 + step / 4 * 2 + step / 4 * 3;
    assert!(step.is_multiple_of(4) && saved > 0);
    let difference = costs.forward.contractions - forward.contractions;
    assert_eq!(difference, saved, "{mlp}");
    let difference = costs.backward.contractions - backward.contractions;
    assert_eq!(difference, 2 * saved, "{mlp}");
    // Of seven tokens 7, 5, 3 and 1 take a step; a pair is a product over the columns of both heads, and a sum.
    let pairs = |tokens: &[u64]| tokens.iter().map(|n| n * (n + 1) / 2).sum::<u64>();
    let each = 2 * WIDTH as u64;
    assert_eq!(costs.forward.attention, each * pairs(&[7; MOST]));
    assert_eq!(forward.attention, each * pairs(&[7, 5, 3, 1]));
}

/// Where steps choose their tokens, the work is known: no more and no less than that of the tokens they take.
#[test]
fn the_work_of_steps_that_choose_is_known() {
    for choice in [STEPS, FEW] {
        let Choice::Steps(_, counts) = choice else {
            unreachable!("steps choose")
        };
        let (built, m) = planned(choice, "lie(g, f)", REFERENCE, NATS);
        assert_eq!(of_all_rows(&[&built.forward, &built.grad]), 0);
        assert!(built.decode.is_none() && !built.summary.evolves[0].at_most);
        let costs = cost(&built, &m.program, options()).unwrap();
        assert_eq!(costs.even, None);
        // The router is asked about all tokens, then about those that took the step before.
        let asked = [SEQ, counts[0], counts[1], counts[2]];
        let scores: usize = asked.iter().map(|n| n * WIDTH * MOST).sum();
        let taken: u64 = counts.iter().map(|n| *n as u64 * MAPS).sum();
        let logits = (SEQ * WIDTH * 256) as u64;
        let forward = taken + scores as u64 + logits;
        assert_eq!(costs.forward.contractions, forward);
        assert_eq!(costs.backward.contractions, 2 * forward);
        let pairs: usize = counts.iter().map(|n| n * (n + 1) / 2).sum();
        assert_eq!(costs.forward.attention, (2 * WIDTH * pairs) as u64);
    }
}

/// Experts with room for four of a text's tokens take four where only half of the eight take the step, and not half of four.
#[test]
fn a_capacity_bounds_the_tokens_that_take_a_step() {
    let counted = |capacity: &str| {
        let text = format!(
            "field f = moe(experts: 2, top_k: 1, hidden: 6{capacity})\nfield route = linear(2)\n\
             model m {{\n  input tokens(vocab: 256, context: 8)\n  embed learned(width: {WIDTH})\n  \
             evolve euler(f) for routed(route, max: 2, choice: expert, capacity: [1, 1/2]) steps {{ weights shared }}\n  \
             output logits(tied)\n}}\n\
             train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  batch 2;  steps 10 }}\n"
        );
        let (built, m) = planned_text(&text);
        let costs = cost(&built, &m.program, options()).unwrap();
        [costs.forward, costs.prefill, costs.backward].map(|o| o.contractions)
    };
    // Of steps that eight and four tokens take, the first is bounded.
    let expert = (3 * WIDTH * 6) as u64;
    let [whole, bounded] = ["", ", capacity: 1/2"].map(counted);
    assert_eq!(whole[0] - bounded[0], (8 - 4) * expert);
    assert_eq!(whole[1] - bounded[1], (8 - 4) * expert);
    assert_eq!(whole[2] - bounded[2], 2 * (8 - 4) * expert);
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
