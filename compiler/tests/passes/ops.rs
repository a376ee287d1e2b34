//! Each op by itself: what is planned of its samples, in f32 on the reference device, beside its own evaluation.

use crate::numbers::executor;
use crate::plain::set;
use crate::systems::options;
use odec_compiler::passes::{ModelParts, assemble};
use odec_graph::interp::{EvalCx, Tensor};
use odec_graph::ops::{self, Input, Parameter, Sample};
use odec_graph::{Builder, Elem, TensorType};
use odec_program::Dim;
use odec_program::manifest::{Init, Precision};
use odec_runtime::{Artifact, Value};
use std::collections::BTreeSet;

/// An operand with the numbers that it is given.
struct Operand {
    name: String,
    data: Vec<f64>,
    ty: TensorType,
}

impl Operand {
    /// Whether it has one size in every run, as parameters have.
    fn is_fixed(&self) -> bool {
        let fixed = |d: &Dim| matches!(d, Dim::Fixed(_));
        self.ty.elem == Elem::Real && self.ty.shape.iter().all(fixed)
    }

    /// Numbers without a pattern, each of them an f32.
    fn of(s: &Sample, i: usize) -> Operand {
        let ty = s.ins[i].clone();
        let count: u64 = ty.concrete(s.bindings).iter().product();
        let number = |n: u64| {
            let n = n + 17 * i as u64;
            let share = (n * n * 7 + n * 31 + 5) % 97;
            match ty.elem {
                Elem::Index => (share % s.indices.max(1)) as f64,
                _ => f64::from((s.low + (s.high - s.low) * (share as f64 + 0.5) / 97.0) as f32),
            }
        };
        Operand {
            name: format!("in.{i}"),
            data: (0..count).map(number).collect(),
            ty,
        }
    }
}

/// The op whose samples are no programs: no result of a run is bf16.
const NO_PROGRAM: &str = "bf16";

/// Whether a sample reads what an earlier run left.
fn continues(s: &Sample) -> bool {
    let kind = s.op.kind(&s.ins);
    s.bindings.past > 0 || (0..2).any(|port| kind.replaces(port).is_some())
}

/// What is wrong with a sample's program, if anything is.
fn difference(s: &Sample) -> Result<(), String> {
    let operands: Vec<Operand> = (0..s.ins.len()).map(|i| Operand::of(s, i)).collect();
    let mut b = Builder::new();
    let mut values = Vec::new();
    let mut params = Vec::new();
    for o in &operands {
        let made = match o.is_fixed() {
            true => {
                let parameter = Parameter {
                    path: o.name.clone(),
                    shape: o.ty.concrete(s.bindings),
                    init: Init::Zeros,
                };
                params.push(parameter.clone());
                b.push1(parameter, &[])
            }
            false => {
                let (name, ty) = (o.name.clone(), o.ty.clone());
                b.push1(Input { name, ty }, &[])
            }
        };
        values.push(made.map_err(|e| e.to_string())?);
    }
    let results = b.push(s.op.clone(), &values).map_err(|e| e.to_string())?;
    for (i, v) in results.iter().enumerate() {
        b.output(format!("out.{i}"), *v);
    }
    let graph = b.finish();
    let run = (Precision::F32, s.bindings);
    let model = ModelParts::alone("op", &graph, &params, [s.indices.max(1), 1], run);
    let manifest = assemble(&model, options())
        .map_err(|e| e.to_string())?
        .manifest;
    Artifact::in_memory(manifest.clone()).map_err(|e| e.to_string())?;
    let mut e = executor(&manifest);
    for p in &manifest.params {
        let o = operands.iter().find(|o| o.name == p.path);
        set(&mut e, p, o.ok_or("a parameter of nothing")?.data.clone());
    }
    let words: Vec<Vec<i32>> = operands
        .iter()
        .map(|o| o.data.iter().map(|x| *x as i32).collect())
        .collect();
    let reals: Vec<Vec<f32>> = operands
        .iter()
        .map(|o| o.data.iter().map(|x| *x as f32).collect())
        .collect();
    let given = operands.iter().enumerate().filter(|(_, o)| !o.is_fixed());
    let io: Vec<(&str, Value)> = given
        .map(|(i, o)| match o.ty.elem {
            Elem::Index => (o.name.as_str(), Value::I32(&words[i])),
            _ => (o.name.as_str(), Value::F32(&reals[i])),
        })
        .collect();
    let run = e
        .run("forward", s.bindings, &io, &[])
        .map_err(|e| e.to_string())?;
    let tensors: Vec<Tensor> = operands
        .iter()
        .map(|o| Tensor::new(o.ty.concrete(s.bindings), o.data.clone()))
        .collect();
    let tensors: Vec<&Tensor> = tensors.iter().collect();
    let cx = EvalCx {
        bindings: s.bindings,
    };
    let wanted = s.op.eval(&tensors, &cx).map_err(|e| e.to_string())?;
    for (i, want) in wanted.iter().enumerate() {
        let got = run.reals(&format!("out.{i}")).map_err(|e| e.to_string())?;
        let got: Vec<f64> = got.iter().collect();
        let largest = want.data.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (g, w) in got.iter().zip(&want.data) {
            if (g - w).abs() > s.tolerance * largest {
                return Err(format!("result {i}: {g}, not {w}"));
            }
        }
        if got.len() != want.data.len() {
            return Err(format!("result {i} has {} numbers", got.len()));
        }
    }
    Ok(())
}

#[test]
fn planned_ops_compute_what_they_mean() {
    let (mut planned, mut wrong) = (BTreeSet::new(), Vec::new());
    for s in ops::samples() {
        let name = s.op.name();
        if continues(&s) || name == NO_PROGRAM {
            continue;
        }
        planned.insert(name);
        if let Err(why) = difference(&s) {
            wrong.push(format!("{name}, {}: {why}", s.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let others = ops::NAMES.iter().filter(|name| !planned.contains(*name));
    let others: Vec<&str> = others.copied().collect();
    // Those that are fed, and those that continue what an earlier run left.
    let fed = [
        "parameter",
        "input",
        NO_PROGRAM,
        "cache",
        "append",
        "from_past",
    ];
    let continued = ["carry", "carried_scan", "delayed"];
    assert_eq!(others, [&fed[..], &continued[..]].concat());
}
