//! The pages about the language are true: every example compiles, and the reference lists every word.
//!
//! A block `ode` is a file, or definitions beside a model; `model` holds an evolve, `train` entries of a train block.
//! A block `ode wrong` must be refused.

use crate::common::compile_text;
use odec_compiler::model::chapters::chapters;
use std::collections::BTreeSet;

/// Blocks of a Markdown text that are marked with a language, and the number of the line they begin after.
fn blocks(text: &str) -> Vec<(String, usize, String)> {
    let mut found: Vec<(String, usize, String)> = Vec::new();
    let mut inside = false;
    for (n, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(word) => {
                inside = true;
                found.push((word.to_string(), n + 1, String::new()));
            }
            None if inside => {
                let (_, _, block) = found.last_mut().expect("a block is open");
                *block += line;
                block.push('\n');
            }
            None => {}
        }
    }
    found
}

/// Definitions that examples may use without writing them down.
fn defined(text: &str) -> String {
    let known = [
        ("att", "rmsnorm |> attention(heads: 2, causal, rope)"),
        ("ffn", "rmsnorm |> swiglu(hidden: 24)"),
        ("layer", "increment(lie(att, ffn))"),
    ];
    let missing = known
        .iter()
        .filter(|(name, _)| !text.contains(&format!("field {name} ")));
    missing
        .map(|(name, body)| format!("field {name} = {body}\n"))
        .collect()
}

fn model(evolve: &str) -> String {
    format!(
        "model example {{\n  input tokens(vocab: 256, context: 64)\n  embed learned(width: 16)\n{evolve}\n  output rmsnorm |> logits(tied)\n}}\n"
    )
}

/// The pages that explain the language: their names below `docs/`, and their texts.
fn pages() -> Vec<(String, String)> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    let known = [
        "../README.md",
        "index.md",
        "tutorial.md",
        "reference.md",
        "glossary.md",
    ];
    let mut names: Vec<String> = known.map(str::to_string).to_vec();
    for entry in std::fs::read_dir(format!("{docs}/guide")).unwrap() {
        let name = entry.unwrap().file_name();
        names.push(format!("guide/{}", name.to_str().unwrap()));
    }
    names.sort();
    let read = |name: String| {
        let text = std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn every_example_of_the_pages_compiles() {
    let euler = "  evolve euler(layer) for 2 steps";
    let mut counted = 0;
    for (name, page) in pages() {
        for (words, line, block) in blocks(&page) {
            let block_has_model = block.contains("model ");
            let text = match words.as_str() {
                "ode" | "ode wrong" if block_has_model => block,
                "ode" | "ode wrong" => format!("{block}{}{}", defined(&block), model(euler)),
                "model" => format!("{}{}", defined(""), model(&block)),
                "train" => format!("{}{}train {{\n{block}}}\n", defined(""), model(euler)),
                "console" | "console varies" | "text" | "sh" => continue,
                _ => panic!("docs/{name}:{line}: a block of `{words}`"),
            };
            counted += 1;
            let mut outcome = compile_text(&text);
            if words != "ode" || !block_has_model {
                // Its fields are for models of the reader's.
                outcome = outcome.on_its_flow();
            }
            let good = outcome.checked.is_some() && outcome.messages.is_empty();
            assert!(
                good == (words != "ode wrong"),
                "docs/{name}:{line}:\n{}",
                outcome.rendered()
            );
        }
    }
    assert!(counted >= 40, "{counted} examples");
}

/// The words between backticks in a section of the reference, down to the next heading.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let section = section.lines().take_while(|l| !l.starts_with('#'));
    section
        .flat_map(|l| l.split('`').skip(1).step_by(2))
        .filter_map(|code| code.split([' ', '(']).next())
        .map(str::to_string)
        .collect()
}

/// The words between quotes in a rule of the grammar.
fn words_of(rule: &str) -> BTreeSet<String> {
    let grammar = include_str!("../../../grammar/odec.pest");
    let lines = grammar
        .lines()
        .skip_while(|l| l.split(' ').next() != Some(rule));
    let body = lines.collect::<Vec<_>>().join("\n");
    let body = body.split("~ !letter").next().unwrap();
    body.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect()
}

#[test]
fn the_guide_lists_every_term_of_a_loss() {
    let all = pages();
    let guide = all.iter().find(|(name, _)| name == "guide/losses.md");
    let listed = listed(&guide.expect("the guide").1, "## Summands");
    let chapters = chapters();
    let terms = chapters.iter().find(|c| c.title == "Loss terms");
    for page in &terms.expect("the chapter").pages {
        let name = &page.name;
        assert!(
            listed.contains(name),
            "`{name}` is not in docs/guide/losses.md"
        );
    }
}

#[test]
fn the_reference_lists_every_word() {
    let page = pages()
        .into_iter()
        .find(|(name, _)| name == "reference.md")
        .unwrap()
        .1;
    assert_eq!(listed(&page, "### Keywords"), words_of("keyword"));
    let highlighted = include_str!("../../../docs/theme/ode.js");
    let (_, list) = highlighted.split_once("const KEYWORDS =").unwrap();
    let list = list.split(';').next().unwrap().replace(['"', '+'], " ");
    let list: BTreeSet<String> = list.split_whitespace().map(str::to_string).collect();
    assert_eq!(list, words_of("keyword"), "docs/theme/ode.js");
    let claims = listed(&page, "## Claims");
    for word in words_of("measured").union(&words_of("proved")) {
        assert!(
            claims.contains(word),
            "the claim `{word}` is not in docs/reference.md"
        );
    }
    let unknown = format!(
        "{}{}train {{ zzzz 1 }}\n",
        defined(""),
        model("  evolve euler(layer) for 2 steps")
    );
    let message = compile_text(&unknown).rendered();
    let entries = message
        .split("it has ")
        .nth(1)
        .expect("what there is")
        .lines()
        .next()
        .unwrap();
    let settings = listed(&page, "## Train settings");
    for entry in entries.split(", ") {
        assert!(
            settings.contains(entry),
            "the setting `{entry}` is not in docs/reference.md"
        );
    }
}
