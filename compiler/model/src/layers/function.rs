//! Functions: layers without parameters, each an entry of the tables in `functions.rs` and `column_functions.rs`.
//!
//! Takes an entry and the values that it is applied to; gives a layer. What is the same for all tokens is computed once: of a row of columns a function
//! makes a row, of a matrix a matrix, and a function that gives one number for all columns makes a row of a matrix, with a column for each of its rows.
//! Whoever documents or tests layers sees a [`Definition`] as of any other.

use super::arguments::Silent;
use super::heads::columns_of_head;
use super::network::{Network, meeting};
use super::pipeline::{Input, Read, Rows};
use super::{
    About, Argument, Definition, Example, Facts, Form, Group, Inputs, LayerKind, LayerParam,
    MAX_WIDTH, Reading, Reads, TypeResult, Weights, column_functions, functions,
};
use crate::codes;
use crate::scheme::function as numbers;
use crate::scheme::scalar::name_of;
use crate::scheme::vocabulary::With;
use odec_grammar::ast::{Call, Expr};
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Reshape;
use odec_graph::{Builder, Exact, Value, nn};
use std::fmt;

/// What a function is applied to.
pub const X: Argument = Argument::operand("x", "what it is applied to");
/// The operands of a function of two.
pub const A: Argument = Argument::operand("a", "a value or a number");
pub const B: Argument = Argument::operand(
    "b",
    "a value or a number, as wide as the other or of one column; alone, it is the second, and the first is the layer's input",
);
/// Groups of columns.
pub const HEADS: Argument = Argument::whole(
    "heads",
    "all columns together",
    "heads, which divide the columns among them: each by itself",
);

/// An entry of a table.
pub struct Function {
    pub name: &'static str,
    pub about: About,
    pub arguments: &'static [Argument],
    pub examples: &'static [Example],
    pub over: Over,
    /// What it may be applied to.
    pub domain: Domain,
    /// What else its name stands for.
    pub with: Option<With>,
    pub build: fn(&mut Builder, &Operands) -> TypeResult,
    /// Whether each element of its result is from 0 to 1.
    pub gives_shares: bool,
}

/// What one element of the result is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// One element.
    Elements,
    /// An element of each of two values.
    Pairs,
    /// The columns of a head; as many come out.
    Columns,
    /// The columns of a head; one number comes out.
    Heads,
}

/// The numbers at which something has a value and a derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    All,
    Positive,
    NotZero,
}

impl Domain {
    /// Says that a value is not trained which is outside of it before training: it or its derivative is infinite or no number. `what`: what is computed
    /// of it, `e`: where it is written.
    pub(super) fn check(
        self,
        what: &str,
        of: &Network,
        e: &Expr,
        at: Input,
    ) -> Result<(), Diagnostic> {
        let Some(start) = at.start(of) else {
            return Ok(());
        };
        let expected = match self {
            Domain::Positive if start <= 0.0 => "a number above 0",
            Domain::NotZero if start == 0.0 => "a number other than 0",
            _ => return Ok(()),
        };
        let message = format!("{what} has no value or no derivative where training begins");
        let d = Diagnostic::error(codes::ARITHMETIC, e.span, message);
        let d = d.label(format!(
            "this begins with {start}, and {expected} is expected"
        ));
        let d = match name_of(e).and_then(|name| at.find(&name.name)) {
            Some(named) => d.also(named.name.span, "set here"),
            None => d,
        };
        Err(d.help(
            "begin with another number, `learn g = 1`; `exp(g)` and `softplus(g)` stay above 0",
        ))
    }
}

/// The values that a function is applied to.
pub struct Operands<'a> {
    pub x: Value,
    /// The second of two; else the same.
    pub y: Value,
    /// What is given for its number.
    pub number: &'a Exact,
    /// Which of its words is given.
    pub word: usize,
}

/// A function applied.
#[derive(Clone, PartialEq)]
pub struct Applied {
    function: &'static Function,
    operands: Vec<Operand>,
    number: Exact,
    word: usize,
    heads: u64,
    whose: Whose,
    /// Columns of the result.
    columns: u64,
}

/// What stands for a value.
#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Value(Network),
    Number(Exact),
}

/// Whose value something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Each token has its own.
    Tokens,
    /// One row of columns, the same for all.
    Row,
    /// A matrix of so many rows, the same for all, or a list of such.
    Matrix(Rows),
}

impl Whose {
    fn of(x: &Read) -> Whose {
        match (x.rows, x.fixed) {
            (Some(rows), _) => Whose::Matrix(rows),
            (None, true) => Whose::Row,
            (None, false) => Whose::Tokens,
        }
    }

