//! A training step as a picture: what ran when, on which thread, and the memory in use.
//!
//! Takes a profile; gives one self-contained SVG of its fastest step, the one least disturbed. From top to bottom: passes, steps of the model, fields, threads with
//! their launches (one line, where nobody knows of threads), the arena in use, milliseconds, and a legend of the fields. What is
//! too short to be seen is drawn with what follows it. Equal profiles give equal bytes.

use crate::profile::{Named, NamedProfile, arena};
use crate::system::shown::markup;
use crate::train::chart::Axis;
use odec_source::escape::escaped;
use odec_text::number;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 88.0;
const RIGHT: f64 = 16.0;
const PLOT: f64 = WIDTH - LEFT - RIGHT;
const TOP: f64 = 58.0;
/// Of a lane, and between two.
const LANE: f64 = 24.0;
const GAP: f64 = 5.0;
const MEMORY: f64 = 54.0;
/// A line of the legend, and how many fields stand in one.
const LEGEND: f64 = 20.0;
const COLUMNS: usize = 4;
/// The narrowest mark.
const NARROW: f64 = 0.7;
/// Of a letter, at the size of labels.
const LETTER: f64 = 6.3;
/// Fields with a colour of their own; those that come after share the last one.
const COLOURS: usize = 10;

/// Colours as classes, so that a dark page gets a dark picture.
const STYLE: &str = ".page{fill:#fcfcfb}.ink{fill:#1f2328}.soft{fill:#656d76}.on{fill:#fff;pointer-events:none}.grid{stroke:#e4e4e0}\
    .plain{fill:#e9e9e5}.area{fill:#2a78d6;opacity:.25}.rim{stroke:#2a78d6;fill:none}\
    .f0{fill:#2a6fc9}.f1{fill:#c4562a}.f2{fill:#6b7480}.f3{fill:#14804a}.f4{fill:#8250c4}.f5{fill:#a67c00}.f6{fill:#b83b78}.f7{fill:#1d8394}\
    .f8{fill:#7d5a3c}.f9{fill:#9aa2ad}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}.grid{stroke:#2b2f36}.plain{fill:#2b2f36}\
    .area{fill:#5aa2f2}.rim{stroke:#5aa2f2}}";

/// A stretch of time with what is written on it.
struct Mark {
    from: f64,
    to: f64,
    class: String,
    label: String,
    /// Shown where the pointer is.
    title: String,
}

/// The step at hand, and how its moments lie in the picture.
struct Step<'t> {
    launches: Vec<Named<'t>>,
    begin: Duration,
    time: Duration,
    /// Colours of fields, by their names, in the order in which they are met.
    colours: BTreeMap<&'t str, usize>,
}

impl Step<'_> {
    fn x(&self, at: Duration) -> f64 {
        let since = at.saturating_sub(self.begin).as_secs_f64();
        LEFT + PLOT * since / self.time.as_secs_f64().max(1e-12)
    }

    fn class(&self, field: &str) -> String {
        let n = self.colours.get(field).copied().unwrap_or(0);
        format!("f{}", n.min(COLOURS - 1))
    }
}

/// The picture; `device` in words. `None` where nothing was computed.
pub fn svg(told: &NamedProfile, device: &str) -> Option<String> {
    let step = fastest(told)?;
    let lanes = lanes(&step);
    let fields: Vec<&str> = {
        let mut all: Vec<_> = step.colours.iter().collect();
        all.sort_by_key(|(_, n)| **n);
        all.into_iter().map(|(field, _)| *field).collect()
    };
    let memory = TOP + (LANE + GAP) * lanes.len() as f64;
    let axis = memory + MEMORY + GAP;
    let legend = axis + 44.0;
    let height = legend + LEGEND * fields.len().div_ceil(COLUMNS) as f64 + 8.0;
    let mut s = String::new();
    let name = markup(&told.manifest.name);
    let _ = writeln!(
        s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',sans-serif\" font-size=\"11\" role=\"img\">\n\
         <title>A training step of {name}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
         <text class=\"ink\" x=\"16\" y=\"25\" font-size=\"15\" font-weight=\"600\">A training step of {name}</text>\n\
         <text class=\"soft\" x=\"16\" y=\"43\">{}</text>",
        markup(&said(told, &step, device))
    );
    ticks(&mut s, &step, (TOP, axis));
    for (n, (name, marks)) in lanes.iter().enumerate() {
        let y = TOP + (LANE + GAP) * n as f64;
        let _ = writeln!(
            s,
            "<text class=\"soft\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + LANE / 2.0 + 4.0,
            markup(name)
        );
        marks.iter().for_each(|m| draw(&mut s, m, y));
    }
    in_use(&mut s, told, &step, memory);
    legends(&mut s, &step, &fields, legend);
    s.push_str("</svg>\n");
    Some(s)
}

