//! Stability, symmetries, multistep methods: known facts, each with its source.

use crate::written::{q, rk4, row, tableau};
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::descartes::{is_nonnegative, odd_roots};
use odec_numerics::multistep::Multistep;
use odec_numerics::poly::{Extent, Poly, extent};
use odec_numerics::properties::{Kind, Properties};
use odec_numerics::ssp::{Ssp, ssp};
use odec_numerics::stability::{Stability, StabilityFunction};
use proptest::prelude::*;

fn gauss2() -> Tableau {
    let r = &Exact::int(3).root(2).unwrap() * &q(1, 6);
    let a = vec![vec![q(1, 4), &q(1, 4) - &r], vec![&q(1, 4) + &r, q(1, 4)]];
    Tableau::single(a, vec![q(1, 2), q(1, 2)])
}
fn length(e: &Option<Extent>) -> f64 {
    match e {
        Some(Extent::Zero) => 0.0,
        Some(Extent::Infinite) => f64::INFINITY,
        Some(Extent::Until { lo, hi }) => {
            assert!(hi.to_f64() - lo.to_f64() < 1e-9);
            hi.to_f64()
        }
        None => f64::NAN,
    }
}
fn function(t: &Tableau) -> (Vec<String>, Vec<String>) {
    let f = StabilityFunction::new(t).unwrap();
    let text = |p: &Poly| p.0.iter().map(Exact::to_string).collect();
    (text(&f.numerator), text(&f.denominator))
}

/// Hairer & Wanner (1996), IV.3, Table 3.1 and IV.5: Padé approximants to exp.
#[test]
fn stability_functions() {
    let cases = [
        ("RK4", rk4(), "1 1 1/2 1/6 1/24", "1"),
        ("implicit Euler", tableau(&["1", "1"]), "1", "1 -1"),
        (
            "trapezoidal",
            tableau(&["0 0", "1/2 1/2", "1/2 1/2"]),
            "1 1/2",
            "1 -1/2",
        ),
        ("Gauss 4", gauss2(), "1 1/2 1/12", "1 -1/2 1/12"),
        (
            "Radau IIA 3",
            tableau(&["5/12 -1/12", "3/4 1/4", "3/4 1/4"]),
            "1 1/3",
            "1 -2/3 1/6",
        ),
        (
            "Lobatto IIIC 2",
            tableau(&["1/2 -1/2", "1/2 1/2", "1/2 1/2"]),
            "1",
            "1 -1 1/2",
        ),
    ];
    for (name, t, p, d) in cases {
        let (num, den) = function(&t);
        assert_eq!(num.join(" "), p, "{name}");
        assert_eq!(den.join(" "), d, "{name}");
    }
}

#[test]
fn a_and_l_stability() {
    let sdirk = |g: Exact| {
        let rest = &Exact::one() - &g;
        let last = vec![rest.clone(), g.clone()];
        Tableau::single(vec![vec![g, Exact::zero()], last.clone()], last)
    };
    let gamma = &Exact::one() - &(&Exact::int(2).root(2).unwrap() * &q(1, 2));
    let theta = |n, d| tableau(&[&format!("{n}/{d}"), "1"]);
    let cases = [
        ("RK4", rk4(), (false, false)),
        ("implicit Euler", tableau(&["1", "1"]), (true, true)),
        ("midpoint", tableau(&["1/2", "1"]), (true, false)),
        ("Gauss 4", gauss2(), (true, false)),
        (
            "Radau IIA 3",
            tableau(&["5/12 -1/12", "3/4 1/4", "3/4 1/4"]),
            (true, true),
        ),
        // Alexander (1977): γ = 1 − √2/2.
        ("SDIRK 2", sdirk(gamma), (true, true)),
        // The θ-method is A-stable from θ = 1/2 on.
        ("θ = 51/100", theta(51, 100), (true, false)),
        ("θ = 49/100", theta(49, 100), (false, false)),
        // A pole in the left half-plane.
        ("θ = −1", theta(-1, 1), (false, false)),
    ];
    for (name, t, (a, l)) in cases {
        let s = Stability::new(&t).unwrap();
        assert_eq!((s.a_stable, s.l_stable), (Some(a), Some(l)), "{name}");
        assert_eq!(s.i_stable, Some(a), "{name}");
    }
    // Implicit Euler run backwards: 1/(1 + z).
    let back = Stability::new(&tableau(&["-1", "-1"])).unwrap();
    assert_eq!((back.i_stable, back.a_stable), (Some(true), Some(false)));
}

