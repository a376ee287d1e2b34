//! Models of two sequences: what is made of their lines, what fields read of other evolves, and what does not go together, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_compiler::model::Built;
use odec_graph::{OpKind, print};
use odec_program::manifest::Loss;

const MODEL: &str = "field att   = rmsnorm |> attention(heads: 2)
field self  = rmsnorm |> attention(heads: 2, causal)
field cross = rmsnorm |> attention(heads: 2, from: encoder)
field ffn   = rmsnorm |> swiglu(hidden: 12)
model translator {
  input  source: tokens(vocab: 11, context: 20)
  input  tokens(vocab: 11, context: 16)
  embed  source: learned(width: 8), positions(learned)
  evolve encoder: lie(att, ffn) for 2 steps
  embed  learned(width: 8)
  evolve decoder: lie(self, lie(cross, ffn)) for 2 steps
  output rmsnorm |> logits(tied)
}
";

/// The model with one part of it changed.
#[track_caller]
fn changed(from: &str, to: &str) -> Outcome {
    common::changed(MODEL, &[(from, to)])
}

fn inputs(graph: &odec_graph::Graph) -> Vec<String> {
    let nodes = graph.nodes().filter_map(|(_, n)| match &n.op {
        OpKind::Input(i) => Some(i.name.clone()),
        _ => None,
    });
    nodes.collect()
}

fn paths(built: &Built) -> Vec<&str> {
    built.params.iter().map(|p| p.path.as_str()).collect()
}

#[test]
fn two_sequences_are_two_inputs() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "", "the encoder may see later tokens");
    let model = outcome.built();
    assert_eq!(inputs(&model.forward), ["source", "tokens"]);
    assert_eq!(inputs(&model.loss), ["source", "tokens", "targets"]);
    assert!(model.decode.is_none());
    let all = paths(model);
    for path in [
        "source.embed.token.weight",
        "source.embed.position.weight",
        "encoder.step.0.att.q.weight",
        "embed.token.weight",
        "decoder.step.1.cross.k.weight",
    ] {
        assert!(all.contains(&path), "{path}: {all:?}");
    }
    let place = |path: &str| all.iter().position(|p| *p == path);
    assert!(place("encoder.step.1.ffn.down.weight") < place("embed.token.weight"));
}

/// Its table is the other one's, which the logits use as well.
#[test]
fn an_embedding_may_be_shared() {
    let outcome = changed(
        "embed  learned(width: 8)",
        "embed  tied(source), positions(learned)",
    );
    let all = paths(outcome.built());
    let tables = all.iter().filter(|p| p.ends_with("embed.token.weight"));
    assert_eq!(tables.collect::<Vec<_>>(), [&"source.embed.token.weight"]);
    assert!(all.contains(&"embed.position.weight"));
}

/// In a model of one sequence, tokens before a token are seen of an earlier evolve as well, and a text is read on.
#[test]
fn a_field_reads_an_earlier_evolve_of_its_own_tokens() {
    let text = "field self = rmsnorm |> attention(heads: 2, causal, rope)
field back = rmsnorm |> attention(heads: 2, causal, rope, from: prelude |> rmsnorm)
model recalled {
  input  tokens(vocab: 11, context: 16)
  embed  learned(width: 8)
  evolve prelude: euler(self) for 2 steps
  evolve core: euler(back) for 2 steps
  output logits(tied)
}
";
    let outcome = compile_text(text);
    assert_eq!(outcome.rendered(), "");
    let model = outcome.built();
    assert!(model.decode.is_some());
    let shown = print::text(&model.forward);
    assert!(!shown.contains("equals"), "no row is filled up\n{shown}");
    let ahead =
        compile_text(&text.replace("causal, rope, from: prelude |> rmsnorm", "from: prelude"));
    assert!(
        ahead.rendered().contains("later tokens"),
        "{}",
        ahead.rendered()
    );
}

/// Layers of files are known behind `from:`, and the same norm in two places has two numbers.
#[test]
fn layers_stand_between_an_evolve_and_its_readers() {
    let outcome = changed(
        "from: encoder)",
        "from: encoder |> rmsnorm |> low_rank(rank: 2))",
    );
    let all = paths(outcome.built()).join(" ");
    assert!(all.contains("decoder.step.0.cross.norm.1.gain"), "{all}");
    assert!(all.contains("decoder.step.0.cross.norm.2.gain"), "{all}");
}

#[test]
fn the_loss_is_over_tokens_that_are_no_padding() {
    let data = "train { data pairs(\"a.tsv\", tokenizer: bytes);  batch 2;  steps 1;  optimizer adamw(lr: 1e-3) }\n";
    let outcome = compile_text(&(MODEL.replace("vocab: 11", "vocab: 259") + data));
    let train = outcome.built().train.as_ref().expect("a train block");
    assert_eq!(train.loss, Loss::Pairs { padding: 258 });
}

