//! The time of evaluations, and weights that depend on it: what a step knows of it, what parameters there are, and what is refused.

use crate::common::{compile_text, model};
use crate::slopes::{Random, flow, scheme};
use odec_compiler::analysis::claims::WITHOUT_TIME;
use odec_compiler::measure::graph::fields;
use odec_compiler::scheme::per_use::SHARED;
use odec_compiler::scheme::run::Grid;
use odec_compiler::scheme::stage::Phase;
use odec_compiler::scheme::unroll::{Unrolled, unroll};
use odec_compiler::scheme::{Coeff, Combination, Moment, StageInstr, ValueId};
use odec_graph::Exact;
use std::collections::{BTreeMap, BTreeSet};

const WEIGHTS: &str = "weights of time { embed: 2, hidden: 3 }";

fn with(flow: &str, steps: u64, options: &str, definitions: &str) -> String {
    format!("{definitions}\n{}", model(flow, steps, options))
}

/// The times of all evaluations of a flow's last program, in parts of h, field by field in the order of evaluation.
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
    // So has one field that is given for both.
    let twice = ["ffn 0", "ffn 0", "ffn 1/2"];
    assert_eq!(nodes("strang(ffn, ffn)", ""), twice);
    assert_eq!(nodes("strang(layer, layer)", "")[..2], both(&["0"]));
    let own =
        "scheme own(A, B) { step x { y = x + h*A(x) + h*B(x)  return x + h/2*(A(y) + B(y)) } }";
    assert_eq!(
        nodes("own(ffn, ffn)", own),
        ["ffn 0", "ffn 0", "ffn 1", "ffn 1"]
    );
    let kept = "scheme own(A, B) { step x { a = A(x)  b = B(x)  return x + h*A(x + h*a[-1]) + h*B(x + h/3*b[-1]) } }";
    assert_eq!(nodes("own(ffn, ffn)", kept)[2..], ["ffn 1", "ffn 1/3"]);
    let inner = "scheme own(A, B) { lie(A, B)(1/2) lie(B, A)(1/2) }";
    assert_eq!(
        nodes("own(ffn, ffn)", inner),
        ["ffn 0", "ffn 0", "ffn 1/2", "ffn 1/2"]
    );
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

/// Weights of the end of the step are so in every evaluation; the start is no step.
#[test]
fn weights_of_the_end_of_a_step() {
    let right = "weights of time { embed: 2, hidden: 3, at: right }";
    let at_end = |flow: &str, options: &str, definitions: &str| {
        let outcome = compile_text(&with(flow, 3, options, definitions));
        outcome
            .checked()
            .evolved
            .iter()
            .map(|e| e.at_end)
            .collect::<Vec<_>>()
    };
    assert_eq!(at_end("rk4(both)", right, ""), [true]);
    assert_eq!(at_end("rk4(both)", WEIGHTS, ""), [false]);
    let started = "scheme own(F) { start { z = F(x) } step x { return x + h*F(x + z) } }";
    assert_eq!(at_end("own(both)", right, started), [true]);
}

#[test]
fn a_said_time_is_that_of_its_own_evaluation() {
    let nested = "scheme own(F) { order 2  step x { return x + h*F(x + h/2*F(x), at: 1/2) } }";
    assert_eq!(nodes("own(both)", nested), both(&["0", "1/2"]));
}

#[test]
fn values_of_earlier_steps_have_the_times_of_their_steps() {
    for scheme in ["abm4", "hamming5", "milne_pece4"] {
        assert_eq!(nodes(&format!("{scheme}(both)"), ""), both(&["0", "1"]));
    }
    // In a model, in a layer too, whose inside stands still.
    for fields in ["both", "layer"] {
        let found = nodes(&format!("butcher_hybrid5({fields})"), "");
        assert_eq!(found, both(&["0", "1/2", "1"]), "{fields}");
    }
    let own = |body: &str| format!("scheme own(F) {{ {body} }}");
    // The state before.
    let before = own("step x { return x + h*F(x[-1]) + h*F(3*x[-1] - 2*x[-2]) }  start by euler");
    assert_eq!(nodes("own(both)", &before), both(&["-1", "1"]));
    // What `start` sets once stays at time 0, and moves no later value.
    let start = own("start { e = x }  step x { return x + h*F(x + e) }");
    assert_eq!(nodes("own(both)", &start), both(&["0"]));
}

