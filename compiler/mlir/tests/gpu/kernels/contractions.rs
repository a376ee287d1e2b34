//! Contractions with what becomes of their sums.

use super::{Case, blocking, check, floats, of_type, room};
use odec_program::expr::{Access, Body, Expr};
use odec_program::kernel::{Contract, Epilogue, Extent, Layout};
use odec_program::{DType, KernelSpec};

/// Bias by column, a row's number, a scale: what an epilogue may read.
fn epilogue(n: u64) -> Epilogue {
    let mut body = Body::default();
    let (acc, bias, residual, two) = (
        body.push(Expr::Acc),
        body.load(2, Access::PER_COL),
        body.load(3, Access::full(n)),
        body.uniform(0),
    );
    let scaled = body.mul(acc, two);
    let shifted = body.add(scaled, bias);
    let value = body.fma(shifted, two, residual);
    Epilogue {
        operands: 2,
        halves: vec![],
        uniforms: 1,
        body,
        value,
    }
}

#[test]
fn contractions() {
    let mut cases = vec![];
    let sizes = [
        (1, 1, 1),
        (5, 7, 3),
        (127, 63, 17),
        (128, 64, 16),
        (129, 65, 255),
        (130, 68, 256),
        (33, 132, 260),
        (200, 40, 530),
    ];
    for (i, (m, n, k)) in sizes.into_iter().enumerate() {
        for (a_transposed, layout, accumulate) in [
            (false, Layout::Columns, false),
            (false, Layout::Rows, true),
            (true, Layout::Rows, i % 2 == 0),
            (true, Layout::Columns, false),
        ] {
            let dynamic = |x: u64, d: bool| {
                if d {
                    Extent::Dynamic
                } else {
                    Extent::Static(x)
                }
            };
            let finish = (i % 3 == 0).then(|| epilogue(n));
            let types = [DType::F32, DType::Bf16];
            let (a, right) = [(0, 0), (1, 1), (0, 1), (0, 0)][(i + n as usize) % 4];
            // With bf16 on the right, and wide enough, it runs on tensor cores (`gpu_tensor.rs`).
            let (a, right) = (types[a], types[if n < 8 { right } else { 0 }]);
            let mut operands = vec![of_type(a, m * k, 1), of_type(right, k * n, 2)];
            if finish.is_some() {
                operands.extend([floats(n, 3), floats(m * n, 4)]);
            }
            operands.push(if accumulate {
                floats(m * n, 5)
            } else {
                room(m * n)
            });
            let sizes = [
                dynamic(m, !a_transposed),
                Extent::Static(n),
                dynamic(k, a_transposed),
            ];
            let spec = Contract {
                a,
                b: right,
                a_transposed,
                layout,
                accumulate,
                epilogue: finish.clone(),
                ..Contract::new(DType::F32, sizes, blocking())
            };
            cases.push(Case {
                spec: KernelSpec::Contract(spec),
                operands,
                aliases: vec![],
                dims: vec![m, n, k],
                coeffs: vec![1.25; finish.map_or(0, |_| 1)],
            });
        }
    }
    check(&cases);
}

/// A sum keeps the sign of a zero.
#[test]
fn contractions_of_zeros() {
    let (m, n, k) = (3, 5, 300);
    let sizes = [Extent::Dynamic, Extent::Static(n), Extent::Static(k)];
    let spec = Contract {
        layout: Layout::Columns,
        accumulate: true,
        ..Contract::new(DType::F32, sizes, blocking())
    };
    let zero = |n: u64, sign: f32| vec![(0.0 * sign).to_bits(); n as usize];
    let case = |signs: [f32; 3], accumulate| Case {
        spec: KernelSpec::Contract(Contract {
            accumulate,
            ..spec.clone()
        }),
        operands: vec![
            zero(m * k, signs[0]),
            zero(k * n, signs[1]),
            zero(m * n, signs[2]),
        ],
        aliases: vec![],
        dims: vec![m, n, k],
        coeffs: vec![],
    };
    let mut cases = vec![];
    for i in 0..8 {
        let signs = [i & 1, i >> 1 & 1, i >> 2].map(|s| 1.0 - 2.0 * s as f32);
        cases.extend([case(signs, true), case(signs, false)]);
    }
    check(&cases);
}
