//! `odec generate`: generates text from a run and prints it token by token.

use crate::cli;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_runtime::Shown;
use odec_runtime::infer::generate::{GenerateError, can_generate};
use odec_runtime::system::stdio;
use odec_runtime::{Sampling, Tokenizer, generate, open_run_with, tokenizer_of};
use std::io::ErrorKind;

pub fn run(args: &cli::Generate) -> Done {
    let mut executor = open_run_with(&args.run, args.device, None, artifact::unsigned(args.trust))
        .map_err(Failure::input)?;
    can_generate(&executor).map_err(Failure::input)?;
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
    // The prompt is printed when the model has taken it, not before a refusal.
    let mut prompt = Some(args.prompt.as_str());
    let mut emit = |text: &str| match stdio::show(&format!("{}{text}", prompt.take().unwrap_or("")))
    {
        true => Ok(()),
        false => Err(ErrorKind::BrokenPipe.into()),
    };
    let made = generate(
        &mut executor,
        &tokenizer,
        &args.prompt,
        &sampling,
        &mut emit,
    );
    match made {
        // Without a reader there is nothing left to do.
        Err(GenerateError::Write(_)) => Ok(()),
        Err(e) => Err(Failure::input(e)),
        Ok(()) => {
            stdio::show(&format!("{}\n", prompt.unwrap_or("")));
            Ok(())
        }
    }
}
