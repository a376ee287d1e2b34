//! Numbers of steps that are not fixed: `adaptive(…)`, `random(…)`, `halting(…)`, `routed(…)`; and how far the gradient goes back.
//!
//! Takes the syntax; gives a [`StepCount`], and checks that the scheme and its weights allow it. The program is unrolled for the most steps
//! possible. The graph is made in `adaptive.rs`, `random.rs`, `halting.rs` and `routed.rs`.

use super::decider::Decider;
use super::evolve::{EvolveSpec, Sharing};
use super::layers::OfModel;
use super::routed::{self, Router};
use crate::analysis::report::{Evolved, orders_of_pair};
use crate::codes;
use crate::scheme::args::{Args, Bounds, real, report};
use crate::scheme::resolve::Resolver;
use crate::scheme::run::MAX_EVALUATIONS;
use crate::scheme::scalar::{Scope, exact, in_range, not_supported, whole};
use crate::step_rule::Steps;
use odec_grammar::Span;
use odec_grammar::ast::{Evolve, EvolveOption, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// What decides over the number of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum StepCount {
    /// The text.
    Known,
    /// The error of each step.
    Adaptive(Box<Adaptive>),
    /// A draw for each step of training.
    Random(Random),
    /// What a field makes of each token's state.
    Halting(Box<Halting>),
    /// What a field makes of each token's state before the first of them.
    Routed(Box<Router>),
}

impl StepCount {
    /// The steps, of which there are so many at most.
    pub fn of(&self, most: u64) -> Steps {
        match self {
            StepCount::Known => Steps::All(most),
            StepCount::Adaptive(_)
            | StepCount::Random(_)
            | StepCount::Halting(_)
            | StepCount::Routed(_) => Steps::AtMost(most),
        }
    }
}

/// `adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 64)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    pub rtol: Exact,
    pub atol: Exact,
    /// The time to reach.
    pub until: Exact,
    /// The first step to try.
    pub first: Exact,
    /// The smaller order of the pair.
    pub order: usize,
}

/// `random(log_normal_poisson(mean: 32), max: 128)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Random {
    /// Steps where nothing is drawn: while the model is evaluated or generates.
    pub mean: u64,
}

/// `halting(field, max: 12, threshold: 0.99)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Halting {
    /// What a token's chance to have made its last step is read by.
    pub field: Decider,
    /// The sum of chances at which a token halts.
    pub threshold: Exact,
}

/// A tolerance below this is nothing beside it in f32.
const LEAST: f64 = 1e-30;

/// The steps that are unrolled, and what decides how many of them are made.
pub fn extent(e: &Expr, r: &mut Resolver) -> Option<(u64, StepCount)> {
    let most = MAX_EVALUATIONS as u64;
    if !matches!(e.kind, ExprKind::Call(_)) {
        let steps = report(whole(e, &Scope::new(), 1, most), r.sink)?;
        return Some((steps, StepCount::Known));
    }
    let args = Args::of(e);
    match args.as_ref().map(|a| a.callee.name.as_str()) {
        Some("adaptive") => adaptive(args?, r.sink),
        Some("random") => random(args?, r.sink),
        Some("halting") => halting(args?, r),
        Some("routed") => routed::read(args?, r),
        // A number that is computed, such as `len`.
        _ => {
            let steps = report(whole(e, &Scope::new(), 1, most), r.sink)?;
            Some((steps, StepCount::Known))
        }
    }
}

