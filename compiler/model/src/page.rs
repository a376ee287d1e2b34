//! What the documentation says of a layer or of another part, as data: all of it comes from what that declares, and from reading its examples.
//!
//! Leaves how it looks to whoever prints it.

use super::CompileError;
use super::alone::{Alone, SHOWN, alone};
use super::embeddings::EMBEDDINGS;
use super::inputs::{INPUTS, Input};
use super::layers::{About, Argument, Definition, Example, Form, LayerParam, Silent, Start};
use super::outputs::OUTPUTS;
use super::params::{EMBED, OUTPUT};
use super::part::Declaration;
use super::positions::{self, POSITIONS};
use super::settings;
use super::sources::SOURCES;
use odec_grammar::ast::{Expr, ExprKind, Item, ModelItem};
use odec_program::bounds::Bounds;
use odec_program::choice::{self, Choice, Choices, Visitor};
use odec_program::optimizers::{Optimizer, OptimizerKind};
use odec_program::schedules::ScheduleKind;
use std::rc::Rc;

/// The page of a layer or of a part.
pub struct Page {
    pub name: String,
    /// What it is: "an input".
    pub kind: &'static str,
    pub about: About,
    pub arguments: Vec<ArgumentLine>,
    pub examples: Vec<Example>,
    /// Of the first example, in a model of [`SHOWN`] sizes.
    pub parameters: Vec<ParameterLine>,
    /// The first example of a layer by itself.
    pub alone: Option<Alone>,
    /// What an optimiser keeps, in a sentence.
    pub kept: Option<String>,
}

/// The parts that stand at one place of a model or of a train block.
pub struct Chapter {
    pub title: &'static str,
    pub about: &'static str,
    pub pages: Vec<Page>,
}

/// An argument in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentLine {
    pub name: String,
    pub form: String,
    pub default: String,
    pub meaning: String,
}

/// A parameter in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterLine {
    pub path: String,
    pub shape: Vec<u64>,
    pub start: String,
}

impl Definition {
    /// What the documentation says of it.
    ///
    /// # Errors
    /// Its first example is not valid.
    pub fn page(&self) -> Result<Page, CompileError> {
        let first = self.examples.first().map_or(self.name, |e| e.text);
        let alone = alone(first, SHOWN)?;
        Ok(Page {
            name: self.name.into(),
            kind: "a layer",
            about: self.about,
            arguments: lines(self.arguments),
            examples: self.examples.to_vec(),
            parameters: alone.params.iter().map(line).collect(),
            alone: Some(alone),
            kept: None,
        })
    }
}

/// All parts that are not layers, place by place.
pub fn chapters() -> Vec<Chapter> {
    vec![
        Chapter {
            title: "Inputs",
            about: "What a model reads: `input tokens(…)`.",
            pages: pages("an input", INPUTS.declarations(), |_| None),
        },
        Chapter {
            title: "Embeddings",
            about: "The first state, made of the input: `embed learned(…)`.",
            pages: pages("an embedding", EMBEDDINGS.declarations(), |item| {
                let kind = EMBEDDINGS.read(embedded(item)?.first()?, &mut Vec::new())?;
                Some(below(EMBED, kind.params(&*shown_input()?)))
            }),
        },
        Chapter {
            title: "Positions",
            about: "Rows that are added to the embedding: `embed …, positions(…)`. Fields may see positions by themselves: `attention(…, rope)`, `positions(sinusoidal)`.",
            pages: pages("rows of positions", POSITIONS.declarations(), |item| {
                let kind = positions::read(embedded(item)?.get(1)?, &mut Vec::new())?;
                Some(below(EMBED, kind.params(SHOWN)))
            }),
        },
        Chapter {
            title: "Outputs",
            about: "What is said of the last state, after the layers that stand before it: `output rmsnorm |> …`.",
            pages: pages("an output", OUTPUTS.declarations(), |item| {
                let kind = OUTPUTS.read(last(item)?, &mut Vec::new())?;
                Some(below(OUTPUT, kind.params(SHOWN)))
            }),
        },
        Chapter {
            title: "Data sources",
            about: "What a model is trained on, said by the train block: `data text(…)`.",
            pages: pages("a data source", SOURCES.declarations(), |_| None),
        },
        Chapter {
            title: "Optimisers",
            about: OPTIMISERS,
            pages: (OptimizerKind::all().into_iter())
                .map(|mut o| {
                    let kept = kept(o.get());
                    chosen("an optimiser", &mut o, kept)
                })
                .collect(),
        },
        Chapter {
            title: "Schedules",
            about: SCHEDULES,
            pages: (ScheduleKind::all().into_iter())
                .map(|mut s| chosen("a schedule", &mut s, None))
                .collect(),
        },
    ]
}