/// `start` has no step size: what it evaluates is at time 0, and what it made moves later states by the step sizes that it is multiplied with.
#[test]
fn time_stands_still_before_the_first_step() {
    let of_start = |body: &str| {
        let own = format!("scheme own(F) {{ {body} }}");
        let outcome = compile_text(&with("own(ffn)", 4, &format!("h = 1/4;  {WEIGHTS}"), &own));
        let checked = outcome.checked();
        let programs = checked.programs.iter();
        let own = programs.filter(|p| p.title.starts_with("own(ffn)"));
        let times = own.map(|p| {
            let when = p.instrs.iter().filter_map(|i| match i {
                StageInstr::Eval { when, .. } => Some(when.as_ref().expect("a time").to_string()),
                _ => None,
            });
            when.collect::<Vec<_>>()
        });
        times.collect::<Vec<_>>()
    };
    // A state that is changed before the first step is at time 0 there, as the first step begins with it.
    let changed = "start { x = x + F(x)  z = F(x) }  step x { return x + h*F(x + h*z) }";
    assert_eq!(of_start(changed), [vec!["t", "t"], vec!["h + t"]]);
    let replaced = "start { x = F(x)  z = F(x) }  step x { return x + h*F(x) + h*z }";
    assert_eq!(of_start(replaced), [vec!["t", "t"], vec!["t"]]);
    // An input that each step reads anew, as a state or as what a field makes of it.
    for made in ["x", "F(x)", "x + F(x)"] {
        let read = format!("start {{ z = {made} }}  step x {{ return x + h*F(x + z) }}");
        assert_eq!(*of_start(&read).last().unwrap(), ["t"], "{made}");
    }
    // A rate.
    let read = "start { z = F(x) }  step x { return x + h*F(x + z/2 + h/3*z) }";
    assert_eq!(*of_start(read).last().unwrap(), ["1/3*h + t"]);
    // In a history it is one as those of later steps.
    let history = "start { f = F(x) }  step x { f = F(x + h*f[-1])  return x + h*f }";
    assert_eq!(*of_start(history).last().unwrap(), ["h + t"]);
}

