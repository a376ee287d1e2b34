//! `odec help`: as clap prints it, pages of layers and other parts, and `docs/layers.md` and `docs/parts.md`, which are made of them.

mod place;

use place::{Place, text};
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
        place.good(&["help", "train"]),
        place.good(&["train", "--help"])
    );
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

/// What a user's file says of its own layers and fields.
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
        page.contains("Claims:\n  `order 4`, `order 4 within 1e-14`\n      of all\n"),
        "{page}"
    );
    let page = place.good(&["help", "L_stable"]);
    assert!(page.contains("of methods of one field"), "{page}");
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
