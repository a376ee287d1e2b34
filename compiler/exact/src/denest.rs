//! Decides whether a number is a square in its field, and finds its root.
//!
//! In K(n), n² = β in K: √(a + b·n) = u + v·n means u² + v²β = a and 2uv = b, so a² − b²β is a square s² in K, and u² is
//! (a + s)/2 or (a − s)/2. That goes down the levels of a tower to the field of all roots of rational numbers, and there from
//! prime to prime: of a square root in that field, a + b·g with g² = c is a rational or radical multiple of a square in
//! the field of its own radicals, as every real field between a field and its extension by radicals is itself one by
//! radicals (Greither & Harrison 1986, J. Pure Appl. Algebra 43, 257). So s lies in the field without g, which is decided
//! without factoring large numbers, and `√(a + b·g) = √((a+s)/2) ± √((a−s)/2)`. Leaves what has no root to `tower.rs`.

use super::radical::{Radical, powers_of};
use super::root::{multiple, term};
use super::tower::Tower;
use super::{Exact, ExactError, MAX_BITS, MAX_DEGREE};
use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, Zero};
use std::collections::BTreeMap;

/// Most bits of a number on the way, which may be longer than a result.
const MAX_INNER_BITS: u64 = 8 * MAX_BITS;

/// The square root of a positive number in the field of the first levels of a tower; `None`: there is none.
pub fn root_in(x: &Exact, tower: &Tower, levels: usize) -> Result<Option<Exact>, ExactError> {
    let Some(below) = levels.checked_sub(1) else {
        return root(&x.clone().settled(), None);
    };
    let (n, radicand) = (tower.generator(below), tower.radicand(below));
    let (a, b) = x.clone().moved(tower).split(below);
    if b.is_zero() {
        if let Some(u) = root_in(&a, tower, below)? {
            return Ok(Some(u));
        }
        // √a = √(aβ)·n/β.
        let Some(u) = root_in(&sized(&a * &radicand)?, tower, below)? else {
            return Ok(None);
        };
        return sized(&(&u * &n) * &radicand.recip()?).map(Some);
    }
    let square = norm(&a, &b, &radicand)?;
    if square.is_negative() {
        return Ok(None);
    }
    let Some(s) = root_in(&square, tower, below)? else {
        return Ok(None);
    };
    for s in [s.clone(), -&s] {
        let u = &(&a + &s) * &Exact::ratio(1, 2);
        if u.sign().is_le() {
            continue;
        }
        if let Some(u) = root_in(&u, tower, below)? {
            let over = (&u + &u).recip()?;
            let root = sized(&u + &(&(&b * &over) * &n))?;
            return Ok(Some(if root.is_negative() { -&root } else { root }));
        }
    }
    Ok(None)
}

/// `a² − b²β`.
pub fn norm(a: &Exact, b: &Exact, radicand: &Exact) -> Result<Exact, ExactError> {
    sized(&(a * a) - &(&(b * b) * radicand))
}

fn sized(x: Exact) -> Result<Exact, ExactError> {
    match x.bits() > MAX_INNER_BITS {
        true => Err(ExactError::TooLarge),
        false => Ok(x),
    }
}

/// Of each prime, the highest denominator of its exponents: the field of those radicals.
type Span = BTreeMap<u64, i64>;

fn span(x: &Exact) -> Span {
    let mut span = Span::new();
    for (p, e) in x.roots.keys().flat_map(|u| u.radical.powers()) {
        let have = span.entry(p).or_insert(1);
        *have = (*have).max(*e.denom());
    }
    span
}

fn lies_in(x: &Exact, field: &Span) -> bool {
    let powers = x
        .roots
        .keys()
        .flat_map(|u| u.radical.powers().collect::<Vec<_>>());
    let mut powers = powers.map(|(p, e)| field.get(&p).is_some_and(|d| e.denom() <= d));
    powers.all(|inside| inside)
}

