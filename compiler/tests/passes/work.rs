//! The work of the passes grows as the graph does: comparisons for models of two depths, counted.

use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_grammar::work;

/// What planning all entries of a model takes, and the nodes of its gradient.
fn planned(flow: &str, steps: u64, weights: &str) -> (u64, u64) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\nfield ffn = rmsnorm |> swiglu(hidden: 8)\nfield both = att + ffn + att\n\
         model m {{ input tokens(vocab: 9, context: 8)\n embed learned(width: 8)\n evolve {flow} for {steps} steps {{ weights {weights} }}\n output logits(tied) }}\n"
    );
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
