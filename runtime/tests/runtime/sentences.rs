//! Texts for next sentence prediction: which rows there are, and what is refused.

use crate::place::Place;
use odec_program::manifest::{Data, Form, Sentences, Tokenizer as Named};
use odec_program::names::{TARGETS, TOKENS};
use odec_runtime::data::dataset::{Draw, Unit};
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::{Batch, Dataset, Show, Tokenizer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const CONTEXT: u64 = 10;
const CLASS: &str = "follows.targets";
const LINES: usize = 200;

fn opened(files: &[PathBuf], percent: u32) -> Result<Box<dyn Dataset>, DataError> {
    let data = Data {
        files: files.iter().map(|f| f.display().to_string()).collect(),
        form: Form::Sentences(Sentences {
            tokenizer: Named::Bytes,
            key: "text".into(),
            separator: "\n".into(),
            end: 10,
            output: "follows".into(),
        }),
        held_out_percent: percent,
    };
    let source = Source {
        data: &data,
        tokenizer: &Tokenizer::bytes(),
        cache: Path::new("/nowhere"),
        context: CONTEXT,
        source_context: 0,
        show: Show::Nothing,
    };
    sources::open(source, 257)
}

fn draw(seed: u64, step: u64) -> Draw {
    Draw {
        seed,
        step,
        batch: 4,
        tokens: None,
    }
}

/// Line n: its number, and up to seven letters. Empty lines are no sentences.
fn line(n: usize) -> String {
    format!("{n:03}{}\n", "x".repeat(n * 5 % 8))
}

fn text() -> String {
    let empty = |n: usize| if n.is_multiple_of(9) { "\n" } else { "" };
    (0..LINES).map(|n| line(n) + empty(n)).collect()
}

/// The lines of a text, each with what a row of [`CONTEXT`] bytes keeps of it and all that follows.
fn followed(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut first = 0;
    for (end, _) in text.match_indices('\n') {
        let own = &text[first..=end];
        first = end + 1;
        if own.len() > 1 {
            let kept = &own[own.len().saturating_sub(CONTEXT as usize / 2)..];
            found.insert(own.to_string(), format!("{kept}{}", &text[first..]));
        }
    }
    found
}

/// The rows of a batch: what a model reads, what follows each token, and the class.
fn rows(batch: &Batch) -> Vec<(String, String, i32)> {
    let text = |row: &[i32]| -> String {
        row.iter()
            .map(|t| char::from(u8::try_from(*t).unwrap()))
            .collect()
    };
    let columns = batch.columns as usize;
    let read = batch.whole(TOKENS).chunks(columns).map(text);
    let next = batch.whole(TARGETS).chunks(columns).map(text);
    let classes = batch.whole(CLASS).iter();
    let rows = read.zip(next).zip(classes);
    rows.map(|((read, next), class)| (read, next, *class))
        .collect()
}

#[test]
fn half_of_the_rows_go_on_as_the_text_does() {
    let place = Place::new();
    let text = text();
    let set = opened(&[place.write("a.txt", &text)], 0).unwrap();
    assert_eq!((set.len(), set.unit()), (text.len() as u64, Unit::Tokens));
    assert_eq!(set.held_out_rows(CONTEXT), 0);
    let all = followed(&text);
    let mut follow = 0;
    let steps = 100;
    for step in 0..steps {
        let batch = set.training_batch(draw(3, step), 0..4, CONTEXT).unwrap();
        assert_eq!((batch.rows, batch.columns), (4, CONTEXT));
        for (read, next, class) in rows(&batch) {
            // Each token but the first is what the one before is followed by.
            assert_eq!(read[1..], next[..next.len() - 1]);
            let goes_on =
                |whole: &String| whole.starts_with(&format!("{read}{}", &next[next.len() - 1..]));
            // The second segment follows some line.
            let own = all.values().any(goes_on);
            let (_, second) = read.split_once('\n').unwrap();
            let elsewhere = all.values().any(|whole| {
                let (_, there) = whole.split_once('\n').unwrap();
                there.starts_with(second)
            });
            assert!(elsewhere, "{read:?}");
            // Ends of lines are alike, so a row may go on as the text does by chance; those that must, do.
            assert!(own || class == 1, "{read:?}");
            follow += u64::from(class == 0);
        }
    }
    // 200 of 400 are expected, with a deviation of 10.
    assert!((150..250).contains(&follow), "{follow} of {}", 4 * steps);
}

#[test]
fn an_epoch_has_each_sentence_once() {
    let place = Place::new();
    // Short lines, which rows have whole.
    let short = |n: usize| format!("{n:03}\n");
    let text: String = (0..40).map(short).collect();
    let set = opened(&[place.write("a.txt", &text)], 0).unwrap();
    // Fewer than ten bytes follow the last three.
    let sentences = 37;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for step in 0..sentences {
        let batch = set.training_batch(draw(5, step), 0..4, CONTEXT).unwrap();
        for (read, ..) in rows(&batch) {
            *seen.entry(read[..4].to_string()).or_default() += 1;
        }
    }
    assert_eq!(seen.len(), sentences as usize);
    assert!(seen.values().all(|n| *n == 4), "{seen:?}");
    // The same draw gives the same rows, whichever are asked for together.
    let whole = set.training_batch(draw(5, 7), 0..4, CONTEXT).unwrap();
    let part = set.training_batch(draw(5, 7), 2..4, CONTEXT).unwrap();
    assert_eq!(rows(&whole)[2..], rows(&part));
    let other = set.training_batch(draw(6, 7), 0..4, CONTEXT).unwrap();
    assert_ne!(rows(&whole), rows(&other));
}

#[test]
fn what_is_held_out_is_the_end_and_always_the_same() {
    let place = Place::new();
    let text = text();
    let files = [place.write("a.txt", &text)];
    let set = opened(&files, 25).unwrap();
    let cut = text.len() - text.len() * 25 / 100;
    let end = followed(&text[cut..]);
    let all = set.held_out_rows(CONTEXT);
    let read = |most| -> Vec<(String, String, i32)> {
        let batches = set.held_out_batches(7, CONTEXT, most).unwrap();
        batches.flat_map(|b| rows(&b.unwrap())).collect()
    };
    let held_out = read(None);
    assert_eq!(held_out.len() as u64, all);
    assert_eq!(held_out, read(None));
    let follow = held_out.iter().filter(|(_, _, class)| *class == 0).count();
    assert!(follow > 5 && follow + 5 < held_out.len(), "{follow}");
    for (text, _, class) in &held_out {
        let goes_on = |whole: &String| whole.starts_with(text);
        assert!(*class == 1 || end.values().any(goes_on), "{text:?}");
    }
    let few = read(Some(5));
    assert_eq!(few.len(), 5);
    assert!(few.iter().all(|row| held_out.contains(row)));
    // Training knows nothing of it.
    let before = &text[..cut];
    for step in 0..50 {
        let batch = set.training_batch(draw(3, step), 0..4, CONTEXT).unwrap();
        for (text, ..) in rows(&batch) {
            let (_, second) = text.split_once('\n').unwrap();
            assert!(before.contains(second), "{text:?}");
        }
    }
    // All of it held out.
    let whole = opened(&files, 25).unwrap().all_held_out();
    assert!(whole.held_out_rows(CONTEXT) > 3 * all);
    assert!(whole.training_batch(draw(3, 0), 0..4, CONTEXT).is_err());
}

/// Files named `….bin` hold the numbers of tokens.
#[test]
fn tokens_may_be_in_files() {
    let place = Place::new();
    let text = text();
    let numbers: Vec<u8> = text
        .bytes()
        .flat_map(|b| u16::from(b).to_le_bytes())
        .collect();
    let of = |file| {
        opened(&[file], 10)
            .unwrap()
            .training_batch(draw(1, 2), 0..4, CONTEXT)
            .unwrap()
    };
    let (texts, files) = (place.write("a.txt", &text), place.write("a.bin", numbers));
    assert_eq!(of(texts), of(files));
}

#[test]
fn texts_without_two_sentences_are_refused() {
    let place = Place::new();
    let long = "x".repeat(50);
    let mut said = Vec::new();
    for (name, text) in [
        ("none.txt", long.clone()),
        ("one.txt", format!("abc\n{long}")),
        ("empty.txt", "\n".repeat(100)),
        ("short.txt", "ab\ncd\nef\n".to_string()),
    ] {
        let set = opened(&[place.write(name, text)], 0).unwrap();
        let wrong = set
            .training_batch(draw(0, 0), 0..1, CONTEXT)
            .map(drop)
            .unwrap_err();
        let root = place.0.path().display().to_string();
        said.push(wrong.to_string().replace(&format!("{root}/"), ""));
        assert_eq!(set.held_out_rows(CONTEXT), 0);
        assert!(set.held_out_batches(1, CONTEXT, None).is_err());
    }
    insta::assert_snapshot!(said.join("\n"));
}
