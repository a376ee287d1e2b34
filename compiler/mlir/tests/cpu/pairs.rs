//! Contractions in pairs, on tile registers and by dot products: compiled code against the reference device, bit for bit.
//!
//! Where the processor has no tile registers, the handler of `tiles/` does their instructions; all others run as compiled. Where it has no dot products,
//! compiled code computes what they are defined to.

use crate::harness::models::{in_bf16, planned, ragged, read_in_pieces, same_steps, two_steps};
use crate::harness::{Buffer, Compiled, assert_same, noise};
use crate::tiles::decode::{self, Op};
use crate::tiles::products::{Data, FORMS, Form, Shape, kernels};
use crate::tiles::{Machine, machines};
use odec_program::kernel::{Blocking, Contract, Order, Pack};
use odec_program::{Bindings, DType, Kernel, KernelSpec, Target};
use odec_runtime::device::cpu::CpuDevice;
use odec_runtime::device::reference::ReferenceDevice;

/// A target's order and register tiles, and cache blocks so small that a sweep crosses them.
fn small_blocks(of: Target) -> (Order, Blocking) {
    let (order, blocking) = of.pairs().unwrap();
    let small = Blocking {
        kc: 32,
        nc: 64,
        ..blocking
    };
    (order, small)
}

fn same(got: &[Buffer<f32>; 2], want: &[Buffer<f32>; 2], what: &str) {
    assert_eq!(crate::tiles::fault(), None, "{what}");
    assert_same(&got[0], &want[0], &format!("panels, {what}"));
    assert_same(&got[1], &want[1], what);
}

/// Sizes on both sides of every edge: of registers, of register tiles, of chunks, of blocks.
const SIZES: [u64; 10] = [1, 15, 16, 17, 31, 32, 33, 63, 64, 65];

#[test]
fn ragged_sizes_given_at_launch() {
    machines().into_iter().for_each(ragged_sizes);
}

fn ragged_sizes(machine: Machine) {
    let Machine {
        of,
        target,
        emulated,
    } = machine;
    let any = Shape { m: 1, n: 1, k: 1 };
    let specs = FORMS.map(|f| kernels(f, small_blocks(of), any, false));
    let library = Compiled::new(&specs.concat(), target);
    for (f, form) in FORMS.into_iter().enumerate() {
        for (i, m) in SIZES.into_iter().enumerate() {
            for (j, n) in SIZES.into_iter().enumerate() {
                for (l, k) in SIZES.into_iter().enumerate() {
                    // Each pair of sizes meets in every form, each triple in one.
                    if (i + j + l) % FORMS.len() != f {
                        continue;
                    }
                    let s = Shape { m, n, k };
                    let mut next = noise(m * 10_000 + n * 100 + k);
                    let data = Data::new(form, s, || next() as f32);
                    let got = data.compiled(&library, 2 * f, &specs[f], s, 1);
                    same(
                        &got,
                        &data.reference(&specs[f], s),
                        &format!("{of} {form:?} {s:?}"),
                    );
                }
            }
        }
    }
    let tiles = emulated && of == Target::Amx;
    assert!(!tiles || crate::tiles::products() > 0);
}

#[test]
fn sizes_of_the_kernel_and_any_split() {
    machines().into_iter().for_each(fixed_sizes);
}

fn fixed_sizes(Machine { of, target, .. }: Machine) {
    let blocking = of.pairs().unwrap();
    let shapes = [
        Shape {
            m: 70,
            n: 40,
            k: 300,
        },
        Shape { m: 1, n: 5, k: 37 },
        Shape {
            m: 64,
            n: 96,
            k: 256,
        },
    ];
    let cases: Vec<(Form, Shape)> = FORMS.iter().flat_map(|f| shapes.map(|s| (*f, s))).collect();
    let specs: Vec<[KernelSpec; 2]> = cases
        .iter()
        .map(|(f, s)| kernels(*f, blocking, *s, true))
        .collect();
    let library = Compiled::new(&specs.concat(), target);
    for (i, (form, s)) in cases.into_iter().enumerate() {
        let mut next = noise(i as u64);
        let data = Data::new(form, s, || next() as f32);
        let want = data.reference(&specs[i], s);
        for parts in [1, 2, 5] {
            let got = data.compiled(&library, 2 * i, &specs[i], s, parts);
            same(
                &got,
                &want,
                &format!("{of} {form:?} {s:?} in {parts} parts"),
            );
        }
    }
}

