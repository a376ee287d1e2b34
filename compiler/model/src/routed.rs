//! Mixture of recursions: a router says which tokens take a step (Bae et al. 2025, arXiv:2507.10524, 2.2.1).
//!
//! With Φ a step, R the router, M the most steps, x a token's state: where tokens choose (`choice: token`),
//! ```text
//! p = softmax(R(x₀)),  N = the first n of 1 … M with the largest pₙ,  g = p_N
//! xₙ = xₙ₋₁ + g (Φ(xₙ₋₁) − xₙ₋₁)  for n ≤ N, after which the token keeps x_N
//! ```
//! A token's N follows from x₀, so what is causal stays causal. Where steps choose (`choice: expert`, equation 2.1),
//! ```text
//! s = R(xₙ₋₁)ₙ,  xₙ = xₙ₋₁ + sigmoid(s) (Φ(xₙ₋₁) − xₙ₋₁)  for those of the tokens that took step n − 1 whose s is one of the kₙ largest
//! ```
//! of their text, kₙ the capacity's share of all its tokens, rounded up; the others keep xₙ₋₁ for good. A token's steps then depend on
//! the scores of later tokens. With a threshold θ that is so while the model is trained; else, of the tokens that took step n − 1, those take step n
//! for which sigmoid(s) > θ (Raposo et al. 2024, arXiv:2404.02258, 3.5), which `choice` in the loss brings about. In step n a token attends to those that take it, and to no others; linear maps and attention are computed for these alone
//! ([`Builder::rows`]). All M steps are unrolled; one that no token takes is passed over. Which tokens take a step is a constant to the
//! gradient, which reaches the router through what changes are multiplied by.

use super::args::report;
use super::decider::Decider;
use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::halting::plus;
use super::kv::KvMode;
use super::layers::{OfModel, Routed};
use super::losses::{Choice, LossTerm};
use super::random::Perhaps;
use super::routing;
use super::step::Kept;
use super::step_count::StepCount;
use crate::codes;
use crate::error::BuildError;
use crate::scheme::args::Args;
use crate::scheme::resolve::Resolver;
use crate::scheme::run::MAX_EVALUATIONS;
use crate::scheme::scalar::{Scope, whole};
use crate::scheme::stage::Phase;
use crate::scheme::work::Routing;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{
    ArgTop, Broadcast, Mul, OneHot, Shift, Sigmoid, Slice, Softplus, StopGradient, SumCols,
    TopTokens, WherePositive,
};
use odec_graph::solve::choose;
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::kernel::Share;
use odec_program::manifest::depth;

/// `routed(field, max: 3)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// A score for each number of steps, or for each step.
    pub field: Decider,
    pub choice: Routing,
    /// The gate above which a token takes a step where the model is not trained, and where it is written.
    pub threshold: Option<(Exact, Span)>,
}

pub fn read(mut args: Args, r: &mut Resolver) -> Option<(u64, StepCount)> {
    let written = args.positional();
    let max = args.required("max", r.sink);
    let choice = args.labelled("choice", r.sink);
    let capacity = args.labelled("capacity", r.sink);
    let threshold = args.labelled("threshold", r.sink);
    let span = args.span;
    args.finish(&[], r.sink);
    let Some(written) = written else {
        let message = "`routed` needs a field that scores the steps";
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, span, message);
        r.sink
            .push(d.help("write, for example, `routed(linear(3), max: 3)`"));
        return None;
    };
    let field = r.field(written, "routed")?;
    let most = MAX_EVALUATIONS as u64;
    let written_max = max?;
    let max = report(whole(written_max, &Scope::new(), 1, most), r.sink)?;
    let choice = routing::read(choice, capacity, max, r.sink)?;
    if choice == Routing::Tokens {
        // With one number of steps a token has none to choose.
        report(whole(written_max, &Scope::new(), 2, most), r.sink)?;
    }
    let threshold = match threshold {
        Some(e) => Some(routing::threshold(e, &choice, r.sink)?),
        None => None,
    };
    match Decider::of(&field) {
        Some(field) => {
            let router = Router {
                field,
                choice,
                threshold,
            };
            Some((max, StepCount::Routed(Box::new(router))))
        }
        None => {
            r.sink.push(no_scores(written.span, max, &choice));
            None
        }
    }
}

fn no_scores(span: Span, max: u64, choice: &Routing) -> Diagnostic {
    let each = match choice {
        Routing::Tokens => "number of steps",
        Routing::Steps(_) => "step",
    };
    let message = format!(
        "a router gives {max} scores for each token, one for each {each}, computed from its state alone"
    );
    Diagnostic::error(codes::ROUTING_FIELD, span, message)
        .label(format!(
            "a pipeline of layers that ends in width {max} is expected"
        ))
        .help(format!("write, for example, `field route = linear({max})`"))
}

