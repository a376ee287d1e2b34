//! Several texts that are read together, a token of each in one pass: every kind of position, of attention and of what is carried on.

use crate::library::reads_together;
use crate::numbers::executor;
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::EntryId;
use odec_program::kernel::Signature;
use odec_program::manifest::Manifest;
use odec_runtime::profile::reading::Reading;

fn manifest(positions: &str, field: &str, train: &str) -> Manifest {
    let text = format!(
        "field att = rmsnorm |> {field}\nfield ffn = rmsnorm |> swiglu(hidden: 12)\n\
         model m {{\n  input tokens(vocab: 256, context: 20)\n  embed learned(width: 8){positions}\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.5)\n}}\n\
         train {{\n  data text(\"x\", tokenizer: bytes)\n  batch 2\n  steps 1\n  optimizer adamw(lr: 1e-3)\n  {train}\n}}\n"
    );
    build_manifest(&built(&text), &text, options())
        .unwrap()
        .manifest
}

#[test]
fn each_text_is_what_it_is_alone() {
    let attention = "attention(heads: 2, causal, rope)";
    for (positions, field, train) in [
        ("", attention, ""),
        ("", attention, "precision f64"),
        ("", attention, "precision bf16"),
        (
            "",
            "attention(heads: 4, kv_heads: 2, causal, rope, window: 5)",
            "",
        ),
        (", positions(learned)", "attention(heads: 2, causal)", ""),
        (", positions(sinusoidal)", "attention(heads: 2, causal)", ""),
        ("", "sink_attention(heads: 2, kv_heads: 2, window: 6)", ""),
        ("", "alibi_attention(heads: 2)", ""),
        ("", "distance_attention(heads: 2, distances: 5, causal)", ""),
        (
            "",
            "distance_attention(heads: 2, distances: 5, buckets: 4, causal)",
            "precision bf16",
        ),
        ("", "linear_attention(heads: 2)", ""),
        ("", "gla(heads: 2)", ""),
        ("", "min_gru", ""),
        ("", "conv(kernel: 3, causal)", ""),
        ("", "conv(kernel: 4, causal, depthwise, dilation: 2)", ""),
        ("", "shift(by: 1) |> linear(width)", "precision bf16"),
        ("", "differential_attention(heads: 2)", ""),
    ] {
        let m = manifest(positions, field, train);
        assert!(m.program.entries.contains_key(&EntryId::Extend), "{field}");
        let mut e = executor(&m);
        reads_together(&format!("{field}, {train}"), &m, &mut e);
    }
}

/// What both entries read of parameters alone is made once.
#[test]
fn nothing_is_prepared_twice() {
    let m = manifest("", "attention(heads: 2, causal, rope)", "");
    let made = m.program.entries[&EntryId::Prepare].instrs.len();
    let read = |entry: EntryId| {
        let operands = m.program.entries[&entry].instrs.iter();
        let operands = operands.flat_map(|i| i.operands.iter());
        let prepared = operands.filter(|o| o.slot == odec_program::Slot::Prepared);
        let mut places: Vec<u64> = prepared.map(|o| o.offset).collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    let [decode, extend] = [EntryId::Decode, EntryId::Extend].map(read);
    assert!(!decode.is_empty() && decode == extend);
    assert_eq!(made, decode.len());
}

/// Matrices once, however many texts there are, and of each text the keys and values of its tokens.
#[test]
fn what_a_token_must_read() {
    let m = manifest("", "attention(heads: 2, causal, rope)", "");
    let signatures: Vec<Signature> = m
        .program
        .kernels
        .iter()
        .map(|k| k.spec.signature())
        .collect();
    let of = |lengths: &[u64]| Reading::of(&m.program, &signatures, lengths).expect("it generates");
    let (one, three) = (of(&[9]), of(&[9, 4, 0]));
    // Two evaluations, keys and values, eight columns of four bytes; a token reads itself.
    let row = 2 * 2 * 8 * 4;
    assert_eq!((one.kept, three.kept), (10 * row, (10 + 5 + 1) * row));
    // Besides matrices, of each text a row of the embedding and one of both tables of angles.
    let rows = 8 * 4 + 2 * 4 * 4;
    assert_eq!(three.weights - one.weights, 2 * rows);
    let embedding = 256 * 8 * 4;
    assert!(one.weights >= embedding && one.weights < 4 * m.program.param_bytes);
}
