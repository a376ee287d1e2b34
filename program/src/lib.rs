//! The format between the compiler and the runtime.
//!
//! Takes nothing; gives plain, serialisable data: what a kernel computes ([`kernel::KernelSpec`]),
//! the ordered instructions over one planned arena ([`Program`]), and the artifact's table of
//! contents ([`manifest::Manifest`]). Leaves making them to `odec-compiler`, turning kernels into
//! object code to `odec-mlir`, and running them to `odec-runtime`.
//!
//! # Invariants
//!
//! - Everything here is deterministic (vectors and B-tree maps only) and has no I/O.
//! - A program means the same on every device: a device only implements "launch one kernel".
//! - A kernel's specification says what every result is, down to the order of summation. Bits depend on the artifact,
//!   the ISA variant and the seed, never on the number of threads: kernels are cut into tiles that write disjoint
//!   elements. No fast-math, no contraction: every FMA is a node.
//! - What a specification must satisfy is in `validate.rs`, and whoever computes with one asks there first: a file may
//!   be anybody's.
//! - A target may have an order of summation of its own, if it is in the specification (`kernel::Order`): contractions
//!   of bf16 for `cpu:amx` add as `tdpbf16ps` is defined to (`tile.rs`), for `cpu:avx512bf16` as `vdpbf16ps` is (`dot.rs`), and so do the products inside
//!   attention there; the reference device does the same.
//! - A kernel for a GPU gives the bits of its specification too: threads divide the work along the order of every sum,
//!   there are no atomics, and every rounding instruction says `.rn`. The exception is what runs on tensor cores,
//!   contractions and attention in `precision bf16`: they add in the card's order, so results are the specification's
//!   within the bound of `gpu/tensor.rs`, and two runs on one card give the same bits.
//! - The runtime learns blocks, threads, shared memory and tensor maps from `gpu.rs`, which is asked for a target,
//!   never from the code.
//! - Arithmetic is in the program's real type, f32 or f64 (`Program::real`); `bf16.rs` says what rounding means.
//! - Random numbers inside kernels are a function of a run's key, a stream, the row and the column (`noise.rs`):
//!   dropout drops the same whatever is computed again. Those of parameters, batches and tokens are counter-based
//!   (`rng.rs`): a draw is a function of a run's seed, a stream's name and a number.

pub mod bf16;
mod blocking;
pub mod bounds;
pub mod choice;
pub mod dot;
pub mod eval;
pub mod expr;
pub mod gpu;
pub mod kernel;
pub mod manifest;
pub mod names;
pub mod noise;
pub mod optimizers;
pub mod quantized;
pub mod real;
pub mod recent;
pub mod rng;
pub mod schedules;
pub mod site;
pub mod size;
pub mod step_law;
pub mod target;
pub mod tile;
pub mod transcendental;
pub mod window;

pub use expr::{Access, Body, ExprId};
pub use kernel::KernelSpec;
pub use names::{EntryId, ResultId};
pub use quantized::Quantized;
pub use recent::Recent;
use serde::{Deserialize, Serialize};
pub use site::Site;
pub use size::{Bindings, Dim, Maxima, Size};
use std::collections::BTreeMap;
use std::ops::Range;
pub use target::Target;
pub use window::Window;

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
    /// Bytes of [`quantized`] weights: integers, and the halves of their scales.
    I8,
}

impl DType {
    /// The type in which elements of this type are computed with.
    pub const fn arithmetic(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            DType::F32 | DType::Bf16 | DType::I32 | DType::I8 => DType::F32,
        }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F64 => 8,
            DType::Bf16 => 2,
            DType::I8 => 1,
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
    /// Gradients, same layout as `Params`: the beginning of the arena, from [`EntryId::Grad`] to [`EntryId::Accumulate`] and [`EntryId::Update`].
    Grads,
    /// Gradients added up over the micro-batches of a step, same layout as `Params`.
    Sums,
    /// The first number that an optimiser keeps beside each parameter ([`optimizers`]), same layout as `Params`.
    Moment1,
    /// The second, same layout as `Params`.
    Moment2,
    /// The running mean of each parameter ([`manifest::Train::ema`]), same layout as `Params`.
    Average,
    /// Constant tables (rotary cosines and sines), filled once from [`manifest::Constant`].
    Consts,
    /// Packed parameters, made by [`EntryId::Prepare`] whenever parameters have changed.
    Prepared,
    /// All parameters rounded to bf16, in the order of `Params`: [`EntryId::Round`] makes them, and [`EntryId::Update`] keeps those that are trained.
    Rounded,
    /// Keys and values of the tokens so far, one pair of matrices per evaluation of an attention, and what a run carries over to the next.
    Cache,
    /// The entry's n-th input, given by the caller.
    Input(u32),
    /// The entry's n-th output, read by the caller.
    Output(u32),
}

