//! `odec help`: as clap prints it, pages of layers, optimisers and schedules, and the pages of `docs/` that are made of them.

mod place;

use place::{Place, text};
use std::path::Path;

#[test]
fn the_reference_of_layers_is_what_they_declare() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/layers.md");
    let page = std::fs::read_to_string(page).expect("docs/layers.md");
    assert_eq!(
        page,
        Place::new().good(&["help", "layers"]),
        "write docs/layers.md anew: odec help layers > docs/layers.md"
    );
}

#[test]
fn the_reference_of_optimisers_is_what_they_declare() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/optimizers.md");
    let page = std::fs::read_to_string(page).expect("docs/optimizers.md");
    assert_eq!(
        page,
        Place::new().good(&["help", "optimizers"]),
        "write docs/optimizers.md anew: odec help optimizers > docs/optimizers.md"
    );
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
    let (code, said) = place.bad(&["help", "atention"]);
    assert_eq!(code, 2);
    assert!(said.contains("did you mean `attention`?"), "{said}");
    let out = place.odec(&["help", "nothing_like_it"]);
    assert!(!text(&out.stderr).contains("did you mean"));
}
