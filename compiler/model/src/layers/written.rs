//! Layers written in the language and fields that others name, read where they are used: as if the body stood in the layer's place.
//!
//! Takes a layer and the arguments that it is given; gives what its body computes. Inside, `width` is that of what the layer is applied to,
//! and roles are counted on through the field, so that parameters are called as if the body had been written there. A field is what it
//! is alone: `width` is the model's, and however often it is named, it has one set of parameters.
//!
//! What a use gives a layer is read by `given.rs`, what `when` chooses by `pipeline.rs`, arithmetic of values by `arithmetic.rs`; `naming.rs` says
//! what parameters are called. What comes out is a network of layers in Rust.

use super::given::{self, Given, State};
use super::naming::Roles;
use super::network::{self, Network, Set};
use super::pipeline::{
    Input, LayerReader, Named, OfField, OfModel, Read, Rows, Sizes, count_roles, of_nothing,
};
use super::reading::causal_help;
use super::states::Elsewhere;
use super::undefined;
use super::{Form, LATER_ARGUMENTS, LayerParam, MAX_WIDTH, READY, Start, find};
use crate::codes;
use crate::scheme::args::{Args, report};
use crate::scheme::bounds;
use crate::scheme::layer::{Kind, Layer};
use crate::scheme::scalar::{name_of, number, whole};
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Body, BodyStmt, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::{Diagnostic, Label};
use odec_program::kernel::MOST_HEADS;

/// The start of a parameter that is drawn as matrices are.
const NORMAL: &str = "normal";

/// What was read of a body.
pub(super) struct Known {
    /// Widths of what it is applied to, and which of that is the same for all tokens.
    at: Vec<(u64, bool)>,
    span: Span,
    /// The values that it sets.
    set: Vec<Set>,
    result: Network,
    columns: u64,
    fixed: bool,
    /// The evolve whose tokens have the result, where it is not the one at hand.
    pub from: Option<Elsewhere>,
}

impl Known {
    /// With the values of its first names.
    pub fn with(&self, given: Vec<Network>) -> Read {
        let own = |(i, n): (usize, &Network)| *n == Network::Argument(i);
        // Names that mean the same inside need no names of their own.
        let same = given.iter().enumerate().all(own) && self.set.is_empty();
        let network = match same {
            true => self.result.clone(),
            false => Network::Body(Box::new(network::Body {
                given,
                set: self.set.clone(),
                result: self.result.clone(),
            })),
        };
        Read {
            network,
            columns: self.columns,
            fixed: self.fixed,
            rows: None,
            from: self.from.clone(),
        }
    }
}

/// Reads a use of a layer.
pub(super) fn read<'e>(
    reader: &mut LayerReader,
    layer: &'e Layer,
    mut args: Args<'e>,
    input: Input,
) -> Option<Read> {
    let span = args.span;
    let before = reader.sink.len();
    let ahead = reader.of_field.ahead.len();
    let mut given = Given::words(reader, layer, &mut args);
    let values = values(reader, layer, &mut args, input)?;
    let width = match layer.is_field {
        true => reader.of_field.sizes.width,
        false => values.columns(),
    };
    let states = given::states(reader, layer, &mut args, input)?;
    given.labelled(reader, layer, &mut args, width);
    reader.no_more_values(&mut args, &|_| false, input)?;
    let elsewhere = |label: &str, value: Option<&Expr>| taken_by(layer, label, value);
    args.finish_or(LATER_ARGUMENTS, elsewhere, reader.sink);
    if reader.sink.len() > before {
        return None;
    }
    if let Some(known) = reader.of_field.fields.get(&layer.name.name)
        && layer.is_field
    {
        return match known.at == values.at() {
            true => Some(values.to(Vec::new(), known)),
            false => {
                let d = two_widths(layer, &values.at(), known, span);
                reader.fail(d)
            }
        };
    }
    let scope = match layer.is_field {
        true => reader.of_field.sizes.scope(),
        false => given.scope(reader.scope, width),
    };
    let naming = match layer.is_field {
        true => {
            let mut roles = Roles::default();
            roles.add_those_of(layer);
            reader.naming.named_field(&layer.name.name, roles)
        }
        false => match &layer.role {
            Some(role) => reader.naming.layer_of_role(role, layer),
            None => std::mem::take(&mut reader.naming),
        },
    };
    let named = values.named(layer, &states);
    let states = states.into_iter().filter_map(|s| s.given.ok());
    let states: Vec<Network> = states.map(|read| read.network).collect();
    let mut inside = LayerReader {
        scope: &scope,
        width,
        layers: &layer.inside,
        given: &given,
        sink: &mut *reader.sink,
        naming,
        of_field: &mut *reader.of_field,
    };
    let made = body(&mut inside, &layer.body, values.before(), named);
    let naming = inside.naming;
    if !layer.is_field && layer.role.is_none() {
        reader.naming = naming;
    }
    let used = given.text(layer, width);
    for d in &mut reader.sink[before..] {
        of_use(d, span, &used);
    }
    for d in &mut reader.of_field.ahead[ahead..] {
        let elsewhere = d.labels.first().map(|l| l.span.source) != Some(span.source);
        of_use(d, span, &used);
        if elsewhere {
            d.labels.truncate(1);
            let words = layer.params.iter().map(|p| p.label.name.as_str());
            d.help = Some(causal_help(&layer.name.name, words));
        }
    }
    let mut made = made?;
    (made.at, made.span) = (values.at(), span);
    let read = values.to(states, &made);
    if layer.is_field {
        let name = layer.name.name.clone();
        reader.of_field.fields.insert(name, made);
    }
    Some(read)
}

