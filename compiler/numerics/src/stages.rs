//! The stability function of an explicit method, stage by stage: `Pᵢ = 1 + z Σ aᵢⱼ Pⱼ`, `R = 1 + z Σ bⱼ Pⱼ`.
//!
//! A stage that differs from the one before it in a few coefficients alone, as in a composition, is made from that one.
//! Each polynomial has one denominator, so that sums take products of whole numbers and one greatest common divisor.

use crate::poly::Poly;
use crate::ring::{Int, Ring};
use crate::tableau::Tableau;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Zero};
use odec_exact::Exact;

/// Whole coefficients by rising powers, over a positive denominator.
#[derive(Clone)]
struct Quotient {
    whole: Vec<Int>,
    under: BigInt,
}

/// R of an explicit method, and how many products of whole numbers it took; `None`: too many different roots among the
/// coefficients.
pub fn stability(t: &Tableau) -> Option<(Poly, u64)> {
    let ring = Ring::of(t.a.iter().flatten().chain(&t.b))?;
    let one = Quotient {
        whole: vec![ring.one()],
        under: BigInt::one(),
    };
    let mut stages: Vec<Quotient> = Vec::with_capacity(t.stages());
    let mut products = 0;
    let mut before: Option<&[Exact]> = None;
    for row in t.a.iter().chain([&t.b]) {
        let terms = |from: &[Exact]| -> Vec<(usize, Exact)> {
            let pairs = row.iter().zip(from).enumerate();
            let pairs = pairs.filter(|(_, (a, b))| a != b);
            pairs.map(|(j, (a, b))| (j, a - b)).collect()
        };
        let differs = |from: &[Exact]| row.iter().zip(from).filter(|(a, b)| a != b).count();
        let own = row.iter().filter(|a| !a.is_zero()).count();
        let last = before.filter(|from| differs(from) < own);
        let (start, terms) = match (last, stages.last()) {
            (Some(from), Some(start)) => (start, terms(from)),
            _ => (&one, terms(&vec![Exact::zero(); row.len()])),
        };
        let next = sum(&ring, start, &terms, &stages, &mut products);
        stages.push(next);
        before = Some(row);
    }
    let last = stages.pop()?;
    let coefficients = last.whole.iter().map(|c| ring.exact(c, &last.under));
    Some((Poly::new(coefficients.collect()), products))
}

/// `start + z Σ cⱼ Pⱼ`.
fn sum(
    ring: &Ring,
    start: &Quotient,
    terms: &[(usize, Exact)],
    stages: &[Quotient],
    products: &mut u64,
) -> Quotient {
    let mut under = start.under.clone();
    let factors = terms.iter().map(|(j, c)| {
        let (whole, denominator) = ring.quotient(c);
        let own = denominator * &stages[*j].under;
        if !(&under % &own).is_zero() {
            under = under.lcm(&own);
        }
        (*j, whole, own)
    });
    let factors: Vec<(usize, Int, BigInt)> = factors.collect();
    let lengths = factors.iter().map(|(j, _, _)| stages[*j].whole.len() + 1);
    let length = lengths.chain([start.whole.len()]).max().unwrap_or(1);
    let mut whole = vec![ring.zero(); length];
    let mut add = |from: &[Int], by: &Int, shift: usize| {
        for (sum, c) in whole[shift..].iter_mut().zip(from) {
            ring.add_product(sum, by, c);
        }
        *products += from.len() as u64;
    };
    let scaled = |by: &Int, own: &BigInt| by.iter().map(|x| x * (&under / own)).collect();
    add(&start.whole, &scaled(&ring.one(), &start.under), 0);
    for (j, by, own) in &factors {
        add(&stages[*j].whole, &scaled(by, own), 1);
    }
    lowest(whole, under)
}

/// Without a factor that all coefficients and the denominator have in common.
fn lowest(mut whole: Vec<Int>, under: BigInt) -> Quotient {
    while whole.last().is_some_and(crate::ring::is_zero) {
        whole.pop();
    }
    // The coefficients of high powers have the longest denominators: the common factor is short at once.
    let mut common = under.clone();
    for c in whole.iter().rev().flatten() {
        if common.is_one() {
            break;
        }
        common = common.gcd(&(c % &common));
    }
    if !common.is_one() {
        whole.iter_mut().flatten().for_each(|c| *c /= &common);
    }
    Quotient {
        whole,
        under: under / common,
    }
}
