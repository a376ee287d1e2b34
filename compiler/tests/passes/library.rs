//! Every model of the library that reads texts, made small: it reads on where it stopped, and it learns. On the reference device, whose bits
//! compiled code has too.

use crate::files::is_read_back;
use crate::numbers::executor;
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_library::shipped;
use odec_program::manifest::{Loss, Manifest, named};
use odec_program::{Bindings, EntryId, names};
use odec_runtime::data::dataset::{Batch, Numbers};
use odec_runtime::data::mask;
use odec_runtime::executor::step_count::usual;
use odec_runtime::train::gradient::gradient;
use odec_runtime::{Executor, Reader, Texts, Value};

/// Tokens of the context.
pub const CONTEXT: usize = 20;

/// The models' names and programs: part `part` of `PARTS`, which run side by side.
fn models(part: usize) -> Vec<(String, Manifest)> {
    const PARTS: usize = 4;
    let mut found = Vec::new();
    let of_texts = |text: &str| text.contains("input  tokens(") && !text.contains("input  source:");
    let models = shipped::all().iter().filter(|file| file.is_model());
    for file in models.filter(|file| of_texts(&file.text)) {
        let mut small = file.text.clone();
        for (from, to) in [
            ("width: 256", "width: 16"),
            ("width: 128", "width: 16"),
            ("hidden: 704", "hidden: 20"),
            ("hidden: 352", "hidden: 20"),
            ("context: 256", "context: 20"),
            ("width: 64", "width: 16"),
            ("context: 32)", "context: 20)"),
            ("context: 130)", "context: 20)"),
        ] {
            small = small.replace(from, to);
        }
        found.push((file.name.clone(), small));
    }
    assert!(found.len() >= 15, "{} models", found.len());
    let mine = found.into_iter().skip(part).step_by(PARTS);
    mine.map(|(name, text)| {
        let built = built(&text);
        assert_eq!(built.config.context, CONTEXT as u64, "{name}");
        let graphs = [&built.forward, &built.loss, &built.grad];
        graphs
            .into_iter()
            .chain(&built.decode)
            .chain(&built.several)
            .chain(
                built
                    .translation
                    .iter()
                    .flat_map(|t| [&t.encode, &t.extend]),
            )
            .for_each(is_read_back);
        let assembled = build_manifest(&built, &text, options()).unwrap();
        (name, assembled.manifest)
    })
    .collect()
}

