//! Arguments of layers and of other parts: their names, what may be given for them, what is meant where nothing is said, and why.
//!
//! An argument is read by its declaration ([`Given`]), so that what is documented is what is read. What values are allowed say `part.rs` and, for
//! layers, `layers/reading.rs`.

use crate::scheme::args::{Args, Bounds};
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Argument {
    pub name: &'static str,
    pub form: Form,
    pub silent: Silent,
    pub meaning: &'static str,
}

/// What may be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A word that stands alone: `causal`.
    Flag,
    /// A whole number from 1: `heads: 8`.
    Whole,
    /// A whole number from 0: `from: 0`.
    Index,
    /// Any number: `scale: 1/2`.
    Exact,
    /// A number within bounds: `eps: 1e-6`.
    Number(Bounds),
    /// A whole number from 1, or two of them: `image: [28, 32]`.
    Sides,
    /// One of these words: `approximate: tanh`.
    Word(&'static [&'static str]),
    /// A whole number without a name: `linear(4*width)`.
    UnnamedWhole,
    /// A number with or without its name: `dropout(10%)`.
    UnnamedNumber(Bounds),
    /// The same, or a rule for each step: `dropout(20%*k/steps)`.
    Rule(Bounds),
    /// Pipelines side by side, or the field's parameters.
    Fields,
    /// A value that the layer is applied to, without a name: a pipeline or one of the field's parameters, `attend(q, k, v)`.
    Operand,
    /// Another value, behind its name: `decay: linear(8) |> sigmoid`.
    Value,
    /// The label of an output: `of: class`.
    Label,
    /// One of these, with arguments of its own or without: `time: logit_normal(std: 1/2)`.
    Call(&'static [Called]),
    /// Something in quotes: `key: "text"`.
    Text,
    /// A word, or a path in quotes: `tokenizer: bytes`.
    WordOrPath(&'static str),
    /// Paths in quotes without a name, at least one.
    Paths,
    /// A whole percentage, from one to another: `held_out: 10%`.
    Percent(u32, u32),
}

/// What may be called where an argument is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Called {
    pub name: &'static str,
    pub arguments: &'static [Argument],
}

