//! Files of texts in pairs: what is read of them, in which order, and what is refused.

use crate::place::Place;
use odec_program::manifest::{Data, Form, Pairs, Read, Tokenizer as Named};
use odec_program::names::{SOURCE, TARGETS, TOKENS};
use odec_runtime::data::dataset::{Draw, InTokens, Unit};
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::{Batch, Dataset, Show, Tokenizer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const BEGIN: i32 = 256;
const END: i32 = 257;
const PADDING: i32 = 258;
const VOCAB: u64 = 259;
const CONTEXT: u64 = 12;
/// Of sources.
const BESIDE: u64 = 14;

/// What is read of some files.
struct Reading<'a> {
    columns: [&'a str; 2],
    skip_longer: bool,
    held_out_percent: u32,
    context: u64,
}

impl Default for Reading<'_> {
    fn default() -> Self {
        Reading {
            columns: ["en", "de"],
            skip_longer: false,
            held_out_percent: 0,
            context: CONTEXT,
        }
    }
}

impl Reading<'_> {
    fn data(&self, files: &[PathBuf], vocab: u64) -> Data {
        let [source, target] = self.columns.map(String::from);
        Data {
            files: files.iter().map(|f| f.display().to_string()).collect(),
            form: Form::Pairs(Pairs {
                tokenizer: Named::Bytes,
                sources: vec![Read {
                    input: SOURCE.into(),
                    key: source,
                }],
                target,
                begin: vocab - 3,
                end: vocab - 2,
                padding: vocab - 1,
                skip_longer: self.skip_longer,
            }),
            held_out_percent: self.held_out_percent,
        }
    }

    fn with<T>(
        &self,
        files: &[PathBuf],
        (t, vocab): (&Tokenizer, u64),
        then: impl FnOnce(Source) -> T,
    ) -> T {
        then(Source {
            data: &self.data(files, vocab),
            tokenizer: t,
            cache: Path::new("/nowhere"),
            context: self.context,
            source_context: self.context + BESIDE - CONTEXT,
            show: Show::Nothing,
        })
    }

    fn opened(&self, files: &[PathBuf]) -> Result<Box<dyn Dataset>, DataError> {
        let bytes = (&Tokenizer::bytes(), VOCAB);
        self.with(files, bytes, |s| sources::open(s, VOCAB))
    }
}

/// Pair n: n letters and its number, of which no two are the same.
fn texts(n: usize) -> [String; 2] {
    let source = format!("{n:03}{}", "s".repeat(n % 7));
    let target = format!("{n:03}{}", "t".repeat((n * 5) % 8));
    [source, target]
}

fn json(pairs: usize) -> String {
    let line = |n| {
        let [source, target] = texts(n);
        format!("{{\"en\": \"{source}\", \"de\": \"{target}\"}}\n")
    };
    (0..pairs).map(line).collect()
}

/// The texts of each row.
fn rows(batch: &Batch) -> Vec<[String; 2]> {
    let text = |row: &[i32]| {
        let end = row.iter().position(|t| *t == END).unwrap();
        assert!(row[end + 1..].iter().all(|t| *t == PADDING), "{row:?}");
        let bytes = row[..end].iter().map(|t| u8::try_from(*t).unwrap());
        String::from_utf8(bytes.collect()).unwrap()
    };
    let [beside, columns] = [batch.source, batch.columns].map(|n| n as usize);
    let sources = batch.whole(SOURCE).chunks(beside).map(text);
    let targets = batch.whole(TARGETS).chunks(columns).map(text);
    sources.zip(targets).map(|(s, t)| [s, t]).collect()
}

fn all(set: Box<dyn Dataset>) -> Vec<[String; 2]> {
    let set = set.all_held_out();
    let batches = set.held_out_batches(3, CONTEXT, None).unwrap();
    batches.flat_map(|b| rows(&b.unwrap())).collect()
}

