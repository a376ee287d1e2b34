//! Hostile sources: files of the library with words taken out, doubled and exchanged, and with numbers as large as they get.

use crate::mutate::Stream;
use crate::worker::Verdict;
use odec_compiler::model::{CompileError, compile};
use odec_compiler::passes::{Options, build_manifest};
use odec_compiler::scheme::NoFiles;
use odec_grammar::{Diagnostic, Severity, Sources, parse, render};
use odec_library::shipped;
use odec_program::Target;
use std::sync::OnceLock;

const STRANGE: &[&str] = &[
    "0",
    "-1",
    "1/0",
    "10^9",
    "1e400",
    "sqrt(-1)",
    "999999999999999999999",
    "4 GiB",
    "x",
    "h",
    "F",
    "field",
    "layer f(n) =",
    "step",
    "repeat 20000 {",
    "learn",
    "{",
    "}",
    "(",
    ")",
    "[",
    "|>",
    ":",
    "=",
    "..",
    "sum j in 0.. {",
    "\"",
    "///",
    "\n",
    "per",
    "shared",
    "of time",
    "\u{0}",
    "\u{202e}",
    "\u{1b}[2J",
];

fn texts() -> &'static [Vec<String>] {
    static TEXTS: OnceLock<Vec<Vec<String>>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        // Long tables take seconds to prove, and have no words that short ones lack.
        let words = |text: &String| {
            let words = text.split_inclusive([' ', '\n', '(', ')', ',', '[', ']', '*', '+']);
            words.map(String::from).collect()
        };
        let texts = shipped::all().iter().map(|file| &file.text);
        texts.filter(|t| t.len() < 2500).map(words).collect()
    })
}

pub fn run(case: u64) -> Verdict {
    let s = &mut Stream::new("sources", case);
    let mut words = s.pick(texts()).clone();
    for _ in 0..=s.below(4) {
        let at = s.below(words.len());
        match s.below(5) {
            0 if words.len() > 1 => _ = words.remove(at),
            1 => words.insert(at, words[at].clone()),
            2 => {
                let other = s.below(words.len());
                words.swap(at, other);
            }
            3 => {
                let other = s.pick(texts());
                words[at] = s.pick(other).clone();
            }
            _ => words[at] = s.pick(STRANGE).to_string(),
        }
    }
    let text = words.concat();
    let mut sources = Sources::with(shipped::library());
    let main = sources.add("hostile.ode", &text);
    let (file, mut errors) = parse(main, &text);
    let mut built = None;
    if errors.is_empty() {
        match compile(&file, main, &mut sources, &mut NoFiles) {
            Ok(checked) => built = checked.built,
            Err(CompileError::Source(found)) => errors = found,
            Err(e) => return Verdict::refused(e, ""),
        }
    }
    for d in &errors {
        let said = render(d, &sources, false);
        if d.labels.is_empty() || !said.contains("hostile.ode") {
            return Verdict::refused(said, "");
        }
    }
    let serious = |d: &&Diagnostic| d.severity == Severity::Error;
    if let Some(first) = errors.iter().find(serious) {
        return Verdict::refused(render(first, &sources, false), "hostile.ode");
    }
    let Some(built) = built else {
        return Verdict::Ran;
    };
    match build_manifest(&built, &text, Options::of(Target::Avx2, built.real())) {
        Ok(_) => Verdict::Ran,
        Err(e) => Verdict::refused(&e, &e),
    }
}
