//! Recurrences along tokens against loops over tokens, bit for bit.

use crate::harness::{Buffer, Compiled, assert_same, noise, targets};
use odec_program::kernel::{Scan, ScanForm};
use odec_program::{DType, KernelSpec, Target};

const BATCH: usize = 3;
const SEQ: usize = 9;
/// Less than a vector, whole tiles, and ragged ones behind whole ones.
const COLS: [usize; 6] = [1, 15, 16, 64, 65, 200];

/// The operands of a launch and what they are after it, beginning where `past` says.
struct Case {
    spec: Scan,
    dims: Vec<u64>,
    before: Vec<Buffer<f32>>,
    after: Vec<Buffer<f32>>,
}

/// `a · h + b`, or `h + b`.
fn step(a: Option<f32>, h: f32, b: f32) -> f32 {
    a.map_or(h + b, |a| a.mul_add(h, b))
}

fn case(cols: usize, factors: bool, form: ScanForm, past: u64) -> Case {
    let mut next = noise(cols as u64);
    let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| next() as f32).collect() };
    let rows = BATCH * SEQ * cols;
    let (a, b, h, carry) = (
        random(rows),
        random(rows),
        random(rows),
        random(BATCH * cols),
    );
    let (mut out, mut slopes, mut end) =
        (vec![0.0; rows], vec![0.0; rows], vec![0.0; BATCH * cols]);
    for n in 0..BATCH * cols {
        let (sequence, c) = (n / cols, n % cols);
        let at = |t: usize| (sequence * SEQ + t) * cols + c;
        let mut state = if past > 0 { carry[n] } else { 0.0 };
        match form {
            ScanForm::Backward => {
                for t in (0..SEQ).rev() {
                    let behind = if t + 1 < SEQ { a[at(t + 1)] } else { 0.0 };
                    state = step(factors.then_some(behind), state, b[at(t)]);
                    out[at(t)] = state;
                    slopes[at(t)] = if t > 0 { state * h[at(t - 1)] } else { 0.0 };
                }
            }
            _ => {
                for t in 0..SEQ {
                    state = step(factors.then_some(a[at(t)]), state, b[at(t)]);
                    out[at(t)] = state;
                }
            }
        }
        end[n] = state;
    }
    let given = match (factors, form) {
        (false, _) => vec![b],
        (true, ScanForm::Backward) => vec![a, h, b],
        (true, _) => vec![a, b],
    };
    let mut results = match (factors, form) {
        (true, ScanForm::Backward) => vec![slopes, out],
        _ => vec![out],
    };
    let real = |all: &[Vec<f32>]| all.iter().cloned().map(Buffer::Real).collect::<Vec<_>>();
    let mut before = real(&given);
    before.extend(results.iter().map(|r| Buffer::nan(r.len())));
    let mut dims = vec![BATCH as u64, SEQ as u64];
    if form == ScanForm::Carried {
        dims.push(past);
        results.push(end);
        // Nothing of what is there before the first run is read.
        before.push(match past {
            0 => Buffer::nan(BATCH * cols),
            _ => Buffer::Real(carry),
        });
    }
    let spec = Scan {
        dtype: DType::F32,
        cols: cols as u64,
        factors,
        form,
    };
    let after = real(&[given, results].concat());
    Case {
        spec,
        dims,
        before,
        after,
    }
}

#[test]
fn recurrences_on_every_target() {
    let forms = [
        (ScanForm::Whole, 0),
        (ScanForm::Carried, 0),
        (ScanForm::Carried, 4),
        (ScanForm::Backward, 0),
    ];
    let each = COLS
        .into_iter()
        .flat_map(|cols| forms.map(|form| (cols, form)));
    let both =
        each.flat_map(|(cols, (form, past))| [true, false].map(|f| case(cols, f, form, past)));
    let cases: Vec<Case> = both.collect();
    for target in targets() {
        let mut specs: Vec<KernelSpec> = Vec::new();
        for c in &cases {
            let spec = KernelSpec::Scan(c.spec.clone());
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
        let compiled = Compiled::new(&specs, target);
        for c in &cases {
            let spec = KernelSpec::Scan(c.spec.clone());
            let number = specs.iter().position(|s| *s == spec).expect("compiled");
            let tiles = spec.tiles(&c.dims);
            let got = compiled.run(
                number,
                &c.before,
                &[],
                &c.dims,
                &[],
                &[tiles / 2..tiles, 0..tiles / 2],
            );
            for (got, want) in got.iter().zip(&c.after) {
                assert_same(got, want, &format!("{target}, {:?}", c.spec));
            }
        }
    }
}

#[test]
fn text_of_a_recurrence() {
    let kernel = odec_program::Kernel {
        symbol: "scan".into(),
        spec: KernelSpec::Scan(Scan {
            dtype: DType::F32,
            cols: 16,
            factors: true,
            form: ScanForm::Carried,
        }),
    };
    insta::assert_snapshot!(odec_mlir::mlir_text(&kernel, Target::Avx512).unwrap());
}
