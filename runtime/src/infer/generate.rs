//! Text from a model, token by token.
//!
//! Takes prompts; draws the next token of each, and hands out text as it becomes whole characters. Draws are keyed by seed and position, so a seed
//! gives the same text on any number of threads, and beside any others. Leaves what is read and kept to `reader`.

use crate::data::tokenizer::{Decoder, Tokenizer, TokenizerError};
use crate::device::reals::Reals;
use crate::executor::{Executor, RunError};
use crate::infer::reader::{Reader, Texts};
use odec_program::manifest::{Form, Loss, StepCount};
use odec_program::rng::Stream;
use odec_program::{EntryId, names};
use std::io;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Tokens to generate.
    pub tokens: u64,
    /// Divides the logits; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are considered.
    pub top_k: Option<usize>,
    pub seed: u64,
    /// Whether a text goes on behind what the model gives as its end ([`end`]).
    pub past_end: bool,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            tokens: 256,
            temperature: 0.8,
            top_k: None,
            seed: 0,
            past_end: false,
        }
    }
}

/// Why text cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error("the prompt is empty; give a text to continue with --prompt")]
    EmptyPrompt,
    #[error("temperature {0} is not a number of at least 0")]
    Temperature(f64),
    #[error("--top-k 0 leaves no token to choose; give 1 or more")]
    TopK,
    #[error("the tokenizer has a vocabulary of {needs}; this model has a vocabulary of {vocab}")]
    Vocabulary { needs: u64, vocab: u64 },
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error("the model's logits are not finite after {after} tokens; its training has diverged")]
    NonFinite { after: u64 },
    #[error(
        "this model reads later tokens, so it cannot generate text; `odec check` of its file names the part that does, and what to write"
    )]
    LooksAhead,
    #[error("{0}")]
    TrainedOtherwise(&'static str),
    #[error(
        "this model's step sizes depend on the errors of the whole text, so it cannot generate token by token; `odec eval` measures its loss"
    )]
    Adaptive,
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot write the text: {0}")]
    Write(#[from] io::Error),
}

/// A text that is to be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'p> {
    pub prompt: &'p str,
    /// Of its draws.
    pub seed: u64,
}

/// The token that stood behind each text that a model was trained on: the `separator` of its data, where that is one token and more than white space.
pub fn end(x: &Executor, tokenizer: &Tokenizer) -> Option<u32> {
    let train = x.manifest().train.as_ref()?;
    let Form::Text { separator, .. } = &train.data.form else {
        return None;
    };
    match tokenizer.encode(separator).ok()?[..] {
        [token] if !separator.trim().is_empty() => Some(token),
        _ => None,
    }
}

