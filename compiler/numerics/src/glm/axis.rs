//! How far a method is stable along the axes: all roots w of Φ(w, z) lie in the closed unit disc.
//!
//! The numbers of roots inside, on and outside the circle change only where the leading coefficient is 0, where a root is ±1, where
//! two roots change from apart to reciprocal conjugates (w, 1/w̄), or where such roots meet. With w = (1 + v)/(1 − v) these are
//! resultants: of the even and odd parts in v on the real axis (Routh and Hurwitz), of real and imaginary part at v = iσ on the
//! imaginary one; the last is a discriminant. Each is a minor of a Bézout matrix, a polynomial in x or y that is interpolated at
//! whole numbers. Its real roots are isolated, and the root condition is decided at a rational point between any two.

use super::characteristic::{Characteristic, interpolated};
use crate::poly::{Extent, Poly};
use crate::roots::{Root, Simple, apart, middle, squarefree};
use crate::unit_disc::root_condition;
use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Zero};
use odec_exact::Exact;

/// Highest degree of a resultant that is interpolated, and most multiplications on the way.
const MAX_DEGREE: usize = 400;
const MAX_WORK: usize = 4_000_000;
/// Width of the interval around a limit, over the limit.
const WIDTH: i64 = 1 << 40;

/// By powers of the main variable; coefficients are polynomials in the other one.
type Two = Vec<Poly>;

/// How far on the negative real axis.
pub fn real(phi: &Characteristic) -> Option<Extent> {
    let by_w: Two = phi.by_w.iter().map(Poly::mirrored).collect();
    let moving = without_units(&by_w);
    let n = moving.len() - 1;
    let by_v = mapped(&moving);
    let part = |from: usize| -> Two { by_v.iter().skip(from).step_by(2).cloned().collect() };
    let mut critical = vec![phi.leading().mirrored(), by_v[0].clone(), by_v[n].clone()];
    let (pairs, meeting) = changes(&part(0), &part(1))?;
    critical.push(pairs);
    if meeting {
        critical.push(discriminant(&moving)?);
    }
    limit(&critical, &|x| {
        closed(&Poly::new(by_w.iter().map(|c| c.at(x)).collect()))
    })
}

/// How far on the imaginary axis, as y².
pub fn imaginary(phi: &Characteristic) -> Option<Extent> {
    let moving = without_units(&phi.by_w);
    let n = moving.len() - 1;
    let by_v = mapped(&moving);
    // iᵏ c(iy) = real + i·imaginary.
    let turned = |(k, c): (usize, &Poly)| {
        let part = |from: usize| {
            let terms = c.0.iter().enumerate().map(|(m, a)| match (m + k) % 4 {
                r if r % 2 != from => Exact::zero(),
                0 | 1 => a.clone(),
                _ => -a,
            });
            Poly::new(terms.collect())
        };
        (part(0), part(1))
    };
    let (real, imaginary): (Two, Two) = by_v.iter().enumerate().map(turned).unzip();
    let (pairs, meeting) = changes(&real, &imaginary)?;
    let mut critical = vec![
        on_axis(phi.leading())?,
        on_axis(&by_v[n])?,
        of_square(&pairs)?,
    ];
    if meeting {
        critical.push(on_axis(&discriminant(&moving)?)?);
    }
    let parts: Vec<(Poly, Poly)> = phi.by_w.iter().map(even_odd).collect();
    limit(&critical, &|t| {
        // |Φ(w, iy)|² for real w, whose roots are those of Φ and their conjugates.
        let at = |p: &dyn Fn(&(Poly, Poly)) -> Exact| Poly::new(parts.iter().map(p).collect());
        let (even, odd) = (at(&|p| p.0.at(t)), at(&|p| p.1.at(t)));
        closed(&even.times(&even).plus(&odd.times(&odd).scaled(t)))
    })
}

