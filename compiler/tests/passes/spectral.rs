//! `constrain spectral`: a round of the optimiser step against its equations in f64, where many rounds lead, what stays alone, and runs.

use crate::numbers::{close, executor};
use crate::plain::times;
use crate::source;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::Bindings;
use odec_program::manifest::{Manifest, Param, added};
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::train::run::Run;
use odec_runtime::{Artifact, DeviceChoice, Executor, Settings, Show, State, open_run};
use std::path::Path;

fn manifest(train: &str) -> Manifest {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, kv_heads: 1, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 12)\n\
         model small {{\n  input tokens(vocab: 256, context: 8)\n  embed learned(width: 8)\n  \
         evolve lie(att, ffn) for 2 steps {{ weights per step, att shared }}\n  output rmsnorm |> logits(tied)\n  \
         init normal(std: 0.4) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 2e-2)\n\
         batch 2;  steps 6;  {train} }}\n"
    );
    let built = source::built(&text);
    build_manifest(&built, &text, options()).unwrap().manifest
}

/// A step that changes nothing but what the bound asks for.
fn round(e: &mut Executor) {
    let named = [("lr", 0.0), ("bias1", 1.0), ("bias2", 1.0)];
    e.run("update", Bindings::new(1, 1), &[], &named).unwrap();
}

fn values(e: &Executor, p: &Param) -> Vec<f64> {
    e.of(State::Params, p).iter().collect()
}

fn all(e: &Executor) -> Vec<Vec<f64>> {
    let params = e.manifest().params.clone();
    params.iter().map(|p| values(e, p)).collect()
}

/// Matrices with their vectors.
fn bounded(m: &Manifest) -> Vec<(Param, Param)> {
    let find = |path: &str| m.params.iter().find(|p| p.path == path).unwrap().clone();
    let of = |u: &Param| Some((find(u.path.strip_suffix(added::SPECTRAL)?), u.clone()));
    m.params.iter().filter_map(of).collect()
}

