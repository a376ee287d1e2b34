//! Any text through parser, formatter and compiler: no panic, no message without a place in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use odec_compiler::model::{CompileError, compile};
use odec_compiler::scheme::NoFiles;
use odec_grammar::{Sources, format, parse, render};

fuzz_target!(|text: &str| {
    let mut sources = Sources::with(odec_library::shipped::library());
    let main = sources.add("fuzz.ode", text);
    let (file, mut messages) = parse(main, text);
    if messages.is_empty() {
        if let Ok(once) = format(main, text) {
            let twice = format(main, &once).expect("what was formatted can be formatted");
            assert_eq!(twice, once, "formatting is idempotent");
        }
        match compile(&file, main, &mut sources, &mut NoFiles) {
            Ok(checked) => messages = checked.warnings,
            Err(CompileError::Source(given)) => messages = given,
            Err(CompileError::Internal(e)) => panic!("{e}"),
        }
    }
    for d in &messages {
        assert!(!d.labels.is_empty(), "{d:?} has no place");
        render(d, &sources, false);
    }
});
