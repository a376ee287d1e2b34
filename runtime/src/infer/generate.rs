//! Text from a model, token by token.
//!
//! Takes a prompt; runs entry `decode` over the tokens that are new, draws the next one, and hands out text as it
//! becomes whole characters. Keys and values of earlier tokens are kept, so a token costs the same wherever it stands;
//! when the context is full, the later half of it is read anew and becomes the past. Draws are keyed by seed and
//! position, so a seed gives the same text on any number of threads.

use crate::data::tokenizer::{Tokenizer, TokenizerError};
use crate::device::reals::Reals;
use crate::device::rng::Stream;
use crate::executor::{Executor, RunError, Value};
use crate::infer::evaluate::window;
use odec_program::manifest::{Loss, StepCount};
use odec_program::{Bindings, EntryId, names};
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
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            tokens: 256,
            temperature: 0.8,
            top_k: None,
            seed: 0,
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
    #[error(
        "this model fills in masked tokens and was not trained to continue a text; `odec eval` measures its loss"
    )]
    Masked,
    #[error(
        "this model's step sizes depend on the errors of the whole text, so it cannot generate token by token; `odec eval` measures its loss"
    )]
    Adaptive,
    #[error(
        "this model tells the classes of images, so there is nothing to generate; `odec eval` measures how many it tells right"
    )]
    Classes,
    #[error(
        "this model gives numbers, so there is nothing to generate; `odec eval` measures how far off they are"
    )]
    Numbers,
    #[error(
        "this model draws images, and does not continue a text; name the file of images with -o samples.png"
    )]
    Flow,
    #[error(
        "this model makes one text of another, and does not continue one; `odec translate` gives it texts"
    )]
    Pairs,
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot write the text: {0}")]
    Write(#[from] io::Error),
}

/// Continues `prompt`, which is not repeated; `emit` gets text piece by piece.
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
    let vocab = x.manifest().model.vocab as usize;
    if prompt.is_empty() {
        return Err(GenerateError::EmptyPrompt);
    }
    if !(s.temperature >= 0.0 && s.temperature.is_finite()) {
        return Err(GenerateError::Temperature(s.temperature));
    }
    if s.top_k == Some(0) {
        return Err(GenerateError::TopK);
    }
    let (known, model) = (tokenizer.vocabulary(), vocab as u64);
    if known > model {
        return Err(GenerateError::Vocabulary {
            needs: known,
            vocab: model,
        });
    }
    can_generate(x)?;
    let stream = Stream::new(s.seed, "sample");
    let mut reader = Reader::new(x)?;
    let mut new: Vec<i32> = Vec::new();
    let mut text = tokenizer.decoder();
    for token in tokenizer.encode(prompt)? {
        new.push(token as i32);
        // How a token reads may depend on those before it.
        text.push(token)?;
    }
    if new.is_empty() {
        return Err(GenerateError::EmptyPrompt);
    }
    for n in 0..s.tokens {
        let logits = reader.read(&new)?;
        // A model may have room for more tokens than its tokenizer knows; only those can be written.
        let first = logits.len() - vocab;
        let last: Vec<f64> = logits.part(first..first + known as usize).iter().collect();
        let token =
            choose(&last, s, stream.uniform(n)).ok_or(GenerateError::NonFinite { after: n })?;
        new = vec![token as i32];
        if let Some(piece) = text.push(token)? {
            emit(&piece)?;
        }
    }
    if let Some(piece) = text.finish() {
        emit(&piece)?;
    }
    Ok(())
}

/// Whether a model continues texts.
///
/// # Errors
/// When it was made for something else, in words.
pub fn can_generate(x: &Executor) -> Result<(), GenerateError> {
    match x.manifest().train.as_ref().map(|t| t.loss) {
        Some(Loss::Masked { .. }) => return Err(GenerateError::Masked),
        Some(Loss::Class) => return Err(GenerateError::Classes),
        Some(Loss::Velocity) => return Err(GenerateError::Flow),
        Some(Loss::Mse | Loss::Bce) => return Err(GenerateError::Numbers),
        Some(Loss::Pairs { .. }) => return Err(GenerateError::Pairs),
        Some(Loss::Next) | None => {}
    }
    if x.has_input(EntryId::Forward, names::PATCHES) {
        return Err(GenerateError::Classes);
    }
    if x.has_input(EntryId::Forward, names::VECTORS) {
        return Err(GenerateError::Numbers);
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

/// A sequence that grows.
pub struct Reader<'x> {
    x: &'x mut Executor,
    context: usize,
    /// Tokens that the model has seen since the context was last full.
    seen: Vec<i32>,
}

impl<'x> Reader<'x> {
    /// Starts a sequence with the parameters as they are now.
    ///
    /// # Errors
    /// When the program cannot decode.
    pub fn new(x: &'x mut Executor) -> Result<Reader<'x>, RunError> {
        let context = window(x) as usize;
        x.run(EntryId::Prepare, Bindings::new(1, 1), &[], &[])?;
        Ok(Reader {
            x,
            context,
            seen: Vec::new(),
        })
    }

    /// Reads the next tokens, one at least; gives the logits after each of them, or after those that still fit.
    ///
    /// # Errors
    /// When a token is not in the vocabulary.
    pub fn read(&mut self, new: &[i32]) -> Result<Reals<'_>, RunError> {
        let past = self.seen.len();
        self.seen.extend(new);
        let past = match self.seen.len() <= self.context {
            true => past,
            false => {
                let kept = new.len().clamp(self.context.div_ceil(2), self.context);
                self.seen.drain(..self.seen.len() - kept);
                0
            }
        };
        let fresh = &self.seen[past..];
        let at = Bindings::new(1, fresh.len() as u64).after(past as u64);
        let out = self.x.run(
            EntryId::Decode,
            at,
            &[(names::TOKENS, Value::I32(fresh))],
            &[],
        )?;
        out.reals(names::LOGITS)
    }
}

/// The token that `u` in [0, 1) falls on; `None` when a logit is not finite.
fn choose(logits: &[f64], s: &Sampling, u: f64) -> Option<u32> {
    if !logits.iter().all(|x| x.is_finite()) {
        return None;
    }
    // Likeliest first, equal ones by number.
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    order.truncate(s.top_k.unwrap_or(usize::MAX));
    if s.temperature == 0.0 {
        return Some(order[0] as u32);
    }
    let best = logits[order[0]];
    let weights: Vec<f64> = order
        .iter()
        .map(|i| ((logits[*i] - best) / s.temperature).exp())
        .collect();
    let mut left = u * weights.iter().sum::<f64>();
    let found = weights.iter().position(|w| {
        left -= w;
        left < 0.0
    });
    Some(order[found.unwrap_or(order.len() - 1)] as u32)
}

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
    }
}
