//! `precision bf16`: what is rounded, what it saves, and that nothing else shows in the bits.

use crate::memory::{AT, model};
use crate::numbers::{close, executor, feeds, tokens};
use crate::source::built;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{ModelParts, Options, Policy, assemble, run_graph_passes};
use odec_graph::types::Elem;
use odec_graph::{OpKind, Pass, interp};
use odec_program::gpu::tensor;
use odec_program::kernel::{Contract, Parts};
use odec_program::manifest::{Manifest, Memory, Precision, named};
use odec_program::{Bindings, DType, KernelSpec, Target};
use odec_runtime::{Reader, State, Value};

const BF16: Policy = Policy {
    precision: Precision::Bf16,
    memory: Memory::Store,
    weights: None,
    copied: false,
};

const FLOWS: [&str; 6] = [
    "lie(att, ffn)",
    "rk4(layer)",
    "iie(layer, r: 2)",
    "own(layer)",
    "pcformer(layer, m: 3)",
    "dlcl(layer, layernorm)",
];

/// The planned program, and bytes of the gradient's arena.
fn planned(flow: &str, steps: u64, train: &str, fusion: Fusion) -> (Manifest, u64) {
    let (built, text) = model(flow, steps, train);
    let options = Options {
        fusion,
        ..options()
    };
    let assembled = assemble(&ModelParts::new(&built, &text), options).unwrap();
    let grad = assembled.memory.iter().find(|m| m.entry == "grad");
    let arena = grad.expect("models are trained").arena;
    (assembled.manifest, arena)
}

fn assembled(built: &Built, text: &str) -> Manifest {
    let planned = assemble(&ModelParts::new(built, text), options());
    planned.unwrap().manifest
}

