//! Models of two sequences: what fills up rows changes nothing, gradients are differences and reach the encoder, programs compute what their graphs
//! mean, however states are kept.

use crate::numbers::{close, differences, executor};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{Options, build_manifest};
use odec_graph::interp::{self, Tensor};
use odec_program::manifest::{Form, Manifest, Read};
use odec_program::{Bindings, DType, EntryId, Kept, Maxima, Target, names, noise};
use odec_runtime::infer::translate::Translation;
use odec_runtime::{Artifact, Executor, Search, State, Tokenizer, Value, translate};
use std::collections::BTreeMap;

/// The last three kinds of tokens.
const BEGIN: i32 = 256;
const END: i32 = 257;
const PADDING: i32 = 258;
const KEY: i32 = 77;

/// How the decoder reads the encoder.
const CROSS: &str = "rmsnorm |> attention(heads: 2, from: encoder |> rmsnorm)";
const ATTEND: &str =
    "rmsnorm |> attend(linear, encoder |> linear(width/2), encoder |> linear(width/2), heads: 2)";

fn model([encoder, decoder]: [&str; 2], cross: &str, train: &str) -> (Built, String) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2)\n\
         field self = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field cross = {cross}\n\
         field ffn = layernorm |> gelu(hidden: 12, bias)\n\
         field halt = linear(1, bias) |> sigmoid\n\
         field dropped = rmsnorm |> swiglu(hidden: 10) |> dropout(25%)\n\
         field layer = increment(lie(att, ffn))\n\
         model small {{\n  input source: tokens(vocab: 259, context: 15)\n  input tokens(vocab: 259, context: 12)\n  \
         embed source: learned(width: 8), positions(sinusoidal)\n  evolve encoder: {encoder}\n  \
         embed tied(source), positions(learned)\n  evolve decoder: {decoder}\n  \
         output rmsnorm |> logits(tied)\n  init normal(std: 0.4) }}\n\
         train {{ data pairs(\"none.tsv\", tokenizer: bytes);  optimizer adamw(lr: 1e-2)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    (source::built(&text), text)
}

/// A decoder that reads two encoders, one of which reads the other.
fn several(train: &str) -> (Built, String) {
    let (_, text) = model(PLAIN, CROSS, train);
    let both = format!("{CROSS} + 1/2*(rmsnorm |> attention(heads: 2, from: reader |> rmsnorm))");
    let text = text
        .replace(CROSS, &both)
        .replace("  input source", "  input notes: tokens(vocab: 259, context: 15)\n  input source")
        .replace(
            "  embed source",
            "  embed notes: learned(width: 8), positions(learned)\n  evolve reader: lie(att, ffn) for 1 step\n  embed source",
        )
        .replace(
            "evolve encoder: lie(att, ffn)",
            "evolve encoder: lie(att, lie(rmsnorm |> attention(heads: 2, from: reader), ffn))",
        );
    assert_eq!(text.matches("from: reader").count(), 2, "{text}");
    (source::built(&text), text)
}

const CAPPED: &str =
    "rmsnorm |> attend(linear, encoder |> linear, encoder |> linear, heads: 2, softcap: 5, sinks)";

const PLAIN: [&str; 2] = [
    "lie(att, ffn) for 2 steps",
    "lie(self, lie(cross, ffn)) for 2 steps",
];

fn manifest((built, text): &(Built, String), options: Options) -> Manifest {
    build_manifest(built, text, options).unwrap().manifest
}

/// Sources, what stands before each target, and targets.
type Rows = [Vec<i32>; 3];

/// Columns of sources and of targets.
type Widths = [usize; 2];

/// So many rows of these widths.
fn at(batch: usize, [beside, width]: Widths) -> Bindings {
    Bindings::new(batch as u64, width as u64).beside(beside as u64)
}

/// One pair, its rows filled up to these widths.
fn pair(lengths: [usize; 2], seed: i32, [beside, width]: Widths) -> Rows {
    let text = |n: usize, seed: i32| (0..n as i32).map(move |i| (i * i * 7 + i * 3 + seed) % 200);
    let [source, target] = lengths;
    let rows: [(Vec<i32>, usize); 3] = [
        (text(source, seed).chain([END]).collect(), beside),
        (
            [BEGIN].into_iter().chain(text(target, seed + 50)).collect(),
            width,
        ),
        (text(target, seed + 50).chain([END]).collect(), width),
    ];
    rows.map(|(mut row, width)| {
        assert!(row.len() <= width);
        row.resize(width, PADDING);
        row
    })
}

fn batch(pairs: &[Rows]) -> Rows {
    [0, 1, 2].map(|i| pairs.iter().flat_map(|p| p[i].clone()).collect())
}

/// Two pairs of different lengths; each fills one of its rows.
fn two(widths: Widths) -> Rows {
    let [beside, width] = widths.map(|n| n - 1);
    batch(&[pair([2, width], 1, widths), pair([beside, 1], 9, widths)])
}

const NAMES: [&str; 3] = [names::SOURCE, names::TOKENS, names::TARGETS];

/// Parameters that are no zeros and ones, and the inputs, for the interpreter.
fn feeds(e: &Executor, at: Bindings, rows: &Rows) -> BTreeMap<String, Tensor> {
    let params = e.manifest().params.iter().map(|p| {
        let data = e.of(State::Params, p).iter().collect();
        (p.path.clone(), Tensor::new(p.shape.clone(), data))
    });
    let inputs = NAMES.iter().zip(rows).map(|(name, row)| {
        let data = row.iter().map(|x| f64::from(*x)).collect();
        let width = match *name == names::SOURCE {
            true => at.source,
            false => at.seq,
        };
        (
            name.to_string(),
            Tensor::new(vec![at.batch, width, 1], data),
        )
    });
    let key = Tensor::new(vec![1], vec![KEY.into()]);
    params
        .chain(inputs)
        .chain([(noise::KEY.to_string(), key)])
        .collect()
}

fn started(manifest: &Manifest) -> Executor {
    let mut e = executor(manifest);
    let before: Vec<f64> = e.state(State::Params).iter().collect();
    let moved = |(i, x): (usize, f64)| x + (i as f64 * 0.37).sin() / 8.0;
    let after = before.into_iter().enumerate().map(moved);
    e.state_mut(State::Params).fill(after);
    e
}

/// Results of the gradient's graph in f64.
fn gradient(built: &Built, e: &Executor, rows: &Rows, batch: usize) -> BTreeMap<String, Tensor> {
    let at = at(batch, [0, 1].map(|i| rows[i].len() / batch));
    interp::run(&built.grad, &feeds(e, at, rows), at).unwrap()
}

#[track_caller]
fn same(what: &str, a: &[f64], b: &[f64]) {
    let size = b.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 1e-11 * size, "{what}: {a}, not {b}");
    }
}

