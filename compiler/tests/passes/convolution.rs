//! `conv` and `shift` compiled: what the interpreter says, the same bits in pieces and in other precisions, how many launches, factors and
//! bounds.

use crate::numbers::{close, executor, feeds, results, tokens};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{ModelParts, Options, assemble, build_manifest};
use odec_graph::interp::{self, Tensor};
use odec_program::expr::{Access, ColMap, Expr, RowMap};
use odec_program::manifest::{Manifest, added};
use odec_program::{Bindings, EntryId, KernelSpec};
use odec_runtime::{Executor, Reader, State, Value};
use std::collections::BTreeMap;

const VOCAB: u64 = 256;
const AT: Bindings = Bindings::new(2, 6);

const CAUSAL: [&str; 13] = [
    "conv(kernel: 4, causal, depthwise, bias)",
    "conv(kernel: 3, causal, dilation: 2) |> conv(kernel: 2, causal, columns: 8, bias)",
    "concat(id, shift, shift(by: 3)) |> linear",
    "rmsnorm |> conv(linear(3), kernel: 3, causal, depthwise) |> linear",
    "conv(kernel: 1, causal, depthwise) |> conv(kernel: 1)",
    // Kernels that read what a shift gives, as it is.
    "rmsnorm |> cumsum(shift)",
    "scan(linear |> sigmoid, shift)",
    "shift |> shift(by: 2)",
    "shift |> conv(kernel: 3, causal, depthwise)",
    "linear_attention(shift, linear, linear, heads: 2)",
    "attend(linear, shift, linear(9), heads: 1, causal) |> linear(width)",
    "attend(shift, linear, linear(9), heads: 1, causal) |> linear(width)",
    "attend(shift, shift(by: 2), shift, heads: 1, causal)",
];
const CENTRED: [&str; 3] = [
    "conv(kernel: 3, depthwise, bias)",
    "conv(kernel: 5, dilation: 2)",
    "rmsnorm |> shift(by: 1, later)",
];

fn model(field: &str, train: &str) -> (Built, String) {
    let text = format!(
        "field f = {field}\nmodel small {{\n  input tokens(vocab: {VOCAB}, context: 9)\n  embed learned(width: 8)\n  \
         evolve euler(f) for 2 steps\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.4)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-2)\n  batch 2;  steps 6;  {train}\n}}\n"
    );
    (source::built(&text), text)
}

fn planned(field: &str, train: &str) -> (Built, Manifest) {
    let (built, text) = model(field, train);
    let manifest = build_manifest(&built, &text, options()).expect(field);
    (built, manifest.manifest)
}

#[test]
fn compiled_is_interpreted() {
    for field in CAUSAL.into_iter().chain(CENTRED) {
        let (built, manifest) = planned(field, "");
        let mut e = executor(&manifest);
        let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let want = interp::run(&built.grad, &f, AT).expect(field);
        let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        e.state_mut(State::Grads).f32().fill(f32::NAN);
        let run = e.run("grad", AT, &inputs, &[]).expect(field);
        let loss = run.scalar("loss").expect("a loss") as f32;
        close(field, &[loss], &want["loss"].data, 1e-5);
        for p in &manifest.params {
            let name = format!("grad.{}", p.path);
            let got = e.of(State::Grads, p).f32();
            close(&format!("{field} {name}"), got, &want[&name].data, 1e-4);
        }
    }
}

#[test]
fn fusion_and_memory_change_no_bit() {
    for field in CAUSAL.into_iter().chain(CENTRED) {
        for precision in ["f32", "bf16"] {
            let bits = |memory: &str, fusion: Fusion| {
                let (built, text) =
                    model(field, &format!("precision {precision};  memory {memory}"));
                let options = Options {
                    fusion,
                    ..options()
                };
                let made = assemble(&ModelParts::new(&built, &text), options).expect(field);
                results(&mut executor(&made.manifest), AT, VOCAB)
            };
            let want = bits("store", Fusion::On);
            assert!(want == bits("store", Fusion::Off), "{field} in {precision}");
            let less = bits("revolve(slots: 1)", Fusion::On);
            assert!(want == less, "{field} in {precision}, revolve");
        }
    }
}

