//! The stability function of an explicit method, stage by stage: `Pᵢ = 1 + z Σ aᵢⱼ Pⱼ`, `R = 1 + z Σ bⱼ Pⱼ`.
//!
//! A step as it is computed is taken value by value (`of_linear_step`); of a tableau, a stage that differs from the one before it in a few coefficients
//! alone, as in a composition, is made from that one.
//! Each polynomial has one denominator, so that sums take products of whole numbers and one greatest common divisor.

use crate::linear_step::{LinearStep, Step};
use crate::poly::Poly;
use crate::ring::{Int, Ring};
use crate::tableau::Tableau;
use num_bigint::BigInt;
use num_traits::{One, Zero};
use odec_exact::Exact;
use odec_exact::fraction::{gcd, lcm};

/// Whole coefficients by rising powers, over a positive denominator.
#[derive(Clone)]
struct Quotient {
    whole: Vec<Int>,
    under: BigInt,
}

impl Quotient {
    fn one(ring: &Ring) -> Quotient {
        Quotient {
            whole: vec![ring.one()],
            under: BigInt::one(),
        }
    }
    fn polynomial(&self, ring: &Ring) -> Poly {
        let exact = |c| ring.exact(c, &self.under);
        Poly::new(self.whole.iter().map(exact).collect())
    }
}

/// A polynomial, what it is multiplied by, and a power of z.
type Term<'q> = (&'q Quotient, Exact, usize);

/// R of an explicit method, and how many products of whole numbers it took; `None`: too many different roots among the
/// coefficients.
pub fn stability(t: &Tableau) -> Option<(Poly, u64)> {
    let ring = Ring::of(t.a.iter().flatten().chain(&t.b))?;
    let one = Quotient::one(&ring);
    let mut stages: Vec<Quotient> = Vec::with_capacity(t.stages());
    let mut products = 0;
    let mut before: Option<&[Exact]> = None;
    for row in t.a.iter().chain([&t.b]) {
        let differs = |from: &[Exact]| row.iter().zip(from).filter(|(a, b)| a != b).count();
        let own = row.iter().filter(|a| !a.is_zero()).count();
        let last = before.filter(|from| differs(from) < own);
        let (start, from) = match (last, stages.last()) {
            (Some(from), Some(start)) => (start, from.to_vec()),
            _ => (&one, vec![Exact::zero(); row.len()]),
        };
        let mut terms: Vec<Term> = vec![(start, Exact::one(), 0)];
        for ((a, b), stage) in row.iter().zip(&from).zip(&stages) {
            if a != b {
                terms.push((stage, a - b, 1));
            }
        }
        let next = sum(&ring, &terms, &mut products);
        stages.push(next);
        before = Some(row);
    }
    Some((stages.pop()?.polynomial(&ring), products))
}

/// The same of an explicit step as it is computed, value by value: a recursion of three terms stays one. `None` also where the step
/// is not made of evaluations of earlier values alone.
pub fn of_linear_step(line: &LinearStep) -> Option<(Poly, u64)> {
    let coefficients = line.steps.iter().flat_map(|s| match s {
        Step::Combine(terms) => &terms[..],
        _ => &[],
    });
    let ring = Ring::of(coefficients.map(|(_, c)| c))?;
    let mut values = vec![Quotient::one(&ring)];
    let mut products = 0;
    for step in &line.steps {
        let terms: Vec<Term> = match step {
            Step::Eval { at, .. } => vec![(values.get(*at)?, Exact::one(), 1)],
            Step::Combine(terms) => {
                let term = |(v, c): &(usize, Exact)| Some((values.get(*v)?, c.clone(), 0));
                terms.iter().map(term).collect::<Option<_>>()?
            }
            Step::Flow { .. } | Step::Phi { .. } | Step::Past(_) => return None,
        };
        let next = sum(&ring, &terms, &mut products);
        values.push(next);
    }
    Some((values.get(line.result)?.polynomial(&ring), products))
}

fn sum(ring: &Ring, terms: &[Term], products: &mut u64) -> Quotient {
    let mut under = BigInt::one();
    let mut factors: Vec<(Int, BigInt)> = Vec::new();
    for (of, c, _) in terms {
        let (whole, denominator) = ring.quotient(c);
        let own = denominator * &of.under;
        if !(&under % &own).is_zero() {
            under = lcm(&under, &own);
        }
        factors.push((whole, own));
    }
    let lengths = terms.iter().map(|(of, _, shift)| of.whole.len() + shift);
    let mut whole = vec![ring.zero(); lengths.max().unwrap_or(0)];
    for ((of, _, shift), (by, own)) in terms.iter().zip(&factors) {
        let scale = &under / own;
        let by: Int = by.iter().map(|x| x * &scale).collect();
        for (sum, c) in whole[*shift..].iter_mut().zip(&of.whole) {
            ring.add_product(sum, &by, c);
        }
        *products += of.whole.len() as u64;
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
        common = gcd(&common, &(c % &common));
    }
    if !common.is_one() {
        whole.iter_mut().flatten().for_each(|c| *c /= &common);
    }
    Quotient {
        whole,
        under: under / common,
    }
}
