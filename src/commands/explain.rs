//! `odec explain`: what the code of an error means, how to mend it, and a file that gives it with the message.
//! Examples are the inputs of the tests of errors, embedded; what is said of them is computed here.

use crate::cli;
use odec_compiler::model::{CompileError, compile};
use odec_compiler::scheme::names::Loader;
use odec_compiler::text::page::Page;
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_driver::terminal;
use odec_grammar::codes::{self, Code};
use odec_grammar::{Diagnostic, Sources, nearest, parse, render, set};
use odec_runtime::{out, outln};

/// Name and text of every example: `CODE.ode`, and what these import.
const EXAMPLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

pub fn run(args: &cli::Explain) -> Done {
    match &args.code {
        _ if args.markdown => markdown(),
        Some(name) => one(find(name)?),
        None => list(),
    }
}

/// All codes, in the order of their names.
fn sorted() -> Vec<&'static Code> {
    let mut all: Vec<&Code> = codes::all().collect();
    all.sort_by_key(|code| code.name);
    all
}

/// The code of this name, which may stand in the brackets that errors have it in.
fn find(name: &str) -> Done<&'static Code> {
    let name = name
        .trim_start_matches("error")
        .trim_start_matches("warning");
    let name = name.trim_matches(['[', ']']);
    codes::find(name).ok_or_else(|| {
        let near = nearest(name, codes::all().map(|code| code.name));
        let help = near.map_or("`odec explain` lists them all".to_string(), |near| {
            format!("did you mean `{near}`?")
        });
        Failure::Input(format!("there is no error code `{name}`; {help}"))
    })
}

fn list() -> Done {
    let all = sorted();
    let width = all.iter().map(|code| code.name.len()).max().unwrap_or(0);
    for code in all {
        outln!("{:<width$}  {}", code.name, code.meaning);
    }
    Ok(())
}

fn one(code: &Code) -> Done {
    let (example, shown) = example(code)?;
    let mut page = Page::new(terminal::screen());
    page.paragraph(&format!("{}: {}", code.name, code.meaning));
    page.blank();
    page.paragraph(code.mend);
    outln!("{}", page.finish());
    for line in example.lines() {
        outln!("{}", format!("    {line}").trim_end());
    }
    outln!("\n{shown}");
    Ok(())
}

const HEAD: &str = "# Errors and warnings

Written by `odec explain --markdown > docs/errors.md`; a test compares.

The code of a message stands in brackets: `error[not-a-field]`. `odec explain not-a-field` prints its section of this page. Each has a meaning, what to do, and
an example with what odec says of it.
";

/// The page docs/errors.md.
fn markdown() -> Done {
    out!("{HEAD}");
    for code in sorted() {
        let (example, shown) = example(code)?;
        outln!("\n## {}\n\n{}\n\n{}", code.name, code.meaning, code.mend);
        outln!("\n```text\n{}\n```", example.trim_end());
        outln!("\n```text\n{shown}\n```");
    }
    Ok(())
}

/// Most messages that are shown of an example.
const MOST: usize = 2;

/// A file that gives the code, and the first things that are said of it with that code.
fn example(code: &Code) -> Done<(&'static str, String)> {
    let name = format!("{}.ode", code.name);
    let missing = || Failure::internal(format!("`{}` has no example", code.name));
    let text = embedded(&name).ok_or_else(missing)?;
    let mut sources = Sources::with(LIBRARY);
    let messages = messages(&name, text, &mut sources)?;
    let messages = messages.iter().filter(|d| d.code == code.name).take(MOST);
    let shown: Vec<String> = messages.map(|d| render(d, &sources, false)).collect();
    if shown.is_empty() {
        return Err(missing());
    }
    Ok((text, shown.join("\n\n")))
}

/// What odec says of a file. Lines `// --set PATH=VALUE` at its beginning are done as on the command line.
fn messages(name: &str, text: &str, sources: &mut Sources) -> Done<Vec<Diagnostic>> {
    let main = sources.add(name, text);
    let (mut file, mut messages) = parse(main, text);
    let sets = text.lines().map_while(|l| l.strip_prefix("// --set "));
    for (path, value) in sets.filter_map(|given| given.split_once('=')) {
        messages.extend(set(&mut file, sources, path, value).err());
    }
    if !messages.is_empty() {
        return Ok(messages);
    }
    match compile(&file, main, sources, &mut Embedded) {
        Ok(checked) => Ok(checked.warnings),
        Err(CompileError::Source(messages)) => Ok(messages),
        Err(CompileError::Internal(e)) => Err(Failure::internal(e)),
    }
}

fn embedded(name: &str) -> Option<&'static str> {
    let found = EXAMPLES.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

struct Embedded;

impl Loader for Embedded {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        let text = embedded(path).ok_or("no such file")?;
        Ok((path.to_string(), text.to_string()))
    }
}
