//! Files of texts in pairs: a pair in each line of JSON or of a table, or two files whose lines of the same number belong together.
//!
//! All of them are read and made into tokens when they are opened, so that whatever is wrong with a pair is said before training begins, by
//! its file and line. Tables have columns between tabs, without quotes. Lines of JSON and of tables that are empty are passed over.

use super::{DataSource, files};
use crate::data::dataset::Dataset;
use crate::data::identity::DataFile;
use crate::data::pairs::{HELD_OUT, PairSet, Tokens};
use crate::data::tokenise::not_json;
use crate::data::{DataError, Source, draw};
use crate::system::input::most;
use crate::system::progress::Display;
use crate::system::shown::Shown;
use odec_program::manifest::Pairs;

pub struct PairFiles<'a> {
    pub form: &'a Pairs,
}

/// Pairs that become tokens together, one per thread or so at a time.
const TOGETHER: usize = 4096;
/// Bytes of a text.
const LONGEST: usize = 1 << 20;

/// A pair, and where it is.
struct Both<'f> {
    file: &'f DataFile,
    /// Counted from 0.
    line: usize,
    source: String,
    target: String,
}

impl DataSource for PairFiles<'_> {
    fn open(&self, s: &Source, vocab: u64) -> Result<Box<dyn Dataset>, DataError> {
        let (of_text, special) = (s.tokenizer.vocabulary(), Pairs::SPECIAL);
        if of_text + special > vocab {
            let needs = of_text + special;
            return Err(DataError::Special { needs, vocab });
        }
        let (found, known) = files(s).map_err(missing)?;
        let mut tokens = Tokens::default();
        let skipped = self.each(s, &found, &mut |_, source, target| {
            tokens.push(source, target);
        })?;
        if let Some(skipped) = skipped {
            let display = Display::new(s.show);
            display.warn(&skipped);
            display.finish();
        }
        let (name, percent) = (s.data.files.join(", "), s.data.held_out_percent);
        let set = PairSet::new(name, known, self.form.clone(), tokens, percent);
        Ok(Box::new(set))
    }
}

/// Is given a pair, and the tokens of both of its texts.
type TakeTokens<'t> = &'t mut dyn FnMut(Both, &[u32], &[u32]);
/// Is given the file of a pair, its line, and both texts.
type TakeTexts<'t, 'f> = &'t mut dyn FnMut(&'f DataFile, usize, [&str; 2]) -> Result<(), DataError>;

