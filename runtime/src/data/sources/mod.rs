//! How the files of a data entry are opened: a file for each kind, and which is meant.
//!
//! Takes a [`Source`]; gives a [`Dataset`]. Nothing outside of this folder knows which kinds there are.

pub(super) mod arrays;
mod bytes;
mod columns;
mod image_folder;
mod images;
mod labelled;
mod pairs;
mod sentences;
mod token_files;
mod tokenised;
mod vectors;

use crate::data::corpus::Corpus;
use crate::data::dataset::Dataset;
use crate::data::identity::{DataFile, Identity};
use crate::data::tokenise::Reading;
use crate::data::tokens::Tokens;
use crate::data::{DataError, Source};
use crate::system::progress::Display;
use crate::system::shown::Shown;
use bytes::Bytes;
use images::ImageFiles;
use labelled::LabelledFiles;
use odec_program::manifest::{Form, Pairs};
use pairs::PairFiles;
use sentences::SentenceFiles;
use std::path::{Path, PathBuf};
use token_files::TokenFiles;
use tokenised::Tokenised;
use vectors::VectorFiles;

/// A kind of files.
trait DataSource {
    /// Opens the files for a model of so many kinds of tokens, or classes.
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError>;
}

/// Opens the files of some data and divides them: `held_out_percent` per cent (rounded down) are held out, of texts and tokens the last ones.
///
/// # Errors
/// When a file is missing, empty or unreadable, or the tokenizer does not fit the vocabulary.
pub fn open(s: Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
    let percent = s.data.held_out_percent;
    if percent >= 100 {
        return Err(DataError::HeldOut { percent });
    }
    let source: &dyn DataSource = match &s.data.form {
        Form::Tokens => &TokenFiles,
        Form::Images(shape) => &ImageFiles { shape },
        Form::Vectors(shape) => &VectorFiles { shape },
        Form::Pairs(form) => &PairFiles { form },
        Form::Labelled(form) => &LabelledFiles { form },
        Form::Sentences(form) => &SentenceFiles { form },
        Form::Text { .. } if bytes::takes(&s) => &Bytes,
        Form::Text { key, separator, .. } => &Tokenised {
            reading: Reading { key, separator },
        },
    };
    source.open(&s, vocab)
}

/// Sources and target of the pairs that are held out, or of all of them; `None` of data that is no pairs.
///
/// # Errors
/// As [`open`].
pub fn held_out_pairs(s: Source, all: bool) -> Result<Option<Vec<Vec<String>>>, DataError> {
    match &s.data.form {
        Form::Pairs(form) => PairFiles { form }.held_out(&s, all).map(Some),
        Form::Text { .. }
        | Form::Sentences(_)
        | Form::Labelled(_)
        | Form::Tokens
        | Form::Images(_)
        | Form::Vectors(_) => Ok(None),
    }
}

/// What other files hold that take the place of data of this form. Files named `….bin` hold tokens.
///
/// # Errors
/// When the data is no text, and the files are.
pub fn form_of(files: &[PathBuf], form: &Form) -> Result<Form, DataError> {
    if !form.is_corpus() {
        return Ok(form.clone());
    }
    match (files.iter().find(|f| !is_bin(f)), form.tokenizer()) {
        (None, _) => Ok(Form::Tokens),
        (Some(_), Some(_)) => Ok(form.clone()),
        (Some(text), None) => Err(DataError::NotTokens { path: text.shown() }),
    }
}

/// Files that hold no text, by the ends of their names: a model of bytes would be trained on them without a word.
const NO_TEXTS: [(&str, &[&str]); 4] = [
    ("arrays and tensors", &["npy", "npz", "safetensors", "pt"]),
    ("tables", &["parquet", "arrow"]),
    ("compressed files", &["gz", "zip", "bz2", "xz", "zst"]),
    ("pictures", &["png", "jpg", "jpeg"]),
];

/// Opens files of text.
fn texts(s: &Source) -> Result<(Vec<DataFile>, Vec<Identity>), DataError> {
    for path in s.data.files.iter().map(Path::new) {
        let end = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        if let Some((kind, _)) = NO_TEXTS.iter().find(|(_, ends)| ends.contains(&end)) {
            let path = path.shown();
            return Err(DataError::NamedOtherwise { path, kind });
        }
    }
    files(s)
}

/// Whether a file of this name holds tokens.
fn is_bin(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "bin")
}

/// The files of some data, and what they are known by.
fn files(s: &Source) -> Result<(Vec<DataFile>, Vec<Identity>), DataError> {
    let open = |f: &String| DataFile::open(Path::new(f));
    let files: Vec<DataFile> = s.data.files.iter().map(open).collect::<Result<_, _>>()?;
    let known = files.iter().map(DataFile::identity);
    let known = known.collect::<Result<_, _>>()?;
    Ok((files, known))
}

/// Windows of the tokens that files became.
fn corpus(s: &Source, known: Vec<Identity>, tokens: Tokens) -> Box<dyn Dataset> {
    let (name, percent) = (s.data.files.join(", "), s.data.held_out_percent);
    Box::new(Corpus::new(name, known, tokens, percent))
}

/// Whether the model has a number for all that a tokenizer gives.
fn fit(s: &Source, vocab: u64) -> Result<(), DataError> {
    let needs = s.tokenizer.vocabulary();
    match needs > vocab {
        true => Err(DataError::Vocabulary { needs, vocab }),
        false => Ok(()),
    }
}

/// The same of a model of texts of several lengths, which needs tokens around them.
fn fit_special(s: &Source, vocab: u64) -> Result<(), DataError> {
    let needs = s.tokenizer.vocabulary() + Pairs::SPECIAL;
    match needs > vocab {
        true => Err(DataError::Special { needs, vocab }),
        false => Ok(()),
    }
}

/// Says what becomes of some of the data.
fn warn(s: &Source, text: &str) {
    let display = Display::new(s.show);
    display.warn(text);
    display.finish();
}
