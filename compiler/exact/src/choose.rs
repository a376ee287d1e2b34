//! The real root of a polynomial that is nearest to a number, as an exact number.
//!
//! Where the irreducible factor with that root has it among radicals or nested square roots, it is one of those. Otherwise
//! it becomes a generator of its own (`polynomial_root.rs`), if its polynomial stays irreducible over all real radicals and the
//! square roots above them. That is so for
//!
//! - a degree that is odd, with real roots alone (casus irreducibilis: a real radical of prime degree in a real normal field is a
//!   square root, and square roots do not split a polynomial of odd degree; Isaacs 1985, Amer. Math. Monthly 92, 571);
//! - a degree p that is an odd prime, unless θ generates ℚ(c^(1/p)): fields between the rationals and a real field of
//!   radicals are fields of radicals (Greither & Harrison 1986). That one has a single real embedding, and a discriminant
//!   that is (−1)^((p−1)/2)·p times a square;
//! - degree 4, where its resolvent cubic is such a polynomial: a quartic that splits over a quadratic extension has a
//!   resolvent with a root.
//!
//! The other roots of degrees 3 and 4 are written in radicals, but for quartics whose resolvent is a cube root.

use super::factor::factors;
use super::poly::{Between, Poly, degree, discriminant, primitive, real_roots, squarefree};
use super::polynomial_root::PolynomialRoot;
use super::{Exact, ExactError, MAX_BITS};
use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::sync::Arc;

/// Highest degree of a polynomial whose roots are sought, and most binary digits of its coefficients without denominators.
pub const MAX_POLYNOMIAL: usize = 12;
pub const MAX_COEFFICIENT: u64 = 256;
/// Binary places to which roots are compared with the number that they are near.
const PLACES: u64 = 256;

/// A real root, by the irreducible polynomial that it is a root of.
struct Candidate {
    factor: Poly,
    /// Among the real roots of the factor.
    place: usize,
    ends: [BigRational; 2],
}

impl Exact {
    /// The real root of a polynomial that is nearest to a number; every other one must be more than twice as far away.
    /// Coefficients are listed from the constant up.
    pub fn root_of(coefficients: &[Exact], near: &Exact) -> Result<Exact, ExactError> {
        let near = near.as_rational().ok_or(ExactError::NotRational)?;
        let roots = candidates(coefficients)?;
        let distances: Vec<[BigRational; 2]> = roots.iter().map(|r| distance(r, near)).collect();
        let far = |d: &[BigRational; 2], other: &[BigRational; 2]| {
            other[0] > &d[1] * BigRational::from_integer(2.into()) || d[1].is_zero()
        };
        let single = |i: &usize| {
            let others = (0..roots.len()).filter(|j| j != i);
            let mut others = others.map(|j| far(&distances[*i], &distances[j]));
            others.all(|far| far)
        };
        let Some(chosen) = (0..roots.len()).find(single) else {
            return Err(match roots.is_empty() {
                true => ExactError::NoRealRoot,
                false => ExactError::Ambiguous,
            });
        };
        number(&roots[chosen])?.checked()
    }

    /// The doubles nearest to the real roots of a polynomial, rising.
    pub fn real_roots(coefficients: &[Exact]) -> Result<Vec<f64>, ExactError> {
        let value = |c: &Candidate| c.ends[0].to_f64().unwrap_or(f64::NAN);
        let mut roots: Vec<f64> = candidates(coefficients)?.iter().map(value).collect();
        roots.sort_by(f64::total_cmp);
        Ok(roots)
    }
}

/// Least and greatest distance of what an interval holds from a number.
fn distance(root: &Candidate, near: &BigRational) -> [BigRational; 2] {
    let [lo, hi] = &root.ends;
    let (below, above) = (near - lo, hi - near);
    let nearest = -below.clone().min(above.clone());
    [nearest.max(BigRational::zero()), below.max(above)]
}

fn candidates(coefficients: &[Exact]) -> Result<Vec<Candidate>, ExactError> {
    let all: Option<Vec<&BigRational>> = coefficients.iter().map(Exact::as_rational).collect();
    let coefficients = all.ok_or(ExactError::NotRational)?;
    let lcm = |d: BigInt, c: &&BigRational| d.lcm(c.denom());
    let common = coefficients.iter().fold(BigInt::one(), lcm);
    let whole = coefficients
        .iter()
        .map(|c| c.numer() * (&common / c.denom()));
    let p = primitive(whole.collect());
    let size = p.iter().map(BigInt::bits).max().unwrap_or(0);
    if degree(&p) == 0 {
        return Err(ExactError::ConstantPolynomial);
    }
    if degree(&p) > MAX_POLYNOMIAL || size > MAX_COEFFICIENT {
        return Err(ExactError::LargePolynomial);
    }
    let mut found = Vec::new();
    for factor in factors(&squarefree(&p))? {
        if let [constant, slope] = &factor[..] {
            let root = BigRational::new(-constant, slope.clone());
            let ends = [root.clone(), root];
            found.push(Candidate {
                ends,
                place: 0,
                factor,
            });
            continue;
        }
        for (place, near) in real_roots(&factor).into_iter().enumerate() {
            let near: Between = near.narrowed(&factor, PLACES);
            found.push(Candidate {
                ends: near.ends(),
                place,
                factor: factor.clone(),
            });
        }
    }
    Ok(found)
}

