//! The `update` entry of every optimiser against its equations in f64, and runs that are resumed.

use crate::numbers::executor;
use crate::source;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_compiler::passes::layout::matrices;
use odec_program::Bindings;
use odec_program::choice::Choices;
use odec_program::manifest::{Manifest, Param, Train, added};
use odec_program::optimizers::OptimizerKind;
use odec_program::schedules::ScheduleKind;
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::train::run::Run;
use odec_runtime::{
    Artifact, DeviceChoice, End, Executor, Settings, Show, State, Unsigned, Weights, dataset_of,
    evaluate, open_run_with,
};
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

const KEPT: [State; 2] = [State::Moment1, State::Moment2];
const RATE: f64 = 0.03;

/// A model whose matrices and vectors fill more than one row each.
fn manifest(train: &str) -> Manifest {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 12)\n\
         model small {{\n  input tokens(vocab: 256, context: 8)\n  embed learned(width: 8)\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  batch 2;  steps 6;  {train} }}\n"
    );
    let built = source::built(&text);
    build_manifest(&built, &text, options()).unwrap().manifest
}

/// Groups of parameters: with other arguments, of vectors that decay, and with optimisers that keep less or more than the first.
const GROUPS: [&str; 3] = [
    "adamw(lr: 1e-3, weight_decay: 0.1) except norm, embed { lr: 2e-3, weight_decay: 0.2, betas: (0.8, 0.9) }",
    "sgd(lr: 0.1) except att { weight_decay: 0.1 } except att.q, step.1 by adamw(lr: 0.02, weight_decay: 0.1)",
    "adamw(lr: 1e-3) except matrices by lion(lr: 1e-4, weight_decay: 1) except vectors by sgd(lr: 0.1)",
];

/// Every example of every optimiser, and optimisers with groups.
fn examples() -> impl Iterator<Item = &'static str> {
    let all = OptimizerKind::all().into_iter();
    let all = all.flat_map(|o| o.examples().iter().map(|e| e.text));
    all.chain(GROUPS)
}

/// A parameter, with what is kept beside it: its states, and what a whole matrix has.
struct Kept {
    numbers: Vec<f64>,
    states: [Vec<f64>; 2],
    /// Of rows and of columns.
    beside: [Vec<f64>; 2],
}

