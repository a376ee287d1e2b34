//! `--set path=value`: what each path changes, seen in the tree.

use odec_grammar::ast::File;
use odec_grammar::{Sources, dump, parse, set, settable};
use odec_library::shipped;

const TEXT: &str = r#"
scheme mine(F, r = 3) {
  let u = 1/2
  step x { return x + u*h*F(x) }
}
layer mixed(rank, scale: number = 1/2) = linear(rank) |> gelu(hidden: 2*rank, eps: 1) + scale*id
field att = rmsnorm |> attention(heads: 4, causal)
field ffn = rmsnorm |> swiglu(hidden: 16)
field layer = increment(lie(att, ffn))
model small {
  input  tokens(vocab: 256, context: 64)
  embed  learned(width: 8)
  evolve prelude: lie(att, ffn) for 2 steps
  evolve core:    iie(layer) for adaptive(rtol: 1e-3, max: 64) steps { h = 1; weights of time { embed: 128 }; gradient last(n: 8) }
  evolve coda:    mine(layer, r: 1) for 1 step { weights every 2 }
  output rmsnorm |> logits(tied)
  init   normal(std: 0.02)
}
train {
  data text("corpus.txt", tokenizer: bytes)
  optimizer adamw(lr: 1e-3)
  from "runs/old"
  batch 8
}
"#;

fn apply(path: &str, value: &str) -> Result<File, String> {
    let mut sources = Sources::with(shipped::library());
    let source = sources.add("small.ode", TEXT);
    let (mut file, errors) = parse(source, TEXT);
    assert!(errors.is_empty());
    let before = file.clone();
    match set(&mut file, &mut sources, path, value) {
        Ok(()) => Ok(file),
        Err(error) => {
            assert_eq!(file, before, "a failed override changes nothing");
            Err(error.code.to_string())
        }
    }
}

/// The lines of the tree that an override changes or adds.
fn check(path: &str, value: &str, expected: &[&str]) {
    let (before, _) = parse(0, TEXT);
    let before: Vec<String> = dump(&before)
        .lines()
        .map(|line| line.trim().to_string())
        .collect();
    let after = dump(&apply(path, value).unwrap_or_else(|code| panic!("{path}={value}: {code}")));
    let changed: Vec<&str> = after
        .lines()
        .map(str::trim)
        .filter(|line| !before.contains(&line.to_string()))
        .collect();
    assert_eq!(changed, expected, "{path}={value}");
}

#[test]
fn models() {
    check("model.width", "512", &["(embed (learned (width: 512)))"]);
    check("small.width", "512", &["(embed (learned (width: 512)))"]);
    check(
        "model.embed.width",
        "2*16",
        &["(embed (learned (width: (* 2 16))))"],
    );
    check(
        "model.vocab",
        "50257",
        &["(input (tokens (vocab: 50257) (context: 64)))"],
    );
    check(
        "model.input.context",
        "128",
        &["(input (tokens (vocab: 256) (context: 128)))"],
    );
    check("model.std", "0.01", &["(init (normal (std: 0.01))))"]);
}

#[test]
fn evolves() {
    check("model.prelude.steps", "24", &["(steps 24))"]);
    check("model.core.steps", "12", &["(steps 12)"]);
    check(
        "model.core.max",
        "12",
        &["(steps (adaptive (rtol: 1e-3) (max: 12)))"],
    );
    check("model.core.h", "1/steps", &["(h (/ 1 steps))"]);
    check(
        "model.core.embed",
        "64",
        &["(weights (of-time (embed: 64)))"],
    );
    check("model.core.n", "4", &["(gradient (last (n: 4))))"]);
    check("model.coda.every", "3", &["(weights (every 3)))"]);
    check(
        "model.coda.r",
        "[3, 1]",
        &["(flow (mine layer (r: (list 3 1))))"],
    );
    check("model.r", "2", &["(flow (mine layer (r: 2)))"]);
}

/// Arguments the scheme has, `h` and known training entries are added; nothing else is.
#[test]
fn additions() {
    check("model.core.r", "5", &["(flow (iie layer (r: 5)))"]);
    check("model.prelude.h", "1/2", &["(steps 2)", "(h (/ 1 2)))"]);
    check("train.seed", "7", &["(batch 8)", "(seed 7))"]);
    check(
        "train.optimizer.weight_decay",
        "0.1",
        &["(optimizer (adamw (lr: 1e-3) (weight_decay: 0.1)))"],
    );
    assert_eq!(apply("model.prelude.r", "5").unwrap_err(), "unknown-path");
    assert_eq!(apply("model.core.q", "5").unwrap_err(), "unknown-path");
    assert_eq!(apply("train.sede", "5").unwrap_err(), "unknown-path");
    assert_eq!(apply("train.batch.lr", "5").unwrap_err(), "unknown-path");
}