fn q(n: &BigInt) -> Exact {
    Exact::from(BigRational::from_integer(n.clone()))
}

/// A root of an irreducible polynomial.
fn number(root: &Candidate) -> Result<Exact, ExactError> {
    let p = &root.factor;
    if let [c, b, a] = &p[..] {
        let square = q(&(b * b - BigInt::from(4) * a * c)).root(2)?;
        let square = if root.place == 0 { -&square } else { square };
        return Ok(&(&square - &q(b)) * &q(&(a * 2)).recip()?);
    }
    if degree(p) == 1 {
        return Ok(Exact::from(root.ends[0].clone()));
    }
    // With the sum of the roots 0: yⁿ + …, x = y + shift.
    let n = degree(p);
    let lead = BigRational::from_integer(p[n].clone());
    let monic: Vec<BigRational> = p
        .iter()
        .map(|c| BigRational::from_integer(c.clone()) / &lead)
        .collect();
    let shift = -&monic[n - 1] / BigRational::from_integer(n.into());
    let y = shifted(monic, &shift);
    if y[1..n].iter().all(Zero::is_zero) {
        return pure(&y, root.place, n).map(|y| &y + &Exact::from(shift));
    }
    let inside = |x: &Exact| {
        let [lo, hi] = root.ends.clone().map(Exact::from);
        lo < *x && *x < hi
    };
    if n == 3 && is_cube_root_field(p) {
        let x = cardano(&y).map(|y| &y + &Exact::from(shift))?;
        return Some(x).filter(inside).ok_or(ExactError::Undecided);
    }
    if n == 4 {
        if y[1].is_zero() {
            let all = biquadratic(&y)?;
            let mut all = all.iter().map(|y| y + &Exact::from(shift.clone()));
            return all.find(inside).ok_or(ExactError::Undecided);
        }
        let resolvent = resolvent(&y);
        let roots = factors(&resolvent)?;
        let linear = roots.iter().filter(|f| degree(f) == 1);
        let mut positive = linear.map(|f| BigRational::new(-&f[0], f[1].clone()));
        if let Some(m) = positive.find(Signed::is_positive) {
            let all = ferrari(&y, &m)?;
            let mut all = all.iter().map(|y| y + &Exact::from(shift.clone()));
            return all.find(inside).ok_or(ExactError::Undecided);
        }
    }
    if !is_independent(p, &y)? {
        return Err(ExactError::Undecided);
    }
    generated(p, root)
}

/// `p(y + shift)`.
fn shifted(mut p: Vec<BigRational>, shift: &BigRational) -> Vec<BigRational> {
    for from in 0..p.len() {
        for i in (from..p.len() - 1).rev() {
            let above = &p[i + 1] * shift;
            p[i] += above;
        }
    }
    p
}

/// `yⁿ = −c`.
fn pure(y: &[BigRational], place: usize, n: usize) -> Result<Exact, ExactError> {
    let power = -&y[0];
    let root = Exact::from(power.abs()).root(n as u32)?;
    let negative = match n % 2 {
        0 => place == 0,
        _ => power.is_negative(),
    };
    Ok(if negative { -&root } else { root })
}

fn is_square(x: &BigRational) -> bool {
    let square = |n: &BigInt| !n.is_negative() && n.sqrt().pow(2) == *n;
    square(x.numer()) && square(x.denom())
}

/// Whether a root of an irreducible cubic lies in ℚ(c^(1/3)): the discriminant is −3 times a square.
fn is_cube_root_field(p: &[BigInt]) -> bool {
    is_square(&(discriminant(p) / BigRational::from_integer((-3).into())))
}

/// The real root of `y³ + p y + q`, where 4p³ + 27q² is 3 times a square s²: u + v with u³, v³ = −q/2 ± s/6.
fn cardano(y: &[BigRational]) -> Result<Exact, ExactError> {
    let (p, c) = (&y[1], &y[0]);
    let whole = |n: i64| BigRational::from_integer(n.into());
    let inner = (whole(4) * p * p * p + whole(27) * c * c) / whole(108);
    let inner = Exact::from(inner).root(2)?;
    let half = Exact::from(-c / whole(2));
    Ok(&(&half + &inner).root(3)? + &(&half - &inner).root(3)?)
}

