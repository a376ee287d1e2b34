//! The door for outside checks.

use crate::support::{self, VOCAB, WIDTH};
use odec_runtime::infer::exec::inputs;
use odec_runtime::{Artifact, DeviceChoice, Executor, State, Value, exec};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use std::path::Path;

fn executor() -> Executor {
    let artifact = Artifact::in_memory(support::manifest()).unwrap();
    let device = artifact.device(DeviceChoice::Reference, None).unwrap();
    Executor::new(&artifact, device).unwrap()
}

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn floats(name: &'static str, x: &[f32], wide: bool) -> Tensor {
    let shape = vec![VOCAB as usize, WIDTH as usize];
    match wide {
        true => (
            name,
            Dtype::F64,
            shape,
            x.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect(),
        ),
        false => (
            name,
            Dtype::F32,
            shape,
            x.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ),
    }
}

fn ints(name: &'static str, shape: &[usize], x: &[i64], wide: bool) -> Tensor {
    match wide {
        true => (
            name,
            Dtype::I64,
            shape.to_vec(),
            x.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ),
        false => (
            name,
            Dtype::I32,
            shape.to_vec(),
            x.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
        ),
    }
}

fn write(path: &Path, list: &[Tensor]) {
    let views = list
        .iter()
        .map(|(n, d, s, b)| (*n, TensorView::new(*d, s.clone(), b).unwrap()));
    std::fs::write(path, serialize(views, None).unwrap()).unwrap();
}

#[test]
fn entries_run_on_given_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (
        dir.path().join("in.safetensors"),
        dir.path().join("out.safetensors"),
    );
    let mut known = executor();
    known.initialise(5);
    let params = known.state(State::Params).f32().to_vec();
    let half = params.len() / 2;
    let (tokens, targets) = ([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7]);
    for wide in [false, true] {
        write(
            &input,
            &[
                floats("embed.weight", &params[..half], wide),
                floats("output.weight", &params[half..], false),
                ints("tokens", &[2, 3], &tokens, wide),
                ints("targets", &[2, 3], &targets, false),
            ],
        );
        for entry in ["forward", "loss", "grad"] {
            let mut x = executor();
            let names = inputs(x.manifest());
            exec(&mut x, entry, &names, &input, &output).unwrap();
            let bytes = std::fs::read(&output).unwrap();
            let out = SafeTensors::deserialize(&bytes).unwrap();
            let mut names = out.names();
            names.sort_unstable();
            let want: &[&str] = match entry {
                "forward" => &["logits"],
                "loss" => &["loss"],
                _ => &["grad.embed.weight", "grad.output.weight", "loss"],
            };
            assert_eq!(names, want);
            let got = |name: &str| -> Vec<f32> {
                out.tensor(name)
                    .unwrap()
                    .data()
                    .chunks(4)
                    .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                    .collect()
            };
            // What the executor gives when it is asked directly.
            let io = [
                ("tokens", Value::I32(&tokens.map(|t| t as i32))),
                ("targets", Value::I32(&targets.map(|t| t as i32))),
            ];
            let at = odec_program::Bindings::new(2, 3);
            let result = known
                .run(
                    entry,
                    at,
                    &io[..if entry == "forward" { 1 } else { 2 }],
                    &[],
                )
                .unwrap();
            let name = if entry == "forward" { "logits" } else { "loss" };
            assert_eq!(got(name), result.reals(name).unwrap().f32());
            if entry == "forward" {
                assert_eq!(
                    out.tensor("logits").unwrap().shape(),
                    [2, 3, VOCAB as usize]
                );
            }
            if entry == "grad" {
                let grads = known.state(State::Grads).f32();
                assert_eq!(got("grad.embed.weight"), grads[..half]);
                assert_eq!(got("grad.output.weight"), grads[half..]);
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (
        dir.path().join("in.safetensors"),
        dir.path().join("out.safetensors"),
    );
    let zeros = vec![0.0; (VOCAB * WIDTH) as usize];
    let good = || {
        vec![
            floats("embed.weight", &zeros, false),
            floats("output.weight", &zeros, false),
            ints("tokens", &[1, 2], &[1, 2], false),
            ints("targets", &[1, 2], &[2, 3], false),
        ]
    };
    let mut errors = vec![];
    let mut fail = |entry: &str, list: Option<Vec<Tensor>>| {
        if let Some(list) = list {
            write(&input, &list);
        }
        let mut x = executor();
        let known = inputs(x.manifest());
        let e = exec(&mut x, entry, &known, &input, &output)
            .unwrap_err()
            .to_string();
        errors.push(e.replace(&dir.path().display().to_string(), "DIR"));
        assert!(!output.exists());
    };
    fail("grad", None);
    fail("update", Some(good()));
    let mut list = good();
    list[0].0 = "embedding.weight";
    list[1].2 = vec![WIDTH as usize, VOCAB as usize];
    fail("grad", Some(list));
    let mut list = good();
    list[0] = ints(
        "embed.weight",
        &[VOCAB as usize, WIDTH as usize],
        &vec![0; zeros.len()],
        false,
    );
    fail("grad", Some(list));
    fail("grad", Some(good()[..3].to_vec()));
    let with = |t: Tensor| {
        let mut list = good();
        list[2] = t;
        Some(list)
    };
    fail("grad", with(ints("tokens", &[2], &[1, 2], false)));
    fail("grad", with(ints("tokens", &[2, 1], &[1, 2], false)));
    fail("grad", with(ints("tokens", &[1, 2], &[1, 1 << 40], true)));
    fail("grad", with(("tokens", Dtype::F32, vec![1, 2], vec![0; 8])));
    fail("grad", with(ints("tokens", &[0, 2], &[], false)));
    std::fs::write(&input, b"tensors").unwrap();
    fail("grad", None);
    insta::assert_snapshot!(errors.join("\n"));
}