/// Says where a layer is used in whose body something is wrong. If the body is in another file, that is the place to look at first.
fn of_use(d: &mut Diagnostic, span: Span, layer: &str) {
    let Some(first) = d.labels.first_mut() else {
        return;
    };
    let at = first.span;
    if at.source != span.source {
        let text = std::mem::replace(&mut first.text, format!("in {layer}"));
        d.labels.insert(0, Label { span, text });
    } else if at.start < span.start || span.end < at.end {
        let text = format!("used here: {layer}");
        d.labels.push(Label { span, text });
    }
}

/// The part of a layer's body that takes an argument which the layer does not have, nor gives to that part.
fn taken_by(layer: &Layer, label: &str, value: Option<&Expr>) -> Option<String> {
    let mut calls: Vec<&Call> = Vec::new();
    let mut open: Vec<&Expr> = layer.body.exprs().collect();
    while let Some(e) = open.pop() {
        match &e.kind {
            ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => open.extend([&**a, &**b]),
            ExprKind::Neg(a) => open.push(a),
            ExprKind::Tuple(items) => open.extend(items),
            ExprKind::Call(call) => {
                open.extend(call.args.iter().map(|a| &a.value));
                calls.push(call);
            }
            _ => {}
        }
    }
    let word = value.and_then(name_of).map(|n| n.name);
    let takes = |call: &&Call| {
        let part = name_of(&call.callee).map_or(String::new(), |n| n.name);
        match (find(&part), layer.inside.get(&part)) {
            (Some(d), _) => d.arguments.iter().any(|a| {
                let fits = match a.form {
                    Form::Flag => value.is_none(),
                    Form::Word(words) => word.as_deref().is_some_and(|w| words.contains(&w)),
                    Form::Fields | Form::Operand => false,
                    _ => value.is_some(),
                };
                a.name == label && fits
            }),
            (None, Some(Some(inside))) => inside.params.iter().any(|p| {
                let fits = match p.kind {
                    Kind::Value => false,
                    Kind::Flag | Kind::Layer => value.is_none(),
                    Kind::Size | Kind::Number | Kind::Word | Kind::State => value.is_some(),
                };
                p.label.name == label && fits
            }),
            (None, _) => false,
        }
    };
    let gives = |call: &Call| {
        let flag = |a: &Arg| name_of(&a.value).is_some_and(|n| n.name == label);
        call.has(label) || call.args.iter().any(|a| a.label.is_none() && flag(a))
    };
    let part = calls.into_iter().rev().find(|c| takes(c) && !gives(c))?;
    let part = name_of(&part.callee)?.name;
    let given = match (value, word) {
        (None, _) => label.to_string(),
        (Some(_), Some(word)) => format!("{label}: {word}"),
        (Some(_), None) => format!("{label}: …"),
    };
    let layer = &layer.name.name;
    let made_of = format!("`{part}`, of which `{layer}` is made, takes it: `{part}(…, {given})`");
    let ready = READY
        .iter()
        .find(|(of, word, _)| (*of, *word) == (part.as_str(), label));
    Some(match ready {
        Some((_, _, ready)) => format!("{made_of}; `{ready}` is a layer with it"),
        None => made_of,
    })
}