#[test]
fn a_batch_has_both_texts_with_what_is_put_around_them() {
    let place = Place::new();
    let file = place.write(
        "a.jsonl",
        "{\"en\": \"Oh\", \"de\": \"\u{d6}h\"}\n{\"de\": \"d\", \"en\": \"e\"}\n",
    );
    let set = Reading::default().opened(&[file]).unwrap();
    assert_eq!(
        (set.unit(), set.len(), set.files().len()),
        (Unit::Tokens, 7, 1)
    );
    let set = set.all_held_out();
    let mut batches = set.held_out_batches(8, CONTEXT, None).unwrap();
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    // The shorter pair is first.
    let source = [[101, END, PADDING], [79, 104, END]];
    let tokens = [[BEGIN, 100, PADDING, PADDING], [BEGIN, 195, 150, 104]];
    let targets = [[100, END, PADDING, PADDING], [195, 150, 104, END]];
    for (name, numbers) in [
        (SOURCE, source.as_flattened()),
        (TOKENS, tokens.as_flattened()),
        (TARGETS, targets.as_flattened()),
    ] {
        assert_eq!(batch.whole(name), numbers, "{name}");
    }
    assert_eq!((batch.rows, batch.columns, batch.source), (2, 4, 3));
    assert_eq!(
        (batch.predicted, batch.padding, batch.count(Unit::Tokens)),
        (6, Some(3), 11)
    );
}

#[test]
fn all_kinds_of_files_give_the_same_pairs() {
    let place = Place::new();
    let texts: Vec<[String; 2]> = (0..20).map(texts).collect();
    let lines = |of: fn(&[String; 2]) -> String, end: &str| {
        let lines: Vec<String> = texts.iter().map(of).collect();
        lines.join(end)
    };
    let table = lines(|[s, t]| format!("{t}\tnote\t{s}"), "\n");
    let split = |n: usize, end: &str| {
        let json = json(20);
        let at = json.match_indices('\n').nth(n).unwrap().0 + 1;
        [0..at, at..json.len()].map(|r| json[r].replace('\n', end))
    };
    let [first, second] = split(6, "\r\n\n");
    let named = Reading::default();
    let numbered = Reading {
        columns: ["3", "1"],
        ..Reading::default()
    };
    let files = |files: &[(&str, String)]| -> Vec<PathBuf> {
        files
            .iter()
            .map(|(name, text)| place.write(name, text))
            .collect()
    };
    let expected: BTreeSet<[String; 2]> = texts.iter().cloned().collect();
    for (reading, files) in [
        (&named, files(&[("a.jsonl", json(20))])),
        (&named, files(&[("b.jsonl", first), ("c.jsonl", second)])),
        (&named, files(&[("a.tsv", format!("de\tx\ten\n{table}\n"))])),
        (&numbered, files(&[("b.tsv", table)])),
        (
            &named,
            files(&[
                ("a.en", lines(|[s, _]| s.clone(), "\n")),
                ("a.de", lines(|[_, t]| t.clone(), "\r\n")),
            ]),
        ),
    ] {
        let found = all(reading.opened(&files).unwrap());
        assert_eq!(found.len(), 20, "{files:?}");
        assert_eq!(BTreeSet::from_iter(found), expected, "{files:?}");
    }
}

