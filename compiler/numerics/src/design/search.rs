//! Constrained optimisation in floats by linear approximations (Powell 1994, COBYLA), from evenly spread starting points.
//!
//! Deterministic: no random numbers, threads or clocks. The result is a proposal; its properties are proved with exact numbers.

use cobyla::{RhoBeg, StopTols, minimize};
use std::cell::RefCell;

/// A problem: the least `objective` where no entry of `slack` is negative.
pub struct Problem<'p> {
    pub objective: &'p dyn Fn(&[f64]) -> f64,
    /// As many entries wherever it is asked.
    pub slack: &'p dyn Fn(&[f64]) -> Vec<f64>,
}

/// Values beyond are cut off, as is what is infinite or not there: the linear programs stay well scaled.
const FAR: f64 = 1e3;

impl Problem<'_> {
    /// A local minimum from a start, with first steps of some size.
    pub fn solve(&self, start: &[f64], step: &[f64], evaluations: usize) -> Vec<f64> {
        if start.is_empty() {
            return Vec::new();
        }
        let last: RefCell<(Vec<f64>, Vec<f64>)> = RefCell::default();
        let count = (self.slack)(start).len();
        let entry = |k: usize| {
            let last = &last;
            move |x: &[f64], _: &mut ()| {
                let mut last = last.borrow_mut();
                if last.0 != x {
                    *last = (x.to_vec(), (self.slack)(x));
                }
                finite(last.1.get(k).copied().unwrap_or(-FAR), -FAR)
            }
        };
        let slack: Vec<_> = (0..count).map(entry).collect();
        let objective = |x: &[f64], _: &mut ()| finite((self.objective)(x), FAR);
        let bounds = vec![(f64::NEG_INFINITY, f64::INFINITY); start.len()];
        let stop = StopTols {
            xtol_abs: vec![1e-13; start.len()],
            ..StopTols::default()
        };
        let found = minimize(
            objective,
            start,
            &bounds,
            &slack,
            (),
            evaluations,
            RhoBeg::Set(step.to_vec()),
            Some(stop),
        );
        match found {
            Ok((_, x, _)) | Err((_, x, _)) => x,
        }
    }

    /// By how much the worst entry is negative.
    pub fn violation(&self, x: &[f64]) -> f64 {
        let slack = (self.slack)(x);
        slack
            .iter()
            .fold(0.0, |worst, s| f64::max(worst, finite(-s, FAR)))
    }
}

fn finite(x: f64, otherwise: f64) -> f64 {
    if x.is_finite() {
        x.clamp(-FAR, FAR)
    } else {
        otherwise
    }
}

const PRIMES: [usize; 16] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53];

/// The n-th point of a sequence that fills the unit cube evenly (Halton 1960).
pub fn spread(n: usize, dimensions: usize) -> Vec<f64> {
    let inverse = |base: usize| {
        let (mut rest, mut scale, mut sum) = (n + 1, 1.0, 0.0);
        while rest > 0 {
            scale /= base as f64;
            sum += scale * (rest % base) as f64;
            rest /= base;
        }
        sum
    };
    let coordinate = |d: usize| {
        let turned = inverse(PRIMES[d % PRIMES.len()]) + d as f64 / 16.0 * 0.618;
        turned.fract()
    };
    (0..dimensions).map(coordinate).collect()
}
