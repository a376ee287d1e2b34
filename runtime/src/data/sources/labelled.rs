//! Files of texts with a class each.
//!
//! All of them are read and made into tokens when they are opened, so that whatever is wrong with a text or a label is said before training
//! begins, by its file and line. Leaves how texts stand in files to `columns.rs`.

use super::columns::{Columns, Row};
use super::{DataSource, files};
use crate::data::dataset::Dataset;
use crate::data::texts::{Form, TextSet, Tokens};
use crate::data::{DataError, Source};
use crate::system::progress::Display;
use odec_program::manifest::{Labelled, Pairs};

pub struct LabelledFiles<'a> {
    pub form: &'a Labelled,
}

/// Texts that become tokens together.
const TOGETHER: usize = 4096;

impl DataSource for LabelledFiles<'_> {
    fn open(&self, s: &Source, _: u64) -> Result<Box<dyn Dataset>, DataError> {
        let vocab = self.form.padding + 1;
        let needs = s.tokenizer.vocabulary() + Pairs::SPECIAL;
        if needs > vocab {
            return Err(DataError::Special { needs, vocab });
        }
        let (found, known) = files(s).map_err(missing)?;
        let (mut tokens, mut waiting, mut truncated) =
            (Tokens::new(2), Vec::new(), Truncated::default());
        self.files().read(&found, &mut |row| {
            waiting.push(row);
            match waiting.len() < TOGETHER {
                true => Ok(()),
                false => self.take(s, &mut waiting, (&mut tokens, &mut truncated)),
            }
        })?;
        self.take(s, &mut waiting, (&mut tokens, &mut truncated))?;
        if let Some(first) = &truncated.first {
            let display = Display::new(s.show);
            display.warn(&format!(
                "{} of {} texts are truncated: the context has room for {} tokens of a text, first at {first}",
                truncated.number,
                tokens.len(),
                s.context - Labelled::AROUND
            ));
            display.finish();
        }
        let (name, percent) = (s.data.files.join(", "), s.data.held_out_percent);
        let form = Form::Labelled(self.form.clone());
        Ok(Box::new(TextSet::new(name, known, form, tokens, percent)))
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
        waiting: &mut Vec<Row>,
        (tokens, truncated): (&mut Tokens, &mut Truncated),
    ) -> Result<(), DataError> {
        let texts = waiting.iter().map(|row| row.texts[0].clone());
        let texts = s.tokenizer.encode_all(texts.collect())?;
        let room = s.context.saturating_sub(Labelled::AROUND) as usize;
        for (row, text) in waiting.drain(..).zip(texts) {
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
