//! Files of token numbers, whose names say how wide they are.

use super::{DataSource, corpus, files};
use crate::data::dataset::Dataset;
use crate::data::identity::Identity;
use crate::data::tokens::{Tokens, Width};
use crate::data::{DataError, Source};

pub struct TokenFiles;

impl DataSource for TokenFiles {
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
        let (known, tokens) = tokens(s, vocab)?;
        Ok(corpus(s, known, tokens))
    }
}

/// The numbers of all files, below `vocab`.
pub fn tokens(s: &Source, vocab: u64) -> Result<(Vec<Identity>, Tokens), DataError> {
    let (files, known) = files(s)?;
    let mut tokens = Tokens::below(vocab);
    for (f, identity) in files.into_iter().zip(&known) {
        let (first, width) = (tokens.len(), Width::of(f.path()));
        tokens.add(f, 0, width)?;
        // What is too large to be hashed as a whole is compared where it is read.
        if !identity.sampled {
            tokens.look_at(first..tokens.len())?;
        }
    }
    Ok((known, tokens))
}