/// Products and sums around the smallest normal number, and infinities, NaN, zeros of both signs and the largest numbers.
#[test]
fn subnormal_and_infinite() {
    machines().into_iter().for_each(numbers_at_the_ends);
}

fn numbers_at_the_ends(Machine { of, target, .. }: Machine) {
    let (blocking, s) = (
        small_blocks(of),
        Shape {
            m: 35,
            n: 33,
            k: 75,
        },
    );
    let specs = FORMS.map(|f| kernels(f, blocking, s, true));
    let library = Compiled::new(&specs.concat(), target);
    let special = [
        0.0,
        f32::INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN_POSITIVE,
        1.0,
        f32::from_bits(1),
    ];
    for (f, form) in FORMS.into_iter().enumerate() {
        let (mut zeros, mut subnormal, mut infinite) = (0, 0, 0);
        for round in 0..24u64 {
            let mut next = noise(100 * f as u64 + round);
            let mut number = || {
                let (x, kind) = (next() as f32, next());
                match round % 3 {
                    // Exponents of 2⁻⁶³ and about: products around 2⁻¹²⁶.
                    0 => x * 2f32.powi(-63 + (3.0 * kind) as i32),
                    // Some factors are subnormal themselves.
                    1 => x * 2f32.powi(-70 + (65.0 * kind) as i32),
                    _ if kind > 0.98 => {
                        special[(x.abs() * special.len() as f32) as usize].copysign(x)
                    }
                    _ => x,
                }
            };
            let mut data = Data::new(form, s, &mut number);
            if form.accumulate && round % 3 < 2 {
                // What is added to a block's sum may be subnormal, and so may be the result.
                data.c = Buffer::from_fn((s.m * s.n) as usize, |i| f64::from(i as f32) * 1e-42);
            }
            let want = data.reference(&specs[f], s);
            let got = data.compiled(&library, 2 * f, &specs[f], s, 1);
            for x in want[1].real() {
                zeros += u32::from(*x == 0.0);
                subnormal += u32::from(x.is_subnormal());
                infinite += u32::from(!x.is_finite());
            }
            same(&got, &want, &format!("{of} {form:?} round {round}"));
        }
        // Blocks are added as everywhere: sums of several may be subnormal.
        assert!(
            infinite > 100 && (form.accumulate || zeros > 50) && (form.epilogue || subnormal > 0),
            "{of} {form:?}: {zeros} {subnormal} {infinite}"
        );
    }
}

/// Sums in pairs are not those of a chain; each keeps the bound that `docs/training.md` states.
#[test]
fn the_order_is_part_of_the_meaning() {
    let (form, s) = (FORMS[3], Shape { m: 8, n: 9, k: 500 });
    let mut next = noise(3);
    let data = Data::new(form, s, || next() as f32);
    let [pairs, dots] = [Target::Amx, Target::Avx512Bf16]
        .map(|target| kernels(form, target.pairs().unwrap(), s, true));
    let chain = pairs.clone().map(|spec| match spec {
        KernelSpec::Pack(p) => KernelSpec::Pack(Pack {
            order: Order::Chain,
            ..p
        }),
        KernelSpec::Contract(c) => KernelSpec::Contract(Contract {
            order: Order::Chain,
            ..c
        }),
        other => other,
    });
    let [in_pairs, in_dots, in_chain] = [&pairs, &dots, &chain].map(|specs| {
        let packed = data.reference(specs, s);
        packed[1].numbers()
    });
    let numbers = |b: &Buffer<f32>| {
        b.numbers()
            .iter()
            .map(|x| f64::from(*x))
            .collect::<Vec<f64>>()
    };
    let (a, b) = (numbers(&data.a), numbers(&data.b));
    let mut differ = [0; 2];
    for (at, y) in in_chain.iter().enumerate() {
        let (x, z) = (&in_pairs[at], &in_dots[at]);
        let (i, j) = (at as u64 / s.n, at as u64 % s.n);
        let terms = (0..s.k).map(|l| a[(l * s.m + i) as usize] * b[(j * s.k + l) as usize]);
        // How often a term is rounded in each order: 16 times with its half of a chunk, once with the other half, 8 times with
        // other chunks; or as often as there are terms; then with other blocks. γ of N. Higham 2002, §3.1.
        let sum = terms.clone().map(f64::abs).sum::<f64>();
        let exact: f64 = terms.sum();
        for (got, often) in [(x, 25), (z, s.k), (y, s.k)] {
            let roundings = (often + s.k.div_ceil(256)) as f64 * 2f64.powi(-24);
            let bound = roundings / (1.0 - roundings) * sum;
            assert!((f64::from(*got) - exact).abs() <= bound);
        }
        for (n, x) in differ.iter_mut().zip([x, z]) {
            *n += u32::from(x.to_bits() != y.to_bits());
        }
    }
    assert!(differ.iter().all(|n| *n > 10), "{differ:?}");
}

