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
//! dtype on entry; `scratch` is 64-byte aligned and [`KernelSpec::scratch_bytes`] long. A launch runs
//! all tiles `0..tiles(dims)` in any split over threads: tiles write disjoint elements and their
//! results never depend on the split.

use crate::expr::{Body, ExprId};
use crate::{Access, DType, tile};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One distinct kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KernelSpec {
    Rows(Rows),
    Columns(Columns),
    Pack(Pack),
    Contract(Contract),
    Attend(Attend),
    AttendBackward(Attend),
    AttendCached(Attend),
    Gather(Gather),
    ScatterAdd(Gather),
    PositionSum(Gather),
}

/// Writes one result of a row kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// Operand index of the output.
    pub operand: u32,
    /// `RowMap::Row` with `ColMap::Col` (an element each) or `ColMap::Zero` (one per row).
    pub access: Access,
    pub value: ExprId,
}

/// A fused map / row-reduction kernel over a domain of rows × `cols`.
///
/// dims: `[rows, seq]` (`seq` is read by [`crate::expr::RowMap::Position`] only; 1 otherwise).
/// tiles: one per row. An output may alias an input that is read with the same access only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    pub dtype: DType,
    pub cols: u64,
    /// Element type of every operand, inputs then outputs.
    pub operands: Vec<DType>,
    pub uniforms: u32,
    pub body: Body,
    pub stores: Vec<Store>,
}

/// Sums `value` over all rows, for each column: `out[c] = finish(Σ_r value(r, c))`, or with
/// `accumulate`, `out[c] += …`.
///
/// dims: `[rows, seq]`. tiles: blocks of [`Columns::TILE`] columns. Rows are added in order, each
/// column on its own. `value` contains no reduction. The output is the last operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    pub dtype: DType,
    pub cols: u64,
    pub operands: Vec<DType>,
    pub uniforms: u32,
    pub body: Body,
    pub value: ExprId,
    pub accumulate: bool,
}

impl Columns {
    pub const TILE: u64 = 64;
}

/// Register and cache blocking of a contraction; part of the spec so that tuning is frozen in the
/// artifact. `kc` fixes the order of summation, so it is part of the meaning too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocking {
    /// Rows of a register tile.
    pub mr: u32,
    /// Columns of a register tile, and of a packed panel; a multiple of the vector length.
    pub nr: u32,
    /// Inner length of a cache block.
    pub kc: u32,
    /// Columns of a cache block; a multiple of `nr`.
    pub nc: u32,
}

/// An extent that is part of the kernel, or given at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    Static(u64),
    Dynamic,
}

/// In which order a contraction adds up, within a block of its inner length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Products are accumulated by FMA from zero, in order.
    #[default]
    Chain,
    /// In chunks of [`tile::K`], evens and odds of a chunk apart: [`tile::sum`]. Factors are bf16.
    Pairs,
}

impl Order {
    fn is_chain(&self) -> bool {
        *self == Order::Chain
    }

    /// Values of k in a panel of inner length `k`: those of whole chunks, beyond `k` zeros.
    pub fn depth(self, k: u64) -> Option<u64> {
        k.checked_next_multiple_of(match self {
            Order::Chain => 1,
            Order::Pairs => tile::K,
        })
    }

    /// The element that holds B(k, column), packed in panels of `nr` columns, `depth` values of k each.
    pub fn element(self, k: u64, column: u64, depth: u64, nr: u64) -> u64 {
        let (panel, j) = (column / nr * depth * nr, column % nr);
        panel
            + match self {
                Order::Chain => k * nr + j,
                Order::Pairs => (k / 2 * nr + j) * 2 + k % 2,
            }
    }
}

