//! Models as plain loops in f64: parameters by path, products, the loss of a token. And what holds of steps that only some tokens take.

use crate::numbers::{executor, tokens};
use crate::source::built;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_program::manifest::{Manifest, Param};
use odec_program::{Bindings, noise};
use odec_runtime::{Executor, Reader, State, Value};
use std::collections::BTreeMap;

/// Numbers of each parameter, or of its gradient, by path.
pub type Params = BTreeMap<String, Vec<f64>>;

pub fn of(e: &Executor, state: State) -> Params {
    let each = e.manifest().params.iter();
    each.map(|p| (p.path.clone(), e.of(state, p).iter().collect()))
        .collect()
}

/// `w x` of a matrix of so many columns.
pub fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
        .collect()
}

/// The field `swiglu` of this name.
pub fn swiglu(p: &Params, name: &str, x: &[f64]) -> Vec<f64> {
    let map = |part: &str, x: &[f64]| times(&p[&format!("{name}.{part}.weight")], x);
    let hidden = map("gate", x).into_iter().zip(map("up", x));
    let hidden: Vec<f64> = hidden.map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    map("down", &hidden)
}

/// An expert of the mixture of this name, whose hidden layers have so many columns: SwiGLU, or GELU where it has no gate.
pub fn expert(p: &Params, name: &str, (number, hidden): (usize, usize), x: &[f64]) -> Vec<f64> {
    let size = hidden * x.len();
    let own = |part: &str| Some(&p.get(&format!("{name}.{part}.weight"))?[number * size..][..size]);
    let map = |part: &str, x: &[f64]| Some(times(own(part)?, x));
    let up = map("up", x).unwrap().into_iter();
    let inner: Vec<f64> = match map("gate", x) {
        Some(gate) => gate
            .iter()
            .zip(up)
            .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
            .collect(),
        None => up
            .map(|u| u * 0.5 * (1.0 + libm::erf(u / 2.0f64.sqrt())))
            .collect(),
    };
    times(own("down").unwrap(), &inner)
}

/// Cross-entropy of a token.
pub fn nats(logits: &[f64], target: i32) -> f64 {
    logits.iter().map(|z| z.exp()).sum::<f64>().ln() - logits[target as usize]
}

/// The model of a file, and its plan.
pub fn planned_text(text: &str) -> (Built, Manifest) {
    let built = built(text);
    let manifest = build_manifest(&built, text, options()).unwrap().manifest;
    (built, manifest)
}

/// With scores of routers that differ between tokens, none of them near another: those of the field `route` widest.
pub fn varied(m: &Manifest) -> Executor {
    let mut e = executor(m);
    for (n, p) in m.params.iter().enumerate() {
        let (size, rate) = match p.path.as_str() {
            path if path.starts_with("route.") => (2.0, 0.61),
            path if path.ends_with("gain") => continue,
            _ => (0.9, 0.37 + 0.11 * n as f64),
        };
        set(&mut e, p, waves(p, size, rate));
    }
    e
}

/// The loss where numbers are drawn by this key.
pub fn drawn_loss(e: &mut Executor, at: Bindings, io: [&[i32]; 2], key: u32) -> f64 {
    let key = [key as i32];
    let io = [
        ("tokens", Value::I32(io[0])),
        ("targets", Value::I32(io[1])),
        (noise::KEY, Value::I32(&key)),
    ];
    e.run("grad", at, &io, &[]).unwrap().scalar("loss").unwrap()
}

/// Numbers of one size for a parameter, none of which is like another.
pub fn waves(p: &Param, size: f64, rate: f64) -> Vec<f64> {
    let each = (0..p.shape.iter().product::<u64>()).map(|i| i as f64);
    each.map(|i| size * (rate * i * i + i + 1.0).sin())
        .collect()
}

pub fn set(e: &mut Executor, p: &Param, values: Vec<f64>) {
    let at = p.offset as usize / e.real().bytes() as usize;
    let mut all = e.state_mut(State::Params);
    all.part(at..at + values.len()).fill(values.into_iter());
}

/// The bits of finite numbers: equal ones of what was never computed would say nothing.
pub fn bits(x: impl Iterator<Item = f64>) -> Vec<u64> {
    let bits = |x: f64| {
        assert!(x.is_finite(), "{x}");
        x.to_bits()
    };
    x.map(bits).collect()
}

/// The gradient that a run has left is that of `loss`: of each parameter along a direction that treats no number alike, by differences.
pub fn gradient_is_of(e: &Executor, loss: impl Fn(&Params) -> f64) {
    let p = of(e, State::Params);
    for (path, g) in &of(e, State::Grads) {
        let along = (0..g.len()).map(|i| ((i * i + 1) as f64 * 0.7).sin());
        let along: Vec<f64> = along.collect();
        let by = 1e-5;
        let side = |by: f64| {
            let mut p = p.clone();
            let own = p.get_mut(path).unwrap();
            own.iter_mut().zip(&along).for_each(|(p, d)| *p += by * d);
            loss(&p)
        };
        let wanted = (side(by) - side(-by)) / (2.0 * by);
        let found: f64 = g.iter().zip(&along).map(|(g, d)| g * d).sum();
        assert!(wanted.abs() > 1e-6, "{path}: {wanted}");
        assert!(
            (found - wanted).abs() < 1e-7 * wanted.abs().max(0.1),
            "{path}: {found} {wanted}"
        );
    }
}

/// A text of seven tokens, some of which take fewer steps than `most`, has the same bits however it is read.
pub fn is_read_in_pieces(e: &mut Executor, most: usize) {
    let at = Bindings::new(1, 7);
    let x = tokens(at, 256, 1);
    let out = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
    let made = out.unwrap().scalar("steps.made").unwrap();
    assert!((1.1..most as f64 - 0.1).contains(&made), "{made}");
    pieces_are_the_whole(e);
}

/// A text of seven tokens has the same bits however it is read.
pub fn pieces_are_the_whole(e: &mut Executor) {
    let at = Bindings::new(1, 7);
    let x = tokens(at, 256, 1);
    let out = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
    let whole = bits(out.unwrap().reals("logits").unwrap().iter());
    for pieces in [&[1; 7][..], &[3, 4], &[2, 1, 4]] {
        let mut reader = Reader::new(e).unwrap();
        let (mut read, mut past) = (Vec::new(), 0);
        for n in pieces {
            read.extend(bits(reader.read(&x[past..past + n]).unwrap().iter()));
            past += n;
        }
        assert!(read == whole, "{pieces:?}");
    }
}

/// Loss and gradients have the same bits whether steps that no token takes are computed, and however little is stored.
/// `made`: the model with a memory policy. `passed`: whether there are such steps.
pub fn changes_no_bit(made: impl Fn(&str) -> Executor, at: Bindings, passed: bool) {
    let (x, y) = (tokens(at, 256, 1), tokens(at, 256, 5));
    let run = |memory: &str, skip: bool| {
        let mut e = made(memory);
        e.set_skip(skip);
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let out = e.run("grad", at, &io, &[]).unwrap();
        let loss = [out.scalar("loss").unwrap()].into_iter();
        (bits(loss.chain(e.state(State::Grads).iter())), e.skipped())
    };
    let (stored, skipped) = run("memory store", true);
    assert_eq!(skipped > 0, passed, "{skipped}");
    assert!(run("memory store", false) == (stored.clone(), 0));
    for slots in [3, 1] {
        let (revolved, _) = run(&format!("memory revolve(slots: {slots})"), true);
        assert!(revolved == stored, "{slots} slots");
    }
}
