//! Which statements share a line, and which tokens are aligned in columns.
//!
//! Takes the statements of one block; gives the lines they stand on, and the blanks to add before the tokens that are
//! aligned with those of other lines: keys of models and training, `=` of fields, names and constants, `{` of schemes
//! on one line. All of it follows from the tokens and the author's lines, so aligned text aligns to itself. Columns
//! have limits: a very long name is left out, and moves nothing else.

use super::WIDTH;
use super::structure::{Split, Statement, Structure};
use super::trivia::{Lines, Place};
use crate::rules::Rule;
use std::ops::Range;

/// Longest key or label that others are aligned with.
const KEY: usize = 16;
/// Width of the longest model key, `evolve`: all models look alike, whichever keys they have.
const MODEL_KEY: usize = 6;
/// Most blanks that are added in a run of definitions.
const SPREAD: usize = 16;
/// Widest cell that others are aligned with.
const CELL: usize = 48;

/// Statements that share a line: those that the author wrote on one, if it is not too long. A line that began behind
/// the opening brace is taken apart with the braces, unless they are those of `options`.
pub fn lines(
    s: &Structure,
    parts: &[Statement],
    indent: usize,
    options: bool,
) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    while start < parts.len() {
        let goes_on = |part: &&Statement| {
            s.lines[part.start] == Lines::Same && s.comments(part.start).is_empty()
        };
        let end = start + 1 + parts[start + 1..].iter().take_while(goes_on).count();
        let flat: Option<usize> = parts[start..end].iter().map(|part| part.flat).sum();
        let separators = ";  ".len() * (end - start - 1);
        let apart = start == 0 && goes_on(&&parts[0]) && !options;
        match flat {
            Some(flat) if indent + flat + separators <= WIDTH && !apart => lines.push(start..end),
            _ => lines.extend((start..end).map(|at| at..at + 1)),
        }
        start = end;
    }
    lines
}

/// Adds to `pad` how many blanks more than one stand before each aligned token.
pub fn pads(
    s: &Structure,
    parts: &[Statement],
    lines: &[Range<usize>],
    indent: usize,
    pad: &mut [u8],
) {
    let alone: Vec<&Statement> = lines
        .iter()
        .filter(|line| line.len() == 1)
        .map(|line| &parts[line.start])
        .collect();
    let mut keys = Column::default();
    let mut labels = Column::default();
    for part in &alone {
        match (part.rule, part.column) {
            (Rule::train_entry | Rule::explore_entry, Some(value)) => {
                keys.add(s, part.start, value)
            }
            (rule, Some(value)) if is_model_key(rule) => {
                let key = s.flat(part.start, value);
                pad[value] = MODEL_KEY.saturating_sub(key) as u8;
                if let Some(labelled) = part.labelled {
                    labels.add(s, value, labelled);
                }
            }
            _ => {}
        }
    }
    keys.align(KEY, pad);
    labels.align(KEY, pad);
    for run in alone.chunk_by(|a, b| follows(s, a, b)) {
        definitions(s, run, indent, pad);
    }
}

/// Whether two lines belong to one run: definitions of one kind with nothing between them.
fn follows(s: &Structure, a: &Statement, b: &Statement) -> bool {
    let comments = s.comments(b.start);
    let apart = s.lines[b.start] == Lines::Blank
        || comments.iter().any(|c| c.blank || c.place == Place::Own);
    // Lines of several statements between them were left out.
    let neighbours = a.end == b.start;
    a.rule == b.rule && neighbours && !apart
}

