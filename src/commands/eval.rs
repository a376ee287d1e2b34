//! `odec eval`: loss and perplexity of a run on held-out text; of classes, the share that is predicted; of pairs, BLEU and chrF of translations.

use crate::cli;
use crate::commands::translate::spread;
use crate::commands::{in_integers, integers, trained};
use odec_driver::fail::{Done, Failure};
use odec_driver::quantized;
use odec_driver::terminal;
use odec_runtime::infer::bleu::{BLEU, CHRF, Scores, scores};
use odec_runtime::infer::confusion::{self, MOST_DRAWN};
use odec_runtime::infer::evaluate::{Classes, judge};
use odec_runtime::infer::generate::can_generate;
use odec_runtime::infer::quantized::{Difference, Integers, logits_apart};
use odec_runtime::infer::translate::translates;
use odec_runtime::system::output;
use odec_runtime::system::progress::Work;
use odec_runtime::{
    Dataset, Evaluation, Executor, Search, Show, Shown, Tokenizer, dataset_of, outln, pairs_of,
    tokenizer_of, translate,
};
use odec_source::escape::escaped;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

pub fn run(args: &cli::Eval) -> Done {
    if let Some(q) = args.weights {
        quantized::fits_device(args.on.device, q)?;
    }
    let mut executor = trained(&args.run, args.on.device, args.on.trust, args.no_ema)?;
    let mut in_int = match args.weights {
        None => None,
        Some(q) => {
            let refused = |e| {
                Failure::Input(format!(
                    "--weights {q} is for models that continue texts, token by token; leave it out: {e}"
                ))
            };
            can_generate(&executor).map_err(refused)?;
            Some(quantized::executor(&mut executor, q, args.on.device)?)
        }
    };
    let show = if args.json {
        Show::Warnings
    } else {
        Show::Auto
    };
    let dataset = dataset_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let classes = Classes::of(executor.manifest());
    if let (Some(svg), None) = (&args.svg, &classes) {
        return Err(Failure::Input(format!(
            "{}: only models that tell classes have a confusion matrix; `odec train` draws the losses of all others",
            svg.shown()
        )));
    }
    let many = classes.as_ref().filter(|c| c.count > MOST_DRAWN);
    if let (Some(svg), Some(Classes { count, .. })) = (&args.svg, many) {
        return Err(Failure::Input(format!(
            "{}: the model has {count} classes, and a confusion matrix of at most {MOST_DRAWN} is drawn; leave --svg out",
            svg.shown()
        )));
    }
    args.svg
        .as_ref()
        .map_or(Ok(()), |svg| {
            let data: Vec<&Path> = args.data.iter().map(PathBuf::as_path).collect();
            output::check_kind(svg, &["svg"], &data)
        })
        .map_err(Failure::input)?;
    let judged = judge(&mut executor, &*dataset, args.windows, &mut |_| {});
    let (e, table) = judged.map_err(Failure::input)?;
    if let (Some(svg), Some(table)) = (&args.svg, &table) {
        let names = classes.as_ref().map_or(&[][..], |c| &c.names);
        let picture = confusion::svg(&executor.manifest().name, table, names);
        let written = output::write(svg, |file| file.write_all(picture.as_bytes()));
        written.map_err(Failure::input)?;
    }
    let translated = match translates(&executor) {
        true => Some(translated(args, &mut executor, show)?),
        false => None,
    };
    let beside = match &mut in_int {
        None => None,
        Some(y) => Some(beside(args, (&mut executor, y), &*dataset)?),
    };
    if args.json {
        let mut all = json(dataset.name(), &e);
        if let Some(s) = translated {
            all["bleu"] = json!(s.bleu);
            all["chrf"] = json!(s.chrf);
        }
        if let Some(of) = &beside {
            all["quantized"] = of.json();
        }
        outln!("{all}");
    } else {
        let (n, unit) = (e.of.number(), e.of.unit());
        let done = match e.accuracy {
            Some(_) if e.terms.is_empty() => "classified",
            _ => "predicted",
        };
        let counted = terminal::count(n as usize, &format!("{done} {}", unit.one()));
        outln!("{counted} of {}", escaped(dataset.name()));
        let (loss, bits) = (e.loss, e.bits());
        let nats = format!("loss {loss:.4} nats/{} ({bits:.4} bits)", unit.one());
        match (e.measure, e.accuracy) {
            (Some(measure), _) => outln!("{measure} {loss:.4e}"),
            (None, None) => outln!("{}", perplexity(&e)),
            (None, Some(share)) => outln!("{nats}, {:.2} % correct", 100.0 * share),
        }
        for (name, term) in &e.terms {
            outln!("  {name} {term:.4e}");
        }
        if let (false, Some(share)) = (e.terms.is_empty(), e.accuracy) {
            outln!("  {:.2} % of classes correct", 100.0 * share);
        }
        if let Some(of) = &beside {
            of.print();
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
    match e.loss.is_finite() {
        true => Ok(()),
        false => Err(Failure::input(format!(
            "the loss of {} is not finite: what the model computes of this data has no value",
            args.run.shown()
        ))),
    }
}

/// The loss of text, in words.
fn perplexity(e: &Evaluation) -> String {
    let (one, bits) = (e.of.unit().one(), e.bits());
    format!(
        "loss {:.4} nats/{one} ({bits:.4} bits), perplexity {:.3}",
        e.loss,
        e.perplexity()
    )
}

/// The same model with weights in integers.
struct Beside {
    found: Evaluation,
    apart: Difference,
    integers: Integers,
    text: String,
}

fn beside(
    args: &cli::Eval,
    (x, y): (&mut Executor, &mut Executor),
    dataset: &dyn Dataset,
) -> Done<Beside> {
    let judged = judge(y, dataset, args.windows, &mut |_| {});
    let (found, _) = judged.map_err(Failure::input)?;
    let apart = logits_apart(x, y, dataset, args.windows).map_err(Failure::input)?;
    Ok(Beside {
        found,
        apart,
        integers: integers(y)?,
        text: in_integers(y)?,
    })
}

impl Beside {
    fn print(&self) {
        let Difference { largest, rms, of } = self.apart;
        outln!("{}", self.text);
        outln!("{}", perplexity(&self.found));
        outln!(
            "logits differ by {largest:.2e} at most, in the root mean square by {rms:.2e} of {of:.2e}"
        );
    }

    fn json(&self) -> Value {
        let Integers {
            of,
            matrices,
            bytes,
            reals,
            ..
        } = self.integers;
        let mut all = evaluation(&self.found);
        let apart = self.apart;
        all["weights"] = json!(of.to_string());
        all["matrices"] = json!(matrices);
        all["bytes"] = json!(bytes);
        all["bytes_of_reals"] = json!(reals);
        all["logits"] = json!({ "largest": apart.largest, "rms": apart.rms, "of": apart.of });
        all
    }
}

/// How good the translations are that `odec translate` gives where nothing else is asked of it.
fn translated(args: &cli::Eval, x: &mut Executor, show: Show) -> Result<Scores, Failure> {
    let pairs = pairs_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let pairs = spread(pairs.unwrap_or_default(), args.windows);
    let tokenizer = tokenizer_of(&args.run).map_err(Failure::input)?;
    let tokenizer = tokenizer.unwrap_or_else(Tokenizer::bytes);
    let texts = pairs.iter().filter_map(|texts| texts.split_last());
    let (targets, sources): (Vec<&String>, Vec<&[String]>) = texts.unzip();
    let sources = sources.concat();
    let mut work = Work::new(show, "translating", targets.len() as u64);
    let mut report = |done| work.at(done as u64);
    let made = translate(x, &tokenizer, &sources, &Search::default(), &mut report);
    work.finish();
    let made = made.map_err(Failure::input)?;
    let texts = made.iter().zip(targets);
    Ok(scores(texts.map(|(t, target)| (&t.text[..], &target[..]))))
}

fn json(data: &str, e: &Evaluation) -> Value {
    let mut all = evaluation(e);
    all["data"] = json!(data);
    all["reports"] = json!(e.reports);
    all
}

/// What was found, as `--json` prints it.
pub fn evaluation(e: &Evaluation) -> Value {
    let mut all = match e.measure {
        None => json!({ "loss": e.loss, "perplexity": e.perplexity(), "bits": e.bits() }),
        Some(measure) => json!({ "loss": e.loss, measure: e.loss }),
    };
    all[e.of.unit().name()] = json!(e.of.number());
    if !e.terms.is_empty() {
        all["terms"] = json!(e.terms);
    }
    if let Some(share) = e.accuracy {
        all["accuracy"] = json!(share);
    }
    all
}