/// A kernel argument: a slot and a byte offset into it, `offset + stride · past + recent · recent + row · first`, `first` being the first row
/// of the piece at hand ([`Pieces`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operand {
    pub slot: Slot,
    pub offset: u64,
    /// Bytes further for each token that earlier runs have seen: rows of a table or of a cache.
    #[serde(default, skip_serializing_if = "size::nothing")]
    pub stride: u64,
    /// Bytes further for each of those tokens that windows keep rows of: rows of such a cache.
    #[serde(default, skip_serializing_if = "size::nothing")]
    pub recent: u64,
    /// Bytes further for each row before the piece at hand.
    #[serde(default, skip_serializing_if = "size::nothing")]
    pub row: u64,
}

impl Operand {
    /// The same place in every run.
    pub const fn at(slot: Slot, offset: u64) -> Operand {
        Operand {
            slot,
            offset,
            stride: 0,
            recent: 0,
            row: 0,
        }
    }
}

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
    /// Index into [`Program::sites`].
    pub site: u32,
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

/// Instructions that take the tokens' rows in pieces: all of them for the first `rows` rows, then all of them for the next
/// ones. What only they use needs the room of one piece (logits of a large vocabulary).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// The first of the instructions.
    pub first: u32,
    pub count: u32,
    /// Rows of a piece; the last one may have fewer.
    pub rows: u64,
}

/// Rows that an instruction is launched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub first: u64,
    /// `None`: all.
    pub rows: Option<u64>,
}

impl Piece {
    pub const ALL: Piece = Piece {
        first: 0,
        rows: None,
    };

    /// The value of a dimension; `None` on overflow.
    pub fn dim(self, size: Size, at: Bindings) -> Option<u64> {
        match self.rows {
            Some(rows) if size == Size::TOKENS => Some(rows),
            _ => size.at(at),
        }
    }

    /// Where an operand begins in its slot, in bytes; `None` on overflow.
    pub fn start(self, o: &Operand, at: Bindings) -> Option<u64> {
        let past = o.stride.checked_mul(at.past)?;
        let recent = o.recent.checked_mul(at.recent())?;
        let before = o.row.checked_mul(self.first)?;
        let kept = past.checked_add(recent)?;
        o.offset.checked_add(kept)?.checked_add(before)
    }
}

/// What [`EntryId::Extend`] keeps of each of several sequences, one behind the other in [`Slot::Cache`], and [`EntryId::Decode`] of one: both keep the
/// same things in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// In bytes, that of the first sequence.
    pub offset: u64,
    /// Rows of a sequence, and bytes of each.
    pub rows: u64,
    pub row: u64,
    /// Whether there is a row for each token so far, or all of them whatever their number.
    pub grows: bool,
    /// Whether it grows, and the first tokens' rows are dropped ([`Recent`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recent: bool,
}

/// A straight-line instruction list with its own arena.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The largest batch and sequence; `past` and sequence together are at most the latter.
    pub maxima: Maxima,
    pub inputs: Vec<Io>,
    pub outputs: Vec<Io>,
    /// Bytes of arena for the planned maxima of batch and sequence.
    pub arena_bytes: u64,
    /// Bytes of scratch that one thread needs, the maximum over the instructions.
    pub scratch_bytes: u64,
    pub instrs: Vec<Instr>,
    /// Stretches of the instructions, in order and apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<Pieces>,
    /// Of what other sequences may go on from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

impl Entry {
    /// The launches of a run: numbers of instructions, each with its piece.
    pub fn launches(&self, at: Bindings) -> impl Iterator<Item = (usize, Piece)> + '_ {
        let tokens = at.batch.saturating_mul(at.seq);
        let mut stretches = Vec::new();
        let mut next = 0;
        for p in &self.pieces {
            let first = p.first as usize;
            let end = first.saturating_add(p.count as usize);
            stretches.push((next..first, None));
            stretches.push((first..end, Some(p.rows.max(1))));
            next = end;
        }
        stretches.push((next..self.instrs.len(), None));
        stretches.into_iter().flat_map(move |(range, rows)| {
            let step = rows.unwrap_or(tokens).max(1);
            let pieces = tokens.div_ceil(step).max(1);
            (0..pieces).flat_map(move |n| {
                let first = n * step;
                let piece = rows.map_or(Piece::ALL, |rows| Piece {
                    first,
                    rows: Some(rows.min(tokens - first)),
                });
                range.clone().map(move |i| (i, piece))
            })
        })
    }
}

