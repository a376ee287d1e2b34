//! SSP coefficients, stable steps, additive methods: known values, each with its source.

use crate::written::{five_stages, q, rk4, row, tableau};
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::joint::{AtInfinity, Function, Joint};
use odec_numerics::poly::{Extent, Poly};
use odec_numerics::ssp::{Ssp, ssp};
use odec_numerics::stability::Stability;
use odec_numerics::steps::StepBounds;

fn sqrt(n: i64) -> Exact {
    Exact::int(n).root(2).unwrap()
}
fn length(e: &Option<Extent>) -> f64 {
    match e {
        Some(Extent::Zero) => 0.0,
        Some(Extent::Infinite) => f64::INFINITY,
        Some(Extent::Until { hi, .. }) => hi.to_f64(),
        None => f64::NAN,
    }
}

/// Ferracina & Spijker (2008), Appl. Numer. Math. 58, 1675: the best SDIRK methods of order 3 with s stages have s − 1 + √(s² − 1).
#[test]
fn strong_stability_of_methods_with_roots() {
    for s in 2..=4_i64 {
        let g = &q(1, 2) * &(&Exact::one() - &(&sqrt((s - 1) * (s + 1)) * &q(1, s + 1)));
        let off = &sqrt((s + 1) * (s - 1)) * &q(1, (s + 1) * (s - 1));
        let entry = |i: i64, j: i64| match i - j {
            0 => g.clone(),
            1.. => off.clone(),
            _ => Exact::zero(),
        };
        let a = (0..s)
            .map(|i| (0..s).map(|j| entry(i, j)).collect())
            .collect();
        let t = Tableau::single(a, vec![q(1, s); s as usize]);
        let best = &Exact::int(s - 1) + &sqrt(s * s - 1);
        assert_eq!(ssp(&t), Some(Ssp::Exactly(best)), "{s} stages");
    }
    // Gauss's method has negative coefficients in rK(I + rK)⁻¹ for every r.
    let r = &sqrt(3) * &q(1, 6);
    let a = vec![vec![q(1, 4), &q(1, 4) - &r], vec![&q(1, 4) + &r, q(1, 4)]];
    assert_eq!(
        ssp(&Tableau::single(a, vec![q(1, 2), q(1, 2)])),
        Some(Ssp::None)
    );
}

/// Gottlieb, Ketcheson & Shu (2011), 6.2: order 2 with s stages has s − 1; n Euler steps have n. What no result
/// depends on, and a stage that is there twice, change nothing.
#[test]
fn strong_stability_of_many_stages() {
    let steps = |s: usize, size: Exact, b: Exact| {
        let a = |i: usize| {
            (0..s)
                .map(|j| if j < i { size.clone() } else { Exact::zero() })
                .collect()
        };
        Tableau::single((0..s).map(a).collect(), vec![b; s])
    };
    for s in [3, 8] {
        let t = steps(s, q(1, s as i64 - 1), q(1, s as i64));
        let expected = Exact::int(s as i64 - 1);
        assert_eq!(ssp(&t), Some(Ssp::Exactly(expected)), "{s} stages");
    }
    let t = steps(16, q(1, 16), q(1, 16));
    assert_eq!(ssp(&t), Some(Ssp::Exactly(q(16, 1))));
    // Heun's method, its first stage twice, and an idle one with a negative coefficient.
    let t = tableau(&["", "0", "1/2 1/2", "0 0 -1", "1/4 1/4 1/2 0"]);
    assert_eq!(t.reduced().stages(), 2);
    assert_eq!(ssp(&t), Some(Ssp::Exactly(q(1, 1))));
    // Ketcheson (2008), SIAM J. Sci. Comput. 30, 2113: ten stages, order 4.
    let a = |i: usize| {
        let c = |j: usize| match (j < i, i < 5, j < 5) {
            (false, ..) => Exact::zero(),
            (_, false, true) => q(1, 15),
            _ => q(1, 6),
        };
        (0..10).map(c).collect()
    };
    let t = Tableau::single((0..10).map(a).collect(), vec![q(1, 10); 10]);
    assert_eq!(ssp(&t), Some(Ssp::Exactly(q(6, 1))));
}

/// A coefficient that is no simple number, against bisection on X = rK − rKX in floating point.
#[test]
fn strong_stability_between_two_numbers() {
    let t = five_stages();
    let Some(Ssp::Between(found)) = ssp(&t) else {
        panic!("{:?}", ssp(&t));
    };
    let (lo, hi) = (&found.lo, &found.hi);
    let rows = t.a.iter().chain([&t.b]);
    let k: Vec<Vec<f64>> = rows
        .map(|r| r.iter().map(Exact::to_f64).collect())
        .collect();
    let good = |r: f64| {
        let mut x: Vec<Vec<f64>> = Vec::new();
        for row in &k {
            let entry = |j: usize| {
                let known = x.iter().zip(row).map(|(x, a)| r * a * x[j]);
                r * row[j] - known.sum::<f64>()
            };
            let row: Vec<f64> = (0..5).map(entry).collect();
            x.push(row);
        }
        x.iter()
            .all(|row| row.iter().all(|v| *v >= 0.0) && row.iter().sum::<f64>() <= 1.0)
    };
    let (mut from, mut to) = (0.1, 4.0);
    for _ in 0..60 {
        let middle = (from + to) / 2.0;
        if good(middle) {
            from = middle;
        } else {
            to = middle;
        }
    }
    assert!(
        lo.to_f64() <= from + 1e-9 && from <= hi.to_f64() + 1e-9,
        "{from} {lo:?}"
    );
}