#[test]
fn a_tokenizer_makes_tokens_of_both_texts() {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tokenizer.json");
    let t = Tokenizer::open(Path::new(FILE)).unwrap();
    let place = Place::new();
    let file = place.write(
        "a.jsonl",
        "{\"en\": \"the man\", \"de\": \"a house and the man\"}\n",
    );
    let reading = Reading::default();
    let vocab = t.vocabulary() + 3;
    let set = reading.with(std::slice::from_ref(&file), (&t, vocab), |s| {
        sources::open(s, vocab)
    });
    let set = set.unwrap().all_held_out();
    let batch = set.held_out_batches(1, CONTEXT, None).unwrap().next();
    let batch = batch.unwrap().unwrap();
    let tokens = |text: &str| -> Vec<i32> {
        let tokens = t.encode(text).unwrap().into_iter().map(|t| t as i32);
        tokens.chain([vocab as i32 - 2]).collect()
    };
    assert_eq!(batch.whole(TARGETS), tokens("a house and the man"));
    assert_eq!(batch.whole(SOURCE), tokens("the man"));
    let small = reading.with(&[file], (&t, vocab - 1), |s| sources::open(s, vocab - 1));
    let small = small.map(drop).unwrap_err().to_string();
    let said = format!(
        "with begin, end and padding the tokenizer has a vocabulary of {vocab}; this model has a vocabulary of {}",
        vocab - 1
    );
    assert_eq!(small, said);
}

#[test]
fn what_is_wrong_with_a_pair_is_named_by_file_and_line() {
    let place = Place::new();
    let good = "{\"en\": \"a\", \"de\": \"b\"}\n";
    let long = "x".repeat(12);
    let refused = |names: &[&str], contents: &[Vec<u8>]| {
        let files: Vec<PathBuf> = names
            .iter()
            .zip(contents)
            .map(|(name, text)| place.write(name, text))
            .collect();
        let e = Reading::default().opened(&files).map(drop).unwrap_err();
        let folder = place.0.path().display().to_string();
        e.to_string().replace(&format!("{folder}/"), "")
    };
    let json = |line: &str| {
        refused(
            &["a.jsonl"],
            &[format!("{good}\n{line}\n{good}").into_bytes()],
        )
    };
    for (line, said) in [
        (
            "{\"en\": \"a\"",
            "a.jsonl, line 3: column 10: EOF while parsing an object",
        ),
        (
            "{\"en\": \"a\"}",
            "a.jsonl, line 3: there is no text under `de`",
        ),
        (
            "{\"en\": 5, \"de\": \"b\"}",
            "a.jsonl, line 3: there is no text under `en`",
        ),
        ("[1, 2]", "a.jsonl, line 3: there is no text under `en`"),
        (
            "{\"en\": \" \", \"de\": \"b\"}",
            "a.jsonl, line 3: its source is empty",
        ),
        (
            "{\"en\": \"a\", \"de\": \"\"}",
            "a.jsonl, line 3: its target is empty",
        ),
        (
            &format!("{{\"en\": \"a\", \"de\": \"{long}\"}}"),
            "a.jsonl, line 3: its target has 12 tokens and an end, and its context has room for 12; give a longer context, or write `pairs(…, skip_longer)`",
        ),
        (
            &format!("{{\"en\": \"{long}yy\", \"de\": \"a\"}}"),
            "a.jsonl, line 3: its source has 14 tokens and an end, and its context has room for 14; give a longer context, or write `pairs(…, skip_longer)`",
        ),
    ] {
        assert_eq!(json(line), said, "{line}");
    }
    let wide = "y".repeat((1 << 20) + 1);
    for (names, contents, said) in [
        (
            vec!["b.jsonl"],
            vec![[good.as_bytes(), b"{\"en\": \"\xff\"}\n"].concat()],
            "b.jsonl, line 2: byte 8 is not UTF-8",
        ),
        (
            vec!["a.en", "a.de"],
            vec![b"1\n2\n3\n".to_vec(), b"1\n2".to_vec()],
            "a.en: it has 3 lines and a.de has 2; lines of the same number belong together",
        ),
        (
            vec!["a.en", "a.de"],
            vec![b"1\n".to_vec(), b"1\n2\n3\n4\n".to_vec()],
            "a.de: it has 4 lines and a.en has 1; lines of the same number belong together",
        ),
        (
            vec!["a.en", "a.de"],
            vec![b"1\n\n3\n".to_vec(), b"1\n2\n3\n".to_vec()],
            "a.en, line 2: its source is empty",
        ),
        (
            vec!["a.en", "a.de"],
            vec![b"1\n".to_vec(), wide.into_bytes()],
            "a.en, line 1: its target has 1048577 bytes, and a text at most 1048576",
        ),
        (
            vec!["a.en"],
            vec![b"1\n".to_vec()],
            "a.en: no file of targets is named behind it; files named ….jsonl or ….tsv have all texts",
        ),
        (
            vec!["a.tsv"],
            vec![b"en\tfr\na\tb\n".to_vec()],
            "a.tsv, line 1: it has no column `de`, but en, fr",
        ),
        (
            vec!["a.tsv"],
            vec![b"en\tx\tde\na\tb\tc\na\tb\n".to_vec()],
            "a.tsv, line 3: it has 2 columns, and column 3 is asked for",
        ),
        (vec!["c.jsonl"], vec![vec![]], "c.jsonl is empty"),
    ] {
        let found = refused(&names, &contents);
        let found = found
            .rsplit_once("/")
            .map_or(found.as_str(), |(_, end)| end);
        assert_eq!(found, said);
    }
    let none = Reading::default().opened(&["no.jsonl".into()]).map(drop);
    let none = none.unwrap_err().to_string();
    assert!(
        none.starts_with("there are no pairs of texts at no.jsonl; "),
        "{none}"
    );
}

