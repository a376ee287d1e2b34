//! Linear multistep methods: `multistep { alpha 1 -1; beta 0 3/2 -1/2 }`, newest first from x[k+1] and f[k+1].
//!
//! Σ αᵢ x[k+1−i] = h Σ βᵢ f[k+1−i], with f = F(x). What is older than the step at hand is read from the history, so f was
//! evaluated with the weights of its own step. On steps that are not equal, methods that integrate or differentiate a polynomial
//! have the coefficients of their grid ([`variable`]). Until there is enough history another scheme takes the steps (`start by`).
//! Where β₀ is not 0 the new state is solved for from the old one, as the stages of implicit tableaus are.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::define::{OrderClaim, SchemeDef};
use super::embedded::Reached;
use super::flow::{Flow, FlowArgKind};
use super::resolve::{count, flow_for_field};
use super::run::{Frame, StageTracer};
use super::scalar::{Scope, arithmetic};
use super::solver::{Gradient, Solver};
use super::stage::{Moment, Phase};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_numerics::multistep as numerics;
use odec_numerics::variable::{self, Family};

/// Names of the state and of the evaluation in the history.
pub const STATE: &str = "x";
pub const RATE: &str = "f";

/// The two rows, as written.
#[derive(Clone, Debug)]
pub struct Multistep {
    pub alpha: Vec<Expr>,
    pub beta: Vec<Expr>,
    pub span: Span,
}

impl Multistep {
    /// The number of steps k of a k-step method.
    pub fn steps(&self) -> usize {
        self.alpha.len().max(self.beta.len()).saturating_sub(1)
    }

    /// Sorts the rows.
    pub fn read(
        rows: &[(Ident, Vec<Expr>)],
        span: Span,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<Multistep> {
        let before = sink.len();
        let mut row = |name: &str| {
            let mut named = rows.iter().filter(|(n, _)| n.name == name);
            let first = named.next();
            if let (Some((first, _)), Some((second, _))) = (first, named.next()) {
                let message = format!("two rows are called `{name}`");
                let d = Diagnostic::error(codes::REPEATED_ITEM, second.span, message);
                sink.push(d.also(first.span, "the first one"));
            }
            if first.is_none() {
                let message = format!("this multistep method has no row `{name}`");
                let d = Diagnostic::error(codes::MULTISTEP_ROWS, span, message);
                sink.push(d.help("write `multistep { alpha 1 -1; beta 0 3/2 -1/2 }`"));
            }
            first.map(|(_, entries)| entries.clone())
        };
        let (alpha, beta) = (row("alpha"), row("beta"));
        for (name, _) in rows {
            if !["alpha", "beta"].contains(&name.name.as_str()) {
                let message = format!("`{}` is not a row of a multistep method", name.name);
                let d = Diagnostic::error(codes::MULTISTEP_ROWS, name.span, message);
                sink.push(d.label("`alpha` or `beta` is expected"));
            }
        }
        let (alpha, beta) = (alpha?, beta?);
        (sink.len() == before).then_some(Multistep { alpha, beta, span })
    }
}

/// The order that a scheme claims, where that is a plain number; else 0.
fn claimed(def: &SchemeDef) -> usize {
    let literal = |c: &OrderClaim| match &c.order.kind {
        ExprKind::Number(text) => text.parse().ok(),
        _ => None,
    };
    def.claims.iter().find_map(literal).unwrap_or(0)
}

/// Methods of the library that take first steps, with their orders.
const STARTERS: [(usize, &str); 5] = [
    (2, "heun"),
    (3, "kutta3"),
    (4, "rk4"),
    (6, "butcher6"),
    (10, "hairer10"),
];

/// What could take the first steps, such that this order is left: a step of order q has a local error of order q + 1.
pub fn starter(order: usize) -> Option<&'static str> {
    let enough = STARTERS.iter().find(|(p, _)| p + 1 >= order);
    enough.map(|(_, name)| *name)
}

/// What belongs to a multistep method, and to nothing else.
pub fn check(def: &SchemeDef, m: &Multistep, sink: &mut Vec<Diagnostic>) {
    let steps = m.steps();
    if steps == 0 {
        let d = Diagnostic::error(
            codes::MULTISTEP_ROWS,
            m.span,
            "this method reads no earlier value",
        );
        sink.push(d.help("each row has an entry for the new step and one for each earlier one"));
    }
    match (&def.start_by, steps) {
        (None, 2..) => {
            let message = format!("a method of {} needs a start", count(steps, "step"));
            let d = Diagnostic::error(codes::MISSING_START, m.span, message)
                .label("the first steps have no earlier values")
                .help(format!(
                    "take them with another scheme: `start by {}`",
                    starter(claimed(def)).unwrap_or("heun")
                ));
            sink.push(d);
        }
        (Some(by), 0 | 1) => {
            let message = "a one-step method needs no start";
            sink.push(
                Diagnostic::error(codes::NOTHING_TO_START, by.span, message)
                    .also(m.span, "it reads no earlier values"),
            );
        }
        _ => {}
    }
}

