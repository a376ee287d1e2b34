//! Crafted and damaged tokenizers, on texts that are hard on them.

use crate::mutate::{self, Stream};
use crate::worker::Verdict;
use odec_runtime::Tokenizer;
use serde_json::{Value as Json, json};
use std::path::Path;

const FILE: &str = "tokenizer.json";

fn plain() -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/tests/tokenizer.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn with(part: &str, value: Json) -> Json {
    let mut t = plain();
    t[part] = value;
    t
}

fn nested(depth: usize) -> Json {
    let inner = json!({"type": "Lowercase"});
    (0..depth).fold(
        inner,
        |v, _| json!({"type": "Sequence", "normalizers": [v]}),
    )
}

fn crafted() -> Vec<Json> {
    let replace = |from: Json, to: &str| json!({"type": "Replace", "pattern": from, "content": to});
    let several = |v: Json, n: usize| vec![v; n];
    let normalizers = |all: Vec<Json>| json!({"type": "Sequence", "normalizers": all});
    let pretokenizers = |all: Vec<Json>| json!({"type": "Sequence", "pretokenizers": all});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    vec![
        with(
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": ""}),
        ),
        with(
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ),
        with(
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "/////wAAAAD/////"}),
        ),
        with(
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8AAAAAYWJj"}),
        ),
        with("pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        with(
            "pre_tokenizer",
            pretokenizers(vec![json!({"type": "FixedLength", "length": 0})]),
        ),
        with("pre_tokenizer", json!({"type": "FixedLength", "length": 1})),
        with(
            "normalizer",
            normalizers(several(replace(json!({"String": "e"}), "ee"), 40)),
        ),
        with(
            "normalizer",
            replace(json!({"String": ""}), &"x".repeat(1 << 16)),
        ),
        with(
            "normalizer",
            replace(json!({"Regex": "x*"}), &"x".repeat(1 << 16)),
        ),
        with(
            "normalizer",
            json!({"type": "Prepend", "prepend": "x".repeat(1 << 20)}),
        ),
        with("pre_tokenizer", pretokenizers(several(bytes, 30))),
        with(
            "decoder",
            json!({"type": "Sequence", "decoders": several(replace(json!({"String": "e"}), "ee"), 40)}),
        ),
        with("pre_tokenizer", split("(a+)+$")),
        with("pre_tokenizer", split("(?=(a+))\\1b")),
        with("pre_tokenizer", split("((a{1,100}){1,100}){1,100}")),
        with("pre_tokenizer", split("")),
        with("pre_tokenizer", split(&"(".repeat(10_000))),
        with("normalizer", nested(20)),
        with("normalizer", nested(200)),
        with(
            "truncation",
            json!({"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}),
        ),
        with(
            "padding",
            json!({"strategy": {"Fixed": 1u64 << 40}, "direction": "Right", "pad_to_multiple_of": 0,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}),
        ),
        with(
            "post_processor",
            json!({"type": "TemplateProcessing", "single": several(json!({"Sequence": {"id": "A", "type_id": 0}}), 1000),
            "pair": [], "special_tokens": {}}),
        ),
        with(
            "model",
            json!({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]], "byte_fallback": false}),
        ),
        with(
            "model",
            json!({"type": "Unigram", "unk_id": null, "vocab": [], "byte_fallback": false}),
        ),
        with(
            "model",
            json!({"type": "Unigram", "unk_id": 0, "vocab": [["", -1e308], ["a", 1e308]], "byte_fallback": true}),
        ),
        with(
            "model",
            json!({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "", "max_input_chars_per_word": 1u64 << 40,
            "vocab": {"?": 0, "": 1, "a": 4_294_967_295u64}}),
        ),
        with(
            "model",
            json!({"type": "WordLevel", "unk_token": "?", "vocab": {}}),
        ),
        with(
            "model",
            json!({"type": "BPE", "dropout": 2.0, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": true, "ignore_merges": false, "vocab": {"a": 0, "aa": 1}, "merges": ["a a", "aa aa"]}),
        ),
        json!({}),
        json!([]),
        Json::Null,
    ]
}

pub fn run(case: u64) -> Verdict {
    let crafted = crafted();
    let s = &mut Stream::new("tokenizers", case);
    let json = match crafted.get(case as usize) {
        Some(t) => t.clone(),
        None => {
            let mut t = match s.below(3) {
                0 => s.pick(&crafted).clone(),
                _ => plain(),
            };
            (0..=s.below(3)).for_each(|_| mutate::value(&mut t, s));
            t
        }
    };
    std::fs::write(FILE, json.to_string()).unwrap();
    match encode() {
        Ok(()) => Verdict::Ran,
        Err(said) => Verdict::refused(said, FILE),
    }
}

fn encode() -> Result<(), String> {
    let t = Tokenizer::open(Path::new(FILE)).map_err(|e| e.to_string())?;
    t.vocabulary();
    // The last one is longer than a piece of text.
    let texts = [
        "".to_string(),
        "the quick brown fox\n\n  é≤😀 \u{0}\u{202e}<|endoftext|>".into(),
        "a".repeat(3_000),
        "a b".repeat(200_000),
    ];
    for text in texts {
        let tokens = t.encode(&text).map_err(|e| e.to_string())?;
        let mut decoder = t.decoder();
        for token in tokens.iter().take(2_000).chain(&[0, u32::MAX]) {
            decoder.push(*token).map_err(|e| e.to_string())?;
        }
        decoder.finish();
    }
    Ok(())
}
