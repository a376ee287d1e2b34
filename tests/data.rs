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
        code == 1 && said.contains("the text of this run has changed"),
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
