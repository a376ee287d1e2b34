//! Layers written in the language: `layer ffn(hidden) = rmsnorm |> linear(hidden)`, and fields that others name.
//!
//! Takes their syntax; gives each with its arguments' kinds and the written layers and fields that its body names, so that whoever reads a field
//! needs no names any more. Leaves the statements of a body to `body.rs`, what it computes to `odec-model`, which reads it as if it stood in the
//! place of the layer.
//!
//! A new kind of argument is a variant of [`Kind`]. What it means where a body hands it on is in `given.rs` of `odec-model`.

use super::body;
use super::names::Definition;
use super::optional;
use super::resolve::{MAX_DEPTH, Resolver, too_deep};
use super::scalar::name_of;
use super::vocabulary::Facts;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{self, Body, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Numbers that a body may name beside its arguments.
pub const SIZES: [&str; 3] = ["width", "vocab", "context"];
/// Most parts that the written layers of one file have, all of them written out.
pub const MAX_PARTS: u64 = 1 << 14;
/// Most operators and calls one inside the other in a body that is written out: whoever reads it recurses.
const MAX_HEIGHT: usize = 400;
/// What a layer inside of another counts for in that.
const LEVEL: usize = 5;

/// A layer written in the language, or a field that another one names.
#[derive(Debug, PartialEq)]
pub struct Layer {
    pub name: Ident,
    pub params: Vec<Param>,
    pub body: Body,
    /// What its parameters are counted by, if they are not counted each by its own name.
    pub role: Option<String>,
    /// Whether it is a field: it has one set of parameters, below its name, however often it is named.
    pub is_field: bool,
    /// The written layers and fields that the body names.
    pub inside: Layers,
    pub facts: Facts,
    /// How often a name of parameters occurs in the body, written out: counted once by who reads bodies.
    pub roles: OnceCell<BTreeMap<String, usize>>,
    /// Parts of the body, written out.
    parts: u64,
    /// How deep they are.
    height: usize,
}

impl Layer {
    /// Parts of its body, written out.
    pub(super) fn parts(&self) -> u64 {
        self.parts
    }

    /// Its values, in order.
    pub fn values(&self) -> impl Iterator<Item = &Ident> {
        self.of_kind(Kind::Value).map(|p| &p.name)
    }

    /// Its arguments of a kind, in order.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(move |p| p.kind == kind)
    }
}

/// An argument of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// What it is called where the layer is used.
    pub label: Ident,
    /// What the body calls it.
    pub name: Ident,
    pub kind: Kind,
    /// What a number may be.
    pub bounds: Option<ast::Bounds>,
    pub default: Option<Expr>,
    /// Whether it is an optional number: the default is `none`.
    pub optional: bool,
    /// The layer that it stands for, if it is an optional layer.
    pub part: Option<Ident>,
}

/// The default of an optional number: the arguments that it is handed on to are left out.
const NONE: &str = "none";

/// Whether an optional number is given no value.
pub fn is_none(e: &Expr) -> bool {
    name_of(e).is_some_and(|n| n.name == NONE)
}

/// What may be given for an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the layer is applied to, given without a label.
    Value,
    /// A whole number from 1.
    Size,
    /// Any exact number.
    Number,
    /// A word that is handed on to layers under a name of theirs.
    Word,
    /// A word that stands alone, and is handed on to layers that take it.
    Flag,
    /// The state that another evolve ends with, given behind its label; the body names it as a value.
    State,
    /// An optional layer: a word that stands alone or has the arguments of a layer. The body names it as that layer, which is left out where the word is
    /// not given.
    Layer,
}

impl Kind {
    /// Those that are written as a word. An optional layer is written as the layer that it stands for.
    const WORDS: [(&str, Kind); 6] = [
        ("value", Kind::Value),
        ("state", Kind::State),
        ("size", Kind::Size),
        ("number", Kind::Number),
        ("word", Kind::Word),
        ("flag", Kind::Flag),
    ];
}