fn length(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn transposed_times(w: &[f64], x: &[f64]) -> Vec<f64> {
    let cols = w.len() / x.len();
    (0..cols)
        .map(|c| x.iter().enumerate().map(|(r, x)| w[r * cols + c] * x).sum())
        .collect()
}

/// The largest singular value: the root of the largest eigenvalue of WᵀW, by Jacobi's rotations.
fn spectral_norm(w: &[f64], cols: usize) -> f64 {
    let mut a = vec![vec![0.0; cols]; cols];
    for row in w.chunks(cols) {
        for (i, x) in row.iter().enumerate() {
            row.iter().enumerate().for_each(|(j, y)| a[i][j] += x * y);
        }
    }
    for _ in 0..30 {
        for p in 0..cols {
            for q in p + 1..cols {
                if a[p][q].abs() < 1e-300 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for row in &mut a {
                    let (x, y) = (row[p], row[q]);
                    (row[p], row[q]) = (c * x - s * y, s * x + c * y);
                }
                let (above, below) = a.split_at_mut(q);
                for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
            }
        }
    }
    let largest = (0..cols).map(|i| a[i][i]).fold(0.0, f64::max);
    largest.sqrt()
}

#[test]
fn a_round_is_its_equations() {
    let max = 0.75;
    let m = manifest("constrain spectral(max: 3/4)");
    let mut e = executor(&m);
    let before = all(&e);
    round(&mut e);
    let pairs = bounded(&m);
    // q, k, v, o once; gate, up, down in each of two steps.
    assert_eq!(pairs.len(), 10);
    let at = |p: &Param| m.params.iter().position(|q| q.path == p.path).unwrap();
    let mut cut = 0;
    for (w, u) in &pairs {
        let (old, vector) = (&before[at(w)], &before[at(u)]);
        let t = transposed_times(old, vector);
        let size = length(&t);
        let v: Vec<f64> = t.iter().map(|t| t / size).collect();
        let s = times(old, &v);
        let sigma = length(&s);
        assert!(
            sigma <= spectral_norm(old, v.len()) * (1.0 + 1e-12),
            "{}",
            w.path
        );
        cut += usize::from(sigma > max);
        let scale = (max / sigma).min(1.0);
        let wanted = |x: &[f64], by: f64| x.iter().map(|x| x * by).collect::<Vec<f64>>();
        let got = |p: &Param| e.of(State::Params, p).f32().to_vec();
        close(&w.path, &got(w), &wanted(old, scale), 1e-5);
        close(&u.path, &got(u), &wanted(&s, 1.0 / sigma), 1e-5);
    }
    assert!(cut > 5, "{cut} matrices are cut");
    // Nothing else moved.
    let after = all(&e);
    for (n, p) in m.params.iter().enumerate() {
        let is = pairs
            .iter()
            .any(|(w, u)| [&w.path, &u.path].contains(&&p.path));
        assert!(is || before[n] == after[n], "{}", p.path);
    }
    assert!(m.trained().all(|p| !added::is(&p.path)));
}

#[test]
fn rounds_lead_to_the_bound() {
    let max = 0.75;
    let m = manifest("constrain spectral(max: 3/4)");
    let mut e = executor(&m);
    let norms = |e: &Executor| -> Vec<f64> {
        let pairs = bounded(&m);
        let norm = |(w, _): &(Param, Param)| spectral_norm(&values(e, w), w.shape[1] as usize);
        pairs.iter().map(norm).collect()
    };
    let first = norms(&e);
    for _ in 0..300 {
        round(&mut e);
    }
    for (first, last) in first.into_iter().zip(norms(&e)) {
        assert!(
            (last - first.min(max)).abs() < 1e-4,
            "{first} becomes {last}"
        );
    }
}

#[test]
fn what_is_within_the_bound_keeps_its_bits() {
    let m = manifest("constrain spectral(max: 100)");
    let mut e = executor(&m);
    let pairs = bounded(&m);
    // One that is 0, whose vector has nowhere to go.
    let (w, u) = &pairs[3];
    let at = w.offset as usize / 4;
    e.state_mut(State::Params).f32()[at..at + w.elements() as usize].fill(0.0);
    let (before, vector) = (all(&e), values(&e, u));
    round(&mut e);
    let after = all(&e);
    for (n, p) in m.params.iter().enumerate() {
        let moves = p.path.ends_with(added::SPECTRAL) && p.path != u.path;
        assert_eq!(before[n] == after[n], !moves, "{}", p.path);
    }
    assert_eq!(values(&e, u), vector);

    // So does everything, where the gradient is not finite.
    let m = manifest("constrain spectral(max: 1/100)");
    let mut e = executor(&m);
    e.state_mut(State::Grads).f32()[0] = f32::NAN;
    let before = all(&e);
    round(&mut e);
    assert!(before == all(&e));
}

fn train(manifest: &Manifest, folder: &Path, name: &str, sittings: &[u64]) -> Vec<u8> {
    let artifact = Artifact::in_memory(manifest.clone()).unwrap();
    let out = folder.join(name);
    for (n, steps) in sittings.iter().enumerate() {
        let s = Settings {
            data: vec![folder.join("corpus.txt")],
            steps: Some(*steps),
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            evaluations: 0,
            ..Settings::default()
        };
        let run = match n {
            0 => Run::start(&artifact, &out, &s),
            _ => Run::resume(&out, &s),
        };
        run.unwrap().finish(&s).unwrap();
    }
    let bytes = std::fs::read(out.join(CHECKPOINT)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].to_vec()
}

#[test]
fn a_run_keeps_to_it_and_is_resumed_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(20);
    std::fs::write(dir.path().join("corpus.txt"), text).unwrap();
    let with = manifest("constrain spectral(max: 1)");
    let whole = train(&with, dir.path(), "whole", &[30]);
    assert!(whole == train(&with, dir.path(), "parts", &[1, 17, 30]));
    train(&manifest(""), dir.path(), "free", &[30]);
    let largest = |run: &str| {
        let x = open_run(&dir.path().join(run), DeviceChoice::Reference, None).unwrap();
        let norms = bounded(&with).into_iter().map(|(w, _)| {
            let w = x
                .manifest()
                .params
                .iter()
                .find(|p| p.path == w.path)
                .unwrap();
            spectral_norm(&values(&x, w), w.shape[1] as usize)
        });
        norms.fold(0.0, f64::max)
    };
    let (with, free) = (largest("whole"), largest("free"));
    assert!(with < 1.05 && free > 1.5, "{with} and {free}");
}
