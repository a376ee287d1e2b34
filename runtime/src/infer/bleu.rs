//! BLEU and chrF of translations: how much of them stands in others of the same texts.
//!
//! Takes texts, each beside the one it should be; gives the figures of sacrebleu (Post 2018, arXiv:1804.08771) with its defaults, whose signatures
//! are [`BLEU`] and [`CHRF`]. Tests hold them to its own; `make bleu` runs it.

use std::collections::HashMap;
use std::hash::Hash;

/// Papineni et al. 2002, ACL; smoothed as Chen & Cherry 2014, technique 3.
pub const BLEU: &str = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";
/// Popović 2015, WMT: F₂ of characters without spaces.
pub const CHRF: &str = "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no";

/// Words of the longest n-grams.
const WORDS: usize = 4;
/// Characters of the longest.
const CHARACTERS: usize = 6;
/// How many times as much recall weighs as precision.
const BETA: f64 = 2.0;

/// Both, from 0 to 100, of all texts together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    pub bleu: f64,
    pub chrf: f64,
}

/// Of translations, each before the text it should be.
pub fn scores<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> Scores {
    let mut words = Counts::new(WORDS);
    let mut characters = Counts::new(CHARACTERS);
    for (made, wanted) in pairs {
        let [a, b] = [made, wanted].map(tokens);
        words.add(
            &a.split_whitespace().collect::<Vec<&str>>(),
            &b.split_whitespace().collect::<Vec<&str>>(),
        );
        let [a, b] = [made, wanted].map(letters);
        characters.add(&a, &b);
    }
    Scores {
        bleu: words.bleu(),
        chrf: characters.chrf(),
    }
}

/// N-grams of all texts, by their lengths from 1.
struct Counts {
    each: Vec<Grams>,
    /// Tokens of translations, and of what these should be.
    made: u64,
    wanted: u64,
}

/// N-grams of one length.
#[derive(Clone, Copy, Default)]
struct Grams {
    made: u64,
    wanted: u64,
    /// Those of translations that stand in what these should be, each as often as there at most.
    right: u64,
    /// Those of translations of which the other text has any of that length.
    compared: u64,
}

impl Counts {
    fn new(longest: usize) -> Counts {
        Counts {
            each: vec![Grams::default(); longest],
            made: 0,
            wanted: 0,
        }
    }

    fn add<T: Eq + Hash>(&mut self, made: &[T], wanted: &[T]) {
        self.made += made.len() as u64;
        self.wanted += wanted.len() as u64;
        for (n, grams) in (1..).zip(&mut self.each) {
            let mut left: HashMap<&[T], u64> = HashMap::new();
            for gram in wanted.windows(n) {
                *left.entry(gram).or_default() += 1;
                grams.wanted += 1;
            }
            for gram in made.windows(n) {
                grams.made += 1;
                grams.compared += u64::from(wanted.len() >= n);
                if let Some(count) = left.get_mut(gram).filter(|count| **count > 0) {
                    *count -= 1;
                    grams.right += 1;
                }
            }
        }
    }

    /// `BP · (p₁ p₂ p₃ p₄)^¼`; where no n-gram is right, one is taken for 1/2, of the next length for 1/4, and so on.
    fn bleu(&self) -> f64 {
        if self.each.iter().all(|grams| grams.right == 0) {
            return 0.0;
        }
        let (mut half, mut sum) = (1.0, 0.0);
        for grams in &self.each {
            if grams.made == 0 {
                // No text has so many words, so nothing can be said.
                return 0.0;
            }
            let right = match grams.right {
                0 => {
                    half /= 2.0;
                    half
                }
                n => n as f64,
            };
            sum += (100.0 * right / grams.made as f64).ln();
        }
        let brevity = match self.made < self.wanted {
            true => (1.0 - self.wanted as f64 / self.made as f64).exp(),
            false => 1.0,
        };
        brevity * (sum / self.each.len() as f64).exp()
    }

    /// F of the means of precision and recall over the lengths that both sides have.
    fn chrf(&self) -> f64 {
        let both = |g: &&Grams| g.compared > 0 && g.wanted > 0;
        let lengths: Vec<&Grams> = self.each.iter().filter(both).collect();
        let mean = |of: fn(&Grams) -> u64| {
            let shares = lengths.iter().map(|g| g.right as f64 / of(g) as f64);
            shares.sum::<f64>() / lengths.len().max(1) as f64
        };
        let (precision, recall) = (mean(|g| g.compared), mean(|g| g.wanted));
        if precision + recall == 0.0 {
            return 0.0;
        }
        let weight = BETA * BETA;
        100.0 * (1.0 + weight) * precision * recall / (weight * precision + recall)
    }
}