/// A loop over the inner length has four loads and four products of tiles, and nothing of the sums goes to memory before its
/// end.
#[test]
fn object_code_holds_sums_in_registers() {
    for (form, shape) in [
        (
            FORMS[0],
            Shape {
                m: 64,
                n: 96,
                k: 300,
            },
        ),
        (
            FORMS[2],
            Shape {
                m: 64,
                n: 64,
                k: 4096,
            },
        ),
    ] {
        let spec = kernels(form, Target::Amx.pairs().unwrap(), shape, true)[1].clone();
        let symbol = spec.symbol();
        let objects = odec_mlir::compile(&[Kernel { symbol, spec }], Target::Amx, None).unwrap();
        let code = decode::all(&objects[0].bytes);
        assert!(
            matches!(code[..], [Op::Configure(_), .., Op::Release]),
            "{code:?}"
        );
        let count = |which: fn(&Op) -> bool| code.iter().filter(|op| which(op)).count();
        assert_eq!(count(|op| matches!(op, Op::Configure(_) | Op::Release)), 2);
        let products = count(|op| matches!(op, Op::Multiply { .. }));
        assert!(products > 0 && products % 4 == 0);
        assert_eq!(count(|op| matches!(op, Op::Load(..))), products);
        // Sums begin as zeros and are stored once, all four before and after their products.
        let sums = code
            .iter()
            .filter(|op| matches!(op, Op::Zero(_) | Op::Store(..)));
        let sums: Vec<Op> = sums.copied().collect();
        for part in sums.chunks(8) {
            let zeros = part[..4]
                .iter()
                .enumerate()
                .all(|(i, op)| *op == Op::Zero(i as u8));
            let stores = part[4..]
                .iter()
                .enumerate()
                .all(|(i, op)| matches!(op, Op::Store(n, _) if *n == i as u8));
            assert!(zeros && stores, "{part:?}");
        }
        let loaded = code.iter().filter_map(|op| match op {
            Op::Load(n, _) => Some(*n),
            _ => None,
        });
        assert!(
            loaded.clone().all(|n| (4..8).contains(&n)),
            "only factors are loaded"
        );
    }
}

/// A register tile is multiplied by one dot product for each of its vectors and two values of k, and nothing of the sums goes to memory
/// before the loop's end: each instruction has a sum of its own.
#[test]
fn object_code_has_a_dot_product_for_each_sum() {
    let target = Target::Avx512Bf16;
    let (order, blocking) = target.pairs().unwrap();
    let shape = Shape {
        m: u64::from(blocking.mr) * 3,
        n: u64::from(blocking.nr) * 2,
        k: 256,
    };
    let spec = kernels(FORMS[0], (order, blocking), shape, true)[1].clone();
    let symbol = spec.symbol();
    let objects = odec_mlir::compile(&[Kernel { symbol, spec }], target, None).unwrap();
    // EVEX.512.F3.0F38.W0 52 (VDPBF16PS): its prefix, and the number of the register of sums.
    let sums = objects[0].bytes.windows(6).filter_map(|code| {
        let [0x62, first, second, third, 0x52, modrm] = *code else {
            return None;
        };
        let is = first & 7 == 2 && second & 0x87 == 0x06 && third & 0x60 == 0x40;
        let high = u8::from(first & 0x10 == 0) << 4 | u8::from(first & 0x80 == 0) << 3;
        is.then_some(high | modrm >> 3 & 7)
    });
    let mut sums: Vec<u8> = sums.collect();
    let vectors = u64::from(blocking.nr) / target.lanes(DType::F32);
    assert_eq!(sums.len() as u64, u64::from(blocking.mr) * vectors);
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len() as u64, u64::from(blocking.mr) * vectors);
}