/// Hairer & Wanner (1996), IV.6, Table 6.3: the method of Nørsett (1974) with two stages and order 3 is A-stable for γ = (3 + √3)/6, but
/// neither stable for γ = (3 − √3)/6 nor L-stable; IV.3: with order 2 from γ = 1/4 on. Table 6.4: stiffly accurate SDIRK methods of order
/// s − 1 are L-stable for 0.18042531 ≤ γ ≤ 2.18560010 with three stages.
#[test]
fn ranges_of_sdirk_methods() {
    let two = |g: &Exact| {
        let off = &Exact::one() - &(&Exact::int(2) * g);
        let a = vec![vec![g.clone(), Exact::zero()], vec![off, g.clone()]];
        Stability::new(&Tableau::single(a, vec![q(1, 2), q(1, 2)])).unwrap()
    };
    let root = &Exact::int(3).root(2).unwrap() * &q(1, 6);
    assert_eq!(two(&(&q(1, 2) + &root)).a_stable, Some(true));
    assert_eq!(two(&(&q(1, 2) + &root)).l_stable, Some(false));
    assert_eq!(two(&(&q(1, 2) - &root)).a_stable, Some(false));
    assert_eq!(two(&q(1, 4)).a_stable, Some(true));
    assert_eq!(two(&q(2499, 10_000)).a_stable, Some(false));

    // R = P/(1 − γz)³ with deg P = 2 and order 2; a tableau that has it: its stages are those of the method with one, three times.
    let stable = |g: Exact| {
        let d = (0..3).fold(Poly::constant(q(1, 1)), |d, _| {
            d.times(&Poly::new(vec![q(1, 1), -&g]))
        });
        let e = Poly::new(vec![q(1, 1), q(1, 1), q(1, 2)]);
        let p = Poly::new(d.times(&e).0[..3].to_vec());
        let s = Stability::of(StabilityFunction {
            numerator: p,
            denominator: d,
        });
        (s.i_stable, s.l_stable)
    };
    let yes = (Some(true), Some(true));
    let no = (Some(false), Some(false));
    assert_eq!(stable(q(18_042_532, 100_000_000)), yes);
    assert_eq!(stable(q(18_042_530, 100_000_000)), no);
    assert_eq!(stable(q(218_560_009, 100_000_000)), yes);
    assert_eq!(stable(q(218_560_011, 100_000_000)), no);
}

/// No explicit method is A-stable, however long its coefficients are.
#[test]
fn long_decimals() {
    let long = Exact::decimal(&format!("0.{}", "1234567890".repeat(60))).unwrap();
    let mut t = rk4();
    for row in &mut t.a {
        row.iter_mut().for_each(|a| *a = &*a * &long);
    }
    let s = Stability::new(&t).unwrap();
    assert_eq!((s.a_stable, s.l_stable), (Some(false), Some(false)));
    // R(z) = 1 + z + a z²/2 + a² z³/6 + a³ z⁴/24 with a = 0.1234567890….
    let real = length(&s.real);
    let a = long.to_f64();
    let series =
        |x: f64| 1.0 - x + a * x * x / 2.0 - (a * x).powi(2) * x / 6.0 + (a * x).powi(3) * x / 24.0;
    assert!((series(real).abs() - 1.0).abs() < 1e-8, "{real}");
}

