//! Reads the fields of a model: pipelines of layers and named values, with checked widths.
//!
//! Takes the syntax of a leaf field; gives a [`Network`] whose widths fit. An expression is read where a value stands before `|>`, or none does,
//! and where values have names. Leaves layers and their arguments to `reading.rs` and their files, sums and products to `arithmetic.rs`, bodies
//! to `written.rs`.

use super::given::Given;
use super::naming::{Naming, Roles};
use super::network::Network;
use super::reading::{self, role};
use super::states::{self, Elsewhere, States};
use super::written::{self, Known};
use super::{Argument, VOCABULARY, find, function};
use crate::codes;
use crate::scheme::args::Args;
use crate::scheme::layer::{Kind, SIZES};
use crate::scheme::scalar::{Scope, name_of};
use crate::scheme::vocabulary::WHEN;
use crate::scheme::{Coeff, Layers, Leaf};
use crate::step_rule::Steps;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Body, BodyStmt, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::Dim;
use odec_program::kernel::MOST_CHUNKS;
use std::collections::BTreeMap;

/// Where an expression is read.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    /// The width of the value that stands before `|>`, or that the field is applied to; absent where all values have names.
    pub before: Option<u64>,
    /// The values that have names.
    pub named: &'a [Named],
}

/// A value with a name.
#[derive(Clone)]
pub(super) struct Named {
    pub name: Ident,
    /// Which of the values it is: two names may mean the same one.
    pub number: usize,
    pub columns: u64,
    /// Whether it is the same for all tokens.
    pub fixed: bool,
    pub from: Option<Elsewhere>,
    /// The rows of the matrix that it is, if it is none of a token's values.
    pub rows: Option<Rows>,
    /// The number that each of its elements is before training, where that is known and one number.
    pub start: Option<f64>,
}

/// The rows of a matrix, or of a list of matrices, one for each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many matrices a list has.
    pub heads: Option<u64>,
    /// Of each matrix.
    pub each: u64,
}

impl Rows {
    /// Of all matrices.
    pub fn all(self) -> u64 {
        self.count() * self.each
    }

    /// Matrices.
    pub fn count(self) -> u64 {
        self.heads.unwrap_or(1)
    }

    /// "4 rows of 8 columns".
    pub fn said(self, columns: u64) -> String {
        let of = self
            .heads
            .map_or(String::new(), |n| format!("{n} matrices of "));
        format!("{of}{} rows of {columns} columns", self.each)
    }
}

impl Named {
    /// A value of each token.
    pub fn of_tokens(name: Ident, number: usize, columns: u64) -> Named {
        Named {
            name,
            number,
            columns,
            fixed: false,
            from: None,
            rows: None,
            start: None,
        }
    }

    /// What was read, under a name.
    pub fn called(name: Ident, number: usize, read: &Read) -> Named {
        Named {
            name,
            number,
            columns: read.columns,
            fixed: read.fixed,
            from: read.from.clone(),
            rows: read.rows,
            start: None,
        }
    }
}

impl<'a> Input<'a> {
    /// What stands behind a value of this width.
    pub fn behind(self, width: u64) -> Input<'a> {
        Input {
            before: Some(width),
            ..self
        }
    }

    /// The number that each element of something is before training, where that is known and one number.
    pub fn start(self, of: &Network) -> Option<f64> {
        of.start(&|i| self.named.iter().find(|n| n.number == i)?.start)
    }

    pub fn find(self, name: &str) -> Option<&'a Named> {
        self.named.iter().find(|n| n.name.name == name)
    }
}

/// What was read: a value of each token, or one that is the same for all.
pub(super) struct Read {
    pub network: Network,
    pub columns: u64,
    pub fixed: bool,
    /// Of a matrix, which is no token's value, but the same for all.
    pub rows: Option<Rows>,
    /// The evolve whose tokens have it, where it is not the one at hand.
    pub from: Option<Elsewhere>,
}

impl Read {
    pub fn of_tokens((network, columns): (Network, u64)) -> Read {
        Read {
            network,
            columns,
            fixed: false,
            rows: None,
            from: None,
        }
    }

