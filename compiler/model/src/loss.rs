//! Reads and checks the loss: `cross_entropy + 1e-4*kinetic`.
//!
//! Takes the syntax, then the evolves that terms are about; gives an [`Objective`] with exact coefficients. Every term but `drift` is a number
//! for each token, averaged as the cross-entropy is. Evaluation knows nothing but cross-entropy, `mse` or `bce`, so that runs compare. Leaves what a
//! term is to `losses/`, the graph to `terms.rs`.

use super::args::Args;
use super::evolve::{EvolveSpec, Sharing};
use super::inputs::Unit;
use super::losses::{self, Along, Asked, Asks, Choice, Compared, LossTerm, Term, Written};
use super::outputs::Output;
use super::sources::Ends;
use super::step_count::{StepCount, positive};
use crate::codes;
use crate::scheme::StageInstr;
use crate::scheme::scalar::unknown_name;
use crate::scheme::work::Routing;
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::manifest::{Loss, Predicts, Times};
use odec_program::names;
use std::collections::BTreeMap;

/// The summands of a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objective {
    /// As they are written; none: plain cross-entropy.
    pub terms: Vec<Summand>,
}

/// A term and what it is multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct Summand {
    pub coefficient: Exact,
    pub term: Term,
    /// The label of the output that it compares; empty: that without one.
    pub of: String,
    pub span: Span,
    /// Where the label is said, or the term is.
    pub place: Span,
    /// How many tokens after the next one the output predicts.
    pub ahead: u64,
}

impl Summand {
    /// As metrics call it: `mse`, or of an output with a label `place.mse`.
    pub fn name(&self) -> String {
        names::of_output(&self.of, self.term.name())
    }

    fn definition(&self) -> String {
        let term = self.term.definition();
        match self.ahead {
            0 => term,
            1 => format!("{term}, the target a token after the next one"),
            n => format!("{term}, the target {n} tokens after the next one"),
        }
    }
}

impl Objective {
    /// Whether it is one mean and nothing else: what evaluation computes too.
    pub fn is_plain(&self) -> bool {
        match &self.terms[..] {
            [] => true,
            [one] => one.term.is_plain() && one.coefficient.is_one(),
            _ => false,
        }
    }

    /// The summand of this name.
    pub fn find(&self, name: &str) -> Option<&Term> {
        let mut terms = self.terms.iter().map(|s| &s.term);
        terms.find(|term| term.name() == name)
    }

    /// The sum, then each term and what it is for a token; nothing of plain cross-entropy.
    pub fn lines(&self, loss: Loss, unit: Unit) -> Vec<(String, String)> {
        if self.is_plain() {
            return Vec::new();
        }
        let weighed = |s: &Summand| match s.coefficient.is_one() {
            true => s.name(),
            false => format!("{} {}", s.coefficient, s.name()),
        };
        let sum: Vec<String> = self.terms.iter().map(weighed).collect();
        let over = loss.mean_over(unit.row(), unit.many());
        let all = (
            "loss".to_string(),
            format!("{}, the mean over {over}", sum.join(" + ")),
        );
        let each = self.terms.iter();
        let each = each.map(|s| (format!("  {}", s.name()), s.definition()));
        std::iter::once(all).chain(each).collect()
    }

    /// Whether a term compares the output without a label, as the loss does that is not written.
    pub fn compares_first(&self) -> bool {
        self.terms.is_empty() || self.asking("").is_some()
    }

    /// The term that asks for what the output with a label is to predict.
    fn asking(&self, label: &str) -> Option<(&Summand, &dyn Asks)> {
        let mut of_label = self.terms.iter().filter(|s| s.of == label);
        of_label.find_map(|s| Some((s, s.term.asks()?)))
    }

    /// Says which term compares something else than the output with this label gives.
    fn fit_kind(&self, label: &str, given: Loss, sink: &mut Vec<Diagnostic>) -> Option<()> {
        let compared = match given.predicts() {
            Predicts::Numbers => Compared::Numbers,
            Predicts::Tokens | Predicts::Class => Compared::Logits,
        };
        let other =
            |s: &&Summand| s.of == label && s.term.compares().is_some_and(|c| c != compared);
        if let Some(Summand { term, span, .. }) = self.terms.iter().find(other) {
            let (compares, why, help) = match compared {
                Compared::Numbers => (
                    "how likely tokens or classes are",
                    "this model gives numbers, which are compared with given ones",
                    "write `mse`, or `bce` where each number says how likely something is",
                ),
                Compared::Logits => (
                    "numbers with given ones",
                    "this model says how likely tokens or classes are",
                    "write `cross_entropy`, or `output linear(…)` and `data vectors(…)`",
                ),
            };
            let message = format!("`{}` compares {compares}", term.name());
            let d = Diagnostic::error(codes::INCOMPATIBLE, *span, message);
            sink.push(d.label(why).help(help));
            return None;
        }
        Some(())
    }

