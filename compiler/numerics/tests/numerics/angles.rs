//! A(α) and A-stability of multistep methods beside their root loci, sampled in floating point with wide margins.

use crate::written::{q, row};
use odec_exact::Exact;
use odec_numerics::multistep::{Facts, Multistep};

type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}
fn minus(a: Complex, b: Complex) -> Complex {
    (a.0 - b.0, a.1 - b.1)
}
fn over(a: Complex, b: Complex) -> Complex {
    let size = b.0 * b.0 + b.1 * b.1;
    let (re, im) = times(a, (b.0, -b.1));
    (re / size, im / size)
}
fn size(a: Complex) -> f64 {
    a.0.hypot(a.1)
}
/// Coefficients by falling powers.
fn at(p: &[Complex], x: Complex) -> Complex {
    p.iter().fold((0.0, 0.0), |sum, c| {
        let (re, im) = times(sum, x);
        (re + c.0, im + c.1)
    })
}
fn real(p: &[Exact]) -> Vec<Complex> {
    p.iter().map(|c| (c.to_f64(), 0.0)).collect()
}

/// The largest modulus of a root of ρ − zσ (Durand 1960, Kerner 1966).
fn spread(m: &Multistep, z: Complex) -> f64 {
    let both = real(&m.alpha).into_iter().zip(real(&m.beta));
    let p: Vec<Complex> = both.map(|(a, b)| minus(a, times(z, b))).collect();
    let p: Vec<Complex> = p.iter().map(|c| over(*c, p[0])).collect();
    let power = |n: usize| (0..n).fold((1.0, 0.0), |x, _| times(x, (0.4, 0.9)));
    let mut roots: Vec<Complex> = (1..p.len()).map(power).collect();
    for _ in 0..400 {
        for i in 0..roots.len() {
            let others = (0..roots.len()).filter(|j| *j != i);
            let apart = others.fold((1.0, 0.0), |x, j| times(x, minus(roots[i], roots[j])));
            roots[i] = minus(roots[i], over(at(&p, roots[i]), apart));
        }
    }
    roots.into_iter().map(size).fold(0.0, f64::max)
}

/// The least angle, in degrees, between the negative axis and points of the locus; `near`: angles at which to look closely.
fn sampled(m: &Multistep, near: &[f64]) -> f64 {
    let (rho, sigma) = (real(&m.alpha), real(&m.beta));
    let around = |t: &f64| {
        let t = *t;
        [1e-5, 1e-4, 1e-3, 1e-2].map(|d| [t - d, t + d])
    };
    let even = (1..4000).map(|n| std::f64::consts::PI * n as f64 / 4000.0);
    let close = near.iter().flat_map(around).flatten();
    let mut least = 90.0f64;
    for t in even.chain(close) {
        let w = (t.cos(), t.sin());
        let (r, s) = (at(&rho, w), at(&sigma, w));
        // Rounding decides directions near 0 and infinity.
        if size(r) < 1e-8 || size(s) < 1e-8 {
            continue;
        }
        let z = over(r, s);
        if z.0 < 0.0 {
            least = least.min((z.1.abs() / -z.0).atan().to_degrees());
        }
    }
    least
}

fn multistep(alpha: &str, beta: &str) -> Multistep {
    let (alpha, beta) = (row(alpha), row(beta));
    Multistep { alpha, beta }
}

fn degrees(f: &Facts) -> f64 {
    let (lo, hi) = f.angle.as_ref().expect("an angle").degrees();
    assert!(hi - lo < 1e-6, "{lo} {hi}");
    lo
}

/// Roots (3 ± i√7)/4 of ρ on the circle: there the locus leaves 0 nearly along the negative axis, and both its parts are 0.
#[test]
fn further_roots_on_the_circle_limit_the_angle() {
    let m = multistep("1 -5/2 5/2 -1", "3 -1 -1/2 -1");
    let f = m.facts();
    assert_eq!(
        (f.zero_stable, f.strongly_stable),
        (Some(true), Some(false))
    );
    assert_eq!(f.a_stable, Some(false));
    let truth = sampled(&m, &[0.75f64.acos()]);
    assert!((truth - 7.9).abs() < 0.1, "{truth}");
    assert!((degrees(&f) - truth).abs() < 0.1, "{} {truth}", degrees(&f));
}