/// A parameter after step `t` of this rate, written out in f64.
fn stepped(o: &OptimizerKind, at: (i32, f64), p: &Param, g: &[f64], from: &Kept) -> Kept {
    let beside = from.beside.clone();
    let each = |next: &dyn Fn([f64; 4]) -> (f64, [f64; 2])| {
        let of = |n: usize| [from.numbers[n], g[n], from.states[0][n], from.states[1][n]];
        let all: Vec<_> = (0..g.len()).map(|n| next(of(n))).collect();
        Kept {
            numbers: all.iter().map(|(x, _)| *x).collect(),
            states: [0, 1].map(|n| all.iter().map(|(_, s)| s[n]).collect()),
            beside: beside.clone(),
        }
    };
    let decay = |x: f64| if p.decay { x } else { 0.0 };
    let (t, rate) = at;
    match o {
        OptimizerKind::AdamW(o) => each(&|[p, g, a, b]| {
            let (m, v) = (
                o.betas.0 * a + (1.0 - o.betas.0) * g,
                o.betas.1 * b + (1.0 - o.betas.1) * g * g,
            );
            let (mean, variance) = (m / (1.0 - o.betas.0.powi(t)), v / (1.0 - o.betas.1.powi(t)));
            let moved = mean / (variance.sqrt() + o.eps) + decay(o.weight_decay) * p;
            (p - rate * moved, [m, v])
        }),
        OptimizerKind::Sgd(o) => each(&|[p, g, a, _]| {
            let u = o.momentum * a + g + decay(o.weight_decay) * p;
            (p - rate * u, [if o.momentum > 0.0 { u } else { 0.0 }, 0.0])
        }),
        OptimizerKind::Lion(o) => each(&|[p, g, a, _]| {
            let direction = o.betas.0 * a + (1.0 - o.betas.0) * g;
            let sign = if direction == 0.0 {
                0.0
            } else {
                direction.signum()
            };
            let moved = sign + decay(o.weight_decay) * p;
            (
                p - rate * moved,
                [o.betas.1 * a + (1.0 - o.betas.1) * g, 0.0],
            )
        }),
        // Shazeer & Stern 2018, algorithms 4 (matrices, with sums) and 5 (vectors), and section 8 for relative steps.
        OptimizerKind::Adafactor(o) => {
            let keep = 1.0 - f64::from(t).powf(-o.power);
            let [rows, cols] = shape(p);
            let blend = |old: f64, new: f64| keep * old + (1.0 - keep) * new;
            let square = |i: usize, j: usize| g[i * cols + j].powi(2) + o.eps;
            let mut beside = from.beside.clone();
            for (i, r) in beside[0].iter_mut().enumerate() {
                let all: f64 = (0..cols).map(|j| square(i, j)).sum();
                *r = blend(*r, all / cols as f64);
            }
            for (j, c) in beside[1].iter_mut().enumerate() {
                let all: f64 = (0..rows).map(|i| square(i, j)).sum();
                *c = blend(*c, all / rows as f64);
            }
            // With sums R and C of the paper V = R C / Σ R; these are means.
            let sums = [cols, rows].into_iter().zip(&beside);
            let sums: Vec<Vec<f64>> = sums
                .map(|(n, means)| means.iter().map(|x| x * n as f64).collect())
                .collect();
            let all: f64 = sums[0].iter().sum();
            let u = |n: usize| g[n] / (sums[0][n / cols] * sums[1][n % cols] / all).sqrt();
            let u: Vec<f64> = (0..g.len()).map(u).collect();
            let rms = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
            let relative = match o.step {
                "relative" => rms(&from.numbers).max(1e-3),
                _ => 1.0,
            };
            let scale = rate * relative / (rms(&u) / o.clip).max(1.0);
            let keep = 1.0 - rate * decay(o.weight_decay);
            let numbers = from
                .numbers
                .iter()
                .zip(&u)
                .map(|(p, u)| p * keep - scale * u);
            Kept {
                numbers: numbers.collect(),
                states: from.states.clone(),
                beside,
            }
        }
        // `zeropower_via_newtonschulz5` and `muon_update` of Jordan's `muon.py`, whose momentum is a sum here.
        OptimizerKind::Muon(o) => {
            let [rows, cols] = shape(p);
            let kept = from.states[0].iter().zip(g);
            let u: Vec<f64> = kept.map(|(u, g)| o.momentum * u + g).collect();
            let d = u.iter().zip(g).map(|(u, g)| g + o.momentum * u);
            let d: Vec<f64> = d.collect();
            let norm = d.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
            let d: Vec<f64> = d.into_iter().map(|x| x / norm).collect();
            let tall = rows > cols;
            let (mut x, n) = match tall {
                true => (transposed(&d, rows), cols),
                false => (d, rows),
            };
            for _ in 0..5 {
                let a = product(&x, &transposed(&x, n), n);
                let aa = product(&a, &a, n);
                let b: Vec<f64> = a
                    .iter()
                    .zip(&aa)
                    .map(|(a, aa)| -4.7750 * a + 2.0315 * aa)
                    .collect();
                let bx = product(&b, &x, n);
                x = x.iter().zip(&bx).map(|(x, bx)| 3.4445 * x + bx).collect();
            }
            let x = if tall { transposed(&x, cols) } else { x };
            let scale = (rows as f64 / cols as f64).max(1.0).sqrt();
            let keep = 1.0 - rate * decay(o.weight_decay);
            let numbers = from
                .numbers
                .iter()
                .zip(&x)
                .map(|(p, x)| p * keep - rate * scale * x);
            Kept {
                numbers: numbers.collect(),
                states: [u, from.states[1].clone()],
                beside: from.beside.clone(),
            }
        }
    }
}

