//! Points between noise and data, and how they move: what a model of flows is trained on (Lipman et al. 2023, ICLR; Liu et al. 2023, ICLR).
//!
//! `x(t) = (1 − t) x₀ + t x₁` for normal noise x₀ and data x₁ moves with the velocity `x₁ − x₀`. Noise and time of a row are a function of a stream and
//! the row's number, so that a batch is the same however often and in whatever parts it is drawn.

use crate::data::dataset::{Batch, Draw};
use crate::data::parts;
use odec_program::manifest::{Flow, Times};
use odec_program::rng::Stream;

/// What noise and time of one row are drawn by.
#[derive(Clone, Copy)]
pub struct Draws {
    pub stream: Stream,
    pub number: u64,
    /// By what labels are left out, in training.
    pub labels: Option<Stream>,
}

impl Draws {
    /// The time of a point, then blocks of four normal numbers for so many numbers.
    fn block(&self, numbers: usize, n: u64) -> u64 {
        let blocks = 1 + (numbers as u64).div_ceil(4);
        self.number.wrapping_mul(blocks).wrapping_add(n)
    }

    /// Normal noise.
    pub fn noise(&self, numbers: usize) -> impl Iterator<Item = f64> + '_ {
        let blocks = (1..).map(move |n| self.stream.normal4(self.block(numbers, n)));
        blocks.flatten().take(numbers)
    }

    /// Whether the row's label is told, where so many of a hundred are left out.
    pub fn told(&self, dropped_percent: u32) -> bool {
        let left_out = |labels: Stream| labels.below(self.number, 100) < dropped_percent.into();
        !self.labels.is_some_and(left_out)
    }

    /// Draws noise and a time. Numbers of data become those of a point at that time, `moves` (the same numbers) its velocity.
    pub fn point(&self, times: Times, data: &mut [f32], moves: &mut [f32]) -> f32 {
        let first = self.block(data.len(), 0);
        let t = match times {
            Times::Uniform => self.stream.uniform(first),
            Times::LogitNormal { mean, std } => {
                let z = mean + std * self.stream.normal4(first)[0];
                1.0 / (1.0 + (-z).exp())
            }
        };
        // As the model is told it.
        let t = t as f32;
        let both = data.iter_mut().zip(moves.iter_mut());
        let noise = self.noise(both.len());
        for ((point, moves), noise) in both.zip(noise) {
            let (t, data) = (f64::from(t), f64::from(*point));
            *point = ((1.0 - t) * noise + t * data) as f32;
            *moves = (data - noise) as f32;
        }
        t
    }
}

/// What rows of a training step are drawn by, from one row on.
pub fn of_training(step: Draw, first: u64) -> impl Fn(u64) -> Draws {
    let stream = Stream::new(step.seed, "flows");
    let labels = Stream::new(step.seed, "labels that are left out");
    move |row| Draws {
        stream,
        number: parts::number(step, first + row) as u64,
        labels: Some(labels),
    }
}

/// What rows that are held out are drawn by: their numbers, so that it is always the same point which is evaluated.
pub fn of_held_out(numbers: &[u32]) -> impl Fn(u64) -> Draws {
    let stream = Stream::new(0, "held-out flows");
    move |row| Draws {
        stream,
        number: u64::from(numbers[row as usize]),
        labels: None,
    }
}

