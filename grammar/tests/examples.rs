//! Every example of the language parses, and every span of its tree lies on its words.

use odec_grammar::ast::{Item, SchemeItem};
use odec_grammar::{dump, parse};
use odec_library::{LibraryScheme, SchemeFile, shipped};

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

/// A few files for each kind of statement that the library has.
const CHOSEN: &[&str] = &[
    "abm4",
    "ars222",
    "deq",
    "encoder_masked",
    "etdrk4",
    "extrapolated_euler4",
    "gpt",
    "grouped",
    "iiet_refresh_layer",
    "learned_tableau",
    "leapfrog",
    "mclachlan4",
    "neural_ode",
    "pcformer",
    "recurrent_depth",
    "rk2_gated",
    "rk4_learned",
    "rkc2",
    "strang",
    "universal",
];

/// The trees of chosen files; tables are shown as stage programs by the compiler's tests.
#[test]
fn trees() {
    for name in CHOSEN {
        let file = shipped::all().iter().find(|file| file.name == *name);
        let (file, _) = parse(0, &file.expect(name).text);
        insta::with_settings!({ snapshot_suffix => format!("{name}.ode") }, {
            insta::assert_snapshot!(dump(&file));
        });
    }
}

/// The trees of the examples that use what the library does not.
#[test]
fn example_trees() {
    insta::glob!("inputs/*.ode", |path| {
        let (file, _) = parse(0, &std::fs::read_to_string(path).unwrap());
        insta::assert_snapshot!(dump(&file));
    });
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