/// The fastest step.
fn fastest<'t>(told: &'t NamedProfile) -> Option<Step<'t>> {
    let all: Vec<Named> = told
        .launches()
        .filter(|n| n.launch.time.is_some())
        .collect();
    let steps = all
        .chunk_by(|a, b| a.launch.step == b.launch.step)
        .filter_map(|of| Some((of.last()?.launch.end() - of.first()?.launch.begin, of)));
    let (time, of) = steps.min_by_key(|(time, _)| *time)?;
    let mut colours = BTreeMap::new();
    let inside = |n: &&Named| n.site.step.is_some() && n.site.evaluation.is_some();
    // The fields of steps get the first colours, whatever stands before them.
    for n in of.iter().filter(inside).chain(of) {
        let next = colours.len();
        colours.entry(n.field).or_insert(next);
    }
    Some(Step {
        launches: of.to_vec(),
        begin: of[0].launch.begin,
        time,
        colours,
    })
}

/// One line about the whole.
fn said(told: &NamedProfile, step: &Step, device: &str) -> String {
    let busy: Duration = step.launches.iter().filter_map(|n| n.launch.time).sum();
    let least: Option<f64> = step.launches.iter().map(|n| told.least(n)).sum();
    let roof = least.map(|l| format!(", {:.0} % of the roof", 100.0 * l / step.time.as_secs_f64()));
    format!(
        "{device}: {}, the fastest of {}, in {}, which take {:.0} % of it{}",
        milliseconds(step.time),
        told.profile.steps,
        number::count(step.launches.len(), "launch"),
        100.0 * busy.as_secs_f64() / step.time.as_secs_f64().max(1e-12),
        roof.unwrap_or_default()
    )
}

fn milliseconds(t: Duration) -> String {
    format!("{} ms", number::milliseconds(t.as_secs_f64() * 1e3))
}

/// The lanes from top to bottom, each with its name.
fn lanes(step: &Step) -> Vec<(String, Vec<Mark>)> {
    let launches = &step.launches;
    let end = step.begin + step.time;
    // From the first launch of a group to the beginning of the next group.
    let grouped = |same: &dyn Fn(&Named, &Named) -> bool,
                   mark: &dyn Fn(&[Named]) -> (String, String)| {
        let mut groups: Vec<&[Named]> = launches.chunk_by(|a, b| same(a, b)).collect();
        groups.retain(|g| !g.is_empty());
        let nexts = groups
            .iter()
            .skip(1)
            .map(|g| g[0].launch.begin)
            .chain([end]);
        let marks = groups.iter().zip(nexts).map(|(g, to)| {
            let (class, label) = mark(g);
            let from = g[0].launch.begin;
            let title = format!(
                "{label} {}: {}, {}",
                g[0].role().name(),
                milliseconds(to - from),
                number::count(g.len(), "launch")
            );
            Mark {
                from: step.x(from),
                to: step.x(to),
                class,
                label,
                title,
            }
        });
        joined(marks.collect())
    };
    let passes = grouped(&|a, b| a.role() == b.role(), &|g| {
        ("plain".into(), g[0].role().name().into())
    });
    let within = |n: &Named| (n.site.evolve.clone(), n.site.step, n.role());
    let steps = grouped(&|a, b| within(a) == within(b), &|g| {
        let label = g[0]
            .site
            .step
            .map_or(String::new(), |k| format!("step {k}"));
        let class = if label.is_empty() { "none" } else { "plain" };
        (class.into(), label)
    });
    let fields = grouped(&|a, b| within(a) == within(b) && a.field == b.field, &|g| {
        (step.class(g[0].field), g[0].field.to_string())
    });
    let mut all = vec![
        ("pass".to_string(), passes),
        ("step".to_string(), steps),
        ("field".to_string(), fields),
    ];
    let threads = launches.iter().flat_map(|n| &n.launch.threads);
    let threads = threads.map(|t| t.thread + 1).max().unwrap_or(0);
    let mark = |n: &Named, from: Duration, time: Duration| Mark {
        from: step.x(from),
        to: step.x(from + time),
        class: step.class(n.field),
        label: escaped(&n.site.path),
        title: format!(
            "{}, {}: {}",
            n.name,
            n.kernel.spec.kind(),
            milliseconds(time)
        ),
    };
    if threads == 0 {
        let marks = launches
            .iter()
            .map(|n| mark(n, n.launch.begin, n.launch.time.unwrap_or_default()));
        all.push(("launches".into(), joined(marks.collect())));
    }
    for thread in 0..threads {
        let own = |n: &'_ Named| {
            n.launch
                .threads
                .iter()
                .find(|t| t.thread == thread)
                .copied()
        };
        let marks = launches
            .iter()
            .filter_map(|n| own(n).map(|t| mark(n, t.begin, t.time)));
        all.push((format!("thread {thread}"), joined(marks.collect())));
    }
    all
}

/// Marks with those that are too narrow drawn as one with their neighbours of the same colour.
fn joined(marks: Vec<Mark>) -> Vec<Mark> {
    let mut out: Vec<Mark> = Vec::new();
    for m in marks {
        if let Some(last) = out.last_mut() {
            let narrow = m.to - m.from < NARROW || last.to - last.from < NARROW;
            let near = m.from - last.to < NARROW;
            if narrow && near && last.class == m.class {
                // Called after the wider of the two.
                if m.to - m.from > last.to - last.from {
                    (last.label, last.title) = (m.label, m.title);
                }
                last.to = m.to;
                continue;
            }
        }
        out.push(m);
    }
    out
}

