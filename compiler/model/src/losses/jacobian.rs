//! `jacobian`: an estimate of the squared norm of the Jacobian of a step's equations at their solution, for each token.
//!
//! The Jacobian of an equation E at its solution z is estimated by a probe ε of random signs (Hutchinson 1990, Commun. Stat. Simul.
//! 19, 433; for equilibrium models Bai, Koltun & Kolter 2021, ICML, section 4, with z a constant, as here): E‖J ε‖² = ‖J‖²_F. `J ε` is a
//! central difference, for attention has no second derivative here: the step of each token is 1/64 of its size s, and its result
//! is divided by s, so the norm is that of S⁻¹ J S, S = diag(s), which has the eigenvalues of J.

use super::{Along, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, no_effect, part_of, sum};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{Broadcast, Constant, Dropout, Mul, Rsqrt, Shift, SumCols};
use odec_graph::replay::replay;
use odec_graph::{Builder, Value};
use odec_graph::{Exact, Solution, TypeError, nn};

/// The step of a central difference, as a part of a token's size.
const STEP: (i64, i64) = (1, 64);

#[derive(Clone, Debug, PartialEq)]
pub struct Jacobian;

impl LossTerm for Jacobian {
    const NAME: &'static str = "jacobian";
    const ABOUT: About = About {
        summary: "How strongly the equations that steps solve answer to a change of their solution: an estimate of the squared norm of the Jacobian, over the width.",
        formula: "1/width Σ over solves ‖(E(z + δsε) − E(z − δsε))/(2δs)‖², δ = 1/64, s = √(mean z² + 10⁻⁸), ε = ±1 at random",
        source: "Hutchinson 1990, Commun. Stat. Simul. 19, 433; of equilibrium models: Bai, Koltun & Kolter 2021, ICML, section 4",
        notes: &[
            "It counts each solve with `gradient implicit`, z the solution of z = E(z), which its gradient takes as a constant. The difference evaluates E twice more.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1/2*jacobian",
        meaning: "keeps the equation well-behaved",
    }];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = None;

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Jacobian)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) {
        if evolves.iter().any(|e| e.solves()) {
            return;
        }
        let message = "`jacobian` needs a step that solves an equation with `gradient implicit`";
        sink.push(
            no_effect(span, message)
                .label("no step of this model does")
                .help("solve one with `gradient implicit`: `solve z = F(z + G(x)) from 0 by anderson(tol: 1e-3, max: 30) gradient implicit`"),
        );
    }

    fn step(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        made: &StepTaken,
    ) -> Result<Vec<Value>, BuildError> {
        let solutions = made.solutions.iter().enumerate();
        let each = solutions.map(|(n, s)| answer(model, b, s, n));
        each.collect()
    }

    fn rows(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        _: &Predicted,
    ) -> Result<Value, BuildError> {
        sum(b, model.given(Self::NAME))
    }
}

/// The mean square, over the columns of all unknowns, of what a probe becomes.
fn answer(
    model: &mut dyn Training,
    b: &mut Builder,
    s: &Solution,
    n: usize,
) -> Result<Value, BuildError> {
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
        let probe = signs(model, b, *z, place)?;
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
fn signs(
    model: &mut dyn Training,
    b: &mut Builder,
    like: Value,
    place: String,
) -> Result<Value, BuildError> {
    let missing = || BuildError::Missing("the key of random numbers".into());
    let (stream, key) = model.mask(b, place)?.ok_or_else(missing)?;
    let to = b.ty(like).clone();
    let value = Exact::one();
    let one = b.push1(Constant { value }, &[])?;
    let ones = b.push1(Broadcast { to }, &[one])?;
    let rate = Exact::ratio(1, 2);
    let twice = b.push1(Dropout { rate, stream }, &[ones, key])?;
    let by = Exact::int(-1);
    Ok(b.push1(Shift { by }, &[twice])?)
}