pub fn tokens(vocab: u64) -> Vec<i32> {
    (0..=CONTEXT as u64)
        .map(|i| ((i % 5 * 7 + 3) % vocab) as i32)
        .collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Logits of a text read in pieces are those of the text read whole, in every bit.
pub fn reads_on(name: &str, m: &Manifest, e: &mut Executor) {
    if !m.program.entries.contains_key(&EntryId::Decode) {
        if !m.depths.is_empty() {
            // Its steps are those of a whole text.
            return;
        }
        // An encoder: a token's result depends on later tokens.
        assert!(m.source.contains("attention(heads: 4"), "{name}");
        let causal = m.source.contains("attention(heads: 4, causal");
        assert!(!causal, "{name} has no way to read on");
        return;
    }
    let x = tokens(m.model.vocab);
    let at = Bindings::new(1, CONTEXT as u64);
    let whole = e.run("forward", at, &[("tokens", Value::I32(&x[..CONTEXT]))], &[]);
    let whole = bits(whole.unwrap().reals("logits").unwrap().f32());
    let mut reader = Reader::new(e).unwrap();
    let (mut pieces, mut past) = (Vec::new(), 0);
    for n in [7, 1, 1, 5, 1, 5] {
        pieces.extend(bits(reader.read(&x[past..past + n]).unwrap().f32()));
        past += n;
    }
    assert!(
        whole == pieces,
        "{name}: read in pieces, the text has other logits"
    );
}

/// Texts of other lengths, read together across the end of the context, have the logits that each has alone, in every bit.
pub fn reads_together(name: &str, m: &Manifest, e: &mut Executor) {
    let has = |entry| m.program.entries.contains_key(&entry);
    if !has(EntryId::Extend) {
        assert!(
            !has(EntryId::Decode),
            "{name} has no way to read several texts"
        );
        return;
    }
    let texts: Vec<Vec<i32>> = (0..3u64)
        .map(|n| {
            let token = |i: u64| ((i * i * (n + 2) + 5 * i + n) % m.model.vocab) as i32;
            (0..30).map(token).collect()
        })
        .collect();
    let begins = [1, 11, 18];
    let steps = 6;
    let mut together: Vec<Vec<Vec<f64>>> = Vec::new();
    let mut reader = Texts::new(e, texts.len()).unwrap();
    for step in 0..=steps {
        let new = texts.iter().zip(begins).map(|(text, begin)| match step {
            0 => &text[..begin],
            _ => &text[begin + step - 1..begin + step],
        });
        let read = reader.read(&new.collect::<Vec<_>>()).unwrap();
        together.push(
            (0..texts.len())
                .map(|n| read.of(n).iter().collect())
                .collect(),
        );
    }
    for (n, (text, begin)) in texts.iter().zip(begins).enumerate() {
        let mut reader = Reader::new(e).unwrap();
        let mut past = 0;
        for (step, read) in together.iter().enumerate() {
            let end = begin + step;
            let logits = reader.read(&text[past..end]).unwrap();
            let last = logits.part(logits.len() - m.model.vocab as usize..logits.len());
            let alone: Vec<u64> = last.iter().map(f64::to_bits).collect();
            let beside: Vec<u64> = read[n].iter().map(|x| x.to_bits()).collect();
            assert!(alone == beside, "{name}, text {n} after {end} tokens");
            past = end;
        }
    }
}

/// Thirty optimiser steps or fewer on a sequence of five tokens, over and over, bring its loss down to less than half.
fn learns(name: &str, m: &Manifest, e: &mut Executor) {
    let x = tokens(m.model.kinds(names::TOKENS));
    let loss = m.train.as_ref().map_or(Loss::Next, |t| t.loss);
    let read = x[..CONTEXT].to_vec();
    let batch = match loss {
        Loss::Class => Batch::of_labelled(CONTEXT as u64, read, vec![1]),
        _ => Batch::of_tokens(1, CONTEXT as u64, read, x[1..].to_vec()),
    };
    let mut batch = Batch { key: 7, ..batch };
    mask::prepare(&mut batch, loss, &mask::training(0), 0);
    // Outputs with a label say a class.
    for label in m.train.iter().flat_map(|t| t.also.keys()) {
        let targets = names::of_output(label, names::TARGETS);
        batch.inputs.push((targets.into(), Numbers::I32(vec![1])));
    }
    let at = Bindings::new(1, CONTEXT as u64);
    let drawn = usual(&m.depths);
    let mut losses = Vec::new();
    for t in 1..=30 {
        let batch = std::slice::from_ref(&batch);
        losses.push(gradient(e, batch, &drawn).unwrap().loss);
        if losses[losses.len() - 1] < 0.5 * losses[0] {
            return;
        }
        let scalars = [
            (named::LR, 1e-2),
            (named::BIAS1, 1.0 / (1.0 - 0.9f64.powi(t))),
            (named::BIAS2, 1.0 / (1.0 - 0.95f64.powi(t))),
        ];
        e.run("update", at, &[], &scalars).unwrap();
    }
    panic!("{name}: {losses:?}");
}

fn check(part: usize) {
    for (name, manifest) in models(part) {
        let mut e = executor(&manifest);
        reads_on(&name, &manifest, &mut e);
        reads_together(&name, &manifest, &mut e);
        learns(&name, &manifest, &mut e);
    }
}

#[test]
fn models_read_on_and_learn_0() {
    check(0);
}

#[test]
fn models_read_on_and_learn_1() {
    check(1);
}

#[test]
fn models_read_on_and_learn_2() {
    check(2);
}

#[test]
fn models_read_on_and_learn_3() {
    check(3);
}
