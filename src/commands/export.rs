//! `odec export`: a run's parameters as safetensors.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::parameters::import;
use odec_runtime::system::output;
use odec_runtime::{DeviceChoice, Shown, open_run, outln};

pub fn run(args: &cli::Export) -> Done {
    output::check_beside(&args.output, &args.run).map_err(Failure::input)?;
    // nothing is computed, so no compiled code is needed
    let x = open_run(&args.run, DeviceChoice::Reference, None).map_err(Failure::input)?;
    let (tensors, numbers) = import::export(&args.output, &x).map_err(Failure::input)?;
    outln!(
        "{} parameters in {tensors} tensors: {}",
        terminal::thousands(numbers),
        args.output.shown()
    );
    Ok(())
}
