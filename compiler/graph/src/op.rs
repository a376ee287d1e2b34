//! What an op is: shape rule, meaning, derivative, and how code generation sees it, on adjacent lines.
//!
//! A new op is a new file under `ops/` and one line in its list. The trait has no default methods: a missing rule
//! does not compile.

use crate::graph::{Builder, Value};
use crate::interp::{EvalCx, Tensor};
use crate::ops::OpKind;
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{Access, Body, ExprId};
use odec_program::kernel::Attend;
use odec_program::{Bindings, Coeff};
use std::collections::BTreeMap;
use thiserror::Error;

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

/// What building makes, unless operands do not fit.
pub type TypeResult<T = Value> = Result<T, TypeError>;

/// Why operands do not fit an op.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{op}: {what}")]
pub struct TypeError {
    pub op: &'static str,
    pub what: String,
}

/// Why an op has no value for these operands: an index or a length beyond a table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{op}: {what}")]
pub struct EvalError {
    pub op: &'static str,
    pub what: String,
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

/// The answer of a derivative rule: one entry per input.
pub enum Vjp {
    Rule(Vec<Option<Value>>),
    /// Constant in every input.
    Zero,
    NotDifferentiable(&'static str),
}

/// How an operand of a row kernel is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// Element by element, broadcast over missing dimensions: may be computed in the same kernel.
    Pointwise,
    /// Through these accesses, from memory; the rule receives one expression for each.
    Through(Vec<Access>),
}

/// Where a row rule writes its expressions.
pub struct Scalars<'a> {
    pub body: &'a mut Body,
    /// Scalar arguments of the launch, in order.
    pub coeffs: &'a mut Vec<Coeff>,
}

impl Scalars<'_> {
    /// A coefficient as an expression: 0 and ±1 are structural, everything else a launch argument.
    pub fn coeff(&mut self, c: Coeff) -> ExprId {
        match c {
            Coeff::Value(x) if x == 0.0 || x.abs() == 1.0 => self.body.konst(x),
            c => {
                let n = self.coeffs.iter().position(|x| *x == c).unwrap_or_else(|| {
                    self.coeffs.push(c);
                    self.coeffs.len() - 1
                });
                self.body.uniform(n as u32)
            }
        }
    }
}

pub type RowRule = Box<dyn Fn(&mut Scalars, &[ExprId]) -> ExprId>;

/// How code generation sees an op. Domain of row kernels: rows × columns of the widest operand or result.
pub enum Kind {
    /// A buffer that exists before the entry runs: parameter, input, constant table.
    Source,
    /// A rank-0 number known at launch.
    Scalar(Coeff),
    /// An expression per element, possibly with reductions over the columns of a row.
    Rows { reads: Vec<Read>, rule: RowRule },
    /// Sum of the only operand over all rows: `[.., C]` → `[C]` (or `[.., 1]` → `[]`).
    Columns,
    /// `C = op(A) · op(B)` on row × column views.
    Contract {
        a_transposed: bool,
        b_transposed: bool,
        /// Factors are rounded to bf16.
        rounded: bool,
    },
    /// Operands q, k, v; results o, lse. The types in the spec are chosen by the lowering: that of the inputs is the operands'.
    Attend(Attend),
    /// Operands q, k, v, o, lse, d_o; results d_q, d_k, d_v.
    AttendBackward(Attend),
    /// Operands q and the kept keys and values; result o.
    AttendCached(Attend),
    /// Operand 1's rows go behind the earlier ones of operand 0, a source: no launch where they are computed there.
    Append,
    /// The only operand, a source, from row `past` on: no launch.
    FromPast,
    /// Rows of operand 0 at operand 1's indices.
    Gather,
    /// Scatter-add of operand 1's rows at operand 0's indices, onto zeros.
    ScatterAdd,
    /// Sum of the only operand over the batch: `[B, S, C]` → `[P, C]`, zero from S on.
    PositionSum,
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
    /// Relative tolerance of compiled f32 code against `eval`.
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
    pub fn bindings(self, batch: u64, seq: u64) -> Sample {
        Sample {
            bindings: Bindings::new(batch, seq),
            ..self
        }
    }
}
