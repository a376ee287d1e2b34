//! Costs as JSON.

use super::{Cost, Operations, UnderPolicy};
use crate::model::Capacity;
use crate::scheme::work::fields_json;
use serde_json::{Value, json};

/// One object.
pub fn json(c: &Cost) -> Value {
    let per_token = |of: Operations| c.per_token(of);
    let evolves: Vec<Value> = c
        .evolves
        .iter()
        .map(|e| {
            let steps: Vec<Value> = e
                .each
                .iter()
                .map(|(times, w)| json!({ "times": times, "step": w.json() }))
                .collect();
            json!({
                "label": e.label, "at_most": e.at_most, "steps": steps, "evaluations": e.evaluations, "depth": e.depth,
                "fields": fields_json(&e.fields),
            })
        })
        .collect();
    let policy = |p: &UnderPolicy| {
        json!({
            "policy": p.memory.to_string(), "activation_bytes": p.activations, "replayed_steps": p.replayed,
            "again_flops_per_token": per_token(p.again),
            "training_flops_per_token": per_token(p.training) / c.batch as f64, "own": p.memory == c.own,
        })
    };
    let capacity = |m: &Capacity| json!({ "router": m.router, "tokens": m.tokens, "experts": m.experts, "top_k": m.top_k });
    json!({
        "capacities": c.capacities.iter().map(capacity).collect::<Vec<_>>(),
        "evolves": evolves, "evaluations": c.evaluations(), "depth": c.depth(),
        "embedding_parameters": c.parameters.embedding, "other_parameters": c.parameters.other,
        "context": c.context, "source": (c.source > 0).then_some(c.source),
        "of": c.unit.many(), "batch": c.batch,
        "flops_per_token": {
            "forward": per_token(c.forward), "backward": per_token(c.backward),
            "prefill": per_token(c.prefill),
            "forward_even": c.even.map(|e| per_token(e.forward)),
            "backward_even": c.even.map(|e| per_token(e.backward)),
            "prefill_even": c.even.map(|e| per_token(e.prefill)),
            "forward_drawn": c.drawn.map(|d| per_token(d.forward)),
            "backward_drawn": c.drawn.map(|d| per_token(d.backward)),
            "decode_first": c.decode.map(|d| d.first.flops()), "decode_last": c.decode.map(|d| d.last.flops()),
        },
        "memory": c.policies.iter().map(policy).collect::<Vec<_>>(),
        "cache_bytes_per_token": c.decode.map(|d| d.bytes_per_token),
        "window_bytes": c.decode.map(|d| d.window_bytes),
        "carried_bytes": c.decode.map(|d| d.carried_bytes),
    })
}
