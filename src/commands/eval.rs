//! `odec eval`: loss and perplexity of a run on held-out text.

use crate::cli;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_runtime::{Show, dataset_of, evaluate, open_run_with, outln};
use odec_source::escape::escaped;
use serde_json::json;

pub fn run(args: &cli::Eval) -> Done {
    let mut executor = open_run_with(&args.run, args.device, None, artifact::unsigned(args.trust))
        .map_err(Failure::input)?;
    let show = if args.json {
        Show::Warnings
    } else {
        Show::Auto
    };
    let dataset = dataset_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let e =
        evaluate(&mut executor, &*dataset, args.windows, &mut |_| {}).map_err(Failure::input)?;
    if args.json {
        outln!(
            "{}",
            json!({ "data": dataset.name(), "tokens": e.tokens, "loss": e.loss, "perplexity": e.perplexity(), "bits": e.bits(), "reports": e.reports })
        );
    } else {
        outln!(
            "{} predicted tokens of {}",
            e.tokens,
            escaped(dataset.name())
        );
        outln!(
            "loss {:.4} nats/token ({:.4} bits), perplexity {:.3}",
            e.loss,
            e.bits(),
            e.perplexity()
        );
        for (name, each) in &e.reports {
            if let [first, .., last] = &each[..] {
                outln!(
                    "{name} {first:.4} after the first step, {last:.4} after step {}",
                    each.len()
                );
            } else if let [only] = &each[..] {
                outln!("{name} {only:.4}");
            }
        }
    }
    Ok(())
}