/// A batch of points on the way to rows of data. `input`: what the model reads them by, and its columns.
/// `moving`: how many numbers of a row are data; those behind them stay zeros. `classes`: of each row, and how many there are; not read where the model is
/// not told them. `draw`: what noise and time of each row are drawn by.
pub fn batch(
    input: (&'static str, u64),
    (mut points, moving): (Vec<f32>, usize),
    rows: usize,
    flow: Flow,
    (classes, of): (&[i32], u64),
    draw: impl Fn(u64) -> Draws,
) -> Batch {
    let length = (points.len() / rows.max(1)).max(1);
    let mut velocities = points.clone();
    let told = (0..).zip(classes);
    let told = told.map(|(row, class)| match draw(row).told(flow.dropped_percent) {
        true => u64::try_from(*class).ok(),
        false => None,
    });
    let labels = flow.labelled.then(|| labels(told, of));
    let each = points.chunks_exact_mut(length);
    let each = each.zip(velocities.chunks_exact_mut(length)).zip(0..);
    let times = each.map(|((point, moves), row)| {
        let (point, moves) = (&mut point[..moving], &mut moves[..moving]);
        draw(row).point(flow.times, point, moves)
    });
    let times: Vec<f32> = times.collect();
    Batch::of_flows(input, points, times, labels, velocities)
}

/// Rows with 1 at a class and 0 at all others; without a class, zeros.
pub fn labels(classes: impl Iterator<Item = Option<u64>>, of: u64) -> Vec<f32> {
    let row = |class| (0..of).map(move |n| f32::from(u8::from(Some(n) == class)));
    classes.flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(number: u64) -> Draws {
        let stream = Stream::new(3, "flows");
        let labels = Some(Stream::new(3, "labels"));
        Draws {
            stream,
            number,
            labels,
        }
    }

    /// At time t the point is `(1 − t)` of its noise and `t` of the data, so that `x(t) − t·v` is the noise and `x(t) + (1 − t)·v` the data.
    #[test]
    fn points_lie_on_the_way_from_noise_to_data() {
        let data: Vec<f32> = (0..10).map(|n| n as f32 / 3.0 - 1.0).collect();
        for number in 0..50 {
            let (mut point, mut moves) = (data.clone(), data.clone());
            let t = draws(number).point(Times::Uniform, &mut point, &mut moves);
            assert!((0.0..=1.0).contains(&t));
            let noise: Vec<f64> = draws(number).noise(10).collect();
            for i in 0..10 {
                let (x, v, t) = (f64::from(point[i]), f64::from(moves[i]), f64::from(t));
                assert!((x - t * v - noise[i]).abs() < 1e-6);
                assert!((x + (1.0 - t) * v - f64::from(data[i])).abs() < 1e-6);
            }
        }
    }

    /// Mean and variance of t, and of log(t / (1 − t)), within five standard errors.
    #[test]
    fn times_have_their_laws() {
        let n = 20_000;
        let drawn = |times| {
            let of = |number| f64::from(draws(number).point(times, &mut [0.0], &mut [0.0]));
            (0..n).map(of).collect::<Vec<f64>>()
        };
        let moments = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / n as f64;
            let square = |x: &f64| (x - mean).powi(2);
            (mean, x.iter().map(square).sum::<f64>() / n as f64)
        };
        let error = |variance: f64| 5.0 * (variance / n as f64).sqrt();
        let (mean, variance) = moments(&drawn(Times::Uniform));
        assert!((mean - 0.5).abs() < error(1.0 / 12.0), "{mean}");
        assert!(
            (variance - 1.0 / 12.0).abs() < error(1.0 / 180.0),
            "{variance}"
        );
        let law = Times::LogitNormal {
            mean: 0.5,
            std: 2.0,
        };
        let logits: Vec<f64> = drawn(law).iter().map(|t| (t / (1.0 - t)).ln()).collect();
        let (mean, variance) = moments(&logits);
        assert!((mean - 0.5).abs() < error(4.0), "{mean}");
        assert!((variance - 4.0).abs() < error(32.0), "{variance}");
    }

    #[test]
    fn labels_are_one_at_their_class() {
        assert_eq!(
            labels([Some(2), Some(0), None].into_iter(), 3),
            [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        );
    }

    /// The share that is left out is the one that was asked for, within five standard errors; where nothing is drawn, all are told.
    #[test]
    fn labels_are_left_out_as_often_as_asked() {
        let told = |percent| (0..10_000).filter(|n| draws(*n).told(percent)).count() as f64;
        assert_eq!(told(0), 10_000.0);
        let error = 5.0 * (10_000.0 * 0.1 * 0.9f64).sqrt();
        assert!((told(10) - 9_000.0).abs() < error, "{}", told(10));
        let evaluated = Draws {
            labels: None,
            ..draws(0)
        };
        assert!(evaluated.told(50));
    }
}
