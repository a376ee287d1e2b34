//! The learning rate over a run.
//!
//! Takes the manifest's schedule and where the run stands; gives the factor of the peak rate. A run is
//! measured in steps. With a time limit it is also measured in seconds, and what is further counts:
//! position = max(step, steps · seconds / limit). So a run that reaches its limit early has annealed
//! all the same; but its rates then depend on the machine's speed, and it cannot be repeated exactly. Without a
//! limit they depend on the step alone.

use odec_program::manifest::Schedule;

/// How far a run is, in steps (not a whole number when time decides).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// The larger of the finished steps and the share of the time limit that has passed, times `steps`.
    pub at: f64,
    pub steps: u64,
}

impl Position {
    /// `step` counts finished steps; `time` is (seconds so far, limit).
    pub fn new(step: u64, steps: u64, time: Option<(f64, f64)>) -> Position {
        let by_time = time.map_or(0.0, |(seconds, limit)| {
            steps as f64 * (seconds / limit).min(1.0)
        });
        Position {
            at: (step as f64).max(by_time),
            steps,
        }
    }

    /// 0 at the start, 1 at the end.
    pub fn fraction(&self) -> f64 {
        (self.at / self.steps.max(1) as f64).min(1.0)
    }
}

/// The factor of the peak learning rate for the step that starts at `p`.
///
/// `Cosine` rises linearly as `(at + 1) / warmup` while `at < warmup`, and then falls as
/// `floor + (1 − floor) · (1 + cos π u) / 2`, u going from 0 to 1 (Loshchilov & Hutter 2017, without restarts).
pub fn factor(s: &Schedule, p: Position) -> f64 {
    match *s {
        Schedule::Constant => 1.0,
        Schedule::Cosine { warmup, floor } => {
            let warmup = warmup as f64;
            if p.at < warmup {
                return ((p.at + 1.0) / warmup).min(1.0);
            }
            let u = ((p.at - warmup) / (p.steps as f64 - warmup).max(1.0)).min(1.0);
            floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * u).cos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSINE: Schedule = Schedule::Cosine {
        warmup: 10,
        floor: 0.1,
    };

    #[test]
    fn cosine_by_steps() {
        let at = |step| factor(&COSINE, Position::new(step, 110, None));
        assert_eq!(at(0), 0.1);
        assert_eq!(at(9), 1.0);
        assert_eq!(at(10), 1.0);
        assert!((at(60) - 0.55).abs() < 1e-12);
        assert!((at(110) - 0.1).abs() < 1e-12);
        assert_eq!(at(1000), at(110));
        assert_eq!(factor(&Schedule::Constant, Position::new(3, 5, None)), 1.0);
    }

    #[test]
    fn the_clock_takes_over_when_it_is_ahead() {
        let slow = Position::new(5, 110, Some((30.0, 60.0)));
        assert_eq!((slow.at, slow.fraction()), (55.0, 0.5));
        let fast = Position::new(100, 110, Some((30.0, 60.0)));
        assert_eq!(fast.at, 100.0);
        let late = Position::new(5, 110, Some((90.0, 60.0)));
        assert!((factor(&COSINE, late) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn odd_schedules_stay_finite() {
        for (warmup, steps) in [(0, 1), (5, 5), (9, 5), (0, 0)] {
            let s = Schedule::Cosine { warmup, floor: 0.0 };
            for step in 0..10 {
                let f = factor(&s, Position::new(step, steps, None));
                assert!((0.0..=1.0).contains(&f), "{warmup} {steps} {step}: {f}");
            }
        }
    }
}
