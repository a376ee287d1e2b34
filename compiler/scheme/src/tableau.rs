//! Reads Runge–Kutta tableaus: checks shape and row sums, and emits the stages.
//!
//! Yᵢ = x + h Σ aᵢⱼ kⱼ, kᵢ = F(Yᵢ), result x + h Σ bᵢ kᵢ, embedded partner x + h Σ b̂ᵢ kᵢ. Stages that neither needs are
//! left out. Leaves stages that depend on later ones to `implicit.rs`.

use super::coeff::Coeff;
use super::combination::Combination;
use super::embedded::Reached;
use super::flow::FlowArgKind;
use super::implicit::Stages;
use super::resolve::count;
use super::run::{Frame, StageTracer};
use super::scalar::{Scope, exact, shown};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Tableau, TableauRow};
use odec_grammar::diag::Diagnostic;

/// One row, with as many entries as there are stages.
pub(super) struct Row {
    pub a: Vec<Coeff>,
    pub span: Span,
    /// Where its entries are written.
    entries: Vec<Span>,
}

impl Row {
    /// A row that is nowhere written.
    pub fn made(a: Vec<Coeff>, span: Span) -> Self {
        let entries = Vec::new();
        Row { a, span, entries }
    }
    fn new(a: Vec<Exact>, source: &TableauRow) -> Self {
        Row {
            a: a.into_iter().map(Coeff::constant).collect(),
            span: source.span,
            entries: source.entries.iter().map(|e| e.span).collect(),
        }
    }
    /// Where an entry is written.
    pub fn entry(&self, j: usize) -> Span {
        self.entries.get(j).copied().unwrap_or(self.span)
    }
}

/// The rows of a tableau.
pub(super) struct Rows {
    pub stages: Vec<Row>,
    pub weights: Row,
    pub embedded: Option<Row>,
}

impl Rows {
    /// Which stages the weights need, themselves or through other stages.
    pub fn needed(&self, weights: &[&Row]) -> Vec<bool> {
        let mut needed: Vec<bool> = (0..self.stages.len())
            .map(|j| weights.iter().any(|w| !w.a[j].is_zero()))
            .collect();
        let mut open: Vec<usize> = (0..needed.len()).filter(|i| needed[*i]).collect();
        while let Some(i) = open.pop() {
            for (j, a) in self.stages[i].a.iter().enumerate() {
                if !a.is_zero() && !std::mem::replace(&mut needed[j], true) {
                    open.push(j);
                }
            }
        }
        needed
    }
}

