//! Laws of loss against training FLOPs, as an exploration has fitted them: points, one for each size, and a line through them.
//!
//! Takes laws; gives their picture and their table. Leaves fitting to `odec_explore::fit`.

use crate::plot::{Across, Plot, SIZES, Unit, class};
use odec_compiler::text::number::flops;
use odec_explore::fit::{Fit, Law, Point, digits};
use odec_runtime::system::shown::markup;
use odec_source::escape::escaped;
use std::fmt::Write;

/// Points of a line.
const POINTS: u32 = 60;

/// The law whose line is drawn: the one with a constant where there is one.
fn drawn(f: &Fit) -> Option<Law> {
    f.with_constant.or(f.law)
}

/// Points that can be drawn.
fn points(f: &Fit) -> impl Iterator<Item = &Point> {
    let usable = |p: &&Point| p.flops.is_finite() && p.flops > 0.0 && p.loss.is_finite();
    f.points.iter().filter(usable)
}

/// The least and the largest of some numbers.
fn ends(of: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = of.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| {
        (a.min(x), b.max(x))
    });
    (low <= high).then_some((low, high))
}

/// Losses over operations in logarithms, wide and narrow; `None` where there is nothing to draw. `id` is the picture's own on the page.
pub fn picture(fits: &[Fit], id: &str) -> Option<String> {
    let (from, to) = ends(fits.iter().flat_map(points).map(|p| p.flops))?;
    let line = |law: Law| -> Vec<(f64, f64)> {
        let each = (0..=POINTS).map(|n| from * (to / from).powf(f64::from(n) / f64::from(POINTS)));
        let each = each.map(|c| (c, law.at(c)));
        each.filter(|(_, l)| l.is_finite()).collect()
    };
    // Lines go as far as all points do, and the picture as high as points.
    let height = ends(fits.iter().flat_map(points).map(|p| p.loss))?;
    let unit = Unit {
        of: 1.0,
        name: "training FLOPs".into(),
    };
    let title = "Held-out loss against training FLOPs, with fitted laws";
    let drawn = SIZES.iter().map(|size| {
        let names = [title, "held-out loss, mean over seeds"];
        let mut plot = Plot::new(*size, id, &unit, Across::Logs(from, to), height, names);
        for (n, f) in fits.iter().enumerate() {
            let law = drawn(f);
            let said = law.map_or(String::new(), |l| format!(": {}", l.text()));
            plot.series(n, &format!("{}{said}", escaped(&f.label)));
            if let Some(law) = law {
                plot.line("curve", &line(law));
            }
            for p in points(f) {
                plot.dot("dot", (p.flops, p.loss), 4.5);
            }
            plot.end();
        }
        plot.finish()
    });
    Some(drawn.collect())
}

/// `2.1 + 37.2 C⁻⁰·⁰⁸¹`, as markup.
fn written(law: &Law) -> String {
    let text = markup(&law.text());
    match text.split_once('^') {
        Some((before, exponent)) => format!("{before}<sup>{}</sup>", exponent.replace('-', "−")),
        None => text,
    }
}

/// Each kind with its law, or what is missing.
pub fn table(fits: &[Fit], out: &mut String) {
    *out += "<div class=\"scroll\"><table>\n<thead><tr><th class=\"word\" scope=\"col\">models</th><th scope=\"col\">sizes</th><th scope=\"col\">FLOPs</th>\
             <th class=\"word\" scope=\"col\">loss, C being the FLOPs</th><th scope=\"col\">exponent, ± 95 %</th></tr></thead>\n<tbody>\n";
    for (n, f) in fits.iter().enumerate() {
        let class = class(n);
        let label = markup(&escaped(&f.label));
        let range = ends(points(f).map(|p| p.flops));
        let range = range.map_or("–".into(), |(a, b)| {
            format!("{} to {}", flops(a), flops(b))
        });
        let _ = write!(
            out,
            "<tr><td class=\"word\"><span class=\"swatch {class}\"></span><code>{label}</code></td><td>{}</td><td>{range}</td>",
            f.points.len()
        );
        let laws: Vec<Law> = [f.law, f.with_constant].into_iter().flatten().collect();
        let said: Vec<String> = laws.iter().map(written).collect();
        let exponents = laws.iter().map(|l| {
            format!(
                "{} ± {}",
                digits(-l.b).replace('-', "−"),
                digits(l.b_half_width)
            )
        });
        let exponents: Vec<String> = exponents.collect();
        match (&f.why, laws.is_empty()) {
            (Some(why), _) => {
                let why = markup(&escaped(why));
                let _ = writeln!(out, "<td class=\"word\" colspan=\"2\">{why}</td></tr>");
            }
            (None, true) => *out += "<td class=\"word\" colspan=\"2\">no law</td></tr>\n",
            (None, false) => {
                let _ = writeln!(
                    out,
                    "<td class=\"word\">{}</td><td>{}</td></tr>",
                    said.join("<br>"),
                    exponents.join("<br>")
                );
            }
        }
    }
    *out += "</tbody>\n</table></div>\n";
}
