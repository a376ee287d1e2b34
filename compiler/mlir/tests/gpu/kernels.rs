//! Kernels for GPUs, run from their PTX on an emulated GPU, against the reference device, bit for bit.
//!
//! The emulator (`ptx/`) ends the test at any access outside of an operand, unaligned access, race, or read of shared
//! memory that nobody wrote, and at instructions whose rounding an assembler may choose.

mod attention;
mod contractions;

use crate::emulated::{self, keep};
use crate::harness::Buffer as Data;
use crate::harness::bodies::{
    COLS, INPUTS, In, Pick, SEQ, build, inputs, period, picks, random_rows,
};
use crate::harness::noise;
use odec_emulator::Emulated;
use odec_program::expr::{Access, BinaryOp, Body, CmpOp, Expr, ExprId, ReduceOp, RowMap, UnaryOp};
use odec_program::kernel::{
    Blocking, Columns, Decay, Delay, Gather, Grouped, Groups, Keep, Layout, LinearAttend,
    LinearAttendPart, Mode, Order, Rows, Scan, ScanForm, Share, Store, TopTokens,
};
use odec_program::window::Through;
use odec_program::{DType, Kernel, KernelSpec, Target, Window, bf16, gpu};
use odec_runtime::conformance::cases::{self, Cases};
use odec_runtime::device::reference::ReferenceDevice;
use proptest::prelude::*;

/// One launch: kernel, operands' bits, operands in the place of others (b, a), dims, coefficients.
struct Case {
    spec: KernelSpec,
    operands: Vec<Vec<u32>>,
    aliases: Vec<(usize, usize)>,
    dims: Vec<u64>,
    coeffs: Vec<f64>,
}

impl Case {
    /// With a kernel's number; the reference device knows the results.
    fn launch(&self, kernel: usize) -> cases::Case {
        cases::Case {
            kernel,
            dims: self.dims.clone(),
            coeffs: self.coeffs.clone(),
            aliases: self.aliases.clone(),
            operands: self.operands.clone(),
            results: vec![],
        }
    }
}

fn floats(n: u64, seed: u64) -> Vec<u32> {
    let mut next = noise(seed);
    (0..n).map(|_| (next() as f32).to_bits()).collect()
}

/// The same numbers as elements of a type.
fn of_type(dtype: DType, n: u64, seed: u64) -> Vec<u32> {
    let half = |x: &u32| u32::from(bf16::of_f32(f32::from_bits(*x)));
    match dtype {
        DType::Bf16 => (floats(n, seed).chunks(2))
            .map(|p| half(&p[0]) | p.get(1).map_or(0, half) << 16)
            .collect(),
        _ => floats(n, seed),
    }
}

/// Room for a result, full of NaN.
fn room(n: u64) -> Vec<u32> {
    vec![f32::NAN.to_bits(); n as usize]
}

fn kernel(spec: &KernelSpec) -> Kernel {
    Kernel {
        symbol: spec.symbol(),
        spec: spec.clone(),
    }
}

fn blocking() -> Blocking {
    Target::Sm80.blocking(DType::F32)
}

/// Launches on a GPU of a target, whose results the reference device knows.
fn launches(cases: &[Case], target: Target) -> (Emulated, Cases) {
    let mut kernels: Vec<Kernel> = vec![];
    let launches = cases.iter().map(|c| {
        let own = kernel(&c.spec);
        let known = kernels.iter().position(|k| *k == own);
        let number = known.unwrap_or(kernels.len());
        if known.is_none() {
            kernels.push(own);
        }
        c.launch(number)
    });
    let cases = launches.collect();
    let gpu = emulated::on_gpu(&kernels, target);
    let ptx = gpu.ptx.clone();
    let cases = Cases {
        target,
        kernels,
        ptx,
        cases,
    };
    (gpu, cases)
}

