//! Equations solved to a tolerance: gradients are those of long unrolled iterations, tokens see nothing later, memory does not
//! grow with the iterations.

use crate::numbers::{executor, feeds, tokens};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_graph::interp::{self, Tensor};
use odec_program::Bindings;
use odec_program::manifest::Manifest;
use odec_runtime::{Reader, Value};
use std::collections::BTreeMap;

const AT: Bindings = Bindings::new(2, 6);

/// Backward differences, two stages and an equation, each solved as `by` says.
const METHODS: [(&str, &str); 3] = [
    (
        "bdf",
        "scheme bdf(F) { multistep { alpha 1 -4/3 1/3; beta 2/3 };  start by euler;  solve by BY }",
    ),
    (
        "stages",
        "scheme stages(F) { let q = sqrt(3)/6
           tableau { (1/2 - q) | 1/4 (1/4 - q)
                     (1/2 + q) | (1/4 + q) 1/4
                               | 1/2 1/2 }
           solve by BY }",
    ),
    (
        "equation",
        "scheme equation(F) { step x { e = F(x)  solve z = x + h*F(z + h*e) from x by BY  return z + e } }",
    ),
];

fn built(scheme: (&str, &str), by: &str, memory: &str) -> (Built, String) {
    let (name, text) = scheme;
    let text = format!(
        "{}\nfield att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 12)\n\
         field layer = increment(lie(att, ffn))\n\
         model small {{\n  input tokens(vocab: 256, context: 64)\n  embed learned(width: 8)\n  \
         evolve {name}(layer) for 2 steps {{ h = 1/64 }}\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.3) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  memory {memory} }}\n",
        text.replace("BY", by)
    );
    (source::built(&text), text)
}

fn manifest(scheme: (&str, &str), by: &str, memory: &str) -> (Manifest, u64) {
    let (built, text) = built(scheme, by, memory);
    let assembled = build_manifest(&built, &text, options()).unwrap();
    let memory = assembled.memory.iter().find(|m| m.entry == "grad").unwrap();
    let arena = memory.arena;
    (assembled.manifest, arena)
}

/// Parameters, which do not depend on how a scheme is solved, and a text.
fn given(scheme: (&str, &str)) -> BTreeMap<String, Tensor> {
    let (m, _) = manifest(scheme, "fixed_point(iterations: 0)", "store");
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    feeds(&executor(&m), AT, &[("tokens", &x), ("targets", &y)])
}

/// Loss and gradients in f64.
fn gradient(scheme: (&str, &str), by: &str, feeds: &BTreeMap<String, Tensor>) -> Vec<f64> {
    let (built, _) = built(scheme, by, "store");
    let found = interp::run(&built.grad, feeds, AT).unwrap();
    found.into_values().flat_map(|t| t.data).collect()
}

/// The largest difference, over the largest number.
fn off(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let off = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    off.fold(0.0, f64::max) / scale
}

#[test]
fn gradients_of_solutions_are_those_of_long_iterations() {
    for scheme in METHODS {
        let given = given(scheme);
        let long = gradient(scheme, "fixed_point(iterations: 16)", &given);
        for (by, within) in [
            (
                "anderson(memory: 4, tol: 1e-12, max: 12) gradient implicit",
                1e-8,
            ),
            ("anderson(memory: 2, tol: 1e-12, max: 12)", 1e-8),
            (
                "broyden(memory: 4, tol: 1e-12, max: 14) gradient implicit",
                1e-8,
            ),
            ("broyden(memory: 3, tol: 1e-12, max: 14)", 1e-8),
            ("fixed_point(tol: 1e-13, max: 16) gradient implicit", 1e-8),
            ("fixed_point(iterations: 16) gradient implicit", 1e-8),
            ("fixed_point(iterations: 16) gradient phantom(15)", 1e-8),
            (
                "anderson(memory: 3, tol: 1e-12, max: 12) gradient phantom(15)",
                1e-8,
            ),
            ("fixed_point(iterations: 16) gradient last(15)", 1e-8),
        ] {
            let found = off(&gradient(scheme, by, &given), &long);
            assert!(found < within, "{} by {by}: {found:e}", scheme.0);
        }
        // Short ones are something else.
        for by in ["phantom(1)", "last(2)"] {
            let by = format!("fixed_point(iterations: 16) gradient {by}");
            let found = off(&gradient(scheme, &by, &given), &long);
            assert!(found > 1e-6, "{} by {by}: {found:e}", scheme.0);
        }
    }
}

