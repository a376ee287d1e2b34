//! Texts through a real tokenizer: byte-level BPE of 320 tokens, in the format of Hugging Face.

use odec_program::manifest::{self, Data, Form};
use odec_runtime::data::tokenise::{self, Reading};
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::{Show, Tokenizer};
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tokenizer.json");
const READING: Reading = Reading {
    key: "text",
    separator: "<|endoftext|>",
};

fn tokenizer() -> Tokenizer {
    Tokenizer::open(Path::new(FILE)).unwrap()
}

fn tokens_of(file: &Path) -> Vec<u32> {
    let bytes = fs::read(file).unwrap();
    let pairs = bytes.as_chunks().0.iter();
    pairs.map(|b| u32::from(u16::from_le_bytes(*b))).collect()
}

/// The tokens of a file of the cache.
fn kept(file: &Path) -> Vec<u32> {
    tokens_of(file).split_off(odec_runtime::data::token_cache::HEADER as usize / 2)
}

fn decoded(t: &Tokenizer, tokens: &[u32]) -> String {
    let mut decoder = t.decoder();
    let mut text = String::new();
    for token in tokens {
        text.extend(decoder.push(*token).unwrap());
    }
    text.extend(decoder.finish());
    text
}

#[test]
fn text_survives_the_way_there_and_back() {
    let t = tokenizer();
    assert_eq!(t.vocabulary(), 320);
    for text in [
        "the scheme and the field",
        "  two\n\n lines\t",
        "h·F(x) + √2 ≤ π — 😀",
        "",
    ] {
        let tokens = t.encode(text).unwrap();
        assert_eq!(decoded(&t, &tokens), text);
    }
    // The known tokens of a known text, merges and all.
    let tokens = t.encode("the<|endoftext|>").unwrap();
    assert_eq!(tokens.last(), Some(&0), "{tokens:?}");
    assert!(tokens.len() < 5, "{tokens:?}");
    let there = Tokenizer::bytes().encode("h≤").unwrap();
    assert_eq!(there, [104, 226, 137, 164]);
    assert_eq!(decoded(&Tokenizer::bytes(), &there), "h≤");
}

#[test]
fn a_long_text_is_tokenised_in_pieces_like_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text: String = (0..40_000)
        .map(|n| {
            format!(
                "line {n} of the text{}",
                ["\n", "  \n", "\n\n", " \n\t"][n % 4]
            )
        })
        .collect();
    assert!(text.len() > 3 << 18, "several pieces");
    fs::write(at("long.txt"), &text).unwrap();
    let t = tokenizer();
    let write = |out: &Path| tokenise::write(&[at("long.txt")], READING, &t, out, Show::Nothing);
    let count = write(&at("long.bin")).unwrap();
    let whole = t.encode(&text).unwrap();
    assert_eq!(count as usize, whole.len());
    assert!(tokens_of(&at("long.bin")) == whole);
    write(&at("long.u32.bin")).unwrap();
    let wide = fs::read(at("long.u32.bin")).unwrap();
    let wide: Vec<u32> = wide
        .as_chunks()
        .0
        .iter()
        .map(|b| u32::from_le_bytes(*b))
        .collect();
    assert!(wide == whole);
}

#[test]
fn texts_and_lines_become_one_corpus_and_are_tokenised_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("a.txt"), "the first text\n").unwrap();
    let lines = "{\"text\": \"one\\nline\"}\n\n{\"more\": [1], \"text\": \"another\"}\n";
    fs::write(at("b.jsonl"), lines).unwrap();
    let t = tokenizer();
    let cache = at("cache");
    let open = |files: &[&str]| {
        let data = Data {
            files: files.iter().map(|f| at(f).display().to_string()).collect(),
            form: Form::Text {
                tokenizer: manifest::Tokenizer::File(FILE.into()),
                key: "text".into(),
                separator: READING.separator.into(),
            },
            held_out_percent: 10,
        };
        let source = Source {
            data: &data,
            tokenizer: &t,
            cache: &cache,
            context: 16,
            source_context: 0,
            show: Show::Nothing,
        };
        sources::open(source, 320)
    };
    let list = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&cache).unwrap();
        entries.map(|e| e.unwrap().path()).collect()
    };
    let corpus = open(&["a.txt", "b.jsonl"]).unwrap();
    let made = list();
    assert_eq!(made.len(), 1, "{made:?}");
    let text = "the first text\none\nline<|endoftext|>another<|endoftext|>";
    let tokens = kept(&made[0]);
    assert_eq!(decoded(&t, &tokens), text);
    assert_eq!(corpus.len(), tokens.len() as u64);
    assert_eq!(tokens.iter().filter(|t| **t == 0).count(), 2);
    // The same again is only read; anything else is another file.
    let when = |f: &Path| fs::metadata(f).unwrap().modified().unwrap();
    let before = when(&made[0]);
    drop(open(&["a.txt", "b.jsonl"]).unwrap());
    assert_eq!((list().len(), when(&made[0])), (1, before));
    drop(open(&["b.jsonl", "a.txt"]).unwrap());
    fs::write(at("a.txt"), "another first text\n").unwrap();
    drop(open(&["a.txt", "b.jsonl"]).unwrap());
    assert_eq!(list().len(), 3);

    let mut errors = vec![];
    let mut refuse = |files: &[&str]| {
        let e = open(files).map(drop).unwrap_err().to_string();
        errors.push(e.replace(&dir.path().display().to_string(), "DIR"));
    };
    refuse(&["a.txt", "none.txt"]);
    fs::write(
        at("bad.jsonl"),
        "{\"text\": \"good\"}\n{\"body\": \"bad\"}\n",
    )
    .unwrap();
    refuse(&["bad.jsonl"]);
    fs::write(at("bad.jsonl"), "{\"text\": \"good\"}\nnot json\n").unwrap();
    refuse(&["bad.jsonl"]);
    fs::write(at("bad.txt"), [b'a', 0xff]).unwrap();
    refuse(&["bad.txt"]);
    fs::write(at("bad.txt"), "").unwrap();
    refuse(&["bad.txt"]);
    insta::assert_snapshot!(errors.join("\n"));
    assert_eq!(list().len(), 3, "nothing half made is left");
}