impl StageTracer<'_> {
    pub(super) fn tableau(&mut self, t: &Tableau, frame: &Frame) -> Option<Reached> {
        let field = match &frame.flow.args.first()?.kind {
            FlowArgKind::Field { field, by: None } => field.clone(),
            _ => {
                let d = super::resolve::flow_for_field(frame.flow.args[0].span, &frame.flow.scheme);
                return self.fail(d);
            }
        };
        // What is wrong with it is said of the claim.
        let residual = frame.flow.scheme.residual();
        let residual = residual.and_then(|e| exact(e, &frame.scope).ok());
        let mut rows = self.rows(t, &frame.scope, residual.as_ref())?;
        if let Some(l) = &frame.flow.scheme.learned {
            self.learn_tableau(l, &mut rows, frame)?;
        }
        let partner = rows.embedded.as_ref().filter(|_| frame.outermost);
        let weights: Vec<&Row> = partner.into_iter().chain([&rows.weights]).collect();
        let needed = rows.needed(&weights);
        if frame.outermost {
            for (i, row) in rows.stages.iter().enumerate() {
                // The first stage of the next step may be written as the last of this one.
                if !needed[i] && row.a != rows.weights.a {
                    self.warn(unread(i + 1, row.span));
                }
            }
        }
        let stages = Stages {
            rows: &rows.stages,
            needed: &needed,
            at: &vec![0; rows.stages.len()],
            evaluate: &|m, _, y, span| m.field(&field, y, span),
            start: frame.start,
            h: &frame.h,
        };
        let ks = self.stages(t, &stages, frame)?;
        Some(Reached {
            end: self.weighted(&rows.weights, &ks, &stages)?,
            embedded: match partner {
                Some(row) => Some(self.weighted(row, &ks, &stages)?),
                None => None,
            },
            keeps: Vec::new(),
        })
    }

    /// `x + h Σ aⱼ kⱼ` over the evaluations so far.
    pub(super) fn weighted(
        &mut self,
        row: &Row,
        ks: &[Combination],
        from: &Stages,
    ) -> Option<Combination> {
        let mut y = Combination::value(from.start);
        for (a, k) in row.a.iter().zip(ks) {
            let c = self.exact(from.h.mul(a), row.span)?;
            y = self.add_scaled(y, &c, k, row.span)?;
        }
        Some(y)
    }

    /// The rows, checked: none too long, `c` = row sum, up to the residual that a claim of rounded coefficients allows. Only rows are computed
    /// with: evaluations are at the time of the row sum.
    fn rows(&mut self, t: &Tableau, scope: &Scope, residual: Option<&Exact>) -> Option<Rows> {
        let first_weights = t
            .rows
            .iter()
            .position(|r| r.c.is_none())
            .unwrap_or(t.rows.len());
        let (stages, tail) = t.rows.split_at(first_weights);
        let s = stages.len();
        let mut good = true;
        if let Some(late) = tail.iter().find(|r| r.c.is_some()) {
            self.warn(
                Diagnostic::error(
                    codes::TABLEAU_SHAPE,
                    late.span,
                    "a stage comes after the weights",
                )
                .label("rows with a node `c` come first, then the weights, which have none"),
            );
            good = false;
        }
        if s == 0 || tail.is_empty() {
            let what = if s == 0 { "no stages" } else { "no weights" };
            return self.fail(
                Diagnostic::error(
                    codes::TABLEAU_SHAPE,
                    t.span,
                    format!("this tableau has {what}"),
                )
                .help("write one row `c | a…` for each stage and a last row `| b…` of weights"),
            );
        }
        let mut rows = Vec::new();
        for (i, row) in stages.iter().enumerate() {
            let Some(a) = self.entries(row, s, scope) else {
                good = false;
                continue;
            };
            let c = row.c.as_ref()?;
            let node = self.constant(c, scope);
            let sum: Exact = a.iter().cloned().sum();
            match node {
                Some(node) if !agrees(&node, &sum, residual) => {
                    self.warn(not_the_sum(i + 1, (&node, c), &sum));
                    good = false;
                }
                Some(_) => rows.push(Row::new(a, row)),
                None => good = false,
            }
        }
        if let [_, _, third, ..] = tail {
            return self.fail(
                Diagnostic::error(
                    codes::TABLEAU_SHAPE,
                    third.span,
                    "a tableau has at most two rows of weights",
                )
                .label("a third one"),
            );
        }
        let mut weights = Vec::new();
        for source in tail {
            let a = self.entries(source, s, scope)?;
            weights.push(Row::new(a, source));
        }
        let mut weights = weights.into_iter();
        Some(Rows {
            stages: rows,
            weights: weights.next()?,
            embedded: weights.next(),
        })
        .filter(|_| good)
    }

    fn entries(&mut self, row: &TableauRow, stages: usize, scope: &Scope) -> Option<Vec<Exact>> {
        if row.entries.len() > stages {
            return self.fail(
                Diagnostic::error(
                    codes::TABLEAU_SHAPE,
                    row.entries[stages].span,
                    format!("this row has {} entries", row.entries.len()),
                )
                .label(format!("the tableau has {}", count(stages, "stage")))
                .help("put an entry that contains blanks in parentheses: `(1/2 - 1/6)`"),
            );
        }
        let values: Vec<Option<Exact>> = row
            .entries
            .iter()
            .map(|e| self.constant(e, scope))
            .collect();
        let mut values = values.into_iter().collect::<Option<Vec<Exact>>>()?;
        let work = values.iter().map(Exact::cost).sum();
        self.charge(work, row.span)?;
        values.resize(stages, Exact::zero());
        Some(values)
    }
}

/// Whether a node is the sum of its row, up to a residual.
fn agrees(node: &Exact, sum: &Exact, residual: Option<&Exact>) -> bool {
    node == sum || residual.is_some_and(|within| size(&(node - sum)) <= *within)
}

fn size(x: &Exact) -> Exact {
    if x.is_negative() { -x } else { x.clone() }
}

/// Most digits of a residual that is proposed, and fewest of what may be a rounding.
const DIGITS: std::ops::RangeInclusive<u32> = 3..=16;

fn not_the_sum(stage: usize, (node, written): (&Exact, &Expr), sum: &Exact) -> Diagnostic {
    let [node_shown, sum_shown] = [node, sum].map(|x| shown(x, written));
    let off = size(&(node - sum));
    let within = |digits: &u32| off <= Exact::ratio(1, 10_i64.pow(*digits));
    let rounded = DIGITS.rev().find(within);
    let rounded = rounded.map(|digits| {
        format!("; of rounded coefficients, claim the order within their error: `order … within 1e-{digits}`")
    });
    let message = format!("node {node_shown} of stage {stage} is not the sum of its row");
    Diagnostic::error(codes::TABLEAU_ROW_SUM, written.span, message)
        .label(format!("the row sums to {sum_shown}"))
        .help(format!(
            "write {sum_shown} here, or check the row for a typo{}",
            rounded.unwrap_or_default()
        ))
}

/// A stage that takes no part in the step.
fn unread(number: usize, span: Span) -> Diagnostic {
    let message = format!("stage {number} is never read");
    Diagnostic::warning(codes::UNUSED_NAME, span, message)
        .label("no weight reads it, nor any stage that is read")
        .help("it is not evaluated; give it a weight, or remove the row")
}
