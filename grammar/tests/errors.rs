//! Every mistake is located and explained: one input per error code. docs/errors.md shows them, rendered, beside the text they are about.
//!
//! An input whose first lines are `// --set path=value` shows what each of these says.

use odec_grammar::codes::{self, PARSING};
use odec_grammar::{Diagnostic, Sources, parse, render, set};
use odec_library::shipped;
use std::collections::BTreeSet;
use std::path::Path;

/// The errors of one input, rendered.
fn check(path: &Path, colour: bool) -> (String, Vec<Diagnostic>) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let mut sources = Sources::with(shipped::library());
    let source = sources.add(name, &text);
    let (file, mut errors) = parse(source, &text);
    for line in text
        .lines()
        .map_while(|line| line.strip_prefix("// --set "))
    {
        let (path, value) = line.split_once('=').unwrap();
        let mut file = file.clone();
        errors.extend(set(&mut file, &mut sources, path, value).err());
    }
    let shown: Vec<String> = errors
        .iter()
        .map(|error| render(error, &sources, colour))
        .collect();
    (shown.join("\n\n"), errors)
}

/// What an input gives, rendered: at least one error with the code it is named after. And whether docs/errors.md would show all of it.
fn shown(path: &Path) -> (String, bool) {
    let (rendered, errors) = check(path, false);
    let code = codes::find(path.file_stem().unwrap().to_str().unwrap()).unwrap();
    let on_page = code.shown(&errors).len();
    assert!(on_page > 0, "{} shows no `{}`", path.display(), code.name);
    (rendered, on_page == errors.len())
}

/// `odec explain` shows these inputs, so they are short. What docs/errors.md shows is compared with what odec prints (`tests/explain.rs`), so
/// only the others need a snapshot.
#[test]
fn errors_are_explained() {
    insta::glob!("errors/*.ode", |path| {
        let (rendered, on_page) = shown(path);
        if !on_page {
            insta::assert_snapshot!(rendered);
        }
    });
}

#[test]
fn more_errors_are_explained() {
    insta::glob!("errors/more/*.ode", |path| {
        insta::assert_snapshot!(shown(path).0);
    });
}

#[test]
fn every_code_has_an_input() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let inputs = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file());
    let inputs: BTreeSet<String> = inputs
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    let codes: BTreeSet<String> = PARSING.iter().map(|code| code.name.to_string()).collect();
    assert_eq!(inputs, codes);
}

#[test]
fn too_large() {
    let text = "field a = rmsnorm\n".repeat(70_000);
    let mut sources = Sources::with(shipped::library());
    let source = sources.add("corpus.ode", &text);
    let (file, errors) = parse(source, &text);
    assert!(file.items.is_empty());
    insta::assert_snapshot!(render(&errors[0], &sources, false));
}

#[test]
fn colour_changes_no_word() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/unknown-keyword.ode");
    let (coloured, plain) = (check(&path, true).0, check(&path, false).0);
    assert!(coloured.contains("\u{1b}["));
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        bare.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(bare + rest, plain);
}

/// Labels may lie in several texts, at their very ends, or outside: rendering never fails.
#[test]
fn labels_in_several_texts() {
    let mut sources = Sources::with(shipped::library());
    let (a, b) = (
        sources.add("a.ode", "field a = rmsnorm\n"),
        sources.add("schemes/b.ode", "/// ü\nscheme a { }"),
    );
    let span = |source, start, end| odec_grammar::Span { source, start, end };
    let error = Diagnostic::error("redefined", span(a, 6, 7), "`a` is defined twice")
        .label("defined here")
        .also(span(b, 14, 15), "and here")
        .also(span(b, 19, 400), "an end")
        .also(span(b, 5, 5), "in the middle of a letter")
        .also(span(77, 0, 1), "nowhere")
        .help("rename one of them");
    insta::assert_snapshot!(render(&error, &sources, false));
}
