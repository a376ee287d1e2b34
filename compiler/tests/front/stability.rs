//! Stage programs executed on linear equations x' = a x (and x' = a x + b x, split), exactly: the result is the
//! stability polynomial, known from textbooks or worked out by hand.

use crate::common::{compile_text, model};
use odec_compiler::scheme::{Coeff, Combination, StageInstr, StageProgram};
use odec_graph::Exact;
use odec_library::shipped;

fn q(n: i64, d: i64) -> Coeff {
    Coeff::constant(Exact::ratio(n, d))
}
fn sym(s: &str) -> Coeff {
    Coeff::symbol(s)
}
fn mul(a: &Coeff, b: &Coeff) -> Coeff {
    a.mul(b).unwrap()
}
fn add(a: &Coeff, b: &Coeff) -> Coeff {
    a.add(b).unwrap()
}

/// Σ cᵢ zⁱ.
fn poly(z: &Coeff, c: &[(i64, i64)]) -> Coeff {
    c.iter()
        .rev()
        .fold(Coeff::zero(), |acc, (n, d)| add(&mul(&acc, z), &q(*n, *d)))
}

/// x₁ for x₀ = 1, where field `f` multiplies by `rate(f)`.
fn execute(p: &StageProgram, rate: &dyn Fn(&str) -> Coeff) -> Coeff {
    let mut values = vec![Coeff::one()];
    let combine = |c: &Combination, values: &[Coeff]| {
        c.terms().fold(Coeff::zero(), |sum, (v, c)| {
            add(&sum, &mul(c, &values[v.0 as usize]))
        })
    };
    for i in &p.instrs {
        values.push(match i {
            StageInstr::Combine(c) => combine(c, &values),
            StageInstr::Eval { field, at, .. } => {
                mul(&rate(&p.fields[*field].name), &values[at[0].0 as usize])
            }
            StageInstr::Past { .. } => panic!("one step of one of these needs no history"),
            _ => panic!("not linear"),
        });
    }
    combine(&p.result, &values)
}

/// The last stage program of a text.
fn program(text: &str) -> StageProgram {
    compile_text(text)
        .checked()
        .programs
        .last()
        .cloned()
        .unwrap()
}

fn library(name: &str) -> StageProgram {
    program(shipped::text(name))
}

#[test]
fn one_field() {
    let z = mul(&sym("h"), &sym("l"));
    for (name, expected) in [
        ("euler", &[(1, 1), (1, 1)][..]),
        ("heun", &[(1, 1), (1, 1), (1, 2)]),
        ("midpoint", &[(1, 1), (1, 1), (1, 2)]),
        ("kutta3", &[(1, 1), (1, 1), (1, 2), (1, 6)]),
        ("rk4", &[(1, 1), (1, 1), (1, 2), (1, 6), (1, 24)]),
        ("iie", &[(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]),
    ] {
        assert_eq!(
            execute(&library(name), &|_| sym("l")),
            poly(&z, expected),
            "{name}"
        );
    }
}

#[test]
fn splittings() {
    let (a, b) = (mul(&sym("h"), &sym("A")), mul(&sym("h"), &sym("B")));
    let euler = |z: &Coeff, share: Coeff| add(&Coeff::one(), &mul(&share, z));
    let half = euler(&a, q(1, 2));
    assert_eq!(
        execute(&library("lie"), &sym),
        mul(&euler(&a, q(1, 1)), &euler(&b, q(1, 1)))
    );
    assert_eq!(
        execute(&library("strang"), &sym),
        mul(&mul(&half, &half), &euler(&b, q(1, 1)))
    );
}

#[test]
fn inner_schemes() {
    let (att, ffn) = (mul(&sym("h"), &sym("att")), mul(&sym("h"), &sym("ffn")));
    let heun_half = poly(&mul(&q(1, 2), &ffn), &[(1, 1), (1, 1), (1, 2)]);
    let expected = mul(&mul(&heun_half, &heun_half), &poly(&att, &[(1, 1), (1, 1)]));
    assert_eq!(
        execute(&program(&model("strang(ffn by heun, att)", 1, "")), &sym),
        expected
    );
}

/// Inside `increment` and `map` the step is 1, whatever the outer one is.
#[test]
fn whole_layers() {
    let layer = mul(
        &add(&Coeff::one(), &sym("att")),
        &add(&Coeff::one(), &sym("ffn")),
    );
    let change = layer.sub(&Coeff::one()).unwrap();
    for (flow, rate, expected) in [
        (
            "rk4(layer)",
            &change,
            &[(1, 1), (1, 1), (1, 2), (1, 6), (1, 24)][..],
        ),
        (
            "iie(layer, r: 2)",
            &change,
            &[(1, 1), (1, 1), (1, 1), (1, 1)],
        ),
        ("heun(phi)", &layer, &[(1, 1), (1, 1), (1, 2)]),
    ] {
        let z = mul(&sym("h"), rate);
        assert_eq!(
            execute(&program(&model(flow, 1, "")), &sym),
            poly(&z, expected),
            "{flow}"
        );
    }
    let sum = mul(&sym("h"), &add(&sym("att"), &sym("ffn")));
    assert_eq!(
        execute(&program(&model("rk4(both)", 1, "")), &sym),
        poly(&sum, &[(1, 1), (1, 1), (1, 2), (1, 6), (1, 24)])
    );
}

/// `rk4` written by hand as a step program is the same polynomial as the tableau.
#[test]
fn step_programs() {
    let by_hand = "scheme mine(F, n = 4) {
        let c = 1/6
        step x {
          k1 = F(x);  k2 = F(x + 1/2*h*k1);  k3 = F(x + h/2*k2);  k4 = F(x + h*k3)
          s = c*k1 + 2*c*k2
          s = s + (k3 + k3 - k3*0)/6 + k4*c
          s = s + k3*(1/3 - 2*c)
          return x + h*s
        }
      }";
    let z = mul(&sym("h"), &sym("F"));
    assert_eq!(
        execute(&program(by_hand), &sym),
        poly(&z, &[(1, 1), (1, 1), (1, 2), (1, 6), (1, 24)])
    );
    let powers = "scheme geometric(F, n = 3) {
        step x {
          y = x
          repeat j in 1..=n { y = y + (h*j)^2/h^0*F(y) }
          return y + sum j in 0..n { 0*y }
        }
      }";
    let h2 = mul(&mul(&sym("h"), &sym("h")), &sym("F"));
    let factor = |j: i64| poly(&h2, &[(1, 1), (j * j, 1)]);
    let expected = mul(&mul(&factor(1), &factor(2)), &factor(3));
    assert_eq!(execute(&program(powers), &sym), expected);
}

