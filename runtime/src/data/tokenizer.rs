//! Text to tokens and back: bytes, or what a Hugging Face `tokenizer.json` says.
//!
//! Takes the manifest's [`manifest::Tokenizer`] or the bytes of a file; gives token numbers for texts, and pieces of text for
//! tokens as they come. Special tokens written out in a text (`<|endoftext|>`) are recognised; none are added. A file may be anybody's: what would
//! never end or fill the memory is refused when it is opened, what panics is an error. Leaves files of
//! text and tokens to [`mod@crate::data::tokenise`] and [`crate::data::tokens`].

use crate::data::tokenise::pieces;
use crate::system::caught::caught;
use crate::system::hash::sha256;
use crate::system::input;
use crate::system::pool;
use crate::system::shown::Shown;
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
    File {
        path: String,
        tokenizer: Box<tokenizers::Tokenizer>,
    },
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
    #[error("the tokenizer {path} failed on a text: {reason}")]
    Text { path: String, reason: String },
    #[error("the tokenizer {path} failed on a token: {reason}")]
    Token { path: String, reason: String },
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
        let kind = parse(shown(), &bytes).map_err(|reason| TokenizerError::Format {
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
            Kind::File { tokenizer, .. } => {
                let largest = tokenizer.get_vocab(true).into_values().max();
                largest.map_or(0, |n| u64::from(n) + 1)
            }
        }
    }

    /// The tokens of a text, of which a long one is taken in pieces.
    ///
    /// # Errors
    /// When the tokenizer has no tokens for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self
            .encode_all(pieces(text).map(String::from).collect())?
            .concat())
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
            Kind::File { path, tokenizer } => {
                let threads = pool::default_threads();
                let encoded = each(&texts, threads, &|text| {
                    tokens(tokenizer, text).map_err(|reason| TokenizerError::Text {
                        path: path.clone(),
                        reason,
                    })
                });
                encoded.into_iter().collect()
            }
        }
    }

    /// Starts turning tokens into text.
    pub fn decoder(&self) -> Decoder<'_> {
        match &self.kind {
            Kind::Bytes => Decoder(Stream::Bytes(Utf8::default())),
            Kind::File { path, tokenizer } => {
                let mut stream = tokenizer.decode_stream(false);
                Decoder(Stream::File(Box::new(move |token| {
                    let text = caught(|| stream.step(token).map_err(|e| e.to_string()));
                    text.flatten().map_err(|reason| TokenizerError::Token {
                        path: path.clone(),
                        reason,
                    })
                })))
            }
        }
    }
}

fn parse(path: String, bytes: &[u8]) -> Result<Kind, String> {
    let constructs: Constructs = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    constructs.check()?;
    let read = || -> tokenizers::Result<tokenizers::Tokenizer> {
        let mut t = tokenizers::Tokenizer::from_bytes(bytes)?;
        // Settings for batches of short texts; a corpus is neither cut nor filled up, and nothing is added to it.
        t.with_truncation(None)?;
        t.with_padding(None);
        t.with_post_processor(None::<tokenizers::PostProcessorWrapper>);
        Ok(t)
    };
    let t = caught(read)?.map_err(|e| e.to_string())?;
    // What panics on these panics on most; whether it has tokens for them is another question.
    caught(|| {
        t.encode_fast(" aé≤1\n", false)
            .map(drop)
            .unwrap_or_default()
    })
    .map_err(|said| format!("it fails on a short text: {said}"))?;
    Ok(Kind::File {
        path,
        tokenizer: Box::new(t),
    })
}

/// The parts of a `tokenizer.json` that change texts.
#[derive(serde::Deserialize)]
struct Constructs {
    #[serde(default)]
    normalizer: serde_json::Value,
    #[serde(default)]
    pre_tokenizer: serde_json::Value,
    #[serde(default)]
    decoder: serde_json::Value,
}

/// How many times as long a text may become before it is tokenised. ByteLevel makes it twice as long, Llama's blanks three times.
const GROWTH: f64 = 64.0;

impl Constructs {
    /// Refuses what the library would run into: pieces of nothing, and texts that grow without bound.
    fn check(&self) -> Result<(), String> {
        for parts in [
            vec![&self.normalizer, &self.pre_tokenizer],
            vec![&self.decoder],
        ] {
            let mut growth = 1.0;
            for part in parts {
                grow(part, &mut growth)?;
            }
            if growth > GROWTH {
                return Err(format!("it can make a text {growth} times as long"));
            }
        }
        Ok(())
    }
}

