//! What an optimiser's update is written with: one number of a parameter, its gradient, and what is kept beside it.
//!
//! Takes the operands of a kernel; gives an expression for each number after the step, and the scalars that the launch passes. Leaves
//! the norm of the gradient, and what happens where it is not finite, to the pass that makes the kernel.

use super::LR;
use crate::Coeff;
use crate::expr::{Body, ExprId};

/// The inside of an update.
pub struct Rule {
    pub body: Body,
    /// The scalars of a launch, in the order in which they were asked for.
    pub coeffs: Vec<Coeff>,
    parameter: ExprId,
    gradient: ExprId,
    /// What the gradient is multiplied by: less than 1 where it is clipped.
    scale: ExprId,
    states: Vec<ExprId>,
    /// Whether the parameter is a matrix, which may decay.
    decays: bool,
}

/// The numbers after a step.
pub struct Next {
    pub parameter: ExprId,
    /// As many as the optimiser keeps.
    pub states: Vec<ExprId>,
}

impl Rule {
    /// An update with nothing in it.
    pub fn new(
        body: Body,
        [parameter, gradient, scale]: [ExprId; 3],
        states: Vec<ExprId>,
        decays: bool,
    ) -> Rule {
        Rule {
            body,
            coeffs: Vec::new(),
            parameter,
            gradient,
            scale,
            states,
            decays,
        }
    }

    fn scalar(&mut self, coeff: Coeff) -> ExprId {
        self.coeffs.push(coeff);
        self.body.uniform(self.coeffs.len() as u32 - 1)
    }

    /// A number that is the same at every step.
    pub fn value(&mut self, x: f64) -> ExprId {
        self.scalar(Coeff::Value(x))
    }

    /// The weight decay: as given of a matrix, 0 of vectors and scalars.
    pub fn decay(&mut self, weight_decay: f64) -> ExprId {
        self.value(if self.decays { weight_decay } else { 0.0 })
    }

    /// The rate of this step.
    pub fn rate(&mut self) -> ExprId {
        self.of_step(LR)
    }

    /// One of [`super::Optimizer::scalars`].
    pub fn of_step(&mut self, name: &'static str) -> ExprId {
        self.scalar(Coeff::Named(name.into()))
    }

    pub fn parameter(&self) -> ExprId {
        self.parameter
    }

    /// The gradient, clipped.
    pub fn gradient(&mut self) -> ExprId {
        self.body.mul(self.gradient, self.scale)
    }

    /// What was kept of the step before: one of [`super::Optimizer::states`], from 0.
    pub fn state(&self, n: usize) -> ExprId {
        self.states[n]
    }

    /// `keep · old + rest · x`, with one rounding of the sum.
    pub fn blend(&mut self, [keep, old]: [ExprId; 2], [rest, x]: [ExprId; 2]) -> ExprId {
        let fresh = self.body.mul(rest, x);
        self.body.fma(keep, old, fresh)
    }

    /// `p (1 − lr λ) − step`: decay that no gradient takes part in (Loshchilov & Hutter 2019).
    pub fn decayed(&mut self, [rate, decay]: [ExprId; 2], step: ExprId) -> ExprId {
        let b = &mut self.body;
        let shrink = b.mul(rate, decay);
        let one = b.konst(1.0);
        let keep = b.sub(one, shrink);
        let kept = b.mul(self.parameter, keep);
        b.sub(kept, step)
    }
}
