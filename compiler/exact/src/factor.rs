//! Irreducible factors of polynomials with rational coefficients.
//!
//! A polynomial is factored modulo one prime above twice what a coefficient of a factor may be (Mignotte 1974, Math. Comp. 28,
//! 1153), so nothing has to be lifted; products of some of those factors are tried as divisors, as Zassenhaus did.
//! There are at most 2ⁿ of them for a degree n, which is small here.

use super::ExactError;
use super::finite::{Modulo, product};
use super::poly::{Poly, degree, derivative, primitive, quotient};
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::One;

/// 2ᵏ − 1 is a prime for these k.
const MERSENNE: [u64; 5] = [127, 521, 607, 1279, 2203];

/// The irreducible factors of a squarefree primitive polynomial, each primitive.
pub fn factors(p: &[BigInt]) -> Result<Vec<Poly>, ExactError> {
    let size = p.iter().map(BigInt::bits).max().unwrap_or(0);
    let lead = p.last().map_or(0, BigInt::bits);
    // |coefficients of a factor| ≤ 2ⁿ ‖p‖₂, times the leading coefficient, both signs.
    let needed = degree(p) as u64 + size + lead + p.len() as u64 + 2;
    for k in MERSENNE.into_iter().filter(|k| *k > needed) {
        let prime: BigInt = (BigInt::one() << k) - 1u32;
        if let Some(found) = modulo(p, &Modulo(&prime)) {
            return Ok(combined(p, found, &prime));
        }
    }
    Err(ExactError::TooLarge)
}

/// The factors modulo a prime; `None`: the polynomial has a repeated one there.
fn modulo(p: &[BigInt], field: &Modulo) -> Option<Vec<Poly>> {
    let own = field.monic(&field.reduced(p))?;
    let repeated = field.gcd(&own, &derivative(&own))?;
    match repeated.len() {
        1 => field.factors(&own),
        _ => None,
    }
}

/// Products of the least numbers of factors that divide the polynomial.
fn combined(p: &[BigInt], mut parts: Vec<Poly>, prime: &BigInt) -> Vec<Poly> {
    let mut rest = p.to_vec();
    let mut found = Vec::new();
    let mut size = 1;
    while 2 * size <= parts.len() {
        let sets = (1u32..1 << parts.len()).filter(|s| s.count_ones() as usize == size);
        let divides = |set: &u32| {
            let own = chosen(&rest, &parts, *set, prime);
            Some((*set, quotient(&rest, &own)?, own))
        };
        match sets.into_iter().find_map(|set| divides(&set)) {
            None => size += 1,
            Some((set, left, own)) => {
                found.push(own);
                rest = left;
                let kept = parts.iter().enumerate();
                let kept = kept.filter(|(i, _)| set >> i & 1 == 0);
                parts = kept.map(|(_, f)| f.clone()).collect();
            }
        }
    }
    if degree(&rest) > 0 {
        found.push(primitive(rest));
    }
    found
}

/// The leading coefficient times the factors in a set, with residues of least absolute value.
fn chosen(rest: &[BigInt], parts: &[Poly], set: u32, prime: &BigInt) -> Poly {
    let lead: Poly = rest.last().cloned().into_iter().collect();
    let all = parts.iter().enumerate();
    let own = all.filter(|(i, _)| set >> i & 1 == 1);
    let whole = own.fold(lead, |p, (_, f)| -> Poly {
        let next = product(&p, f);
        next.iter().map(|c| c.mod_floor(prime)).collect()
    });
    let centred = |c: BigInt| if &c << 1 > *prime { c - prime } else { c };
    primitive(whole.into_iter().map(centred).collect())
}
