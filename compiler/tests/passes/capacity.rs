//! Mixtures whose experts have a capacity: against plain loops in f64 over texts in which tokens are dropped, read in pieces, counted, and not computed.

use crate::numbers::{close, executor, feeds, tokens};
use crate::plain::{
    Params, changes_no_bit, expert, gradient_is_of, nats, of, pieces_are_the_whole, planned_text,
    set, times, varied,
};
use crate::source::built;
use crate::systems::options;
use odec_compiler::cost::{Cost, cost, text};
use odec_compiler::model::{Built, Capacity};
use odec_compiler::passes::{Policy, build_manifest, run_graph_passes};
use odec_graph::{Graph, OpKind, interp};
use odec_program::manifest::{Manifest, Memory, Precision};
use odec_program::{Bindings, KernelSpec};
use odec_runtime::train::metrics;
use odec_runtime::train::run::Run;
use odec_runtime::{Artifact, DeviceChoice, Settings, Show, State, Value};

const SEQ: usize = 7;
const AT: Bindings = Bindings::new(2, SEQ as u64);
const WIDTH: usize = 4;
const HIDDEN: usize = 5;
const STEPS: usize = 2;
const H: f64 = 0.5;

/// A mixture as it is written, and what the loop knows of it.
#[derive(Clone, Copy)]
struct Mixture {
    text: &'static str,
    experts: usize,
    top_k: usize,
    /// Tokens of a text.
    room: usize,
    /// Whether weights are shares in all scores.
    of_all: bool,
}

/// Fourteen choices of a text, and room for twelve: ⌈3/4 · 7 · 2/3⌉ = 4 of each expert.
const TWO: Mixture = Mixture {
    text: "moe(experts: 3, top_k: 2, hidden: 5, capacity: 3/4)",
    experts: 3,
    top_k: 2,
    room: 4,
    of_all: false,
};
/// As in Switch Transformers, with room for six of seven: ⌈3/4 · 7/3⌉ = 2.
const SWITCH: Mixture = Mixture {
    text: "moe(experts: 3, top_k: 1, hidden: 5, capacity: 3/4, weights: all, activation: gelu)",
    experts: 3,
    top_k: 1,
    room: 2,
    of_all: true,
};

