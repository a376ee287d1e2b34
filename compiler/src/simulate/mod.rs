//! The paths of points that the fields of a model move: particles, without training.
//!
//! Takes a model whose input is vectors, where its points begin, and the values of its parameters; gives the points after each step, with the
//! times ([`Paths`]). The graph is interpreted in f64, as `odec exec --interpret` does: the same bits on every machine. How many clusters
//! the points form is counted in `clusters.rs`, what is drawn of them is in `picture.rs`, and of sequences of vectors without times in `scatter.rs`. Leaves files, and what is drawn at random, to the driver.

pub mod clusters;
pub mod picture;
pub mod scatter;

use odec_graph::interp::{self, RunError};
use odec_graph::{Builder, OpKind, Tensor};
use odec_model::Built;
use odec_program::{Bindings, names};
use std::collections::BTreeMap;
use thiserror::Error;

/// The most points: each step of attention and each count of clusters takes all pairs of them.
pub const MOST_POINTS: u64 = 1000;

/// Points that move.
#[derive(Clone, Debug, PartialEq)]
pub struct Paths {
    pub points: usize,
    /// Numbers of each.
    pub width: usize,
    /// From 0 to the end, one more than steps.
    pub times: Vec<f64>,
    /// At each time, [points, width] row by row.
    pub states: Vec<Vec<f64>>,
}

/// Why points cannot be moved.
#[derive(Debug, Error)]
pub enum Failure {
    /// The step and the time at which a number is infinite or none.
    #[error(
        "after step {step}, at time {time}, a coordinate is {value}; smaller steps or smaller weights keep points apart from infinity"
    )]
    NotFinite { step: usize, time: f64, value: f64 },
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Moves points from where they begin, [points, numbers of the input] row by row; `parameters` are values by path.
///
/// # Errors
/// When a coordinate becomes infinite; when the model has no such paths, or a value is missing.
pub fn paths(
    built: &Built,
    points: &[f64],
    parameters: &BTreeMap<String, Vec<f64>>,
) -> Result<Paths, Failure> {
    let passed = built.passed.as_deref().unwrap_or_default();
    let mut b = Builder::extend(built.forward.clone());
    for (n, p) in passed.iter().enumerate() {
        b.output(format!("passed.{n}"), p.state);
    }
    let graph = b.finish();
    let mut feeds: BTreeMap<String, Tensor> = BTreeMap::new();
    for p in &built.params {
        if let Some(values) = parameters.get(&p.path) {
            feeds.insert(p.path.clone(), Tensor::new(p.shape.clone(), values.clone()));
        }
    }
    let numbers = numbers(built);
    let count = points.len() as u64 / numbers.max(1);
    let start = Tensor::new(vec![1, count, numbers], points.to_vec());
    feeds.insert(names::VECTORS.into(), start);
    let mut found = interp::run(&graph, &feeds, Bindings::new(1, count))?;
    let missing = |n: usize| RunError::Missing(format!("passed.{n}"));
    let mut states = Vec::new();
    for n in 0..passed.len() {
        let state = found.remove(&format!("passed.{n}"));
        states.push(state.ok_or_else(|| missing(n))?.data);
    }
    let times = times(&passed.iter().filter_map(|p| p.h).collect::<Vec<f64>>());
    for (step, (state, time)) in states.iter().zip(&times).enumerate() {
        if let Some(value) = state.iter().find(|x| !x.is_finite()) {
            let (time, value) = (*time, *value);
            return Err(Failure::NotFinite { step, time, value });
        }
    }
    let points = count as usize;
    let width = states.first().map_or(0, |s| s.len() / points.max(1));
    Ok(Paths {
        points,
        width,
        times,
        states,
    })
}

/// Numbers of each vector that a model reads; 0 where it reads none.
pub fn numbers(built: &Built) -> u64 {
    let mut nodes = built.forward.nodes();
    let found = nodes.find_map(|(_, n)| match &n.op {
        OpKind::Input(i) if i.name == names::VECTORS => Some(i.ty.cols()),
        _ => None,
    });
    found.unwrap_or(0)
}

/// When steps of these sizes end, from 0 on. Multiples of one size are rounded once.
fn times(sizes: &[f64]) -> Vec<f64> {
    let equal = sizes.windows(2).all(|w| w[0] == w[1]);
    let mut t = 0.0;
    let ends = sizes.iter().enumerate().map(|(n, h)| {
        t = if equal { (n + 1) as f64 * h } else { t + h };
        t
    });
    [0.0].into_iter().chain(ends).collect()
}

impl Paths {
    /// The root of the mean square distance to the mean, at each time.
    pub fn spread(&self) -> Vec<f64> {
        let each = self.states.iter();
        each.map(|s| spread(s, self.width)).collect()
    }
}

fn spread(state: &[f64], width: usize) -> f64 {
    let points = (state.len() / width.max(1)).max(1) as f64;
    let mut sum = 0.0;
    for c in 0..width {
        let column = || state.iter().skip(c).step_by(width);
        let mean = column().sum::<f64>() / points;
        sum += column().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    }
    (sum / points).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_steps_end_where_they_are_said_to() {
        let ends = times(&[0.1; 200]);
        assert_eq!((ends[0], ends[3], ends[200]), (0.0, 3.0 * 0.1, 20.0));
        assert_eq!(times(&[0.5, 0.25, 0.25]), [0.0, 0.5, 0.75, 1.0]);
        assert_eq!(times(&[]), [0.0]);
    }

    #[test]
    fn the_spread_is_the_distance_to_the_mean() {
        // Corners of a square of side 2 around (5, 1): each √2 from its middle.
        let corners = [4.0, 0.0, 6.0, 0.0, 4.0, 2.0, 6.0, 2.0];
        assert!((spread(&corners, 2) - 2f64.sqrt()).abs() < 1e-15);
        assert_eq!(spread(&[3.0, 3.0], 1), 0.0);
    }
}