/// Parallel splitting as a step program of flows: x + h(A + B) with Euler, whatever the sub-flows' order.
#[test]
fn flows_in_steps() {
    let text = "scheme parallel2(A, B) { step x { return 1/2*(flow A(2) from x) + 1/2*(flow B(2) from x) } }";
    let expected = add(&Coeff::one(), &mul(&sym("h"), &add(&sym("A"), &sym("B"))));
    assert_eq!(execute(&program(text), &sym), expected);
}

/// `iie(r)` is backward Euler solved by r iterations, instruction by instruction.
#[test]
fn backward_euler_is_iterated_implicit_euler() {
    for r in 0..5 {
        let [a, b] = ["backward_euler", "iie"].map(|scheme| {
            let text = program(&model(&format!("{scheme}(layer, r: {r})"), 1, "")).to_string();
            let (title, body) = text.split_once('\n').unwrap();
            (title.replace(scheme, ""), body.to_string())
        });
        assert_eq!(a, b, "{r} iterations");
    }
}

/// Solved by n iterations, a method agrees with its rational stability function up to zⁿ⁺¹.
#[test]
fn implicit_methods() {
    let z = mul(&sym("h"), &sym("l"));
    let series = |p: &StageProgram, expected: &[Exact]| {
        let powers = expected.iter().rev().fold(Coeff::zero(), |acc, c| {
            add(&mul(&acc, &z), &Coeff::constant(c.clone()))
        });
        assert_eq!(execute(p, &|_| sym("l")), powers, "{}", p.title);
    };
    let e = [1, 1, 2, 6, 24, 120, 720].map(|n| Exact::ratio(1, n));
    series(&library("gauss4"), &e[..5]);
    series(&library("gauss6"), &e);
    let halves: Vec<Exact> = [1, 1, 2, 4, 8].map(|n| Exact::ratio(1, n)).into();
    series(&library("implicit_midpoint"), &halves);
    let radau: Vec<Exact> = [1, 1, 2, 6, 36].map(|n| Exact::ratio(1, n)).into();
    series(&library("radau_iia3"), &radau);
    // (1 + (1 − 2γ) z) / (1 − γ z)²: the coefficient of zⁿ is (n + 1) γⁿ + (1 − 2γ) n γⁿ⁻¹.
    let gamma = &Exact::one() - &Exact::ratio(1, 2).root(2).unwrap();
    let power = |n: i64| (0..n).fold(Exact::one(), |p, _| &p * &gamma);
    let rest = &Exact::one() - &(&gamma * &Exact::int(2));
    let sdirk = (0..5).map(|n| {
        let second = &(&rest * &power(n - 1)) * &Exact::int(n);
        &(&power(n) * &Exact::int(n + 1)) + &second
    });
    series(&library("sdirk2"), &sdirk.collect::<Vec<_>>());
}

/// What only the embedded partner needs is not evaluated: as a step of fixed size, and inside another flow.
#[test]
fn embedded_partners_cost_nothing() {
    let pair = library("bogacki_shampine");
    let partner = pair.embedded.as_ref().expect("a partner");
    assert_eq!((pair.evaluations(), partner.instrs.len()), (3, 2));
    let inner = program(&model("strang(ffn by bogacki_shampine, att)", 1, ""));
    assert_eq!((inner.evaluations(), inner.embedded), (7, None));
    let text = "scheme pair(F, G) { step x { k = F(x);  y = x + h*k;  m = G(y);  return y embedded x + h/2*(k + m) } }";
    let step = program(text);
    assert_eq!(step.evaluations(), 1);
    insta::assert_snapshot!(step.to_string());
}