    /// As a value of each token.
    pub fn for_tokens(self) -> (Network, u64) {
        let network = match self.fixed {
            true => Network::Spread(Box::new(self.network), self.columns),
            false => self.network,
        };
        (network, self.columns)
    }
}

/// The value that a layer is given to be applied to, if it is given one.
pub(super) struct Applied(pub Option<Network>);

impl Applied {
    pub fn then(self, layer: Network) -> Network {
        match self.0 {
            Some(value) => Network::Pipe(vec![value, layer]),
            None => layer,
        }
    }
}

/// Reads layers, in a field and in all that stands for parts of it.
pub struct LayerReader<'a> {
    pub(super) scope: &'a Scope,
    /// The layers written in the language, and fields.
    pub(super) layers: &'a Layers,
    /// What the layer around it was given.
    pub(super) given: &'a Given,
    /// Of the state.
    pub(super) width: u64,
    pub(super) sink: &'a mut Vec<Diagnostic>,
    pub(super) naming: Naming,
    pub(super) of_field: &'a mut OfField,
}

/// What is known of a field while it is read.
pub(super) struct OfField {
    pub sizes: Sizes,
    pub states: States,
    pub steps: Steps,
    /// Layers that are counted through the whole field, by name.
    pub kinds: Vec<&'static str>,
    /// The fields that it names, each with what it computes.
    pub fields: BTreeMap<String, Known>,
    /// Whether the layer at hand may give fewer tokens than the state has.
    pub fewer: bool,
    /// Of each layer that reads later tokens, what is to be said of it in a model that predicts them.
    pub ahead: Vec<Diagnostic>,
}

impl OfField {
    pub fn new(model: &OfModel) -> OfField {
        OfField {
            sizes: model.sizes,
            states: model.states.clone(),
            steps: model.steps,
            kinds: Vec::new(),
            fields: BTreeMap::new(),
            fewer: false,
            ahead: Vec::new(),
        }
    }
}

/// What the fields of a model may name of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OfModel {
    pub sizes: Sizes,
    pub states: States,
    /// In which steps it is computed.
    pub steps: Steps,
}

impl OfModel {
    /// Of a field without a model: any name may be that of an evolve.
    pub fn alone(sizes: Sizes) -> OfModel {
        OfModel {
            sizes,
            states: States::default(),
            steps: Steps::Unknown,
        }
    }
}

/// Sizes of a model that its fields may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Kinds of tokens, where a model reads tokens.
    pub vocab: Option<u64>,
    pub context: u64,
    pub width: u64,
    /// What its tokens stand on, where they do.
    pub grid: Option<Grid>,
}

/// A grid of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Its rows and columns.
    pub sides: [u64; 2],
    /// How many rows of the state stand before its tokens.
    pub leading: u64,
    /// Whether windows may lie over it: a state then has so many tokens in every run, and not as many as a run is given.
    pub fixed: bool,
}

impl Grid {
    /// Over which windows may lie.
    pub const fn square(side: u64) -> Grid {
        Grid {
            sides: [side, side],
            leading: 0,
            fixed: true,
        }
    }
}

/// Says what is wrong inside a field, whichever of a model's states it is applied to. Where the sizes are not known (a file without a model), nothing is
/// said about what depends on them.
pub fn check(leaf: &Leaf, model: &[OfModel], sink: &mut Vec<Diagnostic>) {
    let some = OfModel::alone(Sizes::SOME);
    let known = match model {
        [] => std::slice::from_ref(&some),
        known => known,
    };
    let of_sizes = [codes::WIDTH_MISMATCH, codes::HEAD_COUNT];
    let mut everywhere: Option<Vec<Diagnostic>> = None;
    for known in known {
        let widths = vec![known.sizes.width; leaf.params.len().max(1)];
        let mut found = Vec::new();
        read(leaf, &widths, known, &mut found);
        found.retain(|d| !model.is_empty() || !of_sizes.contains(&d.code));
        // What is wrong at one size alone is said where the field is used.
        everywhere = Some(match everywhere {
            None => found,
            Some(before) => before.into_iter().filter(|d| found.contains(d)).collect(),
        });
    }
    sink.extend(everywhere.unwrap_or_default());
}

