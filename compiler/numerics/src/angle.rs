//! The angle α of A(α)-stability of a linear multistep method, enclosed (Widlund 1967, BIT 7, 65; Hairer & Wanner 1996, V.2).
//!
//! On the boundary locus z(θ) = ρ/σ at ζ = e^{iθ}, Re z and Im z are P(c)/|σ|² and sin θ Q(c)/|σ|² with polynomials P and Q in
//! c = cos θ. Then tan² α is the greatest lower bound of (1 − c²)Q²/P² where P < 0. Where P and Q are both 0, the locus passes through
//! 0 or infinity, and its direction there counts: the quotient without the common factor. So the bound is found at ±1, at roots of Q
//! or of the common factor, or where the derivative is 0: at roots of polynomials in c, which are isolated exactly.

use crate::descartes::is_nonnegative;
use crate::poly::Poly;
use crate::roots::{Root, Simple, middle, power_of_two};
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
    /// No angle: the locus meets the negative axis.
    pub fn none() -> Angle {
        let (lo, hi) = (Exact::zero(), Exact::zero());
        Angle::Tangent { lo, hi }
    }
    pub fn is_none(&self) -> bool {
        matches!(self, Angle::Tangent { hi, .. } if hi.is_zero())
    }
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
    if q.is_zero() {
        return match is_nonnegative(p, &minus, &one)? {
            true => Some(Angle::Right),
            false => Some(Angle::none()),
        };
    }
    if p.is_zero() {
        return Some(Angle::Right);
    }
    let common = p.gcd(q)?;
    let (lower, upper) = (p.divided(&common)?.0, q.divided(&common)?.0);
    let all = Simple::new(p, &[])?;
    // At ±1 the sine is 0.
    for (end, inside) in [(&minus, &one), (&one, &minus)] {
        if !lower.at(end).is_zero() && below_beside(end, inside, p, &all)? {
            return Some(Angle::none());
        }
    }
    let sines = Poly::new(vec![Exact::one(), Exact::zero(), minus.clone()]);
    let cosine = Poly::new(vec![Exact::zero(), Exact::one()]);
    // Half the derivative's numerator, without its factors.
    let inner = sines
        .times(&upper.derivative())
        .minus(&cosine.times(&upper));
    let slope = inner
        .times(&lower)
        .minus(&sines.times(&upper).times(&lower.derivative()));
    // Where the denominator alone is 0 the locus is upright.
    let ends = Simple::new(&common, &[Simple::new(&lower, &[])?])?;
    let flat_ends = Simple::new(&ends.0.gcd(&upper)?, &[])?;
    let roots_of_p = std::slice::from_ref(&all);
    let flat = Simple::new(&upper, roots_of_p)?;
    for (simple, of_p) in [(&flat, false), (&flat_ends, true)] {
        for mut root in simple.between(&minus, &one)? {
            if below(&mut root, p, &all, of_p)? {
                return Some(Angle::none());
            }
        }
    }
    let steepest = Simple::new(&slope, roots_of_p)?;
    let mut found: Option<(Exact, Exact)> = None;
    for (simple, of_p) in [(&steepest, false), (&ends, true)] {
        for mut root in simple.between(&minus, &one)? {
            if !below(&mut root, p, &all, of_p)? {
                continue;
            }
            let (lo, hi) = value(&lower, &upper, &mut root);
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

/// Whether P < 0 right beside an end of the interval. `all`: the roots of P.
fn below_beside(end: &Exact, inside: &Exact, p: &Poly, all: &Simple) -> Option<bool> {
    let mut beside = inside.clone();
    loop {
        beside = middle(end, &beside);
        let (from, to) = (end.min(&beside), end.max(&beside));
        let sign = p.sign_at(&beside);
        if sign.is_ne() && all.between(from, to)?.is_empty() {
            return Some(sign.is_lt());
        }
    }
}

/// Whether P < 0 at a root or, where it is one of P's (`of_p`), right beside it.
fn below(root: &mut Root, p: &Poly, all: &Simple, of_p: bool) -> Option<bool> {
    let mut room = power_of_two(-8);
    loop {
        let (from, to) = (&root.lo - &room, &root.hi + &room);
        let (left, right) = (p.sign_at(&from), p.sign_at(&to));
        let apart = left.is_ne() && right.is_ne();
        if apart && all.between(&from, &to)?.len() == usize::from(of_p) {
            return Some(left.is_lt() || right.is_lt());
        }
        root.halve();
        room = &room * &power_of_two(-1);
    }
}

/// (1 − c²)Q²/P² at a root, between two numbers; P is not 0 there.
fn value(p: &Poly, q: &Poly, root: &mut Root) -> (Exact, Exact) {
    root.narrow(&power_of_two(-WIDTH));
    loop {
        let c = (root.lo.clone(), root.hi.clone());
        let square = squared(&c);
        let sines = (&Exact::one() - &square.1, &Exact::one() - &square.0);
        let (below, above) = (squared(&bounds(p, &c)), squared(&bounds(q, &c)));
        let top = (&sines.0 * &above.0, &sines.1 * &above.1);
        let over = |x: &Exact| crate::poly::inverse(x);
        if let (Some(least), Some(most)) = (over(&below.1), over(&below.0)) {
            return (&top.0 * &least, &top.1 * &most);
        }
        root.halve();
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
