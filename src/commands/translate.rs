//! `odec translate`: the second texts that a run on pairs gives for first ones.

use crate::cli;
use crate::commands::trained;
use odec_driver::fail::{Done, Failure};
use odec_runtime::infer::translate::{TranslateError, translates};
use odec_runtime::system::progress::Work;
use odec_runtime::{Search, Show, Shown, Tokenizer, outln, pairs_of, tokenizer_of, translate};
use odec_source::escape::escaped;
use serde_json::json;

pub fn run(args: &cli::Translate) -> Done {
    let mut executor = trained(&args.run, args.device, args.trust, args.no_ema)?;
    if !translates(&executor) {
        return Err(Failure::input(TranslateError::OneSequence));
    }
    let show = match args.json {
        true => Show::Warnings,
        false => Show::Auto,
    };
    let pairs = pairs(args, show)?;
    let tokenizer = tokenizer_of(&args.run).map_err(Failure::input)?;
    let tokenizer = tokenizer.unwrap_or_else(Tokenizer::bytes);
    let search = Search {
        beam: args.beam,
        length_penalty: args.length_penalty,
        min_length: args.min_length,
        max_length: args.max_length,
    };
    let sources: Vec<String> = pairs.iter().map(|(source, _)| source.clone()).collect();
    let mut work = Work::new(show, "translating", sources.len() as u64);
    let mut report = |done| work.at(done as u64);
    let made = translate(&mut executor, &tokenizer, &sources, &search, &mut report);
    work.finish();
    let made = made.map_err(Failure::input)?;
    if args.json {
        let all = pairs.iter().zip(&made).map(|((source, target), t)| {
            json!({
                "source": source, "target": target, "translation": t.text,
                "log_probability": t.log_probability, "tokens": t.tokens,
            })
        });
        outln!("{}", json!(all.collect::<Vec<_>>()));
        return Ok(());
    }
    for ((source, target), t) in pairs.iter().zip(&made) {
        match target {
            None => outln!("{}", escaped(&t.text)),
            Some(target) => {
                let [source, target, text] = [source, target, &t.text].map(|text| escaped(text));
                outln!("{source}\n  {text}\n  ({target})");
            }
        }
    }
    Ok(())
}

/// What is to be translated, with the translations that are known: the texts that are given, or pairs of the run.
fn pairs(args: &cli::Translate, show: Show) -> Result<Vec<(String, Option<String>)>, Failure> {
    if !args.held_out && args.data.is_empty() {
        if args.texts.is_empty() {
            return Err(Failure::Input(
                "there is nothing to translate; give a text, or --held-out for the pairs that the run holds out".into(),
            ));
        }
        return Ok(args.texts.iter().map(|t| (t.clone(), None)).collect());
    }
    let pairs = pairs_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let pairs = pairs
        .ok_or_else(|| Failure::Input(format!("{} was not trained on pairs", args.run.shown())))?;
    let some = spread(pairs, args.pairs).into_iter();
    Ok(some
        .map(|[source, target]| (source, Some(target)))
        .collect())
}

/// At most so many pairs, from the first to the last.
pub fn spread(pairs: Vec<[String; 2]>, most: Option<u64>) -> Vec<[String; 2]> {
    let all = pairs.len();
    let taken = most.map_or(all, |n| all.min(n as usize));
    let place = |n: usize| (n as u128 * all as u128 / taken as u128) as usize;
    (0..taken).map(|n| pairs[place(n)].clone()).collect()
}
