//! Layers written in the language and fields that others name, read where they are used: as if the body stood in the layer's place.
//!
//! Takes a layer and the arguments that it is given; gives what its body computes. Inside, `width` is that of what the layer is applied to,
//! and roles are counted on through the field, so that parameters are called as if the body had been written there. A field is what it
//! is alone: `width` is the model's, and however often it is named, it has one set of parameters.

use super::naming::Roles;
use super::network::{self, Network, Set};
use super::pipeline::{
    Input, LayerReader, Named, OfField, OfModel, Read, Sizes, count_roles, of_nothing,
};
use super::{LATER_ARGUMENTS, LayerParam, MAX_WIDTH, Start};
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::args::{Args, report};
use crate::scheme::layer::{Kind, Layer, SIZES, is_none};
use crate::scheme::scalar::{Scope, exact, name_of, whole};
use odec_grammar::Span;
use odec_grammar::ast::{Body, BodyStmt, Expr, Ident};
use odec_grammar::diag::{Diagnostic, Label};
use odec_graph::Exact;

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
        }
    }
}

/// What a layer was given.
#[derive(Default)]
struct Given {
    /// By name, in the order of the definition.
    numbers: Vec<(String, Exact)>,
    /// Flags that are off.
    off: Vec<String>,
    /// Optional numbers that have no value.
    absent: Vec<String>,
    words: Vec<(String, Expr)>,
}

