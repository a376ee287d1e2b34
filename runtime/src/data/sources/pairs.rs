//! Files of texts in pairs.
//!
//! All of them are read and made into tokens when they are opened, so that whatever is wrong with a pair is said before training begins, by
//! its file and line. Leaves how texts stand in files to `columns.rs`.

use super::columns::{Columns, Row};
use super::{DataSource, files, fit_special, warn};
use crate::data::dataset::{Batch, Dataset, Unit};
use crate::data::identity::DataFile;
use crate::data::texts::{Form, HELD_OUT, TextSet, Tokens};
use crate::data::{DataError, Source, draw};
use odec_program::manifest::Pairs;

pub struct PairFiles<'a> {
    pub form: &'a Pairs,
}

impl DataSource for PairFiles<'_> {
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
        fit_special(s, vocab)?;
        let (found, known) = files(s).map_err(missing)?;
        let mut tokens = Tokens::new(self.form.sources.len() + 1);
        let skipped = self.each(s, &found, &mut |_, texts| {
            tokens.push(texts.iter().map(Vec::as_slice));
        })?;
        skipped.iter().for_each(|skipped| warn(s, skipped));
        let (name, percent) = (s.data.files.join(", "), s.data.held_out_percent);
        let form = Box::new(self.form.clone());
        let set = TextSet::new(name, known, form, tokens, percent);
        Ok(Box::new(set))
    }
}

impl Form for Pairs {
    fn many(&self) -> &'static str {
        "pairs"
    }

    fn unit(&self) -> Unit {
        Unit::Tokens
    }

    /// A source with its end beside a target with its end.
    fn places(&self, [source, target]: [u64; 2]) -> [u64; 2] {
        [source + 1, target + 1]
    }

    fn filled(&self, tokens: &Tokens, pair: u32) -> u64 {
        let (sources, target) = tokens.of(pair);
        sources.map(|s| s.len() as u64 + 1).sum::<u64>() + target.len() as u64 + 1
    }

    fn batch(&self, texts: &Tokens, pairs: &[u32], [beside, columns]: [u64; 2]) -> Batch {
        let [begin, end, padding] = [self.begin, self.end, self.padding].map(|t| t as i32);
        let rows = pairs.len() as u64;
        let room = |width: u64| Vec::with_capacity((rows * width) as usize);
        // A row more, as wide as others.
        let add = |to: &mut Vec<i32>, width: u64, text: &[&[i32]]| {
            let end = to.len() + width as usize;
            text.iter().for_each(|part| to.extend_from_slice(part));
            to.resize(end, padding);
        };
        let mut sources = vec![room(beside); self.sources.len()];
        let (mut tokens, mut targets) = (room(columns), room(columns));
        for pair in pairs {
            let (of_sources, target) = texts.of(*pair);
            for (to, source) in sources.iter_mut().zip(of_sources) {
                add(to, beside, &[source, &[end]]);
            }
            add(&mut tokens, columns, &[&[begin], target]);
            add(&mut targets, columns, &[target, &[end]]);
        }
        let names = self.sources.iter().map(|of| of.input.clone());
        let sources = names.zip(sources).collect();
        Batch::of_pairs(
            (rows, columns, beside),
            sources,
            tokens,
            targets,
            self.padding,
        )
    }
}

/// Is given a pair, and the tokens of its texts, the target's at last.
type TakeTokens<'t> = &'t mut dyn FnMut(Row, &[Vec<u32>]);

impl PairFiles<'_> {
    fn files(&self) -> Columns<'_> {
        let sources = self.form.sources.iter();
        let sources = sources.map(|s| (&s.input[..], &s.key));
        Columns {
            called: "pairs",
            texts: sources.chain([("target", &self.form.target)]).collect(),
            whole: false,
        }
    }

    /// The texts of the pairs that are held out, in their order; of all pairs, where nothing else is asked for.
    ///
    /// # Errors
    /// As when they are opened.
    pub fn held_out(&self, s: &Source, all: bool) -> Result<Vec<Vec<String>>, DataError> {
        let (found, _) = files(s).map_err(missing)?;
        let mut texts = Vec::new();
        self.each(s, &found, &mut |pair, _| {
            texts.push(pair.texts);
        })?;
        let (_, held_out) = draw::divided(HELD_OUT, texts.len() as u32, s.data.held_out_percent);
        if all {
            return Ok(texts);
        }
        let mut texts: Vec<_> = texts.into_iter().map(Some).collect();
        let taken = held_out.iter().map(|n| texts[*n as usize].take());
        Ok(taken.flatten().collect())
    }

    /// Hands out each pair that is trained on, with its tokens; what is said of those that are not.
    fn each(
        &self,
        s: &Source,
        found: &[DataFile],
        take: TakeTokens,
    ) -> Result<Option<String>, DataError> {
        let (mut all, mut skipped, mut first) = (0_u64, 0_u64, None);
        let columns = self.files();
        columns.read(found, &mut |pairs| {
            let mut each = vec![Vec::new(); pairs.len()];
            for n in 0..columns.texts.len() {
                let texts = pairs.iter().map(|p| p.texts[n].clone()).collect();
                let tokens = s.tokenizer.encode_all(texts)?;
                let pairs = each.iter_mut().zip(tokens);
                pairs.for_each(|(pair, tokens)| pair.push(tokens));
            }
            for (pair, texts) in pairs.into_iter().zip(each) {
                all += 1;
                match self.longer(s, &pair, &texts)? {
                    None => take(pair, &texts),
                    Some(where_) => {
                        skipped += 1;
                        first.get_or_insert(where_);
                    }
                }
            }
            if all > u64::from(u32::MAX) {
                let path = s.data.files.join(", ");
                let reason = format!("more than {} pairs", u32::MAX);
                return Err(DataError::Pairs { path, reason });
            }
            Ok(())
        })?;
        Ok(first.map(|first| {
            format!(
                "{skipped} of {all} pairs are left out: a text of theirs has more tokens than its context has room for, {} of a source and {} of a target, first at {first}",
                s.source_context - 1,
                s.context - 1
            )
        }))
    }

    /// Where a pair is that the context has no room for and that is left out.
    fn longer(
        &self,
        s: &Source,
        pair: &Row,
        texts: &[Vec<u32>],
    ) -> Result<Option<String>, DataError> {
        let sources = self.form.sources.iter();
        let sources = sources.map(|of| (&of.input[..], s.source_context));
        let each = sources.chain([("target", s.context)]).zip(texts);
        for ((what, context), tokens) in each {
            // What a tokenizer makes nothing of.
            if tokens.is_empty() {
                return Err(pair.bad(format!("its {what} is empty")));
            }
            if tokens.len() as u64 >= context {
                if self.form.skip_longer {
                    return Ok(Some(pair.place()));
                }
                let reason = format!(
                    "its {what} has {} tokens and an end, and its context has room for {context}; give a longer context, or write `pairs(…, skip_longer)`",
                    tokens.len(),
                );
                return Err(pair.bad(reason));
            }
        }
        Ok(None)
    }
}

fn missing(e: DataError) -> DataError {
    match e {
        DataError::Missing { path } => DataError::NoPairsAt { path },
        e => e,
    }
}
