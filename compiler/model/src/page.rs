//! What the documentation says of a layer or of another part, as data: all of it comes from what that declares, and from reading its examples.
//! A layer in Rust declares it by its trait; one that is written in the language by the lines above it (`docs/reference.md`, *Layers*), be it of
//! the library or of a user's file.
//!
//! The command line prints it.

use super::CompileError;
use super::alone::{Alone, Around, SHOWN, alone, alone_in};
use super::arguments::Called;
use super::layers::{
    About, Argument, DEFINITIONS, Definition, Example, Form, Group, LayerParam, Silent, Start, find,
};
use super::spec::of_model;
use crate::scheme::bounds;
use crate::scheme::names::Loader;
use odec_grammar::ast::{Body, BodyStmt, Expr, File, Ident, Item, Layer, LayerParam as Given};
use odec_library::{Library, LibraryScheme};

/// The page of a layer or of another part.
#[derive(Default)]
pub struct Page {
    pub name: String,
    /// What it is: "an input".
    pub kind: &'static str,
    /// Where a list of all layers names it.
    pub group: Group,
    /// One sentence.
    pub summary: String,
    /// What it computes; of a layer that is written in the language, its body.
    pub formula: String,
    /// Who published it; empty where nobody has to be named.
    pub source: String,
    /// What else a user should know, a paragraph each.
    pub notes: Vec<String>,
    pub arguments: Vec<ArgumentLine>,
    pub examples: Vec<ExampleLine>,
    /// The file of a layer that is written in the language.
    pub file: Option<String>,
    /// Of the first example, in a model of [`SHOWN`] sizes.
    pub parameters: Vec<ParameterLine>,
    /// The first example of a layer by itself.
    pub alone: Option<Alone>,
}

/// An argument in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentLine {
    pub name: String,
    pub form: String,
    pub default: String,
    pub meaning: String,
}

/// A use of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExampleLine {
    pub text: String,
    pub meaning: String,
}

/// A parameter in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterLine {
    pub path: String,
    pub shape: Vec<u64>,
    pub start: String,
}

/// The names of all layers: those in Rust, then those of the library.
pub fn names(library: Library) -> impl Iterator<Item = &'static str> {
    let own = DEFINITIONS.iter().map(|d| d.name);
    own.chain(library.layers().map(|l| l.name))
}

/// The page of the layer of this name.
///
/// # Errors
/// Its first example is not valid.
pub fn page(name: &str, library: Library) -> Result<Option<Page>, CompileError> {
    if let Some(definition) = find(name) {
        return definition.page(library).map(Some);
    }
    let file = library.get(name).filter(|file| file.is_layer());
    file.map(|file| written(file, library)).transpose()
}

impl Definition {
    /// Its documentation.
    ///
    /// # Errors
    /// Its first example is not valid.
    pub fn page(&self, library: Library) -> Result<Page, CompileError> {
        let first = self.examples.first().map_or(self.name, |e| e.text);
        let alone = alone(first, SHOWN, library)?;
        Ok(Page {
            arguments: lines(self.arguments),
            parameters: alone.params.iter().map(line).collect(),
            alone: Some(alone),
            group: self.group,
            ..Page::of(self.name, LAYER, &self.about, self.examples)
        })
    }
}

/// What a layer is, and a field.
const LAYER: &str = "a layer";
const FIELD: &str = "a field";

impl Page {
    /// What is said of it, its arguments left out.
    pub(crate) fn of(name: &str, kind: &'static str, about: &About, examples: &[Example]) -> Page {
        let example = |e: &Example| ExampleLine {
            text: e.text.into(),
            meaning: e.meaning.into(),
        };
        Page {
            name: name.into(),
            kind,
            summary: about.summary.into(),
            formula: about.formula.into(),
            source: about.source.into(),
            notes: about.notes.iter().map(|n| n.to_string()).collect(),
            examples: examples.iter().map(example).collect(),
            ..Page::default()
        }
    }
}

/// The arguments of the layer of this name, which its examples are not read for.
pub fn arguments(name: &str, library: Library) -> Vec<ArgumentLine> {
    if let Some(definition) = find(name) {
        return lines(definition.arguments);
    }
    let file = library.get(name).and_then(|file| parsed(file).ok());
    let page = file.map(|(layer, text)| {
        let said = Said::of(&layer.doc, &layer.params);
        of_layer(&layer, said, text, String::new(), None)
    });
    page.unwrap_or_default().arguments
}

