//! Kernels on tensor cores, run from their PTX on an emulated GPU, against float64, within the bound that
//! [`odec_program::gpu::tensor`] states.
//!
//! The emulator's tensor core adds as inaccurately as any card is known to (`ptx/tensor.rs`), and ends the test where
//! a word is used before its copy was waited for.

mod attend;

use crate::emulated::{keep, on_gpu};
use crate::harness::noise;
use odec_program::expr::{Access, Body, Expr};
use odec_program::gpu::tensor;
use odec_program::kernel::{Blocking, Contract, Epilogue, Extent, Layout, Parts, Terms};
use odec_program::{DType, Kernel, KernelSpec, Target, bf16};
use odec_runtime::conformance::cases::{Case, Cases, Expected};

/// Numbers, and the elements of a type that hold them.
#[derive(Clone)]
struct Data {
    dtype: DType,
    numbers: Vec<f64>,
}

impl Data {
    fn noise(dtype: DType, n: u64, seed: u64) -> Data {
        let mut next = noise(seed);
        let round = |x: f64| match dtype {
            DType::Bf16 => f64::from(bf16::to_f32(bf16::of_f64(x))),
            _ => f64::from(x as f32),
        };
        let numbers = (0..n).map(|_| round(next())).collect();
        Data { dtype, numbers }
    }

    /// Room for a result.
    fn room(n: u64) -> Data {
        Data::room_for(DType::F32, n)
    }

    fn room_for(dtype: DType, n: u64) -> Data {
        Data {
            dtype,
            numbers: vec![f64::NAN; n as usize],
        }
    }

    fn words(&self) -> Vec<u32> {
        let half = |x: &f64| u32::from(bf16::of_f64(*x));
        match self.dtype {
            DType::Bf16 => (self.numbers.chunks(2))
                .map(|p| half(&p[0]) | p.get(1).map_or(0, half) << 16)
                .collect(),
            _ => self.numbers.iter().map(|x| (*x as f32).to_bits()).collect(),
        }
    }

    /// As a contraction reads them.
    fn rounded(&self) -> Vec<f64> {
        let round = |x: &f64| f64::from(bf16::to_f32(bf16::of_f64(*x)));
        self.numbers.iter().map(round).collect()
    }
}

/// A launch that was made.
struct Launched {
    cases: Cases,
    got: Vec<Vec<u32>>,
}

/// Launches a kernel.
fn launch(
    target: Target,
    spec: &KernelSpec,
    data: &[Data],
    dims: &[u64],
    coeffs: &[f64],
) -> Launched {
    launch_on(target, spec, data, dims, coeffs, None)
}

/// The same with so many blocks at most.
fn launch_on(
    target: Target,
    spec: &KernelSpec,
    data: &[Data],
    dims: &[u64],
    coeffs: &[f64],
    blocks: Option<u64>,
) -> Launched {
    let kernels = vec![Kernel {
        symbol: spec.symbol(),
        spec: spec.clone(),
    }];
    let mut gpu = on_gpu(&kernels, target);
    gpu.most_blocks = blocks;
    let case = Case {
        kernel: 0,
        dims: dims.to_vec(),
        coeffs: coeffs.to_vec(),
        aliases: vec![],
        operands: data.iter().map(Data::words).collect(),
        results: vec![],
    };
    let got = case.run(&mut gpu).unwrap();
    let cases = Cases {
        target,
        kernels,
        ptx: gpu.ptx,
        cases: vec![case],
    };
    Launched { cases, got }
}

impl Launched {
    /// An operand afterwards, f32.
    fn operand(&self, n: usize) -> Vec<f64> {
        let number = |w: &u32| f64::from(f32::from_bits(*w));
        self.got[n].iter().map(number).collect()
    }