    /// What this is made of.
    fn operand(self, x: Read) -> Operand {
        match self {
            Whose::Tokens => Operand::Value(x.for_tokens().0),
            Whose::Row | Whose::Matrix(_) => Operand::Value(x.network),
        }
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Applied {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Applied {
            operands,
            number,
            word,
            heads,
            whose,
            ..
        } = self;
        let name = self.function.name;
        write!(
            f,
            "{name}({operands:?}, {number}, {word}, {heads}, {whose:?})"
        )
    }
}

/// Whether this calls a function whose result has the shape of what it is applied to.
pub(super) fn keeps_shape(call: &Call) -> bool {
    let Some(name) = name_of(&call.callee) else {
        return false;
    };
    let has = |label: &str| {
        let mut labels = call.args.iter().filter_map(|a| a.label.as_ref());
        labels.any(|l| l.name == label)
    };
    let is_mlp = |f: &Function| f.with.is_some_and(|with| has(with.argument));
    let mut named = all().filter(|f| f.name == name.name && !is_mlp(f));
    named.any(|f| f.over != Over::Heads)
}

/// All functions.
pub fn all() -> impl Iterator<Item = &'static Function> {
    functions::TABLE.iter().chain(column_functions::TABLE)
}

impl Function {
    pub const fn definition(&self) -> Definition {
        Definition {
            name: self.name,
            about: self.about,
            arguments: self.arguments,
            examples: self.examples,
            role: None,
            facts: Facts::NONE,
            reads_input: true,
            group: match self.over {
                Over::Elements | Over::Pairs => Group::Elements,
                Over::Columns | Over::Heads => Group::Columns,
            },
            with: self.with,
            read: |r| {
                let (applied, width) = Applied::read(r)?;
                Some((Network::Layer(LayerKind::Applied(Box::new(applied))), width))
            },
        }
    }

    fn number(&self) -> Option<&'static Argument> {
        self.arguments.iter().find(|a| a.bounds().is_some())
    }

    fn word(&self) -> Option<&'static Argument> {
        let is_word = |a: &&Argument| matches!(a.form, Form::Word(_));
        self.arguments.iter().find(is_word)
    }
}

impl Applied {
    pub fn name(&self) -> &'static str {
        self.function.name
    }

    /// Of the layer that is being read.
    pub fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let name = r.name();
        let function = all().find(|f| f.name == name)?;
        let (operands, width, of) = match function.over {
            Over::Pairs => pair(r)?,
            _ => {
                let x = r.function_of(&X, function)?;
                let (width, of) = (x.columns, Whose::of(&x));
                (vec![of.operand(x)], width, of)
            }
        };
        let number = match function.number() {
            Some(a) => r.number(a),
            None => Some(Exact::zero()),
        };
        let word = match function.word() {
            Some(a) => r.word(a, &format!("`{name}` has no such form")),
            None => Some(0),
        };
        let heads = match function.over {
            Over::Columns | Over::Heads => heads(r, width),
            Over::Elements | Over::Pairs => Some(1),
        };
        let (number, word, heads) = (number?, word?, heads?);
        let (whose, columns) = match (of, function.over) {
            (Whose::Matrix(_), Over::Heads) if heads > 1 => {
                let message = format!("of a matrix `{name}` gives one column for each row");
                let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, r.span(), message);
                return r.fail(d.help("leave `heads` out"));
            }
            (Whose::Matrix(rows), Over::Heads) => (Whose::Row, rows.all()),
            (of, Over::Heads) => (of, heads),
            (of, _) => (of, width),
        };
        match whose {
            Whose::Tokens => {}
            Whose::Row => r.gives(None),
            Whose::Matrix(rows) => r.gives(Some(rows)),
        }
        let applied = Applied {
            function,
            operands,
            number,
            word,
            heads,
            whose,
            columns,
        };
        Some((applied, columns))
    }

    fn networks(&self) -> impl Iterator<Item = &Network> {
        self.operands.iter().filter_map(|o| match o {
            Operand::Value(network) => Some(network),
            Operand::Number(_) => None,
        })
    }

    pub fn params(&self) -> Vec<LayerParam> {
        self.networks().flat_map(Network::params).collect()
    }

    pub fn reads(&self) -> Reads {
        let each = self.networks().map(Network::reads);
        each.fold(Reads::default(), Reads::and)
    }

    pub fn gives_shares(&self) -> bool {
        self.function.gives_shares
    }

    /// The number that each element of its result is before training, where that is known and one number.
    pub fn start(&self, named: &dyn Fn(usize) -> Option<f64>) -> Option<f64> {
        let function = numbers::Function::called(self.name())?;
        match &self.operands[..] {
            [Operand::Value(of)] => Some(function.at(of.start(named)?)),
            _ => None,
        }
    }

    pub fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let mut values = Vec::new();
        for operand in &self.operands {
            values.push(match operand {
                Operand::Value(network) => network.value(b, at, w)?,
                Operand::Number(c) => nn::constant(b, c.clone())?,
            });
        }
        meeting(b, &mut values, at)?;
        let over_columns = matches!(self.function.over, Over::Columns | Over::Heads);
        if over_columns && b.ty(values[0]).rank() == 0 {
            values[0] = b.push1(Reshape::fixed(&[1]), &values[..1])?;
        }
        let (x, number, word) = (values[0], &self.number, self.word);
        let y = values.get(1).copied();
        let made = nn::per_head(b, x, self.heads, |b, x| {
            let y = y.unwrap_or(x);
            (self.function.build)(b, &Operands { x, y, number, word })
        })?;
        match self.whose {
            Whose::Row => row(b, made, self.columns),
            Whose::Tokens | Whose::Matrix(_) => Ok(made),
        }
    }

    pub fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

