//! Stage programs as methods: Runge–Kutta, additive, general linear and exponential ones, with the numbers that proofs ask for.
//!
//! One walk over the instructions (`walk/`) makes a [`LinearStep`] of them, with coefficients that are numbers,
//! polynomials or stay symbols (`reading.rs`). From it come:
//! - the line of a late step on exact past values, on equal steps or any grid: claims, reports ([`located`], `grid.rs`);
//! - the first steps as they are computed, as one line (`first.rs`);
//! - a step over the values that the one before hands to it, a general linear method (`general_linear.rs`);
//! - the additive tableau with symbolic entries of a step on opaque fields: adjoints, extrapolation (`additive.rs`).
//!
//! What lies outside is a sentence with a place ([`Unsupported`]). Tracing schemes into instructions is `run.rs`; proofs are
//! `odec-numerics`'. The second-order pairs of `analysis/pair.rs` keep the powers of h that are divided out here: what
//! equation they solve is read from these.

mod additive;
mod aside;
mod first;
mod general_linear;
mod grid;
mod programs;
mod reading;
pub mod refusal;
mod walk;

pub use additive::solved;
pub(super) use additive::{Equivalent, Stage};
pub(super) use aside::Aside;
pub use first::{Asked, FirstSteps, first_steps};
pub use general_linear::{GeneralLinear, Incoming, general_linear};
pub use grid::located_in;
pub use programs::{
    Late, away, first_programs, late, late_computed, program, program_span, short_steps,
    times_differ, times_stay, to_tolerance,
};
pub use reading::{at_start, coefficient, functions_at_start};
pub use refusal::{DIFFERENT_POWERS, Unsupported};

use super::flow::{Field, Flow, FlowArgKind};
use super::stage::{StageProgram, Steps};
use super::{Coeff, PerUse};
use odec_exact::Exact;
use odec_grammar::Span;
use odec_numerics::linear_step::{NoTableau, Step, Value};
use odec_numerics::series::Number;
use odec_numerics::{LinearStep, Tableau};
use reading::Numbers;
use std::fmt::Display;
use walk::{Named, Programs, Walk};

/// Most values of a line.
const MAX_VALUES: usize = 4096;

/// A line, and where its values are written.
#[derive(Clone, Debug)]
pub struct LocatedStep<C = Exact, P = C> {
    pub line: LinearStep<C, P>,
    /// How many steps back it looks.
    pub reach: i64,
    spans: Vec<Span>,
}

impl<C, P> LocatedStep<C, P> {
    /// Where a value is written.
    pub fn span(&self, value: Value) -> Span {
        self.spans[value]
    }

    /// Where each evaluation is written, in the order of the tableau's stages.
    pub fn stages(&self) -> Vec<Span> {
        let steps = self.line.steps.iter().zip(&self.spans[1..]);
        let evals = steps.filter(|(s, _)| matches!(s, Step::Eval { .. }));
        evals.map(|(_, span)| *span).collect()
    }

    pub fn why_not<D: Display>(&self, no: &NoTableau<D>) -> Unsupported {
        let (NoTableau::Flow(value)
        | NoTableau::Phi(value)
        | NoTableau::History(value)
        | NoTableau::State(value, _)
        | NoTableau::Large(value, _)
        | NoTableau::Roots(value, _)) = no;
        let state = matches!(no, NoTableau::State(..)).then_some(*value);
        let reads = |s: &Step<C, P>| matches!(s, Step::Eval { at, .. } if Some(*at) == state);
        let evaluation = self.line.steps.iter().position(reads);
        match (evaluation, no) {
            (Some(i), NoTableau::State(_, c)) => Unsupported {
                span: self.spans[i + 1],
                why: format!(
                    "it evaluates a field at a value that takes {c} of the old state where a method of one step takes 1"
                ),
            },
            _ => Unsupported::without_tableau(no, self.spans[*value]),
        }
    }
}

impl LocatedStep {
    /// One stage for each evaluation.
    pub fn tableau(&self) -> Result<Tableau, Unsupported> {
        self.line.tableau().map_err(|no| self.why_not(&no))
    }

    pub fn has_flows(&self) -> bool {
        let flow = |s: &Step| matches!(s, Step::Flow { .. });
        self.line.steps.iter().any(flow)
    }

    /// What gives the second result, where there is one.
    pub fn partner(&self) -> Option<LocatedStep> {
        let mut partner = self.clone();
        partner.line.result = partner.line.embedded.take()?;
        Some(partner)
    }
}

/// The line of a flow. `per_use`: fields each written occurrence of which is a field of its own.
pub fn located(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<LocatedStep, Unsupported> {
    let late = late(flow, inner, per_use)?;
    let here = of_program(flow, &late.here, per_use);
    let Some(next) = &late.next else {
        return here;
    };
    // With learned coefficients at their start, steps may be alike all the same.
    match (here, of_program(flow, next, per_use)) {
        (Ok(here), Ok(next)) if here.line == next.line => Ok(here),
        _ => Err(late.grows),
    }
}

/// With learned coefficients at their start.
fn of_program(
    flow: &Flow,
    program: &StageProgram,
    per_use: &PerUse,
) -> Result<LocatedStep, Unsupported> {
    located_at(flow, program, per_use, &|c, _| at_start(program, c))
}

/// The line of a program, with what coefficients are in the step that is looked at, or in one so many steps before it.
pub fn located_at<C: Number>(
    flow: &Flow,
    program: &StageProgram,
    per_use: &PerUse,
    known: &dyn Fn(&Coeff, i64) -> Option<C>,
) -> Result<LocatedStep<C>, Unsupported> {
    let equal = |_| C::exact(&Exact::one());
    located_on(flow, program, per_use, known, &equal)
}

/// The same on any grid: `ratio` gives the size of a step so many steps ago, over that of the step that is looked at.
pub fn located_on<C: Number>(
    flow: &Flow,
    program: &StageProgram,
    per_use: &PerUse,
    known: &dyn Fn(&Coeff, i64) -> Option<C>,
    ratio: &dyn Fn(i64) -> C,
) -> Result<LocatedStep<C>, Unsupported> {
    let numbers = Numbers { known, ratio };
    let body = program_span(flow);
    let mut walk = Walk::new(Programs::Alike(program), &numbers, per_use, body);
    let result = walk.state(&program.result, 0)?;
    let embedded = match &program.embedded {
        Some(e) => Some(walk.state(&e.result, 0)?),
        None => None,
    };
    walk.close()?;
    // A field that is never evaluated belongs to the equation all the same.
    for name in leaves(flow) {
        if walk.fields.iter().all(|f| f.leaf != name) {
            walk.fields.push(Named::alone(name));
        }
    }
    Ok(walk.line(result, embedded))
}

/// Names of a flow's fields, each once.
fn leaves(flow: &Flow) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for arg in flow.args.iter().chain(&flow.list) {
        let more = match &arg.kind {
            FlowArgKind::Flow(inner) => leaves(inner),
            FlowArgKind::Field { field, .. } => match &**field {
                Field::Leaf(leaf) => vec![leaf.name.clone()],
                _ => Vec::new(),
            },
        };
        for name in more {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}
