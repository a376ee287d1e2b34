//! Training on what is not plain bytes: a tokenizer, lines of JSON, token files.

#![cfg(feature = "mlir")]

mod place;

use place::{Place, TINY};

const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/tests/tokenizer.json");

/// The tiny model with room for the tokens of `tokenizer.json`, trained on other data.
fn place(data: &str) -> Place {
    let place = Place::new();
    std::fs::copy(TOKENIZER, place.path().join("tokenizer.json")).expect("copied");
    place.write("tokens.ode", &with(data));
    place
}

fn with(data: &str) -> String {
    TINY.replace("text(\"corpus.txt\", tokenizer: bytes)", data)
        .replace("vocab: 256", "vocab: 320")
}

#[test]
fn a_tokenizer_goes_from_the_source_to_generated_text() {
    let place = place("text(\"corpus.txt\", \"more.jsonl\", tokenizer: \"tokenizer.json\")");
    place.write("more.jsonl", "{\"text\": \"the quick brown fox\"}\n");
    place.good(&["train", "tokens.ode", "--out", "runs/a"]);
    // A second run finds the tokens that the first one made.
    let cache = || {
        let files = std::fs::read_dir(place.path().join("runs/.tokens")).expect("a cache");
        let file =
            |f: std::fs::DirEntry| (f.file_name(), f.metadata().unwrap().modified().unwrap());
        files.map(|f| file(f.unwrap())).collect::<Vec<_>>()
    };
    let made = cache();
    assert_eq!(made.len(), 1);
    place.good(&["train", "tokens.ode", "--out", "runs/b"]);
    assert_eq!(cache(), made);
    assert!(place.tensors("runs/a") == place.tensors("runs/b"));

    // The run stands on its own feet.
    std::fs::remove_file(place.path().join("tokenizer.json")).expect("removed");
    let words = [
        "generate",
        "runs/a",
        "--prompt",
        "the quick",
        "--tokens",
        "12",
    ];
    let said = place.good(&words);
    assert!(said.starts_with("the quick") && said.len() > 14, "{said:?}");
    assert!(
        place
            .good(&["eval", "runs/a"])
            .contains("corpus.txt, more.jsonl")
    );
    place.good(&["train", "--resume", "runs/a", "--steps", "31"]);
    place.write("runs/a/tokenizer.json", "{}");
    let (code, said) = place.bad(&words);
    assert!(
        code == 1 && said.contains("is not a Hugging Face tokenizer.json"),
        "{said}"
    );
}

#[test]
fn token_files_are_trained_on_as_they_are() {
    let place = place("tokens(\"train.bin\")");
    let tokenise = |out: &str| {
        place.good(&[
            "tokenize",
            "corpus.txt",
            "--tokenizer",
            "tokenizer.json",
            "-o",
            out,
        ])
    };
    let said = tokenise("train.bin");
    assert!(said.contains("tokens of 320 kinds in train.bin"), "{said}");
    tokenise("wide.u32.bin");
    let size = |name: &str| std::fs::metadata(place.path().join(name)).unwrap().len();
    assert_eq!(size("wide.u32.bin"), 2 * size("train.bin"));
    place.good(&["train", "tokens.ode", "--out", "two"]);
    place.good(&[
        "train",
        "tokens.ode",
        "--out",
        "four",
        "--data",
        "wide.u32.bin",
    ]);
    assert!(place.tensors("two") == place.tensors("four"));
    // The text itself, through the same tokenizer, is the same data.
    place.write(
        "text.ode",
        &with("text(\"corpus.txt\", tokenizer: \"tokenizer.json\")"),
    );
    place.good(&["train", "text.ode", "--out", "text"]);
    assert!(place.tensors("two") == place.tensors("text"));

    let words = ["generate", "two", "--prompt", "the", "--tokens", "3"];
    let (_, said) = place.bad(&words);
    assert!(said.contains("--tokenizer tokenizer.json"), "{said}");
    place.good(&[&words[..], &["--tokenizer", "tokenizer.json"]].concat());
    let (_, said) = place.bad(&["eval", "two", "--data", "corpus.txt"]);
    assert!(said.contains("odec tokenize"), "{said}");
    // A run whose data has changed would not be the same run.
    place.good(&[
        "tokenize",
        "tiny.ode",
        "--tokenizer",
        "tokenizer.json",
        "-o",
        "train.bin",
    ]);
    let (code, said) = place.bad(&["train", "--resume", "two", "--steps", "40"]);
    assert!(
        code == 1 && said.contains("the data of this run have changed"),
        "{said}"
    );
}

