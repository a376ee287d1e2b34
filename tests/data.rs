//! Training on what is not plain bytes: a tokenizer, lines of JSON, token files.

#![cfg(all(feature = "mlir", feature = "tokenizers"))]

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