#[test]
fn a_text_in_pieces_has_the_bits_of_the_whole() {
    for field in CAUSAL {
        for precision in ["f32", "bf16"] {
            let (_, manifest) = planned(field, &format!("precision {precision}"));
            let mut e = executor(&manifest);
            let x = tokens(Bindings::new(1, 9), VOCAB, 1);
            let inputs = [("tokens", Value::I32(&x))];
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            let whole = e.run("forward", Bindings::new(1, 9), &inputs, &[]);
            let whole = bits(whole.expect(field).reals("logits").expect("logits").f32());
            // Twice: what the first text has left is not seen by the second.
            for _ in 0..2 {
                let mut reader = Reader::new(&mut e).expect(field);
                let mut pieces = Vec::new();
                for piece in [&x[..1], &x[1..5], &x[5..6], &x[6..]] {
                    pieces.extend(bits(reader.read(piece).expect(field).f32()));
                }
                assert!(pieces == whole, "{field} in {precision}");
            }
        }
    }
    for field in CENTRED {
        let (_, manifest) = planned(field, "");
        let decodes = manifest.program.entries.contains_key(&EntryId::Decode);
        assert!(!decodes, "{field} reads later tokens");
    }
}

/// How the launches over rows of an entry read their operands.
fn launches(m: &Manifest, entry: EntryId) -> Vec<Vec<Access>> {
    let read = |spec: &KernelSpec| {
        let KernelSpec::Rows(k) = spec else {
            return None;
        };
        let loads = k.body.nodes.iter().filter_map(|e| match e {
            Expr::Load { access, .. } => Some(*access),
            _ => None,
        });
        Some(loads.collect())
    };
    let instrs = m.program.entries[&entry].instrs.iter();
    let specs = instrs.map(|i| &m.program.kernels[i.kernel as usize].spec);
    specs.filter_map(read).collect()
}

/// One kernel beside the transpose of the taps, with the sum of the step in it.
#[test]
fn a_depthwise_convolution_is_one_kernel() {
    let (_, m) = planned(CAUSAL[0], "");
    let moved = |reads: &&Vec<Access>| reads.iter().any(|a| matches!(a.row, RowMap::Shift(_)));
    let turned = |reads: &&Vec<Access>| {
        let transposed = |a: &Access| matches!(a.col, ColMap::Transposed { .. });
        reads.iter().any(transposed)
    };
    let count = |entry| {
        let all = launches(&m, entry);
        let moved: Vec<_> = all.iter().filter(moved).collect();
        for reads in &moved {
            let shifts = [3, 2, 1].map(RowMap::Shift);
            assert!(shifts.iter().all(|s| reads.iter().any(|a| a.row == *s)));
        }
        [moved.len(), all.iter().filter(turned).count(), all.len()]
    };
    // Of two steps: a kernel and a transpose each.
    let [whole, taps, forward] = count(EntryId::Forward);
    assert_eq!([whole, taps], [2, 2]);
    // Reading on, the taps are prepared, and kept rows are read in one kernel as well.
    let [whole, taps, decode] = count(EntryId::Decode);
    assert_eq!([whole, taps], [0, 0]);
    assert_eq!(decode, forward - 2);
}

fn loss(built: &Built, f: &BTreeMap<String, Tensor>) -> f64 {
    interp::run(&built.loss, f, AT).expect("a loss")["loss"].data[0]
}

/// Numbers for B, which starts at 0.
fn fill(e: &mut Executor) {
    for p in e.manifest().params.clone() {
        if p.path.ends_with(added::LORA_B) {
            let at = p.offset as usize / 4;
            let drawn = |i: usize| ((i * 37 % 29) as f32 - 14.0) / 60.0;
            let values: Vec<f32> = (0..p.elements() as usize).map(drawn).collect();
            e.state_mut(State::Params).f32()[at..at + values.len()].copy_from_slice(&values);
        }
    }
}

