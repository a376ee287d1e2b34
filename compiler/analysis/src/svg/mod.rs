//! Reports as pictures: the tableau, the region of stability, the order star, and dissipation and dispersion.
//!
//! Takes a report; gives self-contained SVG that adapts to dark pages, with equal bytes for equal reports. Pictures decide nothing: their
//! curves are sampled in floating point, and the numbers beside them are those of the report.

mod contour;
mod function;
mod oscillation;
mod plot;
mod region;
mod sheet;
mod star;
mod tableau;

pub use plot::{Axis, Plot};
pub use sheet::{Anchor, Sheet, width};

use super::report::Report;

/// Longest name of a file without its endings.
const LONGEST: usize = 60;

/// `rk4(layer)` as `rk4-layer`.
pub fn stem(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
    }
    out.truncate(LONGEST);
    match out.trim_end_matches('-') {
        "" => "flow".to_string(),
        stem => stem.to_string(),
    }
}

/// What there is to draw of a report: `tableau`, `region`, `star`, `oscillation`, each with its picture.
pub fn pictures(r: &Report) -> Vec<(&'static str, String)> {
    let all = [
        ("tableau", tableau::picture(r)),
        ("region", region::picture(r)),
        ("star", star::picture(r)),
        ("oscillation", oscillation::picture(r)),
    ];
    let drawn = all.into_iter().filter_map(|(name, p)| Some((name, p?)));
    drawn.collect()
}