/// One plain iteration after the solution is the last one of one more.
#[test]
fn the_last_iteration_is_a_phantom() {
    let equation = METHODS[2];
    let given = given(equation);
    let gradient = |by: &str| gradient(equation, by, &given);
    let phantom = gradient("fixed_point(iterations: 7) gradient phantom(2)");
    let last = gradient("fixed_point(iterations: 9) gradient last(2)");
    assert_eq!(phantom, last);
    // All of them are the whole iteration.
    let all = gradient("fixed_point(iterations: 9) gradient last(9)");
    let unrolled = gradient("fixed_point(iterations: 9)");
    assert_eq!(all, unrolled);
}

const IMPLICIT: &str = "anderson(memory: 3, tol: 1e-3, max: 9) gradient implicit";

/// The logits of a token depend neither on later tokens nor on other texts, in any bit, and a text can be read in pieces.
#[test]
fn tokens_are_solved_for_themselves() {
    let broyden = IMPLICIT.replace("anderson", "broyden");
    let all = METHODS.map(|scheme| (scheme, IMPLICIT));
    for (scheme, by) in all.into_iter().chain([(METHODS[1], &broyden[..])]) {
        let (m, _) = manifest(scheme, by, "store");
        let mut e = executor(&m);
        let logits = |e: &mut odec_runtime::Executor, at: Bindings, x: &[i32]| -> Vec<u32> {
            let out = e.run("forward", at, &[("tokens", Value::I32(x))], &[]);
            let out = out.unwrap();
            let logits = out.reals("logits").unwrap();
            assert!(logits.f32().iter().all(|x| x.is_finite()), "{}", scheme.0);
            logits.f32().iter().map(|x| x.to_bits()).collect()
        };
        let x = tokens(AT, 256, 1);
        let both = logits(&mut e, AT, &x);
        let one = Bindings::new(1, 6);
        let alone = logits(&mut e, one, &x[..6]);
        assert!(both[..alone.len()] == alone, "{}: another text", scheme.0);
        let mut changed = x[..6].to_vec();
        changed[4] += 1;
        let changed = logits(&mut e, one, &changed);
        assert!(
            changed[..4 * 256] == alone[..4 * 256],
            "{}: later",
            scheme.0
        );
        assert!(changed[4 * 256..5 * 256] != alone[4 * 256..5 * 256]);
        let mut reader = Reader::new(&mut e).unwrap();
        let (mut pieces, mut past) = (Vec::new(), 0);
        for n in [2, 1, 3] {
            let read = reader.read(&x[past..past + n]).unwrap();
            pieces.extend(read.f32().iter().map(|x| x.to_bits()));
            past += n;
        }
        assert!(pieces == alone, "{}: in pieces", scheme.0);
    }
}

/// What the gradient does not pass through is not kept, and revolving changes no bit.
#[test]
fn memory_does_not_grow_with_the_iterations() {
    for scheme in METHODS {
        let arena = |max: usize, gradient: &str| {
            let by = format!("anderson(memory: 3, tol: 1e-3, max: {max}) gradient {gradient}");
            manifest(scheme, &by, "store").1
        };
        let (few, many) = (arena(5, "implicit"), arena(20, "implicit"));
        assert!(
            many <= few + few / 20,
            "{}: {few} and {many} bytes",
            scheme.0
        );
        assert!(arena(10, "unroll") > 3 * many / 2, "{}", scheme.0);
    }
    let bits = |memory: &str| -> Vec<u32> {
        let (m, _) = manifest(METHODS[2], IMPLICIT, memory);
        let mut e = executor(&m);
        let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
        let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        e.run("grad", AT, &inputs, &[]).unwrap();
        let grads = e.state(odec_runtime::State::Grads);
        assert!(grads.f32().iter().all(|x| x.is_finite()));
        grads.f32().iter().map(|x| x.to_bits()).collect()
    };
    assert!(bits("store") == bits("revolve(slots: 1)"));
}
