//! The library's methods: the order of the machine code is the order that is proved, and `docs/methods.md` says so.

mod place;

use odec_library::shipped;
use place::Place;
use serde_json::Value;
use std::path::Path;

/// How far a fitted slope may be from a proved order.
const TOLERANCE: f64 = 0.1;

/// Names of library files that claim an order.
fn claiming() -> Vec<String> {
    let orders = |text: &str| text.lines().any(|l| l.starts_with("  order "));
    let claiming = shipped::library().iter().filter(|s| orders(s.text));
    claiming.map(|s| s.name.to_string()).collect()
}

/// Name, evaluations, claim and proof of each row of `docs/methods.md`.
fn written() -> Vec<[String; 4]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/methods.md");
    let page = std::fs::read_to_string(page).expect("docs/methods.md");
    let rows = page.lines().filter(|l| l.starts_with("| ")).skip(1);
    let cells = rows.map(|l| {
        l.split('|')
            .map(str::trim)
            .map(String::from)
            .collect::<Vec<_>>()
    });
    let row = |c: Vec<String>| [1, 4, 5, 6].map(|i| c[i].clone());
    cells.map(row).collect()
}

/// What `odec methods` says of these, in two processes side by side.
fn measured<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Value> {
    let names: Vec<&str> = names.collect();
    let place = Place::new();
    let run = |names: &[&str]| -> Vec<Value> {
        let json = place.good(&[&["methods", "--json"], names].concat());
        serde_json::from_str(&json).expect("JSON")
    };
    let (first, second) = names.split_at(names.len() / 2);
    std::thread::scope(|s| {
        let second = s.spawn(|| run(second));
        let mut all = run(first);
        all.extend(second.join().expect("the other half"));
        all
    })
}

#[test]
fn machine_code_has_the_orders_that_are_proved() {
    let written = written();
    let all = measured(written.iter().map(|[name, ..]| name.as_str()));
    let name = |m: &Value| m["name"].as_str().expect("a name").to_string();

    let claim = all.iter().filter(|m| !m["claimed"].is_null());
    let mut found: Vec<String> = claim.map(name).collect();
    found.sort();
    assert_eq!(found, claiming());

    let mut wrong = Vec::new();
    for m in &all {
        let Some(proved) = m["proved"].as_f64() else {
            assert!(m["claimed"].is_null(), "{m}");
            continue;
        };
        if cfg!(not(feature = "mlir")) {
            continue;
        }
        // The general system has terms of higher order, which make errors fall faster, never slower.
        let (measured, general) = (m["measured"].as_f64(), m["general"].as_f64());
        if m["claimed"].is_null() && measured.is_none() {
            // A history that grows cannot be unrolled over enough steps.
            continue;
        }
        let close = measured.is_some_and(|q| (q - proved).abs() < TOLERANCE);
        if !close || general.is_none_or(|q| q < proved - TOLERANCE) {
            wrong.push(format!(
                "{}: {proved} proved, {measured:?} measured, {general:?}",
                name(m)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let now = all.iter().map(|m| {
        let claimed = m["claimed"]
            .as_str()
            .map_or("–", |c| c.trim_start_matches("order "));
        let proved = m["proved"].as_u64().map_or("–".into(), |p| p.to_string());
        let evaluations = m["evaluations"].to_string();
        [name(m), evaluations, claimed.into(), proved]
    });
    let now: Vec<[String; 4]> = now.collect();
    assert_eq!(written, now, "write docs/methods.md anew: make pages");
}

#[cfg(feature = "mlir")]
#[test]
fn methods_are_drawn_and_misspelt_ones_named() {
    let place = Place::new();
    place.good(&["methods", "rk4", "ab2", "--svg", "two.svg"]);
    let picture = place.read("two.svg");
    assert_eq!(
        picture.matches("<polyline").count(),
        4,
        "two curves in two panels"
    );
    assert!(picture.contains("order 4, measured"));
    let (code, said) = place.bad(&["methods", "rk5"]);
    assert_eq!(code, 1);
    assert!(said.contains("there is no scheme `rk5`"), "{said}");
    let squared = "scheme squared(F) { step x { y = F(x)  return x + h*y*y } }\n";
    place.write("squared.ode", squared);
    let said = place.good(&["methods", "--file", "squared.ode"]);
    let why = said.lines().last().expect("a reason");
    assert!(why.starts_with("- squared: no order is proved: "), "{said}");
    let mine = "scheme mine {\n  tableau {\n    0   |\n    1/2 | 1/2\n        | 0 1\n  }\n}\n";
    place.write("mine.ode", mine);
    let said = place.good(&["methods", "--file", "mine.ode"]);
    let row = said.lines().last().expect("a row");
    assert!(
        row.starts_with("| mine | tableau | 1 | 2 | – | 2 | 2.0"),
        "{row}"
    );
}
