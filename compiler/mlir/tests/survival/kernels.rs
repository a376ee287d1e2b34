//! Damaged kernels through the code generator: its emitters, MLIR and LLVM.

use crate::manifests;
use crate::mutate::{self, Stream};
use crate::worker::Verdict;
use odec_program::{Kernel, KernelSpec, Target};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const TARGETS: [Target; 7] = [
    Target::Avx2,
    Target::Sm90a,
    Target::Portable,
    Target::Avx512,
    Target::Amx,
    Target::Avx512Bf16,
    Target::Sm80,
];
/// Cases of a target before the next one's turn: the suite's part needs the kernels of few.
const TURN: usize = 4;

/// Distinct kernels of a target, by kind, so that kinds of which there are few are tried as often.
type Kinds = BTreeMap<&'static str, Vec<Json>>;

fn good(n: usize) -> &'static Kinds {
    static GOOD: [OnceLock<Kinds>; 7] = [const { OnceLock::new() }; 7];
    GOOD[n].get_or_init(|| {
        let mut kinds = Kinds::new();
        for spec in manifests::kernels(TARGETS[n]) {
            let json = serde_json::to_value(&spec).unwrap();
            let all = kinds.entry(spec.kind()).or_default();
            if !all.contains(&json) {
                all.push(json);
            }
        }
        // GPUs pack nothing.
        let wanted = KernelSpec::KINDS
            .iter()
            .filter(|k| **k != "pack" || !TARGETS[n].is_gpu());
        let missing = wanted.filter(|k| !kinds.contains_key(*k));
        assert_eq!(
            missing.collect::<Vec<_>>(),
            [] as [&&str; 0],
            "{}",
            TARGETS[n]
        );
        kinds
    })
}

pub fn run(case: u64) -> Verdict {
    let s = &mut Stream::new("kernels", case);
    let n = case as usize / TURN % TARGETS.len();
    let kinds: Vec<&Vec<Json>> = good(n).values().collect();
    let spec = std::iter::repeat_with(|| damaged(&kinds, s)).find_map(Result::ok);
    let spec = spec.expect("some damage leaves a specification");
    let symbol = spec.symbol();
    let kernel = Kernel {
        symbol: symbol.clone(),
        spec,
    };
    match odec_mlir::compile(&[kernel], TARGETS[n], None) {
        Ok(_) => Verdict::Ran,
        Err(e) => Verdict::refused(e, symbol),
    }
}

/// A damaged kernel, where what is left can be read as one.
fn damaged(kinds: &[&Vec<Json>], s: &mut Stream) -> serde_json::Result<KernelSpec> {
    let kind = s.pick(kinds);
    let mut json = s.pick(kind).clone();
    (0..=s.below(3)).for_each(|_| mutate::value(&mut json, s));
    // As it is read from files: some numbers are others in a value.
    serde_json::from_slice(&serde_json::to_vec(&json)?)
}
