//! Texts whose bytes are the tokens: read as they are, when they are asked for.

use super::{DataSource, corpus, fit, texts};
use crate::data::dataset::Dataset;
use crate::data::identity::Identity;
use crate::data::tokens::{Tokens, Width};
use crate::data::{DataError, Source, tokenise};
use std::path::Path;

pub struct Bytes;

/// Whether nothing has to be made of the files before they are read.
pub fn takes(s: &Source) -> bool {
    let lines = |f: &String| tokenise::is_lines(Path::new(f));
    s.tokenizer.identity().is_none() && !s.data.files.iter().any(lines)
}

impl DataSource for Bytes {
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
        let (known, tokens) = tokens(s, vocab)?;
        Ok(corpus(s, known, tokens))
    }
}

/// The bytes of all files.
pub fn tokens(s: &Source, vocab: u64) -> Result<(Vec<Identity>, Tokens), DataError> {
    fit(s, vocab)?;
    let (files, known) = texts(s)?;
    let mut tokens = Tokens::default();
    for f in files {
        tokens.add(f, 0, Width::Byte)?;
    }
    Ok((known, tokens))
}