/// A cut or changed file of the cache is made anew; nothing is trained on it.
#[test]
fn a_damaged_cache_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let text = "the first text and more of it\n".repeat(9);
    fs::write(dir.path().join("a.txt"), &text).unwrap();
    let t = tokenizer();
    let expected = t.encode(&text).unwrap();
    let cache = dir.path().join("cache");
    let open = || {
        let data = Data {
            files: vec![dir.path().join("a.txt").display().to_string()],
            form: Form::Text {
                tokenizer: manifest::Tokenizer::File(FILE.into()),
                key: "text".into(),
                separator: String::new(),
            },
            held_out_percent: 10,
        };
        let source = Source {
            data: &data,
            tokenizer: &t,
            cache: &cache,
            context: 16,
            source_context: 0,
            show: Show::Nothing,
        };
        let corpus = sources::open(source, 320).unwrap();
        let files: Vec<_> = fs::read_dir(&cache)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(corpus.len() as usize, expected.len());
        assert!(kept(&files[0]) == expected);
        files[0].clone()
    };
    let file = open();
    let whole = fs::read(&file).unwrap();
    let mut damaged = vec![
        vec![],
        vec![0; whole.len()],
        whole[..whole.len() - 2].to_vec(),
    ];
    damaged.push(whole[..100].to_vec());
    damaged.push([&whole[..], &[0; 2]].concat());
    // A hole where nothing was written yet, and each part of the header.
    damaged.push([&whole[..160], &vec![0; whole.len() - 160]].concat());
    for at in [0, 15, 16, 24, 32, 64, 100, 128, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&file, &bytes).unwrap();
        assert_eq!(open(), file);
        assert!(fs::read(&file).unwrap() == whole);
    }
    // Makers at the same time: each is right, whoever is last.
    fs::remove_file(&file).unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let file = odec_runtime::data::identity::DataFile::open(&dir.path().join("a.txt"));
                let files = [file.unwrap()];
                let known = [files[0].identity().unwrap()];
                let texts = tokenise::Texts {
                    files: &files,
                    reading: READING,
                    tokenizer: &t,
                    show: Show::Nothing,
                };
                let all = odec_runtime::data::token_cache::tokens(&texts, &known, &cache).unwrap();
                assert_eq!(all.file.bytes() as usize, whole.len());
            });
        }
    });
    let left: Vec<_> = fs::read_dir(&cache).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_is_no_tokenizer_or_too_large_a_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("tokenizer.json"), "{\"version\": \"1.0\"}").unwrap();
    let refused = Tokenizer::open(&at("tokenizer.json"))
        .map(drop)
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("is not a Hugging Face tokenizer.json"),
        "{refused}"
    );
    let missing = Tokenizer::open(&at("none.json")).map(drop).unwrap_err();
    assert!(
        missing.to_string().contains("cannot read the tokenizer"),
        "{missing}"
    );
    let t = tokenizer();
    assert!(Tokenizer::open_same(Path::new(FILE), t.identity().unwrap()).is_ok());
    let other = Tokenizer::open_same(Path::new(FILE), "00")
        .map(drop)
        .unwrap_err();
    assert!(
        other
            .to_string()
            .contains("not the tokenizer that the run began with"),
        "{other}"
    );
    let data = Data {
        files: vec!["none".into()],
        form: Form::Text {
            tokenizer: manifest::Tokenizer::File(FILE.into()),
            key: "text".into(),
            separator: String::new(),
        },
        held_out_percent: 10,
    };
    let source = Source {
        data: &data,
        tokenizer: &t,
        cache: dir.path(),
        context: 16,
        source_context: 0,
        show: Show::Nothing,
    };
    let small = sources::open(source, 319).map(drop);
    assert!(matches!(
        small,
        Err(DataError::Vocabulary {
            needs: 320,
            vocab: 319
        })
    ));
}
