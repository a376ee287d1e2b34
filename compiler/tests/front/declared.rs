//! Tests of inputs, embeddings, positions, outputs, data sources and terms of a loss, made of what each declares: examples, parameters, defaults,
//! mistakes.

use crate::common::{Cases, Outcome, compile_text};
use odec_compiler::model::chapters::chapters;
use odec_compiler::model::embeddings::EMBEDDINGS;
use odec_compiler::model::inputs::{INPUTS, Input};
use odec_compiler::model::layers::Sizes;
use odec_compiler::model::outputs::{Embedded, OUTPUTS};
use odec_compiler::model::page::Page;
use odec_grammar::ast::{Body, Expr, Item};
use odec_graph::print;
use std::collections::BTreeSet;

/// Models and their training, a line each. Every kind of tokens that an example makes has a number.
const MODELS: [&[(&str, &str)]; 11] = [
    &[
        ("input", "input tokens(vocab: 300, context: 8)"),
        ("embed", "embed learned(width: 16)"),
        ("output", "output logits"),
        ("data", "data text(\"a.txt\", tokenizer: bytes)"),
        ("loss", "loss cross_entropy"),
    ],
    &[
        ("input", "input patches(image: 8, patch: 2)"),
        ("embed", "embed linear(width: 16)"),
        ("output", "output classes(10)"),
        ("data", "data images(\"a.npz\", classes: 10)"),
        ("loss", "loss cross_entropy"),
    ],
    &[
        (
            "input",
            "input source: tokens(vocab: 300, context: 8)\n  input tokens(vocab: 300, context: 8)",
        ),
        (
            "embed",
            "embed source: learned(width: 16)\n  evolve encoder: euler(f) for 1 step\n  embed tied(source)",
        ),
        (
            "evolve",
            "evolve decoder: euler(rmsnorm |> attention(heads: 2, from: encoder)) for 1 step",
        ),
        ("output", "output logits"),
        ("data", "data pairs(\"a.jsonl\", tokenizer: bytes)"),
        ("loss", "loss cross_entropy"),
    ],
    &[
        ("input", "input vectors(width: 3, context: 8)"),
        ("embed", "embed linear(width: 16)"),
        ("output", "output linear(3)"),
        ("data", "data vectors(\"a.npz\")"),
        ("loss", "loss mse"),
    ],
    &[
        ("input", "input patches(image: 8, patch: 2)"),
        ("embed", "embed linear(width: 16), time_token"),
        ("output", "output linear(4)"),
        ("data", "data images(\"a.npz\", classes: 10)"),
        ("loss", "loss velocity"),
    ],
    &[
        ("input", "input tokens(vocab: 300, context: 8)"),
        (
            "embed",
            "embed learned(width: 16), segments(2, separator: 10)",
        ),
        ("output", "output logits\n  output follows: classes(2)"),
        ("data", "data sentences(\"a.txt\", tokenizer: bytes)"),
        (
            "loss",
            "loss masked(rate: 15%) + cross_entropy(of: follows)",
        ),
    ],
    &[
        ("input", "input tokens(vocab: 300, context: 8)"),
        ("embed", "embed learned(width: 16)"),
        ("output", "output classes(2)"),
        ("data", "data labelled(\"a.jsonl\", tokenizer: bytes)"),
        ("loss", "loss cross_entropy"),
    ],
    // Steps that terms of a loss are about.
    &text_along(
        "evolve euler(rmsnorm |> moe(experts: 2, top_k: 1, hidden: 16)) for 2 steps { weights per step }",
    ),
    &text_along("evolve deq(f, f) for 1 step"),
    &text_along(
        "evolve euler(f) for halting(linear(1) |> sigmoid, max: 2, threshold: 0.99) steps { weights shared }",
    ),
    &text_along(
        "evolve euler(f) for routed(linear(2), max: 2, choice: expert, capacity: [1, 1/2]) steps { weights shared }",
    ),
];

/// A model that predicts the next token of a text.
const fn text_along(evolve: &'static str) -> [(&'static str, &'static str); 6] {
    [
        ("input", "input tokens(vocab: 300, context: 8)"),
        ("embed", "embed learned(width: 16)"),
        ("evolve", evolve),
        ("output", "output logits"),
        ("data", "data text(\"a.txt\", tokenizer: bytes)"),
        ("loss", "loss cross_entropy"),
    ]
}

/// A model in which one line is another: the first that it fits, or the first of all.
fn with_line(line: &str) -> Outcome {
    let word = line.split(' ').next();
    let has = |lines: &&&[(&str, &str)]| lines.iter().any(|(w, _)| word == Some(w));
    let all = MODELS.iter().filter(has);
    let mut all: Vec<Outcome> = all.map(|lines| with_line_in(lines, line)).collect();
    let fits = all.iter().position(|outcome| outcome.checked.is_some());
    all.swap_remove(fits.unwrap_or(0))
}

