//! Texts, or files of token numbers, for next sentence prediction.

use super::{DataSource, bytes, is_bin, token_files, tokenised};
use crate::data::dataset::Dataset;
use crate::data::sentences::SentenceSet;
use crate::data::tokenise::Reading;
use crate::data::{DataError, Source};
use odec_program::manifest::Sentences;
use std::path::Path;

pub struct SentenceFiles<'a> {
    pub form: &'a Sentences,
}

impl DataSource for SentenceFiles<'_> {
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
        let Sentences { key, separator, .. } = self.form;
        let (known, tokens) = if s.data.files.iter().all(|f| is_bin(Path::new(f))) {
            token_files::tokens(s, vocab)?
        } else if bytes::takes(s) {
            bytes::tokens(s, vocab)?
        } else {
            tokenised::tokens(s, vocab, Reading { key, separator })?
        };
        let (name, percent) = (s.data.files.join(", "), s.data.held_out_percent);
        let set = SentenceSet::new(name, known, self.form.clone(), tokens, percent)?;
        Ok(Box::new(set))
    }
}
