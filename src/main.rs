//! The command line of odec: parses arguments, calls one command, prints its failure, and sets the exit code: 0 good, 1 the input is
//! wrong, 2 usage, 3 an internal error, 129, 130 or 143 stopped by a signal with all work saved.

// `odec_runtime::system::stdio` prints: what `println!` prints can end a run.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod commands;
mod signals;

use cli::{Cli, Command};
use odec_driver::fail::{Done, Failure};
use odec_runtime::system::stdio;
use std::process::ExitCode;

/// Compiling makes and frees many small things.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = signals::survive_file_limits().map_err(Failure::internal);
    let done = done.and_then(|()| run(Cli::given().command));
    let printed = stdio::finish().map_err(|e| Failure::Input(format!("standard output: {e}")));
    match done.and(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: Command) -> Done {
    match command {
        Command::New(args) => commands::new::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Analyze(args) => commands::analyze::run(&args),
        Command::Design(args) => commands::design::run(&args),
        Command::Methods(args) => commands::methods::run(&args),
        Command::Schemes(args) => commands::schemes::run(&args),
        Command::Simulate(args) => commands::simulate::run(&args),
        Command::Fmt(args) => commands::fmt::run(&args),
        Command::Graph(args) => commands::graph::run(&args),
        Command::Build(args) => commands::build::run(&args),
        Command::Train(args) => commands::train::run(&args),
        Command::Explore(args) => commands::explore::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Classify(args) => commands::classify::run(&args),
        Command::Average(args) => commands::average::run(&args),
        Command::Translate(args) => commands::translate::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Runs(args) => commands::runs::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Exec(args) => commands::exec::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Profile(args) => commands::profile::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Help(args) => commands::help::run(&args),
        Command::Codegen => commands::codegen::run(),
        Command::Trial(args) => commands::trial::run(&args),
    }
}
