//! What a kernel computes, as data. A device turns each spec into code once (`odec-mlir`) or
//! interprets it (the reference device in `odec-runtime`); both must give the same bits.
//!
//! # ABI of compiled kernels
//! ```c
//! void symbol(void *const *operands, const int64_t *dims, const double *coeffs,
//!             int64_t tile_begin, int64_t tile_end, void *scratch);
//! ```
//! `operands` are element pointers, 4-byte aligned at least (planned buffers are 64-byte aligned),
//! inputs first, then outputs; `dims` as each spec documents; `coeffs` are rounded to the kernel's
//! dtype on entry; `scratch` is 64-byte aligned and [`Signature::scratch_bytes`] long. A launch runs
//! all tiles `0..tiles(dims)` in any split over threads: tiles write disjoint elements and their
//! results never depend on the split.
//!
//! # Kinds
//! A kind is a file of this folder: the specification with its documentation, what makes sense ([`KernelSpec::validate`]), what a kernel takes
//! and gives ([`KernelSpec::signature`]), its tiles, its meaning ([`KernelSpec::run`]) and samples of it, from which the tests of all that are made;
//! and a line of the list in this one. What a kernel is on one target is said where its code is made, and in [`crate::gpu`] (docs/gpu.md): its
//! blocks and threads. Emitters are in `compiler/mlir/src/` and `compiler/mlir/src/gpu/`, each with an arm in the `mlir_text` of its folder.

mod attend;
mod attend_backward;
mod attend_cached;
mod columns;
mod contract;
mod delay;
mod gather;
mod grouped;
mod grouped_outer;
mod keep;
mod linear_attend;
mod pack;
mod position_sum;
mod products;
mod rows;
mod scan;
mod scatter_add;
mod scores;
mod sequence_sum;
pub mod signature;
mod top_tokens;
pub mod validate;

use crate::DType;
use crate::eval::Memory;
use crate::real::Real;
pub use attend::{Attend, eval_attend};
pub use attend_backward::eval_attend_backward;
pub use attend_cached::eval_attend_cached;
pub use columns::{Columns, eval_columns};
pub use contract::{Blocking, Contract, Epilogue, Layout, Order, Parts, Terms};
pub use delay::Delay;
pub use gather::Gather;
pub use grouped::{Grouped, Groups};
pub use keep::Keep;
pub use linear_attend::{
    Decay, LinearAttend, Part as LinearAttendPart, Places as LinearAttendPlaces, eval_linear_attend,
};
pub use pack::Pack;
pub use rows::{Rows, Store, eval_rows};
pub use scan::{Scan, ScanForm, chunk};
pub use scores::Scores;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use signature::Dimension;
pub use signature::{Mode, OperandAccess, Signature};
use std::fmt;
pub use top_tokens::{Share, TopTokens};
pub use validate::{MOST_CHUNKS, MOST_HEAD, MOST_HEADS};

/// A kind of kernel. There are no default methods: what is missing does not compile.
trait Kind {
    type Spec;
    /// The beginning of symbols, and the tag in manifests.
    const NAME: &'static str;
    /// The type of arithmetic.
    fn dtype(spec: &Self::Spec) -> DType;
    /// See [`KernelSpec::validate`].
    fn validate(spec: &Self::Spec) -> Result<(), String>;
    /// See [`KernelSpec::signature`].
    fn signature(spec: &Self::Spec) -> Signature;
    /// See [`KernelSpec::tiles`].
    fn tiles(spec: &Self::Spec, dims: &[u64]) -> u64;
    /// See [`KernelSpec::headline`].
    fn headline(spec: &Self::Spec) -> String;
    /// See [`KernelSpec::run`].
    fn run<T: Real>(spec: &Self::Spec, memory: &mut (impl Memory<T> + Indices), at: Launch);
    /// Valid kernels with the arguments of a launch, of every branch of the rest.
    fn samples() -> Vec<Sample<Self::Spec>>;
}

/// Operands of row numbers, which no real type holds exactly.
pub trait Indices {
    fn index(&self, operand: u32, index: u64) -> u64;
}

/// Arguments of a launch besides operands.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub dims: &'a [u64],
    pub coeffs: &'a [f64],
    /// Threads that a large launch may use; results do not depend on them.
    pub threads: usize,
}

/// A kernel and a launch of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<S = KernelSpec> {
    pub spec: S,
    pub dims: Vec<u64>,
    pub coeffs: Vec<f64>,
}

impl<S> Sample<S> {
    fn new(spec: S, dims: &[u64], coeffs: &[f64]) -> Sample<S> {
        Sample {
            spec,
            dims: dims.into(),
            coeffs: coeffs.into(),
        }
    }
}

