//! Numbers of steps that are decided while a model runs: against plain loops in f64 that make the same decisions, and against
//! themselves with other memory and with nothing passed over.

use crate::numbers::{executor, tokens};
use crate::plain::times;
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::Bindings;
use odec_program::manifest::Manifest;
use odec_runtime::executor::RunError;
use odec_runtime::{Executor, State, Value};

const AT: Bindings = Bindings::new(2, 4);
const VOCAB: usize = 256;
const WIDTH: usize = 4;
const HIDDEN: usize = 6;

fn planned(flow: &str, extent: &str, options_: &str, train: &str) -> Manifest {
    let text = format!(
        "scheme injected(F) {{ start {{ e = x }}  step x {{ return F(x + e) }} }}\nfield f = swiglu(hidden: {HIDDEN})\nfield g = rmsnorm |> attention(heads: 2, causal, rope)\n\
         model m {{\n  input tokens(vocab: {VOCAB}, context: 4)\n  embed learned(width: {WIDTH})\n  \
         evolve {flow} for {extent} steps {{ {options_} }}\n  output logits(tied)\n  init normal(std: 0.5)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    let built = built(&text);
    build_manifest(&built, &text, options()).unwrap().manifest
}

const PAIR: &str = "bogacki_shampine(f)";
const EXTENT: &str = "adaptive(rtol: 1e-4, atol: 1e-5, until: 3, max: 40)";

fn adaptive(train: &str) -> Manifest {
    planned(PAIR, EXTENT, "weights shared", train)
}

/// Parameters: embedding, gate, up, down.
type Params = [Vec<f64>; 4];

const PATHS: [&str; 4] = [
    "embed.token.weight",
    "f.gate.weight",
    "f.up.weight",
    "f.down.weight",
];

fn params(e: &Executor, state: State) -> Params {
    let found = |path: &&str| e.manifest().params.iter().find(|p| p.path == **path);
    PATHS.map(|p| {
        let listed = || {
            e.manifest()
                .params
                .iter()
                .map(|p| &p.path)
                .collect::<Vec<_>>()
        };
        let p = found(&p).unwrap_or_else(|| panic!("{p} of {:?}", listed()));
        e.of(state, p).iter().collect()
    })
}

/// The field, token by token.
fn field(p: &Params, x: &[f64]) -> Vec<f64> {
    let tokens = x.chunks(WIDTH).flat_map(|x| {
        let (gate, up) = (times(&p[1], x), times(&p[2], x));
        let hidden = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u);
        times(&p[3], &hidden.collect::<Vec<_>>())
    });
    tokens.collect()
}

fn plus(x: &[f64], terms: &[(f64, &Vec<f64>)]) -> Vec<f64> {
    let each = x.iter().enumerate();
    each.map(|(i, x)| x + terms.iter().map(|(c, k)| c * k[i]).sum::<f64>())
        .collect()
}

/// Bogacki & Shampine's step and its error.
fn step(p: &Params, x: &[f64], h: f64) -> (Vec<f64>, Vec<f64>) {
    let k1 = field(p, x);
    let k2 = field(p, &plus(x, &[(h / 2.0, &k1)]));
    let k3 = field(p, &plus(x, &[(h * 0.75, &k2)]));
    let y = plus(
        x,
        &[(h * 2.0 / 9.0, &k1), (h / 3.0, &k2), (h * 4.0 / 9.0, &k3)],
    );
    let k4 = field(p, &y);
    let low = [
        (7.0 / 24.0, &k1),
        (0.25, &k2),
        (1.0 / 3.0, &k3),
        (0.125, &k4),
    ];
    let low = plus(x, &low.map(|(c, k)| (h * c, k)));
    let error = y.iter().zip(&low).map(|(y, z)| y - z).collect();
    (y, error)
}

fn embedded(p: &Params, x: &[i32]) -> Vec<f64> {
    let row = |t: &i32| p[0][*t as usize * WIDTH..][..WIDTH].to_vec();
    x.iter().flat_map(row).collect()
}

