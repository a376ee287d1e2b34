//! A ranking as SVG: for each model the results of its seeds, their mean with its interval, and what is said of the difference to the first one.
//!
//! Takes a plan and its ranking; gives one self-contained picture, models from top to bottom as they rank. Equal rankings give equal bytes.

use crate::plan::Plan;
use crate::rank::{Against, Ranking, Row, Verdict, rung_of};
use crate::space::Rank;
use odec_compiler::text::number;
use odec_runtime::system::shown::markup;
use odec_runtime::train::chart::Axis;
use std::fmt::Write;

/// Of a letter, at most, in the font of the names.
const LETTER: f64 = 8.0;
const ROW: f64 = 30.0;
const TOP: f64 = 84.0;
const BELOW: f64 = 52.0;
/// Width of the axis, and of what stands beside it.
const AXIS: f64 = 400.0;
const BESIDE: f64 = 250.0;
const MARGIN: f64 = 20.0;

/// Colours as classes, so that a dark page gets a dark picture.
const STYLE: &str = ".page{fill:#fcfcfb}.ink{fill:#1f2328}.soft{fill:#656d76}.grid{stroke:#e4e4e0}.first{stroke:#8c959f}\
    .band{fill:#8c959f;opacity:.14}.half{stroke-width:2}.worse,.worse .half{stroke:#b5452c}.better,.better .half{stroke:#14804a}\
    .open,.open .half{stroke:#2a78d6}.mean{stroke:none}.worse .mean,text.worse{fill:#b5452c;stroke:none}\
    .better .mean,text.better{fill:#14804a;stroke:none}.open .mean{fill:#2a78d6}.seed{fill:none;stroke-width:1.2;opacity:.75}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}.grid{stroke:#2b2f36}.first{stroke:#6b7480}\
    .worse,.worse .half{stroke:#ff8a6a}.better,.better .half{stroke:#4fc98a}.open,.open .half{stroke:#5aa2f2}\
    .worse .mean,text.worse{fill:#ff8a6a}.better .mean,text.better{fill:#4fc98a}.open .mean{fill:#5aa2f2}}";

/// What is said of a row, and the class of its colours.
fn said(row: &Row, by: Rank) -> (String, &'static str) {
    match &row.against {
        Against::Itself => ("what others are compared with".into(), "open"),
        Against::NotCompared(why) => (why.to_string(), "open"),
        Against::Compared(d) => {
            let what = d.verdict(by);
            let class = match what {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::NotShown => "open",
            };
            let sign = if d.mean < 0.0 { '−' } else { '+' };
            let said = format!("{sign}{:.3} ± {:.3}: {}", d.mean.abs(), d.half, what.word());
            (said, class)
        }
    }
}

/// The ends of a row's marks.
fn ends(row: &Row) -> impl Iterator<Item = f64> + '_ {
    let interval = row.mean.zip(row.half).map(|(m, h)| [m - h, m + h]);
    row.values
        .iter()
        .copied()
        .chain(interval.into_iter().flatten())
}

/// The picture of a ranking.
pub fn svg(plan: &Plan, ranking: &Ranking) -> String {
    let label = |row: &Row| {
        let label = &plan.models[row.model].label;
        match plan.halving {
            None => label.clone(),
            Some(_) => format!("{label}, rung {}", rung_of(plan, row)),
        }
    };
    let longest = ranking
        .rows
        .iter()
        .map(|r| label(r).chars().count())
        .max()
        .unwrap_or(0);
    let left = MARGIN + LETTER * longest as f64 + 16.0;
    let right = left + AXIS;
    let width = (right + BESIDE).max(720.0).ceil();
    let bottom = TOP + ROW * ranking.rows.len() as f64;
    let height = bottom + BELOW;
    let by = match ranking.by {
        Rank::HeldOut => "loss",
        Rank::Accuracy => "accuracy",
    };
    let of = match &ranking.of {
        Some((n, unit)) => format!("held-out {by} on {} {unit}", number::thousands(*n)),
        None => format!("held-out {by}"),
    };
    let alike: Vec<&str> = plan.matches.iter().map(|m| m.what.name()).collect();
    let alike = match &alike[..] {
        [] => String::new(),
        all => format!("; equal: {}", all.join(", ")),
    };
    let name = markup(&plan.model);
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{name}: ranking</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"ink\" x=\"{MARGIN}\" y=\"30\" font-size=\"16\" font-weight=\"600\">{name}</text>\n\
         <text class=\"soft\" x=\"{MARGIN}\" y=\"52\">{}{}</text>\n",
        markup(&of),
        markup(&alike),
    );
    let (low, high) = ranking
        .rows
        .iter()
        .flat_map(ends)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| {
            (a.min(x), b.max(x))
        });
    if low > high {
        let _ = writeln!(
            s,
            "<text class=\"soft\" x=\"{MARGIN}\" y=\"{}\">no trial has ended with a result</text>\n</svg>",
            TOP
        );
        return s;
    }
    let axis = Axis::new(low, high, 6, true);
    let place = |x: f64| left + AXIS * axis.place(x);
    for tick in axis.ticks() {
        let _ = writeln!(
            s,
            "<path class=\"grid\" d=\"M{0:.1} {TOP}V{bottom}\"/><text class=\"soft\" x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
            place(tick),
            bottom + 20.0,
            axis.label(tick)
        );
    }
    // The first model's interval goes through all rows.
    let first = ranking
        .rows
        .iter()
        .find(|r| r.against == Against::Itself)
        .and_then(|r| r.mean.zip(r.half));
    if let Some((mean, half)) = first {
        let (from, to) = (place(mean - half), place(mean + half));
        let _ = writeln!(
            s,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <path class=\"first\" stroke-dasharray=\"4 3\" d=\"M{:.1} {TOP}V{bottom}\"/>",
            to - from,
            bottom - TOP,
            place(mean)
        );
    }
    for (at, row) in ranking.rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5);
        let (said, class) = said(row, ranking.by);
        let _ = write!(
            s,
            "<text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><g class=\"{class}\">",
            left - 16.0,
            y + 4.5,
            markup(&label(row))
        );
        if let Some((mean, half)) = row.mean.zip(row.half) {
            let (from, to) = (place(mean - half), place(mean + half));
            let _ = write!(s, "<path class=\"half\" d=\"M{from:.1} {y:.1}H{to:.1}\"/>");
        }
        for v in &row.values {
            let _ = write!(
                s,
                "<circle class=\"seed\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>",
                place(*v)
            );
        }
        if let Some(mean) = row.mean {
            let x = place(mean);
            let _ = write!(
                s,
                "<path class=\"mean\" d=\"M{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}Z\"/>",
                x - 5.0,
                y - 6.0,
                x + 5.0,
                y + 6.0
            );
        }
        let class = match class {
            "open" => "soft",
            other => other,
        };
        let _ = writeln!(
            s,
            "</g><text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            right + 16.0,
            y + 4.5,
            markup(&said)
        );
    }
    let _ = writeln!(
        s,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">◇ mean with its 95 % interval, ○ a seed</text>\n</svg>",
        left + AXIS / 2.0,
        height - 12.0
    );
    s
}
