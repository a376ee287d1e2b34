//! Products of rows with the matrix of their group, and their weight gradients, against the specification, bit for bit.

use crate::harness::{Buffer, Compiled, assert_same, dtype, evaluated, noise, targets};
use crate::tiles::{Machine, machines};
use odec_program::kernel::{Blocking, Extent, Grouped, Groups, KernelSpec, Layout, Order, Pack};
use odec_program::real::Real;
use odec_program::{DType, Target, bf16};

/// Rows of A, their copies, groups, columns of the result, inner columns.
const SIZES: [[u64; 5]; 6] = [
    [1, 2, 3, 1, 1],
    [5, 1, 1, 16, 16],
    [7, 2, 5, 33, 9],
    [9, 2, 2, 130, 70],
    [17, 1, 3, 36, 260],
    [290, 2, 3, 5, 7],
];

/// Who goes where: to all groups, all to one, to all but one, and numbers that are not whole.
fn numbers<T: Real>(rows: u64, groups: u64, case: u64) -> Buffer<T> {
    Buffer::from_fn(rows as usize, |i| match case {
        0 => ((i * i + i / 3) as u64 % groups) as f64,
        1 => (groups - 1) as f64,
        2 => (i as u64 % groups / 2 * 2) as f64,
        3 => [f64::NAN, -3.0, 0.5, 1.99, 1e30][i % 5],
        _ => -1.0,
    })
}

/// Types of the factors, and whether they are rounded: as they are, and for f32 one of the four ways in which bf16 comes in, each in turn. Pairs are rounded.
fn factors(real: DType, order: Order, size: usize) -> Vec<([DType; 2], bool)> {
    let mut all = vec![];
    if order == Order::Chain {
        all.push(([real; 2], false));
    }
    if real == DType::F32 {
        let half = DType::Bf16;
        let rounded = [[real; 2], [half, real], [real, half], [half; 2]];
        all.push((rounded[size % rounded.len()], true));
    }
    all
}

/// Numbers as they lie in memory.
fn stored<T: Real>(x: &Buffer<T>, dtype: DType) -> Buffer<T> {
    match (x, dtype) {
        (Buffer::Real(x), DType::Bf16) => {
            Buffer::Half(x.iter().map(|x| bf16::of_f64(x.to_f64())).collect())
        }
        _ => x.clone(),
    }
}

/// The sizes in turn whole and partial, on the next target the other way round.
fn check<T: Real>((nth, target): (usize, Target)) {
    check_order::<T>(nth, target, (Order::Chain, target.blocking(dtype::<T>())));
}

fn check_order<T: Real>(nth: usize, target: Target, (order, blocking): (Order, Blocking)) {
    for (seed, [tokens, copies, groups, n, k]) in (0..).zip(SIZES) {
        let partial = (seed as usize + nth) % 2 == 1;
        let of = Groups {
            groups,
            copies,
            n,
            k,
            partial,
        };
        let spec = |layout, (factors, rounded): ([DType; 2], bool)| Grouped {
            dtype: dtype::<T>(),
            factors,
            rounded,
            of,
            layout,
            blocking,
            order,
        };
        let specs = factors(dtype::<T>(), order, seed as usize)
            .into_iter()
            .flat_map(|f| {
                [
                    KernelSpec::Grouped(spec(Layout::Rows, f)),
                    KernelSpec::Grouped(spec(Layout::Columns, f)),
                    KernelSpec::GroupedOuter(spec(Layout::Columns, f)),
                ]
            });
        let specs: Vec<KernelSpec> = specs.collect();
        let compiled = Compiled::new(&specs, target);
        let mut next = noise(seed);
        let mut random = |len: u64| Buffer::Real((0..len).map(|_| T::of(next())).collect());
        let rows = tokens * copies;
        let (a, b) = (random(tokens * k), random(groups * n * k));
        let d = random(rows * n);
        for case in 0..5 {
            let numbers = numbers::<T>(rows, groups, case);
            for (i, spec) in specs.iter().enumerate() {
                let room = |len: u64| Buffer::nan(len as usize);
                let ([x, y, out], [of_x, of_y]) = match spec {
                    KernelSpec::Grouped(g) => ([&a, &b, &room(rows * n)], g.factors),
                    KernelSpec::GroupedOuter(g) => ([&d, &a, &room(groups * n * k)], g.factors),
                    _ => unreachable!("no other kind is among them"),
                };
                let operands = [stored(x, of_x), stored(y, of_y), out.clone()];
                let operands = [vec![numbers.clone()], operands.into()].concat();
                let dims = [tokens];
                let want = evaluated(spec, &operands, &dims, &[]);
                let tiles = spec.tiles(&dims);
                for split in [vec![0..tiles], (0..tiles).rev().map(|t| t..t + 1).collect()] {
                    let got = compiled.run(i, &operands, &[], &dims, &[], &split);
                    let what = format!("{target}, {spec:?}, case {case}");
                    assert_same(&got[3], &want[3], &what);
                }
            }
        }
    }
}

#[test]
fn rows_meet_the_matrix_of_their_group() {
    targets().into_iter().enumerate().for_each(check::<f32>);
}

/// Exact FMA in f64 without the instruction is limited to moderate numbers, and slow: these are for the other targets.
#[test]
fn rows_meet_the_matrix_of_their_group_in_f64() {
    let on = targets().into_iter().filter(|t| *t > Target::Portable);
    on.enumerate().for_each(check::<f64>);
}

