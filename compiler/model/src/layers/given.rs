//! What a layer written in the language is given: its arguments, read by their kinds, and what they mean where its body hands them on.
//!
//! Takes the arguments of one use and the layer around it; gives what names mean inside. An argument that is handed on as it is keeps the place
//! where it was written, so that what is wrong with it is said there. Leaves the values that a layer is applied to to `written.rs`.

use super::pipeline::{Input, LayerReader, Read};
use crate::scheme::Coeff;
use crate::scheme::args::{Args, HandedOn, report};
use crate::scheme::bounds::bounded;
use crate::scheme::layer::{Kind, Layer, Param, SIZES, is_none};
use crate::scheme::scalar::{Scope, name_of, number, whole};
use odec_grammar::ast::{Arg, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// Largest size. What it is handed on to has bounds of its own.
const MOST: u64 = 1 << 32;

/// What the body of a layer may name beside values and layers.
#[derive(Default)]
pub(super) struct Given {
    /// By name, in the order of the definition.
    pub numbers: Vec<(String, Exact)>,
    /// Numbers that were given to optional layers, under names that no file can write.
    of_parts: Vec<(String, Exact)>,
    pub handed_on: HandedOn,
    /// The arguments of optional layers; `None`: the layer is left out.
    pub parts: Vec<(String, Option<Vec<Arg>>)>,
    /// What `when` may ask for.
    pub choices: Vec<String>,
}

/// A state that a layer is given, or the value that it is where none is given.
pub(super) struct State<'l> {
    pub name: &'l Ident,
    pub given: Result<Read, &'l str>,
}

/// An error about what should be a whole number. Who gives a fraction to a layer of the same file may mean that it takes any number.
fn if_declared_otherwise(
    d: Diagnostic,
    (layer, p): (&Layer, &Param),
    e: &Expr,
    scope: &Scope,
) -> Diagnostic {
    let fraction = number(e, scope).is_ok_and(|x| x.as_integer().is_none());
    match fraction && layer.name.span.source == e.span.source {
        true => d.help(format!(
            "numbers of a layer are whole where it does not say otherwise: `{}: number`",
            p.label.name
        )),
        false => d,
    }
}

