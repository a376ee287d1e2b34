//! How many clusters points form.
//!
//! Two points are together where their distance is at most a share of the diameter of all points, now or at the start, whichever is larger; a cluster
//! is all points that a chain of such pairs joins (single linkage; Sneath 1957, J. Gen. Microbiol. 17, 201). So points that shrink into one are one cluster,
//! and points that fly apart in groups are as many clusters as there are groups.

use super::Paths;

/// The share of the diameter within which points are together, unless one is given.
pub const WITHIN: f64 = 0.05;

/// The number of clusters at each time.
pub fn counts(paths: &Paths, within: f64) -> Vec<usize> {
    let start = paths.states.first();
    let start = start.map_or(0.0, |s| diameter(s, paths.width));
    let each = paths.states.iter();
    let count = |state: &Vec<f64>| {
        let radius = within * diameter(state, paths.width).max(start);
        count(state, paths.width, radius)
    };
    each.map(count).collect()
}

/// The largest distance of two points.
fn diameter(state: &[f64], width: usize) -> f64 {
    let points: Vec<&[f64]> = state.chunks_exact(width.max(1)).collect();
    let pairs = (0..points.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
    pairs
        .map(|(i, j)| distance(points[i], points[j]))
        .fold(0.0, f64::max)
}

/// Without overflow where squares would.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let each = || a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let largest = each().fold(0.0, f64::max);
    match largest > 0.0 {
        true => {
            largest
                * each()
                    .map(|d| (d / largest) * (d / largest))
                    .sum::<f64>()
                    .sqrt()
        }
        false => 0.0,
    }
}

/// Groups of points that chains of distances up to a radius join.
fn count(state: &[f64], width: usize, radius: f64) -> usize {
    let points: Vec<&[f64]> = state.chunks_exact(width.max(1)).collect();
    let mut alone: Vec<usize> = (0..points.len()).collect();
    let mut groups = 0;
    while let Some(first) = alone.pop() {
        groups += 1;
        let mut reached = vec![first];
        while let Some(one) = reached.pop() {
            let near = |other: &usize| distance(points[one], points[*other]) <= radius;
            let (joined, others) = alone.into_iter().partition(near);
            alone = others;
            let joined: Vec<usize> = joined;
            reached.extend(joined);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(states: &[&[f64]]) -> Paths {
        Paths {
            points: states[0].len(),
            width: 1,
            times: (0..states.len()).map(|n| n as f64).collect(),
            states: states.iter().map(|s| s.to_vec()).collect(),
        }
    }

    #[test]
    fn chains_join_and_gaps_part() {
        // At first 1 is within a tenth of 10; a chain is as long as it is.
        let first = [0.0, 1.0, 2.0, 5.0, 9.5, 10.0];
        assert_eq!(counts(&paths(&[&first]), 0.1), [3]);
        assert_eq!(counts(&paths(&[&first]), 0.099), [5]);
        assert_eq!(counts(&paths(&[&first]), 0.46), [1]);
    }

    #[test]
    fn shrinking_points_are_one_cluster_and_flying_ones_are_their_groups() {
        let small = [0.0, 1e-3, 2e-3, 0.4, 0.41];
        let large = [0.0, 1.0, 2.0, 4e6, 4e6 + 1.0];
        assert_eq!(
            counts(
                &paths(&[&[0.0, 25.0, 50.0, 75.0, 100.0], &small, &large]),
                0.05
            ),
            [5, 1, 2]
        );
        // Numbers whose squares are beyond f64 have distances.
        assert_eq!(counts(&paths(&[&[1e200, -1e200]]), 0.05), [2]);
        assert_eq!(counts(&paths(&[&[7.0, 7.0, 7.0]]), 0.05), [1]);
    }
}
