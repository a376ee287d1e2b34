//! How far a run is.
//!
//! A run is measured in steps. With a time limit it is also measured in seconds, and what is further counts:
//! position = max(step, steps · seconds / limit). So a run that reaches its limit early has annealed
//! all the same; but its rates then depend on the machine's speed, and it cannot be repeated exactly. Without a
//! limit they depend on the step alone.

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

    /// The factor of a linear warm-up, `(at + 1) / warmup`; `None` behind it.
    pub fn rising(&self, warmup: u64) -> Option<f64> {
        let warmup = warmup as f64;
        (self.at < warmup).then(|| ((self.at + 1.0) / warmup).min(1.0))
    }

    /// What lies behind the warm-up: 0 at its end, 1 at the end of the run.
    pub fn behind(&self, warmup: u64) -> f64 {
        let warmup = warmup as f64;
        ((self.at - warmup) / (self.steps as f64 - warmup).max(1.0)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_takes_over_when_it_is_ahead() {
        let slow = Position::new(5, 110, Some((30.0, 60.0)));
        assert_eq!((slow.at, slow.fraction()), (55.0, 0.5));
        let fast = Position::new(100, 110, Some((30.0, 60.0)));
        assert_eq!(fast.at, 100.0);
        let late = Position::new(5, 110, Some((90.0, 60.0)));
        assert_eq!((late.at, late.behind(10)), (110.0, 1.0));
    }
}
