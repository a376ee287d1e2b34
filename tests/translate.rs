//! A run on pairs of texts: trained, resumed, judged, and asked for translations.

#![cfg(feature = "mlir")]

mod place;

use place::{Place, text};
use serde_json::Value;

/// Reads small letters, writes capital ones.
const MODEL: &str = r#"
field see  = rmsnorm |> attention(heads: 2)
field past = rmsnorm |> attention(heads: 2, causal)
field read = rmsnorm |> attention(heads: 2, from: encoder |> rmsnorm)
field ffn  = rmsnorm |> swiglu(hidden: 32)

model capitals {
  input  source: tokens(vocab: 259, context: 10)
  input  tokens(vocab: 259, context: 8)
  embed  source: learned(width: 32), positions(learned)
  evolve encoder: lie(see, ffn) for 1 step
  embed  learned(width: 32), positions(learned)
  evolve decoder: lie(past, lie(read, ffn)) for 1 step
  output rmsnorm |> logits(tied)
  init   normal(std: 0.1)
}

train {
  data      pairs("letters.jsonl", source: "small", target: "capital", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 5e-3)
  batch 16;  accumulate 2;  steps 1500;  clip 1.0;  seed 0
}
"#;

/// All words of one to five of three letters.
fn place() -> Place {
    let place = Place::new();
    place.write("capitals.ode", MODEL);
    let words = (1..=5u32).flat_map(|n| (0..3usize.pow(n)).map(move |k| (n, k)));
    let word = |(n, k): (u32, usize)| -> String {
        let letters = (0..n).map(|i| ["a", "b", "c"][k / 3usize.pow(i) % 3]);
        letters.collect()
    };
    let lines = words.map(word).map(|small| {
        let capital = small.to_uppercase();
        format!("{{\"small\": \"{small}\", \"capital\": \"{capital}\"}}\n")
    });
    place.write("letters.jsonl", &lines.collect::<String>());
    place
}