/// Rows and columns; a vector is one row.
fn shape(p: &Param) -> [usize; 2] {
    let [count, rows, cols] = matrices(&p.path, &p.shape);
    assert_eq!(count, 1);
    [rows, cols].map(|n| n as usize)
}

/// The other way round, of so many rows.
fn transposed(x: &[f64], rows: usize) -> Vec<f64> {
    let cols = x.len() / rows;
    let at = |n: usize| x[n % rows * cols + n / rows];
    (0..x.len()).map(at).collect()
}

/// A matrix of so many rows times another one.
fn product(a: &[f64], b: &[f64], rows: usize) -> Vec<f64> {
    let inner = a.len() / rows;
    let cols = b.len() / inner;
    let at = |i: usize, j: usize| -> f64 {
        (0..inner).map(|k| a[i * inner + k] * b[k * cols + j]).sum()
    };
    let all = (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j)));
    all.map(|(i, j)| at(i, j)).collect()
}

impl Kept {
    fn all(&self) -> impl Iterator<Item = f64> {
        let kept = self.states.iter().chain(&self.beside).flatten();
        self.numbers.iter().chain(kept).copied()
    }
}

/// All parameters, with what is kept beside them.
fn kept(e: &Executor, params: &[Param]) -> Vec<Kept> {
    let beside = |p: &Param, end: &str| {
        let path = format!("{}{end}", p.path);
        let found = e.manifest().params.iter().find(|p| p.path == path);
        found.map_or(vec![], |p| numbers(e, State::Params, p))
    };
    let each = params.iter().map(|p| Kept {
        numbers: numbers(e, State::Params, p),
        states: KEPT.map(|s| numbers(e, s, p)),
        beside: [added::ADAFACTOR_ROWS, added::ADAFACTOR_COLS].map(|end| beside(p, end)),
    });
    each.collect()
}

/// Pseudo-random numbers for every parameter that a memory holds something of; gaps stay zero.
fn fill(e: &mut Executor, state: State, scale: f64) {
    let params: Vec<Param> = state.holds(e.manifest()).cloned().collect();
    let bytes = e.real().bytes();
    for p in params {
        let start = (p.offset / bytes) as usize;
        let number = |i: usize| {
            let place = (start + i) as u32 ^ (state as u32 * 0x9e37);
            let n = place.wrapping_mul(2_654_435_761) >> 8;
            scale * (f64::from(n) / f64::from(1 << 24) - 0.5)
        };
        let n = p.elements() as usize;
        let numbers = (0..n).map(number);
        e.state_mut(state).part(start..start + n).fill(numbers);
    }
}

/// A model with parameters and gradients.
fn prepared(optimizer: &str, more: &str, gradients: f64) -> Executor {
    let mut e = executor(&manifest(&format!("optimizer {optimizer};  {more}")));
    fill(&mut e, State::Params, 1.0);
    fill(&mut e, State::Grads, gradients);
    e
}

fn train(e: &Executor) -> Train {
    e.manifest().train.clone().unwrap()
}

/// What a schedule would multiply rates by for the first of them to be [`RATE`].
fn factor(of: &Train) -> f64 {
    RATE / of.optimizer.rate()
}

/// Step `t`; the norm of the gradient.
fn step(e: &mut Executor, t: i32) -> f64 {
    let of = train(e);
    let scalars = of.scalars(t as u64, factor(&of));
    let scalars: Vec<_> = scalars
        .iter()
        .map(|(name, x)| (name.as_str(), *x))
        .collect();
    let run = e.run("update", Bindings::new(1, 1), &[], &scalars);
    run.unwrap().scalar("grad_norm").unwrap()
}

/// All numbers of a parameter in a memory, zeros where it holds none.
fn numbers(e: &Executor, state: State, p: &Param) -> Vec<f64> {
    match state.holds(e.manifest()).any(|held| held.path == p.path) {
        true => e.of(state, p).iter().collect(),
        false => vec![0.0; p.elements() as usize],
    }
}

