//! Compiles texts for tests. The stage programs of each are printed and read back.

use crate::stage_text::is_read_back;
use odec_compiler::model::{Built, Checked, CompileError, compile};
use odec_compiler::scheme::Loader;
use odec_grammar::{Diagnostic, Sources, parse, render};
use odec_library::shipped;
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// Files by name, in memory.
#[derive(Default)]
pub struct Files(pub BTreeMap<String, String>);

impl Loader for Files {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        let text = self.0.get(path).ok_or("no such file")?;
        Ok((path.to_string(), text.clone()))
    }
}

/// Several cases in one snapshot, each under its name.
#[derive(Default)]
pub struct Cases(String);

impl Cases {
    pub fn add(&mut self, name: impl Display, shown: impl Display) {
        let shown = shown.to_string();
        let gap = if self.0.is_empty() { "" } else { "\n\n" };
        self.0 += &format!("{gap}== {name}\n{}", shown.trim_end());
    }
}

impl Display for Cases {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What came out, with everything that is needed to print it.
pub struct Outcome {
    pub sources: Sources,
    pub messages: Vec<Diagnostic>,
    pub checked: Option<Checked>,
}

impl Outcome {
    pub fn rendered(&self) -> String {
        self.messages
            .iter()
            .map(|d| render(d, &self.sources, false))
            .collect::<Vec<_>>()
            .join("\n")
    }
    /// Without what is said of the fields that [`model`] defines beside those it uses.
    pub fn on_its_flow(mut self) -> Outcome {
        let beside = |d: &Diagnostic| d.message.contains("is not used by model");
        self.messages.retain(|d| !beside(d));
        self
    }
    pub fn checked(&self) -> &Checked {
        match &self.checked {
            Some(c) => c,
            None => panic!("{}", self.rendered()),
        }
    }
    #[track_caller]
    pub fn built(&self) -> &Built {
        self.checked().built.as_ref().expect("a model")
    }
}

/// A text with some parts of it changed, each of which stands there once.
#[track_caller]
pub fn changed(text: &str, parts: &[(&str, &str)]) -> Outcome {
    let change = |text: String, (from, to): &(&str, &str)| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    };
    compile_text(&parts.iter().fold(text.to_string(), change))
}

pub fn compile_files(name: &str, text: &str, files: &mut Files) -> Outcome {
    let mut sources = Sources::with(shipped::library());
    let main = sources.add(name, text);
    let (file, errors) = parse(main, text);
    if !errors.is_empty() {
        return Outcome {
            sources,
            messages: errors,
            checked: None,
        };
    }
    match compile(&file, main, &mut sources, files) {
        Ok(checked) => {
            is_read_back(&checked.programs);
            Outcome {
                sources,
                messages: checked.warnings.clone(),
                checked: Some(checked),
            }
        }
        Err(CompileError::Source(messages)) => Outcome {
            sources,
            messages,
            checked: None,
        },
        Err(CompileError::Internal(e)) => panic!("{e}"),
    }
}

pub fn compile_text(text: &str) -> Outcome {
    compile_files("test.ode", text, &mut Files::default())
}

/// A small model that evolves by `flow`.
pub fn model(flow: &str, steps: u64, options: &str) -> String {
    format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 12)\n\
         field layer = increment(lie(att, ffn))\n\
         field phi = map(lie(att, ffn))\n\
         field both = att + ffn\n\
         model small {{\n  input tokens(vocab: 11, context: 16)\n  embed learned(width: 8)\n  \
         evolve {flow} for {steps} steps {{ {options} }}\n  output rmsnorm |> logits(tied)\n}}\n"
    )
}
