//! Orders of the library's splittings, exactly: with exact sub-flows, the step on x' = (A + B) x is a product of
//! exponentials, which is compared with exp(h (A + B)) word by word in the letters A and B.

use crate::common::{compile_text, model};
use odec_compiler::analysis::report::{self, order_of, order_upgrade_of};
use odec_compiler::scheme::{Combination, StageInstr};
use odec_graph::Exact;
use odec_library::shipped;
use std::collections::BTreeMap;

/// Coefficients of words; absent ones are 0.
type Words = BTreeMap<String, Exact>;

/// The letters and fractions of a splitting, from its stage program with Euler sub-steps.
fn fractions(name: &str) -> Vec<(char, Exact)> {
    let outcome = compile_text(shipped::text(name));
    let p = &outcome.checked().programs[0];
    let letter = |v: u32| match &p.instrs[v as usize - 1] {
        StageInstr::Eval { field, .. } => p.fields[*field].name.chars().next().expect("a name"),
        _ => panic!("a sub-flow adds one evaluation"),
    };
    let fraction = |c: &Combination| {
        let (v, coeff) = c.terms().last().expect("terms");
        let one = coeff.with("h", &Exact::one()).expect("small");
        (letter(v.0), one.as_constant().expect("a number"))
    };
    let ends = p.instrs.iter().filter_map(|i| match i {
        StageInstr::Combine(c) => Some(c),
        _ => None,
    });
    ends.chain([&p.result]).map(fraction).collect()
}

fn times(a: &Words, b: &Words, degree: usize) -> Words {
    let mut product = Words::new();
    for (u, c) in a {
        for (v, d) in b.iter().filter(|(v, _)| u.len() + v.len() <= degree) {
            let sum = product.entry(format!("{u}{v}")).or_default();
            *sum = &*sum + &(c * d);
        }
    }
    product
}

/// The terms of exp(letters) up to a degree.
fn exponential(letters: &Words, degree: usize) -> Words {
    let mut power: Words = [(String::new(), Exact::one())].into();
    let mut sum = power.clone();
    for n in 1..=degree {
        power = times(&power, letters, degree);
        for c in power.values_mut() {
            *c = &*c * &Exact::ratio(1, n as i64);
        }
        sum.extend(power.clone());
    }
    sum
}

/// The differences to the exact flow in words of one length.
fn defects(name: &str, length: usize) -> Vec<Exact> {
    let one = Words::from([(String::new(), Exact::one())]);
    // The first flow acts first: it stands on the right.
    let step = fractions(name).iter().fold(one, |step, (letter, c)| {
        let letters = [(letter.to_string(), c.clone())].into();
        times(&exponential(&letters, length), &step, length)
    });
    let both = ["A", "B"].map(|l| (l.to_string(), Exact::one())).into();
    let exact = exponential(&both, length);
    let of = |w: &Words, word: &str| w.get(word).cloned().unwrap_or_default();
    let words = exact.keys().filter(|w| w.len() == length);
    words.map(|w| &of(&step, w) - &of(&exact, w)).collect()
}

#[test]
fn orders_are_exact() {
    for (name, order) in [("lie", 1), ("strang", 2), ("ruth3", 3), ("yoshida4", 4)] {
        for length in 1..=order {
            let zero = defects(name, length).iter().all(Exact::is_zero);
            assert!(zero, "{name}: order {length} holds");
        }
        let left = defects(name, order + 1);
        assert!(left.iter().any(|d| !d.is_zero()), "{name}: order {order}");
    }
}

/// Published decimals hold to their precision, and not exactly.
#[test]
fn decimals_hold_within_their_claim() {
    let bound = Exact::decimal("1e-14").expect("a number");
    let within = |d: &Exact| -&bound <= *d && *d <= bound;
    for length in 1..=4 {
        assert!(defects("blanes_moan4", length).iter().all(within));
    }
    assert!(defects("blanes_moan4", 3).iter().any(|d| !d.is_zero()));
    assert!(!defects("blanes_moan4", 5).iter().all(within));
}

/// Printed coefficients, written into a scheme again, are the same numbers.
#[test]
fn printed_numbers_can_be_read() {
    let root = |n: i64, degree: u32| Exact::int(n).root(degree).expect("a root");
    let radicals = [
        Exact::one(),
        root(2, 2),
        root(3, 2),
        root(2, 3),
        root(12, 6),
    ];
    for i in 0..60 {
        let term = |(j, r): (usize, &Exact)| {
            let n = (i * 7 + j as i64 * 11) % 13 - 6;
            r * &Exact::ratio(n, 1 + (i + j as i64) % 5)
        };
        let number: Exact = radicals.iter().enumerate().map(term).sum();
        let text = format!("scheme s(F) {{ let a = {number}\n step x {{ return a*F(x) }} }}");
        let outcome = compile_text(&text);
        let read = &outcome.checked().programs[0].result;
        let read = read.terms().next().and_then(|(_, c)| c.as_constant());
        assert_eq!(read.unwrap_or_default(), number, "{text}");
    }
}

