//! Adjoint methods: `Φ*_h = Φ₋ₕ⁻¹`, the inverse of a step backwards (Hairer, Lubich & Wanner 2006, II.3).
//!
//! Compositions, powers and splittings are taken apart: their parts come in reverse, each as its adjoint, and an exact
//! flow is its own. Of everything else the equivalent tableau is taken, with `a*ᵢⱼ = b_{s+1−j} − a_{s+1−i,s+1−j}` and
//! `b*ᵢ = b_{s+1−i}`; for explicit methods it is implicit. Leaves finding the tableau to `method/additive.rs`,
//! iterations to `implicit.rs`.

use super::algebra::{Term, TermKind};
use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::define::Body;
use super::embedded::Reached;
use super::flow::{Field, Flow, FlowArg, FlowArgKind, Method};
use super::implicit::Stages;
use super::method::{Equivalent, Stage, Unsupported};
use super::resolve::flow_for_field;
use super::run::{Frame, StageTracer};
use super::solver::Solver;
use super::stage::Steps;
use super::tableau::{Row, Rows};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_numerics::Tableau;
use std::collections::BTreeMap;
use std::rc::Rc;

/// From where a step is taken, how far, and how implicit stages in it are found where that has been said.
#[derive(Clone, Copy)]
struct From<'h> {
    start: ValueId,
    h: &'h Coeff,
    solver: Option<&'h Solver>,
}

