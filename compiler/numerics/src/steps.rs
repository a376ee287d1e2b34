//! Largest stable steps: discs and half-discs inside the region of stability, and contractivity for nonlinear fields.
//!
//! What is known of the eigenvalues λ of a field says where `z = hλ` lies: for a bound K on |λ|, real decay puts it on `[−hK, 0]`,
//! oscillation on the imaginary axis, dissipation without more in the left half of the disc `|z| ≤ hK`, and the gradient of a
//! convex potential, or any field with `K⟨f(x) − f(y), x − y⟩ ≤ −‖f(x) − f(y)‖²`, in the disc `|z + hK/2| ≤ hK/2`. For such a nonlinear
//! field no two solutions move apart when `hK ≤ 2r`, r the radius of circle contractivity (Dahlquist & Jeltsch 1979).

use crate::descartes::{Number, never_negative, shifted};
use crate::poly::{Extent, Poly, chebyshev, first_root, inverse};
use crate::stability::{Stability, StabilityFunction, determinant};
use crate::tableau::Tableau;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Zero};
use odec_exact::Exact;

/// Most stages of a method whose contractivity is sought.
const MAX_STAGES: usize = 24;
/// Highest degree of a stability function whose discs and half-discs are sought.
pub const MAX_DEGREE: usize = 128;
/// Halvings of an interval around a radius.
const HALVINGS: usize = 20;
/// Where a search for a radius starts that has no bound.
const LARGE: i64 = 1 << 20;

/// Bounds for hK; `None`: not decided.
#[derive(Clone, Debug, PartialEq)]
pub struct StepBounds {
    /// The radius of the largest half-disc `|z| ≤ ρ, Re z ≤ 0` on which `|R| ≤ 1`.
    pub dissipation: Option<Extent>,
    /// The diameter of the largest disc `|z + r| ≤ r` on which `|R| ≤ 1`.
    pub disc: Option<Extent>,
    /// The same for nonlinear fields: 2r, r the radius of circle contractivity. Unbounded: algebraically stable (Burrage & Butcher 1979).
    pub contractive: Option<Extent>,
}

impl StepBounds {
    /// The degree of what `|R| ≤ 1` is decided on.
    pub fn degree(s: &Stability) -> usize {
        s.base.numerator.degree().max(s.base.denominator.degree())
    }

    pub fn new(t: &Tableau, s: &Stability) -> StepBounds {
        let small = StepBounds::degree(s) <= MAX_DEGREE;
        StepBounds {
            dissipation: small.then(|| dissipation(s)).flatten(),
            disc: small.then(|| disc(s)).flatten(),
            contractive: contractive(t),
        }
    }
}

/// The smaller upper bound of two.
fn smaller(a: &Extent, b: &Extent) -> Extent {
    let end = |e: &Extent| match e {
        Extent::Zero => Some(Exact::zero()),
        Extent::Infinite => None,
        Extent::Until { hi, .. } => Some(hi.clone()),
    };
    match (end(a), end(b)) {
        (Some(x), Some(y)) if y < x => b.clone(),
        (None, _) => b.clone(),
        _ => a.clone(),
    }
}

/// The largest radius for which something holds that holds for all smaller ones, not above a bound.
fn largest(bound: &Extent, holds: impl Fn(&Exact) -> Option<bool>) -> Option<Extent> {
    let mut hi = match bound {
        Extent::Zero => return Some(Extent::Zero),
        Extent::Until { lo, .. } if holds(&below(lo)?)? => return Some(bound.clone()),
        Extent::Until { hi, .. } => hi.clone(),
        Extent::Infinite if holds(&Exact::int(LARGE))? => return None,
        Extent::Infinite => Exact::int(LARGE),
    };
    // Short numbers on the way: the first fraction of a power of two above the bound.
    let mut top = Exact::int(LARGE);
    while &top * &Exact::ratio(1, 2) >= hi {
        top = &top * &Exact::ratio(1, 2);
    }
    let half = Exact::ratio(1, 2);
    let (mut from, mut to) = (Exact::zero(), top);
    for _ in 0..2 * HALVINGS {
        let middle = &(&from + &to) * &half;
        if middle < hi && holds(&middle)? {
            from = middle;
        } else {
            to = middle;
        }
        if &(&to - &from) * &Exact::int(1 << HALVINGS) <= to {
            break;
        }
    }
    if from.is_zero() {
        return Some(Extent::Zero);
    }
    if to < hi {
        hi = to;
    }
    Some(Extent::Until { lo: from, hi })
}

/// Numerator and denominator, equally long, times one number that makes rational coefficients whole.
enum Scaled {
    Whole(Vec<BigInt>, Vec<BigInt>),
    Sums(Vec<Exact>, Vec<Exact>),
}