#[test]
fn steps_are_the_optimisers_equations() {
    for text in examples() {
        for (clip, gradients) in [("clip 1.0", 1.0), ("clip 1.0", 1e-4), ("seed 0", 1.0)] {
            for (precision, near) in [("f32", 2e-6), ("f64", 1e-12)] {
                let more = format!("{clip};  precision {precision}");
                let mut e = prepared(text, &more, gradients);
                let of = train(&e);
                let params: Vec<Param> = e.manifest().trained().cloned().collect();
                for t in 1..=3 {
                    let all = |e: &Executor, s| -> Vec<Vec<f64>> {
                        params.iter().map(|p| numbers(e, s, p)).collect()
                    };
                    let grads = all(&e, State::Grads);
                    let norm = grads.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
                    let scale = match clip {
                        "clip 1.0" => (1.0 / norm).min(1.0),
                        _ => 1.0,
                    };
                    let before = kept(&e, &params);
                    let got = step(&mut e, t);
                    assert!((got / norm - 1.0).abs() < near, "{text}: {got}, not {norm}");
                    let after = kept(&e, &params);
                    for (n, p) in params.iter().enumerate() {
                        let o = of.optimizer_of(of.group_of(&p.path, &p.shape));
                        let at = (t, o.rate() * factor(&of));
                        let g: Vec<f64> = grads[n].iter().map(|g| g * scale).collect();
                        let want = stepped(o, at, p, &g, &before[n]);
                        // Small singular values grow, with their rounding errors.
                        let near = match o {
                            OptimizerKind::Muon(_) => 20.0 * near,
                            _ => near,
                        };
                        for (got, want) in after[n].all().zip(want.all()) {
                            let fits = (got - want).abs() <= near * (1.0 + want.abs());
                            assert!(fits, "{text}, step {t}, {}: {got}, not {want}", p.path);
                        }
                    }
                }
                // Gaps between parameters stay zero.
                let used: u64 = e.manifest().params.iter().map(Param::elements).sum();
                let nonzero = e.state(State::Params).iter().filter(|x| *x != 0.0);
                assert!(nonzero.count() as u64 <= used);
            }
        }
    }
}

/// Which parameters decay, and by how much, whatever the order in which groups are laid out.
#[test]
fn groups_have_their_own_parameters() {
    let m = manifest(&format!("optimizer {}", GROUPS[0]));
    let train = m.train.as_ref().unwrap();
    let found: Vec<(&str, bool, usize)> = (m.params.iter())
        .map(|p| (p.path.as_str(), p.decay, train.group_of(&p.path, &p.shape)))
        .filter(|(path, ..)| !path.starts_with("step.1"))
        .collect();
    let want = [
        ("step.0.att.k.weight", true, 0),
        ("step.0.att.o.weight", true, 0),
        ("step.0.att.q.weight", true, 0),
        ("step.0.att.v.weight", true, 0),
        ("step.0.ffn.down.weight", true, 0),
        ("step.0.ffn.gate.weight", true, 0),
        ("step.0.ffn.up.weight", true, 0),
        // Its weight decay is said, so its vectors decay too.
        ("embed.token.weight", true, 1),
        ("output.norm.gain", true, 1),
        ("step.0.att.norm.gain", true, 1),
        ("step.0.ffn.norm.gain", true, 1),
    ];
    assert_eq!(found, want);
    let scalars = train.scalars(2, 0.5);
    let names: Vec<&str> = scalars.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["lr", "bias1", "bias2", "lr.1", "bias1.1", "bias2.1"]
    );
    assert_eq!((scalars[0].1, scalars[3].1), (5e-4, 1e-3));
    // Beside the matrices of lion one number is kept, beside vectors of gradient descent none.
    let m = manifest(&format!("optimizer {}", GROUPS[2]));
    let rows = |elements: u64| elements.div_ceil(1024) * 4096;
    let matrices: u64 = (m.params.iter())
        .filter(|p| p.shape.len() > 1)
        .map(Param::elements)
        .sum();
    assert_eq!(KEPT.map(|s| s.bytes(&m)), [rows(matrices), 0]);
    assert!(KEPT[0].bytes(&m) < m.program.trained_bytes);
}

