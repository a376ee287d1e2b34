//! The expanded transcendentals against the standard library (`erf`: the port of musl's), and the evaluator against plain loops.

use odec_program::DType;
use odec_program::eval::{Evaluator, Memory, reduce};
use odec_program::expr::{Access, BinaryOp, Body, ColMap, Expr, ReduceOp, RowMap, UnaryOp};
use odec_program::kernel::{Columns, Rows, Store, eval_columns, eval_rows};
use odec_program::real::Real;

/// Every operand a vector of the kernel's own type.
struct Vectors<T>(Vec<Vec<T>>);

impl<T: Real> Memory<T> for Vectors<T> {
    fn load(&self, operand: u32, index: u64) -> T {
        self.0[operand as usize][index as usize]
    }
    fn store(&mut self, operand: u32, index: u64, value: T) {
        self.0[operand as usize][index as usize] = value;
    }
}

fn apply<T: Real>(op: UnaryOp, xs: Vec<T>) -> Vec<T> {
    let n = xs.len();
    let mut body = Body::default();
    let x = body.load(0, Access::full(n as u64));
    let y = body.unary(op, x);
    let mut eval = Evaluator::new(&body, &[]);
    eval.row(&Vectors(vec![xs]), 0, [1, 1], 0..n as u64, &[]);
    (0..n).map(|c| eval.value(y, c)).collect()
}

/// Distance in units in the last place of an f32, from the exact value in f64.
fn ulps32(got: f32, exact: f64) -> f64 {
    let exponent = (exact.abs().log2().floor() as i32).max(-126);
    (f64::from(got) - exact).abs() / f64::from(exponent - 23).exp2()
}

fn ulps64(got: f64, near: f64) -> i64 {
    (got.to_bits() as i64 - near.to_bits() as i64).abs()
}

#[test]
fn exp_f32_is_within_one_ulp() {
    let xs: Vec<f32> = (0..2_000_000)
        .map(|i| -87.6 + 176.3 * (i as f32 / 2e6))
        .collect();
    let near: Vec<f32> = (0..500_000)
        .map(|i| (i as f32 - 250_000.0) * 1.3e-6)
        .collect();
    for xs in [xs, near] {
        let worst = xs.iter().zip(apply(UnaryOp::Exp, xs.clone()));
        let worst = worst
            .map(|(x, y)| ulps32(y, f64::from(*x).exp()))
            .fold(0.0, f64::max);
        assert!(worst <= 1.0, "{worst} ulp");
    }
}

#[test]
fn exp_f64_is_within_two_ulps_of_std() {
    let xs: Vec<f64> = (0..1_000_000)
        .map(|i| -708.3 + 1417.9 * (f64::from(i) / 1e6))
        .collect();
    let worst = xs
        .iter()
        .zip(apply(UnaryOp::Exp, xs.clone()))
        .map(|(x, y)| ulps64(y, x.exp()))
        .max();
    assert!(worst <= Some(2), "{worst:?}");
}

#[test]
fn log_f32_is_within_one_ulp() {
    // Every 1009th positive number from the smallest subnormal up, and a dense band around one.
    let all: Vec<f32> = (1..f32::INFINITY.to_bits())
        .step_by(1009)
        .map(f32::from_bits)
        .collect();
    let near: Vec<f32> = (0..400_000).map(|i| 0.7 + i as f32 * 2e-6).collect();
    for xs in [all, near] {
        let got = apply(UnaryOp::Log, xs.clone());
        let (worst, x) = xs
            .iter()
            .zip(got)
            .map(|(x, y)| (ulps32(y, f64::from(*x).ln()), *x))
            .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        assert!(worst <= 1.0, "{worst} ulp at {x}");
    }
}

#[test]
fn log_f64_is_within_two_ulps_of_std() {
    let all: Vec<f64> = (0..1_000_000u64)
        .map(|i| f64::from_bits(1 + i * 9_218_868_437_227))
        .collect();
    let near: Vec<f64> = (0..400_000).map(|i| 0.7 + f64::from(i) * 2e-6).collect();
    for xs in [all, near] {
        let got = apply(UnaryOp::Log, xs.clone());
        let worst = xs.iter().zip(got).map(|(x, y)| ulps64(y, x.ln())).max();
        assert!(worst <= Some(2), "{worst:?}");
    }
}

