//! `odec new`: a commented file to start from.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_grammar::{Sources, parse, render};
use odec_runtime::system::{files, output};
use odec_runtime::{Shown, outln};
use std::io::ErrorKind;

/// What the file says, `NAME` standing for the model's name.
const STARTER: &str = include_str!("starter.ode");

pub fn run(args: &cli::New) -> Done {
    if args.file.file_name().is_none() {
        return Err(Failure::Input(format!(
            "{} is a folder; name the file to write in it: `odec new {}`",
            args.file.shown(),
            args.file.join("mine").shown()
        )));
    }
    let path = match source::is_source(&args.file) {
        true => args.file.clone(),
        false => args.file.with_added_extension("ode"),
    };
    let shown = path.shown();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.replace('-', "_");
    let text = STARTER.replace("NAME", &name);
    let (_, messages) = parse(0, &text);
    if let Some(first) = messages.first() {
        let mut sources = Sources::default();
        sources.add(shown.to_string(), &*text);
        let why = render(first, &sources, false);
        let why = why.lines().next().unwrap_or_default();
        return Err(Failure::Input(format!(
            "a model cannot be called `{name}` ({why}); use letters, digits and _, and no word of the language"
        )));
    }
    output::check_folder(files::parent(&path)).map_err(Failure::input)?;
    files::create_file(&path, text.as_bytes()).map_err(|e| {
        Failure::Input(match e.kind() {
            ErrorKind::AlreadyExists => format!("{shown} exists and is not changed"),
            _ => format!("{shown}: {e}"),
        })
    })?;
    outln!("{shown}");
    Ok(())
}
