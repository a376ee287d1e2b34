//! Words of the language for `odec help`: what docs/reference.md says of them in its tables, and schemes of the library.
//!
//! A word is what an entry in the first column of a table begins with: `order 4 within 1e-14` is about `order`.

use odec_driver::library::LIBRARY;

const REFERENCE: &str = include_str!("../../docs/reference.md");

/// A row of a table.
struct Row {
    /// The heading above the table.
    section: &'static str,
    written: String,
    meaning: String,
}

/// The page of a scheme of the library: its text.
pub fn scheme(name: &str) -> Option<String> {
    let scheme = LIBRARY.get(name).filter(|s| !s.is_layer())?;
    let text: Vec<String> = scheme
        .text
        .lines()
        .map(|line| format!("  {line}").trim_end().to_string())
        .collect();
    Some(format!(
        "{name}, scheme of the library: {}\n\n{}\n\n`odec schemes {name}` prints its order, size and proved properties, `odec methods {name}` its measured order.\n",
        scheme.path(),
        text.join("\n")
    ))
}

/// The page of a word: all rows about it.
pub fn word(name: &str) -> Option<String> {
    let mut page = format!("{name}, in docs/reference.md\n");
    let mut section = "";
    for row in rows().filter(|row| words(&row.written).any(|word| word == name)) {
        if row.section != section {
            section = row.section;
            page += &format!("\n{section}:\n");
        }
        page += &format!("  {}\n      {}\n", row.written, row.meaning);
    }
    (!section.is_empty()).then_some(page)
}

/// All of them, for near ones.
pub fn all() -> Vec<String> {
    let rows: Vec<Row> = rows().collect();
    let words = rows.iter().flat_map(|row| words(&row.written));
    words.map(String::from).collect()
}

/// What the entries in backquotes begin with.
fn words(written: &str) -> impl Iterator<Item = &str> {
    let entries = written.split('`').skip(1).step_by(2);
    entries.filter_map(|entry| {
        let end = entry.find(|c: char| !c.is_alphanumeric() && c != '_');
        Some(&entry[..end.unwrap_or(entry.len())]).filter(|word| !word.is_empty())
    })
}

/// The rows of tables whose first column begins with something in backquotes.
fn rows() -> impl Iterator<Item = Row> {
    let mut section = "";
    let mut head = String::new();
    let mut before = "";
    REFERENCE.lines().filter_map(move |line| {
        let above = std::mem::replace(&mut before, line);
        if let Some(title) = line.strip_prefix('#') {
            section = title.trim_start_matches('#').trim();
        }
        if line.starts_with("|---") {
            head = cells(above).pop().unwrap_or_default();
        }
        let mut cells = cells(line).into_iter();
        let written = cells.next().filter(|cell| cell.starts_with('`'))?;
        let said = cells.map(|cell| plain(&cell));
        let said: Vec<String> = said.filter(|said| !said.is_empty()).collect();
        let said = said.join("; ");
        let meaning = match head.as_str() {
            "of" => format!("of {said}"),
            _ => said,
        };
        Some(Row {
            section,
            written,
            meaning,
        })
    })
}

/// The cells of a table's row; none of another line.
fn cells(line: &str) -> Vec<String> {
    let row = line.strip_prefix('|').and_then(|l| l.strip_suffix('|'));
    let bar = "\u{1}";
    let cells = row.map(|row| row.replace("\\|", bar));
    let cells = cells.iter().flat_map(|row| row.split('|'));
    cells.map(|cell| cell.trim().replace(bar, "|")).collect()
}

/// Without the places that links lead to.
fn plain(cell: &str) -> String {
    let mut out = String::new();
    let mut rest = cell;
    while let Some((text, after)) = rest.split_once("](") {
        let Some((_, after)) = after.split_once(')') else {
            break;
        };
        match text.rsplit_once('[') {
            Some((before, text)) => out += &format!("{before}{text}"),
            None => out += text,
        }
        rest = after;
    }
    out + rest
}
