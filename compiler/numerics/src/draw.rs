//! Trees as text: drawn with one vertex per line, and as elementary differentials.

use crate::trees::{TreeId, Trees};

/// The tree as lines, root first; vertices are called like the fields they evaluate.
///
/// ```text
/// F
/// ├─ F
/// └─ F
///    └─ F
/// ```
pub fn tree(trees: &Trees, t: TreeId, names: &[String]) -> String {
    let mut lines = Vec::new();
    below(trees, t, names, String::new(), String::new(), &mut lines);
    lines.join("\n")
}

fn below(
    trees: &Trees,
    t: TreeId,
    names: &[String],
    first: String,
    rest: String,
    lines: &mut Vec<String>,
) {
    let t = trees.seen(t);
    lines.push(format!("{first}{}", name(trees, t, names)));
    let children = trees.children(t);
    let last = children.len().saturating_sub(1);
    for (i, child) in children.into_iter().enumerate() {
        let (corner, bar) = if i == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let (first, rest) = (format!("{rest}{corner}"), format!("{rest}{bar}"));
        below(trees, child, names, first, rest, lines);
    }
}

/// The elementary differential: `F`, `F'F`, `F''(F, F'F)`, with the names of the fields.
pub fn differential(trees: &Trees, t: TreeId, names: &[String]) -> String {
    let t = trees.seen(t);
    let children = trees.children(t);
    let inner: Vec<String> = children
        .iter()
        .map(|c| differential(trees, *c, names))
        .collect();
    let own = name(trees, t, names);
    match inner.as_slice() {
        [] => own.to_string(),
        [one] => format!("{own}'{}{one}", if own.len() > 1 { " " } else { "" }),
        several => {
            let primes = match several.len() {
                n @ 2..=3 => "'".repeat(n),
                n => format!("^({n})"),
            };
            format!("{own}{primes}({})", several.join(", "))
        }
    }
}

fn name<'n>(trees: &Trees, t: TreeId, names: &'n [String]) -> &'n str {
    names.get(trees.colour(t)).map_or("?", String::as_str)
}
