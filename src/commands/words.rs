//! Words of the language for `odec help`: what the pages of docs/ say of them, and what layers, other parts and schemes declare of
//! the arguments that have this name. So a word is known once a page or a declaration has it.
//!
//! A row of a table is about the words of the code in its first column, and the arguments in it: `order 4 within 1e-14` about `order` and `within`,
//! `tokens(vocab, context)` about `tokens`, `vocab` and `context`. Where no row and no argument has a word, other words in brackets are looked at, and then the
//! sentences of the reference and the other columns of its tables.

use crate::commands::pages::{Entry, Which, entries, words};
use odec_compiler::model::chapters::chapters;
use odec_compiler::model::page::{self, ArgumentLine};
use odec_driver::library::LIBRARY;
use odec_grammar::ast::{Item, ParamKind};

/// The page of a scheme of the library: its text.
pub fn scheme(name: &str) -> Option<String> {
    let scheme = LIBRARY.get(name).filter(|s| !s.is_layer())?;
    let text: Vec<String> = scheme
        .text
        .lines()
        .map(|line| format!("  {line}").trim_end().to_string())
        .collect();
    Some(format!(
        "{name}, scheme of the library: {}\n\n{}\n\n`odec schemes {name}` prints its order, size and proved properties, `odec methods {name}` its measured order.\n",
        scheme.path(),
        text.join("\n")
    ))
}

/// The page of a word, or of a path of `--set` by its last part. `mentions` of it count where nothing is about it.
pub fn word(name: &str, mentions: bool) -> Option<String> {
    let name = name.rsplit('.').next().unwrap_or(name);
    let all = entries();
    let has = |text: &str, which| words(text, which).contains(&name);
    let rows = || all.iter().filter(|e| e.is_row);
    let mut found: Vec<&Entry> = rows().filter(|e| has(&e.written, Which::Main)).collect();
    let arguments = arguments_called(name);
    if mentions && found.is_empty() && arguments.is_empty() {
        found = rows().filter(|e| has(&e.written, Which::All)).collect();
    }
    if mentions && found.is_empty() && arguments.is_empty() {
        let reference = all.iter().filter(|e| e.is_of_the_reference());
        let all = |e: &&Entry| {
            [&e.written]
                .into_iter()
                .chain(&e.columns)
                .any(|text| has(text, Which::All))
        };
        found = reference.filter(all).collect();
    }
    if found.is_empty() && arguments.is_empty() {
        return None;
    }
    let mut said = format!("{name}, a word of the language\n");
    let mut place = ("", "");
    for e in found {
        if (e.page, e.section) != place {
            place = (e.page, e.section);
            said += &format!("\n{}, {}:\n", e.page, e.section);
        }
        said += &format!("  {}\n", e.written);
        for column in &e.columns {
            said += &format!("      {column}\n");
        }
    }
    if !arguments.is_empty() {
        said += "\nArgument of:\n";
    }
    for (owners, a) in arguments {
        said += &format!(
            "  {}\n      {} [{}]\n",
            owners.join(", "),
            a.form,
            a.default
        );
        if !a.meaning.is_empty() {
            said += &format!("      {}\n", a.meaning);
        }
    }
    Some(said)
}

/// All of them, for near ones.
pub fn all() -> Vec<String> {
    let entries = entries();
    let rows = entries.iter().filter(|e| e.is_row);
    let words = rows.flat_map(|row| words(&row.written, Which::All));
    let mut all: Vec<String> = words.map(String::from).collect();
    all.extend(arguments("").into_iter().map(|(_, a)| a.name));
    all
}

/// The arguments of this name. Those of which the same is said stand together.
fn arguments_called(name: &str) -> Vec<(Vec<String>, ArgumentLine)> {
    let mut found: Vec<(Vec<String>, ArgumentLine)> = Vec::new();
    for (owner, argument) in arguments(name) {
        if argument.name != name {
            continue;
        }
        match found.iter_mut().find(|(_, a)| *a == argument) {
            Some((owners, _)) if owners.contains(&owner) => {}
            Some((owners, _)) => owners.push(owner),
            None => found.push((vec![owner], argument)),
        }
    }
    found
}

/// All arguments with what takes them: of layers, of other parts, and the numbers of the library's schemes that have this word.
fn arguments(word: &str) -> Vec<(String, ArgumentLine)> {
    let mut all = Vec::new();
    let layers = page::names(LIBRARY).map(|n| (n.to_string(), page::arguments(n, LIBRARY)));
    let parts = chapters().into_iter().flat_map(|c| c.pages);
    for (name, arguments) in layers.chain(parts.map(|p| (p.name, p.arguments))) {
        all.extend(arguments.into_iter().map(|a| (name.clone(), a)));
    }
    for file in LIBRARY
        .iter()
        .filter(|s| !s.is_layer() && s.text.contains(word))
    {
        let (tree, _) = odec_grammar::parse(0, file.text);
        for item in tree.items {
            let Item::Scheme(scheme) = item else { continue };
            for param in scheme.params {
                let ParamKind::Value(default) = param.kind else {
                    continue;
                };
                let place = default.span.start as usize..default.span.end as usize;
                let default = file.text.get(place).unwrap_or_default();
                let line = ArgumentLine {
                    name: param.name.name,
                    form: "a number of the scheme".into(),
                    default: default.into(),
                    meaning: String::new(),
                };
                all.push((scheme.name.name.clone(), line));
            }
        }
    }
    all
}