#[test]
fn a_run_on_pairs_learns_to_translate() {
    let place = place();
    place.good(&["train", "capitals.ode", "--out", "run"]);
    let metrics = place.read("run/metrics.jsonl");
    let lines: Vec<Value> = metrics
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let steps: Vec<&Value> = lines.iter().filter(|l| l["loss"].is_number()).collect();
    let padding: Vec<f64> = steps
        .iter()
        .map(|l| l["padding"].as_f64().unwrap())
        .collect();
    let mean = padding.iter().sum::<f64>() / padding.len() as f64;
    assert!((0.0..0.1).contains(&mean), "{padding:?}");

    // A run that was stopped goes on as if it had not been.
    place.good(&["train", "capitals.ode", "--out", "two", "--steps", "45"]);
    place.good(&["train", "--resume", "two", "--steps", "1500"]);
    assert!(place.tensors("run") == place.tensors("two"));

    let judged = place.good(&["eval", "run", "--json"]);
    let judged: Value = serde_json::from_str(&judged).unwrap();
    assert!(judged["loss"].as_f64().unwrap() < 0.5, "{judged}");
    assert!(judged["bleu"].as_f64().unwrap() <= 100.0, "{judged}");
    assert!(judged["chrf"].as_f64().unwrap() > 50.0, "{judged}");
    let said = place.good(&["eval", "run"]);
    assert!(said.contains("chrF2 "), "{said}");
    assert!(said.contains("predicted tokens of letters.jsonl"), "{said}");

    let all = place.good(&["translate", "run", "--held-out", "--json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    let all = all.as_array().unwrap();
    // Of 363 words.
    assert_eq!(all.len(), 36);
    let right = all
        .iter()
        .filter(|t| t["translation"] == t["target"])
        .count();
    assert!(right > 18, "{all:?}");
    for t in all {
        let length = t["translation"].as_str().unwrap().len() as u64;
        assert_eq!(t["tokens"], length + 1);
        assert!(t["log_probability"].as_f64().unwrap() <= 0.0);
    }
    let few = place.good(&["translate", "run", "--held-out", "--pairs", "3"]);
    assert_eq!(few.lines().count(), 9);
    let words = ["translate", "run", "cab", "ab", "--beam", "1"];
    let said = place.good(&words);
    assert_eq!(said.lines().count(), 2);
    assert_eq!(said, place.good(&words));
    let long = place.good(&[
        "translate",
        "run",
        "ab",
        "--min-length",
        "6",
        "--max-length",
        "6",
        "--json",
    ]);
    // What so short a model adds to a word may be any byte.
    let long: Value = serde_json::from_str(&long).unwrap();
    assert_eq!(long[0]["tokens"], 6, "{long:?}");
}

/// Reads two words, and writes the letters of one and of the other in turn.
const SEVERAL: &str = r#"
field see    = rmsnorm |> attention(heads: 2)
field past   = rmsnorm |> attention(heads: 2, causal)
field first  = rmsnorm |> attention(heads: 2, from: one |> rmsnorm)
field second = rmsnorm |> attention(heads: 2, from: two |> rmsnorm)
field ffn    = rmsnorm |> swiglu(hidden: 32)

model both {
  input  odd:  tokens(vocab: 259, context: 6)
  input  even: tokens(vocab: 259, context: 6)
  input  tokens(vocab: 259, context: 8)
  embed  odd: learned(width: 32), positions(learned)
  evolve one: lie(see, ffn) for 1 step
  embed  even: learned(width: 32), positions(learned)
  evolve two: lie(see, ffn) for 1 step
  embed  learned(width: 32), positions(learned)
  evolve decoder: lie(past, lie(first, lie(second, ffn))) for 1 step
  output rmsnorm |> logits(tied)
  init   normal(std: 0.1)
}

train {
  data      pairs("words.jsonl", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 5e-3)
  batch 16;  steps 900;  clip 1.0;  seed 0
}
"#;

#[test]
fn a_run_reads_several_texts() {
    let place = Place::new();
    place.write("both.ode", SEVERAL);
    // Two words of one to three letters, of different lengths.
    let words = (1..=3u32).flat_map(|n| (0..3usize.pow(n)).map(move |k| (n, k)));
    let word = |(n, k): (u32, usize)| -> String {
        let letters = (0..n).map(|i| ["a", "b", "c"][k / 3usize.pow(i) % 3]);
        letters.collect()
    };
    let words: Vec<String> = words.map(word).collect();
    let written = |odd: &str, even: &str| -> String {
        let most = odd.len().max(even.len());
        let at = |word: &str, n: usize| word[n.min(word.len())..].chars().next();
        let each = (0..most).flat_map(|n| [at(odd, n), at(even, n)]);
        each.flatten().collect()
    };
    let pairs = words
        .iter()
        .flat_map(|odd| words.iter().map(move |even| (odd, even)));
    let lines = pairs
        .enumerate()
        .filter(|(n, _)| n % 2 == 0)
        .map(|(_, (odd, even))| {
            let target = written(odd, even);
            format!("{{\"odd\": \"{odd}\", \"even\": \"{even}\", \"target\": \"{target}\"}}\n")
        });
    place.write("words.jsonl", &lines.collect::<String>());
    place.good(&["train", "both.ode", "--out", "run"]);
    let all = place.good(&["translate", "run", "--held-out", "--json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    let all = all.as_array().unwrap();
    let right = |t: &&Value| t["translation"] == t["target"];
    // Of 761 pairs; of one word alone a guess is seldom right.
    assert_eq!(all.len(), 76);
    assert!(all.iter().filter(right).count() > 20, "{all:?}");
    assert_eq!(all[0]["source"].as_array().map(Vec::len), Some(2));
    let given = ["translate", "run", "ab", "c", "a", "bb"];
    assert_eq!(place.good(&given).lines().count(), 2);
    let (code, said) = place.bad(&["translate", "run", "ab", "c", "a"]);
    assert!(
        code == 1 && said.contains("reads 2 texts for a translation, odd, even, and 3 are given"),
        "{said}"
    );
}

/// Both lengths stand in what is said of a model, and a step is timed at both.
#[test]
fn two_contexts_are_said_and_timed() {
    let place = place();
    let said = place.good(&["check", "capitals.ode"]);
    for part in [
        "steps of 16 × 8 tokens, sources of 10 in 2 micro-batches",
        "FLOP per target token, context 8, source 10",
        "Memory, 8 sequences of 8 tokens, sources of 10",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let timed = place.good(&["bench", "capitals.ode", "--steps", "1", "--json"]);
    let timed: Value = serde_json::from_str(&timed).unwrap();
    assert!(timed["loss"].is_number(), "{timed}");
}

#[test]
fn what_cannot_be_translated_is_said() {
    let place = place();
    place.good(&["train", "capitals.ode", "--out", "run", "--steps", "2"]);
    let refused = |args: &[&str], part: &str| {
        let (code, said) = place.bad(&[&["translate"], args].concat());
        assert!(code == 1 && said.contains(part), "{args:?}: {said}");
    };
    refused(&["run"], "there is nothing to translate");
    refused(&["run", "ab", " "], "text 2 is empty");
    refused(
        &["run", "abcabcabca"],
        "text 1 has 10 tokens and an end (counted from 1), and the context of the source has room for 10",
    );
    refused(&["run", "ab", "--beam", "0"], "--beam 0 keeps no text");
    refused(&["run", "ab", "--length-penalty", "nan"], "length penalty");
    refused(
        &["run", "ab", "--max-length", "9"],
        "the context has room for 8",
    );
    refused(
        &["run", "ab", "--min-length", "3", "--max-length", "2"],
        "no text has 3 to 2 tokens",
    );
    refused(
        &["run", "--data", "none.jsonl"],
        "there are no pairs of texts at none.jsonl",
    );
    let (code, said) = place.bad(&["generate", "run", "--prompt", "ab"]);
    assert!(
        code == 1 && said.contains("`odec translate` gives it texts"),
        "{said}"
    );
    place.good(&["train", "tiny.ode", "--out", "one", "--steps", "2"]);
    refused(&["one", "ab"], "this model reads one sequence");
    // What is wrong with a pair is said before anything is built of it.
    place.write("bad.jsonl", "{\"small\": \"ab\"}\n");
    let (_, said) = place.bad(&[
        "train",
        "capitals.ode",
        "--out",
        "bad",
        "--data",
        "bad.jsonl",
    ]);
    assert!(
        said.contains("bad.jsonl, line 1: there is no text under `capital`"),
        "{said}"
    );
    place.write(
        "long.jsonl",
        &"{\"small\": \"ab\", \"capital\": \"ABCABCABC\"}\n".repeat(3),
    );
    let out = place.odec(&["eval", "run", "--data", "long.jsonl"]);
    assert!(text(&out.stderr).contains("long.jsonl, line 1: its target has 9 tokens"));
}