#[test]
fn fields_and_schemes() {
    check(
        "field.ffn.hidden",
        "4*width",
        &["(field ffn (|> rmsnorm (swiglu (hidden: (* 4 width)))))"],
    );
    check(
        "att.heads",
        "2",
        &["(field att (|> rmsnorm (attention (heads: 2) causal)))"],
    );
    check("scheme.mine.r", "4", &["(params F (= r 4))"]);
    check("scheme.mine.u", "1/3", &["(let u (/ 1 3))"]);
}

#[test]
fn training() {
    check("train.batch", "32", &["(batch 32))"]);
    check("train.lr", "3e-4", &["(optimizer (adamw (lr: 3e-4)))"]);
    check(
        "train.optimizer",
        "adamw(lr: 1)",
        &["(optimizer (adamw (lr: 1)))"],
    );
    check(
        "train.data",
        "\"mine.txt\"",
        &["(data (text \"mine.txt\" (tokenizer: bytes)))"],
    );
    check(
        "train.data",
        "tokens(\"t.bin\")",
        &["(data (tokens \"t.bin\"))"],
    );
    // A shell eats the quotes.
    check("train.from", "runs/new", &["(from \"runs/new\")"]);
    check(
        "train.tokenizer",
        "\"gpt2.json\"",
        &["(data (text \"corpus.txt\" (tokenizer: \"gpt2.json\")))"],
    );
}

#[test]
fn refusals() {
    assert_eq!(apply("model.steps", "4").unwrap_err(), "ambiguous-path");
    assert_eq!(
        apply("model.evolve.steps", "4").unwrap_err(),
        "ambiguous-path"
    );
    assert_eq!(apply("", "4").unwrap_err(), "unknown-path");
    assert_eq!(apply("...", "4").unwrap_err(), "unknown-path");
    assert_eq!(apply("model.width", "").unwrap_err(), "syntax");
    assert_eq!(
        apply("model.width", &"(".repeat(1000)).unwrap_err(),
        "nested-too-deeply"
    );
    assert_eq!(
        apply("model.width", &"9".repeat(1000)).unwrap_err(),
        "number-too-long"
    );
    assert_eq!(
        apply("model.width", &"1 ".repeat(1 << 20)).unwrap_err(),
        "too-large"
    );
}

