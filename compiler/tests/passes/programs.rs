//! What planned programs look like: listings, numbers of kernels, memory.

use crate::source::built;
use crate::systems::{Decoder, SYSTEMS, Shape, System, options};
use odec_compiler::model::Built;
use odec_compiler::passes::{assemble, build_manifest, print};
use odec_compiler::text::number::bytes;
use odec_library::shipped;
use odec_program::{Bindings, Program};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn a_two_step_prenorm_decoder() {
    let d = Decoder::new(Shape::tiny(System::Prenorm));
    let a = assemble(&d.model(), options()).unwrap();
    // Scratch is the kernels' business.
    let text = print::program(&a.manifest, &a.memory);
    let lines = text
        .lines()
        .map(|l| l.split(", scratch ").next().unwrap_or(l));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn kernels_do_not_grow_with_depth_and_are_few() {
    let mut counts = String::new();
    for system in SYSTEMS {
        let made = |steps| {
            let d = Decoder::new(Shape {
                steps,
                ..Shape::tiny(system)
            });
            assemble(&d.model(), options()).unwrap().manifest.program
        };
        let (shallow, deep) = (made(2), made(8));
        let symbols = |p: &Program| {
            p.kernels
                .iter()
                .map(|k| k.symbol.clone())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(symbols(&shallow), symbols(&deep), "{system:?}");

        let grad: BTreeSet<u32> = shallow.entries["grad"]
            .instrs
            .iter()
            .map(|i| i.kernel)
            .collect();
        assert!(grad.len() <= 60, "{system:?}: {}", grad.len());
        let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
        for k in grad.iter().map(|k| &shallow.kernels[*k as usize]) {
            *kinds.entry(k.spec.kind()).or_default() += 1;
        }
        counts += &format!(
            "{system:?}: {} in all, {} in grad: {kinds:?}\n",
            shallow.kernels.len(),
            grad.len()
        );
    }
    insta::assert_snapshot!(counts);
}

/// A model of the library, built.
pub fn library(name: &str) -> (String, Built) {
    let text = shipped::text(name);
    (text.to_string(), built(text))
}

#[test]
fn the_five_architectures() {
    let mut out = String::new();
    for name in ["prenorm", "macaron", "rk2", "rk4_layer", "iiet"] {
        let (source, built) = library(name);
        let a = build_manifest(&built, &source, options()).unwrap();
        odec_runtime::Artifact::in_memory(a.manifest.clone()).expect("the manifest is consistent");
        let p = &a.manifest.program;
        out += &format!(
            "{name}: {} kernels, parameters {}\n",
            p.kernels.len(),
            bytes(p.param_bytes)
        );
        for m in &a.memory {
            let e = &p.entries[&m.entry];
            out += &format!(
                "  {}: {} launches, arena {}, side by side {}, busiest launch {}\n",
                m.entry,
                e.instrs.len(),
                bytes(m.arena),
                bytes(m.unshared),
                bytes(m.lower_bound)
            );
        }
    }
    insta::assert_snapshot!(out);
}

#[test]
fn the_same_model_gives_the_same_artifact() {
    let made = || {
        let d = Decoder::new(Shape::tiny(System::Rk4));
        serde_json::to_string(&assemble(&d.model(), options()).unwrap().manifest).unwrap()
    };
    assert!(made() == made());
}

#[test]
fn a_model_that_does_not_fit_into_memory_is_refused() {
    let message = |batch| {
        let d = Decoder::new(Shape {
            maxima: Bindings::new(batch, 1 << 20),
            ..Shape::tiny(System::Prenorm)
        });
        assemble(&d.model(), options()).unwrap_err().to_string()
    };
    insta::assert_snapshot!([1 << 16, u64::MAX].map(message).join("\n"));
}
