//! Spans are exact: the text under every node of every example is that node.

use odec_grammar::{parse, parse_value};
use serde_json::Value;

/// Shows every expression of a serialised tree.
fn expressions(node: &Value, see: &mut impl FnMut(&Value)) {
    // A policy looks like an expression and is none: `per step`.
    let policies = [
        "PerStep",
        "PerUse",
        "Shared",
        "Every",
        "Cycle",
        "TimeDependent",
    ];
    if let (Some(kind), Some(_)) = (node.get("kind"), node.get("span"))
        && !policies
            .iter()
            .any(|policy| kind == policy || kind.get(policy).is_some())
    {
        see(node);
    }
    match node {
        Value::Array(nodes) => nodes.iter().for_each(|node| expressions(node, see)),
        Value::Object(fields) => fields.values().for_each(|node| expressions(node, see)),
        _ => {}
    }
}

/// Shows every name of a serialised tree.
fn names(node: &Value, see: &mut impl FnMut(&str, &Value)) {
    if let (Some(Value::String(name)), Some(span)) = (node.get("name"), node.get("span")) {
        see(name, span);
    }
    match node {
        Value::Array(nodes) => nodes.iter().for_each(|node| names(node, see)),
        Value::Object(fields) => fields.values().for_each(|node| names(node, see)),
        _ => {}
    }
}

fn without_spans(node: &Value) -> Value {
    match node {
        Value::Array(nodes) => nodes.iter().map(without_spans).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| *key != "span");
            Value::Object(
                kept.map(|(key, node)| (key.clone(), without_spans(node)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

fn under<'a>(text: &'a str, span: &Value) -> &'a str {
    let at = |key: &str| span[key].as_u64().unwrap() as usize;
    &text[at("start")..at("end")]
}

#[test]
fn spans_are_exact() {
    let mut seen = 0;
    insta::glob!("inputs/*.ode", |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let tree = serde_json::to_value(parse(0, &text).0).unwrap();
        expressions(&tree, &mut |node| {
            let words = under(&text, &node["span"]);
            let read =
                parse_value(0, words, 0).unwrap_or_else(|error| panic!("{words:?}: {error:?}"));
            let read = serde_json::to_value(read).unwrap();
            assert_eq!(without_spans(&read), without_spans(node), "{words:?}");
            seen += 1;
        });
        names(&tree, &mut |name, span| {
            assert_eq!(under(&text, span), name)
        });
    });
    assert!(seen > 1000, "{seen}");
}

/// Items and statements end with their last word, not with the blanks or comments behind it.
#[test]
fn items_end_where_they_end() {
    insta::glob!("inputs/*.ode", |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let tree = serde_json::to_value(parse(0, &text).0).unwrap();
        for item in tree["items"].as_array().unwrap() {
            let (kind, body) = item.as_object().unwrap().iter().next().unwrap();
            let words = under(&text, &body["span"]);
            assert!(words.starts_with(&kind.to_lowercase()), "{words:?}");
            assert_eq!(words.trim_end(), words);
            for part in body["items"]
                .as_array()
                .or(body["entries"].as_array())
                .into_iter()
                .flatten()
            {
                let Some(span) = part
                    .get("span")
                    .or_else(|| part.as_object()?.values().next()?.get("span"))
                else {
                    continue;
                };
                let words = under(&text, span);
                assert!(
                    !words.is_empty() && words.trim() == words && !words.ends_with(';'),
                    "{words:?}"
                );
            }
        }
    });
}
