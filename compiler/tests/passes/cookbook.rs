//! Every program of docs/cookbook.md is compiled and run on the reference device: it reads on where it stopped, its gradient is
//! finite, and its loss falls.

use crate::library::{CONTEXT, reads_on, tokens};
use crate::numbers::executor;
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::manifest::{Manifest, Param, named};
use odec_program::{Bindings, EntryId};
use odec_runtime::data::dataset::Batch;
use odec_runtime::train::gradient::gradient;
use odec_runtime::{Executor, State};
use std::ops::Range;

/// Most lines of a program, without empty ones.
const LINES: usize = 15;

const TRAIN: &str = "
train {
  data      text(\"corpus.txt\", tokenizer: bytes)
  optimizer adamw(lr: 1e-2, betas: (0.9, 0.95))
  batch 1;  steps 5
}
";

/// Titles and programs of the page, and the loss that a recipe says it is trained with.
fn recipes() -> Vec<(String, String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cookbook.md");
    let page = std::fs::read_to_string(page).expect("docs/cookbook.md");
    let parts = page.split("\n### ").skip(1).map(|part| {
        let title = part.lines().next().expect("a title").to_string();
        let (text, program) = part.split_once("```ode\n").expect("a program");
        let program = program.split("```").next().expect("an end");
        let loss = text.split('`').find(|code| code.starts_with("loss "));
        (
            title,
            program.to_string(),
            loss.unwrap_or_default().to_string(),
        )
    });
    parts.collect()
}

/// Where a parameter's numbers are.
fn place(p: &Param) -> Range<usize> {
    let start = p.offset as usize / 4;
    start..start + p.shape.iter().product::<u64>() as usize
}

/// Five steps on one text lower its loss, and every gradient is finite, whatever was in its place.
fn learns(name: &str, m: &Manifest, e: &mut Executor) {
    let x = tokens(m.model.vocab);
    let batch = [Batch {
        key: 7,
        ..Batch::of_tokens(1, CONTEXT as u64, x[..CONTEXT].to_vec(), x[1..].to_vec())
    }];
    let mut losses = Vec::new();
    for t in 1..=5 {
        e.state_mut(State::Grads).f32().fill(f32::NAN);
        losses.push(gradient(e, &batch, &[]).expect(name).loss);
        for p in &m.params {
            let gradients = &e.state(State::Grads).f32()[place(p)];
            let finite = gradients.iter().all(|g| g.is_finite());
            assert!(finite, "{name}: the gradient of {} in step {t}", p.path);
        }
        let scalars = [
            (named::LR, 1e-2),
            (named::BIAS1, 1.0 / (1.0 - 0.9f64.powi(t))),
            (named::BIAS2, 1.0 / (1.0 - 0.95f64.powi(t))),
        ];
        let at = Bindings::new(1, CONTEXT as u64);
        e.run("update", at, &[], &scalars).expect(name);
    }
    assert!(losses.iter().all(|l| l.is_finite()), "{name}: {losses:?}");
    assert!(losses[4] < losses[0], "{name}: {losses:?}");
}

/// Part `part` of `PARTS`, which run side by side.
fn recipes_read_on_and_learn(part: usize) {
    const PARTS: usize = 4;
    let all = recipes();
    assert!(all.len() >= 68, "{} recipes", all.len());
    for (title, program, loss) in all.into_iter().skip(part).step_by(PARTS) {
        let lines = program.lines().filter(|l| !l.is_empty()).count();
        assert!(lines <= LINES, "{title}: {lines} lines");
        let train = TRAIN.replace('}', &format!("  {loss}\n}}"));
        let small = program.replace("context: 64", &format!("context: {CONTEXT}")) + &train;
        let manifest = build_manifest(&built(&small), &small, options());
        let manifest = manifest.expect(&title).manifest;
        assert!(
            manifest.program.entries.contains_key(&EntryId::Decode),
            "{title}"
        );
        let mut e = executor(&manifest);
        reads_on(&title, &manifest, &mut e);
        learns(&title, &manifest, &mut e);
    }
}

#[test]
fn recipes_read_on_and_learn_0() {
    recipes_read_on_and_learn(0);
}

#[test]
fn recipes_read_on_and_learn_1() {
    recipes_read_on_and_learn(1);
}

#[test]
fn recipes_read_on_and_learn_2() {
    recipes_read_on_and_learn(2);
}

#[test]
fn recipes_read_on_and_learn_3() {
    recipes_read_on_and_learn(3);
}
