//! Files of token numbers, whose names say how wide they are.

use super::{DataSource, corpus, files};
use crate::data::dataset::Dataset;
use crate::data::identity::Identity;
use crate::data::tokens::{Tokens, Width};
use crate::data::{DataError, Source};

pub struct TokenFiles;

impl DataSource for TokenFiles {
    fn open(&self, s: &Source, _: u64) -> Result<Box<dyn Dataset>, DataError> {
        let (known, tokens) = tokens(s)?;
        Ok(corpus(s, known, tokens))
    }
}

/// The numbers of all files.
pub fn tokens(s: &Source) -> Result<(Vec<Identity>, Tokens), DataError> {
    let (files, known) = files(s)?;
    let mut tokens = Tokens::default();
    for f in files {
        let width = Width::of(f.path());
        tokens.add(f, 0, width)?;
    }
    Ok((known, tokens))
}
