//! "Did you mean": the known word nearest to a misspelt one, found with a bounded amount of work.

use crate::work;

/// Most candidates that one word is compared with.
pub const MOST: usize = 1000;

/// Words longer than this are compared by their beginnings.
const LONGEST: usize = 64;

/// The candidate at the smallest edit distance from `word`, if that is small for the word's length: one that differs in case alone is the nearest,
/// and its last word (`num_heads`) is as near as two edits. The first of equals.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let limit = match word.chars().count() {
        0..=1 => 0,
        2..=3 => 1,
        4..=8 => 2,
        _ => 3,
    };
    let lower = word.to_ascii_lowercase();
    let letters = word.chars().count();
    let is_last = |known: &str| {
        word.strip_suffix(known)
            .is_some_and(|before| before.len() > 1 && before.ends_with('_'))
    };
    // Each letter too many or too few is an edit.
    let near = candidates.into_iter().filter(|known| {
        *known != word && (is_last(known) || known.chars().count().abs_diff(letters) <= limit)
    });
    let ranked = near.take(MOST).map(|known| match is_last(known) {
        true => (2, known),
        false => (distance(&lower, &known.to_ascii_lowercase()), known),
    });
    ranked
        .filter(|&(d, known)| d <= limit && d < known.chars().count())
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
    work::add(1);
    let letters = |word: &str| word.chars().take(LONGEST).collect::<Vec<char>>();
    let (a, b) = (letters(a), letters(b));
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
        let heads = ["kv_heads", "heads"];
        assert_eq!(nearest("num_heads", heads), Some("heads"));
        assert_eq!(nearest("kw_heads", heads), Some("kv_heads"));
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn the_work_of_a_suggestion_is_bounded() {
        let words: Vec<String> = (0..5000).map(|i| format!("word{i:04}")).collect();
        let before = work::done();
        nearest("vord4321", words.iter().map(String::as_str));
        assert_eq!(work::done() - before, MOST as u64);
        // Words of other lengths are not compared at all.
        nearest("wo", words.iter().map(String::as_str));
        assert_eq!(work::done() - before, MOST as u64);
    }
}
