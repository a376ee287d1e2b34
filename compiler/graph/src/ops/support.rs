//! What many ops share: operand checks, loops of the interpreter, broadcasting and its transpose.

use crate::op::{EvalError, Kind, Read, TypeError};
use crate::ops::{Broadcast, Builder, SumCols, SumRows};
use crate::tensor::Tensor;
use crate::types::{Elem, Fit, TensorType};
use crate::value::Value;
use odec_program::expr::{Body, ExprId};

pub(super) fn fail<T>(op: &'static str, what: impl Into<String>) -> Result<T, TypeError> {
    let what = what.into();
    Err(TypeError { op, what })
}

/// Exactly `N` operands.
pub(super) fn operands<'a, const N: usize>(
    op: &'static str,
    ins: &'a [TensorType],
) -> Result<&'a [TensorType; N], TypeError> {
    match ins.try_into() {
        Ok(ins) => Ok(ins),
        Err(_) => fail(op, format!("takes {N} operands, not {}", ins.len())),
    }
}

/// Exactly `N` operands, all real.
pub(super) fn reals<'a, const N: usize>(
    op: &'static str,
    ins: &'a [TensorType],
) -> Result<&'a [TensorType; N], TypeError> {
    let ins = operands::<N>(op, ins)?;
    match ins.iter().find(|t| t.elem != Elem::Real) {
        Some(t) => fail(op, format!("needs real operands, not {t}")),
        None => Ok(ins),
    }
}

/// Operand `index` holds one index per row of `rows`: `index[.., 1]` for `[.., C]`.
pub(super) fn index_of(
    op: &'static str,
    index: &TensorType,
    rows: &TensorType,
) -> Result<(), TypeError> {
    if index.elem == Elem::Index && rows.rank() >= 1 && index.shape == rows.per_row().shape {
        return Ok(());
    }
    let per_row = TensorType::index(rows.per_row().shape);
    fail(
        op,
        format!("{rows} needs one index per row, {per_row}, not {index}"),
    )
}

/// A whole number below `bound`.
pub(super) fn index(op: &'static str, x: f64, bound: usize) -> Result<usize, EvalError> {
    if x >= 0.0 && x < bound as f64 && x.fract() == 0.0 {
        return Ok(x as usize);
    }
    let what = format!("index {x} is not in 0..{bound}");
    Err(EvalError { op, what })
}

pub(super) fn map(x: &Tensor, f: impl Fn(f64) -> f64) -> Result<Vec<Tensor>, EvalError> {
    let data = x.data.iter().map(|x| f(*x)).collect();
    Ok(vec![Tensor::new(x.shape.clone(), data)])
}

/// One element of the only operand gives one of the result.
pub(super) fn map_kind(rule: impl Fn(&mut Body, ExprId) -> ExprId + 'static) -> Kind {
    Kind::Rows {
        reads: vec![Read::Pointwise],
        rule: Box::new(move |s, xs| rule(s.body, xs[0])),
    }
}

/// The wider of two types, the other broadcasting into it.
pub(super) fn wider(
    op: &'static str,
    a: &TensorType,
    b: &TensorType,
) -> Result<TensorType, TypeError> {
    if b.fit(a).is_some() {
        Ok(a.clone())
    } else if a.fit(b).is_some() {
        Ok(b.clone())
    } else {
        fail(op, format!("{a} and {b} do not broadcast"))
    }
}

/// `x` read over a wider shape, row by row.
pub(super) fn spread(x: &Tensor, shape: &[u64]) -> Tensor {
    let mut out = Tensor::zeros(shape.to_vec());
    let cols = out.cols();
    if x.shape == shape {
        return x.clone();
    }
    for (r, row) in out.data.chunks_exact_mut(cols).enumerate() {
        match x.shape.len() {
            0 => row.fill(x.data[0]),
            1 if shape.len() > 1 => row.copy_from_slice(&x.data),
            1 => row.fill(x.data[0]),
            _ => row.fill(x.data[r]),
        }
    }
    out
}

/// Element by element over the wider of two shapes.
pub(super) fn zip(
    a: &Tensor,
    b: &Tensor,
    f: impl Fn(f64, f64) -> f64,
) -> Result<Vec<Tensor>, EvalError> {
    let full = |t: &Tensor| (t.shape.len(), t.data.len());
    let shape = if full(a) >= full(b) {
        &a.shape
    } else {
        &b.shape
    };
    let (x, y) = (spread(a, shape), spread(b, shape));
    let data = x.data.iter().zip(&y.data).map(|(x, y)| f(*x, *y)).collect();
    Ok(vec![Tensor::new(shape.clone(), data)])
}

/// The transpose of broadcasting: sums `d` down to the narrower type `to`.
pub(super) fn unbroadcast(b: &mut Builder, d: Value, to: &TensorType) -> Value {
    let full = b.ty(d).clone();
    let fit = to
        .fit(&full)
        .expect("derivative of a broadcast fits its operand");
    let mut push = |op: crate::ops::OpKind, x| b.push1(op, &[x]).expect("ranks fit");
    match fit {
        Fit::Full => d,
        Fit::PerRow => push(SumCols.into(), d),
        Fit::PerColumn => {
            let s = push(SumRows.into(), d);
            // one column is summed to a scalar
            match to.cols() {
                1 => push(Broadcast { to: to.clone() }.into(), s),
                _ => s,
            }
        }
        Fit::Scalar => {
            let s = if full.cols() == 1 {
                d
            } else {
                push(SumCols.into(), d)
            };
            push(SumRows.into(), s)
        }
    }
}

/// One number from every row: `[.., C] → [.., 1]`.
pub(super) fn fold_cols(x: &Tensor, f: impl Fn(&[f64]) -> f64) -> Result<Vec<Tensor>, EvalError> {
    let mut shape = x.shape.clone();
    if let Some(n) = shape.last_mut() {
        *n = 1;
    }
    let data = x.data.chunks_exact(x.cols()).map(f).collect();
    Ok(vec![Tensor::new(shape, data)])
}

/// The elements of rows that have `parts` parts of `cols` columns each; of a row of one part, that part as often.
pub(super) fn spread_parts(x: &Tensor, cols: usize, parts: usize) -> Vec<f64> {
    let times = if x.cols() == cols { parts } else { 1 };
    let rows = x.data.chunks_exact(x.cols());
    rows.flat_map(|row| row.repeat(times)).collect()
}
