//! `odec analyze`: reports of schemes whose facts are known, as text, JSON and LaTeX.

use crate::common::{Cases, compile_text, model};
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, latex, svg, text};
use odec_compiler::text::page::Screen;
use odec_graph::Exact;
use odec_library::{LibraryScheme, shipped};

fn reports(source: &str) -> Vec<Report> {
    let outcome = compile_text(source);
    let checked = outcome.checked();
    let schemes = checked
        .instances
        .iter()
        .map(|of| report::scheme(of, shipped::library()));
    schemes
        .chain(
            checked
                .evolved
                .iter()
                .map(|of| report::evolve(of, shipped::library())),
        )
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
        let all: Vec<String> = reports(shipped::text(name))
            .iter()
            .map(text::text)
            .collect();
        insta::assert_snapshot!(format!("text_{name}"), all.join("\n"));
    }
}

/// An occurrence with weights of its own that has no weight in the result stands in no equation.
#[test]
fn occurrences_without_a_weight_have_no_order() {
    let scheme = "scheme own(F) { order 2  step x { k = F(x)  return x + h*F(x + h/2*k) } }\n";
    for (policy, flow, order) in [
        ("weights per use", "own(ffn)", None),
        ("weights shared", "own(ffn)", Some(2)),
        ("weights per use", "ars222(ffn, ffn)", None),
        ("weights per use", "strang(ffn, ffn)", Some(1)),
        ("weights per use", "rk4(ffn)", Some(4)),
    ] {
        let outcome = compile_text(&(scheme.to_string() + &model(flow, 2, policy)));
        let found = report::evolve(&outcome.checked().evolved[0], shipped::library()).order;
        match (found, order) {
            (Ok(found), Some(order)) => assert_eq!(found.order, order, "{policy}, {flow}"),
            (Err(no), None) => assert!(no.why.contains("it has no weight"), "{}", no.why),
            (found, _) => panic!("{policy}, {flow}: {:?}", found.map(|f| f.order)),
        }
    }
}

