//! Which classes a model tells for images of which: the table, and its picture.

use std::fmt::Write;

/// How often each class was told for images of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// A row for each class, with a column for each that was told, and one for none.
    counts: Vec<u64>,
}

/// The class of the largest logit, the first of equal ones; none, where one is no number.
pub fn largest(logits: &[f64]) -> Option<usize> {
    if logits.iter().any(|x| x.is_nan()) {
        return None;
    }
    let numbered = logits.iter().enumerate();
    let best = numbered.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.map(|(class, _)| class)
}

impl Confusion {
    pub fn new(classes: usize) -> Confusion {
        Confusion {
            classes,
            counts: vec![0; classes * (classes + 1)],
        }
    }

    /// Another image of a class.
    pub fn add(&mut self, class: usize, told: Option<usize>) {
        let column = told.unwrap_or(self.classes);
        self.counts[class * (self.classes + 1) + column] += 1;
    }

    /// How often each class was told for images of this one; the last number is of those for which none was.
    pub fn row(&self, class: usize) -> &[u64] {
        let width = self.classes + 1;
        &self.counts[class * width..(class + 1) * width]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.classes + 1)
    }

    /// The share of images whose class was told.
    pub fn accuracy(&self) -> f64 {
        let right: u64 = (0..self.classes).map(|c| self.row(c)[c]).sum();
        right as f64 / self.counts.iter().sum::<u64>().max(1) as f64
    }
}

const STYLE: &str = "\
    .page{fill:#fcfcfb}.ink{fill:#1f2328}.soft{fill:#656d76}.right{fill:#2a78d6}.wrong{fill:#d9541e}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}\
    .right{fill:#5aa2f2}.wrong{fill:#ff8a55}}";

/// Side of a cell, and what is left free at the left and above.
const CELL: usize = 40;
const LEFT: usize = 84;
const TOP: usize = 92;

/// The table as a self-contained SVG picture: a row for each class, shaded by the share of its images.
pub fn svg(title: &str, table: &Confusion) -> String {
    let nothing_told = table.rows().any(|r| r[table.classes] > 0);
    let columns = table.classes + usize::from(nothing_told);
    let (width, height) = (LEFT + columns * CELL + 24, TOP + table.classes * CELL + 24);
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Classes told by {title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"ink\" x=\"20\" y=\"28\" font-size=\"16\" font-weight=\"600\">{title}</text>\n\
         <text class=\"soft\" x=\"20\" y=\"50\">{:.2} % right; rows are classes, columns what was told</text>\n",
        100.0 * table.accuracy(),
    );
    let mut text = |class: &str, x: usize, y: usize, anchor: &str, words: &str| {
        let _ = writeln!(
            s,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    };
    for column in 0..columns {
        let name = match column == table.classes {
            true => "none".into(),
            false => column.to_string(),
        };
        text(
            "soft",
            LEFT + column * CELL + CELL / 2,
            TOP - 10,
            "middle",
            &name,
        );
    }
    for class in 0..table.classes {
        let y = TOP + class * CELL;
        text(
            "soft",
            LEFT - 12,
            y + CELL / 2 + 5,
            "end",
            &class.to_string(),
        );
    }
    for (class, row) in table.rows().enumerate() {
        let all = row.iter().sum::<u64>().max(1);
        for (column, n) in row.iter().enumerate().filter(|(_, n)| **n > 0) {
            let (x, y) = (LEFT + column * CELL, TOP + class * CELL);
            let fill = if column == class { "right" } else { "wrong" };
            // A single mistake among thousands is seen, too.
            let shade = 0.12 + 0.88 * *n as f64 / all as f64;
            let side = CELL - 2;
            let _ = writeln!(
                s,
                "<rect class=\"{fill}\" fill-opacity=\"{shade:.3}\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" rx=\"3\"/>"
            );
            let (x, y) = (x + side / 2, y + side / 2 + 5);
            let _ = writeln!(
                s,
                "<text class=\"ink\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{n}</text>"
            );
        }
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
        let rows: Vec<&[u64]> = table.rows().collect();
        assert_eq!(rows, [[2, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]);
        insta::assert_snapshot!(svg("digits", &table));
    }
}
