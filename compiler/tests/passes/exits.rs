//! Outputs that predict the same tokens from the state of an earlier evolve: against the model that ends there, differences and compiled programs.

use crate::losses::{are_differences, given, near, results, run, scalar};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::{ModelParts, assemble};
use odec_graph::interp::{self, Tensor};
use odec_program::manifest::Loss;
use odec_program::{Bindings, EntryId};
use std::collections::BTreeMap;

const AT: Bindings = Bindings::new(2, 6);

/// What stands in a model of tokens between embedding and loss.
fn model(body: &str, loss: &str, memory: &str) -> (Built, String) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\nfield ffn = rmsnorm |> swiglu(hidden: 12)\n\
         model small {{\n  input tokens(vocab: 257, context: 64)\n  embed learned(width: 8)\n  {body}\n  init normal(std: 0.3)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  loss {loss}\n  batch 2;  steps 10;  memory {memory} }}\n"
    );
    (source::built(&text), text)
}

const BODY: &str = "evolve first: lie(att, ffn) for 2 steps\n  evolve second: strang(att, ffn) for 1 steps\n  \
     output rmsnorm |> logits(tied)\n  output early: first |> rmsnorm |> logits(tied)";

fn exits(loss: &str, memory: &str) -> (Built, String) {
    model(BODY, loss, memory)
}

const SUM: &str = "cross_entropy + 1/4*cross_entropy(of: early)";

fn held_out(built: &Built, f: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    interp::run(&built.loss, f, AT).unwrap()
}

/// Its term is the loss of the model that ends where it reads; what the model is judged by does not know of it.
#[test]
fn an_exit_is_the_model_that_ends_there() {
    let all = exits(SUM, "store");
    let f = given(&all);
    let got = results(&all.0, &f);
    let short = "evolve first: lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)";
    let short = model(short, "cross_entropy", "store");
    let mut own = f.clone();
    own.insert(
        "output.norm.gain".into(),
        f["early.output.norm.gain"].clone(),
    );
    let early = scalar(&results(&short.0, &own), "loss");
    near(
        "the exit",
        scalar(&got, "loss.early.cross_entropy"),
        early,
        1e-12,
    );
    let main = scalar(&got, "loss.cross_entropy");
    near("the sum", scalar(&got, "loss"), main + early / 4.0, 1e-12);
    assert!((main - early).abs() > 1e-3);
    let judged = held_out(&all.0, &f);
    near("held out", scalar(&judged, "loss"), main, 1e-12);
    let half = exits("1/2*cross_entropy + cross_entropy(of: early)", "store");
    let halved = held_out(&half.0, &f);
    near("without its factor", scalar(&halved, "loss"), main, 1e-12);
    near(
        "its exit",
        scalar(&judged, "loss.early.cross_entropy"),
        early,
        1e-12,
    );
}

#[test]
fn gradients_are_differences() {
    let loss = "cross_entropy + 3*smooth(10%, of: early) + 1/8*z_loss(of: early)";
    let all = exits(loss, "store");
    let paths = [
        "embed.token.weight",
        "first.step.1.att.q.weight",
        "second.step.0.ffn.up.weight",
        "early.output.norm.gain",
    ];
    are_differences(&all.0, &given(&all), &paths);
}

/// Programs compute the terms, with the same bits however states are kept; text is generated without exits.
#[test]
fn programs_compute_exits() {
    let all = exits(SUM, "store");
    let (bits, terms, _) = run(&all, options());
    let want = results(&all.0, &given(&all));
    for (name, t) in &terms {
        near(name, *t, scalar(&want, name), 1e-4);
    }
    assert!(terms.contains_key("loss.early.cross_entropy"), "{terms:?}");
    let revolved = run(&exits(SUM, "revolve(slots: 1)"), options());
    assert!(bits == revolved.0, "other bits");
    let made = assemble(&ModelParts::new(&all.0, &all.1), options()).unwrap();
    let names = |entry: EntryId| {
        let entry = &made.manifest.program.entries[&entry];
        let names = entry.outputs.iter().map(|o| o.name.clone());
        names.collect::<Vec<String>>()
    };
    assert_eq!(names(EntryId::Decode), ["logits"]);
    assert_eq!(names(EntryId::Forward), ["logits", "early.logits"]);
}