/// Reads a use of a layer.
pub(super) fn read<'e>(
    reader: &mut LayerReader,
    layer: &'e Layer,
    mut args: Args<'e>,
    input: Input,
) -> Option<Read> {
    let span = args.span;
    let flags = layer.params.iter().filter(|p| p.kind == Kind::Flag);
    let mut off = flags.map(|p| p.name.name.as_str()).collect::<Vec<_>>();
    off.retain(|name| !args.flag(name));
    let off = off.into_iter().map(String::from).collect();
    let values = values(reader, layer, &mut args, input)?;
    let width = match layer.is_field {
        true => reader.of_field.sizes.width,
        false => values.columns(),
    };
    let before = reader.sink.len();
    let given = given(reader, layer, &mut args, width, off);
    args.finish(LATER_ARGUMENTS, reader.sink);
    if reader.sink.len() > before {
        return None;
    }
    if let Some(known) = reader.of_field.fields.get(&layer.name.name)
        && layer.is_field
    {
        return match known.at == values.at() {
            true => Some(values.to(known)),
            false => {
                let d = two_widths(layer, &values.at(), known, span);
                reader.fail(d)
            }
        };
    }
    let scope = match layer.is_field {
        true => reader.of_field.sizes.scope(),
        false => inner_scope(reader.scope, width, &given.numbers),
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
    let choices = choices(layer);
    let mut inside = LayerReader {
        scope: &scope,
        width,
        layers: &layer.inside,
        choices: &choices,
        off: &given.off,
        absent: &given.absent,
        words: &given.words,
        sink: &mut *reader.sink,
        naming,
        of_field: &mut *reader.of_field,
    };
    let made = body(
        &mut inside,
        &layer.body,
        values.before(),
        values.named(layer),
    );
    let naming = inside.naming;
    if !layer.is_field && layer.role.is_none() {
        reader.naming = naming;
    }
    let used = format!("used here: {}", given.text(layer, width));
    for d in &mut reader.sink[before..] {
        let text = used.clone();
        d.labels.push(Label { span, text });
    }
    let mut made = made?;
    (made.at, made.span) = (values.at(), span);
    let read = values.to(&made);
    if layer.is_field {
        let name = layer.name.name.clone();
        reader.of_field.fields.insert(name, made);
    }
    Some(read)
}

/// The arguments of a layer that `when` may ask for: flags and optional numbers.
fn choices(layer: &Layer) -> Vec<String> {
    let may = |p: &&crate::scheme::layer::Param| p.optional || p.kind == Kind::Flag;
    let names = layer.params.iter().filter(may).map(|p| &p.name.name);
    names.cloned().collect()
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

    fn named(&self, layer: &Layer) -> Vec<Named> {
        let Values::Named(all) = self else {
            return Vec::new();
        };
        let named = layer.values().zip(all).map(|(name, r)| Named {
            name: name.clone(),
            columns: r.columns,
            fixed: r.fixed,
        });
        named.collect()
    }

    /// The body applied to them.
    fn to(self, body: &Known) -> Read {
        match self {
            Values::One(None, _) => body.with(Vec::new()),
            Values::One(Some(value), _) => {
                let (layer, columns) = body.with(Vec::new()).for_tokens();
                Read::of_tokens((Network::Pipe(vec![value, layer]), columns))
            }
            Values::Named(all) => body.with(all.into_iter().map(|r| r.network).collect()),
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
        let (value, input) = reader.applied(args, &own, input)?;
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
    let known = |set: Vec<Set>, read: Read| Known {
        at: Vec::new(),
        span: body.span(),
        set,
        result: read.network,
        columns: read.columns,
        fixed: read.fixed,
    };
    let statements = match body {
        Body::Expr(e) => {
            let named = &named[..];
            return Some(known(Vec::new(), reader.value(e, Input { before, named })?));
        }
        Body::Block { statements, .. } => statements,
    };
    let mut set = Vec::new();
    for s in statements {
        let input = Input {
            before,
            named: &named,
        };
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
                let read = reader.value(value, input);
                reader.naming = around.unwrap_or_else(|| std::mem::take(&mut reader.naming));
                (name, place, read?)
            }
            BodyStmt::Learn {
                name,
                columns,
                init,
            } => {
                let place = reader.naming.place(&name.name);
                (name, place, learned(reader, name, columns.as_ref(), init)?)
            }
        };
        named.push(Named {
            name: name.clone(),
            columns: read.columns,
            fixed: read.fixed,
        });
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

/// `learn gain[width] = 1`: a parameter that is the same for all tokens.
fn learned(
    reader: &mut LayerReader,
    name: &Ident,
    columns: Option<&Expr>,
    init: &Expr,
) -> Option<Read> {
    let columns = match columns {
        Some(e) => report(whole(e, reader.scope, 1, MAX_WIDTH), reader.sink)?,
        None => 1,
    };
    let start = match name_of(init).filter(|n| n.name == NORMAL) {
        Some(_) => Start::Normal,
        None => match report(exact(init, reader.scope).map_err(of_init), reader.sink)?.to_f64() {
            0.0 => Start::Zeros,
            1.0 => Start::Ones,
            x => Start::Constant(x),
        },
    };
    let param = LayerParam {
        path: reader.naming.learned(&name.name),
        shape: Some(columns).filter(|n| *n > 1).into_iter().collect(),
        start,
    };
    Some(Read {
        network: Network::Learned(param),
        columns,
        fixed: true,
    })
}

/// The arguments, each by its kind. What is wrong with them is said.
fn given<'e>(
    reader: &mut LayerReader,
    layer: &'e Layer,
    args: &mut Args<'e>,
    width: u64,
    off: Vec<String>,
) -> Given {
    let mut given = Given {
        off,
        ..Given::default()
    };
    for p in &layer.params {
        let name = p.name.name.as_str();
        if matches!(p.kind, Kind::Flag | Kind::Value) {
            continue;
        }
        if p.kind == Kind::Word {
            let said = match &p.default {
                None => args.required(name, reader.sink),
                Some(default) => Some(args.labelled(name, reader.sink).unwrap_or(default)),
            };
            let said = said.map(|e| (name.to_string(), e.clone()));
            given.words.extend(said);
            continue;
        }
        let number = |e: &Expr, scope: &Scope| match p.kind {
            Kind::Size => whole(e, scope, 1, MAX_WIDTH).map(|n| Exact::int(n as i64)),
            Kind::Number | Kind::Flag | Kind::Value | Kind::Word => exact(e, scope),
        };
        let value = match &p.default {
            None if p.optional => match args.labelled(name, reader.sink) {
                Some(e) if !is_none(e) => Some(number(e, reader.scope)),
                Some(_) | None => {
                    given.absent.push(name.to_string());
                    continue;
                }
            },
            None => args
                .required(name, reader.sink)
                .map(|e| number(e, reader.scope)),
            Some(default) => Some(match args.labelled(name, reader.sink) {
                Some(e) => number(e, reader.scope),
                // A default may name the arguments before it.
                None => number(default, &inner_scope(reader.scope, width, &given.numbers)),
            }),
        };
        let value = value.and_then(|v| report(v, reader.sink));
        // What depends on a wrong argument is not wrong itself.
        given
            .numbers
            .push((name.to_string(), value.unwrap_or_else(Exact::one)));
    }
    given
}

impl Given {
    /// "`ffn` of width 16, hidden: 64".
    fn text(&self, layer: &Layer, width: u64) -> String {
        let numbers = self.numbers.iter().map(|(name, x)| {
            let x = x.to_string();
            match x.len() > 20 {
                true => format!(", {name}: …"),
                false => format!(", {name}: {x}"),
            }
        });
        let numbers: String = numbers.collect();
        format!("`{}` of width {width}{numbers}", layer.name.name)
    }
}

/// What the inside of a layer may name: the model's sizes, the width that the layer meets, its arguments.
fn inner_scope(outer: &Scope, width: u64, numbers: &[(String, Exact)]) -> Scope {
    let sizes = outer
        .iter()
        .filter(|(name, _)| SIZES.contains(&name.as_str()));
    let mut scope: Scope = sizes.map(|(name, n)| (name.clone(), n.clone())).collect();
    scope.insert("width".into(), Coeff::constant(Exact::int(width as i64)));
    let numbers = numbers.iter().cloned();
    scope.extend(numbers.map(|(name, x)| (name, Coeff::constant(x))));
    scope
}

/// Says what is wrong inside a layer, whether or not a field uses it: nothing that depends on what it would be given.
pub fn check(layer: &Layer, sink: &mut Vec<Diagnostic>) {
    let sizes = Sizes {
        vocab: Some(256),
        context: 256,
        width: 256,
        grid: Some(super::Grid::square(16)),
    };
    let is_number = |p: &&crate::scheme::layer::Param| matches!(p.kind, Kind::Size | Kind::Number);
    let numbers = layer.params.iter().filter(is_number);
    let (left_out, numbers): (Vec<_>, Vec<_>) = numbers.partition(|p| p.optional);
    let absent: Vec<String> = left_out.iter().map(|p| p.name.name.clone()).collect();
    let ones: Vec<_> = numbers
        .iter()
        .map(|p| (p.name.name.clone(), Exact::one()))
        .collect();
    let named = layer.values().map(|name| Named {
        name: name.clone(),
        columns: sizes.width,
        fixed: false,
    });
    let named: Vec<Named> = named.collect();
    let before = Some(sizes.width).filter(|_| named.is_empty());
    let mut found = Vec::new();
    let mut reader = LayerReader {
        scope: &inner_scope(&sizes.scope(), sizes.width, &ones),
        width: sizes.width,
        layers: &layer.inside,
        choices: &choices(layer),
        off: &[],
        absent: &absent,
        words: &[],
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
    let hands_on = layer.params.iter().any(|p| p.kind == Kind::Word);
    let of_word = |d: &Diagnostic| hands_on && d.code == codes::UNKNOWN_OPTION;
    found.retain(|d| !of_values.contains(&d.code) && !of_word(d));
    sink.extend(found);
}
