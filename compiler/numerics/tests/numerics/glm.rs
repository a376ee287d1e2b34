//! General linear methods and multistep methods against the literature, and against each other.

use crate::written::{q, row};
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::angle::Angle;
use odec_numerics::glm::characteristic::Characteristic;
use odec_numerics::glm::first::{Missed, Why, missed};
use odec_numerics::glm::{Facts, Glm, of_multistep};
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::multistep::Multistep;
use odec_numerics::poly::{Extent, Poly};
use odec_numerics::stability::{Stability, StabilityFunction};
use proptest::prelude::*;

fn matrix(rows: &[&str]) -> Vec<Vec<Exact>> {
    rows.iter().map(|r| row(r)).collect()
}

fn glm(a: &[&str], u: &[&str], b: &[&str], v: &[&str]) -> Glm {
    Glm {
        fields: vec!["F".into()],
        field_of: vec![0; a.len()],
        a: matrix(a),
        u: matrix(u),
        b: matrix(b),
        v: matrix(v),
        state: 0,
    }
}

fn multistep(alpha: &str, beta: &str) -> Multistep {
    let (mut alpha, mut beta) = (row(alpha), row(beta));
    let n = alpha.len().max(beta.len());
    alpha.resize(n, Exact::zero());
    beta.resize(n, Exact::zero());
    Multistep { alpha, beta }
}

fn end(e: &Option<Extent>) -> f64 {
    match e {
        Some(Extent::Until { lo, hi }) => {
            assert!(lo.to_f64() <= hi.to_f64() && hi.to_f64() - lo.to_f64() < 1e-11 * hi.to_f64());
            hi.to_f64()
        }
        Some(Extent::Zero) => 0.0,
        Some(Extent::Infinite) => f64::INFINITY,
        None => f64::NAN,
    }
}

const METHODS: [(&str, &str, &str); 14] = [
    ("AB1", "1 -1", "0 1"),
    ("AB2", "1 -1", "0 3/2 -1/2"),
    ("AB3", "1 -1", "0 23/12 -4/3 5/12"),
    ("AB4", "1 -1", "0 55/24 -59/24 37/24 -3/8"),
    ("trapezoidal", "1 -1", "1/2 1/2"),
    ("AM3", "1 -1", "5/12 2/3 -1/12"),
    ("AM4", "1 -1", "3/8 19/24 -5/24 1/24"),
    ("BDF2", "3/2 -2 1/2", "1"),
    ("BDF3", "11/6 -3 3/2 -1/3", "1"),
    ("BDF4", "25/12 -4 3 -4/3 1/4", "1"),
    ("Milne", "1 0 -1", "1/3 4/3 1/3"),
    ("leap-frog", "1 0 -1", "0 2"),
    // Dahlquist's divergent method.
    ("divergent", "1 4 -5", "0 4 2"),
    ("double", "1 -2 1", "0 1 -1"),
];

/// The same facts, whether a method is given by its two rows or by its four matrices.
#[test]
fn multistep_methods_are_general_linear_methods() {
    for (name, alpha, beta) in METHODS {
        let m = multistep(alpha, beta);
        let (own, g) = (m.facts(), of_multistep(&m.alpha, &m.beta).unwrap());
        let facts = g.facts();
        assert_eq!(facts.zero_stable, own.zero_stable, "{name}");
        assert_eq!(facts.strongly_stable, own.strongly_stable, "{name}");
        assert_eq!(facts.a_stable, own.a_stable, "{name}");
        assert_eq!(facts.real, own.real, "{name}");
        assert_eq!(facts.imaginary_squared, own.imaginary_squared, "{name}");
        let rows = Characteristic::of_multistep(&m.alpha, &m.beta);
        assert_eq!(facts.characteristic, rows, "{name}");
        if name == "double" {
            // 1 is a double eigenvalue: no starting procedure is decided.
            assert_eq!(facts.order, None);
            continue;
        }
        assert_eq!(facts.order, Some(own.order), "{name}");
        assert_eq!(facts.error_constant, own.error_constant, "{name}");
        // Older states are the solution, older evaluations its derivative.
        let k = m.alpha.len() - 1;
        let u = (0..2 * k - 1).map(|i| q(i64::from(i < k), 1));
        assert_eq!(facts.preconsistency, Some(u.collect()), "{name}");
        let v = (0..2 * k - 1).map(|i| if i < k { q(-(i as i64), 1) } else { q(1, 1) });
        assert_eq!(facts.consistency, Some(v.collect()), "{name}");
    }
}