impl Router {
    /// Reads the field's inside, now that sizes are known.
    pub fn read(&mut self, max: u64, model: &OfModel, sink: &mut Vec<Diagnostic>) -> Option<()> {
        let (out, _) = self.field.read(model, sink)?;
        if out != max {
            sink.push(no_scores(self.field.leaf.span, max, &self.choice));
            return None;
        }
        Some(())
    }
}

/// Says which field of routed steps reads tokens that may not take a step.
pub fn fit(e: &EvolveSpec, sink: &mut Vec<Diagnostic>) -> Option<()> {
    if !matches!(e.depth, StepCount::Routed(_)) {
        return Some(());
    }
    let programs = e.unrolled.programs.iter().zip(&e.layers);
    let each = programs.flat_map(|(p, layers)| p.fields.iter().zip(layers));
    // Steps ask the router about those tokens alone that took the one before.
    let router = e.decider().filter(|_| e.step_capacities().is_some());
    let mut fields = each.chain(router.and_then(|d| Some((&d.leaf, d.layer.as_ref()?))));
    let Some((leaf, _)) = fields.find(|(_, layer)| layer.reads().all_tokens) else {
        return Some(());
    };
    let message = format!("`{}` reads tokens none of which can be left out", leaf.name);
    sink.push(
        Diagnostic::error(codes::INCOMPATIBLE, leaf.span, message)
            .also(e.span, "only some tokens take a step here")
            .help("in routed steps tokens meet by attention, with a `softcap` only where there is neither `window` nor `bias`: put shifts, convolutions and scans into another evolve"),
    );
    None
}

/// Says that a token's steps depend on later tokens, in a model that is to predict these.
pub fn looks_ahead(e: &EvolveSpec) -> Diagnostic {
    let (name, span) = match e.decider() {
        Some(d) => (d.leaf.name.as_str(), d.leaf.span),
        None => ("routed", e.span),
    };
    let message = format!(
        "each step compares a token's `{name}` with that of later tokens, which the model is to predict"
    );
    Diagnostic::warning(codes::LOOKS_AHEAD, span, message)
        .also(e.span, "steps that choose their tokens")
        .help("for a model that generates, write `routed(…, choice: token)`, or add `threshold: 1/2`, by which tokens choose for themselves")
}

/// Which tokens take a step, a number for each.
#[derive(Clone, Copy)]
struct Turn {
    /// 1 where it takes the step, else 0.
    taking: Value,
    /// One less than that; absent where all take it.
    rows: Option<Value>,
    /// What its change is multiplied by.
    gate: Value,
}

