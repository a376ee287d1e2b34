//! Layers written in the language: `layer ffn(hidden) = rmsnorm |> linear(hidden)`.
//!
//! Takes their syntax; gives each with its arguments' kinds and the written layers that its body names, so that whoever reads a field needs no
//! names any more. Leaves what a body computes to `odec-model`, which reads it as if it stood in the place of the layer.

use super::names::Definition;
use super::resolve::{MAX_DEPTH, Resolver, too_deep};
use super::scalar::name_of;
use super::unused::is_deliberate;
use super::vocabulary::Facts;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{self, Expr, ExprKind, Ident, LayerBody};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Numbers that a body may name beside its arguments.
pub const SIZES: [&str; 3] = ["width", "vocab", "context"];
/// Most parts that the written layers of one file have, all of them written out.
pub const MAX_PARTS: u64 = 1 << 16;
/// Most operators and calls one inside the other in a body that is written out: whoever reads it recurses.
const MAX_HEIGHT: usize = 400;
/// What a layer inside of another counts for in that.
const LEVEL: usize = 5;

/// A layer written in the language.
#[derive(Debug, PartialEq)]
pub struct Layer {
    pub name: Ident,
    pub params: Vec<Param>,
    pub body: Expr,
    /// The written layers that the body names.
    pub inside: Layers,
    pub facts: Facts,
    /// Parts of the body, written out.
    parts: u64,
    /// How deep they are.
    height: usize,
}

/// An argument of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: Ident,
    pub kind: Kind,
    pub default: Option<Expr>,
}

/// What may be given for an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number from 1.
    Size,
    /// Any exact number.
    Number,
    /// A word that stands alone, and is handed on to layers that take it.
    Flag,
}

impl Kind {
    const WORDS: [(&str, Kind); 3] = [
        ("size", Kind::Size),
        ("number", Kind::Number),
        ("flag", Kind::Flag),
    ];
}

/// The written layers that an expression names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    /// By name; `None`: wrong, and that has been said.
    found: BTreeMap<String, Option<Rc<Layer>>>,
    /// The nearest layer to a name that is not defined.
    near: BTreeMap<String, String>,
}

