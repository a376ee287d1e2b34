//! `odec classify`: classifies texts or images with a run.

use crate::cli;
use crate::commands::trained;
use odec_driver::fail::{Done, Failure};
use odec_runtime::infer::classify::{self, Classified};
use odec_runtime::infer::evaluate::Classes;
use odec_runtime::{Shown, Tokenizer, outln, tokenizer_of};
use odec_source::escape::escaped;
use serde_json::json;
use std::path::PathBuf;

pub fn run(args: &cli::Classify) -> Done {
    let mut executor = trained(&args.run, args.on.device, args.on.trust, args.no_ema)?;
    let Some(form) = Classified::of(&executor) else {
        return Err(Failure::Input(format!(
            "{} classifies neither texts nor images; `odec eval` evaluates it, `odec generate` and `odec translate` write texts",
            args.run.shown()
        )));
    };
    let given = &args.given;
    if given.is_empty() {
        let what = match form {
            Classified::Texts(_) => "a text",
            Classified::Images(_) => "a PNG file",
        };
        return Err(Failure::Input(format!(
            "there is nothing to classify; give {what}"
        )));
    }
    let names = Classes::of(executor.manifest()).map_or(Vec::new(), |c| c.names);
    let found = match form {
        Classified::Texts(form) => {
            let tokenizer = tokenizer_of(&args.run).map_err(Failure::input)?;
            let tokenizer = tokenizer.unwrap_or_else(Tokenizer::bytes);
            classify::texts(&mut executor, &form, &tokenizer, given)
        }
        Classified::Images(form) => {
            let files: Vec<PathBuf> = given.iter().map(PathBuf::from).collect();
            classify::pictures(&mut executor, &form, &files)
        }
    };
    let found = found.map_err(Failure::input)?;
    let name = |class: usize| {
        names
            .get(class)
            .cloned()
            .unwrap_or_else(|| class.to_string())
    };
    if args.json {
        let all = given.iter().zip(&found).map(|(given, each)| {
            let first = likeliest(each).first().copied().unwrap_or(0);
            json!({ "given": given, "class": first, "name": names.get(first), "probabilities": each })
        });
        outln!("{}", json!(all.collect::<Vec<_>>()));
        return Ok(());
    }
    for (text, each) in given.iter().zip(&found) {
        let top = likeliest(each).into_iter().take(args.top as usize);
        let said = top.map(|n| format!("{} {:.1} %", escaped(&name(n)), 100.0 * each[n]));
        let said = said.collect::<Vec<_>>().join(", ");
        match given.len() {
            1 => outln!("{said}"),
            _ => outln!("{}\n  {said}", escaped(text)),
        }
    }
    Ok(())
}

/// Classes, the likeliest first, equal ones in their order.
fn likeliest(probabilities: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    order
}
