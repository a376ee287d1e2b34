//! Windows much shorter than the context: while text is generated, keys and values of recent tokens alone are kept, and nothing changes in any bit.

use crate::card::late;
use crate::numbers::{executor, tokens};
use crate::source::built;
use crate::systems::options;
use odec_compiler::cost::cost;
use odec_compiler::passes::{Options, build_manifest};
use odec_program::manifest::Manifest;
use odec_program::{Bindings, DType, EntryId, Kept, Maxima, Program, Recent, Target, names};
use odec_runtime::{Artifact, Executor, Reader, RunError, Texts, Value};

const CONTEXT: u64 = 300;
const VOCAB: usize = 256;

/// Two fields, the first of them with a window.
fn source([near, far]: [&str; 2], context: u64, train: &str) -> String {
    format!(
        "field near = rmsnorm |> {near}\nfield far = rmsnorm |> {far}\n\
         model m {{\n  input tokens(vocab: {VOCAB}, context: {context})\n  embed learned(width: 8)\n  \
         evolve lie(near, far) for 2 steps\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.5)\n}}\n\
         train {{\n  data text(\"x\", tokenizer: bytes)\n  batch 2\n  steps 1\n  optimizer adamw(lr: 1e-3)\n  {train}\n}}\n"
    )
}

fn manifest(fields: [&str; 2], context: u64, train: &str) -> Manifest {
    let text = source(fields, context, train);
    let assembled = build_manifest(&built(&text), &text, options());
    assembled.unwrap().manifest
}

/// What an entry keeps of recent tokens and of all: rows of each value.
fn rows(p: &Program, entry: EntryId) -> [Vec<u64>; 2] {
    [true, false].map(|recent| {
        let kept = p.entries[&entry].kept.iter();
        let of = kept.filter(|k| k.grows && k.recent == recent);
        of.map(|k| k.rows).collect()
    })
}

fn bits(x: impl Iterator<Item = f64>) -> Vec<u64> {
    x.map(f64::to_bits).collect()
}

/// Logits of each token of a text that is read in such pieces.
fn read(e: &mut Executor, text: &[i32], pieces: &[usize]) -> Vec<u64> {
    let mut reader = Reader::new(e).unwrap();
    let (mut all, mut past) = (vec![], 0);
    for n in pieces {
        let new = &text[past..past + n];
        let last = reader.read_each(new, &mut |some| all.extend(bits(some.iter())));
        let last = bits(last.unwrap().iter());
        all.extend(last);
        past += n;
    }
    assert_eq!(past, text.len());
    all
}

/// Texts that begin at other lengths and grow across the end of the context have the logits that each has alone.
fn read_together(e: &mut Executor, what: &str) {
    let texts: Vec<Vec<i32>> = (0..3)
        .map(|seed| tokens(Bindings::new(1, CONTEXT + 10), VOCAB as u64, seed))
        .collect();
    let (begins, steps) = ([1, 120, 230], 75);
    let mut together: Vec<Vec<u64>> = vec![vec![]; 3];
    let mut reader = Texts::new(e, 3).unwrap();
    for step in 0..=steps {
        let new = texts.iter().zip(begins).map(|(text, begin)| match step {
            0 => &text[..begin],
            _ => &text[begin + step - 1..begin + step],
        });
        let read = reader.read(&new.collect::<Vec<_>>()).unwrap();
        for (n, all) in together.iter_mut().enumerate() {
            all.extend(bits(read.of(n).iter()));
        }
    }
    for ((text, begin), together) in texts.iter().zip(begins).zip(together) {
        let pieces: Vec<usize> = [begin].into_iter().chain([1].repeat(steps)).collect();
        let alone = match begin + steps <= CONTEXT as usize {
            true => read(e, &text[..begin + steps], &pieces),
            false => {
                let mut reader = Reader::new(e).unwrap();
                let mut all = bits(reader.read(&text[..begin]).unwrap().iter());
                for n in begin..begin + steps {
                    let logits = reader.read(&text[n..n + 1]).unwrap();
                    all.extend(bits(logits.part(logits.len() - VOCAB..logits.len()).iter()));
                }
                all
            }
        };
        let last = alone.len() - (steps + 1) * VOCAB;
        assert!(alone[last..] == together, "{what}, after {begin}");
    }
}