/// Multiplies `growth` by how many times as long a construct makes a text, at most, and so for all within it.
fn grow(value: &serde_json::Value, growth: &mut f64) -> Result<(), String> {
    use serde_json::Value;
    let length = |v: &Value| v.as_str().map_or(0, str::len) as f64;
    match value {
        Value::Array(all) => all.iter().try_for_each(|v| grow(v, growth)),
        Value::Object(o) => {
            match o.get("type").and_then(Value::as_str) {
                Some("FixedLength") if o.get("length").and_then(Value::as_u64) == Some(0) => {
                    return Err("it cuts a text into empty pieces (FixedLength 0)".into());
                }
                Some("Precompiled") => precompiled(o.get("precompiled_charsmap"))?,
                Some("ByteLevel") => *growth *= 2.0,
                Some("Replace") => {
                    let of = |name| o.get(name).unwrap_or(&Value::Null);
                    // A regular expression may match nothing at all, before each character and at the end.
                    *growth *= match length(&of("pattern")["String"]) {
                        0.0 => length(of("content")) + 1.0,
                        n => (length(of("content")) / n).max(1.0),
                    };
                }
                _ => {}
            }
            o.values().try_for_each(|v| grow(v, growth))
        }
        _ => Ok(()),
    }
}

/// Refuses a table whose length, which is its first four bytes, is not within it: memory would be asked for by that number.
fn precompiled(table: Option<&serde_json::Value>) -> Result<(), String> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let base64 = table.and_then(|t| t.as_str()).unwrap_or("").as_bytes();
    let digit = |c: &u8| DIGITS.iter().position(|d| d == c).unwrap_or(0) as u64;
    let first = base64.iter().chain(std::iter::repeat(&b'A')).take(6);
    let bits = first.fold(0, |n, c| n << 6 | digit(c));
    let said = ((bits >> 4) as u32).swap_bytes();
    match u64::from(said) > base64.len() as u64 {
        true => Err(format!(
            "its normalizer has a table of {said} bytes in {} characters",
            base64.len()
        )),
        false => Ok(()),
    }
}

/// The tokens of one text.
fn tokens(t: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>, String> {
    let encoded = caught(|| t.encode_fast(text, false))?;
    Ok(encoded.map_err(|e| e.to_string())?.get_ids().to_vec())
}

/// What `f` gives for each of some texts, in their order, on so many threads, or on fewer where the system has no more.
fn each<T: Send>(texts: &[String], threads: usize, f: &(dyn Fn(&str) -> T + Sync)) -> Vec<T> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let n = next.fetch_add(1, Ordering::Relaxed)
            && let Some(text) = texts.get(n)
        {
            let result = f(text);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((n, result));
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.min(texts.len()) {
            if std::thread::Builder::new().spawn_scoped(s, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Tokens to text, piece by piece.
pub struct Decoder<'t>(Stream<'t>);

enum Stream<'t> {
    Bytes(Utf8),
    File(Box<Step<'t>>),
}

/// The text that a token completes, or why there is none.
type Step<'t> = dyn FnMut(u32) -> Result<Option<String>, TokenizerError> + 't;

impl Decoder<'_> {
    /// The text that a token completes.
    ///
    /// # Errors
    /// When the tokenizer cannot decode it.
    pub fn push(&mut self, token: u32) -> Result<Option<String>, TokenizerError> {
        match &mut self.0 {
            Stream::Bytes(utf8) => Ok(utf8.push(token as u8)),
            Stream::File(step) => step(token),
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

    #[test]
    fn constructs_without_bound_are_refused() {
        let check = |json: &str| serde_json::from_str::<Constructs>(json).unwrap().check();
        let table = |base64: &str| {
            let part = r#""type": "Precompiled", "precompiled_charsmap""#;
            check(&format!(r#"{{"normalizer": {{{part}: "{base64}"}}}}"#))
        };
        assert!(table("/////wAA").unwrap_err().contains("4294967295 bytes"));
        assert_eq!(table("BAAAAAAAAAA="), Ok(()));
        let fixed = |n: u32| {
            let part = format!(r#"{{"type": "FixedLength", "length": {n}}}"#);
            check(&format!(r#"{{"pre_tokenizer": {part}}}"#))
        };
        assert!(fixed(0).unwrap_err().contains("FixedLength 0"));
        assert_eq!(fixed(1), Ok(()));
        let doubled = |times: usize| {
            let part = r#"{"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}"#;
            check(&format!(
                r#"{{"normalizer": [{}]}}"#,
                vec![part; times].join(",")
            ))
        };
        assert!(doubled(7).unwrap_err().contains("128 times as long"));
        assert_eq!(doubled(6), Ok(()));
    }

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