/// A number that the runs of the program compare with, or multiply by.
pub(super) fn positive(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Exact> {
    let size = report(real(e, Bounds::Positive), sink)?;
    let value = report(exact(e, &Scope::new()), sink)?;
    if !(LEAST..=1.0 / LEAST).contains(&size) {
        let message = format!("{size:e} is out of range");
        let expected = format!("a number from {LEAST:e} to {:e} is expected", 1.0 / LEAST);
        sink.push(Diagnostic::error(codes::OUT_OF_RANGE, e.span, message).label(expected));
        return None;
    }
    Some(value)
}

fn adaptive(mut args: Args, sink: &mut Vec<Diagnostic>) -> Option<(u64, StepCount)> {
    let [rtol, atol, until] = ["rtol", "atol", "until"].map(|label| {
        let written = args.required(label, sink);
        written.and_then(|e| positive(e, sink))
    });
    let max = args.size("max", &Scope::new(), MAX_EVALUATIONS as u64, sink);
    let first = args.labelled("first", sink);
    args.finish(&[], sink);
    let (rtol, atol, until) = (rtol?, atol?, until?);
    let adaptive = Adaptive {
        first: match first {
            Some(e) => positive(e, sink)?,
            None => until.clone(),
        },
        rtol,
        atol,
        until,
        order: 0,
    };
    Some((max?, StepCount::Adaptive(Box::new(adaptive))))
}

fn random(mut args: Args, sink: &mut Vec<Diagnostic>) -> Option<(u64, StepCount)> {
    let span = args.span;
    let most = MAX_EVALUATIONS as u64;
    let inner = args.positional();
    let max = args.labelled("max", sink);
    args.finish(&[], sink);
    let mut law = match inner.and_then(Args::of) {
        Some(law) if law.callee.name == "log_normal_poisson" => law,
        _ => {
            let span = inner.map_or(span, |e| e.span);
            let message = "`random` draws from `log_normal_poisson`";
            sink.push(
                Diagnostic::error(codes::UNKNOWN_OPTION, span, message)
                    .help("write, for example, `random(log_normal_poisson(mean: 32))`"),
            );
            return None;
        }
    };
    let mean = law.size("mean", &Scope::new(), most, sink);
    law.finish(&[], sink);
    let mean = mean?;
    let max = match max {
        Some(e) => report(
            exact(e, &Scope::new()).and_then(|n| in_range(&n, e, mean, most)),
            sink,
        )?,
        None => (4 * mean).min(most),
    };
    Some((max, StepCount::Random(Random { mean })))
}

fn halting(mut args: Args, r: &mut Resolver) -> Option<(u64, StepCount)> {
    let most = MAX_EVALUATIONS as u64;
    let written = args.positional();
    let max = args.required("max", r.sink);
    let threshold = args.required("threshold", r.sink);
    let span = args.span;
    args.finish(&[], r.sink);
    let Some(written) = written else {
        let message = "`halting` needs a field that gives the halting probability";
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, span, message);
        r.sink.push(
            d.help("write, for example, `halting(linear(1) |> sigmoid, max: 8, threshold: 0.99)`"),
        );
        return None;
    };
    let field = r.field(written, "halting")?;
    // With one step nothing would train the field.
    let max = report(whole(max?, &Scope::new(), 2, most), r.sink)?;
    let e = threshold?;
    report(real(e, Bounds::PositiveShare), r.sink)?;
    let threshold = report(exact(e, &Scope::new()), r.sink)?;
    let Some(field) = Decider::of(&field) else {
        r.sink.push(no_chance(written.span));
        return None;
    };
    let halting = Halting { field, threshold };
    Some((max, StepCount::Halting(Box::new(halting))))
}

fn no_chance(span: Span) -> Diagnostic {
    let message = "a halting probability is one number from 0 to 1 for each token, computed from its state alone";
    Diagnostic::error(codes::HALTING_FIELD, span, message)
        .label("a pipeline of layers that ends in width 1 and `sigmoid` is expected")
        .help("write, for example, `field halt = linear(1, bias) |> sigmoid`")
}

impl Halting {
    /// Reads the field's inside, now that sizes are known.
    pub fn read(&mut self, model: &OfModel, sink: &mut Vec<Diagnostic>) -> Option<()> {
        let (out, shares) = self.field.read(model, sink)?;
        if out != 1 || !shares {
            sink.push(no_chance(self.field.leaf.span));
            return None;
        }
        Some(())
    }
}

/// `gradient last(8)`: the steps at the end that the gradient goes through; `None`: all.
pub fn gradient(e: &Evolve, depth: &StepCount, sink: &mut Vec<Diagnostic>) -> Option<Option<u64>> {
    let mut found: Option<(u64, Span)> = None;
    for o in &e.options {
        let EvolveOption::Gradient { value, span } = o else {
            continue;
        };
        if let Some((_, first)) = found {
            let d = Diagnostic::error(codes::REPEATED_ITEM, *span, "`gradient` is given twice");
            sink.push(d.also(first, "first given here"));
            return None;
        }
        let mut args = Args::of(value);
        let name = args.as_ref().map(|a| a.callee.name.clone());
        match (name.as_deref(), &mut args) {
            (Some("unroll"), Some(_)) => {}
            (Some("last"), Some(args))
                if matches!(depth, StepCount::Known | StepCount::Random(_)) =>
            {
                let Some(steps) = args.positional() else {
                    let d = Diagnostic::error(codes::MISSING_ARGUMENT, *span, "how many steps?");
                    sink.push(d.help("write `gradient last(8)`"));
                    return None;
                };
                let most = MAX_EVALUATIONS as u64;
                let last = report(whole(steps, &Scope::new(), 1, most), sink)?;
                found = Some((last, *span));
            }
            _ => {
                let d = not_supported(value.span, "this gradient of an evolve");
                sink.push(d.help(match depth {
                    StepCount::Adaptive(_) => {
                        "adaptive steps are differentiated through all accepted steps: leave `gradient` out"
                    }
                    StepCount::Halting(_) => {
                        "the result of a token depends on all its states, so the gradient goes through all: leave `gradient` out"
                    }
                    StepCount::Routed(_) => {
                        "the gradient goes through all steps that a token takes: leave `gradient` out"
                    }
                    _ => "write `gradient last(8)`, or leave `gradient` out for all steps",
                }));
                return None;
            }
        }
        if let Some(args) = args {
            args.finish(&[], sink);
        }
    }
    Some(found.map(|(last, _)| last))
}