/// What a layer is applied to.
enum Values {
    /// What stands before it, or the one value that it is given.
    One(Option<Network>, u64),
    /// One for each name.
    Named(Vec<Read>),
}

impl Values {
    /// Of the first.
    fn columns(&self) -> u64 {
        match self {
            Values::One(_, width) => *width,
            Values::Named(all) => all.first().map_or(0, |r| r.columns),
        }
    }

    fn before(&self) -> Option<u64> {
        match self {
            Values::One(_, width) => Some(*width),
            Values::Named(_) => None,
        }
    }

    fn at(&self) -> Vec<(u64, bool)> {
        match self {
            Values::One(_, width) => vec![(*width, false)],
            Values::Named(all) => all.iter().map(|r| (r.columns, r.fixed)).collect(),
        }
    }

    /// Under the names of the layer, with the states that it is given.
    fn named(&self, layer: &Layer, states: &[State]) -> Vec<Named> {
        let all = match self {
            Values::One(..) => &[],
            Values::Named(all) => &all[..],
        };
        let values = layer.values().zip(all).enumerate();
        let values = values.map(|(i, (name, read))| Named::called(name.clone(), i, read));
        let mut named: Vec<Named> = values.collect();
        let mut number = named.len();
        for state in states {
            match &state.given {
                Ok(read) => {
                    named.push(Named::called(state.name.clone(), number, read));
                    number += 1;
                }
                Err(same) => {
                    let value = layer.values().position(|value| value.name == *same);
                    let value = value.and_then(|i| Some((i, all.get(i)?)));
                    let value = value.map(|(i, read)| Named::called(state.name.clone(), i, read));
                    named.extend(value);
                }
            }
        }
        named
    }

    /// The body applied to them, and to states.
    fn to(self, states: Vec<Network>, body: &Known) -> Read {
        match self {
            Values::One(None, _) => body.with(states),
            Values::One(Some(value), _) => {
                let (layer, columns) = body.with(states).for_tokens();
                Read::of_tokens((Network::Pipe(vec![value, layer]), columns))
            }
            Values::Named(all) => {
                let values = all.into_iter().map(|r| r.network);
                body.with(values.chain(states).collect())
            }
        }
    }
}

/// The values that a layer is given; where none is, all stand for what stands before it.
fn values(
    reader: &mut LayerReader,
    layer: &Layer,
    args: &mut Args,
    input: Input,
) -> Option<Values> {
    let wanted: Vec<&Ident> = layer.values().collect();
    let names: Vec<&str> = wanted.iter().map(|w| w.name.as_str()).collect();
    let shown = format!("write `{}({})`", layer.name.name, names.join(", "));
    if let Some(name) = names.iter().find(|name| args.has(name)) {
        let message = format!("the value `{name}` is given without its name");
        let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, args.span, message);
        return reader.fail(d.help(shown));
    }
    // Its flags are taken from the arguments already.
    let own = |_: &str| false;
    if wanted.is_empty() {
        let (value, input) = reader.applied(args, true, &own, input)?;
        return Some(Values::One(value.0, input.before?));
    }
    let mut given = Vec::new();
    while given.len() < wanted.len() {
        let Some(read) = reader.next_value(args, &own, input) else {
            break;
        };
        given.push(read?);
    }
    match (given.len(), input.before) {
        (0, Some(width)) => {
            let each = wanted
                .iter()
                .map(|_| Read::of_tokens((Network::input(), width)));
            Some(Values::Named(each.collect()))
        }
        (0, None) => {
            let d = of_nothing(args, input);
            reader.fail(d)
        }
        (found, _) if found < wanted.len() => {
            let name = &layer.name.name;
            let message = format!(
                "`{name}` is applied to {} values, not to {found}",
                wanted.len()
            );
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, args.span, message);
            let d = d.also(layer.name.span, "defined here");
            reader.fail(d.help(shown))
        }
        _ => Some(Values::Named(given)),
    }
}

