//! Reports on a terminal: titles, sections, named facts, within the columns that there are.
//!
//! Takes text piece by piece; gives it indented, wrapped at blanks, headings marked where colours are wanted. A section without
//! content is left out. Leaves tables to `table.rs`, numbers to `number.rs`.

use super::number::FAST;
use super::table::Table;

/// How wide lines may be, and whether headings are set off by escape sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    pub width: usize,
    pub colour: bool,
}

impl Screen {
    /// The default: wide enough for most tableaus, narrow enough for a page.
    pub const PLAIN: Screen = Screen {
        width: 100,
        colour: false,
    };
    /// The bounds between which a terminal's width is followed.
    pub const NARROWEST: usize = 60;
    pub const WIDEST: usize = 110;

    pub fn of(columns: usize, colour: bool) -> Screen {
        Screen {
            width: columns.clamp(Screen::NARROWEST, Screen::WIDEST),
            colour,
        }
    }
}

/// Columns before a section's heading, and before what stands in it.
const HEADING: usize = 2;
const INDENT: usize = 4;
/// Columns of the names of facts.
const NAMES: usize = 21;

/// A report being written.
pub struct Page {
    screen: Screen,
    out: String,
    /// A heading that waits for its section's first line.
    heading: Option<String>,
}

impl Page {
    pub fn new(screen: Screen) -> Page {
        Page {
            screen,
            out: String::new(),
            heading: None,
        }
    }

    /// All that was written; ends with a line end.
    pub fn finish(self) -> String {
        self.out
    }

    fn marked(&self, text: &str) -> String {
        match self.screen.colour {
            true => format!("\x1b[1m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }

    fn line(&mut self, indent: usize, text: &str) {
        if let Some(heading) = self.heading.take() {
            let heading = self.marked(&heading);
            self.out += &format!("\n{:HEADING$}{heading}\n", "");
        }
        let text = text.replace(FAST, " ");
        let line = format!("{:indent$}{text}", "");
        self.out += line.trim_end();
        self.out.push('\n');
    }

    /// `rk4 — tableau, 4 evaluations`.
    pub fn title(&mut self, name: &str, what: &str) {
        let text = format!("{} — {what}", self.marked(name));
        self.out += &text;
        self.out.push('\n');
    }

    pub fn blank(&mut self) {
        self.out.push('\n');
    }

    /// What follows belongs under a heading, until the next one.
    pub fn section(&mut self, heading: &str) {
        self.heading = Some(heading.to_string());
    }

    /// A name and what there is to say, in as many lines as it takes.
    pub fn fact(&mut self, name: &str, value: &str) {
        let room = self.screen.width.saturating_sub(INDENT + NAMES);
        // A name that has no room beside the value stands above it.
        let above = name.chars().count() >= NAMES;
        if above {
            self.line(INDENT, name);
        }
        for (i, part) in wrapped(value, room).iter().enumerate() {
            let name = if i == 0 && !above { name } else { "" };
            self.line(INDENT, &format!("{name:<width$}{part}", width = NAMES));
        }
    }

    /// Lines beside which no name stands, under the values of facts.
    pub fn beside(&mut self, lines: &str) {
        for line in lines.lines() {
            self.line(INDENT + NAMES, line);
        }
    }

    /// A line as it is, however long.
    pub fn verbatim(&mut self, line: &str) {
        self.line(INDENT, line);
    }

    /// A sentence or more.
    pub fn paragraph(&mut self, text: &str) {
        for line in wrapped(text, self.screen.width - INDENT) {
            self.line(INDENT, &line);
        }
    }

    /// Whether a table is one part.
    pub fn holds(&self, table: &Table) -> bool {
        table.parts(self.screen.width - INDENT).len() == 1
    }

    /// A table, as wide as there is room; in several parts, one below the other, where it is wider.
    pub fn table(&mut self, table: &Table) {
        let parts = table.parts(self.screen.width - INDENT);
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                self.blank();
            }
            part.iter().for_each(|l| self.line(INDENT, l));
        }
    }
}

/// Lines of at most so many characters, cut at blanks; a word that is longer has a line of its own.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one line at least");
        let long = line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if long <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}
