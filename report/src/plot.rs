//! Axes with marks on them, drawn into a page: colours and sizes are classes of its style sheet.
//!
//! Takes points in units of their own; gives `<svg>` elements. Each picture is drawn wide and narrow, and the style sheet shows the one for which
//! there is room, so that texts keep their size.

use odec_compiler::text::number::flops;
use odec_runtime::system::shown::markup;
use odec_runtime::train::chart::Axis;
use std::fmt::Write;

/// Colours of curves; what comes after has the same ones with other dashes.
pub const COLOURS: usize = 8;

/// The sizes of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub class: &'static str,
    pub width: f64,
    pub height: f64,
    /// Most intervals of the horizontal axis.
    ticks: usize,
}

pub const SIZES: [Size; 2] = [
    Size {
        class: "wide",
        width: 760.0,
        height: 380.0,
        ticks: 8,
    },
    Size {
        class: "narrow",
        width: 360.0,
        height: 300.0,
        ticks: 4,
    },
];

/// Room around the plot: left, top, right, bottom.
const ROOM: [f64; 4] = [52.0, 30.0, 14.0, 46.0];

/// The largest radius of a dot with its rim.
const DOT: f64 = 6.0;

/// What a number counts, in units that leave few digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Of how many the numbers of the axis are.
    pub of: f64,
    pub name: String,
}

impl Unit {
    /// The largest of some units in which numbers up to `most` reach 4; the first one at least.
    fn of(most: f64, units: &[(f64, &str)]) -> Unit {
        let fits = units.iter().rev().find(|(of, _)| most >= 4.0 * of);
        let (of, name) = fits.unwrap_or(&units[0]);
        Unit {
            of: *of,
            name: name.to_string(),
        }
    }

    /// Of counts of something: `tokens, millions`.
    pub fn count(what: &str, most: f64) -> Unit {
        let units = [
            (1.0, ""),
            (1e3, ", thousands"),
            (1e6, ", millions"),
            (1e9, ", billions"),
        ];
        Unit::of(most, &units).after(what)
    }

    /// Of floating-point operations: `training FLOPs, 10¹²`.
    pub fn flops(what: &str, most: f64) -> Unit {
        let units = [
            (1.0, ""),
            (1e3, ", 10³"),
            (1e6, ", 10⁶"),
            (1e9, ", 10⁹"),
            (1e12, ", 10¹²"),
            (1e15, ", 10¹⁵"),
            (1e18, ", 10¹⁸"),
            (1e21, ", 10²¹"),
        ];
        Unit::of(most, &units).after(what)
    }

    pub fn seconds(most: f64) -> Unit {
        let units = [(1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "d")];
        let unit = Unit::of(most, &units);
        let name = format!("time of training, {}", unit.name);
        Unit { name, ..unit }
    }

    pub fn bytes(what: &str, most: f64) -> Unit {
        let units = [
            (1.0, ", B"),
            (1024.0, ", KiB"),
            (1_048_576.0, ", MiB"),
            (1_073_741_824.0, ", GiB"),
        ];
        Unit::of(most, &units).after(what)
    }

    fn after(self, what: &str) -> Unit {
        let name = format!("{what}{}", self.name);
        Unit { name, ..self }
    }
}

/// What the horizontal axis holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Across {
    /// From 0.
    To(f64),
    /// From a round number.
    Between(f64, f64),
    /// Numbers above 0, equal factors being equally far apart.
    Logs(f64, f64),
}

/// A picture being drawn.
pub struct Plot {
    size: Size,
    unit: Unit,
    x: Axis,
    /// Whether `x` is of logarithms to the base 10.
    logs: bool,
    y: Axis,
    out: String,
}

impl Plot {
    /// A picture with its axes; `id` is its own on the page. Horizontal numbers are in `unit`s.
    pub fn new(
        size: Size,
        id: &str,
        unit: &Unit,
        across: Across,
        y: (f64, f64),
        names: [&str; 2],
    ) -> Plot {
        // A single point has room around it.
        let apart = |from: f64, to: f64| match to > from {
            true => (from, to),
            false => (
                from - 0.05 * from.abs(),
                to + 0.05 * to.abs() + f64::from(u8::from(to == 0.0)),
            ),
        };
        let (low, high) = apart(y.0, y.1);
        let x = match across {
            Across::To(most) => Axis::new(0.0, (most / unit.of).max(1.0), size.ticks, false),
            Across::Between(from, to) => {
                let (from, to) = apart(from / unit.of, to / unit.of);
                Axis::new(from, to, size.ticks, true)
            }
            Across::Logs(from, to) => {
                let (from, to) = ((from / unit.of).log10(), (to / unit.of).log10());
                // Room for dots at both ends.
                let room = (0.04 * (to - from)).max(0.02);
                let mut axis = Axis::new(from, to, size.ticks, true);
                (axis.from, axis.to) = (from - room, to + room);
                axis
            }
        };
        let mut plot = Plot {
            size,
            unit: unit.clone(),
            x,
            logs: matches!(across, Across::Logs(..)),
            y: Axis::new(low, high, 6, true),
            out: String::new(),
        };
        plot.frame(id, names);
        plot
    }

    fn put(&mut self, args: std::fmt::Arguments) {
        writeln!(self.out, "{args}").expect("strings take everything");
    }

    /// The corners: left, top, right, bottom.
    fn corners(&self) -> [f64; 4] {
        let [left, top, right, bottom] = ROOM;
        [
            left,
            top,
            self.size.width - right,
            self.size.height - bottom,
        ]
    }

