//! How states begin: what a model reads, and what is made of it before the first step.
//!
//! ```text
//! input source: tokens(vocab: 259, context: 128)     embed source: learned(width: 128)     evolve encoder: …
//! input tokens(vocab: 259, context: 128)             embed learned(width: 128)             evolve decoder: …
//! ```
//! An `embed` begins a state, which the evolves after it move. A model reads one sequence, or several: then all but one have labels, and the state that
//! the output reads is the last, of the input without one. Rows of all those with labels are as long as the longest of them. A sequence has one state
//! or several, each a stage with a width and, of images, a grid of its own: the first is made of the input, each of the others of the one before it, `embed conv(kernel: 3, stride: 2, width: 192)` between evolves.
//! Takes the lines of a model; says what does not go together.

use super::embeddings::{self, Embedding};
use super::inputs::{Ended, INPUTS, Input};
use super::layers::{CONDITION, Grid, Sizes};
use super::leading::{Conditions, LEADING, Leading, Told};
use super::marks::{MARKS, Marks};
use super::params::EMBED;
use super::part::{expect, incompatible};
use super::positions::{self, Positions};
use super::spec::{RESERVED, missing};
use crate::codes;
use crate::scheme::args::Args;
use crate::scheme::scalar::{name_of, not_supported, unknown_name};
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident, Model, ModelItem};
use odec_grammar::diag::Diagnostic;
use odec_graph::ops;
use odec_program::manifest::Pairs;
use odec_program::{Dim, names};
use std::rc::Rc;

/// A sequence that a model reads, and the states that are made of it.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Empty: the input without a label.
    pub label: String,
    pub input: Rc<dyn Input>,
    /// How the first state is made.
    pub embed: EmbedSpec,
    /// How many evolves stand before it.
    pub evolves_before: usize,
    /// Its states; the first is made of the input.
    pub stages: Vec<Stage>,
}

/// A state that some evolves move.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What it is made of: the input, or the state before it.
    pub of: Rc<dyn Input>,
    pub embed: EmbedSpec,
    /// How many evolves stand before it.
    pub evolves_before: usize,
    /// What the paths of its parameters begin with: `embed`, `source.embed`; of a later one `two.embed`, after the evolve that follows.
    pub path: String,
    pub sizes: Sizes,
}

impl Stage {
    fn new(of: Rc<dyn Input>, embed: EmbedSpec, evolves_before: usize, path: String) -> Stage {
        let leading = embed.leading_rows();
        let grid = embed.kind.grid(&*of).map(|grid| Grid { leading, ..grid });
        let tokens = match grid {
            Some(grid) => grid.sides.into_iter().product(),
            None => of.context(),
        };
        let sizes = Sizes {
            vocab: of.vocab(),
            context: tokens + leading,
            width: embed.kind.width(&*of),
            grid,
        };
        Stage {
            of,
            embed,
            evolves_before,
            path,
            sizes,
        }
    }

    /// Says what does not fit into what it is made of.
    fn fit(&self, sink: &mut Vec<Diagnostic>) {
        let EmbedSpec {
            kind,
            leading,
            condition,
            positions,
            marks,
            span,
            ..
        } = &self.embed;
        let before = sink.len();
        kind.fit(*span, &*self.of, sink);
        let fits = sink.len() == before;
        for leading in leading.iter().chain(condition) {
            leading.fit(*span, &*self.of, sink);
        }
        // Sizes and grid of a state that is not made are not known.
        if let Some(positions) = positions
            && fits
        {
            positions.fit(*span, self.sizes, sink);
        }
        if let Some(marks) = marks {
            marks.fit(*span, &*self.of, sink);
        }
    }
}

/// How the first state is made of the input.
#[derive(Clone, Debug)]
pub struct EmbedSpec {
    pub kind: Rc<dyn Embedding>,
    /// The label of the input whose embedding it shares, with all parameters.
    pub tied: Option<String>,
    /// Rows that stand before it, in this order.
    pub leading: Vec<Rc<dyn Leading>>,
    /// Rows that stand nowhere: fields read their sum.
    pub condition: Vec<Rc<dyn Leading>>,
    /// What is added to all of them.
    pub positions: Option<Rc<dyn Positions>>,
    /// What is added to each token by those before it.
    pub marks: Option<Rc<dyn Marks>>,
    pub span: Span,
}

impl EmbedSpec {
    /// Rows that stand before those of the input.
    pub fn leading_rows(&self) -> u64 {
        self.leading.iter().map(|l| l.count()).sum()
    }