/// Hairer & Wanner, IV.2: −2 for one and two stages of full order, −2.5127 for three, −2.7853 for four; on the imaginary axis
/// √3 for three and 2√2 for four stages.
#[test]
fn limits_on_the_axes() {
    let kutta = tableau(&["", "1/2", "-1 2", "1/6 2/3 1/6"]);
    let cases = [
        (tableau(&["", "1"]), 2.0, 0.0),
        (tableau(&["", "1", "1/2 1/2"]), 2.0, 0.0),
        (kutta, 2.512745326618329, 3f64.sqrt()),
        (rk4(), 2.785293563405282, 8f64.sqrt()),
        (tableau(&["1", "1"]), f64::INFINITY, f64::INFINITY),
    ];
    for (t, real, imaginary) in cases {
        let s = Stability::new(&t).unwrap();
        let close = |a: f64, b: f64| a == b || (a - b).abs() < 1e-9;
        assert!(close(length(&s.real), real), "{:?}", s.real);
        let found = length(&s.imaginary_squared).sqrt();
        assert!(close(found, imaginary), "{found}");
    }
}

/// Hairer, Nørsett & Wanner (1993), II.7; Hairer & Wanner (1996), IV.5: Gauss has B(2s), C(s), D(s), Radau IIA B(2s − 1), C(s),
/// D(s − 1). Hairer, Lubich & Wanner (2006), VI.4: Gauss methods are symplectic and symmetric.
#[test]
fn properties() {
    let p = Properties::new(&gauss2());
    assert_eq!((p.quadrature, p.stages, p.weights), (4, 2, 2));
    assert!(p.symplectic && p.symmetric && !p.stiffly_accurate);
    assert_eq!(p.kind, Kind::Firk);
    let p = Properties::new(&tableau(&["5/12 -1/12", "3/4 1/4", "3/4 1/4"]));
    assert_eq!((p.quadrature, p.stages, p.weights), (3, 2, 1));
    assert!(p.stiffly_accurate && !p.symplectic && !p.symmetric);
    let p = Properties::new(&rk4());
    assert_eq!((p.quadrature, p.stages, p.kind), (4, 1, Kind::Explicit));
    assert!(!p.symplectic && !p.symmetric && !p.first_same_as_last);
    let bogacki = tableau(&["", "1/2", "0 3/4", "2/9 1/3 4/9", "2/9 1/3 4/9 0"]);
    assert!(Properties::new(&bogacki).first_same_as_last);
    let midpoint = Properties::new(&tableau(&["1/2", "1"]));
    assert!(midpoint.symplectic && midpoint.symmetric);
    assert_eq!(midpoint.kind, Kind::Sdirk);
    let trapezoidal = Properties::new(&tableau(&["0 0", "1/2 1/2", "1/2 1/2"]));
    assert!(!trapezoidal.symplectic && trapezoidal.symmetric);
    assert_eq!(trapezoidal.kind, Kind::Esdirk);
}

/// Gottlieb, Ketcheson & Shu (2011), Strong Stability Preserving Runge–Kutta and Multistep Time Discretizations, 2.4 and 6: SSP22 and
/// SSP33 have 1, SSP43 has 2, the classical RK4 none, the implicit midpoint rule 2, implicit Euler no bound.
#[test]
fn strong_stability() {
    let cases = [
        (tableau(&["", "1"]), Ssp::Exactly(q(1, 1))),
        (tableau(&["", "1", "1/2 1/2"]), Ssp::Exactly(q(1, 1))),
        (
            tableau(&["", "1", "1/4 1/4", "1/6 1/6 2/3"]),
            Ssp::Exactly(q(1, 1)),
        ),
        (
            tableau(&["", "1/2", "1/2 1/2", "1/6 1/6 1/6", "1/6 1/6 1/6 1/2"]),
            Ssp::Exactly(q(2, 1)),
        ),
        (rk4(), Ssp::None),
        (tableau(&["1/2", "1"]), Ssp::Exactly(q(2, 1))),
        (tableau(&["1", "1"]), Ssp::Unbounded),
    ];
    for (t, expected) in cases {
        assert_eq!(ssp(&t), Some(expected));
    }
}