/// Continues `prompt`, which is not repeated; `emit` gets text piece by piece. The text may end before it has all tokens ([`end`]).
///
/// # Errors
/// When the settings make no sense, the tokenizer is not the model's, or `emit` fails.
pub fn generate(
    x: &mut Executor,
    tokenizer: &Tokenizer,
    prompt: &str,
    s: &Sampling,
    emit: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<(), GenerateError> {
    let asked = Asked {
        prompt,
        seed: s.seed,
    };
    generate_several(x, tokenizer, &[asked], s, &mut |_, piece| emit(piece)).map(|_| ())
}

/// Whether any model could continue these prompts in this way.
///
/// # Errors
/// On a prompt without a character, and on numbers that choose no token.
pub fn can_ask(asked: &[Asked], s: &Sampling) -> Result<(), GenerateError> {
    if asked.iter().any(|a| a.prompt.is_empty()) {
        return Err(GenerateError::EmptyPrompt);
    }
    if !(s.temperature >= 0.0 && s.temperature.is_finite()) {
        return Err(GenerateError::Temperature(s.temperature));
    }
    if s.top_k == Some(0) {
        return Err(GenerateError::TopK);
    }
    Ok(())
}

/// Continues several texts; `emit` gets the number of a text and a piece of it. As many as the program has room for are read together, in one pass
/// over the weights for a token of each; of a program that reads one text, one after the other. Each is what it is alone, bit for bit. Gives whether each has
/// come to its end.
///
/// # Errors
/// As [`generate`].
pub fn generate_several(
    x: &mut Executor,
    tokenizer: &Tokenizer,
    asked: &[Asked],
    s: &Sampling,
    emit: &mut dyn FnMut(usize, &str) -> io::Result<()>,
) -> Result<Vec<bool>, GenerateError> {
    can_ask(asked, s)?;
    let vocab = x.manifest().model.vocab;
    let known = tokenizer.vocabulary();
    if known > vocab {
        return Err(GenerateError::Vocabulary {
            needs: known,
            vocab,
        });
    }
    can_generate(x)?;
    let choice = Choice {
        sampling: *s,
        known: known as usize,
        end: end(x, tokenizer).filter(|_| !s.past_end),
    };
    let mut texts = Vec::new();
    for (number, asked) in asked.iter().enumerate() {
        texts.push(Growing::new(number, tokenizer, asked)?);
    }
    let together = Texts::most(x).max(1);
    for group in texts.chunks_mut(together) {
        match group {
            [text] => {
                let mut reader = Reader::new(x)?;
                for n in 0..s.tokens {
                    let logits = reader.read(&text.new)?;
                    let last = logits.part(logits.len() - vocab as usize..logits.len());
                    text.grow(last, n, &choice, emit)?;
                    if text.ended {
                        break;
                    }
                }
            }
            group => {
                let mut reader = Texts::new(x, group.len())?;
                for n in 0..s.tokens {
                    let new: Vec<&[i32]> = group.iter().map(|text| &text.new[..]).collect();
                    let all = reader.read(&new)?;
                    // One that has ended is read on with the others, and not looked at.
                    for (at, text) in group.iter_mut().enumerate().filter(|(_, text)| !text.ended) {
                        text.grow(all.of(at), n, &choice, emit)?;
                    }
                    if group.iter().all(|text| text.ended) {
                        break;
                    }
                }
            }
        }
    }
    let ended = texts.iter().map(|text| text.ended).collect();
    for text in texts {
        if let Some(piece) = text.text.finish() {
            emit(text.number, &piece)?;
        }
    }
    Ok(ended)
}

/// What a next token is chosen by.
struct Choice {
    sampling: Sampling,
    /// Tokens that can be written.
    known: usize,
    /// The one behind which a text has ended.
    end: Option<u32>,
}

/// A text that is continued.
struct Growing<'t> {
    number: usize,
    draws: Stream,
    /// Tokens that were not read yet.
    new: Vec<i32>,
    text: Decoder<'t>,
    ended: bool,
}

impl<'t> Growing<'t> {
    fn new(
        number: usize,
        tokenizer: &'t Tokenizer,
        asked: &Asked,
    ) -> Result<Growing<'t>, GenerateError> {
        let mut new: Vec<i32> = Vec::new();
        let mut text = tokenizer.decoder();
        for token in tokenizer.encode(asked.prompt)? {
            new.push(token as i32);
            // How a token reads may depend on those before it.
            text.push(token)?;
        }
        if new.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        let draws = Stream::new(asked.seed, "sample");
        Ok(Growing {
            number,
            draws,
            new,
            text,
            ended: false,
        })
    }

    /// Draws token n. A model may have room for more tokens than its tokenizer knows; only those can be written.
    fn grow(
        &mut self,
        logits: Reals,
        n: u64,
        by: &Choice,
        emit: &mut dyn FnMut(usize, &str) -> io::Result<()>,
    ) -> Result<(), GenerateError> {
        let last: Vec<f64> = logits.part(0..by.known).iter().collect();
        let token = choose(&last, &by.sampling, self.draws.uniform(n))
            .ok_or(GenerateError::NonFinite { after: n })?;
        self.new = vec![token as i32];
        if by.end == Some(token) {
            self.ended = true;
            return Ok(());
        }
        if let Some(piece) = self.text.push(token)? {
            emit(self.number, &piece)?;
        }
        Ok(())
    }
}

/// Whether a model continues texts.
///
/// # Errors
/// When it was made for something else, in words.
pub fn can_generate(x: &Executor) -> Result<(), GenerateError> {
    let trained = x.manifest().train.as_ref().map(|t| t.loss);
    // Without a train block the input says what the model is for.
    let of = |input, loss| x.has_input(EntryId::Forward, input).then_some(loss);
    let images = of(names::PATCHES, Loss::Class);
    let vectors = of(names::VECTORS, Loss::Mse);
    for loss in [trained, images, vectors].into_iter().flatten() {
        loss.continues().map_err(GenerateError::TrainedOtherwise)?;
    }
    let adaptive = |d: &StepCount| matches!(d, StepCount::Adaptive { .. });
    if x.manifest().depths.iter().any(adaptive) {
        return Err(GenerateError::Adaptive);
    }
    match x.has_entry(EntryId::Decode) {
        true => Ok(()),
        false => Err(GenerateError::LooksAhead),
    }
}