/// The coefficients, over α₀, both rows equally long.
pub(super) struct Coefficients {
    pub alpha: Vec<Coeff>,
    pub beta: Vec<Coeff>,
}

impl StageTracer<'_> {
    pub(super) fn multistep(&mut self, m: &Multistep, frame: &Frame) -> Option<Reached> {
        let arg = frame.flow.args.first()?;
        let FlowArgKind::Field { field, by: None } = &arg.kind else {
            return self.fail(flow_for_field(arg.span, &frame.flow.scheme));
        };
        self.history(m.span, frame)?;
        let mut both = self.coefficients(m, &frame.scope)?;
        let family = self.family(&both, frame);
        if let Some(l) = &frame.flow.scheme.learned {
            self.learn_multistep(l, m, &mut both, frame)?;
        }
        let solver = self.solver_of(m, &both.beta, frame)?;
        // On another grid an entry may be 0 that is none on this one.
        let quadrature = matches!(family, Some(Family::Quadrature { .. }));
        let read = |row: &[Coeff]| row.iter().any(|c| !c.is_zero());
        let keeps_state = read(&both.alpha[2..]) || family.is_some_and(|_| !quadrature);
        let keeps_rate = read(&both.beta[2..]) || quadrature;
        let evaluates = read(&both.beta[1..]) || quadrature;
        if let Some(fitted) = family.and_then(|f| self.on_grid(f, m)) {
            both = fitted;
        }
        let Coefficients { alpha, beta } = both;
        let solver = solver.filter(|_| !beta[0].is_zero());
        let Phase::Step(step) = self.at.phase else {
            return None;
        };
        let state = Combination::value(frame.start);
        // Later steps read it even where this one does not.
        let rate = match evaluates {
            false => Combination::zero(),
            true => self.field(field, state.clone(), m.span)?,
        };
        let mut keeps = Vec::new();
        if keeps_state {
            keeps.push((STATE.to_string(), ValueId::STATE));
        }
        if keeps_rate {
            keeps.push((RATE.to_string(), self.value(rate.clone(), m.span)?));
        }
        if step + 1 < m.steps() {
            return Some(Reached {
                end: self.started(frame)?,
                embedded: None,
                keeps,
            });
        }
        let mut known = Combination::zero();
        for i in 1..alpha.len() {
            let past = i - 1;
            if !alpha[i].is_zero() {
                let x = match past {
                    0 => state.clone(),
                    _ => self.past(STATE, Moment::Ago(past)),
                };
                known = self.add_scaled(known, &alpha[i].neg(), &x, m.span)?;
            }
            if !beta[i].is_zero() {
                let f = match past {
                    0 => rate.clone(),
                    _ => self.past(RATE, Moment::Ago(past)),
                };
                known = self.plus_rate(known, &beta[i], &f, m.span, frame)?;
            }
        }
        let mut end = known.clone();
        if let Some(solver) = solver {
            let mut update = |machine: &mut StageTracer, end: &[Combination]| {
                let outer = machine.say(frame.start, frame.h.clone(), None);
                let f = machine.field(field, end[0].clone(), m.span);
                machine.unsay(outer);
                let f = f?;
                let end = machine.plus_rate(known.clone(), &beta[0], &f, m.span, frame)?;
                Some(vec![end])
            };
            // No method of k steps has a higher order than 2k.
            let decides = 2 * m.steps() + 1;
            let mut found = self.fixed(&solver, vec![state], decides, m.span, &mut update)?;
            // After a number of iterations the rate at the last one is the result's, as in a tableau.
            if solver.mixing().is_none()
                && matches!(solver.gradient, Gradient::Unroll | Gradient::Last(_))
            {
                found = update(self, &found)?;
            }
            end = found.pop()?;
        }
        Some(Reached {
            end,
            embedded: None,
            keeps,
        })
    }

    /// `to + β h f`.
    fn plus_rate(
        &mut self,
        to: Combination,
        beta: &Coeff,
        f: &Combination,
        span: Span,
        frame: &Frame,
    ) -> Option<Combination> {
        let c = self.exact(frame.h.mul(beta), span)?;
        self.add_scaled(to, &c, f, span)
    }

    /// What the rows are made from, where steps are not equal and the rows are not learned.
    fn family(&self, written: &Coefficients, frame: &Frame) -> Option<Family> {
        let fits = !self.at.grid.sizes.is_empty() && !self.at.grid.learned;
        if !fits || frame.flow.scheme.learned.is_some() {
            return None;
        }
        let constants =
            |row: &[Coeff]| -> Option<Vec<Exact>> { row.iter().map(Coeff::as_constant).collect() };
        let rows = numerics::Multistep {
            alpha: constants(&written.alpha)?,
            beta: constants(&written.beta)?,
        };
        rows.family()
    }

    /// The rows on the grid of a step; `None`: it is one of the first, or its points coincide.
    fn on_grid(&self, family: Family, m: &Multistep) -> Option<Coefficients> {
        let Phase::Step(step) = self.at.phase else {
            return None;
        };
        if step + 1 < m.steps() {
            return None;
        }
        let sizes = self.at.grid.sizes.get(..=step)?.iter().rev();
        let sizes: Vec<Exact> = sizes.take(m.steps().max(1)).cloned().collect();
        let rows = family.on(&variable::points(&sizes)?)?;
        let row = |row: Vec<Exact>| row.into_iter().map(Coeff::constant).collect();
        Some(Coefficients {
            alpha: row(rows.alpha),
            beta: row(rows.beta),
        })
    }

    /// One step of the scheme that makes the history.
    pub(super) fn started(&mut self, frame: &Frame) -> Option<Combination> {
        let method = frame.flow.start_by.as_ref()?;
        let first = Flow {
            scheme: method.scheme.clone(),
            args: frame.flow.args.clone(),
            list: Vec::new(),
            settings: method.settings.clone(),
            start_by: None,
            span: method.span,
        };
        self.flow(&first, frame.start, &frame.h)
    }

    /// How an implicit method is solved; `None`: it is explicit.
    fn solver_of(
        &mut self,
        m: &Multistep,
        beta: &[Coeff],
        frame: &Frame,
    ) -> Option<Option<Solver>> {
        match (beta[0].is_zero(), &frame.flow.scheme.solve) {
            (true, None) => Some(None),
            (false, Some((method, _))) => self.solver(method, &frame.scope).map(Some),
            (true, Some((_, span))) => self.fail(
                Diagnostic::error(codes::NOTHING_TO_SOLVE, *span, "there is nothing to solve")
                    .label("the new state does not depend on its own evaluation")
                    .also(m.span, "the method is explicit"),
            ),
            (false, None) => self.fail(
                Diagnostic::error(
                    codes::MISSING_SOLVER,
                    m.beta[0].span,
                    "this method is implicit",
                )
                .label("the new state depends on its own evaluation")
                .help("choose a solver: `solve by fixed_point(iterations: 3)`"),
            ),
        }
    }

    /// Both rows as long as the longer one, divided by α₀, and consistent: Σ αᵢ = 0, −Σ i αᵢ = Σ βᵢ.
    fn coefficients(&mut self, m: &Multistep, scope: &Scope) -> Option<Coefficients> {
        let mut row = |entries: &[Expr]| -> Option<Vec<Exact>> {
            let values: Option<Vec<Exact>> =
                entries.iter().map(|e| self.constant(e, scope)).collect();
            let mut values = values?;
            // With room for one entry of the past, so that slices begin somewhere.
            values.resize((m.steps() + 1).max(2), Exact::zero());
            Some(values)
        };
        let (alpha, beta) = (row(&m.alpha)?, row(&m.beta)?);
        let Ok(over) = alpha[0].recip() else {
            let d = Diagnostic::error(
                codes::INCONSISTENT_ROWS,
                m.alpha[0].span,
                "the coefficient of the new state is 0",
            );
            return self.fail(d.label("a number other than 0 is expected"));
        };
        let sum: Exact = alpha.iter().cloned().sum();
        if !sum.is_zero() {
            let message = format!("the entries of `alpha` sum to {sum}, not to 0");
            let d = Diagnostic::error(codes::INCONSISTENT_ROWS, spans(&m.alpha), message)
                .label("a constant state would not stay constant")
                .help("check the row for a typo; the newest entry comes first");
            return self.fail(d);
        }
        let weighted = |i: usize| &Exact::int(-(i as i64)) * &alpha[i];
        let slope: Exact = (1..alpha.len()).map(weighted).sum();
        let sum: Exact = beta.iter().cloned().sum();
        if slope != sum {
            let message = format!("the entries of `beta` sum to {sum}, not to {slope}");
            let d = Diagnostic::error(codes::INCONSISTENT_ROWS, spans(&m.beta), message)
                .label(format!(
                    "`alpha` requires {slope}: a constant rate would be integrated wrongly"
                ))
                .help("check the row for a typo; the newest entry comes first");
            return self.fail(d);
        }
        let scaled = |row: Vec<Exact>| -> Result<Vec<Coeff>, _> {
            let each = row.iter().map(|a| (a * &over).checked());
            each.map(|a| a.map(Coeff::constant)).collect()
        };
        let scaled = scaled(alpha).and_then(|a| Ok((a, scaled(beta)?)));
        let (alpha, beta) = self.ok(scaled.map_err(|why| arithmetic(why.into(), m.span)))?;
        Some(Coefficients { alpha, beta })
    }
}

fn spans(entries: &[Expr]) -> Span {
    let all = entries.iter().map(|e| e.span);
    all.reduce(Span::to).expect("a row has an entry")
}