/// Of pairs of texts, padding counts for an exit no more than for the last state.
#[test]
fn exits_of_pairs_predict_the_same_tokens() {
    let text = "field att = rmsnorm |> attention(heads: 2)\nfield self = rmsnorm |> attention(heads: 2, causal)\n\
         field cross = rmsnorm |> attention(heads: 2, from: encoder)\n\
         model small {\n  input source: tokens(vocab: 259, context: 16)\n  input tokens(vocab: 259, context: 16)\n  \
         embed source: learned(width: 8)\n  evolve encoder: euler(att) for 1 steps\n  embed tied(source)\n  \
         evolve first: lie(self, cross) for 1 steps\n  evolve second: lie(self, cross) for 1 steps\n  \
         output rmsnorm |> logits(tied)\n  output early: first |> rmsnorm |> logits(tied)\n}\n\
         train { data pairs(\"a.en\", \"a.de\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  \
         loss cross_entropy + cross_entropy(of: early);  batch 2;  steps 10 }\n";
    let built = source::built(text);
    let made = assemble(&ModelParts::new(&built, text), options()).unwrap();
    let train = made.manifest.train.unwrap();
    assert_eq!(train.loss, Loss::Pairs { padding: 258 });
    assert_eq!(train.also["early"], train.loss);
}

/// Of hidden tokens, an exit predicts those that are hidden.
#[test]
fn exits_predict_hidden_tokens() {
    let body = BODY.replace("strang", "lie");
    let all = model(
        &body,
        "masked(rate: 1/4) + 1/2*cross_entropy(of: early)",
        "store",
    );
    let f = given(&all);
    let logits = &interp::run(&all.0.forward, &f, AT).unwrap()["early.logits"].data;
    let hidden = f["tokens"].data.iter().position(|t| *t == 256.0).unwrap();
    let row = &logits[hidden * 257..][..257];
    let right = row[f["targets"].data[hidden] as usize];
    let wanted = row.iter().map(|x| x.exp()).sum::<f64>().ln() - right;
    let got = scalar(&results(&all.0, &f), "loss.early.cross_entropy");
    near("the one that is hidden", got, wanted, 1e-12);
}

const FURTHER: &str = "evolve first: lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)\n  \
     output further: rmsnorm |> logits(tied, ahead: 2)";
const OF_FURTHER: &str = "cross_entropy + 1/2*cross_entropy(of: further) + 1/8*z_loss(of: further)";

/// A position is compared with the token two after its next one; the last two of a text with nothing.
#[test]
fn an_output_predicts_tokens_further_ahead() {
    let all = model(FURTHER, OF_FURTHER, "store");
    let f = given(&all);
    let logits = &interp::run(&all.0.forward, &f, AT).unwrap()["further.logits"].data;
    let (mut off, mut sums) = (0.0, 0.0);
    for text in 0..2 {
        for i in 0..4 {
            let row = &logits[(text * 6 + i) * 257..][..257];
            let sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            off += (sum - row[f["targets"].data[text * 6 + i + 2] as usize]) / 8.0;
            sums += sum * sum / 8.0;
        }
    }
    let got = results(&all.0, &f);
    let of = |name: &str| scalar(&got, &format!("loss.further.{name}"));
    near("cross-entropy", of("cross_entropy"), off, 1e-12);
    near("z_loss", of("z_loss"), sums, 1e-12);
    let main = scalar(&got, "loss.cross_entropy");
    let sum = main + off / 2.0 + sums / 8.0;
    near("the sum", scalar(&got, "loss"), sum, 1e-12);
    let judged = held_out(&all.0, &f);
    near("held out", scalar(&judged, "loss"), main, 1e-12);
    let beside = scalar(&judged, "loss.further.cross_entropy");
    near("beside it", beside, off, 1e-12);
}

#[test]
fn programs_compute_tokens_further_ahead() {
    let all = model(FURTHER, OF_FURTHER, "store");
    let f = given(&all);
    are_differences(
        &all.0,
        &f,
        &["embed.token.weight", "further.output.norm.gain"],
    );
    let want = results(&all.0, &f);
    let (bits, terms, _) = run(&all, options());
    for (name, t) in &terms {
        near(name, *t, scalar(&want, name), 1e-4);
    }
    assert!(terms.contains_key("loss.further.z_loss"), "{terms:?}");
    let revolved = run(&model(FURTHER, OF_FURTHER, "revolve(slots: 1)"), options());
    assert!(bits == revolved.0, "other bits");
}
