//! Points: where particles begin.
//!
//! Takes a file of one array, or a seed; gives the points' numbers, row by row. Leaves what moves them to the compiler.

use crate::data::DataError;
use crate::data::array::{self, Element, Head};
use crate::data::identity::DataFile;
use crate::data::sources::arrays::whole;
use odec_program::rng::Stream;
use std::path::Path;

/// Reads points of so many numbers from a `.npy` file, [points, numbers]; at most so many points.
///
/// # Errors
/// When the file cannot be read, has another shape, or a number in it is none.
pub fn read(path: &Path, numbers: u64, most: u64) -> Result<Vec<f64>, DataError> {
    let file = DataFile::open(path).map_err(|e| match e {
        DataError::Missing { path } => DataError::NoPointsAt { path },
        e => e,
    })?;
    let fit = |path: &Path, head: &Head| match head.shape[..] {
        [0, _] => Err(DataError::images(path, "it holds no points")),
        [n, width] if width == numbers && n <= most => Ok(()),
        [n, width] if width == numbers => Err(DataError::images(
            path,
            format!("it holds {n} points; this model takes at most {most}"),
        )),
        _ => Err(DataError::images(
            path,
            format!(
                "its shape is {:?}; points of this model are [points, {numbers}]",
                head.shape
            ),
        )),
    };
    let (head, bytes) = whole(&file, array::npy, &fit)?;
    let size = match head.element {
        Element::Float(size @ (4 | 8)) => size,
        _ => {
            let reason = "its numbers are not real ones of 4 or 8 bytes";
            return Err(DataError::images(path, reason));
        }
    };
    let each = bytes.chunks_exact(size).map(|b| match b {
        &[a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        _ => f64::from_le_bytes(b.try_into().unwrap_or_default()),
    });
    let points: Vec<f64> = each.collect();
    match points.iter().position(|x| !x.is_finite()) {
        None => Ok(points),
        Some(at) => {
            let (row, column) = (at as u64 / numbers, at as u64 % numbers);
            let reason = format!(
                "point {row}, column {column} (counted from 0), is {}",
                points[at]
            );
            Err(DataError::images(path, reason))
        }
    }
}

/// Points with coordinates from −`half` to `half`, uniformly.
pub fn in_cube(points: u64, numbers: u64, half: f64, seed: u64) -> Vec<f64> {
    let stream = Stream::new(seed, "points");
    let each = 0..points * numbers;
    each.map(|n| half * (2.0 * stream.uniform(n) - 1.0))
        .collect()
}

/// Points on the unit sphere, uniformly: normal numbers, divided by their length (Muller 1959, Comm. ACM 2, 19).
pub fn on_sphere(points: u64, numbers: u64, seed: u64) -> Vec<f64> {
    let mut all = Vec::new();
    for point in 0..points {
        let stream = Stream::new(seed, &format!("point {point}"));
        let normal = (0..).flat_map(|block| stream.normal4(block));
        let one: Vec<f64> = normal.take(numbers as usize).collect();
        let length = one.iter().map(|x| x * x).sum::<f64>().sqrt();
        all.extend(one.iter().map(|x| x / length));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cube_is_filled_and_a_sphere_covered() {
        let cube = in_cube(4000, 3, 2.0, 7);
        assert!(cube.iter().all(|x| (-2.0..2.0).contains(x)));
        let mean = |all: &[f64], power: i32| {
            all.iter().map(|x| x.powi(power)).sum::<f64>() / all.len() as f64
        };
        // Five standard errors of 12,000 draws: mean 0, mean square 4/3.
        assert!(mean(&cube, 1).abs() < 0.053 && (mean(&cube, 2) - 4.0 / 3.0).abs() < 0.055);
        let sphere = on_sphere(2000, 3, 7);
        for point in sphere.chunks(3) {
            let square: f64 = point.iter().map(|x| x * x).sum();
            assert!((square - 1.0).abs() < 1e-14);
        }
        assert!(mean(&sphere, 1).abs() < 0.04);
        // More points begin with the same ones.
        assert_eq!(in_cube(2, 3, 2.0, 1), in_cube(5, 3, 2.0, 1)[..6]);
        assert_eq!(on_sphere(2, 3, 1), on_sphere(5, 3, 1)[..6]);
        assert_ne!(in_cube(2, 3, 2.0, 1), in_cube(2, 3, 2.0, 2));
    }
}
