//! Mixture of recursions: before the first step a router says how many of the steps each token takes (Bae et al. 2025,
//! arXiv:2507.10524, 2.2.1, routing by token choice).
//!
//! For each token, with Φ a step, R the router and M the most steps,
//! ```text
//! p = softmax(R(x₀)),  N = the first n of 1 … M with the largest pₙ,  g = p_N
//! xₙ = xₙ₋₁ + g (Φ(xₙ₋₁) − xₙ₋₁)  for n ≤ N, after which the token keeps x_N
//! ```
//! In step n a token attends to those that take it, and to no others; linear maps are computed for these alone
//! ([`Builder::rows`]). A token's N follows from x₀, so what is causal stays causal. All M steps are unrolled; one that no token takes is
//! passed over. N is a constant to the gradient, which reaches the router through g.

use super::args::report;
use super::decider::Decider;
use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::halting::plus;
use super::kv::KvMode;
use super::layers::Routed;
use super::layers::pipeline::Sizes;
use super::params::decider_path;
use super::random::Perhaps;
use super::step::Kept;
use super::step_count::StepCount;
use crate::codes;
use crate::error::BuildError;
use crate::scheme::args::Args;
use crate::scheme::resolve::Resolver;
use crate::scheme::run::MAX_EVALUATIONS;
use crate::scheme::scalar::{Scope, name_of, not_supported, whole};
use crate::scheme::stage::Phase;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{ArgTop, Mul, OneHot, Shift, Slice, StopGradient, SumCols};
use odec_graph::solve::choose;
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::manifest::depth;

/// `routed(field, max: 3)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// A score for each number of steps.
    pub field: Decider,
}

pub fn read(mut args: Args, r: &mut Resolver) -> Option<(u64, StepCount)> {
    let written = args.positional();
    let max = args.required("max", r.sink);
    let choice = args.labelled("choice", r.sink);
    let capacity = args.labelled("capacity", r.sink);
    let span = args.span;
    args.finish(&[], r.sink);
    by_tokens(choice, capacity, r.sink)?;
    let Some(written) = written else {
        let message = "`routed` needs a field that scores the numbers of steps";
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, span, message);
        r.sink
            .push(d.help("write, for example, `routed(linear(3), max: 3)`"));
        return None;
    };
    let field = r.field(written, "routed")?;
    let most = MAX_EVALUATIONS as u64;
    // With one step there is nothing to choose.
    let max = report(whole(max?, &Scope::new(), 2, most), r.sink)?;
    match Decider::of(&field) {
        Some(field) => Some((max, StepCount::Routed(Box::new(Router { field })))),
        None => {
            r.sink.push(no_scores(written.span, max));
            None
        }
    }
}

/// Says why steps cannot choose tokens.
fn by_tokens(
    choice: Option<&Expr>,
    capacity: Option<&Expr>,
    sink: &mut Vec<Diagnostic>,
) -> Option<()> {
    let help = "write `routed(…, max: …, choice: token)`, where each token chooses its number of steps, and `load_balance` in the loss";
    let word = choice.map(|e| (e.span, name_of(e).map(|n| n.name)));
    match word {
        Some((_, Some(word))) if word == "token" => {}
        Some((span, Some(word))) if word == "expert" => {
            let d = not_supported(span, "`choice: expert`");
            sink.push(
                d.label("each step takes the tokens with the largest scores of a whole text, so a token's steps depend on tokens after it, which are not there yet when text is generated")
                    .help(help),
            );
            return None;
        }
        Some((span, _)) => {
            let message = "this is no choice of `routed`";
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, span, message);
            sink.push(d.help("write `choice: token`"));
            return None;
        }
        None => {}
    }
    let Some(capacity) = capacity else {
        return Some(());
    };
    let d = not_supported(capacity.span, "a capacity of steps");
    sink.push(
        d.label("a share of tokens to choose for each step; where tokens choose, a step takes all that choose it")
            .help(help),
    );
    None
}

fn no_scores(span: Span, max: u64) -> Diagnostic {
    let message = format!(
        "a router gives {max} scores for each token, one for each number of steps, computed from its state alone"
    );
    Diagnostic::error(codes::ROUTING_FIELD, span, message)
        .label(format!(
            "a pipeline of layers that ends in width {max} is expected"
        ))
        .help(format!("write, for example, `field route = linear({max})`"))
}