    /// Elements of an operand, from `first` on, must be within these bounds. All of an operand's are to be named.
    fn expect(&mut self, operand: usize, first: usize, values: &[(f64, f64)]) {
        let results = &mut self.cases.cases[0].results;
        let known = results.iter().position(|e| e.operand == operand);
        let number = known.unwrap_or_else(|| {
            // Whatever is not named fails.
            let signature = self.cases.kernels[0].spec.signature();
            let each = 4 / signature.operands[operand].dtype.bytes() as usize;
            let all = each * self.got[operand].len();
            // Of the last word, half may be room.
            let whole = first == 0 && values.len() + each > all;
            let count = if whole { values.len() } else { all };
            let values = vec![(f64::NAN, 0.0); count];
            results.push(Expected { operand, values });
            results.len() - 1
        });
        results[number].values[first..][..values.len()].copy_from_slice(values);
    }

    /// Panics naming the first number that is further from what is expected than it may be.
    fn check(self, what: &str) {
        let Cases { kernels, cases, .. } = &self.cases;
        let differs = cases[0].difference(kernels, &self.got);
        assert!(differs.is_none(), "{what}: {}", differs.unwrap());
        keep(&self.cases);
    }
}

/// Of a result in bf16, which is off by half a unit more.
fn rounded((x, error): (f64, f64)) -> (f64, f64) {
    (x, error + bf16::UNIT * (x.abs() + error))
}

const SCALE: f64 = 1.25;

/// `(c · scale + bias) · scale + residual`.
fn epilogue(n: u64) -> Epilogue {
    let mut body = Body::default();
    let (acc, bias, residual, scale) = (
        body.push(Expr::Acc),
        body.load(2, Access::PER_COL),
        body.load(3, Access::full(n)),
        body.uniform(0),
    );
    let scaled = body.mul(acc, scale);
    let shifted = body.add(scaled, bias);
    let value = body.fma(shifted, scale, residual);
    Epilogue {
        operands: 2,
        halves: vec![],
        uniforms: 1,
        body,
        value,
    }
}

/// How the factors of a case lie.
struct Lies {
    a: DType,
    a_transposed: bool,
    layout: Layout,
    accumulate: bool,
    rounds: bool,
    parts: u32,
    terms: u32,
    finish: bool,
    /// Whether the residual of the epilogue is bf16.
    half: bool,
    /// How many blocks there are at most.
    blocks: Option<u64>,
}

impl Lies {
    /// Every way of writing results comes in turn.
    fn of_case(number: usize, a: DType, a_transposed: bool, layout: Layout) -> Lies {
        Lies {
            a,
            a_transposed,
            layout,
            accumulate: number.is_multiple_of(3),
            rounds: number % 3 == 1,
            parts: 1,
            terms: 1,
            finish: number % 4 == 1,
            half: false,
            blocks: None,
        }
    }
}

/// A blocking whose tiles have so many columns.
fn blocking(cols: u32) -> Blocking {
    Blocking {
        nr: cols,
        nc: cols,
        ..Target::Sm80.blocking(DType::F32)
    }
}

