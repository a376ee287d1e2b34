//! Arguments of layers: eps, bases, scales, biases, approximations; what they are in graphs, and what they may be.

use crate::common::compile_text;
use odec_compiler::model::Built;
use odec_graph::print;

/// A model of two fields, heads of four columns.
fn text(att: &str, ffn: &str, output: &str) -> String {
    format!(
        "field att = {att}\nfield ffn = {ffn}\n\
         model small {{\n  input tokens(vocab: 256, context: 16)\n  embed learned(width: 8)\n  \
         evolve lie(att, ffn) for 1 step\n  output {output} |> logits(tied)\n}}\n"
    )
}

fn built(att: &str, ffn: &str, output: &str) -> Built {
    let outcome = compile_text(&text(att, ffn, output));
    outcome.checked().built.clone().expect("a model")
}

#[test]
fn what_is_meant_where_nothing_is_said() {
    let graph = |b: &Built| print::text(&b.loss);
    let silent = built(
        "layernorm |> attention(heads: 2, causal, rope, bias)",
        "rmsnorm |> gelu(hidden: 12)",
        "rmsnorm",
    );
    let said = built(
        "layernorm(eps: 1e-5) |> attention(heads: 2, causal, rope(base: 10000), scale: 1/sqrt(4), bias, qkv_bias)",
        "rmsnorm(eps: 1/100000) |> gelu(hidden: 12, approximate: none)",
        "rmsnorm(eps: 1e-5)",
    );
    assert_eq!(graph(&silent), graph(&said));
    let empty = built("attention(heads: 2, rope())", "id", "id");
    assert_eq!(
        graph(&empty),
        graph(&built("attention(heads: 2, rope)", "id", "id"))
    );
}

#[test]
fn arguments_in_a_graph() {
    let b = built(
        "layernorm(eps: 1e-6) |> attention(heads: 2, causal, rope(base: 500000), scale: 1/3, qkv_bias)",
        "rmsnorm(eps: 1/4) |> (swiglu(hidden: 12, bias) + gelu(hidden: 4, approximate: tanh))",
        "rmsnorm(eps: 1e-12)",
    );
    let paths: Vec<&str> = b.params.iter().map(|p| p.path.as_str()).collect();
    let graph = print::text(&b.forward);
    insta::assert_snapshot!("arguments", format!("{}\n\n{graph}", paths.join("\n")));
}

#[test]
fn what_arguments_may_not_be() {
    let attention = |more: &str| text(&format!("attention(heads: 2, {more})"), "id", "id");
    let texts = [
        text(
            "rmsnorm(eps: 0)",
            "layernorm(eps: -1e-5)",
            "rmsnorm(eps: 2)",
        ),
        text("rmsnorm(eps: 1e-30)", "layernorm(eps: small)", "id"),
        text("rmsnorm(1e-6)", "layernorm(epsilon: 1e-6)", "id"),
        attention("eps: 1e-6"),
        attention("rope(base: 1/2)"),
        attention("rope(theta: 500000)"),
        attention("rope(500000)"),
        attention("rope, rope(base: 5)"),
        attention("rope_base: 5"),
        attention("scale: 0"),
        attention("scale: -1/8"),
        attention("scale: 1e9"),
        attention("bias: true"),
        attention("bias: [q, k]"),
        attention("qkv_bias, bias, qkv_bias, qkv_bias: on"),
        text(
            "gelu(hidden: 4, approximate: fast)",
            "gelu(hidden: 4, tanh)",
            "id",
        ),
        text(
            "relu(hidden: 4, approximate: tanh)",
            "swiglu(hidden: 4, bias: [up])",
            "id",
        ),
        "scheme s(F) { step x { return normalize(F(x), mean: 0, std: 1, eps: 0) } }\n".into(),
        "scheme s(F) { step x { return normalize(F(x), mean: 0, std: 1, eps: -1) } }\n".into(),
    ];
    let mut shown = Vec::new();
    for text in texts {
        let outcome = compile_text(&text);
        assert!(outcome.checked.is_none(), "{text}compiles");
        shown.push(outcome.rendered());
    }
    insta::assert_snapshot!("arguments_mistakes", shown.join("\n"));
}
