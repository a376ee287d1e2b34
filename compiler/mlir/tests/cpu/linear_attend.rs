//! Compiled linear attention against the scalar evaluator, bit for bit, and against sums over pairs of tokens in f64.

use crate::harness::{Buffer, Compiled, assert_same, evaluated, noise, targets};
use odec_program::kernel::{Decay, KernelSpec, LinearAttend, LinearAttendPart, Mode};
use odec_program::real::Real;
use odec_program::{Kernel, Target};

/// Operands of a launch, results full of NaN.
fn operands<T: Real>(spec: &LinearAttend, dims: &[u64]) -> Vec<Buffer<T>> {
    let signature = KernelSpec::LinearAttend(spec.clone()).signature();
    let mut next = noise(spec.key * 97 + spec.value);
    let each = signature.operands.iter().map(|o| {
        let n = o.elements(dims).expect("few elements");
        let numbers: Vec<f64> = (0..n).map(|_| next()).collect();
        match o.name {
            _ if o.mode == Mode::Write => Buffer::nan(numbers.len()),
            "decay" | "products" => {
                Buffer::from_fn(numbers.len(), |i| 0.5 + 0.5 * numbers[i].abs())
            }
            _ => Buffer::from_fn(numbers.len(), |i| numbers[i]),
        }
    });
    each.collect()
}

fn spec<T: Real>([heads, key, value]: [u64; 3], decay: Decay) -> LinearAttend {
    LinearAttend {
        dtype: T::DTYPE,
        heads,
        key,
        value,
        decay,
        reversed: false,
        continued: false,
        delta: false,
        chunks: 1,
        part: LinearAttendPart::Results,
    }
}

fn check<T: Real>(shapes: &[[u64; 3]]) {
    let decays = [Decay::None, Decay::Head, Decay::Key, Decay::Value];
    let mut specs = vec![];
    for (shape, decay) in shapes.iter().zip(decays.iter().cycle()) {
        let whole = spec::<T>(*shape, *decay);
        let reversed = LinearAttend {
            reversed: true,
            decay: decays[(*decay as usize + 1) % 4],
            ..whole.clone()
        };
        let continued = LinearAttend {
            continued: true,
            ..whole.clone()
        };
        specs.extend([whole, reversed, continued]);
    }
    let corrected = |spec: &LinearAttend| LinearAttend {
        delta: true,
        ..spec.clone()
    };
    let rules: Vec<LinearAttend> = specs.iter().map(corrected).collect();
    specs.extend(rules);
    // Chunks of four tokens, the last of two; more chunks than tokens; what they leave.
    for (n, shape) in shapes.iter().enumerate() {
        let chunks = if n == 2 { 20 } else { 3 };
        for reversed in [false, true] {
            let decay = decays[(n + usize::from(reversed)) % 4];
            let whole = LinearAttend {
                chunks,
                reversed,
                ..spec::<T>(*shape, decay)
            };
            let part = |part, delta, whole: &LinearAttend| LinearAttend {
                part,
                delta,
                ..whole.clone()
            };
            use LinearAttendPart::{Ends, Results, Transitions};
            specs.extend([Results, Ends].map(|p| part(p, false, &whole)));
            if decay != Decay::Value {
                specs.extend([Results, Ends].map(|p| part(p, true, &whole)));
                let square = LinearAttend {
                    value: whole.key,
                    ..whole
                };
                specs.push(part(Transitions, true, &square));
            }
        }
    }
    for target in targets() {
        let kernels: Vec<KernelSpec> = specs
            .iter()
            .cloned()
            .map(KernelSpec::LinearAttend)
            .collect();
        let compiled = Compiled::new(&kernels, target);
        for (n, spec) in specs.iter().enumerate() {
            for past in [0, 5] {
                // Two passes of four tokens, and two tokens by themselves.
                let dims = &[2, 10, past][..if spec.continued { 3 } else { 2 }];
                let given = operands::<T>(spec, dims);
                let wanted = evaluated(&kernels[n], &given, dims, &[]);
                let tiles = kernels[n].tiles(dims);
                let split = [tiles / 2..tiles, 0..tiles / 2];
                let got = compiled.run(n, &given, &[], dims, &[], &split);
                for (got, wanted) in got.iter().zip(&wanted) {
                    assert_same(got, wanted, &format!("{target}, {spec:?} after {past}"));
                }
            }
        }
    }
}

#[test]
fn compiled_code_gives_the_bits_of_the_evaluator() {
    check::<f32>(&[[1, 1, 1], [2, 3, 15], [1, 16, 64], [3, 5, 65], [2, 20, 40]]);
    check::<f64>(&[[2, 3, 15], [3, 5, 65], [1, 16, 64]]);
}

