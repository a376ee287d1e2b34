//! Weights in integers: which they are, what they take, what they mean, and what is refused.

use crate::library::reads_together;
use crate::numbers::{close, executor, feeds, tokens};
use crate::source::built;
use odec_compiler::passes::{Options, Policy, assemble::Assembled, build_manifest};
use odec_graph::interp;
use odec_program::kernel::{KernelSpec, Layout, Signature};
use odec_program::manifest::{Manifest, Precision};
use odec_program::{Bindings, DType, EntryId, Quantized, Slot, Target};
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::infer::quantized::{Integers, with_parameters_of};
use odec_runtime::profile::reading::Reading;
use odec_runtime::{Artifact, State, Value};

/// Inner lengths of 64 and 96, whole groups; widths that are whole panels.
fn planned(ffn: &str, train: &str, weights: Option<Quantized>) -> Assembled {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\nfield ffn = rmsnorm |> {ffn}\n\
         model m {{\n  input tokens(vocab: 256, context: 40)\n  embed learned(width: 64)\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.2)\n}}\n\
         train {{\n  data text(\"x\", tokenizer: bytes)\n  batch 2\n  steps 1\n  optimizer adamw(lr: 1e-3)\n  {train}\n}}\n"
    );
    let options = Options {
        weights,
        ..Options::of(Target::Portable, DType::F32)
    };
    build_manifest(&built(&text), &text, options).unwrap()
}

const FFN: &str = "swiglu(hidden: 96)";

fn signatures(m: &Manifest) -> Vec<Signature> {
    let kernels = m.program.kernels.iter();
    kernels.map(|k| k.spec.signature()).collect()
}

fn specs(m: &Manifest, entry: EntryId) -> Vec<&KernelSpec> {
    let instrs = m.program.entries[&entry].instrs.iter();
    let spec = |n: u32| &m.program.kernels[n as usize].spec;
    instrs.map(|i| spec(i.kernel)).collect()
}

#[test]
fn generation_reads_integers_and_training_does_not() {
    let plain = planned(FFN, "", None).manifest;
    for (q, share) in [(Quantized::INT8, 17), (Quantized::INT4, 9)] {
        let m = planned(FFN, "", Some(q)).manifest;
        assert_eq!(m.params, plain.params);
        assert_eq!(specs(&m, EntryId::Grad), specs(&plain, EntryId::Grad));
        for entry in [
            EntryId::Decode,
            EntryId::Extend,
            EntryId::Forward,
            EntryId::Loss,
        ] {
            let layouts = specs(&m, entry).into_iter().filter_map(|k| match k {
                KernelSpec::Contract(c) => Some(c.layout),
                _ => None,
            });
            let layouts: Vec<Layout> = layouts.collect();
            assert!(layouts.len() > 12, "{entry}");
            assert!(
                layouts.iter().all(|l| *l == Layout::Quantized(q)),
                "{entry}"
            );
        }
        // The embedding's rows, which tokens choose, are those of the parameter.
        let gather = m.program.entries[&EntryId::Decode].instrs.iter().find(|i| {
            let spec = &m.program.kernels[i.kernel as usize].spec;
            matches!(spec, KernelSpec::Gather(_)) && i.operands[1].slot == Slot::Params
        });
        assert!(gather.is_some());

        let all = Integers::of(&m.program, &signatures(&m)).expect("there are some");
        assert_eq!(
            (all.of, all.matrices, all.others, all.grouped),
            (q, 15, 0, false)
        );
        assert_eq!(all.bytes, all.reals * share / 64);
        let read =
            |m: &Manifest| Reading::of(&m.program, &signatures(m), &[9]).expect("it generates");
        let (read, before) = (read(&m), read(&plain));
        assert_eq!(before.weights - read.weights, all.reals - all.bytes);
        assert_eq!(before.kept, read.kept);
    }
}

/// The interpreter computes the graph with what the integers stand for, in f64.
#[test]
fn integers_mean_what_the_interpreter_says() {
    for (q, train, within) in [
        (Quantized::INT8, "", 1e-4),
        (Quantized::INT4, "", 1e-4),
        (Quantized::INT8, "precision bf16", 3e-2),
    ] {
        let planned = planned(FFN, train, Some(q));
        let policy = Policy {
            precision: match train {
                "" => Precision::F32,
                _ => Precision::Bf16,
            },
            weights: Some(q),
            ..Policy::default()
        };
        let graph = planned.graphs.get(EntryId::Forward, policy).unwrap();
        let m = &planned.manifest;
        let mut e = executor(m);
        let at = Bindings::new(2, 19);
        let x = tokens(at, 256, 1);
        let want = interp::run(graph, &feeds(&e, at, &[("tokens", &x)]), at).unwrap();
        let got = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
        let got = got.unwrap().reals("logits").unwrap().f32().to_vec();
        close(&format!("{q}, {train}"), &got, &want["logits"].data, within);
        reads_together(&format!("{q}, {train}"), m, &mut e);
    }
}

/// Matrices that tokens choose stay as they are, and it is said.
#[test]
fn matrices_of_experts_stay_as_they_are() {
    let m = planned(
        "moe(experts: 4, top_k: 2, hidden: 32)",
        "",
        Some(Quantized::INT8),
    )
    .manifest;
    let all = Integers::of(&m.program, &signatures(&m)).expect("there are some");
    assert!(all.grouped && all.matrices >= 9, "{all:?}");
    reads_together("a mixture", &m, &mut executor(&m));
}

#[test]
fn parameters_that_are_no_numbers_are_named() {
    let plain = planned(FFN, "", None).manifest;
    let m = planned(FFN, "", Some(Quantized::INT8)).manifest;
    let mut x = executor(&plain);
    let artifact = Artifact::in_memory(m.clone()).unwrap();
    let device = || Box::new(ReferenceDevice::new(&m.program.kernels));
    let mut y = with_parameters_of(&mut x, &artifact, device()).unwrap();
    let all = |x: &odec_runtime::Executor| x.state(State::Params).f32().to_vec();
    assert_eq!(all(&y), all(&x));
    y.run("prepare", Bindings::new(1, 1), &[], &[]).unwrap();
    assert_eq!(all(&y), all(&x), "parameters stay as they are");
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        let p = plain
            .params
            .iter()
            .find(|p| p.path == "step.1.att.k.weight");
        let first = p.expect("it has keys").offset as usize / 4;
        x.state_mut(State::Params).f32()[first + 5] = bad;
        let refused = with_parameters_of(&mut x, &artifact, device())
            .err()
            .unwrap();
        let want = "parameter step.1.att.k.weight holds an infinity or a NaN";
        assert!(refused.to_string().starts_with(want), "{refused}");
    }
    let other = Artifact::in_memory(planned("swiglu(hidden: 32)", "", None).manifest).unwrap();
    let refused = with_parameters_of(&mut x, &other, device()).err().unwrap();
    assert!(
        refused.to_string().contains("are not those of the model"),
        "{refused}"
    );
}