    /// Whether there are rows that no output reads.
    pub fn has_registers(&self) -> bool {
        self.leading.iter().any(|l| l.told() == Told::Registers)
    }

    /// Whether the first row is a class token.
    pub fn has_class_token(&self) -> bool {
        let first = self.leading.first();
        first.is_some_and(|l| l.told() == Told::Nothing)
    }

    /// What is told of a row beside the input.
    pub fn told(&self) -> Conditions {
        let told = || self.leading.iter().chain(&self.condition).map(|l| l.told());
        let class = told().find_map(|t| match t {
            Told::Class {
                classes,
                dropped_percent,
            } => Some((classes, dropped_percent)),
            Told::Nothing | Told::Registers | Told::Time => None,
        });
        Conditions {
            time: told().any(|t| t == Told::Time),
            classes: class.map(|(classes, _)| classes),
            dropped_percent: class.map_or(0, |(_, dropped)| dropped),
            at: self.span,
        }
    }
}

impl Beginning {
    /// What the graphs are given. Of what a first convolution reads there is as much in every run; the source has a length of its own.
    pub fn value(&self) -> ops::Input {
        let mut value = self.input.value();
        let tokens = match (self.is_fixed(), self.label.is_empty()) {
            (true, _) => Dim::Fixed(self.input.context()),
            (false, true) => Dim::Seq,
            (false, false) => Dim::Source,
        };
        std::sync::Arc::make_mut(&mut value.ty.shape)[1] = tokens;
        match self.label.is_empty() {
            true => value,
            false => ops::Input {
                name: self.label.clone(),
                ..value
            },
        }
    }

    /// What the paths of its own parameters begin with: `embed`, `source.embed`.
    pub fn path(&self) -> String {
        below(&self.label)
    }

    /// What the paths of its embedding begin with.
    pub fn embedding_path(&self) -> String {
        below(self.embed.tied.as_ref().unwrap_or(&self.label))
    }

    /// Of its last state.
    pub fn sizes(&self) -> Sizes {
        let last = self.stages.last();
        last.map_or(Sizes::NONE, |stage| stage.sizes)
    }

    /// Whether its states stand on grids of as many tokens in every run.
    fn is_fixed(&self) -> bool {
        let grid = self.stages.first().and_then(|stage| stage.sizes.grid);
        grid.is_some_and(|grid| grid.fixed)
    }

    /// Rows that a run is given behind those of the input, in whose place come those that stand before it.
    pub fn empty_rows(&self) -> u64 {
        match self.is_fixed() {
            true => 0,
            false => self.embed.leading_rows(),
        }
    }

    /// The most rows that a run is given of each sequence.
    pub fn context(&self) -> u64 {
        self.input.context() + self.empty_rows()
    }
}

fn below(label: &str) -> String {
    match label.is_empty() {
        true => EMBED.to_string(),
        false => format!("{label}.{EMBED}"),
    }
}

/// An `input` or an `embed` as it is written.
#[derive(Clone, Copy, Debug)]
struct Line<'m> {
    label: Option<&'m Ident>,
    span: Span,
    values: &'m [Expr],
    /// How many evolves stand before it.
    evolves_before: usize,
}

impl Line<'_> {
    fn name(&self) -> &str {
        self.label.map_or("", |l| l.name.as_str())
    }

    /// Where it is said whose it is.
    fn place(&self) -> Span {
        self.label.map_or(self.span, |l| l.span)
    }
}