/// What Python's `str.split` takes for a space.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn letters(text: &str) -> Vec<char> {
    text.chars().filter(|c| !is_space(*c)).collect()
}

/// Words and signs between spaces, as `mteval-v13a.pl` of NIST cuts a text.
fn tokens(text: &str) -> String {
    let text = text.trim_end_matches(is_space);
    let text = text.replace("<skipped>", "").replace("-\n", "");
    let text = text.replace('\n', " ");
    let text = text.replace("&quot;", "\"").replace("&amp;", "&");
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let mut chars = vec![' '];
    for c in text.chars() {
        match is_sign(c) {
            true => chars.extend([' ', c, ' ']),
            false => chars.push(c),
        }
    }
    chars.push(' ');
    let digit = |c: char| c.is_ascii_digit();
    let point = |c: char| matches!(c, '.' | ',');
    // A point is part of a number where digits stand on both sides, a hyphen nowhere behind a digit.
    let chars = apart(&chars, |a, b| !digit(a) && point(b), [false, true, true]);
    let chars = apart(&chars, |a, b| point(a) && !digit(b), [true, true, false]);
    let chars = apart(&chars, |a, b| digit(a) && b == '-', [false, true, true]);
    chars
        .into_iter()
        .map(|c| if is_space(c) { ' ' } else { c })
        .collect()
}

fn is_sign(c: char) -> bool {
    matches!(c, '{'..='~' | '['..='`' | ' '..='&' | '('..='+' | ':'..='@' | '/')
}

/// Puts spaces before, between and behind each two characters that `both` says, from the left, none of them twice.
fn apart(
    chars: &[char],
    both: impl Fn(char, char) -> bool,
    [before, between, behind]: [bool; 3],
) -> Vec<char> {
    let mut made = Vec::with_capacity(chars.len());
    let mut left = chars;
    while let [a, rest @ ..] = left {
        match rest {
            [b, more @ ..] if both(*a, *b) => {
                made.extend(before.then_some(' '));
                made.push(*a);
                made.extend(between.then_some(' '));
                made.push(*b);
                made.extend(behind.then_some(' '));
                left = more;
            }
            _ => {
                made.push(*a);
                left = rest;
            }
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Translations beside what they should be, BLEU and chrF.
    type Case<'c> = (&'c [(&'c str, &'c str)], f64, f64);

    /// What sacrebleu 2.5.1 gives: `BLEU().corpus_score(made, [wanted]).score` and `CHRF().corpus_score(made, [wanted]).score` in Python.
    #[test]
    fn figures_are_those_of_sacrebleu() {
        let cases: [Case; 7] = [
            (
                &[
                    ("Datei öffnen ...", "Datei öffnen..."),
                    ("Als Vorlage speichern", "Als Vorlage speichern"),
                    (
                        "Der Wert 3,5 ist zu groß (höchstens 2.75).",
                        "Der Wert 3,5 ist zu gross (maximal 2.75)!",
                    ),
                    ("", "Leer"),
                    ("A-1, B-2 & C-3: 50%", "A-1, B-2 &amp; C-3: 50 %"),
                ],
                70.44469713334531,
                72.93770160890207,
            ),
            // No text has four words.
            (&[("Ja", "Ja"), ("Nein", "Ja")], 0.0, 43.74999999999999),
            (&[("eins zwei drei", "eins zwei drei")], 0.0, 100.0),
            (&[("a b c d e", "x y z")], 0.0, 0.0),
            (&[("", "x"), ("", "y z")], 0.0, 0.0),
            // No four words in a row are right.
            (
                &[
                    (
                        "die Katze saß auf der Matte",
                        "die Katze lag auf einer Matte dort",
                    ),
                    (
                        "ein Satz mit fünf Wörtern",
                        "ein anderer Satz mit fünf Wörtern",
                    ),
                ],
                31.655172267669844,
                56.66962536405674,
            ),
            // Signs, numbers, entities, and what Python takes for spaces.
            (
                &[
                    (
                        "x...y, z; [a] {b} <c> 1.000,5-7 – »„Q“« 3-",
                        "x... y, z; [a]{b} <c> 1.000,5-7 – »„Q“« 3 -",
                    ),
                    (
                        "a\u{a0}b\tc\u{1c}d &quot;e&quot; .5 5. ,",
                        "a b c d \"e\" .5 5. ,",
                    ),
                ],
                100.00000000000004,
                82.91779616427144,
            ),
        ];
        for (pairs, bleu, chrf) in cases {
            let found = scores(pairs.iter().copied());
            assert!((found.bleu - bleu).abs() < 1e-9, "{pairs:?}: {found:?}");
            assert!((found.chrf - chrf).abs() < 1e-9, "{pairs:?}: {found:?}");
        }
    }
}
