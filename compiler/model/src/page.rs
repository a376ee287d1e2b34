//! What the documentation says of a layer, an optimiser or a schedule, as data: all of it comes from what they declare, and from reading a
//! layer's first example.
//!
//! Leaves how it looks to whoever prints it.

use super::CompileError;
use super::alone::{Alone, SHOWN, alone};
use super::layers::{About, Argument, Definition, Example, Form, LayerParam, Silent, Start};
use odec_program::bounds::Bounds;
use odec_program::choice::{self, Choice, Visitor};

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
            Silent::Ratio(..) => self
                .number_meant()
                .map_or_else(String::new, |x| short(x.to_f64())),
            Silent::Is(word) => format!("`{word}`"),
            Silent::Follows(from) => from.into(),
        }
    }
}

/// A number as it would be written.
fn short(x: f64) -> String {
    match x == 0.0 || (1e-3..1e6).contains(&x) {
        true => format!("{x}"),
        false => format!("{x:e}"),
    }
}

/// The arguments of an optimiser or a schedule, with what is meant where nothing is said.
pub fn choice_lines(chosen: &mut (impl Choice + ?Sized)) -> Vec<ArgumentLine> {
    let mut lines = ChoiceLines(Vec::new());
    chosen.arguments(&mut lines);
    lines.0
}

struct ChoiceLines(Vec<ArgumentLine>);

impl ChoiceLines {
    fn add(&mut self, a: &choice::Argument, form: String, default: String) {
        self.0.push(ArgumentLine {
            name: a.name.into(),
            form,
            default: if a.needed { "needed".into() } else { default },
            meaning: a.meaning.into(),
        });
    }
}

impl Visitor for ChoiceLines {
    fn number(&mut self, a: &choice::Argument, bounds: Bounds, value: &mut f64) {
        self.add(a, bounds.text(), short(*value));
    }
    fn pair(&mut self, a: &choice::Argument, bounds: Bounds, (x, y): &mut (f64, f64)) {
        let form = format!("two numbers in parentheses, each {}", bounds.text());
        self.add(a, form, format!("({}, {})", short(*x), short(*y)));
    }
    fn steps(&mut self, a: &choice::Argument, value: &mut u64) {
        let form = "a number of steps (`200 steps`, `200`), or a share of the run's (`5%`, `0.05`)";
        self.add(a, form.into(), value.to_string());
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
