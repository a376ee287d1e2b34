//! What the language knows about layers before sizes are known: their names and basic properties.
//!
//! The layers themselves are in `odec-model`, which gives their names to [`super::Namespace`]. No layer is named here.

use super::layer::Layers;
use super::scalar::{name_of, not_supported};
use odec_grammar::ast::{Body, BodyStmt, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;

/// What is known of a field that is evaluated as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether its result depends on the time itself.
    pub reads_time: bool,
    /// Whether it multiplies each column by a number: functions such as `exp(h*L)` are defined for it.
    pub diagonal: bool,
}

impl Facts {
    /// Of most layers.
    pub const NONE: Facts = Facts {
        reads_time: false,
        diagonal: false,
    };
    /// Of an arbitrary field, for schemes without a model.
    pub const OPEN: Facts = Facts {
        reads_time: false,
        diagonal: true,
    };
}

/// `when(flag, a, b)`: the second argument where the flag is given to the layer around it, else the third, or what stands before it.
pub const WHEN: &str = "when";

/// A layer as the language knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerName {
    pub name: &'static str,
    pub facts: Facts,
    pub with: Option<With>,
}

/// What a layer's name means where an argument is given that it does not take itself: a layer of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct With {
    pub argument: &'static str,
    pub layer: &'static str,
}

/// The layers of fields.
#[derive(Debug)]
pub struct Vocabulary {
    pub layers: &'static [LayerName],
    /// What is called as layers are, and chooses among values: [`WHEN`].
    pub forms: &'static [&'static str],
    /// Whether an argument of a layer without a label is one of its words, `causal`, and no value.
    pub is_word: fn(layer: &str, word: &str) -> bool,
    /// Whether what stands behind a label of a layer is a value, and may name layers.
    pub is_value: fn(layer: &str, label: &str) -> bool,
    /// Names that later versions compile, each with what there is instead, if there is something: `… through …; `.
    pub later: &'static [(&'static str, &'static str)],
    /// Names that something has elsewhere, each with how it is written here. Upper case and `_` do not count.
    pub elsewhere: &'static [(&'static str, &'static str)],
}

impl Vocabulary {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|l| l.name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some() || self.forms.contains(&name)
    }

    /// Whether a word is an argument of a layer by itself.
    pub fn is_word(&self, layer: &str, word: &str) -> bool {
        (self.is_word)(layer, word)
    }

    /// Whether no definition may have this name.
    pub fn takes(&self, name: &str) -> bool {
        self.has(name) || self.later.iter().any(|(n, _)| *n == name)
    }

    /// The layer that a name means with these arguments: itself, but for those that stand for a layer of the library ([`With`]).
    pub fn meant<'n>(&self, name: &'n str, given: impl Fn(&str) -> bool) -> &'n str {
        let with = self.find(name).and_then(|l| l.with);
        with.filter(|w| given(w.argument)).map_or(name, |w| w.layer)
    }

    /// What is known of the layer of a name, if it is one.
    fn known(&self, name: &str, written: &Layers) -> Option<Facts> {
        let name = written.meant(name);
        let own = self.find(name).map(|l| l.facts);
        own.or_else(|| Some(written.get(name)??.facts))
    }

    fn find(&self, name: &str) -> Option<&LayerName> {
        self.layers.iter().find(|l| l.name == name)
    }

    /// How what has this name elsewhere is written here.
    pub fn written(&self, name: &str) -> Option<&'static str> {
        // One letter or two mean something else in upper case.
        let plain = |name: &str| match name.len() {
            0..3 => name.to_string(),
            _ => name.to_lowercase().replace('_', ""),
        };
        let name = plain(name);
        let found = self.elsewhere.iter().find(|(n, _)| plain(n) == name);
        found.map(|(_, written)| *written)
    }

    /// The error for a layer of a later version.
    pub fn later(&self, name: &Ident) -> Option<Diagnostic> {
        let (_, near) = self.later.iter().find(|(n, _)| *n == name.name)?;
        let help = format!("{near}`odec help layers` lists all layers");
        Some(not_supported(name.span, &format!("`{}`", name.name)).help(help))
    }

    /// What the layers of a field say of it. `written`: those among them that are written in the language. `values`: what names mean that
    /// are no layers.
    pub fn facts(&self, body: &Body, written: &Layers, values: &[&str]) -> Facts {
        let alone = match body {
            Body::Expr(e) => Some(e),
            Body::Block { statements, .. } => match &statements[..] {
                [BodyStmt::Return { value, .. }] => Some(value),
                _ => None,
            },
        };
        Facts {
            reads_time: self.reads_time(body.exprs(), written, values),
            diagonal: alone.is_some_and(|e| self.is_diagonal(e, written)),
        }
    }

    /// Without recursion: fields are read at the bottom of deep definitions.
    fn reads_time<'e>(
        &self,
        of: impl Iterator<Item = &'e Expr>,
        written: &Layers,
        values: &[&str],
    ) -> bool {
        let mut open: Vec<&Expr> = of.collect();
        while let Some(e) = open.pop() {
            match &e.kind {
                ExprKind::Name(n) if values.contains(&n.as_str()) => {}
                ExprKind::Name(n) if self.known(n, written).is_some_and(|f| f.reads_time) => {
                    return true;
                }
                ExprKind::Call(call) => {
                    open.push(&call.callee);
                    open.extend(call.args.iter().map(|a| &a.value));
                }
                ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => open.extend([&**a, &**b]),
                ExprKind::Neg(a) => open.push(a),
                ExprKind::Tuple(items) | ExprKind::List(items) => open.extend(items),
                _ => {}
            }
        }
        false
    }

    /// Whether a field is one such layer alone.
    fn is_diagonal(&self, mut body: &Expr, written: &Layers) -> bool {
        while let ExprKind::Tuple(items) = &body.kind {
            match &items[..] {
                [one] => body = one,
                _ => return false,
            }
        }
        let name = match &body.kind {
            ExprKind::Call(call) => name_of(&call.callee),
            _ => name_of(body),
        };
        let facts = name.and_then(|n| self.known(&n.name, written));
        facts.is_some_and(|f| f.diagonal)
    }
}
