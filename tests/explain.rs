//! `odec explain`: the codes of errors, what they mean, and files that give them. docs/errors.md says the same.

mod place;

use odec_grammar::codes;
use place::Place;
use serde_json::Value;
use std::path::Path;

#[test]
fn errors_md_is_what_odec_prints() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    let written = std::fs::read_to_string(page).expect("docs/errors.md");
    let now = Place::new().good(&["explain", "--markdown"]);
    assert!(written == now, "write docs/errors.md anew: make pages");
    let titles = now.lines().filter_map(|l| l.strip_prefix("## "));
    let titles: Vec<&str> = titles.collect();
    assert!(titles.is_sorted());
    assert_eq!(titles.len(), codes::all().count());
}

#[test]
fn a_code_is_explained_with_a_file_and_its_message() {
    let place = Place::new();
    let said = place.good(&["explain", "unknown-order"]);
    let example = "scheme faster(F, G) { method extrapolate(gated, 2) }";
    for part in [
        "unknown-order: A method whose order odec does not know",
        "Extrapolate a method whose order is proved",
        example,
        "error[unknown-order]: the order of this method is not known",
        "--> unknown-order.ode:5:",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    // As it is copied from a message.
    assert_eq!(said, place.good(&["explain", "error[unknown-order]"]));
    // A file that imports others, and one whose mistake is on the command line.
    assert!(
        place
            .good(&["explain", "cyclic-import"])
            .contains("parts/cyclic.ode")
    );
    assert!(
        place
            .good(&["explain", "unknown-path"])
            .contains("did you mean `model.width`?")
    );
}

#[test]
fn all_codes_are_listed_and_others_refused() {
    let place = Place::new();
    let list = place.good(&["explain"]);
    assert_eq!(list.lines().count(), codes::all().count());
    for code in codes::all() {
        let line = list
            .lines()
            .find(|l| l.starts_with(&format!("{} ", code.name)));
        assert!(
            line.is_some_and(|l| l.contains(code.meaning)),
            "{}",
            code.name
        );
    }
    let (code, said) = place.bad(&["explain", "not-a-feild"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("there is no error code `not-a-feild`; did you mean `not-a-field`?"),
        "{said}"
    );
    let (code, said) = place.bad(&["explain", "E0308"]);
    assert_eq!(code, 1);
    assert!(said.contains("`odec explain` lists them all"), "{said}");
}

#[test]
fn paths_have_types_and_values() {
    let place = Place::new();
    let said = place.good(&["check", "tiny.ode", "--paths"]);
    for line in [
        "  model.width               number      16",
        "  model.r                   number      1",
        "  train.data                call        text(\"corpus.txt\", tokenizer: bytes)",
        "  train.tokenizer           word        bytes",
        "  train.loss                word        cross_entropy",
        "  train.precision           word        (not set)",
        "  train.from                text        (not set)",
    ] {
        assert!(
            said.lines()
                .any(|l| l.split_whitespace().eq(line.split_whitespace())),
            "{line}\n{said}"
        );
    }
    let json = place.good(&["check", "tiny.ode", "--paths", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let paths = json[0]["paths"].as_array().expect("paths");
    assert_eq!(
        paths.len(),
        said.lines().count() - 1,
        "the same in both forms"
    );
    let width = paths
        .iter()
        .find(|p| p["path"] == "model.width")
        .expect("a width");
    assert_eq!(
        (&width["type"], &width["value"]),
        (&"number".into(), &"16".into())
    );
    let seed = paths
        .iter()
        .find(|p| p["path"] == "train.from")
        .expect("a path");
    assert_eq!(
        (&seed["given"], &seed["value"]),
        (&false.into(), &Value::Null)
    );
}
