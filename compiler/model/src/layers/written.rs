//! Layers written in the language, read where they are used: as if the body stood in the layer's place.
//!
//! Takes a layer and the arguments that it is given; gives what its body computes. Inside, `width` is that of what the layer is applied to,
//! and roles are counted on through the field, so that parameters are called as if the body had been written there.

use super::network::Network;
use super::pipeline::{Input, LayerReader, Sizes};
use super::{LATER_ARGUMENTS, MAX_WIDTH};
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::args::{Args, report};
use crate::scheme::layer::{Kind, Layer, SIZES};
use crate::scheme::scalar::{Scope, exact, whole};
use odec_grammar::ast::Expr;
use odec_grammar::diag::{Diagnostic, Label};
use odec_graph::Exact;

/// What a layer was given.
#[derive(Default)]
struct Given {
    /// By name, in the order of the definition.
    numbers: Vec<(String, Exact)>,
    /// Flags that are off.
    off: Vec<String>,
}

/// Reads a use of a layer.
pub(super) fn read<'e>(
    reader: &mut LayerReader,
    layer: &'e Layer,
    mut args: Args<'e>,
    input: Input,
) -> Option<(Network, u64)> {
    let width = input.width().unwrap_or(reader.width);
    let span = args.span;
    let before = reader.sink.len();
    let given = given(reader, layer, &mut args, width);
    args.finish(LATER_ARGUMENTS, reader.sink);
    if reader.sink.len() > before {
        return None;
    }
    let scope = inner_scope(reader.scope, width, &given.numbers);
    let mut inside = LayerReader {
        scope: &scope,
        width,
        layers: &layer.inside,
        off: &given.off,
        sink: &mut *reader.sink,
        seen: std::mem::take(&mut reader.seen),
        repeated: std::mem::take(&mut reader.repeated),
    };
    let made = inside.layer(&layer.body, input);
    (reader.seen, reader.repeated) = (inside.seen, inside.repeated);
    let used = format!("used here: {}", given.text(layer, width));
    for d in &mut reader.sink[before..] {
        let text = used.clone();
        d.labels.push(Label { span, text });
    }
    made
}

/// The arguments, each by its kind. What is wrong with them is said.
fn given<'e>(reader: &mut LayerReader, layer: &'e Layer, args: &mut Args<'e>, width: u64) -> Given {
    let mut given = Given::default();
    for p in &layer.params {
        let name = p.name.name.as_str();
        if p.kind == Kind::Flag {
            if !args.flag(name) {
                given.off.push(name.to_string());
            }
            continue;
        }
        let number = |e: &Expr, scope: &Scope| match p.kind {
            Kind::Size => whole(e, scope, 1, MAX_WIDTH).map(|n| Exact::int(n as i64)),
            Kind::Number | Kind::Flag => exact(e, scope),
        };
        let value = match &p.default {
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
    };
    let numbers = layer.params.iter().filter(|p| p.kind != Kind::Flag);
    let ones: Vec<_> = numbers
        .map(|p| (p.name.name.clone(), Exact::one()))
        .collect();
    let mut found = Vec::new();
    let mut reader = LayerReader {
        scope: &inner_scope(&sizes.scope(), sizes.width, &ones),
        width: sizes.width,
        layers: &layer.inside,
        off: &[],
        sink: &mut found,
        seen: Vec::new(),
        repeated: Vec::new(),
    };
    reader.layer(&layer.body, Input::One(sizes.width));
    let of_values = [
        codes::WIDTH_MISMATCH,
        codes::HEAD_COUNT,
        codes::OUT_OF_RANGE,
        codes::TOO_LARGE,
        codes::ARITHMETIC,
    ];
    found.retain(|d| !of_values.contains(&d.code));
    sink.extend(found);
}
