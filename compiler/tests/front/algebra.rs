//! Methods made of methods, against what is known of them: adjoints, symmetric compositions, powers, tables of
//! extrapolation; as stage programs, and as messages where they mean nothing.

use crate::common::{Outcome, compile_text, model};
use odec_compiler::analysis::opaque_field;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::codes;
use odec_compiler::scheme::method::{located, solved};
use odec_compiler::scheme::per_use::SHARED;
use odec_compiler::scheme::stage::Steps;
use odec_graph::Exact;
use odec_library::shipped;
use odec_numerics::Tableau;
use odec_numerics::linear_step::Step;
use odec_numerics::poly::Poly;
use odec_numerics::stability::StabilityFunction;
use proptest::prelude::*;
use std::fmt::Write;

/// The report on the first scheme of a text, which makes no claim.
fn report(text: &str) -> Report {
    let outcome = compile_text(text);
    report::scheme(&outcome.checked().instances[0], shipped::library())
}

fn of(expression: &str) -> Report {
    report(&format!("scheme mine {{ method {expression} }}"))
}

/// The tableau with stages found exactly, or as it is computed where it is explicit.
fn tableau(r: &Report) -> Tableau {
    match &r.implicit {
        Some((t, _)) => t.clone(),
        None => r.tableau.clone().expect("a tableau"),
    }
}

/// The order with stages found exactly.
fn order(r: &Report) -> usize {
    match &r.implicit {
        Some((_, f)) => f.order,
        None => r.order.as_ref().expect("an order").order,
    }
}

fn symmetric(r: &Report) -> bool {
    r.one_field
        .as_ref()
        .expect("one field")
        .properties
        .symmetric
}

fn numbers(rows: &[&[(i64, i64)]]) -> Vec<Vec<Exact>> {
    let row = |r: &&[(i64, i64)]| r.iter().map(|(n, d)| Exact::ratio(*n, *d)).collect();
    rows.iter().map(row).collect()
}

#[test]
fn adjoints_of_known_methods() {
    let same = |expression: &str, a: &[&[(i64, i64)]], b: &[(i64, i64)]| {
        let t = tableau(&of(expression));
        assert_eq!(
            (t.a, t.b),
            (numbers(a), numbers(&[b]).remove(0)),
            "{expression}"
        );
    };
    // Implicit Euler, and back again, which leaves nothing to solve.
    same("adjoint(euler, iterations: 2)", &[&[(1, 1)]], &[(1, 1)]);
    same("adjoint(backward_euler)", &[&[(0, 1)]], &[(1, 1)]);
    same("adjoint(adjoint(euler))", &[&[(0, 1)]], &[(1, 1)]);
    // Euler and its adjoint make the trapezoidal rule, the other way round the midpoint rule (Hairer, Lubich & Wanner 2006, II.4).
    same(
        "compose(euler, adjoint(euler, iterations: 2))",
        &[&[(0, 1), (0, 1)], &[(1, 2), (1, 2)]],
        &[(1, 2), (1, 2)],
    );
    same(
        "compose(adjoint(euler, iterations: 2), euler)",
        &[&[(1, 2), (0, 1)], &[(1, 2), (0, 1)]],
        &[(1, 2), (1, 2)],
    );
    for name in [
        "gauss4",
        "gauss6",
        "lobatto_iiia4",
        "lobatto_iiib4",
        "implicit_midpoint",
    ] {
        let own = tableau(&of(name));
        let adjoint = tableau(&of(&format!("adjoint({name})")));
        assert_eq!(
            (own.a, own.b),
            (adjoint.a, adjoint.b),
            "{name} is symmetric"
        );
    }
    for name in ["radau_iia5", "rk4", "dormand_prince"] {
        let adjoint = of(&format!("adjoint({name}, iterations: 2)"));
        assert_eq!(order(&adjoint), order(&of(name)), "{name}");
        assert!(!symmetric(&adjoint), "{name}");
    }
}

/// The text of an explicit tableau.
fn written(t: &Tableau) -> String {
    let mut text = "scheme base(F) { tableau {\n".to_string();
    for (i, row) in t.a.iter().enumerate() {
        let _ = write!(text, "({}) |", t.nodes()[i]);
        row[..i].iter().for_each(|a| {
            let _ = write!(text, " ({a})");
        });
        text += "\n";
    }
    text += "|";
    t.b.iter().for_each(|b| {
        let _ = write!(text, " ({b})");
    });
    text + "\n} }\n"
}