fn multistep(alpha: &str, beta: &str) -> Multistep {
    let (alpha, mut beta) = (row(alpha), row(beta));
    beta.resize(alpha.len(), Exact::zero());
    Multistep { alpha, beta }
}

/// Hairer, Nørsett & Wanner (1993), III.2, Table 2.1 and 2.2: error constants 5/12, 3/8, 251/720 of Adams–Bashforth, −1/12, −1/24
/// of Adams–Moulton, −1/(k + 1) of BDF.
#[test]
fn orders_and_error_constants() {
    let cases = [
        ("AB2", multistep("1 -1 0", "0 3/2 -1/2"), 2, q(5, 12)),
        (
            "AB3",
            multistep("1 -1 0 0", "0 23/12 -4/3 5/12"),
            3,
            q(3, 8),
        ),
        (
            "AB4",
            multistep("1 -1 0 0 0", "0 55/24 -59/24 37/24 -3/8"),
            4,
            q(251, 720),
        ),
        ("trapezoidal", multistep("1 -1", "1/2 1/2"), 2, q(-1, 12)),
        ("AM3", multistep("1 -1 0", "5/12 2/3 -1/12"), 3, q(-1, 24)),
        ("BDF1", multistep("1 -1", "1"), 1, q(-1, 2)),
        ("BDF2", multistep("3/2 -2 1/2", "1"), 2, q(-1, 3)),
        ("BDF3", multistep("11/6 -3 3/2 -1/3", "1"), 3, q(-1, 4)),
        // Milne–Simpson.
        ("Milne", multistep("1 0 -1", "1/3 4/3 1/3"), 4, q(-1, 180)),
    ];
    for (name, m, order, constant) in cases {
        let f = m.facts();
        assert_eq!(
            (f.order, f.error_constant),
            (order, Some(constant)),
            "{name}"
        );
        assert_eq!(f.zero_stable, Some(true), "{name}");
    }
    let miss = multistep("1 -1 0", "0 5/4 -1/4").facts();
    assert_eq!(miss.order, 1);
}

fn bdf(k: i64) -> Multistep {
    // Σ 1/j ∇ʲ x = h f.
    let mut alpha = vec![Exact::zero(); k as usize + 1];
    for j in 1..=k {
        let mut binomial = 1;
        for i in 0..=j {
            let sign = if i % 2 == 0 { 1 } else { -1 };
            let slot = &mut alpha[i as usize];
            *slot = &*slot + &q(sign * binomial, j);
            binomial = binomial * (j - i) / (i + 1);
        }
    }
    let mut beta = vec![Exact::zero(); k as usize + 1];
    beta[0] = Exact::one();
    Multistep { alpha, beta }
}

/// Hairer & Wanner (1996), V.2, Table 2.1: A(α)-stability of BDF; III.3: zero-stable up to k = 6 and not for k = 7.
#[test]
fn backward_differences() {
    let angles = [90.0, 90.0, 86.03, 73.35, 51.84, 17.84];
    for (k, angle) in (1..).zip(angles) {
        let f = bdf(k).facts();
        assert_eq!(f.order, k as usize);
        assert_eq!(
            (f.zero_stable, f.strongly_stable),
            (Some(true), Some(true)),
            "BDF{k}"
        );
        assert_eq!(f.a_stable, Some(k <= 2), "BDF{k}");
        assert_eq!(f.i_stable, Some(k <= 2), "BDF{k}");
        let (lo, hi) = f.angle.unwrap().degrees();
        let near = |x: f64| (x - angle).abs() < 0.005;
        assert!(near(lo) && near(hi), "BDF{k}: {lo} {hi}");
    }
    assert_eq!(bdf(7).facts().zero_stable, Some(false));
    assert_eq!(bdf(7).facts().angle, None);
}

