//! The paths of a file's values, such as `model.core.r`.
//!
//! Takes a tree; shows every value that has a path, with the segments that its path may have. Leaves choosing and
//! changing to `set.rs`.

use crate::ast::*;

/// What one value of the file is called: a segment for each level, every segment with its alternatives.
pub struct Place<'a> {
    /// The first alternative is the one that is shown; an empty one may be left out.
    segments: Vec<Vec<&'a str>>,
    last: &'a str,
}

impl Place<'_> {
    /// Whether a dotted path may mean this place.
    pub fn is(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('.').collect();
        let Some((last, parts)) = parts.split_last() else {
            return false;
        };
        *last == self.last && matches(&self.segments, parts)
    }

    /// The shortest path, which may mean other places too.
    pub fn brief(&self) -> String {
        let needed = self
            .segments
            .iter()
            .filter(|alternatives| !alternatives.contains(&""));
        let fields = self
            .segments
            .first()
            .is_some_and(|first| first.first() == Some(&"field"));
        match fields {
            true => self.full(),
            false => needed
                .map(|alternatives| alternatives[0])
                .chain([self.last])
                .collect::<Vec<_>>()
                .join("."),
        }
    }

    /// The most exact path.
    pub fn full(&self) -> String {
        let named = self
            .segments
            .iter()
            .map(|alternatives| alternatives[0])
            .filter(|name| !name.is_empty());
        named.chain([self.last]).collect::<Vec<_>>().join(".")
    }
}

fn matches(segments: &[Vec<&str>], parts: &[&str]) -> bool {
    let Some((first, rest)) = segments.split_first() else {
        return parts.is_empty();
    };
    let named = parts
        .split_first()
        .is_some_and(|(part, parts)| first.contains(part) && matches(rest, parts));
    named || (first.contains(&"") && matches(rest, parts))
}

/// Shows every value that has a path, in source order.
pub fn visit(file: &mut File, see: &mut dyn FnMut(&Place, &mut Expr)) {
    let models = file
        .items
        .iter()
        .filter(|item| matches!(item, Item::Model(_)))
        .count();
    for item in &mut file.items {
        match item {
            Item::Scheme(scheme) => {
                let segments = vec![vec!["scheme"], vec![scheme.name.name.as_str()]];
                for param in &mut scheme.params {
                    if let ParamKind::Value(value) = &mut param.kind {
                        see(
                            &Place {
                                segments: segments.clone(),
                                last: &param.name.name,
                            },
                            value,
                        );
                    }
                }
                for item in &mut scheme.items {
                    if let SchemeItem::Let { name, value } = item {
                        see(
                            &Place {
                                segments: segments.clone(),
                                last: &name.name,
                            },
                            value,
                        );
                    }
                }
            }
            Item::Field(field) => {
                let segments = [vec!["field", ""], vec![field.name.name.as_str()]];
                visit_body(&segments, &mut field.body, see);
            }
            Item::Layer(layer) => visit_layer(layer, see),
            Item::Model(model) => {
                let name = model.name.name.as_str();
                let head = if models > 1 {
                    vec![name, "model"]
                } else {
                    vec!["model", name]
                };
                let stages = stages(&model.items);
                for (item, stage) in model.items.iter_mut().zip(&stages) {
                    let (label, part, values) = match item {
                        ModelItem::Input { label, value, .. } => {
                            (label.as_ref(), "input", std::slice::from_mut(value))
                        }
                        ModelItem::Embed { label, values, .. } => {
                            (label.as_ref(), "embed", &mut values[..])
                        }
                        ModelItem::Output { label, value, .. } => {
                            (label.as_ref(), "output", std::slice::from_mut(value))
                        }
                        ModelItem::Init { value, .. } => {
                            (None, "init", std::slice::from_mut(value))
                        }
                        ModelItem::Evolve(evolve) => {
                            visit_evolve(&head, evolve, see);
                            continue;
                        }
                    };
                    let label = label.map(|l| l.name.as_str()).or(stage.as_deref());
                    let label = label.map(|l| vec![l]);
                    let segments: Vec<Vec<&str>> = std::iter::once(head.clone())
                        .chain(label)
                        .chain([vec![part, ""]])
                        .collect();
                    for value in values {
                        match &mut value.kind {
                            // `width` is that of the state, which the last part of an embedding makes.
                            ExprKind::Pipe(first, last) if part == "embed" => {
                                first_part(&segments, first, see);
                                arguments(&segments, last, see);
                            }
                            _ => arguments(&segments, value, see),
                        }
                    }
                }
            }
            Item::Train(block) => {
                for entry in &mut block.entries {
                    let [key] = &entry.key[..] else { continue };
                    for value in &mut entry.values {
                        see(
                            &Place {
                                segments: vec![vec!["train"]],
                                last: &key.name,
                            },
                            value,
                        );
                        arguments(&[vec!["train"], vec![&key.name, ""]], value, see);
                    }
                    for e in &mut entry.exceptions {
                        let [name] = &e.names[..] else { continue };
                        let segments = [vec!["train"], vec![&key.name], vec![name.name.as_str()]];
                        match &mut e.meant {
                            Meant::Arguments(args) => each_argument(&segments, args, see),
                            Meant::Instead(value) => arguments(&segments, value, see),
                        }
                    }
                }
            }
            Item::Explore(_) => {}
        }
    }
}

