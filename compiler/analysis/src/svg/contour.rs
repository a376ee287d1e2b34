//! Where a sampled function is at most 1: closed curves, by marching squares (Lorensen & Cline 1987, in the plane).

use std::collections::BTreeMap;

/// Samples on a grid of `columns × rows` cells over the unit square, row by row from below.
pub struct Samples {
    pub columns: usize,
    pub rows: usize,
    pub values: Vec<f64>,
}

/// An edge of the grid: its lower left point, and whether it goes up.
type Edge = (usize, usize, bool);

/// Unsupported this a value only says "large", so that poles do not pull the curve.
const LARGE: f64 = 3.0;

impl Samples {
    pub fn new(columns: usize, rows: usize, mut f: impl FnMut(f64, f64) -> f64) -> Samples {
        let mut values = Vec::new();
        for j in 0..=rows {
            for i in 0..=columns {
                values.push(f(i as f64 / columns as f64, j as f64 / rows as f64));
            }
        }
        Samples {
            columns,
            rows,
            values,
        }
    }

    /// With a frame of large values around, which closes all curves. Points are counted from the frame's corner.
    fn at(&self, i: usize, j: usize) -> f64 {
        if i == 0 || j == 0 || i > self.columns + 1 || j > self.rows + 1 {
            return LARGE;
        }
        let value = self.values[(j - 1) * (self.columns + 1) + i - 1];
        if value.is_nan() {
            LARGE
        } else {
            value.min(LARGE)
        }
    }

    fn inside(&self, i: usize, j: usize) -> bool {
        self.at(i, j) <= 1.0
    }

    /// Where the curve meets an edge, in the unit square.
    fn crossing(&self, (i, j, up): Edge) -> (f64, f64) {
        let (k, l) = if up { (i, j + 1) } else { (i + 1, j) };
        let (a, b) = (self.at(i, j), self.at(k, l));
        let t = if a == b {
            0.5
        } else {
            ((1.0 - a) / (b - a)).clamp(0.0, 1.0)
        };
        // The frame lies on the outermost points.
        let place = |i: usize, n: usize| (i.clamp(1, n + 1) - 1) as f64 / n as f64;
        let (x0, y0) = (place(i, self.columns), place(j, self.rows));
        let (x1, y1) = (place(k, self.columns), place(l, self.rows));
        (x0 + t * (x1 - x0), y0 + t * (y1 - y0))
    }

    /// Closed curves in the unit square around all points where the function is at most 1.
    pub fn curves(&self) -> Vec<Vec<(f64, f64)>> {
        let mut next: BTreeMap<Edge, Edge> = BTreeMap::new();
        for j in 0..=self.rows + 1 {
            for i in 0..=self.columns + 1 {
                self.cell(i, j, &mut next);
            }
        }
        let mut curves = Vec::new();
        while let Some((&first, _)) = next.iter().next() {
            let mut curve = Vec::new();
            let mut at = first;
            while let Some(to) = next.remove(&at) {
                curve.push(self.crossing(at));
                at = to;
            }
            curves.push(curve);
        }
        curves
    }

    /// Pieces of curves in a cell, with what is inside on their left.
    fn cell(&self, i: usize, j: usize, next: &mut BTreeMap<Edge, Edge>) {
        let corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)];
        // The edge behind each corner, anticlockwise.
        let edges = [
            (i, j, false),
            (i + 1, j, true),
            (i, j + 1, false),
            (i, j, true),
        ];
        let inside = corners.map(|(i, j)| self.inside(i, j));
        // A curve enters where anticlockwise the inside ends, and leaves where it begins: there the inside is on its left.
        let leaves: Vec<usize> = (0..4)
            .filter(|c| !inside[*c] && inside[(c + 1) % 4])
            .collect();
        let enters: Vec<usize> = (0..4)
            .filter(|c| inside[*c] && !inside[(c + 1) % 4])
            .collect();
        if let ([leave], [enter]) = (&leaves[..], &enters[..]) {
            next.insert(edges[*enter], edges[*leave]);
        } else if enters.len() == 2 {
            // A saddle: the middle decides which corners hang together.
            let sum: f64 = corners.iter().map(|(i, j)| self.at(*i, *j)).sum();
            let joined = sum <= 4.0;
            for enter in enters {
                let leave = (enter + if joined { 1 } else { 3 }) % 4;
                next.insert(edges[enter], edges[leave]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice the area that a curve encloses, positive anticlockwise.
    fn area(curve: &[(f64, f64)]) -> f64 {
        let next = curve.iter().cycle().skip(1);
        curve
            .iter()
            .zip(next)
            .map(|(a, b)| a.0 * b.1 - b.0 * a.1)
            .sum::<f64>()
            / 2.0
    }

    #[test]
    fn areas_of_discs_and_rings() {
        let distance = |x: f64, y: f64| (x - 0.5).hypot(y - 0.5);
        let disc = Samples::new(80, 60, |x, y| distance(x, y) / 0.3);
        let curves = disc.curves();
        assert_eq!(curves.len(), 1);
        assert!((area(&curves[0]) - 0.09 * std::f64::consts::PI).abs() < 1e-3);
        // A ring, cut by nothing: the hole runs the other way round.
        let ring = Samples::new(80, 60, |x, y| 1.0 + (distance(x, y) - 0.3).abs() - 0.1);
        let sum: f64 = ring.curves().iter().map(|c| area(c)).sum();
        assert!(
            (sum - (0.16 - 0.04) * std::f64::consts::PI).abs() < 1e-3,
            "{sum}"
        );
        // What reaches the frame is closed along it.
        let half = Samples::new(10, 10, |x, _| x / 0.5);
        let sum: f64 = half.curves().iter().map(|c| area(c)).sum();
        assert!((sum - 0.5).abs() < 1e-9, "{sum}");
        let saddle = Samples::new(2, 2, |x, y| 1.0 + (x - 0.5) * (y - 0.5));
        assert_eq!(
            saddle.curves().iter().filter(|c| area(c) > 0.0).count(),
            saddle.curves().len()
        );
        assert!(Samples::new(3, 3, |_, _| f64::NAN).curves().is_empty());
    }
}