/// What a crafted artifact may say of integers and scales.
#[test]
fn wrong_integers_are_refused() {
    let good = planned(FFN, "", Some(Quantized::INT8)).manifest;
    assert!(Artifact::in_memory(good.clone()).is_ok());
    let refused = |m: Manifest| Artifact::in_memory(m).err().expect("refused").to_string();
    // Every kernel that packs, or multiplies, with other integers.
    let changed = |packs: bool, q: Quantized| {
        let mut m = good.clone();
        for k in &mut m.program.kernels {
            match &mut k.spec {
                KernelSpec::Pack(p) if packs && p.quantized.is_some() => p.quantized = Some(q),
                KernelSpec::Contract(c) if !packs => match &mut c.layout {
                    Layout::Quantized(of) => *of = q,
                    _ => continue,
                },
                _ => continue,
            }
            k.symbol = k.spec.symbol();
        }
        m
    };
    let int = |bits, group| Quantized { bits, group };
    for packs in [true, false] {
        for (q, want) in [
            (int(3, 32), "its integers have 3 bits, in groups of 32"),
            (int(8, 0), "its integers have 8 bits, in groups of 0"),
            (int(8, 1 << 20), "in groups of 1048576"),
        ] {
            let said = refused(changed(packs, q));
            assert!(said.contains(want), "{said}");
        }
        // A scale for each number, for which nobody has made room.
        let said = refused(changed(packs, int(8, 1)));
        assert!(said.contains("leaves its slot"), "{said}");
    }
    let said = refused(changed(false, int(8, 96)));
    assert!(said.contains("not whole groups of 96"), "{said}");
    let mut m = good.clone();
    m.program.prepared_bytes -= 64;
    let said = refused(m);
    assert!(said.contains("leaves its slot (Prepared"), "{said}");
    let mut m = good.clone();
    for k in &mut m.program.kernels {
        if let KernelSpec::Pack(p) = &mut k.spec {
            p.dtype = DType::F32;
            k.symbol = k.spec.symbol();
        }
    }
    let said = refused(m);
    assert!(said.contains("is not quantized into panels"), "{said}");
    let mut m = good;
    let entry = m.program.entries.get_mut(&EntryId::Forward).unwrap();
    entry.outputs[0].dtype = DType::I8;
    let said = refused(m);
    assert!(
        said.contains("inputs and outputs must be f32 or f64"),
        "{said}"
    );
}
