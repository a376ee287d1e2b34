//! Pairs of texts in a train block: what runs are told, and what does not fit, at its place.

use crate::common::{Outcome, compile_text};
use odec_program::manifest::{Form, Loss, Pairs, Read, Tokenizer, Train};

const MODEL: &str = "field see  = rmsnorm |> attention(heads: 2)
field read = rmsnorm |> attention(heads: 2, from: encoder)
model m {
  input source: tokens(vocab: 262, context: 8)
  input tokens(vocab: 262, context: 8)
  embed source: learned(width: 8)
  evolve encoder: euler(see) for 1 step
  embed tied(source)
  evolve decoder: euler(read) for 1 step
  output rmsnorm |> logits(tied)
}
train {
  data   pairs(\"a.jsonl\", source: \"en\", target: \"de\", tokenizer: bytes)
  loss   cross_entropy
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";
const DATA: &str = "pairs(\"a.jsonl\", source: \"en\", target: \"de\", tokenizer: bytes)";

#[track_caller]
fn changed(from: &str, to: &str) -> Outcome {
    assert_eq!(MODEL.matches(from).count(), 1, "{from}");
    compile_text(&MODEL.replace(from, to))
}

#[track_caller]
fn train(outcome: &Outcome) -> &Train {
    assert_eq!(outcome.rendered(), "");
    let built = outcome.checked().built.as_ref().expect("a model");
    built.train.as_ref().expect("a train block")
}

fn read(input: &str, key: &str) -> Read {
    Read {
        input: input.into(),
        key: key.into(),
    }
}

/// Inputs with labels of their own are read where these say.
#[test]
fn several_texts_may_be_read() {
    let model = MODEL
        .replace("  input source", "  input notes: tokens(vocab: 262, context: 8)\n  input source")
        .replace(
            "  embed source",
            "  embed notes: learned(width: 8)\n  evolve reader: euler(see) for 1 step\n  embed source",
        )
        .replace("euler(read)", "lie(read, rmsnorm |> attention(heads: 2, from: reader))");
    let outcome = compile_text(&model);
    let told = train(&outcome);
    let Form::Pairs(of) = &told.data.form else {
        panic!("{:?}", told.data.form)
    };
    assert_eq!(of.sources, [read("notes", "notes"), read("source", "en")]);
    for (from, to, said) in [
        (
            "notes: tokens(vocab: 262, context: 8)",
            "notes: tokens(vocab: 262, context: 9)",
            "two inputs with labels differ in `context`",
        ),
        (
            "\"a.jsonl\"",
            "\"a.notes\", \"a.de\"",
            "\"a.notes\" has no file of targets behind it",
        ),
        (
            "\"a.jsonl\"",
            "\"a.notes\"",
            "\"a.notes\" has no file of sources behind it",
        ),
        (
            ", from: reader",
            "",
            "nothing of `notes` reaches the output",
        ),
    ] {
        assert_eq!(model.matches(from).count(), 1, "{from}");
        let outcome = compile_text(&model.replace(from, to));
        assert!(outcome.rendered().contains(said), "{}", outcome.rendered());
    }
}

#[test]
fn runs_are_told_the_files_and_the_last_three_tokens() {
    let outcome = compile_text(MODEL);
    let told = train(&outcome);
    let pairs = Pairs {
        tokenizer: Tokenizer::Bytes,
        sources: vec![read("source", "en")],
        target: "de".into(),
        begin: 259,
        end: 260,
        padding: 261,
        skip_longer: false,
    };
    assert_eq!(told.data.form, Form::Pairs(pairs));
    assert_eq!(told.data.files, ["a.jsonl"]);
    let loss = Loss::Pairs { padding: 261 };
    assert_eq!((told.data.held_out_percent, told.loss), (10, loss));
    // What is meant where nothing is said.
    let data =
        "pairs(\"a.tsv\", \"b.en\", \"b.de\", tokenizer: \"none.json\", held_out: 5%, skip_longer)";
    let outcome = changed(DATA, data);
    let told = train(&outcome);
    let Form::Pairs(of) = &told.data.form else {
        panic!("{:?}", told.data.form)
    };
    assert_eq!(of.sources, [read("source", "source")]);
    assert_eq!(of.target, "target");
    assert_eq!(of.tokenizer, Tokenizer::File("none.json".into()));
    assert!(of.skip_longer);
    assert_eq!((told.data.files.len(), told.data.held_out_percent), (3, 5));
    assert_eq!((told.batch, told.tokens), (2, None));
    let outcome = changed("batch  2", "batch  tokens(96);  accumulate 3");
    let told = train(&outcome);
    // No pair is shorter than a token and its end.
    assert_eq!((told.batch, told.tokens), (48, Some(96)));
    assert_eq!(told.tokens_at_once(), Some(32));
    let outcome = changed("cross_entropy", "smooth(1/10) + 1e-4*z_loss");
    assert_eq!(train(&outcome).loss, loss);
}

/// Each mistake is said where it is made: what is said, and the text that is underlined.
#[test]
fn what_does_not_fit_pairs_is_said_at_its_place() {
    let said = |name: &str, outcome: Outcome, parts: [&str; 2]| {
        assert!(outcome.checked.is_none(), "{name} is valid");
        let rendered = outcome.rendered();
        for part in parts {
            assert!(rendered.contains(part), "{name}: {part}\n{rendered}");
        }
    };
    let no_target = "has no file of targets behind it";
    let write = "write `pairs(\"train.en\", \"train.de\", …)`";
    for (name, from, to, parts) in [
        (
            "one sequence",
            DATA,
            "text(\"a.txt\", tokenizer: bytes)",
            ["`text` gives one sequence", "this model reads several"],
        ),
        (
            "tokens alone",
            DATA,
            "tokens(\"a.bin\")",
            ["`tokens` gives one sequence", "this model reads several"],
        ),
        (
            "hidden tokens",
            "cross_entropy",
            "masked(rate: 15%)",
            [
                "`masked` asks for tokens that are hidden",
                "this model makes a second text of a first one",
            ],
        ),
        (
            "one of two files",
            "\"a.jsonl\", ",
            "\"a.en\", ",
            [no_target, write],
        ),
        (
            "a text before a table",
            "\"a.jsonl\", ",
            "\"a.en\", \"b.tsv\", ",
            [no_target, write],
        ),
        (
            "no file",
            "\"a.jsonl\", ",
            "",
            ["`pairs` needs a file", "write `pairs(\"file\", …)`"],
        ),
        (
            "a tokenizer that is none",
            "tokenizer: bytes",
            "tokenizer: words",
            ["this is not a tokenizer", "`bytes`, or the path"],
        ),
        (
            "a key without quotes",
            "\"en\"",
            "en",
            ["`source` is a text", "something in quotes is expected"],
        ),
        (
            "all held out",
            "tokenizer: bytes",
            "tokenizer: bytes, held_out: 100%",
            [
                "of the pairs cannot be held out",
                "from 1% to 50% is expected",
            ],
        ),
    ] {
        said(name, changed(from, to), parts);
    }
    for (name, to, parts) in [
        (
            "no number",
            "tokens()",
            ["`tokens` needs a number", "write `batch tokens(4096)`"],
        ),
        ("a word", "words(64)", ["not a number", "words(64)"]),
        (
            "no room for a text",
            "tokens(7)",
            [
                "a text may have 8 tokens, and a batch 7",
                "`batch tokens(8)` or more",
            ],
        ),
        (
            "no room in a part",
            "tokens(21);  accumulate 3",
            [
                "a text may have 8 tokens, and a batch 7",
                "`batch tokens(24)` or more",
            ],
        ),
        (
            "unequal parts",
            "tokens(64);  accumulate 3",
            [
                "a batch of 64 tokens cannot be cut into 3 equal parts",
                "a divisor",
            ],
        ),
    ] {
        said(name, changed("batch  2", &format!("batch  {to}")), parts);
    }
    let small = compile_text(&MODEL.replace("vocab: 262", "vocab: 258"));
    let needs = "with three special ones bytes are 259 kinds of tokens, the model knows 258";
    said("no room", small, [needs, "tokens(vocab: 259, …)"]);
    let one = MODEL
        .replace("  input source: tokens(vocab: 262, context: 8)\n", "")
        .replace(
            "  embed source: learned(width: 8)\n  evolve encoder: euler(see) for 1 step\n",
            "",
        )
        .replace("tied(source)", "learned(width: 8)")
        .replace(
            "rmsnorm |> attention(heads: 2, from: encoder)",
            "rmsnorm |> attention(heads: 2, causal)",
        );
    let two = "`pairs` are read by models of several sequences";
    said("one", compile_text(&one), [two, "this model reads one"]);
    let rows = one
        .replace("batch  2", "batch  tokens(64)")
        .replace(DATA, "text(\"a.txt\", tokenizer: bytes)");
    let alone = "`pairs` and `labelled` alone have batches of tokens";
    said(
        "no pairs",
        compile_text(&rows),
        [alone, "rows of one length"],
    );
    let images = one
        .replace(
            "tokens(vocab: 262, context: 8)",
            "patches(image: 8, patch: 4)",
        )
        .replace("learned(width: 8)", "linear(width: 8)")
        .replace("logits(tied)", "classes(5)");
    let parts = ["`pairs` gives tokens", "this model reads patches"];
    said("images", compile_text(&images), parts);
}