const OPTIMISERS: &str = "How a step changes the parameters, said by the train block: `optimizer adamw(…)`. In formulas p is a number of a parameter, g its gradient, clipped where `clip`
says so, α the rate of the step, t the number of the step from 1. Vectors and scalars do not decay: λ is 0 for them. What is kept starts at 0, and is in the checkpoint under the
parameter's path behind `moment1.` and `moment2.`, in this order. A step whose gradient is not finite changes nothing.";

const SCHEDULES: &str = "The factor that the optimiser's `lr` is multiplied by at step t, counted from 1: `schedule cosine(…)`. After the warm-up u goes from 0 to 1 over the steps that are
left. With `--time-limit` what counts is the larger of the steps made and the share of the time that has passed.";

/// The page of an optimiser or a schedule.
fn chosen<C: Choices>(kind: &'static str, of: &mut C, kept: Option<String>) -> Page {
    let c = of.get_mut();
    Page {
        name: c.name().into(),
        kind,
        about: c.about(),
        arguments: choice_lines(c),
        examples: c.examples().to_vec(),
        parameters: vec![],
        alone: None,
        kept,
    }
}

/// What an optimiser keeps, as its last example says it.
fn kept(o: &dyn Optimizer) -> Option<String> {
    let last = settings::example(o.examples().last()?.text)?;
    Some(match last.states() {
        [] => "Nothing is kept beside a parameter.".into(),
        states => format!("Kept beside each parameter: {}.", states.join("; ")),
    })
}

/// `params`: the parameters of what a line of a model says.
fn pages(
    kind: &'static str,
    of: impl Iterator<Item = &'static Declaration>,
    params: fn(&ModelItem) -> Option<Vec<LayerParam>>,
) -> Vec<Page> {
    let page = |d: &'static Declaration| {
        let first = d.examples.first().and_then(|e| item(e.text));
        let params = first.and_then(|item| params(&item)).unwrap_or_default();
        Page {
            name: d.name.into(),
            kind,
            about: d.about,
            arguments: lines(d.arguments),
            examples: d.examples.to_vec(),
            parameters: params.iter().map(line).collect(),
            alone: None,
            kept: None,
        }
    };
    of.map(page).collect()
}

/// A line of a model.
fn item(text: &str) -> Option<ModelItem> {
    let (file, _) = odec_grammar::parse(0, &format!("model m {{\n{text}\n}}\n"));
    file.items.into_iter().find_map(|item| match item {
        Item::Model(m) => m.items.into_iter().next(),
        _ => None,
    })
}

/// What is embedded in examples: the first example of the first input.
fn shown_input() -> Option<Rc<dyn Input>> {
    let first = INPUTS.declarations().next()?;
    match item(first.examples.first()?.text)? {
        ModelItem::Input { value, .. } => INPUTS.read(&value, &mut Vec::new()),
        _ => None,
    }
}

fn embedded(item: &ModelItem) -> Option<&[Expr]> {
    match item {
        ModelItem::Embed { values, .. } => Some(values),
        _ => None,
    }
}

fn last(item: &ModelItem) -> Option<&Expr> {
    match item {
        ModelItem::Output { value, .. } => Some(match &value.kind {
            ExprKind::Pipe(_, last) => last,
            _ => value,
        }),
        _ => None,
    }
}

