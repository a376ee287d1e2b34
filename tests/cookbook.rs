//! What docs/cookbook.md says that `odec check` prints of its programs is what it prints.

mod place;

use place::Place;
use std::path::Path;

#[test]
fn odec_check_says_what_the_cookbook_shows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cookbook.md");
    let page = std::fs::read_to_string(page).expect("docs/cookbook.md");
    let place = Place::new();
    let mut count = 0;
    for part in page.split("```ode\n").skip(1) {
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
        count += 1;
    }
    assert_eq!(count, page.matches("\n### ").count());
}