#[test]
fn longer_pairs_are_left_out_where_that_is_asked_for() {
    let place = Place::new();
    let file = place.write("a.jsonl", json(60));
    let short = Reading {
        skip_longer: true,
        context: 8,
        ..Reading::default()
    };
    let found = all(short.opened(std::slice::from_ref(&file)).unwrap());
    // With its end a target has at most 8 tokens.
    let fits = |[s, t]: &[String; 2]| s.len() < 8 + (BESIDE - CONTEXT) as usize && t.len() < 8;
    let expected: BTreeSet<[String; 2]> = (0..60).map(texts).filter(fits).collect();
    assert!((20..60).contains(&expected.len()));
    assert_eq!(BTreeSet::from_iter(found), expected);
    let none = Reading {
        context: 2,
        ..short
    };
    let set = none.opened(&[file]).unwrap();
    let refused = set.held_out_batches(1, 2, None).map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("held-out part of"),
        "{refused}"
    );
    let draw = Draw {
        seed: 0,
        step: 0,
        batch: 1,
        tokens: None,
    };
    assert!(matches!(
        set.training_batch(draw, 0..1, 2),
        Err(DataError::NoTexts {
            part: "training",
            ..
        })
    ));
}

const PAIRS: usize = 700;
const BATCH: u64 = 8;

fn large() -> (Place, Box<dyn Dataset>) {
    let place = Place::new();
    let file = place.write("a.jsonl", json(PAIRS));
    let reading = Reading {
        held_out_percent: 10,
        ..Reading::default()
    };
    let set = reading.opened(&[file]).unwrap();
    (place, set)
}

fn drawn(set: &dyn Dataset, seed: u64, step: u64) -> Batch {
    let draw = Draw {
        seed,
        step,
        batch: BATCH,
        tokens: None,
    };
    set.training_batch(draw, 0..BATCH, CONTEXT).unwrap()
}

#[test]
fn every_pair_comes_once_before_any_comes_again() {
    let (_place, set) = large();
    // 630 pairs are 78.75 steps of 8, of which 64 are sorted together.
    let mut times: BTreeMap<[String; 2], usize> = BTreeMap::new();
    for step in 0..64 {
        for pair in rows(&drawn(&*set, 3, step)) {
            *times.entry(pair).or_default() += 1;
        }
    }
    assert_eq!(times.len(), 512, "64 steps of the first epoch");
    for step in 64..315 {
        for pair in rows(&drawn(&*set, 3, step)) {
            *times.entry(pair).or_default() += 1;
        }
    }
    // 2520 draws are four epochs; the pool that begins behind step 256 ends behind step 319.
    assert_eq!(times.len(), 630);
    assert!(times.values().all(|n| (3..=5).contains(n)));
    let held_out = set.held_out_batches(16, CONTEXT, None).unwrap();
    let held_out: Vec<_> = held_out.flat_map(|b| rows(&b.unwrap())).collect();
    assert_eq!((held_out.len(), set.held_out_rows(CONTEXT)), (70, 70));
    assert!(held_out.iter().all(|pair| !times.contains_key(pair)));
}