/// ρ/σ = 4(ζ − 1)/(ζ + 1) − (ζ² − 1)/(ζ² + 1): its real part is 0 on the circle, and near its poles ±i the second part, whose sign is
/// wrong, takes the outside of the disc to the left.
#[test]
fn a_real_part_of_zero_is_not_enough() {
    let m = multistep("3 -5 5 -3", "1 1 1 1");
    assert!(spread(&m, (-1.0, 0.0)) > 1.01);
    let f = m.facts();
    assert_eq!(f.zero_stable, Some(true));
    assert_eq!((f.a_stable, f.i_stable), (Some(false), Some(false)));
    assert_eq!(degrees(&f), 0.0);
    // With the right sign it is stable.
    let good = multistep("5 -3 3 -5", "1 1 1 1");
    assert!(spread(&good, (-1.0, 0.0)) < 1.0);
    assert_eq!(good.facts().a_stable, Some(true));
    // A common factor of ρ and σ changes nothing: the trapezoidal rule times ζ² + 1.
    let reducible = multistep("1 -1 1 -1", "1/2 1/2 1/2 1/2").facts();
    assert_eq!(reducible.a_stable, Some(true));
    assert_eq!(degrees(&reducible), 90.0);
}

/// The same numbers on every machine (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: i64) -> i64 {
        let step = self.0.wrapping_mul(6364136223846793005);
        self.0 = step.wrapping_add(1442695040888963407);
        (self.0 >> 33) as i64 % n
    }
}

fn product(a: &[Exact], b: &[Exact]) -> Vec<Exact> {
    let mut c = vec![Exact::zero(); a.len() + b.len() - 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            c[i + j] = &c[i + j] + &(x * y);
        }
    }
    c
}

/// A consistent method whose ρ has 1 and a pair e^{±iθ} among its roots and whose σ has none outside, and θ.
fn drawn(n: &mut Numbers) -> (Multistep, f64) {
    let cosine = q(n.below(15) - 7, 8);
    let mut rho = product(&row("1 -1"), &[q(1, 1), &q(-2, 1) * &cosine, q(1, 1)]);
    let mut sigma = vec![q(1, 1)];
    let inside = |n: &mut Numbers| vec![q(1, 1), q(n.below(17) - 8, 10)];
    for _ in 0..n.below(3) {
        rho = product(&rho, &inside(n));
    }
    while sigma.len() < rho.len() {
        sigma = product(&sigma, &inside(n));
    }
    let sum = |p: &[Exact]| -> Exact { p.iter().cloned().sum() };
    let degree = rho.len() as i64 - 1;
    let slope: Vec<Exact> = (0..)
        .zip(&rho)
        .map(|(i, a)| &q(degree - i, 1) * a)
        .collect();
    let scale = &sum(&slope) * &sum(&sigma).recip().expect("no root at 1");
    let sigma = sigma.iter().map(|b| b * &scale).collect();
    let theta = cosine.to_f64().acos();
    (
        Multistep {
            alpha: rho,
            beta: sigma,
        },
        theta,
    )
}

#[test]
fn angles_are_those_of_sampled_loci() {
    let mut numbers = Numbers(13);
    let mut between = 0;
    for _ in 0..60 {
        let (m, theta) = drawn(&mut numbers);
        let f = m.facts();
        assert_eq!(f.zero_stable, Some(true), "{m:?}");
        let angle = degrees(&f);
        let locus = sampled(&m, &[theta]);
        assert_eq!(f.a_stable, Some(angle == 90.0), "{m:?}");
        if angle == 0.0 {
            assert!(
                locus < 1.0 || spread(&m, (-1.0, 0.0)) > 1.0,
                "{m:?}: {locus}"
            );
            continue;
        }
        assert!(
            locus > angle - 0.01 && locus < angle + 1.0,
            "{m:?}: {angle} {locus}"
        );
        between += usize::from(angle < 89.0);
        for n in -4..5 {
            let (length, t) = (10f64.powf(f64::from(n) / 2.0), (0.9 * angle).to_radians());
            let z = (-length * t.cos(), length * t.sin());
            assert!(spread(&m, z) < 1.0 + 1e-6, "{m:?} at {z:?}");
        }
    }
    assert!(
        between > 10,
        "{between} of 60 have an angle between 0 and 90 degrees"
    );
}