fn with_line_in(lines: &[(&str, &str)], line: &str) -> Outcome {
    let word = line.split(' ').next();
    let of = |wanted: &str| {
        let known = lines.iter().find(|(w, _)| *w == wanted);
        known.map(|(_, known)| if word == Some(wanted) { line } else { known })
    };
    let evolve = of("evolve").unwrap_or("evolve euler(f) for 1 step");
    let [input, embed, output] = ["input", "embed", "output"].map(|w| of(w).expect("a line"));
    let train = of("data").zip(of("loss")).map(|(data, loss)| {
        format!(
            "train {{\n  {data}\n  {loss}\n  batch 2\n  steps 3\n  optimizer adamw(lr: 1e-3)\n}}\n"
        )
    });
    compile_text(&format!(
        "field f = rmsnorm |> linear\nmodel m {{\n  {input}\n  {embed}\n  {evolve}\n  {output}\n}}\n{}",
        train.unwrap_or_default()
    ))
}

/// Those of the parts whose examples are whole lines; the others are tested in `choices.rs`.
fn pages() -> Vec<Page> {
    let pages = chapters().into_iter().flat_map(|c| c.pages);
    pages
        .filter(|page| !["an optimiser", "a schedule"].contains(&page.kind))
        .collect()
}

/// The call of a part, with one more argument.
fn with_argument(line: &str, name: &str, said: &str) -> String {
    let end = line.rfind(name).expect("its name") + name.len();
    match line[end..].starts_with('(') {
        true => {
            let close = end + line[end..].rfind(')').expect("a bracket");
            format!("{}, {said}{}", &line[..close], &line[close..])
        }
        false => format!("{}({said}){}", &line[..end], &line[end..]),
    }
}

/// All that is made of a model: its graphs, its sizes and what runs are told.
fn made(outcome: &Outcome) -> String {
    let built = outcome.checked().built.as_ref().expect("a model");
    let graphs = [&built.forward, &built.loss].map(print::text);
    let (config, train) = (&built.config, &built.train);
    format!("{}\n{config:?}\n{train:?}", graphs.join("\n"))
}

fn said(line: &str) -> Vec<String> {
    let outcome = with_line(line);
    assert!(outcome.checked.is_none(), "{line} is valid");
    outcome.messages.into_iter().map(|d| d.message).collect()
}

#[test]
fn a_page_is_complete() {
    for chapter in chapters() {
        let names: BTreeSet<&str> = chapter.pages.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names.len(), chapter.pages.len(), "{}", chapter.title);
        assert!(!names.is_empty(), "{}", chapter.title);
    }
    for page in chapters().into_iter().flat_map(|c| c.pages) {
        let name = &page.name;
        assert!(
            page.summary.ends_with('.') && !page.formula.is_empty(),
            "{name}"
        );
        assert!(!page.examples.is_empty(), "{name} has no example");
        for a in &page.arguments {
            let all = [&a.form, &a.default, &a.meaning];
            assert!(all.iter().all(|text| !text.is_empty()), "{name}: {a:?}");
        }
    }
}

#[test]
fn every_example_is_read() {
    for page in pages() {
        for e in &page.examples {
            let outcome = with_line(&e.text);
            assert!(
                outcome.checked.is_some(),
                "{}\n{}",
                e.text,
                outcome.rendered()
            );
        }
    }
}

