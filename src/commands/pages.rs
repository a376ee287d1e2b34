//! The pages of docs/ that `odec help` looks words up in, which are embedded: rows of their tables, and their sentences.

/// Names and texts, those of the reference first (`build.rs`).
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));
/// Sections of the reference that list names and say nothing of any.
const LISTS: [&str; 2] = ["Keywords", "Names that are taken"];

/// A row of a table, or a sentence.
pub struct Entry {
    pub page: &'static str,
    /// The heading above.
    pub section: &'static str,
    /// The first column; of a sentence, all of it.
    pub written: String,
    /// The other columns, each with its heading; none of a sentence.
    pub columns: Vec<String>,
    pub is_row: bool,
}

impl Entry {
    pub fn is_of_the_reference(&self) -> bool {
        self.page == PAGES[0].0
    }
}

/// Which words of code.
#[derive(Clone, Copy, PartialEq)]
pub enum Which {
    /// Those outside of brackets, and arguments: a word alone, or before a colon.
    Main,
    All,
}

/// The words of the code in a text, which is not that of a command.
pub fn words(text: &str, which: Which) -> Vec<&str> {
    let mut found = Vec::new();
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let codes = text.split('`').skip(1).step_by(2);
    for code in codes.filter(|code| !code.starts_with("odec ")) {
        let (mut depth, mut quoted) = (0_usize, false);
        let mut before = '(';
        let mut rest = code;
        while let Some(c) = rest.chars().next() {
            let length = if is_letter(c) {
                rest.find(|c| !is_letter(c)).unwrap_or(rest.len())
            } else {
                c.len_utf8()
            };
            let (word, after) = rest.split_at(length);
            rest = after;
            match c {
                '"' => quoted = !quoted,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let next = after.trim_start().chars().next().unwrap_or(')');
            let is_argument = "(,".contains(before) && ",):".contains(next);
            // `train` in `train.steps` says where `steps` stands.
            let is_of_path = after.starts_with('.') && !after.starts_with("..");
            let is_main = (depth == 0 || is_argument) && !is_of_path;
            let is_meant = which == Which::All || is_main;
            if is_letter(c) && !c.is_ascii_digit() && !quoted && is_meant {
                found.push(word);
            }
            if c != ' ' {
                before = c;
            }
        }
    }
    found
}

/// Rows whose first column begins with code, and sentences.
pub fn entries() -> Vec<Entry> {
    let mut all = Vec::new();
    for &(page, text) in PAGES {
        let mut reading = Reading::new(page);
        text.lines()
            .chain([""])
            .for_each(|line| reading.line(line, &mut all));
    }
    all
}

/// A page, read line by line.
struct Reading {
    page: &'static str,
    /// Where it lies, from which its links lead.
    folder: &'static str,
    section: &'static str,
    in_code: bool,
    /// The line before.
    above: &'static str,
    /// The headings of a table's columns.
    heads: Vec<String>,
    paragraph: String,
}

impl Reading {
    fn new(page: &'static str) -> Reading {
        Reading {
            page,
            folder: page.rsplit_once('/').map_or("", |(folder, _)| folder),
            section: "",
            in_code: false,
            above: "",
            heads: Vec::new(),
            paragraph: String::new(),
        }
    }

    fn line(&mut self, line: &'static str, all: &mut Vec<Entry>) {
        if line.starts_with("```") {
            self.in_code = !self.in_code;
        }
        let is_text = !self.in_code
            && !line.is_empty()
            && !line.starts_with(['#', '|', '`'].as_slice())
            && !line.starts_with("    ");
        if !is_text || line.starts_with("- ") {
            self.end_paragraph(all);
        }
        if is_text {
            self.paragraph += line;
            self.paragraph.push(' ');
        }
        if line.starts_with('#') && !self.in_code {
            self.section = line.trim_start_matches('#').trim();
        }
        if line.starts_with("|---") {
            self.heads = cells(self.above);
        }
        self.above = line;
        all.extend(self.row(line));
    }

    fn row(&self, line: &str) -> Option<Entry> {
        let cells: Vec<String> = cells(line).iter().map(|c| plain(c, self.folder)).collect();
        let (written, others) = cells.split_first().filter(|(w, _)| w.starts_with('`'))?;
        let columns = others.iter().enumerate().filter(|(_, c)| !c.is_empty());
        let columns = columns.map(
            |(i, cell)| match self.heads.get(i + 1).map(String::as_str) {
                None | Some("") => cell.clone(),
                Some(head) => format!("{head}: {cell}"),
            },
        );
        Some(Entry {
            page: self.page,
            section: self.section,
            written: written.clone(),
            columns: columns.collect(),
            is_row: true,
        })
    }

    fn end_paragraph(&mut self, all: &mut Vec<Entry>) {
        let paragraph = std::mem::take(&mut self.paragraph);
        if LISTS.contains(&self.section) {
            return;
        }
        for sentence in plain(paragraph.trim_end(), self.folder).split_inclusive(". ") {
            all.push(Entry {
                page: self.page,
                section: self.section,
                written: sentence.trim().to_string(),
                columns: Vec::new(),
                is_row: false,
            });
        }
    }
}

/// The cells of a table's row; none of another line.
fn cells(line: &str) -> Vec<String> {
    let row = line.strip_prefix('|').and_then(|l| l.strip_suffix('|'));
    let bar = "\u{1}";
    let cells = row.map(|row| row.replace("\\|", bar));
    let cells = cells.iter().flat_map(|row| row.split('|'));
    cells.map(|cell| cell.trim().replace(bar, "|")).collect()
}

/// Links as text: those to another page with its path.
fn plain(cell: &str, folder: &str) -> String {
    let mut out = String::new();
    let mut rest = cell;
    while let Some((text, after)) = rest.split_once("](") {
        let Some((to, after)) = after.split_once(')') else {
            break;
        };
        match text.rsplit_once('[') {
            Some((before, text)) => out += &format!("{before}{text}"),
            None => out += text,
        }
        if !to.starts_with('#') && !to.contains("://") {
            let (mut folder, mut to) = (folder, to);
            while let Some(up) = to.strip_prefix("../") {
                folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
                to = up;
            }
            let between = if folder.is_empty() { "" } else { "/" };
            out += &format!(" [{folder}{between}{to}]");
        }
        rest = after;
    }
    (out + rest).replace("**", "")
}