/// `e ← d e + (1 − d) p` with `d = min(0.3, (1 + t)/(10 + t))`, of all that is trained and nothing else.
#[test]
fn running_means_follow_the_parameters() {
    for (precision, near) in [("f32", 2e-7), ("f64", 1e-15)] {
        let more = format!("ema 0.3;  precision {precision};  constrain spectral(max: 1)");
        let mut e = prepared("adamw(lr: 1e-3)", &more, 1.0);
        e.begin_averages().unwrap();
        let trained: Vec<Param> = e.manifest().trained().cloned().collect();
        let all = |e: &Executor, s: State| -> Vec<f64> {
            trained.iter().flat_map(|p| numbers(e, s, p)).collect()
        };
        let mut means = all(&e, State::Average);
        assert!(means == all(&e, State::Params));
        for (t, d) in [(1, 2.0 / 11.0), (2, 3.0 / 12.0), (3, 0.3), (4, 0.3)] {
            step(&mut e, t);
            let params = all(&e, State::Params);
            assert!(means != params);
            for (mean, p) in means.iter_mut().zip(params) {
                *mean = d * *mean + (1.0 - d) * p;
            }
            let got = all(&e, State::Average);
            let apart = got.iter().zip(&means).map(|(g, w)| (g - w).abs());
            assert!(apart.fold(0.0, f64::max) <= near, "{precision}, step {t}");
        }
        // Exchanged twice, they are what they were; the vectors of power iteration have no means.
        let states = |e: &Executor| [State::Params, State::Average].map(|s| all(e, s));
        let ([p, m], whole) = (
            states(&e),
            e.state(State::Params).iter().collect::<Vec<_>>(),
        );
        e.exchange_averages().unwrap();
        assert!(states(&e) == [m.clone(), p.clone()]);
        e.exchange_averages().unwrap();
        assert!(states(&e) == [p, m.clone()]);
        assert!(e.state(State::Params).iter().eq(whole));
        assert!(State::Average.bytes(e.manifest()) < State::Params.bytes(e.manifest()));
        // A step whose gradient is not finite changes no mean.
        e.state_mut(State::Grads).fill([f64::NAN].into_iter());
        step(&mut e, 5);
        assert!(all(&e, State::Average) == m);
    }
    let m = manifest("optimizer sgd(lr: 1)");
    assert_eq!(State::Average.bytes(&m), 0);
}

/// What is told of a run with running means is told with these, in training and later; the weights of the last step are there too.
#[test]
fn a_run_is_evaluated_with_running_means() {
    let dir = corpus();
    let m = manifest("optimizer adamw(lr: 0.05);  ema 0.99");
    let artifact = Artifact::in_memory(m).unwrap();
    let out = dir.path().join("run");
    let s = settings(dir.path(), 2);
    let mut run = Run::start(&artifact, &out, &s).unwrap();
    let summary = run.finish(&s).unwrap();
    let mut last = vec![];
    for p in run.executor().manifest().trained() {
        last.extend(run.executor().of(State::Params, p).iter());
    }
    drop(run);
    let opened = |weights| {
        open_run_with(
            &out,
            DeviceChoice::Reference,
            None,
            Unsigned::Refuse,
            weights,
        )
        .unwrap()
    };
    let dataset = dataset_of(&out, &[], Show::Nothing).unwrap();
    let [averaged, of_last] = [Weights::Averaged, Weights::Last].map(|weights| {
        let mut x = opened(weights);
        let e = evaluate(&mut x, &*dataset, None, &mut |_| {}).unwrap();
        let numbers = x
            .manifest()
            .trained()
            .flat_map(|p| x.of(State::Params, p).iter());
        (e.loss, numbers.collect::<Vec<f64>>())
    });
    assert_eq!(summary.held_out.unwrap().loss, averaged.0);
    assert_ne!(averaged.0, of_last.0);
    assert!(of_last.1 == last && averaged.1 != last);
}