/// The sizes of accepted steps, the number of attempts and the state at the end.
fn integrate(
    p: &Params,
    mut x: Vec<f64>,
    rtol: f64,
    atol: f64,
    until: f64,
) -> (Vec<f64>, usize, Vec<f64>) {
    let (mut t, mut h, mut taken, mut attempts) = (0.0, until, Vec::new(), 0);
    while t < until && attempts < 1000 {
        attempts += 1;
        let rest = until - t;
        let now = if 1.01 * h > rest { rest } else { h };
        let (y, error) = step(p, &x, now);
        let scaled = error
            .iter()
            .zip(x.iter().zip(&y))
            .map(|(e, (x, y))| (e / (atol + rtol * x.abs().max(y.abs()))).powi(2));
        let error = (scaled.sum::<f64>() / x.len() as f64).sqrt();
        if error < 1.0 {
            taken.push(now);
            t = if now == rest { until } else { t + now };
            x = y;
        }
        h = now * (0.9 * error.powf(-1.0 / 3.0)).clamp(0.2, 5.0);
    }
    (taken, attempts, x)
}

/// Cross-entropy of tied logits.
fn loss_of(p: &Params, x: &[f64], targets: &[i32]) -> f64 {
    let each = x.chunks(WIDTH).zip(targets).map(|(x, t)| {
        let logits = times(&p[0], x);
        logits.iter().map(|z| z.exp()).sum::<f64>().ln() - logits[*t as usize]
    });
    each.sum::<f64>() / targets.len() as f64
}

/// The parameters moved along a direction.
fn moved(p: &Params, along: &Params, by: f64) -> Params {
    std::array::from_fn(|i| {
        p[i].iter()
            .zip(&along[i])
            .map(|(p, d)| p + by * d)
            .collect()
    })
}

/// The slope of a loss along a direction that treats no parameter alike, by a gradient and by differences.
fn slopes(p: &Params, gradient: &Params, loss: impl Fn(&Params) -> f64) -> [f64; 2] {
    let mut n = 0.0f64;
    let along = [0, 1, 2, 3].map(|i: usize| {
        let each = p[i].iter().map(|_| {
            n += 1.0;
            (n * n * 0.7).sin()
        });
        each.collect::<Vec<f64>>()
    });
    let products = gradient.iter().flatten().zip(along.iter().flatten());
    let by = 1e-5;
    let differences = (loss(&moved(p, &along, by)) - loss(&moved(p, &along, -by))) / (2.0 * by);
    [products.map(|(g, d)| g * d).sum(), differences]
}

fn inputs(x: &[i32], y: &[i32]) -> [(&'static str, Value<'static>); 2] {
    let leak = |t: &[i32]| Value::I32(Box::leak(t.to_vec().into_boxed_slice()));
    [("tokens", leak(x)), ("targets", leak(y))]
}

#[test]
fn adaptive_steps_are_those_of_a_plain_loop() {
    let mut e = executor(&adaptive("precision f64"));
    let (x, y) = (tokens(AT, VOCAB as u64, 1), tokens(AT, VOCAB as u64, 5));
    let p = params(&e, State::Params);
    let (taken, attempts, end) = integrate(&p, embedded(&p, &x), 1e-4, 1e-5, 3.0);
    assert!(
        taken.len() > 4 && attempts > taken.len(),
        "{attempts} {taken:?}"
    );

    let io = inputs(&x, &y);
    let out = e.run("forward", AT, &io[..1], &[]).unwrap();
    let logits: Vec<f64> = out.reals("logits").unwrap().iter().collect();
    for (n, of) in [
        (taken.len(), "steps.accepted"),
        (attempts, "steps.attempts"),
    ] {
        assert_eq!(out.scalar(of).unwrap(), n as f64, "{of}");
    }
    let want: Vec<f64> = end.chunks(WIDTH).flat_map(|x| times(&p[0], x)).collect();
    assert!(logits.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-11));

    let loss = e.run("grad", AT, &io, &[]).unwrap().scalar("loss").unwrap();
    assert!((loss - loss_of(&p, &end, &y)).abs() < 1e-11);
    // Step sizes are constants to the gradient.
    let along = |p: &Params| {
        let start = embedded(p, &x);
        let end = taken.iter().fold(start, |x, h| step(p, &x, *h).0);
        loss_of(p, &end, &y)
    };
    let [found, wanted] = slopes(&p, &params(&e, State::Grads), along);
    assert!(
        (found - wanted).abs() < 1e-7 * wanted.abs().max(0.1),
        "{found} {wanted}"
    );
}