#[test]
fn erf_is_within_two_ulps() {
    let all: Vec<f32> = (0..1_000_000)
        .map(|i| -4.5 + 9.0 * (i as f32 / 1e6))
        .collect();
    let tiny: Vec<f32> = (0..200)
        .map(|i| 2f32.powi(i - 149))
        .filter(|x| *x < 1.0)
        .collect();
    for xs in [all, tiny] {
        let (worst, x) = xs
            .iter()
            .zip(apply(UnaryOp::Erf, xs.clone()))
            .filter(|(x, _)| **x != 0.0)
            .map(|(x, y)| (ulps32(y, libm::erf(f64::from(*x))), *x))
            .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        assert!(worst <= 2.0, "{worst} ulp at {x}");
    }
    let xs: Vec<f64> = (0..1_000_000)
        .map(|i| -6.5 + 13.0 * (f64::from(i) / 1e6))
        .collect();
    let (worst, x) = xs
        .iter()
        .zip(apply(UnaryOp::Erf, xs.clone()))
        .map(|(x, y)| (ulps64(y, libm::erf(*x)), *x))
        .fold((0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
    assert!(worst <= 3, "{worst} ulp at {x}");
}

fn edges<T: Real + PartialEq>() {
    let of = |xs: &[f64]| xs.iter().map(|x| T::of(*x)).collect::<Vec<T>>();
    let inf = f64::INFINITY;
    let got = apply(
        UnaryOp::Exp,
        of(&[0.0, -0.0, -inf, inf, -1e4, -1e30, 1e4, 1e30]),
    );
    assert_eq!(got, of(&[1.0, 1.0, 0.0, inf, 0.0, 0.0, inf, inf]));
    let got = apply(UnaryOp::Log, of(&[1.0, 0.0, -0.0, inf]));
    assert_eq!(got, of(&[0.0, -inf, -inf, inf]));
    let got = apply(UnaryOp::Erf, of(&[0.0, inf, -inf, 1e30, -8.0]));
    assert_eq!(got, of(&[0.0, 1.0, -1.0, 1.0, -1.0]));
    let zero = apply(UnaryOp::Erf, of(&[-0.0]))[0].to_f64();
    assert!(zero == 0.0 && zero.is_sign_negative());
    for x in [0.3, 0.874, 0.876, 1.7, 3.9] {
        let pair = apply(UnaryOp::Erf, of(&[x, -x]));
        assert_eq!(pair[0].to_f64(), -pair[1].to_f64());
    }
    for (op, x) in [
        (UnaryOp::Erf, f64::NAN),
        (UnaryOp::Exp, f64::NAN),
        (UnaryOp::Log, f64::NAN),
        (UnaryOp::Log, -1.0),
        (UnaryOp::Log, -inf),
    ] {
        assert!(apply(op, vec![T::of(x)])[0].to_f64().is_nan(), "{op:?} {x}");
    }
}

#[test]
fn edge_cases() {
    edges::<f32>();
    edges::<f64>();
    let overflow = apply(UnaryOp::Exp, vec![88.722_83_f32, 88.722_84]);
    assert!(
        overflow[0].is_finite() && overflow[1].is_infinite(),
        "{overflow:?}"
    );
}

#[test]
fn scale_is_a_single_rounding() {
    let scale = |a: f32, b: f32| f32::binary(BinaryOp::Scale, a, b);
    assert_eq!(scale(1.5, 3.0), 12.0);
    assert_eq!(scale(f32::MIN_POSITIVE, 250.0), 2f32.powi(124));
    assert_eq!(scale(1.0, 128.0), f32::INFINITY);
    assert_eq!(scale(0.75, 128.0), 0.75 * 2f32.powi(127) * 2.0);
    assert_eq!(scale(1.0, -126.0), f32::MIN_POSITIVE);
    assert_eq!(scale(1.9, -127.0).to_bits(), 0);
    assert_eq!(scale(f32::NAN, f32::NEG_INFINITY).to_bits(), 0);
    assert!(scale(1.0, f32::NAN).is_nan());
}

#[test]
fn reductions_follow_the_documented_tree() {
    let xs: Vec<f32> = (0..37).map(|i| 1.0 / (i as f32 + 0.7)).collect();
    let lanes: Vec<f32> = (0..16)
        .map(|l| xs.iter().skip(l).step_by(16).fold(0.0, |s, x| s + x))
        .collect();
    let pairs = |v: &[f32]| -> Vec<f32> {
        (0..v.len() / 2)
            .map(|i| v[i] + v[i + v.len() / 2])
            .collect()
    };
    let tree = pairs(&pairs(&pairs(&pairs(&lanes))));
    assert_eq!(
        reduce(ReduceOp::Sum, xs.iter().copied()).to_bits(),
        tree[0].to_bits()
    );
    assert_eq!(reduce(ReduceOp::Max, xs.iter().copied()), 1.0 / 0.7);
    assert_eq!(
        reduce(ReduceOp::Max, std::iter::empty::<f32>()),
        f32::NEG_INFINITY
    );
}

/// Softmax over a row with a per-column bias that repeats, and its normaliser per row.
#[test]
fn rows_kernel() {
    let (rows, cols) = (5usize, 24usize);
    let mut b = Body::default();
    let x = b.load(0, Access::full(cols as u64));
    let bias = b.load(
        1,
        Access {
            row: RowMap::Position,
            col: ColMap::repeat(8),
            stride: 8,
        },
    );
    let swapped = b.load(
        0,
        Access {
            row: RowMap::Row,
            col: ColMap::HalfSwap(8),
            stride: cols as u64,
        },
    );
    let u = b.uniform(0);
    let x1 = b.fma(swapped, u, x);
    let x2 = b.add(x1, bias);
    let m = b.reduce(ReduceOp::Max, x2);
    let shifted = b.binary(BinaryOp::Sub, x2, m);
    let e = b.unary(UnaryOp::Exp, shifted);
    let sum = b.reduce(ReduceOp::Sum, e);
    let p = b.binary(BinaryOp::Div, e, sum);
    assert_eq!(b.phases()[p.0 as usize], 2);
    let kernel = Rows {
        dtype: DType::F64,
        cols: cols as u64,
        operands: vec![DType::F64; 4],
        uniforms: 1,
        body: b,
        stores: vec![
            Store {
                operand: 2,
                access: Access::full(cols as u64),
                value: p,
            },
            Store {
                operand: 3,
                access: Access::PER_ROW,
                value: sum,
            },
        ],
    };
    let input: Vec<f64> = (0..rows * cols)
        .map(|i| ((i * 37 % 101) as f64) / 20.0 - 2.0)
        .collect();
    let table: Vec<f64> = (0..2 * 8).map(|i| (i as f64).sin()).collect();
    let mut memory = Vectors(vec![
        input.clone(),
        table.clone(),
        vec![f64::NAN; rows * cols],
        vec![f64::NAN; rows],
    ]);
    eval_rows(
        &kernel,
        &mut memory,
        [rows as u64, 2],
        &[0.25],
        0..rows as u64,
    );
    for r in 0..rows {
        let row: Vec<f64> = (0..cols)
            .map(|c| {
                let other = if c % 8 < 4 { c + 4 } else { c - 4 };
                (input[r * cols + c] + 0.25 * input[r * cols + other] + table[(r % 2) * 8 + c % 8])
                    .exp()
            })
            .collect();
        let total: f64 = row.iter().sum();
        for (c, e) in row.iter().enumerate() {
            assert!((memory.0[2][r * cols + c] - e / total).abs() < 1e-15);
        }
        assert!(memory.0[3][r].is_finite());
    }
}

#[test]
fn columns_kernel() {
    let (rows, cols) = (7usize, 70usize);
    let mut b = Body::default();
    let x = b.load(0, Access::full(cols as u64));
    let w = b.load(1, Access::PER_ROW);
    let y = b.mul(x, w);
    let mut kernel = Columns {
        dtype: DType::F32,
        cols: cols as u64,
        operands: vec![DType::F32; 3],
        uniforms: 0,
        body: b,
        value: y,
        accumulate: false,
        parts: 1,
    };
    let x: Vec<f32> = (0..rows * cols).map(|i| (i % 13) as f32).collect();
    let w: Vec<f32> = (0..rows).map(|i| i as f32).collect();
    let mut memory = Vectors(vec![x.clone(), w.clone(), vec![f32::NAN; cols]]);
    eval_columns(&kernel, &mut memory, [rows as u64, 1], &[], 0..2);
    let want: Vec<f32> = (0..cols)
        .map(|c| (0..rows).map(|r| x[r * cols + c] * w[r]).sum())
        .collect();
    assert_eq!(memory.0[2], want);
    kernel.accumulate = true;
    eval_columns(&kernel, &mut memory, [rows as u64, 1], &[], 1..2);
    assert_eq!(memory.0[2][63], want[63]);
    assert_eq!(memory.0[2][64], 2.0 * want[64]);
}

/// Parts are as large as each other, and each is summed as a kernel of its rows alone would.
#[test]
fn columns_in_parts() {
    let (rows, parts, cols) = (2 * Columns::BLOCK + 23, 3, 5);
    let mut b = Body::default();
    let value = b.load(0, Access::full(cols));
    let mut kernel = Columns {
        dtype: DType::F32,
        cols,
        operands: vec![DType::F32; 2],
        uniforms: 0,
        body: b,
        value,
        accumulate: false,
        parts,
    };
    let x: Vec<f32> = (0..rows * cols).map(|i| 1.0 / (i + 1) as f32).collect();
    let mut apart = Vectors(vec![x.clone(), vec![f32::NAN; (parts * cols) as usize]]);
    for part in (0..parts).rev() {
        eval_columns(&kernel, &mut apart, [rows, 1], &[], part..part + 1);
    }
    let all: Vec<_> = (0..parts).map(|n| kernel.part(n, rows)).collect();
    assert_eq!(all, [0..50, 50..100, 100..151]);
    kernel.parts = 1;
    for (n, part) in all.into_iter().enumerate() {
        let x = x[(part.start * cols) as usize..(part.end * cols) as usize].to_vec();
        let mut alone = Vectors(vec![x, vec![f32::NAN; cols as usize]]);
        eval_columns(&kernel, &mut alone, [part.end - part.start, 1], &[], 0..1);
        assert_eq!(apart.0[1][n * cols as usize..][..cols as usize], alone.0[1]);
    }
}

#[test]
fn columns_are_added_in_blocks_of_rows() {
    let rows = 2 * Columns::BLOCK + 22;
    let mut b = Body::default();
    let value = b.load(0, Access::PER_ROW);
    let kernel = Columns {
        dtype: DType::F32,
        cols: 1,
        operands: vec![DType::F32; 2],
        uniforms: 0,
        body: b,
        value,
        accumulate: false,
        parts: 1,
    };
    let x: Vec<f32> = (0..rows).map(|i| 1.0 / (i + 1) as f32).collect();
    let add = |x: &[f32]| x.iter().fold(0.0, |sum, x| sum + x);
    let sums: Vec<f32> = x.chunks(Columns::BLOCK as usize).map(add).collect();
    assert_ne!(
        add(&sums),
        add(&x),
        "numbers whose sum does not show the order"
    );
    let mut memory = Vectors(vec![x, vec![f32::NAN]]);
    eval_columns(&kernel, &mut memory, [rows, 1], &[], 0..1);
    assert_eq!(memory.0[1][0], add(&sums));
    // No rows; and what is not there does not show as −0.
    for n in [0, 3] {
        let mut memory = Vectors(vec![vec![-0.0; n as usize], vec![f32::NAN]]);
        eval_columns(&kernel, &mut memory, [n, 1], &[], 0..1);
        assert_eq!(memory.0[1][0].to_bits(), 0);
    }
}

#[test]
fn expansion_leaves_no_transcendental_and_shares_nodes() {
    let mut b = Body::default();
    let x = b.load(0, Access::full(4));
    let e = b.unary(UnaryOp::Exp, x);
    let l = b.unary(UnaryOp::Log, e);
    b.unary(UnaryOp::Erf, l);
    let (out, ids) = b.expand_transcendentals(DType::F32);
    assert_eq!(ids.len(), 4);
    assert!(!out.nodes.iter().any(|e| matches!(
        e,
        Expr::Unary(UnaryOp::Exp | UnaryOp::Log | UnaryOp::Erf, _)
    )));
    assert_eq!(
        out.nodes[ids[x.0 as usize].0 as usize],
        Expr::Load {
            operand: 0,
            access: Access::full(4)
        }
    );
    assert!(ids[l.0 as usize] > ids[e.0 as usize]);
    let (again, same) = out.expand_transcendentals(DType::F32);
    assert_eq!(
        (again.nodes.len(), same.len()),
        (out.nodes.len(), out.nodes.len())
    );
}
