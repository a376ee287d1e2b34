//! Messages about wrong files, as a user sees them: one input for each code, named after it.
//! `odec explain` and docs/errors.md show these inputs, so they are short; files in `more/` make other messages with the same codes.

use crate::common::{Files, Outcome, compile_files};
use odec_grammar::codes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors")
}

fn parts() -> Files {
    let mut files = Files::default();
    for entry in std::fs::read_dir(folder().join("parts")).expect("a folder of imported files") {
        let path = entry.expect("an entry").path();
        let name = format!(
            "parts/{}",
            path.file_name().unwrap_or_default().to_string_lossy()
        );
        files
            .0
            .insert(name, std::fs::read_to_string(&path).expect("a text"));
    }
    files
}

/// What an input of this folder gives.
fn outcome(name: &str) -> Outcome {
    let text = std::fs::read_to_string(folder().join(name)).expect(name);
    compile_files(name, &text, &mut parts())
}

/// The inputs of this folder and of `more/`.
fn inputs() -> Vec<String> {
    let entries = |under: &str| {
        let entries = std::fs::read_dir(folder().join(under)).expect("a folder of inputs");
        let names = entries.map(|e| e.expect("an entry").file_name());
        let names = names.map(|n| format!("{under}{}", n.to_string_lossy()));
        names.filter(|n| n.ends_with(".ode")).collect::<Vec<_>>()
    };
    let mut all = [entries(""), entries("more/")].concat();
    all.sort();
    all
}

#[test]
fn every_code_has_an_input_that_gives_it() {
    for code in codes::CHECKING.iter().map(|c| c.name) {
        let name = format!("{code}.ode");
        let outcome = outcome(&name);
        let given: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
        assert!(given.contains(&code), "{name} gives {given:?}");
    }
}

#[test]
fn every_input_has_the_name_of_a_code() {
    let inputs = inputs().into_iter().filter(|name| !name.contains('/'));
    let inputs: BTreeSet<String> = inputs.collect();
    let named = codes::CHECKING.iter().map(|c| format!("{}.ode", c.name));
    assert_eq!(inputs, named.collect());
}

/// The messages about an input in `more/`, and about one of which docs/errors.md does not show them all. That page is compared with what odec
/// prints (`tests/explain.rs`), so the others need no snapshot.
#[test]
fn messages_are_rendered() {
    for name in inputs() {
        let stem = name.trim_end_matches(".ode");
        let outcome = outcome(&name);
        let code = codes::find(stem);
        if code.is_none_or(|c| c.shown(&outcome.messages).len() < outcome.messages.len()) {
            insta::assert_snapshot!(stem.replace('/', "-"), outcome.rendered());
        }
    }
}

#[test]
fn every_message_has_a_known_code_and_a_place() {
    for name in inputs() {
        let outcome = outcome(&name);
        for d in &outcome.messages {
            assert!(
                codes::find(d.code).is_some(),
                "{name}: `{}` is not listed",
                d.code
            );
            for l in &d.labels {
                let text = outcome.sources.text(l.span.source);
                assert!(
                    text.get(l.span.start as usize..l.span.end as usize)
                        .is_some_and(|s| !s.is_empty()),
                    "{name}: {d:?}"
                );
            }
        }
    }
}

#[test]
fn codes_are_in_order_and_explained() {
    for list in [codes::CHECKING, codes::PARSING] {
        assert!(list.is_sorted_by_key(|c| c.name));
        for code in list {
            let plain = code
                .name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '-');
            assert!(plain, "{}", code.name);
            for sentence in [code.meaning, code.remedy] {
                assert!(sentence.len() > 10 && sentence.ends_with('.'), "{sentence}");
            }
        }
    }
}
