//! odec's command line. Parses arguments, calls one command, prints its failure, and chooses the exit code:
//! 0 good, 1 the input is wrong, 2 usage, 3 odec's own fault, 130 or 143 stopped by a signal with all work saved.

mod cli;
mod commands;
mod fail;
mod measure;
mod room;
mod signals;
mod source;
mod terminal;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::New(args) => commands::new::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Analyze(args) => commands::analyze::run(&args),
        Command::Methods(args) => commands::methods::run(&args),
        Command::Fmt(args) => commands::fmt::run(&args),
        Command::Graph(args) => commands::graph::run(&args),
        Command::Build(args) => commands::build::run(&args),
        Command::Train(args) => commands::train::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Exec(args) => commands::exec::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Profile(args) => commands::bench::profile(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Codegen => commands::codegen::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.code())
        }
    }
}
