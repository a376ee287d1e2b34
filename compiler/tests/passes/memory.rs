//! Memory policies: what is computed again has the same bits, takes the planned memory, and as many replays as theory says.

use crate::numbers::{self, executor};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::assemble::gradient as gradient_entry;
use odec_compiler::passes::revolve::replays;
use odec_compiler::passes::{ModelParts, Policy, budget, build_manifest, run_graph_passes};
use odec_graph::OpKind;
use odec_program::Bindings;
use odec_program::manifest::Memory;

pub const AT: Bindings = Bindings::new(2, 6);

pub fn model(flow: &str, steps: u64, policy: &str) -> (Built, String) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 20)\n\
         field layer = increment(lie(att, ffn))\n\
         scheme own(F) {{ learn b = 1/2  step x {{ k1 = F(x)  k2 = F(x + h*b*k1)  return x + h*(1 - b)*k1 + h*b*k2 }} }}\n\
         model small {{\n  input tokens(vocab: 256, context: 64)\n  embed learned(width: 12)\n  \
         evolve {flow} for {steps} steps {{ h = 1/2 }}\n  output rmsnorm |> logits(tied)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  memory {policy} }}\n"
    );
    (source::built(&text), text)
}

/// Bits of loss and gradients, and bytes of the arena.
fn gradient(flow: &str, steps: u64, policy: &str) -> (Vec<u64>, u64) {
    let (built, text) = model(flow, steps, policy);
    let assembled = build_manifest(&built, &text, options()).unwrap();
    let memory = assembled.memory.iter().find(|m| m.entry == "grad").unwrap();
    let bits = numbers::gradient(&mut executor(&assembled.manifest), AT, 11);
    (bits, memory.arena)
}

#[test]
fn revolving_changes_no_bit_and_saves_memory() {
    for flow in [
        "lie(att, ffn)",
        "rk4(layer)",
        "iie(layer, r: 2)",
        "own(layer)",
        "pcformer(layer, m: 3)",
        "dlcl(layer, layernorm)",
    ] {
        let (stored, all) = gradient(flow, 9, "store");
        let mut arenas = vec![all];
        for slots in [9, 4, 2, 1] {
            let (revolved, arena) = gradient(flow, 9, &format!("revolve(slots: {slots})"));
            assert!(stored == revolved, "{flow}, {slots} slots: other bits");
            arenas.push(arena);
        }
        // Fewer states never take more, but for what best fit leaves between them; with a history all states cross anyway.
        assert!(
            arenas
                .windows(2)
                .all(|w| w[1] <= w[0] + w[0] / 10 && w[1] < all / 2),
            "{flow}: {arenas:?}"
        );
    }
}

#[test]
fn steps_are_replayed_as_often_as_theory_says() {
    for (steps, slots) in [(1, 1), (2, 1), (5, 1), (10, 3), (12, 4), (7, 7), (6, 20)] {
        let (built, _) = model("lie(att, ffn)", steps, "store");
        let policy = Policy {
            memory: Memory::Revolve { slots },
            ..Policy::default()
        };
        let graph = run_graph_passes(&built.grad, policy).unwrap();
        let evaluations = graph
            .nodes()
            .filter(|(_, n)| matches!(n.op, OpKind::Attention(_)))
            .count() as u64;
        assert_eq!(
            evaluations,
            steps + replays(steps, slots),
            "{steps} steps, {slots} slots"
        );
    }
}

/// A budget is kept to, and no slot more would.
#[test]
fn budgets_choose_the_most_that_fits() {
    let (flow, steps) = ("rk4(layer)", 9);
    let arena = |memory| {
        let (built, text) = model(flow, steps, "store");
        let model = ModelParts::new(&built, &text);
        gradient_entry(&model, options(), memory, Default::default())
            .unwrap()
            .unwrap()
            .0
            .arena_bytes
    };
    let settled = |bytes: u64| {
        let (mut built, _) = model(flow, steps, &format!("budget({bytes})"));
        let settled = budget::resolve(&mut built, options()).unwrap();
        settled.map(|()| built.train.unwrap().memory)
    };
    let revolve = |slots| Memory::Revolve { slots };
    let stored = arena(Memory::Store);
    assert_eq!(settled(stored), Ok(Memory::Store));
    for slots in [2, 5] {
        let bytes = arena(revolve(slots));
        let Ok(Memory::Revolve { slots: most }) = settled(bytes) else {
            panic!("{bytes} bytes are enough for {slots} slots");
        };
        assert!(most >= slots && arena(revolve(most)) <= bytes);
        // As many slots as steps keep no more than storing does.
        assert!(
            most + 1 == steps || arena(revolve(most + 1)) > bytes,
            "{most} slots in {bytes}"
        );
    }
    let refused = settled(1 << 10).unwrap_err();
    let label = &refused.labels[0].text;
    assert_eq!(
        refused.message,
        "no memory policy of this model fits into 1.0 KiB"
    );
    assert!(
        label.starts_with("the least is ") && label.contains("with `revolve(slots: "),
        "{label}"
    );
    let (built, _) = model(flow, steps, "budget(0.25 MiB)");
    assert_eq!(built.named.budget.unwrap().0, 1 << 18);
}
