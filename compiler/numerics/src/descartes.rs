//! Isolates the real roots of a polynomial by Descartes' rule of signs and bisection (Collins & Akritas 1976; Rouillier & Zimmermann
//! 2004, J. Comput. Appl. Math. 162, 33).
//!
//! The coefficients of `(1 + x)ⁿ p(1/(1 + x))` change their signs as often as p has roots in (0, 1), or more often by an even number:
//! with no change there is no root, with one there is one, else the interval is halved. This takes sums and signs alone, so
//! long coefficients and roots among them are no obstacle. Multiple roots, which halving never separates, are taken out by
//! the polynomial's factors of odd multiplicity (`Poly::odd_part`).

use crate::poly::Poly;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use odec_exact::Exact;
use std::cmp::Ordering;

/// Halvings after which roots that lie together are taken for one multiple root.
const PATIENCE: u32 = 40;
/// Additions of words that a question may cost; beyond them it is not decided.
const MAX_WORK: u64 = 1 << 31;
/// Width of the interval around a root, over the root.
const WIDTH: i64 = 1 << 40;

/// What signs are counted on.
pub(crate) trait Number: Clone {
    fn plus(&self, other: &Self) -> Self;
    fn times(&self, other: &Self) -> Self;
    fn whole(n: &BigInt) -> Self;
    /// Times 2ⁿ.
    fn doubled(&self, n: usize) -> Self;
    fn sign(&self) -> Ordering;
    /// Words that an addition goes through.
    fn words(&self) -> u64;
}

impl Number for BigInt {
    fn plus(&self, other: &BigInt) -> BigInt {
        self + other
    }
    fn times(&self, other: &BigInt) -> BigInt {
        self * other
    }
    fn whole(n: &BigInt) -> BigInt {
        n.clone()
    }
    fn doubled(&self, n: usize) -> BigInt {
        self << n
    }
    fn sign(&self) -> Ordering {
        self.cmp(&BigInt::zero())
    }
    fn words(&self) -> u64 {
        self.bits() / 64 + 1
    }
}

impl Number for Exact {
    fn plus(&self, other: &Exact) -> Exact {
        self + other
    }
    fn times(&self, other: &Exact) -> Exact {
        self * other
    }
    fn whole(n: &BigInt) -> Exact {
        Exact::from(BigRational::from_integer(n.clone()))
    }
    fn doubled(&self, n: usize) -> Exact {
        self * &Exact::from(BigRational::from_integer(BigInt::one() << n))
    }
    fn sign(&self) -> Ordering {
        Exact::sign(self)
    }
    fn words(&self) -> u64 {
        // Sums of fractions and signs of sums of roots take many times an addition.
        self.coefficients()
            .map(|q| 16 * (q.numer().bits() + q.denom().bits()) / 64 + 64)
            .sum()
    }
}

/// Why there is no answer yet.
enum Stuck {
    /// Perhaps a multiple root.
    Together,
    Work,
}

/// A part of (0, 1): `from/2ᵈᵉᵖᵗʰ` and one 2⁻ᵈᵉᵖᵗʰ on, with the polynomial mapped to (0, 1).
struct Piece<N> {
    p: Vec<N>,
    from: BigInt,
    depth: u32,
}

enum Task<N> {
    Look(Piece<N>),
    /// A root of odd multiplicity.
    Found(BigRational),
}

/// `p(x + 1)`.
pub(crate) fn shifted<N: Number>(mut p: Vec<N>) -> Vec<N> {
    let n = p.len();
    for i in 0..n {
        for j in (i..n - 1).rev() {
            p[j] = p[j].plus(&p[j + 1]);
        }
    }
    p
}

fn changes<N: Number>(p: &[N]) -> usize {
    let mut last = Ordering::Equal;
    let mut changes = 0;
    for sign in p.iter().map(N::sign).filter(|s| s.is_ne()) {
        changes += usize::from(last.is_ne() && sign != last);
        last = sign;
    }
    changes
}