/// Copies a right-hand operand B into panels of `nr` columns, arranged for contractions of an order:
/// `packed[p][k][j] = B(k, p·nr + j)`, with [`Order::Pairs`] `packed[p][k/2][j][k mod 2]`; zero where `p·nr + j ≥ n`, and,
/// with pairs, up to whole chunks of k ([`Order::depth`]). Elements of B are `from`, those of the panels `dtype`; bf16
/// panels of an f32 B are rounded.
///
/// dims: `[n, k]`. tiles: one per panel, `ceil(n / nr)`. operands: B, packed.
/// `transposed: false`: B is stored [k, n] (row stride n); `true`: stored [n, k] (row stride k).
/// The packed buffer holds `ceil(n / nr) · nr · depth` elements, `depth` that of the order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pack {
    pub dtype: DType,
    pub from: DType,
    pub n: Extent,
    pub k: Extent,
    pub nr: u32,
    pub transposed: bool,
    #[serde(default, skip_serializing_if = "Order::is_chain")]
    pub order: Order,
}

/// How a contraction's right-hand operand B(k, n) lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Panels made by [`Pack`].
    #[default]
    Panels,
    /// [k, n], row stride n.
    Rows,
    /// [n, k], row stride k.
    Columns,
}

impl Layout {
    fn is_panels(&self) -> bool {
        *self == Layout::Panels
    }
}

/// `C(m, n) = epilogue(Σ_k A(m, k) · B(k, n))`.
///
/// dims: `[m, n, k]`. tiles: one per panel of `mr` rows, `ceil(m / mr)`.
/// operands: A, B, the epilogue's extra inputs, C. C is stored [m, n], row stride n.
/// `a_transposed: false`: A is stored [m, k]; `true`: stored [k, m] (row stride m).
/// Elements of A are `a`, those of packed B `b`; all others, C included, are `dtype`, in which sums are taken. With bf16
/// panels, elements of A are rounded to bf16 too: the result is that of the `dtype` contraction of rounded operands, and
/// does not depend on whether A was rounded before it was stored.
///
/// Order of summation: k is cut into blocks of `kc`; inside a block products are added up in its [`Order`], from zero; the
/// block sums are added in order (starting from C itself with `accumulate`:
/// C + block₀, then + block₁, …). The epilogue sees the finished sum as [`crate::expr::Expr::Acc`], and
/// may load operands by element, column or scalar. (On tensor cores the order is the card's: [`crate::gpu::tensor`].)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    pub dtype: DType,
    pub a: DType,
    pub b: DType,
    pub m: Extent,
    pub n: Extent,
    pub k: Extent,
    pub a_transposed: bool,
    #[serde(default, skip_serializing_if = "Layout::is_panels")]
    pub layout: Layout,
    pub accumulate: bool,
    #[serde(default, skip_serializing_if = "Order::is_chain")]
    pub order: Order,
    pub blocking: Blocking,
    pub epilogue: Option<Epilogue>,
}

impl Contract {
    /// The element that holds B(k, column), where B has `n` columns and inner length `len`.
    pub fn element(&self, k: u64, column: u64, n: u64, len: u64) -> u64 {
        match self.layout {
            Layout::Panels => {
                let depth = self.order.depth(len).expect("B is in memory");
                let nr = u64::from(self.blocking.nr);
                self.order.element(k, column, depth, nr)
            }
            Layout::Rows => k * n + column,
            Layout::Columns => column * len + k,
        }
    }

    /// Elements of scratch before the widened panels: one packed panel of A, mr × kc, plus a full register tile for ragged
    /// edges.
    pub fn tile_scratch(&self) -> u64 {
        const VEC: u64 = 16; // elements of the widest vector: padding for overlapping stores
        let b = self.blocking;
        b.mr as u64 * b.kc as u64 + VEC * VEC + b.mr as u64 * b.nr as u64 + VEC
    }
    /// Elements of scratch of one thread: with bf16 panels, also a block of them, widened, nc × kc. With pairs, a register tile,
    /// a packed panel of A in bf16, and the configuration of tile registers.
    pub fn scratch(&self) -> u64 {
        if self.order == Order::Pairs {
            let b = self.blocking;
            let (mr, nr, kc) = (u64::from(b.mr), u64::from(b.nr), u64::from(b.kc));
            return mr * nr + mr * kc / 2 + tile::CONFIGURATION / self.dtype.bytes();
        }
        let widened = match self.b == self.dtype {
            true => 0,
            false => self.blocking.nc as u64 * self.blocking.kc as u64,
        };
        match widened {
            0 => self.tile_scratch(),
            n => self.tile_scratch().next_multiple_of(16) + n,
        }
    }
}