    /// What outputs with labels are to predict, by these; says which of them the loss has no term for, and which labels there are not.
    pub fn fit_others(&self, of: Of, sink: &mut Vec<Diagnostic>) -> Option<BTreeMap<String, Loss>> {
        let ends = of.ends;
        let before = sink.len();
        let labels = || ends.also.iter().map(|o| o.label.as_str());
        for s in self.terms.iter().filter(|s| !s.of.is_empty()) {
            if labels().all(|label| label != s.of) {
                let d = unknown_name(&s.of, s.place, labels());
                sink.push(d.label("the label of an output is expected"));
            }
        }
        let mut found = BTreeMap::new();
        for output in ends.also {
            let label = &output.label;
            let given = output.kind.says().loss();
            self.fit_kind(label, given, sink);
            let Some((s, asks)) = self.asking(label) else {
                let message = format!("no term of the loss compares the output `{label}`");
                let d = Diagnostic::error(codes::MISSING_ITEM, of.at, message);
                let term = given.measured();
                sink.push(
                    d.also(output.span, "this output")
                        .help(format!("add, for example, `+ 1/10*{term}(of: {label})`")),
                );
                continue;
            };
            let asked = of.asked(&*output.kind, given, s.span);
            found.extend(asks.loss(&asked, sink).map(|loss| (label.clone(), loss)));
        }
        (sink.len() == before).then_some(found)
    }

    /// What the model is to predict, by its output and the term that asks; says so where the two do not fit.
    pub fn fit_output(&self, of: Of, sink: &mut Vec<Diagnostic>) -> Option<Loss> {
        let ends = of.ends;
        let given = ends.asks();
        self.fit_kind("", given, sink)?;
        if self.times().is_none() && (ends.told.time || ends.told.classes.is_some()) {
            let message = "a row before the input reads what is between noise and data";
            let d = Diagnostic::error(codes::INCOMPATIBLE, ends.told.at, message);
            let label = "no data source gives that to a model that is trained for something else";
            sink.push(d.label(label).help("write `loss velocity`"));
            return None;
        }
        match self.asking("") {
            Some((s, asks)) => asks.loss(&of.asked(ends.output, given, s.span), sink),
            None => Some(given),
        }
    }

    /// The law of times, where points between noise and data are what the model reads.
    pub fn times(&self) -> Option<Times> {
        self.terms.iter().find_map(|s| s.term.asks()?.times())
    }

    /// Says which terms an evolve has no meaning for.
    pub fn fit(&self, evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
        let evolves: Vec<&dyn Along> = evolves.iter().map(|e| e as &dyn Along).collect();
        for s in &self.terms {
            s.term.fit(s.span, &evolves, sink);
        }
        let threshold = evolves.iter().find_map(|e| e.threshold());
        if let Some(span) = threshold.filter(|_| self.find(Choice::NAME).is_none()) {
            let message =
                "nothing in the loss keeps scores of tokens that take a step above this threshold";
            let d = Diagnostic::error(codes::MISSING_ITEM, span, message);
            sink.push(d.help(
                "add `choice` to the loss, for example `loss cross_entropy + 1/1000*choice`",
            ));
        }
    }
}

impl Along for EvolveSpec {
    fn span(&self) -> Span {
        self.span
    }

    fn learned_h(&self) -> Option<Span> {
        self.learn_h.as_ref().map(|l| l.span)
    }

    fn goes_forward(&self) -> bool {
        let chosen = matches!(self.depth, StepCount::Adaptive(_));
        chosen || self.h.iter().all(|h| *h > Exact::zero())
    }

    fn solves(&self) -> bool {
        let mut all = self.unrolled.programs.iter().flat_map(|p| &p.instrs);
        all.any(|i| matches!(i, StageInstr::Solution { .. }))
    }

    fn halts(&self) -> bool {
        matches!(self.depth, StepCount::Halting(_))
    }

    fn routes_steps(&self) -> bool {
        self.routing() == Some(&Routing::Tokens)
    }

    fn steps_choose(&self) -> bool {
        self.step_capacities().is_some()
    }