/// The page of a layer that is written in the language.
fn written(file: &LibraryScheme, library: Library) -> Result<Page, CompileError> {
    let (layer, text) = parsed(file)?;
    let said = Said::of(&layer.doc, &layer.params);
    let first = said.examples.first().map_or(file.name, |e| &e.text);
    let alone = alone(first, SHOWN, library)?;
    Ok(of_layer(&layer, said, text, file.path(), Some(alone)))
}

/// A layer of the library with the text that it is read from.
fn parsed(file: &LibraryScheme) -> Result<(Layer, &'static str), CompileError> {
    let (tree, wrong) = odec_grammar::parse(0, file.text);
    let layer = tree.items.into_iter().find_map(|item| match item {
        Item::Layer(layer) => Some(layer),
        _ => None,
    });
    let layer = layer.ok_or(CompileError::Source(wrong))?;
    Ok((layer, file.text))
}

/// A layer or a field of a user's file, with what is said of it.
pub struct Own {
    pub name: String,
    /// "a layer", or "a field".
    pub kind: &'static str,
    pub summary: String,
}

/// Those of a file, in their order.
pub fn own(file: &File) -> Vec<Own> {
    let each = file.items.iter().filter_map(|item| {
        let (kind, name, said) = match item {
            Item::Layer(l) => (LAYER, &l.name, Said::of(&l.doc, &l.params)),
            Item::Field(f) => (FIELD, &f.name, Said::of(&f.doc, &[])),
            _ => return None,
        };
        Some(Own {
            name: name.name.clone(),
            kind,
            summary: said.summary,
        })
    });
    each.collect()
}