/// A kernel and the symbol its object code is found under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// `<kind>_<first 16 hex digits of the spec's SHA-256>`.
    pub symbol: String,
    pub spec: KernelSpec,
}

/// Everything that runs: distinct kernels once, and the entries that launch them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The type of states, parameters, their gradients and moments, constants and results, in which sums are taken:
    /// [`DType::F32`] or [`DType::F64`].
    pub real: DType,
    /// Planned maxima of batch and sequence, over all entries but [`EntryId::Extend`], which may read more texts.
    pub maxima: Maxima,
    pub kernels: Vec<Kernel>,
    /// Where in the model launches come from, each once.
    pub sites: Vec<Site>,
    pub entries: BTreeMap<EntryId, Entry>,
    /// Bytes of `Params`.
    pub param_bytes: u64,
    /// Bytes of `Grads`, `Sums`, `Moment1`, `Moment2` and `Average`, where they are kept: those of the parameters that are trained, which lie first in `Params`.
    pub trained_bytes: u64,
    pub const_bytes: u64,
    pub prepared_bytes: u64,
    pub cache_bytes: u64,
}

impl Program {
    /// The part of [`Slot::Cache`] that an entry uses: [`EntryId::Decode`] what it keeps of its one text, which lies first, [`EntryId::Encode`] and
    /// [`EntryId::Extend`] what is behind that, and no other any.
    pub fn cache(&self, entry: EntryId) -> Range<u64> {
        let kept = self.entries.get(&EntryId::Decode).map(|e| &e.kept[..]);
        let ends = kept.unwrap_or_default().iter().map(|k| {
            let bytes = k.rows.saturating_mul(k.row);
            k.offset.saturating_add(bytes)
        });
        let own = ends.max().unwrap_or(0).min(self.cache_bytes);
        match entry {
            EntryId::Decode => 0..own,
            EntryId::Encode | EntryId::Extend => own..self.cache_bytes,
            _ => 0..0,
        }
    }

    /// Bytes of [`Slot::Grads`]: none where no entry makes or reads it.
    pub fn gradient_bytes(&self) -> u64 {
        let of = [EntryId::Accumulate, EntryId::Grad, EntryId::Update];
        match of.iter().any(|id| self.entries.contains_key(id)) {
            true => self.trained_bytes,
            false => 0,
        }
    }

    /// Bytes of the arena of all entries, whose beginning is [`Slot::Grads`].
    pub fn arena_bytes(&self) -> u64 {
        let arenas = self.entries.values().map(|e| e.arena_bytes);
        arenas.fold(self.gradient_bytes(), u64::max)
    }

    /// Bytes that are kept of one text while it is generated: of a model of two sequences, of as many as are tried.
    pub fn generation_bytes(&self) -> u64 {
        match self.entries.contains_key(&EntryId::Decode) {
            true => self.cache(EntryId::Decode).end,
            false => self.cache_bytes,
        }
    }

    /// Bytes of [`Slot::Rounded`]: none where nothing reads it.
    pub fn rounded_bytes(&self) -> u64 {
        match self.entries.contains_key(&EntryId::Round) {
            true => self.param_bytes / self.real.bytes() * DType::Bf16.bytes(),
            false => 0,
        }
    }

    /// Leaves out all entries but these, and kernels that none of these launches.
    pub fn keep(&mut self, entries: &[EntryId]) {
        self.entries.retain(|id, _| entries.contains(id));
        let mut numbers = BTreeMap::new();
        let all = std::mem::take(&mut self.kernels);
        for instr in self.entries.values_mut().flat_map(|e| &mut e.instrs) {
            let number = numbers.entry(instr.kernel).or_insert_with(|| {
                self.kernels.push(all[instr.kernel as usize].clone());
                self.kernels.len() as u32 - 1
            });
            instr.kernel = *number;
        }
    }

    /// Where in the model an instruction comes from.
    pub fn site(&self, i: &Instr) -> &Site {
        &self.sites[i.site as usize]
    }
}
