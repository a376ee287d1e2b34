//! Sums over rows: specification, signature and meaning.

use super::rows::evaluated;
use super::signature::{Cols, Count, Dimension, Mode, OperandAccess, Signature, walked};
use super::validate::{self, Scope};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::{Evaluator, Memory};
use crate::expr::{Access, BinaryOp, Body, ExprId};
use crate::real::Real;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Sums `value` over all rows, for each column: `out[c] = Σ_r value(r, c)`, or with `accumulate`, `out[c] += …`. In
/// `parts`, the rows of each part ([`Columns::part`]) are summed by themselves: `out[part · cols + c]`.
///
/// dims: `[rows, seq]`. tiles: blocks of [`Columns::TILE`] columns, or with several parts a part each. Each column is summed on its own: the rows of each
/// block of [`Columns::BLOCK`] in order from +0, then these sums in order from +0. `value` contains no reduction. The output is the
/// last operand.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Columns {
    pub dtype: DType,
    pub cols: u64,
    pub operands: Vec<DType>,
    pub uniforms: u32,
    pub body: Body,
    pub value: ExprId,
    pub accumulate: bool,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub parts: u64,
}

fn one() -> u64 {
    1
}

fn is_one(parts: &u64) -> bool {
    *parts == 1
}

impl Columns {
    pub const TILE: u64 = 64;
    /// Rows that are added one after the other; blocks of them can be added side by side.
    pub const BLOCK: u64 = 64;
    /// Parts of the rows of a batch. Threads that take parts read rows that they have made ([`super::Rows`] and contractions share rows out in the same
    /// way); one that takes columns reads those of all others. So many are shared out evenly, and have few sums to add.
    pub const PARTS: u64 = 32;

    /// The rows of a part: all parts are equally large, but for one row.
    pub fn part(&self, n: u64, rows: u64) -> Range<u64> {
        let start = |n: u64| rows * n / self.parts;
        start(n)..start(n + 1)
    }
}

pub(super) struct ColumnsKind;

impl Kind for ColumnsKind {
    type Spec = Columns;
    const NAME: &'static str = "columns";

    fn dtype(k: &Columns) -> DType {
        k.dtype
    }

    fn validate(k: &Columns) -> Result<(), String> {
        validate::sums(k.dtype)?;
        validate::length("columns", k.cols)?;
        if !(1..=Columns::PARTS).contains(&k.parts) || k.parts > 1 && k.accumulate {
            return Err(format!("its rows come in {} parts", k.parts));
        }
        validate::operands(k.dtype, &k.operands)?;
        let Some((out, inputs)) = k.operands.split_last() else {
            return Err("it has no output".into());
        };
        if *out == DType::I32 {
            return Err("its output is of token numbers".into());
        }
        let scope = Scope {
            loads: 0..inputs.len(),
            uniforms: k.uniforms,
            cols: Some(k.cols),
            reductions: false,
            accumulator: false,
            positions: true,
        };
        validate::body(&k.body, k.dtype, &scope)?;
        validate::value(&k.body, k.value)
    }

    fn signature(k: &Columns) -> Signature {
        let operand = |d: &DType| OperandAccess::new("input", *d, Mode::Read, []);
        let mut operands: Vec<OperandAccess> = k.operands.iter().map(operand).collect();
        walked(&k.body, Cols::Fixed(k.cols), &mut operands);
        if let Some(out) = operands.last_mut() {
            (out.name, out.mode) = ("output", Mode::written(k.accumulate));
            out.extent.push(Count::fixed(k.parts * k.cols));
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

    fn tiles(k: &Columns, _: &[u64]) -> u64 {
        match k.parts {
            1 => k.cols.div_ceil(Columns::TILE),
            parts => parts,
        }
    }

    fn headline(k: &Columns) -> String {
        let sums = if k.accumulate {
            "accumulated sums"
        } else {
            "sums"
        };
        let parts = match k.parts {
            1 => String::new(),
            n => format!(", in {n} parts"),
        };
        format!("{sums} of {} columns over rows{parts}", k.cols)
    }

    fn run<T: Real>(k: &Columns, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let dims = [at.dims[0], at.dims[1]];
        eval_columns::<T>(k, m, dims, at.coeffs, 0..Self::tiles(k, &dims));
    }

    fn samples() -> Vec<Sample<Columns>> {
        let mut body = Body::default();
        let x = body.load(0, Access::full(70));
        let weight = body.load(1, Access::PER_ROW);
        let factor = body.uniform(0);
        let product = body.mul(x, weight);
        let value = body.mul(product, factor);
        let sample = |(dtype, inputs, accumulate, parts)| {
            let spec = Columns {
                dtype,
                cols: 70,
                operands: vec![inputs, dtype, dtype],
                uniforms: 1,
                body: body.clone(),
                value,
                accumulate,
                parts,
            };
            Sample::new(spec, &[4, 1], &[0.5])
        };
        let of = [
            (DType::F32, DType::F32, false, 1),
            (DType::F32, DType::Bf16, true, 1),
            (DType::F64, DType::F64, true, 1),
            (DType::F32, DType::F32, false, 3),
        ];
        of.map(sample).into()
    }
}

/// Runs tiles of a [`Columns`] kernel. `dims` are `[rows, seq]`. Sums are added to the output in
/// the end when the kernel accumulates.
pub fn eval_columns<T: Real>(
    kernel: &Columns,
    memory: &mut impl Memory<T>,
    dims: [u64; 2],
    uniforms: &[f64],
    tiles: Range<u64>,
) {
    if kernel.parts > 1 {
        for n in tiles {
            let (rows, first) = (kernel.part(n, dims[0]), n * kernel.cols);
            sums(
                kernel,
                memory,
                dims,
                uniforms,
                (rows, 0..kernel.cols),
                first,
            );
        }
        return;
    }
    let cols = tiles.start * Columns::TILE..(tiles.end * Columns::TILE).min(kernel.cols);
    if !cols.is_empty() {
        let first = cols.start;
        sums(kernel, memory, dims, uniforms, (0..dims[0], cols), first);
    }
}

/// Sums of some rows in some columns, to the output from number `first` on.
fn sums<T: Real>(
    kernel: &Columns,
    memory: &mut impl Memory<T>,
    dims: [u64; 2],
    uniforms: &[f64],
    (rows, cols): (Range<u64>, Range<u64>),
    first: u64,
) {
    let mut body = Evaluator::new(&kernel.body, uniforms);
    let out = kernel.operands.len() as u32 - 1;
    let nothing = vec![T::ZERO; (cols.end - cols.start) as usize];
    let mut totals = nothing.clone();
    for block in rows.clone().step_by(Columns::BLOCK as usize) {
        let mut sums = nothing.clone();
        for r in block..(block + Columns::BLOCK).min(rows.end) {
            body.row(memory, r, dims, cols.clone(), &[]);
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = T::binary(BinaryOp::Add, *sum, body.value(kernel.value, c));
            }
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = T::binary(BinaryOp::Add, *total, sum);
        }
    }
    for (c, total) in (first..).zip(totals) {
        let value = if kernel.accumulate {
            T::binary(BinaryOp::Add, memory.load(out, c), total)
        } else {
            total
        };
        memory.store(out, c, value);
    }
}
