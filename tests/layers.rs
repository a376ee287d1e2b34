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
            "write {name} anew: odec help {of} > {name}"
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
    for part in ["kv_heads", "[needed]", "[10000]", "q.weight", "Vaswani"] {
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
    let (_, said) = place.bad(&["help", "logit"]);
    assert!(said.contains("did you mean `logits`?"), "{said}");
    let (code, said) = place.bad(&["help", "atention"]);
    assert_eq!(code, 2);
    assert!(said.contains("did you mean `attention`?"), "{said}");
    let out = place.odec(&["help", "nothing_like_it"]);
    assert!(!text(&out.stderr).contains("did you mean"));
}
