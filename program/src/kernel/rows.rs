//! Maps and reductions over rows: specification, signature and meaning.

use super::signature::{Cols, Count, Dimension, Mode, OperandAccess, Signature, Work, walked};
use super::validate::{self, MOST_OPERANDS, Scope};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::{Evaluator, Memory};
use crate::expr::{Access, Body, ColMap, Expr, ExprId, Level, ReduceOp, RowMap, UnaryOp};
use crate::real::Real;
use crate::window::{Through, Window};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Writes one result of a row kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Store {
    /// Operand index of the output.
    pub operand: u32,
    /// `RowMap::Row` with `ColMap::Col` (an element each) or `ColMap::Zero` (one per row).
    pub access: Access,
    pub value: ExprId,
}

/// A fused map / row-reduction kernel over a domain of rows × `cols`.
///
/// dims: `[rows, seq]` (`seq` is read by [`crate::expr::RowMap::by_position`] only; 1 otherwise).
/// tiles: one per row. An output may alias an input that is read with the same access only.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Rows {
    pub dtype: DType,
    pub cols: u64,
    /// Element type of every operand, inputs then outputs.
    pub operands: Vec<DType>,
    pub uniforms: u32,
    pub body: Body,
    pub stores: Vec<Store>,
}

pub(super) struct RowsKind;

impl Kind for RowsKind {
    type Spec = Rows;
    const NAME: &'static str = "rows";

    fn dtype(k: &Rows) -> DType {
        k.dtype
    }

    fn validate(k: &Rows) -> Result<(), String> {
        validate::sums(k.dtype)?;
        validate::length("columns", k.cols)?;
        validate::operands(k.dtype, &k.operands)?;
        let scope = Scope {
            loads: 0..k.operands.len(),
            uniforms: k.uniforms,
            cols: Some(k.cols),
            reductions: true,
            accumulator: false,
            positions: true,
        };
        validate::body(&k.body, k.dtype, &scope)?;
        if k.stores.is_empty() {
            return Err("it stores nothing".into());
        }
        if k.stores.len() > MOST_OPERANDS {
            return Err(format!("it has {} stores", k.stores.len()));
        }
        let levels = k.body.levels();
        k.stores.iter().try_for_each(|s| store(k, s, &levels))
    }

    fn signature(k: &Rows) -> Signature {
        let cols = Cols::Fixed(k.cols);
        let operand = |d: &DType| OperandAccess::new("input", *d, Mode::Read, []);
        let mut operands: Vec<OperandAccess> = k.operands.iter().map(operand).collect();
        walked(&k.body, cols, &mut operands);
        for s in &k.stores {
            if let Some(o) = operands.get_mut(s.operand as usize) {
                // What it reads of its own result is there before: elements that it then writes.
                let own =
                    |e: &Expr| matches!(e, Expr::Load { operand, .. } if *operand == s.operand);
                let reads = k.body.nodes.iter().any(own);
                (o.name, o.mode) = ("output", Mode::written(reads));
                let access = s.access;
                o.extent.push(Count::Walk { access, cols });
            }
        }
        Signature {
            dtype: k.dtype,
            operands,
            dims: vec![Dimension::any("rows"), Dimension::any("seq")],
            coeffs: k.uniforms as usize,
            scratch: vec![],
            work: evaluated(k.cols, &k.body),
        }
    }

    fn tiles(_: &Rows, dims: &[u64]) -> u64 {
        dims[0]
    }

    fn headline(k: &Rows) -> String {
        format!("rows of {} columns", k.cols)
    }

    fn run<T: Real>(k: &Rows, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let dims = [at.dims[0], at.dims[1]];
        eval_rows::<T>(k, m, dims, at.coeffs, 0..dims[0]);
    }

    fn samples() -> Vec<Sample<Rows>> {
        let mut body = Body::default();
        let (x, by_position) = (
            body.load(0, Access::full(8)),
            body.load(
                1,
                Access {
                    row: RowMap::Position,
                    ..Access::full(8)
                },
            ),
        );
        let swapped = body.load(
            0,
            Access {
                col: ColMap::HalfSwap(4),
                ..Access::full(8)
            },
        );
        let (bias, factor) = (body.load(2, Access::PER_COL), body.uniform(0));
        let product = body.push(Expr::Fma(x, by_position, bias));
        let scaled = body.mul(product, factor);
        let sum = body.push(Expr::Reduce(ReduceOp::Sum, scaled));
        let out = body.add(scaled, swapped);
        let operands = |real| vec![real, real, real, real, DType::F32];
        let kernel = |dtype, operands| Rows {
            dtype,
            cols: 8,
            operands,
            uniforms: 1,
            body: body.clone(),
            stores: vec![
                Store {
                    operand: 3,
                    access: Access::full(8),
                    value: out,
                },
                Store {
                    operand: 4,
                    access: Access::PER_ROW,
                    value: sum,
                },
            ],
        };
        let mut mixed = operands(DType::Bf16);
        mixed[2] = DType::I32;
        let mut double = operands(DType::F64);
        double[4] = DType::F64;
        let spec = [
            kernel(DType::F32, operands(DType::F32)),
            kernel(DType::F32, mixed),
            kernel(DType::F64, double),
        ];
        let sample = |spec| Sample::new(spec, &[6, 3], &[1.5]);
        let mut rounded = Body::default();
        let x = rounded.load(
            0,
            Access {
                col: ColMap::repeat(3),
                ..Access::full(3)
            },
        );
        let value = rounded.unary(UnaryOp::Neg, x);
        let access = Access::full(7);
        let wide = Rows {
            dtype: DType::F32,
            cols: 7,
            operands: vec![DType::F32; 2],
            uniforms: 0,
            body: rounded,
            stores: vec![Store {
                operand: 1,
                access,
                value,
            }],
        };
        (spec.into_iter().map(sample))
            .chain([Sample::new(wide, &[5, 1], &[])])
            .chain([(DType::F32, DType::Bf16), (DType::F64, DType::F64)].map(neighbours))
            .chain([Through::Places, Through::Place(5), Through::Under(0)].map(windows))
            .collect()
    }
}

