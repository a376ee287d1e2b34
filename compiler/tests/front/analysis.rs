//! `odec analyze`: reports of schemes whose facts are known, as text, JSON and LaTeX.

use crate::common::{compile_text, model};
use odec_compiler::analysis::page::Screen;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, latex, text};

fn library(name: &str) -> &'static str {
    let known = |(n, _): &&(&str, &str)| *n == name;
    let (_, text) = odec_grammar::LIBRARY.iter().find(known).expect("a file");
    text
}

fn reports(source: &str) -> Vec<Report> {
    let outcome = compile_text(source);
    let checked = outcome.checked();
    let schemes = checked.instances.iter().map(report::scheme);
    schemes
        .chain(checked.evolved.iter().map(report::evolve))
        .collect()
}

#[test]
fn reports_as_text() {
    let names = [
        "rk4",
        "dormand_prince",
        "gauss4",
        "sdirk2",
        "strang",
        "iie",
        "pcformer",
        "ab2",
        "bdf2",
        "ars222",
        "parallel",
        "iiet_refresh",
    ];
    for name in names {
        let all: Vec<String> = reports(library(name)).iter().map(text::text).collect();
        insta::assert_snapshot!(format!("text_{name}"), all.join("\n"));
    }
}

/// Flows of models as they are computed: Macaron with its own weights for each half, Strang kept by Heun's method, a whole layer
/// as one field.
#[test]
fn reports_of_models() {
    let cases = [
        ("macaron", model("strang(ffn, att)", 2, "weights per use")),
        (
            "heun",
            model("strang(ffn by heun, att by heun)", 2, "weights shared"),
        ),
        ("layer", model("rk4(layer)", 2, "")),
        ("hybrid", model("lie(parallel(att, phi), ffn)", 2, "")),
        ("lists", model("iie(layer, r: [1, 2])", 2, "")),
        ("map", model("rk4(phi)", 2, "")),
    ];
    for (name, source) in cases {
        let outcome = compile_text(&source);
        let evolved = outcome.checked().evolved.iter().map(report::evolve);
        let all: Vec<String> = evolved.map(|r| text::text(&r)).collect();
        insta::assert_snapshot!(format!("evolve_{name}"), all.join("\n"));
    }
}

#[test]
fn reports_as_json_and_latex() {
    for name in ["rk4", "strang", "gauss4", "ab2"] {
        let reports = reports(library(name));
        let value = serde_json::to_string_pretty(&json::json(&reports[0])).expect("JSON");
        insta::assert_snapshot!(format!("json_{name}"), value);
        let array = latex::latex(&reports[0]).unwrap_or_default();
        insta::assert_snapshot!(format!("latex_{name}"), array);
    }
}

/// A wide tableau on a narrow screen, in parts that each have their stages' numbers; headings marked where colours are wanted.
#[test]
fn reports_on_a_narrow_screen() {
    let r = &reports(library("dormand_prince8"))[0];
    insta::assert_snapshot!("narrow", text::text_on(r, Screen::of(72, false)));
    let marked = text::text_on(r, Screen::of(72, true));
    assert!(marked.contains("\x1b[1mStability\x1b[0m\n"), "{marked}");
    assert!(!text::text(r).contains('\x1b'));
}

/// What docs/numerics.md shows of Macaron is what the command prints.
#[test]
fn the_example_of_numerics_md_is_real() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/numerics.md");
    let doc = std::fs::read_to_string(path).expect("docs/numerics.md");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemes/macaron.ode");
    let macaron = reports(&std::fs::read_to_string(path).expect("the library has Macaron"));
    assert_eq!(macaron.len(), 2);
    for r in &macaron {
        let lines = text::text(r);
        let shown = lines
            .lines()
            .map(|l| format!("    {l}").trim_end().to_string());
        let shown: Vec<String> = shown.collect();
        let shown = shown.join("\n");
        assert!(doc.contains(&shown), "docs/numerics.md lacks\n{shown}");
    }
}

#[test]
fn json_md_names_all_members() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");
    let doc = std::fs::read_to_string(path).expect("docs/json.md");
    let section = doc.split("## ").find(|s| s.starts_with("`odec analyze"));
    let section = section.expect("a section");
    fn members(v: &serde_json::Value, into: &mut Vec<String>) {
        match v {
            serde_json::Value::Object(fields) => {
                for (key, v) in fields {
                    into.push(key.clone());
                    members(v, into);
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|v| members(v, into)),
            _ => {}
        }
    }
    for name in ["gauss4", "strang", "ab2", "abm4"] {
        let mut all = Vec::new();
        members(&json::json(&reports(library(name))[0]), &mut all);
        for member in all {
            let named = section.contains(&format!("`{member}`"))
                || section.contains(&format!(".{member}`"));
            assert!(named, "`{member}` is not documented");
        }
    }
}

/// Everything in the library has a report; known facts of some: Gauss is A-stable and symplectic, Radau IIA L-stable, the
/// SDIRK of Alexander (1977) L-stable; Ketcheson's SSP(10,4) has coefficient 6.
#[test]
fn the_whole_library() {
    for (name, source) in odec_grammar::LIBRARY {
        // Sixty digits and order ten take seconds without optimisation.
        if ["curtis10", "feagin10", "hairer10", "verner_efficient9"].contains(name) {
            continue;
        }
        for r in reports(source) {
            let said = text::text(&r);
            assert!(said.starts_with(&r.name), "{name}");
            for width in [80, 110] {
                let said = text::text_on(&r, Screen::of(width, false));
                let fits = |l: &str| l.chars().count() <= width;
                assert!(said.lines().all(fits), "{name} on {width} columns:\n{said}");
            }
            json::json(&r);
            let Some(one) = &r.one_field else { continue };
            let stable = one.stability.as_ref().map(|s| (s.a_stable, s.l_stable));
            match r.name.as_str() {
                "gauss4" | "gauss6" | "implicit_midpoint" => {
                    assert_eq!(stable, Some((Some(true), Some(false))), "{name}");
                    assert!(
                        one.properties.symplectic && one.properties.symmetric,
                        "{name}"
                    );
                }
                "radau_iia3" | "radau_iia5" | "sdirk2" | "backward_euler" | "lobatto_iiic4" => {
                    assert_eq!(stable, Some((Some(true), Some(true))), "{name}");
                }
                "ssp104" => {
                    let six = odec_numerics::properties::Ssp::Exactly(odec_graph::Exact::int(6));
                    assert_eq!(one.ssp, Some(six));
                }
                _ => {}
            }
        }
    }
}
