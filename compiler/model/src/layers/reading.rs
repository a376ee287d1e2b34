//! Reads the arguments of a layer by their declarations, and reports what is left over.
//!
//! Takes one part of a pipeline and what it meets; gives its layer and the width of its result. Leaves what stands around a part
//! to `pipeline.rs`, what its parameters are called to `naming.rs`.

use super::function::Function;
use super::naming::Paths;
use super::network::Network;
use super::pipeline::{Input, LayerReader, Named, Read, Rows};
use super::states::{self, Elsewhere, States};
use super::{
    Argument, Definition, Form, Grid, LATER_ARGUMENTS, VOCABULARY, find, is_word, written,
};
use crate::arguments::Given;
use crate::codes;
use crate::scheme::args::{Args, bounded, report};
use crate::scheme::layer::SIZES;
use crate::scheme::mentions::Mentions;
use crate::scheme::scalar::{name_of, not_supported, number, rounded_constant, whole};
use crate::scheme::{Coeff, Layers};
use crate::step_rule;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// What a layer's parameters are counted by.
pub fn role(layer: &str) -> Option<&'static str> {
    find(layer)?.role
}

/// Whether a layer reads the values among its arguments itself.
fn takes_values(d: &Definition) -> bool {
    let is_value = |a: &Argument| matches!(a.form, Form::Fields | Form::Operand | Form::Value);
    d.arguments.iter().any(is_value)
}

/// Reads one layer.
pub(super) fn read(reader: &mut LayerReader, e: &Expr, input: Input) -> Option<Read> {
    let Some(mut args) = Args::of(e) else {
        return reader.fail(
            Diagnostic::error(codes::NOT_A_FIELD, e.span, "this is not a layer").label(
                "a layer such as `rmsnorm` or `attention(heads: 8, causal)` is expected here",
            ),
        );
    };
    args.handed_on(&reader.given.handed_on);
    let callee = args.callee.name.clone();
    let around = reader.given;
    let mut parts = around.parts.iter();
    if let Some((_, part)) = parts.find(|(name, _)| *name == callee) {
        return match part {
            Some(more) => read(reader, &as_layer(reader.layers, e, more), input),
            None => left_out(reader, args, input),
        };
    }
    let name = VOCABULARY.meant(&callee, |label| args.has(label));
    // A wrong definition under the name of a layer in Rust: that has been said.
    if let Some(None) = reader.layers.get(name) {
        return None;
    }
    let Some(definition) = find(name) else {
        return match reader.layers.get(name) {
            Some(layer) => written::read(reader, layer?, args, input),
            None => {
                let known = (reader.layers, &reader.of_field.states);
                reader.fail(unknown(known, &args, e.span, input))
            }
        };
    };
    if takes_values(definition) {
        return built_in(reader, definition, args, input);
    }
    // `rmsnorm(x)` is `x |> rmsnorm`.
    let own = |word: &str| is_word(definition.arguments, word);
    let (applied, input) = reader.applied(&mut args, definition.reads_input, &own, input)?;
    let (layer, out) = built_in(reader, definition, args, input)?.for_tokens();
    Some(Read::of_tokens((applied.then(layer), out)))
}

/// An optional layer with the arguments of the body and of the user.
fn as_layer(layers: &Layers, e: &Expr, more: &[Arg]) -> Expr {
    let (callee, given) = match &e.kind {
        ExprKind::Call(call) => (name_of(&call.callee), &call.args[..]),
        _ => (name_of(e), &[][..]),
    };
    let name = callee.map_or(String::new(), |c| layers.meant(&c.name).to_string());
    let callee = Expr {
        kind: ExprKind::Name(name),
        span: e.span,
    };
    let args = given.iter().chain(more).cloned().collect();
    Expr {
        kind: ExprKind::Call(Box::new(Call { callee, args })),
        span: e.span,
    }
}

/// An optional layer that is not given leaves what it is applied to as it is.
fn left_out(reader: &mut LayerReader, mut args: Args, input: Input) -> Option<Read> {
    let (applied, input) = reader.applied(&mut args, true, &|_| false, input)?;
    let value = applied.then(Network::input());
    Some(Read::of_tokens((value, input.before?)))
}

