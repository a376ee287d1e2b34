//! Translations: the last text of a pair, searched for token by token.
//!
//! Takes what is read, a text or several; gives for each the likeliest text that a beam finds (Wu et al. 2016, arXiv:1609.08144, section 7). What the model says of the
//! next token is asked for in one place (`Next`). Entry `encode` reads the sources once, and entry `extend` a token of each text of the beam
//! (`Kept`); what is kept of earlier tokens moves with the texts that go on. A program without them, or with too few rows, runs entry `forward` on
//! all tokens so far, of several sources together (`Whole`): the same numbers, bit for bit.

use crate::data::tokenizer::{Tokenizer, TokenizerError};
use crate::executor::{Executor, RunError, Value};
use crate::infer::evaluate::{source_window, window};
use odec_program::manifest::{Form, Pairs};
use odec_program::{Bindings, EntryId, names};

/// How translations are searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Texts that are kept at each length; 1 takes the likeliest token each time.
    pub beam: usize,
    /// α of `log p / ((5 + n) / 6)^α`, by which texts of n tokens are compared.
    pub length_penalty: f64,
    /// Tokens of a text, its end among them; at most as many as the context has room for.
    pub min_length: u64,
    pub max_length: Option<u64>,
}

impl Default for Search {
    fn default() -> Search {
        Search {
            beam: 4,
            length_penalty: 0.6,
            min_length: 1,
            max_length: None,
        }
    }
}

/// What was found for a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    pub text: String,
    /// The natural logarithm of its probability.
    pub log_probability: f64,
    /// With its end.
    pub tokens: u64,
}

/// Why texts cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    #[error("this model reads one sequence; `odec generate` continues a text")]
    OneSequence,
    #[error("text {number} is empty (counted from 1)")]
    Empty { number: usize },
    #[error("this model reads {each} texts for a translation, {inputs}, and {has} are given")]
    Several {
        each: usize,
        inputs: String,
        has: usize,
    },
    #[error(
        "text {number} has {has} tokens and an end (counted from 1), and the context of the source has room for {context}"
    )]
    Long {
        number: usize,
        has: usize,
        context: u64,
    },
    #[error("--beam 0 keeps no text; give 1 or more")]
    Beam,
    #[error("a length penalty of {0} is not a number of at least 0")]
    Penalty(f64),
    #[error("no text has {min} to {max} tokens with its end; the context has room for {context}")]
    Lengths { min: u64, max: u64, context: u64 },
    #[error("the model's logits are not finite; its training has diverged")]
    NonFinite,
    #[error("the tokenizer has a vocabulary of {needs}; this model has a vocabulary of {vocab}")]
    Vocabulary { needs: u64, vocab: u64 },
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// What a run on pairs was told of its tokens.
fn pairs(x: &Executor) -> Option<&Pairs> {
    match x.manifest().train.as_ref().map(|t| &t.data.form) {
        Some(Form::Pairs(pairs)) => Some(pairs),
        _ => None,
    }
}

/// What a model makes a text of: the labels of its inputs; `None` where it makes none of others.
pub fn sources(x: &Executor) -> Option<Vec<String>> {
    let inputs = pairs(x)?.sources.iter().map(|of| of.input.clone());
    Some(inputs.collect())
}

/// Whether a model makes one text of another.
pub fn translates(x: &Executor) -> bool {
    pairs(x).is_some()
}

