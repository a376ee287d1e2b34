//! The Butcher tableau as textbooks print it: stacked fractions, and lines between nodes, fields and weights.

use super::sheet::{Anchor, Sheet, width};
use crate::report::Report;
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_text::number::{number_in, subscript};

/// Most stages that are drawn.
const MAX_STAGES: usize = 32;
/// Most characters of a numerator, of a denominator, and of what is written in one line.
const WIDEST: usize = 9;
const LONGEST: usize = 14;
const SIZE: f64 = 14.0;
const SMALL: f64 = 12.0;
/// Around cells, and around the picture.
const GAP: f64 = 9.0;
const MARGIN: f64 = 20.0;

enum Entry {
    Empty,
    Word(String),
    Over(String, String),
}

impl Entry {
    fn of(x: &Exact) -> Entry {
        let fraction = x.as_rational().filter(|q| !q.is_integer());
        let parts = fraction.map(|q| (q.numer().magnitude().to_string(), q.denom().to_string()));
        match parts {
            Some((n, d)) if n.len().max(d.len()) <= WIDEST => {
                let sign = if x.is_negative() { "−" } else { "" };
                Entry::Over(format!("{sign}{n}"), d)
            }
            _ => Entry::Word(number_in(x, LONGEST).replace('-', "−")),
        }
    }

    fn width(&self) -> f64 {
        match self {
            Entry::Empty => 0.0,
            Entry::Word(w) => width(w, SIZE),
            Entry::Over(n, d) => width(n, SMALL).max(width(d, SMALL)) + 4.0,
        }
    }

    fn height(&self) -> f64 {
        match self {
            Entry::Over(..) => 38.0,
            _ => 26.0,
        }
    }

    /// Around its middle.
    fn draw(&self, sheet: &mut Sheet, (x, y): (f64, f64)) {
        match self {
            Entry::Empty => {}
            Entry::Word(w) => sheet.text((x, y + 5.0), "ink", Anchor::Middle, SIZE, w),
            Entry::Over(n, d) => {
                let minus = n.starts_with('−');
                let digits = n.trim_start_matches('−');
                let half = width(digits, SMALL).max(width(d, SMALL)) / 2.0 + 1.0;
                sheet.text((x, y - 4.5), "ink", Anchor::Middle, SMALL, digits);
                sheet.text((x, y + 13.0), "ink", Anchor::Middle, SMALL, d);
                sheet.line("rule", (x - half, y), (x + half, y));
                if minus {
                    sheet.text((x - half - 2.0, y + 4.5), "ink", Anchor::End, SMALL, "−");
                }
            }
        }
    }
}

/// Lines of entries, the columns before which there is a bar, the line above which there is a rule.
struct Grid {
    lines: Vec<Vec<Entry>>,
    bars: Vec<usize>,
    rule: Option<usize>,
}

/// The tableau, as it is written where its stages are iterated, or the rows of a multistep method.
pub fn picture(r: &Report) -> Option<String> {
    let grid = match (&r.multistep, &r.implicit, &r.tableau) {
        (Some((m, _)), ..) => Grid {
            lines: [("α", &m.alpha), ("β", &m.beta)]
                .map(|(name, row)| {
                    let numbers = row.iter().map(Entry::of);
                    [Entry::Word(name.into())]
                        .into_iter()
                        .chain(numbers)
                        .collect()
                })
                .into(),
            bars: vec![1],
            rule: None,
        },
        (None, Some((t, _)), _) => grid(t)?,
        (None, None, Ok(t)) => grid(t)?,
        _ => return None,
    };
    Some(drawn(&grid, &r.name))
}

fn grid(t: &Tableau) -> Option<Grid> {
    if t.stages() > MAX_STAGES {
        return None;
    }
    let single = t.fields.len() == 1;
    let (points, _) = t.points();
    let (parts, nodes) = (t.parts(), t.nodes());
    let explicit = t.is_explicit();
    // With one field every stage has its row and column, with several every point where a field is evaluated.
    let blocks: Vec<Vec<usize>> = match single {
        true => vec![(0..t.stages()).collect()],
        false => parts.iter().map(|p| p.used.clone()).collect(),
    };
    let mut lines = Vec::new();
    if !single {
        let mut head = vec![Entry::Empty];
        for (p, block) in parts.iter().zip(&blocks) {
            let rest = block.iter().skip(1).map(|_| Entry::Empty);
            head.extend([Entry::Word(p.field.clone())].into_iter().chain(rest));
        }
        lines.push(head);
    }
    let rows = if single { t.stages() } else { points.len() };
    for (i, node) in nodes.iter().enumerate().take(rows) {
        let mut line = vec![match single {
            true => Entry::of(node),
            false => Entry::Word(format!("Y{}", subscript(i + 1))),
        }];
        for (p, block) in parts.iter().zip(&blocks) {
            line.extend(block.iter().map(|j| match single {
                true if explicit && *j >= i => Entry::Empty,
                true => Entry::of(&t.a[i][*j]),
                false => Entry::of(&p.a[i][*j]),
            }));
        }
        lines.push(line);
    }
    let rule = lines.len();
    let mut weights = |of_all: &[Exact], of_part: &dyn Fn(usize) -> Vec<Exact>| {
        let mut line = vec![Entry::Empty];
        for (p, block) in blocks.iter().enumerate() {
            let own = of_part(p);
            line.extend(block.iter().map(|j| match single {
                true => Entry::of(&of_all[*j]),
                false => Entry::of(&own[*j]),
            }));
        }
        lines.push(line);
    };
    weights(&t.b, &|p| parts[p].b.clone());
    if let Some(b) = &t.embedded {
        weights(b, &|p| parts[p].embedded.clone().unwrap_or_default());
    }
    let mut bars = vec![1];
    for block in &blocks[..blocks.len() - 1] {
        bars.push(bars[bars.len() - 1] + block.len());
    }
    let rule = Some(rule);
    Some(Grid { lines, bars, rule })
}

fn drawn(grid: &Grid, name: &str) -> String {
    let columns = grid.lines.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |j: usize| {
        let cells = grid.lines.iter().filter_map(|l| l.get(j));
        cells.map(Entry::width).fold(12.0, f64::max) + 2.0 * GAP
    };
    let widths: Vec<f64> = (0..columns).map(wide).collect();
    let high = |l: &Vec<Entry>| l.iter().map(Entry::height).fold(0.0, f64::max);
    let (left, top) = (MARGIN, MARGIN + 30.0);
    let mut sheet = Sheet::default();
    sheet.heading(MARGIN, MARGIN + 12.0, name);
    let mut y = top;
    let right = left + widths.iter().sum::<f64>();
    for (i, line) in grid.lines.iter().enumerate() {
        if grid.rule == Some(i) {
            sheet.line("rule", (left, y), (right, y));
        }
        let mut x = left;
        for (entry, w) in line.iter().zip(&widths) {
            entry.draw(&mut sheet, (x + w / 2.0, y + high(line) / 2.0));
            x += w;
        }
        y += high(line);
    }
    for bar in &grid.bars {
        let x = left + widths[..*bar].iter().sum::<f64>();
        sheet.line("rule", (x, top), (x, y));
    }
    let w = right.max(MARGIN + width(name, 17.5)) + MARGIN;
    sheet.finish(w, y + MARGIN, &format!("Tableau of {name}"))
}