#[test]
fn errors_fall_with_the_tolerance() {
    let x = tokens(AT, VOCAB as u64, 1);
    let (mut errors, mut exact) = (Vec::new(), None);
    for tolerance in [1e-3, 1e-5, 1e-7] {
        let extent =
            format!("adaptive(rtol: {tolerance:e}, atol: {tolerance:e}, until: 1, max: 40)");
        let m = planned(PAIR, &extent, "weights shared", "precision f64");
        let mut e = executor(&m);
        let p = params(&e, State::Params);
        let exact = exact.get_or_insert_with(|| {
            let h = 1.0 / 2000.0;
            let end = (0..2000).fold(embedded(&p, &x), |x, _| step(&p, &x, h).0);
            end.chunks(WIDTH)
                .flat_map(|x| times(&p[0], x))
                .collect::<Vec<_>>()
        });
        let out = e.run("forward", AT, &inputs(&x, &x)[..1], &[]).unwrap();
        let off = out.reals("logits").unwrap().iter().zip(exact.iter());
        let error = off.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 30.0 * tolerance, "{tolerance}: {error}");
        errors.push(error);
    }
    assert!(errors.windows(2).all(|w| w[1] < w[0] / 10.0), "{errors:?}");
}

fn bits(m: &Manifest, entry: &str, skip: bool, more: &[(&str, Value)]) -> (Vec<u32>, usize) {
    let mut e = executor(m);
    e.set_skip(skip);
    let (x, y) = (tokens(AT, VOCAB as u64, 1), tokens(AT, VOCAB as u64, 5));
    let io = [&inputs(&x, &y)[..], more].concat();
    let out = e.run(entry, AT, &io, &[]).unwrap();
    let loss = out.scalar("loss").unwrap() as f32;
    assert!(loss.is_finite() && e.state(State::Grads).f32().iter().all(|x| x.is_finite()));
    let grads = e.state(State::Grads).f32().iter().map(|x| x.to_bits());
    (
        [loss.to_bits()].into_iter().chain(grads).collect(),
        e.skipped(),
    )
}

#[test]
fn neither_memory_nor_passing_over_changes_a_bit() {
    let extent = "adaptive(rtol: 1e-2, atol: 1e-3, until: 1/2, max: 12)";
    let random = "random(log_normal_poisson(mean: 3), max: 6)";
    let n = [("steps", Value::I32(&[4]))];
    for (flow, extent, options, more) in [
        ("bogacki_shampine(f)", extent, "weights shared", &[][..]),
        (
            "strang_lie(f by heun, g by heun)",
            extent,
            "weights shared",
            &[],
        ),
        (
            "strang(f, g)",
            random,
            "h = 1/2;  weights shared;  gradient last(2)",
            &n,
        ),
    ] {
        let stored = planned(flow, extent, options, "");
        let (all, skipped) = bits(&stored, "grad", true, more);
        let guarded = stored.program.entries["grad"].instrs.iter();
        let guarded = guarded.filter(|i| i.guard.is_some()).count();
        assert!(skipped > guarded / 4, "{flow}: {skipped} of {guarded}");
        assert!(
            bits(&stored, "grad", false, more) == (all.clone(), 0),
            "{flow}"
        );
        for slots in [5, 2] {
            let memory = format!("memory revolve(slots: {slots})");
            let revolved = planned(flow, extent, options, &memory);
            let (replayed, _) = bits(&revolved, "grad", true, more);
            assert!(replayed == all, "{flow}, {slots} slots: other bits");
        }
    }
}

#[test]
fn an_end_that_is_not_reached_is_an_error() {
    let m = planned(
        PAIR,
        "adaptive(rtol: 1e-6, atol: 1e-6, until: 3, max: 3)",
        "weights shared",
        "",
    );
    let mut e = executor(&m);
    let (x, y) = (tokens(AT, VOCAB as u64, 1), tokens(AT, VOCAB as u64, 5));
    for (entry, n) in [("forward", 1), ("loss", 2), ("grad", 2)] {
        match e.run(entry, AT, &inputs(&x, &y)[..n], &[]) {
            Err(RunError::Unfinished {
                reached,
                until,
                max,
                ..
            }) => {
                assert!((0.0..3.0).contains(&reached) && until == 3.0 && max == 3);
            }
            other => panic!("{entry}: {:?}", other.map(drop)),
        }
    }
}

