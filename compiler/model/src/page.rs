//! What the documentation says of a layer, as data: all of it comes from what the layer declares, and from reading its first example.
//!
//! Leaves how it looks to whoever prints it.

use super::CompileError;
use super::alone::{Alone, SHOWN, alone};
use super::layers::{About, Argument, Definition, Example, Form, LayerParam, Silent, Start};

/// A layer's page.
pub struct Page {
    pub name: String,
    pub about: About,
    pub arguments: Vec<ArgumentLine>,
    pub examples: Vec<Example>,
    /// Of the first example, in a model of [`SHOWN`] sizes.
    pub parameters: Vec<ParameterLine>,
    /// The first example by itself.
    pub alone: Alone,
}

/// An argument in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentLine {
    pub name: String,
    pub form: String,
    pub default: String,
    pub meaning: String,
}

/// A parameter in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterLine {
    pub path: String,
    pub shape: Vec<u64>,
    pub start: String,
}

impl Definition {
    /// What the documentation says of it.
    ///
    /// # Errors
    /// Its first example is not valid.
    pub fn page(&self) -> Result<Page, CompileError> {
        let first = self.examples.first().map_or(self.name, |e| e.text);
        let alone = alone(first, SHOWN)?;
        Ok(Page {
            name: self.name.into(),
            about: self.about,
            arguments: lines(self.arguments),
            examples: self.examples.to_vec(),
            parameters: alone.params.iter().map(line).collect(),
            alone,
        })
    }
}

/// Those that must be given first; arguments of words after the word that they belong to.
fn lines(arguments: &[Argument]) -> Vec<ArgumentLine> {
    let needed = |a: &&Argument| a.silent == Silent::Needed;
    let sorted = arguments.iter().filter(needed);
    let sorted = sorted.chain(arguments.iter().filter(|a| !needed(a)));
    let mut lines = Vec::new();
    for a in sorted {
        lines.push(a.line(a.name.into()));
        if let Form::Options(inside) = a.form {
            let inner = |i: &Argument| i.line(format!("{}({}: …)", a.name, i.name));
            lines.extend(inside.iter().map(inner));
        }
    }
    lines
}

impl Argument {
    fn line(&self, name: String) -> ArgumentLine {
        ArgumentLine {
            name,
            form: self.form_in_words(),
            default: self.default_in_words(),
            meaning: self.meaning.into(),
        }
    }

    fn form_in_words(&self) -> String {
        let listed = |words: &[&str], last: &str| {
            let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
            words.join(last)
        };
        match self.form {
            Form::Flag => "a word that stands alone".into(),
            Form::Whole => "a whole number from 1".into(),
            Form::UnnamedWhole => "a whole number from 1, without a name".into(),
            Form::Number(bounds) => bounds.text(),
            Form::UnnamedNumber(bounds) => format!("{}, with or without the name", bounds.text()),
            Form::Word(words) => listed(words, " or "),
            Form::Options(_) => "a word that stands alone, or with arguments of its own".into(),
            Form::Some(of) => format!(
                "a word that stands alone, or a list of some of {}",
                listed(of, ", ")
            ),
            Form::Fields => "fields, separated by commas".into(),
        }
    }

    fn default_in_words(&self) -> String {
        match self.silent {
            Silent::Needed => "needed".into(),
            Silent::Off => "off".into(),
            Silent::Ratio(..) => self.number_meant().map_or_else(String::new, |x| {
                let x = x.to_f64();
                match (1e-3..1e6).contains(&x) {
                    true => format!("{x}"),
                    false => format!("{x:e}"),
                }
            }),
            Silent::Is(word) => format!("`{word}`"),
            Silent::Follows(from) => from.into(),
        }
    }
}

fn line(p: &LayerParam) -> ParameterLine {
    let start = match p.start {
        Start::Normal => "normal, with the model's deviation",
        Start::Ones => "1",
        Start::Zeros => "0",
    };
    ParameterLine {
        path: p.path.clone(),
        shape: p.shape.clone(),
        start: start.into(),
    }
}