/// Hairer, Nørsett & Wanner (1993), III.1, and Hairer & Wanner (1996), V.1: Adams–Bashforth methods reach to 1, 6/11 and 3/10 on
/// the real axis, the methods of order 3 and 4 to 0.7236 and 0.4300 on the imaginary one (Durran 1991, Mon. Wea. Rev. 119, 702), the
/// leap-frog method to 1. Adams–Moulton of order 3 and 4 to 6 and 3.
#[test]
fn limits_of_multistep_methods() {
    let cases = [
        ("AB1", 2.0, 0.0),
        ("AB2", 1.0, 0.0),
        ("AB3", 6.0 / 11.0, 0.72361),
        ("AB4", 0.3, 0.43001),
        ("trapezoidal", f64::INFINITY, f64::INFINITY),
        ("AM3", 6.0, 0.0),
        ("AM4", 3.0, 0.0),
        ("BDF2", f64::INFINITY, f64::INFINITY),
        ("leap-frog", 0.0, 1.0),
    ];
    for (name, real, imaginary) in cases {
        let (_, alpha, beta) = METHODS.iter().find(|m| m.0 == name).unwrap();
        let f = multistep(alpha, beta).facts();
        let (r, i) = (end(&f.real), end(&f.imaginary_squared).sqrt());
        assert!(r == real || (r - real).abs() < 1e-10, "{name}: {r}");
        assert!(
            i == imaginary || (i - imaginary).abs() < 1e-4,
            "{name}: {i}"
        );
    }
    // Where it ends exactly.
    let f = multistep("1 -1", "0 23/12 -4/3 5/12").facts();
    let Some(Extent::Until { lo, hi }) = f.real else {
        panic!("{:?}", f.real);
    };
    assert!(lo <= q(6, 11) && q(6, 11) <= hi);
}

/// Milne's method is stable nowhere on the real axis and up to √3 on the imaginary one.
#[test]
fn milne_simpson() {
    let f = multistep("1 0 -1", "1/3 4/3 1/3").facts();
    assert_eq!(f.real, Some(Extent::Zero));
    let imaginary = end(&f.imaginary_squared);
    assert!((imaginary - 3.0).abs() < 1e-10, "{imaginary}");
}