/// Intervals in (0, 1), from left to right, in each of which p has one root of odd multiplicity; equal ends are that root. All of them, or
/// the first.
fn inside<N: Number>(
    p: Vec<N>,
    first: bool,
    deepest: u32,
    work: &mut u64,
) -> Result<Vec<(BigRational, BigRational)>, Stuck> {
    let at = |from: &BigInt, depth: u32| BigRational::new(from.clone(), BigInt::one() << depth);
    let mut found = Vec::new();
    let mut tasks = vec![Task::Look(Piece {
        p,
        from: BigInt::zero(),
        depth: 0,
    })];
    while let Some(task) = tasks.pop() {
        match task {
            Task::Found(x) => found.push((x.clone(), x)),
            Task::Look(piece) => {
                let n = piece.p.len() as u64;
                let words = piece.p.iter().map(N::words).max().unwrap_or(1);
                *work = work.checked_sub(n * n * words).ok_or(Stuck::Work)?;
                let reversed = piece.p.iter().rev().cloned().collect();
                match changes(&shifted(reversed)) {
                    0 => {}
                    1 => found.push((
                        at(&piece.from, piece.depth),
                        at(&(&piece.from + 1), piece.depth),
                    )),
                    _ if piece.depth == deepest => return Err(Stuck::Together),
                    _ => halved(piece, &mut tasks),
                }
            }
        }
        if first && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

fn halved<N: Number>(piece: Piece<N>, tasks: &mut Vec<Task<N>>) {
    let n = piece.p.len() - 1;
    let scaled = piece.p.iter().enumerate();
    let left: Vec<N> = scaled.map(|(i, c)| c.doubled(n - i)).collect();
    let mut right = shifted(left.clone());
    let zeros = right.iter().take_while(|c| c.sign().is_eq()).count();
    right.drain(..zeros);
    let (from, depth) = (&piece.from * 2, piece.depth + 1);
    let middle: BigInt = &from + 1;
    let root = BigRational::new(middle.clone(), BigInt::one() << depth);
    tasks.push(Task::Look(Piece {
        p: right,
        from: middle,
        depth,
    }));
    if zeros % 2 == 1 {
        tasks.push(Task::Found(root));
    }
    tasks.push(Task::Look(Piece {
        p: left,
        from,
        depth,
    }));
}

/// In whole numbers where coefficients are rational.
fn whole(p: &Poly) -> Option<Vec<BigInt>> {
    p.0.iter().map(Exact::as_integer).collect()
}

/// [`inside`] on a polynomial over (0, 1), with multiple roots taken out if need be.
fn on_unit(p: &Poly, first: bool) -> Option<Vec<(BigRational, BigRational)>> {
    let mut work = MAX_WORK;
    let mut tried = |p: &Poly, deepest: u32| match whole(p) {
        Some(whole) => inside(whole, first, deepest, &mut work),
        None => inside(p.0.clone(), first, deepest, &mut work),
    };
    match tried(p, PATIENCE) {
        Ok(found) => Some(found),
        Err(Stuck::Work) => None,
        Err(Stuck::Together) => {
            let simple = p.odd_part().unwrap_or_else(|| p.clone());
            tried(&simple, u32::MAX).ok()
        }
    }
}

/// `p(from + (to − from) x)`, primitive.
fn mapped(p: &Poly, from: &Exact, to: &Exact) -> Poly {
    let x = Poly::new(vec![from.clone(), to - from]);
    let horner = |sum: Poly, c: &Exact| sum.times(&x).plus(&Poly::constant(c.clone()));
    p.0.iter().rev().fold(Poly::default(), horner).primitive()
}

/// Intervals in the open interval `(from, to)`, in each of which p has one root of odd multiplicity, from left to right; equal ends
/// are that root.
pub fn odd_roots(p: &Poly, from: &Exact, to: &Exact) -> Option<Vec<(Exact, Exact)>> {
    let p = mapped(p, from, to);
    // A root at the left end lies outside.
    let lowest = p.0.iter().position(|c| !c.is_zero()).unwrap_or(0);
    let p = Poly::new(p.0[lowest..].to_vec());
    let back = |t: BigRational| from + &(&(to - from) * &Exact::from(t));
    let found = if p.degree() == 0 {
        Vec::new()
    } else {
        on_unit(&p, false)?
    };
    Some(found.into_iter().map(|(a, b)| (back(a), back(b))).collect())
}

/// Where a polynomial first changes its sign above 0, in `(lo, hi]` with `hi − lo` below 2⁻⁴⁰ of hi; `Some(None)`: nowhere.
pub(crate) fn first_change(p: &Poly) -> Option<Option<(Exact, Exact)>> {
    let lowest = p.0.iter().position(|c| !c.is_zero()).unwrap_or(0);
    let p = Poly::new(p.0[lowest..].to_vec()).primitive();
    if p.degree() == 0 || changes(&p.0) == 0 {
        return Some(None);
    }
    let (scaled, k) = match whole(&p) {
        Some(w) => bounded(&w).map(|(s, k)| (Poly::new(s.iter().map(Exact::whole).collect()), k)),
        None => bounded(&p.0).map(|(s, k)| (Poly::new(s), k)),
    }?;
    let scale = Exact::one().doubled(k);
    let Some((lo, hi)) = on_unit(&scaled, true)?.into_iter().next() else {
        return Some(None);
    };
    let (mut lo, mut hi) = (&Exact::from(lo) * &scale, &Exact::from(hi) * &scale);
    if lo == hi {
        lo = &hi - &(&hi * &Exact::ratio(1, 2 * WIDTH));
    }
    let before = p.coefficient(0).sign();
    let half = Exact::ratio(1, 2);
    while &(&hi - &lo) * &Exact::int(WIDTH) > hi {
        let middle = &(&lo + &hi) * &half;
        let sign = p.sign_at(&middle);
        if sign.is_eq() && p.derivative().sign_at(&middle).is_eq() {
            // A multiple root, where the sign need not change.
            return first_change(&p.odd_part()?);
        }
        if sign == before {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    Some(Some((lo, hi)))
}

/// `p(2ᵏx)` and k, so that there are no roots from 1 on: `p(x + 2ᵏ)` has coefficients of one sign.
fn bounded<N: Number>(p: &[N]) -> Option<(Vec<N>, usize)> {
    let mut k = 0;
    loop {
        let terms = p.iter().enumerate();
        let scaled: Vec<N> = terms.map(|(i, c)| c.doubled(i * k)).collect();
        let beyond = shifted(scaled.clone());
        if changes(&beyond) == 0 && beyond.first().is_some_and(|c| c.sign().is_ne()) {
            return Some((scaled, k));
        }
        k = if k == 0 { 1 } else { 2 * k };
        if (k * p.len()) as u64 > MAX_WORK >> 12 {
            return None;
        }
    }
}

/// Whether a polynomial that is not 0 is nowhere negative on (0, 1), or from 0 on where `ray`; as coefficients that need not be
/// [`Exact`].
pub(crate) fn never_negative<N: Number>(
    p: &[N],
    ray: bool,
    exact: impl Fn() -> Poly,
) -> Option<bool> {
    let lowest = p.iter().position(|c| c.sign().is_ne());
    let Some(lowest) = lowest else {
        return Some(true);
    };
    let highest = p.iter().rposition(|c| c.sign().is_ne()).unwrap_or(lowest);
    let p = &p[lowest..=highest];
    if p[0].sign().is_lt() {
        return Some(false);
    }
    if changes(p) == 0 {
        return Some(true);
    }
    let p = if ray { bounded(p)?.0 } else { p.to_vec() };
    let mut work = MAX_WORK;
    match inside(p, true, PATIENCE, &mut work) {
        Ok(found) => Some(found.is_empty()),
        Err(Stuck::Work) => None,
        // Multiple roots are rare enough to begin again.
        Err(Stuck::Together) => {
            let p = exact();
            match ray {
                true => first_change(&p).map(|c| c.is_none()),
                false => odd_roots(&p, &Exact::zero(), &Exact::one()).map(|r| r.is_empty()),
            }
        }
    }
}

/// Whether `p ≥ 0` on `[from, to]`.
pub fn is_nonnegative(p: &Poly, from: &Exact, to: &Exact) -> Option<bool> {
    let p = mapped(p, from, to);
    match whole(&p) {
        Some(w) => never_negative(&w, false, || p.clone()),
        None => never_negative(&p.0, false, || p.clone()),
    }
}