/// Operators that share one field: what the order 0 means, and what it would be if they did not.
#[test]
fn one_field_for_several_operators_is_said_to_be_one() {
    let limit = |policy: &str, flow: &str| {
        let outcome = compile_text(&model(flow, 2, policy));
        let found = report::order_of(&outcome.checked().evolved[0]).expect("an order");
        (found.order, text::brief(&found.limit.expect("a limit")))
    };
    for (policy, flow, parts) in [
        (
            "weights shared",
            "lie(ffn, ffn)",
            [
                "both operators are `ffn`",
                "takes 2 h of it",
                "the order is 1",
            ],
        ),
        (
            "weights per step",
            "strang(ffn, ffn)",
            [
                "both operators are `ffn`",
                "takes 2 h of it",
                "the order is 1",
            ],
        ),
        (
            "weights shared",
            "lie(att, att)",
            ["both operators are `att`", "x' = att", "`weights per use`"],
        ),
    ] {
        let (order, said) = limit(policy, flow);
        assert_eq!(order, 0, "{policy}, {flow}");
        for part in parts {
            assert!(said.contains(part), "{policy}, {flow}: {said}");
        }
    }
    // What it says of other weights and of two fields is true.
    for (policy, flow) in [
        ("weights per use", "lie(ffn, ffn)"),
        ("weights shared", "lie(att, ffn)"),
    ] {
        let (order, said) = limit(policy, flow);
        assert!(
            order == 1 && !said.contains("operators"),
            "{policy}, {flow}: {order}, {said}"
        );
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
    let mut shown = Cases::default();
    for (name, source) in cases {
        let outcome = compile_text(&source);
        let evolved = outcome
            .checked()
            .evolved
            .iter()
            .map(|of| report::evolve(of, shipped::library()));
        let all: Vec<String> = evolved.map(|r| text::text(&r)).collect();
        shown.add(name, all.join("\n"));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn reports_as_json_and_latex() {
    let mut arrays = Cases::default();
    for name in ["rk4", "strang", "gauss4", "ab2"] {
        let reports = reports(shipped::text(name));
        let value = serde_json::to_string_pretty(&json::json(&reports[0])).expect("JSON");
        insta::assert_snapshot!(format!("json_{name}"), value);
        arrays.add(name, latex::latex(&reports[0]).unwrap_or_default());
    }
    insta::assert_snapshot!("latex", arrays);
}

/// What goes beyond the order is said: Lie's splitting is Strang's after a change of variables, Butcher's five stages have effective order 5, the average
/// vector field method with Simpson's rule keeps energy to order 4, an iteration more of the implicit midpoint rule is symplectic to an order more.
#[test]
fn what_goes_beyond_the_order() {
    let said = |source: &str| text::text(&reports(source)[0]);
    let holds = |source: &str, facts: &[&str]| {
        let said = said(source);
        for fact in facts {
            assert!(said.contains(fact), "{fact}\n{said}");
        }
    };
    holds(
        shipped::text("lie"),
        &[
            "x' = A + B + 1/2 h [A, B] + h² (1/12 [A, [A, B]] + 1/12 [[A, B], B])\n",
            "where [A, B] = B'A - A'B",
            "effective order      2\n",
        ],
    );
    let butcher = "scheme butcher5 { tableau { 0 |\n 1/5 | 1/5\n 2/5 | 0 2/5\n 1/2 | 3/16 0 5/16\n 1 | 1/4 0 (-5/4) 2\n | 1/6 0 0 2/3 1/6 } }";
    holds(
        butcher,
        &["order                4\n", "effective order      5\n"],
    );
    let simpson = "scheme vector_field(F) { tableau { 0 | 0 0 0\n 1/2 | 1/12 1/3 1/12\n 1 | 1/6 2/3 1/6\n | 1/6 2/3 1/6 }\n solve by fixed_point(iterations: 3) }";
    holds(simpson, &["energy order         4\n"]);
    let iterated =
        "scheme iterated { tableau { 0 |\n 1/2 | 1/2\n 1/2 | 0 1/2\n 1/2 | 0 0 1/2\n | 0 0 0 1 } }";
    holds(
        iterated,
        &["order                2\n", "symplectic order     4\n"],
    );
    let said = said(shipped::text("rk4"));
    assert!(
        !said.contains("effective order") && !said.contains("energy order"),
        "{said}"
    );
}

/// Chebyshev's method as sums of evaluations, and as Euler steps over the roots of nearly the same polynomial, the shortest first.
#[test]
fn errors_of_stages_depend_on_the_form() {
    let of = |source: &str| {
        let r = &reports(source)[0];
        (r.internal.expect("an explicit method"), text::text(r))
    };
    let (recurrence, said) = of(shipped::text("rkc1"));
    assert!(4.9 < recurrence.least && recurrence.most < 5.1, "{said}");
    assert!(!said.contains("this is large"), "{said}");
    // Each stage is a value of its own: a sum of three terms however many there are.
    let (recurrence, said) = of(&shipped::text("rkc1").replace("s = 5", "s = 20"));
    assert!(recurrence.sums < 10.0 && recurrence.most < 21.0, "{said}");
    let cancels = "scheme cancels(F) { order 1 step x {\n k = F(x)\n y = x + h*k\n return 300000*y - 299999*(x + h*k) + h/1000*(F(y) - k) } }";
    let (cancels, said) = of(cancels);
    assert!(cancels.sums > 5e5, "{said}");
    assert!(
        said.contains("coefficients of states in one sum add up to"),
        "{said}"
    );
    let sizes = [57, 60, 66, 78, 98, 134, 206, 383, 1019, 7899];
    let mut source = "scheme naive(F) { order 1 step x {\n y0 = x\n".to_string();
    for (i, n) in sizes.iter().enumerate() {
        source += &format!(" y{} = y{i} + {n}/10000*h*F(y{i})\n", i + 1);
    }
    let (naive, said) = of(&(source + " return y10 } }"));
    assert!(naive.least > 10_000.0, "{said}");
    assert!(said.contains("this is large"), "{said}");
}

/// A wide tableau on a narrow screen, in parts that each have their stages' numbers; headings marked where colours are wanted.
#[test]
fn reports_on_a_narrow_screen() {
    let r = &reports(shipped::text("dormand_prince8"))[0];
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
    let macaron = reports(shipped::text("macaron"));
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
    for name in ["gauss4", "strang", "imex_euler", "ab2", "abm4"] {
        let mut all = Vec::new();
        members(&json::json(&reports(shipped::text(name))[0]), &mut all);
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
    for LibraryScheme {
        name, text: source, ..
    } in shipped::library().iter()
    {
        // Sixty digits and order ten take seconds without optimisation.
        if ["curtis10", "feagin10", "hairer10", "verner_efficient9"].contains(name) {
            continue;
        }
        for r in reports(source) {
            let mut said = String::new();
            for width in [80, 110] {
                said = text::text_on(&r, Screen::of(width, false));
                assert!(said.starts_with(&r.name), "{name}");
                let fits = |l: &str| l.chars().count() <= width;
                assert!(said.lines().all(fits), "{name} on {width} columns:\n{said}");
            }
            json::json(&r);
            let Some(one) = &r.one_field else { continue };
            if let (Some(s), Some(b)) = (&one.stability, &one.steps) {
                let numbers = s.function.numerator.0.iter();
                let extents = [&s.real, &s.imaginary_squared, &b.dissipation, &b.disc];
                if numbers.clone().all(|c| c.as_rational().is_some()) {
                    assert!(extents.iter().all(|e| e.is_some()), "{name}\n{said}");
                    assert!(b.contractive.is_some() && one.ssp.is_some(), "{name}");
                }
            }
            let stable = one.stability.as_ref().map(|s| (s.a_stable, s.l_stable));
            match r.name.as_str() {
                "gauss4" | "gauss6" | "implicit_midpoint" => {
                    assert_eq!(stable, Some((Some(true), Some(false))), "{name}");
                    assert!(
                        one.properties.symplectic && one.properties.symmetric,
                        "{name}"
                    );
                }
                "radau_iia3" | "radau_iia5" | "radau_iia7" | "sdirk2" | "sdirk3" | "esdirk3"
                | "backward_euler" | "lobatto_iiic4" => {
                    assert_eq!(stable, Some((Some(true), Some(true))), "{name}");
                }
                "ssp104" => {
                    let six = odec_numerics::ssp::Ssp::Exactly(odec_graph::Exact::int(6));
                    assert_eq!(one.ssp, Some(six));
                }
                _ => {}
            }
        }
    }
}

/// An evolve knows its h, the user a bound K: what is stable is said of both, and exactly at the limit. Euler's method is stable up to
/// hK = 2, RK4 on the imaginary axis up to √8.
#[test]
fn stable_steps() {
    let of = |flow: &str, lipschitz: Option<Exact>| {
        let mut all = reports(&model(flow, 4, "h = 1/4"));
        let mut r = all.pop().expect("an evolve");
        r.lipschitz = lipschitz;
        r
    };
    let step = |r: &Report| json::json(r)["stable_step"].clone();
    let r = of("euler(layer)", None);
    assert!(text::text(&r).contains("real decay           hK ≤ 2, K ≤ 8 at h = 1/4"));
    assert_eq!(step(&r)[0]["K"], 8.0);
    assert_eq!(step(&r)[1]["bound"], 0.0);
    assert_eq!(step(&r)[4]["of"], "contractivity");
    let verdicts = |flow: &str, k: Exact| -> Vec<Option<bool>> {
        let all = step(&of(flow, Some(k)));
        let all = all.as_array().expect("bounds").iter();
        all.map(|b| b["stable"].as_bool()).collect()
    };
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(
        verdicts("euler(layer)", Exact::int(7)),
        [yes, no, no, yes, yes]
    );
    assert_eq!(verdicts("euler(layer)", Exact::int(9)), [no; 5]);
    // √8 · 4 = 11.3137…
    assert_eq!(verdicts("rk4(layer)", Exact::ratio(113, 10))[1], yes);
    assert_eq!(verdicts("rk4(layer)", Exact::ratio(114, 10))[1], no);
    assert_eq!(verdicts("rk4(layer)", Exact::ratio(113, 10))[0], no);
}

/// The pictures of docs/ are what is drawn; all others are whole, and only there where there is something to see.
#[test]
fn pictures() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    let drawn = |name: &str| {
        let reports = reports(shipped::text(name));
        svg::pictures(&reports[0])
    };
    for (name, kind) in [
        ("rk4", "region"),
        ("dormand_prince", "tableau"),
        ("gauss4", "star"),
        ("rk4", "oscillation"),
    ] {
        let all = drawn(name);
        let (_, picture) = all.iter().find(|(k, _)| *k == kind).expect(kind);
        let path = format!("{docs}/{name}.{kind}.svg");
        if std::env::var("INSTA_UPDATE").is_ok_and(|v| v == "always") {
            std::fs::write(&path, picture).expect("written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(picture, &kept, "{path} is out of date");
    }
    for name in ["bdf3", "ars222", "backward_euler", "gauss4", "iiet_refresh"] {
        for (kind, picture) in drawn(name) {
            assert!(
                picture.starts_with("<svg") && picture.ends_with("</svg>\n"),
                "{name}"
            );
            let bad = ["NaN", "inf"].iter().any(|b| picture.contains(b));
            assert!(!bad, "{name}.{kind}");
        }
    }
    let kinds = |name: &str| drawn(name).iter().map(|(k, _)| *k).collect::<Vec<_>>();
    assert_eq!(kinds("strang"), ["tableau", "region"]);
    assert_eq!(kinds("bdf3"), ["tableau", "region"]);
    let all = ["tableau", "region", "star", "oscillation"];
    assert_eq!(kinds("heun"), all);
    assert_eq!(svg::stem("rk4(layer) / 2"), "rk4-layer-2");
    assert_eq!(svg::stem("∘"), "flow");
}

/// What would take long is not computed, and the report says so.
#[test]
fn limits_are_said() {
    let long = shipped::text("iie").replace("scheme iie(F, r = 3)", "scheme mine(F, r = 140)");
    let said = text::text(&reports(&long)[0]);
    assert!(
        said.contains("not computed: R has degree 141, above 128"),
        "{said}"
    );

    // Products of numbers with nested roots count for more.
    let all = reports("scheme mine { learn tableau from gauss10 }");
    let learning = all[0].learning.as_ref().and_then(|l| l.as_ref().ok());
    let learning = learning.expect("conditions");
    assert!((2..7).contains(&learning.up_to), "{}", learning.up_to);
    assert!(learning.methods.iter().all(|m| m.order <= learning.up_to));
}
