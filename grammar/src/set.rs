//! `--set path=value`: one number, name or string of a file replaced from the command line.
//!
//! Takes a parsed [`File`], a dotted path and the text of a value; changes the tree. The value is parsed as an
//! expression of its own source, so that later errors point into what was typed. Paths name what a file says:
//!
//! - `model.width`, `model.context`: the labelled argument of that name in the model, `model.embed.width` to be exact,
//!   `model.source.context` of an input or an embedding with a label;
//! - `model.scheme`, `model.steps`, `model.h`, `model.r`: flow, extent, step size and scheme arguments of the evolve, `model.core.r` by label;
//! - `field.ffn.hidden` or `ffn.hidden`; `scheme.iie.r` for a default or a constant of a scheme in this file; `layer.ffn.hidden` for
//!   one of a layer;
//! - `train.batch`, `train.lr`, `train.optimizer.lr`, `train.data="…"`.
//!
//! What is not there yet is added where its meaning is clear: arguments of the scheme, `h`, known training entries,
//! arguments of a training entry named in full. Everything else is an error that lists the paths there are. Leaves
//! the meaning of values to `odec-compiler`.

use crate::ast::*;
use crate::codes;
use crate::diag::Diagnostic;
use crate::nearest;
use crate::parse::{parse, parse_value};
use crate::paths::visit;
use crate::span::{Sources, Span};
use crate::written::{excerpt, without_labels, written};
use odec_library::Library;
use std::collections::HashSet;

/// The name under which a value from the command line appears in errors.
const ORIGIN: &str = "command line";
/// The entries a training block may have, and what each takes.
const TRAIN: [(&str, Kind); 19] = [
    ("accumulate", Kind::Number),
    ("data", Kind::Call),
    ("loss", Kind::Expression),
    ("constrain", Kind::Call),
    ("parametrization", Kind::Call),
    ("optimizer", Kind::Call),
    ("schedule", Kind::Call),
    ("ema", Kind::Number),
    ("evaluations", Kind::Number),
    ("patience", Kind::Number),
    ("batch", Kind::Number),
    ("steps", Kind::Number),
    ("keep", Kind::Call),
    ("clip", Kind::Number),
    ("precision", Kind::Word),
    ("seed", Kind::Number),
    ("memory", Kind::Call),
    ("from", Kind::Text),
    ("tune", Kind::Call),
];

/// Replaces the value at `path`.
///
/// # Errors
/// `unknown-path` when nothing is called so, `ambiguous-path` when several things are, and what the parser says about
/// a value that is no expression. The file is unchanged then.
pub fn set(
    file: &mut File,
    sources: &mut Sources,
    path: &str,
    value: &str,
) -> Result<(), Diagnostic> {
    let text = format!("--set {path}={value}");
    let source = sources.add(ORIGIN, &text);
    let at = |start: usize, end: usize| Span {
        source,
        start: start as u32,
        end: end as u32,
    };
    let (path_span, value_start) = (
        at("--set ".len(), "--set ".len() + path.len()),
        text.len() - value.len(),
    );
    let parsed = parse_value(source, &text, value_start);
    let bare = Expr {
        kind: ExprKind::Str(value.to_string()),
        span: at(value_start, text.len()),
    };

    let mut found: Vec<(String, Span)> = Vec::new();
    let mut places: Vec<(String, String)> = Vec::new();
    visit(file, &mut |place, slot| {
        if place.is(path) {
            found.push((place.full(), slot.span));
        }
        places.push((place.brief(), place.full()));
    });
    match found.len() {
        1 => {}
        0 => {
            let mut known = known(&places);
            if file.items.iter_mut().find_map(train_block).is_some() {
                known.extend(TRAIN.iter().map(|(key, _)| format!("train.{key}")));
            }
            return add(file, sources.library(), path, path_span, parsed?, &known);
        }
        _ => {
            let mut names: Vec<String> =
                found.iter().map(|(name, _)| format!("`{name}`")).collect();
            names.dedup();
            let help = match names.len() {
                1 => "no path tells them apart: change the file itself".to_string(),
                _ => format!("write one of these paths: {}", names.join(", ")),
            };
            let error = Diagnostic::error(
                codes::AMBIGUOUS_PATH,
                path_span,
                format!("`{path}` names several things"),
            )
            .label(format!("{} of them", found.len()))
            .help(help);
            return Err(found
                .into_iter()
                .fold(error, |error, (name, span)| error.also(span, name)));
        }
    }
    let mut outcome = Ok(());
    visit(file, &mut |place, slot| {
        if place.is(path) {
            outcome = replace(slot, &parsed, &bare);
        }
    });
    outcome
}