/// Translates texts, in their order: for each translation as many as the model reads, one after the other. `report` hears how many are done.
///
/// # Errors
/// When the model reads one sequence, a text is empty, too long or missing, or the settings make no sense.
pub fn translate(
    x: &mut Executor,
    tokenizer: &Tokenizer,
    texts: &[String],
    s: &Search,
    report: &mut dyn FnMut(usize),
) -> Result<Vec<Translation>, TranslateError> {
    let form = pairs(x).ok_or(TranslateError::OneSequence)?.clone();
    let (context, of_source) = (window(x), source_window(x));
    let (known, vocab) = (tokenizer.vocabulary(), x.manifest().model.vocab);
    if known > form.begin {
        return Err(TranslateError::Vocabulary {
            needs: known,
            vocab,
        });
    }
    let max = s.max_length.unwrap_or(context);
    if s.min_length > max || max == 0 || max > context {
        let min = s.min_length;
        return Err(TranslateError::Lengths { min, max, context });
    }
    if s.beam == 0 {
        return Err(TranslateError::Beam);
    }
    if !(s.length_penalty >= 0.0 && s.length_penalty.is_finite()) {
        return Err(TranslateError::Penalty(s.length_penalty));
    }
    let rules = Rules {
        beam: s.beam,
        alpha: s.length_penalty,
        lengths: [s.min_length as usize, max as usize],
        known: known as usize,
        end: form.end as usize,
    };
    let each = form.sources.len();
    if !texts.len().is_multiple_of(each) {
        let inputs = form.sources.iter().map(|of| &of.input[..]);
        return Err(TranslateError::Several {
            each,
            inputs: inputs.collect::<Vec<_>>().join(", "),
            has: texts.len(),
        });
    }
    let mut read = Vec::new();
    for (n, tokens) in tokenizer
        .encode_all(texts.to_vec())?
        .into_iter()
        .enumerate()
    {
        let number = n + 1;
        if texts[n].trim().is_empty() || tokens.is_empty() {
            return Err(TranslateError::Empty { number });
        }
        if tokens.len() as u64 >= of_source {
            let (has, context) = (tokens.len(), of_source);
            return Err(TranslateError::Long {
                number,
                has,
                context,
            });
        }
        let tokens = tokens.iter().map(|t| *t as i32);
        read.push(tokens.chain([form.end as i32]).collect::<Vec<i32>>());
    }
    let sources: Vec<&[Vec<i32>]> = read.chunks(each).collect();
    let keeps = s.beam <= rows(x, EntryId::Extend);
    // Texts of similar length, as many as a run has room for.
    let (mut model, together): (Box<dyn Next + '_>, usize) = match keeps {
        true => (Box::new(Kept::new(x, form)?), 1),
        false => {
            let planned = rows(x, EntryId::Forward).max(1);
            let together = (planned / s.beam).max(1);
            (Box::new(Whole { planned, form, x }), together)
        }
    };
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|n| (longest(sources[*n]), *n));
    let mut found: Vec<Option<Translation>> = vec![None; sources.len()];
    for (done, group) in order.chunks(together).enumerate() {
        let these: Vec<&[Vec<i32>]> = group.iter().map(|n| sources[*n]).collect();
        for (n, best) in group.iter().zip(search(&mut *model, &these, &rules)?) {
            found[*n] = Some(Translation {
                text: text(tokenizer, &best.tokens)?,
                log_probability: best.log_p,
                tokens: best.tokens.len() as u64 + 1,
            });
        }
        report((done * together + group.len()).min(sources.len()));
    }
    Ok(found.into_iter().flatten().collect())
}

/// Tokens of the longest of some texts.
fn longest(texts: &[Vec<i32>]) -> usize {
    texts.iter().map(Vec::len).max().unwrap_or(0)
}

fn text(tokenizer: &Tokenizer, tokens: &[i32]) -> Result<String, TokenizerError> {
    let mut decoder = tokenizer.decoder();
    let mut text = String::new();
    for token in tokens {
        text.extend(decoder.push(*token as u32)?);
    }
    text.extend(decoder.finish());
    Ok(text)
}

/// Rows that an entry was planned for; none, where there is none.
fn rows(x: &Executor, entry: EntryId) -> usize {
    let entry = x.manifest().program.entries.get(&entry);
    entry.map_or(0, |e| e.maxima.batch) as usize
}

/// Sources, one for each input, and the tokens of a translation of them.
type Row<'r> = (&'r [Vec<i32>], &'r [i32]);

/// What the next token of texts may be.
trait Next {
    /// Logits for each pair of sources, with their ends, and the tokens of their translation so far.
    fn next(&mut self, rows: &[Row]) -> Result<Vec<Vec<f64>>, RunError>;
}

/// Entry `forward`, run on all tokens so far.
struct Whole<'x> {
    x: &'x mut Executor,
    form: Pairs,
    planned: usize,
}

impl Next for Whole<'_> {
    fn next(&mut self, rows: &[Row]) -> Result<Vec<Vec<f64>>, RunError> {
        let vocab = self.x.manifest().model.vocab as usize;
        let [begin, padding] = [self.form.begin, self.form.padding].map(|token| token as i32);
        let mut logits = Vec::new();
        for rows in rows.chunks(self.planned) {
            let most = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(1);
            let beside = most(&mut rows.iter().map(|(s, _)| longest(s)));
            let columns = most(&mut rows.iter().map(|(_, t)| t.len() + 1));
            let mut sources = vec![Vec::new(); self.form.sources.len()];
            let mut tokens = Vec::new();
            for (n, (of_sources, of_target)) in rows.iter().enumerate() {
                for (to, of_source) in sources.iter_mut().zip(*of_sources) {
                    to.extend_from_slice(of_source);
                    to.resize((n + 1) * beside, padding);
                }
                tokens.push(begin);
                tokens.extend_from_slice(of_target);
                tokens.resize((n + 1) * columns, padding);
            }
            let at = Bindings::new(rows.len() as u64, columns as u64).beside(beside as u64);
            let mut given = fed(&self.form, &sources);
            given.push((names::TOKENS, Value::I32(&tokens)));
            let out = self.x.run(EntryId::Forward, at, &given, &[])?;
            let out = out.reals(names::LOGITS)?;
            for (n, (_, of_target)) in rows.iter().enumerate() {
                let first = (n * columns + of_target.len()) * vocab;
                logits.push(out.part(first..first + vocab).iter().collect());
            }
        }
        Ok(logits)
    }
}

