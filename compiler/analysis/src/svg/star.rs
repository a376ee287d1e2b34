//! Order stars: where |R(z)| > |eᶻ| (Wanner, Hairer & Nørsett 1978, BIT 18, 475; Hairer & Wanner 1996, IV.4).
//!
//! A method of order p has p + 1 shaded sectors of equal angle at the origin, and as many white ones. It is A-stable when no shaded part meets the imaginary
//! axis and all poles lie right of it.

use super::function::{Complex, Rational};
use super::plot::{Axis, Plot};
use super::sheet::{Anchor, Sheet, width};
use crate::report::Report;

/// Half the side of the window at least and at most, and what a degree adds: zeros and poles lie about as far out.
const LEAST: f64 = 3.0;
const MOST: f64 = 14.0;
const EACH: f64 = 1.1;
const SIDE: f64 = 440.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 84.0;
const BELOW: f64 = 56.0;

/// |eᶻ/R(z)|.
fn fading(level: &Rational, z: Complex) -> f64 {
    libm::exp(z.0) / level.value(z).modulus()
}

pub fn picture(r: &Report) -> Option<String> {
    let function = &r.one_field.as_ref()?.stability.as_ref()?.function;
    let degrees = function.numerator.degree() + function.denominator.degree();
    let half = (EACH * degrees as f64 + 1.5).clamp(LEAST, MOST);
    let level = Rational::new(function);
    let axis = |name: &str| Axis {
        from: -half,
        to: half,
        name: name.into(),
    };
    let plot = Plot {
        x: axis("Re z"),
        y: axis("Im z"),
        left: LEFT,
        top: TOP,
        width: SIDE,
        height: SIDE,
    };
    let mut sheet = Sheet::default();
    let title = format!("The order star of {}", r.name);
    sheet.heading(LEFT, 28.0, &title);
    let about = "shaded: |R(z)| > |exp(z)|, p + 1 sectors at the origin for order p";
    sheet.text((LEFT, 50.0), "soft", Anchor::Start, 12.0, about);
    let (inside, edge) = plot.around(|x, y| fading(&level, Complex(x, y)));
    plot.axes(&mut sheet);
    sheet.filled("band", &inside);
    sheet.curve("line", false, &edge);
    let wide = [width(&title, 17.5), width(about, 12.0), SIDE];
    let wide = wide.into_iter().fold(0.0, f64::max);
    Some(sheet.finish(LEFT + wide + 24.0, TOP + SIDE + BELOW, &title))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shaded sectors that a small circle meets.
    fn sectors(numerator: &[f64], denominator: &[f64]) -> usize {
        let level = Rational(numerator.to_vec(), denominator.to_vec());
        let shaded = |n: usize| {
            // Between the corners of all stars that are symmetric about the real axis.
            let angle = (n as f64 + 0.37) * std::f64::consts::TAU / 997.0;
            fading(&level, Complex(0.5 * angle.cos(), 0.5 * angle.sin())) < 1.0
        };
        (0..997)
            .filter(|n| shaded(*n) && !shaded((n + 1) % 997))
            .count()
    }

    #[test]
    fn a_star_has_a_sector_more_than_the_order() {
        assert_eq!(sectors(&[1.0, 1.0], &[1.0]), 2);
        assert_eq!(sectors(&[1.0], &[1.0, -1.0]), 2);
        assert_eq!(sectors(&[1.0, 0.5], &[1.0, -0.5]), 3);
        assert_eq!(sectors(&[1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0], &[1.0]), 5);
        let [n, d] = [1.0, -1.0].map(|s| [1.0, s * 0.5, 1.0 / 12.0]);
        assert_eq!(sectors(&n, &d), 5);
    }
}
