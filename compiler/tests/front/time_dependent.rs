//! The time of evaluations, and weights that depend on it: what a step knows of it, what parameters there are, and what is refused.

use crate::common::{compile_text, model};
use odec_compiler::analysis::claims::WITHOUT_TIME;
use odec_compiler::scheme::{Coeff, StageInstr};
use odec_graph::Exact;
use std::collections::BTreeSet;

const WEIGHTS: &str = "weights of time { embed: 2, hidden: 3 }";

fn with(flow: &str, steps: u64, options: &str, definitions: &str) -> String {
    format!("{definitions}\n{}", model(flow, steps, options))
}

/// The times of all evaluations of a flow's first step, in parts of h, field by field in the order of evaluation.
fn nodes(flow: &str, definitions: &str) -> Vec<String> {
    let outcome = compile_text(&with(flow, 4, WEIGHTS, definitions));
    let checked = outcome.checked();
    let program = &checked.programs[checked.programs.len() - 1];
    let node = |i: &StageInstr| match i {
        StageInstr::Eval {
            field,
            when: Some(when),
            ..
        } => {
            let ahead = when.sub(&Coeff::symbol("t")).unwrap();
            let part = ahead.with("h", &Exact::one()).unwrap();
            let name = &program.fields[*field].name;
            Some(format!("{name} {}", part.as_constant().expect("a number")))
        }
        StageInstr::Eval { .. } => panic!("{flow}: no time"),
        _ => None,
    };
    program.instrs.iter().filter_map(node).collect()
}

/// The times of both fields.
fn both(nodes: &[&str]) -> Vec<String> {
    let of = |c: &&str| ["att", "ffn"].map(|f| format!("{f} {c}"));
    nodes.iter().flat_map(of).collect()
}

#[test]
fn fields_are_evaluated_at_the_row_sums_of_the_equivalent_tableau() {
    assert_eq!(nodes("rk4(both)", ""), both(&["0", "1/2", "1/2", "1"]));
    assert_eq!(nodes("kutta3(both)", ""), both(&["0", "1/2", "1"]));
    // Iterates of an implicit method start at the state: their first rows are empty.
    assert_eq!(nodes("iie(both, r: 2)", ""), both(&["0", "1", "1"]));
    // Each field of a splitting has come to a time of its own.
    let strang = ["ffn 0", "ffn 1/2", "att 0", "att 1", "ffn 1/2", "ffn 1"];
    assert_eq!(nodes("strang(ffn by heun, att by heun)", ""), strang);
    // Inside a layer time stands still.
    let layer = both(&["0", "1/2", "1/2", "1"]);
    assert_eq!(nodes("rk4(layer)", ""), layer);
    // A step program, and a time that is said.
    let own = "scheme own(F) { step x { k = F(x)  l = F(x + h/4*k, at: 1/3)  return x + h*(k + F(x + h/3*k + h/3*l)) } }";
    assert_eq!(nodes("own(both)", own), both(&["0", "1/3", "2/3"]));
    // Methods of methods: two halves of a step, and what undoes an explicit Euler step.
    assert_eq!(
        nodes("power(heun, 2)(both)", ""),
        both(&["0", "1/2", "1/2", "1"])
    );
    assert_eq!(
        nodes("extrapolate(euler, 2)(both)", ""),
        both(&["0", "1/2"])
    );
}

#[test]
fn multistep_methods_know_the_end_of_the_step() {
    let definitions = "scheme bdf(F) { multistep { alpha 1 -4/3 1/3; beta 2/3 }  start by euler  solve by fixed_point(iterations: 2) }";
    let found = nodes("bdf(both)", definitions);
    assert!(
        found.iter().all(|n| n == "att 1" || n == "ffn 1"),
        "{found:?}"
    );
}

#[test]
fn a_said_time_is_that_of_its_own_evaluation() {
    let nested = "scheme own(F) { order 2  step x { return x + h*F(x + h/2*F(x), at: 1/2) } }";
    assert_eq!(nodes("own(both)", nested), both(&["0", "1/2"]));
}

/// Paths of parameters, without those outside of the evolve.
fn paths(options: &str) -> BTreeSet<String> {
    let outcome = compile_text(&with("euler(ffn)", 3, options, ""));
    let built = outcome.checked().built.as_ref().unwrap();
    let params = built
        .params
        .iter()
        .map(|p| format!("{} {:?}", p.path, p.shape));
    params.filter(|p| p.starts_with("ffn")).collect()
}

