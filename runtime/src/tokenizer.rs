//! Text to tokens and back: bytes, or what a Hugging Face `tokenizer.json` says.
//!
//! Takes the manifest's [`manifest::Tokenizer`] or the bytes of a file; gives token numbers for texts, and pieces of text for
//! tokens as they come. Special tokens written out in a text (`<|endoftext|>`) are recognised; none are added. Leaves files of
//! text and tokens to [`mod@crate::tokenise`] and [`crate::tokens`].

use crate::artifact::sha256;
use crate::input;
use crate::shown::Shown;
use odec_program::manifest;
use std::path::Path;

/// Turns text into tokens.
pub struct Tokenizer {
    kind: Kind,
    /// SHA-256 of its file; nothing for bytes.
    identity: Option<String>,
}

enum Kind {
    Bytes,
    #[cfg(feature = "tokenizers")]
    File(Box<tokenizers::Tokenizer>),
}

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error("cannot read the tokenizer {path}: {source}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("{path} is not a Hugging Face tokenizer.json: {reason}")]
    Format { path: String, reason: String },
    #[error(
        "{path} is not the tokenizer that the run began with (SHA-256 {found}, expected {expected}); restore it"
    )]
    Other {
        path: String,
        found: String,
        expected: String,
    },
    #[error("the tokenizer refuses a text: {0}")]
    Text(String),
}

impl Tokenizer {
    /// One token per byte.
    pub fn bytes() -> Tokenizer {
        Tokenizer {
            kind: Kind::Bytes,
            identity: None,
        }
    }

    /// The tokenizer that a manifest names.
    ///
    /// # Errors
    /// When its file is missing or not a tokenizer.
    pub fn named(t: &manifest::Tokenizer) -> Result<Tokenizer, TokenizerError> {
        match t {
            manifest::Tokenizer::Bytes => Ok(Tokenizer::bytes()),
            manifest::Tokenizer::File(path) => Tokenizer::open(Path::new(path)),
        }
    }

    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// When it is missing or not a tokenizer.
    pub fn open(path: &Path) -> Result<Tokenizer, TokenizerError> {
        let shown = || path.shown();
        let bytes =
            input::read(path, input::most::TOKENIZER).map_err(|source| TokenizerError::Read {
                path: shown(),
                source,
            })?;
        let kind = parse(&bytes).map_err(|reason| TokenizerError::Format {
            path: shown(),
            reason,
        })?;
        Ok(Tokenizer {
            kind,
            identity: Some(sha256(&bytes)),
        })
    }

    /// The same, when it must be a certain one.
    ///
    /// # Errors
    /// As [`Tokenizer::open`], or when it is another.
    pub fn open_same(path: &Path, identity: &str) -> Result<Tokenizer, TokenizerError> {
        let t = Tokenizer::open(path)?;
        let found = t.identity.as_deref().unwrap_or("");
        if found == identity {
            return Ok(t);
        }
        Err(TokenizerError::Other {
            path: path.shown(),
            found: found.into(),
            expected: identity.into(),
        })
    }

    /// SHA-256 of its file; nothing for bytes.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Tokens are numbered below this.
    pub fn vocabulary(&self) -> u64 {
        match &self.kind {
            Kind::Bytes => 256,
            #[cfg(feature = "tokenizers")]
            Kind::File(t) => {
                let largest = t.get_vocab(true).into_values().max();
                largest.map_or(0, |n| u64::from(n) + 1)
            }
        }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// When the tokenizer has no tokens for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.encode_all(vec![text.into()])?.concat())
    }

    /// The tokens of several texts, in parallel.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_all(&self, texts: Vec<String>) -> Result<Vec<Vec<u32>>, TokenizerError> {
        match &self.kind {
            Kind::Bytes => Ok(texts
                .iter()
                .map(|t| t.bytes().map(u32::from).collect())
                .collect()),
            #[cfg(feature = "tokenizers")]
            Kind::File(t) => {
                let encoded = t.encode_batch_fast(texts, false);
                let encoded = encoded.map_err(|e| TokenizerError::Text(e.to_string()))?;
                Ok(encoded.iter().map(|e| e.get_ids().to_vec()).collect())
            }
        }
    }

    /// Starts turning tokens into text.
    pub fn decoder(&self) -> Decoder<'_> {
        match &self.kind {
            Kind::Bytes => Decoder(Stream::Bytes(Utf8::default())),
            #[cfg(feature = "tokenizers")]
            Kind::File(t) => {
                let mut stream = t.decode_stream(false);
                Decoder(Stream::File(Box::new(move |token| {
                    stream.step(token).map_err(|e| e.to_string())
                })))
            }
        }
    }
}

#[cfg(feature = "tokenizers")]
fn parse(bytes: &[u8]) -> Result<Kind, String> {
    let mut t = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())?;
    // Settings for batches of short texts; a corpus is neither cut nor filled up.
    t.with_truncation(None).map_err(|e| e.to_string())?;
    t.with_padding(None);
    Ok(Kind::File(Box::new(t)))
}

#[cfg(not(feature = "tokenizers"))]
fn parse(_: &[u8]) -> Result<Kind, String> {
    Err("this odec was built without the feature `tokenizers`".into())
}

/// Tokens to text, piece by piece.
pub struct Decoder<'t>(Stream<'t>);

enum Stream<'t> {
    Bytes(Utf8),
    #[cfg_attr(
        not(feature = "tokenizers"),
        expect(
            dead_code,
            reason = "there is nothing else to decode without the feature"
        )
    )]
    File(Box<Step<'t>>),
}

/// The text that a token completes, or why there is none.
type Step<'t> = dyn FnMut(u32) -> Result<Option<String>, String> + 't;

impl Decoder<'_> {
    /// The text that a token completes.
    ///
    /// # Errors
    /// When the tokenizer cannot decode it.
    pub fn push(&mut self, token: u32) -> Result<Option<String>, TokenizerError> {
        match &mut self.0 {
            Stream::Bytes(utf8) => Ok(utf8.push(token as u8)),
            Stream::File(step) => step(token).map_err(TokenizerError::Text),
        }
    }

    /// What is left of an unfinished character.
    pub fn finish(self) -> Option<String> {
        match self.0 {
            Stream::Bytes(utf8) => utf8.finish(),
            Stream::File(_) => None,
        }
    }
}

/// Bytes to text, holding back a character until all its bytes are there. What is no UTF-8 becomes U+FFFD.
#[derive(Default)]
struct Utf8 {
    pending: Vec<u8>,
}

impl Utf8 {
    /// The text that a byte completes.
    fn push(&mut self, byte: u8) -> Option<String> {
        self.pending.push(byte);
        let mut text = String::new();
        while !self.pending.is_empty() {
            match std::str::from_utf8(&self.pending) {
                Ok(good) => {
                    text.push_str(good);
                    self.pending.clear();
                }
                Err(e) => {
                    let good = e.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..good]));
                    self.pending.drain(..good);
                    let Some(bad) = e.error_len() else { break };
                    self.pending.drain(..bad);
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// What is left of an unfinished character.
    fn finish(self) -> Option<String> {
        (!self.pending.is_empty()).then(|| char::REPLACEMENT_CHARACTER.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Fed byte by byte, any bytes give what the standard library gives for all at once.
        #[test]
        fn text_comes_out_as_from_the_whole(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F)], 0..24)) {
            let mut decoder = Utf8::default();
            let mut text: String = bytes.iter().filter_map(|b| decoder.push(*b)).collect();
            text.extend(decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
