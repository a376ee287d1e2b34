//! Arithmetic modulo a prime, a filter before exact arithmetic: what is not 0 modulo a prime is not 0.
//!
//! [`Residue`] takes fractions to one fixed prime; [`Prime`] is arithmetic modulo any one below 2³¹.

use crate::series::Number;
use num_bigint::BigInt;
use num_traits::Signed;
use odec_exact::Exact;

/// A prime below 2³¹, so that products fit into 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prime(pub u64);

/// Divisors that are tried before anything longer.
const SMALL: [u64; 11] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31];

/// 2³¹ − 1.
const FIXED: Prime = Prime((1 << 31) - 1);

impl Prime {
    /// Numbers of 31 binary digits that are 3 modulo 4, the largest first; each may be a prime.
    pub fn candidates() -> impl Iterator<Item = Prime> {
        (1 << 30..1 << 31).rev().step_by(4).map(Prime)
    }
    /// Small divisors first, then Miller's test with the bases that decide it below 3,215,031,751 (Pomerance, Selfridge & Wagstaff 1980).
    pub fn is_prime(self) -> bool {
        let n = self.0;
        if let Some(d) = SMALL.into_iter().find(|d| n.is_multiple_of(*d)) {
            return n == d;
        }
        let twos = (n - 1).trailing_zeros();
        let passes = |base: u64| {
            let mut x = self.power(base, (n - 1) >> twos);
            let mut squares = (0..twos).map(|_| {
                let own = x;
                x = x * x % n;
                own
            });
            let first = squares.next();
            first == Some(1) || first == Some(n - 1) || squares.any(|x| x == n - 1)
        };
        n > 1 && [2, 3, 5, 7].into_iter().all(passes)
    }
    pub fn power(self, x: u64, mut n: u64) -> u64 {
        let (mut power, mut square) = (1, x % self.0);
        while n > 0 {
            if n % 2 == 1 {
                power = power * square % self.0;
            }
            square = square * square % self.0;
            n /= 2;
        }
        power
    }
    pub fn of(self, n: &BigInt) -> u64 {
        let digits = n.iter_u32_digits().rev();
        let rest = digits.fold(0, |rest, d| (rest << 32 | u64::from(d)) % self.0);
        match n.is_negative() {
            true => (self.0 - rest) % self.0,
            false => rest,
        }
    }
    /// `1/x`; `None`: x is 0.
    pub fn inverse(self, x: u64) -> Option<u64> {
        (!x.is_multiple_of(self.0)).then(|| self.power(x, self.0 - 2))
    }
}

/// A fraction modulo 2³¹ − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residue(u64);

impl Residue {
    /// `None`: the number is no fraction, or has no residue.
    pub fn of(x: &Exact) -> Option<Residue> {
        let q = x.as_rational()?;
        let over = FIXED.inverse(FIXED.of(q.denom()))?;
        Some(Residue(FIXED.of(q.numer()) * over % FIXED.0))
    }
}

impl Number for Residue {
    /// Of a small fraction.
    fn exact(x: &Exact) -> Residue {
        Residue::of(x).unwrap_or(Residue(0))
    }
    fn is_zero(&self) -> bool {
        self.0 == 0
    }
    fn plus(&self, other: &Residue) -> Residue {
        Residue((self.0 + other.0) % FIXED.0)
    }
    fn times(&self, other: &Residue) -> Residue {
        Residue(self.0 * other.0 % FIXED.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Prime;

    /// As trial division finds them, strong pseudoprimes to single bases among them.
    #[test]
    fn primes_are_those_of_trial_division() {
        let divided = |n: u64| {
            n > 1
                && (2..)
                    .take_while(|d| d * d <= n)
                    .all(|d| !n.is_multiple_of(d))
        };
        let pseudo = [2047, 1_373_653, 25_326_001, 3_215_031];
        let near = (1 << 31) - 400..1 << 31;
        for n in (0..3000).chain(pseudo).chain(near) {
            assert_eq!(Prime(n).is_prime(), divided(n), "{n}");
        }
    }
}