/// In pictures, sums of radicals stand in parentheses, with their own sign before them.
#[test]
fn pictures_of_sums_of_radicals() {
    let outcome = compile_text(&model("yoshida4(att, ffn)", 1, ""));
    let built = outcome.checked().built.as_ref().expect("a model");
    let picture = odec_graph::svg::svg(&built.forward, "yoshida4", &built.weights);
    for term in [
        "+ (1/3 + root(2, 3)/6 + root(4, 3)/12) k₁",
        "+ (1/6 - root(2, 3)/6 - root(4, 3)/12) k₃",
        "− (1/3 + 2*root(2, 3)/3 + root(4, 3)/3) k₄",
    ] {
        assert!(picture.contains(term), "{term} in {picture}");
    }
}

/// What would lift a flow's order: the fewest operators, with an inner scheme that is enough; that it does is proved again here, with
/// the schemes written out.
#[test]
fn inner_schemes_lift_the_order() {
    let lifted = |flow: &str, options: &str| {
        let outcome = compile_text(&model(flow, 2, options));
        let e = &outcome.checked().evolved[0];
        let has = order_of(e).expect("an order").order;
        (
            has,
            order_upgrade_of(e, has, shipped::library()).map(|l| l.sentence()),
        )
    };
    let shared = "weights shared";
    let said = |text: &str| Some(text.to_string());
    let cases = [
        (
            "strang(ffn, att)",
            shared,
            1,
            said("order 2 with heun for ffn and att"),
        ),
        (
            "strang(ffn by heun, att)",
            shared,
            1,
            said("order 2 with heun for att"),
        ),
        ("strang(ffn by heun, att by heun)", shared, 2, None),
        (
            "ruth3(ffn, att by rk4)",
            shared,
            1,
            said("order 3 with kutta3 for ffn"),
        ),
        (
            "yoshida4(ffn, att)",
            shared,
            1,
            said("order 4 with rk4 for ffn and att"),
        ),
        ("lie(att, ffn)", shared, 1, None),
        ("lie(parallel(att, phi), ffn)", shared, 1, None),
        // Each half of Macaron has weights of its own: no inner scheme helps while they do.
        (
            "strang(ffn, att)",
            "weights per use",
            1,
            said("order 2 with heun for ffn and att and shared weights"),
        ),
        ("rk4(layer)", shared, 4, None),
    ];
    for (flow, options, has, upgrade) in cases {
        assert_eq!(lifted(flow, options), (has, upgrade), "{flow}, {options}");
    }
    for (flow, order) in [
        ("strang(ffn by heun, att by heun)", 2),
        ("ruth3(ffn by kutta3, att by rk4)", 3),
        ("yoshida4(ffn by rk4, att by rk4)", 4),
    ] {
        assert_eq!(lifted(flow, shared).0, order, "{flow}");
    }
}

/// A symmetric composition of four operators, jumped thrice (Yoshida 1990): order 4 in words over four letters; one operator over
/// parts of the step that make a whole is exact.
#[test]
fn four_operators_and_one() {
    let part = |w: &str| {
        let halves = ["A", "B", "C"].map(|f| format!("{f}({w}/2)"));
        let there = halves.join(" ");
        let back: Vec<&str> = halves.iter().rev().map(String::as_str).collect();
        format!("{there} D({w}) {}", back.join(" "))
    };
    let (u, v) = (part("u"), part("v"));
    let four = |order: usize| {
        format!(
            "scheme four(A, B, C, D) {{\n  order {order}\n  let u = 1/(2 - root(2, 3))\n  let v = 1 - 2*u\n  {u} {v} {u}\n}}\n"
        )
    };
    let outcome = compile_text(&four(4));
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
    let refused = compile_text(&four(5)).rendered();
    assert!(refused.contains("has order 4, not 5"), "{refused}");
    let one = "scheme one(A) { order 10  A(1/3) A(2/3) }";
    let rendered = compile_text(one).rendered();
    assert!(!rendered.contains("error"), "{rendered}");
}

/// The order of a partner is meant as the order is: with exact sub-flows.
#[test]
fn partners_of_splittings() {
    let ruth = |claim: &str, partner: &str| {
        let text = format!(
            "scheme mine(A, B) {{ order 3  {claim}\n\
             A(7/24) B(2/3) A(3/4) B(-2/3) A(-1/24) B(1)\n  embedded {partner} }}"
        );
        compile_text(&text)
    };
    for (partner, order) in [("A(1/2) B(1) A(1/2)", 2), ("A(1) B(1)", 1)] {
        let outcome = ruth(&format!("embedded order {order}"), partner);
        assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
        let report = report::scheme(&outcome.checked().instances[0], shipped::library());
        assert_eq!(report.embedded, Some(order));
        let more = ruth(&format!("embedded order {}", order + 1), partner);
        let said = format!("it has a partner of order {order}");
        assert!(
            more.messages[0].message.contains(&said),
            "{}",
            more.rendered()
        );
    }
    let outcome = compile_text(shipped::text("richardson_strang4"));
    assert_eq!(
        report::scheme(&outcome.checked().instances[0], shipped::library()).embedded,
        Some(2)
    );
    // A step program that flows along its fields.
    let text = "scheme mine(A, B) { order 2  embedded order 1\n\
                step x { return flow A(1/2) B(1) A(1/2) from x embedded flow A(1) B(1) from x } }";
    let outcome = compile_text(text);
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
}