const FLOWS: [([&str; 2], &str); 5] = [
    (PLAIN, CROSS),
    (PLAIN, ATTEND),
    (PLAIN, CAPPED),
    (
        [
            "pcformer(layer, m: 2) for 3 steps",
            "heun(cross) for 2 steps { h = 1/2;  weights shared }",
        ],
        CROSS,
    ),
    (
        [
            "euler(att) for 2 steps { weights of time { embed: 4, hidden: 4 } }",
            "euler(cross) for 1 step { report size = id * id }",
        ],
        "attention(heads: 4, kv_heads: 2, bias, scale: 1/3, from: encoder)",
    ),
];

/// A pair gives the same loss and the same gradient alone and where its row is filled up; the loss of a batch is the mean over all of its targets.
#[test]
fn what_fills_up_rows_changes_nothing() {
    const HALTING: [&str; 2] = [
        "euler(att) for halting(halt, max: 3, threshold: 0.9) steps { weights shared }",
        PLAIN[1],
    ];
    let halting = (HALTING, CROSS, "loss cross_entropy + 1/10*ponder");
    let losses = ["", "loss smooth(1/10) + 1/2*z_loss + 1/4*kinetic"];
    let all = FLOWS.map(|(flows, cross)| losses.map(|loss| (flows, cross, loss)));
    for (flows, cross, loss) in all.concat().into_iter().chain([halting]) {
        let model = model(flows, cross, loss);
        let e = started(&manifest(&model, options()));
        let alone = |widths| gradient(&model.0, &e, &pair([5, 3], 4, widths), 1);
        let want = alone([6, 4]);
        for wide in [[6, 11], [13, 4], [9, 12]].map(alone) {
            for (name, tensor) in &want {
                same(name, &wide[name].data, &tensor.data);
            }
        }
        let of = |rows: &Rows, batch| gradient(&model.0, &e, rows, batch)["loss"].data[0];
        let (a, b) = (pair([5, 3], 4, [7, 9]), pair([2, 8], 6, [7, 9]));
        let mean = (4.0 * of(&a, 1) + 9.0 * of(&b, 1)) / 13.0;
        if loss.is_empty() {
            same("the mean", &[of(&batch(&[a, b]), 2)], &[mean]);
        }
    }
}