/// With weights of the end of a step the layer `time` still reads when its field is evaluated, and the printed programs say both.
#[test]
fn weights_of_the_end_leave_evaluations_their_times() {
    let definitions = "field own = time(embed: 7) |> linear(width)";
    let right = "weights of time { embed: 2, hidden: 3, at: right }";
    let outcome = compile_text(&with(
        "rk4(own)",
        2,
        &format!("h = 1/2;  {right}"),
        definitions,
    ));
    let checked = outcome.checked();
    let graph = odec_graph::print::text(&checked.built.as_ref().unwrap().forward);
    let tables = |columns: &str| -> BTreeSet<String> {
        let lines = graph
            .lines()
            .filter(|l| l.contains("= table() kind=time") && l.contains(columns));
        let times = lines.filter_map(|l| l.split(" t=").nth(1)?.split(' ').next());
        times.map(str::to_string).collect()
    };
    let set = |times: &[&str]| {
        times
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(tables("[1, 7]"), set(&["0", "0.25", "0.5", "0.75", "1"]));
    assert_eq!(tables("[1, 5]"), set(&["0.5", "1"]));
    let text = checked.stages();
    let said = "\n  // weights of own at t + h, the end of the step\n  k1 = own(x) at t\n";
    assert!(text.contains(said), "{text}");
    assert!(odec_compiler::scheme::text::parse(&text).is_ok(), "{text}");
    let left = compile_text(&with("rk4(own)", 2, WEIGHTS, definitions));
    assert!(!left.checked().stages().contains("//"));
}

/// Learned coefficients count with their initial values, of which a long history has more than one sum of symbols holds.
#[test]
fn times_beside_learned_coefficients_are_those_at_the_start() {
    let long = compile_text(&with("iiet_refresh(ffn)", 70, WEIGHTS, ""));
    assert!(long.checked.is_some(), "{}", long.rendered());
    let own = "scheme own(F) { learn c = 1/3  step x { f = F(x)  g = F(x[-1] + h*f)  return x + h*F(x + c*h*g) }  start by euler }";
    assert_eq!(nodes("own(ffn)", own), ["ffn 0", "ffn 0", "ffn 1/3"]);
}

/// Steps that are looked at.
const STEPS: usize = 8;

fn timed(text: &str, sizes: &[Exact]) -> Unrolled {
    let flow = flow(text);
    let flows = [(flow.clone(), "s".to_string())];
    let equal = sizes.iter().all(|h| *h == sizes[0]);
    let grid = Grid {
        sizes: if equal { &[] } else { sizes },
        learned: false,
    };
    let mut sink = Vec::new();
    let all = unroll(
        &flows,
        (sizes.len(), grid),
        true,
        &SHARED,
        flow.span,
        &mut sink,
    );
    all.unwrap_or_else(|| panic!("{sink:?}: {text}"))
}

/// Of each evaluation of a field its time, where it is known, and what a component of the state with rate 1 is at its argument, which is
/// `origin` at the start; as long as the states before have the times of their steps.
fn evaluations(
    all: &Unrolled,
    name: &str,
    sizes: &[Exact],
    origin: &Exact,
) -> Vec<(Option<Exact>, Exact)> {
    let (mut x, mut t) = (origin.clone(), origin.clone());
    let mut past: Vec<BTreeMap<String, Exact>> = Vec::new();
    let mut found = Vec::new();
    for (phase, number) in all.phases() {
        let program = &all.programs[number];
        let h = match phase {
            Phase::Start => &sizes[0],
            Phase::Step(k) => &sizes[k],
        };
        let number = |c: &Coeff| {
            let known = |s: &str| match s {
                "h" => Some(h.clone()),
                "t" => Some(t.clone()),
                _ => None,
            };
            c.at(&known).expect("nothing is learned")
        };
        let sum = |c: &Combination, values: &[Exact]| -> Exact {
            let term = |(v, c): (ValueId, &Coeff)| &number(c) * &values[v.0 as usize];
            c.terms().map(term).sum()
        };
        let mut values = vec![x.clone()];
        for i in &program.instrs {
            let value = |v: &ValueId| &values[v.0 as usize];
            let made = match i {
                StageInstr::Combine(c) => sum(c, &values),
                StageInstr::Eval { field, .. } if program.fields[*field].name != name => {
                    Exact::zero()
                }
                StageInstr::Eval { at, when, .. } => {
                    found.push((when.as_ref().map(number), value(&at[0]).clone()));
                    Exact::one()
                }
                StageInstr::Phi { index, at, .. } => {
                    let whole: i64 = (1..=i64::from(*index)).product();
                    value(at) * &Exact::ratio(1, whole)
                }
                StageInstr::Past {
                    name,
                    when: Moment::Ago(n),
                } => past[past.len() - n][name].clone(),
                StageInstr::Mix { of, seen, .. } => value(&seen[0][*of][1]).clone(),
                other => panic!("{other:?}"),
            };
            values.push(made);
        }
        let kept = program.keeps.iter();
        let kept = kept.map(|(n, v)| (n.clone(), values[v.0 as usize].clone()));
        past.push(kept.collect());
        x = sum(&program.result, &values);
        if matches!(phase, Phase::Step(_)) {
            t = &t + h;
        }
        if x != t {
            break;
        }
    }
    found
}

/// Times are what a component of the state with rate 1 is, exactly, and are known wherever that is a time: later by as much as the start is.
/// Gives how many are known.
fn times_are_components(text: &str, sizes: &[Exact]) -> usize {
    let all = timed(text, sizes);
    let mut known = 0;
    for name in fields(&all).into_keys() {
        let [early, late] =
            [0, 1].map(|t| evaluations(&all, &name, sizes, &Exact::int(t)).into_iter());
        for ((when, own), (_, later)) in early.zip(late) {
            let is_time = &later - &own == Exact::one();
            assert_eq!(when, is_time.then_some(own), "{name}\n{text}");
            known += usize::from(is_time);
        }
    }
    known
}

/// Steps of one size, and of two that come again and again.
fn grids() -> [Vec<Exact>; 2] {
    let unequal = (0..STEPS).map(|k| Exact::ratio([3, 2][k % 2], 20));
    [vec![Exact::ratio(1, 8); STEPS], unequal.collect()]
}

#[test]
fn times_are_components_of_the_state_in_random_programs() {
    let (mut random, mut known) = (Random(3), 0);
    for _ in 0..100 {
        let text = scheme(&mut random);
        for sizes in grids() {
            let more = times_are_components(&text, &sizes);
            known += if text.contains("[-") { more } else { 0 };
        }
    }
    assert!(known > 3000, "{known}");
}

#[test]
fn times_of_what_differs_from_step_to_step() {
    let programs = [
        "scheme s(F) { step x { f = F(x)  s = s[-1] + h*f  return x + h*F(x + s - s[-1]) }  start { s = 0*x } }",
        "scheme s(F) { step x { f = F(x)  return x + h*F(x + h*f - h*(sum j in 1.. { f[-j] - f })) }  start { f = F(x) } }",
        "scheme s(F) { step x { f = F(x)  y = x + h*f  return x + h*F(2*y - y[-1]) }  start by heun }",
    ];
    for text in programs {
        for sizes in grids() {
            let known = times_are_components(text, &sizes);
            assert!(known > STEPS, "{known}: {text}");
        }
    }
}

/// On steps whose sizes are learned, times count with the sizes at the start, whether or not these are equal.
#[test]
fn learned_sizes_count_with_their_starts() {
    let own = "scheme own(F) { step x { return x + h*F(x[-1]) }  start by euler }";
    let of = |h: &str| {
        let options = format!("{WEIGHTS};  learn h = {h}");
        let outcome = compile_text(&with("own(ffn)", 4, &options, own));
        let checked = outcome.checked();
        let program = &checked.programs[checked.programs.len() - 1];
        let when = program.instrs.iter().find_map(|i| match i {
            StageInstr::Eval { when, .. } => when.clone(),
            _ => None,
        });
        when.expect("a time").to_string()
    };
    assert_eq!(of("1/2"), "-h + t");
    // The step before the fourth one.
    assert_eq!(of("1/(k + 1)"), "-1/3 + t");
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

/// A time beside values of earlier steps is compared with that of the argument, as any other is; where the latter is not known, it may differ.
#[test]
fn a_claim_beside_a_time_that_is_not_that_of_its_argument_is_one_about_fields_without_time() {
    let multistep = |last: &str| {
        format!(
            "scheme own(F) {{ order 3  step x {{ f = F(x)  p = x + h/12*(23*f - 16*f[-1] + 5*f[-2])
             return x + h/12*(5*F(p{last}) + 8*f - f[-1]) }}  start by kutta3 }}"
        )
    };
    // The time of `d` follows from that of `s`, and takes one more run.
    let chain = |at: &str| {
        format!(
            "scheme own(F) {{ order 1  step x {{ y = x  d = s[-1] - y[-1]  s = x + h*F(x)
             return x + h*F(x + d[-1], at: {at}) }}  start {{ s = x  y = x  d = 0*x }} }}"
        )
    };
    let one_step = |at: &str| {
        format!(
            "scheme own(F) {{ order 2  step x {{ k = F(x)  return x + h*F(x + h/2*k, at: {at}) }} }}"
        )
    };
    let cases = [
        (multistep(", at: 0"), true),
        (multistep(", at: 1"), false),
        (multistep(""), false),
        (chain("1"), false),
        (chain("0"), true),
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
    for (at, codes) in [(", at: 0", &["unproved-claim"][..]), (", at: 1", &[])] {
        let text = with("own(both)", 5, WEIGHTS, &multistep(at));
        let outcome = compile_text(&text).on_its_flow();
        let found: Vec<_> = outcome.messages.iter().map(|d| d.code).collect();
        assert_eq!(found, codes, "{}", outcome.rendered());
    }
}

/// What is warned of in a step that lacks a history is not made, and no reason to stop: another scheme takes that step.
#[test]
fn a_warning_in_a_first_step_stops_nothing() {
    let own = "scheme own(F) { order 3  step x { f = F(x)  u = x[-1] + h/8*(9*f + 3*f[-1])
         return x + h*(F(u, at: 0) + 1/24*(f - 2*f[-1] + f[-2])) }  start by kutta3 }";
    for (steps, codes) in [(2, &[][..]), (5, &["unproved-claim"])] {
        let outcome = compile_text(&with("own(both)", steps, WEIGHTS, own)).on_its_flow();
        assert!(outcome.checked().built.is_some(), "{}", outcome.rendered());
        let found: Vec<_> = outcome.messages.iter().map(|d| d.code).collect();
        assert_eq!(found, codes, "{}", outcome.rendered());
    }
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
            "own(both)",
            WEIGHTS,
            "scheme own(F) { start { z = F(x, at: 1) } step x { return x + h*F(x) + z } }",
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
