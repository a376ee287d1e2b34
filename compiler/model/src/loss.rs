//! What a model is trained for: `cross_entropy + 1e-4*kinetic`, read and judged.
//!
//! Takes the syntax, then the evolves that terms are about; gives an [`Objective`] with exact coefficients. Every term but `drift` is a number
//! for each token, averaged as the cross-entropy is. Evaluation knows nothing but cross-entropy, so that runs compare. Leaves the
//! graph to `terms.rs`.

use super::args::{Args, Bounds, real, report};
use super::depth::{Depth, positive};
use super::evolve::{EvolveSpec, Sharing};
use crate::codes;
use crate::scheme::Instr;
use crate::scheme::scalar::{Scope, exact, not_supported, unknown_name};
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::manifest::Loss;

/// One summand, by what it is for each token.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    CrossEntropy,
    /// Cross-entropy to targets of which a part is spread over all tokens.
    Smooth(Exact),
    /// Cross-entropy of hidden tokens.
    Masked,
    ZLoss,
    Kinetic,
    Jacobian,
    Drift,
    Ponder,
}

/// The words of the language that this version has no meaning for, and why.
const LATER: [(&str, &str); 1] = [(
    "mse",
    "the models of this version predict tokens: there is no number to be near to",
)];

/// The summands of a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objective {
    /// As they are written, with their coefficients; none: plain cross-entropy.
    pub terms: Vec<(Exact, Term, Span)>,
}

impl Term {
    /// As it is written, and as metrics call it.
    pub fn name(&self) -> &'static str {
        match self {
            Term::CrossEntropy => "cross_entropy",
            Term::Smooth(_) => "smooth",
            Term::Masked => "masked",
            Term::ZLoss => "z_loss",
            Term::Kinetic => "kinetic",
            Term::Jacobian => "jacobian",
            Term::Drift => "drift",
            Term::Ponder => "ponder",
        }
    }

    /// Whether it asks for tokens; the others are added to one that does.
    pub fn asks(&self) -> bool {
        matches!(self, Term::CrossEntropy | Term::Smooth(_) | Term::Masked)
    }

    /// Whether it is one number, and not one for each token.
    pub fn is_of_weights(&self) -> bool {
        matches!(self, Term::Drift)
    }

    /// What it is, for each token unless it is of weights alone.
    pub fn definition(&self) -> String {
        match self {
            Term::CrossEntropy | Term::Masked => "−log p(target)".into(),
            Term::Smooth(eps) => format!("−Σ q log p, q = 1 − {eps} at the target + {eps}/vocab"),
            Term::ZLoss => "(log Σ exp logits)²".into(),
            Term::Kinetic => "1/(2 width) Σ over steps ‖x' − x‖²/h".into(),
            Term::Ponder => "the steps that it makes, and the weight of the last one".into(),
            Term::Jacobian => {
                "1/width Σ over solves ‖(E(z + δsε) − E(z − δsε))/(2δs)‖², δ = 1/64, s = √(mean z² + 10⁻⁸), ε = ±1 at random"
                    .into()
            }
            Term::Drift => "Σ over steps ‖θ(k + 1) − θ(k)‖², θ(k) the weights of step k".into(),
        }
    }
}

impl Objective {
    /// Whether it is one mean and nothing else: what evaluation computes too.
    pub fn is_plain(&self) -> bool {
        match &self.terms[..] {
            [] => true,
            [(c, Term::CrossEntropy | Term::Masked, _)] => c.is_one(),
            _ => false,
        }
    }

    /// Whether a term is among its summands.
    pub fn has(&self, term: &Term) -> bool {
        self.terms.iter().any(|(_, t, _)| t == term)
    }

    /// The sum, then each term and what it is for a token; nothing of plain cross-entropy.
    pub fn lines(&self, loss: Loss) -> Vec<(String, String)> {
        if self.is_plain() {
            return Vec::new();
        }
        let weighed = |(c, t, _): &(Exact, Term, Span)| match c.is_one() {
            true => t.name().to_string(),
            false => format!("{c} {}", t.name()),
        };
        let sum: Vec<String> = self.terms.iter().map(weighed).collect();
        let over = match loss {
            Loss::Next => "the mean over target tokens",
            Loss::Masked { .. } => "the mean over hidden tokens",
        };
        let all = ("loss".to_string(), format!("{}, {over}", sum.join(" + ")));
        let each = self.terms.iter();
        let each = each.map(|(_, t, _)| (format!("  {}", t.name()), t.definition()));
        std::iter::once(all).chain(each).collect()
    }