#[test]
fn what_does_not_go_together_is_said() {
    let mut cases = Cases::default();
    for (name, from, to) in [
        (
            "an evolve that is not there",
            "from: encoder",
            "from: encodr",
        ),
        ("no evolve", "from: encoder", "from: rmsnorm |> linear"),
        ("a number", "from: encoder", "from: 3"),
        (
            "the evolve at hand",
            "attention(heads: 2)\n",
            "attention(heads: 2, from: encoder)\n",
        ),
        (
            "a later evolve",
            "attention(heads: 2)\n",
            "attention(heads: 2, from: decoder)\n",
        ),
        (
            "places of two sequences",
            "heads: 2, from",
            "heads: 2, causal, from",
        ),
        (
            "angles of two sequences",
            "heads: 2, from",
            "heads: 2, rope, from",
        ),
        (
            "keys of one and values of another",
            "attention(heads: 2, from: encoder)",
            "attend(linear, encoder |> linear, linear, heads: 2)",
        ),
        (
            "other tokens between",
            "from: encoder",
            "from: encoder |> attention(heads: 2)",
        ),
        ("a state as a value", "swiglu(hidden: 12)", "encoder"),
        (
            "a state in a sum",
            "rmsnorm |> swiglu(hidden: 12)",
            "linear(width) + rmsnorm(encoder)",
        ),
        (
            "what fills up rows",
            "swiglu(hidden: 12)",
            "conv(kernel: 3)",
        ),
        (
            "what fills up rows at a distance under a bound",
            "attention(heads: 2)\n",
            "attend(linear, linear, linear, heads: 2, softcap: 5, bias: alibi)\n",
        ),
        (
            "what fills up rows at a learned distance under a bound",
            "attention(heads: 2)\n",
            "attend(linear, linear, linear, heads: 2, softcap: 5, distances: 4)\n",
        ),
        ("another label", "input  source", "input  french"),
        ("a label that is taken", "input  source", "input  targets"),
        ("an evolve of that name", "evolve encoder", "evolve source"),
        (
            "no embedding",
            "  embed  source: learned(width: 8), positions(learned)\n",
            "",
        ),
        ("an unknown input", "embed  source", "embed  sorce"),
        (
            "two without a label",
            "input  source: tokens",
            "input  tokens",
        ),
        ("two of one label", "input  tokens", "input  source: tokens"),
        (
            "no evolve for a state",
            "  evolve encoder: lie(att, ffn) for 2 steps\n",
            "",
        ),
        (
            "an evolve before its state",
            "  embed  source: learned(width: 8), positions(learned)\n  evolve encoder: lie(att, ffn) for 2 steps\n",
            "  evolve encoder: lie(att, ffn) for 2 steps\n  embed  source: learned(width: 8)\n  evolve more: lie(att, ffn) for 1 step\n",
        ),
        (
            "the source last",
            "  embed  learned(width: 8)\n  evolve decoder: lie(self, lie(cross, ffn)) for 2 steps\n",
            "",
        ),
        (
            "other kinds of tokens",
            "input  tokens(vocab: 11",
            "input  tokens(vocab: 12",
        ),
        (
            "another width",
            "embed  learned(width: 8)",
            "embed  learned(width: 6)",
        ),
        (
            "no tokens",
            "source: tokens(vocab: 11, context: 20)",
            "source: vectors(width: 4, context: 16)",
        ),
        (
            "a table that is not there",
            "embed  learned(width: 8)",
            "embed  tied(french)",
        ),
        (
            "a source that nothing reads",
            "lie(self, lie(cross, ffn))",
            "lie(self, ffn)",
        ),
        ("another output", "logits(tied)", "classes(10)"),
    ] {
        cases.add(name, changed(from, to).rendered());
    }
    // Steps that depend on what fills up rows, of either sequence.
    let (flow, more) = ("lie(att, ffn) for 2 steps", "field route = linear(3)\n");
    for (name, flow, steps, more) in [
        (
            "an error of all rows",
            flow,
            "bogacki_shampine(att) for adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 4) steps { weights shared }",
            "",
        ),
        (
            "a router of all tokens",
            flow,
            "lie(att, ffn) for routed(route, max: 3, choice: token) steps { weights shared }",
            more,
        ),
        (
            "a router in the decoder",
            "lie(self, lie(cross, ffn)) for 2 steps",
            "lie(self, lie(cross, ffn)) for routed(route, max: 3, choice: token) steps { weights shared }",
            more,
        ),
    ] {
        let text = format!("{more}{}", MODEL.replace(flow, steps));
        cases.add(name, compile_text(&text).rendered());
    }
    let small = MODEL.replace("vocab: 11", "vocab: 3");
    cases.add("no token for texts", compile_text(&small).rendered());
    let data = |data: &str| {
        let train =
            format!("train {{ data {data};  batch 2;  steps 1;  optimizer adamw(lr: 1e-3) }}\n");
        compile_text(&(MODEL.replace("vocab: 11", "vocab: 259") + &train)).rendered()
    };
    cases.add(
        "a text for two sequences",
        data("text(\"a.txt\", tokenizer: bytes)"),
    );
    insta::assert_snapshot!(cases);
}
