//! Reads and checks the loss: `cross_entropy + 1e-4*kinetic`.
//!
//! Takes the syntax, then the evolves that terms are about; gives an [`Objective`] with exact coefficients. Every term but `drift` is a number
//! for each token, averaged as the cross-entropy is. Evaluation knows nothing but cross-entropy, `mse` or `bce`, so that runs compare. Leaves what a
//! term is to `losses/`, the graph to `terms.rs`.

use super::args::Args;
use super::evolve::{EvolveSpec, Sharing};
use super::inputs::Unit;
use super::losses::{self, Along, Choice, Compared, LossTerm, Term, Velocity};
use super::sources::Ends;
use super::step_count::{StepCount, positive};
use crate::codes;
use crate::scheme::Instr;
use crate::scheme::work::Routing;
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::manifest::{Loss, Times};

/// The summands of a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objective {
    /// As they are written, with their coefficients; none: plain cross-entropy.
    pub terms: Vec<(Exact, Term, Span)>,
}

impl Objective {
    /// Whether it is one mean and nothing else: what evaluation computes too.
    pub fn is_plain(&self) -> bool {
        match &self.terms[..] {
            [] => true,
            [(c, term, _)] => term.is_plain() && c.is_one(),
            _ => false,
        }
    }

    /// The summand of this name.
    pub fn find(&self, name: &str) -> Option<&Term> {
        let mut terms = self.terms.iter().map(|(_, term, _)| term);
        terms.find(|term| term.name() == name)
    }

    /// The sum, then each term and what it is for a token; nothing of plain cross-entropy.
    pub fn lines(&self, loss: Loss, unit: Unit) -> Vec<(String, String)> {
        if self.is_plain() {
            return Vec::new();
        }
        let weighed = |(c, t, _): &(Exact, Term, Span)| match c.is_one() {
            true => t.name().to_string(),
            false => format!("{c} {}", t.name()),
        };
        let sum: Vec<String> = self.terms.iter().map(weighed).collect();
        let over = match loss {
            Loss::Next => "the mean over target tokens".to_string(),
            Loss::Masked { .. } => "the mean over hidden tokens".to_string(),
            Loss::Class => format!(
                "the mean over {}s, or over their {}",
                unit.row(),
                unit.many()
            ),
            Loss::Mse | Loss::Bce => "the mean over sequences, or over their positions".to_string(),
            Loss::Velocity => format!("the mean over {} or states", unit.many()),
            Loss::Pairs { .. } => "the mean over target tokens that are not padding".to_string(),
        };
        let all = ("loss".to_string(), format!("{}, {over}", sum.join(" + ")));
        let each = self.terms.iter();
        let each = each.map(|(_, t, _)| (format!("  {}", t.name()), t.definition()));
        std::iter::once(all).chain(each).collect()
    }