#[test]
fn a_step_can_be_drawn_again_in_parts_and_in_any_order() {
    let (_place, set) = large();
    let forth: Vec<Batch> = (0..130).map(|step| drawn(&*set, 3, step)).collect();
    let back: Vec<Batch> = (0..130).rev().map(|step| drawn(&*set, 3, step)).collect();
    assert!(forth.iter().eq(back.iter().rev()));
    assert_ne!(forth[5], drawn(&*set, 4, 5));
    let draw = Draw {
        seed: 3,
        step: 70,
        batch: BATCH,
        tokens: None,
    };
    let parts = [0..3, 3..8].map(|part| set.training_batch(draw, part, CONTEXT).unwrap());
    let parts: Vec<_> = parts.iter().flat_map(rows).collect();
    assert_eq!(parts, rows(&forth[70]));
    let keys: BTreeSet<i32> = forth.iter().map(|b| b.key).collect();
    assert!(
        keys.len() > 125,
        "what dropout draws by differs from step to step"
    );
}

#[test]
fn pairs_of_similar_length_stand_together() {
    let (_place, set) = large();
    let batches: Vec<Batch> = (0..64).map(|step| drawn(&*set, 3, step)).collect();
    let padding: u64 = batches.iter().map(|b| b.padding.unwrap()).sum();
    let places: u64 = batches.iter().map(Batch::places).sum();
    // In rows of one length, the shorter text of each pair would lack more.
    assert!(padding < places / 6, "{padding} of {places}");
    // Shorter batches do not come first.
    let columns: Vec<u64> = batches.iter().map(|b| b.columns).collect();
    assert!(!columns.is_sorted());
    assert!(columns[..32].iter().max() == columns[32..].iter().max());
    // What is shown of the speed.
    let draw = Draw {
        seed: 3,
        step: 0,
        batch: BATCH,
        tokens: None,
    };
    let mean = batches.iter().map(|b| b.count(Unit::Tokens)).sum::<u64>() as f64 / 64.0;
    assert!((set.expected(draw, CONTEXT) / mean - 1.0).abs() < 0.05);
}

#[test]
fn held_out_pairs_come_by_length_and_some_are_spread_over_all() {
    let (place, set) = large();
    let batches = set.held_out_batches(16, CONTEXT, None).unwrap();
    let batches: Vec<Batch> = batches.map(Result::unwrap).collect();
    let rows_of: Vec<u64> = batches.iter().map(|b| b.rows).collect();
    assert_eq!(rows_of, [16, 16, 16, 16, 6]);
    let longer = |b: &Batch| b.columns.max(b.source);
    assert!(batches.iter().map(longer).is_sorted());
    let all: BTreeSet<_> = batches.iter().flat_map(rows).collect();
    assert_eq!(all.len(), 70);
    let some = set.held_out_batches(16, CONTEXT, Some(20)).unwrap();
    let some: BTreeSet<_> = some.flat_map(|b| rows(&b.unwrap())).collect();
    assert_eq!(some.len(), 20);
    assert!(some.is_subset(&all));
    // Their texts are read again in the order of the file.
    let reading = Reading {
        held_out_percent: 10,
        ..Reading::default()
    };
    let file = [place.0.path().join("a.jsonl")];
    let bytes = (&Tokenizer::bytes(), VOCAB);
    let texts = |whole| reading.with(&file, bytes, |s| sources::held_out_pairs(s, whole));
    let texts = |whole| texts(whole).unwrap().unwrap();
    assert!(texts(false).is_sorted());
    let held_out = texts(false).into_iter();
    let held_out = held_out.map(|both| <[String; 2]>::try_from(both).unwrap());
    assert_eq!(BTreeSet::from_iter(held_out), all);
    let both = (0..PAIRS).map(|n| self::texts(n).to_vec());
    assert_eq!(texts(true), both.collect::<Vec<_>>());
}

