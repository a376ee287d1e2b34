//! `odec help`: as clap prints it, pages of layers and other parts, and `docs/layers.md` and `docs/parts.md`, which are made of them.

mod place;

use place::{Place, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_references_are_what_layers_and_parts_declare() {
    for of in ["layers", "parts"] {
        let name = format!("docs/{of}.md");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        let page = std::fs::read_to_string(page).expect("the page");
        assert_eq!(
            page,
            Place::new().good(&["help", of]),
            "write {name} anew: make pages"
        );
    }
}

#[test]
fn help_is_that_of_a_command_or_of_a_layer() {
    let place = Place::new();
    assert_eq!(place.good(&["help"]), place.good(&["--help"]));
    assert_eq!(
        place.good(&["help", "build"]),
        place.good(&["build", "--help"])
    );
    // A command, and a block of the language.
    let both = place.good(&["help", "train"]);
    let command = place.good(&["train", "--help"]);
    let word = both.strip_prefix(&command).expect("the command first");
    assert!(word.contains("train, a word of the language") && word.contains("`train { … }`"));
    assert!(!word.contains("train.steps"), "{word}");
    let page = place.good(&["help", "attention"]);
    for part in [
        "kv_heads",
        "[needed]",
        "arguments of `rotary`",
        "q.weight",
        "Vaswani",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let page = place.good(&["help", "sgd"]);
    for part in ["momentum", "[needed]", "[0]", "torch.optim.SGD"] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    // A layer and a schedule.
    let both = place.good(&["help", "linear"]);
    assert!(both.contains("A linear map of") && both.contains("Rises linearly"));
    let (_, said) = place.bad(&["help", "cosin"]);
    assert!(said.contains("did you mean `cosine`?"), "{said}");
    let page = place.good(&["help", "tokens"]);
    for part in [
        "tokens, an input",
        "tokens, a data source",
        "vocab",
        "[10%]",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let page = place.good(&["help", "velocity"]);
    for part in [
        "velocity, a term of a loss",
        "`uniform` or `logit_normal(mean: …, std: …)`",
        "`std` is a number from 0.001 to 100 [1]",
        "Lipman",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let (_, said) = place.bad(&["help", "z_los"]);
    assert!(said.contains("did you mean `z_loss`?"), "{said}");
    let page = place.good(&["help", "when"]);
    assert!(
        page.contains("|> when(rope, rotary(heads: heads))"),
        "{page}"
    );
    let (_, said) = place.bad(&["help", "logit"]);
    assert!(said.contains("did you mean `logits`?"), "{said}");
    let (code, said) = place.bad(&["help", "atention"]);
    assert_eq!(code, 2);
    assert!(said.contains("did you mean `attention`?"), "{said}");
    let out = place.odec(&["help", "nothing_like_it"]);
    assert!(!text(&out.stderr).contains("did you mean"));
}

#[test]
fn help_of_schemes_and_of_words() {
    let place = Place::new();
    let page = place.good(&["help", "rk4"]);
    for part in [
        "scheme of the library: schemes/runge_kutta/explicit/rk4.ode",
        "Kutta (1901)",
        "odec schemes rk4",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let page = place.good(&["help", "order"]);
    assert!(
        page.contains("Claims:\n  `order 4`, `order 4 within 1e-14`\n      of: all\n"),
        "{page}"
    );
    let page = place.good(&["help", "L_stable"]);
    assert!(page.contains("of: methods of one field"), "{page}");
    for (word, near) in [
        ("tableu", "tableau"),
        ("rk44", "rk4"),
        ("A_stabel", "A_stable"),
    ] {
        let (_, said) = place.bad(&["help", word]);
        assert!(said.contains(&format!("did you mean `{near}`?")), "{said}");
    }
    // A command that odec alone gives is not proposed.
    let (_, said) = place.bad(&["trian"]);
    assert!(said.contains("'train'") && !said.contains("__"), "{said}");
}

/// Each of them is printed, with what its columns and arguments are called.
#[test]
fn help_of_words_says_what_each_column_is() {
    let place = Place::new();
    for (word, parts) in [
        (
            "steps",
            &[
                "docs/reference.md, Train settings:\n  `steps 1000`\n      default: required\n      optimiser steps\n",
            ][..],
        ),
        (
            "train.lr",
            &[
                "lr, a word",
                "  adamw, sgd, lion, adafactor\n      a number that is not negative [needed]\n      the rate α",
            ],
        ),
        (
            "routed",
            &["docs/guide/depth.md, ", "who decides: a router"],
        ),
        ("map", &["`increment(Φ)` and `map(Φ)` make a field of it"]),
        ("power", &["`power(S, n)`", "  adafactor\n"]),
        ("r", &["iie", "a number of the scheme ["]),
        (
            "at",
            &[
                "`F(y, at: 1/3)`",
                "[docs/guide/weights.md#time-as-an-input-of-a-field]",
            ],
        ),
        ("keep", &["`keep order 2`", "`keep checkpoints("]),
    ] {
        let page = place.good(&["help", word]);
        for part in parts {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
    // A layer, and a function of numbers.
    let page = place.good(&["help", "exp"]);
    assert!(
        page.starts_with("exp\n") && page.contains("natural logarithm"),
        "{page}"
    );
    let page = place.good(&["help", "in"]);
    assert!(!page.contains("cannot be names"), "{page}");
}

/// The words of the grammar, and the last parts of what `--set` takes of the library's models, but for what a file calls so itself.
#[test]
fn every_word_is_known() {
    let mut words = BTreeSet::new();
    let grammar = include_str!("../grammar/odec.pest");
    let rules = ["k_", "keyword", "measured", "proved"];
    let mut of_rule = false;
    for line in grammar.lines() {
        if !line.starts_with([' ', '}']) {
            of_rule = rules.iter().any(|rule| line.starts_with(rule));
        }
        if of_rule {
            let quoted = line.split('"').skip(1).step_by(2);
            words.extend(quoted.map(String::from));
        }
    }
    assert!(words.len() > 70, "{words:?}");
    let place = Place::new();
    let mut command = vec!["check".to_string(), "--paths".into(), "--json".into()];
    let mut texts = Vec::new();
    for file in odec_library::shipped::all().iter().filter(|f| f.is_model()) {
        command.push(file.path.display().to_string());
        texts.push(file.text.as_str());
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let said: Value = serde_json::from_str(&place.good(&command)).expect("JSON");
    for (file, text) in said.as_array().expect("files").iter().zip(texts) {
        for path in file["paths"].as_array().expect("paths") {
            let path = path["path"].as_str().expect("a path");
            let word = path.rsplit('.').next().expect("a last part");
            let own = ["let ", "learn ", "(", ", "].map(|before| format!("{before}{word} ="));
            if !path.starts_with("layer.") && !own.iter().any(|own| text.contains(own)) {
                words.insert(word.to_string());
            }
        }
    }
    let unknown = |word: &&String| !place.odec(&["help", word]).status.success();
    let unknown: Vec<&String> = words.iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "odec help knows none of {unknown:?}");
}

/// What a user's file says of its own layers and fields.
#[test]
fn help_of_a_file() {
    let place = Place::new();
    let text = r#"/// A gate of two maps.
/// hidden: columns in between
/// example: gated(hidden: 24): narrower than the state
/// source: nobody
layer gated(x: value, hidden = 2*width) {
  gate = x |> linear(hidden)
  learn gain[hidden] = 1
  return gain*sigmoid(gate) |> linear(width)
}
layer needs(x: value, n) = x |> linear(n) |> linear(width)
/// Reads the tokens so far.
field att = rmsnorm |> attention(heads: 2, causal)
field meet(u, v) = u*v |> gated
model m {
  input tokens(vocab: 256, context: 16)
  embed learned(width: 12)
  evolve euler(att) for 2 steps
  output logits
}
"#;
    place.write("own.ode", text);
    let page = |what: &str| place.good(&["help", what, "--file", "own.ode"]);
    for (what, parts) in [
        (
            "gated",
            &[
                "A gate of two maps.",
                "hidden  a whole number from 1 [2*width]\n          columns in between",
                "gated(hidden: 24)\n      narrower than the state",
                "Parameters of the first example, width 12:",
                "gate.weight    [24, 12]",
                "gain           [24], start: 1",
                "learn gain[hidden] = 1",
                "Source: nobody",
            ][..],
        ),
        ("needs", &["n  a whole number from 1 [needed]", "own.ode"]),
        (
            "att",
            &[
                "Reads the tokens so far.",
                "q.weight",
                "per token of a text of 16",
            ],
        ),
        (
            "meet",
            &["u  a value, without a name [needed]", "gate.weight"],
        ),
    ] {
        let page = page(what);
        for part in parts {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
    let list = place.good(&["help", "--file", "own.ode"]);
    let want = "gated  a layer  A gate of two maps.\nneeds  a layer\natt    a field  Reads the tokens so far.\nmeet   a field\n";
    assert_eq!(list, want);
    let (_, said) = place.bad(&["help", "gate", "--file", "own.ode"]);
    assert!(said.contains("did you mean `gated`?"), "{said}");
    place.write("own.ode", &text.replace("hidden: 24", "hiden: 24"));
    let (code, said) = place.bad(&["help", "gated", "--file", "own.ode"]);
    assert!(code == 1 && said.contains("example of `gated`"), "{said}");
}