#[test]
fn recent_tokens_are_enough() {
    let far = "attention(heads: 2, causal, rope)";
    let near = "attention(heads: 2, kv_heads: 1, causal, rope, window: 5)";
    let distant = "attend(linear, linear, linear, heads: 2, causal, window: 7, bias: alibi, distances: 9, sinks)";
    for (near, far, train) in [
        (near, far, ""),
        (near, far, "precision f64"),
        (near, far, "precision bf16"),
        (near, "conv(kernel: 3, causal)", ""),
        (distant, "swiglu(hidden: 12)", ""),
        // The longest of three windows, one of which is a token.
        (
            "softcapped_attention(heads: 2, window: 66)",
            "attention(heads: 2, causal, window: 1) |> sink_attention(heads: 2, kv_heads: 2, window: 64)",
            "",
        ),
    ] {
        let what = format!("{near}, {far}, {train}");
        let m = manifest([near, far], CONTEXT, train);
        for entry in [EntryId::Decode, EntryId::Extend] {
            let [recent, all] = rows(&m.program, entry);
            let of_far = if far.starts_with("attention(heads: 2, causal, rope") {
                4
            } else {
                0
            };
            assert_eq!(all, vec![CONTEXT; of_far], "{what}");
            assert!(
                !recent.is_empty() && recent.iter().all(|n| *n == 192),
                "{what}"
            );
        }
        let mut e = executor(&m);
        let x = tokens(Bindings::new(1, CONTEXT), VOCAB as u64, 3);
        let at = Bindings::new(1, CONTEXT);
        let whole = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
        let whole = bits(whole.unwrap().reals("logits").unwrap().iter());
        // A prompt that is longer than all that is kept; pieces across its end and behind it, and single tokens.
        for pieces in [
            &[CONTEXT as usize][..],
            &[7, 1, 1, 121, 1, 1, 60, 1, 1, 55, 1, 50],
        ] {
            assert!(read(&mut e, &x, pieces) == whole, "{what}, {pieces:?}");
        }
        let single = [&[170][..], &[1; 130]].concat();
        assert!(read(&mut e, &x, &single) == whole, "{what}, token by token");
        read_together(&mut e, &what);
    }
}

/// Rows move behind all runs so far, and before the next, on a card that works by itself.
#[test]
fn rows_move_on_a_card() {
    let near = "attention(heads: 2, kv_heads: 1, causal, rope, window: 5)";
    let text = source([near, "attention(heads: 2, causal, rope)"], CONTEXT, "");
    let options = Options::of(Target::Sm80, DType::F32);
    let m = build_manifest(&built(&text), &text, options)
        .unwrap()
        .manifest;
    let x = tokens(Bindings::new(1, CONTEXT), VOCAB as u64, 3);
    let pieces = [&[170][..], &[1; 40], &[90]].concat();
    let here = read(&mut executor(&m), &x, &pieces);
    let artifact = Artifact::in_memory(m.clone()).unwrap();
    let mut card = Executor::new(&artifact, late(&m.program.kernels)).unwrap();
    card.initialise(7);
    assert!(read(&mut card, &x, &pieces) == here);
    read_together(&mut card, "on a card");
}

/// A value that is also read without a window is kept whole, once.
#[test]
fn what_is_read_without_a_window_as_well_is_kept_once() {
    let both = "near_and_far";
    let text = source([both, "swiglu(hidden: 12)"], CONTEXT, "");
    let layer = "layer near_and_far(x: value) {\n  k = x |> linear |> rotary(heads: 2)\n  q = x |> linear |> rotary(heads: 2)\n  \
                 near = attend(q, k, k, heads: 2, causal, window: 5)\n  far = attend(q, k, k, heads: 2, causal)\n  return near + far\n}\n";
    let text = format!("{layer}{text}");
    let m = build_manifest(&built(&text), &text, options())
        .unwrap()
        .manifest;
    // One value of each step.
    assert_eq!(
        rows(&m.program, EntryId::Decode),
        [vec![], vec![CONTEXT; 2]]
    );
    let text = text.replace("heads: 2, causal)\n", "heads: 2, causal, window: 3)\n");
    let m = build_manifest(&built(&text), &text, options())
        .unwrap()
        .manifest;
    assert_eq!(rows(&m.program, EntryId::Decode), [vec![192; 2], vec![]]);
}