#[test]
fn parameters_belong_to_no_step() {
    let found = paths(WEIGHTS);
    assert_eq!(found, paths(&format!("h = 1/steps;  {WEIGHTS}")));
    let lines: Vec<String> = found.into_iter().collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_same_run_continues_with_other_steps() {
    let of = |steps: u64| {
        let outcome = compile_text(&with("euler(both)", steps, WEIGHTS, ""));
        let built = outcome.checked().built.as_ref().unwrap();
        built.params.clone()
    };
    assert_eq!(of(4), of(9));
}

#[test]
fn a_claim_is_about_fields_without_time_or_about_the_times_of_row_sums() {
    let said = |options: &str, step: &str| {
        let scheme = format!("scheme own(F) {{ order 1  step x {{ {step} }} }}");
        let outcome = compile_text(&with("own(both)", 3, options, &scheme)).on_its_flow();
        assert!(outcome.checked.is_some(), "{}", outcome.rendered());
        let codes = outcome.messages.iter().map(|d| d.code);
        codes.collect::<Vec<_>>()
    };
    let unproved = ["unproved-claim"];
    assert_eq!(said("", "return x + h*(1 + t)*F(x)"), unproved);
    let late = "return x + h*F(x, at: 1/2)";
    assert!(said("", late).is_empty());
    assert_eq!(said(WEIGHTS, late), unproved);
    assert!(said(WEIGHTS, "return x + h*F(x, at: 0)").is_empty());
}

/// Of a value of an earlier step no time is known, so that one beside it cannot be compared with it.
#[test]
fn a_claim_beside_a_time_that_cannot_be_compared_is_one_about_fields_without_time() {
    let multistep = |last: &str| {
        format!(
            "scheme own(F) {{ order 3  step x {{ f = F(x)  p = x + h/12*(23*f - 16*f[-1] + 5*f[-2])
             return x + h/12*(5*F(p{last}) + 8*f - f[-1]) }}  start by kutta3 }}"
        )
    };
    let one_step = |at: &str| {
        format!(
            "scheme own(F) {{ order 2  step x {{ k = F(x)  return x + h*F(x + h/2*k, at: {at}) }} }}"
        )
    };
    let cases = [
        (multistep(", at: 0"), true),
        (multistep(""), false),
        (one_step("0"), true),
        (one_step("1/2"), false),
    ];
    for (scheme, differs) in cases {
        let alone = compile_text(&scheme);
        let claims = &alone.checked().claims;
        let own = claims
            .iter()
            .find(|c| c.scheme == "own")
            .expect("its claim");
        let note = if differs { WITHOUT_TIME } else { "" };
        assert_eq!(own.note, note, "{scheme}");
    }
    let text = with("own(both)", 5, WEIGHTS, &multistep(", at: 0"));
    let outcome = compile_text(&text).on_its_flow();
    let codes: Vec<_> = outcome.messages.iter().map(|d| d.code).collect();
    assert_eq!(codes, ["unproved-claim"], "{}", outcome.rendered());
}

#[test]
fn what_has_no_time_is_refused_where_it_stands() {
    let refused = [
        ("euler(both)", "weights of time { embed: 2 }", ""),
        ("euler(both)", "weights of time { embed: 0, hidden: 3 }", ""),
        (
            "euler(both)",
            "weights of time { embed: 1e9, hidden: 3 }",
            "",
        ),
        (
            "euler(both)",
            "weights of time { embed: 2, hidden: 3, at: centre }",
            "",
        ),
        (
            "euler(both)",
            "weights of time { embed: 2, hidden: 3, vectors: spline }",
            "",
        ),
        (
            "euler(both)",
            "weights of time { embed: 2, hidden: 3, near: 1 }",
            "",
        ),
        ("rk4(phi)", WEIGHTS, ""),
        (
            "own(both)",
            WEIGHTS,
            "scheme own(F) { step x { k = F(x)  return x + h*F(k) } }",
        ),
        (
            "own(both)",
            WEIGHTS,
            "scheme own(F) { step x { return x + h*F(x, at: 1/2, at: 1) } }",
        ),
        (
            "own(both)",
            WEIGHTS,
            "scheme own(F) { step x { return x + h*F(x, at: t) } }",
        ),
        (
            "lie(own(att), own(ffn))",
            WEIGHTS,
            "scheme own(F) { step x { return x + t*F(x) } }",
        ),
        (
            "own(both)",
            "",
            "scheme own(F) { step x { t = F(x)  return x + h*t } }",
        ),
    ];
    let mut shown = Vec::new();
    for (flow, options, definitions) in refused {
        let outcome = compile_text(&with(flow, 3, options, definitions));
        assert!(
            outcome.checked.is_none(),
            "{flow} {options} {definitions} compiles"
        );
        let each = outcome.messages.iter();
        let each = each.map(|d| format!("{}: {} ({})", d.code, d.message, d.labels[0].text));
        shown.push(format!(
            "{flow} {options} {definitions}\n    {}",
            each.collect::<Vec<_>>().join("\n    ")
        ));
    }
    insta::assert_snapshot!(shown.join("\n"));
}
