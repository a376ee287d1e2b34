//! The pages of the documentation: their links lead somewhere, the table of contents is whole, and consoles show
//! what odec prints.
//!
//! A block `ode` whose first line is `// NAME.ode` is that file from there on. A block `console` holds commands,
//! `$ odec …`, each above the lines that it prints. A line `…` stands for any lines, and `…` inside a line for any
//! text. Where the first line is an error, the command must fail. In a block `console varies` the machine decides what
//! is printed: there the commands must succeed.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::{Place, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Markdown files below a folder of the repository, but for what is built or installed there.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let skipped = name.starts_with('.') || ["target", "runs", "data"].contains(&&*name);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !skipped => pages(&path, found),
            Ok(kind) if kind.is_file() && name.ends_with(".md") => found.push(path),
            _ => {}
        }
    }
    found.sort();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The lines outside of blocks of code, without what stands between backticks.
fn prose(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            let outside = line.split('`').step_by(2);
            lines.push(outside.collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// The targets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|l| l.split(')').next())
}

/// The names by which a page's headings are linked to, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
        let name: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let name = name.replace(' ', "-");
        let before = taken.entry(name.clone()).or_default();
        found.insert(match *before {
            0 => name,
            n => format!("{name}-{n}"),
        });
        *before += 1;
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = Vec::new();
    pages(root(), &mut all);
    let (mut broken, mut counted) = (Vec::new(), 0);
    let mut known: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for page in &all {
        let whole = read(page);
        for line in prose(&whole) {
            for target in targets(&line).filter(|t| !t.contains("://") && !t.starts_with("mailto:"))
            {
                counted += 1;
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let to = match file {
                    "" => page.clone(),
                    _ => page.parent().expect("a folder").join(file),
                };
                let mut named = || {
                    let found = known.entry(to.clone());
                    found
                        .or_insert_with(|| anchors(&read(&to)))
                        .contains(anchor)
                };
                let there = to.exists() && (anchor.is_empty() || named());
                if !there {
                    broken.push(format!("{}: {target}", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(counted > 50, "{counted} links");
}

#[test]
fn the_table_of_contents_lists_every_page_once() {
    let docs = root().join("docs");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    let there: BTreeSet<String> = all
        .iter()
        .map(|p| {
            p.strip_prefix(&docs)
                .expect("below docs")
                .display()
                .to_string()
        })
        .filter(|p| p != "SUMMARY.md")
        .collect();
    let summary = read(&docs.join("SUMMARY.md"));
    let mut listed = BTreeSet::new();
    for target in summary.lines().flat_map(targets) {
        assert!(listed.insert(target.to_string()), "{target} twice");
    }
    assert_eq!(there, listed);
}

/// A block of code: the words after its fence, the line of the fence, and its text.
struct Block {
    words: String,
    line: usize,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = false;
    for (n, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(_), true) => open = false,
            (Some(words), false) => {
                open = true;
                found.push(Block {
                    words: words.into(),
                    line: n + 1,
                    text: String::new(),
                });
            }
            (None, true) => {
                let block = found.last_mut().expect("a block is open");
                block.text += line;
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    found
}

/// The commands of a console, each with the lines that it prints.
fn commands(console: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in console.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => found.push((command, Vec::new())),
            None => found.last_mut().expect("a command first").1.push(line),
        }
    }
    found
}

/// Whether a line is what is shown, where `…` stands for any text.
fn line_matches(shown: &str, line: &str) -> bool {
    match shown.split_once('…') {
        None => shown.trim_end() == line.trim_end(),
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

/// Whether lines are what is shown, where a line `…` stands for any lines.
fn lines_match(shown: &[&str], lines: &[&str]) -> bool {
    match shown {
        [] => lines.is_empty(),
        ["…", rest @ ..] => (0..=lines.len()).any(|n| lines_match(rest, &lines[n..])),
        [first, rest @ ..] => lines
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others)),
    }
}

/// Runs a command as a shell would; training is cut to three steps.
fn run(place: &Place, command: &str) -> (bool, String) {
    let bin = Path::new(env!("CARGO_BIN_EXE_odec"))
        .parent()
        .expect("a folder");
    let path = std::env::var_os("PATH").expect("PATH");
    let path = std::env::join_paths(
        [bin.to_path_buf()]
            .into_iter()
            .chain(std::env::split_paths(&path)),
    );
    let short = match command.starts_with("odec train") {
        true => format!("{command} --set train.steps=3"),
        false => command.to_string(),
    };
    let mut c = place.through(Command::new("sh"), &["-c", &short]);
    let out = c
        .env("PATH", path.expect("a path"))
        .output()
        .expect("sh starts");
    (out.status.success(), text(&out.stdout) + &text(&out.stderr))
}

/// Runs the consoles of a page, in order; the number of commands.
fn consoles(name: &str, page: &str) -> usize {
    let place = Place::new();
    let mut counted = 0;
    for Block { words, line, text } in blocks(page) {
        if let Some(file) = text.lines().next().and_then(|l| l.strip_prefix("// "))
            && words.starts_with("ode")
            && file.ends_with(".ode")
        {
            place.write(file, &text);
        }
        if !words.starts_with("console") {
            continue;
        }
        for (command, shown) in commands(&text) {
            counted += 1;
            let (good, printed) = run(&place, command);
            let lines: Vec<&str> = printed.trim_end().lines().collect();
            let same = match words.as_str() {
                "console varies" => good,
                _ => lines_match(&shown, &lines) && good != shown[0].starts_with("error"),
            };
            assert!(same, "docs/{name}:{line}: {command}\n{printed}");
        }
    }
    counted
}

#[test]
fn consoles_show_what_odec_prints() {
    let docs = root().join("docs");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    let mut counted = 0;
    for page in &all {
        let name = page.strip_prefix(&docs).expect("below docs");
        counted += consoles(&name.display().to_string(), &read(page));
    }
    assert!(counted >= 10, "{counted} commands");
}

#[test]
fn an_ellipsis_stands_for_what_is_left_out_and_for_nothing_else() {
    assert!(line_matches("loss … nats", "loss 2.1 nats"));
    assert!(!line_matches("loss … nats", "loss 2.1 bits"));
    assert!(lines_match(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(!lines_match(&["a", "…", "d"], &["a", "b"]));
    assert!(!lines_match(&["a"], &["a", "b"]));
}
