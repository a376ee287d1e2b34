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
        "write docs/schemes.md anew: make pages\n{differs:#?}"
    );
    let rows = |name: &str| page.matches(&format!("\n| {name} | ")).count();
    for scheme in shipped::library().iter() {
        assert_eq!(rows(scheme.name), 1, "{} has one line", scheme.name);
    }
}

/// Order, stages, embedded order and stability of some that everybody knows. The page is what the command prints.
#[test]
fn known_schemes_have_their_lines() {
    let page = include_str!("../docs/schemes.md");
    for begin in [
        "| rk4 | 4 | 4 stages | – | real -2.785,",
        "| dormand_prince | 5 | 7 stages | 4 | ",
        "| gauss4 | 4 | 2 stages | – | A-stable, symplectic,",
        "| radau_iia5 | 5 | 3 stages | – | L-stable,",
        "| ssp104 | 4 | 10 stages | – | ",
        "| ab2 | 2 | 2 steps | – | zero-stable, real -1 |",
        "| bdf2 | 2 | 2 steps | – | zero-stable, A-stable |",
    ] {
        let rows = page.matches(&format!("\n{begin}")).count();
        assert_eq!(rows, 1, "{begin}");
    }
    let ssp = page.lines().find(|l| l.starts_with("| ssp104 |"));
    assert!(ssp.expect("a line").contains(", SSP 6"), "{ssp:?}");

    let json = Place::new().good(&["schemes", "multistep", "extrapolation", "--json"]);
    let all: Vec<Value> = serde_json::from_str(&json).expect("JSON");
    for (name, order, size, embedded, proved) in [
        ("ab2", 2, 2, None, "real -1"),
        ("bdf2", 2, 2, None, "A-stable"),
        ("extrapolated_euler4", 4, 7, Some(3), "real -2.785"),
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
        said.contains("there is no family and no scheme `multistepp`; did you mean `multistep`?"),
        "{said}"
    );
}

#[test]
fn schemes_are_named_alone() {
    let place = Place::new();
    let said = place.good(&["schemes", "strang", "rk4"]);
    let lines: Vec<&str> = said.lines().filter(|l| l.starts_with("| ")).collect();
    let of = |line: &str| line.split('|').nth(1).map(|name| name.trim().to_string());
    let names: Vec<String> = lines.iter().filter_map(|line| of(line)).collect();
    assert_eq!(names, ["scheme", "rk4", "scheme", "strang"], "{said}");
    let (code, said) = place.bad(&["schemes", "rk44"]);
    assert_eq!(code, 1);
    assert!(said.contains("did you mean `rk4`?"), "{said}");
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