    /// Says which terms an evolve has no meaning for.
    pub fn fit(&self, evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
        for (_, term, span) in &self.terms {
            match term {
                Term::Kinetic => {
                    for e in evolves {
                        let no = |message: &str, help: &str| {
                            let d = Diagnostic::error(codes::TYPE_MISMATCH, *span, message);
                            d.also(e.span, "these steps").help(help)
                        };
                        let chosen = matches!(e.depth, Depth::Adaptive(_));
                        if let Some(l) = &e.learn_h {
                            let message = "`kinetic` divides by the step size, and a learned one may become 0";
                            let d = Diagnostic::error(codes::TYPE_MISMATCH, *span, message);
                            sink.push(d.also(l.span, "learned here").help("write `h = 1/steps`"));
                        } else if !chosen && e.h.iter().any(|h| *h <= Exact::zero()) {
                            let message = "`kinetic` needs steps that go forward in time";
                            sink.push(no(message, "write `h = 1/steps`"));
                        }
                    }
                }
                Term::Jacobian => {
                    let all = evolves.iter().flat_map(|e| &e.unrolled.programs);
                    let mut instrs = all.flat_map(|p| &p.instrs);
                    if !instrs.any(|i| matches!(i, Instr::Solution { .. })) {
                        let message = "no step of this model has a solution whose Jacobian could be made small";
                        sink.push(
                            Diagnostic::error(codes::TYPE_MISMATCH, *span, message)
                                .label("an equation `z = E(z)` is expected")
                                .help("solve one with `gradient implicit`: `solve z = F(z + G(x)) from 0 by anderson(tol: 1e-3, max: 30) gradient implicit`"),
                        );
                    }
                }
                Term::Drift => drift_fits(*span, evolves, sink),
                Term::Ponder if evolves.iter().all(|e| e.halting().is_none()) => {
                    let message = "no token of this model halts by itself";
                    sink.push(
                        Diagnostic::error(codes::TYPE_MISMATCH, *span, message)
                            .label("it counts the steps of tokens that do")
                            .help("write `for halting(field, max: 12, threshold: 0.99) steps`"),
                    );
                }
                _ => {}
            }
        }
    }
}

/// Says where no weights differ from one step to the next, or it is not known which.
fn drift_fits(span: Span, evolves: &[EvolveSpec], sink: &mut Vec<Diagnostic>) {
    let of_time = |s: &Sharing| matches!(s, Sharing::OfTime(_));
    let found =
        |e: &&EvolveSpec| e.depth != Depth::Known && e.policies.iter().flatten().any(of_time);
    if let Some(e) = evolves.iter().find(found) {
        let message = "`drift` needs steps that are known before the model runs";
        let d = Diagnostic::error(codes::TYPE_MISMATCH, span, message);
        sink.push(d.also(e.span, "how many these are is found or drawn").help(
            "write `for 12 steps`, or leave `drift` out: weights of time are functions of t, however many steps are made",
        ));
    } else if let (Some(e), false) = (evolves.first(), evolves.iter().any(EvolveSpec::drifts)) {
        let message = "`drift` would be 0: no two consecutive steps have weights of their own";
        let d = Diagnostic::error(codes::TYPE_MISMATCH, span, message);
        sink.push(
            d.also(e.span, "all of these steps have the same weights")
                .help("write `weights per step`, `every 2`, `cycle 2` or `of time { … }`"),
        );
    }
}

/// Reads a loss; the last kind of token is the mask.
pub fn read(e: &Expr, vocab: u64, sink: &mut Vec<Diagnostic>) -> Option<(Loss, Objective)> {
    let before = sink.len();
    let mut objective = Objective::default();
    let mut loss = None;
    for summand in summands(e, sink)? {
        let (coefficient, named) = weighed(summand, sink)?;
        let (term, asks) = term(named, vocab, sink)?;
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
        let message = "this loss does not ask for tokens";
        sink.push(
            Diagnostic::error(codes::MISSING_ITEM, e.span, message)
                .label("no cross-entropy is among its summands")
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
                let message = "nothing is subtracted from a loss";
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

/// A term, and what it asks for if it does.
fn term(e: &Expr, vocab: u64, sink: &mut Vec<Diagnostic>) -> Option<(Term, Option<Loss>)> {
    let known = [
        "cross_entropy",
        "smooth",
        "masked",
        "z_loss",
        "kinetic",
        "jacobian",
        "drift",
        "ponder",
    ];
    let Some(mut args) = Args::of(e) else {
        let d = Diagnostic::error(codes::TYPE_MISMATCH, e.span, "this is no term of a loss");
        sink.push(d.help("write, for example, `cross_entropy + 1e-4*kinetic`"));
        return None;
    };
    let name = args.callee.clone();
    let before = sink.len();
    let found = match name.name.as_str() {
        "cross_entropy" => Some((Term::CrossEntropy, Some(Loss::Next))),
        "smooth" => {
            let Some(part) = args.positional() else {
                let message = "`smooth` needs the part of the target that all tokens share";
                let d = Diagnostic::error(codes::MISSING_ARGUMENT, e.span, message);
                sink.push(d.help("write `smooth(10%)`"));
                return None;
            };
            report(real(part, Bounds::BelowOne), sink)?;
            let eps = report(exact(part, &Scope::new()), sink)?;
            Some((Term::Smooth(eps), Some(Loss::Next)))
        }
        "masked" => {
            let rate = args.required("rate", sink);
            let rate = rate.and_then(|e| report(real(e, Bounds::PositiveShare), sink));
            let token = vocab.saturating_sub(1);
            rate.map(|rate| (Term::Masked, Some(Loss::Masked { rate, token })))
        }
        "z_loss" => Some((Term::ZLoss, None)),
        "kinetic" => Some((Term::Kinetic, None)),
        "jacobian" => Some((Term::Jacobian, None)),
        "drift" => Some((Term::Drift, None)),
        "ponder" => Some((Term::Ponder, None)),
        other => {
            sink.push(match LATER.iter().find(|(later, _)| *later == other) {
                Some((later, why)) => not_supported(name.span, &format!("`{later}`")).help(*why),
                None => unknown_name(other, name.span, known.into_iter())
                    .label("a term of a loss is expected"),
            });
            return None;
        }
    };
    args.finish(&[], sink);
    found.filter(|_| sink.len() == before)
}