#[test]
fn a_tokenizer_that_does_not_fit_is_a_located_error() {
    let place = place("text(\"corpus.txt\", tokenizer: \"tokenizer.json\")");
    let (code, said) = place.bad(&["check", "tokens.ode", "--set", "model.vocab=319"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("this tokenizer has 320 kinds of tokens, the model knows 319"),
        "{said}"
    );
    assert!(said.contains("tokens.ode:15:43"), "{said}");
    place.write("tokenizer.json", "{\"version\": \"1.0\"}");
    let (code, said) = place.bad(&["check", "tokens.ode"]);
    assert!(code == 1 && said.contains("tokens.ode:15:43"), "{said}");
    // A file that is elsewhere is the business of the run.
    std::fs::remove_file(place.path().join("tokenizer.json")).expect("removed");
    place.good(&["check", "tokens.ode"]);
    let (code, said) = place.bad(&["train", "tokens.ode"]);
    assert!(
        code == 1 && said.contains("cannot read the tokenizer"),
        "{said}"
    );
}

/// Parameters out of a run and into another, under their own names and under those of somebody else.
#[test]
fn parameters_are_exported_and_taken_over_by_a_map_of_names() {
    let place = Place::new();
    place.good(&["build", "tiny.ode"]);
    place.good(&["train", "tiny.odex", "--out", "run", "--steps", "3"]);
    let said = place.good(&["export", "run", "-o", "params.safetensors"]);
    assert!(said.contains("8,528 parameters"), "{said}");
    let read = |name: &str| std::fs::read(place.path().join(name)).expect(name);
    let bytes = read("params.safetensors");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let theirs = |name: &str| {
        let name = name.replace("step.", "layers.").replace(".att.", ".attn.");
        name.replace("embed.token.weight", "wte")
    };
    let renamed = file.iter().map(|(name, t)| (theirs(name), t));
    safetensors::serialize_to_file(renamed, None, &place.path().join("theirs.safetensors"))
        .expect("written");
    place.write(
        "names.json",
        r#"{"embed.token.weight": "wte", "step.*.att.*.weight": "layers.*.attn.*.weight",
            "step.*.ffn.*.weight": "layers.*.ffn.*.weight", "step.*.att.norm.gain": "layers.*.attn.norm.gain",
            "step.*.ffn.norm.gain": "layers.*.ffn.norm.gain"}"#,
    );
    // No step is taken: a run that was asked for none has its initial parameters.
    let start = |out: &str, more: &[&str]| {
        place.good(
            &[
                &["train", "tiny.odex", "--out", out, "--steps", "0"][..],
                more,
            ]
            .concat(),
        );
        let mut all = place.tensors(out);
        all.retain(|(name, _)| !name.starts_with("moment"));
        all
    };
    let mut trained = place.tensors("run");
    trained.retain(|(name, _)| !name.starts_with("moment"));
    assert!(start("fresh", &[]) != trained);
    assert!(start("own", &["--init", "params.safetensors"]) == trained);
    let (code, said) = place.bad(&[
        "train",
        "tiny.odex",
        "--out",
        "x",
        "--init",
        "theirs.safetensors",
    ]);
    assert!(
        code == 1 && said.contains("missing: embed.token.weight [256, 16]"),
        "{said}"
    );
    let map = ["--init", "theirs.safetensors", "--map", "names.json"];
    assert!(start("mapped", &map) == trained);
    place.write(
        "names.json",
        r#"{"embed.token.weight": "layers.0.attn.q.weight"}"#,
    );
    let (_, said) = place.bad(&[&["train", "tiny.odex", "--out", "x"][..], &map].concat());
    let shape = "wrong shape: layers.0.attn.q.weight is [16, 16] and must be [256, 16] (for embed.token.weight)";
    assert!(said.contains(shape), "{said}");
    place.write("names.json", r#"{"a": 1}"#);
    let (_, said) = place.bad(&[&["train", "tiny.odex", "--out", "x"][..], &map].concat());
    assert!(said.contains("names.json is not a map of names"), "{said}");
}

/// 200 sequences of five vectors of two numbers, and what is predicted: 2a − b at each position, or whether the sum of all a is positive.
const VECTORS: &str = r#"
field mixed = attention(heads: 2)

model paths {
  input  vectors(width: 2, context: 5)
  embed  linear(width: 8, bias), positions(learned)
  evolve euler(mixed) for 1 step
  output linear(1, bias)
  init   normal(std: 0.2)
}

train {
  data      vectors("train.npz", inputs: "x", targets: "y", held_out: 20%)
  loss      mse
  optimizer adamw(lr: 1e-2)
  batch 16;  steps 150;  seed 0
}
"#;

/// A `.npy` file of real numbers.
fn npy(shape: &str, numbers: &[f32]) -> Vec<u8> {
    let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (head.len() as u16).to_le_bytes();
    let numbers = numbers.iter().flat_map(|x| x.to_le_bytes());
    let head = [b"\x93NUMPY\x01\0", &length[..], head.as_bytes()].concat();
    head.into_iter().chain(numbers).collect()
}

#[test]
fn numbers_are_predicted_for_vectors() {
    let place = Place::new();
    let write = |name: &str, bytes: Vec<u8>| {
        std::fs::write(place.path().join(name), bytes).expect("written");
    };
    // A fixed multiplicative sequence, from -1 to 1.
    let number = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0;
    let x: Vec<f32> = (0..2000).map(number).collect();
    let each: Vec<f32> = x.chunks(2).map(|v| 2.0 * v[0] - v[1]).collect();
    let positive = |s: &[f32]| f32::from(u8::from(s.iter().step_by(2).sum::<f32>() > 0.0));
    let whole: Vec<f32> = x.chunks(10).map(positive).collect();
    write("train-x.npy", npy("(200, 5, 2)", &x));
    write("train-y.npy", npy("(200, 5, 1)", &each));
    write("events-x.npy", npy("(200, 5, 2)", &x));
    write("events-y.npy", npy("(200, 1)", &whole));
    let model = VECTORS.replace("train.npz", "train-x.npy");
    place.write("v.ode", &model);

    let said = place.good(&["train", "v.ode", "--out", "runs/a"]);
    assert!(
        said.contains("held-out mse ") && !said.contains("nats"),
        "{said}"
    );
    let said = place.good(&["eval", "runs/a"]);
    let mse = said.lines().find_map(|l| l.strip_prefix("mse "));
    let mse: f64 = mse.expect("a line").parse().expect("a number");
    // The mean square of what is predicted is 5/3.
    assert!(mse < 0.05, "{said}");
    assert!(
        said.contains("40 predicted sequences of train-x.npy"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&place.good(&["eval", "runs/a", "--json"])).expect("JSON");
    assert_eq!(
        (&json["mse"], &json["sequences"]),
        (&json["loss"], &40.into())
    );
    assert!(json.get("perplexity").is_none(), "{json}");
    let metrics = place.read("runs/a/metrics.jsonl");
    assert!(metrics.contains("\"sequences_per_s\":"), "{metrics}");

    // Stopped and continued.
    let half = [
        "train",
        "v.ode",
        "--out",
        "runs/b",
        "--set",
        "train.steps=70",
    ];
    place.good(&half);
    place.good(&["train", "--resume", "runs/b", "--steps", "150"]);
    assert!(place.tensors("runs/a") == place.tensors("runs/b"));

    // Whether something happens, read at a class token.
    let events = model
        .replace("train-x", "events-x")
        .replace("loss      mse", "loss      bce")
        .replace(", positions", ", class_token, positions")
        .replace("linear(1, bias)", "linear(1, bias, of: class_token)");
    place.write("e.ode", &events);
    place.good(&["train", "e.ode", "--out", "runs/e"]);
    let said = place.good(&["eval", "runs/e"]);
    let bce = said.lines().find_map(|l| l.strip_prefix("bce "));
    let bce: f64 = bce.expect("a line").parse().expect("a number");
    // Guessing is log 2.
    assert!(bce < 0.5, "{said}");

    // What does not fit is said before training begins, and there is nothing to generate.
    let (code, said) = place.bad(&["train", "e.ode", "--out", "runs/f", "--data", "train-x.npy"]);
    assert!(
        code == 1 && said.contains("targets of these inputs are [200, 1]"),
        "{said}"
    );
    assert!(!place.path().join("runs/f/metrics.jsonl").exists());
    let (_, said) = place.bad(&["generate", "runs/a", "--prompt", "a"]);
    assert!(said.contains("there is nothing to generate"), "{said}");
}

/// Texts end with the separator of the data, whether one is generated or several; with `--past-end` they go on.
#[test]
fn a_text_ends_where_the_model_says_so() {
    let place = Place::new();
    place.write("short.jsonl", &"{\"text\": \"abcd\"}\n".repeat(400));
    let data = "text(\"short.jsonl\", tokenizer: bytes, separator: \"|\")";
    let source = TINY.replace("text(\"corpus.txt\", tokenizer: bytes)", data);
    place.write("ends.ode", &source.replace("steps 30", "steps 80"));
    place.good(&["train", "ends.ode", "--out", "run"]);
    let words = ["generate", "run", "--temperature", "0"];
    let one = [&words[..], &["--prompt", "ab", "--tokens", "12"]].concat();
    assert_eq!(place.good(&one), "abcd\n");
    let on = [&one[..], &["--past-end"]].concat();
    assert_eq!(place.good(&on), "abcd|abcd|abcd\n");
    // The second has one token more than the first before it ends, the third is not done.
    let prompts = ["--prompt", "ab", "--prompt", "cd|a", "--prompt", "d|"];
    let several = [&words[..], &prompts, &["--tokens", "4", "--json"]].concat();
    let said = place.good(&several);
    let said: Vec<serde_json::Value> = (said.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let told: Vec<_> = said
        .iter()
        .map(|t| (t["text"].as_str(), t["ended"].as_bool()))
        .collect();
    let expected = [("cd", true), ("bcd", true), ("abcd", false)];
    assert_eq!(
        told,
        expected.map(|(text, ended)| (Some(text), Some(ended)))
    );
}
