//! Implicit tableaus and equations, solved by fixed-point iteration.
//!
//! Yᵢ = x at first; then, as often as the scheme says, all stages at once become Yᵢ = x + h Σ aᵢⱼ F(Yⱼ); the result is
//! x + h Σ bᵢ F(Yᵢ). Equal stages are evaluated once: all of them at the start, an explicit first stage throughout. `solve z = E(z) from s` in a step: z = s at
//! first, then z = E(z), as often as it says.

use super::args::Args;
use super::combination::Combination;
use super::factor::Item;
use super::flow::Field;
use super::mentions::Mentions;
use super::run::{Frame, MAX_EVALUATIONS, Machine};
use super::scalar::{Scope, name_of, not_supported, unknown_name};
use super::tableau::Row;
use super::value::Names;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident, Method, Tableau};
use odec_grammar::diag::Diagnostic;
use std::collections::HashMap;

/// The ways to solve that this version knows, and those of the language that it does not.
const METHODS: [&str; 1] = ["fixed_point"];
const LATER: [&str; 4] = ["anderson", "broyden", "newton", "newton_krylov"];

impl Machine<'_> {
    /// Evaluations of the stages, solved if that is necessary; nothing for explicit stages that are not needed.
    pub(super) fn stages(
        &mut self,
        t: &Tableau,
        rows: &[Row],
        needed: &[bool],
        field: &Field,
        frame: &Frame,
    ) -> Option<Vec<Combination>> {
        let implicit = rows.iter().enumerate().find_map(|(i, row)| {
            let j = (i..row.a.len()).find(|j| !row.a[*j].is_zero())?;
            Some((i, j, row.entry(j)))
        });
        match (implicit, &frame.flow.scheme.solve) {
            (None, None) => self.explicit(rows, needed, field, frame),
            (Some(_), Some((method, _))) => {
                let iterations = self.iterations(method, &frame.scope)?;
                self.fixed_point(rows, field, iterations, frame)
            }
            (None, Some((_, span))) => self.fail(
                Diagnostic::error(codes::SCHEME_BODY, *span, "there is nothing to solve")
                    .label("every stage of this tableau is known from those before it")
                    .also(t.span, "the tableau is explicit"),
            ),
            (Some((i, j, span)), None) => {
                let on = if i == j {
                    "itself".into()
                } else {
                    format!("stage {}", j + 1)
                };
                self.fail(
                    Diagnostic::error(codes::IMPLICIT_TABLEAU, span, "this tableau is implicit")
                        .label(format!("stage {} depends on {on}", i + 1))
                        .help(
                            "say how its stages are found: `solve by fixed_point(iterations: 3)`",
                        ),
                )
            }
        }
    }

    fn explicit(
        &mut self,
        rows: &[Row],
        needed: &[bool],
        field: &Field,
        frame: &Frame,
    ) -> Option<Vec<Combination>> {
        let mut ks = Vec::new();
        for (row, needed) in rows.iter().zip(needed) {
            let y = self.weighted(row, &ks, frame)?;
            ks.push(if *needed {
                self.field(field, y, row.span())?
            } else {
                Combination::zero()
            });
        }
        Some(ks)
    }

    fn fixed_point(
        &mut self,
        rows: &[Row],
        field: &Field,
        iterations: usize,
        frame: &Frame,
    ) -> Option<Vec<Combination>> {
        let start = Combination::value(frame.start);
        let mut known: HashMap<Combination, Combination> = HashMap::new();
        let mut ys = vec![start; rows.len()];
        for left in (0..=iterations).rev() {
            let mut ks = Vec::new();
            for (y, row) in ys.drain(..).zip(rows) {
                let k = match known.get(&y) {
                    Some(k) => k.clone(),
                    None => {
                        let k = self.field(field, y.clone(), row.span())?;
                        known.insert(y, k.clone());
                        k
                    }
                };
                ks.push(k);
            }
            if left == 0 {
                return Some(ks);
            }
            for row in rows {
                ys.push(self.weighted(row, &ks, frame)?);
            }
        }
        None
    }

    /// `solve z = F(z + G(x)) from 0 by fixed_point(iterations: 8)`.
    pub(super) fn solve(
        &mut self,
        name: &Ident,
        value: &Expr,
        from: &Expr,
        method: &Method,
        names: &mut Names,
    ) -> Option<Combination> {
        self.assignable(name, names)?;
        let mut z = match self.item(from, names)? {
            Item::Number(c) if c.is_zero() => Combination::zero(),
            Item::Vector(v) => v,
            _ => {
                let message = "this is no state to start from";
                let d = Diagnostic::error(codes::TYPE_MISMATCH, from.span, message);
                return self.fail(d.label("a state, or 0, is expected"));
            }
        };
        let mut mentions = Mentions::default();
        mentions.expr(value);
        if !mentions.read.contains(name.name.as_str()) {
            let message = format!("`{}` is not in its equation", name.name);
            let d = Diagnostic::error(codes::UNUSED_NAME, value.span, message)
                .label("there is nothing to solve");
            return self.fail(d.help(format!("write `{} = …`", name.name)));
        }
        for _ in 0..self.iterations(method, &names.numbers())? {
            names.set.insert(name.name.clone(), Some(Item::Vector(z)));
            z = self.vector(value, names)?;
        }
        Some(z)
    }

    /// `fixed_point(iterations: 3)`.
    pub(super) fn iterations(&mut self, method: &Method, scope: &Scope) -> Option<usize> {
        if let Some(g) = &method.gradient
            && name_of(g).is_none_or(|n| n.name != "unroll")
        {
            let d = not_supported(g.span, "another gradient than `unroll`");
            let d = d.label("the iterations are differentiated one by one");
            return self.fail(
                d.help("write `fixed_point(iterations: 8)` with `gradient unroll`, or without"),
            );
        }
        let span = method.call.span;
        let Some(mut args) = Args::of(&method.call) else {
            return self.fail(unknown_method(span));
        };
        let name = args.callee.clone();
        if LATER.contains(&name.name.as_str()) {
            let d = not_supported(name.span, &format!("`{}`", name.name));
            return self.fail(d.help("write `fixed_point(iterations: 8)`, which is unrolled"));
        }
        if !METHODS.contains(&name.name.as_str()) {
            let d = unknown_name(&name.name, name.span, METHODS.into_iter());
            return self.fail(d.label("a way to solve is expected"));
        }
        let before = self.sink().len();
        let found = args.required("iterations", self.sink());
        args.finish(&["tol", "max"], self.sink());
        if self.sink().len() > before {
            return None;
        }
        let n = self.whole(found?, scope, 0, MAX_EVALUATIONS as u64)?;
        Some(n as usize)
    }
}

fn unknown_method(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TYPE_MISMATCH, span, "this is no way to solve")
        .help("write `fixed_point(iterations: 3)` after `by`")
}
