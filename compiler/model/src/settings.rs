//! What a train block chooses by name, an optimiser or a schedule: read by the arguments that it declares.
//!
//! Takes `adamw(lr: 3e-4)`; gives the choice with its values, those that are not said included. Leaves what a choice means to
//! [`odec_program::optimizers`] and [`odec_program::schedules`].

use super::args::{Args, real, report};
use crate::codes;
use crate::scheme::scalar::{
    Scope, constant, exact, in_range, literal, name_of, not_supported, out_of_range, unknown_option,
};
use num_bigint::BigInt;
use odec_grammar::ast::{Arg, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_grammar::{Span, parse_value};
use odec_graph::Exact;
use odec_program::bounds::Bounds;
use odec_program::choice::{Argument, Choice, Choices, Visitor, find};
use odec_program::optimizers::OptimizerKind;
use odec_program::schedules::ScheduleKind;

/// Names that this version has no meaning for.
const LATER: &[&str] = &["soap"];
/// Arguments that later versions read.
const LATER_ARGUMENTS: &[&str] = &["fused"];
/// The argument that says how parameters decay.
const DECAY: &str = "weight_decay";
/// The unit of numbers of steps.
const STEPS: &str = "steps";

/// `adamw(lr: 3e-4, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1)`.
pub fn optimizer(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<OptimizerKind> {
    read(e, None, "optimizer", sink)
}

/// `constant`, or `cosine(warmup: 5%, floor: 10%)` of a run of so many steps.
pub fn schedule(e: &Expr, steps: Option<u64>, sink: &mut Vec<Diagnostic>) -> Option<ScheduleKind> {
    read(e, steps, "schedule", sink)
}

/// The optimiser of an example.
pub fn example(text: &str) -> Option<OptimizerKind> {
    let e = parse_value(0, text, 0).ok()?;
    optimizer(&e, &mut Vec::new())
}

/// One of a closed set, for an entry of a train block.
fn read<C: Choices>(
    e: &Expr,
    run: Option<u64>,
    entry: &str,
    sink: &mut Vec<Diagnostic>,
) -> Option<C> {
    let Some(args) = Args::of(e) else {
        let message = format!("{} is expected here", C::WHAT);
        let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message);
        let examples = C::all().into_iter().filter_map(|c| {
            let first = c.get().examples().first()?;
            Some(format!("`{entry} {}`", first.text))
        });
        let examples: Vec<String> = examples.collect();
        sink.push(d.help(format!("write, for example, {}", examples.join(", "))));
        return None;
    };
    let Some(mut chosen) = find::<C>(&args.callee.name) else {
        let name = &args.callee;
        sink.push(match LATER.contains(&name.name.as_str()) {
            true => not_supported(name.span, &format!("`{}`", name.name)),
            false => {
                let known: Vec<&str> = C::all().iter().map(|c| c.get().name()).collect();
                unknown_option(C::WHAT, name, &known)
            }
        });
        return None;
    };
    fill(&mut chosen, args, run, true, sink).then_some(chosen)
}

/// The same optimiser with other arguments, those that are not said as before; whether its decay is said.
pub fn changed(
    o: &OptimizerKind,
    args: &[Arg],
    span: Span,
    sink: &mut Vec<Diagnostic>,
) -> Option<(OptimizerKind, bool)> {
    let mut changed = o.clone();
    let args = Args::listed(o.name(), span, args);
    let decays = args.has(DECAY);
    fill(&mut changed, args, None, false, sink).then_some((changed, decays))
}

/// Reads arguments into a choice; whether they are right. `whole`: all that are needed must be there.
fn fill<C: Choices>(
    chosen: &mut C,
    args: Args,
    run: Option<u64>,
    whole: bool,
    sink: &mut Vec<Diagnostic>,
) -> bool {
    let before = sink.len();
    let mut reader = Reader {
        args,
        run,
        whole,
        sink,
    };
    chosen.get_mut().arguments(&mut reader);
    let Reader { args, sink, .. } = reader;
    args.finish(LATER_ARGUMENTS, sink);
    sink.len() == before
}

/// Puts what a file says into the fields of a choice.
struct Reader<'s, 'e> {
    args: Args<'e>,
    /// Steps of the run, where they are known.
    run: Option<u64>,
    /// Whether arguments that are needed must be there.
    whole: bool,
    sink: &'s mut Vec<Diagnostic>,
}

impl<'e> Reader<'_, 'e> {
    fn given(&mut self, a: &Argument) -> Option<&'e Expr> {
        match a.needed && self.whole {
            true => self.args.required(a.name, self.sink),
            false => self.args.labelled(a.name, self.sink),
        }
    }
}

