//! "Did you mean": the known word nearest to a misspelt one.

/// The candidate at the smallest edit distance from `word`, if that is small for the word's length: one that differs in case alone is the nearest.
/// The first of equals.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let limit = match word.chars().count() {
        0..=1 => 0,
        2..=3 => 1,
        4..=8 => 2,
        _ => 3,
    };
    let lower = word.to_ascii_lowercase();
    let ranked = candidates.into_iter().filter(|known| *known != word);
    let ranked = ranked.map(|known| {
        let letters = distance(&lower, &known.to_ascii_lowercase());
        ((letters, distance(word, known)), known)
    });
    ranked
        .filter(|&((d, _), known)| d <= limit && d < known.chars().count())
        .min_by_key(|&(d, _)| d)
        .map(|(_, known)| known)
}

/// The `count` candidates at the smallest edit distances, nearest first, equals in their order.
pub fn ranked<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
    count: usize,
) -> Vec<&'c str> {
    let mut all: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|known| (distance(word, known), known))
        .collect();
    all.sort_by_key(|&(distance, _)| distance);
    all.dedup();
    all.truncate(count);
    all.into_iter().map(|(_, known)| known).collect()
}

/// Edits between two words: insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = substituted.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings() {
        let words = ["scheme", "field", "model", "train", "explore", "use"];
        assert_eq!(nearest("modle", words), Some("model"));
        assert_eq!(nearest("shceme", words), Some("scheme"));
        assert_eq!(nearest("xyzzy", words), None);
        assert_eq!(
            nearest("model", words),
            None,
            "an exact match is no misspelling"
        );
        assert_eq!(nearest("Lie", ["iie", "lie"]), Some("lie"), "case first");
        assert_eq!(
            nearest("RMSNorm", ["layernorm", "rmsnorm"]),
            Some("rmsnorm")
        );
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
