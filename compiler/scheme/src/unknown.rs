//! Equations that are solved to a tolerance, in a form for analyses that read coefficients only.
//!
//! An equation is read once, with its unknowns as values of their own: at h = 0 it says z = m z + c with a number m. Its solution is
//! z = (c + h …)/(1 − m), evaluations at z included, so a step that solves is an implicit one. Where m is 1 the equation does not determine z.
//! Plain iteration comes closer to the solution by the factor m each time, and says so where that is not enough. Takes an equation; gives its
//! unknowns as instructions. With fewer iterations than decide an order, they are run as they are computed. Leaves the proofs to
//! `analysis/`.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::implicit::Update;
use super::run::StageTracer;
use super::solver::Solver;
use super::stage::{StageInstr, Unknown};
use odec_exact::Exact;
use odec_grammar::Span;

/// What an equation is not said to be.
const OPEN: &str = "its equation is part of itself";
const WEIGHED: &str =
    "a learned coefficient, or a power of `h`, multiplies the unknown of an equation";
const COUPLED: &str =
    "unknowns that are solved for together are used outside of `h*F` in their equations";
const NESTED: &str = "an equation reads its unknown through more than evaluations";
const SINGULAR: &str =
    "an equation does not determine its unknown: at h = 0 it holds for every value, or for none";
const FEW: &str =
    "its unknown is used outside of `h*F` in an equation, and few iterations are taken";

/// All that an equation is not said to be.
pub(super) const REASONS: [&str; 6] = [OPEN, WEIGHED, COUPLED, NESTED, SINGULAR, FEW];

/// An equation as it was read.
enum Read {
    /// One sum for each unknown, and what the unknown itself stands in it with.
    Sums(Vec<Combination>, Exact),
    Without(&'static str),
}

impl StageTracer<'_> {
    /// The unknowns of an equation, from `z` on where few iterations are taken. `decides`: as many iterations are as good as a solution to whoever
    /// reads coefficients alone.
    pub(super) fn unknown(
        &mut self,
        solver: &Solver,
        z: Vec<Combination>,
        decides: usize,
        span: Span,
        update: Update,
    ) -> Option<Vec<Combination>> {
        let n = solver.evaluations();
        let Some(mixing) = solver.mixing() else {
            return self.iterated(n, z, update);
        };
        let mark = self.mark();
        let open = Unknown::Without { why: OPEN, span };
        let push = |_| self.push(StageInstr::Unknown(open.clone()));
        let unknowns: Vec<ValueId> = (0..z.len()).map(push).collect();
        let own: Vec<Combination> = unknowns.iter().map(|v| Combination::value(*v)).collect();
        let made = update(self, &own)?;
        let plain = mixing.memory == 0;
        let solved = match self.read_equation(&unknowns, made, span)? {
            Read::Without(why) => Err(why),
            // Each iteration gains one order.
            Read::Sums(_, m) if m.is_zero() && n < decides => {
                self.back_to(&mark);
                return self.iterated(n, z, update);
            }
            Read::Sums(_, m) if !plain && !m.is_zero() && n < decides => Err(FEW),
            Read::Sums(sums, m) => {
                let away = away_from(&m, solver.finds.iterations, &mixing.tol);
                let away = away.filter(|_| plain);
                self.divided(sums, &m, span)?.map(|sums| (sums, away))
            }
        };
        for (i, v) in unknowns.iter().enumerate() {
            self.instrs[v.0 as usize - 1] = StageInstr::Unknown(match &solved {
                Err(why) => Unknown::Without { why, span },
                Ok((sums, away)) => Unknown::Solved {
                    sum: sums[i].clone(),
                    away: away.clone(),
                    span,
                },
            });
        }
        Some(own)
    }

    fn iterated(
        &mut self,
        n: usize,
        mut z: Vec<Combination>,
        update: Update,
    ) -> Option<Vec<Combination>> {
        for _ in 0..n {
            z = update(self, &z)?;
        }
        Some(z)
    }

    /// The right-hand sides over evaluations and earlier values, without the unknowns.
    fn read_equation(
        &mut self,
        unknowns: &[ValueId],
        made: Vec<Combination>,
        span: Span,
    ) -> Option<Read> {
        let last = unknowns.iter().copied().max().unwrap_or(ValueId::STATE);
        let (mut sums, mut own) = (Vec::new(), Exact::zero());
        for (i, c) in made.into_iter().enumerate() {
            let mut sum = self.expanded(c, last, span)?;
            for (j, v) in unknowns.iter().enumerate() {
                let Some(m) = sum.without(*v) else {
                    continue;
                };
                match m.as_constant() {
                    None => return Some(Read::Without(WEIGHED)),
                    Some(_) if unknowns.len() > 1 || i != j => return Some(Read::Without(COUPLED)),
                    Some(m) => own = m,
                }
            }
            if sum
                .terms()
                .any(|(v, _)| self.reads_through(v, unknowns, last))
            {
                return Some(Read::Without(NESTED));
            }
            sums.push(sum);
        }
        Some(Read::Sums(sums, own))
    }

    /// Whether a value after the unknowns depends on them and is no evaluation.
    fn reads_through(&self, v: ValueId, unknowns: &[ValueId], last: ValueId) -> bool {
        let instr = |v: ValueId| &self.instrs[v.0 as usize - 1];
        if v <= last || matches!(instr(v), StageInstr::Eval { .. }) {
            return false;
        }
        let (mut open, mut seen) = (vec![v], vec![false; self.instrs.len() + 1]);
        while let Some(v) = open.pop() {
            if unknowns.contains(&v) {
                return true;
            }
            if v > last && !std::mem::replace(&mut seen[v.0 as usize], true) {
                open.extend(instr(v).reads());
            }
        }
        false
    }

    /// The sums over 1 − m; `Err`: there is no such number.
    fn divided(
        &mut self,
        sums: Vec<Combination>,
        m: &Exact,
        span: Span,
    ) -> Option<Result<Vec<Combination>, &'static str>> {
        if m.is_zero() {
            return Some(Ok(sums));
        }
        let Ok(over) = (&Exact::one() - m).recip() else {
            return Some(Err(SINGULAR));
        };
        let over = Coeff::constant(over);
        let each = sums
            .iter()
            .map(|sum| self.add_scaled(Combination::zero(), &over, sum, span));
        let each: Option<Vec<Combination>> = each.collect();
        each.map(Ok)
    }
}

/// Why plain iteration does not come as close to the solution as its tolerance asks.
fn away_from(m: &Exact, iterations: usize, tol: &Exact) -> Option<String> {
    let size = if m.is_negative() { -m } else { m.clone() };
    if size >= Exact::one() {
        return Some(format!(
            "at h = 0 each plain iteration multiplies the distance to the solution by {m}, so it does not converge: write \
             `anderson(…)` or `broyden(…)`"
        ));
    }
    let mut left = Exact::one();
    for _ in 0..iterations {
        if &left <= tol {
            return None;
        }
        left = &left * &size;
    }
    (&left > tol).then(|| {
        format!("at h = 0 each plain iteration multiplies the distance to the solution by {size}, and after {iterations} it is still above {tol}")
    })
}
