//! Names of a body that mean nothing. Reading a body stops at the first thing that is wrong; the names behind it are looked for here, so that all of
//! them are said at once.
//!
//! Takes a body that is wrong; says of each name once that it is not defined. What has been said is not said again. A name is looked for where a value,
//! a layer or a number stands; words of layers (`causal`, `bias: alibi`) are left to who reads them.

use super::pipeline::{Input, LayerReader, Named};
use super::reading;
use super::{Definition, Form, VOCABULARY, find, is_word};
use crate::codes;
use crate::scheme::args::Args;
use crate::scheme::layer::{Kind, Layer, SIZES, is_none};
use crate::scheme::scalar::{is_root, is_sqrt, name_of, named_function, number, rounding};
use crate::scheme::vocabulary::WHEN;
use odec_grammar::ast::{Arg, Body, BodyStmt, Call, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeSet;

/// The start of a parameter that is drawn at random.
const NORMAL: &str = "normal";

/// A name that means nothing, as an expression.
struct Found {
    name: Expr,
    /// Whether a number stands there.
    number: bool,
}

struct Search<'s, 'r> {
    reader: &'s LayerReader<'r>,
    /// The values that have names somewhere in the body.
    values: BTreeSet<&'s str>,
    found: Vec<Found>,
}

/// Says of the names of a body that they are not defined. `said`: how many messages there were before the body was read.
pub(super) fn report(reader: &mut LayerReader, body: &Body, named: &[Named], said: usize) {
    let mut search = Search {
        values: named.iter().map(|n| n.name.name.as_str()).collect(),
        reader: &*reader,
        found: Vec::new(),
    };
    match body {
        Body::Expr(e) => search.value(e),
        Body::Block { statements, .. } => {
            let set = statements.iter().filter_map(BodyStmt::name);
            search.values.extend(set.map(|n| n.name.as_str()));
            statements.iter().for_each(|s| search.statement(s));
        }
    }
    let found = search.found;
    let new = &reader.sink[said..];
    let is_said = |e: &Expr| {
        new.iter()
            .any(|d| d.labels.iter().any(|l| l.span == e.span))
    };
    let named_by = |e: &Expr| name_of(e).map(|n| n.name);
    let said = found.iter().filter(|f| is_said(&f.name));
    let mut said: BTreeSet<Option<String>> = said.map(|f| named_by(&f.name)).collect();
    let more: Vec<Diagnostic> = (found.iter())
        .filter(|f| said.insert(named_by(&f.name)))
        .filter_map(|f| message(reader, f, named))
        .collect();
    reader.sink.extend(more);
}

fn message(reader: &LayerReader, found: &Found, named: &[Named]) -> Option<Diagnostic> {
    let e = &found.name;
    if found.number {
        return number(e, reader.scope).err();
    }
    let input = Input {
        before: None,
        named,
    };
    let known = (reader.layers, &reader.of_field.states);
    let d = reading::unknown(known, &Args::of(e)?, e.span, input);
    Some(d).filter(|d| d.code == codes::UNKNOWN_NAME)
}

impl Search<'_, '_> {
    fn statement(&mut self, s: &BodyStmt) {
        match s {
            BodyStmt::Set { value, .. } | BodyStmt::Return { value, .. } => self.value(value),
            BodyStmt::Learn { shape, init, .. } => {
                shape.iter().for_each(|e| self.number(e));
                if name_of(init).is_none_or(|n| n.name != NORMAL) {
                    self.number(init);
                }
            }
        }
    }

    /// Where a value or a layer stands.
    fn value(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Name(name) if !self.is_known(name) => self.note(e, false),
            ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => {
                self.value(a);
                self.value(b);
            }
            ExprKind::Neg(a) => self.value(a),
            ExprKind::Tuple(items) => items.iter().for_each(|e| self.value(e)),
            ExprKind::Call(call) => self.call(call),
            _ => {}
        }
    }

    /// Where a number stands.
    fn number(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Name(name) if !self.is_known(name) && !is_none(e) => self.note(e, true),
            ExprKind::Binary(_, a, b) => {
                self.number(a);
                self.number(b);
            }
            ExprKind::Neg(a) => self.number(a),
            ExprKind::Tuple(items) => items.iter().for_each(|e| self.number(e)),
            // `root(x^3 - 2, 1.26)` has a name of its own.
            ExprKind::Call(call) if is_sqrt(call) || named_function(call).is_some() => {
                call.args.iter().for_each(|a| self.number(&a.value));
            }
            _ => {}
        }
    }

    fn call(&mut self, call: &Call) {
        let Some(callee) = name_of(&call.callee) else {
            return;
        };
        if is_root(call) && !is_sqrt(call) || rounding(call).is_some() {
            return;
        }
        if callee.name == WHEN {
            return call.args.iter().skip(1).for_each(|a| self.value(&a.value));
        }
        let layers = self.reader.layers;
        let name = VOCABULARY.meant(layers.meant(&callee.name), |label| call.has(label));
        let of_numbers = is_sqrt(call) || named_function(call).is_some();
        match (find(name), layers.get(name)) {
            (Some(d), _) => call.args.iter().for_each(|a| self.given(d, a)),
            (None, Some(Some(layer))) => {
                call.args.iter().for_each(|a| self.given_written(layer, a));
            }
            (None, Some(None)) => {}
            (None, None) if of_numbers => {
                call.args.iter().for_each(|a| self.value(&a.value));
            }
            (None, None) if self.is_known(name) => {}
            // Which words it would take is not known.
            (None, None) => self.note(&call.callee, false),
        }
    }

    /// What a layer in Rust is given.
    fn given(&mut self, d: &Definition, a: &Arg) {
        let takes_number = |form: Form| {
            use Form::{Exact, Index, Number, UnnamedNumber, UnnamedWhole, Whole};
            matches!(
                form,
                Exact | Index | Number(_) | UnnamedNumber(_) | UnnamedWhole | Whole
            )
        };
        // In a rule for each step, steps have names: it is left to who reads it.
        let rule = d.arguments.iter().find(|a| matches!(a.form, Form::Rule(_)));
        if rule.is_some_and(|rule| a.label.as_ref().is_none_or(|l| l.name == rule.name)) {
            return;
        }
        let Some(label) = &a.label else {
            let unnamed = |form: Form| matches!(form, Form::UnnamedNumber(_) | Form::UnnamedWhole);
            let number = d.arguments.iter().any(|a| unnamed(a.form));
            return match (head_of(&a.value), number) {
                (Some(word), _) if is_word(d.arguments, word) => {}
                (_, true) if name_of(&a.value).is_some() => self.number(&a.value),
                _ => self.value(&a.value),
            };
        };
        let mut declared = d.arguments.iter();
        match declared.find(|a| a.name == label.name) {
            Some(argument) if argument.is_value() => self.value(&a.value),
            Some(argument) if takes_number(argument.form) => self.number(&a.value),
            _ => {}
        }
    }

    /// What a layer written in the language is given.
    fn given_written(&mut self, layer: &Layer, a: &Arg) {
        let Some(label) = &a.label else {
            let is_word = |word: &str| {
                let mut words = layer.params.iter();
                words.any(|p| p.label.name == word && matches!(p.kind, Kind::Flag | Kind::Layer))
            };
            return match head_of(&a.value) {
                Some(word) if is_word(word) => {}
                _ => self.value(&a.value),
            };
        };
        let mut params = layer.params.iter();
        let kind = params.find(|p| p.label.name == label.name).map(|p| p.kind);
        if matches!(kind, Some(Kind::Size | Kind::Number)) {
            self.number(&a.value);
        }
    }

    fn note(&mut self, name: &Expr, number: bool) {
        self.found.push(Found {
            name: name.clone(),
            number,
        });
    }

    /// Whether a name means anything here, be it right at its place or not.
    fn is_known(&self, name: &str) -> bool {
        let reader = self.reader;
        let given = reader.given;
        let words = &given.handed_on;
        let meant = words.meant.iter().map(|(word, _)| word);
        let mut words = meant
            .chain(&words.on)
            .chain(&words.off)
            .chain(&words.absent);
        self.values.contains(name)
            || SIZES.contains(&name)
            || reader.scope.contains_key(name)
            || reader.is_layer(name)
            || reader.of_field.states.has(name)
            || given.is_part(name)
            || given.choices.iter().any(|c| c == name)
            || words.any(|word| word == name)
    }
}

/// The name that an expression is, or that it calls.
fn head_of(e: &Expr) -> Option<&str> {
    let head = match &e.kind {
        ExprKind::Call(call) => &call.callee,
        _ => e,
    };
    match &head.kind {
        ExprKind::Name(name) => Some(name),
        _ => None,
    }
}
