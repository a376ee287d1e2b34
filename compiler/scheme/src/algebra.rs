//! Methods built from other methods: adjoints, compositions, powers, extrapolations, averages.
//!
//! A [`Term`] is run on exact combinations like any other body: what comes out is a straight line in which nothing
//! of the algebra is left. Operands bring their own evaluations: a scheme that is named twice uses the same parameters and
//! learned coefficients, and evaluates a field at the same value once. Leaves names to `expression.rs`, adjoints to
//! `adjoint.rs`, the order that an extrapolation eliminates to `known_order.rs`.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::define::SchemeDef;
use super::embedded::Reached;
use super::flow::{Flow, Setting};
use super::run::{Frame, MAX_EVALUATIONS, StageTracer};
use super::scalar::Scope;
use super::solver::Solver;
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident};
use odec_grammar::diag::Diagnostic;
use odec_numerics::extrapolation::{exponents, weights};
use std::rc::Rc;

/// Most rows of an extrapolation.
const MAX_ROWS: usize = 16;

/// A method, in numbers that are known where it is applied.
#[derive(Clone, Debug)]
pub struct Term {
    pub kind: TermKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum TermKind {
    Scheme(Operand),
    /// `Φ*_h = Φ₋ₕ⁻¹`.
    Adjoint {
        of: Box<Term>,
        /// Iterations for what becomes implicit.
        iterations: Option<Expr>,
    },
    /// Methods one after the other, each with its fraction of h; 1/n where no fraction is written.
    Compose(Vec<(Term, Option<Expr>)>),
    /// n steps of h/n.
    Power(Box<Term>, Expr),
    Extrapolate(Extrapolation),
    Average {
        of: Vec<Term>,
        weights: Option<Numbers>,
    },
}

/// Rows of the Aitken–Neville table: of 1, 2, … steps, or of those that `sequence` says.
#[derive(Clone, Debug)]
pub struct Extrapolation {
    pub of: Box<Term>,
    pub rows: Option<Expr>,
    pub sequence: Option<Numbers>,
}

/// A list of numbers.
#[derive(Clone, Debug)]
pub struct Numbers {
    pub items: Vec<Expr>,
    pub span: Span,
}

/// A scheme, its settings, and which of the fields around it stand for its own.
#[derive(Clone, Debug)]
pub struct Operand {
    pub scheme: Rc<SchemeDef>,
    pub values: Vec<(Ident, Expr)>,
    pub fields: Vec<usize>,
}

impl StageTracer<'_> {
    /// The body of a scheme; the partner of an extrapolation is the entry of the table before the last one.
    pub(super) fn algebra(&mut self, term: &Term, frame: &Frame) -> Option<Reached> {
        let (end, embedded) = match &term.kind {
            TermKind::Extrapolate(e) if frame.outermost => {
                self.extrapolated(e, term.span, frame, frame.start, &frame.h)?
            }
            _ => (self.term(term, frame, frame.start, &frame.h)?, None),
        };
        Some(Reached {
            embedded,
            ..Reached::at(end)
        })
    }

    /// One step of a method from a value.
    pub(super) fn term(
        &mut self,
        term: &Term,
        frame: &Frame,
        start: ValueId,
        h: &Coeff,
    ) -> Option<Combination> {
        self.charge(1, term.span)?;
        self.nested(term.span, |m| m.term_inside(term, frame, start, h))
    }

    fn term_inside(
        &mut self,
        term: &Term,
        frame: &Frame,
        start: ValueId,
        h: &Coeff,
    ) -> Option<Combination> {
        match &term.kind {
            TermKind::Scheme(of) => {
                let flow = self.operand(of, frame)?;
                self.flow(&flow, start, h)
            }
            TermKind::Adjoint { of, iterations } => {
                let solver = match iterations {
                    Some(n) => {
                        let n = self.whole(n, &frame.scope, 0, MAX_EVALUATIONS as u64)?;
                        Some(Solver::plain(n as usize))
                    }
                    None => None,
                };
                self.adjoint(of, frame, start, h, solver.as_ref())
            }
            TermKind::Compose(all) => {
                let mut end = Combination::value(start);
                for (of, fraction) in all {
                    let at = self.value(end, of.span)?;
                    let h = self.fraction(fraction.as_ref(), all.len(), of.span, frame, h)?;
                    end = self.term(of, frame, at, &h)?;
                }
                Some(end)
            }
            TermKind::Power(of, n) => {
                let n = self.count(n, frame)?;
                self.repeated(n, of.span, start, h, |m, at, h| m.term(of, frame, at, h))
            }
            TermKind::Extrapolate(e) => {
                let (end, _) = self.extrapolated(e, term.span, frame, start, h)?;
                Some(end)
            }
            TermKind::Average { of, weights } => {
                let weights = self.shares(of.len(), weights.as_ref(), frame)?;
                let mut ends = Vec::new();
                for of in of {
                    ends.push(self.term(of, frame, start, h)?);
                }
                self.mean(&ends, &weights, start, term.span)
            }
        }
    }

    /// n steps of h/n.
    pub(super) fn repeated(
        &mut self,
        n: u64,
        span: Span,
        start: ValueId,
        h: &Coeff,
        step: impl Fn(&mut Self, ValueId, &Coeff) -> Option<Combination>,
    ) -> Option<Combination> {
        let h = self.exact(h.mul(&Coeff::constant(Exact::ratio(1, n as i64))), span)?;
        let mut end = Combination::value(start);
        for _ in 0..n {
            let at = self.value(end, span)?;
            end = step(self, at, &h)?;
        }
        Some(end)
    }

