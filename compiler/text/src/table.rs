//! Tables of numbers and words in columns, cut into parts where they are wider than the page.
//!
//! Takes cells; gives lines. Numbers are written out where all of them fit, else with as many digits as do (`number.rs`);
//! where even a few digits are too wide, columns are shown a few at a time, each part with the first columns again and
//! without lines that are empty in it.

use super::number::number_in;
use odec_exact::Exact;

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Empty,
    /// Flush left, as words are.
    Left(String),
    /// Flush right, as over and among numbers.
    Right(String),
    Number(Exact),
}

impl Cell {
    pub fn right(text: impl Into<String>) -> Cell {
        Cell::Right(text.into())
    }
    pub fn left(text: impl Into<String>) -> Cell {
        Cell::Left(text.into())
    }

    fn text(&self, widest: usize) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Left(text) | Cell::Right(text) => text.clone(),
            Cell::Number(x) => number_in(x, widest),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Row {
    Cells(Vec<Cell>),
    /// A line across.
    Rule,
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
    /// First columns that every part has.
    fixed: usize,
    /// Columns with a bar before them, and a name over them that every part repeats.
    blocks: Vec<(usize, String)>,
}

/// Columns that a number may take, most first; the last but one is that of tables in parts.
const LEVELS: [usize; 7] = [26, 22, 18, 14, 12, 10, 8];
/// Blanks between columns.
const GAP: usize = 2;

impl Table {
    /// `fixed`: how many first columns stand in every part.
    pub fn new(fixed: usize) -> Table {
        Table {
            fixed,
            ..Table::default()
        }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row::Cells(cells));
    }

    pub fn rule(&mut self) {
        self.rows.push(Row::Rule);
    }

    /// A bar before a column, and a name over what follows it, which may be empty.
    pub fn block(&mut self, column: usize, name: &str) {
        self.blocks.push((column, name.to_string()));
    }

    fn columns(&self) -> usize {
        let cells = self.rows.iter().map(|r| match r {
            Row::Cells(cells) => cells.len(),
            Row::Rule => 0,
        });
        cells.max().unwrap_or(0)
    }

    /// The lines of each part, at most `width` characters wide where its columns allow it.
    pub fn parts(&self, width: usize) -> Vec<Vec<String>> {
        let all: Vec<usize> = (0..self.columns()).collect();
        for widest in LEVELS {
            let laid = Laid::new(self, &all, widest);
            if laid.width() <= width {
                return vec![laid.lines()];
            }
        }
        let widest = LEVELS[LEVELS.len() - 2];
        let (fixed, rest) = all.split_at(self.fixed.min(all.len()));
        // As many parts as greedy ones take, of about as many columns each.
        let few = self.cut(fixed, rest, rest.len(), widest, width).len();
        let even = rest.len().div_ceil(few.max(1));
        let parts = self.cut(fixed, rest, even, widest, width);
        parts.iter().map(Laid::lines).collect()
    }

    fn cut(
        &self,
        fixed: &[usize],
        mut rest: &[usize],
        most: usize,
        widest: usize,
        width: usize,
    ) -> Vec<Laid<'_>> {
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let laid = |n: usize| {
                let columns: Vec<usize> = fixed.iter().chain(&rest[..n]).copied().collect();
                Laid::new(self, &columns, widest)
            };
            let fits = |n: &usize| laid(*n).width() <= width;
            let n = (1..=most.min(rest.len())).rev().find(fits).unwrap_or(1);
            parts.push(laid(n));
            rest = &rest[n..];
        }
        parts
    }
}

/// Some columns of a table, with the texts and widths of their cells.
struct Laid<'t> {
    rows: Vec<Option<Vec<(String, &'t Cell)>>>,
    widths: Vec<usize>,
    /// By column of this part: the name of the block that begins there.
    bars: Vec<Option<String>>,
}

