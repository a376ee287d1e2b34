//! The format between the compiler and the runtime.
//!
//! Takes nothing; gives plain, serialisable data: what a kernel computes ([`kernel::KernelSpec`]),
//! the ordered instructions over one planned arena ([`Program`]), and the artifact's table of
//! contents ([`manifest::Manifest`]). Leaves making them to `odec-compiler`, turning kernels into
//! object code to `odec-mlir`, and running them to `odec-runtime`.
//!
//! Invariants: everything here is deterministic (vectors and B-tree maps only), has no I/O, and a
//! program means the same on every device: a device only implements "launch one kernel".

pub mod attend;
pub mod bf16;
pub mod eval;
pub mod expr;
pub mod gpu;
pub mod kernel;
pub mod manifest;
pub mod noise;
pub mod real;
pub mod size;
pub mod target;
pub mod transcendental;

pub use expr::{Access, Body, ExprId};
pub use kernel::KernelSpec;
use serde::{Deserialize, Serialize};
pub use size::{Bindings, Dim, Size};
use std::collections::BTreeMap;
pub use target::Target;

/// Element type of a buffer or of a kernel's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    F32,
    F64,
    /// The upper half of an f32 ([`bf16`]): only in memory, arithmetic is in the kernel's own type. Storing rounds.
    Bf16,
    /// Token numbers and other indices.
    I32,
}

impl DType {
    /// The type in which elements of this type are computed with.
    pub const fn arithmetic(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            DType::F32 | DType::Bf16 | DType::I32 => DType::F32,
        }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F64 => 8,
            DType::Bf16 => 2,
        }
    }
}

/// Where an operand lives. All but `Arena`, `Input` and `Output` outlive a run of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// Scratch memory of one entry, planned by the compiler: values live at fixed offsets.
    Arena,
    /// All parameters, laid out by the manifest's parameter table.
    Params,
    /// Gradients, same layout as `Params`.
    Grads,
    /// Gradients added up over the micro-batches of a step, same layout as `Params`.
    Sums,
    /// AdamW's first moment, same layout as `Params`.
    Moment1,
    /// AdamW's second moment, same layout as `Params`.
    Moment2,
    /// Constant tables (rotary cosines and sines), filled once from [`manifest::Constant`].
    Consts,
    /// Packed parameters, made by entry [`PREPARE`] whenever parameters have changed.
    Prepared,
    /// Keys and values of the tokens so far, one pair of matrices per evaluation of an attention.
    Cache,
    /// The entry's n-th input, given by the caller.
    Input(u32),
    /// The entry's n-th output, read by the caller.
    Output(u32),
}

/// A kernel argument: a slot and a byte offset into it, `offset + stride · past`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operand {
    pub slot: Slot,
    pub offset: u64,
    /// Bytes further for each token that earlier runs have seen: rows of a table or of a cache.
    #[serde(default, skip_serializing_if = "size::nothing")]
    pub stride: u64,
}

impl Operand {
    /// The same place in every run.
    pub const fn at(slot: Slot, offset: u64) -> Operand {
        Operand {
            slot,
            offset,
            stride: 0,
        }
    }
}

/// The entry that predicts the next tokens of one sequence, a few tokens at a time: it reads the keys and values of the
/// tokens so far from [`Slot::Cache`] and adds those of its own.
pub const DECODE: &str = "decode";

/// The entry that adds a micro-batch's gradients to [`Slot::Sums`], in programs that take several in a step.
pub const ACCUMULATE: &str = "accumulate";

/// The entry that packs the parameters that [`DECODE`] reads into [`Slot::Prepared`].
pub const PREPARE: &str = "prepare";

/// A scalar argument of a kernel. Coefficients of schemes travel here, so that one kernel serves
/// every step and stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coeff {
    Value(f64),
    /// `1 / size`, with the size known at launch (the mean over target tokens).
    Inverse(Size),
    /// A scalar the caller passes by name (learning rate, bias corrections).
    Named(String),
}

/// One launch: kernel, operands, integer and scalar arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instr {
    /// Index into [`Program::kernels`].
    pub kernel: u32,
    /// In the kernel's operand order: inputs first, then outputs.
    pub operands: Vec<Operand>,
    /// The kernel's dims, in the order documented by its spec.
    pub dims: Vec<Size>,
    pub coeffs: Vec<Coeff>,
    /// Which equation this belongs to, for profiles and printing (`step.0.eval.1.att.q`).
    pub site: String,
    /// Where a number lies, of the program's reals: a run may pass over the instruction while it is not positive, for then
    /// nothing that is read depends on what it would have written. Running it changes no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Operand>,
}

/// A named input or output of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<Dim>,
}

/// A straight-line instruction list with its own arena.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The largest batch and sequence; `past` and sequence together are at most the latter.
    pub maxima: Bindings,
    pub inputs: Vec<Io>,
    pub outputs: Vec<Io>,
    /// Bytes of arena for the planned maxima of batch and sequence.
    pub arena_bytes: u64,
    /// Bytes of scratch that one thread needs, the maximum over the instructions.
    pub scratch_bytes: u64,
    pub instrs: Vec<Instr>,
}

/// A kernel and the symbol its object code is found under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// `<kind>_<first 16 hex digits of the spec's SHA-256>`.
    pub symbol: String,
    pub spec: KernelSpec,
}

/// Everything that runs: distinct kernels once, and the entries
/// (`forward`, `loss`, `grad`, `update`, `prepare`, `decode`) that launch them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// What states, parameters, their gradients and moments, constants and results are made of, and sums are taken in:
    /// [`DType::F32`] or [`DType::F64`].
    pub real: DType,
    /// Planned maxima of batch and sequence, over all entries.
    pub maxima: Bindings,
    pub kernels: Vec<Kernel>,
    pub entries: BTreeMap<String, Entry>,
    /// Bytes of `Params`, and so of `Grads`, `Moment1` and `Moment2`.
    pub param_bytes: u64,
    pub const_bytes: u64,
    pub prepared_bytes: u64,
    pub cache_bytes: u64,
}
