//! Boxes of operands that Hopper's copying unit (TMA) brings to shared memory by itself: of which operands, and how each is described
//! to it.
//!
//! Takes a kernel's spec and the dims of a launch; gives [`TensorMap`]s in the order in which the kernel takes them, as its last
//! arguments, 128 bytes each, aligned to 64. A map is a function of the launch alone, so operands may lie elsewhere in the next one. The
//! emitters ask the same functions which of a kernel's operands come so. Leaves encoding to the driver (`cuTensorMapEncodeTiled`).

use super::warpgroup::{self, K, PANEL};
use super::{attend, contract};
use crate::kernel::{Attend, Contract, Extent, KernelSpec};
use crate::{DType, Target};

/// Bytes of a map as a kernel takes it, and what its address is a multiple of.
pub const BYTES: u64 = 128;
pub const ALIGNMENT: u64 = 64;
/// What the address of an operand and all of a map's strides are multiples of, in bytes.
pub const PIECE: u64 = 16;
/// Strides are smaller, in bytes.
const MAX_STRIDE: u64 = 1 << 40;
/// Coordinates of a box are signed numbers of 32 bits.
const MAX_EXTENT: u64 = 1 << 31;

/// An operand of bf16 as the copying unit sees it. All maps have in common: boxes lie in shared memory with the swizzle of 128 bytes, no
/// element is passed over, and what lies beyond the extents is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The operand at whose address it begins.
    pub operand: usize,
    /// Elements of each dimension, the innermost first.
    pub extents: Vec<u64>,
    /// Bytes from one index to the next of each dimension but the innermost.
    pub strides: Vec<u64>,
    /// Elements of a box along each dimension.
    pub tile: Vec<u64>,
}

/// The operands of attention, backward, that come by maps: q, k, v and dO.
pub const BACKWARD: [usize; 4] = [0, 1, 2, 5];

impl TensorMap {
    /// Why the driver would not take it for an operand at an address, in words.
    pub fn refusal(&self, address: u64) -> Option<String> {
        if !address.is_multiple_of(PIECE) {
            return Some(format!("a tensor map of address {address:#x}"));
        }
        let wrong = |s: &u64| !s.is_multiple_of(PIECE) || *s >= MAX_STRIDE;
        if let Some(stride) = self.strides.iter().find(|s| wrong(s)) {
            return Some(format!("a tensor map with a stride of {stride} bytes"));
        }
        let wrong = |x: &&u64| !(1..=MAX_EXTENT).contains(*x);
        let extent = self.extents.iter().find(wrong)?;
        Some(format!("a tensor map of {extent} elements"))
    }
}

/// Whether a factor of a contraction, of its operands, A and B in turn, comes by tensor maps on a target: in bf16, its rows whole pieces. All others pass
/// through registers, where they are rounded or put in place.
pub fn feeds(c: &Contract, factor: usize, target: Target) -> bool {
    warpgroup::runs(c, target) && contract::vector(c, factor % 2) * DType::Bf16.bytes() == PIECE
}

/// How many maps a kernel takes.
pub fn count(spec: &KernelSpec, target: Target) -> usize {
    match spec {
        KernelSpec::Contract(c) => (0..c.factors()).filter(|n| feeds(c, *n, target)).count(),
        KernelSpec::Attend(a) | KernelSpec::AttendCached(a) if warpgroup::attends(a, target) => 3,
        KernelSpec::AttendBackward(a) if warpgroup::attends(a, target) => BACKWARD.len(),
        _ => 0,
    }
}

/// The maps of a launch.
pub fn maps(spec: &KernelSpec, dims: &[u64], target: Target) -> Vec<TensorMap> {
    match spec {
        KernelSpec::Contract(c) => (0..c.factors())
            .filter(|n| feeds(c, *n, target))
            .map(|n| factor(c, n, dims))
            .collect(),
        KernelSpec::Attend(a) if warpgroup::attends(a, target) => {
            let [batch, queries, keys] = a.lengths(dims);
            heads(a, batch, [queries, keys])
        }
        KernelSpec::AttendCached(a) if warpgroup::attends(a, target) => {
            let (seq, past) = (dims[0], dims[1]);
            heads(a, 1, [seq, past + seq])
        }
        KernelSpec::AttendBackward(a) if warpgroup::attends(a, target) => {
            let map = |operand| {
                let tall = warpgroup::attend_streamed(a);
                let [batch, queries, keys] = a.lengths(dims);
                let rows = match Attend::is_of_keys(operand as u64) {
                    true => keys,
                    false => queries,
                };
                of_heads(a, operand, (batch, rows), tall)
            };
            BACKWARD.into_iter().map(map).collect()
        }
        _ => vec![],
    }
}

/// Whether all panels of a factor's tile are one box: its rows go across the inner index, and have whole panels.
pub fn at_once(c: &Contract, factor: usize) -> bool {
    let (row, inner_last) = contract::row(c, factor % 2);
    !inner_last && matches!(row, Extent::Static(n) if n.is_multiple_of(PANEL))
}

/// A factor's rows as they lie, dims `[m, n, k]`. A box is a panel of its tile, or all of them: then panels are the outermost dimension, 128 bytes apart.
/// CUDA's header asks for strides that grow with the dimension; drivers take these as well (580.159.04 on an H200).
fn factor(c: &Contract, operand: usize, dims: &[u64]) -> TensorMap {
    let number = operand % 2;
    let (outer, inner) = (dims[number], dims[2]);
    let (rows, cols) = match contract::row(c, number).1 {
        true => (outer, inner),
        false => (inner, outer),
    };
    let (tall, wide) = warpgroup::tile(c, number);
    // Of no rows nothing is asked for.
    let (rows, row) = (rows.max(1), cols * DType::Bf16.bytes());
    match at_once(c, operand) {
        true => TensorMap {
            operand,
            extents: vec![PANEL, rows, cols / PANEL],
            strides: vec![row, PANEL * DType::Bf16.bytes()],
            tile: vec![PANEL, tall, wide / PANEL],
        },
        false => TensorMap {
            operand,
            extents: vec![cols, rows],
            strides: vec![row],
            tile: vec![PANEL, tall],
        },
    }
}

/// Queries, keys and values.
fn heads(a: &Attend, batch: u64, [queries, keys]: [u64; 2]) -> Vec<TensorMap> {
    let all = [queries, keys, keys].into_iter().enumerate();
    all.map(|(operand, rows)| of_heads(a, operand, (batch, rows), attend::KEYS))
        .collect()
}

/// An operand of attention: columns of a head, heads, rows, sequences. A box has 64 columns of so many rows; beyond a head's columns there
/// are zeros, not the next head.
fn of_heads(a: &Attend, operand: usize, (batch, rows): (u64, u64), tall: u64) -> TensorMap {
    let heads = match Attend::is_of_keys(operand as u64) {
        true => a.kv_heads,
        false => a.heads,
    };
    let head = a.head * DType::Bf16.bytes();
    TensorMap {
        operand,
        extents: vec![a.head, heads, rows, batch],
        strides: vec![head, heads * head, rows * heads * head],
        tile: vec![PANEL, 1, tall, 1],
    }
}

const _: () = assert!(PANEL * DType::Bf16.bytes() == 128 && K == PANEL);