impl GraphBuilder<'_> {
    /// The state of every token after as many steps as it takes.
    pub(super) fn recursions(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        router: &Router,
        mut x: Value,
    ) -> Result<Value, BuildError> {
        let mut kept = Kept::new();
        let mut turns: Vec<Turn> = Vec::new();
        for (at, program) in e.unrolled.phases() {
            let Phase::Step(k) = at else {
                x = self.whole(b, e, (at, program), x, &mut kept)?;
                continue;
            };
            match &router.choice {
                Routing::Tokens if k == 0 => turns = self.chosen_by_tokens(b, e, router, x)?,
                Routing::Tokens => {}
                Routing::Steps(shares) => {
                    let last = turns.last().copied();
                    let turn = self.chosen_by_step(b, e, (router, shares[k]), (k, last), x)?;
                    turns.push(turn);
                }
            }
            // What the router evaluates counts, whether or not a token takes the step.
            self.collected.settle();
            let (from, turn) = (x, turns[k]);
            let made = match turn.rows {
                Some(rows) => {
                    b.rows = Some(rows);
                    let made = self.taken(b, e, (at, program), (x, &mut kept), turn.taking);
                    b.rows = None;
                    made?
                }
                None => self.whole(b, e, (at, program), x, &mut kept)?,
            };
            b.site.path = "scheme".into();
            b.span = Some(e.span);
            let change = nn::combine(b, &[(Exact::one(), made), (Exact::int(-1), from)])?;
            let change = b.push1(Mul, &[turn.gate, change])?;
            x = plus(b, from, change)?;
        }
        b.site = e.outside().into();
        b.span = Some(e.span);
        let ones: Vec<(Exact, Value)> = turns.iter().map(|t| (Exact::one(), t.taking)).collect();
        let made = nn::combine(b, &ones)?;
        let made = nn::mean_rows(b, made)?;
        self.decided
            .push((depth::output(&e.label, depth::MADE), made));
        Ok(x)
    }

    /// The state after a step that only some tokens take.
    fn taken(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        at: (Phase, usize),
        (x, kept): (Value, &mut Kept),
        taking: Value,
    ) -> Result<Value, BuildError> {
        if self.kv != KvMode::Prefill {
            // Of what is passed over there would be no keys and values for later tokens.
            let made = self.whole(b, e, at, x, kept)?;
            return Ok(choose(b, taking, made, x)?);
        }
        b.site = e.outside().into();
        b.span = Some(e.span);
        let any = nn::mean_rows(b, taking)?;
        let whether = Perhaps {
            made: any,
            counts: any,
            tokens: Some(taking),
        };
        self.perhaps(b, e, at, (x, kept), whether)
    }

    /// All steps, as each token chooses how many it takes.
    fn chosen_by_tokens(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        router: &Router,
        x: Value,
    ) -> Result<Vec<Turn>, BuildError> {
        let logits = self.decision(b, e, (&router.field, None), x)?;
        b.site = e.outside().into();
        b.span = Some(e.span);
        let number = b.push1(ArgTop { rank: 0 }, &[logits])?;
        let cols = e.steps;
        let chosen = b.push1(OneHot { cols }, &[number])?;
        let top_k = 1;
        let at = Routed {
            logits,
            chosen,
            top_k,
            taken: None,
            among: None,
        };
        self.routed(b, None, at)?;
        let shares = nn::softmax(b, logits)?;
        let own = b.push1(Mul, &[shares, chosen])?;
        let gate = b.push1(SumCols, &[own])?;
        let turns = (0..cols).map(|from| {
            let cols = cols - from;
            let later = b.push1(Slice { from, cols }, &[chosen])?;
            let taking = b.push1(SumCols, &[later])?;
            let taking = b.push1(StopGradient, &[taking])?;
            turn(b, taking, gate, from == 0)
        });
        Ok(turns.collect::<Result<_, TypeError>>()?)
    }

    /// Step `k`, for this share of a text's tokens: of those that took the step before, the ones with the largest scores.
    fn chosen_by_step(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        (router, share): (&Router, Share),
        (k, last): (usize, Option<Turn>),
        x: Value,
    ) -> Result<Turn, BuildError> {
        // The state before a step is the one after the last, of whose tokens alone there are scores.
        let step = k.checked_sub(1).map(|k| k as u32);
        b.rows = last.and_then(|turn| turn.rows);
        let scores = self.decision(b, e, (&router.field, step), x);
        b.rows = None;
        let scores = scores?;
        b.site = e.outside().into();
        b.span = Some(e.span);
        let (from, cols) = (k as u64, 1);
        let score = b.push1(Slice { from, cols }, &[scores])?;
        let gate = b.push1(Sigmoid, &[score])?;
        let open = match last {
            Some(turn) => turn.taking,
            None => {
                let (one, to) = (nn::constant(b, Exact::one())?, b.ty(score).clone());
                b.push1(Broadcast { to }, &[one])?
            }
        };
        let taking = match &router.threshold {
            _ if share.is_all() => open,
            Some((threshold, _)) if !self.drops => {
                let above = b.push1(Shift { by: -threshold }, &[gate])?;
                let taking = b.push1(WherePositive, &[above, open])?;
                b.push1(StopGradient, &[taking])?
            }
            _ => b.push1(TopTokens { share }, &[score, open])?,
        };
        if !share.is_all() {
            self.compare(b, score, [open, taking])?;
        }
        Ok(turn(b, taking, gate, share.is_all())?)
    }

    /// What scores give to `choice` in the loss: of each token that may take a step, `softplus(s)`, less s where it takes it.
    fn compare(
        &mut self,
        b: &mut Builder,
        score: Value,
        [open, taking]: [Value; 2],
    ) -> Result<(), TypeError> {
        if !self.drops || self.spec.objective.find(Choice::NAME).is_none() {
            return Ok(());
        }
        let rest = b.push1(Softplus, &[score])?;
        let own = b.push1(Mul, &[taking, score])?;
        let each = nn::combine(b, &[(Exact::one(), rest), (Exact::int(-1), own)])?;
        let each = b.push1(WherePositive, &[open, each])?;
        let each = self.over_targets(b, each)?;
        self.collected.compared(each);
        Ok(())
    }
}

fn turn(b: &mut Builder, taking: Value, gate: Value, all: bool) -> Result<Turn, TypeError> {
    let by = Exact::int(-1);
    let rows = match all {
        true => None,
        false => Some(b.push1(Shift { by }, &[taking])?),
    };
    Ok(Turn { taking, rows, gate })
}