/// The token that `u` in [0, 1) falls on, where each has its share of it, the likeliest first, of equal ones the earlier; `None` when a logit is not finite.
fn choose(logits: &[f64], s: &Sampling, u: f64) -> Option<u32> {
    if logits.is_empty() || !logits.iter().all(|x| x.is_finite()) {
        return None;
    }
    let before = |a: &u32, b: &u32| {
        let [x, y] = [*a, *b].map(|n| logits[n as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    if s.temperature == 0.0 {
        return tokens.into_iter().min_by(before);
    }
    if let Some(k) = s.top_k.filter(|k| *k < tokens.len()) {
        tokens.select_nth_unstable_by(k - 1, before);
        tokens.truncate(k);
        tokens.sort_unstable();
    }
    let best = tokens.iter().map(|n| logits[*n as usize]);
    let best = best.fold(f64::NEG_INFINITY, f64::max);
    let weight = |n: &u32| ((logits[*n as usize] - best) / s.temperature).exp();
    let mut left = u * tokens.iter().map(weight).sum::<f64>();
    // Most draws fall on one of the first few: the others are not put in order.
    let (mut rest, mut size) = (&mut tokens[..], FIRST);
    loop {
        let end = size.min(rest.len());
        if end < rest.len() {
            rest.select_nth_unstable_by(end, before);
        }
        let (first, others) = rest.split_at_mut(end);
        first.sort_unstable_by(before);
        let found = first.iter().find(|n| {
            left -= weight(n);
            left < 0.0
        });
        match found {
            Some(token) => return Some(*token),
            None if others.is_empty() => return first.last().copied(),
            None => (rest, size) = (others, 4 * size),
        }
    }
}

/// Tokens that are put in order at first.
const FIRST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choosing_respects_temperature_and_top_k() {
        let logits = [0.0, 2.0, 1.0, 2.0];
        let s = |temperature, top_k| Sampling {
            temperature,
            top_k,
            ..Sampling::default()
        };
        assert_eq!(choose(&logits, &s(0.0, None), 0.99), Some(1));
        assert_eq!(choose(&logits, &s(1.0, Some(1)), 0.99), Some(1));
        assert_eq!(choose(&logits, &s(1.0, Some(2)), 0.51), Some(3));
        assert_eq!(choose(&logits, &s(1.0, None), 0.999), Some(0));
        // Shares at temperature 1: e², e², e, 1 of their sum.
        let total = 2.0 * 2f64.exp() + 1f64.exp() + 1.0;
        assert_eq!(
            choose(&logits, &s(1.0, None), 2.0 * 2f64.exp() / total - 1e-9),
            Some(3)
        );
        assert_eq!(
            choose(&logits, &s(1.0, None), 2.0 * 2f64.exp() / total + 1e-9),
            Some(2)
        );
        assert_eq!(choose(&[0.0, f64::NAN], &s(1.0, None), 0.5), None);
        assert_eq!(choose(&[], &s(1.0, None), 0.5), None);
    }

    /// What is chosen when all tokens are put in order.
    fn sorted(logits: &[f64], s: &Sampling, u: f64) -> Option<u32> {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        order.truncate(s.top_k.unwrap_or(usize::MAX));
        if s.temperature == 0.0 {
            return Some(order[0] as u32);
        }
        let best = logits[order[0]];
        let weight = |i: &usize| ((logits[*i] - best) / s.temperature).exp();
        let mut left = u * order.iter().map(weight).sum::<f64>();
        let found = order.iter().find(|i| {
            left -= weight(i);
            left < 0.0
        });
        Some(*found.unwrap_or(&order[order.len() - 1]) as u32)
    }

    #[test]
    fn what_is_chosen_is_what_sorting_all_tokens_gives() {
        let draws = Stream::new(5, "test");
        for (vocab, spread) in [(1, 1.0), (63, 4.0), (64, 0.1), (65, 0.1), (3000, 0.5)] {
            // Many are equal.
            let logit = |n: u64| (draws.uniform(n) * 40.0).round() * spread / 40.0;
            let logits: Vec<f64> = (0..vocab).map(logit).collect();
            for (temperature, top_k) in [
                (0.0, None),
                (0.7, None),
                (1.3, Some(1)),
                (1.0, Some(64)),
                (1.0, Some(700)),
            ] {
                let s = Sampling {
                    temperature,
                    top_k,
                    ..Sampling::default()
                };
                for n in 0..50 {
                    let u = draws.uniform(100_000 + n);
                    let same = sorted(&logits, &s, u);
                    assert_eq!(choose(&logits, &s, u), same, "{vocab}, {s:?}, {u}");
                }
            }
        }
    }
}