/// Micro-batch `number` of a run that takes two of at most `most` tokens in a step.
fn of_tokens(set: &dyn Dataset, seed: u64, most: u64, number: u64) -> Batch {
    let draw = Draw {
        seed,
        step: number / 2,
        batch: most,
        tokens: Some(InTokens { most, parts: 2 }),
    };
    let rows = most / 2;
    let first = number % 2 * rows;
    set.training_batch(draw, first..first + rows, CONTEXT)
        .unwrap()
}

#[test]
fn batches_of_tokens_have_each_pair_once_in_an_epoch() {
    let (_place, set) = large();
    for most in [CONTEXT, 64, 1000, 1 << 40] {
        let mut number = 0;
        let mut epochs = [0, 1].map(|_| {
            let mut epoch: Vec<Batch> = Vec::new();
            let mut pairs = BTreeSet::new();
            while pairs.len() < 630 {
                let batch = of_tokens(&*set, 3, most, number);
                let longer = batch.columns.max(batch.source);
                assert!(batch.rows * longer <= most, "{most}");
                for pair in rows(&batch) {
                    assert!(pairs.insert(pair), "{most}: a pair comes again");
                }
                epoch.push(batch);
                number += 1;
            }
            epoch
        });
        let order = |epoch: &[Batch]| {
            epoch
                .iter()
                .map(|b| (b.rows, b.columns.max(b.source)))
                .collect::<Vec<_>>()
        };
        let orders = epochs.each_ref().map(|e| order(e));
        let all = epochs[0].len();
        if all > 10 {
            assert_ne!(
                orders[0], orders[1],
                "{most}: batches come in another order"
            );
        }
        // Batches stay what they are but for pairs of one length, and no two could be one.
        epochs
            .iter_mut()
            .for_each(|e| e.sort_by_key(|b| (b.columns.max(b.source), b.rows)));
        let [first, second] = epochs.each_ref().map(|e| order(e));
        assert_eq!(first, second, "{most}");
        let padding: u64 = epochs[0].iter().map(|b| b.padding.unwrap()).sum();
        let places: u64 = epochs[0].iter().map(Batch::places).sum();
        if most <= 64 {
            assert!(padding < places / 6, "{most}: {padding} of {places}");
        }
        if most == 64 {
            let longer = |b: &Batch| b.rows * b.columns.max(b.source);
            let filled: u64 = epochs[0].iter().map(longer).sum();
            assert!(
                5 * all as u64 * most < 7 * filled,
                "{most}: {filled} in {all}"
            );
        }
        let draw = Draw {
            seed: 3,
            step: 0,
            batch: most,
            tokens: Some(InTokens { most, parts: 2 }),
        };
        let read: u64 = epochs[0].iter().map(|b| b.count(Unit::Tokens)).sum();
        let (mean, said) = (2.0 * read as f64 / all as f64, set.expected(draw, CONTEXT));
        assert!((said / mean - 1.0).abs() < 1e-9, "{most}: {said}, {mean}");
    }
    let together = |seed, numbers: std::ops::Range<u64>| -> Vec<Batch> {
        numbers.map(|n| of_tokens(&*set, seed, 64, n)).collect()
    };
    let (forth, other) = (together(3, 0..300), together(4, 0..300));
    assert_ne!(forth, other);
    let mut back: Vec<Batch> = (0..300).rev().map(|n| of_tokens(&*set, 3, 64, n)).collect();
    back.reverse();
    assert!(forth == back, "any batch can be drawn again");
    // A pair has other neighbours in the second epoch.
    let batches = |of: &[Batch]| -> BTreeSet<BTreeSet<[String; 2]>> {
        of.iter().map(|b| rows(b).into_iter().collect()).collect()
    };
    let all = (0..).take_while(|n| {
        let pairs = forth[..*n].iter().flat_map(rows).collect::<BTreeSet<_>>();
        pairs.len() < 630
    });
    let all = all.count();
    let (first, second) = (batches(&forth[..all]), batches(&forth[all..2 * all]));
    assert!(first.intersection(&second).count() < all / 4);
}

