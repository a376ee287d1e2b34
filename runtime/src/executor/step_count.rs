//! Numbers of steps that are decided while a model runs: drawn for each step of training, found by errors, or by each token.
//!
//! Takes the manifest's [`StepCount`]s; gives the draws, keyed by seed and step, and reads what an entry tells in its outputs. Leaves the
//! decisions inside a program to the program.

use crate::executor::{Outputs, RunError};
use odec_program::manifest::{StepCount, depth};
use odec_program::rng::Stream;
use odec_program::step_law::DEVIATION;

/// The inputs of entry `grad` that are drawn for an optimiser step.
pub fn drawn(depths: &[StepCount], seed: u64, step: u64) -> Vec<(String, i32)> {
    let each = depths.iter().filter_map(|d| match d {
        StepCount::Random { evolve, mean, max } => {
            let name = depth::input(evolve);
            let n = log_normal_poisson(&Stream::new(seed, &name), step, *mean).min(*max);
            Some((name, n as i32))
        }
        StepCount::Adaptive { .. } | StepCount::Halting { .. } => None,
    });
    each.collect()
}

/// The same with the mean numbers.
pub fn usual(depths: &[StepCount]) -> Vec<(String, i32)> {
    let each = depths.iter().filter_map(|d| match d {
        StepCount::Random { evolve, mean, .. } => Some((depth::input(evolve), *mean as i32)),
        StepCount::Adaptive { .. } | StepCount::Halting { .. } => None,
    });
    each.collect()
}

/// The largest rate that is drawn at once: `exp(−64)` is far from underflow.
const RATE: f64 = 64.0;

/// A draw of [`odec_program::step_law`].
fn log_normal_poisson(stream: &Stream, step: u64, mean: u64) -> u64 {
    let blocks = step.wrapping_shl(16);
    let normal = stream.normal4(blocks)[0];
    let rate = ((mean as f64).ln() - DEVIATION * DEVIATION / 2.0 + DEVIATION * normal).exp();
    // A Poisson number is a sum of Poisson numbers of smaller rates.
    let parts = (rate / RATE).ceil().clamp(1.0, 60_000.0);
    let part = rate / parts;
    let drawn = (1..=parts as u64).map(|n| poisson(stream.uniform(blocks.wrapping_add(n)), part));
    1 + drawn.sum::<u64>()
}

/// The Poisson number whose distribution function first exceeds `u`.
fn poisson(u: f64, rate: f64) -> u64 {
    let (mut n, mut mass) = (0, (-rate).exp());
    let mut below = mass;
    // Beyond ten deviations rounding may keep the sum below u.
    while below <= u && n < 256 {
        n += 1;
        mass *= rate / n as f64;
        below += mass;
    }
    n
}

/// Steps made in a run, summed over evolves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepsMade {
    /// Drawn, accepted, or the mean of tokens.
    pub steps: f64,
    /// Attempts of adaptive evolves, the accepted ones among them.
    pub attempts: f64,
}

impl StepsMade {
    /// What a run of an entry made; `drawn` is what it was given.
    pub(crate) fn of(depths: &[StepCount], drawn: &[(String, i32)], out: &Outputs) -> StepsMade {
        let mut made = StepsMade::default();
        let told = |evolve: &str, what| out.scalar(&depth::output(evolve, what)).unwrap_or(0.0);
        for d in depths {
            match d {
                StepCount::Adaptive { evolve, .. } => {
                    made.steps += told(evolve, depth::ACCEPTED);
                    made.attempts += told(evolve, depth::ATTEMPTS);
                }
                StepCount::Halting { evolve, .. } => made.steps += told(evolve, depth::MADE),
                StepCount::Random { evolve, .. } => {
                    let name = depth::input(evolve);
                    let n = drawn.iter().find(|(n, _)| *n == name);
                    made.steps += n.map_or(0.0, |(_, n)| f64::from(*n));
                }
            }
        }
        made
    }

    /// The mean of equal micro-batches.
    pub(crate) fn add_share(&mut self, share: f64, other: StepsMade) {
        self.steps += share * other.steps;
        self.attempts += share * other.attempts;
    }
}

/// Whether adaptive evolves reached their end.
pub(crate) fn finished(depths: &[StepCount], out: &Outputs) -> Result<(), RunError> {
    for d in depths {
        let StepCount::Adaptive { evolve, max, until } = d else {
            continue;
        };
        let name = depth::output(evolve, depth::REST);
        if out.shapes().all(|(n, _)| n != name) {
            continue;
        }
        let rest = out.scalar(&name)?;
        // No number is not the end either.
        if rest.is_nan() || rest > 0.0 {
            return Err(RunError::Unfinished {
                evolve: match evolve.as_str() {
                    "" => String::new(),
                    label => format!(" of `{label}`"),
                },
                reached: until - rest,
                until: *until,
                max: *max,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E = 1 + m, and with e^{σ²} − 1 the squared relative deviation of the rate, Var = m + m²(e^{1/4} − 1).
    #[test]
    fn draws_have_the_moments_of_the_law() {
        for mean in [1u64, 32, 500] {
            let s = Stream::new(3, "steps");
            let n = 20_000;
            let draws = (0..n).map(|step| log_normal_poisson(&s, step, mean) as f64);
            let draws: Vec<f64> = draws.collect();
            let m = mean as f64;
            let average = draws.iter().sum::<f64>() / n as f64;
            let deviations = draws.iter().map(|x| (x - average).powi(2));
            let variance = deviations.sum::<f64>() / n as f64;
            let wanted = m + m * m * (0.25f64.exp() - 1.0);
            // Five standard errors of the mean; the variance of a law with such tails is known to a tenth.
            let error = 5.0 * (wanted / n as f64).sqrt();
            assert!((average - 1.0 - m).abs() < error, "{mean}: {average}");
            assert!(
                (variance / wanted - 1.0).abs() < 0.1,
                "{mean}: {variance} {wanted}"
            );
        }
    }

    #[test]
    fn draws_are_keyed_by_seed_step_and_evolve_and_never_above_the_most() {
        let random = |evolve: &str| StepCount::Random {
            evolve: evolve.into(),
            mean: 8,
            max: 12,
        };
        let depths = [random("a"), random("b")];
        let all: Vec<_> = (0..200).map(|step| drawn(&depths, 1, step)).collect();
        assert_eq!(all[7], drawn(&depths, 1, 7));
        assert!(all != (0..200).map(|s| drawn(&depths, 2, s)).collect::<Vec<_>>());
        assert!(all.iter().any(|d| d[0].1 != d[1].1));
        let numbers = || all.iter().flatten().map(|(_, n)| *n);
        assert!(numbers().all(|n| (1..=12).contains(&n)) && numbers().any(|n| n == 12));
        assert_eq!(
            usual(&depths),
            [("a.steps".into(), 8), ("b.steps".into(), 8)]
        );
    }
}