/// The value at a place that [`set`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    /// In quotes.
    Text,
    /// A single name, such as `bytes`.
    Word,
    List,
    /// A name with arguments, such as `adamw(lr: 1e-3)`.
    Call,
    Expression,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Number => "number",
            Kind::Text => "text",
            Kind::Word => "word",
            Kind::List => "list",
            Kind::Call => "call",
            Kind::Expression => "expression",
        }
    }

    fn of(e: &Expr) -> Kind {
        match &e.kind {
            ExprKind::Str(_) => Kind::Text,
            _ if is_number(e) => Kind::Number,
            ExprKind::Name(_) => Kind::Word,
            ExprKind::List(_) | ExprKind::Tuple(_) => Kind::List,
            ExprKind::Call(_) => Kind::Call,
            _ => Kind::Expression,
        }
    }
}

/// Whether this is arithmetic of numbers, sizes of the model and roots.
fn is_number(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Number(_) | ExprKind::Quantity(..) => true,
        ExprKind::Name(name) => ["width", "steps", "k"].contains(&name.as_str()),
        ExprKind::Neg(inner) => is_number(inner),
        ExprKind::Binary(_, a, b) => is_number(a) && is_number(b),
        ExprKind::Tuple(items) => matches!(&items[..], [one] if is_number(one)),
        ExprKind::Call(call) => {
            matches!(&call.callee.kind, ExprKind::Name(f) if f == "sqrt" || f == "root")
                && call.args.iter().all(|a| is_number(&a.value))
        }
        _ => false,
    }
}

/// Something that [`set`] takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settable {
    pub path: String,
    pub kind: Kind,
    /// The most exact path, the same in files where `path` would mean several values.
    pub full: String,
    /// As the file says it, or the default of a scheme's parameter; `None` where there is neither.
    pub value: Option<String>,
    /// The value without labelled arguments, which have paths of their own: `adamw` of `adamw(lr: 1e-3)`.
    pub own: Option<String>,
    /// Whether the file says it.
    pub given: bool,
}

/// Everything that [`set`] takes, in the order of the file: what it says, then what may be added.
pub fn settable(file: &mut File, sources: &Sources) -> Vec<Settable> {
    let mut places: Vec<(String, String)> = Vec::new();
    let mut values = Vec::new();
    visit(file, &mut |place, slot| {
        places.push((place.brief(), place.full()));
        let value = written(sources, slot);
        values.push((Kind::of(slot), value, without_labels(sources, slot)));
    });
    let said = known(&places).into_iter().zip(&places).zip(values);
    let mut all: Vec<Settable> = said
        .map(|((path, (_, full)), (kind, value, own))| Settable {
            path,
            full: full.clone(),
            kind,
            value,
            own,
            given: true,
        })
        .collect();
    let mut more = defaults(file, sources);
    if file.items.iter_mut().find_map(train_block).is_some() {
        more.extend(TRAIN.map(|(key, kind)| (format!("train.{key}"), kind, None)));
    }
    for (path, kind, value) in more {
        if places
            .iter()
            .all(|(brief, full)| *brief != path && *full != path)
        {
            all.push(Settable {
                full: path.clone(),
                path,
                kind,
                own: value.clone(),
                value,
                given: false,
            });
        }
    }
    all
}