/// What a field computes, evaluated at values of these widths, and the width of its result.
pub fn read(
    leaf: &Leaf,
    widths: &[u64],
    model: &OfModel,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Network, u64)> {
    evaluated(leaf, widths, &mut OfField::new(model), sink)
}

/// What is to be said of the first layer of a field that reads later tokens, at states of this model.
pub fn ahead(leaf: &Leaf, model: &OfModel) -> Option<Diagnostic> {
    let widths = vec![model.sizes.width; leaf.params.len().max(1)];
    let of_field = &mut OfField::new(model);
    evaluated(leaf, &widths, of_field, &mut Vec::new())?;
    of_field.ahead.drain(..).next()
}

fn evaluated(
    leaf: &Leaf,
    widths: &[u64],
    of_field: &mut OfField,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Network, u64)> {
    let params = leaf.params.iter().zip(widths);
    let named = params.enumerate();
    let named = named.map(|(i, (name, columns))| Named::of_tokens(name.clone(), i, *columns));
    let named: Vec<Named> = named.collect();
    let before = widths.first().copied().filter(|_| named.is_empty());
    let given = (0..named.len()).map(Network::Argument).collect();
    let body = leaf.body.as_ref()?;
    let read = whole(body, &leaf.layers, (before, named), of_field, sink)?;
    if let Some(from) = &read.from {
        sink.push(states::misplaced(&from.label, body.span()));
        return None;
    }
    Some(read.with(given).for_tokens())
}

/// What stands before the logits: from states to states. That of an output with a label may begin with the label of an evolve, whose state it reads.
pub fn output(
    label: &str,
    body: &Body,
    layers: &Layers,
    model: &OfModel,
    sink: &mut Vec<Diagnostic>,
) -> Option<Network> {
    let width = model.sizes.width;
    let before = (Some(width), Vec::new());
    let read = whole(body, layers, before, &mut OfField::new(model), sink)?;
    if let Some(from) = &read.from {
        let message = format!("`{}` is not what this output reads", from.label);
        let d = Diagnostic::error(codes::MISPLACED, body.span(), message);
        let wrong = match (label.is_empty(), from.own) {
            (false, true) => None,
            (true, _) => Some(d.label("the output without a label reads the last state").help(
                "give another output a label: `output early: first |> rmsnorm |> logits(tied)`",
            )),
            (false, false) => Some(d.label("its rows are those of another sequence")),
        };
        if let Some(d) = wrong {
            sink.push(d);
            return None;
        }
    }
    let (layer, out) = read.with(Vec::new()).for_tokens();
    if out != width {
        sink.push(ends_with(body.span(), out, width).help("the logits are read from the state"));
        return None;
    }
    Some(layer)
}

/// "this field ends with width 3".
pub fn ends_with(span: Span, out: u64, width: u64) -> Diagnostic {
    let message = format!("this field ends with width {out}");
    Diagnostic::error(codes::WIDTH_MISMATCH, span, message)
        .label(format!("the state has width {width}"))
}

/// All that a field computes.
fn whole(
    body: &Body,
    layers: &Layers,
    (before, named): (Option<u64>, Vec<Named>),
    of_field: &mut OfField,
    sink: &mut Vec<Diagnostic>,
) -> Option<Known> {
    let mut roles = Roles::default();
    body_roles(body, layers, &mut roles);
    let mut reader = LayerReader {
        scope: &of_field.sizes.scope(),
        layers,
        given: &Given::default(),
        width: of_field.sizes.width,
        sink,
        naming: Naming::of_field(roles),
        of_field,
    };
    written::body(&mut reader, body, before, named)
}

impl Sizes {
    /// Of a model that is not known: so large that numbers which are bounded by a context fit.
    pub const SOME: Sizes = Sizes {
        vocab: Some(256),
        context: MOST_CHUNKS,
        width: 256,
        grid: Some(Grid::square(32)),
    };
    /// Of nothing.
    pub const NONE: Sizes = Sizes {
        vocab: None,
        context: 0,
        width: 0,
        grid: None,
    };

