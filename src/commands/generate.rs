//! `odec generate`: text from a run, as it comes.

use super::train::device;
use crate::cli;
use crate::fail::{Done, Failure};
use odec_runtime::{Sampling, generate, open_run};
use std::io::Write;

pub fn run(args: &cli::Generate) -> Done {
    let mut executor = open_run(&args.run, device(args.device), None).map_err(Failure::input)?;
    let sampling = Sampling {
        tokens: args.tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
    };
    let mut out = std::io::stdout().lock();
    let mut emit = |text: &str| out.write_all(text.as_bytes()).and_then(|()| out.flush());
    emit(&args.prompt).map_err(Failure::input)?;
    generate(&mut executor, args.prompt.as_bytes(), &sampling, &mut emit)
        .map_err(Failure::input)?;
    emit("\n").map_err(Failure::input)
}