/// The enclosure holds what the boundary locus has in floating point at many angles.
#[test]
fn angles_are_enclosed() {
    let names = ["BDF3", "BDF4"];
    let methods = METHODS.iter().filter(|m| names.contains(&m.0));
    for (name, alpha, beta) in methods {
        let m = multistep(alpha, beta);
        let Some(angle @ Angle::Tangent { .. }) = m.facts().angle else {
            panic!("{name}");
        };
        let (lo, hi) = angle.degrees();
        assert!(hi - lo < 1e-10, "{name}: {lo} {hi}");
        let at = |row: &[Exact], t: f64| {
            let k = row.len() - 1;
            let term = |(i, c): (usize, &Exact)| {
                let (s, co) = ((k - i) as f64 * t).sin_cos();
                (c.to_f64() * co, c.to_f64() * s)
            };
            row.iter()
                .enumerate()
                .map(term)
                .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let mut least = f64::MAX;
        for i in 100..20_000 {
            let t = std::f64::consts::PI * f64::from(i) / 20_000.0;
            let ((a, b), (c, d)) = (at(&m.alpha, t), at(&m.beta, t));
            let (re, im) = (a * c + b * d, b * c - a * d);
            if re < 0.0 {
                least = least.min((im.abs() / -re).atan().to_degrees());
            }
        }
        assert!(
            lo <= least + 1e-9 && least - hi < 1e-4,
            "{name}: {lo} {hi} {least}"
        );
    }
    assert_eq!(
        multistep("3/2 -2 1/2", "1").facts().angle,
        Some(Angle::Right)
    );
    // σ of AM3 has a root outside the disc.
    assert_eq!(multistep("1 -1", "5/12 2/3 -1/12").facts().angle, None);
}

/// A method of one step: Φ = Q(z)w − P(z), with all facts of its stability function.
#[test]
fn methods_of_one_step() {
    let rk4 = ["0 0 0 0", "1/2 0 0 0", "0 1/2 0 0", "0 0 1 0"];
    let radau = ["5/12 -1/12", "3/4 1/4"];
    let cases = [
        (Tableau::single(matrix(&rk4), row("1/6 1/3 1/3 1/6")), 4),
        (Tableau::single(matrix(&radau), row("3/4 1/4")), 3),
        (Tableau::single(matrix(&["1/2"]), row("1")), 2),
        (Tableau::single(matrix(&["0"]), row("1")), 1),
    ];
    for (t, order) in cases {
        let (facts, own) = (Glm::of_tableau(&t).facts(), Stability::new(&t).unwrap());
        same_as_stability(&facts, &own);
        assert_eq!(facts.order, Some(order));
        assert_eq!(
            (facts.zero_stable, facts.strongly_stable),
            (Some(true), Some(true))
        );
    }
}

fn same_as_stability(facts: &Facts, own: &Stability) {
    let phi = facts.characteristic.as_ref().unwrap();
    let minus = own.function.numerator.scaled(&q(-1, 1));
    let lead = own
        .function
        .denominator
        .0
        .iter()
        .find(|c| !c.is_zero())
        .unwrap();
    let over = lead.recip().unwrap();
    let expected = [minus, own.function.denominator.clone()].map(|p| p.scaled(&over));
    if own.function.numerator.is_zero() {
        assert_eq!(phi.degree(), 0);
        return;
    }
    assert_eq!(phi.by_w, expected);
    assert_eq!(facts.a_stable, own.a_stable);
    let close = |a: &Option<Extent>, b: &Option<Extent>| {
        let (a, b) = (end(a), end(b));
        assert!(a == b || (a - b).abs() <= 1e-10 * b.abs(), "{a} {b}");
    };
    close(&facts.real, &own.real);
    close(&facts.imaginary_squared, &own.imaginary_squared);
}

/// Adams–Bashforth–Moulton of order 4 in PECE form; values x, hf[−1], hf[−2], hf[−3].
fn abm4() -> Glm {
    glm(
        &["0 0", "55/24 0"],
        &["1 0 0 0", "1 -59/24 37/24 -9/24"],
        &["19/24 9/24", "1 0", "0 0", "0 0"],
        &["1 -5/24 1/24 0", "0 0 0 0", "0 1 0 0", "0 0 1 0"],
    )
}

/// Lambert (1991), Numerical Methods for Ordinary Differential Systems, 4.4: the stability polynomial of PECE is
/// ρ − zσ + β z (ρ* − zσ*), the error constant that of the corrector; ABM4 is stable on [−1.25, 0] or so.
#[test]
fn predictor_and_corrector() {
    let f = abm4().facts();
    assert_eq!(f.order, Some(4));
    assert_eq!(f.error_constant, Some(q(-19, 720)));
    assert_eq!(
        (f.zero_stable, f.strongly_stable, f.a_stable),
        (Some(true), Some(true), Some(false))
    );
    let by_z = |c: [(i64, i64); 3]| Poly::new(c.iter().map(|(n, d)| q(*n, *d)).collect());
    // By powers of w: constant, w, …
    let rho = [0, 0, 0, -1, 1];
    let corrector = [0, 1, -5, 19, 9];
    let predictor = [-9, 37, -59, 55, 0];
    let phi: Vec<Poly> = (0..5)
        .map(|i| {
            let first = by_z([(rho[i], 1), (-corrector[i], 24), (0, 1)]);
            let second = by_z([(0, 1), (9 * rho[i], 24), (-9 * predictor[i], 576)]);
            first.plus(&second)
        })
        .collect();
    assert_eq!(f.characteristic.unwrap().by_w, phi);
    let real = end(&f.real);
    assert!((1.25..1.30).contains(&real), "{real}");
}

/// PEC form: what is kept is an evaluation at a predicted state, whose predictor used such evaluations. Its order is that of the corrector
/// only where a starting procedure of its own is allowed for: here 2, with the predictor AB2 and the trapezoidal corrector.
#[test]
fn kept_values_may_depend_on_themselves() {
    // Values x, hf, hf[−1] with f = F(p) of the step before: p = x + h(3f − f[−1])/2, x + h(F(p) + f)/2.
    let pec = glm(
        &["0"],
        &["1 3/2 -1/2"],
        &["1/2", "1", "0"],
        &["1 1/2 0", "0 0 0", "0 1 0"],
    );
    let f = pec.facts();
    assert_eq!(f.order, Some(2));
    assert_eq!(f.zero_stable, Some(true));
    assert_eq!(f.preconsistency, Some(row("1 0 0")));
    assert_eq!(f.consistency, Some(row("0 1 1")));
}

/// Butcher (1993), Appl. Numer. Math. 11, 275: the explicit DIMSIM of order 2, with two values of its own.
#[test]
fn dimsim() {
    let g = glm(
        &["0 0", "2 0"],
        &["1 0", "0 1"],
        &["5/4 1/4", "3/4 -1/4"],
        &["1/2 1/2", "1/2 1/2"],
    );
    let f = g.facts();
    assert_eq!(f.order, Some(2));
    assert_eq!((f.zero_stable, f.strongly_stable), (Some(true), Some(true)));
    assert_eq!(f.preconsistency, Some(row("1 1")));
    // The same stability as a Runge–Kutta method of two stages and order 2: Φ = w(w − 1 − z − z²/2).
    let phi = f.characteristic.unwrap().by_w;
    assert_eq!(phi, [Poly::new(row("-1 -1 -1/2")), Poly::new(row("1"))]);
    assert!((end(&f.real) - 2.0).abs() < 1e-10);
}

/// Powers of V are bounded unless an eigenvalue on the circle is defective, whatever its multiplicity.
#[test]
fn zero_stability_asks_for_the_minimal_polynomial() {
    let with = |v: &[&str]| {
        let mut g = glm(&[], &[], &vec![""; v.len()], v);
        g.field_of.clear();
        g.zero_stable()
    };
    assert_eq!(with(&["1 0", "0 1"]), Some((true, false)));
    assert_eq!(with(&["1 1", "0 1"]), Some((false, false)));
    assert_eq!(with(&["1 0 0", "0 0 -1", "0 1 0"]), Some((true, false)));
    assert_eq!(with(&["1 0", "5 1/2"]), Some((true, true)));
    assert_eq!(
        with(&["0 1 0 0", "-1 0 0 0", "1 0 0 1", "0 1 -1 0"]),
        Some((false, false))
    );
}

/// The largest modulus of the roots w of Φ(w, z), by Durand and Kerner's iteration.
fn largest(phi: &Characteristic, re: f64, im: f64) -> f64 {
    type C = (f64, f64);
    let mul = |a: C, b: C| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
    let sub = |a: C, b: C| (a.0 - b.0, a.1 - b.1);
    let div = |a: C, b: C| {
        let n = b.0 * b.0 + b.1 * b.1;
        ((a.0 * b.0 + a.1 * b.1) / n, (a.1 * b.0 - a.0 * b.1) / n)
    };
    let value = |p: &Poly| {
        p.0.iter().rev().fold((0.0, 0.0), |s, c| {
            let s = mul(s, (re, im));
            (s.0 + c.to_f64(), s.1)
        })
    };
    let mut c: Vec<C> = phi.by_w.iter().map(value).collect();
    let lead = c.pop().unwrap();
    let c: Vec<C> = c.into_iter().map(|x| div(x, lead)).collect();
    let mut w: Vec<C> = (0..c.len())
        .map(|i| {
            let a = 0.4 + 2.0 * i as f64;
            (1.1 * a.cos(), 1.1 * a.sin())
        })
        .collect();
    for _ in 0..500 {
        for i in 0..w.len() {
            let p = c.iter().rev().fold((1.0, 0.0), |s, c| {
                let s = mul(s, w[i]);
                (s.0 + c.0, s.1 + c.1)
            });
            let others = (0..w.len()).filter(|j| *j != i);
            let product = others.fold((1.0, 0.0), |s, j| mul(s, sub(w[i], w[j])));
            w[i] = sub(w[i], div(p, product));
        }
    }
    w.iter().map(|w| w.0.hypot(w.1)).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random explicit methods of one step.
    #[test]
    fn stability_functions(a in prop::collection::vec(-4i64..5, 3), b in prop::collection::vec(-3i64..4, 3)) {
        let a = vec![
            vec![q(0, 1), q(0, 1), q(0, 1)],
            vec![q(a[0], 2), q(0, 1), q(0, 1)],
            vec![q(a[1], 2), q(a[2], 3), q(0, 1)],
        ];
        let sum: i64 = b[..2].iter().sum();
        let t = Tableau::single(a, vec![q(b[0], 4), q(b[1], 4), q(4 - sum, 4)]);
        let own = Stability::new(&t).unwrap();
        prop_assume!(StabilityFunction::new(&t).is_some());
        same_as_stability(&Glm::of_tableau(&t).facts(), &own);
    }

    /// Random two-step methods with a predictor: roots found in floating point lie in the disc up to the limits, and one of them on the
    /// circle there.
    #[test]
    fn limits_are_where_a_root_leaves(c in prop::collection::vec(-6i64..7, 4), rho in 0i64..4) {
        // x + h/4(c₀ f + c₁ f[−1]), x − ρ/4 (x − x[−1]) + h(…).
        let g = Glm {
            fields: vec!["F".into()],
            field_of: vec![0; 2],
            a: vec![vec![q(0, 1), q(0, 1)], vec![q(c[0], 4), q(0, 1)]],
            u: vec![row("1 0 0"), vec![q(1, 1), q(0, 1), q(c[1], 4)]],
            b: vec![vec![q(c[2], 4), q(4 - c[2] - c[3] + rho, 4)], row("0 0"), row("1 0")],
            v: vec![vec![q(4 - rho, 4), q(rho, 4), q(c[3], 4)], row("1 0 0"), row("0 0 0")],
            state: 0,
        };
        let f = g.facts();
        prop_assert_eq!(f.zero_stable, Some(rho < 4));
        prop_assert!(f.order >= Some(1));
        let phi = f.characteristic.clone().unwrap();
        for (extent, imaginary) in [(&f.real, false), (&f.imaginary_squared, true)] {
            let Some(extent) = extent else {
                return Err(TestCaseError::fail("not decided"));
            };
            let limit = match extent {
                Extent::Until { hi, .. } if imaginary => hi.to_f64().sqrt(),
                Extent::Until { hi, .. } => hi.to_f64(),
                _ => continue,
            };
            let at = |x: f64| match imaginary {
                true => largest(&phi, 0.0, x),
                false => largest(&phi, -x, 0.0),
            };
            for part in 1..8 {
                let x = limit * f64::from(part) / 8.0;
                prop_assert!(at(x) < 1.0 + 1e-6, "{} at {x}", at(x));
            }
            prop_assert!((at(limit) - 1.0).abs() < 1e-4, "{} at {limit}", at(limit));
        }
    }
}

/// First steps of F alone that end with the values `ends`, each a sum over the state and evaluations at such sums.
fn first_steps(
    method: &Glm,
    line: &[Step],
    ends: &[Option<usize>],
    steps: usize,
) -> Option<Missed> {
    let line = LinearStep {
        fields: vec!["F".into()],
        steps: line.to_vec(),
        result: 0,
        embedded: None,
    };
    let (mut started, mut trees) = method.expansion().unwrap();
    missed(&line, ends, (&mut started, &mut trees), steps, (4, None)).unwrap()
}

/// x[n+1] = x[n] + h (3/2 f[n] − 1/2 f[n−1]) after one step: with f[−1] = 0, with Euler's step, with the exact one up to h².
#[test]
fn what_first_steps_of_adams_leave() {
    let ab2 = glm(&["0"], &["1 0"], &["3/2", "1"], &["1 -1/2", "0 0"]);
    let by = |c: (i64, i64)| {
        [
            Step::Eval { field: 0, at: 0 },
            Step::Combine(vec![(0, q(1, 1)), (1, q(c.0, c.1))]),
        ]
    };
    let ends = [Some(2), Some(1)];
    let zero = first_steps(&ab2, &by((3, 2)), &ends, 1).unwrap();
    assert_eq!((zero.order, zero.value, zero.lasts), (1, 0, true));
    let euler = first_steps(&ab2, &by((1, 1)), &ends, 1).unwrap();
    assert_eq!((euler.order, euler.value, euler.lasts), (2, 0, true));
    let Why::Tree { has, expected, .. } = euler.why else {
        panic!("a tree");
    };
    assert_eq!((has, expected), (q(0, 1), q(1, 2)));
    // Nothing kept of f.
    let lost = first_steps(&ab2, &by((1, 1)), &[Some(2), None], 1).unwrap();
    assert_eq!((lost.order, lost.value, lost.lasts), (1, 1, true));
}

/// x[n+1] = x[n−1] + 2h f[n]: the state itself is not there. Half of an error in either value stays.
#[test]
fn what_first_steps_of_leapfrog_leave() {
    let leap = glm(&["0"], &["1 0"], &["2", "0"], &["0 1", "1 0"]);
    let step = [
        Step::Eval { field: 0, at: 0 },
        Step::Combine(vec![(1, q(2, 1))]),
    ];
    let found = first_steps(&leap, &step, &[Some(2), Some(0)], 1).unwrap();
    assert_eq!((found.order, found.lasts), (0, true));
    let (has, expected) = (q(0, 1), q(1, 1));
    assert_eq!(found.why, Why::State { has, expected });
}

/// A difference that dies away limits the order to its own at least: d is forgotten after a step, and stands in h F alone.
#[test]
fn differences_that_die_away() {
    // x + h F(x + d), d = 0·x: values x and d.
    let method = glm(&["0"], &["1 1"], &["1", "0"], &["1 0", "0 0"]);
    let first = [
        Step::Eval { field: 0, at: 0 },
        Step::Combine(vec![(0, q(1, 1)), (1, q(1, 1))]),
    ];
    let found = first_steps(&method, &first, &[Some(2), Some(1)], 1).unwrap();
    assert_eq!((found.order, found.value, found.lasts), (1, 1, false));
}

/// A field at twice the state has no expansion: what holds h times it is right up to h⁰.
#[test]
fn values_without_an_expansion() {
    let ab2 = glm(&["0"], &["1 0"], &["3/2", "1"], &["1 -1/2", "0 0"]);
    let first = [
        Step::Combine(vec![(0, q(2, 1))]),
        Step::Eval { field: 0, at: 1 },
        Step::Combine(vec![(0, q(1, 1)), (2, q(1, 1))]),
    ];
    let found = first_steps(&ab2, &first, &[Some(3), Some(2)], 1).unwrap();
    assert_eq!(
        (found.order, found.why, found.lasts),
        (1, Why::NoSeries, false)
    );
}

/// What a claim's residual lets a coefficient be off, it lets one after the first steps.
#[test]
fn first_steps_within_a_residual() {
    let ab2 = glm(&["0"], &["1 0"], &["3/2", "1"], &["1 -1/2", "0 0"]);
    let line = LinearStep {
        fields: vec!["F".into()],
        steps: vec![
            Step::Eval { field: 0, at: 0 },
            Step::Combine(vec![(0, q(1, 1)), (1, q(1_000_001, 1_000_000))]),
        ],
        result: 0,
        embedded: None,
    };
    let order = |within: Option<Exact>| {
        let (mut started, mut trees) = ab2.expansion().unwrap();
        let both = (&mut started, &mut trees);
        let found = missed(&line, &[Some(2), Some(1)], both, 1, (4, within.as_ref()));
        found.unwrap().map(|m| m.order)
    };
    assert_eq!(order(None), Some(1));
    assert_eq!(order(Some(q(1, 100_000))), Some(2));
}