fn steps(t: &Tableau) -> StepBounds {
    StepBounds::new(t, &Stability::new(t).unwrap())
}

/// Dahlquist & Jeltsch (1979), and Hairer & Wanner (1996), IV.12: the radius of circle contractivity is 1 for explicit Euler and for the
/// classical method, and 0 where a weight is; algebraically stable methods (Burrage & Butcher 1979) have no bound.
#[test]
fn contractive_steps() {
    let r = &sqrt(3) * &q(1, 6);
    let gauss = vec![vec![q(1, 4), &q(1, 4) - &r], vec![&q(1, 4) + &r, q(1, 4)]];
    let gauss = Tableau::single(gauss, vec![q(1, 2), q(1, 2)]);
    let unbounded = f64::INFINITY;
    let cases = [
        ("Euler", tableau(&["", "1"]), 2.0, 2.0),
        ("RK4", rk4(), 2.0, 2.785293563405282),
        ("Heun", tableau(&["", "1", "1/2 1/2"]), 2.0, 2.0),
        ("midpoint", tableau(&["", "1/2", "0 1"]), 0.0, 2.0),
        ("implicit Euler", tableau(&["1", "1"]), unbounded, unbounded),
        ("Gauss 4", gauss, unbounded, unbounded),
        (
            "Radau IIA",
            tableau(&["5/12 -1/12", "3/4 1/4", "3/4 1/4"]),
            unbounded,
            unbounded,
        ),
        // A-stable, and not algebraically stable: half an explicit Euler step comes first.
        (
            "trapezoidal",
            tableau(&["0 0", "1/2 1/2", "1/2 1/2"]),
            4.0,
            unbounded,
        ),
    ];
    for (name, t, nonlinear, linear) in cases {
        let s = steps(&t);
        let close = |a: f64, b: f64| a == b || (a - b).abs() < 1e-6;
        assert!(close(length(&s.contractive), nonlinear), "{name}: {s:?}");
        assert!(close(length(&s.disc), linear), "{name}: {s:?}");
    }
}

/// The largest half-disc and disc, against samples in floating point.
#[test]
fn discs_inside_the_region() {
    let cases = [
        rk4(),
        tableau(&["", "1/2", "-1 2", "1/6 2/3 1/6"]),
        tableau(&["", "1/2", "1/2 1/2", "1/6 1/6 1/6", "1/6 1/6 1/6 1/2"]),
        tableau(&["2/5", "1"]),
    ];
    for t in cases {
        let stability = Stability::new(&t).unwrap();
        let s = steps(&t);
        let modulus = |x: f64, y: f64| {
            let value = |p: &Poly| {
                let horner =
                    |(a, b): (f64, f64), c: &Exact| (a * x - b * y + c.to_f64(), a * y + b * x);
                p.0.iter().rev().fold((0.0, 0.0), horner)
            };
            let ((a, b), (c, d)) = (
                value(&stability.function.numerator),
                value(&stability.function.denominator),
            );
            a.hypot(b) / c.hypot(d)
        };
        // Just inside all points are stable, just outside one is not.
        let arc = |r: f64| {
            (0..=4000)
                .map(move |i| f64::from(i) / 4000.0 * std::f64::consts::PI)
                .map(move |a| (r, a))
        };
        let stable_disc = |d: f64| {
            arc(d / 2.0).all(|(r, a)| modulus(r * a.cos() - r, r * a.sin()) <= 1.0 + 1e-12)
        };
        let stable_half =
            |r: f64| arc(r).all(|(r, a)| modulus(-r * a.sin(), r * a.cos()) <= 1.0 + 1e-12);
        let (disc, half) = (length(&s.disc), length(&s.dissipation));
        assert!(
            stable_disc(disc * 0.9999) && !stable_disc(disc * 1.001),
            "{disc}"
        );
        assert!(
            half == 0.0 || stable_half(half * 0.9999) && !stable_half(half * 1.001),
            "{half}"
        );
    }
}

