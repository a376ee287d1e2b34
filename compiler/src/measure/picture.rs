//! Convergence and work–precision diagrams: error against step size, and against field evaluations, as SVG.
//!
//! Takes measured curves; gives one self-contained picture with two panels of logarithmic axes, which share the errors. The first shows, for each
//! proved order, a triangle of that slope. Equal curves give equal bytes.

use super::slope::{Curve, Point};
use std::fmt::Write;

/// A curve in a picture.
pub struct Line<'c> {
    pub name: &'c str,
    pub proved: Option<usize>,
    pub curve: &'c Curve,
}

/// What a picture says beside its curves.
#[derive(Clone, Copy, Debug)]
pub struct Titles<'t> {
    pub title: &'t str,
    /// What the methods are applied to.
    pub subject: &'t str,
    /// What the vertical axis shows.
    pub error: &'t str,
}

const HEIGHT: f64 = 440.0;
/// Top and bottom of both panels; left and right of each.
const TOP: f64 = 64.0;
const BOTTOM: f64 = 384.0;
const PANELS: [(f64, f64); 2] = [(64.0, 400.0), (476.0, 812.0)];

/// Colours that keep apart for most eyes (Okabe & Ito 2008), on light and dark grounds.
pub const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98",
];

const STYLE: &str = ".page{fill:#fcfcfb}.ink{fill:#23272e}.soft{fill:#6b7480}.grid{stroke:#e4e6ea}.axis{stroke:#9aa2ad}\
    .triangle{stroke:#6b7480;fill:none}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}\
    .grid{stroke:#2b2f36}.axis{stroke:#6b7480}.triangle{stroke:#9aa2ad}}";

/// Whole powers of a base that hold all values.
struct Axis {
    base: f64,
    from: i32,
    to: i32,
}

impl Axis {
    fn new(base: f64, values: impl Iterator<Item = f64>) -> Axis {
        let logs = values.map(|v| v.ln() / base.ln());
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| {
            (a.min(x), b.max(x))
        });
        let (from, to) = ((low - 0.02).floor() as i32, (high + 0.02).ceil() as i32);
        Axis {
            base,
            from,
            to: to.max(from + 1),
        }
    }

    /// From 0 to 1.
    fn place(&self, v: f64) -> f64 {
        (v.ln() / self.base.ln() - f64::from(self.from)) / f64::from(self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = i32> + '_ {
        let step = ((self.to - self.from + 7) / 8).max(1);
        (self.from..=self.to).filter(move |k| (k - self.from) % step == 0)
    }
}

/// The picture of some methods.
pub fn svg(titles: Titles, lines: &[Line]) -> String {
    let (title, subject) = (titles.title, titles.subject);
    // Names of the library are in ASCII; a letter of the widest fonts is 8.5 wide.
    let longest = lines.iter().map(|l| l.name.len()).max().unwrap_or(0);
    let width = (PANELS[1].1 + 58.0 + 8.5 * longest as f64)
        .max(960.0)
        .ceil();
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{HEIGHT}\"/>\n\
         <text class=\"ink\" x=\"{}\" y=\"28\" font-size=\"16\" font-weight=\"600\">{title}</text>\n",
        PANELS[0].0,
    );
    let _ = writeln!(
        s,
        "<text class=\"soft\" x=\"{}\" y=\"28\" text-anchor=\"end\">{subject}</text>",
        PANELS[1].1
    );
    let points = || lines.iter().flat_map(|l| &l.curve.points);
    if points().next().is_none() {
        s.push_str("<text class=\"soft\" x=\"64\" y=\"200\">nothing was measured</text>\n</svg>\n");
        return s;
    }
    let errors = Axis::new(10.0, points().map(|p| p.error));
    let sizes: [fn(&Point) -> f64; 2] = [|p| p.h, |p| p.evaluations as f64];
    let names = ["step size h", "field evaluations"];
    for (n, (size, name)) in sizes.iter().zip(names).enumerate() {
        let panel = Panel {
            left: PANELS[n].0,
            right: PANELS[n].1,
            xs: Axis::new(if n == 0 { 2.0 } else { 10.0 }, points().map(size)),
            ys: &errors,
            error: titles.error,
        };
        panel.frame(&mut s, name);
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let at: Vec<(f64, f64)> = line
                .curve
                .points
                .iter()
                .map(|p| (size(p), p.error))
                .collect();
            panel.curve(&mut s, &at, colour);
        }
        if n == 0 {
            panel.triangles(&mut s, lines);
        }
    }
    for (i, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let (x, y) = (PANELS[1].1 + 20.0, TOP + 12.0 + 40.0 * i as f64);
        let _ = writeln!(
            s,
            "<line stroke=\"{colour}\" stroke-width=\"2\" x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
            x + 16.0
        );
        let orders = match (line.curve.order, line.proved) {
            (Some(m), Some(p)) => format!("order {p}, measured {m:.2}"),
            (Some(m), None) => format!("measured {m:.2}"),
            (None, Some(p)) => format!("order {p}"),
            (None, None) => String::new(),
        };
        let (tx, ty, oy) = (x + 22.0, y + 4.5, y + 19.0);
        let _ = writeln!(
            s,
            "<text class=\"ink\" x=\"{tx}\" y=\"{ty}\">{}</text>",
            line.name
        );
        let _ = writeln!(
            s,
            "<text class=\"soft\" font-size=\"10\" x=\"{x}\" y=\"{oy}\">{orders}</text>"
        );
    }
    s.push_str("</svg>\n");
    s
}

