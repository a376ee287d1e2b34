//! `odec eval`: loss and perplexity of a run on held-out text; of images, the share whose class is predicted.

use crate::cli;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_program::manifest::Loss;
use odec_runtime::infer::confusion::{self, MOST_DRAWN};
use odec_runtime::infer::evaluate::judge;
use odec_runtime::system::output;
use odec_runtime::{Evaluation, Show, Shown, dataset_of, open_run_with, outln};
use odec_source::escape::escaped;
use serde_json::{Value, json};
use std::io::Write;

pub fn run(args: &cli::Eval) -> Done {
    let mut executor = open_run_with(&args.run, args.device, None, artifact::unsigned(args.trust))
        .map_err(Failure::input)?;
    let show = if args.json {
        Show::Warnings
    } else {
        Show::Auto
    };
    let dataset = dataset_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let told = executor.manifest().train.as_ref().map(|t| t.loss);
    let drawn = args.svg.as_ref().filter(|_| told != Some(Loss::Class));
    if let Some(svg) = drawn {
        return Err(Failure::Input(format!(
            "{}: only models that tell the classes of images have a confusion matrix; `odec train` draws the losses of all others",
            svg.shown()
        )));
    }
    let classes = executor.manifest().model.vocab;
    if let Some(svg) = args.svg.as_ref().filter(|_| classes > MOST_DRAWN) {
        return Err(Failure::Input(format!(
            "{}: the model has {classes} classes, and a confusion matrix of at most {MOST_DRAWN} is drawn; leave --svg out",
            svg.shown()
        )));
    }
    args.svg
        .as_ref()
        .map_or(Ok(()), |svg| output::check(svg))
        .map_err(Failure::input)?;
    let judged = judge(&mut executor, &*dataset, args.windows, &mut |_| {});
    let (e, table) = judged.map_err(Failure::input)?;
    if let (Some(svg), Some(table)) = (&args.svg, &table) {
        let picture = confusion::svg(&executor.manifest().name, table);
        let written = output::write(svg, |file| file.write_all(picture.as_bytes()));
        written.map_err(Failure::input)?;
    }
    if args.json {
        outln!("{}", json(dataset.name(), &e));
    } else {
        let (n, unit) = (e.of.number(), e.of.unit());
        let predicted = format!("{} {}", predicted(&e), unit.name());
        outln!("{n} {predicted} of {}", escaped(dataset.name()));
        let (loss, bits) = (e.loss, e.bits());
        let nats = format!("loss {loss:.4} nats/{} ({bits:.4} bits)", unit.one());
        match (e.measure.name(), e.accuracy) {
            (Some(measure), _) => outln!("{measure} {loss:.4e}"),
            (None, None) => outln!("{nats}, perplexity {:.3}", e.perplexity()),
            (None, Some(share)) => outln!("{nats}, {:.2} % correct", 100.0 * share),
        }
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

fn predicted(e: &Evaluation) -> &'static str {
    match e.accuracy {
        None => "predicted",
        Some(_) => "classified",
    }
}

fn json(data: &str, e: &Evaluation) -> Value {
    let mut all = evaluation(e);
    all["data"] = json!(data);
    all["reports"] = json!(e.reports);
    all
}

/// What was found, as `--json` prints it.
pub fn evaluation(e: &Evaluation) -> Value {
    let mut all = match e.measure.name() {
        None => json!({ "loss": e.loss, "perplexity": e.perplexity(), "bits": e.bits() }),
        Some(measure) => json!({ "loss": e.loss, measure: e.loss }),
    };
    all[e.of.unit().name()] = json!(e.of.number());
    if let Some(share) = e.accuracy {
        all["accuracy"] = json!(share);
    }
    all
}
