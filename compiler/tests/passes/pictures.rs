//! What tests of models of images share: images and classes, what graphs and programs make of them, and that programs agree with themselves.

use crate::numbers::feeds;
use crate::systems::options;
use odec_compiler::passes::Options;
use odec_compiler::passes::fuse::Fusion;
use odec_graph::interp::Tensor;
use odec_program::manifest::named;
use odec_program::{Bindings, DType};
use odec_runtime::{Executor, State, Value};
use std::collections::BTreeMap;

/// Images whose positions have so many numbers, each of one of so many classes.
pub struct Pictures {
    pub numbers: usize,
    pub classes: usize,
}

impl Pictures {
    /// None like another.
    fn images(&self, at: Bindings) -> Vec<f32> {
        let each = 0..(at.batch * at.seq) as usize * self.numbers;
        each.map(|i| ((i * i % 37) as f32 * 0.21).sin()).collect()
    }

    pub fn targets(&self, at: Bindings) -> Vec<i32> {
        let each = 0..at.batch as usize;
        each.map(|i| ((3 * i + 2) % self.classes) as i32).collect()
    }

    /// Parameters that are no zeros and ones, and the inputs, for the interpreter.
    pub fn feeds(&self, e: &mut Executor, at: Bindings) -> BTreeMap<String, Tensor> {
        for (i, x) in e.state_mut(State::Params).f32().iter_mut().enumerate() {
            *x += (i as f32 * 0.37).sin() / 8.0;
        }
        let images = self.images(at).iter().map(|x| f64::from(*x)).collect();
        let targets = self.targets(at).iter().map(|x| f64::from(*x)).collect();
        let inputs = [
            (
                "patches",
                vec![at.batch, at.seq, self.numbers as u64],
                images,
            ),
            ("targets", vec![at.batch, 1, 1], targets),
        ];
        let inputs = inputs.map(|(name, shape, data)| (name.to_string(), Tensor::new(shape, data)));
        feeds(e, at, &[]).into_iter().chain(inputs).collect()
    }

    /// Logits, the loss and gradients of a program, as f64 numbers.
    pub fn run(&self, e: &mut Executor, at: Bindings) -> Vec<f64> {
        let (x, y) = (self.images(at), self.targets(at));
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let patches = match e.real() {
            DType::F64 => Value::F64(&wide),
            _ => Value::F32(&x),
        };
        let io = [("patches", patches), ("targets", Value::I32(&y))];
        let logits = e.run("forward", at, &io[..1], &[]).unwrap();
        let mut out: Vec<f64> = logits.reals("logits").unwrap().iter().collect();
        e.state_mut(State::Grads).fill(std::iter::repeat(f64::NAN));
        let loss = e.run("grad", at, &io, &[]).unwrap();
        out.push(loss.scalar("loss").unwrap());
        out.extend(e.state(State::Grads).iter());
        out
    }

    /// The same, as bits.
    pub fn bits(&self, e: &mut Executor, at: Bindings) -> Vec<u64> {
        let all = self.run(e, at).into_iter().map(f64::to_bits);
        all.collect()
    }

    /// However launches are joined, states are kept and batches are read: the same bits of programs with these lines in their train blocks.
    pub fn same_bits(&self, at: Bindings, program: &dyn Fn(&str, Options) -> Executor) {
        for precision in ["", "precision bf16", "precision f64"] {
            let mut plain = program(precision, options());
            let whole = self.bits(&mut plain, at);
            let off = Options {
                fusion: Fusion::Off,
                ..options()
            };
            let mut apart = program(precision, off);
            assert!(
                self.bits(&mut apart, at) == whole,
                "{precision}: not joined"
            );
            let train = format!("memory revolve(slots: 1);  {precision}");
            let mut kept = program(&train, options());
            assert!(
                self.bits(&mut kept, at) == whole,
                "{precision}: computed again"
            );
            // Images do not meet: each has the logits that it has alone.
            let first = self.bits(&mut plain, Bindings::new(1, at.seq));
            let each = self.classes;
            assert!(first[..each] == whole[..each], "{precision}: alone");
        }
    }

    /// Pictures with a class each are told apart after some steps.
    pub fn are_told_apart(&self, e: &mut Executor, at: Bindings) {
        let (x, y) = (self.images(at), self.targets(at));
        let io = [("patches", Value::F32(&x)), ("targets", Value::I32(&y))];
        let mut losses = Vec::new();
        for t in 1..=30 {
            let made = e.run("grad", at, &io, &[]).unwrap();
            losses.push(made.scalar("loss").unwrap());
            let scalars = [
                (named::LR, 1e-2),
                (named::BIAS1, 1.0 / (1.0 - 0.9f64.powi(t))),
                (named::BIAS2, 1.0 / (1.0 - 0.95f64.powi(t))),
            ];
            e.run("update", at, &[], &scalars).unwrap();
        }
        assert!(losses[29] < losses[0] / 4.0, "{losses:?}");
        let logits = e.run("forward", at, &io[..1], &[]).unwrap();
        let logits: Vec<f64> = logits.reals("logits").unwrap().iter().collect();
        let told = logits.chunks(self.classes).map(|z| {
            let best = |a: usize, b: usize| if z[b] > z[a] { b } else { a };
            (0..z.len()).reduce(best).unwrap() as i32
        });
        assert_eq!(told.collect::<Vec<i32>>(), y);
    }
}