/// Aligns `=` or `{` of a run.
fn definitions(s: &Structure, run: &[&Statement], indent: usize, pad: &mut [u8]) {
    let schemes = run[0].rule == Rule::scheme;
    if !matches!(
        run[0].rule,
        Rule::field | Rule::layer | Rule::assign | Rule::constant
    ) && !schemes
    {
        return;
    }
    let room = |part: &Statement| WIDTH.checked_sub(indent + part.flat?);
    if schemes && run.iter().any(|part| room(part).is_none()) {
        // One that is not on one line divides the others; each part is a run of its own.
        let parts = run.chunk_by(|a, b| room(a).is_some() && room(b).is_some());
        return parts
            .filter(|part| part.len() > 1)
            .for_each(|part| definitions(s, part, indent, pad));
    }
    let mut column = Column::default();
    for part in run {
        if let Some(to) = part.column {
            column.add(s, part.start, to);
        }
    }
    let (narrow, wide) = column.bounds();
    let fits = |part: &&Statement| {
        let head = part.column.map_or(0, |to| s.flat(part.start, to));
        room(part).is_some_and(|room| room >= wide.saturating_sub(head))
    };
    if wide - narrow <= SPREAD && (!schemes || run.iter().all(fits)) {
        column.align(usize::MAX, pad);
    }
}

/// Heads of statements, by the token behind them.
#[derive(Default)]
struct Column(Vec<(usize, usize)>);

impl Column {
    /// The head `start..to`, unless a comment cuts it off from what is aligned.
    fn add(&mut self, s: &Structure, start: usize, to: usize) {
        if !s.has_comments(start + 1, to + 1) {
            self.0.push((to, s.flat(start, to)));
        }
    }

    fn bounds(&self) -> (usize, usize) {
        let widths = || self.0.iter().map(|&(_, width)| width);
        (widths().min().unwrap_or(0), widths().max().unwrap_or(0))
    }

    fn align(&self, limit: usize, pad: &mut [u8]) {
        let widths = self.0.iter().map(|&(_, width)| width);
        let widest = widths.filter(|&width| width <= limit).max().unwrap_or(0);
        for &(to, width) in &self.0 {
            pad[to] = u8::try_from(widest.saturating_sub(width)).unwrap_or(0);
        }
    }
}

fn is_model_key(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::input | Rule::embed | Rule::evolve | Rule::output | Rule::init
    )
}

/// Widths of the columns of a tableau or multistep block.
pub fn cells(s: &Structure, rows: &[Statement]) -> Vec<usize> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows.iter().filter(|row| row.flat.is_some()) {
        for (at, &(start, end)) in row.cells.iter().enumerate() {
            let width = s.flat(start, end);
            if at == widths.len() {
                widths.push(0);
            }
            if width <= CELL {
                widths[at] = widths[at].max(width);
            }
        }
    }
    widths
}

/// Whether a statement would read on into the next one if only a line end stood between them.
pub fn needs_semicolon(s: &Structure, part: &Statement, next: &Statement) -> bool {
    let flows = matches!(part.rule, Rule::splitting | Rule::embedded);
    let open_range = s.word(part.end - 1).starts_with("..");
    open_range || flows && next.rule == Rule::splitting
}

/// The place where a part of a statement is broken first: the lowest split between tokens `start..end`, outside
/// brackets, that leaves something on both sides.
pub fn lowest(s: &Structure, start: usize, end: usize) -> Split {
    places(s, start, end)
        .map(|at| s.split[at])
        .min()
        .unwrap_or(Split::Never)
}

/// Where the pieces of `start..end` begin when it is broken at every `split`.
pub fn cuts(s: &Structure, start: usize, end: usize, split: Split) -> Vec<usize> {
    places(s, start, end)
        .filter(|&at| s.split[at] == split)
        .map(|at| at + usize::from(split == Split::Comma))
        .collect()
}

/// The tokens of `start..end` outside brackets that may be broken at.
fn places(s: &Structure, start: usize, end: usize) -> impl Iterator<Item = usize> {
    let next = move |&at: &usize| Some(s.partner[at] + 1).filter(|&at| at < end);
    let outside = std::iter::successors(Some(start).filter(|&at| at < end), next);
    outside.filter(move |&at| match s.split[at] {
        Split::Never => false,
        Split::Comma => at + 1 < end,
        _ => at > start,
    })
}
