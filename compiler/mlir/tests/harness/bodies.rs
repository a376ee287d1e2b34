//! Random row and column kernels, and operands for them.
//!
//! Takes random picks; gives bodies over one operand of each kind of access. Every test of an emitter of such kernels draws
//! from here.

use super::Buffer;
use odec_program::DType;
use odec_program::expr::{
    Access, BinaryOp, Body, CmpOp, ColMap, Expr, ExprId, Level, ReduceOp, RowMap, UnaryOp,
};
use odec_program::kernel::{Rows, Store};
use odec_program::real::Real;
use proptest::prelude::*;

pub const COLS: [u64; 10] = [1, 8, 15, 16, 17, 64, 100, 160, 255, 256];
pub const SEQ: u64 = 3;

/// One random node: which kind, and which earlier nodes.
pub type Pick = (u8, [u16; 4]);

/// The operands that random kernels read; outputs follow.
#[derive(Clone, Copy)]
pub enum In {
    Full,
    PerRow,
    PerCol,
    Scalar,
    Repeated,
    Position,
    Index,
    Swapped,
}
pub const INPUTS: u32 = 8;

/// Columns of the repeated tables: some contiguous in vectors, some in pieces, some single.
pub fn period(cols: u64, pick: u16) -> u64 {
    let all: Vec<u64> = [1, 2, 3, 8, 16, 24, 32, 80]
        .into_iter()
        .filter(|n| *n <= cols)
        .collect();
    all[pick as usize % all.len()]
}

/// Columns from the first, from a whole vector or from anywhere on.
pub fn turn(cols: u64, pick: u16) -> ColMap {
    let by = [0, 16, u64::from(pick)][pick as usize % 3];
    ColMap::Turn { cols, by }
}

/// Widths of groups whose halves can be swapped; none for odd numbers of columns.
pub fn swap(cols: u64, pick: u16) -> Option<u64> {
    let all: Vec<u64> = (1..=cols / 2)
        .map(|h| 2 * h)
        .filter(|n| cols.is_multiple_of(*n))
        .collect();
    (!all.is_empty()).then(|| all[pick as usize % all.len()])
}

pub fn build<T: Real>(cols: u64, table: u64, picks: &[Pick], reductions: bool) -> Body {
    let mut b = Body::default();
    let mut ids: Vec<ExprId> = vec![b.load(In::Full as u32, Access::full(cols))];
    for (kind, p) in picks {
        let at = |n: usize| ids[p[n] as usize % ids.len()];
        let access = |row, col, stride| Access { row, col, stride };
        let x = match kind % 40 {
            0 => b.load(In::PerRow as u32, Access::PER_ROW),
            1 => b.load(In::PerCol as u32, Access::PER_COL),
            2 => b.load(In::Scalar as u32, Access::SCALAR),
            3 => b.load(
                In::Repeated as u32,
                access(RowMap::Zero, turn(table, p[1]), 0),
            ),
            4 => b.load(
                In::Position as u32,
                access(RowMap::Position, turn(table, p[1]), table),
            ),
            5 => b.load(In::Index as u32, Access::full(cols)),
            6 => match swap(cols, p[0]) {
                Some(n) => b.load(
                    In::Swapped as u32,
                    access(RowMap::Row, ColMap::HalfSwap(n), cols),
                ),
                None => b.konst(0.5),
            },
            7 => b.push(Expr::ColIndex),
            8 => b.uniform(u32::from(p[0] % 2)),
            9 => b.konst(f64::from(p[0] % 9) * 0.37 - 1.1),
            10 => b.unary(UnaryOp::Neg, at(0)),
            11 => b.unary(UnaryOp::Sqrt, at(0)),
            12 => b.unary(UnaryOp::Exp, at(0)),
            13 => b.unary(UnaryOp::Log, at(0)),
            14 => b.unary(UnaryOp::Round, at(0)),
            15 => b.unary(UnaryOp::Exponent, at(0)),
            16 => b.unary(UnaryOp::Mantissa, at(0)),
            // f64 kernels do not round to bf16.
            32 | 33 if T::DTYPE == DType::F32 => b.unary(UnaryOp::Bf16, at(0)),
            17 => b.binary(BinaryOp::Add, at(0), at(1)),
            18 => b.binary(BinaryOp::Sub, at(0), at(1)),
            19 | 20 => b.binary(BinaryOp::Mul, at(0), at(1)),
            21 => b.binary(BinaryOp::Div, at(0), at(1)),
            22 => b.binary(BinaryOp::Max, at(0), at(1)),
            23 => b.binary(BinaryOp::Min, at(0), at(1)),
            24 => {
                // Integral powers in the documented range.
                let (low, high) = (b.konst(-1200.0), b.konst(180.0));
                let n = b.binary(BinaryOp::Max, at(1), low);
                let n = b.binary(BinaryOp::Min, n, high);
                let n = b.unary(UnaryOp::Round, n);
                b.binary(BinaryOp::Scale, at(0), n)
            }
            25 | 26 => b.fma(at(0), at(1), at(2)),
            27 => b.select(CmpOp::Lt, at(0), at(1), at(2), at(3)),
            28 => b.select(CmpOp::Eq, at(0), at(1), at(2), at(3)),
            29 | 30 if reductions => b.reduce(ReduceOp::Sum, at(0)),
            31 if reductions => b.reduce(ReduceOp::Max, at(0)),
            36 | 37 => {
                let by = i32::from(p[0] % 7) - 3;
                let col = [ColMap::Col, turn(cols, p[1])][usize::from(p[2] % 2)];
                b.load(In::Swapped as u32, access(RowMap::Shift(by), col, cols))
            }
            38 => match swap(2 * cols, p[0]) {
                Some(n) if cols.is_multiple_of(n / 2) => {
                    let (rows, of) = (n / 2, cols / (n / 2));
                    let col = ColMap::Transposed { rows, cols: of };
                    b.load(In::Swapped as u32, access(RowMap::Row, col, cols))
                }
                _ => b.konst(0.25),
            },
            39 => b.load(
                In::Swapped as u32,
                access(RowMap::Sequence, ColMap::Col, cols),
            ),
            34 => b.push(Expr::RowIndex),
            35 => {
                let (key, stream) = (u32::from(p[0]) * 977, u32::from(p[1]));
                let (key, stream) = (b.konst(key.into()), b.konst(stream.into()));
                let (row, col) = (b.push(Expr::RowIndex), b.push(Expr::ColIndex));
                b.push(Expr::Random([key, stream, row, col]))
            }
            _ => b.add(at(0), at(1)),
        };
        ids.push(x);
    }
    b
}