/// The default of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// It must be said.
    Needed,
    /// The same as without the word.
    Off,
    /// This number, as it would be written: numerator and denominator.
    Ratio(i64, i64),
    /// This word.
    Is(&'static str),
    /// What follows from other numbers, in words.
    Follows(&'static str),
}

impl Argument {
    const fn new(name: &'static str, form: Form, silent: Silent, meaning: &'static str) -> Self {
        Argument {
            name,
            form,
            silent,
            meaning,
        }
    }

    pub const fn flag(name: &'static str, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Flag, Silent::Off, meaning)
    }

    /// A whole number that must be said.
    pub const fn size(name: &'static str, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Whole, Silent::Needed, meaning)
    }

    /// A whole number that is this where it is not said.
    pub const fn count(name: &'static str, silent: i64, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Whole, Silent::Ratio(silent, 1), meaning)
    }

    /// A whole number from 0 that is this where it is not said.
    pub const fn index(name: &'static str, silent: i64, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Index, Silent::Ratio(silent, 1), meaning)
    }

    /// A whole number from 0 that must be said.
    pub const fn needed_index(name: &'static str, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Index, Silent::Needed, meaning)
    }

    /// A height and a width that must be said.
    pub const fn sides(name: &'static str, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Sides, Silent::Needed, meaning)
    }

    /// A whole number that follows from others where it is not said.
    pub const fn whole(
        name: &'static str,
        silent: &'static str,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, Form::Whole, Silent::Follows(silent), meaning)
    }

    pub const fn number(
        name: &'static str,
        bounds: Bounds,
        silent: Silent,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, Form::Number(bounds), silent, meaning)
    }

    /// One of several words; the last is the default.
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        meaning: &'static str,
    ) -> Argument {
        let silent = Silent::Is(words[words.len() - 1]);
        Argument::new(name, Form::Word(words), silent, meaning)
    }

    pub const fn unnamed(
        name: &'static str,
        form: Form,
        silent: Silent,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, form, silent, meaning)
    }

    /// A value that the layer is applied to: all of them are given, or none, which stands for the layer's input.
    pub const fn operand(name: &'static str, meaning: &'static str) -> Argument {
        let silent = Silent::Follows("the layer's input");
        Argument::new(name, Form::Operand, silent, meaning)
    }

    /// A value behind its name, which need not be given.
    pub const fn value(
        name: &'static str,
        silent: &'static str,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, Form::Value, Silent::Follows(silent), meaning)
    }

    /// The label of an output, which need not be given.
    pub const fn label(
        name: &'static str,
        silent: &'static str,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, Form::Label, Silent::Follows(silent), meaning)
    }

    /// One of several calls; `silent` is the name of that which is meant where nothing is said.
    pub const fn call(
        name: &'static str,
        calls: &'static [Called],
        silent: &'static str,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, Form::Call(calls), Silent::Is(silent), meaning)
    }

    /// Something in quotes.
    pub const fn text(name: &'static str, silent: &'static str, meaning: &'static str) -> Self {
        Argument::new(name, Form::Text, Silent::Is(silent), meaning)
    }

    /// A word or a path that must be said.
    pub const fn word_or_path(
        name: &'static str,
        word: &'static str,
        meaning: &'static str,
    ) -> Argument {
        Argument::new(name, Form::WordOrPath(word), Silent::Needed, meaning)
    }

    /// Paths, of which one must be given.
    pub const fn paths(name: &'static str, meaning: &'static str) -> Argument {
        Argument::new(name, Form::Paths, Silent::Needed, meaning)
    }

    /// A share in whole per cent.
    pub const fn percent(
        name: &'static str,
        (least, most): (u32, u32),
        silent: u32,
        meaning: &'static str,
    ) -> Argument {
        let silent = Silent::Ratio(silent as i64, 100);
        Argument::new(name, Form::Percent(least, most), silent, meaning)
    }

    /// Whether what stands behind its name is computed of tokens.
    pub fn is_value(&self) -> bool {
        self.form == Form::Value
    }

    /// What a number may be.
    pub fn bounds(&self) -> Option<Bounds> {
        match self.form {
            Form::Number(bounds) | Form::UnnamedNumber(bounds) | Form::Rule(bounds) => Some(bounds),
            _ => None,
        }
    }

    /// The default number.
    pub fn number_meant(&self) -> Option<Exact> {
        match self.silent {
            Silent::Ratio(n, d) => Some(Exact::ratio(n, d)),
            _ => None,
        }
    }
}

/// The arguments that a source gives, read by their declarations.
pub struct Given<'e> {
    pub args: Args<'e>,
    /// Those that were read, in order.
    read: Vec<&'static str>,
}

impl<'e> Given<'e> {
    pub fn new(args: Args<'e>) -> Self {
        Given {
            args,
            read: Vec::new(),
        }
    }

    fn note(&mut self, a: &Argument) {
        if !self.read.contains(&a.name) {
            self.read.push(a.name);
        }
    }

    pub fn flag(&mut self, a: &Argument) -> bool {
        self.note(a);
        self.args.flag(a.name)
    }

    /// The value of an argument that need not be given.
    pub fn value(&mut self, a: &Argument, sink: &mut Vec<Diagnostic>) -> Option<&'e Expr> {
        self.note(a);
        self.args.labelled(a.name, sink)
    }

    /// The value of an argument that must be given.
    pub fn needed(&mut self, a: &Argument, sink: &mut Vec<Diagnostic>) -> Option<&'e Expr> {
        self.note(a);
        self.args.required(a.name, sink)
    }

    /// The next argument without a name.
    pub fn unnamed(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.note(a);
        self.args.unnamed()
    }

    /// The next argument, if it has no name and stands before all that have one.
    pub fn leading(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.note(a);
        self.args.leading()
    }

    /// Whether what was read is what is declared, in its order.
    pub fn is_declared(&self, declared: &[Argument]) -> bool {
        declared
            .iter()
            .map(|a| a.name)
            .eq(self.read.iter().copied())
    }
}