fn contraction(target: Target, cols: u32, [m, n, k]: [u64; 3], lies: &Lies) {
    let dynamic = |x: u64, d: bool| match d {
        true => Extent::Dynamic,
        false => Extent::Static(x),
    };
    let sizes = [
        dynamic(m, !lies.a_transposed),
        Extent::Static(n),
        dynamic(k, lies.a_transposed),
    ];
    let spec = Contract {
        a: lies.a,
        b: DType::Bf16,
        a_transposed: lies.a_transposed,
        layout: lies.layout,
        accumulate: lies.accumulate,
        rounds: lies.rounds,
        parts: Parts(lies.parts),
        terms: Terms(lies.terms),
        epilogue: lies.finish.then(|| Epilogue {
            halves: if lies.half { vec![3] } else { vec![] },
            ..epilogue(n)
        }),
        ..Contract::new(DType::F32, sizes, blocking(cols))
    };
    assert!(tensor::contract::runs(&spec));
    let factors = (0..u64::from(lies.terms)).map(|term| {
        [
            Data::noise(lies.a, m * k, 1 + 10 * term),
            Data::noise(DType::Bf16, k * n, 2 + 10 * term),
        ]
    });
    let factors: Vec<[Data; 2]> = factors.collect();
    let (bias, residual) = (
        Data::noise(DType::F32, n, 3),
        Data::noise([DType::F32, DType::Bf16][usize::from(lies.half)], m * n, 4),
    );
    let before = Data::noise(DType::F32, m * n, 5);
    let mut data = factors.concat();
    if lies.finish {
        data.extend([bias.clone(), residual.clone()]);
    }
    data.push(match lies.accumulate {
        true => before.clone(),
        false => Data::room_for(spec.result(), m * n * u64::from(lies.parts)),
    });
    let coeffs = vec![SCALE; usize::from(lies.finish)];
    let out = data.len() - 1;
    let spec = KernelSpec::Contract(spec);
    let mut launched = launch_on(target, &spec, &data, &[m, n, k], &coeffs, lies.blocks);
    let left: Vec<_> = factors.iter().map(|[a, _]| a.rounded()).collect();
    let (parts, piece) = (u64::from(lies.parts), Parts(lies.parts).length(k));
    let want = (0..m * parts * n).map(|at| {
        let (i, part, j) = (at / n / parts, at / n % parts, at % n);
        let start = match lies.accumulate {
            true => before.numbers[at as usize],
            false => 0.0,
        };
        let (mut sum, mut size) = (start, start.abs());
        let inner = (part * piece).min(k)..((part + 1) * piece).min(k);
        let terms = left.iter().zip(&factors).map(|(a, [_, b])| (a, b));
        let each = |of| inner.clone().map(move |l| (of, l));
        for ((a, b), l) in terms.flat_map(each) {
            let x = a[if lies.a_transposed {
                l * m + i
            } else {
                i * k + l
            } as usize];
            let y = b.numbers[match lies.layout {
                Layout::Columns => j * k + l,
                _ => l * n + j,
            } as usize];
            sum += x * y;
            size += (x * y).abs();
        }
        let error = tensor::bound(k * u64::from(lies.terms)) * size;
        let stored = |of| if lies.rounds { rounded(of) } else { of };
        if !lies.finish {
            return stored((sum, error));
        }
        let value =
            (sum * SCALE + bias.numbers[j as usize]) * SCALE + residual.numbers[at as usize];
        // The epilogue's own three roundings.
        stored((
            value,
            error * SCALE * SCALE + 8.0 * f64::from(f32::EPSILON) * (size + 2.0),
        ))
    });
    launched.expect(out, 0, &want.collect::<Vec<_>>());
    let what = format!(
        "{target}, {cols} columns: {m} × {n} × {k}, {:?}, {}, {:?}",
        lies.a, lies.a_transposed, lies.layout
    );
    launched.check(&what);
}

/// All transpositions for each of these sizes, with tiles of so many columns.
fn contractions(target: Target, cols: u32, sizes: &[[u64; 3]]) {
    let mut number = 0;
    for mut sizes in sizes.iter().copied() {
        for a_transposed in [false, true] {
            // A number of features, not of tokens.
            sizes[0] += if a_transposed { 32 } else { 0 };
            for layout in [Layout::Columns, Layout::Rows] {
                number += 1;
                let lies = Lies::of_case(
                    number,
                    [DType::Bf16, DType::F32][(number / 2) % 2],
                    a_transposed,
                    layout,
                );
                contraction(target, cols, sizes, &lies);
            }
        }
    }
}

#[test]
fn contractions_of_bf16() {
    // Several blocks and more tiles than stages; a few rows; extents that are multiples of eight, of four, odd.
    let sizes = [[130, 72, 136], [3, 8, 16], [33, 68, 44], [17, 37, 35]];
    contractions(Target::Sm80, 64, &sizes);
}

#[test]
fn contractions_of_bf16_by_warpgroups() {
    // The same with tiles of 128 columns and of 64, of which 264 are more than there are places.
    let sizes = [[130, 72, 200], [3, 8, 16], [33, 132, 44], [17, 37, 35]];
    contractions(Target::Sm90a, 128, &sizes);
    contractions(Target::Sm90a, 64, &[[65, 64, 264], [33, 132, 44]]);
}