#[test]
fn root_conditions() {
    // The explicit method of order 3 with two steps, which Dahlquist (1956) shows to diverge.
    let f = multistep("1 4 -5", "0 4 2").facts();
    assert_eq!((f.order, f.zero_stable), (3, Some(false)));
    // A double root 1.
    assert_eq!(
        multistep("1 -2 1", "0 1 -1").facts().zero_stable,
        Some(false)
    );
    // The leap-frog method: roots 1 and −1.
    let f = multistep("1 0 -1", "0 2 0").facts();
    assert_eq!(
        (f.order, f.zero_stable, f.strongly_stable),
        (2, Some(true), Some(false))
    );
    // Roots on the circle that are no roots of unity: 1 and (3 ± 4i)/5.
    let f = multistep("1 -11/5 11/5 -1", "0 0 0 0").facts();
    assert_eq!(f.zero_stable, Some(true));
    assert_eq!(multistep("1 -1", "1/2 1/2").facts().a_stable, Some(true));
    assert_eq!(
        multistep("1 -1 0", "5/12 2/3 -1/12").facts().a_stable,
        Some(false)
    );
}

#[test]
fn signs_of_polynomials() {
    let p = |c: &[i64]| Poly::new(c.iter().map(|c| q(*c, 1)).collect());
    // (x − 1)²(x − 3): negative first.
    assert_eq!(extent(&[p(&[-3, 7, -5, 1])]), Some(Extent::Zero));
    // (1 − x)²(3 − x): a double root does not count.
    let Some(Extent::Until { lo, hi }) = extent(&[p(&[3, -7, 5, -1])]) else {
        panic!("a root");
    };
    assert!(lo < q(3, 1) && hi >= q(3, 1));
    // (2 − x)²(10/3 − x)³: bisection meets the double root before the change of sign.
    let double = p(&[4, -4, 1]);
    let third = Poly::new(vec![q(10, 3), q(-1, 1)]);
    let both = double.times(&third).times(&third).times(&third);
    let Some(Extent::Until { lo, hi }) = extent(&[both]) else {
        panic!("a root");
    };
    assert!(lo < q(10, 3) && hi >= q(10, 3), "{lo} {hi}");
    assert_eq!(extent(&[p(&[1, -2, 1])]), Some(Extent::Infinite));
    let unit = |c: &[i64]| is_nonnegative(&p(c), &q(-1, 1), &q(1, 1));
    assert_eq!(unit(&[1, 0, -1]), Some(true));
    assert_eq!(unit(&[0, 1]), Some(false));
    assert_eq!(unit(&[-1]), Some(false));
    assert_eq!(unit(&[0, 0, 1]), Some(true));
}

/// On the axis a method and its mirror image are the same: implicit Euler run backwards is I-stable, and not A-stable; explicit methods
/// never are.
#[test]
fn stability_on_the_axis_alone() {
    let facts = |m: Multistep| (m.facts().i_stable, m.facts().a_stable);
    assert_eq!(facts(multistep("1 -1", "1")), (Some(true), Some(true)));
    assert_eq!(facts(multistep("1 -1", "-1")), (Some(true), Some(false)));
    assert_eq!(facts(multistep("1 -1", "0 1")), (Some(false), Some(false)));
    assert_eq!(
        facts(multistep("1 -1", "1/2 1/2")),
        (Some(true), Some(true))
    );
}