#[test]
fn parameters_are_those_of_the_model() {
    let mut seen = 0;
    for page in pages() {
        let outcome = with_line(&page.examples[0].text);
        let built = outcome.checked().built.as_ref().expect("a model");
        for p in &page.parameters {
            assert!(built.params.iter().any(|q| q.path == p.path), "{p:?}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

#[test]
fn defaults_are_what_is_meant_where_nothing_is_said() {
    let mut tried = 0;
    for page in pages() {
        for e in &page.examples {
            for a in &page.arguments {
                let given = e.text.contains(&format!("{}:", a.name));
                // What cannot be written is said in words.
                let words = ["needed", "off", "a line end", "the output without a label"];
                if given || words.contains(&a.default.as_str()) {
                    continue;
                }
                let argument = format!("{}: {}", a.name, a.default.trim_matches('`'));
                let more = with_argument(&e.text, &page.name, &argument);
                assert_eq!(made(&with_line(&e.text)), made(&with_line(&more)), "{more}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 2, "{tried}");
}

#[test]
fn mistakes_in_arguments_are_named() {
    for page in pages().iter().filter(|p| !p.arguments.is_empty()) {
        let (name, text) = (&page.name, page.examples[0].text.as_str());
        let unknown = said(&with_argument(text, name, "nonsense: 1"));
        let wanted = format!("`{name}` has no argument `nonsense`");
        assert!(unknown.contains(&wanted), "{text}: {unknown:?}");
        let end = text.rfind(name).expect("its name") + name.len();
        for a in page.arguments.iter().filter(|a| a.default == "needed") {
            let messages = said(&text[..end]);
            let named = |m: &String| m.starts_with(&format!("`{name}` needs "));
            assert!(messages.iter().any(named), "{a:?}: {messages:?}");
        }
    }
}

/// Of a name that is none of a place's, all are listed that are.
#[test]
fn what_may_stand_at_a_place_is_said() {
    for line in ["input f(1)", "embed f(1)", "output f(1)", "data f(1)"] {
        let messages = said(line);
        let expected = |m: &String| m.ends_with("is expected here");
        assert_eq!(
            messages.iter().filter(|m| expected(m)).count(),
            1,
            "{messages:?}"
        );
    }
    let messages = said("data f(1)");
    let wanted =
        "`text`, `sentences`, `tokens`, `images`, `vectors`, `pairs` or `labelled` is expected here"
            .to_string();
    assert!(messages.contains(&wanted), "{messages:?}");
}

/// Two parts make an embedding: a table and a matrix, which the output may read the other way round.
#[test]
fn an_embedding_of_two_parts() {
    let model = |embed: &str, output: &str| {
        compile_text(&format!(
            "field f = rmsnorm |> linear\nmodel m {{\n  input tokens(vocab: 300, context: 8)\n  embed {embed}\n  \
             evolve euler(f) for 1 step\n  output {output}\n}}\n"
        ))
    };
    let outcome = model("learned(width: 4) |> linear(width: 16)", "logits(tied)");
    let params = &outcome.built().params;
    let shape = |path: &str| params.iter().find(|p| p.path == path).map(|p| &p.shape[..]);
    assert_eq!(shape("embed.token.weight"), Some(&[300, 4][..]));
    assert_eq!(shape("embed.linear.weight"), Some(&[16, 4][..]));
    assert_eq!(shape("output.logits.weight"), None);
    assert!(outcome.built().decode.is_some());
    let mut cases = Cases::default();
    for embed in [
        "linear(width: 4) |> linear(width: 16)",
        "learned(width: 4) |> conv(kernel: 3, width: 16)",
        "learned(width: 4) |> linear",
        "learned(width: 4) |> linear(width: 8) |> linear(width: 16)",
    ] {
        let outcome = model(embed, "logits(tied)");
        assert!(outcome.checked.is_none(), "{embed} is valid");
        cases.add(embed, outcome.rendered());
    }
    insta::assert_snapshot!(cases);
}

fn expr(text: &str) -> Expr {
    let (file, _) = odec_grammar::parse(0, &format!("field f = {text}\n"));
    match file.items.into_iter().next() {
        Some(Item::Field(f)) => match f.body {
            Body::Expr(e) => e,
            Body::Block { .. } => panic!("{text}"),
        },
        _ => panic!("{text}"),
    }
}

/// A part that asks for tokens says so of an input that has none.
#[test]
fn parts_that_need_tokens_say_so() {
    let mut sink = Vec::new();
    let at = expr("f").span;
    let tokens = INPUTS.read(&expr("tokens(vocab: 300, context: 8)"), &mut sink);
    let learned = EMBEDDINGS.read(&expr("learned(width: 16)"), &mut sink);
    let tied = OUTPUTS.read(&expr("logits(tied)"), &mut sink);
    let (tokens, learned, tied) = (tokens.unwrap(), learned.unwrap(), tied.unwrap());
    let sizes = |input: &dyn Input| Sizes {
        vocab: input.vocab(),
        context: input.context(),
        width: learned.width(input),
        grid: None,
    };
    learned.fit(at, &*tokens, &mut sink);
    let of = |table| Embedded {
        table,
        class_token: false,
        registers: false,
        own_tokens: false,
    };
    tied.fit(at, sizes(&*tokens), of(learned.table()), &mut sink);
    assert!(sink.is_empty());
    let vectors = INPUTS.read(&expr("vectors(width: 3, context: 8)"), &mut sink);
    let vectors = vectors.unwrap();
    learned.fit(at, &*vectors, &mut sink);
    tied.fit(at, sizes(&*vectors), of(None), &mut sink);
    tied.fit(at, sizes(&*tokens), of(None), &mut sink);
    let said: Vec<&str> = sink.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(
        said,
        [
            "`learned` has a row for each kind of tokens",
            "`logits` are a number for each kind of tokens",
            "`logits(tied)` use the table of an embedding"
        ]
    );
}
