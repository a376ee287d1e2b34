//! `odec eval`: loss and perplexity of a run on held-out text; of classes, the share that is predicted; of pairs, BLEU and chrF of translations.

use crate::cli;
use crate::commands::trained;
use crate::commands::translate::spread;
use odec_driver::fail::{Done, Failure};
use odec_program::manifest::Loss;
use odec_runtime::infer::bleu::{BLEU, CHRF, Scores, scores};
use odec_runtime::infer::confusion::{self, MOST_DRAWN};
use odec_runtime::infer::evaluate::judge;
use odec_runtime::infer::translate::translates;
use odec_runtime::system::output;
use odec_runtime::system::progress::Work;
use odec_runtime::{
    Evaluation, Executor, Search, Show, Shown, Tokenizer, dataset_of, outln, pairs_of,
    tokenizer_of, translate,
};
use odec_source::escape::escaped;
use serde_json::{Value, json};
use std::io::Write;

pub fn run(args: &cli::Eval) -> Done {
    let mut executor = trained(&args.run, args.device, args.trust, args.no_ema)?;
    let show = if args.json {
        Show::Warnings
    } else {
        Show::Auto
    };
    let dataset = dataset_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let loss = executor.manifest().train.as_ref().map(|t| t.loss);
    let drawn = args.svg.as_ref().filter(|_| loss != Some(Loss::Class));
    if let Some(svg) = drawn {
        return Err(Failure::Input(format!(
            "{}: only models that tell classes have a confusion matrix; `odec train` draws the losses of all others",
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
    let translated = match translates(&executor) {
        true => Some(translated(args, &mut executor, show)?),
        false => None,
    };
    if args.json {
        let mut all = json(dataset.name(), &e);
        if let Some(s) = translated {
            all["bleu"] = json!(s.bleu);
            all["chrf"] = json!(s.chrf);
        }
        outln!("{all}");
    } else {
        let (n, unit) = (e.of.number(), e.of.unit());
        let done = match e.accuracy {
            Some(_) => "classified",
            None => "predicted",
        };
        let predicted = format!("{done} {}", unit.name());
        outln!("{n} {predicted} of {}", escaped(dataset.name()));
        let (loss, bits) = (e.loss, e.bits());
        let nats = format!("loss {loss:.4} nats/{} ({bits:.4} bits)", unit.one());
        match (e.measure.name(), e.accuracy) {
            (Some(measure), _) => outln!("{measure} {loss:.4e}"),
            (None, None) => outln!("{nats}, perplexity {:.3}", e.perplexity()),
            (None, Some(share)) => outln!("{nats}, {:.2} % correct", 100.0 * share),
        }
        if let Some(Scores { bleu, chrf }) = translated {
            outln!("BLEU {bleu:.2} ({BLEU}), chrF2 {chrf:.2} ({CHRF})");
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

/// How good the translations are that `odec translate` gives where nothing else is asked of it.
fn translated(args: &cli::Eval, x: &mut Executor, show: Show) -> Result<Scores, Failure> {
    let pairs = pairs_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let pairs = spread(pairs.unwrap_or_default(), args.windows);
    let tokenizer = tokenizer_of(&args.run).map_err(Failure::input)?;
    let tokenizer = tokenizer.unwrap_or_else(Tokenizer::bytes);
    let sources: Vec<String> = pairs.iter().map(|[source, _]| source.clone()).collect();
    let mut work = Work::new(show, "translating", sources.len() as u64);
    let mut report = |done| work.at(done as u64);
    let made = translate(x, &tokenizer, &sources, &Search::default(), &mut report);
    work.finish();
    let made = made.map_err(Failure::input)?;
    let texts = made.iter().zip(&pairs);
    Ok(scores(
        texts.map(|(t, [_, target])| (&t.text[..], &target[..])),
    ))
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
