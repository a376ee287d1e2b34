//! `odec schemes`: the index of the library is what the command prints, and families are found by their folders.

mod place;

use odec_library::shipped;
use place::{Place, text};
use serde_json::Value;
use std::path::Path;

#[test]
fn the_index_of_schemes_is_what_the_command_prints() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemes.md");
    let page = std::fs::read_to_string(page).expect("docs/schemes.md");
    let now = Place::new().good(&["schemes"]);
    let differs = page.lines().zip(now.lines()).find(|(a, b)| a != b);
    assert!(
        page == now,
        "write docs/schemes.md anew: odec schemes > docs/schemes.md\n{differs:#?}"
    );
    let rows = |name: &str| page.matches(&format!("\n| {name} | ")).count();
    for scheme in shipped::library().iter() {
        assert_eq!(rows(scheme.name), 1, "{} has one line", scheme.name);
    }
}

/// Order, stages, embedded order and stability of some that everybody knows.
#[test]
fn known_schemes_have_their_lines() {
    let place = Place::new();
    let all: Vec<Value> =
        serde_json::from_str(&place.good(&["schemes", "runge_kutta", "multistep", "--json"]))
            .expect("JSON");
    for (name, order, size, embedded, proved) in [
        ("rk4", 4, 4, None, "real -2.785"),
        ("dormand_prince", 5, 7, Some(4), "first same as last"),
        ("gauss4", 4, 2, None, "symplectic"),
        ("radau_iia5", 5, 3, None, "L-stable"),
        ("ssp104", 4, 10, None, "SSP 6"),
        ("ab2", 2, 2, None, "real -1"),
        ("bdf2", 2, 2, None, "A-stable"),
    ] {
        let found = all.iter().find(|s| s["name"] == name).expect(name);
        assert_eq!(found["order"], order, "{found}");
        assert_eq!(found["size"], size, "{found}");
        assert_eq!(found["embedded"].as_u64(), embedded, "{found}");
        let said = found["proved"].as_array().expect("a list");
        assert!(said.iter().any(|word| word == proved), "{found}");
    }
    assert!(all.iter().all(|s| s["family"] != "splitting"));
}

#[test]
fn families_are_named_by_their_folder_or_a_part() {
    let place = Place::new();
    let whole = place.good(&["schemes", "runge_kutta/imex"]);
    assert_eq!(whole, place.good(&["schemes", "imex"]));
    assert!(whole.starts_with("## [runge_kutta/imex]"), "{whole}");
    let (code, said) = place.bad(&["schemes", "multistepp"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("there is no family `multistepp`; did you mean `multistep`?"),
        "{said}"
    );
}

/// Progress is for a person at a terminal.
#[test]
fn no_progress_is_printed_into_a_pipe() {
    let place = Place::new();
    for args in [
        &["schemes", "extrapolation"][..],
        &["schemes", "extrapolation", "--json"],
    ] {
        let out = place.odec(args);
        assert!(out.status.success(), "odec {args:?}");
        assert_eq!(text(&out.stderr), "", "odec {args:?}");
    }
}