impl Scaled {
    fn new(f: &StabilityFunction) -> Scaled {
        let n = f.numerator.degree().max(f.denominator.degree());
        let padded = |p: &Poly| (0..=n).map(|m| p.coefficient(m)).collect::<Vec<Exact>>();
        let (p, q) = (padded(&f.numerator), padded(&f.denominator));
        let both = p.iter().chain(&q);
        let lcm = both.clone().try_fold(BigInt::one(), |lcm, c| {
            Some(odec_exact::fraction::lcm(&lcm, c.as_rational()?.denom()))
        });
        let Some(lcm) = lcm else {
            return Scaled::Sums(p, q);
        };
        let whole = |c: &Exact| c.as_rational().map(|c| c.numer() * (&lcm / c.denom()));
        let all = |p: &[Exact]| p.iter().filter_map(whole).collect();
        Scaled::Whole(all(&p), all(&q))
    }
}

/// `m/2ᵏ`, as the radii are that are tried.
fn dyadic(x: &Exact) -> Option<(BigInt, usize)> {
    let q = x.as_rational()?;
    let k = q.denom().bits() as usize - 1;
    Some((q.numer().clone(), k))
}

/// The next dyadic number below one, with 64 binary places.
fn below(x: &Exact) -> Option<Exact> {
    let q = x.as_rational()?;
    let places: BigInt = BigInt::one() << 64;
    let cut: BigInt = (q.numer() * &places).div_floor(q.denom());
    Some(Exact::from(num_rational::BigRational::new(cut, places)))
}

fn poly<N: Number>(p: &[N], exact: impl Fn(&N) -> Exact) -> Poly {
    Poly::new(p.iter().map(exact).collect())
}

/// Whether `|R| ≤ 1` on the disc `|z + d/2| ≤ d/2`: with `w = 1/z` the half-plane `Re w ≤ −1/d`, with `d = m/2ᵏ` and `w = (v − 2ᵏ)/m` that of
/// `Re v ≤ 0`.
fn on_disc(f: &StabilityFunction, scaled: &Scaled, d: &Exact) -> Option<bool> {
    let (m, k) = dyadic(d)?;
    let stable = match scaled {
        Scaled::Whole(p, q) => {
            let gap = disc_gap(p, q, &m, k);
            never_negative(&gap, true, || poly(&gap, Exact::whole))
        }
        Scaled::Sums(p, q) => {
            let gap = disc_gap(p, q, &m, k);
            never_negative(&gap, true, || poly(&gap, Exact::clone))
        }
    };
    if f.denominator.degree() == 0 || stable != Some(true) {
        return stable;
    }
    let edge = Poly::new(vec![-&inverse(d)?, Exact::one()]);
    let n = f.numerator.degree().max(f.denominator.degree());
    let horner = |sum: Poly, m: usize| {
        sum.times(&edge)
            .plus(&Poly::constant(f.denominator.coefficient(m)))
    };
    (0..=n)
        .fold(Poly::default(), horner)
        .mirrored()
        .is_hurwitz()
}

/// `|Q|² − |P|²` at `v = iy`, by powers of y².
fn disc_gap<N: Number>(p: &[N], q: &[N], m: &BigInt, k: usize) -> Vec<N> {
    let edge = N::whole(&-(BigInt::one() << k));
    let squared = |p: &[N]| {
        // Σ pⱼ mʲ (v − 2ᵏ)ⁿ⁻ʲ by Horner's rule.
        let mut sum: Vec<N> = Vec::new();
        let mut power = BigInt::one();
        for c in p {
            let mut next = vec![N::whole(&BigInt::zero()); sum.len() + 1];
            for (i, s) in sum.iter().enumerate() {
                next[i] = next[i].plus(&s.times(&edge));
                next[i + 1] = next[i + 1].plus(s);
            }
            next[0] = next[0].plus(&c.times(&N::whole(&power)));
            power *= m;
            sum = next;
        }
        let part = |from: usize| -> Vec<N> {
            let signed = |(n, c): (usize, &N)| match n % 2 {
                0 => c.clone(),
                _ => c.times(&N::whole(&BigInt::from(-1))),
            };
            sum.iter()
                .skip(from)
                .step_by(2)
                .enumerate()
                .map(signed)
                .collect()
        };
        let mut all = product(&part(0), &part(0));
        all.resize(p.len() + 1, N::whole(&BigInt::zero()));
        for (n, c) in product(&part(1), &part(1)).iter().enumerate() {
            all[n + 1] = all[n + 1].plus(c);
        }
        all
    };
    difference(&squared(q), &squared(p))
}

fn product<N: Number>(a: &[N], b: &[N]) -> Vec<N> {
    let mut all = vec![N::whole(&BigInt::zero()); (a.len() + b.len()).saturating_sub(1)];
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            all[i + j] = all[i + j].plus(&a.times(b));
        }
    }
    all
}

/// Of equally long ones.
fn difference<N: Number>(a: &[N], b: &[N]) -> Vec<N> {
    let minus = N::whole(&BigInt::from(-1));
    a.iter()
        .zip(b)
        .map(|(a, b)| a.plus(&b.times(&minus)))
        .collect()
}

fn disc(s: &Stability) -> Option<Extent> {
    if s.a_stable? {
        return Some(Extent::Infinite);
    }
    let scaled = Scaled::new(&s.base);
    largest(s.real.as_ref()?, |d| on_disc(&s.base, &scaled, d))
}