/// `8m³ + 8pm² + (2p² − 8r)m − q²` of `y⁴ + py² + qy + r`.
fn resolvent(y: &[BigRational]) -> Poly {
    let (p, c, r) = (&y[2], &y[1], &y[0]);
    let whole = |n: i64| BigRational::from_integer(n.into());
    let all = [
        -(c * c),
        whole(2) * p * p - whole(8) * r,
        whole(8) * p,
        whole(8),
    ];
    let common = all.iter().fold(BigInt::one(), |d, x| d.lcm(x.denom()));
    let numbers = all.iter().map(|x| x.numer() * (&common / x.denom()));
    squarefree(&primitive(numbers.collect()))
}

/// The real roots of `y⁴ + py² + r`.
fn biquadratic(y: &[BigRational]) -> Result<Vec<Exact>, ExactError> {
    let half = Exact::ratio(1, 2);
    let (p, r) = (Exact::from(y[2].clone()), Exact::from(y[0].clone()));
    let inner = (&(&p * &p) - &(&Exact::int(4) * &r)).root(2)?;
    let mut roots = Vec::new();
    for square in [&inner - &p, &-&inner - &p] {
        if square.is_negative() {
            continue;
        }
        let root = (&square * &half).root(2)?;
        roots.extend([-&root, root]);
    }
    Ok(roots)
}

/// The real roots of `y⁴ + py² + qy + r` from a root m > 0 of the resolvent: those of `y² ± √(2m)·y + p/2 + m ∓ q/(2√(2m))`.
fn ferrari(y: &[BigRational], m: &BigRational) -> Result<Vec<Exact>, ExactError> {
    let rational = |x: BigRational| Exact::from(x);
    let two = BigRational::from_integer(2.into());
    let s = rational(m * &two).root(2)?;
    let part = &rational(&y[1] / &two) * &s.recip()?;
    let constant = rational(&y[2] / &two + m);
    let half = Exact::ratio(1, 2);
    let mut roots = Vec::new();
    for (s, part) in [(s.clone(), -&part), (-&s, part)] {
        let inner = &(&s * &s) - &(&Exact::int(4) * &(&constant + &part));
        if inner.is_negative() {
            continue;
        }
        let inner = inner.root(2)?;
        roots.push(&(&inner - &s) * &half);
        roots.push(&(&-&inner - &s) * &half);
    }
    Ok(roots)
}

/// Whether an irreducible polynomial of degree 3 or more stays so beside all real radicals and square roots, as far as it
/// is known. Both are given: the polynomial, and the same with the sum of its roots 0.
fn is_independent(p: &[BigInt], y: &[BigRational]) -> Result<bool, ExactError> {
    let n = degree(p);
    if n == 4 {
        let resolvent = resolvent(y);
        let irreducible = degree(&resolvent) == 3 && factors(&resolvent)?.len() == 1;
        return Ok(
            irreducible && (real_roots(&resolvent).len() == 3 || !is_cube_root_field(&resolvent))
        );
    }
    let real = real_roots(p).len();
    if n % 2 == 1 && real == n {
        return Ok(true);
    }
    if ![3, 5, 7, 11].contains(&n) {
        return Ok(false);
    }
    let sign = if n % 4 == 1 { 1 } else { -1 };
    let prime = BigRational::from_integer((sign * n as i64).into());
    Ok(real > 1 || !is_square(&(discriminant(p) / prime)))
}

/// As a multiple of a generator: kθ for the least k that makes an algebraic integer of it.
fn generated(p: &[BigInt], root: &Candidate) -> Result<Exact, ExactError> {
    let n = degree(p);
    let lead = &p[n];
    // kⁿ⁻ⁱ aᵢ/aₙ: the leading coefficient is such a k, and prime factors that are not needed are taken out of it.
    let scaled = |k: &BigInt| -> Option<Poly> {
        let term = |(i, c): (usize, &BigInt)| {
            let (whole, rest) = (num_traits::pow(k.clone(), n - i) * c).div_rem(lead);
            rest.is_zero().then_some(whole)
        };
        p.iter().enumerate().map(term).collect()
    };
    let mut k = lead.clone();
    let (primes, _) = super::radical::small_powers(lead.magnitude());
    for (prime, power) in primes {
        for _ in 0..power {
            let less = &k / prime;
            if scaled(&less).is_none() {
                break;
            }
            k = less;
        }
    }
    let polynomial = scaled(&k).ok_or(ExactError::TooLarge)?;
    if polynomial.iter().any(|c| c.bits() > MAX_BITS / 2) {
        return Err(ExactError::TooLarge);
    }
    let all = PolynomialRoot::all(&polynomial);
    let own = all.into_iter().nth(root.place);
    let generator = own.ok_or(ExactError::TooLarge)?;
    let number = Exact::of_polynomial(Arc::new(generator));
    Ok(number.scaled(&BigRational::new(BigInt::one(), k)))
}
