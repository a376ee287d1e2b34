//! The terms of a loss in the graph: what each is for a token, and their sum.
//!
//! Takes states before and after steps as they are made, then the logits; gives the total, with a result `loss.<term>` for each of
//! several terms. Sums over steps are collected per token and averaged at the end, as the cross-entropy is.
//!
//! The Jacobian of an equation E at its solution z is estimated by a probe ε of random signs (Hutchinson 1990, Commun. Stat. Simul.
//! 19, 433; for equilibrium models Bai, Koltun & Kolter 2021, ICML, section 4, with z a constant, as here): E‖J ε‖² = ‖J‖²_F. `J ε` is a
//! central difference, for attention has no second derivative here: the step of each token is 1/64 of its size s, and its result
//! is divided by s, so the norm is that of S⁻¹ J S, S = diag(s), which has the eigenvalues of J.

use super::build::{BuildError, Model};
use super::evolve::EvolveSpec;
use super::loss::Term;
use odec_graph::ops::{
    Broadcast, Constant, Dropout, Equals, Hold, Mul, Recip, Rsqrt, Shift, StopGradient, SumCols,
    WherePositive,
};
use odec_graph::replay::replay;
use odec_graph::{Builder, Exact, Site, Solution, TypeError, Value, nn};
use odec_program::ResultId;
use odec_program::manifest::Loss;

/// What the steps of all evolves give to the terms of a loss, a number per token each.
#[derive(Default)]
pub(super) struct Collected {
    kinetic: Vec<Value>,
    jacobian: Vec<Value>,
    ponder: Vec<Value>,
    /// How many of each are settled.
    settled: [usize; 3],
    /// Solutions that were looked at.
    solutions: usize,
}

/// The step of a central difference, as a part of a token's size.
const STEP: (i64, i64) = (1, 64);

impl Collected {
    fn each(&mut self) -> [&mut Vec<Value>; 3] {
        [&mut self.kinetic, &mut self.jacobian, &mut self.ponder]
    }

    /// What tokens have pondered that halt one by one.
    pub(super) fn pondered(&mut self, rows: Value) {
        self.ponder.push(rows);
        self.settle();
    }

    /// What the last step gave counts only for tokens for which `open` is positive.
    pub(super) fn only(&mut self, b: &mut Builder, open: Value) -> Result<(), TypeError> {
        let settled = self.settled;
        for (list, from) in self.each().into_iter().zip(settled) {
            for v in &mut list[from..] {
                *v = b.push1(WherePositive, &[open, *v])?;
            }
        }
        Ok(())
    }

    /// What the last step gave counts only where `flag` is positive.
    pub(super) fn hold(&mut self, b: &mut Builder, flag: Value) -> Result<(), TypeError> {
        let settled = self.settled;
        for (list, from) in self.each().into_iter().zip(settled) {
            for v in &mut list[from..] {
                let zero = nn::constant(b, Exact::zero())?;
                *v = b.push1(Hold, &[flag, *v, zero])?;
            }
        }
        self.settle();
        Ok(())
    }

    /// What the last step gave counts.
    pub(super) fn settle(&mut self) {
        self.settled = self.each().map(|list| list.len());
    }

    /// No gradient goes through what there is so far.
    pub(super) fn stop(&mut self, b: &mut Builder) -> Result<(), TypeError> {
        for v in self.each().into_iter().flatten() {
            *v = b.push1(StopGradient, &[*v])?;
        }
        Ok(())
    }
}

/// `c` for `1/n`.
fn part_of(n: u64) -> Exact {
    Exact::ratio(1, n.try_into().unwrap_or(i64::MAX))
}