/// Reads the inputs of a model and how states are made of them, in the order of their evolves: the one without a label comes last.
pub fn read(model: &Model, sink: &mut Vec<Diagnostic>) -> Option<Vec<Beginning>> {
    let (mut inputs, mut embeds) = (Vec::new(), Vec::new());
    let mut later: Vec<Line> = Vec::new();
    let mut evolves_before = 0;
    for item in &model.items {
        match item {
            ModelItem::Input { label, value, span } => inputs.push(Line {
                label: label.as_ref(),
                span: *span,
                values: std::slice::from_ref(value),
                evolves_before,
            }),
            ModelItem::Embed {
                label,
                values,
                span,
            } => {
                let line = Line {
                    label: label.as_ref(),
                    span: *span,
                    values,
                    evolves_before,
                };
                let first = embeds.iter().all(|e: &Line| e.name() != line.name());
                let continues = values.first().is_some_and(embeddings::continues);
                match !first && continues {
                    true => later.push(line),
                    false => embeds.push(line),
                }
            }
            ModelItem::Evolve(_) => evolves_before += 1,
            ModelItem::Output { .. } | ModelItem::Init { .. } => {}
        }
    }
    let before = sink.len();
    let inputs = lines(model, "input", inputs, sink);
    let embeds = lines(model, "embed", embeds, sink);
    labels(model, &inputs, &embeds, sink);
    let kinds = inputs.iter().map(|i| INPUTS.read(&i.values[0], sink));
    let kinds: Vec<Option<Rc<dyn Input>>> = kinds.collect();
    let mut made: Vec<Beginning> = Vec::new();
    for line in &embeds {
        let embed = embedding(line, &made, sink);
        let input = inputs.iter().position(|i| i.name() == line.name());
        let input = input.and_then(|i| kinds[i].clone());
        made.extend(input.zip(embed).map(|(input, embed)| Beginning {
            label: line.name().to_string(),
            input,
            embed,
            evolves_before: line.evolves_before,
            stages: Vec::new(),
        }));
    }
    let stages: Vec<Option<EmbedSpec>> = later.iter().map(|l| embedding(l, &made, sink)).collect();
    if sink.len() > before {
        return None;
    }
    if later.is_empty()
        && let [one] = &mut made[..]
    {
        // One state needs no place among the evolves.
        one.evolves_before = 0;
    } else {
        let mut lines = [&embeds[..], &later].concat();
        lines.sort_by_key(|l| l.evolves_before);
        order(model, &lines, evolves_before, sink)?;
    }
    let stages: Vec<(&Line, EmbedSpec)> = later.iter().zip(stages.into_iter().flatten()).collect();
    for b in &mut made {
        let own = |s: &&(&Line, EmbedSpec)| s.0.name() == b.label;
        let own: Vec<_> = stages.iter().filter(own).collect();
        b.make_stages(model, &own);
        b.fit(sink);
    }
    // Without its grid, nothing is known of a state.
    let convolves = |l: &Line| l.values.first().is_some_and(embeddings::makes_grid);
    if sink.len() > before && (!later.is_empty() || embeds.iter().any(convolves)) {
        return None;
    }
    if made.len() > 1 {
        alike(&inputs, &made, sink)?;
    }
    Some(made)
}

impl Beginning {
    /// Says what does not fit into what it is made of; of a state that is made of one that does not fit, nothing.
    fn fit(&self, sink: &mut Vec<Diagnostic>) {
        let before = sink.len();
        let mut class_token: Option<Span> = None;
        for (number, stage) in self.stages.iter().enumerate() {
            let (span, fixed) = (stage.embed.span, stage.sizes.grid.is_some_and(|g| g.fixed));
            if number > 0 && self.input.vocab().is_some() {
                let d = not_supported(span, "a later stage of a model that reads tokens");
                sink.push(d.help("write evolves of one width, or another input"));
                return;
            }
            if number > 0 && !stage.embed.condition.is_empty() {
                let d = not_supported(span, "a condition of a later stage");
                sink.push(d.help("write it where the first state is made: its fields, and those of later stages, read it"));
                return;
            }
            stage.fit(sink);
            if stage.embed.has_class_token() {
                if let Some(first) = class_token.replace(span) {
                    let d = incompatible(span, "this model has a class token already");
                    sink.push(d.also(first, "the first one"));
                } else if number > 0 && !fixed {
                    let message = "a class token stands before the first state, or before a grid";
                    sink.push(incompatible(span, message));
                }
            }
            if sink.len() > before {
                return;
            }
        }
    }

    fn make_stages(&mut self, model: &Model, later: &[&(&Line, EmbedSpec)]) {
        let (of, embed) = (self.input.clone(), self.embed.clone());
        self.stages = vec![Stage::new(of, embed, self.evolves_before, self.path())];
        for (line, embed) in later {
            let ended = Ended {
                sizes: self.sizes(),
                unit: self.input.unit(),
            };
            let path = evolve_path(model, line.evolves_before);
            let stage = Stage::new(Rc::new(ended), embed.clone(), line.evolves_before, path);
            self.stages.push(stage);
        }
    }
}

/// What the parameters of a state are called that is made between evolves: after the one that follows.
fn evolve_path(model: &Model, evolves_before: usize) -> String {
    let mut evolves = model.items.iter().filter_map(|item| match item {
        ModelItem::Evolve(e) => Some(e),
        _ => None,
    });
    let label = evolves.nth(evolves_before).and_then(|e| e.label.as_ref());
    below(label.map_or("", |l| &l.name))
}

