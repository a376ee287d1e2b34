//! `odec generate`: text from a run, as it comes.

use crate::cli;
use crate::fail::{Done, Failure};
use crate::source;
use odec_runtime::Shown;
use odec_runtime::{Sampling, Tokenizer, generate, open_run_with, tokenizer_of};
use std::io::Write;

pub fn run(args: &cli::Generate) -> Done {
    let mut executor = open_run_with(&args.run, args.device, None, source::unsigned(args.trust))
        .map_err(Failure::input)?;
    let saved = tokenizer_of(&args.run).map_err(Failure::input)?;
    let tokenizer = match (&args.tokenizer, saved) {
        (Some(path), _) => Tokenizer::open(path).map_err(Failure::input)?,
        (None, Some(saved)) => saved,
        (None, None) => {
            return Err(Failure::Input(format!(
                "{} was trained on token files; name their tokenizer with --tokenizer tokenizer.json",
                args.run.shown()
            )));
        }
    };
    let sampling = Sampling {
        tokens: args.tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
    };
    let mut out = std::io::stdout().lock();
    let mut emit = |text: &str| out.write_all(text.as_bytes()).and_then(|()| out.flush());
    emit(&args.prompt).map_err(Failure::input)?;
    generate(
        &mut executor,
        &tokenizer,
        &args.prompt,
        &sampling,
        &mut emit,
    )
    .map_err(Failure::input)?;
    emit("\n").map_err(Failure::input)
}