impl PairFiles<'_> {
    /// The texts of the pairs that are held out, in their order; of all pairs, where nothing else is asked for.
    ///
    /// # Errors
    /// As when they are opened.
    pub fn held_out(&self, s: &Source, all: bool) -> Result<Vec<[String; 2]>, DataError> {
        let (found, _) = files(s).map_err(missing)?;
        let mut texts = Vec::new();
        self.each(s, &found, &mut |pair, _, _| {
            texts.push([pair.source, pair.target]);
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
        let mut tokenise = |pairs: &mut Vec<Both>| -> Result<(), DataError> {
            let sources = pairs.iter().map(|p| p.source.clone()).collect();
            let targets = pairs.iter().map(|p| p.target.clone()).collect();
            let sources = s.tokenizer.encode_all(sources)?;
            let targets = s.tokenizer.encode_all(targets)?;
            let both = sources.iter().zip(&targets);
            for (pair, (source, target)) in pairs.drain(..).zip(both) {
                all += 1;
                match self.longer(s, &pair, source, target)? {
                    None => take(pair, source, target),
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
        };
        let mut pairs = Vec::new();
        self.read(found, &mut |pair| {
            pairs.push(pair);
            match pairs.len() < TOGETHER {
                true => Ok(()),
                false => tokenise(&mut pairs),
            }
        })?;
        tokenise(&mut pairs)?;
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
        pair: &Both,
        source: &[u32],
        target: &[u32],
    ) -> Result<Option<String>, DataError> {
        let path = pair.file.path().shown();
        let texts = [
            ("source", source, s.source_context),
            ("target", target, s.context),
        ];
        for (what, tokens, context) in texts {
            // What a tokenizer makes nothing of.
            if tokens.is_empty() {
                return Err(bad(pair.file, pair.line, format!("its {what} is empty")));
            }
            if tokens.len() as u64 >= context {
                if self.form.skip_longer {
                    return Ok(Some(format!("{path}, line {}", pair.line + 1)));
                }
                let reason = format!(
                    "its {what} has {} tokens and an end, and its context has room for {context}; give a longer context, or write `pairs(…, skip_longer)`",
                    tokens.len(),
                );
                return Err(bad(pair.file, pair.line, reason));
            }
        }
        Ok(None)
    }

    /// Hands out the pairs of all files.
    fn read<'f>(
        &self,
        found: &'f [DataFile],
        take: &mut dyn FnMut(Both<'f>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let names: Vec<String> = found.iter().map(|f| f.path().shown()).collect();
        if let Some(alone) = Pairs::alone(&names) {
            return Err(DataError::Pairs {
                path: alone.into(),
                reason: "no file of targets is named behind it; files named ….jsonl or ….tsv have both texts".into(),
            });
        }
        let mut take = |file: &'f DataFile, line: usize, [source, target]: [&str; 2]| {
            for (what, text) in [("source", source), ("target", target)] {
                if text.trim().is_empty() {
                    return Err(bad(file, line, format!("its {what} is empty")));
                }
                if text.len() > LONGEST {
                    let reason = format!(
                        "its {what} has {} bytes; a text of a pair has at most {LONGEST}",
                        text.len()
                    );
                    return Err(bad(file, line, reason));
                }
            }
            let [source, target] = [source, target].map(String::from);
            take(Both {
                file,
                line,
                source,
                target,
            })
        };
        let mut rest = found.iter();
        while let Some(file) = rest.next() {
            let bytes = whole(file)?;
            let name = file.path().to_string_lossy();
            if name.ends_with(".jsonl") {
                self.json(file, &bytes, &mut take)?;
            } else if name.ends_with(".tsv") {
                self.table(file, &bytes, &mut take)?;
            } else if let Some(other) = rest.next() {
                let others = whole(other)?;
                let (mut sources, mut targets) = (lines(file, &bytes), lines(other, &others));
                let mut n = 0;
                loop {
                    match (sources.next().transpose()?, targets.next().transpose()?) {
                        (Some((_, source)), Some((_, target))) => take(file, n, [source, target])?,
                        (None, None) => break,
                        (source, _) => {
                            let (long, short) = match source {
                                Some(_) => (file, other),
                                None => (other, file),
                            };
                            let more = match source {
                                Some(_) => sources.count(),
                                None => targets.count(),
                            };
                            return Err(DataError::Pairs {
                                path: long.path().shown(),
                                reason: format!(
                                    "it has {} lines and {} has {n}; lines of the same number belong together",
                                    n + 1 + more,
                                    short.path().shown()
                                ),
                            });
                        }
                    }
                    n += 1;
                }
            }
        }
        Ok(())
    }

    fn json<'f>(
        &self,
        file: &'f DataFile,
        bytes: &[u8],
        take: TakeTexts<'_, 'f>,
    ) -> Result<(), DataError> {
        for line in lines(file, bytes) {
            let (n, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|e| bad(file, n, not_json(&e)))?;
            let text = |key: &String| {
                let found = value.get(key).and_then(|v| v.as_str());
                found.ok_or_else(|| bad(file, n, format!("there is no text under `{key}`")))
            };
            take(
                file,
                n,
                [text(&self.form.source)?, text(&self.form.target)?],
            )?;
        }
        Ok(())
    }

    fn table<'f>(
        &self,
        file: &'f DataFile,
        bytes: &[u8],
        take: TakeTexts<'_, 'f>,
    ) -> Result<(), DataError> {
        let asked = [&self.form.source, &self.form.target];
        let numbers = asked.map(|column| column.parse().ok().filter(|n: &usize| *n > 0));
        let mut columns = match numbers {
            [Some(source), Some(target)] => Some([source - 1, target - 1]),
            _ => None,
        };
        for line in lines(file, bytes) {
            let (n, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let cells: Vec<&str> = line.split('\t').collect();
            let Some(columns) = columns else {
                let column = |name: &String| {
                    let found = cells.iter().position(|c| c == name);
                    let names = || format!("it has no column `{name}`, but {}", cells.join(", "));
                    found.ok_or_else(|| bad(file, n, names()))
                };
                columns = Some([column(asked[0])?, column(asked[1])?]);
                continue;
            };
            let cell = |column: usize| {
                let has = cells.len();
                let missing = || {
                    format!(
                        "it has {has} columns, and column {} is asked for",
                        column + 1
                    )
                };
                cells.get(column).ok_or_else(|| bad(file, n, missing()))
            };
            take(file, n, [cell(columns[0])?, cell(columns[1])?])?;
        }
        Ok(())
    }
}

/// What is at fault with a pair; lines are counted from 0 here.
fn bad(file: &DataFile, line: usize, reason: String) -> DataError {
    DataError::Pair {
        path: file.path().shown(),
        line: line + 1,
        reason,
    }
}

fn missing(e: DataError) -> DataError {
    match e {
        DataError::Missing { path } => DataError::NoPairsAt { path },
        e => e,
    }
}

/// All bytes of a file.
fn whole(file: &DataFile) -> Result<Vec<u8>, DataError> {
    if file.bytes() > most::PAIRS {
        let (has, most) = (file.bytes(), most::PAIRS);
        return Err(DataError::Pairs {
            path: file.path().shown(),
            reason: format!("it has {has} bytes; a file of pairs has at most {most}"),
        });
    }
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Lines with their numbers from 0, without what ends them.
fn lines<'b>(
    file: &DataFile,
    bytes: &'b [u8],
) -> impl Iterator<Item = Result<(usize, &'b str), DataError>> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let each = text.split(|b| *b == b'\n').enumerate();
    each.map(move |(n, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line);
        let text =
            text.map_err(|e| bad(file, n, format!("byte {} is not UTF-8", e.valid_up_to())))?;
        Ok((n, text))
    })
}