/// What lies under windows of 3 × 3 over three grids, beside what lies under others of them.
fn windows(through: Through) -> Sample<Rows> {
    let mut body = Body::default();
    let window = Window::fitted([3, 4], 3, 2, 1).expect("it fits");
    let mut read = |window, col| {
        let row = RowMap::Window(window, through);
        let stride = 20;
        body.load(0, Access { row, col, stride })
    };
    let inside = Window {
        before: [-1, 0],
        ..window
    };
    let (here, there) = (read(window, ColMap::Col), read(inside, ColMap::repeat(4)));
    let value = body.sub(here, there);
    let access = Access::full(20);
    let spec = Rows {
        dtype: DType::F32,
        cols: 20,
        operands: vec![DType::F32; 2],
        uniforms: 0,
        body,
        stores: vec![Store {
            operand: 1,
            access,
            value,
        }],
    };
    let [own, _] = window.rows(through);
    Sample::new(spec, &[3 * own, 1], &[])
}

/// Sums of rows before and after, one of them of a transposed matrix; the last sequence is shorter.
fn neighbours((dtype, kept): (DType, DType)) -> Sample<Rows> {
    let mut body = Body::default();
    let mut read = |by, col| {
        let row = RowMap::Shift(by);
        body.load(
            0,
            Access {
                row,
                col,
                stride: 12,
            },
        )
    };
    let transposed = ColMap::Transposed { rows: 3, cols: 4 };
    let (before, after) = (read(2, ColMap::Col), read(-1, transposed));
    let first = read(1, ColMap::Zero);
    let sum = body.add(before, after);
    let value = body.mul(sum, first);
    let access = Access::full(12);
    let spec = Rows {
        dtype,
        cols: 12,
        operands: vec![kept, dtype],
        uniforms: 0,
        body,
        stores: vec![Store {
            operand: 1,
            access,
            value,
        }],
    };
    Sample::new(spec, &[8, 3], &[])
}

/// One expression of a body for each element.
pub(super) fn evaluated(cols: u64, body: &Body) -> Work {
    Work::others(Count::rows(
        &[0],
        cols.saturating_mul(body.nodes.len() as u64),
    ))
}

fn store(k: &Rows, s: &Store, levels: &[Level]) -> Result<(), String> {
    validate::value(&k.body, s.value)?;
    let Some(to) = k.operands.get(s.operand as usize) else {
        return Err("a store names an operand that is not there".into());
    };
    if *to == DType::I32 {
        return Err("a store is of token numbers".into());
    }
    // Rows are written by different threads: what one writes, no other may.
    let wide = match s.access.col {
        ColMap::Col => k.cols,
        ColMap::Zero => 1,
        _ => 0,
    };
    if s.access.row != RowMap::Row || wide == 0 {
        return Err("a store is neither per element nor per row".into());
    }
    if s.access.stride < wide {
        return Err("rows of a store overlap".into());
    }
    validate::access(s.access, Some(k.cols))?;
    let single = k.cols == 1 && s.access.stride == 1;
    if s.access.col == ColMap::Zero && !single && levels[s.value.0 as usize] >= Level::Col {
        return Err("a store has one element per row, its value one per column".into());
    }
    Ok(())
}

/// Runs rows `tiles` of a [`Rows`] kernel. `dims` are `[rows, seq]`.
pub fn eval_rows<T: Real>(
    kernel: &Rows,
    memory: &mut impl Memory<T>,
    dims: [u64; 2],
    uniforms: &[f64],
    tiles: Range<u64>,
) {
    let mut body = Evaluator::new(&kernel.body, uniforms);
    for r in tiles {
        body.row(memory, r, dims, 0..kernel.cols, &[]);
        for s in &kernel.stores {
            let n = if s.access.col == ColMap::Zero {
                1
            } else {
                kernel.cols
            };
            for c in 0..n {
                memory.store(
                    s.operand,
                    r * s.access.stride + c,
                    body.value(s.value, c as usize),
                );
            }
        }
    }
}