struct Panel<'a> {
    left: f64,
    right: f64,
    xs: Axis,
    ys: &'a Axis,
    /// What `ys` shows.
    error: &'a str,
}

impl Panel<'_> {
    fn x(&self, v: f64) -> f64 {
        self.left + self.xs.place(v) * (self.right - self.left)
    }

    fn y(&self, v: f64) -> f64 {
        BOTTOM - self.ys.place(v) * (BOTTOM - TOP)
    }

    /// Axes with their ticks and names.
    fn frame(&self, s: &mut String, name: &str) {
        let (left, right) = (self.left, self.right);
        for k in self.ys.ticks() {
            let y = self.y(10f64.powi(k));
            let _ = writeln!(
                s,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            let (tx, ty) = (left - 8.0, y + 4.5);
            let _ = writeln!(
                s,
                "<text class=\"soft\" x=\"{tx}\" y=\"{ty:.1}\" text-anchor=\"end\">10<tspan dy=\"-4\" font-size=\"9\">{k}</tspan></text>"
            );
        }
        for k in self.xs.ticks() {
            let x = self.x(self.xs.base.powi(k));
            let (y, ty, base) = (BOTTOM + 5.0, BOTTOM + 20.0, self.xs.base);
            let _ = writeln!(
                s,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{y}\"/>"
            );
            let _ = writeln!(
                s,
                "<text class=\"soft\" x=\"{x:.1}\" y=\"{ty}\" text-anchor=\"middle\">{base}<tspan dy=\"-4\" font-size=\"9\">{k}</tspan></text>"
            );
        }
        let _ = writeln!(
            s,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>"
        );
        let (middle, below, above) = ((left + right) / 2.0, BOTTOM + 40.0, TOP - 12.0);
        let _ = writeln!(
            s,
            "<text class=\"soft\" x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"
        );
        let _ = writeln!(
            s,
            "<text class=\"soft\" x=\"{left}\" y=\"{above}\">{}</text>",
            self.error
        );
    }

    fn curve(&self, s: &mut String, at: &[(f64, f64)], colour: &str) {
        let place = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", self.x(*x), self.y(*y));
        let points: Vec<String> = at.iter().map(place).collect();
        let _ = writeln!(
            s,
            "<polyline stroke=\"{colour}\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\" points=\"{}\"/>",
            points.join(" ")
        );
        for (x, y) in at {
            let (cx, cy) = (self.x(*x), self.y(*y));
            let _ = writeln!(
                s,
                "<circle fill=\"{colour}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\"/>"
            );
        }
    }

    /// Under the middle of each curve, the slope of its proved order over a factor of √2; each order once.
    fn triangles(&self, s: &mut String, lines: &[Line]) {
        let mut drawn = Vec::new();
        for l in lines {
            let (Some(p), n) = (l.proved, l.curve.points.len()) else {
                continue;
            };
            if n < 2 || drawn.contains(&p) {
                continue;
            }
            drawn.push(p);
            let at = &l.curve.points[n * 2 / 3];
            let wide = std::f64::consts::SQRT_2;
            let (x0, x1) = (self.x(at.h * 1.06), self.x(at.h * 1.06 * wide));
            let (y0, y1) = (self.y(at.error), self.y(at.error * wide.powi(p as i32)));
            let corners = format!("{x0:.1},{y0:.1} {x1:.1},{y0:.1} {x1:.1},{y1:.1}");
            let _ = writeln!(s, "<polygon class=\"triangle\" points=\"{corners}\"/>");
            let (tx, ty) = (x1 + 4.0, (y0 + y1) / 2.0 + 4.5);
            let _ = writeln!(
                s,
                "<text class=\"soft\" font-size=\"11\" x=\"{tx:.1}\" y=\"{ty:.1}\">{p}</text>"
            );
        }
    }
}