/// Of embeddings that begin later stages, what the evolves after them are called.
fn stages(items: &[ModelItem]) -> Vec<Option<String>> {
    let label = |item: &ModelItem| match item {
        ModelItem::Embed { label, .. } => Some(label.as_ref().map(|l| l.name.clone())),
        _ => None,
    };
    let evolve = |item: &ModelItem| match item {
        ModelItem::Evolve(e) => Some(e.label.as_ref().map(|l| l.name.clone())),
        _ => None,
    };
    let stage = |n: usize| {
        let own = label(&items[n])?;
        let later = items[..n].iter().filter_map(label).any(|l| l == own);
        later
            .then(|| items[n..].iter().find_map(evolve))
            .flatten()?
    };
    (0..items.len()).map(stage).collect()
}

/// Defaults, and what the body gives to layers: `layer.ffn.hidden`. What is only handed on has the argument's path.
fn visit_layer(layer: &mut Layer, see: &mut dyn FnMut(&Place, &mut Expr)) {
    let segments = [vec!["layer"], vec![layer.name.name.as_str()]];
    for param in &mut layer.params {
        if let Some(default) = &mut param.default {
            let last = param.name.name.as_str();
            let segments = segments.to_vec();
            see(&Place { segments, last }, default);
        }
    }
    let params = &layer.params;
    let handed_on = |e: &Expr| {
        let is = |name: &str| params.iter().any(|p| p.name.name == name);
        matches!(&e.kind, ExprKind::Name(name) if is(name))
    };
    visit_body(&segments, &mut layer.body, &mut |place, value| {
        if !handed_on(value) {
            see(place, value);
        }
    });
}

/// What the expressions of a body give to layers, and the start of what it learns.
fn visit_body(segments: &[Vec<&str>], body: &mut Body, see: &mut dyn FnMut(&Place, &mut Expr)) {
    let statements = match body {
        Body::Expr(e) => return arguments(segments, e, see),
        Body::Block { statements, .. } => statements,
    };
    for s in statements {
        match s {
            BodyStmt::Set { value, .. } | BodyStmt::Return { value, .. } => {
                arguments(segments, value, see);
            }
            BodyStmt::Learn { name, init, .. } => {
                let place = Place {
                    segments: segments.to_vec(),
                    last: &name.name,
                };
                see(&place, init);
            }
        }
    }
}

fn visit_evolve(model: &[&str], evolve: &mut Evolve, see: &mut dyn FnMut(&Place, &mut Expr)) {
    let segment = match &evolve.label {
        Some(label) => vec![label.name.as_str(), "evolve", ""],
        None => vec!["", "evolve"],
    };
    let segments = [model.to_vec(), segment];
    let place = |last| Place {
        segments: segments.to_vec(),
        last,
    };
    see(&place("scheme"), &mut evolve.flow);
    arguments(&segments, &mut evolve.flow, see);
    see(&place("steps"), &mut evolve.extent);
    arguments(&segments, &mut evolve.extent, see);
    for option in &mut evolve.options {
        match option {
            EvolveOption::H { value, .. } | EvolveOption::LearnH { value, .. } => {
                see(&place("h"), value)
            }
            EvolveOption::Gradient { value, .. } | EvolveOption::Report { value, .. } => {
                arguments(&segments, value, see)
            }
            EvolveOption::Weights { policies, .. } => {
                for (_, policy) in policies {
                    match &mut policy.kind {
                        PolicyKind::TimeDependent(args) => each_argument(&segments, args, see),
                        PolicyKind::Every(count) => see(&place("every"), count),
                        PolicyKind::Cycle(count) => see(&place("cycle"), count),
                        PolicyKind::PerStep | PolicyKind::PerUse | PolicyKind::Shared => {}
                    }
                }
            }
        }
    }
}

/// The same of a call that another one of the same line follows: they have its name.
fn first_part(segments: &[Vec<&str>], value: &mut Expr, see: &mut dyn FnMut(&Place, &mut Expr)) {
    let ExprKind::Call(call) = &mut value.kind else {
        return;
    };
    let ExprKind::Name(name) = &call.callee.kind else {
        return;
    };
    let segments: Vec<Vec<&str>> = segments.iter().cloned().chain([vec![&name[..]]]).collect();
    each_argument(&segments, &mut call.args, see);
}

/// The labelled arguments of all calls in an expression.
fn arguments<'a>(
    segments: &[Vec<&'a str>],
    value: &'a mut Expr,
    see: &mut dyn FnMut(&Place, &mut Expr),
) {
    match &mut value.kind {
        ExprKind::Call(call) => {
            arguments(segments, &mut call.callee, see);
            each_argument(segments, &mut call.args, see);
        }
        ExprKind::List(values) | ExprKind::Tuple(values) => {
            for value in values {
                arguments(segments, value, see);
            }
        }
        ExprKind::Binary(_, a, b) | ExprKind::Pipe(a, b) => {
            arguments(segments, a, see);
            arguments(segments, b, see);
        }
        ExprKind::Neg(inner) => arguments(segments, inner, see),
        _ => {}
    }
}

fn each_argument<'a>(
    segments: &[Vec<&'a str>],
    args: &'a mut [Arg],
    see: &mut dyn FnMut(&Place, &mut Expr),
) {
    for arg in args {
        if let Some(label) = &arg.label {
            see(
                &Place {
                    segments: segments.to_vec(),
                    last: &label.name,
                },
                &mut arg.value,
            );
        }
        arguments(segments, &mut arg.value, see);
    }
}