/// The step size and the parameters with defaults of the schemes that evolves apply, under their paths.
fn defaults(file: &mut File, sources: &Sources) -> Vec<(String, Kind, Option<String>)> {
    let schemes = Schemes::of(file, sources.library());
    let mut models: Vec<&mut Model> = file.items.iter_mut().filter_map(model_item).collect();
    let several = models.len() > 1;
    let mut all = Vec::new();
    for model in &mut models {
        let head = if several {
            model.name.name.clone()
        } else {
            "model".into()
        };
        let evolves = model.items.iter().filter_map(|item| match item {
            ModelItem::Evolve(evolve) => Some(evolve),
            _ => None,
        });
        let evolves: Vec<&Evolve> = evolves.collect();
        for evolve in &evolves {
            let head = match &evolve.label {
                Some(label) => format!("{head}.{}", label.name),
                // Without a label a path must mean one evolve.
                None if evolves.len() == 1 => head.clone(),
                None => continue,
            };
            if evolve
                .options
                .iter()
                .all(|o| !matches!(o, EvolveOption::H { .. } | EvolveOption::LearnH { .. }))
            {
                all.push((format!("{head}.h"), Kind::Number, None));
            }
            let ExprKind::Call(call) = &evolve.flow.kind else {
                continue;
            };
            if let ExprKind::Name(scheme) = &call.callee.kind {
                for p in schemes.params(scheme).into_iter().flatten() {
                    let text = p.text.unwrap_or_else(|| sources.text(p.default.source));
                    let value = excerpt(text, p.default);
                    all.push((format!("{head}.{}", p.name), Kind::Number, value));
                }
            }
        }
    }
    all
}

/// The shortest path to every place: the brief one where it means only one.
fn known(places: &[(String, String)]) -> Vec<String> {
    let alone = |brief: &str| places.iter().filter(|(other, _)| other == brief).count() == 1;
    places
        .iter()
        .map(|(brief, full)| {
            if alone(brief) {
                brief.clone()
            } else {
                full.clone()
            }
        })
        .collect()
}

/// Puts the value into its place. Where a string stands, quotes may be left out: shells eat them.
fn replace(
    slot: &mut Expr,
    parsed: &Result<Expr, Diagnostic>,
    bare: &Expr,
) -> Result<(), Diagnostic> {
    let string = |slot: &Expr| matches!(slot.kind, ExprKind::Str(_));
    let is_string = parsed.as_ref().is_ok_and(string);
    if string(slot) && !is_string {
        *slot = bare.clone();
        return Ok(());
    }
    let value = parsed.clone()?;
    // `train.data="mine.txt"` keeps the tokenizer beside the path.
    if is_string
        && let ExprKind::Call(call) = &mut slot.kind
        && let Some(first) = call
            .args
            .iter_mut()
            .find(|arg| arg.label.is_none() && string(&arg.value))
    {
        first.value = value;
    } else {
        *slot = value;
    }
    Ok(())
}

/// Adds what is not there, where it is clear what it would mean.
fn add(
    file: &mut File,
    library: Library,
    path: &str,
    at: Span,
    value: Expr,
    known: &[String],
) -> Result<(), Diagnostic> {
    let parts: Vec<&str> = path.split('.').collect();
    let ident = |name: &str| Ident {
        name: name.to_string(),
        span: at,
    };
    let unknown = || Err(unknown_path(path, at, known));
    match parts[..] {
        ["train", key] if TRAIN.iter().any(|(known, _)| *known == key) => {
            let Some(train) = file.items.iter_mut().find_map(train_block) else {
                return unknown();
            };
            train.entries.push(Entry {
                key: vec![ident(key)],
                is_in: false,
                values: vec![value],
                exceptions: Vec::new(),
                span: at,
            });
        }
        ["train", key, label] => {
            let train = file.items.iter_mut().find_map(train_block);
            let entry =
                train.and_then(|train| train.entries.iter_mut().find(|entry| is_key(entry, key)));
            let Some(ExprKind::Call(call)) = entry
                .and_then(|e| e.values.first_mut())
                .map(|value| &mut value.kind)
            else {
                return unknown();
            };
            call.args.push(Arg {
                label: Some(ident(label)),
                value,
                by: None,
            });
        }
        [model, ref evolve @ .., last] if evolve.len() < 2 && is_name(last) => {
            let schemes = Schemes::of(file, library);
            let mut models: Vec<&mut Model> =
                file.items.iter_mut().filter_map(model_item).collect();
            models.retain(|item| model == "model" || item.name.name == model);
            let mut evolves: Vec<&mut Evolve> = models
                .into_iter()
                .flat_map(|model| model.items.iter_mut())
                .filter_map(|item| match item {
                    ModelItem::Evolve(inner) => Some(inner),
                    _ => None,
                })
                .filter(|item| evolve.iter().all(|&wanted| is_label(item, wanted)))
                .collect();
            let [target] = &mut evolves[..] else {
                return unknown();
            };
            if last == "h" {
                target.options.push(EvolveOption::H { value, span: at });
            } else if let ExprKind::Call(call) = &mut target.flow.kind
                && let ExprKind::Name(scheme) = &call.callee.kind
                && schemes.may_take(scheme, last)
            {
                call.args.push(Arg {
                    label: Some(ident(last)),
                    value,
                    by: None,
                });
            } else {
                return unknown();
            }
        }
        _ => return unknown(),
    }
    Ok(())
}