/// A row of so many columns: a number, if it is one.
fn row(b: &mut Builder, x: Value, columns: u64) -> TypeResult {
    let shape: &[u64] = if columns == 1 { &[] } else { &[columns] };
    let shape = Reshape::fixed(shape);
    match b.ty(x).shape[..] == shape.to[..] {
        true => Ok(x),
        false => b.push1(shape, &[x]),
    }
}

/// An operand of a function of two.
enum Found<'e> {
    Number(Exact),
    Value(&'e Expr, Read),
    Input(u64),
}

impl Found<'_> {
    fn columns(&self) -> u64 {
        match self {
            Found::Number(_) => 1,
            Found::Value(_, read) => read.columns,
            Found::Input(width) => *width,
        }
    }
}

/// The two values of a function of two, the width of the wider, and whose they are together.
fn pair(r: &mut Reading) -> Option<(Vec<Operand>, u64, Whose)> {
    let said = [r.unnamed(&A), r.unnamed(&B)];
    let mut found = Vec::new();
    for e in said.into_iter().flatten() {
        found.push(match r.constant(e) {
            Some(number) => Found::Number(number),
            None => Found::Value(e, r.value_or_matrix(e)?),
        });
    }
    if let Some(width) = r.input_width() {
        while found.len() < 2 {
            found.insert(0, Found::Input(width));
        }
    }
    let name = r.name();
    let number = |o: &Found| matches!(o, Found::Number(_));
    if found.len() < 2 || found.iter().all(number) {
        let message = format!("`{name}` is applied to two values, or to one and a number");
        let d = Diagnostic::error(codes::ARGUMENT_COUNT, r.span(), message);
        return r.refuse(d.help(format!("write `{name}(a, b)` or `{name}(a, 0)`")));
    }
    let (a, b) = (found[0].columns(), found[1].columns());
    if a != b && a.min(b) != 1 {
        let message = format!("`{name}` is applied to values of width {a} and {b}");
        let d = Diagnostic::error(codes::WIDTH_MISMATCH, r.span(), message);
        return r.refuse(d.label("widths must be equal, or one of them 1"));
    }
    let reads = found.iter().filter_map(|o| match o {
        Found::Value(e, read) => Some((*e, read)),
        Found::Number(_) | Found::Input(_) => None,
    });
    let fixed = |o: &Found| match o {
        Found::Number(_) => true,
        Found::Value(_, read) => read.fixed,
        Found::Input(_) => false,
    };
    let whose = match r.rows_of(reads)? {
        Some(rows) => Whose::Matrix(rows),
        None if found.iter().all(fixed) => Whose::Row,
        None => Whose::Tokens,
    };
    let operands = found.into_iter().map(|o| match o {
        Found::Number(number) => Operand::Number(number),
        Found::Value(_, read) => whose.operand(read),
        Found::Input(_) => Operand::Value(Network::input()),
    });
    Some((operands.collect(), a.max(b), whose))
}

/// How many heads divide the columns: one where nothing is said.
pub fn heads(r: &mut Reading, width: u64) -> Option<u64> {
    let Some(e) = r.given(&HEADS) else {
        return Some(1);
    };
    let heads = r.whole(e, MAX_WIDTH)?;
    columns_of_head(r, e, heads, width)?;
    Some(heads)
}

/// An entry's number.
pub const fn number(
    name: &'static str,
    bounds: crate::scheme::args::Bounds,
    (of, by): (i64, i64),
    meaning: &'static str,
) -> Argument {
    Argument::number(name, bounds, Silent::Ratio(of, by), meaning)
}