/// Two fields as they are written in ARS(2,2,2), each stage solved by two iterations; `written` numbers the places.
fn ars222() -> (Tableau, Vec<usize>) {
    let g = &Exact::one() - &(&sqrt(2) * &q(1, 2));
    let d = &Exact::one() - &(&q(1, 2) * &g.recip().unwrap());
    let (e, n) = (&Exact::one() - &d, &Exact::one() - &g);
    let z = Exact::zero;
    // Stages: A(x), B(y), B(z), A(z₂), B(z₂), B(y'), B(z'), B(z'₂).
    let first = |b: Vec<Exact>| {
        let mut r = vec![g.clone(), z(), z(), z(), z(), z(), z(), z()];
        b.into_iter().enumerate().for_each(|(i, c)| r[i + 1] = c);
        r
    };
    let second = |b: Vec<Exact>| {
        let mut r = vec![d.clone(), z(), z(), e.clone(), n.clone(), z(), z(), z()];
        b.into_iter().enumerate().for_each(|(i, c)| r[i + 5] = c);
        r
    };
    let a = vec![
        vec![z(); 8],
        first(vec![]),
        first(vec![g.clone()]),
        first(vec![z(), g.clone()]),
        first(vec![z(), g.clone()]),
        second(vec![]),
        second(vec![g.clone()]),
        second(vec![z(), g.clone()]),
    ];
    let b = second(vec![z(), z(), g.clone()]);
    let t = Tableau {
        fields: vec!["A".into(), "B".into()],
        field_of: vec![0, 1, 1, 0, 1, 1, 1, 1],
        a,
        b,
        embedded: None,
    };
    (t, vec![0, 1, 1, 2, 3, 4, 4, 5])
}

/// Ascher, Ruuth & Spiteri (1997), 2.6: A alone is an explicit method of order 2 with two stages, B alone the L-stable SDIRK method
/// with γ = 1 − √2/2; what is stiff in B is damped whatever A is.
#[test]
fn implicit_explicit_methods() {
    let (t, written) = ars222();
    let limit = t.converged(&written).expect("iterations");
    assert_eq!(limit.stages(), 4);
    let joint = Joint::new(&limit).unwrap();
    let (a, b) = (
        joint.alone[0].clone().unwrap(),
        joint.alone[1].clone().unwrap(),
    );
    assert_eq!(a.function.numerator, Poly::new(row("1 1 1/2")));
    assert_eq!((b.a_stable, b.l_stable), (Some(true), Some(true)));
    assert_eq!(joint.far[1], AtInfinity::Zero);
    assert_eq!(joint.far[0], AtInfinity::Infinite);
    // As it is computed it is explicit, and a polynomial.
    let computed = Joint::new(&t).unwrap();
    assert_eq!(computed.alone[1].as_ref().unwrap().a_stable, Some(false));
    assert_eq!(computed.function.denominator.0.len(), 1);
    // Implicit–explicit Euler: (1 + z₁)/(1 − z₂), exactly.
    let euler = Tableau {
        fields: vec!["A".into(), "B".into()],
        field_of: vec![0, 1],
        a: vec![row("0 0"), row("1 1")],
        b: row("1 1"),
        embedded: None,
    };
    let f = Function::new(&euler).unwrap();
    let term = |e: [u32; 2], c: i64| (e.to_vec(), Exact::int(c));
    assert_eq!(f.numerator.0, [term([0, 0], 1), term([1, 0], 1)].into());
    assert_eq!(f.denominator.0, [term([0, 0], 1), term([0, 1], -1)].into());
}

/// The quotient of determinants is the series of an explicit method, and a product of flows the product of theirs.
#[test]
fn functions_of_splittings() {
    // Strang with Euler sub-steps: (1 + z₁/2)² (1 + z₂).
    let strang = Tableau {
        fields: vec!["A".into(), "B".into()],
        field_of: vec![0, 1, 0],
        a: vec![row("0 0 0"), row("1/2 0 0"), row("1/2 1 0")],
        b: row("1/2 1 1/2"),
        embedded: None,
    };
    let f = Function::new(&strang).unwrap();
    let expected = [
        (vec![0, 0], q(1, 1)),
        (vec![1, 0], q(1, 1)),
        (vec![2, 0], q(1, 4)),
        (vec![0, 1], q(1, 1)),
        (vec![1, 1], q(1, 1)),
        (vec![2, 1], q(1, 4)),
    ];
    assert_eq!(f.numerator.0, expected.into());
    let joint = Joint::new(&strang).unwrap();
    assert_eq!(length(&joint.alone[0].clone().unwrap().real), 4.0);
    assert_eq!(length(&joint.alone[1].clone().unwrap().real), 2.0);
    // Iterations are written once, and used once: RK4's stages and two Euler steps are not, the midpoint rule's are.
    assert_eq!(rk4().converged(&[0, 1, 2, 3]), None);
    assert_eq!(rk4().converged(&[0, 0, 0, 1]), None);
    assert_eq!(tableau(&["", "1/2", "1/2 1/2"]).converged(&[0, 0]), None);
    let iterated = tableau(&["", "1/2", "0 1/2", "0 0 1"]);
    assert_eq!(iterated.converged(&[0, 0, 0]), Some(tableau(&["1/2", "1"])));
}
