//! `drift`: the term and its gradient in closed form, for weights of steps, of several steps, and of time; the same bits however
//! states are kept.

use crate::losses::{built, given, near, results, run, scalar};
use crate::systems::options;
use crate::time_dependent::{features, times};
use odec_graph::interp::Tensor;
use std::collections::BTreeMap;

type Tensors = BTreeMap<String, Tensor>;

/// Steps that hold the parameters of a step and of the one behind it.
type Pair = (usize, usize);

/// The parts of a feed-forward layer that every step has.
const FFN: [&str; 4] = ["norm.gain", "gate.weight", "up.weight", "down.weight"];

/// Those of a field with a body, called after its values.
const GATED: [&str; 3] = ["gate.weight", "gain", "linear.weight"];

/// `Σ (b − a)²` over the weights of pairs of steps that hold parameters.
fn moved(f: &Tensors, (field, parts): (&str, &[&str]), pairs: &[Pair]) -> f64 {
    let weight = |k: usize, part: &str| &f[&format!("step.{k}.{field}.{part}")].data;
    let square = |(a, b): &Pair| -> f64 {
        let parts = parts.iter().map(|part| {
            let both = weight(*a, part).iter().zip(weight(*b, part));
            both.map(|(a, b)| (b - a).powi(2)).sum::<f64>()
        });
        parts.sum()
    };
    pairs.iter().map(square).sum()
}

/// Norms start equal in all steps; here they do not.
fn uneven(mut f: Tensors) -> Tensors {
    for (name, t) in &mut f {
        if name.ends_with("gain") || name.ends_with("time.weight") {
            let step = name.len() as f64 + name.bytes().map(f64::from).sum::<f64>();
            let shift = |(i, x): (usize, &mut f64)| *x += (step + 3.0 * i as f64).sin() / 4.0;
            t.data.iter_mut().enumerate().for_each(shift);
        }
    }
    f
}

#[test]
fn weights_of_steps() {
    // Each pair of consecutive steps, by the steps that hold its parameters.
    let cases: [(&str, &str, &str, &[Pair]); 7] = [
        (
            "ffn",
            "4 steps",
            "weights per step",
            &[(0, 1), (1, 2), (2, 3)],
        ),
        ("ffn", "5 steps", "weights every 2", &[(0, 2), (2, 4)]),
        (
            "ffn",
            "5 steps",
            "weights cycle 2",
            &[(0, 1), (1, 0), (0, 1), (1, 0)],
        ),
        (
            "ffn",
            "3 steps",
            "weights shared, ffn per step",
            &[(0, 1), (1, 2)],
        ),
        ("ffn", "2 steps", "weights per step, att shared", &[(0, 1)]),
        ("gated", "3 steps", "weights per step", &[(0, 1), (1, 2)]),
        ("gated", "4 steps", "weights every 2", &[(0, 2)]),
    ];
    for (field, steps, weights, pairs) in cases {
        let own: &[&str] = if field == "ffn" { &FFN } else { &GATED };
        let flow = match weights.contains("shared") {
            true => "lie(att, ffn)".to_string(),
            false => format!("euler({field})"),
        };
        let steps = format!("{steps} {{ {weights} }}");
        let with = built(&flow, &steps, "cross_entropy + 1/8*drift", "store");
        let plain = built(&flow, &steps, "cross_entropy", "store").0;
        let f = uneven(given(&with));
        let (got, without) = (results(&with.0, &f), results(&plain, &f));
        let want = moved(&f, (field, own), pairs);
        near(weights, scalar(&got, "loss.drift"), want, 1e-12);
        let total = scalar(&without, "loss") + want / 8.0;
        near("the sum", scalar(&got, "loss"), total, 1e-12);
        // ∂/∂θ Σ (b − a)² = 2 (θ − each neighbour).
        for k in pairs.iter().flat_map(|(a, b)| [a, b]) {
            for part in own {
                let at = |k: usize| f[&format!("step.{k}.{field}.{part}")].data.clone();
                let name = format!("grad.step.{k}.{field}.{part}");
                for (i, (a, b)) in got[&name].data.iter().zip(&without[&name].data).enumerate() {
                    let pull = pairs.iter().map(|(x, y)| match k {
                        k if k == x => at(*k)[i] - at(*y)[i],
                        k if k == y => at(*k)[i] - at(*x)[i],
                        _ => 0.0,
                    });
                    let want = 2.0 / 8.0 * pull.sum::<f64>();
                    assert!(
                        (a - b - want).abs() < 1e-12,
                        "{name}: {a} − {b}, not {want}"
                    );
                }
            }
        }
    }
}

/// W(t) = W + proj(down(silu(up(e(t))))), at the beginnings of steps, or at their ends.
#[test]
fn weights_of_time() {
    for (at, ahead) in [("left", 0.0), ("right", 1.0)] {
        let time = format!("weights of time {{ embed: 2, hidden: 3, scale: 5, at: {at} }}");
        let steps = format!("4 steps {{ h = 1/(k + 3);  {time} }}");
        let model = built("heun(slope)", &steps, "cross_entropy + drift", "store");
        let f = uneven(given(&model));
        let part = |name: &str| &f[&format!("slope.linear.weight.time.{name}")].data;
        let weight = |t: f64| {
            let affine = |name: &str, x: &[f64]| {
                let y = times(part(&format!("{name}.weight")), x);
                let sum = y.iter().zip(part(&format!("{name}.bias")));
                sum.map(|(y, b)| y + b).collect::<Vec<f64>>()
            };
            let hidden = affine("up", &features(t, 5.0));
            let hidden: Vec<f64> = hidden.iter().map(|z| z / (1.0 + (-z).exp())).collect();
            times(part("proj.weight"), &affine("down", &hidden))
        };
        let (mut t, mut want, mut before) = (0.0, 0.0, None::<Vec<f64>>);
        for k in 0..4 {
            let h = 1.0 / (k as f64 + 3.0);
            let now = weight(t + ahead * h);
            if let Some(before) = before {
                let moved = before.iter().zip(&now);
                want += moved.map(|(a, b)| (b - a).powi(2)).sum::<f64>();
            }
            (before, t) = (Some(now), t + h);
        }
        let got = results(&model.0, &f);
        near(at, scalar(&got, "loss.drift"), want, 1e-9);
        // Along the gradient of what generates the weights.
        let name = "slope.linear.weight.time.up.weight";
        let g = &got[&format!("grad.{name}")].data;
        let size = g.iter().map(|g| g * g).sum::<f64>().sqrt();
        let along = |by: f64| {
            let mut f = f.clone();
            let p = &mut f.get_mut(name).unwrap().data;
            p.iter_mut().zip(g).for_each(|(p, g)| *p += by * g / size);
            scalar(&results(&model.0, &f), "loss")
        };
        let slope = (along(1e-5) - along(-1e-5)) / 2e-5;
        near("gradient", slope, size, 1e-6);
    }
}

#[test]
fn the_same_bits_under_every_memory_policy() {
    let time = "weights of time { embed: 2, hidden: 3, scale: 5 }";
    for steps in [
        "4 steps".to_string(),
        format!("4 steps {{ h = 1/4;  {time} }}"),
    ] {
        let model = |memory| built("heun(layer)", &steps, "cross_entropy + drift", memory);
        let (bits, terms, _) = run(&model("store"), options());
        let want = results(&model("store").0, &given(&model("store")));
        near(
            "drift",
            terms["loss.drift"],
            scalar(&want, "loss.drift"),
            1e-5,
        );
        let revolved = run(&model("revolve(slots: 1)"), options());
        assert!(bits == revolved.0, "{steps}: other bits");
    }
}