/// The same of several sources, each of which is filled up by itself; and gradients are differences.
#[test]
fn what_fills_up_rows_of_several_sources_changes_nothing() {
    let model = several("loss cross_entropy + 1/4*kinetic");
    let e = started(&manifest(&model, options()));
    let feeds_of = |notes: usize, lengths: [usize; 2], widths: Widths| {
        let [read, ..] = pair([notes, 1], 3, [widths[0], 2]);
        let at = at(1, widths);
        let mut feeds = feeds(&e, at, &pair(lengths, 4, widths));
        let data = read.iter().map(|x| f64::from(*x)).collect();
        feeds.insert("notes".into(), Tensor::new(vec![1, at.source, 1], data));
        (feeds, at)
    };
    let gradient = |notes, lengths, widths| {
        let (feeds, at) = feeds_of(notes, lengths, widths);
        interp::run(&model.0.grad, &feeds, at).unwrap()
    };
    for (notes, lengths, longest) in [(2, [5, 3], 6), (7, [1, 3], 8), (5, [5, 3], 6)] {
        let want = gradient(notes, lengths, [longest, 4]);
        for widths in [[longest + 3, 4], [longest, 9], [15, 12]] {
            for (name, tensor) in &gradient(notes, lengths, widths) {
                same(name, &tensor.data, &want[name].data);
            }
        }
    }
    let (mut feeds, at) = feeds_of(4, [6, 3], [9, 5]);
    differences("several sources", &model.0, &mut feeds, at, 1e-6);
    let compiled = manifest(&model, options());
    assert!(
        compiled.program.entries[&EntryId::Encode]
            .inputs
            .iter()
            .map(|io| &io.name[..])
            .eq(["notes", "source"])
    );
}

/// Of every parameter some elements, moved both ways.
#[test]
fn gradients_are_differences() {
    for (flows, cross) in FLOWS {
        let model = model(flows, cross, "loss cross_entropy + 1/4*kinetic");
        let e = started(&manifest(&model, options()));
        let (rows, at) = (two([7, 5]), at(2, [7, 5]));
        let mut feeds = feeds(&e, at, &rows);
        let grads = interp::run(&model.0.grad, &feeds, at).unwrap();
        let mut largest = BTreeMap::new();
        for p in &model.0.params {
            let got = &grads[&format!("grad.{}", p.path)].data;
            let side = p.path.split('.').next().unwrap().to_string();
            let most = got.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let of_side: &mut f64 = largest.entry(side).or_default();
            *of_side = of_side.max(most);
        }
        differences(&format!("{flows:?}"), &model.0, &mut feeds, at, 1e-6);
        assert!(
            largest["encoder"] > 1e-4 && largest["decoder"] > 1e-4,
            "{largest:?}"
        );
    }
}

/// Logits, the loss, and gradients.
fn run(e: &mut Executor, at: Bindings, rows: &Rows) -> Vec<f32> {
    let [source, tokens, targets] = rows;
    let key = [KEY];
    let mut io = vec![
        (names::SOURCE, Value::I32(source)),
        (names::TOKENS, Value::I32(tokens)),
        (names::TARGETS, Value::I32(targets)),
    ];
    let logits = e.run("forward", at, &io[..2], &[]).unwrap();
    let mut out = logits.reals("logits").unwrap().f32().to_vec();
    if e.has_input(EntryId::Grad, noise::KEY) {
        io.push((noise::KEY, Value::I32(&key)));
    }
    e.state_mut(State::Grads).fill(std::iter::repeat(f64::NAN));
    let loss = e.run("grad", at, &io, &[]).unwrap();
    out.push(loss.scalar("loss").unwrap() as f32);
    out.extend_from_slice(e.state(State::Grads).f32());
    out
}

