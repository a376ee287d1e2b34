//! Pareto fronts: which runs no other beats in both held-out loss and cost.
//!
//! Takes runs with what the compiler says of them; gives fronts and their pictures.

use crate::curves::Drawn;
use crate::plot::{Across, Plot, SIZES, Unit};
use crate::table::{cut, loss};
use odec_compiler::cost::state_bytes;
use odec_program::EntryId;

/// The longest name beside a point.
const NAME: usize = 20;

/// What runs cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    Flops,
    Parameters,
    Memory,
    Decode,
}

impl Cost {
    pub const ALL: [Cost; 4] = [Cost::Flops, Cost::Parameters, Cost::Memory, Cost::Decode];

    pub fn key(self) -> &'static str {
        match self {
            Cost::Flops => "flops",
            Cost::Parameters => "parameters",
            Cost::Memory => "memory",
            Cost::Decode => "decode",
        }
    }

    /// Of a run; `None` where that is not known.
    pub fn of(self, d: &Drawn) -> Option<f64> {
        let (run, m) = (d.run, &d.run.manifest);
        Some(match self {
            Cost::Flops => d.model?.step_flops(run.batch()) * run.done() as f64,
            Cost::Parameters => m.param_count() as f64,
            Cost::Memory => {
                let arena = m.program.entries.get(&EntryId::Grad)?.arena_bytes;
                (arena + state_bytes(&d.model?.built, &m.program).ok()?) as f64
            }
            Cost::Decode => d.model?.training.decode?.flops() as f64,
        })
    }

    fn unit(self, most: f64) -> Unit {
        match self {
            Cost::Flops => Unit::flops("training FLOPs", most),
            Cost::Parameters => Unit::count("parameters", most),
            Cost::Memory => Unit::bytes("planned memory of training", most),
            Cost::Decode => Unit::flops("FLOPs of the last token of a context", most),
        }
    }
}

/// The points that no other beats: none is as good in both and better in one. Their numbers, by cost.
pub fn front(points: &[(f64, f64)]) -> Vec<usize> {
    let beats = |a: (f64, f64), b: (f64, f64)| a.0 <= b.0 && a.1 <= b.1 && a != b;
    let unbeaten = |n: &usize| !points.iter().any(|p| beats(*p, points[*n]));
    let mut all: Vec<usize> = (0..points.len()).filter(unbeaten).collect();
    all.sort_by(|a, b| points[*a].0.total_cmp(&points[*b].0));
    all
}

/// Held-out losses against a cost, wide and narrow; `None` where the cost of fewer than two runs is known, or all cost the same.
pub fn picture(runs: &[Drawn], cost: Cost, id: &str) -> Option<String> {
    let known = runs.iter().filter_map(|d| {
        let held_out = d.run.judged().map(|j| j.loss).filter(|x| x.is_finite())?;
        Some((d, (cost.of(d)?, held_out)))
    });
    let known: Vec<(&Drawn, (f64, f64))> = known.collect();
    let points: Vec<(f64, f64)> = known.iter().map(|k| k.1).collect();
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let all = || points.iter().map(of);
        (
            all().fold(f64::INFINITY, f64::min),
            all().fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let ((from, to), (low, high)) = (ends(|p| p.0), ends(|p| p.1));
    if points.len() < 2 || from == to {
        return None;
    }
    let best = front(&points);
    let unit = cost.unit(to);
    let title = format!("Held-out loss against {}", unit.name);
    let measure = format!("held-out loss, {}", runs.first()?.run.measure());
    let drawn = SIZES.map(|size| {
        let mut plot = Plot::new(
            size,
            id,
            &unit,
            Across::Between(from, to),
            (low, high),
            [&title, &measure],
        );
        let line: Vec<(f64, f64)> = best.iter().map(|n| points[*n]).collect();
        plot.line("front", &line);
        for (n, (d, point)) in known.iter().enumerate() {
            plot.run(
                d.kind,
                &format!("{}: held out {}", d.run.called(), loss(point.1)),
            );
            let unbeaten = best.contains(&n);
            plot.dot(if unbeaten { "dot" } else { "dot beaten" }, *point, 5.0);
            if unbeaten {
                plot.name(*point, &cut(d.run.called(), NAME, false));
            }
            plot.end();
        }
        plot.finish()
    });
    Some(drawn.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_point_of_a_front_is_beaten() {
        let points = [
            (3.0, 1.0),
            (1.0, 3.0),
            (2.0, 2.0),
            (2.0, 2.5),
            (3.0, 3.0),
            (2.0, 2.0),
        ];
        assert_eq!(front(&points), [1, 2, 5, 0]);
        assert_eq!(front(&[(1.0, 1.0)]), [0]);
        assert_eq!(front(&[]), [0usize; 0]);
    }
}
