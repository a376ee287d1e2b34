//! Explicit Runge–Kutta tableaus: shape and row sums checked, stages emitted.
//!
//! Yᵢ = x + h Σ aᵢⱼ kⱼ, kᵢ = F(Yᵢ), result x + h Σ bᵢ kᵢ.

use super::coeff::Coeff;
use super::combination::Combination;
use super::flow::FlowArgKind;
use super::resolve::count;
use super::run::{Frame, Machine};
use super::scalar::{Scope, exact, not_supported};
use crate::codes;
use odec_grammar::ast::{Tableau, TableauRow};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

impl Machine<'_> {
    pub(super) fn tableau(&mut self, t: &Tableau, frame: &Frame) -> Option<Combination> {
        let field = match &frame.flow.args.first()?.kind {
            FlowArgKind::Field { field, by: None } => field.clone(),
            _ => {
                let d = super::resolve::flow_for_field(frame.flow.args[0].span, &frame.flow.scheme);
                return self.fail(d);
            }
        };
        let (stages, weights) = self.rows(t, &frame.scope)?;
        let x = Combination::value(frame.start);
        let mut ks: Vec<Combination> = Vec::new();
        for (a, row) in &stages {
            let y = self.weighted(&x, a, &ks, frame, row)?;
            ks.push(self.field(&field, y, row.span)?);
        }
        self.weighted(&x, &weights.0, &ks, frame, weights.1)
    }

    fn weighted(
        &mut self,
        x: &Combination,
        a: &[Exact],
        ks: &[Combination],
        frame: &Frame,
        row: &TableauRow,
    ) -> Option<Combination> {
        let mut y = x.clone();
        for (a, k) in a.iter().zip(ks) {
            let c = frame
                .h
                .mul(&Coeff::constant(a.clone()))
                .map_err(|why| super::scalar::arithmetic(why, row.span));
            let c = self.ok(c)?;
            y = self.add_scaled(y, &c, k, row.span)?;
        }
        Some(y)
    }

    /// Stage rows and the weight row, checked: lower triangular, no row too long, `c` = row sum.
    #[allow(clippy::type_complexity)]
    fn rows<'t>(
        &mut self,
        t: &'t Tableau,
        scope: &Scope,
    ) -> Option<(
        Vec<(Vec<Exact>, &'t TableauRow)>,
        (Vec<Exact>, &'t TableauRow),
    )> {
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
                    "a stage stands after the weights",
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
            let Some(entries) = self.entries(row, s, scope) else {
                good = false;
                continue;
            };
            if let Some(j) = (i..entries.len()).find(|j| !entries[*j].is_zero()) {
                self.warn(
                    not_supported(row.entries[j].span, "an implicit tableau").label(format!(
                        "stage {} uses stage {}, which is not known before it",
                        i + 1,
                        j + 1
                    )),
                );
                good = false;
                continue;
            }
            let c = row.c.as_ref()?;
            let node = self.ok(exact(c, scope));
            let sum = entries.iter().cloned().sum::<Exact>();
            match node {
                Some(node) if node != sum => {
                    self.warn(
                        Diagnostic::error(
                            codes::TABLEAU_ROW_SUM,
                            c.span,
                            format!("node {} of stage {} is not the sum of its row", node, i + 1),
                        )
                        .label(format!("the row sums to {sum}"))
                        .help(format!("write {sum} here, or look for a slip in the row")),
                    );
                    good = false;
                }
                Some(_) => rows.push((entries, row)),
                None => good = false,
            }
        }
        let weights = self.entries(&tail[0], s, scope)?;
        match tail {
            [_] => {}
            [_, embedded] => {
                self.entries(embedded, s, scope)?;
                self.warn(
                    Diagnostic::warning(
                        codes::UNUSED_WEIGHTS,
                        embedded.span,
                        "these embedded weights are not used",
                    )
                    .help(
                        "an error estimate only serves adaptive steps, which are not supported yet",
                    ),
                );
            }
            [_, _, third, ..] => {
                return self.fail(
                    Diagnostic::error(
                        codes::TABLEAU_SHAPE,
                        third.span,
                        "a tableau has at most two rows of weights",
                    )
                    .label("a third one"),
                );
            }
            [] => return None,
        }
        good.then_some((rows, (weights, &tail[0])))
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
                .help("an entry that contains blanks is put in parentheses: `(1/2 - 1/6)`"),
            );
        }
        let values: Vec<Option<Exact>> = row
            .entries
            .iter()
            .map(|e| self.ok(exact(e, scope)))
            .collect();
        values.into_iter().collect()
    }
}