#[test]
fn a_norm_that_is_not_finite_changes_nothing() {
    for text in examples() {
        for bad in [f32::NAN, f32::INFINITY, 1e30] {
            let mut e = prepared(text, "clip 1.0", 1.0);
            for state in KEPT {
                fill(&mut e, state, 0.1);
            }
            e.state_mut(State::Grads).f32()[5] = bad;
            let all =
                |e: &Executor| [State::Params, KEPT[0], KEPT[1]].map(|s| e.state(s).f32().to_vec());
            let before = all(&e);
            assert!(!step(&mut e, 1).is_finite());
            assert!(before == all(&e), "{text}: {bad}");
        }
    }
}

/// What no optimiser keeps takes no memory, and may not be written.
#[test]
fn memory_is_that_of_what_is_kept() {
    for (text, kept) in [
        ("adamw(lr: 1)", 2),
        ("sgd(lr: 1, momentum: 0.9)", 1),
        ("sgd(lr: 1)", 0),
        ("adafactor(lr: 1)", 0),
    ] {
        let m = manifest(&format!("optimizer {text}"));
        let bytes = KEPT.map(|s| s.bytes(&m));
        let held = bytes.iter().filter(|n| **n == m.program.trained_bytes);
        assert_eq!(
            (held.count(), bytes.iter().filter(|n| **n == 0).count()),
            (kept, 2 - kept)
        );
    }
    // Rows and columns of matrices, and as many as they have of vectors.
    let m = manifest("optimizer adafactor(lr: 1)");
    let beside = |p: &Param| added::beside(&p.path).is_some();
    let kept: u64 = m
        .params
        .iter()
        .filter(|p| beside(p))
        .map(Param::elements)
        .sum();
    let want = m.trained().map(|p| shape(p).iter().sum::<usize>() as u64);
    assert_eq!(kept, want.sum::<u64>());
    assert_eq!(m.param_count(), m.trained_count());
    // Two moments of what AdamW moves beside muon, one of the matrices of fields.
    let m = manifest("optimizer muon(lr: 1, others: 1)");
    let rows = |bytes: u64| bytes.next_multiple_of(4096);
    let (mut vectors, mut embedding, mut matrices) = (0, 0, 0);
    for p in m.trained() {
        match (p.path.starts_with("embed"), p.shape.len()) {
            (true, _) => embedding += 4 * p.elements(),
            (_, 2) => matrices += 4 * p.elements(),
            _ => vectors += p.elements().next_multiple_of(16) * 4,
        }
    }
    let both = rows(embedding) + rows(vectors);
    assert_eq!(KEPT.map(|s| s.bytes(&m)), [both + rows(matrices), both]);
    let mut m = manifest("optimizer adamw(lr: 1)");
    let without = manifest("optimizer lion(lr: 1)").train.unwrap().optimizer;
    m.train.as_mut().unwrap().optimizer = without;
    let said = Artifact::in_memory(m).map(drop).unwrap_err().to_string();
    assert!(
        said.contains("leaves its slot (Moment2, 0 bytes)"),
        "{said}"
    );
}

/// A folder with a text.
fn corpus() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(20);
    std::fs::write(dir.path().join("corpus.txt"), text).unwrap();
    dir
}

fn settings(folder: &Path, evaluations: u64) -> Settings {
    Settings {
        data: vec![folder.join("corpus.txt")],
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        evaluations,
        ..Settings::default()
    }
}

