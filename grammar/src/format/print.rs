//! Statements to lines.
//!
//! Takes the structure of a text; gives the formatted text. What fits on a line stands on one; the rest is broken where
//! it binds least, and continued `INDENT` blanks further in. A comment ends its line wherever it stands.

use super::structure::{Body, Split, Statement, Structure};
use super::trivia::{Comment, Lines, Place};
use super::{INDENT, WIDTH, align};
use crate::rules::Rule;

pub fn print(structure: &Structure) -> String {
    let mut printer = Printer {
        s: structure,
        out: Vec::new(),
        column: 0,
        next: Next::Beside,
        pad: vec![0; structure.tokens.len() + 1],
        padded: [None; 2],
    };
    printer.block(&structure.items, 0, false);
    printer.gap(structure.tokens.len(), 0, structure.items.is_empty(), false);
    finish(printer.out)
}

/// A line: what stands before its trailing comment, and the comment.
#[derive(Default)]
struct Line<'a> {
    code: String,
    comment: Option<&'a str>,
    /// No code, only the continuation of the comment above.
    continues: bool,
}

/// Where the next token goes.
#[derive(Clone, Copy)]
enum Next {
    /// On this line, with a blank if it wants one.
    Beside,
    /// On this line, without a blank.
    Tight,
    /// On a new line, indented.
    Below(usize),
    /// Here: comments and blanks before it are written.
    Here,
}

struct Printer<'s, 'a> {
    s: &'s Structure<'a>,
    out: Vec<Line<'a>>,
    /// Characters on the current line.
    column: usize,
    next: Next,
    /// Additional blanks before aligned tokens.
    pad: Vec<u8>,
    /// The aligned tokens of the current statement.
    padded: [Option<usize>; 2],
}