    /// The tokens of a state: so many on a grid, else as many as a run is given.
    pub fn tokens(&self) -> Dim {
        match self.grid {
            Some(grid) if grid.fixed => Dim::Fixed(self.context),
            _ => Dim::Seq,
        }
    }

    pub(super) fn scope(self) -> Scope {
        let number = |n: u64| Coeff::constant(Exact::int(i64::try_from(n).unwrap_or(i64::MAX)));
        let all = [("width", self.width), ("context", self.context)];
        let vocab = self.vocab.map(|vocab| ("vocab", vocab));
        let all = all.into_iter().chain(vocab);
        all.map(|(n, v)| (n.to_string(), number(v))).collect()
    }
}

/// The roles of the parts of a body that have parameters: a value that has some counts as one, under its name.
pub(super) fn body_roles(body: &Body, layers: &Layers, out: &mut Roles) {
    let statements = match body {
        Body::Expr(e) => return count_roles(e, layers, out),
        Body::Block { statements, .. } => statements,
    };
    for s in statements {
        match s {
            BodyStmt::Set { name, value } => {
                let mut inside = Roles::default();
                count_roles(value, layers, &mut inside);
                if !inside.is_empty() {
                    out.add(&name.name);
                }
            }
            BodyStmt::Learn { name, .. } => out.add(&name.name),
            BodyStmt::Return { value, .. } => count_roles(value, layers, out),
        }
    }
}

/// The roles of layers with parameters; a layer written in the language has those of its body, a field has its own names.
pub(super) fn count_roles(e: &Expr, layers: &Layers, out: &mut Roles) {
    match &e.kind {
        ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => {
            count_roles(a, layers, out);
            count_roles(b, layers, out);
        }
        ExprKind::Neg(a) => count_roles(a, layers, out),
        ExprKind::Tuple(items) => items.iter().for_each(|i| count_roles(i, layers, out)),
        _ => {
            if let ExprKind::Call(call) = &e.kind {
                // What `when` asks for is no layer. What it may choose counts, whichever that is.
                let given = call.args.iter().skip(usize::from(is_when(call)));
                let given = given.filter(|a| stands_for_a_value(call, a, layers));
                given.for_each(|a| count_roles(&a.value, layers, out));
            }
            let Some(args) = Args::of(e) else { return };
            let name = layers.meant(&args.callee.name);
            let name = VOCABULARY.meant(name, |label| args.has(label));
            match layers.get(name) {
                Some(Some(layer)) if layer.is_field => {}
                Some(Some(layer)) => out.add_those_of(layer),
                _ => role(name).into_iter().for_each(|r| out.add(r)),
            }
        }
    }
}

/// Whether this is `when(flag, a, b)`.
fn is_when(call: &Call) -> bool {
    name_of(&call.callee).is_some_and(|name| name.name == WHEN)
}

/// Whether an argument is a value that its layer is applied to: it has no label, or one that is declared so.
fn stands_for_a_value(call: &Call, a: &Arg, layers: &Layers) -> bool {
    let Some(label) = &a.label else { return true };
    let Some(name) = name_of(&call.callee) else {
        return false;
    };
    if let Some(d) = find(&name.name) {
        let is_it = |d: &Argument| d.is_value() && d.name == label.name;
        return d.arguments.iter().any(is_it);
    }
    let Some(Some(layer)) = layers.get(&name.name) else {
        return false;
    };
    let mut states = layer.of_kind(Kind::State);
    states.any(|p| p.label.name == label.name)
}

