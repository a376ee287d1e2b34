//! `odec completions`: completion scripts for shells.

use crate::cli::{self, Cli};
use clap::CommandFactory;
use odec_driver::fail::Done;
use odec_runtime::system::stdio;

pub fn run(args: &cli::Completions) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "odec", &mut script);
    stdio::show(&String::from_utf8_lossy(&script));
    Ok(())
}