/// Bits of logits, loss and gradients.
fn bits(manifest: &Manifest) -> Vec<u32> {
    let mut e = executor(manifest);
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let mut all = Vec::new();
    let logits = e.run("forward", AT, &inputs[..1], &[]).unwrap();
    all.extend_from_slice(logits.reals("logits").unwrap().f32());
    let alone = e.run("loss", AT, &inputs, &[]).unwrap();
    let alone = alone.scalar("loss").unwrap();
    let loss = e.run("grad", AT, &inputs, &[]).unwrap();
    let loss = loss.scalar("loss").unwrap();
    assert_eq!(alone.to_bits(), loss.to_bits(), "one loss, two entries");
    all.push(loss as f32);
    all.extend_from_slice(e.state(State::Grads).f32());
    all.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn memory_policies_and_fusion_change_no_bit() {
    for flow in FLOWS {
        let (stored, _) = planned(flow, 4, "store;  precision bf16", Fusion::On);
        let want = bits(&stored);
        let (plain, _) = planned(flow, 4, "store", Fusion::On);
        assert!(want != bits(&plain), "{flow}: nothing was rounded");
        for (train, fusion) in [
            ("revolve(slots: 2);  precision bf16", Fusion::On),
            ("revolve(slots: 1);  precision bf16", Fusion::On),
            ("store;  precision bf16", Fusion::Off),
        ] {
            let (other, _) = planned(flow, 4, train, fusion);
            assert!(bits(&other) == want, "{flow}, {train}, {fusion:?}");
        }
    }
}

#[test]
fn reading_in_pieces_gives_the_bits_of_reading_at_once() {
    for flow in FLOWS {
        let (manifest, _) = planned(flow, 2, "store;  precision bf16", Fusion::On);
        let (plain, _) = planned(flow, 2, "store", Fusion::On);
        let (half, full) = (manifest.program.cache_bytes, plain.program.cache_bytes);
        assert!(2 * half <= full + 64 * 64, "{flow}: {half} of {full}");
        let mut e = executor(&manifest);
        let at = Bindings::new(1, 9);
        let x = tokens(at, 11, 1);
        let whole = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
        let whole: Vec<u32> = whole
            .unwrap()
            .reals("logits")
            .unwrap()
            .f32()
            .iter()
            .map(|x| x.to_bits())
            .collect();
        let mut reader = Reader::new(&mut e).unwrap();
        let mut pieces = Vec::new();
        for piece in [&x[..4], &x[4..5], &x[5..]] {
            pieces.extend(
                reader
                    .read(piece)
                    .unwrap()
                    .f32()
                    .iter()
                    .map(|x| x.to_bits()),
            );
        }
        assert!(pieces == whole, "{flow}");
    }
}

#[test]
fn what_waits_for_the_backward_pass_takes_half() {
    for (flow, least) in [
        ("lie(att, ffn)", 0.65),
        ("rk4(layer)", 0.58),
        ("own(layer)", 0.68),
    ] {
        let arena = |train| planned(flow, 8, train, Fusion::On).1 as f64;
        let share = arena("store;  precision bf16") / arena("store");
        assert!(share < least, "{flow}: {share:.2} of the memory");
    }
}

/// What the backward pass compares is saved in f32: once columns are rounded, the largest that was found before is none of them.
#[test]
fn what_is_compared_is_saved_in_f32() {
    let (_, text) = model("lie(att, ffn)", 2, "store;  precision bf16");
    for field in [
        "linear(12) |> max |> linear(12)",
        "rmsnorm |> max |> linear(12)",
    ] {
        let text = text.replace("rmsnorm |> swiglu(hidden: 20)", field);
        assert!(text.contains(field), "{text}");
        let built = built(&text);
        let manifest = assembled(&built, &text);
        let e = executor(&manifest);
        let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let gradient = |policy| {
            let graph = run_graph_passes(&built.grad, policy).unwrap();
            interp::run(&graph, &f, AT).unwrap()
        };
        let (half, full) = (gradient(BF16), gradient(Policy::default()));
        let (mut off, mut all) = (0.0, 0.0);
        for (name, full) in full.iter().filter(|(name, _)| name.starts_with("grad.")) {
            for (h, f) in half[name].data.iter().zip(&full.data) {
                off += (h - f) * (h - f);
                all += f * f;
            }
        }
        let error = f64::sqrt(off / all);
        // `<` so that a NaN is too much.
        assert!(error < 0.1, "{field}: the gradient is off by {error}");
    }
}

/// Contractions read bf16, whatever stands before them; states, sums and gradients of parameters stay f32.
#[test]
fn every_contraction_rounds_and_no_state_does() {
    for flow in FLOWS {
        let (built, _) = model(flow, 3, "store");
        for graph in [&built.forward, &built.loss, &built.grad] {
            let graph = run_graph_passes(graph, BF16).unwrap();
            for (n, node) in graph.nodes() {
                let elems: Vec<Elem> = node.operands.iter().map(|v| graph.ty(*v).elem).collect();
                match &node.op {
                    OpKind::MatMul(m) => assert!(m.rounded, "%{n} of {flow}"),
                    OpKind::Attention(_) => assert_eq!(elems, [Elem::Bf16; 3]),
                    OpKind::AttentionBackward(_) => {
                        assert_eq!(elems[..4], [Elem::Bf16; 4]);
                        assert_eq!(elems[5], Elem::Bf16);
                    }
                    OpKind::Combine(_) if node.site.pass == Pass::Forward => {
                        assert!(!elems.contains(&Elem::Bf16), "%{n} of {flow}");
                    }
                    _ => {}
                }
            }
            assert!(
                graph
                    .outputs()
                    .iter()
                    .all(|(_, v)| graph.ty(*v).elem == Elem::Real)
            );
        }
    }
}

/// A kernel reads queries, keys and values of one type: where the columns of one of them are odd, all stay f32.
#[test]
fn attention_with_odd_keys_or_values_is_not_rounded() {
    let (_, text) = model("lie(att, ffn)", 2, "store;  precision bf16");
    for attention in [
        "attention(heads: 4, kv_heads: 1, causal)",
        "attend(linear, linear, linear(6), heads: 2, causal) |> linear",
        "attend(linear, linear(6), linear(5), heads: 2, causal) |> linear",
        "attend(linear, linear(6), linear(2), heads: 2, causal) |> linear",
    ] {
        let text = text.replace("attention(heads: 2, causal, rope)", attention);
        assert!(text.contains(attention), "{text}");
        let built = built(&text);
        let even = !(attention.contains("kv_heads") || attention.contains("(5)"));
        let wanted = if even { Elem::Bf16 } else { Elem::Real };
        let decode = built.decode.as_ref().expect("it decodes");
        for graph in [&built.forward, &built.grad, decode] {
            let graph = run_graph_passes(graph, BF16).unwrap();
            for (_, node) in graph.nodes() {
                let count = match &node.op {
                    OpKind::Attention(_) | OpKind::CachedAttention(_) => 3,
                    OpKind::AttentionBackward(_) => 4,
                    _ => continue,
                };
                let read = node.operands[..count].iter();
                let elems: Vec<Elem> = read.map(|v| graph.ty(*v).elem).collect();
                assert_eq!(elems, vec![wanted; count], "{attention}");
            }
        }
    }
}

/// An odd number of columns has no place in a cache of half words: attention stays f32, everywhere alike.
#[test]
fn attention_of_odd_width_is_not_rounded() {
    let (_, text) = model("lie(att, ffn)", 2, "store;  precision bf16");
    let text = text
        .replace("width: 12", "width: 9")
        .replace("heads: 2, causal, rope", "heads: 3, causal");
    let built = built(&text);
    let decode = run_graph_passes(built.decode.as_ref().expect("it decodes"), BF16).unwrap();
    let elems = |op: fn(&OpKind) -> bool| -> Vec<Elem> {
        let found = decode.nodes().filter(|(_, n)| op(&n.op));
        found.map(|(_, n)| n.types[0].elem).collect()
    };
    assert_eq!(elems(|op| matches!(op, OpKind::Cache(_))), [Elem::Real; 4]);
    assert!(elems(|op| matches!(op, OpKind::MatMul(_))).len() > 4);
    let manifest = assembled(&built, &text);
    bits(&manifest);
}

/// The program against its graph in f64, with the same roundings: they differ where a sum in f32 and one in f64 lie on two
/// sides of a tie.
#[test]
fn programs_mean_their_rounded_graphs() {
    let (built, text) = model("rk4(layer)", 2, "store;  precision bf16");
    let manifest = assembled(&built, &text);
    let mut e = executor(&manifest);
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let graph = run_graph_passes(&built.grad, BF16).unwrap();
    let want = interp::run(&graph, &f, AT).unwrap();
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let loss = e
        .run("grad", AT, &inputs, &[])
        .unwrap()
        .scalar("loss")
        .unwrap();
    close("loss", &[loss as f32], &want["loss"].data, 1e-4);
    for p in manifest.params {
        let first = p.offset as usize / 4;
        let want = &want[&format!("grad.{}", p.path)].data;
        let got = &e.state(State::Grads).f32()[first..first + want.len()];
        close(&p.path, got, want, 2e-2);
    }
}

/// Losses of 30 steps on one text.
fn train(precision: &str) -> Vec<f64> {
    let (manifest, _) = planned(
        "lie(att, ffn)",
        2,
        &format!("store;  precision {precision}"),
        Fusion::On,
    );
    let mut e = executor(&manifest);
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let step = |t: i32| {
        let loss = e
            .run("grad", AT, &inputs, &[])
            .unwrap()
            .scalar("loss")
            .unwrap();
        let bias = |beta: f64| 1.0 / (1.0 - beta.powi(t));
        let scalars = [
            (named::LR, 1e-2),
            (named::BIAS1, bias(0.9)),
            (named::BIAS2, bias(0.95)),
        ];
        e.run("update", AT, &[], &scalars).unwrap();
        loss
    };
    (1..=30).map(step).collect()
}

#[test]
fn training_in_bf16_follows_training_in_f32() {
    let (half, full) = (train("bf16"), train("f32"));
    assert!(half[29] < half[0] / 2.0, "{half:?}");
    for (t, (h, f)) in half.iter().zip(&full).enumerate() {
        assert!((h - f).abs() <= 0.02 * full[0], "step {t}: {h} and {f}");
    }
    assert!(half != full);
}

/// Weights are rounded while they are packed, into panels of half the size; no copy of them is made.
#[test]
fn weights_are_rounded_while_they_are_packed() {
    use odec_program::{KernelSpec, Slot};
    let (manifest, _) = planned("lie(att, ffn)", 2, "store;  precision bf16", Fusion::On);
    let p = &manifest.program;
    let mut packs = 0;
    for i in &p.entries["prepare"].instrs {
        let KernelSpec::Pack(k) = &p.kernels[i.kernel as usize].spec else {
            panic!("`prepare` only packs")
        };
        assert_eq!((k.from, k.dtype), (DType::F32, DType::Bf16));
        assert_eq!(i.operands[0].slot, Slot::Params);
        packs += 1;
    }
    assert!(packs > 8, "{packs}");
}

/// What copies to tensor cores cannot round is stored rounded, and a contraction stores what is only rounded as that.
#[test]
fn on_gpus_every_factor_is_stored_in_bf16() {
    let (_, text) = model("lie(att, ffn)", 2, "store;  precision bf16");
    // Wide enough for tensor cores.
    let text = text.replace("width: 12", "width: 64");
    let built = built(&text);
    for target in Target::GPUS {
        let options = Options::of(target, DType::F32);
        let assembled = assemble(&ModelParts::new(&built, &text), options).unwrap();
        let kernels = assembled.manifest.program.kernels.iter();
        let on_tensor_cores = kernels.filter_map(|k| match &k.spec {
            KernelSpec::Contract(c) if tensor::contract::runs(c) => Some(c),
            _ => None,
        });
        let all: Vec<&Contract> = on_tensor_cores.collect();
        assert!(all.len() > 3, "{target}: {}", all.len());
        let stored = |c: &&Contract| (c.a, c.b) == (DType::Bf16, DType::Bf16);
        assert!(all.iter().all(stored), "{target}");
        assert!(all.iter().any(|c| c.rounds), "{target}");
        // Gradients of weights have few tiles here.
        let parted = |c: &&Contract| c.parts != Parts::ONE;
        assert_eq!(all.iter().any(parted), target == Target::Sm90a);
    }
}
