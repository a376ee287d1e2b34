//! Files of texts with a class each: what is read of them, in which order, and what is refused.

use crate::place::Place;
use odec_program::manifest::{Data, Form, Labelled, Tokenizer as Named};
use odec_program::names::{TARGETS, TOKENS};
use odec_runtime::data::dataset::{Draw, InTokens, Unit};
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::{Batch, Dataset, Show, Tokenizer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const BEGIN: i32 = 256;
const END: i32 = 257;
const PADDING: i32 = 258;
const CONTEXT: u64 = 12;

/// What is read of some files.
#[derive(Default)]
struct Reading {
    names: Vec<String>,
    truncate: bool,
    held_out_percent: u32,
}

impl Reading {
    fn named(names: &[&str]) -> Reading {
        Reading {
            names: names.iter().map(|name| name.to_string()).collect(),
            ..Reading::default()
        }
    }

    fn opened(&self, files: &[PathBuf]) -> Result<Box<dyn Dataset>, DataError> {
        let data = Data {
            files: files.iter().map(|f| f.display().to_string()).collect(),
            form: Form::Labelled(Labelled {
                tokenizer: Named::Bytes,
                text: "text".into(),
                label: "label".into(),
                classes: 3,
                names: self.names.clone(),
                begin: 256,
                end: 257,
                padding: 258,
                truncate: self.truncate,
            }),
            held_out_percent: self.held_out_percent,
        };
        let source = Source {
            data: &data,
            tokenizer: &Tokenizer::bytes(),
            cache: Path::new("/nowhere"),
            context: CONTEXT,
            source_context: 0,
            show: Show::Nothing,
        };
        sources::open(source, 3)
    }
}

/// The text and the class of each row.
fn rows(batch: &Batch) -> Vec<(String, i32)> {
    let text = |row: &[i32]| {
        let end = row.iter().position(|t| *t == END).unwrap();
        assert_eq!(row[0], BEGIN);
        assert!(row[end + 1..].iter().all(|t| *t == PADDING), "{row:?}");
        let bytes = row[1..end].iter().map(|t| u8::try_from(*t).unwrap());
        String::from_utf8(bytes.collect()).unwrap()
    };
    assert_eq!((batch.predicted, batch.source), (batch.rows, 0));
    let texts = batch.whole(TOKENS).chunks(batch.columns as usize).map(text);
    texts.zip(batch.whole(TARGETS).iter().copied()).collect()
}

fn all(set: Box<dyn Dataset>) -> Vec<(String, i32)> {
    let set = set.all_held_out();
    let batches = set.held_out_batches(3, CONTEXT, None).unwrap();
    batches.flat_map(|b| rows(&b.unwrap())).collect()
}

fn said(texts: &[(&str, i32)]) -> Vec<(String, i32)> {
    texts
        .iter()
        .map(|(text, class)| (text.to_string(), *class))
        .collect()
}

#[test]
fn a_row_has_a_text_between_its_begin_and_end() {
    let place = Place::new();
    let file = place.write(
        "a.jsonl",
        "{\"text\": \"\u{d6}h\", \"label\": 2}\n\n{\"label\": \"0\", \"text\": \"e\"}\n",
    );
    let set = Reading::default().opened(&[file]).unwrap();
    assert_eq!(
        (set.unit(), set.len(), set.files().len()),
        (Unit::Sequences, 2, 1)
    );
    let set = set.all_held_out();
    let batch = set
        .held_out_batches(2, CONTEXT, None)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((batch.rows, batch.columns, batch.padding), (2, 5, Some(2)));
    assert_eq!(
        batch.whole(TOKENS),
        [BEGIN, 101, END, PADDING, PADDING, BEGIN, 195, 150, 104, END]
    );
    assert_eq!(batch.whole(TARGETS), [0, 2]);
    assert_eq!(batch.count(Unit::Sequences), 2);
}

#[test]
fn every_kind_of_file_gives_the_same_texts() {
    let place = Place::new();
    let files = [
        vec![place.write(
            "a.jsonl",
            "{\"text\": \"x\", \"label\": \"no\"}\n{\"text\": \"yy\", \"label\": \"yes\"}",
        )],
        vec![place.write("a.tsv", "label\ttext\n no \tx\nyes\tyy\n")],
        vec![
            place.write("a.txt", "x\nyy\n"),
            place.write("a.labels", "no\nyes\n"),
        ],
    ];
    for files in files {
        let set = Reading::named(&["no", "yes", "perhaps"])
            .opened(&files)
            .unwrap();
        assert_eq!(all(set), said(&[("x", 0), ("yy", 1)]), "{files:?}");
    }
}

/// In an epoch each text comes once, beside others of its length.
#[test]
fn an_epoch_has_each_text_once() {
    let place = Place::new();
    let line = |n: usize| format!("{}\t{}\n", n % 3, "x".repeat(1 + n % 10));
    let lines: String = (0..240).map(line).collect();
    let file = place.write("a.tsv", format!("label\ttext\n{lines}"));
    let reading = Reading {
        held_out_percent: 10,
        ..Reading::default()
    };
    let set = reading.opened(&[file]).unwrap();
    assert_eq!((set.len(), set.held_out_rows(CONTEXT)), (240, 24));
    let drawn = |tokens| {
        let mut seen: BTreeMap<(String, i32), usize> = BTreeMap::new();
        let (mut step, mut padding, mut places) = (0, 0, 0);
        while seen.values().sum::<usize>() < 216 {
            let draw = Draw {
                seed: 1,
                step,
                batch: 8,
                tokens,
            };
            let batch = set.training_batch(draw, 0..8, CONTEXT).unwrap();
            assert_eq!(batch, set.training_batch(draw, 0..8, CONTEXT).unwrap());
            if let Some(InTokens { most, .. }) = tokens {
                assert!(batch.rows * batch.columns <= most);
            }
            padding += batch.padding.unwrap();
            places += batch.places();
            for row in rows(&batch) {
                *seen.entry(row).or_default() += 1;
            }
            step += 1;
        }
        // Rows of a length stand together.
        assert!(padding * 10 < places, "{padding} of {places}");
        seen
    };
    let in_tokens = InTokens { most: 96, parts: 1 };
    let (by_rows, by_tokens) = (drawn(None), drawn(Some(in_tokens)));
    assert_eq!(by_rows.values().sum::<usize>(), 216);
    assert_eq!(by_rows, by_tokens);
}

#[test]
fn longer_texts_are_truncated_where_that_is_asked_for() {
    let place = Place::new();
    let file = place.write("a.tsv", "text\tlabel\n0123456789abc\t1\nx\t0\n");
    let truncating = Reading {
        truncate: true,
        ..Reading::default()
    };
    let set = truncating.opened(&[file]).unwrap();
    assert_eq!(all(set), said(&[("x", 0), ("0123456789", 1)]));
}

#[test]
fn what_is_wrong_is_named_by_file_and_line() {
    let place = Place::new();
    let mut told = String::new();
    let named = Reading::named(&["no", "yes", "perhaps"]);
    for (reading, name, bytes) in [
        (
            &Reading::default(),
            "number.tsv",
            "text\tlabel\na\t0\nb\t3\n",
        ),
        (
            &Reading::default(),
            "name.jsonl",
            "{\"text\": \"a\", \"label\": \"no\"}",
        ),
        (
            &Reading::default(),
            "minus.jsonl",
            "{\"text\": \"a\", \"label\": -1}",
        ),
        (
            &Reading::default(),
            "half.jsonl",
            "{\"text\": \"a\", \"label\": 0.5}",
        ),
        (&named, "unknown.tsv", "text\tlabel\na\tmaybe\n"),
        (&named, "empty.tsv", "text\tlabel\n \tno\n"),
        (&named, "nameless.tsv", "text\tlabel\na\t\n"),
        (&named, "column.tsv", "text\tkind\na\tno\n"),
        (&named, "long.tsv", "text\tlabel\n0123456789a\tno\n"),
        (&named, "alone.txt", "a\n"),
    ] {
        let file = place.write(name, bytes);
        let refused = reading.opened(&[file]).err().expect(name);
        told += &format!("{refused}\n");
    }
    let gone = named
        .opened(&[place.0.path().join("gone.tsv")])
        .err()
        .unwrap();
    told += &format!("{gone}\n");
    let [long, short] =
        [("a.txt", "a\nb\n"), ("a.labels", "no\n")].map(|(name, bytes)| place.write(name, bytes));
    told += &format!("{}\n", named.opened(&[long, short]).err().unwrap());
    let told = told.replace(&place.0.path().display().to_string(), "…");
    insta::assert_snapshot!(told);
}

#[test]
fn a_tokenizer_needs_a_number_for_all_of_its_tokens() {
    let place = Place::new();
    let file = place.write("a.tsv", "text\tlabel\na\t0\n");
    let data = Data {
        files: vec![file.display().to_string()],
        form: Form::Labelled(Labelled {
            tokenizer: Named::Bytes,
            text: "text".into(),
            label: "label".into(),
            classes: 300,
            names: vec![],
            begin: 200,
            end: 201,
            padding: 202,
            truncate: false,
        }),
        held_out_percent: 0,
    };
    let source = Source {
        data: &data,
        tokenizer: &Tokenizer::bytes(),
        cache: Path::new("/nowhere"),
        context: CONTEXT,
        source_context: 0,
        show: Show::Nothing,
    };
    let refused = sources::open(source, 300).err().unwrap();
    assert!(
        matches!(
            refused,
            DataError::Special {
                needs: 259,
                vocab: 203
            }
        ),
        "{refused}"
    );
}
