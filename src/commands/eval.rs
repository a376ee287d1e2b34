//! `odec eval`: loss and perplexity of a run on held-out text.

use super::train::device;
use crate::cli;
use crate::fail::{Done, Failure};
use odec_runtime::{Corpus, corpus_of, evaluate, open_run};
use serde_json::json;

pub fn run(args: &cli::Eval) -> Done {
    let mut executor = open_run(&args.run, device(args.device), None).map_err(Failure::input)?;
    let manifest = executor.manifest();
    let Some(train) = &manifest.train else {
        return Err(Failure::Input(format!(
            "{}: this run's model has no train block",
            args.run.display()
        )));
    };
    // a text of one's own is held out as a whole; otherwise it is the last part of what the run was trained on
    let corpus = match &args.data {
        Some(path) => Corpus::open(path, &train.data.tokenizer, 0, manifest.model.vocab)
            .map_err(Failure::input)?
            .all_held_out(),
        None => corpus_of(&args.run).map_err(Failure::input)?,
    };
    let e = evaluate(&mut executor, &corpus, args.windows, &mut |_| {}).map_err(Failure::input)?;
    if args.json {
        println!(
            "{}",
            json!({ "data": corpus.path(), "tokens": e.tokens, "loss": e.loss, "perplexity": e.perplexity(), "bits": e.bits() })
        );
    } else {
        println!("{} predicted tokens of {}", e.tokens, corpus.path());
        println!(
            "loss {:.4} nats/token ({:.4} bits), perplexity {:.3}",
            e.loss,
            e.bits(),
            e.perplexity()
        );
    }
    Ok(())
}
