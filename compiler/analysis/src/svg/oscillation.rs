//! Dissipation and dispersion: how fast a method damps oscillations x' = iωx, and how fast it turns them.
//!
//! Of R(iy), y = hω: the modulus (1 for the equation: dissipation), and the argument over y (1 as well: dispersion, van der Houwen & Sommeijer 1987,
//! SIAM J. Numer. Anal. 24, 595).

use super::function::{Complex, Rational};
use super::plot::{Axis, Plot};
use super::sheet::{Sheet, width};
use crate::report::Report;
use odec_numerics::poly::Extent;
use std::f64::consts::TAU;

/// How far y goes where the imaginary axis has no limit, or none that is worth a picture, and how far beyond a limit.
const FAR: f64 = 4.0;
const NEAR: f64 = 0.5;
const BEYOND: f64 = 1.15;
/// Points of a curve.
const POINTS: usize = 400;
const WIDE: f64 = 520.0;
const HIGH: f64 = 190.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 64.0;
const BETWEEN: f64 = 84.0;
const BELOW: f64 = 56.0;

pub fn picture(r: &Report) -> Option<String> {
    let s = r.one_field.as_ref()?.stability.as_ref()?;
    let function = Rational::new(&s.function);
    let end = match &s.imaginary_squared {
        Some(Extent::Until { hi, .. }) => BEYOND * hi.to_f64().sqrt(),
        _ => FAR,
    };
    let end = if end < NEAR { FAR } else { end };
    let [modulus, turned] = curves(&function, end);
    let mut sheet = Sheet::default();
    let title = format!("What {} makes of oscillations", r.name);
    sheet.heading(LEFT, 28.0, &title);
    let names = [
        "|R(iy)|, 1 for the equation: dissipation",
        "arg R(iy) / y, 1 for the equation: dispersion",
    ];
    for (n, (name, curve)) in names.into_iter().zip([modulus, turned]).enumerate() {
        let top = TOP + n as f64 * (HIGH + BETWEEN);
        draw(&mut sheet, (name, "y = hω"), (top, end), &curve);
    }
    let wide = WIDE.max(width(&title, 17.5)) + 24.0;
    let high = TOP + 2.0 * HIGH + BETWEEN + BELOW;
    Some(sheet.finish(LEFT + wide, high, &title))
}

/// The modulus, and the argument over y, which goes on where it passes half a turn.
fn curves(function: &Rational, end: f64) -> [Vec<(f64, f64)>; 2] {
    let (mut modulus, mut turned) = (vec![(0.0, 1.0)], vec![(0.0, 1.0)]);
    let mut before = 0.0;
    for n in 1..=POINTS {
        let y = end * n as f64 / POINTS as f64;
        let value = function.value(Complex(0.0, y));
        let angle = libm::atan2(value.1, value.0);
        let angle = angle + ((before - angle) / TAU).round() * TAU;
        before = angle;
        modulus.push((y, value.modulus()));
        turned.push((y, angle / y));
    }
    [modulus, turned]
}

/// Axes with a level at 1, and the curve where it is inside.
fn draw(
    sheet: &mut Sheet,
    (name, below): (&str, &str),
    (top, end): (f64, f64),
    curve: &[(f64, f64)],
) {
    let heights = curve.iter().map(|(_, v)| *v).filter(|v| v.is_finite());
    let (least, most) = heights.fold((1.0f64, 1.0f64), |(a, b), v| (a.min(v), b.max(v)));
    // What grows or turns fast leaves the picture.
    let (least, most) = (least.max(-1.0), most.min(2.0));
    let room = 0.08 * (most - least).max(0.01);
    let axis = |from, to, name: &str| Axis {
        from,
        to,
        name: name.into(),
    };
    let plot = Plot {
        x: axis(0.0, end, below),
        y: axis(least - room, most + room, name),
        left: LEFT,
        top,
        width: WIDE,
        height: HIGH,
    };
    plot.axes(sheet);
    let level = (plot.at(0.0, 1.0), plot.at(end, 1.0));
    sheet.line("axis", level.0, level.1);
    let (mut path, mut drawn) = (String::new(), false);
    for (x, v) in curve {
        let seen = (plot.y.from..=plot.y.to).contains(v);
        if seen {
            let (x, y) = plot.at(*x, *v);
            path += &format!("{}{x:.1} {y:.1}", if drawn { "L" } else { "M" });
        }
        drawn = seen;
    }
    sheet.curve("line", false, &path);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trapezoidal rule: nothing is damped, and y is turned by 2 arctan(y/2), through half a turn and beyond it.
    #[test]
    fn arguments_go_on() {
        let rule = Rational(vec![1.0, 0.5], vec![1.0, -0.5]);
        let [modulus, turned] = curves(&rule, 20.0);
        assert!(modulus.iter().all(|(_, m)| (m - 1.0).abs() < 1e-12));
        let twice = turned[1..]
            .iter()
            .all(|(y, a)| (a * y - 2.0 * (y / 2.0).atan()).abs() < 1e-9);
        assert!(twice, "{turned:?}");
        // Three turns of an exact solution, as a polynomial.
        let mut c = 1.0;
        let taylor: Vec<f64> = (0..80)
            .map(|n| {
                if n > 0 {
                    c /= n as f64
                }
                c
            })
            .collect();
        let [_, turned] = curves(&Rational(taylor, vec![1.0]), 3.0 * TAU);
        assert!(
            turned.iter().all(|(_, a)| (a - 1.0).abs() < 1e-6),
            "{turned:?}"
        );
    }
}