fn below(end: &str, params: Vec<LayerParam>) -> Vec<LayerParam> {
    let below = |p: LayerParam| LayerParam {
        path: format!("{end}.{}", p.path),
        ..p
    };
    params.into_iter().map(below).collect()
}

/// Those that must be given first; arguments of words after the word that they belong to.
fn lines(arguments: &[Argument]) -> Vec<ArgumentLine> {
    let needed = |a: &&Argument| a.silent == Silent::Needed;
    let sorted = arguments.iter().filter(needed);
    let sorted = sorted.chain(arguments.iter().filter(|a| !needed(a)));
    let mut lines = Vec::new();
    for a in sorted {
        lines.push(a.line(a.name.into()));
        if let Form::Options(inside) = a.form {
            let inner = |i: &Argument| i.line(format!("{}({}: …)", a.name, i.name));
            lines.extend(inside.iter().map(inner));
        }
    }
    lines
}

impl Argument {
    fn line(&self, name: String) -> ArgumentLine {
        ArgumentLine {
            name,
            form: self.form_in_words(),
            default: self.default_in_words(),
            meaning: self.meaning.into(),
        }
    }

    fn form_in_words(&self) -> String {
        let listed = |words: &[&str], last: &str| {
            let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
            words.join(last)
        };
        match self.form {
            Form::Flag => "a word that stands alone".into(),
            Form::Whole => "a whole number from 1".into(),
            Form::UnnamedWhole => "a whole number from 1, without a name".into(),
            Form::Number(bounds) => bounds.text(),
            Form::UnnamedNumber(bounds) => format!("{}, with or without the name", bounds.text()),
            Form::Word(words) => listed(words, " or "),
            Form::Options(_) => "a word that stands alone, or with arguments of its own".into(),
            Form::Some(of) => format!(
                "a word that stands alone, or a list of some of {}",
                listed(of, ", ")
            ),
            Form::Fields => "fields, separated by commas".into(),
            Form::Text => "something in quotes".into(),
            Form::WordOrPath(word) => format!("`{word}`, or a path in quotes"),
            Form::Paths => "paths in quotes, separated by commas".into(),
            Form::Percent(least, most) => format!("a whole percentage from {least}% to {most}%"),
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

/// A number as it would be written.
fn short(x: f64) -> String {
    match x == 0.0 || (1e-3..1e6).contains(&x) {
        true => format!("{x}"),
        false => format!("{x:e}"),
    }
}

/// The arguments of an optimiser or a schedule, with what is meant where nothing is said.
pub fn choice_lines(chosen: &mut (impl Choice + ?Sized)) -> Vec<ArgumentLine> {
    let mut lines = ChoiceLines(Vec::new());
    chosen.arguments(&mut lines);
    lines.0
}

struct ChoiceLines(Vec<ArgumentLine>);

impl ChoiceLines {
    fn add(&mut self, a: &choice::Argument, form: String, default: String) {
        self.0.push(ArgumentLine {
            name: a.name.into(),
            form,
            default: if a.needed { "needed".into() } else { default },
            meaning: a.meaning.into(),
        });
    }
}

impl Visitor for ChoiceLines {
    fn number(&mut self, a: &choice::Argument, bounds: Bounds, value: &mut f64) {
        self.add(a, bounds.text(), short(*value));
    }
    fn pair(&mut self, a: &choice::Argument, bounds: Bounds, (x, y): &mut (f64, f64)) {
        let form = format!("two numbers in parentheses, each {}", bounds.text());
        self.add(a, form, format!("({}, {})", short(*x), short(*y)));
    }
    fn steps(&mut self, a: &choice::Argument, value: &mut u64) {
        let form = "a number of steps (`200 steps`, `200`), or a share of the run's (`5%`, `0.05`)";
        self.add(a, form.into(), value.to_string());
    }
}

fn line(p: &LayerParam) -> ParameterLine {
    let start = match p.start {
        Start::Normal => "normal, with the model's deviation",
        Start::Ones => "1",
        Start::Zeros => "0",
    };
    ParameterLine {
        path: p.path.clone(),
        shape: p.shape.clone(),
        start: start.into(),
    }
}