/// Reads a layer in Rust.
fn built_in(
    reader: &mut LayerReader,
    definition: &'static Definition,
    args: Args,
    input: Input,
) -> Option<Read> {
    let before = reader.sink.len();
    let mut reading = Reading {
        reader: &mut *reader,
        given: Given::new(args),
        input,
        definition,
        values: Vec::new(),
        settled: false,
        fixed: false,
        rows: None,
    };
    let made = (definition.read)(&mut reading);
    let span = reading.span();
    if let Some((Network::Layer(layer), _)) = &made
        && layer.reads().later_tokens
    {
        let said = ahead(definition, span);
        reading.reader.of_field.ahead.push(said);
    }
    let Reading {
        mut given,
        settled,
        fixed,
        rows,
        ..
    } = reading;
    let made = made.map(|made| Read {
        fixed,
        rows,
        ..Read::of_tokens(made)
    });
    if !settled {
        // What is declared is read, and nothing else.
        debug_assert!(made.is_none() || given.is_declared(definition.arguments));
        let own = |word: &str| is_word(definition.arguments, word);
        reader.no_more_values(&mut given.args, &own, input)?;
        given.args.finish(LATER_ARGUMENTS, reader.sink);
    }
    made.filter(|_| reader.sink.len() == before)
}

/// What is to be said of a layer that reads later tokens in a model that predicts them.
fn ahead(definition: &Definition, span: Span) -> Diagnostic {
    let message = format!("`{}` reads later tokens", definition.name);
    let d = Diagnostic::warning(codes::LOOKS_AHEAD, span, message);
    let d = d.label("this reads tokens after the one that it computes");
    let words = definition.arguments.iter().map(|a| a.name);
    d.help(causal_help(definition.name, words))
}

/// What to write instead of a layer that reads later tokens, by the words that it takes.
pub(super) fn causal_help<'w>(layer: &str, mut words: impl Iterator<Item = &'w str>) -> String {
    match words.find(|word| ["causal", "later"].contains(word)) {
        Some("causal") => format!("for a model that generates, write `{layer}(…, causal)`"),
        Some(word) => format!("for a model that generates, leave `{word}` out"),
        None => "a model that generates reads tokens up to each place, and none after it".into(),
    }
}

/// The error for a name that is not a layer.
pub(super) fn unknown(
    (layers, states): (&Layers, &States),
    args: &Args,
    span: Span,
    input: Input,
) -> Diagnostic {
    if let Some(later) = VOCABULARY.later(&args.callee) {
        return later;
    }
    let name = args.callee.name.as_str();
    if states.has(name) {
        return states::misplaced(name, args.callee.span);
    }
    if name == "logits" {
        let message = "`logits` ends the output of a model";
        return Diagnostic::error(codes::MISPLACED, span, message).label("not part of a field");
    }
    if ["increment", "map"].contains(&name) {
        return not_supported(span, "a flow inside a pipeline or a product").help(
            "name the parts in a scheme: `scheme within(N, A, B) { step x { y = N(x);  z = flow lie(A, B)(1) from y;  return x + z - y } }`",
        );
    }
    let values = input.named.iter().map(|n| n.name.name.as_str());
    let near = odec_grammar::nearest(name, values).or(layers.near(name));
    let near = near.or_else(|| odec_grammar::nearest(name, states.names()));
    let alone = span == args.callee.span;
    let size = || odec_grammar::nearest(name, SIZES).filter(|_| alone);
    let (near, label) = match near.map_or_else(|| (size(), true), |near| (Some(near), false)) {
        (Some(size), true) => (Some(size), "neither a layer nor a size"),
        (near, _) => (near, "a pipeline consists of layers and of fields"),
    };
    let near = near.map(|n| format!("did you mean `{n}`?"));
    let near = VOCABULARY.written(name).map(String::from).or(near);
    let message = format!("`{name}` is not a layer");
    Diagnostic::error(codes::UNKNOWN_NAME, args.callee.span, message)
        .label(label)
        .help(near.unwrap_or_else(|| "`odec help layers` lists all layers".into()))
}

/// The arguments of a layer at hand.
pub struct Reading<'a, 'e, 'x> {
    reader: &'a mut LayerReader<'x>,
    given: Given<'e>,
    input: Input<'a>,
    definition: &'static Definition,
    /// Values among its arguments, and how many columns they have.
    values: Vec<(&'e Expr, u64)>,
    /// Whether nothing more is to be said of its arguments.
    settled: bool,
    /// Whether its result is the same for all tokens.
    fixed: bool,
    /// Of its result, if that is a matrix.
    rows: Option<Rows>,
}

/// A matrix that something names or computes, or a list of such, and the place that says what it is.
pub struct Matrix {
    pub of: Network,
    pub rows: Rows,
    pub columns: u64,
    pub span: Span,
}

impl<'e> Reading<'_, 'e, '_> {
    /// The width that the layer meets.
    pub fn width(&self) -> u64 {
        self.input.before.unwrap_or(self.reader.width)
    }

