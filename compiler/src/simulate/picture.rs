//! Paths of points, and their clusters over time, as SVG.
//!
//! Takes paths; gives self-contained pictures that adapt to dark pages. Equal paths give equal bytes. Points in space are seen from the direction
//! (1, 1, 1) with the third axis upwards, without perspective; of more than three columns the first three are drawn.

use super::Paths;
use odec_analysis::svg::{Anchor, Axis, Plot, Sheet};
use std::fmt::Write;

/// The most corners of one path.
const CORNERS: usize = 100;

/// Where a point is in the plane: to the right, and up.
pub(super) fn seen(point: &[f64]) -> (f64, f64) {
    match *point {
        [x] => (x, 0.0),
        [x, y] => (x, y),
        [x, y, z, ..] => {
            let half = 0.5f64;
            ((y - x) * (3.0 * half * half).sqrt(), z - (x + y) * half)
        }
        [] => (0.0, 0.0),
    }
}

/// What lengths across the line of sight are multiplied by: the third axis keeps its own.
fn scale() -> f64 {
    1.5f64.sqrt()
}

/// The radius of the sphere around 0 in space on which all points stay, if they do.
fn sphere(paths: &Paths) -> Option<f64> {
    let points = paths.states.iter().flat_map(|s| s.chunks_exact(3));
    let lengths = points.map(|p| p.iter().map(|x| x * x).sum::<f64>().sqrt());
    let (least, most) = lengths.fold((f64::INFINITY, 0.0f64), |(a, b), r| (a.min(r), b.max(r)));
    let round = paths.width == 3 && most > 0.0 && most - least <= 1e-3 * most;
    round.then_some(most)
}

/// What holds all of these, with a margin of a twentieth on both sides; never empty.
pub(super) fn range(values: impl Iterator<Item = f64>, name: &str) -> Axis {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| {
        (a.min(x), b.max(x))
    });
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let margin = match high > low {
        true => (high - low) / 20.0,
        false => (low.abs() / 20.0).max(1.0),
    };
    Axis {
        from: low - margin,
        to: high + margin,
        name: name.into(),
    }
}

/// Makes a length the same along both axes.
pub(super) fn alike(x: &mut Axis, y: &mut Axis) {
    let span = (x.to - x.from).max(y.to - y.from);
    for axis in [x, y] {
        let middle = (axis.from + axis.to) / 2.0;
        (axis.from, axis.to) = (middle - span / 2.0, middle + span / 2.0);
    }
}

/// The paths of all points: where they begin as small dots, where they end as large ones.
pub fn paths(paths: &Paths, title: &str) -> String {
    const SIDE: f64 = 420.0;
    let (left, top) = (70.0, 80.0);
    let one = paths.width.max(1);
    // A line has room for its time.
    let place = |state: &[f64], time: f64| match state {
        [x] => (time, *x),
        more => seen(more),
    };
    let all = || {
        let each = paths.states.iter().zip(&paths.times);
        each.flat_map(move |(s, t)| s.chunks_exact(one).map(move |p| place(p, *t)))
    };
    let names = match paths.width {
        1 => ["time", "x"],
        2 => ["x₁", "x₂"],
        _ => ["", ""],
    };
    let outline = sphere(paths).map(|radius| radius * scale());
    let ends = outline.into_iter().flat_map(|r| [-r, r]);
    let mut x = range(all().map(|p| p.0).chain(ends.clone()), names[0]);
    let mut y = range(all().map(|p| p.1).chain(ends), names[1]);
    if paths.width > 1 {
        alike(&mut x, &mut y);
    }
    let span = (x.to - x.from).max(f64::MIN_POSITIVE);
    let plot = Plot {
        x,
        y,
        left,
        top,
        width: SIDE,
        height: SIDE,
    };
    let mut sheet = Sheet::default();
    sheet.heading(left, 30.0, title);
    let last = paths.times.last().copied().unwrap_or(0.0);
    let about = format!(
        "{} points from time 0 (small) to {last} (large)",
        paths.points
    );
    sheet.text((left, 52.0), "soft", Anchor::Start, 12.0, &about);
    match paths.width {
        0..3 => plot.axes(&mut sheet),
        _ => space(&plot, span, &mut sheet),
    }
    if let Some(radius) = outline {
        let ((from, middle), (to, _)) = (plot.at(-radius, 0.0), plot.at(radius, 0.0));
        let r = (to - from) / 2.0;
        let half = |to: f64| format!("A{r:.1} {r:.1} 0 1 0 {to:.1} {middle:.1}");
        let d = format!("M{from:.1} {middle:.1}{}{}", half(to), half(from));
        sheet.curve("grid", false, &d);
    }
    let steps = paths.states.len().saturating_sub(1);
    let every = steps.div_ceil(CORNERS).max(1);
    let drawn: Vec<usize> = (0..=steps)
        .filter(|n| n % every == 0 || *n == steps)
        .collect();
    let point = |n: usize, i: usize| {
        let state = paths.states[n].chunks_exact(one).nth(i);
        let (x, y) = place(state.unwrap_or_default(), paths.times[n]);
        plot.at(x, y)
    };
    for i in 0..paths.points {
        let mut d = String::new();
        for n in &drawn {
            let (x, y) = point(*n, i);
            let word = if d.is_empty() { 'M' } else { 'L' };
            let _ = write!(d, "{word}{x:.1} {y:.1}");
        }
        sheet.path("line", &d);
    }
    for (n, class, radius) in [(0, "soft", 1.8), (steps, "dot", 3.2)] {
        for i in 0..paths.points.min(paths.states.len() * paths.points) {
            sheet.spot(class, point(n, i), radius);
        }
    }
    sheet.finish(left + SIDE + 30.0, top + SIDE + 60.0, title)
}

