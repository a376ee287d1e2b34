//! Parameters that contractions read in bf16 as they lie: they are the parameters' roundings whenever they are read.

use crate::memory::{AT, model};
use crate::numbers::{executor, results};
use crate::source::built;
use odec_compiler::passes::{ModelParts, Options, assemble};
use odec_program::manifest::Manifest;
use odec_program::{Bindings, Coeff, DType, EntryId, Slot, Target};
use odec_runtime::{Executor, State};
use std::collections::BTreeSet;

fn planned(optimizer: &str, target: Target) -> Manifest {
    let (_, text) = model("lie(att, ffn)", 2, "store;  precision bf16");
    let text = text
        .replace("width: 12", "width: 64")
        .replace("optimizer adamw(lr: 1e-3)", optimizer);
    let options = Options::of(target, DType::F32);
    let model = built(&text);
    let made = assemble(&ModelParts::new(&model, &text), options);
    made.expect("it fits").manifest
}

fn parameters(e: &mut Executor) -> Vec<f32> {
    e.fetch(&[State::Params]).unwrap();
    e.state(State::Params).f32().to_vec()
}

/// Bits of logits, loss and gradients with parameters that this process has just written.
fn fresh(m: &Manifest, parameters: &[f32]) -> Vec<u64> {
    let mut e = executor(m);
    e.state_mut(State::Params).f32().copy_from_slice(parameters);
    results(&mut e, AT, 256)
}

/// Every optimiser keeps them; so do a bound on matrices and an exchange with running means.
#[test]
fn roundings_follow_parameters() {
    for optimizer in [
        "optimizer adamw(lr: 1e-3)",
        "optimizer muon(lr: 1e-3, others: 1e-3)",
        "optimizer adamw(lr: 1e-3);  constrain spectral(max: 1/4)",
        "optimizer adamw(lr: 1e-3);  ema 0.9",
    ] {
        let m = planned(optimizer, Target::Sm90a);
        let mut e = executor(&m);
        e.begin_averages().unwrap();
        let first = results(&mut e, AT, 256);
        let coeffs = m.program.entries[&EntryId::Update].instrs.iter();
        let names: BTreeSet<&str> = coeffs
            .flat_map(|i| &i.coeffs)
            .filter_map(|c| match c {
                Coeff::Named(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let scalars: Vec<(&str, f64)> = names.into_iter().map(|n| (n, 0.1)).collect();
        e.run("update", Bindings::new(1, 1), &[], &scalars).unwrap();
        let after = parameters(&mut e);
        let trained = results(&mut e, AT, 256);
        assert_ne!(trained, first, "{optimizer}");
        assert_eq!(trained, fresh(&m, &after), "{optimizer}");

        e.exchange_averages().unwrap();
        let means = parameters(&mut e);
        assert_eq!(means != after, optimizer.contains("ema"));
        assert_eq!(results(&mut e, AT, 256), fresh(&m, &means), "{optimizer}");
    }
}

/// No step rounds a weight; a processor, which packs them, has no such memory.
#[test]
fn nothing_rounds_a_weight_in_a_step() {
    for target in [Target::Sm80, Target::Sm90a, Target::Avx2] {
        let m = planned("optimizer adamw(lr: 1e-3)", target);
        let program = &m.program;
        let gpu = target.is_gpu();
        assert_eq!(program.entries.contains_key(&EntryId::Round), gpu);
        let bytes = if gpu { program.param_bytes / 2 } else { 0 };
        assert_eq!(program.rounded_bytes(), bytes);
        let kind = |i: &odec_program::Instr| program.kernels[i.kernel as usize].spec.kind();
        for (name, e) in program.entries.iter().filter(|_| gpu) {
            let reads = |i: &&odec_program::Instr| {
                i.operands.iter().any(|o| o.slot == Slot::Params) && kind(i) == "rows"
            };
            // Gains of norms are read as they are.
            let copies = e
                .instrs
                .iter()
                .filter(reads)
                .filter(|i| i.operands.len() == 2);
            let maker = matches!(name, EntryId::Round | EntryId::Update);
            assert!(maker || copies.count() == 0, "{name}");
        }
    }
}