/// Rows that are so few that no tensor core multiplies them, and one more than that; B's rows along columns, several pieces of them side by side and
/// one, and along the inner index; turns that are whole, partial, and more than are loaded at a time.
#[test]
fn contractions_of_few_rows() {
    let by_columns = [
        [1, 40, 264],
        [3, 72, 1032],
        [1, 8, 4632],
        [8, 8, 16],
        [9, 40, 72],
        [2, 2112, 48],
        [1, 4224, 16],
        [1, 8448, 24],
    ];
    let by_rows = [
        [1, 37, 264],
        [3, 40, 1288],
        [8, 9, 16],
        [9, 40, 72],
        [1, 32, 2056],
    ];
    let all = by_columns.map(|size| (Layout::Rows, size)).into_iter();
    let all = all.chain(by_rows.map(|size| (Layout::Columns, size)));
    for (number, (layout, size)) in all.enumerate() {
        // Every way of writing results for every layout.
        for turn in 0..2 {
            let lies = Lies::of_case(number + turn, DType::Bf16, false, layout);
            contraction(Target::Sm90a, 64, size, &lies);
        }
    }
    // An epilogue that reads bf16, of few rows and of more, on both targets.
    for (target, size) in [
        (Target::Sm90a, [1, 40, 264]),
        (Target::Sm90a, [20, 36, 264]),
        (Target::Sm80, [20, 37, 264]),
    ] {
        let lies = Lies {
            half: true,
            ..Lies::of_case(1, DType::Bf16, false, Layout::Columns)
        };
        contraction(target, 64, size, &lies);
    }
}

/// Where both factors come by tensor maps.
#[test]
fn contractions_of_bf16_with_wide_tiles() {
    let mut number = 0;
    for sizes in [[130_u64, 264, 200], [136, 512, 328], [8, 256, 64]] {
        for a_transposed in [false, true] {
            let m = if a_transposed {
                sizes[0].next_multiple_of(8) + 32
            } else {
                sizes[0]
            };
            for layout in [Layout::Columns, Layout::Rows] {
                number += 1;
                let lies = Lies::of_case(number, DType::Bf16, a_transposed, layout);
                contraction(Target::Sm90a, 256, [m, sizes[1], sizes[2]], &lies);
            }
        }
    }
}

/// Pieces of the inner index apart: the last one short, or of nothing.
#[test]
fn contractions_of_bf16_in_parts() {
    for (cols, sizes, parts) in [
        (128, [40, 72, 200], 2),
        (256, [136, 264, 328], 4),
        (64, [48, 40, 72], 5),
    ] {
        for layout in [Layout::Columns, Layout::Rows] {
            let lies = Lies {
                a: DType::Bf16,
                a_transposed: true,
                layout,
                accumulate: false,
                rounds: false,
                parts,
                terms: 1,
                finish: false,
                half: false,
                blocks: None,
            };
            contraction(Target::Sm90a, cols, sizes, &lies);
        }
    }
}

/// A block takes several tiles, whose stages follow each other, also where a tile has fewer than there are stages.
#[test]
fn contractions_of_bf16_by_blocks_that_go_on() {
    // The number of a case says how results are written.
    let cases = [
        (64, [40, 1000, 72], 0),
        (64, [136, 136, 264], 1),
        (128, [136, 264, 200], 3),
        (256, [264, 520, 136], 2),
        (256, [8, 1280, 16], 1),
    ];
    for (cols, sizes, number) in cases {
        let lies = Lies {
            blocks: Some(2),
            ..Lies::of_case(number, DType::Bf16, false, Layout::Columns)
        };
        contraction(Target::Sm90a, cols, sizes, &lies);
    }
    let lies = Lies {
        blocks: Some(3),
        parts: 5,
        ..Lies::of_case(2, DType::Bf16, true, Layout::Rows)
    };
    contraction(Target::Sm90a, 64, [40, 72, 200], &lies);
}

