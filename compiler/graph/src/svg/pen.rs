//! Strokes, colours and text: the only file that writes SVG elements.

use std::fmt::Write;

/// What a line or box is about: stroke, fill.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Colour(pub &'static str, pub &'static str);

pub(super) const STATE: Colour = Colour("#3b82f6", "#dbeafe");
pub(super) const FIELD: Colour = Colour("#d97706", "#fef0d8");
pub(super) const SUM: Colour = Colour("#0d9488", "#d8f3ee");
pub(super) const PART: Colour = Colour("#7c5cd6", "#ebe6fb");
/// On boxes, which bring their own background.
const INK: &str = "#1f2430";
/// On a background that may be light or dark.
pub(super) const GREY: &str = "#7b8794";

/// How text looks.
#[derive(Clone, Copy)]
pub(super) struct Font {
    size: f64,
    colour: &'static str,
    bold: bool,
    mono: bool,
}

pub(super) const HEADING: Font = Font::new(17.0, GREY).bold();
pub(super) const NAME: Font = Font::new(13.0, INK).bold();
pub(super) const NOTE: Font = Font::new(11.0, INK);
pub(super) const FORMULA: Font = Font::new(13.0, INK).mono();
pub(super) const OUTER_NAME: Font = Font::new(13.0, GREY);
pub(super) const OUTER_NOTE: Font = Font::new(11.0, GREY);
pub(super) const OUTER_TYPE: Font = Font::new(11.0, GREY).mono();

impl Font {
    const fn new(size: f64, colour: &'static str) -> Font {
        Font {
            size,
            colour,
            bold: false,
            mono: false,
        }
    }
    pub const fn bold(self) -> Font {
        Font { bold: true, ..self }
    }
    const fn mono(self) -> Font {
        Font { mono: true, ..self }
    }
    /// Pixels of a text: exact for monospace, generous for the rest.
    pub fn width(self, s: &str) -> f64 {
        let of_one = match (self.mono, self.bold) {
            (true, _) => 0.602,
            (false, false) => 0.58,
            (false, true) => 0.66,
        };
        s.chars().count() as f64 * of_one * self.size
    }
}

/// Writes SVG elements.
#[derive(Default)]
pub(super) struct Pen {
    out: String,
}

impl Pen {
    /// The whole picture; `title` is for those who cannot see it.
    pub fn finish(self, width: f64, height: f64, title: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{}</title>\n\
             <style>text {{ font-family: 'DejaVu Sans', Verdana, sans-serif; }} \
             .m {{ font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; }}</style>\n{}</svg>\n",
            escaped(title),
            self.out
        )
    }

    fn put(&mut self, args: std::fmt::Arguments) {
        writeln!(self.out, "{args}").expect("strings take everything");
    }

    pub fn rect(&mut self, x: f64, y: f64, w: f64, h: f64, r: f64, c: Colour) {
        let Colour(stroke, fill) = c;
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"{r}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.4\"/>"
        ));
    }

    /// A frame that lets the background through.
    pub fn frame(&mut self, x: f64, y: f64, w: f64, h: f64) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"12\" fill=\"#808a9a\" fill-opacity=\"0.09\" stroke=\"{GREY}\" stroke-opacity=\"0.6\"/>"
        ));
    }

    /// Text that starts at x.
    pub fn text(&mut self, x: f64, y: f64, s: &str, font: Font) {
        self.letters(x, y, s, font, "start");
    }

    /// Text with its middle at x.
    pub fn centred(&mut self, x: f64, y: f64, s: &str, font: Font) {
        self.letters(x, y, s, font, "middle");
    }

    fn letters(&mut self, x: f64, y: f64, s: &str, font: Font, anchor: &str) {
        let Font {
            size,
            colour,
            bold,
            mono,
        } = font;
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let class = if mono { " class=\"m\"" } else { "" };
        let s = escaped(s);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{weight}{class}>{s}</text>"
        ));
    }

    /// A line with rounded corners.
    pub fn line(&mut self, points: &[(f64, f64)], c: Colour) {
        let mut d = format!("M{:.1} {:.1}", points[0].0, points[0].1);
        for i in 1..points.len() {
            let (x, y) = points[i];
            match points.get(i + 1) {
                None => d += &format!(" L{x:.1} {y:.1}"),
                Some(next) => {
                    let ((ax, ay), (bx, by)) =
                        (toward((x, y), points[i - 1]), toward((x, y), *next));
                    d += &format!(" L{ax:.1} {ay:.1} Q{x:.1} {y:.1} {bx:.1} {by:.1}");
                }
            }
        }
        let stroke = c.0;
        self.put(format_args!(
            "<path d=\"{d}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.6\"/>"
        ));
    }

    /// A line that ends in an arrowhead; its last stretch is level or upright.
    pub fn arrow(&mut self, points: &[(f64, f64)], c: Colour) {
        let n = points.len();
        let ((x0, y0), (x, y)) = (points[n - 2], points[n - 1]);
        let sign = |d: f64| if d == 0.0 { 0.0 } else { d.signum() };
        let (dx, dy) = (sign(x - x0), sign(y - y0));
        let mut shaft = points.to_vec();
        shaft[n - 1] = (x - 6.0 * dx, y - 6.0 * dy);
        self.line(&shaft, c);
        let (bx, by) = (x - 8.0 * dx, y - 8.0 * dy);
        let ((lx, ly), (rx, ry)) = (
            (bx - 4.0 * dy, by - 4.0 * dx),
            (bx + 4.0 * dy, by + 4.0 * dx),
        );
        let fill = c.0;
        self.put(format_args!(
            "<path d=\"M{x:.1} {y:.1} L{lx:.1} {ly:.1} L{rx:.1} {ry:.1} Z\" fill=\"{fill}\"/>"
        ));
    }

    /// Where a line branches.
    pub fn dot(&mut self, x: f64, y: f64, c: Colour) {
        let fill = c.0;
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\"/>"
        ));
    }
}

/// A point a corner's radius from `at` in the direction of `to`.
fn toward(at: (f64, f64), to: (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (to.0 - at.0, to.1 - at.1);
    let length = dx.hypot(dy).max(1e-9);
    let r = (length / 2.0).min(5.0) / length;
    (at.0 + dx * r, at.1 + dy * r)
}

fn escaped(s: &str) -> String {
    s.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
