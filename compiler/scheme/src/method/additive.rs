//! The additive tableau of a step on opaque fields, with symbolic entries: `Yᵢ = x + h Σ aᵢⱼ F(Yⱼ)`, `x₁ = x + h Σ bⱼ F(Yⱼ)`.
//!
//! Takes what was run aside; gives the coefficients where every state is the old one plus multiples of h F(y). Leaves what is done
//! with them to `adjoint.rs`, `known_order.rs` and reports.

use super::super::Coeff;
use super::super::combination::{Combination, ValueId};
use super::super::flow::Flow;
use super::super::per_use::{OWN, SHARED};
use super::super::run::{At, Grid, MAX_TOTAL, StageTracer};
use super::super::stage::{Phase, StageInstr, Steps};
use super::reading::Symbols;
use super::refusal::Unsupported;
use super::walk::{Programs, Walk};
use super::{Aside, LocatedStep};
use odec_grammar::Span;
use odec_numerics::Tableau;
use odec_numerics::linear_step::{NoTableau, Place, Sums};
use std::convert::Infallible;

const FLOWS: &str = "it follows flows otherwise than one after the other";

/// One stage.
pub(crate) struct Stage {
    /// The field, counted through the flow's arguments and then its list.
    pub field: usize,
    /// Where the evaluation is written, from the outside in: its occurrence under `weights per use`.
    pub place: Vec<Span>,
    pub span: Span,
}

/// A tableau whose fields are those of the flow, and where its stages are written.
pub(crate) struct Equivalent {
    pub stages: Vec<Stage>,
    pub tableau: Tableau<Coeff>,
}

/// Combinations of the old state and evaluations, their work counted.
struct Counted<'m, 's> {
    tracer: &'m mut StageTracer<'s>,
    span: Span,
}

/// What was complained about.
struct Refused;

fn value_of(place: Place) -> ValueId {
    match place {
        Place::Incoming(i) => ValueId(i as u32),
        Place::Evaluation(j) => ValueId(j as u32 + 1),
    }
}

impl Sums for Counted<'_, '_> {
    type Number = Coeff;
    type Sum = Combination;
    type Failure = Refused;
    fn unit(&self, place: Place) -> Combination {
        Combination::value(value_of(place))
    }
    fn combined(&mut self, terms: &[(&Combination, &Coeff)]) -> Result<Combination, Refused> {
        let mut sum = Combination::zero();
        for (of, c) in terms {
            let added = self.tracer.add_scaled(sum, c, of, self.span);
            sum = added.ok_or(Refused)?;
        }
        Ok(sum)
    }
    fn entry(&self, sum: &Combination, place: Place) -> Coeff {
        let entry = sum.coeff(value_of(place));
        entry.cloned().unwrap_or_else(Coeff::zero)
    }
    fn is_one(&self, c: &Coeff) -> bool {
        c.is_one()
    }
}

/// All values of what was run aside, stages in the order in which they are evaluated; `span` is blamed where nothing nearer can be.
fn walked(aside: &Aside, span: Span) -> Result<LocatedStep<Coeff, Infallible>, Unsupported> {
    let program = &aside.program;
    let mut walk = Walk::new(Programs::Alike(program), &Symbols, &SHARED, span);
    let values = || (1..=program.instrs.len() as u32).map(ValueId);
    for v in values() {
        walk.open(v, 0)?;
    }
    for v in values() {
        walk.value(v, 0)?;
    }
    let result = walk.state(&program.result, 0)?;
    let embedded = program.embedded.as_ref();
    let embedded = embedded.map(|e| walk.state(&e.result, 0)).transpose()?;
    walk.close()?;
    Ok(walk.line(result, embedded))
}

impl StageTracer<'_> {
    /// The tableau of what was run aside; `span` is blamed for its size.
    pub(crate) fn tabled(
        &mut self,
        aside: &Aside,
        span: Span,
    ) -> Option<Result<Equivalent, Unsupported>> {
        let stages = aside.program.instrs.iter().filter_map(|i| match i {
            StageInstr::Eval {
                field, usage, span, ..
            } => Some(Stage {
                field: aside.fields[*field],
                place: aside.places[*field][*usage].clone(),
                span: *span,
            }),
            _ => None,
        });
        let stages: Vec<Stage> = stages.collect();
        self.charge(stages.len() * stages.len(), span)?;
        let located = match walked(aside, span) {
            Ok(located) => located,
            Err(beyond) => return Some(Err(beyond)),
        };
        let mut counted = Counted { tracer: self, span };
        let found = located.line.tableau_by(&mut counted).ok()?;
        Some(match found {
            Ok(tableau) => Ok(Equivalent { stages, tableau }),
            // One after the other they have an adjoint.
            Err(NoTableau::Flow(v)) => Err(Unsupported::at(located.span(v), FLOWS)),
            Err(no) => Err(located.why_not(&no)),
        })
    }

    /// With learned coefficients at their start.
    pub(crate) fn numbers(&self, found: &Equivalent, fields: Vec<String>) -> Option<Tableau> {
        let start = |name: &str| {
            let mut learned = self.learned.iter();
            learned.find(|l| l.name == name).map(|l| l.init.clone())
        };
        let row = |row: &Vec<Coeff>| row.iter().map(|c| c.at(&start)).collect::<Option<_>>();
        let of = &found.tableau;
        Some(Tableau {
            fields,
            field_of: found.stages.iter().map(|s| s.field).collect(),
            a: of.a.iter().map(row).collect::<Option<_>>()?,
            b: row(&of.b)?,
            embedded: match &of.embedded {
                Some(e) => Some(row(e)?),
                None => None,
            },
        })
    }
}

/// The tableau of a scheme with its stages found exactly and learned coefficients at their start; `None`: it has none.
pub fn solved(flow: &Flow) -> Option<Tableau> {
    let at = At {
        phase: Phase::Step(0),
        steps: 1,
        grid: Grid::default(),
        inner: Steps::Exact,
        solved: true,
        analysed: true,
        timed: false,
        pasts: None,
        per_use: &OWN,
        budget: MAX_TOTAL,
    };
    let mut sink = Vec::new();
    let mut m = StageTracer::new(at, &mut sink);
    let h = Coeff::symbol("h");
    let aside = m.aside(flow, |m, frame| {
        m.flow_inside(frame.flow, ValueId::STATE, &h, true)
    })?;
    let found = m.tabled(&aside, flow.span)?.ok()?;
    let params = flow.scheme.fields.iter();
    m.numbers(&found, params.map(|f| f.name.clone()).collect())
}