impl Model<'_> {
    /// Looks at a step from `x` to `made`, of a size that is known or computed.
    pub(super) fn collect(
        &mut self,
        b: &mut Builder,
        (e, k): (&EvolveSpec, usize),
        [x, made]: [Value; 2],
        h: Option<Value>,
    ) -> Result<(), BuildError> {
        let new = b.graph().solutions().len();
        let before = std::mem::replace(&mut self.collected.solutions, new);
        if !self.drops {
            return Ok(());
        }
        let outer = (b.site.clone(), b.span);
        b.site = Site {
            evolve: e.label.clone(),
            step: Some(k as u32),
            path: "kinetic".into(),
            ..Site::default()
        };
        if self.spec.objective.has(&Term::Kinetic) {
            let moved = nn::combine(b, &[(Exact::one(), made), (Exact::int(-1), x)])?;
            let square = b.push1(Mul, &[moved, moved])?;
            let mut rows = b.push1(SumCols, &[square])?;
            let half = part_of(b.ty(x).cols().saturating_mul(2));
            let over = match h {
                Some(h) => {
                    let over = b.push1(Recip, &[h])?;
                    rows = b.push1(Mul, &[rows, over])?;
                    half
                }
                None => {
                    let over = e.h[k].recip();
                    &half * &over.map_err(|_| BuildError::Missing("1/h".into()))?
                }
            };
            let rows = nn::combine(b, &[(over, rows)])?;
            self.collected.kinetic.push(rows);
        }
        if self.spec.objective.has(&Term::Jacobian) {
            let solutions = b.graph().solutions()[before..].to_vec();
            for (n, s) in solutions.iter().enumerate() {
                b.site.path = "jacobian".into();
                let rows = self.jacobian(b, s, n)?;
                self.collected.jacobian.push(rows);
            }
            // The copies have solutions of their own, where equations stand in equations.
            self.collected.solutions = b.graph().solutions().len();
        }
        (b.site, b.span) = outer;
        Ok(())
    }

    /// The mean square, over the columns of all unknowns, of what a probe becomes.
    fn jacobian(&mut self, b: &mut Builder, s: &Solution, n: usize) -> Result<Value, BuildError> {
        let z = &s.pair.z;
        let cols = z.iter().map(|z| b.ty(*z).cols()).sum::<u64>();
        let mean_square = |b: &mut Builder, of: &[Value]| -> Result<Value, TypeError> {
            let mut terms = Vec::new();
            for v in of {
                let square = b.push1(Mul, &[*v, *v])?;
                terms.push((part_of(cols), b.push1(SumCols, &[square])?));
            }
            nn::combine(b, &terms)
        };
        let size = mean_square(b, z)?;
        let by = Exact::ratio(1, 100_000_000);
        let size = b.push1(Shift { by }, &[size])?;
        let over = b.push1(Rsqrt, &[size])?;
        let size = b.push1(Mul, &[size, over])?;
        let step = Exact::ratio(STEP.0, STEP.1);
        let (mut ahead, mut back) = (Vec::new(), Vec::new());
        for (i, z) in z.iter().enumerate() {
            let place = format!("{} probe {n} {i}", b.site);
            let probe = self.signs(b, *z, place)?;
            let probe = b.push1(Mul, &[probe, size])?;
            ahead.push(nn::combine(
                b,
                &[(Exact::one(), *z), (step.clone(), probe)],
            )?);
            back.push(nn::combine(b, &[(Exact::one(), *z), (-&step, probe)])?);
        }
        let ahead = replay(b, z, &ahead, &s.pair.f, "ahead")?;
        let back = replay(b, z, &back, &s.pair.f, "back")?;
        let half = Exact::ratio(STEP.1, 2 * STEP.0);
        let mut moved = Vec::new();
        for (ahead, back) in ahead.into_iter().zip(back) {
            let apart = nn::combine(b, &[(half.clone(), ahead), (-&half, back)])?;
            moved.push(b.push1(Mul, &[apart, over])?);
        }
        Ok(mean_square(b, &moved)?)
    }

    /// 1 or −1 at random for every element, the same whatever is computed again: twice what a mask of half the elements keeps of 1,
    /// less 1.
    fn signs(&mut self, b: &mut Builder, like: Value, place: String) -> Result<Value, BuildError> {
        let missing = || BuildError::Missing("the key of random numbers".into());
        let (stream, key) = self.mask(b, place)?.ok_or_else(missing)?;
        let to = b.ty(like).clone();
        let value = Exact::one();
        let one = b.push1(Constant { value }, &[])?;
        let ones = b.push1(Broadcast { to }, &[one])?;
        let rate = Exact::ratio(1, 2);
        let twice = b.push1(Dropout { rate, stream }, &[ones, key])?;
        let by = Exact::int(-1);
        Ok(b.push1(Shift { by }, &[twice])?)
    }

    /// The loss of all tokens: while the model is trained the sum of all terms, else cross-entropy.
    pub(super) fn loss(
        &mut self,
        b: &mut Builder,
        logits: Value,
        targets: Value,
    ) -> Result<Value, BuildError> {
        let objective = &self.spec.objective;
        let weights = self.counted(b)?;
        let softmax = nn::normaliser(b, logits)?;
        if !self.drops || objective.is_plain() {
            let rows = softmax.cross_entropy(b, targets)?;
            return Ok(mean(b, rows, weights)?);
        }
        let mut rows = Vec::new();
        for (_, term, _) in &objective.terms {
            rows.push(match term {
                Term::CrossEntropy | Term::Masked => softmax.cross_entropy(b, targets)?,
                Term::Smooth(eps) => softmax.smooth_cross_entropy(b, targets, eps)?,
                Term::ZLoss => softmax.z_loss(b)?,
                Term::Kinetic => sum(b, &self.collected.kinetic)?,
                Term::Jacobian => sum(b, &self.collected.jacobian)?,
                Term::Drift => self.drift(b)?,
                Term::Ponder => sum(b, &self.collected.ponder)?,
            });
        }
        let mut total = Vec::new();
        for ((coefficient, term, _), rows) in objective.terms.iter().zip(rows) {
            let value = match term.is_of_weights() {
                true => rows,
                false => mean(b, rows, weights)?,
            };
            let name = ResultId::Term(term.name()).to_string();
            self.decided.push((name, value));
            total.push((coefficient.clone(), value));
        }
        Ok(nn::combine(b, &total)?)
    }

    /// The weight of each token, where not all count.
    fn counted(&self, b: &mut Builder) -> Result<Option<Value>, BuildError> {
        let Loss::Masked { token, .. } = self.spec.loss else {
            return Ok(None);
        };
        let missing = || BuildError::Missing("tokens".into());
        let tokens = self.tokens.ok_or_else(missing)?;
        Ok(Some(b.push1(Equals { to: token }, &[tokens])?))
    }
}

fn mean(b: &mut Builder, rows: Value, weights: Option<Value>) -> Result<Value, TypeError> {
    match weights {
        None => nn::mean_rows(b, rows),
        Some(weights) => nn::weighted_mean(b, rows, weights),
    }
}

/// The sum of a number per token.
fn sum(b: &mut Builder, of: &[Value]) -> Result<Value, BuildError> {
    let missing = || BuildError::Missing("a step".into());
    of.first().ok_or_else(missing)?;
    let terms: Vec<(Exact, Value)> = of.iter().map(|v| (Exact::one(), *v)).collect();
    Ok(nn::combine(b, &terms)?)
}