/// Without the factors w − 1 and w + 1 that do not depend on z.
fn without_units(by_w: &Two) -> Two {
    let mut p = by_w.clone();
    for unit in [Exact::one(), Exact::int(-1)] {
        loop {
            let mut quotient: Two = Vec::new();
            let mut carry = Poly::default();
            for c in p.iter().rev() {
                carry = carry.scaled(&unit).plus(c);
                quotient.push(carry.clone());
            }
            if p.len() < 2 || !carry.is_zero() {
                break;
            }
            quotient.pop();
            quotient.reverse();
            p = quotient;
        }
    }
    p
}

/// `(1 − v)ⁿ p((1 + v)/(1 − v))`.
fn mapped(p: &Two) -> Two {
    let n = p.len() - 1;
    let linear = |c: i64| Poly::new(vec![Exact::one(), Exact::int(c)]);
    let power =
        |c: i64, n: usize| (0..n).fold(Poly::constant(Exact::one()), |q, _| q.times(&linear(c)));
    let mut sum = vec![Poly::default(); n + 1];
    for (k, c) in p.iter().enumerate() {
        let factor = power(1, k).times(&power(-1, n - k));
        for (slot, f) in sum.iter_mut().zip(&factor.0) {
            *slot = slot.plus(&c.scaled(f));
        }
    }
    sum
}

/// `c(iy) = even(t) + iy·odd(t)` with t = y².
fn even_odd(c: &Poly) -> (Poly, Poly) {
    let part = |from: usize| {
        let terms = c.0.iter().skip(from).step_by(2).enumerate();
        let sign = |(n, c): (usize, &Exact)| if n % 2 == 1 { -c } else { c.clone() };
        Poly::new(terms.map(sign).collect())
    };
    (part(0), part(1))
}

/// Where a polynomial is 0 on the imaginary axis, as y².
fn on_axis(p: &Poly) -> Option<Poly> {
    let (even, odd) = even_odd(p);
    even.gcd(&odd)
}

/// An even or odd polynomial in y as one in y², without its root at 0.
fn of_square(p: &Poly) -> Option<Poly> {
    let lowest = p.0.iter().position(|c| !c.is_zero())?;
    let odd = p.0.iter().skip(lowest + 1).step_by(2);
    if odd.clone().any(|c| !c.is_zero()) {
        return None;
    }
    let terms = p.0.iter().skip(lowest).step_by(2).cloned();
    Some(Poly::new(terms.collect()))
}

/// Where the number of common roots changes, and whether there are any everywhere.
fn changes(f: &Two, g: &Two) -> Option<(Poly, bool)> {
    let degree = f.len().max(g.len()).saturating_sub(1);
    for common in 0..=degree {
        let minor = bezout(f, g, common)?;
        if !minor.is_zero() {
            return Some((minor, common > 0));
        }
    }
    None
}

/// Where roots of a polynomial in w meet.
fn discriminant(p: &Two) -> Option<Poly> {
    let derivative = p.iter().enumerate().skip(1);
    let derivative: Two = derivative
        .map(|(n, c)| c.scaled(&Exact::int(n as i64)))
        .collect();
    Some(changes(p, &derivative)?.0)
}

/// The minor of the Bézout matrix of two polynomials without its first rows and columns: up to factors of leading coefficients a
/// principal subresultant (Bini & Pan 1994, Polynomial and Matrix Computations, 2.8).
fn bezout(f: &Two, g: &Two, without: usize) -> Option<Poly> {
    let n = f.len().max(g.len()).saturating_sub(1);
    let size = n - without;
    if size == 0 {
        return Some(Poly::constant(Exact::one()));
    }
    let (f, g) = (whole(f)?, whole(g)?);
    let degree = |p: &[Vec<BigInt>]| p.iter().map(Vec::len).max().unwrap_or(0).saturating_sub(1);
    let bound = size * (degree(&f) + degree(&g));
    if bound > MAX_DEGREE || (bound + 1) * size.pow(3) > MAX_WORK {
        return None;
    }
    let at = |p: &[Vec<BigInt>], x: &BigInt| -> Vec<BigInt> {
        let horner = |c: &Vec<BigInt>| c.iter().rev().fold(BigInt::zero(), |s, c| s * x + c);
        let mut values: Vec<BigInt> = p.iter().map(horner).collect();
        values.resize(n + 1, BigInt::zero());
        values
    };
    let (mut points, mut values) = (Vec::new(), Vec::new());
    for x in 0..=bound as i64 {
        let (f, g) = (at(&f, &x.into()), at(&g, &x.into()));
        let entry = |i: usize, j: usize| -> BigInt {
            let terms = (0..=i.min(n - 1 - j)).map(|k| {
                let (high, low) = (j + k + 1, i - k);
                &f[high] * &g[low] - &f[low] * &g[high]
            });
            terms.sum()
        };
        let row = |i: usize| (without..n).map(|j| entry(i, j)).collect();
        let minor = determinant((without..n).map(row).collect());
        points.push(Exact::int(x));
        values.push(Exact::from(BigRational::from_integer(minor)));
    }
    interpolated(&points, values)
}