impl<'t> Laid<'t> {
    fn new(table: &'t Table, columns: &[usize], widest: usize) -> Laid<'t> {
        let empty = &Cell::Empty;
        let mut rows: Vec<Option<Vec<(String, &Cell)>>> = Vec::new();
        let first = columns.get(table.fixed).is_none_or(|j| *j == table.fixed);
        for row in &table.rows {
            let Row::Cells(cells) = row else {
                rows.push(None);
                continue;
            };
            let cells = columns.iter().map(|j| cells.get(*j).unwrap_or(empty));
            let cells: Vec<_> = cells.map(|c| (c.text(widest), c)).collect();
            let shown = cells[table.fixed.min(cells.len())..].iter();
            if first || shown.clone().any(|(text, _)| !text.is_empty()) {
                rows.push(Some(cells));
            }
        }
        while rows.first().is_some_and(Option::is_none) {
            rows.remove(0);
        }
        let block_of = |j: usize| table.blocks.iter().rev().find(|(at, _)| *at <= j);
        let mut bars = Vec::new();
        for (i, j) in columns.iter().enumerate() {
            let begins = i == table.fixed && i > 0;
            bars.push(match block_of(*j) {
                Some((at, name)) if at == j || begins => Some(name.clone()),
                _ => None,
            });
        }
        let mut laid = Laid {
            rows,
            widths: Vec::new(),
            bars,
        };
        laid.measure(columns.len());
        laid
    }

    fn measure(&mut self, columns: usize) {
        let rows = || self.rows.iter().flatten();
        let wide = |j: usize| rows().map(|r| long(&r[j].0)).max().unwrap_or(0);
        self.widths = (0..columns).map(wide).collect();
        // Names of blocks stand over all their columns; the last one grows where they are too narrow.
        for (j, bar) in self.bars.iter().enumerate() {
            let Some(name) = bar else { continue };
            let end = (j + 1..columns).find(|k| self.bars[*k].is_some());
            let end = end.unwrap_or(columns);
            let own: usize = self.widths[j..end].iter().sum::<usize>() + GAP * (end - j - 1);
            self.widths[j] += long(name).saturating_sub(own);
        }
    }

    fn before(&self, j: usize) -> &'static str {
        match (j, &self.bars[j]) {
            (0, _) => "",
            (_, Some(_)) => " │ ",
            (_, None) => "  ",
        }
    }

    fn width(&self) -> usize {
        let gaps = (0..self.widths.len()).map(|j| long(self.before(j)));
        gaps.sum::<usize>() + self.widths.iter().sum::<usize>()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let named = self.bars.iter().flatten().any(|name| !name.is_empty());
        if named {
            lines.push(self.names());
        }
        for row in &self.rows {
            let line = match row {
                Some(cells) => self.cells(cells),
                None => self.rule(),
            };
            lines.push(line.trim_end().to_string());
        }
        lines
    }

    fn names(&self) -> String {
        let mut line = String::new();
        let mut at = 0;
        for (j, w) in self.widths.iter().enumerate() {
            let before = self.before(j);
            if let Some(name) = &self.bars[j] {
                line += &" ".repeat(at - long(&line));
                line += before;
                line += name;
            }
            at += long(before) + w;
        }
        line.trim_end().to_string()
    }

    fn rule(&self) -> String {
        let mut line = String::new();
        for (j, w) in self.widths.iter().enumerate() {
            let before = self.before(j).replace(' ', "─");
            line += &before.replace('│', "┼");
            line += &"─".repeat(*w);
        }
        line
    }

    fn cells(&self, cells: &[(String, &Cell)]) -> String {
        let mut line = String::new();
        for (j, (text, cell)) in cells.iter().enumerate() {
            let fill = " ".repeat(self.widths[j] - long(text));
            let (left, right) = match cell {
                Cell::Left(_) => ("", fill.as_str()),
                _ => (fill.as_str(), ""),
            };
            line += &[self.before(j), left, text, right].concat();
        }
        line
    }
}

/// Characters, which are columns: reports hold no wide ones.
fn long(text: &str) -> usize {
    text.chars().count()
}