/// Euler's steps with h = 1/3, the first of them at other parameters, through which no derivative is taken.
#[test]
fn as_many_steps_as_drawn_are_made_and_the_gradient_goes_through_the_last() {
    let (x, y) = (tokens(AT, VOCAB as u64, 1), tokens(AT, VOCAB as u64, 5));
    let h = 1.0 / 3.0;
    let euler = |p: &Params, x: Vec<f64>| plus(&x, &[(h, &field(p, &x))]);
    for (options, last) in [("", 9), (";  gradient last(2)", 2)] {
        let options = format!("h = 1/3;  weights shared{options}");
        let extent = "random(log_normal_poisson(mean: 3), max: 5)";
        let drawn = planned("euler(f)", extent, &options, "precision f64");
        let mut e = executor(&drawn);
        let p = params(&e, State::Params);
        for n in [1i32, 2, 3, 5] {
            let number = [("steps", Value::I32(&[n]))];
            let io = [&inputs(&x, &y)[..], &number].concat();
            let loss = e.run("grad", AT, &io, &[]).unwrap().scalar("loss").unwrap();
            let early = (n as usize).saturating_sub(last);
            let until = (0..early).fold(embedded(&p, &x), |x, _| euler(&p, x));
            let along = |q: &Params| {
                let start = if early > 0 {
                    until.clone()
                } else {
                    embedded(q, &x)
                };
                let end = (early..n as usize).fold(start, |x, _| euler(q, x));
                loss_of(q, &end, &y)
            };
            assert!((loss - along(&p)).abs() < 1e-12, "{n}");
            let gradient = params(&e, State::Grads);
            let [found, wanted] = slopes(&p, &gradient, along);
            assert!(
                (found - wanted).abs() < 1e-8,
                "{n} {last}: {found} {wanted}"
            );

            let known = planned("euler(f)", &n.to_string(), &options, "precision f64");
            let mut known = executor(&known);
            known.run("grad", AT, &io[..2], &[]).unwrap();
            let of_known = params(&known, State::Grads);
            let pairs = gradient.iter().flatten().zip(of_known.iter().flatten());
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12), "{n}");
        }
        // Evaluation takes the mean number.
        let loss = e
            .run("loss", AT, &inputs(&x, &y), &[])
            .unwrap()
            .scalar("loss");
        let end = (0..3).fold(embedded(&p, &x), |x, _| euler(&p, x));
        assert!((loss.unwrap() - loss_of(&p, &end, &y)).abs() < 1e-12);
        assert!(drawn.program.entries.contains_key("decode"));
    }
}

/// Input injection: what `start` sets once belongs to no step, and the last steps read it.
#[test]
fn the_gradient_of_the_last_steps_goes_through_what_the_start_set() {
    let (x, y) = (tokens(AT, VOCAB as u64, 1), tokens(AT, VOCAB as u64, 5));
    let options = "weights shared;  gradient last(2)";
    for extent in ["5", "random(log_normal_poisson(mean: 3), max: 5)"] {
        let planned = planned("injected(f)", extent, options, "precision f64");
        let mut e = executor(&planned);
        let number = [("steps", Value::I32(&[5]))];
        let io = [&inputs(&x, &y)[..], &number].concat();
        let given = if extent == "5" { &io[..2] } else { &io };
        e.run("grad", AT, given, &[]).unwrap();
        let (p, gradient) = (params(&e, State::Params), params(&e, State::Grads));
        let step = |p: &Params, x: &[f64], from: &[f64]| {
            let from = from.to_vec();
            field(p, &plus(x, &[(1.0, &from)]))
        };
        let from = embedded(&p, &x);
        let until = (0..3).fold(from.clone(), |x, _| step(&p, &x, &from));
        let along = |q: &Params| {
            let from = embedded(q, &x);
            let end = (0..2).fold(until.clone(), |x, _| step(q, &x, &from));
            loss_of(q, &end, &y)
        };
        let [found, wanted] = slopes(&p, &gradient, along);
        assert!((found - wanted).abs() < 1e-8, "{extent}: {found} {wanted}");
    }
}