#[test]
fn programs_agree_with_the_interpreter() {
    let dropped = [
        "lie(att, dropped) for 2 steps",
        "lie(cross, dropped) for 2 steps",
    ];
    for (flows, cross, train, within) in [
        (PLAIN, CROSS, "", 1e-4),
        (PLAIN, ATTEND, "memory revolve(slots: 1)", 1e-4),
        (PLAIN, CROSS, "precision bf16", 0.1),
        (PLAIN, CAPPED, "", 1e-4),
        (FLOWS[3].0, CROSS, "loss smooth(1/10) + 1/4*kinetic", 1e-4),
        (dropped, CROSS, "", 1e-4),
        (PLAIN, CROSS, "from \"run\";  tune lora(rank: 2)", 1e-4),
    ] {
        let model = model(flows, cross, train);
        let manifest = manifest(&model, options());
        let mut e = started(&manifest);
        for widths in [[6, 6], [15, 3], [4, 9]] {
            let (at, rows) = (at(2, widths), two(widths));
            let feeds = feeds(&e, at, &rows);
            let got = run(&mut e, at, &rows);
            let forward = interp::run(&model.0.forward, &feeds, at).unwrap();
            let want = interp::run(&model.0.grad, &feeds, at).unwrap();
            let (logits, rest) = got.split_at(forward["logits"].data.len());
            let loss = &rest[..1];
            let what = |name: &str| format!("{flows:?}, {train}: {name}");
            close(&what("logits"), logits, &forward["logits"].data, within);
            close(&what("loss"), loss, &want["loss"].data, within);
            let scale = want.values().flat_map(|t| &t.data);
            let scale = scale.fold(0.0f64, |m, x| m.max(x.abs()));
            for p in &manifest.params {
                let name = format!("grad.{}", p.path);
                let Some(want) = want.get(&name) else {
                    continue;
                };
                for (got, want) in e.of(State::Grads, p).iter().zip(&want.data) {
                    let off = (got - want).abs() / scale;
                    assert!(off < within, "{}: {got}, not {want}", what(&name));
                }
            }
        }
    }
}

/// Few long pairs or many short ones: any batch that has no more tokens than are planned, in the memory of those.
#[test]
fn batches_of_tokens_run_at_any_shape() {
    let (_, text) = model(PLAIN, CROSS, "");
    let planned = |batch: &str| {
        let text = text.replace("batch 2;", batch);
        manifest(&(source::built(&text), text), options())
    };
    let by_tokens = planned("batch tokens(72);  accumulate 3;");
    let [grad, forward] =
        [EntryId::Grad, EntryId::Forward].map(|e| by_tokens.program.entries[&e].maxima);
    assert_eq!(
        grad,
        Maxima {
            batch: 12,
            seq: 12,
            source: 15,
            tokens: Some(24),
            kept: None,
        }
    );
    assert_eq!(forward, Maxima::new(1, 12).beside(15));
    let arena = |m: &Manifest| m.program.entries[&EntryId::Grad].arena_bytes;
    let (long, all) = (arena(&planned("batch 2;")), arena(&planned("batch 12;")));
    let most = arena(&by_tokens);
    assert!(
        (long * 3 / 4..long + long / 8).contains(&most) && 4 * most < all,
        "{long}, {most}, {all}"
    );

    let pairs = |rows: usize, widths: Widths| {
        let [beside, width] = widths.map(|n| n - 1);
        let of = |n: usize| pair([1 + n % beside, 1 + n * 3 % width], n as i32, widths);
        batch(&(0..rows).map(of).collect::<Vec<_>>())
    };
    let grads = |m: &Manifest, rows: usize, widths: Widths| {
        let mut e = started(m);
        e.set_poison(true);
        let [source, tokens, targets] = pairs(rows, widths);
        let io = [
            (names::SOURCE, Value::I32(&source)),
            (names::TOKENS, Value::I32(&tokens)),
            (names::TARGETS, Value::I32(&targets)),
        ];
        let found = e.run("grad", at(rows, widths), &io, &[]).map(drop);
        found.map(|()| {
            e.state(State::Grads)
                .f32()
                .iter()
                .map(|x| x.to_bits())
                .collect::<Vec<u32>>()
        })
    };
    let wide = planned("batch 12;");
    for (rows, widths) in [
        (2, [12, 12]),
        (3, [8, 3]),
        (4, [2, 6]),
        (12, [2, 2]),
        (1, [15, 12]),
        (5, [4, 4]),
    ] {
        let got = grads(&by_tokens, rows, widths).unwrap();
        assert!(
            got == grads(&wide, rows, widths).unwrap(),
            "{rows} × {widths:?}"
        );
    }
    for (rows, widths) in [
        (3, [2, 9]),
        (2, [13, 2]),
        (13, [2, 2]),
        (12, [3, 2]),
        (1, [16, 2]),
    ] {
        let said = grads(&by_tokens, rows, widths).unwrap_err().to_string();
        assert!(
            said.contains("1..=12 × 1..=12 beside 1..=15, at most 24 together"),
            "{said}"
        );
    }
    // What a crafted file says of more rows than its memories hold.
    let mut bad = by_tokens;
    let entry = bad.program.entries.get_mut(&EntryId::Grad).unwrap();
    entry.maxima.tokens = Some(25);
    assert!(Artifact::in_memory(bad).is_err());
}