/// Several products, of whole tiles along the inner index, of none, and of a last one that is not whole, by blocks that take several tiles.
#[test]
fn contractions_of_bf16_with_several_terms() {
    for (number, (cols, sizes, terms)) in [
        (64, [40, 136, 128], 3),
        (128, [130, 264, 72], 2),
        (128, [40, 320, 72], 2),
        (256, [136, 512, 200], 3),
        (256, [8, 256, 16], 4),
    ]
    .into_iter()
    .enumerate()
    {
        for layout in [Layout::Columns, Layout::Rows] {
            let lies = Lies {
                accumulate: number.is_multiple_of(2),
                rounds: false,
                terms,
                finish: false,
                blocks: Some(2),
                ..Lies::of_case(number, DType::Bf16, false, layout)
            };
            contraction(Target::Sm90a, cols, sizes, &lies);
        }
    }
}

/// What a tensor map brings is what passes through registers, to the bit: numbers of bf16 that are stored as f32 come that way.
#[test]
fn boxes_bring_what_registers_do() {
    let [m, n, k] = [130, 72, 200];
    for (a_transposed, layout) in [(false, Layout::Columns), (true, Layout::Rows)] {
        let numbers = Data::noise(DType::Bf16, (m + 32) * k, 1).numbers;
        let b = Data::noise(DType::Bf16, k * n, 2);
        // Of features, a whole number of pieces.
        let m = if a_transposed { m + 30 } else { m };
        let extent = |x: u64, of_features: bool| match of_features {
            true => Extent::Static(x),
            false => Extent::Dynamic,
        };
        let result = |a: DType| {
            let sizes = [
                extent(m, a_transposed),
                Extent::Static(n),
                extent(k, !a_transposed),
            ];
            let spec = Contract {
                a,
                b: DType::Bf16,
                a_transposed,
                layout,
                ..Contract::new(DType::F32, sizes, Target::Sm80.blocking(DType::F32))
            };
            assert_eq!(
                tensor::map::feeds(&spec, 0, Target::Sm90a),
                a == DType::Bf16
            );
            assert!(tensor::map::feeds(&spec, 1, Target::Sm90a));
            assert!(!tensor::map::feeds(&spec, 1, Target::Sm80));
            let numbers = numbers[..(m * k) as usize].to_vec();
            let data = [Data { dtype: a, numbers }, b.clone(), Data::room(m * n)];
            let spec = KernelSpec::Contract(spec);
            let got = launch(Target::Sm90a, &spec, &data, &[m, n, k], &[]);
            got.operand(2)
                .into_iter()
                .map(f64::to_bits)
                .collect::<Vec<_>>()
        };
        assert_eq!(result(DType::Bf16), result(DType::F32));
    }
}

/// A row of the result is the same whatever other rows there are: reading a text in pieces changes no bit.
#[test]
fn rows_do_not_depend_on_one_another() {
    Target::GPUS.into_iter().for_each(rows_alone);
}

fn rows_alone(target: Target) {
    let (n, k) = (40, 48);
    let sizes = [Extent::Dynamic, Extent::Static(n), Extent::Static(k)];
    let spec = Contract {
        b: DType::Bf16,
        layout: Layout::Columns,
        ..Contract::new(DType::F32, sizes, Target::Sm80.blocking(DType::F32))
    };
    let spec = KernelSpec::Contract(spec);
    let (a, b) = (
        Data::noise(DType::F32, 20 * k, 1),
        Data::noise(DType::Bf16, k * n, 2),
    );
    let rows = |range: std::ops::Range<u64>| {
        let numbers = a.numbers[(range.start * k) as usize..(range.end * k) as usize].to_vec();
        let count = range.end - range.start;
        let some = Data {
            dtype: DType::F32,
            numbers,
        };
        let data = [some, b.clone(), Data::room(count * n)];
        launch(target, &spec, &data, &[count, n, k], &[]).operand(2)
    };
    let whole = rows(0..20);
    let bits = |x: Vec<f64>| x.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let pieces = [rows(0..1), rows(1..18), rows(18..20)].concat();
    assert_eq!(bits(whole), bits(pieces));
}