fn draw(s: &mut String, m: &Mark, y: f64) {
    if m.class == "none" {
        return;
    }
    // A hair of page between two marks, where there is room for it.
    let width = m.to - m.from;
    let shown = if width > 3.0 {
        width - 0.6
    } else {
        width.max(NARROW)
    };
    let _ = writeln!(
        s,
        "<rect class=\"{}\" x=\"{:.1}\" y=\"{y:.0}\" width=\"{shown:.1}\" height=\"{LANE}\"><title>{}</title></rect>",
        m.class,
        m.from,
        markup(&m.title)
    );
    // Some of a path says more than nothing: its last part.
    let last = m.label.rsplit(['.', ' ']).next().unwrap_or_default();
    let fits = |t: &&str| !t.is_empty() && LETTER * t.chars().count() as f64 + 6.0 < width;
    if let Some(label) = [m.label.as_str(), last].into_iter().find(|t| fits(t)) {
        let class = if m.class == "plain" { "ink" } else { "on" };
        let _ = writeln!(
            s,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            m.from + width / 2.0,
            y + LANE / 2.0 + 4.0,
            markup(label)
        );
    }
}

/// Milliseconds below, and lines through all lanes.
fn ticks(s: &mut String, step: &Step, (top, bottom): (f64, f64)) {
    let end = step.time.as_secs_f64() * 1e3;
    let axis = Axis::new(0.0, end, 10, true);
    for t in axis.ticks().filter(|t| *t <= end * (1.0 + 1e-9)) {
        let x = LEFT + PLOT * t / end.max(1e-9);
        let _ = writeln!(
            s,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.0}\" y2=\"{bottom:.0}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            axis.label(t)
        );
    }
    let _ = writeln!(
        s,
        "<text class=\"soft\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">ms</text>",
        LEFT - 8.0,
        bottom + 14.0
    );
}

/// The arena in use, as an area with its highest point said.
fn in_use(s: &mut String, told: &NamedProfile, step: &Step, top: f64) {
    let program = &told.manifest.program;
    let mut entries = BTreeMap::new();
    let mut points: Vec<(f64, u64)> = Vec::new();
    for n in &step.launches {
        let id = n.launch.entry;
        let live = entries
            .entry(id)
            .or_insert_with(|| arena::in_use(program, &program.entries[&id]));
        let (x, bytes) = (step.x(n.launch.begin), live[n.launch.instr]);
        match points.last_mut() {
            Some(last) if x - last.0 < NARROW => last.1 = last.1.max(bytes),
            Some(last) if last.1 == bytes => {}
            _ => points.push((x, bytes)),
        }
    }
    let most = points.iter().map(|p| p.1).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let bottom = top + MEMORY;
    let y = |bytes: u64| bottom - (MEMORY - 4.0) * bytes as f64 / most as f64;
    let mut path = String::new();
    for (n, (x, bytes)) in points.iter().enumerate() {
        let to = if n == 0 {
            format!("M{x:.1} {:.1}", y(*bytes))
        } else {
            format!("H{x:.1}V{:.1}", y(*bytes))
        };
        path.push_str(&to);
    }
    let _ = write!(path, "H{:.1}", LEFT + PLOT);
    let _ = writeln!(
        s,
        "<path class=\"area\" d=\"{path}V{bottom:.1}H{LEFT:.1}Z\"/><path class=\"rim\" d=\"{path}\"/>\
         <text class=\"soft\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"end\">arena</text>\
         <text class=\"soft\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
        top + 14.0,
        top + 28.0,
        number::bytes(most),
        x = LEFT - 8.0,
    );
}

/// Each field with its colour and its share of the step.
fn legends(s: &mut String, step: &Step, fields: &[&str], top: f64) {
    let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
    for n in &step.launches {
        *times.entry(n.field).or_default() += n.launch.time.unwrap_or_default();
    }
    let column = (WIDTH - 32.0) / COLUMNS as f64;
    for (n, field) in fields.iter().enumerate() {
        let (x, y) = (
            16.0 + column * (n % COLUMNS) as f64,
            top + LEGEND * (n / COLUMNS) as f64,
        );
        let time = times.get(field).copied().unwrap_or_default();
        let share = 100.0 * time.as_secs_f64() / step.time.as_secs_f64().max(1e-12);
        let _ = writeln!(
            s,
            "<rect class=\"{}\" x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"12\" rx=\"2\"/>\
             <text class=\"ink\" x=\"{:.0}\" y=\"{y:.0}\">{} <tspan class=\"soft\">{}, {share:.1} %</tspan></text>",
            step.class(field),
            y - 10.0,
            x + 18.0,
            markup(field),
            milliseconds(time)
        );
    }
}
