//! All functions of fields in one model: its programs against its graphs, and read token by token.

use crate::library::{CONTEXT, reads_on};
use crate::memory::AT;
use crate::numbers::{executor, feeds, tokens};
use crate::source::built;
use crate::systems::options;
use odec_compiler::model::layers::{DEFINITIONS, Group};
use odec_compiler::passes::build_manifest;
use odec_graph::interp;
use odec_program::manifest::Manifest;
use odec_runtime::{State, Value};
use std::collections::BTreeMap;

/// A field that is a sum of every example of every function, and of what is made of columns.
fn model(precision: &str) -> String {
    let functions = DEFINITIONS.iter().filter(|d| d.group != Group::Layers);
    let examples = functions.flat_map(|d| d.examples).map(|e| e.text);
    let others = [
        "columns(to: width/2)",
        "columns(linear(8), from: 3)",
        "broadcast(mean, to: 5)",
        "broadcast(mean(heads: 4), to: 12, heads: 4)",
        "concat(id, 1/2)",
        "gelu",
        "gelu(approximate: tanh)",
        "relu",
        "rmsnorm(heads: 4)",
        "layernorm(heads: 2)",
        "hopfield(patterns: 6, beta: 2, energy)",
        "hopfield_attention(causal)",
        "shaped",
    ];
    let terms = examples
        .chain(others)
        .map(|text| format!("({text} |> linear)"));
    let terms: Vec<String> = terms.collect();
    assert!(terms.len() > 40, "{}", terms.len());
    format!(
        "layer shaped(x: value) {{\n  learn w[6, width] = normal\n  learn v[6, width] = 1/4\n  learn row[width] = 1/2\n  learn each[4, 3, width/4] = normal\n  \
         low = x |> linear(normalize(w)*row - softplus(v)/log(3))\n  near = sum(square(x)) - 2*linear(x, w) + sum(square(w))\n  \
         return concat(low |> linear(w/sqrt(sum(sum(square(w)))), transposed), exp(-near/16), linear(x, softplus(each), bias) |> linear(each^2, transposed))\n}}\n\
         field all = rmsnorm |> linear |> 1/8*({})\n\
         model small {{\n  input tokens(vocab: 256, context: {CONTEXT})\n  embed learned(width: 16)\n  \
         evolve euler(all) for 2 steps\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.3)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  precision {precision} }}\n",
        terms.join(" + ")
    )
}

fn planned(precision: &str) -> Manifest {
    let text = model(precision);
    build_manifest(&built(&text), &text, options())
        .expect("a plan")
        .manifest
}

fn close(what: &str, got: impl Iterator<Item = f64>, want: &[f64]) {
    let got: Vec<f64> = got.collect();
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    for (g, w) in got.iter().zip(want) {
        let error = (g - w).abs() / scale;
        assert!(error < 1e-11, "{what}: {g} instead of {w} ({error:.1e})");
    }
}

#[test]
fn programs_of_all_functions_mean_their_graphs() {
    let built = built(&model("f64"));
    let mut e = executor(&planned("f64"));
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let want = interp::run(&built.forward, &f, AT).expect("safe");
    let out = e.run("forward", AT, &inputs[..1], &[]).expect("it runs");
    close(
        "logits",
        out.reals("logits").expect("logits").iter(),
        &want["logits"].data,
    );
    let want = interp::run(&built.grad, &f, AT).expect("safe");
    e.run("grad", AT, &inputs, &[]).expect("it runs");
    for p in &e.manifest().params {
        let grad = format!("grad.{}", p.path);
        close(&grad, e.of(State::Grads, p).iter(), &want[&grad].data);
    }
}

/// Heads are another shape of the same memory: a norm of each head is as many launches as a norm of all columns, but that its gradient
/// computes what came of queries and keys again by itself.
#[test]
fn norms_of_heads_cost_no_copies() {
    let launches = |norm: &str| -> BTreeMap<String, usize> {
        let text = format!(
            "layer mixed(x: value) {{\n  q = x |> linear |> {norm} |> rotary(heads: 4)\n  \
             k = x |> linear |> {norm} |> rotary(heads: 4)\n  v = x |> linear\n  \
             return attend(q, k, v, heads: 4, causal) |> linear\n}}\n\
             field att = rmsnorm |> mixed\n\
             model small {{\n  input tokens(vocab: 256, context: {CONTEXT})\n  embed learned(width: 16)\n  \
             evolve euler(att) for 2 steps\n  output rmsnorm |> logits(tied)\n}}\n\
             train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
             batch 2;  steps 10 }}\n"
        );
        let planned = build_manifest(&built(&text), &text, options()).expect("a plan");
        let entries = planned.manifest.program.entries.iter();
        let of = entries.map(|(id, e)| (format!("{id:?}"), e.instrs.len()));
        of.collect()
    };
    let (heads, mut all) = (launches("rmsnorm(heads: 4)"), launches("rmsnorm"));
    let (steps, again) = (2, 2);
    *all.get_mut("Grad").expect("a gradient") += steps * again;
    assert_eq!(heads, all);
}

#[test]
fn all_functions_read_on() {
    for precision in ["f32", "bf16"] {
        let manifest = planned(precision);
        reads_on(precision, &manifest, &mut executor(&manifest));
    }
}
