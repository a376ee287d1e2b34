//! Arguments of layers in planned programs: a text is read on as it is read whole, numbers make no kernels, and what adapts or
//! bounds matrices leaves biases alone.

use crate::numbers::{executor, tokens};
use crate::source;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::Bindings;
use odec_program::manifest::{Manifest, added};
use odec_runtime::{Reader, State, Value};

const CONTEXT: u64 = 12;

fn manifest(scale: &str, base: &str, train: &str) -> Manifest {
    let text = format!(
        "field att = rmsnorm(eps: 1e-6) |> attention(heads: 2, kv_heads: 1, causal, rope(base: {base}), scale: {scale}, qkv_bias)\n\
         field ffn = layernorm(eps: 1e-12) |> (swiglu(hidden: 12, bias) + gelu(hidden: 5, approximate: tanh))\n\
         model m {{\n  input tokens(vocab: 256, context: {CONTEXT})\n  embed learned(width: 8)\n  \
         evolve lie(att, ffn) for 2 steps {{ weights per step }}\n  output rmsnorm(eps: 1e-3) |> logits(tied)\n  init normal(std: 0.5)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 1;  steps 10;  {train} }}\n"
    );
    let built = source::built(&text);
    build_manifest(&built, &text, options()).unwrap().manifest
}

/// Logits of a text read whole and in pieces.
fn logits(m: &Manifest) -> [Vec<f32>; 2] {
    let mut e = executor(m);
    for (n, x) in e.state_mut(State::Params).f32().iter_mut().enumerate() {
        *x += ((n * 37 % 29) as f32 - 14.0) / 40.0;
    }
    let at = Bindings::new(1, CONTEXT);
    let x: Vec<i32> = tokens(at, 256, 3);
    let whole = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
    let whole = whole.unwrap().reals("logits").unwrap().f32().to_vec();
    let mut reader = Reader::new(&mut e).unwrap();
    let mut pieces = Vec::new();
    for piece in [&x[..5], &x[5..6], &x[6..]] {
        pieces.extend(reader.read(piece).unwrap().f32().to_vec());
    }
    [whole, pieces]
}

#[test]
fn a_text_is_read_on_as_it_is_read_whole() {
    for precision in ["", "precision bf16"] {
        let [whole, pieces] = logits(&manifest("1/3", "100", precision));
        assert!(whole == pieces, "{precision}");
        assert!(whole.iter().all(|x| x.is_finite()));
        let [other, _] = logits(&manifest("1/5", "100", precision));
        assert!(whole != other, "{precision}: the scale changes nothing");
        let [other, _] = logits(&manifest("1/3", "1000", precision));
        assert!(whole != other, "{precision}: the base changes nothing");
    }
}

#[test]
fn scales_and_bases_make_no_kernels() {
    let kernels = |scale: &str, base: &str| {
        let m = manifest(scale, base, "");
        serde_json::to_string(&m.program.kernels).unwrap()
    };
    let one = kernels("1/3", "100");
    assert!(one == kernels("sqrt(2)/7", "1000"));
}

#[test]
fn only_matrices_are_adapted_and_bounded() {
    for train in [
        "from \"other\";  tune lora(rank: 2)",
        "constrain spectral(max: 1)",
    ] {
        let m = manifest("1/3", "100", train);
        let path = |p: &odec_program::manifest::Param| p.path.clone();
        let of = m.params.iter().map(path).filter(|p| added::is(p));
        let of: Vec<String> = of.collect();
        assert!(!of.is_empty(), "{train}");
        assert!(of.iter().all(|p| p.contains(".weight.")), "{of:?}");
        let maps = ["q", "k", "v", "o", "gate", "up", "down"];
        for map in maps.map(|m| format!(".{m}.")) {
            assert!(
                of.iter().any(|p| p.contains(&map)),
                "{train}, {map}: {of:?}"
            );
        }
    }
}
