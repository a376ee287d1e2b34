//! Implicit tableaus and equations, solved as fixed points.
//!
//! Unknown are the stages Yᵢ = x + h Σ aᵢⱼ F(Yⱼ), equal ones once, all x at first; the result is x + h Σ bᵢ F(Yᵢ), with one
//! more evaluation. `solve z = E(z) from s` in a step begins with z = s. A fixed number of plain iterations leaves nothing but
//! evaluations and combinations. To a tolerance, an iterate is an instruction of its own ([`StageStageInstr::Mix`]), and what the
//! gradient does not pass through is cut off ([`StageStageInstr::Stop`], [`StageStageInstr::Solution`]). Leaves the words to `solver.rs`, the
//! mixing to `odec_graph::solve`.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::factor::Item;
use super::mentions::Mentions;
use super::run::{Frame, StageTracer};
use super::solver::{Gradient, Solver};
use super::stage::{Iterates, StageInstr};
use super::tableau::Row;
use super::value::Names;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident, Method, Tableau};
use odec_grammar::diag::Diagnostic;
use std::collections::HashMap;

/// As many plain iterations decide the order of a step's equation, up to one less: with fewer, they are analysed as they are computed.
const DECIDES: usize = 16;

/// One application of an equation: from its unknowns to what it makes of them.
pub(super) type Update<'u> =
    &'u mut dyn FnMut(&mut StageTracer<'_>, &[Combination]) -> Option<Vec<Combination>>;

/// How a stage of some kind is evaluated.
pub(super) type Evaluate<'e> =
    &'e dyn Fn(&mut StageTracer<'_>, usize, Combination, Span) -> Option<Combination>;

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