/// Makes a spec one of steps that are decided over while it runs, or says why its scheme or its weights do not allow it. What the
/// embedded partner needs becomes part of every step.
pub fn fit(e: &Evolve, spec: &mut EvolveSpec, sink: &mut Vec<Diagnostic>) -> Option<()> {
    if spec.depth == StepCount::Known {
        return Some(());
    }
    let extent = e.extent.span;
    let mut refuse = |span: Span, message: &str, help: &str| -> Option<()> {
        let decided = "here the number of steps is found while the model runs";
        let d = Diagnostic::error(codes::INCOMPATIBLE, span, message).help(help);
        sink.push(match span == extent {
            true => d,
            false => d.also(extent, decided),
        });
        None
    };
    let adaptive = matches!(spec.depth, StepCount::Adaptive(_));
    for o in &e.options {
        match o {
            EvolveOption::LearnH { span, .. } => {
                let message = "a learned step size needs a fixed number of steps";
                return refuse(*span, message, "write the number of steps");
            }
            EvolveOption::H { span, .. } if adaptive => {
                let message = "adaptive steps choose their own sizes";
                return refuse(
                    *span,
                    message,
                    "leave `h` out: `until` is the time they reach",
                );
            }
            _ => {}
        }
    }
    for (flow, _) in &spec.flows {
        let past = flow.scheme.history.past.iter().next();
        if adaptive && flow.scheme.looks_back() || past.is_some() {
            let name = &flow.scheme.name.name;
            let message = format!("`{name}` reads values of earlier steps");
            let help = "take a one-step method, such as `rk4`";
            return refuse(flow.span, &message, help);
        }
    }
    let programs = &spec.unrolled.programs;
    let steps = &spec.unrolled.steps;
    if let Some(other) = steps.iter().position(|p| *p != steps[0]) {
        let message = format!("step {other} is not computed like step 0");
        return refuse(
            e.flow.span,
            &message,
            "all steps must be computed in the same way",
        );
    }
    let weights = e.options.iter().find_map(|o| match o {
        EvolveOption::Weights { span, .. } => Some(*span),
        _ => None,
    });
    let several = spec.steps > 1;
    for (p, sharing) in programs.iter().zip(&spec.policies) {
        let alike = |s: &Sharing| matches!(s, Sharing::Shared | Sharing::TimeDependent(_));
        let own = sharing.iter().position(|s| several && !alike(s));
        if let Some(field) = own {
            let name = &p.fields[field].name;
            let message = format!("`{name}` does not have the same weights in all steps");
            let help = "write `weights shared`, or `weights of time { … }`";
            return refuse(weights.unwrap_or(e.span), &message, help);
        }
        if let Some(l) = p.learned.iter().find(|l| several && !l.shared) {
            let message = format!("`{}` is learned per step", l.name);
            let help = format!("write `learn shared {}`", l.name);
            return refuse(l.span, &message, &help);
        }
    }
    let evolved = spec.evolved();
    let (StepCount::Adaptive(a), Some(evolved)) = (&mut spec.depth, evolved.first()) else {
        return Some(());
    };
    let name = &evolved.flow.scheme.name.name;
    if spec.unrolled.programs[steps[0]].embedded.is_none() {
        let message =
            format!("`{name}` has no embedded partner, so the error of a step cannot be estimated");
        let help = "take a pair such as `bogacki_shampine`, or give it one: a second row of weights, `embedded A(1) B(1)`, `return y embedded z`";
        return refuse(e.flow.span, &message, help);
    }
    a.order = match pair(evolved) {
        Ok(order) => order,
        Err(why) => {
            let message = format!("the orders of `{name}` and its partner are not known: {why}");
            let help = "the next step size is computed from the smaller order";
            return refuse(e.flow.span, &message, help);
        }
    };
    for p in &mut spec.unrolled.programs {
        p.take_in_partner();
        let known = |s: &str| {
            let mut learned = p.learned.iter().map(|l| &l.name);
            s == "h" || s == "t" || learned.any(|l| l == s) || p.derived.iter().any(|d| d.name == s)
        };
        if let Some(s) = p.all_symbols().iter().find(|s| !known(s)) {
            let message = format!("only the embedded partner uses `{s}`, so it gets no gradient");
            return refuse(
                e.flow.span,
                &message,
                "use a coefficient that the result reads too, or a number",
            );
        }
    }
    Some(())
}

/// The smaller order of a flow and its partner, as they are computed.
fn pair(e: &Evolved) -> Result<usize, String> {
    let [own, partner] = orders_of_pair(e).map_err(|beyond| beyond.why)?;
    match own.min(partner) {
        0 => Err("one of them has order 0".into()),
        order => Ok(order),
    }
}