/// In blocks so small that sums have several, whose last pair may lack its second product.
#[test]
fn products_two_after_two() {
    let dots = |m: &Machine| m.of == Target::Avx512Bf16;
    for Machine { of, target, .. } in machines().into_iter().filter(dots) {
        let (order, blocking) = of.pairs().unwrap();
        let small = Blocking { kc: 32, ..blocking };
        check_order::<f32>(0, target, (order, small));
    }
}

/// Matrices that were packed before give the bits of those that are packed in the kernel.
#[test]
fn matrices_in_panels() {
    for target in targets() {
        let blocking = target.blocking(DType::F32);
        for rounded in [false, true] {
            check_packed(target, (Order::Chain, blocking), rounded);
        }
    }
    let dots = |m: &Machine| m.of == Target::Avx512Bf16;
    for Machine { of, target, .. } in machines().into_iter().filter(dots) {
        check_packed(target, of.pairs().unwrap(), true);
    }
}

fn check_packed(target: Target, (order, blocking): (Order, Blocking), rounded: bool) {
    let (nr, real) = (u64::from(blocking.nr), DType::F32);
    let read = if rounded { DType::Bf16 } else { real };
    for (seed, [tokens, copies, groups, panels, k]) in
        (0..).zip([[1, 2, 3, 5, 9], [9, 1, 2, 1, 70], [40, 2, 4, 9, 301]])
    {
        let (n, partial) = (panels * nr, seed == 1);
        let of = Groups {
            groups,
            copies,
            n,
            k,
            partial,
        };
        let spec = |layout, right| Grouped {
            dtype: real,
            factors: [real, right],
            rounded,
            of,
            layout,
            blocking,
            order,
        };
        let plain = KernelSpec::Grouped(spec(Layout::Columns, real));
        let packed = spec(Layout::Panels, read);
        let depth = packed.depth();
        let pack = KernelSpec::Pack(Pack {
            dtype: read,
            from: real,
            n: Extent::Static(groups * n),
            k: Extent::Static(k),
            nr: blocking.nr,
            transposed: true,
            order,
            quantized: None,
        });
        let specs = [pack, KernelSpec::Grouped(packed)];
        let compiled = Compiled::new(&specs, target);
        let mut next = noise(seed);
        let mut random = |len: u64| Buffer::<f32>::Real((0..len).map(|_| next() as f32).collect());
        let (a, b) = (random(tokens * k), random(groups * n * k));
        let room = Buffer::<f32>::nan((groups * n * depth) as usize).in_type(read);
        let tiles = specs[0].tiles(&[groups * n, k]);
        let dims = [groups * n, k];
        let made = compiled.run(0, &[b.clone(), room], &[], &dims, &[], &[0..tiles]);
        let rows = tokens * copies;
        for case in 0..5 {
            let numbers = numbers::<f32>(rows, groups, case);
            let out = Buffer::nan((rows * n) as usize);
            let operands = [numbers.clone(), a.clone(), b.clone(), out.clone()];
            let want = evaluated(&plain, &operands, &[tokens], &[]);
            let operands = [numbers, a.clone(), made[1].clone(), out];
            let what = format!("{target}, {order:?}, {rounded}, {seed}, case {case}");
            let meant = evaluated(&specs[1], &operands, &[tokens], &[]);
            assert_same(&meant[3], &want[3], &format!("meaning, {what}"));
            let tiles = specs[1].tiles(&[tokens]);
            for split in [vec![0..tiles], (0..tiles).rev().map(|t| t..t + 1).collect()] {
                let got = compiled.run(1, &operands, &[], &[tokens], &[], &split);
                assert_same(&got[3], &want[3], &what);
            }
        }
    }
}

/// A product of rows gives the bits of a contraction with the same matrix: each expert alone is a linear map.
#[test]
fn one_group_is_a_contraction() {
    let spec = Grouped {
        dtype: DType::F32,
        factors: [DType::F32; 2],
        rounded: false,
        of: Groups {
            groups: 1,
            copies: 1,
            n: 1,
            k: 1,
            partial: false,
        },
        layout: Layout::Columns,
        blocking: Target::Portable.blocking(DType::F32),
        order: Order::Chain,
    };
    let kc = u64::from(spec.blocking.kc);
    // One block and a bit: the order of the sum is seen in its last digits.
    let mut next = noise(3);
    let k = kc + 3;
    let (x, w): (Vec<f64>, Vec<f64>) = (0..k).map(|_| (next(), next())).unzip();
    let of = |v: &[f64]| Buffer::<f32>::from_fn(v.len(), |i| v[i]);
    let spec = Grouped {
        of: Groups { k, ..spec.of },
        ..spec
    };
    let operands = vec![of(&[0.0]), of(&x), of(&w), Buffer::nan(1)];
    let got = evaluated(&KernelSpec::Grouped(spec), &operands, &[1], &[]);
    let chain = |range: std::ops::Range<usize>| {
        range.fold(0.0f32, |sum, i| (x[i] as f32).mul_add(w[i] as f32, sum))
    };
    let want = chain(0..kc as usize) + chain(kc as usize..k as usize);
    assert_eq!(got[3].real(), [want]);
}