    fn frame(&mut self, id: &str, [title, y_name]: [&str; 2]) {
        let Size {
            class,
            width,
            height,
            ..
        } = self.size;
        let [left, top, right, bottom] = self.corners();
        let (title, y_name) = (markup(title), markup(y_name));
        self.put(format_args!(
            "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">"
        ));
        let w = right - left;
        // Dots at the ends of axes are whole; what is above the largest loss is cut.
        let (x, wide, high) = (left - DOT, w + 2.0 * DOT, bottom - top + DOT);
        self.put(format_args!(
            "<clipPath id=\"{id}-{class}\"><rect x=\"{x}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\"/></clipPath>"
        ));
        for t in self.y.ticks().collect::<Vec<_>>() {
            let (at, label) = (self.vertical(t), self.y.label(t));
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            ));
            let (x, y) = (left - 7.0, at + 4.0);
            self.put(format_args!(
                "<text class=\"soft end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>"
            ));
        }
        for (place, label) in self.ticks() {
            let at = left + place * w;
            let (end, y) = (bottom + 5.0, bottom + 19.0);
            self.put(format_args!(
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{end}\"/>"
            ));
            self.put(format_args!(
                "<text class=\"soft mid\" x=\"{at:.1}\" y=\"{y}\">{label}</text>"
            ));
        }
        self.put(format_args!(
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        ));
        let (middle, below, above) = ((left + right) / 2.0, height - 8.0, top - 12.0);
        let name = markup(&self.unit.name);
        self.put(format_args!(
            "<text class=\"soft mid\" x=\"{middle}\" y=\"{below}\">{name}</text>"
        ));
        self.put(format_args!(
            "<text class=\"soft\" x=\"4\" y=\"{above}\">{y_name}</text>"
        ));
        self.put(format_args!("<g clip-path=\"url(#{id}-{class})\">"));
    }

    /// Marks of the horizontal axis: where they are on it, and what stands there.
    fn ticks(&self) -> Vec<(f64, String)> {
        if !self.logs {
            let each = self.x.ticks();
            return each.map(|t| (self.x.place(t), self.x.label(t))).collect();
        }
        // 1, 2 and 5 times the powers of ten; where these are too many, the powers alone, or some of them.
        let powers = self.x.from.floor() as i32..=self.x.to.ceil() as i32;
        let made = |of: &[f64], every: i32| -> Vec<(f64, String)> {
            let some = powers.clone().filter(|k| k % every == 0);
            let all = some.flat_map(|k| of.iter().map(move |m| m * 10f64.powi(k)));
            let placed = all.map(|x| (self.x.place(x.log10()), flops(x).replace(".00", "")));
            placed.filter(|(at, _)| (0.0..=1.0).contains(at)).collect()
        };
        let few = |ticks: &Vec<_>| ticks.len() <= self.size.ticks;
        let fine = [
            (&[1.0, 2.0, 5.0][..], 1),
            (&[1.0, 3.0][..], 1),
            (&[1.0][..], 1),
        ];
        let fine = fine.map(|(of, every)| made(of, every));
        let fits = fine.into_iter().find(few);
        fits.unwrap_or_else(|| made(&[1.0], 3))
    }

    fn horizontal(&self, x: f64) -> f64 {
        let [left, _, right, _] = self.corners();
        let x = x / self.unit.of;
        let x = if self.logs { x.log10() } else { x };
        left + self.x.place(x) * (right - left)
    }

    fn vertical(&self, y: f64) -> f64 {
        let [_, top, _, bottom] = self.corners();
        bottom - self.y.place(y) * (bottom - top)
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.horizontal(x), self.vertical(y))
    }

    /// What follows belongs to a run of a kind, until [`Plot::end`]; `said` is shown where it is pointed at.
    pub fn run(&mut self, kind: usize, said: &str) {
        let class = class(kind);
        let said = markup(said);
        self.put(format_args!(
            "<g class=\"run {class}\" data-kind=\"{kind}\"><title>{said}</title>"
        ));
    }

    /// The same of one curve of several that belong to one run.
    pub fn series(&mut self, colour: usize, said: &str) {
        let (class, said) = (class(colour), markup(said));
        self.put(format_args!("<g class=\"{class}\"><title>{said}</title>"));
    }

    pub fn end(&mut self) {
        self.put(format_args!("</g>"));
    }

    pub fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let at = points.iter().map(|p| {
            let (x, y) = self.at(*p);
            format!("{x:.1} {y:.1}")
        });
        let d = at.collect::<Vec<_>>().join("L");
        if !d.is_empty() {
            self.put(format_args!("<path class=\"{class}\" d=\"M{d}\"/>"));
        }
    }

    pub fn dot(&mut self, class: &str, point: (f64, f64), radius: f64) {
        let (x, y) = self.at(point);
        self.put(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
        ));
    }

    /// A name beside a point, on the side where there is more room.
    pub fn name(&mut self, point: (f64, f64), name: &str) {
        let (x, y) = self.at(point);
        let [left, _, right, _] = self.corners();
        let (anchor, by) = match x < (left + right) / 2.0 {
            true => ("", 8.0),
            false => (" end", -8.0),
        };
        let (x, y, name) = (x + by, y - 7.0, markup(name));
        self.put(format_args!(
            "<text class=\"name{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"
        ));
    }

    pub fn finish(mut self) -> String {
        self.out += "</g>\n</svg>\n";
        self.out
    }
}

/// The colour and the dashes of a kind of runs.
pub fn class(kind: usize) -> String {
    format!("c{} d{}", kind % COLOURS, kind / COLOURS % 3)
}