impl Visitor for Reader<'_, '_> {
    fn number(&mut self, a: &Argument, bounds: Bounds, value: &mut f64) {
        let given = self.given(a);
        let given = given.and_then(|e| report(real(e, bounds), self.sink));
        *value = given.unwrap_or(*value);
    }

    fn pair(&mut self, a: &Argument, bounds: Bounds, value: &mut (f64, f64)) {
        let given = self.given(a);
        let given = given.and_then(|e| pair(a, e, bounds, *value, self.sink));
        *value = given.unwrap_or(*value);
    }

    fn steps(&mut self, a: &Argument, value: &mut u64) {
        // Where the run's steps are wrong, that was said.
        if let (Some(e), Some(run)) = (self.given(a), self.run) {
            let given = report(steps(e, run), self.sink);
            *value = given.unwrap_or(*value);
        }
    }

    fn word(&mut self, a: &Argument, words: &'static [&'static str], value: &mut &'static str) {
        let Some(e) = self.given(a) else { return };
        let name = name_of(e).unwrap_or(Ident {
            name: String::new(),
            span: e.span,
        });
        match words.iter().find(|word| **word == name.name) {
            Some(word) => *value = word,
            None => self.sink.push(unknown_option(
                &format!("a value of `{}`", a.name),
                &name,
                words,
            )),
        }
    }
}

/// Two numbers; `meant`: where nothing is said.
fn pair(
    a: &Argument,
    e: &Expr,
    bounds: Bounds,
    meant: (f64, f64),
    sink: &mut Vec<Diagnostic>,
) -> Option<(f64, f64)> {
    let help = format!("write `{}: ({}, {})`", a.name, meant.0, meant.1);
    let (ExprKind::Tuple(two) | ExprKind::List(two)) = &e.kind else {
        let message = "two numbers are expected";
        sink.push(Diagnostic::error(codes::NOT_A_LIST, e.span, message).help(help));
        return None;
    };
    let [x, y] = &two[..] else {
        let message = format!("two numbers are expected, not {}", two.len());
        sink.push(Diagnostic::error(codes::LIST_LENGTH, e.span, message).help(help));
        return None;
    };
    let [x, y] = [x, y].map(|e| report(real(e, bounds), sink));
    Some((x?, y?))
}

/// `5%` or `0.05`, a share of the run's steps (rounded down); `200 steps` or `200`, a number of them.
fn steps(e: &Expr, run: u64) -> Result<u64, Diagnostic> {
    const HELP: &str = "a share is written `5%` or `0.05`, a number of steps `200 steps` or `200`";
    let read = match &e.kind {
        ExprKind::Quantity(text, unit) if unit == STEPS => literal(text, e.span)
            .and_then(|n| constant(n, e.span))
            .and_then(|n| in_range(&n, e, 0, run)),
        kind => exact(e, &Scope::new()).and_then(|n| match kind {
            ExprKind::Quantity(..) => share(&n, e, run),
            _ if n.as_integer().is_none() => share(&n, e, run),
            _ => in_range(&n, e, 0, run),
        }),
    };
    read.map_err(|d| d.help(HELP))
}

/// A share of the steps.
fn share(share: &Exact, e: &Expr, steps: u64) -> Result<u64, Diagnostic> {
    let n = share
        .as_rational()
        .map(|s| (s * BigInt::from(steps)).floor());
    let n = n.and_then(|n| u64::try_from(n.to_integer()).ok());
    n.filter(|n| *n <= steps && *share <= Exact::one())
        .ok_or_else(|| out_of_range(share, e).label("a share from 0% to 100% is expected"))
}