/// A map applied to the finished element of a contraction. Operand numbers are those of the launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epilogue {
    pub operands: u32,
    pub uniforms: u32,
    pub body: Body,
    pub value: ExprId,
}

/// Fused scaled-dot-product attention over [batch, seq, heads · head] tensors (keys and values: kv_heads · head); no
/// seq × seq matrix exists in memory.
///
/// dims: `[batch, seq]`.
/// Forward: operands q, k, v, o, lse; `lse` is [batch, seq, heads], the natural log of the sum of
/// exponentials of scaled scores. tiles: `batch · heads · ceil(seq / BLOCK)`, one per block of query rows
/// (index = (b · heads + h) · blocks + block).
/// Backward: operands q, k, v, o, lse, d_o, d_q, d_k, d_v. tiles: `batch · kv_heads`.
/// Cached (causal, one sequence): dims `[seq, past]`, operands q, k, v, o; k and v hold `past + seq` rows, query row i has
/// the position `past + i`. tiles: `heads · ceil(seq / QUERIES)`. The result is bit for bit that of the forward kernel for
/// these rows of the whole sequence.
/// Elements of q, k, v (and of o where the backward kernel reads it) are `inputs`, all others `dtype`, as is arithmetic.
/// `scale` multiplies the scores (1/√head as a rounded constant). The order of every sum is that of [`crate::attend`],
/// except on tensor cores ([`crate::gpu::tensor`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attend {
    pub dtype: DType,
    pub inputs: DType,
    pub heads: u64,
    /// Heads of keys and values, a divisor of `heads`: query head h reads number `h · kv_heads / heads`.
    pub kv_heads: u64,
    /// Columns of one head.
    pub head: u64,
    pub causal: bool,
    /// Most keys that a query sees: its own and those right before it. Causal attention only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    pub scale: f64,
}

impl Attend {
    /// Query rows and key rows of a block.
    pub const BLOCK: u64 = 64;
    /// Query rows of a tile of the cached kernel.
    pub const QUERIES: u64 = 16;
}

/// Gather: `out[r, :] = table[index[r], :]`; operands index (i32), table, out; tiles: one per row.
/// ScatterAdd: `table[index[r], :] += rows[r, :]` for r in order; operands index, rows, table;
/// tiles: blocks of [`Gather::TILE`] columns.
///
/// dims: `[rows, table rows]`. The caller guarantees indices in range (the runtime checks inputs).
///
/// PositionSum: `table[p, :] = Σ_b rows[b · seq + p, :]` for b in order, from zero; rows of the table from `seq` on are
/// zero. dims: `[batch, seq, table rows]`; operands rows, table; tiles: one per row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gather {
    pub dtype: DType,
    pub cols: u64,
}

impl Gather {
    pub const TILE: u64 = 32;
}

impl KernelSpec {
    /// The type a kernel computes in. (Panels of [`Pack`] may be bf16; packing computes nothing.)
    pub fn dtype(&self) -> DType {
        match self {
            KernelSpec::Rows(k) => k.dtype,
            KernelSpec::Columns(k) => k.dtype,
            KernelSpec::Pack(k) => k.from.arithmetic(),
            KernelSpec::Contract(k) => k.dtype,
            KernelSpec::Attend(k) | KernelSpec::AttendBackward(k) | KernelSpec::AttendCached(k) => {
                k.dtype
            }
            KernelSpec::Gather(k) | KernelSpec::ScatterAdd(k) | KernelSpec::PositionSum(k) => {
                k.dtype
            }
        }
    }

    /// Element type of operand `i`.
    pub fn operand_type(&self, i: usize) -> DType {
        match (self, i) {
            (
                KernelSpec::Rows(Rows { operands, .. })
                | KernelSpec::Columns(Columns { operands, .. }),
                i,
            ) => operands.get(i).copied().unwrap_or(self.dtype()),
            (KernelSpec::Pack(p), 0) => p.from,
            (KernelSpec::Pack(p), _) => p.dtype,
            (KernelSpec::Contract(c), 0) => c.a,
            (KernelSpec::Contract(c), 1) => c.b,
            (KernelSpec::Attend(a) | KernelSpec::AttendCached(a), 0..3) => a.inputs,
            (KernelSpec::AttendBackward(a), 0..4) => a.inputs,
            (KernelSpec::Gather(_) | KernelSpec::ScatterAdd(_), 0) => DType::I32,
            _ => self.dtype(),
        }
    }