/// Every path that is listed can be set, and every value that a file says is listed.
#[test]
fn all_that_can_be_set_is_listed() {
    let mut sources = Sources::with(shipped::library());
    let source = sources.add("small.ode", TEXT);
    let (mut file, _) = parse(source, TEXT);
    let all = settable(&mut file, &sources);
    for s in &all {
        let mut changed = file.clone();
        let value = s.value.clone().unwrap_or("7".into());
        let done = set(&mut changed, &mut sources, &s.path, &value);
        assert!(done.is_ok(), "{}: {done:?}", s.path);
    }
    let lines = all.iter().map(|s| {
        let value = s.value.as_deref().unwrap_or("-");
        let added = if s.given { "" } else { "+ " };
        format!("{added}{}: {} = {value}", s.path, s.kind.name())
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

/// What has a label is set below it, and what has none without it.
#[test]
fn labels_of_inputs_are_in_paths() {
    let text = "model two {
  input source: tokens(vocab: 11, context: 16)
  input tokens(vocab: 11, context: 16)
  embed source: learned(width: 8)
  evolve a: lie(att, ffn) for 1 step
  embed learned(width: 8)
  evolve b: lie(att, ffn) for 1 step
  output logits
}
";
    let place = |path: &str| {
        let mut sources = Sources::with(shipped::library());
        let source = sources.add("two.ode", text);
        let (mut file, errors) = parse(source, text);
        assert!(errors.is_empty(), "{errors:#?}");
        set(&mut file, &mut sources, path, "99").unwrap_or_else(|d| panic!("{path}: {d:?}"));
        let tree = dump(&file);
        assert_eq!(tree.matches("99").count(), 1, "{path}\n{tree}");
        tree.find("99").unwrap()
    };
    let places = [
        "model.source.context",
        "model.context",
        "model.source.width",
        "model.width",
    ];
    assert!(places.map(place).is_sorted(), "{:?}", places.map(place));
    assert_eq!(place("model.source.input.context"), place(places[0]));
    assert_eq!(place("model.embed.width"), place(places[3]));
}

/// The width of a model is the one that the last part of an embedding makes; the first part's has its name.
#[test]
fn parts_of_an_embedding_have_paths() {
    let text = "model m {
  input tokens(vocab: 11, context: 16)
  embed learned(width: 4) |> linear(width: 8)
  evolve lie(att, ffn) for 1 step
  output logits
}
";
    let changed = |path: &str| {
        let mut sources = Sources::with(shipped::library());
        let source = sources.add("m.ode", text);
        let (mut file, _) = parse(source, text);
        set(&mut file, &mut sources, path, "99").unwrap_or_else(|d| panic!("{path}: {d:?}"));
        dump(&file)
    };
    for path in ["model.width", "model.embed.width"] {
        assert!(changed(path).contains("(linear (width: 99))"), "{path}");
    }
    for path in ["model.learned.width", "model.embed.learned.width"] {
        assert!(changed(path).contains("(learned (width: 99))"), "{path}");
    }
}

/// What a group of parameters says has a path where it has one name.
#[test]
fn groups_of_parameters_have_paths() {
    let text = "train {
  optimizer adamw(lr: 1e-3) except norm { weight_decay: 0 } except q by sgd(lr: 0.1)
  steps 4
}
";
    for (path, want) in [
        (
            "train.optimizer.norm.weight_decay",
            "(except norm (weight_decay: 99))",
        ),
        ("train.optimizer.q.lr", "(except q (by (sgd (lr: 99))))"),
        ("train.optimizer.lr", "(adamw (lr: 99))"),
    ] {
        let mut sources = Sources::with(shipped::library());
        let source = sources.add("groups.ode", text);
        let (mut file, errors) = parse(source, text);
        assert!(errors.is_empty(), "{errors:#?}");
        set(&mut file, &mut sources, path, "99").unwrap_or_else(|d| panic!("{path}: {d:?}"));
        let tree = dump(&file);
        assert!(tree.contains(want), "{path}\n{tree}");
    }
}

/// A call has in its text what was set in it.
#[test]
fn a_value_is_shown_as_it_was_set() {
    let text = "train {
  optimizer adamw(lr: 1e-3, betas: (0.9, 0.95))
  loss      token_loss + 0.1*balance(rate: 2)
}
";
    let mut sources = Sources::with(shipped::library());
    let source = sources.add("values.ode", text);
    let (mut file, errors) = parse(source, text);
    assert!(errors.is_empty(), "{errors:#?}");
    let mut shown = |path: &str, value: &str| {
        if !value.is_empty() {
            set(&mut file, &mut sources, path, value).unwrap_or_else(|d| panic!("{path}: {d:?}"));
        }
        let all = settable(&mut file, &sources).into_iter();
        let of = ["train.optimizer", "train.loss"];
        let all = all.filter(|s| of.contains(&&s.path[..]));
        all.map(|s| (s.value.unwrap(), s.own.unwrap()))
            .collect::<Vec<_>>()
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    let loss = pair(
        "token_loss + 0.1*balance(rate: 2)",
        "token_loss + 0.1*balance",
    );
    let before = pair("adamw(lr: 1e-3, betas: (0.9, 0.95))", "adamw");
    assert_eq!(shown("", ""), [before, loss]);
    let after = pair("adamw(lr: 2e-4, betas: (0.9, 0.95))", "adamw");
    let loss = pair(
        "token_loss + 0.1*balance(rate: 7)",
        "token_loss + 0.1*balance",
    );
    shown("train.lr", "2e-4");
    assert_eq!(shown("train.rate", "7"), [after, loss]);
}

/// Parentheses that a value needs are there when a part of it was set.
#[test]
fn a_value_keeps_its_parentheses() {
    let text = "train {\n  loss 0.1*(token_loss - (balance(rate: 2) - choice/2))\n}\n";
    let mut sources = Sources::with(shipped::library());
    let source = sources.add("values.ode", text);
    let (mut file, errors) = parse(source, text);
    assert!(errors.is_empty(), "{errors:#?}");
    set(&mut file, &mut sources, "train.rate", "7").expect("a path");
    let all = settable(&mut file, &sources).into_iter();
    let loss = all.filter(|s| s.path == "train.loss").map(|s| s.value);
    let want = "0.1*(token_loss - (balance(rate: 7) - choice/2))";
    assert_eq!(loss.collect::<Vec<_>>(), [Some(want.to_string())]);
}