impl<'a> Printer<'_, 'a> {
    // ---- lines and tokens ----

    fn newline(&mut self, indent: usize) {
        self.out.push(Line {
            code: " ".repeat(indent),
            ..Line::default()
        });
        self.column = indent;
    }

    fn push(&mut self, text: &str, width: usize) {
        if let Some(line) = self.out.last_mut() {
            line.code.push_str(text);
        }
        self.column += width;
    }

    fn blanks(&mut self, count: usize) {
        self.push(&" ".repeat(count), count);
    }

    fn comment(&mut self, comment: Comment<'a>, indent: usize) {
        match (comment.place, self.out.last_mut()) {
            (Place::Trailing, Some(line)) if line.comment.is_none() => {
                line.comment = Some(comment.text)
            }
            (Place::Continues, Some(_)) => self.out.push(Line {
                comment: Some(comment.text),
                continues: true,
                ..Line::default()
            }),
            _ => {
                self.newline(indent);
                self.push(comment.text, 0);
            }
        }
    }

    /// Writes a token of a statement; comments before it stand at `indent`, and so does the token after one.
    fn put(&mut self, at: usize, indent: usize) {
        let next = std::mem::replace(&mut self.next, Next::Beside);
        let comments = self.s.comments(at);
        match next {
            Next::Here => {}
            _ if !comments.is_empty() => {
                for &comment in comments {
                    self.comment(comment, indent);
                }
                self.newline(match next {
                    Next::Below(below) => below,
                    _ => indent,
                });
            }
            Next::Below(indent) => self.newline(indent),
            Next::Beside if self.s.blank[at] => {
                self.blanks(1 + self.pads(at, at + 1));
            }
            Next::Beside | Next::Tight => {}
        }
        self.push(self.s.word(at), self.s.flat(at, at + 1));
    }

    /// Tokens one beside the other.
    fn straight(&mut self, start: usize, end: usize, indent: usize) {
        for at in start..end {
            self.put(at, if at == start { indent } else { indent + INDENT });
        }
    }

    /// Additional blanks before the tokens `start..end`.
    fn pads(&self, start: usize, end: usize) -> usize {
        let inside = self.padded.iter().flatten();
        inside
            .filter(|at| (start..end).contains(at))
            .map(|&at| usize::from(self.pad[at]))
            .sum()
    }

    /// Whether the tokens `start..end`, and `tail` characters behind them, fit beside each other.
    fn fits(&self, start: usize, end: usize, indent: usize, tail: usize) -> bool {
        let column = match self.next {
            Next::Here | Next::Tight => self.column,
            Next::Below(indent) => indent,
            Next::Beside if self.s.comments(start).is_empty() => {
                self.column + usize::from(self.s.blank[start]) + self.pads(start, start + 1)
            }
            Next::Beside => indent,
        };
        let width = self.s.flat(start, end) + self.pads(start + 1, end);
        !self.s.has_comments(start + 1, end) && column + width + tail <= WIDTH
    }

    // ---- blocks ----

    /// Ends the line before a statement, a closing brace or the end: comments, at most one blank line, and a new line
    /// for the token, if there is one. `fresh`: nothing stands above it in its block. `apart`: with a blank line.
    fn gap(&mut self, at: usize, indent: usize, fresh: bool, apart: bool) {
        let s = self.s;
        let (mut fresh, mut apart) = (fresh, apart);
        if s.lines[at] == Lines::Blank || s.comments(at).iter().any(|c| c.blank) {
            apart = false;
        }
        let mut above = |printer: &mut Self, blank: bool| {
            if !fresh && (blank || apart) {
                printer.out.push(Line::default());
            }
            (fresh, apart) = (false, false);
        };
        for &comment in s.comments(at) {
            if comment.place == Place::Own {
                above(self, comment.blank);
            }
            self.comment(comment, indent);
        }
        if at < s.tokens.len() && s.word(at) != "}" {
            above(self, s.lines[at] == Lines::Blank);
            self.newline(indent);
            self.next = Next::Here;
        }
    }

    /// The statements of a block, the `options` of an `evolve` among them, or the items of the text.
    fn block(&mut self, parts: &[Statement], indent: usize, options: bool) {
        let s = self.s;
        let items = parts.first().is_some_and(|part| is_item(part.rule));
        let lines = match items {
            true => (0..parts.len()).map(|at| at..at + 1).collect(),
            false => align::lines(s, parts, indent, options),
        };
        align::pads(s, parts, &lines, indent, &mut self.pad);
        let spread = |part: &Statement| {
            part.body.is_some() && part.flat.is_none_or(|flat| indent + flat > WIDTH)
        };
        for line in lines {
            let first = line.start == 0;
            let apart =
                items && !first && (spread(&parts[line.start - 1]) || spread(&parts[line.start]));
            self.gap(parts[line.start].start, indent, first, apart);
            if line.len() == 1 {
                self.statement(&parts[line.start], indent);
            } else {
                self.in_line(&parts[line.clone()], ";  ", indent);
            }
            if let Some(next) = parts.get(line.end)
                && align::needs_semicolon(s, &parts[line.end - 1], next)
            {
                self.push(";", 1);
            }
        }
    }

    fn statement(&mut self, part: &Statement, indent: usize) {
        self.padded = [part.column, part.labelled];
        let Some(body) = &part.body else {
            return self.part(part.start, part.end, indent, 0);
        };
        let pads = self.pads(part.start, part.end);
        if part.flat.is_some_and(|flat| indent + flat + pads <= WIDTH) {
            return self.in_line(std::slice::from_ref(part), "", indent);
        }
        let head_fits = self.fits(part.start, body.open, indent, " {".len());
        self.part(part.start, body.open, indent, " {".len());
        // A head on several lines is long enough; its block may still be short.
        let block = part
            .flat
            .map(|flat| flat - self.s.flat(part.start, body.open));
        match block {
            Some(block) if !head_fits && self.column + block <= WIDTH => self.braces(body, indent),
            _ => self.spread(body, indent, part.rule == Rule::evolve),
        }
    }

    /// A block with its braces on different lines.
    fn spread(&mut self, body: &Body, indent: usize, options: bool) {
        let inner = indent + INDENT;
        self.put(body.open, inner);
        if body.is_rows() {
            self.rows(&body.parts, inner);
        } else {
            self.block(&body.parts, inner, options);
        }
        self.gap(body.close, inner, body.parts.is_empty(), false);
        self.newline(indent);
        self.next = Next::Here;
        self.put(body.close, indent);
    }

    /// Statements beside each other.
    fn in_line(&mut self, parts: &[Statement], separator: &str, indent: usize) {
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                self.push(separator, separator.len());
                self.next = Next::Here;
            }
            match &part.body {
                Some(body) => {
                    self.straight(part.start, body.open, indent);
                    self.braces(body, indent);
                }
                None => self.straight(part.start, part.end, indent),
            }
        }
    }

    /// A block on one line.
    fn braces(&mut self, body: &Body, indent: usize) {
        self.put(body.open, indent + INDENT);
        self.in_line(&body.parts, body.separator(), indent);
        if body.parts.is_empty() {
            self.next = Next::Tight;
        }
        self.put(body.close, indent);
    }

    /// The rows of a tableau or multistep block, in columns. Line ends are part of them: only brackets may be broken,
    /// and are where comments stand in them.
    fn rows(&mut self, rows: &[Statement], indent: usize) {
        let widths = align::cells(self.s, rows);
        // The bar stands between nodes and entries, a name before its entries: one blank there, two between entries.
        let heads = match rows.first().map(|row| row.rule) {
            Some(Rule::row) => 2,
            _ => 1,
        };
        for (number, row) in rows.iter().enumerate() {
            self.gap(row.start, indent, number == 0, false);
            if row.flat.is_none() {
                self.part(row.start, row.end, indent, 0);
                continue;
            }
            let mut due = 0;
            for (at, &(start, end)) in row.cells.iter().enumerate() {
                let before = match at {
                    0 => 0,
                    1 if widths[0] == 0 => 0,
                    at if at <= heads => 1,
                    _ => 2,
                };
                due += before;
                if start < end {
                    self.blanks(due);
                    self.next = Next::Here;
                    self.straight(start, end, indent);
                    due = 0;
                }
                due += widths[at].saturating_sub(self.s.flat(start, end));
            }
        }
    }

    // ---- inside a statement ----

    /// The tokens `start..end` at `indent`, followed by `tail` characters that cannot be broken off.
    fn part(&mut self, start: usize, end: usize, indent: usize, tail: usize) {
        if start >= end {
            return;
        }
        if self.fits(start, end, indent, tail) {
            return self.straight(start, end, indent);
        }
        let split = align::lowest(self.s, start, end);
        if split == Split::Never {
            return self.operands(start, end, indent, tail);
        }
        let mut cuts = align::cuts(self.s, start, end, split);
        cuts.push(end);
        let mut from = start;
        for to in cuts {
            let tail = if to == end { tail } else { 0 };
            if from == start {
                self.part(from, to, indent, tail);
            } else {
                let indent = indent + INDENT;
                // Operators stand one below the other, words and list entries fill the lines.
                let fills = matches!(split, Split::Word | Split::Comma);
                if !(fills && self.fits(from, to, indent, tail)) {
                    self.next = Next::Below(indent);
                }
                self.part(from, to, indent, tail);
            }
            from = to;
        }
    }

    /// Tokens that can only be broken in their brackets.
    fn operands(&mut self, start: usize, end: usize, indent: usize, tail: usize) {
        let s = self.s;
        let mut at = start;
        while at < end {
            let here = if at == start { indent } else { indent + INDENT };
            let close = s.partner[at];
            if close == at {
                self.put(at, here);
                at += 1;
                continue;
            }
            let next = (close + 1..end).find(|&at| s.partner[at] > at);
            let behind = match next {
                Some(open) => s.flat(close, open + 1) - 1,
                None => s.flat(close, end) - 1 + tail,
            };
            if self.fits(at, close + 1, here, behind) {
                self.straight(at, close + 1, here);
            } else {
                self.put(at, here);
                self.bracketed(at + 1, close, indent);
            }
            at = close + 1;
        }
    }

    /// What stands between two brackets, and the closing one: short entries fill the lines, others have one each.
    fn bracketed(&mut self, start: usize, close: usize, indent: usize) {
        const SHORT: usize = 8;
        let s = self.s;
        let inner = indent + INDENT;
        let mut cuts = match start < close {
            true => align::cuts(s, start, close, Split::Comma),
            false => Vec::new(),
        };
        cuts.push(close + 1);
        let entries: Vec<(usize, usize)> = std::iter::once(start)
            .chain(cuts.iter().copied())
            .zip(cuts.iter().map(|&cut| cut - 1))
            .collect();
        let fills = !s.has_comments(start, close + 1)
            && entries.iter().all(|&(from, to)| s.flat(from, to) <= SHORT);
        for (number, &(from, to)) in entries.iter().enumerate() {
            if number == 0 || !(fills && self.fits(from, to, inner, 1)) {
                self.next = Next::Below(inner);
            }
            self.part(from, to, inner, 1);
            if to < close {
                self.put(to, inner);
            }
        }
        self.next = Next::Below(indent);
        self.put(close, inner);
    }
}

