//! Texts that a tokenizer reads, or a text per line of JSON: made into a token file once, which is kept.

use super::{DataSource, corpus, fit, texts};
use crate::data::dataset::Dataset;
use crate::data::identity::Identity;
use crate::data::token_cache as cache;
use crate::data::tokenise::{Reading, Texts};
use crate::data::tokens::Tokens;
use crate::data::{DataError, Source};

pub struct Tokenised<'a> {
    pub reading: Reading<'a>,
}

impl DataSource for Tokenised<'_> {
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
        let (known, tokens) = tokens(s, vocab, self.reading)?;
        Ok(corpus(s, known, tokens))
    }
}

/// The tokens of all files, which are made if nothing is kept of them.
pub fn tokens(
    s: &Source,
    vocab: u64,
    reading: Reading,
) -> Result<(Vec<Identity>, Tokens), DataError> {
    fit(s, vocab)?;
    let (files, known) = texts(s)?;
    let texts = Texts {
        files: &files,
        reading,
        tokenizer: s.tokenizer,
        show: s.show,
    };
    let made = cache::tokens(&texts, &known, s.cache)?;
    let mut tokens = Tokens::default();
    tokens.add(made.file, cache::HEADER, made.width)?;
    Ok((known, tokens))
}