/// Times the common denominator; `None` where a coefficient is not rational.
fn whole(p: &Two) -> Option<Vec<Vec<BigInt>>> {
    let mut denominator = BigInt::one();
    for c in p.iter().flat_map(|c| &c.0) {
        denominator = denominator.lcm(c.as_rational()?.denom());
    }
    let scaled = |c: &Exact| {
        let c = c.as_rational()?;
        Some(c.numer() * (&denominator / c.denom()))
    };
    p.iter().map(|c| c.0.iter().map(scaled).collect()).collect()
}

/// By elimination in whole numbers (Bareiss 1968, Math. Comp. 22, 565).
fn determinant(mut m: Vec<Vec<BigInt>>) -> BigInt {
    let n = m.len();
    let (mut last, mut sign) = (BigInt::one(), BigInt::one());
    for k in 0..n {
        let Some(pivot) = (k..n).find(|i| !m[*i][k].is_zero()) else {
            return BigInt::zero();
        };
        if pivot != k {
            m.swap(k, pivot);
            sign = -sign;
        }
        let (above, below) = m.split_at_mut(k + 1);
        let head = &above[k];
        for row in below {
            for j in k + 1..n {
                row[j] = (&row[j] * &head[k] - &row[k] * &head[j]) / &last;
            }
        }
        last = head[k].clone();
    }
    last * sign
}

/// Whether all roots lie in the closed unit disc.
fn closed(p: &Poly) -> Option<bool> {
    Some(root_condition(&squarefree(p)?)?.0)
}

/// Where stability ends: decided between any two positive roots of the critical polynomials.
fn limit(critical: &[Poly], stable: &dyn Fn(&Exact) -> Option<bool>) -> Option<Extent> {
    let zero = Exact::zero();
    let mut simple: Vec<Simple> = Vec::new();
    for p in critical {
        let lowest = p.0.iter().position(|c| !c.is_zero());
        let p = Poly::new(p.0[lowest.unwrap_or(0)..].to_vec());
        if p.degree() > 0 {
            simple.push(Simple::new(&p, &simple)?);
        }
    }
    let mut roots: Vec<Root> = Vec::new();
    for p in &simple {
        roots.extend(p.positive()?);
    }
    let mut roots = apart(roots, &zero)?;
    let mut last = None;
    for i in 0..=roots.len() {
        let after = match i.checked_sub(1) {
            None => Exact::zero(),
            Some(k) => roots[k].hi.clone(),
        };
        let sample = match roots.get(i) {
            Some(next) => middle(&after, &next.lo),
            None => &after + &Exact::one(),
        };
        if !stable(&sample)? {
            last = Some(i);
            break;
        }
    }
    match last {
        None => Some(Extent::Infinite),
        Some(0) => Some(Extent::Zero),
        Some(i) => {
            let root = &mut roots[i - 1];
            while &(&root.hi - &root.lo) * &Exact::int(WIDTH) > root.hi {
                root.halve();
            }
            Some(Extent::Until {
                lo: root.lo.clone(),
                hi: root.hi.clone(),
            })
        }
    }
}