impl LayerReader<'_> {
    pub(super) fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.sink.push(d);
        None
    }

    /// A part of a field, as a value of each token with its width.
    pub(super) fn layer(&mut self, e: &Expr, input: Input) -> Option<(Network, u64)> {
        Some(self.own_value(e, input)?.for_tokens())
    }

    /// A part of a field, of the tokens at hand.
    pub(super) fn own_value(&mut self, e: &Expr, input: Input) -> Option<Read> {
        let read = self.value(e, input)?;
        self.of_own_tokens(read, e.span)
    }

    /// The same, or a matrix.
    pub(super) fn own_value_or_matrix(&mut self, e: &Expr, input: Input) -> Option<Read> {
        let read = self.value_or_matrix(e, input)?;
        self.of_own_tokens(read, e.span)
    }

    fn of_own_tokens(&mut self, read: Read, span: Span) -> Option<Read> {
        match &read.from {
            None => Some(read),
            Some(from) => self.fail(states::misplaced(&from.label, span)),
        }
    }

    /// A part of a field, and no matrix.
    pub(super) fn value(&mut self, e: &Expr, input: Input) -> Option<Read> {
        let read = self.value_or_matrix(e, input)?;
        match read.rows {
            None => Some(read),
            Some(_) => self.fail(a_matrix(e, input)),
        }
    }

    /// A part of a field: layers one after the other, arithmetic, a named value, or one layer.
    pub(super) fn value_or_matrix(&mut self, e: &Expr, input: Input) -> Option<Read> {
        match &e.kind {
            kind if !matches!(kind, ExprKind::Name(_)) && self.is_number(e, input) => Some(Read {
                network: Network::Number(self.number(e)?),
                columns: 1,
                fixed: true,
                rows: None,
                from: None,
            }),
            ExprKind::Pipe(..) => self.pipe(e, input),
            ExprKind::Tuple(items) if items.len() == 1 => self.value_or_matrix(&items[0], input),
            ExprKind::Binary(..) | ExprKind::Neg(_) => self.sum(e, input),
            ExprKind::Name(name) => match input.find(name) {
                Some(named) => Some(Read {
                    network: Network::Argument(named.number),
                    columns: named.columns,
                    fixed: named.fixed,
                    rows: named.rows,
                    from: named.from.clone(),
                }),
                None if self.of_field.states.has(name) && !self.is_layer(name) => {
                    let (name, span) = (name.clone(), e.span);
                    self.state(&Ident { name, span })
                }
                None if self.scope.contains_key(name) => self.fail(a_named_number(name, e.span)),
                None => reading::read(self, e, input),
            },
            ExprKind::Call(call) if is_when(call) => self.chosen(call, e.span, input),
            _ => {
                let called = Args::of(e).map(|a| a.callee);
                let called = called.filter(|c| !self.is_layer(&c.name));
                match called.and_then(|c| Some((input.find(&c.name)?, c))) {
                    Some((named, callee)) => self.fail(a_value(named, callee.span)),
                    None => reading::read(self, e, input),
                }
            }
        }
    }

    /// `when(flag, a, b)`: what stands in its place.
    fn chosen(&mut self, call: &Call, span: Span, input: Input) -> Option<Read> {
        let shown = "write `when(flag, layer)`, or `when(flag, layer, otherwise)`";
        let values: Vec<&Expr> = call.args.iter().map(|a| &a.value).collect();
        let labelled = call.args.iter().find_map(|a| a.label.as_ref());
        let (asked, then, otherwise) = match values[..] {
            [asked, then] if labelled.is_none() => (asked, then, None),
            [asked, then, otherwise] if labelled.is_none() => (asked, then, Some(otherwise)),
            _ => {
                let message = "`when` takes a flag and one or two values";
                let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
                return self.fail(d.help(shown));
            }
        };
        let name = name_of(asked).map_or(String::new(), |n| n.name);
        if !self.given.choices.contains(&name) {
            let message = "`when` asks for a flag or an optional number of the layer around it";
            let d = Diagnostic::error(codes::INVALID_VALUE, asked.span, message);
            let known: Vec<String> = self
                .given
                .choices
                .iter()
                .map(|c| format!("`{c}`"))
                .collect();
            return self.fail(match known.is_empty() {
                true => d.help("write `layer name(rope: flag) = … |> when(rope, …)`"),
                false => d.help(format!("here it may ask for {}", known.join(", "))),
            });
        }
        match (self.given.lacks(&name), otherwise, input.before) {
            (false, _, _) => self.value_or_matrix(then, input),
            (true, Some(otherwise), _) => self.value_or_matrix(otherwise, input),
            (true, None, Some(width)) => Some(Read::of_tokens((Network::input(), width))),
            (true, None, None) => {
                let message =
                    "nothing stands before `when`, so what is computed otherwise must be said";
                let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
                self.fail(
                    d.help("write `x |> when(flag, layer)`, or `when(flag, layer, otherwise)`"),
                )
            }
        }
    }

    fn pipe(&mut self, e: &Expr, input: Input) -> Option<Read> {
        let mut parts = Vec::new();
        pipeline(e, &mut parts);
        let (first, rest) = parts.split_first()?;
        if let Some(number) = parts.iter().find(|p| self.is_number(p, input)) {
            return self.fail(match &number.kind {
                ExprKind::Name(name) => a_named_number(name, number.span),
                _ => a_number(number.span),
            });
        }
        for p in rest {
            let Some(name) = name_of(p) else { continue };
            if let Some(named) = input.find(&name.name) {
                return self.fail(match named.rows {
                    Some(_) => a_matrix(p, input),
                    None => a_value(named, p.span),
                });
            }
            if self.of_field.states.has(&name.name) && !self.is_layer(&name.name) {
                return self.fail(states::misplaced(&name.name, p.span));
            }
        }
        let read = self.value(first, input)?;
        if read.from.is_some() {
            return self.of_each_token(read, rest);
        }
        let (layer, mut out) = read.for_tokens();
        let mut layers = vec![layer];
        for p in rest {
            let (layer, next) = self.layer(p, input.behind(out))?;
            layers.push(layer);
            out = next;
        }
        Some(Read::of_tokens((Network::Pipe(layers), out)))
    }

    /// Whether this is the name of a layer or a field.
    pub(super) fn is_layer(&self, name: &str) -> bool {
        VOCABULARY.takes(name) || self.layers.get(name).is_some()
    }

    /// Whether this is a matrix that the body learns, or one that is computed of such.
    pub(super) fn is_matrix(&self, e: &Expr, input: Input) -> bool {
        match &e.kind {
            ExprKind::Name(name) => input.find(name).is_some_and(|n| n.rows.is_some()),
            ExprKind::Tuple(items) => matches!(&items[..], [one] if self.is_matrix(one, input)),
            ExprKind::Neg(a) => self.is_matrix(a, input),
            ExprKind::Binary(_, a, b) => self.is_matrix(a, input) || self.is_matrix(b, input),
            ExprKind::Call(call) => {
                let of = call.args.iter().skip(usize::from(is_when(call)));
                let mut of = of.filter(|a| a.label.is_none());
                let keeps_rows = is_when(call) || function::keeps_shape(call);
                keeps_rows && of.any(|a| self.is_matrix(&a.value, input))
            }
            _ => false,
        }
    }

    /// Whether a name that no value has is that of a layer, a field, a state or an optional layer.
    pub(super) fn names_a_value(&self, name: &str) -> bool {
        self.is_layer(name) || self.of_field.states.has(name) || self.given.is_part(name)
    }

    /// Whether an argument is a value that its layer is applied to. `own`: the layer's own words.
    fn is_value(&self, e: &Expr, own: &dyn Fn(&str) -> bool, input: Input) -> bool {
        if self.is_matrix(e, input) {
            return false;
        }
        let off = &self.given.handed_on.off;
        let word = |name: &Ident| own(&name.name) || off.contains(&name.name);
        match &e.kind {
            ExprKind::Name(n) => {
                let known = input.find(n).is_some() || self.names_a_value(n);
                known && !name_of(e).is_some_and(|n| word(&n))
            }
            ExprKind::Call(call) => {
                !self.is_number(e, input) && !name_of(&call.callee).is_some_and(|n| word(&n))
            }
            ExprKind::Pipe(..) | ExprKind::Binary(..) | ExprKind::Neg(_) => {
                !self.is_number(e, input)
            }
            _ => false,
        }
    }

    /// The next value among the arguments.
    pub(super) fn next_value(
        &mut self,
        args: &mut Args,
        own: &dyn Fn(&str) -> bool,
        input: Input,
    ) -> Option<Option<Read>> {
        let e = args.first_of(|e| self.is_value(e, own, input))?;
        Some(self.value(e, input))
    }

    /// Says of what is left among the arguments of a layer that it is a matrix, or one value more than the layer is applied to.
    pub(super) fn no_more_values(
        &mut self,
        args: &mut Args,
        own: &dyn Fn(&str) -> bool,
        input: Input,
    ) -> Option<()> {
        if let Some(e) = args.first_of(|e| self.is_matrix(e, input)) {
            return self.fail(a_matrix(e, input));
        }
        // The name of a layer may be meant as a word.
        let is_value = |e: &Expr| {
            let named = name_of(e).is_none_or(|n| n.name == "id" || input.find(&n.name).is_some());
            named && self.is_value(e, own, input)
        };
        let Some(e) = args.first_of(is_value) else {
            return Some(());
        };
        let message = format!("`{}` takes fewer values", args.callee.name);
        let d = Diagnostic::error(codes::ARGUMENT_COUNT, e.span, message);
        self.fail(d.label("one too many"))
    }

    /// What a layer of one value is applied to: what it is given, or what stands before it. `needed`: whether it reads that.
    pub(super) fn applied<'i>(
        &mut self,
        args: &mut Args,
        needed: bool,
        own: &dyn Fn(&str) -> bool,
        input: Input<'i>,
    ) -> Option<(Applied, Input<'i>)> {
        if let Some(e) = args.first_of(|e| self.is_value(e, own, input)) {
            let (value, width) = self.layer(e, input)?;
            return Some((Applied(Some(value)), input.behind(width)));
        }
        match input.before {
            None if needed => self.fail(of_nothing(args, input)),
            _ => Some((Applied(None), input)),
        }
    }
}