impl Router {
    /// Reads the field's inside, now that sizes are known.
    pub fn read(&mut self, max: u64, sizes: Sizes, sink: &mut Vec<Diagnostic>) -> Option<()> {
        let (out, _) = self.field.read(sizes, sink)?;
        if out != max {
            sink.push(no_scores(self.field.leaf.span, max));
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
    let mut fields = programs.flat_map(|(p, layers)| p.fields.iter().zip(layers));
    let Some((leaf, _)) = fields.find(|(_, layer)| layer.reads().all_tokens) else {
        return Some(());
    };
    let message = format!("`{}` reads tokens none of which can be left out", leaf.name);
    sink.push(
        Diagnostic::error(codes::INCOMPATIBLE, leaf.span, message)
            .also(e.span, "only some tokens take a step here")
            .help("in routed steps tokens meet by attention without `softcap`: put shifts, convolutions and scans into another evolve"),
    );
    None
}

/// What the router says of each token.
struct Routes {
    /// 1 where it takes the n-th step, else 0, `[.., 1]`; and one less.
    taking: Vec<[Value; 2]>,
    /// What its steps are multiplied by.
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
        let mut found: Option<Routes> = None;
        for (at, program) in e.unrolled.phases() {
            let Phase::Step(k) = at else {
                x = self.whole(b, e, (at, program), x, &mut kept)?;
                continue;
            };
            let routes = match &mut found {
                Some(routes) => routes,
                None => found.insert(self.routes(b, e, router, x)?),
            };
            let (from, gate) = (x, routes.gate);
            let made = match routes.taking.get(k) {
                // All tokens take the first one.
                Some([taking, rows]) if k > 0 => {
                    b.rows = Some(*rows);
                    let made = self.taken(b, e, (at, program), (x, &mut kept), *taking);
                    b.rows = None;
                    made?
                }
                _ => self.whole(b, e, (at, program), x, &mut kept)?,
            };
            b.site.path = "scheme".into();
            b.span = Some(e.span);
            let change = nn::combine(b, &[(Exact::one(), made), (Exact::int(-1), from)])?;
            let change = b.push1(Mul, &[gate, change])?;
            x = plus(b, from, change)?;
        }
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
        if self.kv == KvMode::Cached {
            // Of what is passed over there would be no keys and values for later tokens.
            let made = self.whole(b, e, at, x, kept)?;
            return Ok(choose(b, taking, made, x)?);
        }
        b.site = e.outside();
        b.span = Some(e.span);
        let any = nn::mean_rows(b, taking)?;
        let whether = Perhaps {
            made: any,
            counts: any,
            tokens: Some(taking),
        };
        self.perhaps(b, e, at, (x, kept), whether)
    }

    fn routes(
        &mut self,
        b: &mut Builder,
        e: &EvolveSpec,
        router: &Router,
        x: Value,
    ) -> Result<Routes, BuildError> {
        let logits = self.decision(b, e, (&router.field, None), x)?;
        b.site = e.outside();
        b.span = Some(e.span);
        let number = b.push1(ArgTop { rank: 0 }, &[logits])?;
        let cols = e.steps;
        let chosen = b.push1(OneHot { cols }, &[number])?;
        let top_k = 1;
        self.routed(
            b,
            decider_path(e, &router.field),
            Routed {
                logits,
                chosen,
                top_k,
                taken: None,
                among: None,
            },
        )?;
        let shares = nn::softmax(b, logits)?;
        let own = b.push1(Mul, &[shares, chosen])?;
        let gate = b.push1(SumCols, &[own])?;
        let taking: Vec<[Value; 2]> = (0..cols)
            .map(|from| {
                let cols = cols - from;
                let later = b.push1(Slice { from, cols }, &[chosen])?;
                let taking = b.push1(SumCols, &[later])?;
                let taking = b.push1(StopGradient, &[taking])?;
                let by = Exact::int(-1);
                Ok([taking, b.push1(Shift { by }, &[taking])?])
            })
            .collect::<Result<_, TypeError>>()?;
        let ones: Vec<(Exact, Value)> = taking.iter().map(|[v, _]| (Exact::one(), *v)).collect();
        let made = nn::combine(b, &ones)?;
        let made = nn::mean_rows(b, made)?;
        self.decided
            .push((depth::output(&e.label, depth::MADE), made));
        Ok(Routes { taking, gate })
    }
}
