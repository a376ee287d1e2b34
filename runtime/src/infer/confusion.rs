//! Which classes a model predicts for rows of which: the table (the confusion matrix), and its picture.

use crate::system::shown::markup;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How often each class was predicted for rows of each: images, sequences or texts. Only pairs that occur take memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// By the class of a row and the one that was predicted; none, where no class was.
    counts: BTreeMap<(usize, Option<usize>), u64>,
}

/// The class of the largest logit, the first of equal ones; none, where one is no number.
pub fn largest(logits: &[f64]) -> Option<usize> {
    if logits.iter().any(|x| x.is_nan()) {
        return None;
    }
    let numbered = logits.iter().enumerate();
    // Zeros of both signs are equal.
    let order = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    let best = numbered.max_by(|a, b| order(a.1, b.1).then(b.0.cmp(&a.0)));
    best.map(|(class, _)| class)
}

impl Confusion {
    pub fn new(classes: usize) -> Confusion {
        Confusion {
            classes,
            counts: BTreeMap::new(),
        }
    }

    /// Another row of a class.
    pub fn add(&mut self, class: usize, predicted: Option<usize>) {
        *self.counts.entry((class, predicted)).or_default() += 1;
    }

    /// Each class and the one that was predicted for rows of it, with how often.
    pub fn counts(&self) -> impl Iterator<Item = (usize, Option<usize>, u64)> {
        let pairs = self.counts.iter();
        pairs.map(|((class, predicted), n)| (*class, *predicted, *n))
    }

    /// The share of rows whose class was predicted.
    pub fn accuracy(&self) -> f64 {
        let correct = self.counts().filter(|(class, of, _)| *of == Some(*class));
        let correct: u64 = correct.map(|(_, _, n)| n).sum();
        correct as f64 / self.counts.values().sum::<u64>().max(1) as f64
    }
}

/// The most classes of a table that is drawn.
pub const MOST_DRAWN: u64 = 256;

const STYLE: &str = "\
    .page{fill:#fcfcfb}.ink{fill:#1f2328}.soft{fill:#656d76}.right{fill:#2a78d6}.wrong{fill:#d9541e}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}\
    .right{fill:#5aa2f2}.wrong{fill:#ff8a55}}";

/// Side of a cell, and what is left free at the left and above, where names of classes are short.
const CELL: usize = 40;
const LEFT: usize = 84;
const TOP: usize = 92;

/// The width of so many characters of a size, with room: letters of the fonts that are asked for are about half as wide as high.
fn width_of(text: &str, size: usize) -> usize {
    text.chars().count() * size * 3 / 5
}