fn unknown_path(path: &str, at: Span, known: &[String]) -> Diagnostic {
    let error = Diagnostic::error(
        codes::UNKNOWN_PATH,
        at,
        format!("nothing here is called `{path}`"),
    );
    if known.is_empty() {
        return error
            .label("not known")
            .help("this file has nothing that can be set");
    }
    let error = error.label("not known");
    if let Some(close) = nearest::nearest(path, known.iter().map(String::as_str)) {
        return error.help(format!("did you mean `{close}`?"));
    }
    let last = path.rsplit('.').next().unwrap_or(path);
    let tail = |known: &&String| known.rsplit('.').next() == Some(last);
    let mut same: Vec<String> = known
        .iter()
        .filter(tail)
        .map(|path| format!("`{path}`"))
        .collect();
    // What may be said and is said is listed twice.
    let mut seen = HashSet::new();
    same.retain(|path| seen.insert(path.clone()));
    if !same.is_empty() {
        return error.help(format!("did you mean {}?", same.join(" or ")));
    }
    let close = nearest::ranked(path, known.iter().map(String::as_str), 6);
    let close: Vec<String> = close.iter().map(|path| format!("`{path}`")).collect();
    error.help(format!("the nearest are {}", close.join(", ")))
}

/// Which parameters with defaults the schemes of this file and of the library have.
struct Schemes(Vec<(String, Vec<Param>)>);

struct Param {
    name: String,
    default: Span,
    /// What the place is one of, in the library.
    text: Option<&'static str>,
}

impl Schemes {
    fn of(file: &File, library: Library) -> Schemes {
        let named = |file: &File, text| -> Vec<(String, Vec<Param>)> {
            let schemes = file.items.iter().filter_map(|item| match item {
                Item::Scheme(scheme) => Some(scheme),
                _ => None,
            });
            let defaults = |scheme: &Scheme| {
                let params = scheme.params.iter().filter_map(|p| match &p.kind {
                    ParamKind::Value(value) => Some(Param {
                        name: p.name.name.clone(),
                        default: value.span,
                        text,
                    }),
                    _ => None,
                });
                params.collect()
            };
            schemes
                .map(|scheme| (scheme.name.name.clone(), defaults(scheme)))
                .collect()
        };
        let library = library
            .iter()
            .flat_map(|scheme| named(&parse(0, scheme.text).0, Some(scheme.text)));
        Schemes(named(file, None).into_iter().chain(library).collect())
    }

    fn params(&self, scheme: &str) -> Option<&[Param]> {
        let known = self.0.iter().find(|(name, _)| name == scheme);
        known.map(|(_, params)| &params[..])
    }

    /// Whether the scheme has such a parameter. One that is defined elsewhere may: the compiler will know.
    fn may_take(&self, scheme: &str, param: &str) -> bool {
        self.params(scheme)
            .is_none_or(|params| params.iter().any(|p| p.name == param))
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_key(entry: &Entry, key: &str) -> bool {
    matches!(&entry.key[..], [only] if only.name == key)
}

fn is_label(evolve: &Evolve, wanted: &str) -> bool {
    wanted == "evolve"
        || evolve
            .label
            .as_ref()
            .is_some_and(|label| label.name == wanted)
}

fn train_block(item: &mut Item) -> Option<&mut Block> {
    match item {
        Item::Train(block) => Some(block),
        _ => None,
    }
}

fn model_item(item: &mut Item) -> Option<&mut Model> {
    match item {
        Item::Model(model) => Some(model),
        _ => None,
    }
}
