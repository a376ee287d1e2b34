//! `precision f64`: programs against their graphs, and against themselves through files.

use crate::memory::{AT, model};
use crate::numbers::{executor, feeds, tokens};
use crate::systems::options;
use odec_compiler::passes::{ModelParts, assemble};
use odec_graph::interp;
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, DType};
use odec_runtime::infer::exec;
use odec_runtime::parameters::import::{self, Init};
use odec_runtime::{Executor, Reader, State, Value};
use safetensors::SafeTensors;

fn planned(flow: &str, train: &str) -> Manifest {
    let (built, text) = model(flow, 2, &format!("store;  precision f64{train}"));
    let assembled = assemble(&ModelParts::new(&built, &text), options());
    assembled.unwrap().manifest
}

#[track_caller]
fn close(what: &str, got: impl Iterator<Item = f64>, want: &[f64]) {
    let got: Vec<f64> = got.collect();
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (g - w).abs() / scale;
        assert!(
            error < 1e-12,
            "{what}[{i}]: {g} instead of {w} ({error:.1e})"
        );
    }
}

/// The interpreter computes in f64 too, in another order.
#[test]
fn programs_mean_their_graphs() {
    let flows = [
        "rk4(layer)",
        "iie(layer, r: 2)",
        "own(layer)",
        "pcformer(layer, m: 3)",
        "strang(att, ffn)",
    ];
    for flow in flows {
        let (built, _) = model(flow, 2, "store");
        let mut e = executor(&planned(flow, ""));
        assert_eq!(e.real(), DType::F64);
        let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let want = interp::run(&built.forward, &f, AT).unwrap();
        let out = e.run("forward", AT, &inputs[..1], &[]).unwrap();
        close(
            flow,
            out.reals("logits").unwrap().iter(),
            &want["logits"].data,
        );
        let want = interp::run(&built.grad, &f, AT).unwrap();
        let out = e.run("grad", AT, &inputs, &[]).unwrap();
        close(flow, out.reals("loss").unwrap().iter(), &want["loss"].data);
        for p in &e.manifest().params {
            let grad = format!("grad.{}", p.path);
            close(&grad, e.of(State::Grads, p).iter(), &want[&grad].data);
        }
    }
}

/// Nothing is f32 but the names of token kinds.
#[test]
fn every_kernel_computes_in_f64() {
    let m = planned("rk4(layer)", ";  accumulate 2");
    for k in &m.program.kernels {
        assert_eq!(k.spec.dtype(), DType::F64, "{}", k.symbol);
        for o in k.spec.signature().operands {
            let odd = matches!(o.dtype, DType::F32 | DType::Bf16);
            assert!(!odd, "{} operand {}", k.symbol, o.name);
        }
    }
    let single = model("rk4(layer)", 2, "store");
    let single = assemble(&ModelParts::new(&single.0, &single.1), options()).unwrap();
    assert_eq!(
        m.program.param_bytes,
        2 * single.manifest.program.param_bytes
    );
}

#[test]
fn decoding_gives_the_bits_of_reading_at_once() {
    let mut e = executor(&planned("rk4(layer)", ""));
    let at = Bindings::new(1, 9);
    let x = tokens(at, 11, 1);
    let whole = e.run("forward", at, &[("tokens", Value::I32(&x))], &[]);
    let whole: Vec<f64> = whole.unwrap().reals("logits").unwrap().iter().collect();
    let mut reader = Reader::new(&mut e).unwrap();
    let mut pieces = Vec::new();
    for piece in [&x[..4], &x[4..5], &x[5..]] {
        pieces.extend(reader.read(piece).unwrap().iter());
    }
    assert_eq!(pieces, whole);
}

/// Norm and step of the optimiser, against the formula (Loshchilov & Hutter 2019) in f64.
#[test]
fn the_optimiser_steps_in_f64() {
    let mut e = executor(&planned("lie(att, ffn)", ""));
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    e.run("grad", AT, &inputs, &[]).unwrap();
    let all = |e: &Executor, s| -> Vec<f64> {
        let params = e.manifest().params.clone();
        params
            .iter()
            .flat_map(|p| e.of(s, p).iter().collect::<Vec<_>>())
            .collect()
    };
    let (p, g) = (all(&e, State::Params), all(&e, State::Grads));
    let (lr, bias1, bias2) = (1e-2, 10.0, 20.0);
    let scalars = [
        (named::LR, lr),
        (named::BIAS1, bias1),
        (named::BIAS2, bias2),
    ];
    let norm = e
        .run("update", AT, &[], &scalars)
        .unwrap()
        .scalar("grad_norm");
    let want = g.iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!((norm.unwrap() / want - 1.0).abs() < 1e-14);
    let step = p.iter().zip(&g).map(|(p, g)| {
        let (m, v) = ((1.0 - 0.9) * g * bias1, (1.0 - 0.95) * g * g * bias2);
        p - lr * m / (v.sqrt() + 1e-8)
    });
    for (got, want) in all(&e, State::Params).iter().zip(step) {
        assert!((got - want).abs() < 1e-15, "{got} {want}");
    }
}

/// Parameters go through a file in all their bits, and what `exec` writes is f64.
#[test]
fn files_hold_f64() {
    let folder = tempfile::tempdir().unwrap();
    let m = planned("rk4(layer)", "");
    let mut e = executor(&m);
    let file = folder.path().join("params.safetensors");
    import::export(&file, &e).unwrap();
    let before: Vec<f64> = e.state(State::Params).iter().collect();
    e.initialise(8);
    assert_ne!(e.state(State::Params).iter().collect::<Vec<_>>(), before);
    Init::open(&file, None).unwrap().import(&mut e).unwrap();
    assert_eq!(e.state(State::Params).iter().collect::<Vec<_>>(), before);

    let x = tokens(AT, 11, 1);
    let shape = [AT.batch as usize, AT.seq as usize];
    let token_bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let bytes = std::fs::read(&file).unwrap();
    let params = SafeTensors::deserialize(&bytes).unwrap();
    let mut given = params.tensors();
    let view =
        safetensors::tensor::TensorView::new(safetensors::Dtype::I32, shape.into(), &token_bytes);
    given.push(("tokens".into(), view.unwrap()));
    let (inputs, outputs) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::write(&inputs, safetensors::serialize(given, None).unwrap()).unwrap();
    let known = exec::inputs(e.manifest());
    exec::exec(&mut e, "forward", &known, &inputs, &outputs).unwrap();
    let want = e
        .run("forward", AT, &[("tokens", Value::I32(&x))], &[])
        .unwrap();
    let bytes = std::fs::read(&outputs).unwrap();
    let out = SafeTensors::deserialize(&bytes).unwrap();
    let got = out.tensor("logits").unwrap();
    assert_eq!(got.dtype(), safetensors::Dtype::F64);
    assert_eq!(got.data(), want.reals("logits").unwrap().bytes());
}
