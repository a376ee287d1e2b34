//! Rounds floats to simple fractions: the simplest ones that still meet a goal.

use crate::ssp::simplest;
use num_rational::BigRational;
use num_traits::{Signed, Zero};
use odec_exact::Exact;

/// Distances that are tried, three to a power of ten.
const DISTANCES: std::ops::RangeInclusive<i32> = 2..=36;

/// The fraction with the smallest denominator within a distance.
pub fn near(x: f64, distance: f64) -> Option<Exact> {
    let end = |x: f64| BigRational::from_float(x);
    Some(Exact::from(between(
        &end(x - distance)?,
        &end(x + distance)?,
    )))
}

/// The fraction with the smallest denominator of an interval.
pub fn between(lo: &BigRational, hi: &BigRational) -> BigRational {
    match (lo.is_positive(), hi.is_negative()) {
        (true, _) => simplest(lo, hi),
        (_, true) => -simplest(&-hi, &-lo),
        _ => BigRational::zero(),
    }
}

/// The first result that is good enough, computed from fractions near some numbers.
pub fn rounded<T>(x: &[f64], make: impl Fn(&[Exact]) -> Option<T>) -> Option<T> {
    let mut before: Vec<Exact> = Vec::new();
    for k in DISTANCES {
        let distance = 10f64.powf(-f64::from(k) / 3.0);
        let all: Option<Vec<Exact>> = x.iter().map(|x| near(*x, distance)).collect();
        let all = all?;
        if all == before && !all.is_empty() {
            continue;
        }
        if let Some(made) = make(&all) {
            return Some(made);
        }
        before = all;
    }
    None
}
