//! `odec tokenize`: texts to a token file.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::data::tokenise::{self, Reading};
use odec_runtime::system::output;
use odec_runtime::{Show, Tokenizer};
use odec_runtime::{Shown, outln};
use std::path::{Path, PathBuf};

pub fn run(args: &cli::Tokenize) -> Done {
    let tokenizer = match args.tokenizer == Path::new("bytes") {
        true => Tokenizer::bytes(),
        false => Tokenizer::open(&args.tokenizer).map_err(Failure::input)?,
    };
    let reading = Reading {
        key: &args.key,
        separator: &args.separator,
    };
    let read: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    output::check_kind(&args.output, &["bin"], &read).map_err(Failure::input)?;
    let tokens = tokenise::write(&args.files, reading, &tokenizer, &args.output, Show::Auto)
        .map_err(Failure::input)?;
    outln!(
        "{} of {} in {}",
        terminal::count(tokens as usize, "token"),
        terminal::count(tokenizer.vocabulary() as usize, "kind"),
        args.output.shown()
    );
    Ok(())
}