/// What entries are given for the inputs of encoders.
fn fed<'v>(form: &'v Pairs, sources: &'v [Vec<i32>]) -> Vec<(&'v str, Value<'v>)> {
    let both = form.sources.iter().zip(sources);
    both.map(|(of, tokens)| (&of.input[..], Value::I32(tokens)))
        .collect()
}

/// Entries `encode` and `extend`, on the texts of the same sources.
struct Kept<'x> {
    x: &'x mut Executor,
    form: Pairs,
    /// What was read last: sources, and texts of which all tokens are kept.
    sources: Vec<Vec<i32>>,
    texts: Vec<Vec<i32>>,
}

impl Kept<'_> {
    /// With the parameters as they are now.
    fn new(x: &mut Executor, form: Pairs) -> Result<Kept<'_>, RunError> {
        x.run(EntryId::Prepare, Bindings::new(1, 1), &[], &[])?;
        Ok(Kept {
            x,
            form,
            sources: Vec::new(),
            texts: Vec::new(),
        })
    }

    /// Of each text the one that it goes on from, where all but its last token were read.
    fn parents(&self, rows: &[Row]) -> Option<Vec<usize>> {
        let parent = |(sources, text): &Row| {
            let (_, before) = text.split_last()?;
            let known = self.sources == *sources;
            self.texts.iter().position(|t| known && t == before)
        };
        rows.iter().map(parent).collect()
    }

    /// Reads sources, in rows as long as their context: what is kept has a row for each of its places.
    fn encode(&mut self, sources: &[Vec<i32>]) -> Result<(), RunError> {
        let context = source_window(self.x);
        let mut rows = sources.to_vec();
        let padding = self.form.padding as i32;
        rows.iter_mut()
            .for_each(|row| row.resize(context as usize, padding));
        let at = Bindings::new(1, 1).beside(context);
        self.x
            .run(EntryId::Encode, at, &fed(&self.form, &rows), &[])?;
        self.sources = sources.to_vec();
        Ok(())
    }

    /// Reads the token of each text at a place, the first of which is the beginning's; gives logits.
    fn extend(&mut self, texts: &[&[i32]], place: usize) -> Result<Vec<Vec<f64>>, RunError> {
        let vocab = self.x.manifest().model.vocab as usize;
        let begin = self.form.begin as i32;
        let token = |text: &&[i32]| place.checked_sub(1).map_or(begin, |n| text[n]);
        let tokens: Vec<i32> = texts.iter().map(token).collect();
        let at = Bindings::new(texts.len() as u64, 1).after(place as u64);
        let places = vec![place as i32; texts.len()];
        let mut given = vec![(names::TOKENS, Value::I32(&tokens))];
        if self.x.reads_places(EntryId::Extend) {
            given.push((names::PLACES, Value::I32(&places)));
        }
        let out = self.x.run(EntryId::Extend, at, &given, &[])?;
        let out = out.reals(names::LOGITS)?;
        let of = |n: usize| out.part(n * vocab..(n + 1) * vocab).iter().collect();
        Ok((0..texts.len()).map(of).collect())
    }
}

impl Next for Kept<'_> {
    fn next(&mut self, rows: &[Row]) -> Result<Vec<Vec<f64>>, RunError> {
        let mut logits = Vec::new();
        for rows in rows.chunk_by(|a, b| a.0 == b.0 && a.1.len() == b.1.len()) {
            let ((sources, first), texts) = (rows[0], rows.iter().map(|(_, text)| *text));
            let texts: Vec<&[i32]> = texts.collect();
            let begin = match self.parents(rows) {
                Some(parents) => {
                    self.x.go_on(&parents, first.len() as u64)?;
                    first.len()
                }
                None => {
                    self.encode(sources)?;
                    0
                }
            };
            let mut last = Vec::new();
            for place in begin..=first.len() {
                last = self.extend(&texts, place)?;
            }
            self.texts = texts.into_iter().map(<[i32]>::to_vec).collect();
            logits.extend(last);
        }
        Ok(logits)
    }
}

