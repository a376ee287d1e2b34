//! The work of the passes grows as the graph does: comparisons for models of two depths, counted.

use crate::source::built;
use crate::systems::options;
use odec_compiler::cost;
use odec_compiler::passes::{Options, build_manifest};
use odec_grammar::work;

fn model(flow: &str, steps: u64, weights: &str) -> String {
    format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\nfield ffn = rmsnorm |> swiglu(hidden: 8)\nfield both = att + ffn + att\n\
         model m {{ input tokens(vocab: 9, context: 8)\n embed learned(width: 8)\n evolve {flow} for {steps} steps {{ weights {weights} }}\n output logits(tied) }}\n"
    )
}

/// What planning all entries of a model takes, and the nodes of its gradient.
fn planned(flow: &str, steps: u64, weights: &str) -> (u64, u64) {
    let text = model(flow, steps, weights);
    let built = built(&text);
    let before = work::done();
    build_manifest(&built, &text, options()).unwrap();
    (work::done() - before, u64::from(built.grad.len()))
}

#[test]
fn planning_is_linear_in_depth() {
    for (flow, weights) in [
        ("lie(att, ffn)", "per step"),
        ("lie(att, ffn)", "shared"),
        ("rk4(both)", "shared"),
    ] {
        let (few, nodes) = planned(flow, 8, weights);
        let (more, larger) = planned(flow, 64, weights);
        assert!(
            more * nodes < 2 * few * larger,
            "{flow}, weights {weights}: {few} for {nodes} nodes, {more} for {larger}"
        );
    }
}

/// Iterations of an implicit method all read the state that the step begins with.
#[test]
fn planning_is_linear_in_readers_of_one_value() {
    let (few, nodes) = planned("iie(ffn, r: 40)", 1, "shared");
    let (more, larger) = planned("iie(ffn, r: 320)", 1, "shared");
    assert!(
        more * nodes < 2 * few * larger,
        "{few} for {nodes} nodes, {more} for {larger}"
    );
}

/// Where layers are wider than a piece, each has chunks of its own.
#[test]
fn pieces_are_linear_in_depth() {
    let planned = |steps| {
        let text = model("lie(att, ffn)", steps, "per step").replace("hidden: 8", "hidden: 64");
        let text = text.replace("context: 8", "context: 64");
        let built = built(&text);
        let options = Options {
            piece: 1 << 10,
            ..options()
        };
        let before = work::done();
        let planned = build_manifest(&built, &text, options).unwrap();
        let entries = planned.manifest.program.entries.values();
        let pieces: usize = entries.map(|e| e.pieces.len()).sum();
        assert!(pieces as u64 > steps, "{pieces} pieces in {steps} steps");
        work::done() - before
    };
    let (few, more) = (planned(8), planned(64));
    assert!(more < 16 * few, "{few}, {more}");
}

/// Costs are counted on the graphs that planning has made; only other memory policies are planned besides.
#[test]
fn costs_ask_for_no_pass_again() {
    let counted = |steps| {
        let text = model("lie(att, ffn)", steps, "per step");
        let built = built(&text);
        let planned = build_manifest(&built, &text, options()).unwrap();
        let before = work::done();
        let cost = cost::of_assembled(&built, &planned, options()).unwrap();
        (work::done() - before, cost.policies.len())
    };
    assert_eq!(counted(2), (0, 1));
    let (few, more) = (counted(32), counted(128));
    assert_eq!((few.1, more.1), (2, 2));
    assert!(more.0 < 8 * few.0, "{few:?}, {more:?}");
}

/// Each step of a dense connection reads all steps before it. What is asked of it is as much as it reads, not as much for each of these.
#[test]
fn planning_is_linear_in_what_sums_read() {
    let planned = |steps| {
        let text = model("dlcl(both, layernorm)", steps, "per step");
        let built = built(&text);
        let before = work::done();
        build_manifest(&built, &text, options()).unwrap();
        let read: usize = built.grad.nodes().map(|(_, n)| n.operands.len()).sum();
        (work::done() - before, read as u64)
    };
    // Both reach the limits of a kernel, below which joins look at more as sums grow.
    let (few, read) = planned(48);
    let (more, reads) = planned(96);
    assert!(
        more * read < 2 * few * reads,
        "{few} for {read} operands, {more} for {reads}"
    );
}