impl Given {
    /// Flags and optional layers. They are taken first: what is left without a label are values.
    pub fn words<'e>(reader: &mut LayerReader, layer: &'e Layer, args: &mut Args<'e>) -> Given {
        let mut given = Given {
            choices: choices(layer),
            ..Given::default()
        };
        for p in &layer.params {
            let (name, label) = (p.name.name.as_str(), p.label.name.as_str());
            match p.kind {
                Kind::Flag => {
                    let other = p.default.as_ref().and_then(name_of);
                    let implied = other.is_some_and(|o| given.handed_on.on.contains(&o.name));
                    let words = &mut given.handed_on;
                    match args.flag(label) || implied {
                        true => words.on.push(name.into()),
                        false => words.off.push(name.into()),
                    }
                }
                Kind::Layer => {
                    let inside = args.word(label, reader.sink);
                    let inside = inside.map(|inside| given.part(reader, layer, p, inside));
                    if inside.is_none() {
                        given.handed_on.off.push(name.into());
                    }
                    given.parts.push((name.into(), inside));
                }
                Kind::Value | Kind::State | Kind::Size | Kind::Number | Kind::Word => {}
            }
        }
        given
    }

    /// The arguments of an optional layer. Numbers are those of the place where they are written.
    fn part(&mut self, reader: &mut LayerReader, layer: &Layer, p: &Param, of: Args) -> Vec<Arg> {
        let words = of.meanings();
        let around = reader.given.parts.iter().find(|(n, _)| *n == p.label.name);
        let args: Vec<Arg> = match (of.rest(), around) {
            (none, Some((_, Some(around)))) if none.is_empty() => around.clone(),
            (given, _) => given.into_iter().cloned().collect(),
        };
        let inside =
            |name: &str| SIZES.contains(&name) || layer.params.iter().any(|p| p.name.name == name);
        let mut read = Vec::new();
        for mut a in args {
            let Some(label) = &a.label else {
                read.push(a);
                continue;
            };
            let named = name_of(&a.value).map(|n| n.name);
            if named.as_ref().is_some_and(|n| words.absent.contains(n)) {
                continue;
            }
            let meant = |(word, _): &&(String, Expr)| named.as_ref() == Some(word);
            if let Some((_, e)) = words.meant.iter().find(meant) {
                a.value = e.clone();
            }
            match number(&a.value, reader.scope) {
                Ok(x) => {
                    let name = format!("{}.{}", p.name.name, label.name);
                    a.value.kind = ExprKind::Name(name.clone());
                    self.of_parts.push((name, x));
                }
                // A word of that layer, which says what is wrong with it.
                Err(_) if name_of(&a.value).is_some_and(|n| !inside(&n.name)) => {}
                Err(d) => {
                    reader.sink.push(d);
                    continue;
                }
            }
            read.push(a);
        }
        read
    }

    /// Numbers, and words behind labels. What is wrong with them is said.
    pub fn labelled<'e>(
        &mut self,
        reader: &mut LayerReader,
        layer: &'e Layer,
        args: &mut Args<'e>,
        width: u64,
    ) {
        let before = reader.sink.len();
        for p in &layer.params {
            // What depends on a wrong argument is not wrong itself.
            let bounds = p.bounds.is_some() && reader.sink.len() == before;
            match p.kind {
                Kind::Word => self.word(reader, p, args),
                Kind::Size | Kind::Number => {
                    self.number(reader, (layer, p, bounds), args, width);
                }
                Kind::Value | Kind::State | Kind::Flag | Kind::Layer => {}
            }
        }
    }

    fn word<'e>(&mut self, reader: &mut LayerReader, p: &'e Param, args: &mut Args<'e>) {
        let (name, label) = (p.name.name.as_str(), p.label.name.as_str());
        let said = match &p.default {
            None => args.required(label, reader.sink),
            Some(default) => Some(args.labelled(label, reader.sink).unwrap_or(default)),
        };
        let said = said.map(|e| (name.to_string(), e.clone()));
        self.handed_on.meant.extend(said);
    }

    fn number<'e>(
        &mut self,
        reader: &mut LayerReader,
        (layer, p, bounds): (&'e Layer, &'e Param, bool),
        args: &mut Args<'e>,
        width: u64,
    ) {
        let (name, label) = (p.name.name.as_str(), p.label.name.as_str());
        let read = |e: &Expr, scope: &Scope| match p.kind {
            Kind::Size => match whole(e, scope, 1, MOST) {
                Ok(n) => Ok(Exact::int(n as i64)),
                Err(d) => Err(if_declared_otherwise(d, (layer, p), e, scope)),
            },
            _ => number(e, scope),
        };
        let needed = p.default.is_none() && !p.optional;
        let said = match needed {
            true => args.required(label, reader.sink),
            false => args.labelled(label, reader.sink),
        };
        let value = match (said, &p.default) {
            (Some(e), _) if p.optional && is_none(e) => None,
            (Some(e), _) => {
                // Where the body hands it on, it stands where it was written.
                let kind = ExprKind::Name(name.into());
                let meant = Expr { kind, span: e.span };
                self.handed_on.meant.push((name.into(), meant));
                Some(read(e, reader.scope))
            }
            // A default may name the arguments before it.
            (None, Some(default)) => Some(read(default, &self.scope(reader.scope, width))),
            (None, None) => None,
        };
        let Some(value) = value else {
            match p.optional {
                true => self.handed_on.absent.push(name.into()),
                // What depends on a wrong argument is not wrong itself.
                false => self.numbers.push((name.into(), Exact::one())),
            }
            return;
        };
        let value = value.and_then(|x| {
            if !bounds {
                return Ok(x);
            }
            // Bounds may name the arguments before it.
            let scope = self.scope(reader.scope, width);
            let at = said.map_or(args.span, |e| e.span);
            let of = (layer.name.name.as_str(), p);
            bounded(x, of, &scope, at, said.is_none())
        });
        let value = report(value, reader.sink).unwrap_or_else(Exact::one);
        self.numbers.push((name.into(), value));
    }

    /// What the inside of a layer may name: the model's sizes, the width that the layer meets, its arguments.
    pub fn scope(&self, outer: &Scope, width: u64) -> Scope {
        let sizes = outer
            .iter()
            .filter(|(name, _)| SIZES.contains(&name.as_str()));
        let mut scope: Scope = sizes.map(|(name, n)| (name.clone(), n.clone())).collect();
        scope.insert("width".into(), Coeff::constant(Exact::int(width as i64)));
        let numbers = self.numbers.iter().chain(&self.of_parts).cloned();
        scope.extend(numbers.map(|(name, x)| (name, Coeff::constant(x))));
        scope
    }

    /// Whether a flag, an optional number or an optional layer is not given.
    pub fn lacks(&self, name: &String) -> bool {
        self.handed_on.off.contains(name) || self.handed_on.absent.contains(name)
    }

    /// Whether a name is an optional layer's.
    pub fn is_part(&self, name: &str) -> bool {
        self.parts.iter().any(|(part, _)| part == name)
    }

    /// "`ffn` of width 16, hidden: 64".
    pub fn text(&self, layer: &Layer, width: u64) -> String {
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

    /// What a body may name where nothing is known of its arguments: numbers are 1, optional ones have no value, flags are on, and optional
    /// layers stand there.
    pub fn nothing(layer: &Layer) -> Given {
        let numbers = layer.of_kind(Kind::Size).chain(layer.of_kind(Kind::Number));
        let (absent, numbers): (Vec<_>, Vec<_>) = numbers.partition(|p| p.optional);
        let name = |p: &Param| p.name.name.clone();
        Given {
            numbers: numbers.iter().map(|p| (name(p), Exact::one())).collect(),
            handed_on: HandedOn {
                absent: absent.into_iter().map(name).collect(),
                on: layer.of_kind(Kind::Flag).map(name).collect(),
                ..HandedOn::default()
            },
            parts: layer
                .of_kind(Kind::Layer)
                .map(|p| (name(p), Some(Vec::new())))
                .collect(),
            choices: choices(layer),
            ..Given::default()
        }
    }
}

/// The states among the arguments.
pub(super) fn states<'e>(
    reader: &mut LayerReader,
    layer: &'e Layer,
    args: &mut Args<'e>,
    input: Input,
) -> Option<Vec<State<'e>>> {
    let mut states = Vec::new();
    for p in layer.of_kind(Kind::State) {
        let label = p.label.name.as_str();
        let default = match &p.default {
            Some(Expr {
                kind: ExprKind::Name(value),
                ..
            }) => Some(value.as_str()),
            _ => None,
        };
        let said = match default {
            Some(_) => args.labelled(label, reader.sink),
            None => args.required(label, reader.sink),
        };
        let given = match (said, default) {
            (Some(e), _) => Ok(reader.elsewhere(e, input)?),
            (None, Some(value)) => Err(value),
            (None, None) => return None,
        };
        states.push(State {
            name: &p.name,
            given,
        });
    }
    Some(states)
}

/// The arguments of a layer that `when` may ask for: flags, optional numbers and optional layers.
fn choices(layer: &Layer) -> Vec<String> {
    let may = |p: &&Param| p.optional || matches!(p.kind, Kind::Flag | Kind::Layer);
    let names = layer.params.iter().filter(may).map(|p| &p.name.name);
    names.cloned().collect()
}
