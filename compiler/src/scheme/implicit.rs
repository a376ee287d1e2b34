//! Implicit tableaus and equations, solved by fixed-point iteration.
//!
//! Yᵢ = x at first; then, as often as the scheme says, all stages at once become Yᵢ = x + h Σ aᵢⱼ F(Yⱼ); the result is
//! x + h Σ bᵢ F(Yᵢ). Equal stages are evaluated once: all of them at the start, an explicit first stage throughout. `solve z = E(z) from s` in a step: z = s at
//! first, then z = E(z), as often as it says.

use super::args::Args;
use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::factor::Item;
use super::mentions::Mentions;
use super::run::{Frame, MAX_EVALUATIONS, Machine};
use super::scalar::{Scope, name_of, not_supported, unknown_name};
use super::stage::Instr;
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

/// How a stage of some kind is evaluated.
pub(super) type Evaluate<'e> =
    &'e dyn Fn(&mut Machine<'_>, usize, Combination, Span) -> Option<Combination>;

/// Stages of one step: Yᵢ = start + h Σ aᵢⱼ kⱼ.
pub(super) struct Stages<'e> {
    pub rows: &'e [Row],
    /// Stages that an explicit method needs.
    pub needed: &'e [bool],
    /// What each stage evaluates, as `evaluate` numbers it.
    pub at: &'e [usize],
    pub evaluate: Evaluate<'e>,
    pub start: ValueId,
    pub h: &'e Coeff,
}

impl Stages<'_> {
    /// The first entry on or above the diagonal, and where it is written.
    pub fn implicit(&self) -> Option<(usize, usize, Span)> {
        self.rows.iter().enumerate().find_map(|(i, row)| {
            let j = (i..row.a.len()).find(|j| !row.a[*j].is_zero())?;
            Some((i, j, row.entry(j)))
        })
    }
}

impl Machine<'_> {
    /// Evaluations of the stages, solved if that is necessary; nothing for explicit stages that are not needed.
    pub(super) fn stages(
        &mut self,
        t: &Tableau,
        stages: &Stages,
        frame: &Frame,
    ) -> Option<Vec<Combination>> {
        match (stages.implicit(), &frame.flow.scheme.solve) {
            (None, None) => self.explicit(stages),
            (Some(_), Some((method, _))) => {
                let iterations = self.iterations(method, &frame.scope)?;
                match self.at.solved {
                    true => self.solved(stages),
                    false => self.fixed_point(stages, iterations),
                }
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

    pub(super) fn explicit(&mut self, stages: &Stages) -> Option<Vec<Combination>> {
        let mut ks = Vec::new();
        for (i, row) in stages.rows.iter().enumerate() {
            let y = self.weighted(row, &ks, stages)?;
            ks.push(if stages.needed[i] {
                (stages.evaluate)(self, stages.at[i], y, row.span)?
            } else {
                Combination::zero()
            });
        }
        Some(ks)
    }

    pub(super) fn fixed_point(
        &mut self,
        stages: &Stages,
        iterations: usize,
    ) -> Option<Vec<Combination>> {
        let start = Combination::value(stages.start);
        let mut known: HashMap<(usize, Combination), Combination> = HashMap::new();
        let mut ys = vec![start; stages.rows.len()];
        for left in (0..=iterations).rev() {
            let mut ks = Vec::new();
            for ((y, row), at) in ys.drain(..).zip(stages.rows).zip(stages.at) {
                let key = (*at, y);
                let k = match known.get(&key) {
                    Some(k) => k.clone(),
                    None => {
                        let k = (stages.evaluate)(self, *at, key.1.clone(), row.span)?;
                        known.insert(key, k.clone());
                        k
                    }
                };
                ks.push(k);
            }
            if left == 0 {
                return Some(ks);
            }
            for row in stages.rows {
                ys.push(self.weighted(row, &ks, stages)?);
            }
        }
        None
    }

    /// Stages found exactly: evaluations at values that are made after them. Fields must be leaves.
    pub(super) fn solved(&mut self, stages: &Stages) -> Option<Vec<Combination>> {
        let first = self.instrs.len() + stages.rows.len() + 1;
        let mut ks = Vec::new();
        for (i, (row, at)) in stages.rows.iter().zip(stages.at).enumerate() {
            let y = Combination::value(ValueId((first + i) as u32));
            ks.push((stages.evaluate)(self, *at, y, row.span)?);
        }
        for row in stages.rows {
            let y = self.weighted(row, &ks, stages)?;
            self.push(Instr::Combine(y));
        }
        Some(ks)
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