/// Three axes through 0, each a round number long.
fn space(plot: &Plot, span: f64, sheet: &mut Sheet) {
    let raw = span / 6.0;
    let power = 10f64.powi(decade(raw));
    let fits = [5.0, 2.0, 1.0].map(|m| m * power);
    let length = fits.into_iter().find(|l| *l <= raw).unwrap_or(power);
    let shown = match (1e-3..1e4).contains(&length) {
        true => format!("{length}"),
        false => format!("{length:e}"),
    };
    for (n, name) in ["x₁", "x₂", "x₃"].into_iter().enumerate() {
        let mut end = [0.0; 3];
        end[n] = length;
        let ((x, y), (far_x, far_y)) = (seen(&[0.0; 3]), seen(&end));
        let (from, to) = (plot.at(x, y), plot.at(far_x, far_y));
        sheet.line("axis", from, to);
        // A little further on than the axis.
        let at = (
            to.0 + 0.12 * (to.0 - from.0),
            to.1 + 0.12 * (to.1 - from.1) + 4.0,
        );
        sheet.text(at, "soft", Anchor::Middle, 12.0, name);
    }
    let bottom = (plot.left, plot.top + plot.height + 30.0);
    let text = format!("axes from 0 to {shown}, seen from (1, 1, 1)");
    sheet.text(bottom, "soft", Anchor::Start, 12.0, &text);
}

/// The largest n with 10ⁿ ≤ x.
fn decade(x: f64) -> i32 {
    (-300..=300)
        .rev()
        .find(|n| 10f64.powi(*n) <= x)
        .unwrap_or(0)
}

/// The number of clusters over time, and the spread of the points on a logarithmic scale.
pub fn clusters(paths: &Paths, counts: &[usize], spread: &[f64], title: &str) -> String {
    const WIDTH: f64 = 480.0;
    const HEIGHT: f64 = 150.0;
    let left = 70.0;
    let end = paths.times.last().copied().unwrap_or(0.0);
    let time = |name: &str| Axis {
        from: 0.0,
        to: if end > 0.0 { end } else { 1.0 },
        name: name.into(),
    };
    let mut sheet = Sheet::default();
    sheet.heading(left, 30.0, title);
    let most = counts.iter().copied().max().unwrap_or(1);
    let number = Plot {
        x: time(""),
        y: Axis {
            from: 0.0,
            to: most as f64 * 1.05,
            name: "clusters".into(),
        },
        left,
        top: 64.0,
        width: WIDTH,
        height: HEIGHT,
    };
    number.axes(&mut sheet);
    // A count holds until the next one.
    let mut d = String::new();
    for (t, n) in paths.times.iter().zip(counts) {
        let (x, y) = number.at(*t, *n as f64);
        let _ = match d.is_empty() {
            true => write!(d, "M{x:.1} {y:.1}"),
            false => write!(d, "H{x:.1}V{y:.1}"),
        };
    }
    sheet.curve("held", false, &d);
    let logs: Vec<(f64, f64)> = (paths.times.iter().zip(spread))
        .filter(|(_, s)| **s > 0.0)
        .map(|(t, s)| (*t, s.log10()))
        .collect();
    // Half a decade is a step of ticks.
    let around = range(logs.iter().map(|p| p.1), "log₁₀ of the spread");
    let size = Plot {
        x: time("time"),
        y: Axis {
            from: (2.0 * around.from).floor() / 2.0,
            to: (2.0 * around.to).ceil() / 2.0,
            ..around
        },
        left,
        top: 64.0 + HEIGHT + 64.0,
        width: WIDTH,
        height: HEIGHT,
    };
    size.axes(&mut sheet);
    let mut d = String::new();
    for (t, s) in logs {
        let (x, y) = size.at(t, s);
        let word = if d.is_empty() { 'M' } else { 'L' };
        let _ = write!(d, "{word}{x:.1} {y:.1}");
    }
    sheet.curve("line", false, &d);
    sheet.finish(
        left + WIDTH + 30.0,
        64.0 + 2.0 * HEIGHT + 64.0 + 60.0,
        title,
    )
}