impl Layers {
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

/// The parts of a field's expression that may be layers, and how deep they are: names and calls that nothing but `|>`, sums,
/// products and layers of fields stand around.
fn parts<'e>(e: &'e Expr, takes_fields: &dyn Fn(&str) -> bool) -> (Vec<Ident>, usize) {
    let mut open: Vec<(&'e Expr, usize)> = vec![(e, 1)];
    let (mut parts, mut height) = (Vec::new(), 0);
    while let Some((e, deep)) = open.pop() {
        height = height.max(deep);
        let below = |e: &'e Expr| (e, deep + 1);
        match &e.kind {
            ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => open.extend([below(a), below(b)]),
            ExprKind::Neg(a) => open.push(below(a)),
            ExprKind::Tuple(items) => open.extend(items.iter().map(below)),
            ExprKind::Call(call) => {
                let Some(name) = name_of(&call.callee) else {
                    continue;
                };
                if takes_fields(&name.name) {
                    open.extend(call.args.iter().map(|a| below(&a.value)));
                }
                parts.push(name);
            }
            _ => parts.extend(name_of(e)),
        }
    }
    // As they are written.
    parts.sort_by_key(|name| name.span);
    (parts, height)
}

impl Resolver<'_, '_> {
    /// Whether a name is a layer's.
    pub(super) fn is_layer(&mut self, name: &Ident) -> bool {
        self.names.layers.has(&name.name)
            || matches!(self.names.get(name, self.sink), Ok(Definition::Layer(_)))
    }

    /// The written layers that a field names. `None`: together they are too large.
    pub fn layers_of(&mut self, e: &Expr, params: &[Ident]) -> Option<Layers> {
        let names = self.names.layers;
        let (parts, _) = parts(e, &|name| names.takes_fields(name));
        let layers = self.layers_among(&parts, params);
        let written = parts.iter().filter_map(|name| layers.get(&name.name)?);
        let written: u64 = written.map(|l| l.parts).fold(0, u64::saturating_add);
        self.written_parts = self.written_parts.saturating_add(written);
        match self.written_parts > MAX_PARTS {
            true => self.fail(too_many(e.span)),
            false => Some(layers),
        }
    }

    fn layers_among(&mut self, parts: &[Ident], params: &[Ident]) -> Layers {
        let mut layers = Layers::default();
        for name in parts {
            let known = layers.found.contains_key(&name.name)
                || layers.near.contains_key(&name.name)
                || self.names.layers.has(&name.name)
                || params.iter().any(|p| p.name == name.name);
            if known {
                continue;
            }
            match self.names.get(name, self.sink) {
                Ok(Definition::Layer(layer)) => {
                    let layer = self.written(&layer);
                    layers.found.insert(name.name.clone(), layer);
                }
                Err(false) => {
                    let near = (self.names).nearest_layer(name, &self.writing, self.sink.len());
                    let near = near.map(|near| (name.name.clone(), near));
                    layers.near.extend(near);
                }
                Err(true) | Ok(Definition::Scheme(_) | Definition::Field(_)) => {}
            }
        }
        layers
    }

    /// A layer with all that its body names. `None`: it is wrong, and that has been said.
    pub fn written(&mut self, layer: &Rc<ast::Layer>) -> Option<Rc<Layer>> {
        let place = layer.name.span;
        if let Some(known) = self.written.get(&place) {
            return known.clone();
        }
        if let Some(from) = self.writing.iter().position(|l| l.span == place) {
            let round = self.writing[from..].iter().chain([&layer.name]);
            let round: Vec<&str> = round.map(|l| l.name.as_str()).collect();
            let message = format!("layer `{}` is defined by itself", layer.name.name);
            let d = Diagnostic::error(codes::CYCLIC_DEFINITION, place, message);
            return self.fail(d.label(round.join(" → ")));
        }
        if self.writing.len() >= MAX_DEPTH {
            return self.fail(too_deep(place));
        }
        self.writing.push(layer.name.clone());
        let made = self.write(layer).map(Rc::new);
        self.writing.pop();
        self.written.insert(place, made.clone());
        made
    }

    fn write(&mut self, layer: &ast::Layer) -> Option<Layer> {
        let before = errors(self.sink);
        let params: Vec<Param> = layer.params.iter().map(|p| self.param(p)).collect();
        let names: Vec<Ident> = params.iter().map(|p| p.name.clone()).collect();
        self.distinct(&names);
        let LayerBody::Pipeline(body) = &layer.body;
        let vocabulary = self.names.layers;
        let (parts, own) = parts(body, &|name| vocabulary.takes_fields(name));
        let inside = self.layers_among(&parts, &[]);
        self.warn_of_unread(layer);
        let wrong = parts.iter().any(|n| inside.get(&n.name) == Some(None));
        if wrong || errors(self.sink) > before {
            return None;
        }
        let deepest = inside.good().map(|l| l.height).max().unwrap_or(0);
        let height = own + LEVEL + deepest;
        if height > MAX_HEIGHT {
            return self.fail(too_deep(layer.name.span));
        }
        let size = |name: &Ident| match inside.get(&name.name) {
            Some(Some(layer)) => layer.parts,
            _ => 1,
        };
        let parts = parts.iter().map(size).fold(0, u64::saturating_add);
        if parts > MAX_PARTS {
            return self.fail(too_many(layer.name.span));
        }
        Some(Layer {
            name: layer.name.clone(),
            facts: vocabulary.facts(body, &inside),
            body: body.clone(),
            params,
            inside,
            parts,
            height,
        })
    }

    /// An argument; what is wrong with it is said.
    fn param(&mut self, p: &ast::LayerParam) -> Param {
        if SIZES.contains(&p.name.name.as_str()) {
            let message = format!("`{}` already means something to odec", p.name.name);
            let d = Diagnostic::error(codes::REDEFINITION, p.name.span, message);
            self.sink.push(d.help("choose another name; a body may name `width`, `vocab` and `context` without arguments of these names"));
        }
        let known = |word: &Ident| Kind::WORDS.iter().find(|(w, _)| *w == word.name);
        let kind = match &p.kind {
            None => Kind::Size,
            Some(word) => known(word).map_or_else(
                || {
                    let words = Kind::WORDS.map(|(w, _)| w);
                    let what = "a kind of argument";
                    self.sink
                        .push(super::scalar::unknown_option(what, word, &words));
                    Kind::Number
                },
                |(_, kind)| *kind,
            ),
        };
        if let (Kind::Flag, Some(default)) = (kind, &p.default) {
            let message = format!("`{}` takes no value", p.name.name);
            let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, default.span, message);
            let d = d.label("a word that stands alone is off where nothing is said");
            self.sink.push(d);
        }
        Param {
            name: p.name.clone(),
            kind,
            default: p.default.clone(),
        }
    }

    /// Warns of arguments that neither the body nor a default reads.
    fn warn_of_unread(&mut self, layer: &ast::Layer) {
        let mut used = super::mentions::Mentions::default();
        let LayerBody::Pipeline(body) = &layer.body;
        used.expr(body);
        let defaults = layer.params.iter().filter_map(|p| p.default.as_ref());
        defaults.for_each(|e| used.expr(e));
        let names = layer.params.iter().map(|p| &p.name);
        for name in names.filter(|n| !is_deliberate(n) && !used.read.contains(n.name.as_str())) {
            self.sink.push(super::unused::number(name));
        }
    }
}

fn errors(sink: &[Diagnostic]) -> usize {
    let error = |d: &&Diagnostic| d.severity == odec_grammar::diag::Severity::Error;
    sink.iter().filter(error).count()
}

fn too_many(span: Span) -> Diagnostic {
    let message = format!("written out, the layers have more than {MAX_PARTS} parts");
    Diagnostic::error(codes::TOO_LARGE, span, message)
        .label("each layer stands for all parts of its body")
}
