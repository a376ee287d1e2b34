//! The trade-off of a design: the least error found for each value of a goal.

use super::{Design, called, value};
use crate::analysis::svg::{Anchor, Axis, Plot, Sheet, width};
use odec_text::number::about;
use std::fmt::Write;

const LEFT: f64 = 76.0;
const TOP: f64 = 92.0;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 320.0;
const BELOW: f64 = 56.0;
/// What an axis shows beyond the last point.
const MARGIN: f64 = 1.08;

/// `None`: nothing was traded.
pub fn picture(name: &str, d: &Design) -> Option<String> {
    let mut points: Vec<(f64, f64)> = d.traded.iter().map(|t| (t.level, t.error)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (furthest, _) = *points.last()?;
    let highest = points.iter().map(|p| p.1).fold(d.error, f64::max);
    let plot = Plot {
        x: Axis {
            from: 0.0,
            to: furthest * MARGIN,
            name: called(d.against).into(),
        },
        y: Axis {
            from: 0.0,
            to: highest * MARGIN,
            name: "principal error".into(),
        },
        left: LEFT,
        top: TOP,
        width: WIDTH,
        height: HEIGHT,
    };
    let mut sheet = Sheet::default();
    let title = format!("What {name} trades");
    sheet.heading(LEFT, 28.0, &title);
    let subject = format!(
        "order {}, {} {}, principal error {}",
        d.order,
        called(d.goal),
        value(d),
        about(d.error)
    );
    sheet.text((LEFT, 50.0), "soft", Anchor::Start, 12.0, &subject);
    plot.axes(&mut sheet);
    let mut path = String::new();
    for (n, (x, y)) in points.iter().enumerate() {
        let (x, y) = plot.at(*x, *y);
        let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { "M" } else { "L" });
    }
    sheet.curve("line", false, &path);
    for point in &points {
        sheet.dot(plot.at(point.0, point.1));
    }
    let wide = [width(&title, 17.5), width(&subject, 12.0), WIDTH];
    let wide = wide.into_iter().fold(0.0, f64::max);
    Some(sheet.finish(LEFT + wide + 24.0, TOP + HEIGHT + BELOW, &title))
}
