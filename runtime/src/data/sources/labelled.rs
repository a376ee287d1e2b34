//! Files of texts with a class each.
//!
//! All of them are read and made into tokens when they are opened, so that whatever is wrong with a text or a label is said before training
//! begins, by its file and line. Leaves how texts stand in files to `columns.rs`.

use super::columns::{Columns, Row};
use super::{DataSource, files, fit_special, warn};
use crate::data::dataset::{Batch, Dataset, Unit};
use crate::data::texts::{Form, TextSet, Tokens};
use crate::data::{DataError, Source};
use odec_program::manifest::Labelled;

pub struct LabelledFiles<'a> {
    pub form: &'a Labelled,
}

impl DataSource for LabelledFiles<'_> {
    fn open(&self, s: &Source, _: u64) -> Result<Box<dyn Dataset>, DataError> {
        fit_special(s, self.form.padding + 1)?;
        let (found, known) = files(s).map_err(missing)?;
        let (mut tokens, mut truncated) = (Tokens::new(2), Truncated::default());
        self.files().read(&found, &mut |rows| {
            self.take(s, rows, (&mut tokens, &mut truncated))
        })?;
        if let Some(first) = &truncated.first {
            let text = format!(
                "{} of {} texts are truncated: the context has room for {} tokens of a text, first at {first}",
                truncated.number,
                tokens.len(),
                s.context - Labelled::AROUND
            );
            warn(s, &text);
        }
        let (name, percent) = (s.data.files.join(", "), s.data.held_out_percent);
        let form = Box::new(self.form.clone());
        Ok(Box::new(TextSet::new(name, known, form, tokens, percent)))
    }
}

impl Form for Labelled {
    fn many(&self) -> &'static str {
        "texts"
    }

    fn unit(&self) -> Unit {
        Unit::Sequences
    }

    /// A text with its begin and end. The model reads nothing beside it.
    fn places(&self, [text, _]: [u64; 2]) -> [u64; 2] {
        [0, text + Labelled::AROUND]
    }

    fn filled(&self, tokens: &Tokens, pair: u32) -> u64 {
        let (texts, _) = tokens.of(pair);
        texts.map(|text| text.len() as u64 + Labelled::AROUND).sum()
    }

    fn batch(&self, texts: &Tokens, pairs: &[u32], [_, columns]: [u64; 2]) -> Batch {
        let [begin, end, padding] = [self.begin, self.end, self.padding].map(|t| t as i32);
        let mut tokens = Vec::with_capacity(pairs.len() * columns as usize);
        let mut classes = Vec::with_capacity(pairs.len());
        for (row, pair) in pairs.iter().enumerate() {
            let (text, class) = texts.of(*pair);
            tokens.push(begin);
            tokens.extend(text.flatten());
            tokens.push(end);
            tokens.resize((row + 1) * columns as usize, padding);
            classes.extend(class);
        }
        Batch::of_labelled(columns, tokens, classes)
    }
}

/// How many texts were truncated, and where the first one is.
#[derive(Default)]
struct Truncated {
    number: u64,
    first: Option<String>,
}

impl LabelledFiles<'_> {
    fn files(&self) -> Columns<'_> {
        Columns {
            called: "texts",
            texts: vec![("text", &self.form.text), ("label", &self.form.label)],
            whole: true,
        }
    }

    /// Makes tokens of texts, and numbers of their labels.
    fn take(
        &self,
        s: &Source,
        rows: Vec<Row>,
        (tokens, truncated): (&mut Tokens, &mut Truncated),
    ) -> Result<(), DataError> {
        let texts = rows.iter().map(|row| row.texts[0].clone());
        let texts = s.tokenizer.encode_all(texts.collect())?;
        let room = s.context.saturating_sub(Labelled::AROUND) as usize;
        for (row, text) in rows.into_iter().zip(texts) {
            let class = self.class(&row)?;
            // What a tokenizer makes nothing of.
            if text.is_empty() {
                return Err(row.bad("its text is empty".into()));
            }
            if text.len() > room && !self.form.truncate {
                return Err(row.bad(format!(
                    "its text has {} tokens, a begin and an end, and the context has room for {}; give a longer context, or write `labelled(…, truncate)`",
                    text.len(),
                    s.context
                )));
            }
            if text.len() > room {
                truncated.number += 1;
                truncated.first.get_or_insert_with(|| row.place());
            }
            if tokens.len() == u32::MAX {
                let path = s.data.files.join(", ");
                let reason = format!("more than {} texts", u32::MAX);
                return Err(DataError::Pairs { path, reason });
            }
            tokens.push([&text[..text.len().min(room)], &[class][..]]);
        }
        Ok(())
    }

    /// The class that a label is the name or the number of.
    fn class(&self, row: &Row) -> Result<u32, DataError> {
        let label = row.texts[1].trim();
        let (names, classes) = (&self.form.names, self.form.classes);
        let found = match names.is_empty() {
            true => label.parse().ok().filter(|n| u64::from(*n) < classes),
            false => names
                .iter()
                .position(|name| name == label)
                .map(|n| n as u32),
        };
        found.ok_or_else(|| {
            row.bad(match names.is_empty() {
                true => format!(
                    "its label is {label:?}, and classes are numbers from 0 to {}; where they have names, write `names: \"…, …\"`",
                    classes.saturating_sub(1)
                ),
                false => format!("its label is {label:?}, and classes are {}", names.join(", ")),
            })
        })
    }
}

fn missing(e: DataError) -> DataError {
    match e {
        DataError::Missing { path } => DataError::NoLabelledAt { path },
        e => e,
    }
}