/// The table as a self-contained SVG picture: a row for each class, shaded by the share of its rows. A class without a name has its number.
pub fn svg(title: &str, table: &Confusion, names: &[String]) -> String {
    let none = table.counts().any(|(_, predicted, _)| predicted.is_none());
    let columns = table.classes + usize::from(none);
    let name = |class: usize| match names.get(class) {
        _ if class == table.classes => "none".into(),
        Some(name) => markup(name),
        None => class.to_string(),
    };
    let longest = names.iter().map(|name| width_of(name, 13)).max();
    let longest = longest.unwrap_or(0);
    let (cell, left) = (CELL.max(longest + 6), LEFT.max(longest + 32));
    let said = format!(
        "{:.2} % correct; rows are classes, columns what was predicted",
        100.0 * table.accuracy()
    );
    let texts = 20 + width_of(title, 16).max(width_of(&said, 13)) + 20;
    let width = texts.max(left + columns * cell + 24);
    let height = TOP + table.classes * CELL + 24;
    let title = markup(title);
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Classes predicted by {title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"ink\" x=\"20\" y=\"28\" font-size=\"16\" font-weight=\"600\">{title}</text>\n\
         <text class=\"soft\" x=\"20\" y=\"50\">{said}</text>\n",
    );
    let mut text = |class: &str, x: usize, y: usize, anchor: &str, words: &str| {
        let _ = writeln!(
            s,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    };
    for column in 0..columns {
        text(
            "soft",
            left + column * cell + cell / 2,
            TOP - 10,
            "middle",
            &name(column),
        );
    }
    for class in 0..table.classes {
        let y = TOP + class * CELL;
        text("soft", left - 12, y + CELL / 2 + 5, "end", &name(class));
    }
    let mut of_class = vec![0; table.classes];
    table
        .counts()
        .for_each(|(class, _, n)| of_class[class] += n);
    for (class, predicted, n) in table.counts() {
        let column = predicted.unwrap_or(table.classes);
        let (x, y) = (left + column * cell, TOP + class * CELL);
        let fill = if column == class { "right" } else { "wrong" };
        // A single mistake among thousands is seen, too.
        let shade = 0.12 + 0.88 * n as f64 / of_class[class] as f64;
        let (side, high) = (cell - 2, CELL - 2);
        let _ = writeln!(
            s,
            "<rect class=\"{fill}\" fill-opacity=\"{shade:.3}\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{high}\" rx=\"3\"/>"
        );
        let (x, y) = (x + side / 2, y + high / 2 + 5);
        let _ = writeln!(
            s,
            "<text class=\"ink\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{n}</text>"
        );
    }
    s.push_str("</svg>\n");
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logit_is_the_class_and_what_is_no_number_is_none() {
        assert_eq!(largest(&[0.5, 2.0, -1.0]), Some(1));
        assert_eq!(
            largest(&[3.0, 3.0, 3.0]),
            Some(0),
            "the first of equal ones"
        );
        assert_eq!(largest(&[f64::NEG_INFINITY, f64::INFINITY]), Some(1));
        assert_eq!(largest(&[-0.0, 0.0]), Some(0), "zeros are equal");
        assert_eq!(largest(&[5.0, f64::NAN, 1.0]), None);
        assert_eq!(largest(&[]), None);
    }

    #[test]
    fn accuracy_is_the_share_of_the_diagonal() {
        let mut table = Confusion::new(3);
        assert_eq!(table.accuracy(), 0.0);
        for (class, told) in [(0, Some(0)), (0, Some(0)), (1, Some(2)), (2, None)] {
            table.add(class, told);
        }
        assert_eq!(table.accuracy(), 0.5);
        let counts: Vec<_> = table.counts().collect();
        assert_eq!(counts, [(0, Some(0), 2), (1, Some(2), 1), (2, None, 1)]);
        insta::assert_snapshot!(svg("digits", &table, &[]));
    }

    #[test]
    fn a_picture_is_as_wide_as_its_words_and_escapes_them() {
        let picture = svg("<a> & \"b\"", &Confusion::new(2), &[]);
        assert!(picture.contains(">&lt;a&gt; &amp; &quot;b&quot;</text>"));
        assert!(!picture.contains("<a>"), "{picture}");
        let width = |title: &str| -> usize {
            let picture = svg(title, &Confusion::new(2), &[]);
            let (_, rest) = picture.split_once("width=\"").unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        assert!(width("short") > 400, "the line below the title");
        assert!(width(&"long".repeat(30)) > 120 * 8, "the title");
        let names = ["<no>", "an occasional thunderstorm"].map(String::from);
        let picture = svg("weather", &Confusion::new(2), &names);
        assert!(picture.contains(">&lt;no&gt;</text>"));
        let (_, rest) = picture.split_once("width=\"").unwrap();
        let width: usize = rest.split_once('"').unwrap().0.parse().unwrap();
        assert!(
            width > 3 * width_of(&names[1], 13),
            "columns and their names"
        );
    }

    #[test]
    fn many_classes_take_memory_for_what_occurs() {
        let mut table = Confusion::new(usize::MAX);
        table.add(1 << 40, Some(7));
        table.add(1 << 40, Some(1 << 40));
        assert_eq!((table.counts().count(), table.accuracy()), (2, 0.5));
    }
}