/// The tensors of a run of six steps that is left after each of these: their names, and their bytes.
fn trained(m: &Manifest, folder: &Path, name: &str, left: &[u64]) -> (BTreeSet<String>, Vec<u8>) {
    let artifact = Artifact::in_memory(m.clone()).unwrap();
    let out = folder.join(name);
    let s = settings(folder, 0);
    let mut run = Run::start(&artifact, &out, &s).unwrap();
    for step in left {
        while run.progress().step < *step {
            run.step().unwrap();
        }
        run.save().unwrap();
        drop(run);
        run = Run::resume(&out, &s).unwrap();
    }
    run.finish(&s).unwrap();
    let bytes = std::fs::read(out.join(CHECKPOINT)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let names = tensors.names().into_iter().map(String::from).collect();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (names, bytes[8 + header..].to_vec())
}

#[test]
fn runs_go_on_bit_for_bit_with_every_optimiser_and_schedule() {
    let dir = corpus();
    let schedules = ScheduleKind::all().into_iter();
    let schedules: Vec<&str> = schedules
        .flat_map(|s| s.examples().iter().map(|e| e.text))
        // More steps than this run has.
        .map(|text| {
            text.split_once("00 steps")
                .map_or(text, |_| "inverse_sqrt(warmup: 2)")
        })
        .collect();
    let pairs = examples().zip(schedules.iter().cycle());
    let rest = schedules.iter().map(|s| ("sgd(lr: 0.1, momentum: 0.9)", s));
    let mut ends = BTreeSet::new();
    for (n, (optimizer, schedule)) in pairs.chain(rest).enumerate() {
        let ema = ["", "ema 0.9"][n % 2];
        let m = manifest(&format!(
            "optimizer {optimizer};  schedule {schedule};  {ema}"
        ));
        let whole = trained(&m, dir.path(), &format!("whole{n}"), &[]);
        let parts = trained(&m, dir.path(), &format!("parts{n}"), &[1, 4]);
        assert!(whole == parts, "{optimizer}, {schedule}");
        // Each parameter, and as many tensors beside each as are kept.
        let of = m.train.as_ref().unwrap();
        let kept = m.params.iter().flat_map(|p| {
            let kept = of
                .optimizer_of(of.group_of(&p.path, &p.shape))
                .states()
                .len();
            let beside = ["", "moment1.", "moment2."].map(|of| format!("{of}{}", p.path));
            let mean = of.ema.map(|_| format!("ema.{}", p.path));
            let trained = of.tune.trains(&p.path);
            let kept = if trained { kept } else { 0 };
            beside
                .into_iter()
                .take(1 + kept)
                .chain(mean.filter(|_| trained))
        });
        assert_eq!(whole.0, kept.collect(), "{optimizer}");
        ends.insert(whole.1);
    }
    // No two of them are the same.
    assert!(
        ends.len() >= examples().count() + schedules.len() - 2,
        "{}",
        ends.len()
    );
}

/// Of ten evaluations a run with patience makes as many as it takes until two in a row have not lowered the loss, in one sitting or in several.
#[test]
fn a_run_ends_when_its_patience_does() {
    let dir = corpus();
    // Far too long steps: held-out loss rises.
    let m = manifest("optimizer sgd(lr: 3);  clip 1.0;  evaluations 6;  patience 2");
    let artifact = Artifact::in_memory(m).unwrap();
    let s = settings(dir.path(), 0);
    let losses = |run: &str| -> Vec<f64> {
        let lines = std::fs::read_to_string(dir.path().join(run).join("metrics.jsonl"));
        let lines: Vec<serde_json::Value> = (lines.unwrap().lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        lines
            .iter()
            .filter_map(|l| l["held_out_loss"].as_f64())
            .collect()
    };
    let mut whole = Run::start(&artifact, &dir.path().join("whole"), &s).unwrap();
    let ended = whole.finish(&s).unwrap();
    assert_eq!(ended.end, End::Patience);
    assert!(ended.steps < 6, "{}", ended.steps);
    let all = losses("whole");
    assert_eq!(all.len() as u64, ended.steps);
    let lowest = all.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(all.iter().position(|l| *l == lowest), Some(all.len() - 3));
    drop(whole);
    // Left after each step, it ends at the same one; resumed then, at once.
    let out = dir.path().join("parts");
    let mut run = Run::start(&artifact, &out, &s).unwrap();
    for _ in 0..ended.steps {
        let step = run.step().unwrap().step;
        run.look(64, step).unwrap();
        run.save().unwrap();
        drop(run);
        run = Run::resume(&out, &s).unwrap();
        assert_eq!(run.out_of_patience(), step == ended.steps);
    }
    let again = run.finish(&s).unwrap();
    assert_eq!((again.end, again.steps), (End::Patience, ended.steps));
    assert_eq!(losses("parts"), all);
}