/// A layer where no value stands before it.
pub(super) fn of_nothing(args: &Args, input: Input) -> Diagnostic {
    let name = &args.callee.name;
    let message = format!("`{name}` is applied to nothing");
    let known: Vec<&str> = input.named.iter().map(|n| n.name.name.as_str()).collect();
    let d = Diagnostic::error(codes::PIPELINE_START, args.callee.span, message)
        .label("all values have names here, and none stands before it");
    match known.first() {
        Some(first) => d.help(format!(
            "write `{first} |> {name}`; the values are `{}`",
            known.join("`, `")
        )),
        None => d,
    }
}

fn a_number(span: Span) -> Diagnostic {
    Diagnostic::error(codes::NOT_A_FIELD, span, "this is a number, not a value")
        .label("a layer, a field or a value is expected here")
        .help("numbers are added to values and multiply them: `1 - x`, `2*x`; a layer of several values takes them: `concat(x, 1/2)`")
}

/// A number that has a name, where a value is expected.
fn a_named_number(name: &str, span: Span) -> Diagnostic {
    let d = a_number(span);
    match SIZES.contains(&name) {
        true => d,
        false => d.help(format!(
            "an argument of a layer is a number unless it says `value`: `({name}: value)`; numbers multiply values, `{name}*x`"
        )),
    }
}