    /// The same, unless the layer is applied to a field's several values.
    pub fn input_width(&self) -> Option<u64> {
        self.input.before
    }

    /// The width of the model's states.
    pub fn state_width(&self) -> u64 {
        self.reader.width
    }

    /// The most tokens of one text.
    pub fn context(&self) -> u64 {
        self.reader.of_field.sizes.context
    }

    /// Columns of what the model is told beside its input; those of the state, where no model is known.
    pub fn condition(&self) -> Option<u64> {
        let states = &self.reader.of_field.states;
        let alone = states.known.is_none().then_some(self.reader.width);
        states.condition.or(alone)
    }

    /// What the tokens of the state stand on.
    pub fn grid(&self) -> Option<Grid> {
        self.reader.of_field.sizes.grid
    }

    /// Whether it may give fewer tokens than the state has; nothing inside of it may.
    pub fn take_fewer(&mut self) -> bool {
        std::mem::take(&mut self.reader.of_field.fewer)
    }

    /// What has been said so far.
    pub fn messages(&mut self) -> &mut Vec<Diagnostic> {
        self.reader.sink
    }

    /// The layer's.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Of the layer with its arguments.
    pub fn span(&self) -> Span {
        self.given.args.span
    }

    pub fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        let d = self.with_columns(d);
        self.reader.fail(d)
    }

    /// An error about columns says how many each of several values has, and where one with a name got them.
    fn with_columns(&self, d: Diagnostic) -> Diagnostic {
        let about = [codes::WIDTH_MISMATCH, codes::HEAD_COUNT].contains(&d.code);
        // What a layer of another file computes is not what the place at hand says.
        let here = |e: &Expr| {
            d.labels
                .first()
                .is_none_or(|l| l.span.source == e.span.source)
        };
        if !about || self.values.len() < 2 || !self.values.iter().all(|(e, _)| here(e)) {
            return d;
        }
        let d = self.values.iter().fold(d, |d, (e, columns)| {
            let plural = if *columns == 1 { "" } else { "s" };
            d.also(e.span, format!("{columns} column{plural}"))
        });
        let mut named: Vec<&Ident> = Vec::new();
        for (e, _) in &self.values {
            let found = name_of(e).and_then(|name| self.input.find(&name.name));
            if let Some(n) = found
                && !named.contains(&&n.name)
            {
                named.push(&n.name);
            }
        }
        named.into_iter().fold(d, |d, n| {
            d.also(n.span, format!("`{}` gets its width here", n.name))
        })
    }

    /// Fails, and says nothing more of the arguments.
    pub fn refuse<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.settled = true;
        self.fail(d)
    }

    pub fn report<T>(&mut self, r: Result<T, Diagnostic>) -> Option<T> {
        report(r, self.reader.sink)
    }

    pub fn flag(&mut self, a: &Argument) -> bool {
        self.given.flag(a)
    }

    /// The value of an argument that need not be given.
    pub fn given(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.given.value(a, self.reader.sink)
    }

    /// The value of an argument that must be given.
    pub fn needed(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.given.needed(a, self.reader.sink)
    }

    /// The next argument without a name.
    pub fn unnamed(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.given.unnamed(a)
    }

    /// The matrix that something is, if it is one. `Some(None)`: something is wrong with it, and that has been said.
    pub fn matrix(&mut self, e: &Expr) -> Option<Option<Matrix>> {
        if !self.reader.is_matrix(e, self.input) {
            return None;
        }
        let named = name_of(e).and_then(|name| self.input.find(&name.name));
        let span = named.map_or(e.span, |named| named.name.span);
        let read = self.reader.own_value_or_matrix(e, self.input);
        self.settled |= read.is_none();
        Some(read.and_then(|read| {
            Some(Matrix {
                of: read.network,
                rows: read.rows?,
                columns: read.columns,
                span,
            })
        }))
    }

    /// Says that the result is the same for all tokens, and of how many rows if it is a matrix.
    pub(super) fn gives(&mut self, rows: Option<Rows>) {
        (self.fixed, self.rows) = (true, rows);
    }

    /// What a function is applied to: a value of each token, one that is the same for all, or a matrix.
    pub(super) fn function_of(&mut self, a: &Argument, function: &Function) -> Option<Read> {
        let Some(e) = self.given.leading(a) else {
            return match self.input.before {
                Some(width) => Some(Read::of_tokens((Network::input(), width))),
                None => self.wrong_count(&[a], 0),
            };
        };
        let read = self.value_or_matrix(e)?;
        let what = format!("`{}`", function.name);
        let starts = function.domain.check(&what, &read.network, e, self.input);
        match starts {
            Ok(()) => Some(read),
            Err(d) => self.refuse(d),
        }
    }

    /// A value or a matrix among the arguments.
    pub(super) fn value_or_matrix(&mut self, e: &'e Expr) -> Option<Read> {
        let read = self.reader.own_value_or_matrix(e, self.input);
        let columns = read.iter().map(|read| (e, read.columns));
        self.values.extend(columns);
        // What comes after one that is wrong was not looked at.
        self.settled |= read.is_none();
        read
    }

    /// The rows of what is computed of such values element by element, if it is a matrix.
    pub(super) fn rows_of<'r>(
        &mut self,
        of: impl Iterator<Item = (&'r Expr, &'r Read)>,
    ) -> Option<Option<Rows>> {
        let rows = self.reader.rows(of);
        self.settled |= rows.is_none();
        rows
    }

    /// A whole number that must be given.
    pub fn size(&mut self, a: &Argument, most: u64) -> Option<u64> {
        let e = self.needed(a)?;
        self.whole(e, most)
    }

    /// A whole number from 1.
    pub fn whole(&mut self, e: &Expr, most: u64) -> Option<u64> {
        self.report(whole(e, self.reader.scope, 1, most))
    }

    /// A whole number from 0.
    pub fn index(&mut self, e: &Expr, most: u64) -> Option<u64> {
        self.report(whole(e, self.reader.scope, 0, most))
    }

    /// The number that something is, if it is one.
    pub fn constant(&self, e: &Expr) -> Option<Exact> {
        number(e, self.reader.scope).ok()
    }

    /// A number within its bounds, or the default.
    pub fn number(&mut self, a: &Argument) -> Option<Exact> {
        let said = self.given(a);
        self.number_said(a, said)
    }

    /// The same of what is given for it.
    pub fn number_said(&mut self, a: &Argument, said: Option<&Expr>) -> Option<Exact> {
        match said {
            Some(e) => self.within(a, e),
            None => a.number_meant(),
        }
    }

    /// What is given for a number, within its bounds.
    pub fn within(&mut self, a: &Argument, e: &Expr) -> Option<Exact> {
        let value = number(e, self.reader.scope);
        let value = match a.bounds() {
            Some(bounds) => value.and_then(|x| bounded(x, bounds, e)),
            None => value,
        };
        self.report(value)
    }

    /// The number in each step, or one for all of them.
    pub fn in_steps(&mut self, a: &Argument, e: &Expr) -> Option<Vec<Exact>> {
        let bounds = a.bounds()?;
        let fits = |k: Option<u64>, x: Exact| {
            bounded(x, bounds, e).map_err(|d| match k {
                Some(k) => d.help(format!(
                    "this is its value in step {k}; the first is step 0"
                )),
                None => d,
            })
        };
        let (steps, around) = (self.reader.of_field.steps, self.reader.scope);
        let each = step_rule::numbers(e, steps, around, rounded_constant, fits);
        self.report(each)
    }

    /// Which of its words an argument has: the last by default. `wrong`: the error for another word.
    pub fn word(&mut self, a: &Argument, wrong: &str) -> Option<usize> {
        let said = self.given(a);
        self.word_said(a, said, wrong)
    }

    /// The same of what is given for it.
    pub fn word_said(&mut self, a: &Argument, said: Option<&Expr>, wrong: &str) -> Option<usize> {
        let Form::Word(words) = a.form else {
            return None;
        };
        let Some(e) = said else {
            return words.len().checked_sub(1);
        };
        let name = name_of(e);
        let said = words
            .iter()
            .position(|w| name.as_ref().is_some_and(|n| n.name == *w));
        if said.is_none() {
            let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
            let label = format!("{} is expected", words.join(" or "));
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, wrong);
            self.reader.sink.push(d.label(label));
        }
        said
    }

    /// Whether an unread argument looks like this one.
    pub fn misspelt(&self, a: &Argument) -> bool {
        self.given.args.misspelt(a.name)
    }

    /// The next of the fields that are the layer's arguments.
    pub fn field(&mut self, a: &Argument) -> Option<Option<(Network, u64)>> {
        let part = self.unnamed(a)?;
        Some(self.value(part))
    }

    /// A value that is among the arguments, and its width.
    pub fn value(&mut self, e: &'e Expr) -> Option<(Network, u64)> {
        let read = self.reader.layer(e, self.input);
        self.values
            .extend(read.iter().map(|(_, columns)| (e, *columns)));
        // What comes after one that is wrong was not looked at.
        self.settled |= read.is_none();
        read
    }

    /// A layer among the arguments, as it is applied to so many columns, which are its `width`. Of the values with names it may name those that are
    /// the same for all tokens.
    pub fn applied_to(&mut self, e: &'e Expr, columns: u64) -> Option<(Network, u64)> {
        let mut mentioned = Mentions::default();
        mentioned.expr(e);
        let of_tokens = self.input.named.iter().filter(|n| !n.fixed);
        let mut seen = of_tokens.filter(|n| mentioned.read.contains(n.name.name.as_str()));
        if let Some(value) = seen.next() {
            let (layer, name) = (self.name(), &value.name.name);
            let message = format!("`{name}` has no columns of a head alone inside of `{layer}`");
            let d = Diagnostic::error(codes::INCOMPATIBLE, e.span, message);
            let d = d.label("this is computed of the columns of one head");
            return self.refuse(d.also(value.name.span, "set here").help(format!(
                "apply it to the value: `{name} |> {layer}(…)`; of several values, `{layer}` takes what is made of them"
            )));
        }
        let fixed = self.input.named.iter().filter(|n| n.fixed);
        let named: Vec<Named> = fixed.cloned().collect();
        let before = Some(columns);
        let named = &named[..];
        let mut scope = self.reader.scope.clone();
        let width = Exact::int(i64::try_from(columns).unwrap_or(i64::MAX));
        scope.insert("width".into(), Coeff::constant(width));
        let mut inside = LayerReader {
            scope: &scope,
            width: columns,
            layers: self.reader.layers,
            given: self.reader.given,
            sink: &mut *self.reader.sink,
            naming: std::mem::take(&mut self.reader.naming),
            of_field: &mut *self.reader.of_field,
        };
        let read = inside.layer(e, Input { before, named });
        self.reader.naming = inside.naming;
        self.settled |= read.is_none();
        read
    }

    /// The values that the layer is applied to, with their widths, the last of which may be those of another evolve: `own` come before these.
    pub(super) fn operands_from<const N: usize>(
        &mut self,
        declared: [&Argument; N],
        own: usize,
    ) -> Option<[(Network, u64, Option<Elsewhere>); N]> {
        let mut given = Vec::new();
        for (n, a) in declared.into_iter().enumerate() {
            let Some(e) = self.given.leading(a) else {
                continue;
            };
            let fewer = (n >= own).then(|| self.reader.perhaps_fewer(e, self.input));
            let read = match fewer.flatten() {
                Some(fewer) => fewer.map(Read::of_tokens),
                None if n >= own => self.reader.value(e, self.input),
                None => self.reader.own_value(e, self.input),
            };
            // What comes after one that is wrong was not looked at.
            self.settled |= read.is_none();
            let read = read?;
            let from = read.from.clone();
            let (network, columns) = read.for_tokens();
            self.values.push((e, columns));
            given.push((network, columns, from));
        }
        if let (true, Some(width)) = (given.is_empty(), self.input.before) {
            given.extend(declared.map(|_| (Network::input(), width, None)));
        }
        let found = given.len();
        let given = given.try_into().ok();
        given.or_else(|| self.wrong_count(&declared, found))
    }

    fn wrong_count<T>(&mut self, declared: &[&Argument], found: usize) -> Option<T> {
        let name = self.definition.name;
        let names: Vec<&str> = declared.iter().map(|a| a.name).collect();
        let wanted = declared.len();
        let message = format!("`{name}` is applied to {wanted} values, not to {found}");
        let d = Diagnostic::error(codes::ARGUMENT_COUNT, self.span(), message);
        self.refuse(d.help(format!("write `{name}({}, …)`", names.join(", "))))
    }

    /// The values that the layer is applied to, with their widths: those declared, or none, which stands for the layer's input.
    pub fn operands<const N: usize>(
        &mut self,
        declared: [&Argument; N],
    ) -> Option<[(Network, u64); N]> {
        let all = self.operands_from(declared, N)?;
        Some(all.map(|(network, columns, _)| (network, columns)))
    }

    /// A value that stands behind its name, with its width.
    pub fn named_value(&mut self, a: &Argument) -> Option<Option<(Network, u64)>> {
        let e = self.given(a)?;
        Some(self.value(e))
    }

    /// How its parameters are called: it is the next of its role.
    pub fn paths(&mut self) -> Paths {
        let role = self.definition.role.unwrap_or(self.definition.name);
        self.reader.naming.part(role)
    }

    /// Which layer of its kind it is in the whole field, from 1.
    pub fn number_of_kind(&mut self) -> usize {
        let kinds = &mut self.reader.of_field.kinds;
        kinds.push(self.definition.name);
        let same = kinds.iter().filter(|k| **k == self.definition.name);
        same.count()
    }
}
