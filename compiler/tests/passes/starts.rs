//! Random starts: a state of normal numbers, by the run's key while a model is trained, else by position.

use crate::numbers::{executor, feeds, tokens};
use crate::plain::{self, drawn_loss};
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_graph::interp::{self, Tensor};
use odec_program::{Bindings, noise};
use odec_runtime::State;

const AT: Bindings = Bindings::new(2, 3);
const WIDTH: usize = 4;

/// With F = 0 the logits of a token are those of its start, 1/2 n Eᵀ.
#[test]
fn starts_are_the_numbers_of_their_place() {
    let text = "scheme drawn(F) { start { x = normal(std: 1/2) }  step x { return x + h*F(x) } }
        field slope = linear
        model small { input tokens(vocab: 256, context: 8);  embed learned(width: 4)
          evolve drawn(slope) for 2 steps;  output logits(tied);  init normal(std: 0.5) }
        train { data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  batch 2;  steps 4
          memory revolve(slots: 1) }";
    let built = built(text);
    let manifest = build_manifest(&built, text, options()).unwrap().manifest;
    let mut e = executor(&manifest);
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    for p in &manifest.params {
        if p.path.contains("slope") {
            let from = p.offset as usize / 4;
            e.state_mut(State::Params).f32()[from..from + WIDTH * WIDTH].fill(0.0);
        }
    }
    let mut f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let table = f["embed.token.weight"].data.clone();
    let logits = |key: u32, stream: u32, row: u32| -> Vec<f64> {
        let n: Vec<f64> = (0..WIDTH as u32)
            .map(|c| noise::normal([key, stream, row, c]))
            .collect();
        let rows = table.chunks(WIDTH);
        rows.map(|e| e.iter().zip(&n).map(|(e, n)| e * n / 2.0).sum())
            .collect()
    };
    // Evaluation: by position, alike in all texts.
    let got = interp::run(&built.forward, &f, AT).unwrap()["logits"]
        .data
        .clone();
    for (row, got) in got.chunks(256).enumerate() {
        for (a, b) in got.iter().zip(logits(0, 0, row as u32 % 3)) {
            assert!((a - b).abs() < 1e-12, "{row}: {a} {b}");
        }
    }
    // Training: by the key and the row.
    let mut found = Vec::new();
    for key in [5, 6] {
        f.insert(
            noise::KEY.into(),
            Tensor::new(vec![1], vec![f64::from(key)]),
        );
        let loss = interp::run(&built.grad, &f, AT).unwrap()["loss"].data[0];
        let nats = |(row, y): (usize, &i32)| plain::nats(&logits(key, 2, row as u32), *y);
        let want = y.iter().enumerate().map(nats).sum::<f64>() / 6.0;
        assert!((loss - want).abs() < 1e-12, "{loss} {want}");
        let compiled = drawn_loss(&mut e, AT, [&x, &y], key);
        assert!((compiled - want).abs() < 1e-5, "{compiled} {want}");
        found.push(loss);
    }
    assert!(found[0] != found[1]);
}