fn planned(moe: &str, flow: &str, train: &str) -> (Built, Manifest) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\nfield f = {moe}\n\
         model m {{\n  input tokens(vocab: 256, context: {SEQ})\n  embed learned(width: {WIDTH})\n  \
         evolve {flow} for {STEPS} steps {{ h = 1/2;  weights shared }}\n  output logits(tied)\n  init normal(std: 0.8)\n}}\n\
         train {{ data text(\"corpus.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    planned_text(&text)
}

/// The experts that a token chooses, in order, and all scores.
fn chosen(p: &Params, m: Mixture, x: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let scores = times(&p["f.router.weight"], x);
    let mut order: Vec<usize> = (0..m.experts).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(m.top_k);
    (order, scores)
}

/// What a run of the model finds.
#[derive(Default)]
struct Found {
    states: Vec<Vec<f64>>,
    /// Of each evaluation: all choices, how many were dropped, and `E Σ f p`.
    choices: Vec<Vec<Vec<usize>>>,
    dropped: Vec<usize>,
    balances: Vec<f64>,
}

/// The mixture of all texts: an expert computes for the first tokens of a text that choose it, as many as it has room for.
fn evaluated(p: &Params, m: Mixture, states: &[Vec<f64>], found: &mut Found) -> Vec<Vec<f64>> {
    let mut results = Vec::new();
    let (mut choices, mut dropped) = (Vec::new(), 0);
    let (mut used, mut shares) = (vec![0.0; m.experts], vec![0.0; m.experts]);
    for text in states.chunks(SEQ) {
        let mut room = vec![m.room; m.experts];
        for x in text {
            let (own, scores) = chosen(p, m, x);
            let share =
                |of: &[f64], e: usize| scores[e].exp() / of.iter().map(|s| s.exp()).sum::<f64>();
            let of: Vec<f64> = match m.of_all {
                true => scores.clone(),
                false => own.iter().map(|e| scores[*e]).collect(),
            };
            let mut y = vec![0.0; WIDTH];
            for e in &own {
                used[*e] += 1.0;
                if room[*e] == 0 {
                    dropped += 1;
                    continue;
                }
                room[*e] -= 1;
                let weight = share(&of, *e);
                let each = y.iter_mut().zip(expert(p, "f", (*e, HIDDEN), x));
                each.for_each(|(y, o)| *y += weight * o);
            }
            let all = shares.iter_mut().enumerate();
            all.for_each(|(e, sum)| *sum += share(&scores, e));
            choices.push(own);
            results.push(y);
        }
    }
    let n = states.len() as f64;
    let products = used
        .iter()
        .zip(shares)
        .map(|(f, p)| f / (n * m.top_k as f64) * p / n);
    found
        .balances
        .push(m.experts as f64 * products.sum::<f64>());
    found.choices.push(choices);
    found.dropped.push(dropped);
    results
}

fn evolved(p: &Params, m: Mixture, tokens: &[i32]) -> Found {
    let table = &p["embed.token.weight"];
    let row = |t: &i32| table[*t as usize * WIDTH..][..WIDTH].to_vec();
    let mut states: Vec<Vec<f64>> = tokens.iter().map(row).collect();
    let mut found = Found::default();
    for _ in 0..STEPS {
        let results = evaluated(p, m, &states, &mut found);
        for (x, y) in states.iter_mut().zip(results) {
            x.iter_mut().zip(y).for_each(|(x, y)| *x += H * y);
        }
    }
    found.states = states;
    found
}

fn loss_of(p: &Params, found: &Found, targets: &[i32]) -> [f64; 2] {
    let each = found.states.iter().zip(targets);
    let nats = each.map(|(x, y)| nats(&times(&p["embed.token.weight"], x), *y));
    [
        nats.sum::<f64>() / targets.len() as f64,
        found.balances.iter().sum(),
    ]
}

const LOSS: &str = "loss cross_entropy + 1/4*load_balance";
const DROPPED: &str = "moe.dropped.f.router";

#[test]
fn experts_drop_what_a_plain_loop_drops() {
    for m in [TWO, SWITCH] {
        let (built, manifest) = planned(m.text, "euler(f)", &format!("precision f64;  {LOSS}"));
        let mut e = varied(&manifest);
        let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
        let p = of(&e, State::Params);
        let want = evolved(&p, m, &x);
        assert!(want.dropped.iter().all(|n| *n > 0), "{:?}", want.dropped);

        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let out = e.run("forward", AT, &io[..1], &[]).unwrap();
        let compiled: Vec<f64> = out.reals("logits").unwrap().iter().collect();
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let interpreted = &interp::run(&built.forward, &f, AT).unwrap()["logits"].data;
        let states = want.states.iter();
        let logits: Vec<f64> = states
            .flat_map(|x| times(&p["embed.token.weight"], x))
            .collect();
        for (what, got) in [("compiled", &compiled), ("interpreted", interpreted)] {
            assert_eq!(got.len(), logits.len());
            for (got, want) in got.iter().zip(&logits) {
                assert!((got - want).abs() < 1e-11, "{what}: {got}, not {want}");
            }
        }

        let out = e.run("grad", AT, &io, &[]).unwrap();
        let terms = loss_of(&p, &want, &y);
        for (name, term) in ["loss.cross_entropy", "loss.load_balance"]
            .into_iter()
            .zip(terms)
        {
            let told = out.scalar(name).unwrap();
            assert!((told - term).abs() < 1e-12, "{name}: {told}, not {term}");
        }
        let all = (x.len() * m.top_k * STEPS) as f64;
        let share = want.dropped.iter().sum::<usize>() as f64 / all;
        let told = out.scalar(DROPPED).unwrap();
        assert!(
            (told - share).abs() < 1e-12,
            "{told} are dropped, not {share}"
        );
        // Differences change no choice.
        gradient_is_of(&e, |p| {
            let found = evolved(p, m, &x);
            assert_eq!(found.choices, want.choices);
            let [nats, balance] = loss_of(p, &found, &y);
            nats + balance / 4.0
        });
    }
}

/// What is counted is carried on: a text that is read token by token drops what it drops read whole.
#[test]
fn a_text_read_in_pieces_drops_the_same() {
    for (m, precision) in [
        (TWO, ""),
        (SWITCH, ""),
        (TWO, "precision bf16"),
        (SWITCH, "precision f64"),
    ] {
        let (_, manifest) = planned(m.text, "strang(f, att)", precision);
        let mut e = varied(&manifest);
        let at = Bindings::new(1, SEQ as u64);
        let (x, y) = (tokens(at, 256, 1), tokens(at, 256, 5));
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let out = e.run("grad", at, &io, &[]).unwrap();
        assert!(out.scalar(DROPPED).unwrap() > 0.0);
        pieces_are_the_whole(&mut e);
    }
}

#[test]
fn memory_changes_no_bit() {
    for m in [TWO, SWITCH] {
        let made = |memory: &str| {
            varied(&planned(m.text, "strang(f, att)", &format!("{LOSS};  {memory}")).1)
        };
        changes_no_bit(made, AT, false);
    }
}

/// Programs in f32 against the meaning of their graphs.
#[test]
fn programs_compute_capacities() {
    let (built, manifest) = planned(TWO.text, "strang(f, att)", LOSS);
    let mut e = varied(&manifest);
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let want = interp::run(&built.grad, &f, AT).unwrap();
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let out = e.run("grad", AT, &io, &[]).unwrap();
    for name in ["loss", DROPPED] {
        close(
            name,
            &[out.scalar(name).unwrap() as f32],
            &want[name].data,
            1e-5,
        );
    }
    for p in manifest.trained() {
        let name = format!("grad.{}", p.path);
        close(&name, e.of(State::Grads, p).f32(), &want[&name].data, 1e-3);
    }
}

/// All tokens choose the first of two experts, which takes 257 of 600: with 8 bits, 257 would be counted as 256.
#[test]
fn counts_are_whole_numbers_in_bf16() {
    let text = "field f = moe(experts: 2, top_k: 1, hidden: 4, capacity: 257/300)\n\
        model m {\n  input tokens(vocab: 256, context: 600)\n  embed learned(width: 4)\n  evolve euler(f) for 1 step\n  output logits\n}\n\
        train { data text(\"corpus.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  batch 1;  steps 1;  precision bf16 }\n";
    let built = built(text);
    let manifest = build_manifest(&built, text, options()).unwrap().manifest;
    let mut e = executor(&manifest);
    let router = manifest
        .params
        .iter()
        .find(|p| p.path.ends_with("router.weight"));
    set(&mut e, router.unwrap(), vec![0.0; 8]);
    let at = Bindings::new(1, 600);
    let (x, y) = (tokens(at, 256, 1), tokens(at, 256, 5));
    let rounded = Policy {
        precision: Precision::Bf16,
        memory: Memory::Store,
        weights: None,
        copied: false,
    };
    let graph = run_graph_passes(&built.grad, rounded).unwrap();
    let f = feeds(&e, at, &[("tokens", &x), ("targets", &y)]);
    let name = "moe.dropped.step.0.f.router";
    let meant = interp::run(&graph, &f, at).unwrap()[name].data[0];
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let told = e.run("grad", at, &io, &[]).unwrap().scalar(name).unwrap();
    for share in [meant, told] {
        assert_eq!((share * 600.0).round(), 343.0, "{share}");
    }
}

fn costs(moe: &str) -> (Built, Manifest, Cost) {
    let (built, manifest) = planned(moe, "euler(f)", "");
    let costs = cost(&built, &manifest.program, options()).unwrap();
    (built, manifest, costs)
}

/// Products leave out what is dropped, forward and backward, and no more are counted than experts have room for.
#[test]
fn dropped_choices_are_not_computed() {
    let (built, manifest, half) = costs("moe(experts: 3, top_k: 2, hidden: 5, capacity: 1/2)");
    let partial = |g: &Graph| {
        let each = g.nodes().filter_map(|(_, n)| match &n.op {
            OpKind::GroupedMatMul(m) => Some((m.partial, m.most)),
            OpKind::GroupedOuter(m) => Some((m.partial, m.most)),
            _ => None,
        });
        each.collect::<Vec<_>>()
    };
    for (graph, least) in [
        (&built.forward, 6),
        (&built.grad, 18),
        (built.decode.as_ref().unwrap(), 6),
    ] {
        let found = partial(graph);
        assert!(
            found.len() >= least && found.iter().all(|m| *m == (true, Some(9))),
            "{found:?}"
        );
    }
    let kernels = manifest.program.kernels.iter();
    let products = kernels.filter_map(|k| match &k.spec {
        KernelSpec::Grouped(g) | KernelSpec::GroupedOuter(g) => Some(g.of.partial),
        _ => None,
    });
    let products: Vec<bool> = products.collect();
    assert!(products.len() >= 3 && products.iter().all(|p| *p));

    // ⌈7/3⌉ = 3 of each expert, not 14 choices; with a capacity of 1 the room is at least that of all choices.
    let whole = costs("moe(experts: 3, top_k: 2, hidden: 5)").2;
    let ample = costs("moe(experts: 3, top_k: 2, hidden: 5, capacity: 1)").2;
    let expert = (3 * WIDTH * HIDDEN) as u64;
    let saved = STEPS as u64 * (14 - 9) * expert;
    assert_eq!(
        whole.forward.contractions - half.forward.contractions,
        saved
    );
    assert_eq!(
        whole.backward.contractions - half.backward.contractions,
        2 * saved
    );
    assert_eq!(
        (ample.forward, ample.backward),
        (whole.forward, whole.backward)
    );
    // One more token meets both of its experts.
    assert_eq!(half.decode.unwrap().last, whole.decode.unwrap().last);
    assert_eq!(half.decode.unwrap().carried_bytes, STEPS as u64 * 3 * 4);
}

/// The report says how many tokens experts take, and that operations are the most; an expert that takes all tokens drops none.
#[test]
fn a_capacity_is_reported() {
    let shown = |moe: &str| {
        let mut page = odec_text::page::Page::new(odec_text::page::Screen::PLAIN);
        let costs = costs(moe).2;
        text::write(&mut page, &costs);
        (page.finish(), costs.capacities)
    };
    let (report, capacities) = shown(SWITCH.text);
    let router = "f.router".to_string();
    let (tokens, experts, top_k) = (2, 3, 1);
    assert_eq!(
        capacities,
        [Capacity {
            router,
            tokens,
            experts,
            top_k
        }]
    );
    assert!(
        report.contains("f.router: at most 2 of 7 tokens of a text for each of 3 experts"),
        "{report}"
    );
    assert!(report.contains("forward, prefill     at most "), "{report}");
    let (report, _) = shown("moe(experts: 2, top_k: 1, hidden: 5, capacity: 2)");
    assert!(
        report.contains("f.router: all 7 tokens of a text for each of 2 experts"),
        "{report}"
    );
    assert!(!report.contains("at most"), "{report}");
    let (report, capacities) = shown("moe(experts: 2, top_k: 1, hidden: 5)");
    assert!(
        capacities.is_empty() && !report.contains("capacity"),
        "{report}"
    );
    // It is the model without a capacity.
    let graphs = ["", ", capacity: 2"].map(|capacity| {
        let moe = format!("moe(experts: 2, top_k: 1, hidden: 5{capacity})");
        let (built, _) = planned(&moe, "euler(f)", "");
        odec_graph::print::text(&built.grad)
    });
    assert!(graphs[0] == graphs[1]);
}

/// Mixtures are named below the label of their evolve, or the output, wherever they stand.
#[test]
fn capacities_are_those_of_all_mixtures() {
    let text = "field f = moe(experts: 2, top_k: 1, hidden: 5, capacity: 1/2)\n\
                field route = moe(experts: 4, top_k: 2, hidden: 5, capacity: 1/2) |> linear(2)\n\
                model m {\n  input patches(image: 4, patch: 1)\n  embed linear(width: 4)\n  \
                evolve a: euler(f) for 2 steps { weights shared }\n  \
                evolve b: euler(f) for routed(route, max: 2, choice: token) steps { weights shared }\n  \
                output moe(experts: 8, top_k: 1, hidden: 5, capacity: 1) |> classes(3)\n}\n";
    let built = built(text);
    let manifest = build_manifest(&built, text, options()).unwrap().manifest;
    let costs = cost(&built, &manifest.program, options()).unwrap();
    let found = costs.capacities.iter();
    let found: Vec<_> = found
        .map(|c| (c.router.as_str(), c.tokens, c.experts))
        .collect();
    let wanted = [
        ("a.f.router", 4, 2),
        ("b.f.router", 4, 2),
        ("b.route.router", 4, 4),
        ("output.router", 2, 8),
    ];
    assert_eq!(found, wanted);
    let mut page = odec_text::page::Page::new(odec_text::page::Screen::PLAIN);
    text::write(&mut page, &costs);
    let page = page.finish();
    let said = "a.f.router: at most 4 of 16 patches of an image for each of 2 experts";
    assert!(page.contains(said), "{page}");
}

/// A training step tells what share of its choices was dropped, in the mean over micro-batches.
#[test]
fn dropped_choices_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(20);
    std::fs::write(dir.path().join("corpus.txt"), text).unwrap();
    let logged = |moe: &str, train: &str| {
        let (_, manifest) = planned(moe, "euler(f)", train);
        let artifact = Artifact::in_memory(manifest).unwrap();
        let out = tempfile::tempdir().unwrap();
        let s = Settings {
            data: vec![dir.path().join("corpus.txt")],
            steps: Some(2),
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            evaluations: 0,
            ..Settings::default()
        };
        Run::start(&artifact, out.path(), &s)
            .unwrap()
            .finish(&s)
            .unwrap();
        let file = std::fs::read_to_string(out.path().join("metrics.jsonl")).unwrap();
        let steps = metrics::parse(&file).into_iter().filter_map(|r| match r {
            metrics::Record::Step(s) => Some(s.dropped),
            _ => None,
        });
        steps.collect::<Vec<_>>()
    };
    // Fourteen choices, and room for three: an expert takes one token of a text.
    let one = "moe(experts: 3, top_k: 2, hidden: 5, capacity: 1/100)";
    for train in ["", "accumulate 2"] {
        let steps = logged(one, train);
        assert_eq!(steps.len(), 2);
        for dropped in steps {
            let share = dropped["f.router"];
            // At least eleven of fourteen, and two where a text uses two experts alone.
            assert!(
                (11.0 / 14.0 - 1e-4..=12.0 / 14.0 + 1e-4).contains(&share),
                "{share}"
            );
        }
    }
    let none = logged("moe(experts: 3, top_k: 2, hidden: 5)", "");
    assert!(none.iter().all(|dropped| dropped.is_empty()));
}