/// The list of kinds: each its variant, with the type of its specification, and what implements it.
macro_rules! kernels {
    ($($variant:ident($spec:ty) = $kind:ty,)*) => {
        /// One distinct kernel.
        #[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum KernelSpec {
            $($variant($spec),)*
        }

        impl KernelSpec {
            /// The names of all kinds.
            pub const KINDS: &'static [&'static str] = &[$(<$kind>::NAME,)*];

            /// The name of its kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(KernelSpec::$variant(_) => <$kind>::NAME,)*
                }
            }

            /// The type a kernel computes in.
            pub fn dtype(&self) -> DType {
                match self {
                    $(KernelSpec::$variant(k) => <$kind>::dtype(k),)*
                }
            }

            /// Checks everything about a kernel that does not depend on a launch.
            ///
            /// # Errors
            /// In words, the first thing that makes no sense.
            pub fn validate(&self) -> Result<(), String> {
                match self {
                    $(KernelSpec::$variant(k) => <$kind>::validate(k),)*
                }
            }

            /// What a valid kernel takes and gives.
            pub fn signature(&self) -> Signature {
                match self {
                    $(KernelSpec::$variant(k) => <$kind>::signature(k),)*
                }
            }

            /// How many tiles a launch with these dims has.
            pub fn tiles(&self, dims: &[u64]) -> u64 {
                match self {
                    $(KernelSpec::$variant(k) => <$kind>::tiles(k, dims),)*
                }
            }

            /// What it computes, in words, for listings.
            pub fn headline(&self) -> String {
                match self {
                    $(KernelSpec::$variant(k) => <$kind>::headline(k),)*
                }
            }

            /// Runs all tiles of a launch, one after the other: the meaning of a valid kernel, in the bits of its arithmetic `T`. Operands
            /// reach as far as its signature says.
            pub fn run<T: Real>(&self, memory: &mut (impl Memory<T> + Indices), at: Launch) {
                match self {
                    $(KernelSpec::$variant(k) => <$kind>::run::<T>(k, memory, at),)*
                }
            }

            /// Samples of every kind.
            pub fn samples() -> Vec<Sample> {
                let mut all = vec![];
                $(all.extend(<$kind>::samples().into_iter().map(|s| Sample {
                    spec: KernelSpec::$variant(s.spec),
                    dims: s.dims,
                    coeffs: s.coeffs,
                }));)*
                all
            }
        }
    };
}

kernels! {
    Rows(Rows) = rows::RowsKind,
    Columns(Columns) = columns::ColumnsKind,
    Pack(Pack) = pack::PackKind,
    Contract(Contract) = contract::ContractKind,
    Attend(Attend) = attend::AttendKind,
    AttendBackward(Attend) = attend_backward::AttendBackwardKind,
    AttendCached(Attend) = attend_cached::AttendCachedKind,
    LinearAttend(LinearAttend) = linear_attend::LinearAttendKind,
    Gather(Gather) = gather::GatherKind,
    ScatterAdd(Gather) = scatter_add::ScatterAddKind,
    PositionSum(Gather) = position_sum::PositionSumKind,
    SequenceSum(Gather) = sequence_sum::SequenceSumKind,
    Keep(Keep) = keep::KeepKind,
    Scan(Scan) = scan::ScanKind,
    Delay(Delay) = delay::DelayKind,
    TopTokens(TopTokens) = top_tokens::TopTokensKind,
    Grouped(Grouped) = grouped::GroupedKind,
    GroupedOuter(Grouped) = grouped_outer::GroupedOuterKind,
}

impl KernelSpec {
    /// What a kernel takes and gives, when it is valid.
    ///
    /// # Errors
    /// As [`KernelSpec::validate`].
    pub fn checked_signature(&self) -> Result<Signature, String> {
        self.validate()?;
        Ok(self.signature())
    }

    /// `<kind>_<16 hex digits>`: equal specs have equal symbols, on every machine.
    pub fn symbol(&self) -> String {
        let json = serde_json::to_vec(self).expect("kernel specs are plain data");
        let digest = Sha256::digest(&json);
        let hex: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!("{}_{hex}", self.kind())
    }
}

/// An extent that is part of the kernel, or given at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    Static(u64),
    Dynamic,
}

impl Extent {
    fn dimension(self, name: &'static str) -> Dimension {
        let fixed = match self {
            Extent::Static(n) => Some(n),
            Extent::Dynamic => None,
        };
        Dimension { name, fixed }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Extent::Static(n) => write!(f, "{n}"),
            Extent::Dynamic => f.write_str("·"),
        }
    }
}
