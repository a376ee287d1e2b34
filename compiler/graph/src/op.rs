//! What an op gives: types, derivatives, kernels, and errors where it cannot.
//!
//! Rules of single ops are below [`crate::ops`]; the builder of graphs asks [`InferTypes`] alone.

use crate::types::TensorType;
use crate::value::Value;
use odec_program::expr::{Access, Body, ExprId};
use odec_program::kernel::{Attend, Groups, KernelSpec};
use odec_program::{Coeff, DType, Quantized, Size};
use thiserror::Error;

/// Any op of a closed set, as the builder of graphs sees it.
pub trait InferTypes {
    /// Types of the results from types of the operands.
    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError>;
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

/// The kernel of an op, in a type of arithmetic.
pub type KernelRule = Box<dyn Fn(DType) -> KernelSpec>;

/// One launch that is all of an op: its kernel reads operands of the op and writes its results.
pub struct OneLaunch {
    /// Launches before it, each with one result, which the kernel reads behind the operands.
    pub before: Vec<Before>,
    pub kernel: KernelRule,
    /// Which operands of the op are the kernel's first ones, in order; its results are behind them.
    pub operands: Vec<usize>,
    pub dims: Vec<Size>,
    /// A result, by its number, and the operand whose memory it takes: a source that outlives the run, and that nothing but this op reads. The kernel
    /// has one operand for both.
    pub kept: Option<(u32, usize)>,
}

/// A launch that makes something for another of the same op, of as many dims.
pub struct Before {
    /// What it makes: `ends`.
    pub name: &'static str,
    pub kernel: KernelRule,
    /// Which operands of the op the kernel reads.
    pub operands: Vec<usize>,
    pub size: Size,
}

impl OneLaunch {
    /// Of all operands of the op.
    pub fn new(
        kernel: impl Fn(DType) -> KernelSpec + 'static,
        ins: &[TensorType],
        dims: Vec<Size>,
    ) -> OneLaunch {
        OneLaunch {
            before: vec![],
            kernel: Box::new(kernel),
            operands: (0..ins.len()).collect(),
            dims,
            kept: None,
        }
    }

    /// A kernel along the tokens of each sequence: dims are the sequences and tokens of the first operand.
    pub fn along(kernel: impl Fn(DType) -> KernelSpec + 'static, ins: &[TensorType]) -> OneLaunch {
        let size = |d: usize| Size::of(&[ins[0].shape[d]]).expect("one dimension");
        OneLaunch::new(kernel, ins, vec![size(0), size(1)])
    }

    /// What the last operand keeps from run to run, the last result is; a further dim is the number of tokens of earlier runs.
    pub fn carried(mut self) -> OneLaunch {
        if let Some(operand) = self.operands.pop() {
            self.kept = Some((1, operand));
        }
        self.dims.push(Size::PAST);
        self
    }
}

/// How code generation sees an op. Domain of row kernels: rows × columns of the widest operand or result.
pub enum Kind {
    /// A buffer that exists before the entry runs: parameter, input, constant table.
    Source,
    /// A rank-0 number known at launch.
    Scalar(Coeff),
    /// An expression per element, possibly with reductions over the columns of a row.
    Rows { reads: Vec<Read>, rule: RowRule },
    /// The only operand's memory, in another shape: no launch.
    View,
    /// Sum of the only operand over all rows: `[.., C]` → `[C]` (or `[.., 1]` → `[]`).
    Columns,
    /// `C = op(A) · op(B)` on row × column views.
    Contract {
        a_transposed: bool,
        b_transposed: bool,
        /// Factors are rounded to bf16.
        rounded: bool,
        /// B is weights that are read in integers; only A is rounded then.
        weights: Option<Quantized>,
    },
    /// Operands a, the experts' numbers, matrices; the product of each row with the matrix of its expert, [n, k] or `transposed` [k, n].
    Grouped {
        of: Groups,
        transposed: bool,
        rounded: bool,
    },
    /// Operands the experts' numbers, a, b; the sum of a row's outer products for each expert, [n, k].
    GroupedOuter { of: Groups, rounded: bool },
    /// Operands q, k, v; results o, lse. The types in the spec are chosen by the lowering: that of the inputs is the operands'.
    Attend(Attend),
    /// Operands q, k, v, o, lse, d_o; results d_q, d_k, d_v.
    AttendBackward(Attend),
    /// Operands q and the kept keys and values; result o. How many are kept before those of the run.
    AttendCached(Attend, Size),
    /// Operand 1's rows go behind the earlier ones of operand 0, a source: no launch where they are computed there. `each`: one row of each of
    /// several sequences. `recent`: behind those that are not dropped.
    Append { each: bool, recent: bool },
    /// The only operand, a source, from row `past` on: no launch.
    FromPast,
    /// Scatter-add of operand 1's rows at operand 0's indices, onto zeros.
    ScatterAdd,
    /// All other kernels: the op says everything.
    One(OneLaunch),
}

impl Kind {
    /// The operand whose memory a result takes: a source that outlives the run, and that nothing but this op reads.
    pub fn replaces(&self, port: u32) -> Option<usize> {
        match self {
            Kind::Append { .. } => Some(0),
            Kind::One(launch) => launch
                .kept
                .filter(|(result, _)| *result == port)
                .map(|(_, operand)| operand),
            _ => None,
        }
    }
}
