//! Texts that are longer than the context: the later half of it is read anew.

use crate::numbers::{executor, tokens};
use crate::plain::pieces_are_the_whole;
use crate::source;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::Bindings;
use odec_runtime::{Executor, Reader};

const CONTEXT: usize = 7;

/// A decoder with this embedding, which its output reads as well.
fn decoder(embed: &str) -> Executor {
    let source = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\nfield ffn = rmsnorm |> swiglu(hidden: 12)\n\
         model m {{\n  input tokens(vocab: 256, context: {CONTEXT})\n  embed {embed}\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.5)\n}}\n"
    );
    let manifest = build_manifest(&source::built(&source), &source, options());
    executor(&manifest.unwrap().manifest)
}

/// The logits after the last token of a text, read in these pieces.
fn last(text: &[i32], pieces: &[usize]) -> Vec<f32> {
    let mut e = decoder("learned(width: 8)");
    let mut reader = Reader::new(&mut e).unwrap();
    let (mut past, mut logits) = (0, Vec::new());
    for n in pieces {
        logits = reader.read(&text[past..past + n]).unwrap().f32().to_vec();
        past += n;
    }
    assert_eq!(past, text.len());
    logits.split_off(logits.len() - 256)
}

#[test]
fn the_later_half_is_read_anew_when_the_context_is_full() {
    let x = tokens(Bindings::new(1, 20), 256, 3);
    // With the eighth token four are left, the half rounded up; the next is read after those.
    assert!(last(&x[..8], &[7, 1]) == last(&x[4..8], &[4]));
    assert!(last(&x[..9], &[7, 1, 1]) == last(&x[4..9], &[5]));
    // Four tokens later it is full again.
    assert!(last(&x[..11], &[7, 1, 1, 1, 1]) == last(&x[4..11], &[7]));
    assert!(last(&x[..12], &[7, 1, 1, 1, 1, 1]) == last(&x[8..12], &[4]));
    assert!(last(&x[..8], &[7, 1]) != last(&x[1..8], &[7]));
    // Of a longer prompt, the tokens that fit.
    assert!(last(&x, &[20]) == last(&x[13..], &[7]));
}

#[test]
fn a_text_in_pieces_has_the_bits_of_the_whole_behind_a_factorised_embedding() {
    pieces_are_the_whole(&mut decoder("learned(width: 5) |> linear(width: 8, bias)"));
}