/// Rows of all sources are as long as the longest of them; a file has all texts, or there is one for each.
#[test]
fn several_sources_are_read() {
    let place = Place::new();
    let read = |input: &str, key: &str| Read {
        input: input.into(),
        key: key.into(),
    };
    let opened = |files: &[PathBuf]| {
        let mut data = Reading::default().data(files, VOCAB);
        let Form::Pairs(form) = &mut data.form else {
            panic!("no pairs");
        };
        form.sources = vec![read("notes", "notes"), read(SOURCE, "en")];
        let source = Source {
            data: &data,
            tokenizer: &Tokenizer::bytes(),
            cache: Path::new("/nowhere"),
            context: CONTEXT,
            source_context: BESIDE,
            show: Show::Nothing,
        };
        sources::open(source, VOCAB)
    };
    let json = "{\"en\": \"e\", \"de\": \"d\", \"notes\": \"now\"}\n{\"en\": \"two\", \"de\": \"zwei\", \"notes\": \"n\"}\n";
    let files = [
        vec![place.write("a.jsonl", json)],
        vec![place.write("a.tsv", "notes\ten\tde\nnow\te\td\nn\ttwo\tzwei\n")],
        ["a.notes", "a.en", "a.de"]
            .into_iter()
            .zip(["now\nn\n", "e\ntwo\n", "d\nzwei\n"])
            .map(|(name, text)| place.write(name, text))
            .collect(),
    ];
    for files in &files {
        let set = opened(files).unwrap().all_held_out();
        let batch = set.held_out_batches(2, CONTEXT, None).unwrap().next();
        let batch = batch.unwrap().unwrap();
        assert_eq!((batch.rows, batch.columns, batch.source), (2, 5, 4));
        let [n, o, w, e, t] = b"nowet".map(i32::from);
        assert_eq!(
            batch.whole("notes"),
            [n, o, w, END, n, END, PADDING, PADDING]
        );
        assert_eq!(
            batch.whole(SOURCE),
            [e, END, PADDING, PADDING, t, w, o, END]
        );
        // 26 places, of which 4 + 2 + 2 + 4 + 2 + 5 are filled.
        assert_eq!((batch.places(), batch.padding), (26, Some(7)));
        assert_eq!(batch.count(Unit::Tokens), 19);
    }
    let said = opened(&files[2][..2]).err().unwrap().to_string();
    assert!(
        said.ends_with(
            "no file of targets is named behind it; files named ….jsonl or ….tsv have all texts"
        ),
        "{said}"
    );
    let short = [&files[2][..2], &[place.write("b.de", "d\n")]].concat();
    let said = opened(&short).err().unwrap().to_string();
    assert!(
        said.contains("a.notes: it has 2 lines and") && said.contains("b.de has 1"),
        "{said}"
    );
    let lacks = place.write("b.jsonl", "{\"en\": \"e\", \"de\": \"d\"}");
    let said = opened(&[lacks]).err().unwrap().to_string();
    assert!(
        said.ends_with("b.jsonl, line 1: there is no text under `notes`"),
        "{said}"
    );
}