    /// What the model is to predict, by its output and the term that asks; says so where the two do not fit.
    pub fn fit_output(&self, asked: Loss, ends: Ends, sink: &mut Vec<Diagnostic>) -> Option<Loss> {
        let given = ends.asks();
        let compared = match given {
            Loss::Mse | Loss::Bce | Loss::Velocity => Compared::Numbers,
            Loss::Next | Loss::Masked { .. } | Loss::Class | Loss::Pairs { .. } => Compared::Logits,
        };
        let other = |t: &Term| t.compares().is_some_and(|c| c != compared);
        if let Some((_, term, span)) = self.terms.iter().find(|(_, t, _)| other(t)) {
            let (compares, label, help) = match compared {
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
            sink.push(d.label(label).help(help));
            return None;
        }
        match (asked, given) {
            (Loss::Velocity, _) => self.fit_velocity(ends, sink),
            _ if ends.told.time || ends.told.classes.is_some() => {
                let message = "a row before the input reads what is between noise and data";
                let d = Diagnostic::error(codes::INCOMPATIBLE, ends.told.at, message);
                let label =
                    "no data source gives that to a model that is trained for something else";
                sink.push(d.label(label).help("write `loss velocity`"));
                None
            }
            (Loss::Masked { .. }, told @ (Loss::Class | Loss::Pairs { .. })) => {
                let asking = self.terms.iter().find(|(_, term, _)| term.asks());
                let (_, term, span) = asking?;
                let message = format!("`{}` asks for tokens that are hidden", term.name());
                let d = Diagnostic::error(codes::INCOMPATIBLE, *span, message);
                let d = d.label(match told {
                    Loss::Class => "this model says a class",
                    _ => "this model makes a second text of a first one",
                });
                sink.push(d.help("write `cross_entropy`"));
                None
            }
            (Loss::Masked { .. } | Loss::Mse | Loss::Bce, _) => Some(asked),
            (Loss::Next | Loss::Class | Loss::Pairs { .. }, _) => Some(given),
        }
    }

    /// The law of times, where points between noise and data are what the model reads.
    pub fn times(&self) -> Option<Times> {
        match self.find(Velocity::NAME) {
            Some(Term::Velocity(v)) => Some(v.0.times),
            _ => None,
        }
    }

    /// Says why the result is no velocity of the input.
    fn fit_velocity(&self, ends: Ends, sink: &mut Vec<Diagnostic>) -> Option<Loss> {
        let asking = self.terms.iter().find(|(_, term, _)| term.asks());
        let (_, _, span) = asking?;
        let (moves, unit) = (ends.input.value().ty, ends.input.unit());
        let given = ends.output.targets(ends.sizes).ty;
        let (message, help) = if ends.input.image().is_none() {
            let what = format!(
                "`velocity` moves from noise to images, and this model reads {}",
                unit.many()
            );
            (
                what,
                "write `input patches(image: 28, patch: 4)`".to_string(),
            )
        } else if !ends.told.time {
            let what = "`velocity` depends on the time, which this model does not read".to_string();
            (
                what,
                "write `embed linear(width: …), time_token, positions(learned)`".to_string(),
            )
        } else if given != moves {
            let what = format!(
                "a velocity has {} numbers at each of the {}",
                moves.cols(),
                unit.many()
            );
            (
                what,
                format!("write `output … |> linear({})`", moves.cols()),
            )
        } else {
            return Some(Loss::Velocity);
        };
        sink.push(Diagnostic::error(codes::INCOMPATIBLE, *span, message).help(help));
        None
    }

    /// Says which terms an evolve has no meaning for.
    pub fn fit(&self, evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
        let evolves: Vec<&dyn Along> = evolves.iter().map(|e| e as &dyn Along).collect();
        for (_, term, span) in &self.terms {
            term.fit(*span, &evolves, sink);
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
        all.any(|i| matches!(i, Instr::Solution { .. }))
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
        all.any(|i| matches!(i, Instr::Mix { .. } | Instr::Solution { .. }))
    }

    fn has_experts(&self) -> bool {
        self.all_layers().any(|l| l.reads().routes)
    }
}

/// Reads a loss; the last kind of token is the mask.
pub fn read(e: &Expr, vocab: u64, sink: &mut Vec<Diagnostic>) -> Option<(Loss, Objective)> {
    let before = sink.len();
    let mut objective = Objective::default();
    let mut loss = None;
    for summand in summands(e, sink)? {
        let (coefficient, named) = weighed(summand, sink)?;
        let (term, asks) = losses::read(named, vocab, sink)?;
        let same =
            |(_, t, _): &&(Exact, Term, Span)| t.name() == term.name() || t.asks() && term.asks();
        if let Some((_, t, first)) = objective.terms.iter().find(same) {
            let message = match t.name() == term.name() {
                true => format!("`{}` is added twice", term.name()),
                false => format!("`{}` beside `{}`", term.name(), t.name()),
            };
            let d = Diagnostic::error(codes::REPEATED_ITEM, named.span, message);
            sink.push(d.also(*first, "the first one"));
            return None;
        }
        loss = loss.or(asks);
        objective.terms.push((coefficient, term, named.span));
    }
    if loss.is_none() && sink.len() == before {
        let message = "this loss does not depend on what is to be predicted";
        sink.push(
            Diagnostic::error(codes::MISSING_ITEM, e.span, message)
                .label("it has no cross-entropy")
                .help("write, for example, `cross_entropy + 1e-4*kinetic`"),
        );
    }
    (sink.len() == before).then_some((loss?, objective))
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