#[test]
fn other_tilings_are_errors() {
    let shape = Shape { m: 4, n: 4, k: 4 };
    let good = Target::Amx.pairs().unwrap();
    let (order, good) = good;
    for (blocking, what) in [
        (Blocking { mr: 48, ..good }, "48 × 32"),
        (Blocking { mr: 24, ..good }, "24 × 32"),
        (Blocking { kc: 40, ..good }, "40 deep"),
    ] {
        let spec = kernels(FORMS[0], (order, blocking), shape, true)[1].clone();
        let symbol = spec.symbol();
        let error = odec_mlir::mlir_text(&Kernel { symbol, spec }, Target::Amx).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// Programs in other precisions are those of AVX-512; in bf16, every contraction is in pairs.
#[test]
fn only_bf16_is_multiplied_in_pairs() {
    for target in [Target::Avx512Bf16, Target::Amx] {
        all_are_in_pairs(target);
    }
}

fn all_are_in_pairs(target: Target) {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    let plain = |target| planned("prenorm", &sizes, target).program;
    assert_eq!(plain(target), plain(Target::Avx512));
    let half = planned("prenorm", &in_bf16(&sizes), target).program;
    let order = target.pairs().unwrap().0;
    let orders = half.kernels.iter().filter_map(|k| match &k.spec {
        KernelSpec::Contract(c) => Some((c.order, c.b)),
        KernelSpec::Pack(p) => Some((p.order, p.dtype)),
        _ => None,
    });
    assert!(orders.clone().count() > 10);
    assert!(orders.clone().all(|o| o == (order, DType::Bf16)));
    // Experts by dot products, never in tile registers.
    let experts = planned("mixtral", &in_bf16(&[]), target).program;
    let of_experts = experts.kernels.iter().filter_map(|k| match &k.spec {
        KernelSpec::Grouped(g) | KernelSpec::GroupedOuter(g) => Some(g.order),
        _ => None,
    });
    let order = if order == Order::Dots {
        order
    } else {
        Order::Chain
    };
    assert!(of_experts.clone().count() > 2 && of_experts.clone().all(|o| o == order));
}

/// Two steps of training: forward, backward and the optimiser; and a text read in pieces, from weights packed once.
#[test]
fn a_model_in_bf16() {
    machines().into_iter().for_each(model);
}

fn model(machine: Machine) {
    let Machine {
        of,
        target,
        emulated,
    } = machine;
    let sizes = in_bf16(&ragged("hidden: 704", "width: 256", "for 6 steps"));
    let manifest = planned("prenorm", &sizes, of);
    let kernels = &manifest.program.kernels;
    let objects = odec_mlir::compile(kernels, target, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels.so");
    odec_mlir::link(&objects, &path).unwrap();
    let name = if emulated { "emulated" } else { target.name() };
    let scratch = odec_runtime::artifact::check::scratch_bytes(&manifest.program);
    let at = Bindings::new(2, 19);
    let want = two_steps(&manifest, Box::new(ReferenceDevice::new(kernels)), at);
    for threads in [1, 3] {
        let device = CpuDevice::open(&path, name, kernels, scratch, threads).unwrap();
        let got = two_steps(&manifest, Box::new(device), at);
        same_steps(&got, &want, &format!("{of}, {threads} threads"));
        assert_eq!(crate::tiles::fault(), None);
    }
    let device = CpuDevice::open(&path, name, kernels, scratch, 2).unwrap();
    read_in_pieces(&manifest, Box::new(device), &[7, 1, 1, 33, 1, 16], "tiles");
    assert_eq!(crate::tiles::fault(), None);
    // They are what another processor computes, but for the order of sums.
    let chain = planned("prenorm", &sizes, Target::Avx2);
    let other = two_steps(
        &chain,
        Box::new(ReferenceDevice::new(&chain.program.kernels)),
        at,
    );
    crate::harness::models::near_steps(&want, &other, "tiles");
    assert!(want != other);
}