impl StageTracer<'_> {
    /// One step of the adjoint of a term.
    pub(super) fn adjoint(
        &mut self,
        of: &Term,
        frame: &Frame,
        start: ValueId,
        h: &Coeff,
        solver: Option<&Solver>,
    ) -> Option<Combination> {
        let own = match (solver, &frame.flow.scheme.solve) {
            (None, Some((method, _))) => Some(self.solver(method, &frame.scope)?),
            (said, _) => said.cloned(),
        };
        let from = From {
            start,
            h,
            solver: own.as_ref(),
        };
        self.adjoint_term(of, frame, from)
    }

    fn adjoint_term(&mut self, of: &Term, frame: &Frame, from: From) -> Option<Combination> {
        self.charge(1, of.span)?;
        self.nested(of.span, |m| m.adjoint_inside(of, frame, from))
    }

    fn adjoint_inside(&mut self, of: &Term, frame: &Frame, from: From) -> Option<Combination> {
        match &of.kind {
            TermKind::Scheme(operand) => {
                let flow = self.operand(operand, frame)?;
                self.adjoint_flow(&flow, of.span, from)
            }
            TermKind::Adjoint { of, .. } => self.term(of, frame, from.start, from.h),
            TermKind::Compose(all) => {
                let mut end = Combination::value(from.start);
                for (of, fraction) in all.iter().rev() {
                    let start = self.value(end, of.span)?;
                    let h = &self.fraction(fraction.as_ref(), all.len(), of.span, frame, from.h)?;
                    end = self.adjoint_term(of, frame, From { start, h, ..from })?;
                }
                Some(end)
            }
            TermKind::Power(of, n) => {
                let n = self.count(n, frame)?;
                self.repeated(n, of.span, from.start, from.h, |m, start, h| {
                    m.adjoint_term(of, frame, From { start, h, ..from })
                })
            }
            TermKind::Extrapolate(_) | TermKind::Average { .. } => {
                let aside = self.aside(frame.flow, |m, frame| {
                    let h = frame.h.clone();
                    m.term(of, frame, frame.start, &h).map(Reached::at)
                })?;
                let found = self.tabled(&aside, of.span)?;
                self.reversed(found, frame.flow, of.span, from)
            }
        }
    }

    /// One step of the adjoint of a scheme; `span` is where it is named.
    fn adjoint_flow(&mut self, flow: &Flow, span: Span, from: From) -> Option<Combination> {
        let (start, h) = (from.start, from.h);
        match &flow.scheme.body {
            Body::Splitting(flows) => {
                let frame = self.frame(flow, start, h, false)?;
                let mut end = Combination::value(start);
                for sub in flows.iter().rev() {
                    let arg = self.part(sub, &BTreeMap::new(), &frame)?;
                    let fraction = Some(&sub.fraction);
                    let h = &self.fraction(fraction, 1, sub.fraction.span, &frame, h)?;
                    let start = self.value(end, sub.span)?;
                    let from = From { start, h, ..from };
                    end = self.written_at(sub.span, |m| m.adjoint_sub_flow(&arg, span, from))?;
                }
                Some(end)
            }
            Body::Algebra(a) => {
                let frame = self.frame(flow, start, h, false)?;
                self.adjoint(&a.term, &frame, start, h, from.solver)
            }
            Body::Tableau(_) | Body::Step(_) => {
                let own = match (from.solver, &flow.scheme.solve) {
                    (None, Some((method, _))) => {
                        let frame = self.frame(flow, start, h, false)?;
                        Some(self.solver(method, &frame.scope)?)
                    }
                    _ => None,
                };
                let solver = own.as_ref().or(from.solver);
                let from = From { solver, ..from };
                let h = Coeff::symbol("h");
                let aside = self.aside(flow, |m, frame| {
                    let inner = frame.flow;
                    m.flow(inner, ValueId::STATE, &h).map(Reached::at)
                })?;
                let found = self.tabled(&aside, span)?;
                self.reversed(found, flow, span, from)
            }
            // Whoever names an operand has looked this up.
            Body::Multistep(_) | Body::LearnedFrom(_) | Body::Method(_) => None,
        }
    }

    /// The adjoint of what a splitting is applied to: an exact flow is its own.
    fn adjoint_sub_flow(&mut self, arg: &FlowArg, span: Span, from: From) -> Option<Combination> {
        let flow = match &arg.kind {
            FlowArgKind::Flow(flow) => flow.clone(),
            FlowArgKind::Field {
                field,
                by: Some(method),
            } => Rc::new(method.on(field, arg.span)),
            FlowArgKind::Field { field, by: None } => {
                if let (Steps::Exact, Field::Leaf(leaf)) = (self.at.inner, &**field) {
                    return self.exact_flow(leaf, from.start, from.h, span);
                }
                let rows = Rows {
                    stages: vec![Row::made(vec![Coeff::one()], span)],
                    weights: Row::made(vec![Coeff::one()], span),
                    embedded: None,
                };
                let what = "the adjoint of an Euler step, by which a field is advanced,";
                return self.taken(&rows, &[0], what, span, from, &|m, _, y, _| {
                    m.field(field, y, arg.span)
                });
            }
        };
        self.nested(flow.span, |m| m.adjoint_flow(&flow, span, from))
    }

    /// One step of the adjoint of a tableau.
    fn reversed(
        &mut self,
        found: Result<Equivalent, Unsupported>,
        flow: &Flow,
        span: Span,
        from: From,
    ) -> Option<Combination> {
        let Equivalent {
            mut stages,
            tableau: Tableau { a, b, .. },
        } = match found {
            Ok(found) => found,
            Err(Unsupported { span: at, why }) => {
                let d = Diagnostic::error(codes::NO_ADJOINT, span, "this method has no adjoint here")
                    .label(why)
                    .help("the adjoint of a step is known where every state in it is the old one plus multiples of `h*F(y)`, and of flows one after the other");
                return self.fail(match at == span {
                    true => d,
                    false => d.also(at, "this step has another form"),
                });
            }
        };
        stages.reverse();
        let mut rows = Vec::new();
        for from in a.iter().rev() {
            let mut row = Vec::new();
            for (b, a) in b.iter().zip(from).rev() {
                row.push(self.exact(b.sub(a), span)?);
            }
            rows.push(Row::made(row, span));
        }
        let weights = Row::made(b.into_iter().rev().collect(), span);
        let rows = Rows {
            stages: rows,
            weights,
            embedded: None,
        };
        // Stages of one field that are written at one place share what they evaluate.
        let mut kinds: Vec<&Stage> = Vec::new();
        let mut at = Vec::new();
        for stage in &stages {
            let same = |k: &&Stage| k.field == stage.field && k.place == stage.place;
            at.push(kinds.iter().position(same).unwrap_or_else(|| {
                kinds.push(stage);
                kinds.len() - 1
            }));
        }
        let name = &flow.scheme.name.name;
        let what = format!("the adjoint of `{name}`");
        self.taken(&rows, &at, &what, span, from, &|m, kind, y, _| {
            let stage = kinds[kind];
            let mut args = flow.args.iter().chain(&flow.list);
            let arg = args.nth(stage.field)?;
            let FlowArgKind::Field { field, by: None } = &arg.kind else {
                return m.fail(flow_for_field(arg.span, &flow.scheme));
            };
            let depth = m.place.len();
            m.place.extend(&stage.place);
            let k = m.field(field, y, stage.span);
            m.place.truncate(depth);
            k
        })
    }

    /// One step of a tableau, solved if that is necessary; `what` says whose it is.
    fn taken(
        &mut self,
        rows: &Rows,
        at: &[usize],
        what: &str,
        span: Span,
        from: From,
        evaluate: super::implicit::Evaluate,
    ) -> Option<Combination> {
        let needed = rows.needed(&[&rows.weights]);
        let stages = Stages {
            rows: &rows.stages,
            needed: &needed,
            at,
            evaluate,
            start: from.start,
            h: from.h,
        };
        let ks = match (stages.implicit(), from.solver) {
            (None, _) => self.explicit(&stages)?,
            (Some(_), _) if self.at.solved => self.solved(&stages)?,
            (Some(_), Some(solver)) => self.fixed_point(&stages, solver)?,
            (Some(_), None) => {
                let message = format!("{what} is implicit");
                return self.fail(
                    Diagnostic::error(codes::MISSING_SOLVER, span, message)
                        .label("its stages are solved for")
                        .help("say how: `adjoint(…, iterations: 3)`, or `solve by fixed_point(iterations: 3)` in the scheme"),
                );
            }
        };
        self.weighted(&rows.weights, &ks, &stages)
    }
}

impl Method {
    /// The method on its field.
    pub(super) fn on(&self, field: &Rc<Field>, span: Span) -> Flow {
        let kind = FlowArgKind::Field {
            field: field.clone(),
            by: None,
        };
        Flow {
            scheme: self.scheme.clone(),
            args: vec![FlowArg { kind, span }],
            list: Vec::new(),
            settings: self.settings.clone(),
            start_by: None,
            span: self.span,
        }
    }
}
