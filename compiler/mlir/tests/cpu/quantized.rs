//! Weights in integers: packed and multiplied as the specification says, bit for bit, on every target that this machine runs.

use crate::harness::{Buffer, Compiled, assert_same, evaluated, noise, targets};
use odec_program::kernel::{Blocking, Contract, Extent, Layout, OperandAccess, Order, Pack};
use odec_program::{DType, KernelSpec, Quantized, Target};

/// Rows of A, columns and inner length of B: one row and several panels of them, whole and ragged panels, whole groups and parts of one, and more
/// than a block.
const SHAPES: [[u64; 3]; 6] = [
    [1, 64, 64],
    [1, 33, 31],
    [3, 7, 1],
    [5, 96, 33],
    [70, 40, 100],
    [63, 32, 256],
];

fn kernels(
    q: Quantized,
    target: Target,
    [m, n, k]: [u64; 3],
    (fixed, transposed, a): (bool, bool, DType),
) -> [KernelSpec; 2] {
    let blocking = target.blocking(DType::F32);
    let blocking = Blocking {
        kc: 2 * q.group,
        nc: 2 * blocking.nr,
        ..blocking
    };
    let extent = |n| match fixed {
        true => Extent::Static(n),
        false => Extent::Dynamic,
    };
    let pack = Pack {
        dtype: DType::I8,
        from: DType::F32,
        n: extent(n),
        k: extent(k),
        nr: blocking.nr,
        transposed,
        order: Order::Chain,
        quantized: Some(q),
    };
    let contract = Contract {
        a,
        b: a,
        layout: Layout::Quantized(q),
        ..Contract::new(DType::F32, [m, n, k].map(extent), blocking)
    };
    [KernelSpec::Pack(pack), KernelSpec::Contract(contract)]
}

/// What a kernel makes of operands, with tiles in two splits: as its specification says. The last operand.
fn made(
    compiled: &Compiled,
    kernel: usize,
    (spec, what): (&KernelSpec, &str),
    operands: &[Buffer<f32>],
    dims: &[u64],
) -> Buffer<f32> {
    let mut want = evaluated(spec, operands, dims, &[]);
    let last = operands.len() - 1;
    let tiles = compiled.tiles(kernel, dims);
    for split in [vec![0..tiles], (0..tiles).rev().map(|t| t..t + 1).collect()] {
        let got = compiled.run(kernel, operands, &[], dims, &[], &split);
        assert_same(&got[last], &want[last], &format!("{what}, {spec:?}"));
    }
    want.swap_remove(last)
}

/// Weights: in groups of very different sizes, of zeros, and with numbers that runs refuse.
fn weights(count: u64, hostile: bool) -> Buffer<f32> {
    let mut next = noise(7);
    let number = |i: u64| {
        let x = next() as f32 * 2f32.powi((i % 61) as i32 - 30);
        match (i / 3 % 11, hostile) {
            (0, _) => 0.0,
            (1, true) => [f32::NAN, f32::INFINITY, -f32::MAX, 1e-40, -0.0][i as usize % 5],
            _ => x,
        }
    };
    Buffer::Real((0..count).map(number).collect())
}

#[test]
fn integers_are_packed_and_multiplied_as_they_are_specified() {
    for target in targets() {
        let forms = [
            (true, true, DType::F32),
            (false, false, DType::F32),
            (true, false, DType::Bf16),
            (false, true, DType::Bf16),
        ];
        let all = Quantized::ALL.into_iter().flat_map(|q| {
            let cases = SHAPES.into_iter().zip((0..4).cycle());
            cases.map(move |(shape, form)| (q, shape, forms[form]))
        });
        let all: Vec<_> = all.collect();
        let specs = all
            .iter()
            .flat_map(|(q, shape, form)| kernels(*q, target, *shape, *form));
        let specs: Vec<KernelSpec> = specs.collect();
        let compiled = Compiled::new(&specs, target);
        for (i, (_, [m, n, k], (.., a))) in all.into_iter().enumerate() {
            let (pack, contract) = (2 * i, 2 * i + 1);
            let room = |access: &OperandAccess, dims: &[u64]| {
                let elements = access.elements(dims).unwrap() as usize;
                match access.dtype {
                    DType::I8 => Buffer::Bytes(vec![0x55; elements]),
                    _ => Buffer::nan(elements),
                }
            };
            let signature = specs[pack].signature();
            let what = format!("{target}, {m} × {n} × {k}");
            let mut packed = None;
            for hostile in [true, false] {
                let panels = room(&signature.operands[1], &[n, k]);
                let operands = [weights(n * k, hostile), panels];
                let spec = (&specs[pack], &what[..]);
                packed = Some(made(&compiled, pack, spec, &operands, &[n, k]));
            }
            let mut next = noise(3);
            let rows = Buffer::from_fn((m * k) as usize, |_| 0.0);
            let Buffer::Real(mut rows) = rows else {
                unreachable!("they are reals")
            };
            rows.iter_mut().for_each(|x| *x = next() as f32);
            let result = room(
                specs[contract].signature().operands.last().unwrap(),
                &[m, n, k],
            );
            let operands = [
                Buffer::Real(rows).in_type(a),
                packed.expect("it was packed"),
                result,
            ];
            let spec = (&specs[contract], &what[..]);
            made(&compiled, contract, spec, &operands, &[m, n, k]);
        }
    }
}