/// Those with labels of their own: one of them has none.
fn lines<'m>(
    model: &Model,
    word: &str,
    lines: Vec<Line<'m>>,
    sink: &mut Vec<Diagnostic>,
) -> Vec<Line<'m>> {
    let first = |i: usize| lines[..i].iter().find(|l| l.name() == lines[i].name());
    let again = (0..lines.len()).find_map(|i| Some((lines[i], first(i)?.span)));
    if let Some((line, first)) = again {
        let message = match line.label {
            None => format!("a model has one `{word}` without a label"),
            Some(l) => format!("two of `{word}` are called `{}`", l.name),
        };
        let d = Diagnostic::error(codes::REPEATED_ITEM, line.span, message);
        let d = d.label("a second one").also(first, "the first one");
        sink.push(match line.label {
            None => d.help(format!(
                "of several sequences all but the one that is predicted have labels: `{word} source: …`"
            )),
            Some(_) => d,
        });
    }
    let own = (0..lines.len()).filter(|i| first(*i).is_none());
    let lines: Vec<Line> = own.map(|i| lines[i]).collect();
    if lines.iter().all(|l| l.label.is_some()) {
        let example = match word {
            "input" => "input tokens(vocab: 256, context: 256)",
            _ => "embed learned(width: 256)",
        };
        sink.push(missing(model, word, example));
    }
    lines
}

/// Whose they are.
fn labels(model: &Model, inputs: &[Line], embeds: &[Line], sink: &mut Vec<Diagnostic>) {
    let evolves = model.items.iter().filter_map(|item| match item {
        ModelItem::Evolve(e) => e.label.as_ref(),
        _ => None,
    });
    let evolves: Vec<&Ident> = evolves.collect();
    for input in inputs {
        let Some(label) = input.label else { continue };
        let name = label.name.as_str();
        let own = evolves.iter().find(|e| e.name == name);
        if let Some(evolve) = own {
            let message = format!("`{name}` is the label of something else");
            let d = Diagnostic::error(codes::REPEATED_ITEM, evolve.span, message);
            sink.push(d.also(label.span, "the first one"));
        } else if names::INPUTS.contains(&name) || names::is_taken(name) || RESERVED.contains(&name)
        {
            let message = format!("an input is not called `{name}`");
            let d = Diagnostic::error(codes::RESERVED_WORD, label.span, message);
            let d = d.label("another part of a model has this name");
            sink.push(d.help("choose another label, for example `source`"));
        }
        if embeds.iter().all(|e| e.name() != label.name) {
            let message = format!("no state is made of the input `{}`", label.name);
            let d = Diagnostic::error(codes::MISSING_ITEM, input.span, message);
            sink.push(d.help(format!(
                "add, for example, `embed {}: learned(width: 256)`, and evolves after it",
                label.name
            )));
        }
    }
    for label in embeds.iter().filter_map(|e| e.label) {
        if inputs.iter().all(|i| i.name() != label.name) {
            let known = inputs.iter().filter_map(|i| i.label);
            let known = known.map(|l| l.name.as_str());
            let d = unknown_name(&label.name, label.span, known);
            sink.push(d.label("the label of an input is expected"));
        }
    }
}

/// Each state has evolves that move it, and the last is the one that the output reads.
fn order(model: &Model, embeds: &[Line], evolves: usize, sink: &mut Vec<Diagnostic>) -> Option<()> {
    let before = sink.len();
    let first = embeds.first()?;
    if first.evolves_before > 0 {
        let evolve = model.items.iter().find_map(|item| match item {
            ModelItem::Evolve(e) => Some(e.span),
            _ => None,
        });
        let message = "this evolve has no state to move";
        let d = Diagnostic::error(codes::MISPLACED, evolve?, message);
        sink.push(
            d.also(first.span, "the first state begins here")
                .help("in a model of several sequences, or of several stages, each `embed` stands before the evolves that move its state"),
        );
    }
    let ends = embeds[1..].iter().map(|e| e.evolves_before);
    for (line, end) in embeds.iter().zip(ends.chain([evolves])) {
        if line.evolves_before == end {
            let message = "no evolve moves this state";
            let d = Diagnostic::error(codes::MISSING_ITEM, line.span, message);
            sink.push(d.help("put its evolves between this line and the next `embed`"));
        }
    }
    let last = embeds.last()?;
    if let Some(label) = last.label {
        let message = format!("the output reads the state of `{}`", label.name);
        let d = Diagnostic::error(codes::MISPLACED, last.place(), message);
        sink.push(
            d.label("this is the last state")
                .help("put the `embed` without a label last: what its input holds is predicted"),
        );
    }
    (sink.len() == before).then_some(())
}

