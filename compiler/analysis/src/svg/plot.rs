//! A plot: two axes with round ticks, shaded regions, marked points.

use super::contour::Samples;
use super::sheet::{Anchor, Sheet};
use std::fmt::Write;

/// Cells of the grid in which a region is sought, along the longer side.
const CELLS: usize = 180;

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    pub name: String,
}

impl Axis {
    fn span(&self) -> f64 {
        self.to - self.from
    }

    /// Round numbers, at most so many, and how many decimals they need.
    fn ticks(&self, most: f64) -> (Vec<f64>, usize) {
        let raw = self.span() / most;
        let mut step = 1e-6;
        // 1, 2, 5 times a power of ten.
        let mut factors = [2.0, 2.5, 2.0].iter().cycle();
        while step < raw * (1.0 - 1e-9) {
            step *= factors.next().expect("endless");
        }
        let decimals = [1.0, 0.1, 0.01].iter().position(|s| step >= s * 0.999);
        let first = (self.from / step - 1e-9).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        let ticks = (first..=last).map(|n| n as f64 * step);
        (ticks.collect(), decimals.unwrap_or(3))
    }
}

/// Axes with their place on a sheet.
pub struct Plot {
    pub x: Axis,
    pub y: Axis,
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Plot {
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (
            self.left + (x - self.x.from) / self.x.span() * self.width,
            self.top + (self.y.to - y) / self.y.span() * self.height,
        )
    }

    /// Lines for ticks, axes through 0 and names.
    pub fn axes(&self, sheet: &mut Sheet) {
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        let (ticks, decimals) = self.x.ticks((self.width / 62.0).max(2.0));
        for t in ticks {
            let (x, _) = self.at(t, 0.0);
            let class = if t == 0.0 { "axis" } else { "grid" };
            sheet.line(class, (x, self.top), (x, bottom));
            let label = format!("{t:.decimals$}").replace('-', "−");
            sheet.text((x, bottom + 18.0), "soft", Anchor::Middle, 12.0, &label);
        }
        let (ticks, decimals) = self.y.ticks((self.height / 44.0).max(2.0));
        for t in ticks {
            let (_, y) = self.at(0.0, t);
            let class = if t == 0.0 { "axis" } else { "grid" };
            sheet.line(class, (self.left, y), (right, y));
            let label = format!("{t:.decimals$}").replace('-', "−");
            sheet.text(
                (self.left - 8.0, y + 4.0),
                "soft",
                Anchor::End,
                12.0,
                &label,
            );
        }
        let middle = self.left + self.width / 2.0;
        sheet.text(
            (middle, bottom + 38.0),
            "soft",
            Anchor::Middle,
            12.0,
            &self.x.name,
        );
        sheet.text(
            (self.left, self.top - 8.0),
            "soft",
            Anchor::Start,
            12.0,
            &self.y.name,
        );
    }

    /// The curves around where a function is at most 1, closed, and without what runs along the frame.
    pub fn around(&self, mut f: impl FnMut(f64, f64) -> f64) -> (String, String) {
        let longer = self.width.max(self.height);
        let cells = |side: f64| ((CELLS as f64 * side / longer) as usize).max(40);
        let samples = Samples::new(cells(self.width), cells(self.height), |s, t| {
            f(
                self.x.from + s * self.x.span(),
                self.y.from + t * self.y.span(),
            )
        });
        let place = |(s, t): (f64, f64)| {
            let (x, y) = (
                self.left + s * self.width,
                self.top + (1.0 - t) * self.height,
            );
            format!("{x:.1} {y:.1}")
        };
        let on_frame = |(s, t): (f64, f64)| {
            let ends = |x: f64| !(1e-9..=1.0 - 1e-9).contains(&x);
            ends(s) || ends(t)
        };
        let (mut closed, mut open) = (String::new(), String::new());
        for curve in samples.curves() {
            let Some(last) = curve.last() else { continue };
            let before = [last].into_iter().chain(&curve);
            let mut drawn = false;
            for (n, (from, to)) in before.zip(&curve).enumerate() {
                closed += if n == 0 { "M" } else { "L" };
                closed += &place(*to);
                if on_frame(*from) && on_frame(*to) {
                    drawn = false;
                    continue;
                }
                if !drawn {
                    let _ = write!(open, "M{}", place(*from));
                }
                let _ = write!(open, "L{}", place(*to));
                drawn = true;
            }
            closed.push('Z');
        }
        (closed, open)
    }

    /// A point with its name, which stands where there is room.
    pub fn mark(&self, sheet: &mut Sheet, (x, y): (f64, f64), name: &str) {
        let at = self.at(x, y);
        sheet.dot(at);
        let above = if y < 0.0 { 18.0 } else { -9.0 };
        let anchor = if at.0 - self.left < 50.0 {
            Anchor::Start
        } else {
            Anchor::Middle
        };
        let shift = if x == 0.0 { 30.0 } else { 0.0 };
        sheet.text((at.0 + shift, at.1 + above), "ink", anchor, 12.0, name);
    }
}
