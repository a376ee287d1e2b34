//! Steps whose number every token finds for itself: against plain loops in f64 that decide alike, read in pieces, and with nothing
//! passed over.

use crate::numbers::{executor, tokens};
use crate::plain::{
    Params, changes_no_bit, gradient_is_of, is_read_in_pieces, nats, of, set, swiglu, times, waves,
};
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::Bindings;
use odec_program::manifest::Manifest;
use odec_runtime::{Executor, State, Value};
use std::collections::BTreeSet;

const AT: Bindings = Bindings::new(2, 7);
const WIDTH: usize = 4;
const MOST: usize = 5;
const THRESHOLD: f64 = 0.75;
const H: f64 = 0.5;

fn planned(flow: &str, threshold: &str, train: &str) -> Manifest {
    let text = format!(
        "field f = swiglu(hidden: 6)\nfield g = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field halt = linear(1, bias) |> sigmoid\n\
         model m {{\n  input tokens(vocab: 256, context: 7)\n  embed learned(width: {WIDTH})\n  \
         evolve {flow} for halting(halt, max: {MOST}, threshold: {threshold}) steps {{ h = 1/2;  weights shared }}\n  \
         output logits(tied)\n  init normal(std: 0.8)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    let built = built(&text);
    build_manifest(&built, &text, options()).unwrap().manifest
}

/// With chances to halt that differ between tokens, none of whose sums is near the threshold.
fn varied(m: &Manifest) -> Executor {
    let mut e = executor(m);
    for p in &m.params {
        let waves = |size, rate| waves(p, size, rate);
        let values = match p.path.as_str() {
            "embed.token.weight" => waves(0.8, 0.9),
            "f.gate.weight" => waves(0.9, 0.37),
            "f.up.weight" => waves(0.9, 0.53),
            "f.down.weight" => waves(0.9, 0.71),
            "halt.linear.weight" => vec![1.5, -2.0, 1.0, 2.5],
            "halt.linear.bias" => vec![-0.5],
            _ => continue,
        };
        set(&mut e, p, values);
    }
    e
}

/// Graves (2016), 2.1, for a token of its own: the mixed state, N, R and ½Σ‖x' − x‖²/h per number.
fn ponder(p: &Params, token: i32) -> (Vec<f64>, usize, f64, f64) {
    let mut x = p["embed.token.weight"][token as usize * WIDTH..][..WIDTH].to_vec();
    let (mut mixed, mut sum, mut energy) = (vec![0.0; WIDTH], 0.0, 0.0);
    for n in 1.. {
        let rates = swiglu(p, "f", &x);
        for (x, k) in x.iter_mut().zip(rates) {
            *x += H * k;
            energy += H * k * k / (2.0 * WIDTH as f64);
        }
        let chance = times(&p["halt.linear.weight"], &x)[0] + p["halt.linear.bias"][0];
        let chance = 1.0 / (1.0 + (-chance).exp());
        let last = n == MOST || sum + chance >= THRESHOLD;
        let weight = if last { 1.0 - sum } else { chance };
        mixed.iter_mut().zip(&x).for_each(|(m, x)| *m += weight * x);
        if last {
            return (mixed, n, weight, energy);
        }
        sum += chance;
    }
    unreachable!("MOST steps are enough")
}

/// Cross-entropy of tied logits, and what tokens pondered and moved.
fn loss_of(p: &Params, x: &[i32], targets: &[i32]) -> [f64; 3] {
    let mut found = [0.0; 3];
    for (x, y) in x.iter().zip(targets) {
        let (state, n, rest, energy) = ponder(p, *x);
        let logits = times(&p["embed.token.weight"], &state);
        let nats = nats(&logits, *y);
        for (sum, term) in found.iter_mut().zip([nats, n as f64 + rest, energy]) {
            *sum += term / targets.len() as f64;
        }
    }
    found
}

fn total([nats, pondered, energy]: [f64; 3]) -> f64 {
    nats + pondered / 10.0 + energy / 4.0
}

#[test]
fn tokens_ponder_as_in_a_plain_loop() {
    let loss = "precision f64;  loss cross_entropy + 1/10*ponder + 1/4*kinetic";
    let mut e = varied(&planned("euler(f)", "3/4", loss));
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let p = of(&e, State::Params);
    let steps = |p: &Params| x.iter().map(|t| ponder(p, *t).1).collect::<Vec<_>>();
    let made = steps(&p);
    let kinds: BTreeSet<usize> = made.iter().copied().collect();
    assert!(kinds.len() >= 3 && kinds.contains(&MOST), "{made:?}");

    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let out = e.run("forward", AT, &io[..1], &[]).unwrap();
    let logits: Vec<f64> = out.reals("logits").unwrap().iter().collect();
    let states = x.iter().map(|t| ponder(&p, *t).0);
    let want: Vec<f64> = states
        .flat_map(|x| times(&p["embed.token.weight"], &x))
        .collect();
    assert_eq!(logits.len(), want.len());
    for (g, w) in logits.iter().zip(&want) {
        assert!((g - w).abs() < 1e-12, "{g} is not {w}");
    }
    let mean = made.iter().sum::<usize>() as f64 / made.len() as f64;
    assert!((out.scalar("steps.made").unwrap() - mean).abs() < 1e-12);

    let out = e.run("grad", AT, &io, &[]).unwrap();
    let terms = loss_of(&p, &x, &y);
    let told = ["cross_entropy", "ponder", "kinetic"].map(|t| out.scalar(&format!("loss.{t}")));
    for (told, term) in told.into_iter().zip(terms) {
        assert!((told.unwrap() - term).abs() < 1e-12, "{term}");
    }
    assert!((out.scalar("loss").unwrap() - total(terms)).abs() < 1e-12);

    // Differences change no number of steps.
    gradient_is_of(&e, |p| {
        assert_eq!(steps(p), made);
        total(loss_of(p, &x, &y))
    });
}

/// Halted tokens are attended to in later steps, by tokens that were read with them and by tokens that were not.
#[test]
fn a_text_read_in_pieces_is_the_text_read_whole() {
    is_read_in_pieces(&mut varied(&planned("strang(f, g)", "3/4", "")), MOST);
}

#[test]
fn neither_memory_nor_passing_over_changes_a_bit() {
    let loss = "loss cross_entropy + 1/10*ponder + 1/4*kinetic";
    // Where all halt early, the other steps are passed over.
    for (threshold, passed) in [("3/4", false), ("1e-3", true)] {
        let made = |memory: &str| {
            let train = format!("{loss};  {memory}");
            varied(&planned("strang(f, g)", threshold, &train))
        };
        changes_no_bit(made, AT, passed);
    }
}