/// The written layers and fields that an expression names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    /// By name; `None`: wrong, and that has been said.
    found: BTreeMap<String, Option<Rc<Layer>>>,
    /// The nearest layer to a name that is not defined.
    near: BTreeMap<String, String>,
    /// The layers that arguments stand for.
    parts: BTreeMap<String, String>,
}

impl Layers {
    /// The layer that a name stands for: another one where it is an optional layer among the arguments.
    pub fn meant<'n>(&'n self, name: &'n str) -> &'n str {
        self.parts.get(name).map_or(name, String::as_str)
    }

    /// The layer of this name; `Some(None)`: it is wrong, and that has been said.
    pub fn get(&self, name: &str) -> Option<Option<&Layer>> {
        Some(self.found.get(name)?.as_deref())
    }

    /// The layer that a name which is not defined may have meant.
    pub fn near(&self, name: &str) -> Option<&str> {
        self.near.get(name).map(String::as_str)
    }

    fn good(&self) -> impl Iterator<Item = &Layer> {
        self.found.values().flatten().map(|l| &**l)
    }
}

/// The names in a field's expressions that may be layers, as they are written, and how deep they are: names and calls that nothing but `|>`,
/// arithmetic and calls to which they are given without a label stand around.
#[derive(Default)]
pub(super) struct Parts {
    pub names: Vec<Ident>,
    /// Sums, products and what else is between them.
    operations: u64,
    height: usize,
}

impl Resolver<'_, '_> {
    /// Whether a name is a layer's.
    pub(super) fn is_layer(&mut self, name: &Ident) -> bool {
        match self.names.get(name, self.sink) {
            Ok(definition) => matches!(definition, Definition::Layer(_)),
            // A wrong definition is none of a layer, even under the name of one.
            Err(wrong) => !wrong && self.names.layers.has(&name.name),
        }
    }

    /// The written layers and fields that a field names. `own`: names that mean something else. `None`: together they are too large.
    pub fn layers_of(&mut self, body: &Body, own: &[&str]) -> Option<Layers> {
        let parts = self.parts(body.exprs(), own);
        let layers = self.layers_among(&parts.names);
        let written = parts
            .names
            .iter()
            .filter_map(|name| layers.get(&name.name)?);
        let written: u64 = written.map(|l| l.parts).fold(0, u64::saturating_add);
        self.count_parts(written, body.span())?;
        Some(layers)
    }

    /// Counts parts of written layers that are written out in a field.
    pub(super) fn count_parts(&mut self, more: u64, span: Span) -> Option<()> {
        self.written_parts = self.written_parts.saturating_add(more);
        match self.written_parts > MAX_PARTS {
            true => self.fail(too_many(span)),
            false => Some(()),
        }
    }

