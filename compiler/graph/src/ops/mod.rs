//! The list of ops, and the closed enum made from it.
//!
//! An op is one file and one line of the list. The trait has no default methods, so a missing rule does not compile; tests of all ops are made from
//! their `samples()`.

/// Declares the closed set of ops: one line per op, `module::Type`.
macro_rules! ops {
    ($($module:ident :: $ty:ident),* $(,)?) => {
        $(pub mod $module; pub use $module::$ty;)*

        /// Any op.
        #[derive(Clone, Debug, PartialEq)]
        pub enum OpKind { $($ty($ty)),* }

        $(impl From<$ty> for OpKind { fn from(op: $ty) -> OpKind { OpKind::$ty(op) } })*

        impl OpKind {
            pub fn name(&self) -> &'static str { match self { $(OpKind::$ty(_) => <$ty as Op>::NAME),* } }
            pub fn attrs(&self) -> Vec<(&'static str, String)> { match self { $(OpKind::$ty(o) => o.attrs()),* } }
            /// The op of a name, by its own rule; nothing else is asked for an op that is not there.
            pub fn from_attrs(name: &str, given: &mut Attrs) -> Result<OpKind, ParseError> {
                match name {
                    $(<$ty as Op>::NAME => <$ty as Op>::from_attrs(given).map(OpKind::$ty),)*
                    _ => given.refuse("", format!("there is no op `{name}`")),
                }
            }
            pub fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> { match self { $(OpKind::$ty(o) => o.eval(ins, cx)),* } }
            pub fn vjp(&self, cx: &mut VjpCx) -> Vjp { match self { $(OpKind::$ty(o) => o.vjp(cx)),* } }
            pub fn kind(&self, ins: &[TensorType]) -> Kind { match self { $(OpKind::$ty(o) => o.kind(ins)),* } }
        }

        impl InferTypes for OpKind {
            /// Output types, checked: no empty dimension, a fixed last one, a countable size. Operands in bf16 count as reals.
            fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
                let halves = ins.iter().any(|t| t.elem == Elem::Bf16);
                let widened: Vec<TensorType> = if halves { ins.iter().map(|t| self.operand(t)).collect() } else { vec![] };
                let ins = if halves { &widened } else { ins };
                let types = match self { $(OpKind::$ty(o) => o.infer(ins)),* }?;
                let check = |t: &TensorType| t.check().map_err(|what| TypeError { op: self.name(), what });
                types.iter().try_for_each(check)?;
                Ok(types)
            }
        }

        /// The names of all ops.
        pub const NAMES: &[&str] = &[$(<$ty as Op>::NAME),*];

        /// The test cases of every op.
        pub fn samples() -> Vec<Sample> { [$(<$ty as Op>::samples()),*].concat() }
    };
}

impl OpKind {
    /// An operand's type as the op's rules see it: what is kept in bf16 is widened when it is read, but a cache, and
    /// a part of it, goes on as it is.
    fn operand(&self, ty: &TensorType) -> TensorType {
        match self {
            OpKind::Append(_) => ty.clone(),
            _ => ty.widened(),
        }
    }
}

use crate::graph;
use crate::op::{EvalError, InferTypes, Kind, TypeError, Vjp};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};

mod op;
mod support;

pub use op::{Op, Sample, VjpCx};

pub type Node = graph::Node<OpKind>;
pub type Graph = graph::Graph<OpKind>;
pub type Builder = graph::Builder<OpKind>;

ops! {
    // leaves
    parameter::Parameter,
    input::Input,
    table::Table,
    constant::Constant,
    inverse_count::InverseCount,
    // element by element
    add::Add,
    mul::Mul,
    combine::Combine,
    shift::Shift,
    exp::Exp,
    phi::Phi,
    sin::Sin,
    log::Log,
    recip::Recip,
    rsqrt::Rsqrt,
    sqrt::Sqrt,
    power::Power,
    tanh::Tanh,
    softplus::Softplus,
    sigmoid::Sigmoid,
    normal_cdf::NormalCdf,
    normal_pdf::NormalPdf,
    where_positive::WherePositive,
    maximum::Maximum,
    heaviside::Heaviside,
    select::Select,
    region_begin::RegionBegin,
    predicate::Predicate,
    scaled_error::ScaledError,
    exceeds::Exceeds,
    stop_gradient::StopGradient,
    dropout::Dropout,
    normal::Normal,
    bf16::Bf16,
    // between shapes
    reshape::Reshape,
    broadcast::Broadcast,
    concat::Concat,
    slice::Slice,
    transpose::Transpose,
    sum_cols::SumCols,
    max_cols::MaxCols,
    arg_top::ArgTop,
    one_hot::OneHot,
    sum_rows::SumRows,
    gather_cols::GatherCols,
    scatter_cols::ScatterCols,
    equals::Equals,
    // whole tensors
    rope::Rope,
    matmul::MatMul,
    grouped_matmul::GroupedMatMul,
    grouped_outer::GroupedOuter,
    attention::Attention,
    attention_backward::AttentionBackward,
    linear_attention::LinearAttention,
    embedding::Embedding,
    embedding_grad::EmbeddingGrad,
    add_positions::AddPositions,
    position_sum::PositionSum,
    sum_tokens::SumTokens,
    repeat_tokens::RepeatTokens,
    scan::Scan,
    scan_backward::ScanBackward,
    shift_tokens::ShiftTokens,
    top_tokens::TopTokens,
    depthwise::Depthwise,
    windows::Windows,
    over_windows::OverWindows,
    depthwise_windows::DepthwiseWindows,
    // decoding: what outlives a run
    cache::Cache,
    append::Append,
    from_past::FromPast,
    cached_attention::CachedAttention,
    carry::Carry,
    carried_scan::CarriedScan,
    delayed::Delayed,
}
