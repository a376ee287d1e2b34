//! `odec fmt`: formats files in place, or lists those that are not formatted.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_grammar::{Sources, dump, format, parse};
use odec_runtime::Shown;
use odec_runtime::system::files;
use odec_runtime::{out, outln};
use odec_source::escape::escaped;
use std::fs;
use std::io::Write;
use std::path::Path;

pub fn run(args: &cli::Fmt) -> Done {
    let mut differing = 0;
    let mut errors = 0;
    for path in &args.files {
        match one(path, args.check) {
            Ok(differs) => differing += usize::from(differs),
            Err(Failure::Reported { errors: n }) => errors += n,
            Err(e) => return Err(e),
        }
    }
    match (errors, args.check) {
        (0, true) if differing > 0 => {
            let files = if differing == 1 {
                "file is"
            } else {
                "files are"
            };
            Err(Failure::Input(format!(
                "{differing} {files} not formatted; `odec fmt` without --check formats in place"
            )))
        }
        (0, _) => Ok(()),
        _ => Err(Failure::Reported { errors }),
    }
}

/// Formats or checks one file, `-` being standard input to standard output. Whether it was not formatted.
fn one(path: &Path, check: bool) -> Done<bool> {
    let stdin = path == Path::new("-");
    let (name, text) = if stdin {
        let name = "standard input".to_string();
        let text = source::source_text(std::io::stdin());
        let text = text.map_err(|why| Failure::Input(format!("{name}: {why}")))?;
        (name, text)
    } else {
        (path.display().to_string(), source::read(path)?)
    };
    let formatted = formatted(&name, &text)?;
    let differs = formatted != text;
    if check {
        if differs {
            outln!("{}", escaped(&name));
        }
    } else if stdin {
        out!("{formatted}");
    } else if differs {
        replace(path, &formatted).map_err(|e| Failure::Input(format!("{}: {e}", path.shown())))?;
        outln!("{}", escaped(&name));
    }
    Ok(differs)
}

/// The formatted text. Formatting is not allowed to change what is written over a user's file: its tree is compared.
fn formatted(name: &str, text: &str) -> Done<String> {
    let mut sources = Sources::default();
    let source = sources.add(name, text);
    let formatted = match format(source, text) {
        Ok(formatted) => formatted,
        Err(errors) => {
            source::report(&errors, &sources)?;
            return Err(Failure::internal("formatting failed without an error"));
        }
    };
    let (before, after) = (parse(source, text), parse(source, &formatted));
    if !after.1.is_empty() || dump(&before.0) != dump(&after.0) {
        return Err(Failure::internal(format!(
            "{name}: formatting would change its meaning; the file is unchanged"
        )));
    }
    Ok(formatted)
}

/// Replaces a file as a whole; a link keeps pointing at it, and it keeps its permissions.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let permissions = fs::metadata(&path)?.permissions();
    if permissions.readonly() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::PermissionDenied,
            "the file is read-only",
        ));
    }
    files::replace_file(&path, Some(permissions), |out| {
        out.write_all(text.as_bytes())
    })
}
