//! Messages about wrong files, as a user sees them: one input for each code, named after it.

use crate::common::{Files, compile_files};
use odec_compiler::codes;
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

#[test]
fn every_code_has_an_input_that_gives_it() {
    for code in codes::ALL {
        let name = format!("{code}.ode");
        let text = std::fs::read_to_string(folder().join(&name)).expect("each code has an input");
        let outcome = compile_files(&name, &text, &mut parts());
        let given: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
        assert!(given.contains(code), "{name} gives {given:?}");
        insta::assert_snapshot!(*code, outcome.rendered());
    }
}

#[test]
fn every_message_has_a_known_code_and_a_place() {
    for code in codes::ALL {
        let name = format!("{code}.ode");
        let text = std::fs::read_to_string(folder().join(&name)).expect("each code has an input");
        let outcome = compile_files(&name, &text, &mut parts());
        for d in &outcome.messages {
            assert!(
                codes::ALL.contains(&d.code),
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