impl StageTracer<'_> {
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
                let solver = self.solver(method, &frame.scope)?;
                match self.at.solved {
                    true => self.solved(stages),
                    false => self.fixed_point(stages, &solver),
                }
            }
            (None, Some((_, span))) => self.fail(
                Diagnostic::error(codes::NOTHING_TO_SOLVE, *span, "there is nothing to solve")
                    .label("every stage of this tableau depends on earlier ones only")
                    .also(t.span, "the tableau is explicit"),
            ),
            (Some((i, j, span)), None) => {
                let on = if i == j {
                    "itself".into()
                } else {
                    format!("stage {}", j + 1)
                };
                self.fail(
                    Diagnostic::error(codes::MISSING_SOLVER, span, "this tableau is implicit")
                        .label(format!("stage {} depends on {on}", i + 1))
                        .help("choose a solver: `solve by fixed_point(iterations: 3)`"),
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
        solver: &Solver,
    ) -> Option<Vec<Combination>> {
        let start = Combination::value(stages.start);
        let mut unknown: Vec<&Row> = Vec::new();
        let mut of: Vec<Option<usize>> = Vec::new();
        for row in stages.rows {
            let known = unknown.iter().position(|r| r.a == row.a);
            of.push(match row.a.iter().all(Coeff::is_zero) {
                true => None,
                false => Some(known.unwrap_or_else(|| {
                    unknown.push(row);
                    unknown.len() - 1
                })),
            });
        }
        let points = |zs: &[Combination]| -> Vec<Combination> {
            let point = |of: &Option<usize>| of.map_or(&start, |u| &zs[u]).clone();
            of.iter().map(point).collect()
        };
        let begin = vec![start.clone(); unknown.len()];
        // No method of s stages has a higher order than 2s.
        let decides = 2 * stages.rows.len() + 1;
        let span = stages.rows[0].span;
        let zs = self.fixed(solver, begin, decides, span, &mut |m, zs| {
            let ks = m.evaluations(stages, points(zs))?;
            let each = unknown.iter().map(|row| m.weighted(row, &ks, stages));
            each.collect()
        })?;
        self.evaluations(stages, points(&zs))
    }

    /// All stages at given values; equal ones once.
    fn evaluations(&mut self, stages: &Stages, ys: Vec<Combination>) -> Option<Vec<Combination>> {
        let mut known: HashMap<(usize, Combination), Combination> = HashMap::new();
        let mut ks = Vec::new();
        for ((y, row), at) in ys.into_iter().zip(stages.rows).zip(stages.at) {
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
        Some(ks)
    }

    /// The unknowns that `update` leaves as they are, from where it begins. `decides`: how many plain iterations are as good as a
    /// solution to whoever reads coefficients alone.
    pub(super) fn fixed(
        &mut self,
        solver: &Solver,
        start: Vec<Combination>,
        decides: usize,
        span: Span,
        update: Update,
    ) -> Option<Vec<Combination>> {
        let (mut z, n) = (start, solver.finds.iterations);
        if self.at.analysed {
            return self.unknown(solver, z, decides, span, update);
        }
        let mut seen: Vec<Iterates> = Vec::new();
        for i in 0..n {
            if i > 0 && solver.gradient == Gradient::Last(n - i) {
                z = self.stopped(z, span)?;
                for pair in seen.iter_mut().flatten().flatten() {
                    *pair = self.once(StageInstr::Stop(*pair), span)?;
                }
            }
            let made = update(self, &z)?;
            let Some(mixing) = solver.mixing() else {
                z = made;
                continue;
            };
            seen.insert(0, self.iterate(z, made, span)?);
            seen.truncate(mixing.memory + 1);
            z = Vec::new();
            for of in 0..seen[0].len() {
                self.charge(seen.len() * seen[0].len() + 1, span)?;
                let next = StageInstr::Mix {
                    of,
                    seen: seen.clone(),
                    mixing: mixing.clone(),
                };
                z.push(Combination::value(self.once(next, span)?));
            }
        }
        match solver.gradient {
            Gradient::Unroll | Gradient::Last(_) => Some(z),
            Gradient::Phantom(k) => {
                z = self.stopped(z, span)?;
                for _ in 0..k {
                    z = update(self, &z)?;
                }
                Some(z)
            }
            Gradient::Implicit => {
                z = self.stopped(z, span)?;
                let made = update(self, &z)?;
                let unknowns = self.iterate(z, made, span)?;
                let solution = |of| StageInstr::Solution {
                    of,
                    unknowns: unknowns.clone(),
                    solver: solver.clone(),
                };
                let made = (0..unknowns.len()).map(|of| self.once(solution(of), span));
                made.map(|v| v.map(Combination::value)).collect()
            }
        }
    }

    fn stopped(&mut self, z: Vec<Combination>, span: Span) -> Option<Vec<Combination>> {
        let stop = |z| {
            let v = self.value(z, span)?;
            Some(Combination::value(self.once(StageInstr::Stop(v), span)?))
        };
        z.into_iter().map(stop).collect()
    }

    /// What is unknown, and what the equation makes of it, as values.
    fn iterate(
        &mut self,
        z: Vec<Combination>,
        made: Vec<Combination>,
        span: Span,
    ) -> Option<Iterates> {
        let pair = |(z, f)| Some([self.value(z, span)?, self.value(f, span)?]);
        z.into_iter().zip(made).map(pair).collect()
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
            self.push(StageInstr::Combine(y));
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
        let z = match self.item(from, names)? {
            Item::Number(c) if c.is_zero() => Combination::zero(),
            Item::Vector(v) => v,
            _ => {
                let message = "the initial guess is not a state";
                let d = Diagnostic::error(codes::NOT_A_STATE, from.span, message);
                return self.fail(d.label("a state, or 0, is expected"));
            }
        };
        let mut mentions = Mentions::default();
        mentions.expr(value);
        if !mentions.read.contains(name.name.as_str()) {
            let message = format!("`{}` is not in its equation", name.name);
            let d = Diagnostic::error(codes::NOTHING_TO_SOLVE, value.span, message)
                .label("there is nothing to solve");
            return self.fail(d.help(format!("write `{} = …`", name.name)));
        }
        let solver = self.solver(method, &names.numbers())?;
        let found = self.fixed(&solver, vec![z], DECIDES, value.span, &mut |m, z| {
            let z = Item::Vector(z[0].clone());
            names.set.insert(name.name.clone(), Some(z));
            Some(vec![m.vector(value, names)?])
        });
        found?.pop()
    }
}
