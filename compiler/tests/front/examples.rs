//! Sketches of every system of the language: each compiles, or says which part is not supported yet, and nothing else.

use crate::common::compile_text;

#[test]
fn sketches() {
    let folder = format!("{}/../grammar/tests/inputs", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .expect("sketches")
        .map(|e| e.expect("an entry").path())
        .collect();
    names.sort();
    let mut lines = Vec::new();
    for path in names
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "ode"))
    {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let outcome = compile_text(&std::fs::read_to_string(path).expect("a text"));
        let said: Vec<String> = outcome
            .messages
            .iter()
            .map(|d| format!("\n    {}: {}", d.code, d.message))
            .collect();
        lines.push(format!(
            "{name} {}{}",
            if outcome.checked.is_some() {
                "compiles"
            } else {
                "does not compile"
            },
            said.concat()
        ));
    }
    insta::assert_snapshot!(lines.join("\n"));
}