/// Consistent explicit tableaus in small numbers.
fn explicit() -> impl Strategy<Value = Tableau> {
    let entry = || (-4i64..5, 1i64..4).prop_map(|(n, d)| Exact::ratio(n, d));
    (1usize..4).prop_flat_map(move |s| {
        let entries = prop::collection::vec(entry(), s * s + s);
        entries.prop_map(move |e| {
            let row = |i: usize| {
                let own = |j: usize| {
                    if j < i {
                        e[i * s + j].clone()
                    } else {
                        Exact::zero()
                    }
                };
                (0..s).map(own).collect()
            };
            let mut b = e[s * s..].to_vec();
            let rest: Exact = b[..s - 1].iter().cloned().sum();
            b[s - 1] = &Exact::one() - &rest;
            Tableau::single((0..s).map(row).collect(), b)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// What the language makes of random methods: adjoints as the formula says and of the same order, twice the method itself, and
    /// a step followed by an adjoint one symmetric and of even order.
    #[test]
    fn adjoints_of_random_methods(t in explicit()) {
        // Stages that are equal are one in a program, and may cancel there.
        prop_assume!((1..t.a.len()).all(|i| !t.a[..i].contains(&t.a[i])));
        let base = written(&t);
        let made = |method: &str| {
            report(&format!("scheme mine(F) {{ method {method};  solve by fixed_point(iterations: 1) }}\n{base}"))
        };
        // Stages that nothing needs are not there.
        let plain = tableau(&report(&format!("scheme mine(F) {{ method base }}\n{base}")));
        let adjoint = made("adjoint(base)");
        prop_assert_eq!(tableau(&adjoint), plain.adjoint());
        prop_assert_eq!(tableau(&made("adjoint(adjoint(base))")), plain.clone());
        let mean = made("adjoint(average(base, adjoint(adjoint(base))))");
        prop_assert_eq!(order(&mean), order(&adjoint));
        for both in ["compose(base, adjoint(base))", "compose(adjoint(base), base)"] {
            let both = made(both);
            prop_assert!(symmetric(&both));
            prop_assert_eq!(order(&both) % 2, 0);
        }
    }
}

/// n steps of h/n: the order stays, and R becomes R(z/n)ⁿ.
#[test]
fn powers() {
    let stability = |r: &Report| StabilityFunction::new(&tableau(r)).expect("a small tableau");
    for name in ["euler", "heun", "rk4", "implicit_midpoint", "radau_iia3"] {
        let base = of(name);
        for n in [2, 3] {
            let power = of(&format!("power({name}, {n})"));
            assert_eq!(order(&power), order(&base), "{name}, {n}");
            let (base, power) = (stability(&base), stability(&power));
            let shrunk = |p: &Poly| {
                let mut scale = Exact::one();
                let each = p.0.iter().map(|c| {
                    let c = c * &scale;
                    scale = &scale * &Exact::ratio(1, n);
                    c
                });
                let shrunk = Poly::new(each.collect());
                (1..n).fold(shrunk.clone(), |product, _| product.times(&shrunk))
            };
            assert_eq!(power.numerator.0, shrunk(&base.numerator).0, "{name}, {n}");
            assert_eq!(
                power.denominator.0,
                shrunk(&base.denominator).0,
                "{name}, {n}"
            );
        }
    }
}

/// A table of k rows of Euler's method has order k, of a symmetric method of order 2 order 2k (Hairer, Nørsett & Wanner 1993, II.9); its partner has one
/// row fewer. With one evaluation at x for all rows, Euler's table takes k(k − 1)/2 + 1 (Deuflhard 1985).
#[test]
fn extrapolations() {
    for k in 1..=6 {
        let r = of(&format!("extrapolate(euler, {k})"));
        assert_eq!(order(&r), k, "{k} rows");
        assert_eq!(r.embedded, (k > 1).then_some(k - 1), "{k} rows");
        assert_eq!(tableau(&r).stages(), k * (k - 1) / 2 + 1);
    }
    for base in [
        "implicit_midpoint",
        "trapezoidal",
        "compose(euler, adjoint(euler, iterations: 3))",
    ] {
        for k in 1..=3 {
            let r = of(&format!("extrapolate({base}, {k})"));
            assert_eq!(order(&r), 2 * k, "{base}, {k} rows");
        }
    }
    for k in 1..=3 {
        let r = of(&format!("extrapolate(strang, {k})"));
        assert_eq!(order(&r), 2 * k, "Strang, {k} rows");
    }
    // Higher orders lose one term a row, or two.
    assert_eq!(order(&of("extrapolate(rk4, 3)")), 6);
    assert_eq!(order(&of("extrapolate(gauss4, 2)")), 6);
    assert_eq!(order(&of("extrapolate(heun, sequence: [1, 2, 4])")), 4);
    assert_eq!(order(&of("extrapolate(extrapolate(euler, 2), 2)")), 3);
    // A claim within a residual says what decimals mean.
    let within = "scheme mine(A, B) { order 6 within 1e-12;  method extrapolate(blanes_moan4, 3) }";
    assert!(compile_text(within).messages.is_empty());
    // Richardson's Euler is the midpoint rule.
    let (r, midpoint) = (
        tableau(&of("extrapolate(euler, 2)")),
        tableau(&of("midpoint")),
    );
    assert_eq!((r.a, r.b), (midpoint.a, midpoint.b));
}

#[test]
fn averages() {
    let both = report("scheme mine(A, B) { method average(lie(A, B), lie(B, A)) }");
    assert_eq!(order(&both), 2);
    let one = report("scheme mine(A, B) { method average(lie, lie(B, A), weights: [1/3, 2/3]) }");
    assert_eq!(order(&one), 1);
    // A simple sum of Euler's and Heun's methods is a method between them.
    let t = tableau(&of("average(euler, heun)"));
    assert_eq!(t.b, numbers(&[&[(3, 4), (1, 4)]]).remove(0));
}

/// The exact flows of a splitting, one field's in a row taken together.
fn word(text: &str) -> Vec<(usize, Exact)> {
    let outcome = compile_text(text);
    let i = &outcome.checked().instances[0];
    let flow = opaque_field::alone(&i.scheme, None, i.settings.clone(), 0);
    let located = located(&flow, Steps::Exact, &SHARED).expect("flows");
    let mut word: Vec<(usize, Exact)> = Vec::new();
    for step in &located.line.steps {
        let Step::Flow {
            field, fraction, ..
        } = step
        else {
            panic!("not a flow: {step:?}");
        };
        match word.last_mut() {
            Some((last, sum)) if last == field => *sum = &*sum + fraction,
            _ => word.push((*field, fraction.clone())),
        }
    }
    word
}

#[test]
fn splittings() {
    let library = shipped::text;
    let triple = "scheme mine(A, B) { let u = 1/(2 - root(2, 3));  method compose(strang(u), strang(1 - 2*u), strang(u)) }";
    assert_eq!(word(triple), word(library("yoshida4")));
    let suzuki = "scheme mine(A, B) { let p = 1/(4 - root(4, 3));  method compose(power(strang, 2)(2*p), strang(1 - 4*p), power(strang, 2)(2*p)) }";
    assert_eq!(word(suzuki), word(library("suzuki4")));
    let solved = |method: &str| {
        format!("scheme mine(A, B) {{ method {method};  solve by fixed_point(iterations: 1) }}")
    };
    assert_eq!(
        word(&solved("compose(lie, adjoint(lie))")),
        word(library("strang"))
    );
    let reversed: Vec<_> = word(library("ruth3")).into_iter().rev().collect();
    let adjoint: Vec<_> = word(&solved("adjoint(ruth3)"));
    // Fields are numbered as they come.
    let other = reversed.iter().map(|(f, c)| (1 - f, c.clone()));
    assert_eq!(adjoint, other.collect::<Vec<_>>());
    // With Euler sub-steps the adjoint of Lie's splitting takes implicit ones, in the other order.
    let r = report(&solved("adjoint(lie)"));
    assert_eq!(r.order.expect("an order").order, 1);
}

#[test]
fn stage_programs() {
    let mut shown = Vec::new();
    for (flow, options) in [
        ("adjoint(heun, iterations: 1)(layer)", ""),
        ("extrapolate(euler, 3)(layer)", ""),
        ("extrapolate(iie(r: 1), sequence: [1, 3])(layer)", ""),
        ("power(strang, 2)(ffn by heun, att)", "weights per use"),
        ("adjoint(strang, iterations: 1)(ffn by heun, att)", ""),
        (
            "strang(ffn by adjoint(backward_euler), att by power(euler, 2))",
            "",
        ),
        ("average(lie, adjoint(lie, iterations: 0))(att, ffn)", ""),
        (
            "compose(rk2_learned, adjoint(rk2_learned, iterations: 1))(layer)",
            "",
        ),
        ("adjoint(imex_euler, iterations: 1)(att, ffn)", ""),
        ("euler(increment(compose(heun(1/4), euler(3/4))(both)))", ""),
        ("adjoint(lie, iterations: 1)(lie(att, ffn), ffn)", ""),
    ] {
        let outcome = compile_text(&model(flow, 1, options));
        shown.push(outcome.checked().stages());
    }
    insta::assert_snapshot!(shown.join("\n"));
}

/// Learned coefficients belong to the scheme, however often it is named.
#[test]
fn learned_operands() {
    let learned = |flow: &str| {
        let outcome = compile_text(&model(flow, 1, ""));
        let p = &outcome.checked().programs[0];
        p.learned.iter().map(|l| l.path.clone()).collect::<Vec<_>>()
    };
    let own = learned("rk4_learned(layer)");
    assert!(!own.is_empty());
    for flow in [
        "power(rk4_learned, 2)(layer)",
        "adjoint(rk4_learned, iterations: 1)(layer)",
        "extrapolate(rk4_learned, 2)(layer)",
        "average(rk4, rk4_learned)(layer)",
    ] {
        assert_eq!(learned(flow), own, "{flow}");
    }
    let lengths = "scheme l(F, m = 2) { learn b[m] = 1/m;  step x { return x + h*sum j in 0..m { b[j]*F(x) } } }\n";
    let text = lengths.to_string() + &model("compose(l(m: 2), l(m: 3))(layer)", 1, "");
    refused(&text, codes::PARAMETER_COLLISION);
}

fn refused(text: &str, code: &str) -> Outcome {
    let outcome = compile_text(text);
    let given: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
    assert!(outcome.checked.is_none(), "{text} compiles");
    assert!(given.contains(&code), "{text}: {given:?}");
    outcome
}

#[test]
fn messages() {
    let cases = [
        "scheme mine { method adjoint(heun) }",
        "scheme mine(A, B) { method adjoint(lie) }",
        "scheme mine { method power(heun, 2);  solve by fixed_point(iterations: 2) }",
        "scheme mine { method power(ab2, 2) }",
        "scheme mine { method extrapolate(pcformer, 2) }",
        "scheme mine { method adjoint(parallel) }",
        "scheme p(F) { step x { return nonnegative(x + h*F(x)) } }\nscheme mine { method adjoint(p, iterations: 2) }",
        "scheme p(F) { step x { return nonnegative(x + h*F(x)) } }\nscheme mine { method extrapolate(p, 2) }",
        "scheme p(F) { step x { return x + F(x) } }\nscheme mine { method adjoint(p, iterations: 2) }",
        "scheme p(F) { step x { return x + 2*h*F(x) } }\nscheme mine { method extrapolate(p, 2) }",
        "scheme mine(A, B) { method adjoint(average(lie, lie(B, A)), iterations: 2) }",
        "scheme mine { method compose(heun(1/2), euler) }",
        "scheme mine { method power(heun(1/2), 2) }",
        "scheme mine { method compose(heun(1/2)(1/2)) }",
        "scheme mine { method compose(heun, lie) }",
        "scheme mine(A, B) { method compose(heun, lie(A)) }",
        "scheme mine(A, B) { method average(lie(A, A, B)) }",
        "scheme mine { method average(euler, heun, weights: [1/2, 1/3]) }",
        "scheme mine { method average(euler, heun, weights: [1]) }",
        "scheme mine { method average(euler, heun, weights: 1) }",
        "scheme mine { method extrapolate(euler) }",
        "scheme mine { method extrapolate(euler, 0) }",
        "scheme mine { method extrapolate(euler, 2, sequence: [1, 2, 4]) }",
        "scheme mine { method extrapolate(euler, sequence: [1, 2, 1]) }",
        "scheme mine { method extrapolate(euler, sequence: []) }",
        "scheme mine { method adjoint }",
        "scheme mine { method compose() }",
        "scheme mine { method power(heun, 2, 3) }",
        "scheme mine { method power(heun, n: 3) }",
        "scheme mine { method gauss4(s: 3) }",
        "scheme mine { method average(nothing, euler) }",
        "scheme mine { method compose(mine, euler) }",
        "scheme a { method power(b, 2) }\nscheme b { method power(a, 2) }",
        "scheme average { method power(heun, 2) }",
        "scheme mine(F) { method heun  step x { return x } }",
        &model("adjoint(heun)", 1, ""),
        &model("heun(layer)(layer)", 1, ""),
        &model("adjoint(heun, iterations: 2)(layer by euler)", 1, ""),
        &model("power(heun, 2)(lie(att, ffn))", 1, ""),
        &model("euler(power(heun, 2)(layer))", 1, ""),
        &model("lie(att by power(lie, 2), ffn)", 1, ""),
        &model("compose(lie(att, ffn), euler)(layer)", 1, ""),
    ];
    let shown: Vec<String> = cases
        .iter()
        .map(|text| {
            let outcome = compile_text(text);
            assert!(outcome.checked.is_none(), "{text} compiles");
            outcome.rendered()
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n\n"));
}

/// What is no method is so for the same reason to a claim, to an adjoint, and to a table of extrapolation.
#[test]
fn refusals_do_not_depend_on_who_asks() {
    let cases = [
        ("nonnegative(x + h*F(x))", "it projects a state onto a set"),
        (
            "x + F(x)",
            "it adds what depends on `h` in different powers",
        ),
        (
            "x + h*F(F(x))",
            "it evaluates a field at a rate, not at a state",
        ),
        (
            "x + h*F(2*x)",
            "it evaluates a field at a value that takes 2 of the old state where a method of one step takes 1",
        ),
    ];
    for (result, why) in cases {
        let own = |claim: &str| format!("scheme p(F) {{ {claim} step x {{ return {result} }} }}");
        let made = |term: &str| format!("{}\nscheme mine {{ method {term} }}", own(""));
        for text in [
            own("order 1 "),
            made("adjoint(p, iterations: 2)"),
            made("extrapolate(p, 2)"),
        ] {
            let given = compile_text(&text).rendered();
            assert!(given.contains(why), "{text}: {given}");
        }
    }
}

/// Coefficients that stay symbols until the end are those that are numbers from the beginning.
#[test]
fn symbols_and_numbers_give_one_tableau() {
    for name in ["euler", "heun", "rk4", "rk4_learned", "dormand_prince"] {
        let text = format!("scheme mine {{ method compose({name}, {name}) }}");
        let outcome = compile_text(&text);
        let instance = &outcome.checked().instances[0];
        let flow = opaque_field::alone(&instance.scheme, None, instance.settings.clone(), 0);
        let symbols = solved(&flow).expect(name);
        let numbers = located(&flow, Steps::Exact, &SHARED).expect(name);
        let numbers = numbers.tableau().expect(name);
        assert_eq!((symbols.a, symbols.b), (numbers.a, numbers.b), "{name}");
    }
}

/// Short texts that ask for long programs, deep ones, or large numbers.
#[test]
fn hostile() {
    let alone = |method: &str| format!("scheme mine {{ method {method} }}");
    refused(&alone("power(heun, 1000000000)"), codes::TOO_LARGE);
    refused(&alone("power(heun, 1e400)"), codes::TOO_LARGE);
    refused(
        &alone("power(power(power(heun, 1000), 1000), 1000)"),
        codes::TOO_LARGE,
    );
    refused(
        &alone("adjoint(power(power(heun, 9999), 9999), iterations: 1)"),
        codes::TOO_LARGE,
    );
    refused(
        &alone("adjoint(extrapolate(heun, 16), iterations: 20000)"),
        codes::TOO_LARGE,
    );
    refused(&alone("extrapolate(heun, 17)"), codes::TOO_LARGE);
    refused(
        &alone("extrapolate(heun, sequence: [20000, 19999])"),
        codes::TOO_LARGE,
    );
    refused(&alone("extrapolate(power(rk4, 500), 2)"), codes::TOO_LARGE);
    // 2^16 evaluations by name, definitions that are looked up 2^60 times if each is looked up again, and long chains.
    let chain = |n: usize, each: &str, last: &str| {
        let step = |i: usize| each.replace("below", &format!("s{i}"));
        let each = (1..=n).map(|i| format!("scheme s{i} {{ method {} }}\n", step(i - 1)));
        format!(
            "{}scheme s0 {{ method {last} }}\n",
            each.collect::<String>()
        )
    };
    let doubling = "compose(below, below)";
    refused(&chain(16, doubling, "heun"), codes::TOO_LARGE);
    refused(&chain(60, doubling, "nothing"), codes::UNKNOWN_NAME);
    let once = chain(400, "power(below, 1)", "heun");
    let reversed: Vec<&str> = once.lines().rev().collect();
    refused(&once, codes::TOO_LARGE);
    refused(&reversed.join("\n"), codes::TOO_LARGE);
    let nested = |open: &str, close: &str, n: usize| {
        alone(&format!("{}heun{}", open.repeat(n), close.repeat(n)))
    };
    refused(&nested("power(", ", 2)", 60), codes::TOO_LARGE);
    refused(&nested("extrapolate(", ", 2)", 60), codes::TOO_LARGE);
    for (open, close) in [
        ("extrapolate(", ", 1)"),
        ("adjoint(", ")"),
        ("power(", ", 1)"),
    ] {
        let outcome = compile_text(&nested(open, close, 120));
        assert!(outcome.checked.is_some(), "{}", outcome.rendered());
    }
    let wide = vec!["heun"; 30_000].join(", ");
    refused(&alone(&format!("average({wide})")), codes::TOO_LARGE);
}
