//! Texts with a class each: what fills up rows changes nothing, gradients are differences, programs compute what their graphs mean, and crafted manifests
//! are refused.

use crate::numbers::{close, differences, executor};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_graph::interp::{self, Tensor};
use odec_program::Bindings;
use odec_program::manifest::{Form, Labelled, Manifest};
use odec_runtime::{Artifact, Executor, State, Value};
use std::collections::BTreeMap;

const BEGIN: i32 = 256;
const END: i32 = 257;
const PADDING: i32 = 258;

fn model(output: &str, loss: &str) -> (Built, Manifest) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, rope)\n\
         field ffn = layernorm |> conv(kernel: 3, causal, depthwise) |> gelu(hidden: 12, bias)\n\
         model small {{\n  input tokens(vocab: 259, context: 12)\n  embed learned(width: 8), positions(learned)\n  \
         evolve strang(ffn, att) for 2 steps\n  output rmsnorm |> {output}\n  init normal(std: 0.4) }}\n\
         train {{ data labelled(\"none.tsv\", tokenizer: bytes, names: \"a, b, c\");  optimizer adamw(lr: 1e-2)\n\
         batch 3;  steps 10;  loss {loss} }}\n"
    );
    let built = source::built(&text);
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    (built, manifest)
}

/// So many texts in rows of this width, and their classes: text n has `3 n + 1` letters, at most those that fit.
fn rows(texts: std::ops::Range<i32>, width: usize) -> [Vec<i32>; 2] {
    let row = |n: i32| {
        let letters = (0..(3 * n + 1).min(width as i32 - 2)).map(|i| (i * i * 7 + i + 5 * n) % 200);
        let mut row: Vec<i32> = [BEGIN].into_iter().chain(letters).chain([END]).collect();
        row.resize(width, PADDING);
        row
    };
    [
        texts.clone().flat_map(row).collect(),
        texts.map(|n| n % 3).collect(),
    ]
}

fn at([_, classes]: &[Vec<i32>; 2], width: usize) -> Bindings {
    Bindings::new(classes.len() as u64, width as u64)
}

/// Parameters that are no zeros and ones, and the inputs.
fn feeds(e: &Executor, at: Bindings, rows: &[Vec<i32>; 2]) -> BTreeMap<String, Tensor> {
    let params = e.manifest().params.iter().map(|p| {
        let data = e.of(State::Params, p).iter().collect();
        (p.path.clone(), Tensor::new(p.shape.clone(), data))
    });
    let whole = |row: &Vec<i32>, width| {
        let data = row.iter().map(|x| f64::from(*x)).collect();
        Tensor::new(vec![at.batch, width, 1], data)
    };
    let [tokens, classes] = rows;
    let inputs = [
        ("tokens", whole(tokens, at.seq)),
        ("targets", whole(classes, 1)),
    ];
    params
        .chain(inputs.map(|(name, tensor)| (name.to_string(), tensor)))
        .collect()
}

#[test]
fn what_fills_up_rows_changes_nothing() {
    for (output, loss) in [
        ("classes(3)", "cross_entropy"),
        ("classes(3)", "smooth(1/10) + 1/4*kinetic"),
        ("classes(3, of: class_token)", "cross_entropy"),
    ] {
        let (built, manifest) = model(output, loss);
        let e = executor(&manifest);
        let grad = |texts, width| {
            let rows = rows(texts, width);
            let at = at(&rows, width);
            interp::run(&built.grad, &feeds(&e, at, &rows), at).unwrap()
        };
        let of = |texts, width| grad(texts, width)["loss"].data[0];
        // Text 1 has four letters.
        let alone = grad(1..2, 6);
        for width in [7, 12] {
            for (name, tensor) in &grad(1..2, width) {
                let size = alone[name].data.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
                let pairs = tensor.data.iter().zip(&alone[name].data);
                let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(off <= 1e-11 * size, "{output}, {loss}, {name}: {off}");
            }
        }
        if loss == "cross_entropy" {
            let mean = (of(0..1, 3) + of(1..2, 6) + of(2..3, 9)) / 3.0;
            assert!((of(0..3, 9) - mean).abs() < 1e-12, "{output}");
        }
    }
}

#[test]
fn gradients_are_differences_and_programs_agree() {
    for output in ["classes(3)", "classes(3, of: class_token)"] {
        let (built, manifest) = model(output, "cross_entropy");
        let mut e = executor(&manifest);
        let rows = rows(0..3, 9);
        let at = at(&rows, 9);
        let mut feeds = feeds(&e, at, &rows);
        differences(output, &built, &mut feeds, at, 1e-6);
        let want = interp::run(&built.forward, &feeds, at).unwrap();
        let given = [("tokens", Value::I32(&rows[0]))];
        let got = e.run("forward", at, &given, &[]).unwrap();
        let got = got.reals("logits").unwrap().f32().to_vec();
        close(output, &got, &want["logits"].data, 1e-4);
    }
}

/// What a crafted file says of its texts.
#[test]
fn contradictions_are_found() {
    let (_, manifest) = model("classes(3)", "cross_entropy");
    let mut said = Vec::new();
    let mut broken = |change: &dyn Fn(&mut Manifest, &mut Labelled)| {
        let mut m = manifest.clone();
        let train = m.train.as_mut().unwrap();
        let Form::Labelled(mut form) = train.data.form.clone() else {
            panic!("no texts with classes");
        };
        change(&mut m, &mut form);
        m.train.as_mut().unwrap().data.form = Form::Labelled(form);
        said.push(Artifact::in_memory(m).map(drop).unwrap_err().to_string());
    };
    broken(&|m, _| m.model.tokens = None);
    broken(&|m, _| m.model.tokens = Some(3));
    broken(&|m, _| m.model.tokens = Some(1 << 30));
    broken(&|_, l| l.padding = 257);
    broken(&|_, l| l.begin = 0);
    broken(&|_, l| l.classes = 4);
    broken(&|_, l| drop(l.names.pop()));
    for (said, words) in said.iter().zip([
        "0 kinds of tokens leave none for texts",
        "3 kinds of tokens leave none for texts",
        "kinds of tokens",
        "padding",
        "begin",
        "classes",
        "2 names of 3 classes",
    ]) {
        assert!(said.contains(words), "{words}: {said}");
    }
}