/// The square root of a positive sum of radicals among such sums; with a field, among the numbers of that field.
fn root(x: &Exact, field: Option<&Span>) -> Result<Option<Exact>, ExactError> {
    if let Some((r, c)) = x.as_term() {
        return match field {
            Some(field) => Ok(term_in(&r, c, field)),
            None => term(&r, c, 2).map(Some),
        };
    }
    let mut own = span(x);
    if own.values().any(|d| !d.count_ones().is_one()) {
        return Err(ExactError::Nested);
    }
    let Some((p, degree)) = own.pop_last() else {
        return Ok(None);
    };
    if degree / 2 > 1 {
        own.insert(p, degree / 2);
    }
    // x = a + b·g with g = p^(1/degree) and c = g².
    let (mut a, mut b) = (Exact::zero(), Exact::zero());
    let (_, inverse) = radical(p, Ratio::new(-1, degree));
    let g = multiple(radical(p, Ratio::new(1, degree)).1, BigRational::one());
    let over = multiple(inverse, BigRational::new(BigInt::one(), p.into()));
    for (unit, c) in x.terms() {
        let part = multiple(unit.radical.clone(), c.clone());
        match unit.radical.exponent(p) {
            e if *e.denom() == degree => b = &b + &(&part * &over),
            _ => a = &a + &part,
        }
    }
    let c = &g * &g;
    let square = norm(&a, &b, &c)?;
    if square.is_negative() {
        // √x = √(x·g)/√g: then the square is −c times as large.
        if i64::from(MAX_DEGREE) < 2 * degree {
            return Err(ExactError::Degree);
        }
        let Some(root) = root(&sized(x * &g)?, None)? else {
            return Ok(None);
        };
        let (_, half) = radical(p, Ratio::new(-1, 2 * degree));
        let over = multiple(half, BigRational::new(BigInt::one(), p.into()));
        let root = sized(&root * &over)?;
        return Ok(Some(root).filter(|r| field.is_none_or(|f| lies_in(r, f))));
    }
    let Some(s) = self::root(&square, Some(&own))? else {
        return Ok(None);
    };
    let half = Exact::ratio(1, 2);
    let Some(larger) = root(&(&(&a + &s) * &half), field)? else {
        return Ok(None);
    };
    let Some(smaller) = root(&(&(&a - &s) * &half), field)? else {
        return Ok(None);
    };
    let found = match b.is_negative() {
        true => &larger - &smaller,
        false => &larger + &smaller,
    };
    Ok(Some(sized(found)?).filter(|r| &(r * r) == x))
}

fn radical(p: u64, e: Ratio<i64>) -> (BigRational, Radical) {
    Radical::of([(p, e)].into_iter())
}

/// The square root of one term in a field of radicals, whose primes are the only ones that matter.
fn term_in(r: &Radical, c: &BigRational, field: &Span) -> Option<Exact> {
    let part = |n: &BigInt| -> Option<(Vec<(u64, i64)>, BigInt)> {
        let (powers, rest) = powers_of(n.magnitude(), field.keys().copied());
        let root = rest.sqrt();
        (&root * &root == rest).then(|| (powers, root.into()))
    };
    let ((above, n), (below, d)) = (part(c.numer())?, part(c.denom())?);
    let half = |k: i64| Ratio::new(k, 2);
    let above = above.into_iter().map(|(p, k)| (p, half(k)));
    let below = below.into_iter().map(|(p, k)| (p, half(-k)));
    let inner = r.powers().map(|(p, e)| (p, e / 2));
    let (whole, radical) = Radical::of(above.chain(below).chain(inner));
    let root = multiple(radical, whole * BigRational::new(n, d));
    lies_in(&root, field).then_some(root)
}

impl Exact {
    /// `q` and `y` with `x = q²·y`, where y has whole coefficients without a square factor that could be found.
    pub(super) fn without_squares(&self) -> (BigRational, Exact) {
        let all = || self.terms().map(|(_, c)| c);
        let lcm = all().fold(BigInt::one(), |d, c| d.lcm(c.denom()));
        let whole = self.scaled(&BigRational::from_integer(&lcm * &lcm));
        let content = whole
            .terms()
            .fold(BigInt::zero(), |g, (_, c)| g.gcd(c.numer()));
        let square = BigInt::from(square_factor(content.magnitude()));
        let inside = whole.scaled(&BigRational::new(BigInt::one(), &square * &square));
        (BigRational::new(square, lcm.abs()), inside)
    }
}

/// A number whose square divides another one.
fn square_factor(n: &BigUint) -> BigUint {
    let (powers, rest) = super::radical::small_powers(n);
    let found = powers
        .into_iter()
        .map(|(p, k)| BigUint::from(p).pow(k as u32 / 2));
    let root = rest.sqrt();
    let rest = if &root * &root == rest {
        root
    } else {
        BigUint::one()
    };
    found.product::<BigUint>() * rest
}
