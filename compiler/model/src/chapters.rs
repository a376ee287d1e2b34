//! What the documentation says of all parts that are not layers, place by place: inputs, embeddings, positions, outputs, data sources,
//! terms of a loss, optimisers, schedules.

use super::alone::SHOWN;
use super::embeddings::{EMBEDDINGS, Embedding};
use super::inputs::{INPUTS, Input};
use super::layers::LayerParam;
use super::leading::LEADING;
use super::losses::TERMS;
use super::marks::MARKS;
use super::outputs::{OUTPUT, OUTPUTS};
use super::page::{ArgumentLine, Page, line, lines, short};
use super::params::EMBED;
use super::part::Declaration;
use super::positions::{self, POSITIONS};
use super::settings;
use super::sources::SOURCES;
use odec_grammar::ast::{Expr, ExprKind, Item, ModelItem};
use odec_program::bounds::Bounds;
use odec_program::choice::{self, Choice, Choices, Visitor};
use odec_program::optimizers::{Optimizer, OptimizerKind, Way};
use odec_program::schedules::ScheduleKind;
use std::rc::Rc;

/// The parts that stand at one place of a model or of a train block.
pub struct Chapter {
    pub title: &'static str,
    pub about: &'static str,
    pub pages: Vec<Page>,
}

/// All parts that are not layers, place by place.
pub fn chapters() -> Vec<Chapter> {
    vec![
        Chapter {
            title: "Inputs",
            about: "What a model reads: `input tokens(…)`, `input patches(…)`. A model of several sequences reads `input source: tokens(…)` as well, or inputs with other labels.",
            pages: pages("an input", INPUTS.declarations(), |_| None),
        },
        Chapter {
            title: "Embeddings",
            about: "The first state, made of the input: `embed learned(…)`; of another sequence, `embed source: learned(…)`. `embed tied(source)` shares its parameters.",
            pages: pages("an embedding", EMBEDDINGS.declarations(), |item| {
                let kind = EMBEDDINGS.read(embedded(item)?.first()?, &mut Vec::new())?;
                Some(below(EMBED, kind.params(&*shown_input(&*kind)?)))
            }),
        },
        Chapter {
            title: "Rows before the input",
            about: "Rows that are learned and stand before those of the input: `embed …, class_token`. All fields see them.",
            pages: pages("a row before the input", LEADING.declarations(), |item| {
                let kind = LEADING.read(embedded(item)?.get(1)?, &mut Vec::new())?;
                Some(below(EMBED, kind.params(SHOWN.width)))
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
            title: "Segments",
            about: "Rows that are added to the embedding by the tokens before: `embed …, positions(…), segments(…)`.",
            pages: pages("marks of tokens", MARKS.declarations(), |item| {
                let kind = MARKS.read(embedded(item)?.get(2)?, &mut Vec::new())?;
                Some(below(EMBED, kind.params(SHOWN.width)))
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
            title: "Loss terms",
            about: LOSSES,
            pages: pages("a term of a loss", TERMS.declarations(), |_| None),
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

const LOSSES: &str = "What is minimised, said by the train block: `loss smooth(10%) + 1e-4*z_loss`. A loss is a sum of a term for each output that asks for what it is to predict (`cross_entropy`,
`smooth`, `masked`; `velocity`; of numbers `mse`, `bce`) and of others, with exact positive coefficients. A formula is of one token (of one image or sequence where the output says one thing of it),
and its mean is added, unless the page says otherwise. Evaluation computes `cross_entropy`, `mse`, `bce` or `velocity` alone, so that runs compare. `odec check` prints what each term is.";

const OPTIMISERS: &str = "How a step changes the parameters, said by the train block: `optimizer adamw(…)`. In formulas p is a number of a parameter, g its gradient, clipped where `clip`
says so, α the rate of the step, t the number of the step from 1. Vectors and scalars do not decay: λ is 0 for them. What is kept starts at 0, and is in the checkpoint under the
parameter's path behind `moment1.` and `moment2.`, in this order. A step whose gradient is not finite changes nothing.";

const SCHEDULES: &str = "The factor that the optimiser's `lr` is multiplied by at step t, counted from 1: `schedule cosine(…)`. After the warm-up u goes from 0 to 1 over the steps that are
left. With `--time-limit` what counts is the larger of the steps made and the share of the time that has passed.";

/// The page of an optimiser or a schedule.
fn chosen<C: Choices>(kind: &'static str, of: &mut C, kept: Option<String>) -> Page {
    let c = of.get_mut();
    let mut page = Page::of(c.name(), kind, &c.about(), c.examples());
    page.arguments = choice_lines(c);
    page.notes.splice(0..0, kept);
    page
}

/// What an optimiser keeps, as its last example says it.
fn kept(o: &dyn Optimizer) -> Option<String> {
    let last = settings::example(o.examples().last()?.text)?;
    let beside = match last.way() {
        Way::Numbers(_) => Vec::new(),
        Way::Wholes(whole) => whole.beside([1, 1]),
    };
    // What is kept of whole matrices, its page says.
    if !beside.is_empty() {
        return None;
    }
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
            arguments: lines(d.arguments),
            parameters: params.iter().map(line).collect(),
            ..Page::of(d.name, kind, &d.about, d.examples)
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

/// What is embedded in examples: the first example of the first input that fits.
fn shown_input(kind: &dyn Embedding) -> Option<Rc<dyn Input>> {
    let first = |d: &Declaration| match item(d.examples.first()?.text)? {
        ModelItem::Input { value, span, .. } => {
            let input = INPUTS.read(&value, &mut Vec::new())?;
            let mut wrong = Vec::new();
            kind.fit(span, &*input, &mut wrong);
            wrong.is_empty().then_some(input)
        }
        _ => None,
    };
    INPUTS.declarations().find_map(first)
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
    fn word(
        &mut self,
        a: &choice::Argument,
        words: &'static [&'static str],
        value: &mut &'static str,
    ) {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        self.add(a, words.join(" or "), value.to_string());
    }
}