/// What a crafted file says of what encoders read.
#[test]
fn sources_are_inputs_of_encoders() {
    let whole = manifest(&several(""), options());
    let read = |input: &str| Read {
        input: input.into(),
        key: "en".into(),
    };
    for sources in [
        vec![],
        vec![read("source"), read("source")],
        vec![read("tokens"), read("notes")],
        vec![read("else")],
    ] {
        let mut bad = whole.clone();
        let Form::Pairs(form) = &mut bad.train.as_mut().unwrap().data.form else {
            panic!("no pairs");
        };
        form.sources = sources;
        let said = Artifact::in_memory(bad).map(drop).unwrap_err().to_string();
        assert!(said.contains("are no inputs of encoders"), "{said}");
    }
}

/// However launches are joined and states are kept: the same bits.
#[test]
fn programs_give_the_same_bits() {
    let bits = |train: &str, options| {
        let model = model(PLAIN, CROSS, train);
        let mut e = started(&manifest(&model, options));
        let all = run(&mut e, at(2, [9, 6]), &two([9, 6]));
        all.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    let whole = bits("", options());
    let off = Options {
        fusion: Fusion::Off,
        ..options()
    };
    assert!(bits("", off) == whole, "not fused");
    for memory in ["revolve(slots: 1)", "revolve(slots: 2)"] {
        let train = format!("memory {memory}");
        assert!(bits(&train, options()) == whole, "{memory}");
    }
}

fn search(beam: usize) -> Search {
    Search {
        beam,
        length_penalty: 0.6,
        min_length: 4,
        max_length: Some(9),
    }
}

/// Texts that a search finds with so many kept, and their probabilities.
fn found(manifest: &Manifest, beam: usize) -> Vec<Translation> {
    let mut e = started(manifest);
    let search = search(beam);
    let texts = ["ab", "a longer", "Zürich", "x"].map(String::from);
    let all = translate(&mut e, &Tokenizer::bytes(), &texts, &search, &mut |_| {});
    all.unwrap()
}

/// The same program without what keeps earlier tokens.
fn anew(manifest: &Manifest) -> Manifest {
    let mut m = manifest.clone();
    for entry in [EntryId::Encode, EntryId::Extend] {
        assert!(m.program.entries.remove(&entry).is_some());
    }
    m
}

/// What is kept of a source and of the texts that go on gives the texts of computing each token anew, and their probabilities bit for bit.
#[test]
fn translations_with_kept_keys_are_those_computed_anew() {
    let library = ["translator", "translator_rk2", "translator_pcformer"].map(|name| {
        let path = format!(
            "{}/../schemes/models/{name}.ode",
            env!("CARGO_MANIFEST_DIR")
        );
        let mut text = std::fs::read_to_string(path).unwrap();
        for (from, to) in [
            ("128", "12"),
            ("for 3 steps", "for 2 steps"),
            ("std: 0.06", "std: 0.4"),
        ] {
            text = text.replace(from, to);
        }
        (source::built(&text), text)
    });
    // A decoder whose convolution and recurrence carry rows of their own.
    let carries =
        "rmsnorm |> conv(kernel: 3, causal) |> attention(heads: 2, from: encoder |> rmsnorm)";
    let decay = "rmsnorm |> linear_attention(heads: 2)";
    let others = [
        model(PLAIN, ATTEND, ""),
        model(PLAIN, CAPPED, ""),
        model(PLAIN, carries, ""),
        model(FLOWS[3].0, CROSS, ""),
        model(PLAIN, &format!("{CROSS} |> {decay}"), ""),
        model(PLAIN, CROSS, "precision f64"),
        model(PLAIN, CROSS, "precision bf16"),
        model(PLAIN, CAPPED, "precision bf16"),
    ];
    // Angles of both sequences, whose tables have other lengths.
    let turned = {
        let (_, text) = model(PLAIN, CROSS, "");
        let text = text.replace("attention(heads: 2)\n", "attention(heads: 2, rope)\n");
        (source::built(&text), text)
    };
    assert!(turned.1.contains("heads: 2, rope)"));
    let of_pairs = Options::of(Target::Avx512Bf16, DType::F32);
    let halves = [CROSS, CAPPED].map(|cross| (model(PLAIN, cross, "precision bf16"), of_pairs));
    let several = [several(""), several("precision bf16")];
    let all = library
        .into_iter()
        .chain(others)
        .chain([turned])
        .chain(several);
    let all = all.map(|m| (m, options()));
    for (model, options) in all.chain(halves) {
        let manifest = manifest(&model, options);
        let rows = manifest.program.entries[&EntryId::Extend].maxima.batch as usize;
        for beam in [1, rows] {
            assert_eq!(
                found(&manifest, beam),
                found(&anew(&manifest), beam),
                "{}, {beam} texts",
                manifest.source
            );
        }
    }
}

/// A window that is much shorter than the texts: rows are moved while texts take the place of each other.
#[test]
fn long_translations_keep_recent_tokens() {
    let (_, text) = model(PLAIN, CROSS, "");
    let text = text
        .replace("causal, rope)", "causal, rope, window: 2)")
        .replace("context: 12", "context: 150");
    let m = manifest(&(source::built(&text), text), options());
    let kept = &m.program.entries[&EntryId::Extend].kept;
    assert!(kept.iter().all(|k| k.recent && k.rows == 128), "{kept:?}");
    let search = Search {
        min_length: 140,
        max_length: Some(145),
        ..search(2)
    };
    let found = |m: &Manifest| {
        let texts = ["ab".to_string()];
        let all = translate(
            &mut started(m),
            &Tokenizer::bytes(),
            &texts,
            &search,
            &mut |_| {},
        );
        all.unwrap()
    };
    assert_eq!(found(&m), found(&anew(&m)));
}

/// More texts than rows are planned for, and keys in bf16 of an odd number of columns: each token is computed anew.
#[test]
fn what_cannot_keep_computes_anew() {
    let m = manifest(&model(PLAIN, CROSS, ""), options());
    assert_eq!(found(&m, 3), found(&anew(&m), 3));
    let odd = "rmsnorm |> attend(linear(5), encoder |> linear(5), encoder |> linear(5), heads: 1)";
    let odd = format!("{odd} |> linear");
    let half = manifest(&model(PLAIN, &odd, "precision bf16"), options());
    assert!(!half.program.entries.contains_key(&EntryId::Extend));
    assert_eq!(found(&half, 1).len(), 4);
}

/// What a file says of kept rows is checked before anything moves.
#[test]
fn kept_rows_lie_in_the_cache() {
    let good = manifest(&model(PLAIN, CROSS, ""), options());
    let extend = &good.program.entries[&EntryId::Extend];
    // Keys and values of the two evaluations of `self`; those of the source are of no text.
    assert_eq!(extend.kept.len(), 4);
    assert!(extend.kept.iter().all(|k| k.rows == 12 && k.grows));
    for break_it in [
        (|k| k.offset = 2) as fn(&mut Kept),
        |k| k.row += 1,
        |k| k.rows = u64::MAX,
        |k| k.offset = 1 << 40,
    ] {
        let mut bad = good.clone();
        let extend = bad.program.entries.get_mut(&EntryId::Extend).unwrap();
        break_it(&mut extend.kept[1]);
        let said = Artifact::in_memory(bad).err().expect("refused").to_string();
        assert!(said.contains("are kept of each sequence"), "{said}");
    }
}