/// A field at other widths than before.
fn two_widths(layer: &Layer, at: &[(u64, bool)], known: &Known, span: Span) -> Diagnostic {
    let shown = |at: &[(u64, bool)]| {
        let widths: Vec<String> = at.iter().map(|(w, _)| w.to_string()).collect();
        widths.join(" and ")
    };
    let name = &layer.name.name;
    let (here, before) = (shown(at), shown(&known.at));
    let message = format!("`{name}` is evaluated at width {here} here, and at {before} before");
    Diagnostic::error(codes::WIDTH_MISMATCH, span, message)
        .also(known.span, format!("at width {before} here"))
        .help("a field has one set of parameters, which fit one width; a `layer` has its own wherever it is used")
}

/// Reads a body: of a field as a whole, of a layer, of a field that another one names.
pub(super) fn body(
    reader: &mut LayerReader,
    body: &Body,
    before: Option<u64>,
    mut named: Vec<Named>,
) -> Option<Known> {
    let said = reader.sink.len();
    let known = statements(reader, body, before, &mut named);
    if known.is_none() {
        undefined::report(reader, body, &named, said);
    }
    known
}

/// Reads it up to the first statement that is wrong. `named` gets the values that it sets.
fn statements(
    reader: &mut LayerReader,
    body: &Body,
    before: Option<u64>,
    named: &mut Vec<Named>,
) -> Option<Known> {
    let known = |set: Vec<Set>, read: Read| Known {
        at: Vec::new(),
        span: body.span(),
        set,
        result: read.network,
        columns: read.columns,
        fixed: read.fixed,
        from: read.from,
    };
    let statements = match body {
        Body::Expr(e) => {
            return Some(known(Vec::new(), reader.value(e, Input { before, named })?));
        }
        Body::Block { statements, .. } => statements,
    };
    let given = named.iter().map(|n| n.number + 1).max().unwrap_or(0);
    let mut set = Vec::new();
    for s in statements {
        let input = Input { before, named };
        let (name, place, read) = match s {
            BodyStmt::Return { value, .. } => return Some(known(set, reader.value(value, input)?)),
            BodyStmt::Set { name, value } => {
                let mut roles = Roles::default();
                count_roles(value, reader.layers, &mut roles);
                // A value without parameters is not among those that are counted.
                let naming = match roles.is_empty() {
                    true => None,
                    false => Some(reader.naming.value(&name.name, roles)),
                };
                let place = match &naming {
                    Some(own) => own.own_place(),
                    None => reader.naming.place(&name.name),
                };
                let around = naming.map(|n| std::mem::replace(&mut reader.naming, n));
                let read = reader.value_or_matrix(value, input);
                reader.naming = around.unwrap_or_else(|| std::mem::take(&mut reader.naming));
                (name, place, read?)
            }
            BodyStmt::Learn { name, shape, init } => {
                let place = reader.naming.place(&name.name);
                (name, place, learned(reader, name, shape, init)?)
            }
        };
        let start = Input { before, named }.start(&read.network);
        let value = Named::called(name.clone(), given + set.len(), &read);
        named.push(Named { start, ..value });
        set.push(Set {
            place,
            value: read.network,
        });
    }
    // That there is no `return` has been said.
    None
}

/// Says what a parameter may begin with.
fn of_init(d: Diagnostic) -> Diagnostic {
    match d.help {
        Some(_) => d,
        None => d.help(
            "a parameter begins with a number (`0`, `1/2`, `sqrt(width)`) or with `normal`; what is computed of tokens is a value: `a = linear |> sqrt`",
        ),
    }
}

