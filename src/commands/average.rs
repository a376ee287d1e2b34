//! `odec average`: a run whose parameters are the mean of several checkpoints.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::train::average::average;
use odec_runtime::{Shown, outln};

pub fn run(args: &cli::Average) -> Done {
    let made = average(&args.runs, args.last, &args.out).map_err(Failure::input)?;
    for (file, step) in &made.of {
        outln!("step {step:>8}  {}", file.shown());
    }
    outln!(
        "{}: the mean of {}, {}",
        args.out.shown(),
        terminal::count(made.of.len(), "checkpoint"),
        terminal::count(made.parameters as usize, "parameter")
    );
    Ok(())
}
