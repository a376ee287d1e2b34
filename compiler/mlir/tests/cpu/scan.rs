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

/// A launch of whole sequences.
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
        chunks: 1,
    };
    let after = real(&[given, results].concat());
    Case {
        spec,
        dims,
        before,
        after,
    }
}

/// The launches of a recurrence in chunks, or of its derivative: what chunks leave, and all of it.
fn in_chunks(cols: usize, factors: bool, backward: bool, chunks: usize) -> Vec<Case> {
    let mut next = noise((cols + 7 * chunks) as u64);
    let rows = BATCH * SEQ * cols;
    let mut random = || -> Vec<f32> { (0..rows).map(|_| next() as f32).collect() };
    let (a, b, h) = (random(), random(), random());
    let each = SEQ.div_ceil(chunks);
    let (mut products, mut ends) = (
        vec![0.0; BATCH * chunks * cols],
        vec![0.0; BATCH * chunks * cols],
    );
    let (mut out, mut slopes) = (vec![0.0; rows], vec![0.0; rows]);
    for n in 0..BATCH * cols {
        let (sequence, c) = (n / cols, n % cols);
        let at = |t: usize| (sequence * SEQ + t) * cols + c;
        let part = |chunk: usize| (sequence * chunks + chunk) * cols + c;
        let tokens = |chunk: usize| (chunk * each).min(SEQ)..((chunk + 1) * each).min(SEQ);
        for chunk in 0..chunks {
            products[part(chunk)] = tokens(chunk).fold(1.0, |p, t| p * a[at(t)]);
            ends[part(chunk)] = match backward {
                false => {
                    tokens(chunk).fold(0.0, |h, t| step(factors.then_some(a[at(t)]), h, b[at(t)]))
                }
                true => tokens(chunk).rev().fold(0.0, |x, t| {
                    (x + b[at(t)]) * if factors { a[at(t)] } else { 1.0 }
                }),
            };
        }
        let left = |x: f32, chunk: usize| {
            step(
                factors.then_some(products[part(chunk)]),
                x,
                ends[part(chunk)],
            )
        };
        for chunk in 0..chunks {
            if backward {
                let mut behind = 1.0;
                let mut g = (chunk + 1..chunks).rev().fold(0.0, left);
                for t in tokens(chunk).rev() {
                    g = step(factors.then_some(behind), g, b[at(t)]);
                    behind = a[at(t)];
                    out[at(t)] = g;
                    slopes[at(t)] = if t > 0 { g * h[at(t - 1)] } else { 0.0 };
                }
            } else {
                let mut state = (0..chunk).fold(0.0, left);
                for t in tokens(chunk) {
                    state = step(factors.then_some(a[at(t)]), state, b[at(t)]);
                    out[at(t)] = state;
                }
            }
        }
    }
    let some = |there: bool, x: &Vec<f32>| there.then(|| x.clone());
    let launch = |form, given: Vec<Option<Vec<f32>>>, results: Vec<Option<Vec<f32>>>| {
        let (given, results): (Vec<_>, Vec<_>) = (
            given.into_iter().flatten().collect(),
            results.into_iter().flatten().collect(),
        );
        let real = |x: &Vec<f32>| Buffer::Real(x.clone());
        let nothing = |x: &Vec<f32>| Buffer::nan(x.len());
        Case {
            spec: Scan {
                dtype: DType::F32,
                cols: cols as u64,
                factors,
                form,
                chunks: chunks as u64,
            },
            dims: vec![BATCH as u64, SEQ as u64],
            before: given
                .iter()
                .map(real)
                .chain(results.iter().map(nothing))
                .collect(),
            after: given.iter().chain(&results).map(real).collect(),
        }
    };
    let (form, of_ends) = match backward {
        false => (ScanForm::Whole, ScanForm::Ends),
        true => (ScanForm::Backward, ScanForm::EndsBackward),
    };
    let (own, derives) = (some(factors, &a), factors && backward);
    let whole = vec![
        own.clone(),
        some(derives, &h),
        Some(b.clone()),
        some(factors, &products),
        Some(ends.clone()),
    ];
    let mut launches = vec![
        launch(of_ends, vec![own.clone(), Some(b)], vec![Some(ends)]),
        launch(form, whole, vec![some(derives, &slopes), Some(out)]),
    ];
    if factors {
        launches.push(launch(ScanForm::Products, vec![own], vec![Some(products)]));
    }
    launches
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
    let mut cases: Vec<Case> = both.collect();
    // Chunks of several tokens, the last one shorter; and more of them than tokens.
    for (cols, chunks) in [(1, 2), (65, 4), (200, 3), (16, 20)] {
        for (factors, backward) in [(true, true), (true, false), (false, true), (false, false)] {
            cases.extend(in_chunks(cols, factors, backward, chunks));
        }
    }
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
            chunks: 1,
        }),
    };
    insta::assert_snapshot!(odec_mlir::mlir_text(&kernel, Target::Avx512).unwrap());
}
