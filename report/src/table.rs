//! Runs as lines of a terminal, and as JSON.
//!
//! Takes runs; gives a table as wide as the screen, which leaves columns out where they have no room, those that matter least first.

use crate::runs::{Found, Refused, Run};
use crate::sparkline::sparkline;
use odec_compiler::text::number::{duration, flops};
use odec_compiler::text::table::{Cell, Table};
use odec_runtime::Shown;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of a curve.
const CURVE: usize = 12;
/// The longest scheme that is written out.
const SCHEME: usize = 30;

/// A column: its heading, how soon it is left out (0: never), and the cell of a run.
struct Column<'a> {
    name: &'static str,
    rank: u8,
    cell: Box<dyn Fn(&Run) -> Cell + 'a>,
}

/// A table of runs, in at most so many columns where that is possible; `now` is what ages are counted to.
pub fn text(found: &Found, width: usize, ascii: bool, now: SystemTime) -> String {
    let mut out = String::new();
    if !found.runs.is_empty() {
        let mut columns = columns(ascii, now);
        loop {
            let table = table(&found.runs, &columns);
            let parts = table.parts(width);
            let last = columns.iter().map(|c| c.rank).max().unwrap_or(0);
            if parts.len() == 1 || last == 0 {
                parts
                    .iter()
                    .flatten()
                    .for_each(|line| out += &format!("{line}\n"));
                break;
            }
            columns.retain(|c| c.rank < last);
        }
    }
    for Refused { folder, why } in &found.refused {
        out += &format!("{}: {why}\n", folder.shown());
    }
    out
}

fn columns<'a>(ascii: bool, now: SystemTime) -> Vec<Column<'a>> {
    fn column<'a>(name: &'static str, rank: u8, cell: impl Fn(&Run) -> Cell + 'a) -> Column<'a> {
        let cell = Box::new(cell);
        Column { name, rank, cell }
    }
    vec![
        column("run", 0, |r| Cell::left(r.name.clone())),
        column("scheme", 3, move |r| {
            Cell::left(cut(&r.scheme(), SCHEME, ascii))
        }),
        column("steps", 0, |r| Cell::right(steps(r))),
        column("loss", 0, |r| number(r.loss())),
        column("held out", 0, |r| number(r.held_out())),
        column("seen", 5, |r| Cell::right(seen(r))),
        column("time", 2, |r| Cell::right(duration(r.seconds()))),
        column("parameters", 4, |r| {
            Cell::right(flops(r.manifest.param_count() as f64))
        }),
        column("ago", 6, move |r| {
            let ago = r.modified.and_then(|then| now.duration_since(then).ok());
            ago.map_or(Cell::Empty, |ago| Cell::right(duration(ago.as_secs_f64())))
        }),
        column("curve", 1, move |r| Cell::left(curve(r, ascii))),
    ]
}

fn table(runs: &[Run], columns: &[Column]) -> Table {
    let mut table = Table::new(1);
    let head = columns.iter().map(|c| {
        let words = ["run", "scheme", "curve"].contains(&c.name);
        if words {
            Cell::left(c.name)
        } else {
            Cell::right(c.name)
        }
    });
    table.row(head.collect());
    for r in runs {
        table.row(columns.iter().map(|c| (c.cell)(r)).collect());
    }
    table
}

/// `300`, or `120 of 300` where not all is done.
pub fn steps(r: &Run) -> String {
    match r.is_complete() {
        true => r.done().to_string(),
        false => format!("{} of {}", r.done(), r.progress.steps),
    }
}

/// `1.23 M tokens`.
pub fn seen(r: &Run) -> String {
    let (each, unit) = r.per_step();
    format!("{} {unit}", flops((r.done() * each) as f64))
}

/// A loss in as many digits as can be compared.
pub fn loss(x: f64) -> String {
    match x.abs() {
        a if a >= 1e5 || (a < 1e-2 && a > 0.0) => format!("{x:.2e}"),
        _ => format!("{x:.3}"),
    }
}

fn number(x: Option<f64>) -> Cell {
    x.map_or(Cell::right("–"), |x| Cell::right(loss(x)))
}

/// A text of at most so many characters.
pub(crate) fn cut(text: &str, most: usize, ascii: bool) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let end = if ascii { "..." } else { "…" };
    let kept: String = text.chars().take(most - end.chars().count()).collect();
    kept + end
}

fn curve(r: &Run, ascii: bool) -> String {
    let means = r.curve().stretches(CURVE);
    let means: Vec<f64> = means.iter().map(|s| s.mean).collect();
    sparkline(&means, ascii)
}

/// All that was found.
pub fn json(found: &Found) -> Value {
    let runs = found.runs.iter().map(run);
    let refused = found.refused.iter();
    let refused = refused.map(|r| json!({ "folder": r.folder.to_string_lossy(), "why": r.why }));
    json!({ "runs": runs.collect::<Vec<_>>(), "refused": refused.collect::<Vec<_>>() })
}

fn run(r: &Run) -> Value {
    let (each, unit) = r.per_step();
    let finite = |x: Option<f64>| x.filter(|x| x.is_finite());
    let modified = r.modified.and_then(|m| m.duration_since(UNIX_EPOCH).ok());
    json!({
        "folder": r.folder.to_string_lossy(), "model": r.manifest.name, "scheme": r.scheme(), "settings": r.manifest.settings,
        "seed": r.progress.seed, "steps": r.done(), "planned_steps": r.progress.steps, "complete": r.is_complete(),
        "loss": finite(r.loss()), "held_out_loss": finite(r.held_out()), "seen": r.done() * each, "unit": unit,
        "seconds": r.seconds(), "parameters": r.manifest.param_count(), "modified": modified.map(|m| m.as_secs()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_read_well() {
        assert_eq!(
            [2.0, 1e-3, 123_456.0].map(loss),
            ["2.000", "1.00e-3", "1.23e5"]
        );
        assert_eq!(cut("strang(att, ffn)", 8, false), "strang(…");
        assert_eq!(cut("lie", 3, true), "lie");
    }
}
