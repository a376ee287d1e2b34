//! What an op is: shape rule, meaning, derivative, and how code generation sees it, on adjacent lines.
//!
//! A new op is a new file beside this one and one line in the list. The trait has no default methods: a missing rule
//! does not compile.

use super::{Builder, OpKind};
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use crate::value::Value;
use odec_program::Bindings;
use std::collections::BTreeMap;

pub trait Op: Clone + std::fmt::Debug + PartialEq {
    const NAME: &'static str;
    /// Attributes in printing order: `[("causal", "true")]`. What the types of the results say is left out.
    fn attrs(&self) -> Vec<(&'static str, String)>;
    /// The op with these attributes, and results of these types: what [`Op::attrs`] wrote, read again.
    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError>;
    /// Output types from input types.
    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError>;
    /// The meaning, in f64. Operands have the inferred types; values (indices, lengths) may still not fit.
    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError>;
    /// Reverse-mode derivative: emits graph ops.
    fn vjp(&self, cx: &mut VjpCx) -> Vjp;
    /// How code generation sees it.
    fn kind(&self, ins: &[TensorType]) -> Kind;
    /// Inputs that drive the generated tests (shapes, values, derivatives, compiled code).
    fn samples() -> Vec<Sample>
    where
        Self: Sized;
}

/// What a derivative rule can read.
pub struct VjpCx<'a> {
    pub b: &'a mut Builder,
    pub ins: &'a [Value],
    pub outs: &'a [Value],
    /// Derivative of the result with respect to each output; `None`: it does not depend on it.
    pub d_outs: &'a [Option<Value>],
    /// The flag of each region that may not be made.
    pub flags: &'a BTreeMap<u32, Value>,
}

impl VjpCx<'_> {
    /// The derivative of the only output.
    pub fn d(&self) -> Value {
        self.d_outs[0].expect("a rule is only called when some output matters")
    }
    pub fn in_type(&self, i: usize) -> TensorType {
        self.b.ty(self.ins[i]).clone()
    }
}

/// One test case of an op.
#[derive(Clone, Debug)]
pub struct Sample {
    pub op: OpKind,
    pub name: &'static str,
    pub ins: Vec<TensorType>,
    pub bindings: Bindings,
    /// Range of random real inputs, safe for the op.
    pub low: f64,
    pub high: f64,
    /// Exclusive bound of random index inputs.
    pub indices: u64,
    /// How far a planned program in f32 may be from `eval`, in proportion to the largest number of the result, or 1.
    pub tolerance: f64,
}

impl Sample {
    /// Batch 2, sequence 3, reals in (−1, 1), tolerance 1e-6.
    pub fn new(op: impl Into<OpKind>, name: &'static str, ins: Vec<TensorType>) -> Sample {
        Sample {
            op: op.into(),
            name,
            ins,
            bindings: Bindings::new(2, 3),
            low: -1.0,
            high: 1.0,
            indices: 0,
            tolerance: 1e-6,
        }
    }
    pub fn range(self, low: f64, high: f64) -> Sample {
        Sample { low, high, ..self }
    }
    pub fn indices(self, indices: u64) -> Sample {
        Sample { indices, ..self }
    }
    pub fn tolerance(self, tolerance: f64) -> Sample {
        Sample { tolerance, ..self }
    }
    /// After so many tokens.
    pub fn after(self, past: u64) -> Sample {
        Sample {
            bindings: self.bindings.after(past),
            ..self
        }
    }
    /// Where windows keep nothing of so many of these.
    pub fn dropping(self, dropped: u64) -> Sample {
        Sample {
            bindings: self.bindings.dropping(dropped),
            ..self
        }
    }
    pub fn bindings(self, batch: u64, seq: u64) -> Sample {
        Sample {
            bindings: Bindings::new(batch, seq),
            ..self
        }
    }
}
