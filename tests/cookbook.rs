//! What docs/cookbook.md says that `odec check` prints of its programs is what it prints, and the table at its top is that of its recipes.

mod place;

use place::Place;
use std::path::Path;

#[test]
fn odec_check_says_what_the_cookbook_shows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cookbook.md");
    let page = std::fs::read_to_string(page).expect("docs/cookbook.md");
    let place = Place::new();
    let mut rows = Vec::new();
    for (section, part) in parts(&page) {
        let (title, part) = part.split_once('\n').expect("a title");
        let part = part.split("```ode\n").nth(1).expect("a program");
        let (program, rest) = part.split_once("```").expect("an end");
        let shown = rest
            .split("```text\n$ odec check ")
            .nth(1)
            .expect("a report");
        let (file, report) = shown.split_once('\n').expect("a file");
        let report = report.split("```").next().expect("an end");
        place.write(file, program);
        let said = place.good(&["check", file]);
        assert!(
            said.starts_with(report) && report.contains("    order "),
            "{file}: docs/cookbook.md shows\n{report}\nand odec says\n{said}"
        );
        let lines = program.lines().filter(|l| !l.is_empty()).count();
        let row = format!("| {section} | {lines} | {} |", parameters(report));
        rows.push((format!("| [{title}](#"), row));
    }
    let programs = page.matches("```ode\n").count();
    assert_eq!(rows.len(), programs, "each recipe has one program");
    assert!(programs >= 68, "{programs} recipes");
    let table = page.lines().skip_while(|l| !l.starts_with("|---|"));
    let table: Vec<&str> = table.skip(1).take_while(|l| !l.is_empty()).collect();
    assert_eq!(
        table.len(),
        rows.len(),
        "`scripts/cookbook.py ODEC --write`"
    );
    for (line, (begin, end)) in table.iter().zip(&rows) {
        assert!(
            line.starts_with(begin) && line.ends_with(end),
            "{line}: {begin}…{end}; `scripts/cookbook.py ODEC --write` writes the table"
        );
    }
}

/// Every recipe with the title of its section.
fn parts(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n## ").skip(1).flat_map(|section| {
        let title = section.lines().next().expect("a title");
        section
            .split("\n### ")
            .skip(1)
            .map(move |part| (title, part))
    })
}

/// The number of parameters that a report ends with.
fn parameters(report: &str) -> &str {
    let line = report
        .lines()
        .find_map(|l| l.strip_prefix("    parameters "));
    let number = line.and_then(|l| l.trim_start().split(':').next());
    number.expect("a line of parameters")
}