/// Multiple roots at fractions that no halving meets, among roots that lie close together, and with roots as coefficients.
#[test]
fn roots_that_lie_together() {
    let from = |roots: &[Exact]| {
        let factor = |p: Poly, r: &Exact| p.times(&Poly::new(vec![-r, Exact::one()]));
        roots.iter().fold(Poly::constant(q(1, 1)), factor)
    };
    let two = Exact::int(2).root(2).unwrap();
    let near = &two + &q(1, 1 << 60);
    let cases = [
        (vec![q(1, 3), q(1, 3), q(2, 3)], vec![q(2, 3)]),
        (vec![q(1, 3), q(1, 3), q(1, 3)], vec![q(1, 3)]),
        (vec![q(1, 2), q(1, 2), q(1, 4)], vec![q(1, 4)]),
        (vec![q(1, 2), q(1, 2), q(1, 2)], vec![q(1, 2)]),
        (vec![two.clone(), near.clone()], vec![two.clone(), near]),
        (vec![two.clone(), two.clone(), q(7, 5)], vec![q(7, 5)]),
        (vec![q(0, 1), q(2, 1), q(1, 1)], vec![q(1, 1)]),
    ];
    for (roots, odd) in cases {
        let found = odd_roots(&from(&roots), &q(0, 1), &q(2, 1)).unwrap();
        assert_eq!(found.len(), odd.len(), "{roots:?}");
        for ((lo, hi), root) in found.iter().zip(&odd) {
            assert!(lo <= root && root <= hi, "{roots:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// ∏ (x + rᵢ) with rᵢ > 0 is a Hurwitz polynomial, and no longer when one root is moved across.
    #[test]
    fn routh_and_hurwitz(roots in prop::collection::vec(1i64..9, 1..6), square in 1i64..6) {
        let factor = |r: i64| Poly::new(vec![q(r, 1), q(1, 1)]);
        let product = roots.iter().fold(Poly::constant(q(1, 1)), |p, r| p.times(&factor(*r)));
        // A complex pair −1 ± i√(square).
        let pair = Poly::new(vec![q(1 + square, 1), q(2, 1), q(1, 1)]);
        prop_assert_eq!(product.times(&pair).is_hurwitz(), Some(true));
        prop_assert_eq!(product.times(&factor(-roots[0])).is_hurwitz(), Some(false));
        let imaginary = Poly::new(vec![q(square, 1), q(0, 1), q(1, 1)]);
        prop_assert_eq!(product.times(&imaginary).is_hurwitz(), Some(false));
    }

    /// The first change of sign is the smallest root of odd multiplicity.
    #[test]
    fn first_sign_change(a in 1i64..20, b in 1i64..20, c in 1i64..20) {
        let root = |r: i64| Poly::new(vec![q(r, 1), q(-1, 1)]);
        let p = root(a).times(&root(a)).times(&root(b)).times(&root(c));
        let first = if b == c { None } else { Some(b.min(c)) };
        match (extent(&[p]), first) {
            (Some(Extent::Infinite), None) => {}
            (Some(Extent::Until { lo, hi }), Some(r)) => prop_assert!(lo < q(r, 1) && q(r, 1) <= hi),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// The stability function of a composition is the product: two half steps of a θ-method.
    #[test]
    fn compositions_multiply(n in 0i64..9) {
        let theta = q(n, 8);
        let one = Tableau::single(vec![vec![theta.clone()]], vec![q(1, 1)]);
        let half = &theta * &q(1, 2);
        let two = Tableau::single(
            vec![vec![half.clone(), Exact::zero()], vec![q(1, 2), half]],
            vec![q(1, 2), q(1, 2)],
        );
        let (r, rr) = (StabilityFunction::new(&one).unwrap(), StabilityFunction::new(&two).unwrap());
        for z in [-3, -1, 1] {
            let at = |f: &StabilityFunction, z: Exact| {
                let d = f.denominator.at(&z);
                d.recip().ok().map(|d| &f.numerator.at(&z) * &d)
            };
            if let (Some(a), Some(b)) = (at(&r, q(z, 2)), at(&rr, q(z, 1))) {
                prop_assert_eq!(&a * &a, b);
            }
        }
    }
}