/// Whether `|R| ≤ 1` on the arc `|z| = ρ, Re z ≤ 0`: `|Q|² − |P|²` is a polynomial in cos θ.
fn on_arc(scaled: &Scaled, radius: &Exact) -> Option<bool> {
    let (m, k) = dyadic(radius)?;
    match scaled {
        Scaled::Whole(p, q) => {
            let gap = arc_gap(p, q, &m, k);
            never_negative(&gap, false, || poly(&gap, Exact::whole))
        }
        Scaled::Sums(p, q) => {
            let gap = arc_gap(p, q, &m, k);
            never_negative(&gap, false, || poly(&gap, Exact::clone))
        }
    }
}

/// `|Q|² − |P|²` at `|z| = m/2ᵏ`, as a polynomial in `cos θ + 1`.
fn arc_gap<N: Number>(p: &[N], q: &[N], m: &BigInt, k: usize) -> Vec<N> {
    let n = p.len() - 1;
    let zero = N::whole(&BigInt::zero());
    // |Σ cⱼ e^{ijθ}|² = Σ cⱼ cₖ cos((j − k)θ), with cⱼ = pⱼ mʲ 2ᵏ⁽ⁿ⁻ʲ⁾.
    let squared = |p: &[N]| {
        let mut power = BigInt::one();
        let scale = |(j, c): (usize, &N)| {
            let c = c.times(&N::whole(&power)).doubled(k * (n - j));
            power *= m;
            c
        };
        let c: Vec<N> = p.iter().enumerate().map(scale).collect();
        let mut by_distance = vec![zero.clone(); n + 1];
        for (i, a) in c.iter().enumerate() {
            for (j, b) in c.iter().enumerate() {
                let d = i.abs_diff(j);
                by_distance[d] = by_distance[d].plus(&a.times(b));
            }
        }
        by_distance
    };
    let cosines = difference(&squared(q), &squared(p));
    let mut gap = vec![zero.clone(); n + 1];
    for (c, t) in cosines.iter().zip(chebyshev(n)) {
        for (g, t) in gap.iter_mut().zip(&t.0) {
            let t = t.as_integer().unwrap_or_default();
            *g = g.plus(&c.times(&N::whole(&t)));
        }
    }
    // p(x − 1) is p(−x), one further on, mirrored back.
    let mirrored = |p: Vec<N>| -> Vec<N> {
        let signed = |(n, c): (usize, N)| match n % 2 {
            0 => c,
            _ => c.times(&N::whole(&BigInt::from(-1))),
        };
        p.into_iter().enumerate().map(signed).collect()
    };
    mirrored(shifted(mirrored(gap)))
}

fn dissipation(s: &Stability) -> Option<Extent> {
    if s.a_stable? {
        return Some(Extent::Infinite);
    }
    // No pole to the left, so that |R| is largest on the edge.
    if !s.base.denominator.mirrored().is_hurwitz()? {
        return None;
    }
    let imaginary = match s.imaginary_squared.as_ref()? {
        Extent::Until { lo, hi } => Extent::Until {
            lo: root(lo)?.0,
            hi: root(hi)?.1,
        },
        other => other.clone(),
    };
    let scaled = Scaled::new(&s.base);
    largest(&smaller(s.real.as_ref()?, &imaginary), |r| {
        on_arc(&scaled, r)
    })
}

/// Two fractions around the square root of a positive one.
fn root(x: &Exact) -> Option<(Exact, Exact)> {
    let q = x.as_rational()?;
    // ⌊√(n·d·4ᵏ)⌋ / (d·2ᵏ), with k so that 48 bits are there at least.
    let bits = 64 + q.denom().bits();
    let square = (q.numer() * q.denom()) << (2 * bits);
    let under = square.sqrt();
    let over = q.denom() << bits;
    let fraction = |n| Exact::from(num_rational::BigRational::new(n, over.clone()));
    Some((fraction(under.clone()), fraction(under + 1)))
}

/// Twice the largest r for which `M + diag(b)/r` has no negative eigenvalue, `mᵢⱼ = bᵢaᵢⱼ + bⱼaⱼᵢ − bᵢbⱼ`: with `N = diag(b)⁻¹M`, whose
/// eigenvalues are real, the first root of `det(I + rN)`.
fn contractive(t: &Tableau) -> Option<Extent> {
    let t = t.reduced();
    let s = t.stages();
    if t.b.iter().any(|b| b.is_negative() || b.is_zero()) {
        return Some(Extent::Zero);
    }
    if s > MAX_STAGES {
        return None;
    }
    let over: Option<Vec<Exact>> = t.b.iter().map(inverse).collect();
    let over = over?;
    let entry = |i: usize, j: usize| {
        let back = &(&t.b[j] * &t.a[j][i]) * &over[i];
        &t.b[j] - &(&t.a[i][j] + &back)
    };
    let minus: Vec<Vec<Exact>> = (0..s)
        .map(|i| (0..s).map(|j| entry(i, j)).collect())
        .collect();
    let two = Exact::int(2);
    Some(match first_root(&determinant(&minus))? {
        None => Extent::Infinite,
        Some((lo, hi)) => Extent::Until {
            lo: &lo * &two,
            hi: &hi * &two,
        },
    })
}
