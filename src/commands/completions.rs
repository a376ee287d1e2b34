//! `odec completions`: what a shell needs to complete odec's commands and options.

use crate::cli::{self, Cli};
use crate::fail::{Done, Failure};
use clap::CommandFactory;
use std::io::Write;

pub fn run(args: &cli::Completions) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "odec", &mut script);
    std::io::stdout().write_all(&script).map_err(Failure::input)
}