    /// Without recursion: fields are read at the bottom of deep definitions.
    pub(super) fn parts<'e>(&mut self, of: impl Iterator<Item = &'e Expr>, own: &[&str]) -> Parts {
        let mut open: Vec<(&Expr, usize)> = of.map(|e| (e, 1)).collect();
        let mut parts = Parts::default();
        while let Some((e, deep)) = open.pop() {
            parts.height = parts.height.max(deep);
            let below = |e: &'e Expr| (e, deep + 1);
            match &e.kind {
                ExprKind::Pipe(a, b) => open.extend([below(a), below(b)]),
                ExprKind::Binary(_, a, b) => {
                    parts.operations += 1;
                    open.extend([below(a), below(b)]);
                }
                ExprKind::Neg(a) => open.push(below(a)),
                ExprKind::Tuple(items) => open.extend(items.iter().map(below)),
                ExprKind::Call(call) => {
                    let Some(mut name) = name_of(&call.callee) else {
                        continue;
                    };
                    let given = |label: &str| call.has(label);
                    name.name = self.names.layers.meant(&name.name, given).to_string();
                    let given: Vec<&Expr> = call
                        .args
                        .iter()
                        .filter(|a| match &a.label {
                            None => true,
                            Some(label) => self.is_value(&name, &label.name),
                        })
                        .map(|a| &a.value)
                        .collect();
                    for a in given {
                        let word = head_of(a).filter(|w| self.is_word(&name, &w.name));
                        if word.is_none() {
                            open.push(below(a));
                        }
                    }
                    parts.names.push(name);
                }
                _ => {
                    let name = name_of(e).filter(|n| !own.contains(&n.name.as_str()));
                    parts.names.extend(name);
                }
            }
        }
        parts.names.sort_by_key(|name| name.span);
        parts
    }

    /// Whether what stands behind a label of a layer is a value.
    fn is_value(&mut self, layer: &Ident, label: &str) -> bool {
        if self.names.layers.has(&layer.name) {
            return (self.names.layers.is_value)(&layer.name, label);
        }
        let is_state = |p: &ast::LayerParam| {
            let kind = p.kind.as_ref().and_then(kind_of);
            p.label().name == label && kind == Some(Kind::State)
        };
        match self.names.get(layer, self.sink) {
            Ok(Definition::Layer(l)) => l.params.iter().any(is_state),
            _ => false,
        }
    }

    /// Whether a word is an argument of a layer by itself.
    fn is_word(&mut self, layer: &Ident, word: &str) -> bool {
        if self.names.layers.has(&layer.name) {
            return self.names.layers.is_word(&layer.name, word);
        }
        match self.names.get(layer, self.sink) {
            Ok(Definition::Layer(l)) => l.params.iter().any(|p| {
                let is_word = |k: &Ident| match kind_of(k) {
                    Some(kind) => kind == Kind::Flag,
                    None => true,
                };
                p.label().name == word && p.kind.as_ref().is_some_and(is_word)
            }),
            _ => false,
        }
    }

    fn layers_among(&mut self, parts: &[Ident]) -> Layers {
        let mut layers = Layers::default();
        for name in parts {
            let known = layers.found.contains_key(&name.name)
                || layers.near.contains_key(&name.name)
                || self.names.layers.has(&name.name);
            if self.names.is_wrong(name) {
                layers.found.insert(name.name.clone(), None);
                continue;
            }
            if known {
                continue;
            }
            let found = match self.names.get(name, self.sink) {
                Ok(Definition::Layer(layer)) => self.written(&layer),
                Ok(Definition::Field(field)) => self.written_field(&field),
                Err(false) => {
                    let open = self.writing.iter().map(|l| l.name.as_str());
                    let open: Vec<&str> =
                        open.chain(self.open.iter().map(|f| f.as_str())).collect();
                    let near = (self.names).nearest_layer(name, &open, self.sink.len());
                    let near = near.map(|near| (name.name.clone(), near));
                    layers.near.extend(near);
                    continue;
                }
                Err(true) | Ok(Definition::Scheme(_)) => continue,
            };
            layers.found.insert(name.name.clone(), found);
        }
        layers
    }

    /// A field as others name it: its parameters are the values that it is applied to.
    pub(super) fn written_field(&mut self, field: &ast::Field) -> Option<Rc<Layer>> {
        let value = |name: &Ident| ast::LayerParam {
            given_as: None,
            name: name.clone(),
            kind: Some(Ident {
                name: "value".into(),
                span: name.span,
            }),
            bounds: None,
            default: None,
        };
        let layer = ast::Layer {
            doc: Vec::new(),
            name: field.name.clone(),
            params: field.params.iter().map(value).collect(),
            role: None,
            body: field.body.clone(),
            span: field.span,
        };
        self.definition_written(&layer, true)
    }

    /// A layer with all that its body names. `None`: it is wrong, and that has been said.
    pub fn written(&mut self, layer: &ast::Layer) -> Option<Rc<Layer>> {
        self.definition_written(layer, false)
    }

    fn definition_written(&mut self, layer: &ast::Layer, is_field: bool) -> Option<Rc<Layer>> {
        let place = layer.name.span;
        if let Some(known) = self.written.get(&place) {
            return known.clone();
        }
        if let Some(from) = self.writing.iter().position(|l| l.span == place) {
            let round = self.writing[from..].iter().chain([&layer.name]);
            let round: Vec<&str> = round.map(|l| l.name.as_str()).collect();
            let kind = if is_field { "field" } else { "layer" };
            let message = format!("{kind} `{}` is defined by itself", layer.name.name);
            let d = Diagnostic::error(codes::CYCLIC_DEFINITION, place, message);
            let d = d.label(round.join(" → ")).help(
                "a body is computed once for each place that names it; what is repeated are steps: `for 6 steps`",
            );
            return self.fail(d);
        }
        if self.writing.len() >= MAX_DEPTH {
            return self.fail(too_deep(place));
        }
        self.writing.push(layer.name.clone());
        let made = self.write(layer, is_field).map(Rc::new);
        self.writing.pop();
        self.written.insert(place, made.clone());
        made
    }

    fn write(&mut self, layer: &ast::Layer, is_field: bool) -> Option<Layer> {
        let before = errors(self.sink);
        let mut params: Vec<Param> = Vec::new();
        for p in &layer.params {
            let made = self.param(p, &params);
            params.push(made);
        }
        let names: Vec<Ident> = params.iter().map(|p| p.name.clone()).collect();
        self.distinct(&names);
        let labels: Vec<Ident> = params.iter().map(|p| p.label.clone()).collect();
        if labels != names {
            self.distinct(&labels);
        }
        let stand_for = params
            .iter()
            .filter_map(|p| Some((&p.name, p.part.as_ref()?)));
        let stand_for: BTreeMap<String, String> = stand_for
            .map(|(name, layer)| (name.name.clone(), layer.name.clone()))
            .collect();
        let mut own = body::names(&layer.body, &params);
        own.retain(|name| !stand_for.contains_key(*name));
        let Parts {
            names: mut parts,
            operations,
            height: own_height,
        } = self.parts(layer.body.exprs(), &own);
        for name in &mut parts {
            if let Some(layer) = stand_for.get(&name.name) {
                name.name.clone_from(layer);
            }
        }
        body::check(layer, is_field, self.sink);
        let optional: Vec<&str> = params
            .iter()
            .filter(|p| p.optional)
            .map(|p| &*p.name.name)
            .collect();
        optional::check(layer, &optional, self.sink);
        let mut inside = self.layers_among(&parts);
        inside.parts = stand_for;
        let wrong = parts.iter().any(|n| inside.get(&n.name) == Some(None));
        if wrong || errors(self.sink) > before {
            return None;
        }
        let deepest = inside.good().map(|l| l.height).max().unwrap_or(0);
        let height = own_height + LEVEL + deepest;
        if height > MAX_HEIGHT {
            return self.fail(too_deep(layer.name.span));
        }
        let size = |name: &Ident| match inside.get(&name.name) {
            Some(Some(layer)) => layer.parts,
            _ => 1,
        };
        let parts = parts.iter().map(size).fold(operations, u64::saturating_add);
        if parts > MAX_PARTS {
            return self.fail(too_many(layer.name.span));
        }
        Some(Layer {
            name: layer.name.clone(),
            facts: self.names.layers.facts(&layer.body, &inside, &own),
            body: layer.body.clone(),
            role: layer.role.as_ref().map(|r| r.name.clone()),
            is_field,
            params,
            inside,
            roles: OnceCell::new(),
            parts,
            height,
        })
    }

    /// An argument, `before` are those before it; what is wrong with it is said.
    fn param(&mut self, p: &ast::LayerParam, before: &[Param]) -> Param {
        if SIZES.contains(&p.name.name.as_str()) {
            let message = format!("`{}` already means something to odec", p.name.name);
            let d = Diagnostic::error(codes::REDEFINITION, p.name.span, message);
            self.sink.push(d.help("choose another name; a body may name `width`, `vocab` and `context` without arguments of these names"));
        }
        let kind = p.kind.as_ref().map_or(Some(Kind::Size), kind_of);
        let part = p.kind.as_ref().filter(|_| kind.is_none());
        let kind = match part {
            None => kind.unwrap_or(Kind::Size),
            Some(word) if self.is_layer(word) => Kind::Layer,
            Some(word) => {
                let words = Kind::WORDS.map(|(w, _)| w);
                let d = super::scalar::unknown_option("a kind of argument", word, &words);
                self.sink.push(d.label("nor is it a layer"));
                Kind::Number
            }
        };
        let wrong = p.default.as_ref().and_then(|default| {
            let named = name_of(default);
            let of = |kind| {
                let is_it = |p: &&Param| named.as_ref().is_some_and(|n| p.name.name == n.name);
                before.iter().any(|p| is_it(&p) && p.kind == kind)
            };
            let name = &p.name.name;
            let takes = format!("`{name}` takes no value");
            let (message, label, help) = match kind {
                Kind::Size | Kind::Number | Kind::Word => return None,
                Kind::Flag if of(Kind::Flag) => return None,
                Kind::State if of(Kind::Value) => return None,
                Kind::Value => (
                    format!("`{name}` has no default"),
                    "where nothing is said, it is what stands before `|>`",
                    format!("write `{name}: value`"),
                ),
                Kind::Flag => (
                    takes,
                    "a word that stands alone is off where nothing is said",
                    format!(
                        "write `{name}: flag`, or name a flag before it that switches it on, too"
                    ),
                ),
                Kind::State => (
                    format!("`{name}` is a state"),
                    "a value before it is expected, which it is where nothing is said",
                    match &p.given_as {
                        Some(label) => {
                            format!("write `x: value, {} {name}: state = x`", label.name)
                        }
                        None => format!("write `x: value, {name}: state = x`"),
                    },
                ),
                Kind::Layer => (
                    takes,
                    "the layer is left out where nothing is said",
                    format!("write `{name}: {}`", part.map_or("", |l| &l.name)),
                ),
            };
            let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, default.span, message);
            Some(d.label(label).help(help))
        });
        self.sink.extend(wrong);
        let bounds = p.bounds.as_ref();
        let (of_numbers, others): (Vec<_>, Vec<_>) = bounds
            .into_iter()
            .partition(|_| matches!(kind, Kind::Size | Kind::Number));
        self.sink.extend(others.into_iter().map(|b| {
            let message = format!("`{}` is no number, and takes no bounds", p.name.name);
            let d = Diagnostic::error(codes::INVALID_VALUE, b.span, message);
            d.help(format!(
                "write `{0}: number above 0`, or leave the bounds out",
                p.name.name
            ))
        }));
        let optional =
            matches!(kind, Kind::Size | Kind::Number) && p.default.as_ref().is_some_and(is_none);
        Param {
            label: p.label().clone(),
            name: p.name.clone(),
            kind,
            bounds: of_numbers.first().copied().cloned(),
            default: p.default.clone().filter(|_| !optional),
            optional,
            part: part.filter(|_| kind == Kind::Layer).cloned(),
        }
    }
}

/// The kind that a word says.
fn kind_of(word: &Ident) -> Option<Kind> {
    let found = Kind::WORDS.iter().find(|(w, _)| *w == word.name);
    found.map(|(_, kind)| *kind)
}

fn errors(sink: &[Diagnostic]) -> usize {
    let error = |d: &&Diagnostic| d.severity == odec_grammar::diag::Severity::Error;
    sink.iter().filter(error).count()
}

/// The name that an expression is, or that it calls.
fn head_of(e: &Expr) -> Option<Ident> {
    match &e.kind {
        ExprKind::Call(call) => name_of(&call.callee),
        _ => name_of(e),
    }
}

fn too_many(span: Span) -> Diagnostic {
    let message = format!("written out, the layers have more than {MAX_PARTS} parts");
    Diagnostic::error(codes::TOO_LARGE, span, message)
        .label("each layer stands for all parts of its body")
}