/// A value where a layer is expected.
fn a_value(named: &Named, span: Span) -> Diagnostic {
    let name = &named.name.name;
    let message = format!("`{name}` is a value, not a layer");
    Diagnostic::error(codes::NOT_A_FIELD, span, message)
        .label("it is not applied to anything")
        .also(named.name.span, "set here")
        .help(format!(
            "multiply by it, `x * {name}`, or begin with it, `{name} |> …`"
        ))
}

/// A matrix where a value is expected.
fn a_matrix(e: &Expr, input: Input) -> Diagnostic {
    let named = name_of(e).and_then(|name| input.find(&name.name));
    let (what, name) = match named {
        Some(named) => (format!("`{}`", named.name.name), named.name.name.as_str()),
        None => ("this".to_string(), "…"),
    };
    let message = format!("{what} is a matrix, not a value of each token");
    let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, message);
    let d = d.label("a value is expected here").help(format!(
        "multiply by it: `x |> linear({name})`, or `x |> linear({name}, transposed)`; functions of it are matrices: `exp({name})`"
    ));
    match named {
        Some(named) => d.also(named.name.span, "set here"),
        None => d,
    }
}

/// The parts of `a |> b |> c`, in order.
pub fn pipeline<'e>(e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match &e.kind {
        ExprKind::Pipe(a, b) => {
            pipeline(a, out);
            pipeline(b, out);
        }
        _ => out.push(e),
    }
}
