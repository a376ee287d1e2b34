//! Loss curves, as SVG and as characters.
//!
//! Takes the points of a run; gives text. The training loss is averaged over equal stretches of steps
//! (the band shows their extremes), held-out losses are dots. Equal points give equal bytes.

use crate::data::dataset::Unit;
use crate::system::shown::markup;
use odec_text::number::count;
use std::fmt::Write;

/// A run's losses over its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    pub title: String,
    /// What the loss is a mean over: token or image.
    pub unit: Unit,
    /// Whether it is of numbers, and in no unit.
    pub of_numbers: bool,
    /// (step, loss in nats per token or image, or of numbers), in order.
    pub train: Vec<(f64, f64)>,
    pub held_out: Vec<(f64, f64)>,
}

/// The losses of neighbouring steps: where these end, the mean, the least and the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossRange {
    pub step: f64,
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Curve {
    /// The points of a run's metrics.
    pub fn of(title: &str, records: &[crate::train::metrics::Record]) -> Curve {
        use crate::train::metrics::Record;
        let mut c = Curve {
            title: title.into(),
            ..Curve::default()
        };
        for r in records {
            match r {
                Record::Step(s) => {
                    c.unit = s.speed.unit();
                    c.train.push((s.step as f64, s.loss));
                }
                Record::HeldOut(h) => c.held_out.push((h.step as f64, h.held_out_loss)),
                Record::Warning(_) | Record::Movement(_) => {}
            }
        }
        c
    }

    /// Without the points that cannot be drawn.
    pub fn finite(&self) -> Curve {
        let keep =
            |points: &[(f64, f64)]| points.iter().copied().filter(|p| p.1.is_finite()).collect();
        Curve {
            title: self.title.clone(),
            unit: self.unit,
            of_numbers: self.of_numbers,
            train: keep(&self.train),
            held_out: keep(&self.held_out),
        }
    }

    /// Cuts the training losses into at most `n` stretches.
    pub fn stretches(&self, n: usize) -> Vec<LossRange> {
        let size = self.train.len().div_ceil(n).max(1);
        let stretch = |points: &[(f64, f64)]| LossRange {
            step: points.iter().map(|p| p.0).sum::<f64>() / points.len() as f64,
            mean: points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64,
            low: points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min),
            high: points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max),
        };
        self.train.chunks(size).map(stretch).collect()
    }

    /// Ranges of steps and losses that hold all points.
    fn ranges(&self) -> Option<(Axis, Axis)> {
        let points = || self.train.iter().chain(&self.held_out);
        let last = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let low = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let high = points().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
        (low <= high).then(|| {
            (
                Axis::new(0.0, last.max(1.0), 8, false),
                Axis::new(low, high, 6, true),
            )
        })
    }
}

/// A range with round ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    step: f64,
}

impl Axis {
    /// Holds `from..=to` with at most `most` intervals of 1, 2 or 5 times a power of ten. `round`: widened
    /// to whole intervals; else intervals are whole numbers.
    pub fn new(from: f64, to: f64, most: usize, round: bool) -> Axis {
        let span = if to > from { to - from } else { 1.0 };
        let raw = span / most as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * power)
            .into_iter()
            .find(|s| *s >= raw * (1.0 - 1e-9));
        // Steps are whole numbers.
        let step = step
            .unwrap_or(10.0 * power)
            .max(if round { 0.0 } else { 1.0 });
        let (from, to) = if round {
            ((from / step).floor() * step, (to / step).ceil() * step)
        } else {
            (from, from + span)
        };
        Axis {
            from,
            to: if to > from { to } else { from + step },
            step,
        }
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let first = (self.from / self.step - 1e-9).ceil();
        let count = ((self.to / self.step + 1e-9).floor() - first) as u64;
        (0..=count).map(move |i| (first + i as f64) * self.step)
    }

    /// 0 at `from`, 1 at `to`.
    pub fn place(&self, x: f64) -> f64 {
        (x - self.from) / (self.to - self.from)
    }

    /// A tick's number with as many decimals as the interval needs, thousands as k.
    pub fn label(&self, x: f64) -> String {
        if self.to >= 10_000.0 && self.step >= 100.0 {
            let decimals = usize::from(self.step < 1000.0);
            return if x == 0.0 {
                "0".into()
            } else {
                format!("{:.decimals$}k", x / 1000.0)
            };
        }
        let decimals = (-(self.step.log10() + 1e-9).floor()).max(0.0) as usize;
        format!("{x:.decimals$}")
    }
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Left, top, right and bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (64.0, 56.0, 736.0, 364.0);

/// Colours as classes, so that a dark page gets a dark chart.
const STYLE: &str = "\
    .page{fill:#fcfcfb}.ink{fill:#1f2328}.soft{fill:#656d76}.grid{stroke:#e4e4e0}.axis{stroke:#8c959f}\
    .line{stroke:#2a78d6}.band{fill:#2a78d6;opacity:.16}.dot{fill:#d9541e;stroke:#fcfcfb}.held{stroke:#d9541e}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}\
    .grid{stroke:#2b2f36}.axis{stroke:#6b7480}.line{stroke:#5aa2f2}.band{fill:#5aa2f2}\
    .dot{fill:#ff8a55;stroke:#16181c}.held{stroke:#ff8a55}}";