    fn leaves_tokens_out(&self) -> bool {
        EvolveSpec::leaves_tokens_out(self)
    }

    fn threshold(&self) -> Option<Span> {
        EvolveSpec::threshold(self)
    }

    fn finds_weights(&self) -> bool {
        let time_dependent = |s: &Sharing| matches!(s, Sharing::TimeDependent(_));
        self.depth != StepCount::Known && self.policies.iter().flatten().any(time_dependent)
    }

    fn drifts(&self) -> bool {
        EvolveSpec::drifts(self)
    }

    fn iterates(&self) -> bool {
        let mut all = self.unrolled.programs.iter().flat_map(|p| &p.instrs);
        all.any(|i| matches!(i, StageInstr::Mix { .. } | StageInstr::Solution { .. }))
    }

    fn has_experts(&self) -> bool {
        self.all_layers().any(|l| l.reads().routes)
    }
}

/// What a loss is fitted to.
#[derive(Clone, Copy)]
pub struct Of<'m> {
    pub ends: Ends<'m>,
    /// How many kinds of tokens the data gives, where that is known.
    pub kinds: Option<u64>,
    /// The whole loss, or where it is missing.
    pub at: Span,
}

impl<'m> Of<'m> {
    fn asked(self, output: &dyn Output, given: Loss, term: Span) -> Asked<'m> {
        Asked {
            given,
            targets: output.targets(self.ends.sizes).ty,
            input: self.ends.input,
            separator: self.ends.separator,
            reads_time: self.ends.told.time,
            kinds: self.kinds,
            term,
            all: self.at,
        }
    }
}

/// Reads a loss.
pub fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Objective> {
    let before = sink.len();
    let mut objective = Objective::default();
    for summand in summands(e, sink)? {
        let (coefficient, named) = weighed(summand, sink)?;
        let Written { term, of } = losses::read(named, sink)?;
        let place = of.as_ref().map_or(named.span, |label| label.span);
        let of = of.map_or(String::new(), |label| label.name);
        let same = |s: &&Summand| {
            let both_ask = s.term.asks().is_some() && term.asks().is_some();
            s.of == of && (s.term.name() == term.name() || both_ask)
        };
        if let Some(first) = objective.terms.iter().find(same) {
            let message = match first.term.name() == term.name() {
                true => format!("`{}` is added twice", term.name()),
                false => format!("`{}` beside `{}`", term.name(), first.term.name()),
            };
            let d = Diagnostic::error(codes::REPEATED_ITEM, named.span, message);
            sink.push(d.also(first.span, "the first one"));
            return None;
        }
        objective.terms.push(Summand {
            coefficient,
            term,
            of,
            span: named.span,
            place,
            ahead: 0,
        });
    }
    let asks = |s: &Summand| s.term.asks().is_some();
    if !objective.terms.iter().any(asks) && sink.len() == before {
        let message = "this loss does not depend on what is to be predicted";
        sink.push(
            Diagnostic::error(codes::MISSING_ITEM, e.span, message)
                .label("it has no cross-entropy")
                .help("write, for example, `cross_entropy + 1e-4*kinetic`"),
        );
    }
    (sink.len() == before).then_some(objective)
}

/// What is added, as it is written.
fn summands<'e>(e: &'e Expr, sink: &mut Vec<Diagnostic>) -> Option<Vec<&'e Expr>> {
    let (mut found, mut rest) = (Vec::new(), vec![e]);
    while let Some(e) = rest.pop() {
        match &e.kind {
            ExprKind::Binary(BinOp::Add, a, b) => rest.extend([&**b, &**a]),
            ExprKind::Binary(BinOp::Sub, _, _) | ExprKind::Neg(_) => {
                let message = "a loss is a sum without minus signs";
                let d = Diagnostic::error(codes::INVALID_VALUE, e.span, message);
                sink.push(d.label("a sum of terms is expected"));
                return None;
            }
            _ => found.push(e),
        }
    }
    Some(found)
}

/// A coefficient, 1 where none is written, and a term.
fn weighed<'e>(e: &'e Expr, sink: &mut Vec<Diagnostic>) -> Option<(Exact, &'e Expr)> {
    let ExprKind::Binary(BinOp::Mul, a, b) = &e.kind else {
        return Some((Exact::one(), e));
    };
    let is_term = |e: &Expr| Args::of(e).is_some();
    let (coefficient, term) = match (is_term(a), is_term(b)) {
        (true, false) => (b, a),
        _ => (a, b),
    };
    Some((positive(coefficient, sink)?, term))
}
