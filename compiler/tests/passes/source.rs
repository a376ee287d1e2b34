//! Texts to models, for the tests of what is made of them.

use odec_compiler::model::{Built, Checked, CompileError, compile};
use odec_compiler::scheme::NoFiles;
use odec_grammar::{Diagnostic, Sources, parse, render};
use odec_library::shipped;

/// A text that is right.
#[track_caller]
pub fn checked(text: &str) -> Checked {
    let mut sources = Sources::with(shipped::library());
    let main = sources.add("test.ode", text);
    let (file, errors) = parse(main, text);
    let refused = match compile(&file, main, &mut sources, &mut NoFiles) {
        Ok(checked) if errors.is_empty() => return checked,
        Err(CompileError::Internal(e)) => panic!("{e}\n{text}"),
        Err(CompileError::Source(more)) if errors.is_empty() => more,
        _ => errors,
    };
    let shown = |d: &Diagnostic| render(d, &sources, false);
    panic!("{}", refused.iter().map(shown).collect::<String>());
}

/// The model of a text.
#[track_caller]
pub fn built(text: &str) -> Built {
    checked(text).built.expect("the text has a model")
}
