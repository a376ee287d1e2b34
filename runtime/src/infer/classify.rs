//! Classifies texts and images: the probability of each class.
//!
//! Takes a program whose output without a label is `classes`, and texts or PNG files; gives the softmax of its logits for each, through entry
//! `forward`, as many together as that was planned for. Leaves held-out data to `evaluate.rs`.

use crate::data::DataError;
use crate::data::images;
use crate::data::tokenizer::{Tokenizer, TokenizerError};
use crate::executor::{Executor, RunError, Value};
use crate::infer::evaluate::window;
use odec_program::manifest::{Form, Images, Labelled, Predicts};
use odec_program::{Bindings, EntryId, names};
use std::path::PathBuf;

/// What a model classifies.
#[derive(Clone, Debug, PartialEq)]
pub enum Classified {
    Texts(Labelled),
    Images(Images),
}

impl Classified {
    /// That of a model; `None` where it classifies neither texts nor images.
    pub fn of(x: &Executor) -> Option<Classified> {
        let train = x.manifest().train.as_ref()?;
        match (train.loss.predicts(), &train.data.form) {
            (Predicts::Class, Form::Labelled(form)) => Some(Classified::Texts(form.clone())),
            (Predicts::Class, Form::Images(form)) => Some(Classified::Images(form.clone())),
            _ => None,
        }
    }
}

/// Why something cannot be classified.
#[derive(Debug, thiserror::Error)]
pub enum ClassifyError {
    #[error("text {number} is empty (counted from 1)")]
    Empty { number: usize },
    #[error(
        "text {number} has {has} tokens, a begin and an end (counted from 1), and the context has room for {context}"
    )]
    Long {
        number: usize,
        has: usize,
        context: u64,
    },
    #[error("the logits of {of} {number} (counted from 1) are not finite")]
    NonFinite { of: &'static str, number: usize },
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The probability of each class, for each text in its order. A longer text is truncated where the model was trained so.
///
/// # Errors
/// When a text is empty or too long, or the program fails.
pub fn texts(
    x: &mut Executor,
    form: &Labelled,
    tokenizer: &Tokenizer,
    texts: &[String],
) -> Result<Vec<Vec<f64>>, ClassifyError> {
    let context = window(x);
    let room = context.saturating_sub(Labelled::AROUND) as usize;
    let mut rows = Vec::new();
    for (n, mut tokens) in tokenizer
        .encode_all(texts.to_vec())?
        .into_iter()
        .enumerate()
    {
        let (number, has) = (n + 1, tokens.len());
        if texts[n].trim().is_empty() || has == 0 {
            return Err(ClassifyError::Empty { number });
        }
        if has > room && !form.truncate {
            return Err(ClassifyError::Long {
                number,
                has,
                context,
            });
        }
        tokens.truncate(room);
        let [begin, end] = [form.begin, form.end].map(|token| token as i32);
        let tokens = tokens.iter().map(|t| *t as i32);
        rows.push(
            [begin]
                .into_iter()
                .chain(tokens)
                .chain([end])
                .collect::<Vec<i32>>(),
        );
    }
    let mut all = Vec::new();
    for rows in rows.chunks(planned(x)) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(1);
        let mut tokens = Vec::with_capacity(rows.len() * columns);
        for (n, row) in rows.iter().enumerate() {
            tokens.extend(row);
            tokens.resize((n + 1) * columns, form.padding as i32);
        }
        let at = Bindings::new(rows.len() as u64, columns as u64);
        run(
            x,
            at,
            (names::TOKENS, Value::I32(&tokens)),
            ("text", &mut all),
        )?;
    }
    Ok(all)
}

/// The same for each image of these PNG files.
///
/// # Errors
/// When a file is no image of the size that the model reads, or the program fails.
pub fn pictures(
    x: &mut Executor,
    form: &Images,
    files: &[PathBuf],
) -> Result<Vec<Vec<f64>>, ClassifyError> {
    let columns = x.manifest().model.context;
    let mut all = Vec::new();
    for files in files.chunks(planned(x)) {
        let patches = images::read(form, files)?;
        let at = Bindings::new(files.len() as u64, columns);
        run(
            x,
            at,
            (names::PATCHES, Value::F32(&patches)),
            ("image", &mut all),
        )?;
    }
    Ok(all)
}

/// Rows that a run has room for.
fn planned(x: &Executor) -> usize {
    let forward = x.manifest().program.entries.get(&EntryId::Forward);
    forward.map_or(1, |e| e.maxima.batch).max(1) as usize
}

/// Adds the probabilities of some rows to those of the rows before.
fn run(
    x: &mut Executor,
    at: Bindings,
    given: (&str, Value),
    (of, all): (&'static str, &mut Vec<Vec<f64>>),
) -> Result<(), ClassifyError> {
    let classes = x.manifest().model.vocab as usize;
    let out = x.run(EntryId::Forward, at, &[given], &[])?;
    let logits: Vec<f64> = out.reals(names::LOGITS)?.iter().collect();
    for of_one in logits.chunks_exact(classes) {
        if of_one.iter().any(|z| !z.is_finite()) {
            let number = all.len() + 1;
            return Err(ClassifyError::NonFinite { of, number });
        }
        let most = of_one.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let each: Vec<f64> = of_one.iter().map(|z| (z - most).exp()).collect();
        let sum: f64 = each.iter().sum();
        all.push(each.into_iter().map(|e| e / sum).collect());
    }
    Ok(())
}