/// `learn gain[width] = 1`: a parameter that is the same for all tokens. `learn w[rows, width] = normal`: a matrix; with three sizes, one for each head.
fn learned(reader: &mut LayerReader, name: &Ident, shape: &[Expr], init: &Expr) -> Option<Read> {
    if let Some(fourth) = shape.get(3) {
        let d = Diagnostic::error(codes::ARGUMENT_COUNT, fourth.span, "a fourth size");
        let d =
            d.label("a parameter is a number, a row of columns, a matrix or a list of matrices");
        return reader.fail(d.help(format!(
            "write `learn {}[heads, rows, columns] = normal`",
            name.name
        )));
    }
    let mut sizes = Vec::new();
    for (i, e) in shape.iter().enumerate() {
        let most = match (i, shape.len()) {
            (0, 3) => MOST_HEADS,
            _ => MAX_WIDTH,
        };
        sizes.push(report(whole(e, reader.scope, 1, most), reader.sink)?);
    }
    let start = match name_of(init).filter(|n| n.name == NORMAL) {
        Some(_) => Start::Normal,
        None => match report(number(init, reader.scope).map_err(of_init), reader.sink)?.to_f64() {
            0.0 => Start::Zeros,
            1.0 => Start::Ones,
            x => Start::Constant(x),
        },
    };
    let rows = match sizes[..] {
        [each, _] => Some(Rows { heads: None, each }),
        [heads, each, _] => Some(Rows {
            heads: Some(heads),
            each,
        }),
        _ => None,
    };
    let columns = sizes.last().copied().unwrap_or(1);
    let widest = rows.map_or(columns, |rows| rows.all().max(rows.count() * columns));
    if widest > MAX_WIDTH {
        let message = format!("{widest} columns are too many");
        let d = Diagnostic::error(codes::TOO_LARGE, name.span, message);
        return reader.fail(d.label(format!(
            "all of its matrices together have at most {MAX_WIDTH}"
        )));
    }
    let path = reader.naming.learned(&name.name);
    let (path, shape) = match rows {
        Some(_) => (format!("{path}.weight"), sizes),
        None => (path, Some(columns).filter(|n| *n > 1).into_iter().collect()),
    };
    Some(Read {
        network: Network::Learned(LayerParam { path, shape, start }),
        columns,
        fixed: true,
        rows,
        from: None,
    })
}

/// Says what is wrong inside a layer, whether or not a field uses it: nothing that depends on what it would be given.
pub fn check(layer: &Layer, sink: &mut Vec<Diagnostic>) {
    let sizes = Sizes::SOME;
    let given = Given::nothing(layer);
    let values = layer.values().enumerate();
    let values = values.map(|(i, name)| Named::of_tokens(name.clone(), i, sizes.width));
    let mut named: Vec<Named> = values.collect();
    let before = Some(sizes.width).filter(|_| named.is_empty());
    for p in layer.of_kind(Kind::State) {
        let label = p.name.name.clone();
        let from = Some(Elsewhere { label, own: true });
        let state = Named::of_tokens(p.name.clone(), named.len(), sizes.width);
        named.push(Named { from, ..state });
    }
    let mut found = Vec::new();
    let scope = given.scope(&sizes.scope(), sizes.width);
    let of = |p| bounds::declared((&layer.name.name, p), &scope).err();
    let declared: Vec<Diagnostic> = layer.params.iter().filter_map(of).collect();
    let mut reader = LayerReader {
        scope: &scope,
        width: sizes.width,
        layers: &layer.inside,
        given: &given,
        sink: &mut found,
        naming: Default::default(),
        of_field: &mut OfField::new(&OfModel::alone(sizes)),
    };
    body(&mut reader, &layer.body, before, named);
    let of_values = [
        codes::WIDTH_MISMATCH,
        codes::HEAD_COUNT,
        codes::OUT_OF_RANGE,
        codes::TOO_LARGE,
        codes::ARITHMETIC,
    ];
    let has = |kind| layer.of_kind(kind).next().is_some();
    let of_word = |d: &Diagnostic| has(Kind::Word) && d.code == codes::UNKNOWN_OPTION;
    // An optional layer may be given what the body does not say.
    let of_part = |d: &Diagnostic| has(Kind::Layer) && d.code == codes::MISSING_ARGUMENT;
    found.retain(|d| !of_values.contains(&d.code) && !of_word(d) && !of_part(d));
    sink.extend(found);
    sink.extend(declared);
}