/// The curve as a self-contained SVG picture.
pub fn svg(c: &Curve) -> String {
    let c = &c.finite();
    let (left, top, right, bottom) = PLOT;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Loss of {title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
         <text class=\"ink\" x=\"{left}\" y=\"26\" font-size=\"16\" font-weight=\"600\">{title}</text>\n",
        title = markup(&c.title),
    );
    let Some((xs, ys)) = c.ranges() else {
        s.push_str("<text class=\"soft\" x=\"64\" y=\"200\">no steps yet</text>\n</svg>\n");
        return s;
    };
    let x = |v: f64| left + xs.place(v) * (right - left);
    let y = |v: f64| bottom - ys.place(v) * (bottom - top);
    for t in ys.ticks() {
        let (at, label) = (y(t), ys.label(t));
        let _ = writeln!(
            s,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        let (tx, ty) = (left - 8.0, at + 4.5);
        let _ = writeln!(
            s,
            "<text class=\"soft\" x=\"{tx}\" y=\"{ty:.1}\" text-anchor=\"end\">{label}</text>"
        );
    }
    for t in xs.ticks() {
        let (at, label) = (x(t), xs.label(t));
        let (y1, y2, ty) = (bottom, bottom + 5.0, bottom + 20.0);
        let _ = writeln!(
            s,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{y1}\" y2=\"{y2}\"/>"
        );
        let _ = writeln!(
            s,
            "<text class=\"soft\" x=\"{at:.1}\" y=\"{ty}\" text-anchor=\"middle\">{label}</text>"
        );
    }
    let _ = writeln!(
        s,
        "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
    );
    let middle = (left + right) / 2.0;
    let _ = writeln!(
        s,
        "<text class=\"soft\" x=\"{middle}\" y=\"404\" text-anchor=\"middle\">step</text>"
    );
    let _ = writeln!(
        s,
        "<text class=\"soft\" x=\"{left}\" y=\"45\">{}</text>",
        match c.unit {
            Unit::Tokens | Unit::Images if !c.of_numbers =>
                format!("loss, nats per {}", c.unit.one()),
            Unit::Tokens | Unit::Images | Unit::Sequences => "loss".into(),
        }
    );

    let stretches = c.stretches(120);
    if stretches.iter().any(|p| p.high > p.low) {
        let upper = stretches.iter().map(|p| (p.step, p.high));
        let lower = stretches.iter().rev().map(|p| (p.step, p.low));
        let points: Vec<String> = upper
            .chain(lower)
            .map(|(a, b)| format!("{:.1},{:.1}", x(a), y(b)))
            .collect();
        let _ = writeln!(
            s,
            "<polygon class=\"band\" points=\"{}\"/>",
            points.join(" ")
        );
    }
    let points: Vec<String> = stretches
        .iter()
        .map(|p| format!("{:.1},{:.1}", x(p.step), y(p.mean)))
        .collect();
    let _ = writeln!(
        s,
        "<polyline class=\"line\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\" points=\"{}\"/>",
        points.join(" ")
    );
    for (step, loss) in &c.held_out {
        let (cx, cy) = (x(*step), y(*loss));
        let _ = writeln!(
            s,
            "<circle class=\"dot\" stroke-width=\"1.5\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4.5\"/>"
        );
    }
    s.push_str(&legend(c, &stretches));
    s.push_str("</svg>\n");
    s
}

/// Names of the marks with their last values, at the top right.
fn legend(c: &Curve, stretches: &[LossRange]) -> String {
    let (_, _, right, _) = PLOT;
    let mut s = String::new();
    let mut text = |x: f64, words: String| {
        let _ = writeln!(s, "<text class=\"ink\" x=\"{x}\" y=\"45\">{words}</text>");
    };
    let held_out = c.held_out.last().map(|(_, loss)| {
        text(right - 96.0, format!("held out {loss:.3}"));
        let cx = right - 106.0;
        format!("<circle class=\"dot\" stroke-width=\"1.5\" cx=\"{cx}\" cy=\"40.5\" r=\"4.5\"/>\n")
    });
    let training = stretches.last().map(|last| {
        let at = right - if held_out.is_some() { 230.0 } else { 98.0 };
        text(at, format!("training {:.3}", last.mean));
        let (x1, x2) = (at - 26.0, at - 7.0);
        format!("<line class=\"line\" stroke-width=\"2\" x1=\"{x1}\" x2=\"{x2}\" y1=\"40.5\" y2=\"40.5\"/>\n")
    });
    s.extend(held_out);
    s.extend(training);
    s
}

/// The curve in braille dots, `width` × `height` characters without labels; held-out losses are `●`.
pub fn terminal(c: &Curve, width: usize, height: usize) -> String {
    let (c, width, height) = (&c.finite(), width.max(8), height.max(3));
    let Some((xs, ys)) = c.ranges() else {
        return "no steps yet\n".into();
    };
    let (columns, rows) = (2 * width, 4 * height);
    let column = |v: f64| ((xs.place(v) * (columns - 1) as f64).round() as usize).min(columns - 1);
    let row = |v: f64| (((1.0 - ys.place(v)) * (rows - 1) as f64).round() as usize).min(rows - 1);
    let mut cells = vec![vec![0u8; width]; height];
    // The dot bits of a braille character, by row and column.
    const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    let mut dot = |c: usize, r: usize| cells[r / 4][c / 2] |= DOTS[r % 4][c % 2];
    let mut before: Option<(usize, usize)> = None;
    for p in c.stretches(columns) {
        let (c, r) = (column(p.step), row(p.mean));
        // Joins neighbours with a line, one dot per column and no gaps in rows.
        let (c0, r0) = before.unwrap_or((c, r));
        for i in c0..=c {
            let at = |i: usize| {
                if c == c0 {
                    r
                } else {
                    (r0 * (c - i) + r * (i - c0)) / (c - c0)
                }
            };
            let (a, b) = (at(i.saturating_sub(1).max(c0)), at(i));
            (a.min(b)..=a.max(b)).for_each(|r| dot(i, r));
        }
        before = Some((c, r));
    }
    let mut text: Vec<Vec<char>> = cells
        .iter()
        .map(|line| {
            line.iter()
                .map(|b| char::from_u32(0x2800 + u32::from(*b)).unwrap_or(' '))
                .collect()
        })
        .collect();
    for (step, loss) in &c.held_out {
        text[row(*loss) / 4][column(*step) / 2] = '●';
    }
    let mut labels = vec![String::new(); height];
    for t in ys.ticks() {
        labels[row(t) / 4] = ys.label(t);
    }
    let margin = labels.iter().map(String::len).max().unwrap_or(0);
    let mut out = String::new();
    for (label, line) in labels.iter().zip(&text) {
        let mark = if label.is_empty() { '│' } else { '┤' };
        let _ = writeln!(
            out,
            "{label:>margin$} {mark}{}",
            line.iter().collect::<String>().trim_end_matches('\u{2800}')
        );
    }
    let _ = writeln!(out, "{:margin$} └{}", "", "─".repeat(width));
    let (first, last) = (xs.label(xs.from), xs.label(xs.to.floor()));
    let unit = match xs.to.floor() {
        1.0 => count(1, "step"),
        _ => format!("{last} steps"),
    };
    let gap = width.saturating_sub(first.len() + unit.len());
    let _ = writeln!(out, "{:margin$}  {first}{:gap$}{unit}", "", "");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(n: usize) -> Curve {
        let loss = |s: f64| 1.6 + 4.0 * (-s / 120.0).exp();
        let train = (1..=n).map(|i| {
            (
                i as f64,
                loss(i as f64) + 0.15 * ((i * 7919 % 101) as f64 / 50.0 - 1.0),
            )
        });
        let held_out = (1..=10)
            .map(|i| (i * n / 10) as f64)
            .map(|s| (s, loss(s) + 0.12));
        Curve {
            title: "iiet <r = 3>".into(),
            unit: Unit::Tokens,
            of_numbers: false,
            train: train.collect(),
            held_out: held_out.collect(),
        }
    }

    #[test]
    fn a_run_as_svg() {
        insta::assert_snapshot!(svg(&curve(600)));
    }

    #[test]
    fn a_run_in_the_terminal() {
        insta::assert_snapshot!(terminal(&curve(600), 60, 12));
    }

    #[test]
    fn odd_curves_are_drawn_too() {
        let flat = Curve {
            train: vec![(1.0, 2.0)],
            ..Curve::default()
        };
        let broken = Curve {
            train: vec![(1.0, 2.0), (2.0, f64::NAN)],
            held_out: vec![(2.0, f64::INFINITY)],
            ..Curve::default()
        };
        for c in [Curve::default(), flat, broken, curve(2), curve(25_000)] {
            let (picture, text) = (svg(&c), terminal(&c, 40, 6));
            assert!(picture.ends_with("</svg>\n") && text.ends_with('\n'));
            assert!(!picture.contains("inf"), "{picture}");
        }
    }

    #[test]
    fn ticks_are_round() {
        let labels = |a: Axis| a.ticks().map(|t| a.label(t)).collect::<Vec<_>>().join(" ");
        assert_eq!(labels(Axis::new(1.47, 5.61, 6, true)), "1 2 3 4 5 6");
        assert_eq!(
            labels(Axis::new(2.43, 2.61, 6, true)),
            "2.40 2.45 2.50 2.55 2.60 2.65"
        );
        assert_eq!(
            labels(Axis::new(0.0, 600.0, 8, false)),
            "0 100 200 300 400 500 600"
        );
        assert_eq!(
            labels(Axis::new(0.0, 30_000.0, 8, false)),
            "0 5k 10k 15k 20k 25k 30k"
        );
        assert_eq!(labels(Axis::new(3.0, 3.0, 6, true)), "3.0 3.2");
    }
}
