//! Work that nothing reads is passed over: as much as the flags say, and without a change of bits.

use crate::numbers::{executor, tokens};
use crate::systems::options;
use odec_compiler::passes::{ModelParts, assemble};
use odec_graph::ops::{
    Combine, Embedding, Input, Parameter, Predicate, RegionBegin, Select, SumCols,
};
use odec_graph::{Builder, Exact, Graph, TensorType, Value, gradient, nn};
use odec_program::manifest::{self, Init, Manifest};
use odec_program::site::Pass;
use odec_program::{Bindings, Dim};
use odec_runtime::{Executor, State, Value as Given};

const AT: Bindings = Bindings::new(2, 3);
const WIDTH: u64 = 6;
const STEPS: usize = 4;

fn param(b: &mut Builder, all: &mut Vec<(Parameter, Value)>, path: &str, shape: &[u64]) -> Value {
    let p = Parameter {
        path: path.into(),
        shape: shape.to_vec(),
        init: Init::Normal { std: 0.5 },
    };
    let v = b.push1(p.clone(), &[]).expect("a parameter");
    all.push((p, v));
    v
}

/// `x ← x + silu(x Wᵀ) Vᵀ` in every step whose flag, a parameter, is positive.
fn graph(with_gradient: bool) -> (Graph, Vec<Parameter>) {
    let mut b = Builder::new();
    let mut params = Vec::new();
    let ty = TensorType::index([Dim::Batch, Dim::Seq, Dim::Fixed(1)]);
    let name = "tokens".into();
    let tokens = b.push1(Input { name, ty }, &[]).expect("an input");
    let table = param(&mut b, &mut params, "table", &[5, WIDTH]);
    let w = param(&mut b, &mut params, "w", &[9, WIDTH]);
    let v = param(&mut b, &mut params, "v", &[WIDTH, 9]);
    let mut x = b.push1(Embedding, &[table, tokens]).expect("rows");
    for k in 0..STEPS {
        let flag = param(&mut b, &mut params, &format!("flag{k}"), &[]);
        b.site.step = Some(k as u32);
        let region = k as u32;
        let flag = b.push1(Predicate { region }, &[flag]).expect("a flag");
        let [from, w, v] =
            [x, w, v].map(|v| b.push1(RegionBegin { region }, &[v]).expect("entered"));
        let hidden = nn::linear(&mut b, from, w).expect("a map");
        let hidden = nn::silu(&mut b, hidden).expect("a map");
        let rate = nn::linear(&mut b, hidden, v).expect("a map");
        let coeffs = vec![Exact::one(), Exact::ratio(1, 3)];
        let made = b.push1(Combine::of(coeffs), &[from, rate]).expect("a sum");
        x = b.push1(Select, &[flag, made, x]).expect("held");
        b.site.step = None;
    }
    let sum = b.push1(SumCols, &[x]).expect("sums");
    let loss = nn::mean_rows(&mut b, sum).expect("a number");
    let list = params.iter().map(|p| p.0.clone()).collect();
    if !with_gradient {
        b.output("loss", loss);
        return (b.finish(), list);
    }
    let wrt: Vec<Value> = params.iter().map(|p| p.1).collect();
    let (graph, grads) = gradient(b.finish(), loss, &wrt).expect("a derivative");
    let mut b = Builder::extend(graph);
    b.output("loss", loss);
    for (p, g) in list.iter().zip(grads) {
        if let Some(g) = g {
            b.output(format!("grad.{}", p.path), g);
        }
    }
    (b.finish(), list)
}

fn manifest() -> Manifest {
    let ((forward, params), (grad, _)) = (graph(false), graph(true));
    let model = ModelParts {
        name: "guards",
        source: "",
        model: manifest::Model {
            vocab: 5,
            tokens: None,
            context: AT.seq,
            source: 0,
            width: WIDTH,
            also: Default::default(),
        },
        params: &params,
        forward: &forward,
        decode: None,
        several: None,
        translation: None,
        loss: None,
        grad: Some(&grad),
        train: None,
        precision: manifest::Precision::F32,
        claims: vec![],
        depths: vec![],
        maxima: AT,
    };
    let made = assemble(&model, options());
    made.unwrap_or_else(|e| panic!("{e}")).manifest
}

/// Loss, gradients and how many instructions were passed over, with the first `steps` steps made.
fn run(e: &mut Executor, entry: &str, steps: usize, skip: bool) -> (Vec<u32>, usize) {
    let params = e.manifest().params.clone();
    for (k, p) in (0..STEPS).map(|k| (k, format!("flag{k}"))) {
        let at = params.iter().find(|q| q.path == p).expect("a flag").offset / 4;
        e.state_mut(State::Params).f32()[at as usize] = if k < steps { 1.0 } else { -1.0 };
    }
    e.set_skip(skip);
    let x = tokens(AT, 5, 1);
    let out = e.run(entry, AT, &[("tokens", Given::I32(&x))], &[]);
    let loss = out.expect("runs").scalar("loss").expect("a number");
    let grads = match entry {
        "grad" => e.state(State::Grads).f32().to_vec(),
        _ => vec![],
    };
    let bits = [loss as f32].into_iter().chain(grads).map(f32::to_bits);
    (bits.collect(), e.skipped())
}

#[test]
fn steps_that_are_not_made_cost_nothing_and_change_nothing() {
    let m = manifest();
    for entry in ["forward", "grad"] {
        let mut passed = Vec::new();
        for steps in (0..=STEPS).rev() {
            let mut e = executor(&m);
            let (bits, skipped) = run(&mut e, entry, steps, true);
            assert!(
                run(&mut e, entry, steps, false) == (bits, 0),
                "{entry} {steps}"
            );
            passed.push(skipped);
        }
        let guarded = m.program.entries[entry].instrs.iter();
        let guarded = guarded.filter(|i| i.guard.is_some()).count();
        assert_eq!(passed[0], 0, "{entry}: a step that is made is passed over");
        assert_eq!(passed[STEPS], guarded, "{entry}");
        assert!(passed.is_sorted() && passed[1] > 0, "{entry}: {passed:?}");
        // Steps alike cost alike, but for the first and the last one.
        assert_eq!(
            passed[2] - passed[1],
            passed[3] - passed[2],
            "{entry}: {passed:?}"
        );
    }
}

#[test]
fn gradients_of_steps_that_are_not_made_are_zero_and_need_no_pass_over_memory() {
    let m = manifest();
    let mut e = executor(&m);
    run(&mut e, "grad", 0, true);
    let of = |e: &Executor, path: &str| {
        let p = e.manifest().params.iter().find(|p| p.path == path);
        e.of(State::Grads, p.expect("a parameter"))
            .iter()
            .collect::<Vec<f64>>()
    };
    assert!(of(&e, "w").iter().chain(&of(&e, "v")).all(|g| *g == 0.0));
    assert!(of(&e, "table").iter().any(|g| *g != 0.0));
    // All contractions are guarded, and so are the sums of their results over steps but the first and the last.
    let entry = &m.program.entries["grad"];
    let kind = |k: u32| m.program.kernels[k as usize].spec.kind();
    let (mut free, mut sums) = (0, 0);
    for i in &entry.instrs {
        match (kind(i.kernel), i.guard) {
            ("contract", guard) => free += usize::from(guard.is_none()),
            ("rows", Some(_))
                if i.operands.len() == 4 && m.program.site(i).pass == Pass::Backward =>
            {
                sums += 1
            }
            _ => {}
        }
    }
    assert_eq!(free, 0);
    assert!(sums >= 2 * (STEPS - 2), "{sums}");
}