/// What is asked of texts.
struct Rules {
    beam: usize,
    alpha: f64,
    /// The fewest and the most tokens, with the end.
    lengths: [usize; 2],
    /// Tokens of texts are below this.
    known: usize,
    end: usize,
}

impl Rules {
    /// What texts are compared by: `log p / ((5 + n) / 6)^α` of one with so many tokens (Wu et al. 2016, equation 14).
    fn score(&self, log_p: f64, tokens: usize) -> f64 {
        log_p / ((5.0 + tokens as f64) / 6.0).powf(self.alpha)
    }
}

/// The beginning of a text, or all of it without its end.
#[derive(Clone, Debug, PartialEq)]
struct Partial {
    tokens: Vec<i32>,
    log_p: f64,
}

/// The texts that are made of the same sources.
#[derive(Clone)]
struct Beam {
    open: Vec<Partial>,
    /// Those that have ended, by their score.
    ended: Vec<(f64, Partial)>,
}

/// The best text for each of these. A search ends when as many texts have ended as are kept, or when none that is open can become better than
/// the best of these; a text that has the most tokens ends.
fn search(
    model: &mut dyn Next,
    sources: &[&[Vec<i32>]],
    rules: &Rules,
) -> Result<Vec<Partial>, TranslateError> {
    let start = Beam {
        open: vec![Partial {
            tokens: Vec::new(),
            log_p: 0.0,
        }],
        ended: Vec::new(),
    };
    let mut beams = vec![start; sources.len()];
    for length in 1..=rules.lengths[1] {
        let rows = beams.iter().zip(sources).flat_map(|(beam, source)| {
            let open = beam.open.iter();
            open.map(move |p| (*source, &p.tokens[..]))
        });
        let rows: Vec<Row> = rows.collect();
        if rows.is_empty() {
            break;
        }
        let mut logits = model.next(&rows)?.into_iter();
        for beam in &mut beams {
            let of_beam: Vec<Vec<f64>> = logits.by_ref().take(beam.open.len()).collect();
            grow(beam, &of_beam, length, rules)?;
        }
    }
    let best = beams.into_iter().map(|b| b.ended.into_iter().next());
    // All of them have ended at the most tokens.
    let best: Option<Vec<Partial>> = best.map(|b| b.map(|(_, p)| p)).collect();
    best.ok_or(TranslateError::NonFinite)
}