pub fn inputs<T: Real>(rows: u64, cols: u64, table: u64) -> Vec<Buffer<T>> {
    let n = (rows * cols) as usize;
    let wave = |scale: f64| move |i: usize| ((i as f64 * 0.731).sin() * scale * 1e4).round() / 1e4;
    vec![
        Buffer::from_fn(n, wave(3.0)),
        Buffer::from_fn(rows as usize, wave(1.5)),
        Buffer::from_fn(cols as usize, wave(2.0)),
        Buffer::from_fn(1, |_| 0.75),
        Buffer::from_fn(table as usize, wave(1.0)),
        Buffer::from_fn((SEQ * table) as usize, wave(1.2)),
        Buffer::Int((0..n).map(|i| (i * 7919 % 257) as i32 - 20).collect()),
        Buffer::from_fn(n, wave(0.9)),
    ]
}

/// A random kernel with two outputs per element (the first may overwrite the full input) and one per row.
/// With `half`, two inputs and the second output are bf16.
pub fn random_rows<T: Real>(cols: u64, table: u64, picks: &[Pick], half: bool) -> Rows {
    let body = build::<T>(cols, table, picks, true);
    let levels = body.levels();
    let last = |want: fn(Level) -> bool| {
        levels
            .iter()
            .rposition(|l| want(*l))
            .map(|i| ExprId(i as u32))
    };
    let any = ExprId(body.nodes.len() as u32 - 1);
    let mut stores = vec![Store {
        operand: INPUTS,
        access: Access::full(cols),
        value: any,
    }];
    if let Some(value) = last(|l| l >= Level::Col) {
        stores.push(Store {
            operand: INPUTS + 1,
            access: Access::full(cols),
            value,
        });
    }
    if let Some(value) = last(|l| l < Level::Col) {
        stores.push(Store {
            operand: INPUTS + 2,
            access: Access::PER_ROW,
            value,
        });
    }
    let mut operands = vec![T::DTYPE; INPUTS as usize + 3];
    operands[In::Index as usize] = DType::I32;
    if half {
        for n in [In::Swapped as u32, In::Repeated as u32, INPUTS + 1] {
            operands[n as usize] = DType::Bf16;
        }
    }
    Rows {
        dtype: T::DTYPE,
        cols,
        operands,
        uniforms: 2,
        body,
        stores,
    }
}

pub fn picks(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Pick>> {
    proptest::collection::vec((any::<u8>(), any::<[u16; 4]>()), n)
}
