//! The angle α of A(α)-stability of a linear multistep method, enclosed (Widlund 1967, BIT 7, 65; Hairer & Wanner 1996, V.2).
//!
//! On the boundary locus z(θ) = ρ/σ at ζ = e^{iθ}, Re z and Im z are P(c)/|σ|² and sin θ Q(c)/|σ|² with polynomials P and Q in
//! c = cos θ. Then tan² α is the least value of (1 − c²)Q²/P² where P < 0: at −1, at roots of Q, or where the derivative is 0, at
//! roots of a polynomial in c, which are isolated exactly.

use crate::poly::Poly;
use crate::roots::{Root, Simple, power_of_two};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::One;
use odec_exact::Exact;

/// An angle.
#[derive(Clone, Debug, PartialEq)]
pub enum Angle {
    /// 90°: the method is A-stable.
    Right,
    /// tan² α lies between two numbers.
    Tangent { lo: Exact, hi: Exact },
}

impl Angle {
    /// Between these, in degrees.
    pub fn degrees(&self) -> (f64, f64) {
        let degrees = |t: &Exact| t.to_f64().sqrt().atan().to_degrees();
        match self {
            Angle::Right => (90.0, 90.0),
            Angle::Tangent { lo, hi } => (degrees(lo), degrees(hi)),
        }
    }
}

/// How narrow the intervals of c become: 2⁻⁸⁰.
const WIDTH: i64 = 80;
/// Bits behind the point that are kept of tan² α.
const BITS: i64 = 64;

/// The least angle between the locus and the negative axis, from P and Q. `None`: not decided.
pub fn least(p: &Poly, q: &Poly) -> Option<Angle> {
    let (minus, one) = (Exact::int(-1), Exact::one());
    let zero = || {
        let (lo, hi) = (Exact::zero(), Exact::zero());
        Some(Angle::Tangent { lo, hi })
    };
    if p.at(&minus).is_negative() {
        return zero();
    }
    let sines = Poly::new(vec![Exact::one(), Exact::zero(), minus.clone()]);
    let cosine = Poly::new(vec![Exact::zero(), Exact::one()]);
    // Half the derivative's numerator, without its factors Q and P.
    let inner = sines.times(&q.derivative()).minus(&cosine.times(q));
    let slope = inner.times(p).minus(&sines.times(q).times(&p.derivative()));
    // Where P is 0 the locus is upright.
    let upright = [Simple::new(p, &[])?];
    let mut found: Option<(Exact, Exact)> = None;
    for (poly, is_zero) in [(q, true), (&slope, false)] {
        if poly.is_zero() {
            continue;
        }
        let simple = Simple::new(poly, &upright)?;
        for mut root in simple.between(&minus, &one)? {
            if !below(&mut root, p, &upright[0])? {
                continue;
            }
            if is_zero {
                return zero();
            }
            root.narrow(&power_of_two(-WIDTH));
            let (lo, hi) = value(p, q, &root);
            found = Some(match found {
                None => (lo, hi),
                Some((l, h)) => (l.min(lo), h.min(hi)),
            });
        }
    }
    Some(match found {
        None => Angle::Right,
        Some((lo, hi)) => Angle::Tangent {
            lo: rounded(&lo, false),
            hi: rounded(&hi, true),
        },
    })
}

/// Whether P < 0 at a root, which is none of its own.
fn below(root: &mut Root, of: &Poly, p: &Simple) -> Option<bool> {
    let ends = |x: &Exact| p.0.sign_at(x).is_eq();
    while ends(&root.lo) || ends(&root.hi) || !p.between(&root.lo, &root.hi)?.is_empty() {
        root.halve();
    }
    Some(of.sign_at(&root.hi).is_lt())
}

/// (1 − c²)Q²/P² at a root, between two numbers.
fn value(p: &Poly, q: &Poly, root: &Root) -> (Exact, Exact) {
    let c = (root.lo.clone(), root.hi.clone());
    let square = squared(&c);
    let sines = (&Exact::one() - &square.1, &Exact::one() - &square.0);
    let (p, q) = (squared(&bounds(p, &c)), squared(&bounds(q, &c)));
    let top = (&sines.0 * &q.0, &sines.1 * &q.1);
    let over = |x: &Exact| crate::poly::inverse(x);
    match (over(&p.1), over(&p.0)) {
        (Some(least), Some(most)) => (&top.0 * &least, &top.1 * &most),
        // P was told from 0, but not by this interval: nothing is known.
        _ => (Exact::zero(), power_of_two(BITS)),
    }
}

/// The squares of an interval.
fn squared(x: &(Exact, Exact)) -> (Exact, Exact) {
    let (a, b) = (&x.0 * &x.0, &x.1 * &x.1);
    match x.0.is_negative() && !x.1.is_negative() {
        true => (Exact::zero(), a.max(b)),
        false if a < b => (a, b),
        false => (b, a),
    }
}

/// The values of a polynomial on an interval, by Horner's rule.
fn bounds(p: &Poly, x: &(Exact, Exact)) -> (Exact, Exact) {
    let zero = (Exact::zero(), Exact::zero());
    p.0.iter().rev().fold(zero, |sum, c| {
        let corners = [&sum.0 * &x.0, &sum.0 * &x.1, &sum.1 * &x.0, &sum.1 * &x.1];
        let least = corners.iter().min().cloned().unwrap_or_default();
        let most = corners.iter().max().cloned().unwrap_or_default();
        (&least + c, &most + c)
    })
}

/// To a multiple of 2⁻⁶⁴, down or up.
fn rounded(x: &Exact, up: bool) -> Exact {
    let Some(q) = x.as_rational() else {
        return x.clone();
    };
    let scaled = q * BigRational::from_integer(BigInt::one() << BITS);
    let whole = if up { scaled.ceil() } else { scaled.floor() };
    &Exact::from(whole) * &power_of_two(-BITS)
}