/// The evaluator itself, against the other form of linear attention.
#[test]
fn the_evaluator_sums_over_pairs() {
    let (heads, n, m, seq) = (2, 5, 9, 40);
    let spec = spec::<f32>([heads, n, m], Decay::Key);
    let dims = [1, seq];
    let given = operands::<f32>(&spec, &dims);
    let found = evaluated(&KernelSpec::LinearAttend(spec), &given, &dims, &[]);
    let real = |operand: usize, row: u64, cols: u64, c: u64| {
        f64::from(given[operand].real()[(row * cols + c) as usize])
    };
    for (t, h, j) in (0..seq * heads * m).map(|x| (x / m / heads, x / m % heads, x % m)) {
        let row = |s: u64| s * heads + h;
        let mut o = 0.0;
        for (s, i) in (0..(t + 1) * n).map(|x| (x / n, x % n)) {
            let faded: f64 = (s + 1..t + 1).map(|u| real(3, row(u), n, i)).product();
            o += real(0, row(t), n, i) * faded * real(1, row(s), n, i) * real(2, row(s), m, j);
        }
        let got = f64::from(found[4].real()[(row(t) * m + j) as usize]);
        assert!((got - o).abs() < 1e-5, "token {t}: {got} is not {o}");
    }
}

/// A text in pieces gives the bits of the whole text, on every target.
#[test]
fn pieces_are_the_whole() {
    for delta in [false, true] {
        pieces(LinearAttend {
            delta,
            ..spec::<f32>([2, 6, 18], Decay::Head)
        });
    }
}

fn pieces(whole: LinearAttend) {
    let continued = LinearAttend {
        continued: true,
        ..whole.clone()
    };
    let given = operands::<f32>(&whole, &[1, 11]);
    let specs = [whole.clone(), continued.clone()].map(KernelSpec::LinearAttend);
    for target in targets() {
        let compiled = Compiled::new(&specs, target);
        let all = |n: usize, dims: &[u64]| [0..specs[n].tiles(dims)];
        let want = compiled.run(0, &given, &[], &[1, 11], &[], &all(0, &[1, 11]));
        let mut matrices = Buffer::nan(2 * 6 * 18);
        let mut read = vec![];
        for (from, to) in [(0, 4), (4, 5), (5, 11)] {
            let dims = [1, to - from, from];
            let rows = |b: &Buffer<f32>| {
                let each = b.real().len() as u64 / 11;
                Buffer::Real(b.real()[(from * each) as usize..(to * each) as usize].to_vec())
            };
            let mut piece: Vec<Buffer<f32>> = given.iter().map(rows).collect();
            piece.push(matrices);
            let mut got = compiled.run(1, &piece, &[], &dims, &[], &all(1, &dims));
            matrices = got.pop().expect("matrices");
            read.extend_from_slice(got[4].real());
        }
        assert_same(&Buffer::Real(read), &want[4], &format!("{target}"));
    }
}

/// What each loop over the rows of the matrix does to a row: fused multiply-adds, loads and stores of vectors; on a GPU, of numbers.
fn row_loops(spec: &LinearAttend, target: Target) -> Vec<[usize; 3]> {
    let ty = if target.is_gpu() { "f32" } else { "vector<16x" };
    let kernel = Kernel {
        symbol: "k".into(),
        spec: KernelSpec::LinearAttend(spec.clone()),
    };
    let text = odec_mlir::mlir_text(&kernel, target).unwrap();
    let loops = text.split("scf.for").skip(1).map(|rest| {
        let body = rest.lines().take_while(|line| line.trim() != "}");
        let lines: Vec<&str> = body.filter(|line| line.contains(ty)).collect();
        ["intr.fma", "llvm.load", "llvm.store"]
            .map(|word| lines.iter().filter(|line| line.contains(word)).count())
    });
    loops.filter(|[products, ..]| *products > 0).collect()
}

/// The matrix is loaded and stored once for as many tokens as the registers serve.
#[test]
fn tokens_share_a_pass_over_the_matrix() {
    let alone = [2, 1, 1];
    let of = |target, spec: LinearAttend| row_loops(&spec, target);
    let (narrow, wide) = (
        spec::<f32>([1, 3, 16], Decay::None),
        spec::<f64>([1, 3, 16], Decay::None),
    );
    assert_eq!(of(Target::Avx512, narrow.clone()), [[8, 1, 1], alone]);
    assert_eq!(of(Target::Avx512, wide.clone()), [[8, 1, 1], alone]);
    assert_eq!(of(Target::Avx2, narrow.clone()), [[4, 1, 1], alone]);
    assert_eq!(of(Target::Avx2, wide), [alone]);
    let of_keys = spec::<f32>([1, 3, 16], Decay::Key);
    assert_eq!(of(Target::Avx512, of_keys), [alone]);
    // Each token's query and key are loaded as well.
    assert_eq!(of(Target::Sm80, narrow), [[8, 9, 1], [2, 3, 1]]);
}

/// A pass adds what the matrix missed of one token and reads for the next; before the first, one reads alone.
#[test]
fn a_correction_and_the_next_reading_share_a_pass() {
    let delta = LinearAttend {
        delta: true,
        ..spec::<f32>([1, 3, 16], Decay::None)
    };
    assert_eq!(row_loops(&delta, Target::Avx512), [[1, 1, 1], [2, 1, 1]]);
    let continued = LinearAttend {
        continued: true,
        ..delta
    };
    let last = [1, 1, 1];
    let wanted = [[1, 1, 1], [2, 1, 1], last];
    assert_eq!(row_loops(&continued, Target::Avx512), wanted);
}