/// Puts the likeliest tokens behind the texts of a beam, which have then so many.
fn grow(
    beam: &mut Beam,
    logits: &[Vec<f64>],
    length: usize,
    rules: &Rules,
) -> Result<(), TranslateError> {
    let [least, most] = rules.lengths;
    let mut next: Vec<(f64, usize, usize)> = Vec::new();
    for (n, (open, logits)) in beam.open.iter().zip(logits).enumerate() {
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|z| (z - max).exp()).sum();
        let normaliser = max + sum.ln();
        if !normaliser.is_finite() {
            return Err(TranslateError::NonFinite);
        }
        let texts = (0..rules.known).filter(|_| length < most);
        let ends = [rules.end].into_iter().filter(|_| length >= least);
        next.extend(texts.chain(ends).map(|token| {
            let log_p = open.log_p + logits[token] - normaliser;
            (log_p, n, token)
        }));
    }
    // Likeliest first, equal ones in the order of texts and tokens.
    next.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut open = Vec::new();
    for (rank, (log_p, n, token)) in next.into_iter().enumerate() {
        if open.len() == rules.beam {
            break;
        }
        let mut tokens = beam.open[n].tokens.clone();
        if token != rules.end {
            tokens.push(token as i32);
            open.push(Partial { tokens, log_p });
        } else if rank < rules.beam {
            let score = rules.score(log_p, length);
            let place = beam.ended.partition_point(|(s, _)| *s >= score);
            beam.ended.insert(place, (score, Partial { tokens, log_p }));
        }
    }
    beam.open = open;
    let enough = beam.ended.len() >= rules.beam;
    let hope = beam.open.first().map(|p| rules.score(p.log_p, most));
    let best = beam.ended.first().map(|(score, _)| *score);
    if enough || best.is_some_and(|best| hope.is_none_or(|hope| hope <= best)) {
        beam.open.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of tokens 0 and 1, and 2 for their end; 3 is never in a text. Logits follow from the tokens so far and the source.
    struct Known;

    fn logits(source: &[Vec<i32>], tokens: &[i32]) -> Vec<f64> {
        let all = source.iter().flatten().chain(tokens);
        let seed = all.fold(7u64, |h, t| {
            (h ^ (*t as u64 + 11)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        let number = |k: u64| (seed.rotate_left(13 * k as u32) >> 40) as f64 / (1 << 24) as f64;
        (0..4).map(|k| 3.0 * number(k)).collect()
    }

    impl Next for Known {
        fn next(&mut self, rows: &[Row]) -> Result<Vec<Vec<f64>>, RunError> {
            Ok(rows.iter().map(|(s, t)| logits(s, t)).collect())
        }
    }

    fn rules(beam: usize, alpha: f64, lengths: [usize; 2]) -> Rules {
        Rules {
            beam,
            alpha,
            lengths,
            known: 2,
            end: 2,
        }
    }

    fn log_p(source: &[Vec<i32>], tokens: &[i32]) -> f64 {
        let steps = (0..=tokens.len()).map(|n| {
            let z = logits(source, &tokens[..n]);
            let chosen = tokens.get(n).map_or(2, |t| *t as usize);
            z[chosen] - z.iter().map(|z| z.exp()).sum::<f64>().ln()
        });
        steps.sum()
    }

    /// All texts of so many tokens with their end.
    fn all([least, most]: [usize; 2]) -> Vec<Vec<i32>> {
        let of = |n: usize| (0..1 << n).map(move |bits| (0..n).map(|b| bits >> b & 1).collect());
        (least..=most).flat_map(|n| of(n - 1)).collect()
    }

    #[test]
    fn a_beam_of_all_texts_finds_the_best_one() {
        for (source, alpha) in [(0, 0.0), (1, 0.6), (2, 1.0), (3, 0.6), (4, 2.0), (5, 0.0)] {
            for lengths in [[1, 5], [3, 5], [5, 5], [1, 1]] {
                let r = rules(64, alpha, lengths);
                let score = |t: &Vec<i32>| r.score(log_p(&[vec![source]], t), t.len() + 1);
                let texts = all(lengths);
                let best = texts.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
                let found = search(&mut Known, &[&[vec![source]]], &r)
                    .unwrap()
                    .remove(0);
                assert_eq!(Some(&found.tokens), best, "{source} {alpha} {lengths:?}");
                assert!((found.log_p - log_p(&[vec![source]], &found.tokens)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn a_beam_of_one_takes_the_likeliest_token_each_time() {
        for source in 0..20 {
            let mut tokens: Vec<i32> = Vec::new();
            while tokens.len() < 7 {
                let z = logits(&[vec![source]], &tokens);
                let best = (0..3).max_by(|a, b| z[*a].total_cmp(&z[*b])).unwrap();
                if best == 2 {
                    break;
                }
                tokens.push(best as i32);
            }
            let found = search(&mut Known, &[&[vec![source]]], &rules(1, 0.6, [1, 8]));
            assert_eq!(found.unwrap()[0].tokens, tokens, "{source}");
        }
    }

    #[test]
    fn texts_that_are_searched_together_are_those_searched_alone() {
        // Two sources each.
        let sources: Vec<[Vec<i32>; 2]> = (0..9).map(|n| [vec![n], vec![3 * n]]).collect();
        let together: Vec<&[Vec<i32>]> = sources.iter().map(|s| &s[..]).collect();
        let r = rules(3, 0.6, [2, 6]);
        let found = search(&mut Known, &together, &r).unwrap();
        for (source, found) in together.iter().zip(found) {
            assert!((1..=5).contains(&found.tokens.len()));
            assert_eq!(search(&mut Known, &[source], &r).unwrap(), [found]);
        }
    }

    #[test]
    fn a_longer_text_is_preferred_the_more_the_penalty_is() {
        let length = |alpha| {
            let sources: Vec<[Vec<i32>; 1]> = (0..40).map(|n| [vec![n]]).collect();
            let sources: Vec<&[Vec<i32>]> = sources.iter().map(|s| &s[..]).collect();
            let found = search(&mut Known, &sources, &rules(64, alpha, [1, 5])).unwrap();
            found.iter().map(|p| p.tokens.len()).sum::<usize>()
        };
        assert!(length(0.0) < length(1.0) && length(1.0) < length(3.0));
    }

    #[test]
    fn logits_that_are_not_finite_are_an_error() {
        struct Broken;
        impl Next for Broken {
            fn next(&mut self, rows: &[Row]) -> Result<Vec<Vec<f64>>, RunError> {
                Ok(rows.iter().map(|_| vec![0.0, f64::NAN, 0.0, 0.0]).collect())
            }
        }
        let found = search(&mut Broken, &[&[vec![1]]], &rules(2, 0.6, [1, 4]));
        assert!(matches!(found, Err(TranslateError::NonFinite)));
    }
}