#[test]
fn factors_of_a_kernel_are_those_of_its_matrix() {
    for field in &CAUSAL[..2] {
        let (plain, _) = planned(field, "");
        let (adapted, m) = planned(field, "from \"run\";  tune lora(rank: 2)");
        let mut e = executor(&m);
        fill(&mut e);
        let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let mut merged = f.clone();
        for (name, b) in &f {
            let Some(path) = name.strip_suffix(added::LORA_B) else {
                continue;
            };
            let a = &f[&format!("{path}{}", added::LORA_A)];
            let (rank, cols) = (a.shape[0] as usize, a.shape[1] as usize);
            let w = merged.get_mut(path).expect("the kernel");
            assert_eq!(w.shape.len(), 3, "{path}");
            assert_eq!(w.shape[1] * w.shape[2], a.shape[1], "{path}");
            for (i, w) in w.data.iter_mut().enumerate() {
                let terms =
                    (0..rank).map(|r| b.data[i / cols * rank + r] * a.data[r * cols + i % cols]);
                *w += terms.sum::<f64>();
            }
        }
        assert!(merged != f, "{field} has factors");
        let (got, want) = (loss(&adapted, &f), loss(&plain, &merged));
        assert!((got - want).abs() < 1e-12, "{field}: {got}, not {want}");
        let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let run = e.run("loss", AT, &inputs, &[]).expect(field);
        close(
            field,
            &[run.scalar("loss").expect("a loss") as f32],
            &[want],
            1e-5,
        );
    }
}

/// How much a convolution amplifies sequences: the root of the largest eigenvalue of AᵀA over so many tokens, by power iteration.
fn gain(w: &[f64], [out, inputs, kernel]: [usize; 3], depthwise: bool) -> f64 {
    let tokens = 24;
    let columns = if depthwise { out } else { inputs };
    // Tap, output and input of each weight.
    let each = |i: usize| {
        let (o, c, k) = (i / (inputs * kernel), i / kernel % inputs, i % kernel);
        (kernel - 1 - k, o, if depthwise { o } else { c })
    };
    let apply = |x: &[f64]| {
        let mut y = vec![0.0; tokens * out];
        for (i, w) in w.iter().enumerate() {
            let (by, o, c) = each(i);
            (by..tokens).for_each(|t| y[t * out + o] += w * x[(t - by) * columns + c]);
        }
        y
    };
    let transposed = |y: &[f64]| {
        let mut x = vec![0.0; tokens * columns];
        for (i, w) in w.iter().enumerate() {
            let (by, o, c) = each(i);
            (by..tokens).for_each(|t| x[(t - by) * columns + c] += w * y[t * out + o]);
        }
        x
    };
    let size = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut x: Vec<f64> = (0..tokens * columns)
        .map(|i| (i as f64 * 0.7).sin() + 0.1)
        .collect();
    for _ in 0..300 {
        let n = size(&x);
        x.iter_mut().for_each(|x| *x /= n);
        x = transposed(&apply(&x));
    }
    size(&x).sqrt()
}

#[test]
fn a_bounded_kernel_amplifies_no_more() {
    for field in [
        "conv(kernel: 4, causal, depthwise)",
        "conv(kernel: 3, causal)",
    ] {
        let (_, m) = planned(field, "constrain spectral(max: 3/4)");
        let mut e = executor(&m);
        let weight = m.params.iter().find(|p| p.shape.len() == 3);
        let weight = weight.expect("a kernel").clone();
        let shape = [0, 1, 2].map(|i| weight.shape[i] as usize);
        let depthwise = shape[1] == 1;
        let vector = format!("{}{}", weight.path, added::SPECTRAL);
        assert_eq!(m.params.iter().any(|p| p.path == vector), !depthwise);
        let amplified = |e: &Executor| {
            let w: Vec<f64> = e.of(State::Params, &weight).iter().collect();
            gain(&w, shape, depthwise)
        };
        assert!(amplified(&e) > 0.9, "{field}: {}", amplified(&e));
        let named = [("lr", 0.0), ("bias1", 1.0), ("bias2", 1.0)];
        for _ in 0..200 {
            e.run("update", Bindings::new(1, 1), &[], &named)
                .expect(field);
        }
        let last = amplified(&e);
        assert!((0.3..0.75 + 1e-4).contains(&last), "{field}: {last}");
    }
}
