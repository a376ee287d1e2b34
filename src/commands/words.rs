//! Words of the language for `odec help`: what the pages of docs/ say of them, which are embedded, and what layers, other parts and schemes declare of
//! the arguments that have this name. So a word is known once a page or a declaration has it.
//!
//! A row of a table is about the words of the code in its first column, and the arguments in it: `order 4 within 1e-14` about `order` and `within`,
//! `tokens(vocab, context)` about `tokens`, `vocab` and `context`. Where no row and no argument has a word, other words in brackets are looked at, and then the
//! sentences of the reference and the other columns of its tables.

use odec_compiler::model::chapters::chapters;
use odec_compiler::model::page::{self, ArgumentLine};
use odec_driver::library::LIBRARY;
use odec_grammar::ast::{Item, ParamKind};

/// Names and texts, those of the reference first (`build.rs`).
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));
/// Sections of the reference that list names and say nothing of any.
const LISTS: [&str; 2] = ["Keywords", "Names that are taken"];

/// A row of a table, or a sentence.
struct Entry {
    page: &'static str,
    /// The heading above.
    section: &'static str,
    /// The first column; of a sentence, all of it.
    written: String,
    /// The other columns, each with its heading; none of a sentence.
    columns: Vec<String>,
    is_row: bool,
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

/// The page of a word, or of a path of `--set` by its last part.
pub fn word(name: &str) -> Option<String> {
    let name = name.rsplit('.').next().unwrap_or(name);
    let all = entries();
    let has = |text: &str, which| words(text, which).contains(&name);
    let rows = || all.iter().filter(|e| e.is_row);
    let mut found: Vec<&Entry> = rows().filter(|e| has(&e.written, Which::Main)).collect();
    let arguments = arguments_called(name);
    if found.is_empty() && arguments.is_empty() {
        found = rows().filter(|e| has(&e.written, Which::All)).collect();
    }
    if found.is_empty() && arguments.is_empty() {
        let reference = all.iter().filter(|e| e.page == PAGES[0].0);
        let all = |e: &&Entry| {
            [&e.written]
                .into_iter()
                .chain(&e.columns)
                .any(|text| has(text, Which::All))
        };
        found = reference.filter(all).collect();
    }
    if found.is_empty() && arguments.is_empty() {
        return None;
    }
    let mut said = format!("{name}, a word of the language\n");
    let mut place = ("", "");
    for e in found {
        if (e.page, e.section) != place {
            place = (e.page, e.section);
            said += &format!("\n{}, {}:\n", e.page, e.section);
        }
        said += &format!("  {}\n", e.written);
        for column in &e.columns {
            said += &format!("      {column}\n");
        }
    }
    if !arguments.is_empty() {
        said += "\nArgument of:\n";
    }
    for (owners, a) in arguments {
        said += &format!(
            "  {}\n      {} [{}]\n",
            owners.join(", "),
            a.form,
            a.default
        );
        if !a.meaning.is_empty() {
            said += &format!("      {}\n", a.meaning);
        }
    }
    Some(said)
}

/// All of them, for near ones.
pub fn all() -> Vec<String> {
    let entries = entries();
    let rows = entries.iter().filter(|e| e.is_row);
    let words = rows.flat_map(|row| words(&row.written, Which::All));
    let mut all: Vec<String> = words.map(String::from).collect();
    all.extend(arguments("").into_iter().map(|(_, a)| a.name));
    all
}

/// The arguments of this name. Those of which the same is said stand together.
fn arguments_called(name: &str) -> Vec<(Vec<String>, ArgumentLine)> {
    let mut found: Vec<(Vec<String>, ArgumentLine)> = Vec::new();
    for (owner, argument) in arguments(name) {
        if argument.name != name {
            continue;
        }
        match found.iter_mut().find(|(_, a)| *a == argument) {
            Some((owners, _)) if owners.contains(&owner) => {}
            Some((owners, _)) => owners.push(owner),
            None => found.push((vec![owner], argument)),
        }
    }
    found
}

/// All arguments with what takes them: of layers, of other parts, and the numbers of the library's schemes that have this word.
fn arguments(word: &str) -> Vec<(String, ArgumentLine)> {
    let mut all = Vec::new();
    let layers = page::names(LIBRARY).map(|n| (n.to_string(), page::arguments(n, LIBRARY)));
    let parts = chapters().into_iter().flat_map(|c| c.pages);
    for (name, arguments) in layers.chain(parts.map(|p| (p.name, p.arguments))) {
        all.extend(arguments.into_iter().map(|a| (name.clone(), a)));
    }
    for file in LIBRARY
        .iter()
        .filter(|s| !s.is_layer() && s.text.contains(word))
    {
        let (tree, _) = odec_grammar::parse(0, file.text);
        for item in tree.items {
            let Item::Scheme(scheme) = item else { continue };
            for param in scheme.params {
                let ParamKind::Value(default) = param.kind else {
                    continue;
                };
                let place = default.span.start as usize..default.span.end as usize;
                let default = file.text.get(place).unwrap_or_default();
                let line = ArgumentLine {
                    name: param.name.name,
                    form: "a number of the scheme".into(),
                    default: default.into(),
                    meaning: String::new(),
                };
                all.push((scheme.name.name.clone(), line));
            }
        }
    }
    all
}

/// Which words of code.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    /// Those outside of brackets, and arguments: a word alone, or before a colon.
    Main,
    All,
}

/// The words of the code in a text, which is not that of a command.
fn words(text: &str, which: Which) -> Vec<&str> {
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
            let is_meant = which == Which::All || depth == 0 || is_argument;
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
fn entries() -> Vec<Entry> {
    let mut all = Vec::new();
    for &(page, text) in PAGES {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (mut section, mut in_code) = ("", false);
        let mut heads: Vec<String> = Vec::new();
        let mut paragraph = String::new();
        let mut above = "";
        for line in text.lines().chain([""]) {
            if line.starts_with("```") {
                in_code = !in_code;
            }
            let is_text = !in_code
                && !line.is_empty()
                && !line.starts_with(['#', '|', '`'].as_slice())
                && !line.starts_with("    ");
            let starts_anew = !is_text || line.starts_with("- ");
            if starts_anew && !paragraph.is_empty() && !LISTS.contains(&section) {
                let sentences = plain(&paragraph, folder);
                for sentence in sentences.split_inclusive(". ") {
                    all.push(Entry {
                        page,
                        section,
                        written: sentence.trim().to_string(),
                        columns: Vec::new(),
                        is_row: false,
                    });
                }
            }
            if starts_anew {
                paragraph.clear();
            }
            if is_text {
                paragraph += line;
                paragraph.push(' ');
            }
            if line.starts_with('#') && !in_code {
                section = line.trim_start_matches('#').trim();
            }
            if line.starts_with("|---") {
                heads = cells(above);
            }
            above = line;
            let cells: Vec<String> = cells(line).iter().map(|c| plain(c, folder)).collect();
            let Some((written, others)) = cells.split_first().filter(|(w, _)| w.starts_with('`'))
            else {
                continue;
            };
            let columns = others.iter().enumerate().filter(|(_, c)| !c.is_empty());
            let columns = columns.map(|(i, cell)| match heads.get(i + 1).map(String::as_str) {
                None | Some("") => cell.clone(),
                Some(head) => format!("{head}: {cell}"),
            });
            all.push(Entry {
                page,
                section,
                written: written.clone(),
                columns: columns.collect(),
                is_row: true,
            });
        }
    }
    all
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
