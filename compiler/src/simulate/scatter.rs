//! Sequences of vectors as points and paths in the plane, several sets beside each other, as SVG.
//!
//! Takes numbers; gives a self-contained picture that adapts to dark pages, in one scale for all panels. Equal numbers give equal bytes. Vectors of three columns
//! and more are seen as [`super::picture`] sees points in space. Single numbers are drawn as the share of samples that are not above each.

use super::picture::{alike, range, seen};
use crate::measure::picture::COLOURS;
use odec_analysis::svg::{Anchor, Plot, Sheet};
use std::fmt::Write;

/// A set of sequences.
pub struct Panel {
    pub title: String,
    /// Each [positions, width] row by row.
    pub samples: Vec<Vec<f64>>,
    /// The class of each, where they have one.
    pub classes: Vec<Option<u64>>,
}

const SIDE: f64 = 360.0;
const GAP: f64 = 80.0;
/// Top and left of the first panel.
const TOP: f64 = 100.0;
const LEFT: f64 = 64.0;

/// Where the vectors of a sequence are in the plane: one after the other to the right, if they are numbers.
fn places(sample: &[f64], width: usize) -> Vec<(f64, f64)> {
    let each = sample.chunks_exact(width.max(1)).enumerate();
    each.map(|(n, vector)| match vector {
        [x] => (n as f64, *x),
        more => seen(more),
    })
    .collect()
}

/// The share of single numbers that are not above each, as corners of a path.
fn shares(samples: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let mut all: Vec<f64> = samples.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let n = all.len() as f64;
    let ends = (1..).zip(all);
    ends.map(|(i, x)| (x, f64::from(i) / n)).collect()
}

/// Panels beside each other, with vectors of so many numbers.
pub fn picture(panels: &[Panel], width: usize, title: &str) -> String {
    let single = width == 1 && panels.iter().flat_map(|p| &p.samples).all(|s| s.len() == 1);
    let corners = |panel: &Panel| match single {
        true => vec![shares(&panel.samples)],
        false => {
            let each = panel.samples.iter();
            each.map(|s| places(s, width)).collect::<Vec<_>>()
        }
    };
    let drawn: Vec<_> = panels.iter().map(corners).collect();
    let all = || drawn.iter().flatten().flatten();
    let names = match (single, width) {
        (true, _) => ["x", "share of samples up to x"],
        (_, 1) => ["position", "x"],
        (_, 2) => ["x₁", "x₂"],
        _ => ["", ""],
    };
    let mut x = range(all().map(|p| p.0), names[0]);
    let mut y = range(all().map(|p| p.1), names[1]);
    if width > 1 {
        alike(&mut x, &mut y);
    }
    let mut sheet = Sheet::default();
    sheet.heading(LEFT, 30.0, title);
    for (n, (panel, paths)) in panels.iter().zip(&drawn).enumerate() {
        let plot = Plot {
            x: x.clone(),
            y: y.clone(),
            left: LEFT + n as f64 * (SIDE + GAP),
            top: TOP,
            width: SIDE,
            height: SIDE,
        };
        let at = (plot.left, TOP - 34.0);
        sheet.text(at, "soft", Anchor::Start, 12.0, &panel.title);
        plot.axes(&mut sheet);
        for (i, path) in paths.iter().enumerate() {
            let class = panel.classes.get(i).copied().flatten();
            let colour = COLOURS[class.unwrap_or(0) as usize % COLOURS.len()];
            let mut d = String::new();
            for (x, y) in path {
                let ((x, y), word) = (plot.at(*x, *y), if d.is_empty() { 'M' } else { 'L' });
                let _ = write!(d, "{word}{x:.1} {y:.1}");
            }
            if path.len() > 1 {
                sheet.coloured_path(colour, &d);
            }
            if let (Some((x, y)), false) = (path.last(), single) {
                sheet.coloured_spot(colour, plot.at(*x, *y), 2.2);
            }
        }
    }
    let right = LEFT + panels.len() as f64 * (SIDE + GAP) - GAP + 30.0;
    sheet.finish(right, TOP + SIDE + 60.0, title)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(samples: Vec<Vec<f64>>, classes: Vec<Option<u64>>) -> Panel {
        Panel {
            title: "drawn".into(),
            samples,
            classes,
        }
    }

    #[test]
    fn points_are_spots_sequences_paths_and_numbers_shares() {
        let count = |svg: &str, what: &str| svg.matches(what).count();
        let points = panel(vec![vec![0.0, 1.0], vec![2.0, 3.0]], vec![Some(0), Some(8)]);
        let svg = picture(&[points], 2, "points");
        assert_eq!(count(&svg, "<circle"), 2);
        // The ninth class has the second colour.
        assert_eq!((count(&svg, COLOURS[0]), count(&svg, COLOURS[1])), (1, 1));
        let space = panel(
            vec![vec![1.0, 0.0, 0.0], vec![0.0, 1.0, 0.0]],
            vec![None; 2],
        );
        assert_eq!(count(&picture(&[space], 3, "space"), "<circle"), 2);
        let two = || panel(vec![vec![0.0, 1.0, 2.0, 3.0]; 3], vec![None; 3]);
        let svg = picture(&[two(), two()], 2, "paths");
        assert_eq!(count(&svg, "stroke-opacity"), 6);
        let svg = picture(&[panel(vec![vec![2.0], vec![1.0]], vec![])], 1, "numbers");
        assert_eq!(
            (count(&svg, "<circle"), count(&svg, "stroke-opacity")),
            (0, 1)
        );
        assert_eq!(shares(&[vec![2.0], vec![1.0]]), [(1.0, 0.5), (2.0, 1.0)]);
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let svg = picture(&[panel(vec![], vec![])], 2, "<none>");
        assert!(svg.contains("&lt;none&gt;") && !svg.contains("<circle"));
    }
}