    /// A number of steps.
    pub(super) fn count(&mut self, n: &Expr, frame: &Frame) -> Option<u64> {
        self.whole(n, &frame.scope, 1, MAX_EVALUATIONS as u64)
    }

    /// The step size of one of n operands.
    pub(super) fn fraction(
        &mut self,
        fraction: Option<&Expr>,
        n: usize,
        span: Span,
        frame: &Frame,
        h: &Coeff,
    ) -> Option<Coeff> {
        let fraction = match fraction {
            Some(e) => self.constant(e, &frame.scope)?,
            None => Exact::ratio(1, n as i64),
        };
        self.exact(h.mul(&Coeff::constant(fraction)), span)
    }

    /// The scheme with its settings, on the fields around it.
    pub(super) fn operand(&mut self, of: &Operand, frame: &Frame) -> Option<Flow> {
        let mut scope = Scope::new();
        let mut settings = Vec::new();
        for (param, default) in &of.scheme.values {
            let given = of.values.iter().find(|(n, _)| n.name == param.name);
            let value = match given {
                Some((_, e)) => self.constant(e, &frame.scope)?,
                None => self.constant(default, &scope)?,
            };
            scope.insert(param.name.clone(), Coeff::constant(value.clone()));
            settings.push((param.name.clone(), Setting::One(value)));
        }
        let args = of.fields.iter().map(|i| frame.flow.args.get(*i).cloned());
        Some(Flow {
            scheme: of.scheme.clone(),
            args: args.collect::<Option<_>>()?,
            list: Vec::new(),
            settings,
            start_by: None,
            span: frame.flow.span,
        })
    }

    /// `Σ wᵢ Φᵢ(x)` over the start and evaluations, so that multiples of the state cancel exactly.
    fn mean(
        &mut self,
        ends: &[Combination],
        weights: &[Exact],
        start: ValueId,
        span: Span,
    ) -> Option<Combination> {
        let mut sum = Combination::zero();
        for (end, w) in ends.iter().zip(weights) {
            let end = self.expanded(end.clone(), start, span)?;
            sum = self.add_scaled(sum, &Coeff::constant(w.clone()), &end, span)?;
        }
        Some(sum)
    }

    /// The weights of an average, which sum to 1.
    fn shares(&mut self, n: usize, weights: Option<&Numbers>, frame: &Frame) -> Option<Vec<Exact>> {
        let Some(given) = weights else {
            return Some(vec![Exact::ratio(1, n as i64); n]);
        };
        let values = given.items.iter().map(|e| self.constant(e, &frame.scope));
        let values: Vec<Exact> = values.collect::<Option<_>>()?;
        if values.len() != n {
            let message = format!("{} weights for {n} methods", values.len());
            return self.fail(Diagnostic::error(codes::LIST_LENGTH, given.span, message));
        }
        let sum: Exact = values.iter().cloned().sum();
        if !sum.is_one() {
            let message = format!("these weights sum to {sum}, not to 1");
            let d = Diagnostic::error(codes::INVALID_VALUE, given.span, message);
            return self.fail(d.label("a constant state would not stay constant"));
        }
        Some(values)
    }

    /// The last entry of the table, and the last of the row before it where there are two.
    fn extrapolated(
        &mut self,
        e: &Extrapolation,
        span: Span,
        frame: &Frame,
        start: ValueId,
        h: &Coeff,
    ) -> Option<(Combination, Option<Combination>)> {
        let steps = self.sequence(e, span, frame)?;
        let mut rows = Vec::new();
        for n in &steps {
            rows.push(self.repeated(*n, e.of.span, start, h, |m, at, h| {
                m.term(&e.of, frame, at, h)
            })?);
        }
        if let [only] = &rows[..] {
            return Some((only.clone(), None));
        }
        let known = self.order_of(&e.of, frame)?;
        let mut entry = |from: usize| {
            let exponents = exponents(known.order, known.symmetric, steps.len() - from);
            let weights = weights(&steps[from..], &exponents)?;
            self.mean(&rows[from..], &weights, start, span)
        };
        Some((entry(0)?, Some(entry(1)?)))
    }

    /// How many steps each row takes.
    fn sequence(&mut self, e: &Extrapolation, span: Span, frame: &Frame) -> Option<Vec<u64>> {
        let rows = match &e.rows {
            Some(k) => Some((self.whole(k, &frame.scope, 1, MAX_ROWS as u64)? as usize, k)),
            None => None,
        };
        let Some(given) = &e.sequence else {
            let (k, _) = rows?;
            return Some((1..=k as u64).collect());
        };
        let steps = given.items.iter().map(|n| self.count(n, frame));
        let steps: Vec<u64> = steps.collect::<Option<_>>()?;
        if steps.is_empty() || steps.len() > MAX_ROWS {
            let message = format!("a sequence of {}", steps.len());
            let d = Diagnostic::error(codes::OUT_OF_RANGE, given.span, message);
            return self.fail(d.label(format!("1 to {MAX_ROWS} rows are expected")));
        }
        if let Some((k, at)) = rows.filter(|(k, _)| *k != steps.len()) {
            let message = format!("{k} rows, and a sequence of {}", steps.len());
            let d = Diagnostic::error(codes::LIST_LENGTH, given.span, message);
            return self.fail(d.also(at.span, "as many rows as this says"));
        }
        let repeated = (1..steps.len()).find(|i| steps[..*i].contains(&steps[*i]));
        if let Some(i) = repeated {
            let message = format!("two rows take {} steps", steps[i]);
            let d = Diagnostic::error(codes::INVALID_VALUE, given.items[i].span, message)
                .label("equal rows eliminate no term of the error")
                .also(span, "in this extrapolation");
            return self.fail(d);
        }
        Some(steps)
    }
}