/// All sequences are of the same kinds of tokens, and as wide, and those with labels may be as long.
fn alike(inputs: &[Line], made: &[Beginning], sink: &mut Vec<Diagnostic>) -> Option<()> {
    let before = sink.len();
    let last = made.last()?;
    let (of, sizes) = (
        |b: &Beginning| inputs.iter().find(|i| i.name() == b.label),
        last.sizes(),
    );
    let place = |b: &Beginning| of(b).map_or(b.embed.span, |i| i.span);
    for b in made {
        if b.input.vocab().is_none() {
            let d = incompatible(place(b), "a model of several sequences reads tokens");
            sink.push(d.help("write `tokens(vocab: …, context: …)`"));
        }
    }
    for b in &made[..made.len() - 1] {
        let own = b.sizes();
        if let (Some(here), Some(there)) = (own.vocab, sizes.vocab)
            && here != there
        {
            let d = incompatible(place(last), "the sequences differ in `vocab`");
            sink.push(
                d.label(format!("{there} here"))
                    .also(place(b), format!("{here} here"))
                    .help("all are made of the same kinds of tokens, by one tokenizer"),
            );
        }
        if own.width != sizes.width {
            let message = "the two states differ in width";
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, last.embed.span, message);
            sink.push(
                d.label(format!("{} columns", sizes.width))
                    .also(b.embed.span, format!("{} columns", own.width)),
            );
        }
    }
    let sources = &made[..made.len() - 1];
    let other = |first: &&Beginning| sources.iter().find(|b| b.context() != first.context());
    if let Some((first, b)) = sources
        .first()
        .and_then(|first| Some((first, other(&first)?)))
    {
        let message = "two inputs with labels differ in `context`";
        let d = incompatible(place(b), message);
        sink.push(
            d.label(format!("{} here", b.context()))
                .also(place(first), format!("{} here", first.context()))
                .help("their rows are padded to the longest of them: give both the longer context"),
        );
    }
    if let Some(vocab) = sizes.vocab.filter(|n| *n <= Pairs::SPECIAL) {
        let message = format!("{vocab} kinds of tokens leave none for texts");
        let d = Diagnostic::error(codes::OUT_OF_RANGE, place(last), message);
        sink.push(d.help(
            "the last three stand for the beginning of a text, its end, and what fills up rows",
        ));
    }
    (sink.len() == before).then_some(())
}

/// `learned(width: 256), positions(learned)`: an embedding, and what is added to it; `tied(source)`: that of an input before.
fn embedding(line: &Line, made: &[Beginning], sink: &mut Vec<Diagnostic>) -> Option<EmbedSpec> {
    let Some(first) = line.values.first() else {
        let message = "this embedding is empty";
        sink.push(Diagnostic::error(
            codes::MISSING_ARGUMENT,
            line.span,
            message,
        ));
        return None;
    };
    let (kind, tied) = match shared(first) {
        true => {
            let of = tied(first, made, sink)?;
            (Some(of.embed.kind.clone()), Some(of.label.clone()))
        }
        false => (embeddings::read(first, sink), None),
    };
    let mut rest = &line.values[1..];
    let leads = |e: &Expr| Args::of(e).is_some_and(|a| LEADING.knows(&a.callee.name));
    let mut leading = Vec::new();
    while let [first, later @ ..] = rest
        && leads(first)
    {
        leading.push((LEADING.read(first, sink), first.span));
        rest = later;
    }
    let leading = rows(leading, sink)?;
    let (mut positions, mut marks) = (None, None);
    let (mut placed, mut marked) = (false, false);
    let mut told: Option<(Vec<Rc<dyn Leading>>, Span)> = None;
    for e in rest {
        if Args::of(e).is_some_and(|a| a.callee.name == CONDITION) {
            if let Some((_, first)) = &told {
                let message = "a model has one condition";
                let d = Diagnostic::error(codes::REPEATED_ITEM, e.span, message);
                sink.push(d.also(*first, "the first one"));
                return None;
            }
            told = Some((condition(e, &leading, sink)?, e.span));
            continue;
        }
        let marks_it = Args::of(e).is_some_and(|a| MARKS.knows(&a.callee.name));
        let seen = if marks_it { &mut marked } else { &mut placed };
        if std::mem::replace(seen, true) {
            let d = not_supported(e.span, "another part of this embedding");
            let example = if marked {
                MARKS.example
            } else {
                LEADING.example
            };
            sink.push(d.help(format!("write, for example, `{example}`")));
        } else if marks_it {
            marks = MARKS.read(e, sink);
        } else {
            positions = positions::read(e, sink);
        }
    }
    Some(EmbedSpec {
        kind: kind?,
        tied,
        leading,
        condition: told.map_or(Vec::new(), |(rows, _)| rows),
        positions,
        marks,
        span: line.span,
    })
}

