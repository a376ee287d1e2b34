//! Fused multiply-add against the standard library's, on every target: the portable one has no such
//! instruction and computes the same bits.

use crate::harness::{Buffer, Compiled, assert_same, targets};
use odec_program::expr::{Access, Body};
use odec_program::kernel::{Rows, Store};
use odec_program::real::Real;
use odec_program::{DType, KernelSpec, Target};
use proptest::prelude::*;
use std::sync::LazyLock;

const COLS: u64 = 16;

/// A kernel that writes a·b + c, element by element.
fn kernel<T: Real>() -> KernelSpec {
    let mut body = Body::default();
    let access = Access::full(COLS);
    let [a, b, c] = [0, 1, 2].map(|n| body.load(n, access));
    let value = body.fma(a, b, c);
    let store = Store {
        operand: 3,
        access,
        value,
    };
    KernelSpec::Rows(Rows {
        dtype: T::DTYPE,
        cols: COLS,
        operands: vec![T::DTYPE; 4],
        uniforms: 0,
        body,
        stores: vec![store],
    })
}

/// The kernel in f32 and f64, for every target that this machine runs.
static COMPILED: LazyLock<Vec<(Target, Compiled)>> = LazyLock::new(|| {
    let specs = [kernel::<f32>(), kernel::<f64>()];
    targets()
        .into_iter()
        .map(|t| (t, Compiled::new(&specs, t)))
        .collect()
});

/// Runs the kernel on triples, filled up with zeros to whole rows, and compares.
fn check<T: Real>(triples: &[[T; 3]]) {
    let rows = (triples.len() as u64).div_ceil(COLS);
    let column = |n: usize| {
        let mut v: Vec<T> = triples.iter().map(|t| t[n]).collect();
        v.resize((rows * COLS) as usize, T::ZERO);
        v
    };
    let [a, b, c] = [column(0), column(1), column(2)];
    let want: Vec<T> = (0..a.len()).map(|i| T::fma(a[i], b[i], c[i])).collect();
    let operands = [
        Buffer::Real(a),
        Buffer::Real(b),
        Buffer::Real(c),
        Buffer::nan(want.len()),
    ];
    let want = Buffer::Real(want);
    let n = usize::from(T::DTYPE == DType::F64);
    for (target, compiled) in COMPILED.iter() {
        let got = compiled.run(n, &operands, &[], &[rows, 1], &[], &[0..rows]);
        assert_same(&got[3], &want, target.name());
    }
}

/// All triples of values at the edges of the format.
fn edges<T: Real>(values: &[T]) -> Vec<[T; 3]> {
    let mut out = Vec::new();
    for &a in values {
        for &b in values {
            for &c in values {
                for [a, b, c] in [
                    [a, b, c],
                    [T::of(-a.to_f64()), b, c],
                    [a, b, T::of(-c.to_f64())],
                ] {
                    out.push([a, b, c]);
                }
            }
        }
    }
    out
}

#[test]
fn edges_of_f32() {
    let ulp = f32::EPSILON;
    let values = [
        0.0,
        1.0,
        1.0 + ulp,
        1.0 - ulp / 2.0,
        3.0,
        1.0 / 3.0,
        16_777_215.0,
        0.1,
        1e-20,
        3e19,
        1e-38,
        1e-45,
        f32::MIN_POSITIVE,
        f32::MAX,
        ulp,
        ulp / 2.0,
        ulp * ulp / 4.0,
        f32::INFINITY,
        f32::NAN,
    ];
    check(&edges(&values));
}

#[test]
fn edges_of_f64() {
    let ulp = f64::EPSILON;
    let values = [
        0.0,
        1.0,
        1.0 + ulp,
        1.0 - ulp / 2.0,
        3.0,
        1.0 / 3.0,
        9_007_199_254_740_991.0,
        0.1,
        1e-100,
        1e100,
        ulp,
        ulp / 2.0,
        ulp * ulp / 4.0,
        f64::INFINITY,
        f64::NAN,
    ];
    check(&edges(&values));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any bits at all in f32; in f64 anything whose product keeps its low half.
    #[test]
    fn random_bits(seed in prop::collection::vec(any::<[u32; 3]>(), 256)) {
        let floats: Vec<[f32; 3]> = seed.iter().map(|t| t.map(f32::from_bits)).collect();
        // neighbours in exponent, where sums cancel
        let near = |n: u32| f32::from_bits((n & 0x807f_ffff) | (120 + (n >> 23 & 15)) << 23);
        let close: Vec<[f32; 3]> = seed.iter().map(|t| t.map(near)).collect();
        let wide: Vec<[f64; 3]> = seed
            .iter()
            .map(|t| t.map(|n| near(n) as f64 * (1.0 + f64::from(n) * 2f64.powi(-52)) / 3.0))
            .collect();
        check(&floats);
        check(&close);
        check(&wide);
    }
}