fn check(cases: &[Case]) {
    let (mut gpu, launches) = launches(cases, Target::Sm80);
    for (launch, case) in launches.cases.iter().zip(cases) {
        let got = launch.run(&mut gpu).unwrap();
        if let Some(what) = launch.difference(&launches.kernels, &got) {
            panic!("{:?}\ndims {:?}, {what}", case.spec, case.dims);
        }
    }
    keep(&launches);
}

/// The operands after a launch on an emulated GPU.
fn emulated(case: &Case, target: Target) -> Vec<Vec<u32>> {
    let (mut gpu, launches) = launches(std::slice::from_ref(case), target);
    launches.cases[0].run(&mut gpu).unwrap()
}

/// The same on the reference device.
fn reference(case: &Case) -> Vec<Vec<u32>> {
    let kernels = [kernel(&case.spec)];
    let launch = case.launch(0);
    launch.run(&mut ReferenceDevice::new(&kernels)).unwrap()
}

fn bits(data: &[Data<f32>]) -> Vec<Vec<u32>> {
    let pair = |x: &[u16]| u32::from(x[0]) | x.get(1).map_or(0, |x| u32::from(*x) << 16);
    let of = |d: &Data<f32>| match d {
        Data::Real(x) => x.iter().map(|x| x.to_bits()).collect(),
        Data::Half(x) => x.chunks(2).map(pair).collect(),
        Data::Int(x) => x.iter().map(|x| *x as u32).collect(),
        Data::Bytes(_) => unreachable!("kernels for GPUs read no integers"),
    };
    data.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn rows(cols in 0..COLS.len(), table in any::<u16>(), rows in 1u64..40, picks in picks(3..24), half in any::<bool>()) {
        let (cols, table) = (COLS[cols], period(COLS[cols], table));
        check(&rows_cases(cols, table, &picks, half, rows));
    }


    #[test]
    fn columns(cols in 0..COLS.len(), table in any::<u16>(), picks in picks(2..10), accumulate in any::<bool>(), rows in 1u64..150) {
        let (cols, table) = (COLS[cols], period(COLS[cols], table));
        let parts = 2 + rows % (Columns::PARTS - 1);
        let cases = [(accumulate, 1), (false, parts)];
        check(&cases.map(|(accumulate, parts)| columns_case(cols, table, &picks, accumulate, (rows, parts))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Rows whose values stay in registers, and rows that are too wide for it, or computed by too much code.
    #[test]
    fn wide_rows(cols in 0..WIDE.len(), table in any::<u16>(), rows in 1u64..7, mut picks in picks(3..16), reduced in (29u8..32, any::<[u16; 4]>()), at in any::<u16>(), half in any::<bool>()) {
        let (cols, table) = (WIDE[cols], period(WIDE[cols], table));
        picks.insert(at as usize % picks.len(), reduced);
        check(&rows_cases(cols, table, &picks, half, rows));
    }
}

const WIDE: [u64; 9] = [256, 257, 260, 512, 1000, 1024, 1408, 2050, 3088];

/// Into memory of its own and in place: the first output is the full input.
fn rows_cases(cols: u64, table: u64, picks: &[Pick], half: bool, rows: u64) -> [Case; 2] {
    let kernel = random_rows::<f32>(cols, table, picks, half);
    let mut data = inputs::<f32>(rows, cols, table);
    data.extend([rows * cols, rows * cols, rows].map(|n| Data::nan(n as usize)));
    let types = kernel.operands.iter();
    let data = data.into_iter().zip(types).map(|(b, d)| b.in_type(*d));
    let data: Vec<Data<f32>> = data.collect();
    [vec![], vec![(INPUTS as usize, 0)]].map(|aliases| Case {
        spec: KernelSpec::Rows(kernel.clone()),
        operands: bits(&data),
        aliases,
        dims: vec![rows, SEQ],
        coeffs: vec![0.3, -1.7],
    })
}

/// A kernel of wide rows and its operands' elements per launch, of which the last ones are results.
fn wide(
    cols: u64,
    rows: u64,
    operands: &[(DType, u64)],
    build: impl FnOnce(&mut Body) -> Vec<(u32, Access, ExprId)>,
) -> Case {
    let mut body = Body::default();
    let stores = build(&mut body).into_iter();
    let store = |(operand, access, value)| Store {
        operand,
        access,
        value,
    };
    let data = operands
        .iter()
        .zip(7..)
        .map(|((dtype, n), seed)| match dtype {
            DType::I32 => (0..*n as u32).map(|i| i * 7919 % cols as u32).collect(),
            _ => of_type(*dtype, *n, seed),
        });
    Case {
        operands: data.collect(),
        spec: KernelSpec::Rows(Rows {
            dtype: DType::F32,
            cols,
            operands: operands.iter().map(|o| o.0).collect(),
            uniforms: 1,
            body,
            stores: stores.map(store).collect(),
        }),
        aliases: vec![],
        dims: vec![rows, 1],
        coeffs: vec![0.01],
    }
}

#[test]
fn norms_and_losses_of_wide_rows() {
    let (f32, bf16) = (DType::F32, DType::Bf16);
    let mut cases = vec![];
    for cols in [256, 500, 512, 1000, 1024, 1040, 1408, 1537, 2816] {
        let (rows, each) = (5, Access::full(cols));
        let n = rows * cols;
        // x + y, the root of its squares' mean, and their quotient times a gain.
        let operands = [
            (f32, n),
            (bf16, n),
            (f32, cols),
            (f32, n),
            (f32, rows),
            (bf16, n),
        ];
        let norm = wide(cols, rows, &operands, |b| {
            let (x, y, gain) = (b.load(0, each), b.load(1, each), b.load(2, Access::PER_COL));
            let sum = b.add(x, y);
            let square = b.mul(sum, sum);
            let squares = b.reduce(ReduceOp::Sum, square);
            let mean = b.uniform(0);
            let mean = b.mul(mean, squares);
            let root = b.unary(UnaryOp::Sqrt, mean);
            let scaled = b.mul(sum, root);
            let scaled = b.mul(scaled, gain);
            let scaled = b.unary(UnaryOp::Bf16, scaled);
            vec![
                (3, each, sum),
                (4, Access::PER_ROW, root),
                (5, each, scaled),
            ]
        });
        let in_place = Case {
            aliases: vec![(3, 0), (5, 1)],
            spec: norm.spec.clone(),
            operands: norm.operands.clone(),
            dims: norm.dims.clone(),
            coeffs: norm.coeffs.clone(),
        };
        cases.extend([norm, in_place]);
    }
    for (cols, rows) in [(300, 9), (1000, 9), (4097, 3), (8200, 3), (32768, 3)] {
        let (n, each) = (rows * cols, Access::full(cols));
        let operands = [
            (f32, n),
            (DType::I32, rows),
            (f32, rows),
            (f32, rows),
            (bf16, n),
        ];
        cases.push(wide(cols, rows, &operands, |b| {
            let (x, target) = (b.load(0, each), b.load(1, Access::PER_ROW));
            let most = b.reduce(ReduceOp::Max, x);
            let x = b.sub(x, most);
            let exp = b.unary(UnaryOp::Exp, x);
            let sum = b.reduce(ReduceOp::Sum, exp);
            let (column, zero) = (b.push(Expr::ColIndex), b.konst(0.0));
            let own = b.select(CmpOp::Eq, column, target, x, zero);
            let own = b.reduce(ReduceOp::Sum, own);
            let share = b.binary(BinaryOp::Div, exp, sum);
            let less = b.uniform(0);
            let less = b.select(CmpOp::Eq, column, target, less, zero);
            let slope = b.sub(share, less);
            vec![
                (2, Access::PER_ROW, sum),
                (3, Access::PER_ROW, own),
                (4, each, slope),
            ]
        }));
    }
    // Softmax of what lies under windows, beside the row before.
    let window = Window::fitted([3, 4], 3, 2, 1).expect("it fits");
    let through = Through::Place(5);
    let [own, other] = window.rows(through);
    for cols in [270, 1000, 3100] {
        let (n, each) = (own * cols, Access::full(cols));
        let operands = [(f32, other * cols), (bf16, n), (f32, n)];
        let mut case = wide(cols, own, &operands, |b| {
            let read = |row| Access { row, ..each };
            let under = b.load(0, read(RowMap::Window(window, through)));
            let before = b.load(1, read(RowMap::Shift(1)));
            let x = b.add(under, before);
            let most = b.reduce(ReduceOp::Max, x);
            let x = b.sub(x, most);
            let exp = b.unary(UnaryOp::Exp, x);
            let sum = b.reduce(ReduceOp::Sum, exp);
            vec![(2, each, b.binary(BinaryOp::Div, exp, sum))]
        });
        case.dims[1] = 2;
        cases.push(case);
    }
    check(&cases);
}

fn columns_case(
    cols: u64,
    table: u64,
    picks: &[Pick],
    accumulate: bool,
    (rows, parts): (u64, u64),
) -> Case {
    let body = build::<f32>(cols, table, picks, false);
    let value = ExprId(body.nodes.len() as u32 - 1);
    let mut operands = vec![DType::F32; INPUTS as usize + 1];
    operands[In::Index as usize] = DType::I32;
    let mut data = inputs::<f32>(rows, cols, table);
    data.push(Data::from_fn((cols * parts) as usize, |i| i as f64 * 0.01));
    let spec = Columns {
        dtype: DType::F32,
        cols,
        operands,
        uniforms: 2,
        body,
        value,
        accumulate,
        parts,
    };
    Case {
        spec: KernelSpec::Columns(spec),
        operands: bits(&data),
        aliases: vec![],
        dims: vec![rows, SEQ],
        coeffs: vec![0.3, -1.7],
    }
}

/// More rows than the threads of a block take at a time, three times and a little.
#[test]
fn columns_of_many_rows() {
    let mut body = Body::default();
    let x = body.load(0, Access::full(5));
    let spec = |accumulate, parts| Columns {
        dtype: DType::F32,
        cols: 5,
        operands: vec![DType::F32; 2],
        uniforms: 0,
        body: body.clone(),
        value: x,
        accumulate,
        parts,
    };
    let at_a_time = |parts| gpu::columns::threads(&spec(false, parts)) / 8 * Columns::BLOCK;
    let case = |(accumulate, parts, rows)| Case {
        spec: KernelSpec::Columns(spec(accumulate, parts)),
        operands: vec![floats(rows * 5, 1), floats(5 * parts, 2)],
        aliases: vec![],
        dims: vec![rows, 1],
        coeffs: vec![],
    };
    let of_parts = 3 * (at_a_time(3) + 77);
    let cases = [
        (false, 1, 3 * at_a_time(1) + 77),
        (true, 1, at_a_time(1)),
        (false, 3, of_parts),
    ];
    check(&cases.map(case));
}

#[test]
fn transcendentals_on_their_whole_range() {
    let (rows, cols) = (64, 512);
    let n = rows * cols;
    let case = |op| {
        let mut body = Body::default();
        let x = body.load(0, Access::full(cols));
        let value = body.unary(op, x);
        let store = Store {
            operand: 1,
            access: Access::full(cols),
            value,
        };
        let spec = Rows {
            dtype: DType::F32,
            cols,
            operands: vec![DType::F32; 2],
            uniforms: 0,
            body,
            stores: vec![store],
        };
        let spread = (0..n).map(|i| (i * ((1 << 32) / n)) as u32).collect();
        Case {
            spec: KernelSpec::Rows(spec),
            operands: vec![spread, room(n)],
            aliases: vec![],
            dims: vec![rows, 1],
            coeffs: vec![],
        }
    };
    check(&[UnaryOp::Exp, UnaryOp::Log, UnaryOp::Erf].map(case));
}

#[test]
fn gathers_scatters_and_sums_by_position_and_sequence() {
    let mut cases = vec![];
    for cols in [1u64, 3, 32, 33, 36, 100, 132, 300] {
        let (rows, entries) = (75u64, 7u64);
        let spec = Gather {
            dtype: DType::F32,
            cols,
        };
        // one entry is never named, one often
        let index: Vec<u32> = (0..rows as u32).map(|r| r * r % 6).collect();
        let (table, values) = (floats(entries * cols, 1), floats(rows * cols, 2));
        let case = |spec, operands, dims| Case {
            spec,
            operands,
            aliases: vec![],
            dims,
            coeffs: vec![],
        };
        cases.push(case(
            KernelSpec::Gather(spec.clone()),
            vec![index.clone(), table.clone(), room(rows * cols)],
            vec![rows, entries],
        ));
        cases.push(case(
            KernelSpec::ScatterAdd(spec.clone()),
            vec![index, values.clone(), table],
            vec![rows, entries],
        ));
        let keep = Keep {
            dtype: DType::F32,
            elements: DType::F32,
            cols,
            room: 7,
        };
        cases.push(case(
            KernelSpec::Keep(keep),
            vec![vec![6, 0, 3], floats(3 * cols, 4), floats(3 * 7 * cols, 5)],
            vec![3, 7],
        ));
        cases.push(case(
            KernelSpec::PositionSum(spec.clone()),
            vec![values.clone(), room(30 * cols)],
            vec![3, 25, 30],
        ));
        cases.push(case(
            KernelSpec::SequenceSum(spec),
            vec![values, room(25 * cols)],
            vec![25, 3],
        ));
    }
    // Rows of several chunks; rows of the table that share a block.
    for (rows, entries, cols) in [(2500u64, 3u64, 5u64), (150, 600, 4)] {
        let index = (0..rows as u32).map(|r| match r % 3 {
            0 => 1,
            _ => (r * r) % entries as u32,
        });
        cases.push(Case {
            spec: KernelSpec::ScatterAdd(Gather {
                dtype: DType::F32,
                cols,
            }),
            operands: vec![
                index.collect(),
                floats(rows * cols, 2),
                floats(entries * cols, 1),
            ],
            aliases: vec![],
            dims: vec![rows, entries],
            coeffs: vec![],
        });
    }
    check(&cases);
}

#[test]
fn recurrences() {
    let mut cases = vec![];
    let (batch, forms) = (
        3u64,
        [ScanForm::Whole, ScanForm::Carried, ScanForm::Backward],
    );
    let each = [1u64, 31, 32, 33, 100]
        .into_iter()
        .flat_map(|cols| [1u64, 7, 8, 21].map(|seq| (cols, seq)));
    for (cols, seq) in each {
        for (form, factors) in forms.into_iter().flat_map(|f| [(f, true), (f, false)]) {
            let rows = batch * seq * cols;
            let (given, results) = match (form, factors) {
                (ScanForm::Backward, true) => (3, 2),
                (_, true) => (2, 1),
                (_, false) => (1, 1),
            };
            let mut operands: Vec<Vec<u32>> = (0..given).map(|n| floats(rows, n)).collect();
            operands.extend((0..results).map(|_| room(rows)));
            let mut runs = vec![(operands.clone(), vec![batch, seq])];
            if form == ScanForm::Carried {
                let with = |carry: Vec<u32>| [operands.clone(), vec![carry]].concat();
                runs = vec![
                    (with(room(batch * cols)), vec![batch, seq, 0]),
                    (with(floats(batch * cols, 9)), vec![batch, seq, 5]),
                ];
            }
            let spec = Scan {
                dtype: DType::F32,
                cols,
                factors,
                form,
                chunks: 1,
            };
            cases.extend(runs.into_iter().map(|(operands, dims)| Case {
                spec: KernelSpec::Scan(spec.clone()),
                operands,
                aliases: vec![],
                dims,
                coeffs: vec![],
            }));
        }
    }
    let all = [
        ScanForm::Whole,
        ScanForm::Backward,
        ScanForm::Ends,
        ScanForm::EndsBackward,
    ];
    let all = all
        .into_iter()
        .flat_map(|form| [(form, true), (form, false)]);
    // Chunks of ten tokens and of one, and more than there are tokens.
    for (chunks, seq) in [(2, 19), (3, 30), (20, 21), (8, 3)] {
        for (form, factors) in all.clone().chain([(ScanForm::Products, true)]) {
            cases.push(case(
                KernelSpec::Scan(Scan {
                    dtype: DType::F32,
                    cols: 33,
                    factors,
                    form,
                    chunks,
                }),
                &[2, seq],
            ));
        }
    }
    check(&cases);
}

/// Numbers for all that a kernel reads, and room for what it writes.
fn case(spec: KernelSpec, dims: &[u64]) -> Case {
    let signature = spec.signature();
    let operands = signature.operands.iter().zip(1..).map(|(o, seed)| {
        let words = o.words(dims).expect("few words");
        match o.mode {
            Mode::Write => room(words),
            _ => floats(words, seed),
        }
    });
    Case {
        operands: operands.collect(),
        spec,
        aliases: vec![],
        dims: dims.to_vec(),
        coeffs: vec![],
    }
}

#[test]
fn rows_of_earlier_tokens() {
    let mut cases = vec![];
    let distances: [&[u32]; 4] = [&[1], &[3, 2, 1, 0], &[4, 0, 2], &[5]];
    for (n, cols) in [1u64, 31, 32, 33, 100].into_iter().enumerate() {
        let by = distances[n % 4].to_vec();
        let spec = Delay {
            dtype: DType::F32,
            cols,
            by,
            places: false,
        };
        let (batch, kept) = (3, 3 * spec.reach() * cols);
        cases.push(Case {
            operands: vec![
                floats(batch * cols, 1),
                vec![0, 2, 11],
                room(batch * spec.columns()),
                floats(kept, 2),
            ],
            spec: KernelSpec::Delay(Delay {
                places: true,
                ..spec.clone()
            }),
            aliases: vec![],
            dims: vec![batch, 1, 11],
            coeffs: vec![],
        });
        for (seq, past, ring) in [
            (7, 0, room(kept)),
            (1, 2, floats(kept, 2)),
            (9, 11, floats(kept, 3)),
        ] {
            cases.push(Case {
                operands: vec![
                    floats(batch * seq * cols, 1),
                    room(batch * seq * spec.columns()),
                    ring,
                ],
                spec: KernelSpec::Delay(spec.clone()),
                aliases: vec![],
                dims: vec![batch, seq, past],
                coeffs: vec![],
            });
        }
    }
    check(&cases);
}

#[test]
fn tokens_with_the_largest_scores() {
    let mut cases = vec![];
    for (n, seq) in [1u64, 7, 127, 129].into_iter().enumerate() {
        let tokens = 3 * seq;
        // Ties, numbers below all others, and what is no number.
        let mut next = noise(seq);
        let mut scores: Vec<f32> = (0..tokens).map(|_| (4.0 * next() as f32).round()).collect();
        scores.iter_mut().step_by(5).for_each(|x| *x = f32::NAN);
        let low = scores.iter_mut().step_by(7);
        low.for_each(|x| *x = f32::NEG_INFINITY);
        let scores: Vec<u32> = scores.into_iter().map(f32::to_bits).collect();
        let (of, from) = [(1, 1), (2, 3), (1, 3), (1, 1000)][n];
        cases.push(Case {
            spec: KernelSpec::TopTokens(TopTokens {
                dtype: DType::F32,
                share: Share { of, from },
            }),
            operands: vec![scores, floats(tokens, 1), room(tokens)],
            aliases: vec![],
            dims: vec![3, seq],
            coeffs: vec![],
        });
    }
    check(&cases);
}

#[test]
fn linear_attention() {
    let mut cases = vec![];
    let decays = [Decay::None, Decay::Head, Decay::Key, Decay::Value];
    let shapes = [[1, 1, 1], [2, 3, 31], [1, 16, 32], [2, 5, 33], [2, 20, 70]];
    for (n, [heads, key, value]) in shapes.into_iter().enumerate() {
        let forms = [[false, false], [true, false], [false, true]];
        let rules = forms.into_iter().flat_map(|f| [(f, false), (f, true)]);
        for ([reversed, continued], delta) in rules {
            let spec = KernelSpec::LinearAttend(LinearAttend {
                dtype: DType::F32,
                heads,
                key,
                value,
                decay: decays[(n + usize::from(reversed)) % 4],
                reversed,
                continued,
                delta,
                chunks: 1,
                part: LinearAttendPart::Results,
            });
            let past = [0, 4][n % 2];
            // Two passes of four tokens, and a token by itself.
            let dims = &[2, 9, past][..if continued { 3 } else { 2 }];
            cases.push(case(spec, dims));
        }
        use LinearAttendPart::{Ends, Results, Transitions};
        for (part, delta) in [
            (Results, false),
            (Ends, false),
            (Results, true),
            (Ends, true),
            (Transitions, true),
        ] {
            for reversed in [false, true] {
                let decay = decays[(n + usize::from(reversed)) % 4];
                let spec = KernelSpec::LinearAttend(LinearAttend {
                    dtype: DType::F32,
                    heads,
                    key,
                    value: if part == Transitions { key } else { value },
                    decay: if delta && decay == Decay::Value {
                        Decay::Key
                    } else {
                        decay
                    },
                    reversed,
                    continued: false,
                    delta,
                    chunks: 3,
                    part,
                });
                cases.push(case(spec, &[2, 13]));
            }
        }
    }
    check(&cases);
}

/// Rows of A, their copies, groups, columns of the result, inner columns.
const GROUPED: [[u64; 5]; 5] = [
    [1, 1, 1, 1, 1],
    [9, 2, 3, 5, 7],
    [40, 2, 4, 68, 33],
    [150, 1, 2, 64, 20],
    [530, 2, 3, 4, 4],
];

#[test]
fn rows_meet_the_matrix_of_their_group() {
    let mut cases = vec![];
    let sizes = (0..).zip(GROUPED).flat_map(|of| [(of, false), (of, true)]);
    for ((i, [tokens, copies, groups, n, k]), partial) in sizes {
        let spec = |layout, factors: [DType; 2]| Grouped {
            dtype: DType::F32,
            factors,
            // What is stored as it is may be rounded too.
            rounded: i == 3 || factors != [DType::F32; 2],
            of: Groups {
                groups,
                copies,
                n,
                k,
                partial,
            },
            layout,
            blocking: blocking(),
            order: Order::Chain,
        };
        let rows = tokens * copies;
        // to all groups, all to one, to all but one, numbers that are not whole
        let number = |r: u64| match i {
            1 => [f32::NAN, -1.0, 1.5, 9.0][r as usize % 4],
            3 => 1.0,
            // of three rows one is of no group, in both ranges
            4 if partial => (r % 3) as f32 - 1.0,
            4 => (r % 2 * 2) as f32,
            _ if partial && r % 3 == 1 => -1.0,
            _ => ((r * r + r / 3) % groups) as f32,
        };
        let numbers: Vec<u32> = (0..rows).map(|r| number(r).to_bits()).collect();
        let half = DType::Bf16;
        let factors = [[DType::F32; 2], [half, DType::F32], [half; 2]][i as usize % 3];
        let (a, b) = (tokens * k, groups * n * k);
        let d = of_type(factors[0], rows * n, i + 20);
        let mut case = |spec, operands: [Vec<u32>; 3]| {
            cases.push(Case {
                spec,
                operands: [vec![numbers.clone()], operands.into()].concat(),
                aliases: vec![],
                dims: vec![tokens],
                coeffs: vec![],
            })
        };
        for layout in [Layout::Rows, Layout::Columns] {
            let (a, b) = (of_type(factors[0], a, i), of_type(factors[1], b, i + 10));
            let operands = [a, b, room(rows * n)];
            case(KernelSpec::Grouped(spec(layout, factors)), operands);
        }
        let operands = [d, of_type(factors[1], a, i), room(b)];
        let spec = spec(Layout::Columns, factors);
        case(KernelSpec::GroupedOuter(spec), operands);
    }
    check(&cases);
}