/// The page of a layer or a field of a user's file, which is known to be right. Sizes are those of its model, if it has one.
///
/// # Errors
/// Its first example is not valid.
pub fn own_page(
    name: &str,
    file: &File,
    around: Around,
    library: Library,
    loader: &mut dyn Loader,
) -> Result<Option<Page>, CompileError> {
    let model = file.items.iter().find_map(|item| match item {
        Item::Model(m) => Some(m),
        _ => None,
    });
    let shown = model.and_then(|m| of_model(m, &mut Vec::new()).pop());
    let shown = shown.map_or(SHOWN, |m| m.sizes);
    let mut alone = |text: &str| alone_in(around, text, shown, library, loader);
    for item in &file.items {
        match item {
            Item::Layer(layer) if layer.name.name == name => {
                let said = Said::of(&layer.doc, &layer.params);
                let needs = layer.params.iter().any(is_needed);
                let first = said.examples.first().map(|e| e.text.clone());
                let first = first.or_else(|| (!needs).then(|| name.to_string()));
                let alone = first.map(|text| alone(&text)).transpose()?;
                let path = around.path.to_string();
                return Ok(Some(of_layer(layer, said, around.text, path, alone)));
            }
            Item::Field(field) if field.name.name == name => {
                let said = Said::of(&field.doc, &[]);
                let values = vec!["id"; field.params.len()];
                let text = match values.len() {
                    0 | 1 => name.to_string(),
                    _ => format!("{name}({})", values.join(", ")),
                };
                // A flow, or a field of values that differ in width, has no graph by itself.
                let alone = alone(&text).ok();
                let value = |p: &Ident| ArgumentLine {
                    name: p.name.clone(),
                    form: Form::Operand.in_words(),
                    default: "needed".into(),
                    meaning: String::new(),
                };
                return Ok(Some(Page {
                    name: name.into(),
                    kind: FIELD,
                    formula: formula(&field.body, around.text),
                    arguments: field.params.iter().map(value).collect(),
                    file: Some(around.path.into()),
                    parameters: alone.iter().flat_map(|a| &a.params).map(line).collect(),
                    alone,
                    summary: said.summary,
                    source: said.source,
                    notes: said.notes,
                    examples: said.examples,
                    ..Page::default()
                }));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Whether an argument has no value where none is given.
fn is_needed(p: &Given) -> bool {
    let kind = p.kind.as_ref().map_or("size", |k| k.name.as_str());
    p.default.is_none() && ["size", "number", "word", "state"].contains(&kind)
}

/// A place of a text in one line.
fn in_line(text: &str, span: odec_grammar::Span) -> String {
    let text = text.get(span.start as usize..span.end as usize);
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

/// What a body computes.
fn formula(body: &Body, text: &str) -> String {
    match body {
        Body::Expr(e) => in_line(text, e.span),
        Body::Block { statements, .. } => {
            let each = statements.iter().map(|s| match s {
                BodyStmt::Learn { .. } => format!("learn {}", in_line(text, s.span())),
                _ => in_line(text, s.span()),
            });
            each.collect::<Vec<String>>().join("; ")
        }
    }
}

/// The page of a layer that is written in a text.
fn of_layer(layer: &Layer, said: Said, text: &str, file: String, alone: Option<Alone>) -> Page {
    let of_number = |p: &Given, whole: bool| {
        let shown = |e: &Expr| in_line(text, e.span);
        let bounds = p.bounds.as_ref();
        bounds.map_or(String::new(), |b| bounds::in_words(b, whole, shown))
    };
    let argument = |p: &Given| {
        let kind = p.kind.as_ref().map_or("size", |k| &k.name);
        let default = p.default.as_ref().map(|e| in_line(text, e.span));
        let number = || default.clone().unwrap_or("needed".into());
        let value = "the layer's input";
        let (form, default) = match kind {
            "value" => (Form::Operand.in_words(), value.into()),
            "state" => {
                let form = "the label of an evolve, perhaps with layers behind it";
                (
                    form.into(),
                    if default.is_some() {
                        value.into()
                    } else {
                        number()
                    },
                )
            }
            "flag" => {
                let implied = default
                    .as_ref()
                    .map_or(String::new(), |of| format!(", on with `{of}`"));
                (Form::Flag.in_words(), format!("off{implied}"))
            }
            "size" | "number" if p.bounds.is_some() => (of_number(p, kind == "size"), number()),
            "number" => (Form::Exact.in_words(), number()),
            "word" => (Form::Word(&[]).in_words(), number()),
            "size" => (Form::Whole.in_words(), number()),
            part => (
                format!("the word alone, or with arguments of `{part}`"),
                "off".into(),
            ),
        };
        ArgumentLine {
            name: p.label().name.clone(),
            form,
            default,
            meaning: said.argument(&p.label().name),
        }
    };
    let (needed, others): (Vec<_>, Vec<_>) = (layer.params.iter())
        .map(argument)
        .partition(|a| a.default == "needed");
    let params = alone.iter().flat_map(|a| &a.params);
    Page {
        name: layer.name.name.clone(),
        formula: formula(&layer.body, text),
        arguments: [needed, others].concat(),
        file: Some(file),
        parameters: params.map(line).collect(),
        alone,
        kind: LAYER,
        group: Group::Layers,
        summary: said.summary,
        source: said.source,
        notes: said.notes,
        examples: said.examples,
    }
}

/// What the lines above a layer say: paragraphs, the first of which is the summary, and lines that begin with `source:`, `example:` or
/// an argument's name. A line that begins with none of them goes on with the one before it.
#[derive(Default)]
struct Said {
    summary: String,
    source: String,
    notes: Vec<String>,
    examples: Vec<ExampleLine>,
    arguments: Vec<(String, String)>,
}

impl Said {
    fn of(doc: &[String], params: &[Given]) -> Said {
        let known = |label: &str| {
            let argument = params.iter().any(|p| p.label().name == label);
            argument || ["source", "example"].contains(&label)
        };
        // Each with its label; paragraphs have none.
        let mut parts: Vec<(&str, String)> = Vec::new();
        let mut ended = true;
        for line in doc.iter().map(|l| l.trim()) {
            match line.split_once(": ").filter(|(label, _)| known(label)) {
                Some((label, text)) => parts.push((label, text.trim().into())),
                None if line.is_empty() => {}
                None if ended => parts.push(("", line.into())),
                None => parts.iter_mut().last().into_iter().for_each(|(_, text)| {
                    text.push(' ');
                    text.push_str(line);
                }),
            }
            ended = line.is_empty();
        }
        let mut said = Said::default();
        for (label, text) in parts {
            match label {
                "" if said.summary.is_empty() => said.summary = text,
                "" => said.notes.push(text),
                "source" => said.source = text,
                "example" => said.examples.push(example(&text)),
                _ => said.arguments.push((label.into(), text)),
            }
        }
        said
    }

    fn argument(&self, name: &str) -> String {
        let said = self.arguments.iter().find(|(n, _)| n == name);
        said.map_or_else(String::new, |(_, text)| text.clone())
    }
}

/// `adapter(rank: 64): after a sub-layer`, cut at the colon outside of brackets.
fn example(text: &str) -> ExampleLine {
    let mut open = 0;
    let cut = text.char_indices().find(|(_, c)| {
        open += i32::from(*c == '(') - i32::from(*c == ')');
        *c == ':' && open == 0
    });
    let (text, meaning) = cut.map_or((text, ""), |(at, _)| (&text[..at], &text[at + 1..]));
    ExampleLine {
        text: text.trim().into(),
        meaning: meaning.trim().into(),
    }
}

/// Those that must be given first.
pub(crate) fn lines(arguments: &[Argument]) -> Vec<ArgumentLine> {
    let needed = |a: &&Argument| a.silent == Silent::Needed;
    let sorted = arguments.iter().filter(needed);
    let sorted = sorted.chain(arguments.iter().filter(|a| !needed(a)));
    sorted.map(Argument::line).collect()
}

impl Argument {
    fn line(&self) -> ArgumentLine {
        ArgumentLine {
            name: self.name.into(),
            form: self.form.in_words(),
            default: self.default_in_words(),
            meaning: self.meaning.into(),
        }
    }

    fn default_in_words(&self) -> String {
        match self.silent {
            Silent::Needed => "needed".into(),
            Silent::Off => "off".into(),
            Silent::Ratio(of, 100) if matches!(self.form, Form::Percent(..)) => format!("{of}%"),
            Silent::Ratio(..) => self
                .number_meant()
                .map_or_else(String::new, |x| short(x.to_f64())),
            Silent::Is("\n") => "a line end".into(),
            Silent::Is(text) if self.form == Form::Text => format!("`{text:?}`"),
            Silent::Is(word) => format!("`{word}`"),
            Silent::Follows(from) => from.into(),
        }
    }
}

impl Form {
    fn in_words(&self) -> String {
        let listed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
            words.join(" or ")
        };
        match self {
            Form::Flag => "the word alone".into(),
            Form::Whole => "a whole number from 1".into(),
            Form::Sides => "a whole number from 1, or two of them in brackets".into(),
            Form::Index => "a whole number from 0".into(),
            Form::Exact => "a number".into(),
            Form::UnnamedWhole => "a whole number from 1, without a name".into(),
            Form::Number(bounds) => bounds.text(),
            Form::UnnamedNumber(bounds) => format!("{}, with or without the name", bounds.text()),
            Form::Rule(bounds) => format!(
                "{}, with or without the name; it may depend on `k`, the number of the step from 0, and on `steps`, how many there are",
                bounds.text()
            ),
            Form::Word([]) => "a word".into(),
            Form::Word(words) => listed(words),
            Form::Fields => "fields, separated by commas".into(),
            Form::Operand => "a value, without a name".into(),
            Form::Value => "a value".into(),
            Form::Label => "the label of an output".into(),
            Form::Call(calls) => in_words(calls),
            Form::Text => "something in quotes".into(),
            Form::WordOrPath(word) => format!("`{word}`, or a path in quotes"),
            Form::Paths => "paths in quotes, separated by commas".into(),
            Form::Percent(least, most) => format!("a whole percentage from {least}% to {most}%"),
        }
    }
}

/// What may be called, and what the arguments of each are.
fn in_words(calls: &[Called]) -> String {
    let call = |c: &Called| {
        let names: Vec<String> = c
            .arguments
            .iter()
            .map(|a| format!("{}: …", a.name))
            .collect();
        match names.is_empty() {
            true => format!("`{}`", c.name),
            false => format!("`{}({})`", c.name, names.join(", ")),
        }
    };
    let argument = |a: &Argument| {
        let ArgumentLine {
            name,
            form,
            default,
            meaning,
        } = a.line();
        format!("`{name}` is {form} [{default}], {meaning}")
    };
    let written: Vec<String> = calls.iter().map(call).collect();
    let arguments: Vec<String> = calls
        .iter()
        .flat_map(|c| c.arguments)
        .map(argument)
        .collect();
    match arguments.is_empty() {
        true => written.join(" or "),
        false => format!("{}, where {}", written.join(" or "), arguments.join("; ")),
    }
}

/// A number as it would be written.
pub(crate) fn short(x: f64) -> String {
    match x == 0.0 || (1e-3..1e6).contains(&x) {
        true => format!("{x}"),
        false => format!("{x:e}"),
    }
}

pub(crate) fn line(p: &LayerParam) -> ParameterLine {
    let start = match p.start {
        Start::Normal => "normal, with the model's deviation".into(),
        Start::Ones => "1".into(),
        Start::Zeros => "0".into(),
        Start::Constant(x) => short(x),
    };
    ParameterLine {
        path: p.path.clone(),
        shape: p.shape.clone(),
        start,
    }
}
