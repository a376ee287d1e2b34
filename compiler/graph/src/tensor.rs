//! Dense tensors of f64, in which the interpreter computes.

use odec_program::Bindings;

/// A dense row-major tensor; indices are stored as whole f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<u64>,
    pub data: Vec<f64>,
}

impl Tensor {
    pub fn new(shape: Vec<u64>, data: Vec<f64>) -> Tensor {
        assert_eq!(
            shape.iter().product::<u64>(),
            data.len() as u64,
            "shape and data disagree"
        );
        Tensor { shape, data }
    }
    pub fn zeros(shape: Vec<u64>) -> Tensor {
        let n = shape.iter().product::<u64>() as usize;
        Tensor {
            shape,
            data: vec![0.0; n],
        }
    }
    pub fn scalar(x: f64) -> Tensor {
        Tensor {
            shape: vec![],
            data: vec![x],
        }
    }
    /// Columns of the row × column view.
    pub fn cols(&self) -> usize {
        self.shape.last().map_or(1, |n| *n as usize)
    }
    /// Rows of the row × column view.
    pub fn rows(&self) -> usize {
        self.data.len() / self.cols().max(1)
    }
}

/// What an op may know besides its inputs.
#[derive(Clone, Copy, Debug)]
pub struct EvalCx {
    pub bindings: Bindings,
}

/// `Σ aᵢ bᵢ`.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `y += c x`.
pub(crate) fn add_scaled(y: &mut [f64], c: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += c * x);
}