/// Memory does not grow with the context, and what is said of it is what is planned.
#[test]
fn memory_is_that_of_the_window() {
    let fields =
        |window: u64| format!("attention(heads: 2, kv_heads: 1, causal, rope, window: {window})");
    let of = |window: u64, context: u64| {
        let text = source([&fields(window), "swiglu(hidden: 12)"], context, "");
        let built = built(&text);
        let assembled = build_manifest(&built, &text, options()).unwrap();
        let c = cost(&built, &assembled.manifest.program, options()).unwrap();
        (assembled.manifest, c)
    };
    // Of each of two steps, keys and values of four columns and four bytes.
    let row = 2 * 2 * 4 * 4;
    for (window, rows) in [(1, 128), (5, 192), (66, 192), (67, 256), (1000, 1344)] {
        for context in [2000, 4000] {
            let (m, c) = of(window, context);
            let decode = c.decode.unwrap();
            assert_eq!(decode.window_bytes, rows * row, "{window}");
            assert_eq!((decode.bytes_per_token, c.cache_bytes), (0, rows * row));
            assert_eq!(m.program.cache(EntryId::Decode), 0..rows * row);
            let many = m.program.entries[&EntryId::Extend].maxima.batch;
            assert_eq!(m.program.cache_bytes, (1 + many) * rows * row);
        }
    }
    // No less than the context: all as it is without.
    for (window, context) in [(5, 192), (300, 400), (500, 300)] {
        let (m, c) = of(window, context);
        let decode = c.decode.unwrap();
        assert_eq!((decode.window_bytes, decode.bytes_per_token), (0, row));
        assert_eq!(c.cache_bytes, context * row);
        assert!(m.program.entries.values().all(|e| e.maxima.kept.is_none()));
        let said = serde_json::to_string(&m.program).unwrap();
        assert!(!said.contains("recent"), "{said}");
    }
}

/// A text goes on, or begins anew; it does not go back to what is dropped.
#[test]
fn a_text_does_not_go_back() {
    let m = manifest(
        [
            "attention(heads: 2, causal, rope, window: 5)",
            "swiglu(hidden: 12)",
        ],
        CONTEXT,
        "",
    );
    let mut e = executor(&m);
    let x = tokens(Bindings::new(1, CONTEXT), VOCAB as u64, 3);
    let piece = e.piece(EntryId::Decode);
    assert_eq!(piece, 125);
    let mut run = |past: usize, n: usize| -> Result<Vec<u64>, RunError> {
        let at = Bindings::new(1, n as u64).after(past as u64);
        let given = [(names::TOKENS, Value::I32(&x[past..past + n]))];
        let out = e.run(EntryId::Decode, at, &given, &[])?;
        Ok(bits(out.reals(names::LOGITS)?.iter()))
    };
    let said = run(0, piece + 1).unwrap_err().to_string();
    assert!(said.ends_with("in pieces of at most 125"), "{said}");
    run(0, 100).unwrap();
    run(100, 90).unwrap();
    let next = run(190, 10).unwrap();
    // The same again, and again from where nothing is missing that it sees.
    assert!(run(190, 10).unwrap() == next);
    assert!(run(195, 5).unwrap() == next[5 * VOCAB..]);
    let said = run(100, 1).unwrap_err().to_string();
    assert!(
        said.contains("cannot go back to its first 100 tokens: of 128"),
        "{said}"
    );
    assert!(run(190, 10).unwrap() == next);
    run(0, 100).unwrap();
    run(100, 90).unwrap();
    assert!(run(190, 10).unwrap() == next);
}

/// What a file says of recent tokens is checked before anything is moved.
#[test]
fn recent_rows_lie_in_the_cache() {
    let near = "attention(heads: 2, causal, rope, window: 5)";
    let good = manifest([near, "attention(heads: 2, causal, rope)"], CONTEXT, "");
    assert!(Artifact::in_memory(good.clone()).is_ok());
    let recent = |rows: u64, window: u64| Some(Recent { window, rows });
    let broken = |break_it: &dyn Fn(&mut Maxima, &mut [Kept])| {
        for entry in [EntryId::Decode, EntryId::Extend] {
            let mut bad = good.clone();
            let e = bad.program.entries.get_mut(&entry).unwrap();
            break_it(&mut e.maxima, &mut e.kept);
            assert!(Artifact::in_memory(bad).is_err());
        }
    };
    broken(&|maxima, _| maxima.kept = None);
    broken(&|maxima, _| maxima.kept = recent(256, 5));
    broken(&|maxima, _| maxima.kept = recent(128, 5));
    broken(&|maxima, _| maxima.kept = recent(192, 1 << 60));
    broken(&|maxima, _| maxima.kept = recent(192, 131));
    broken(&|_, kept| kept.iter_mut().for_each(|k| k.recent = true));
    broken(&|_, kept| {
        kept.iter_mut()
            .filter(|k| k.recent)
            .for_each(|k| k.rows += 1)
    });
    broken(&|_, kept| {
        kept.iter_mut()
            .filter(|k| k.recent)
            .for_each(|k| k.grows = false)
    });
    broken(&|_, kept| kept.iter_mut().for_each(|k| k.recent = false));
}