    /// How many tiles a launch with these dims has.
    pub fn tiles(&self, dims: &[u64]) -> u64 {
        match self {
            KernelSpec::Rows(_) | KernelSpec::Gather(_) => dims[0],
            KernelSpec::Columns(k) => k.cols.div_ceil(Columns::TILE),
            KernelSpec::ScatterAdd(g) => g.cols.div_ceil(Gather::TILE),
            KernelSpec::PositionSum(_) => dims[2],
            KernelSpec::Pack(p) => dims[0].div_ceil(p.nr as u64),
            KernelSpec::Contract(c) => dims[0].div_ceil(c.blocking.mr as u64),
            KernelSpec::Attend(a) => dims[0] * a.heads * dims[1].div_ceil(Attend::BLOCK),
            KernelSpec::AttendBackward(a) => dims[0] * a.kv_heads,
            KernelSpec::AttendCached(a) => a.heads * dims[0].div_ceil(Attend::QUERIES),
        }
    }

    /// Bytes of scratch one thread needs for a launch with these dims. The single source of truth for the
    /// planner, the emitters and the runtime.
    pub fn scratch_bytes(&self, dims: &[u64]) -> u64 {
        match self {
            KernelSpec::Contract(c) => c.scratch() * c.dtype.bytes(),
            KernelSpec::Attend(a) | KernelSpec::AttendCached(a) => {
                a.forward_scratch() * a.dtype.bytes()
            }
            KernelSpec::AttendBackward(a) => a.backward_scratch(dims[1]) * a.dtype.bytes(),
            _ => 0,
        }
    }

    /// `<kind>_<16 hex digits>`: equal specs have equal symbols, on every machine.
    pub fn symbol(&self) -> String {
        let json = serde_json::to_vec(self).expect("kernel specs are plain data");
        let digest = Sha256::digest(&json);
        let hex: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!("{}_{hex}", self.kind())
    }

    pub fn kind(&self) -> &'static str {
        match self {
            KernelSpec::Rows(_) => "rows",
            KernelSpec::Columns(_) => "columns",
            KernelSpec::Pack(_) => "pack",
            KernelSpec::Contract(_) => "contract",
            KernelSpec::Attend(_) => "attend",
            KernelSpec::AttendBackward(_) => "attend_backward",
            KernelSpec::AttendCached(_) => "attend_cached",
            KernelSpec::Gather(_) => "gather",
            KernelSpec::ScatterAdd(_) => "scatter_add",
            KernelSpec::PositionSum(_) => "position_sum",
        }
    }
}

impl Attend {
    /// Query heads that share a head of keys and values.
    pub fn group(&self) -> u64 {
        self.heads / self.kv_heads
    }
    /// The first of `keys` that a query at this position sees.
    pub fn first_key(&self, position: u64) -> u64 {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))
    }
    /// Head columns rounded up to whole vectors.
    pub fn padded_head(&self) -> u64 {
        self.head.next_multiple_of(16)
    }
    /// Elements of scratch of a forward tile (the emitter documents the layout).
    pub fn forward_scratch(&self) -> u64 {
        let (b, d) = (Self::BLOCK, self.padded_head());
        // q block, transposed k block, v block, o accumulator, scores, running max and sum
        4 * b * d + b * b + 4 * b + 64
    }
    /// Elements of scratch of a backward tile.
    pub fn backward_scratch(&self, seq: u64) -> u64 {
        let (b, d) = (Self::BLOCK, self.padded_head());
        let s = seq.next_multiple_of(b);
        // qᵀ, d_oᵀ, q, d_o, k, v, d_q blocks; weights and their gradient; lse and delta; d_k and d_v of the sequence
        7 * b * d + 2 * b * b + 2 * b + 2 * s * d + 64
    }
}
