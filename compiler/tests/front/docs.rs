//! The language reference is true: every example in `docs/language.md` compiles.

use crate::common::compile_text;

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

#[test]
fn every_example_of_the_reference_compiles() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/language.md");
    let reference = std::fs::read_to_string(path).unwrap();
    let euler = "  evolve euler(layer) for 2 steps";
    let mut counted = 0;
    for (word, line, block) in blocks(&reference) {
        let block_has_model = block.contains("model ");
        let text = match word.as_str() {
            "ode" if block_has_model => block,
            "ode" => format!("{block}{}{}", defined(&block), model(euler)),
            "model" => format!("{}{}", defined(""), model(&block)),
            "train" => format!("{}{}train {{\n{block}}}\n", defined(""), model(euler)),
            _ => panic!("docs/language.md:{line}: a block of `{word}`"),
        };
        counted += 1;
        let mut outcome = compile_text(&text);
        if word != "ode" || !block_has_model {
            // Its fields are for models of the reader's.
            outcome = outcome.on_its_flow();
        }
        assert!(
            outcome.checked.is_some() && outcome.messages.is_empty(),
            "docs/language.md:{line}:\n{}",
            outcome.rendered()
        );
    }
    assert!(counted >= 10, "{counted} examples");
}
