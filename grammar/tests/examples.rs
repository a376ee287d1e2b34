//! Every example of the language parses, and every span of its tree lies on its words.

use odec_grammar::ast::{Item, SchemeItem};
use odec_grammar::{dump, parse};
use odec_library::{LibraryScheme, SchemeFile, shipped};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[test]
fn examples_parse() {
    insta::glob!("inputs/*.ode", |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let (file, errors) = parse(0, &text);
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
        assert!(!file.items.is_empty());
    });
}

/// Schemes whose coefficients are fields of the data, that find an equilibrium or may, or whose steps are random: there is nothing to claim.
const GATED: &[&str] = &[
    "deq",
    "dlcl",
    "equilibrium",
    "euler_maruyama",
    "injected",
    "rk2_gated",
];

/// A library file holds exactly one scheme, named like the file, cited, with a claim; only what learns its coefficients may
/// claim nothing.
#[test]
fn library_is_schemes() {
    assert!(shipped::library().len() >= 8);
    for LibraryScheme { name, text, .. } in shipped::library().iter() {
        let (file, errors) = parse(0, text);
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let [Item::Scheme(scheme)] = &file.items[..] else {
            panic!("{name}: {file:#?}")
        };
        assert_eq!(&scheme.name.name, name);
        assert!(!scheme.doc.is_empty(), "{name} says what it is");
        assert!(
            scheme
                .items
                .iter()
                .any(|item| matches!(item, SchemeItem::Cite { .. })),
            "{name} is cited"
        );
        assert!(
            GATED.contains(name)
                || scheme.items.iter().any(|item| matches!(
                    item,
                    SchemeItem::Order { .. } | SchemeItem::Learn { .. } | SchemeItem::LearnFrom(_)
                )),
            "{name} has a claim or learns"
        );
    }
}

/// A file of a layer holds exactly one, named like the file, with documentation.
#[test]
fn library_has_layers() {
    assert!(shipped::library().layers().count() >= 8);
    for LibraryScheme { name, text, .. } in shipped::library().layers() {
        let (file, errors) = parse(0, text);
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let [Item::Layer(layer)] = &file.items[..] else {
            panic!("{name}: {file:#?}")
        };
        assert_eq!(&layer.name.name, name);
        assert!(!layer.doc.is_empty(), "{name} says what it is");
    }
}

/// The other files of `schemes/` are whole models with their training.
#[test]
fn architectures_are_models() {
    let models = shipped::all().iter().filter(|file| file.is_model());
    for SchemeFile { name, text, .. } in models {
        let (file, errors) = parse(0, text);
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        assert!(file.items.iter().any(|item| matches!(item, Item::Model(model) if model.name.name == *name && !model.doc.is_empty())));
        // Particles are moved, and not trained.
        let moved = text.contains("\n  embed  id\n");
        let trained = file.items.iter().any(|item| matches!(item, Item::Train(_)));
        assert_eq!(trained, !moved, "{name}");
    }
}

/// Files of `inputs/` and of `schemes/` whose trees are shown; few, as `trees` says.
const CHOSEN: &[&str] = &[
    "02_macaron",
    "17_learned_tableau",
    "22_multistep",
    "24_residual_scaling",
    "26_diffeqformer",
    "29_bodies",
    "30_recurrent_depth",
    "32_hopfield",
    "34_explore",
    "attention",
    "bert",
    "crouzeix3",
    "deq",
    "dlcl",
    "encoder",
    "extrapolated_euler4",
    "kencarp3",
    "omelyan4",
    "parallel",
    "pcformer4",
    "rk2_learned",
    "strang_lie",
    "symplectic_euler",
    "translator_rk2",
];

/// Names and texts of the examples, and of the files in `schemes/`.
fn texts() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs");
    let examples = std::fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    });
    let shipped = shipped::all().iter();
    examples
        .chain(shipped.map(|file| (file.name.to_string(), file.text.to_string())))
        .collect()
}

/// Kinds of nodes, what they hold, and operators: `Learn`, `Learn.shared` where it is true, `Range.start` where there is one, `Binary Pow`.
fn kinds(node: &Value, within: &str, seen: &mut BTreeSet<String>) {
    let is_kind = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
    match node {
        Value::Array(nodes) => {
            if let (Some(Value::String(operator)), "Binary") = (nodes.first(), within) {
                seen.insert(format!("Binary {operator}"));
            }
            nodes.iter().for_each(|node| kinds(node, within, seen));
        }
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| *key != "span") {
                let empty = [Value::Null, Value::Bool(false), Value::Array(vec![])];
                match value {
                    _ if empty.contains(value) => continue,
                    Value::String(kind) if ["kind", "len"].contains(&key.as_str()) => {
                        seen.insert(kind.clone())
                    }
                    _ if is_kind(key) => seen.insert(key.clone()),
                    _ => seen.insert(format!("{within}.{key}")),
                };
                kinds(value, if is_kind(key) { key } else { within }, seen);
            }
        }
        _ => {}
    }
}

/// The trees of files that have between them all kinds of nodes which the grammar makes of any example or file of the library. Other trees consist
/// of the same nodes; how expressions of any shape are read is held by `hostile::expressions_read_back`.
#[test]
fn trees() {
    let texts = texts();
    let tree = |name: &str| parse(0, &texts[name]).0;
    let kinds_of = |names: &mut dyn Iterator<Item = &str>| {
        let mut seen = BTreeSet::new();
        names.for_each(|name| kinds(&serde_json::to_value(tree(name)).unwrap(), "", &mut seen));
        seen
    };
    let all = kinds_of(&mut texts.keys().map(String::as_str));
    let chosen = kinds_of(&mut CHOSEN.iter().copied());
    let missing: Vec<_> = all.difference(&chosen).collect();
    assert!(missing.is_empty(), "no chosen file has {missing:?}");
    let shown = CHOSEN
        .iter()
        .map(|name| format!("== {name}\n{}", dump(&tree(name))));
    let shown = shown.collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(shown);
}

/// `/` before a comment is no quotient: the doc comment of the next statement ends an expression.
#[test]
fn doc_comments_end_expressions() {
    let text = "scheme s(F) {\n  let u = 1/2\n  /// The step.\n  F(u)\n}\n";
    let (file, errors) = parse(0, text);
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(
        dump(&file),
        "(scheme s\n  (params F)\n  (let u (/ 1 2))\n  (splitting (F u)))\n"
    );
}