fn is_item(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::use_item
            | Rule::scheme
            | Rule::field
            | Rule::layer
            | Rule::model
            | Rule::train
            | Rule::explore
    )
}

/// Lines to text: trailing comments of neighbouring lines of one block stand in one column.
fn finish(lines: Vec<Line>) -> String {
    /// Neighbours whose lengths differ by more do not share a column.
    const FAR: usize = 32;
    let mut out = String::new();
    let width = |line: &Line| line.code.trim_end().chars().count();
    let indent = |line: &Line| line.code.bytes().take_while(|&b| b == b' ').count();
    let mut column = 0;
    for run in lines.chunk_by(|a, b| {
        let comments = a.comment.is_some() && b.comment.is_some();
        let alike = indent(a) == indent(b) && width(a).abs_diff(width(b)) <= FAR;
        comments && (a.continues || b.continues || alike)
    }) {
        let wide = run.iter().map(width).filter(|&width| width <= WIDTH);
        let aligned = wide.max().unwrap_or(0) + 2;
        for line in run {
            out.push_str(line.code.trim_end());
            if let Some(comment) = line.comment {
                if !line.continues {
                    column = aligned.max(width(line) + 2);
                }
                out.extend(std::iter::repeat_n(' ', column - width(line)));
                out.push_str(comment);
            }
            out.push('\n');
        }
    }
    out
}