/// `condition(time_token, label_token(classes: 10))`: rows that tell what no row before the input does.
fn condition(
    e: &Expr,
    before: &[Rc<dyn Leading>],
    sink: &mut Vec<Diagnostic>,
) -> Option<Vec<Rc<dyn Leading>>> {
    const EXAMPLE: &str = "condition(time_token, label_token(classes: 10))";
    let mut args = Args::of(e)?;
    let mut rows: Vec<Rc<dyn Leading>> = before.to_vec();
    while let Some(part) = args.positional() {
        let row = LEADING.read(part, sink)?;
        if matches!(row.told(), Told::Nothing | Told::Registers) {
            let name = row.part();
            let message = format!("`{name}` tells nothing of an input");
            let d = incompatible(part.span, &message);
            sink.push(d.help(format!("write `{EXAMPLE}`, and `{name}` before it")));
            return None;
        }
        let kind = |r: &Rc<dyn Leading>| std::mem::discriminant(&r.told());
        if rows.iter().any(|r| kind(r) == kind(&row)) {
            let message = "the model is told this already";
            sink.push(Diagnostic::error(codes::REPEATED_ITEM, part.span, message));
            return None;
        }
        rows.push(row);
    }
    let known = sink.len();
    args.finish(&[], sink);
    let own = rows.split_off(before.len());
    if own.is_empty() && sink.len() == known {
        let message = "`condition` needs rows that it is the sum of";
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, e.span, message);
        sink.push(d.help(format!("write `{EXAMPLE}`")));
    }
    (sink.len() == known).then_some(own)
}

/// Rows before the input, each told something else; a class token is the first of them.
fn rows(
    read: Vec<(Option<Rc<dyn Leading>>, Span)>,
    sink: &mut Vec<Diagnostic>,
) -> Option<Vec<Rc<dyn Leading>>> {
    let mut rows: Vec<(Rc<dyn Leading>, Span)> = Vec::new();
    for (row, span) in read {
        let row = row?;
        let kind = |r: &Rc<dyn Leading>| std::mem::discriminant(&r.told());
        if let Some((_, first)) = rows.iter().find(|(r, _)| kind(r) == kind(&row)) {
            let message = "a second row of this kind before the input";
            let d = Diagnostic::error(codes::REPEATED_ITEM, span, message);
            sink.push(d.also(*first, "the first one"));
            return None;
        }
        if let (Told::Nothing, Some((_, first))) = (row.told(), rows.first()) {
            let message = "the class token is not the first row";
            let d = Diagnostic::error(codes::MISPLACED, span, message);
            sink.push(d.also(*first, "put it before this one"));
            return None;
        }
        rows.push((row, span));
    }
    Some(rows.into_iter().map(|(row, _)| row).collect())
}

fn shared(e: &Expr) -> bool {
    let args = Args::of(e);
    args.is_some_and(|args| args.callee.name == TIED)
}

const TIED: &str = "tied";

/// The beginning whose embedding `tied(source)` means.
fn tied<'b>(e: &Expr, made: &'b [Beginning], sink: &mut Vec<Diagnostic>) -> Option<&'b Beginning> {
    const EXAMPLE: &str = "embed tied(source), positions(sinusoidal)";
    let mut args = expect(e, TIED, &[], EXAMPLE, sink)?;
    let of = args.positional().and_then(name_of);
    let before = sink.len();
    args.finish(&[], sink);
    if sink.len() > before {
        return None;
    }
    let found = of
        .as_ref()
        .and_then(|of| made.iter().find(|b| b.label == of.name));
    if found.is_none() {
        let message = "`tied` names an input that is embedded before this one";
        let d = Diagnostic::error(codes::UNKNOWN_NAME, e.span, message);
        sink.push(d.help(format!("write `{EXAMPLE}`")));
    }
    found
}
