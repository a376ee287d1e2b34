//! `odec translate`: the second texts that a run on pairs gives for first ones.

use crate::cli;
use crate::commands::trained;
use odec_driver::fail::{Done, Failure};
use odec_runtime::infer::translate::{TranslateError, sources, translates};
use odec_runtime::system::progress::Work;
use odec_runtime::{Search, Show, Shown, Tokenizer, outln, pairs_of, tokenizer_of, translate};
use odec_source::escape::escaped;
use serde_json::json;

pub fn run(args: &cli::Translate) -> Done {
    let mut executor = trained(&args.run, args.on.device, args.on.trust, args.no_ema)?;
    if !translates(&executor) {
        return Err(Failure::input(TranslateError::OneSequence));
    }
    let show = match args.json {
        true => Show::Warnings,
        false => Show::Auto,
    };
    let each = sources(&executor).map_or(1, |inputs| inputs.len());
    let pairs = pairs(args, each, show)?;
    let tokenizer = tokenizer_of(&args.run).map_err(Failure::input)?;
    let tokenizer = tokenizer.unwrap_or_else(Tokenizer::bytes);
    let search = Search {
        beam: args.beam,
        length_penalty: args.length_penalty,
        min_length: args.min_length,
        max_length: args.max_length,
    };
    let texts: Vec<String> = pairs.iter().flat_map(|(s, _)| s.clone()).collect();
    let mut work = Work::new(show, "translating", pairs.len() as u64);
    let mut report = |done| work.at(done as u64);
    let made = translate(&mut executor, &tokenizer, &texts, &search, &mut report);
    work.finish();
    let made = made.map_err(Failure::input)?;
    if args.json {
        let all = pairs.iter().zip(&made).map(|((source, target), t)| {
            let source = match &source[..] {
                [one] => json!(one),
                several => json!(several),
            };
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
                source.iter().for_each(|text| outln!("{}", escaped(text)));
                let [target, text] = [target, &t.text].map(|text| escaped(text));
                outln!("  {text}\n  ({target})");
            }
        }
    }
    Ok(())
}

/// What is to be translated, with the translation that is known of it.
type Known = (Vec<String>, Option<String>);

/// The texts that are given, of which so many belong together, or pairs of the run.
fn pairs(args: &cli::Translate, each: usize, show: Show) -> Result<Vec<Known>, Failure> {
    if !args.held_out && args.data.is_empty() {
        if args.texts.is_empty() {
            return Err(Failure::Input(
                "there is nothing to translate; give a text, or --held-out for the pairs that the run holds out".into(),
            ));
        }
        let together = args.texts.chunks(each);
        return Ok(together.map(|texts| (texts.to_vec(), None)).collect());
    }
    let pairs = pairs_of(&args.run, &args.data, show).map_err(Failure::input)?;
    let pairs = pairs
        .ok_or_else(|| Failure::Input(format!("{} was not trained on pairs", args.run.shown())))?;
    let some = spread(pairs, args.pairs).into_iter();
    let known = some.map(|mut texts| {
        let target = texts.pop();
        (texts, target)
    });
    Ok(known.collect())
}

/// At most so many pairs, from the first to the last.
pub fn spread(pairs: Vec<Vec<String>>, most: Option<u64>) -> Vec<Vec<String>> {
    let all = pairs.len();
    let taken = most.map_or(all, |n| all.min(n as usize));
    let place = |n: usize| (n as u128 * all as u128 / taken as u128) as usize;
    (0..taken).map(|n| pairs[place(n)].clone()).collect()
}
