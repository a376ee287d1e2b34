//! Generated tests: every op's samples through shapes, row rules and derivatives.

use crate::common::{Random, by_rule, close, slope};
use odec_graph::interp::{EvalCx, Tensor};
use odec_graph::ops::Sample;
use odec_graph::ops::{self, Input, Mul, SumCols, SumRows, Table, matmul::Layout};
use odec_graph::{
    Builder, DiffError, Elem, Exact, Graph, InferTypes, OpKind, TensorType, Value, gradient, run,
    verify,
};
use odec_program::kernel::Share;
use odec_program::manifest::{self, Init};
use odec_program::{Bindings, Dim, Size};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn operands(s: &Sample) -> Vec<Tensor> {
    let mut random = Random(7);
    let tensor = |t| random.tensor(t, s.bindings, (s.low, s.high), s.indices);
    s.ins.iter().map(tensor).collect()
}

fn eval(op: &OpKind, ins: &[Tensor], bindings: Bindings) -> Vec<Tensor> {
    let refs: Vec<&Tensor> = ins.iter().collect();
    op.eval(&refs, &EvalCx { bindings }).expect("a safe sample")
}

fn title(s: &Sample) -> String {
    format!("{} {}", s.op.name(), s.name)
}

#[test]
fn inferred_shapes_are_evaluated_shapes() {
    for s in ops::samples() {
        let types = s.op.infer(&s.ins).expect("a sample");
        let results = eval(&s.op, &operands(&s), s.bindings);
        let shapes: Vec<Vec<u64>> = results.into_iter().map(|t| t.shape).collect();
        let inferred: Vec<Vec<u64>> = types.iter().map(|t| t.concrete(s.bindings)).collect();
        assert_eq!(shapes, inferred, "{}", title(&s));
    }
}

#[test]
fn every_op_but_the_fed_ones_has_samples() {
    let named: std::collections::BTreeSet<&str> =
        ops::samples().iter().map(|s| s.op.name()).collect();
    let missing: Vec<&&str> = ops::NAMES.iter().filter(|n| !named.contains(**n)).collect();
    assert_eq!(missing, [&"parameter", &"input", &"cache", &"carry"]);
}

#[test]
fn row_rules_compute_what_eval_says() {
    let mut ruled = 0;
    for s in ops::samples() {
        let ins = operands(&s);
        let Some(by_rule) = by_rule(&s.op, &s.ins, &ins, s.bindings) else {
            continue;
        };
        ruled += 1;
        let expected = eval(&s.op, &ins, s.bindings).remove(0);
        assert_eq!(by_rule.shape, expected.shape, "{}", title(&s));
        for (a, b) in by_rule.data.iter().zip(&expected.data) {
            assert!(close(*a, *b, 1e-13), "{}: {a} is not {b}", title(&s));
        }
    }
    assert!(ruled > 20);
}

/// A graph of one op whose loss is `Σ weight · result[port]`, differentiated by its real operands.
fn derivative(s: &Sample, port: u32) -> Result<(Graph, Vec<usize>), DiffError> {
    let mut b = Builder::new();
    let input = |b: &mut Builder, name: String, ty: &TensorType| {
        let ty = ty.clone();
        b.push1(Input { name, ty }, &[]).expect("an input")
    };
    let ins: Vec<Value> = match &s.op {
        // only a rotation by constant tables is differentiable
        OpKind::Rope(rope) => {
            let x = input(&mut b, "in0".into(), &s.ins[0]);
            let tables = rotary_tables(rope.interleaved);
            let [cos, sin] = tables.map(|table| b.push1(Table { table }, &[]).expect("a table"));
            vec![x, cos, sin]
        }
        _ => s
            .ins
            .iter()
            .enumerate()
            .map(|(i, t)| input(&mut b, format!("in{i}"), t))
            .collect(),
    };
    let out = b.push(s.op.clone(), &ins).expect("a sample")[port as usize];
    let ty = b.ty(out).widened();
    let weight = input(&mut b, "weight".into(), &ty);
    let mut loss = b.push1(Mul, &[out, weight]).expect("one type");
    if ty.rank() > 0 {
        loss = b.push1(SumCols, &[loss]).expect("columns");
        loss = b.push1(SumRows, &[loss]).expect("rows");
    }
    let real = |v: &Value| {
        b.ty(*v).elem == Elem::Real && matches!(b.graph().node(v.node).op, OpKind::Input(_))
    };
    let wrt: Vec<usize> = (0..ins.len()).filter(|i| real(&ins[*i])).collect();
    let values: Vec<Value> = wrt.iter().map(|i| ins[*i]).collect();
    let (graph, found) = gradient(b.finish(), loss, &values)?;
    let mut b = Builder::extend(graph);
    for (i, d) in wrt.iter().zip(found) {
        if let Some(d) = d {
            b.output(format!("d{i}"), d);
        }
    }
    b.output("loss", loss);
    Ok((b.finish(), wrt))
}

fn rotary_tables(interleaved: bool) -> [manifest::Table; 2] {
    let (positions, head, base) = (7, 4, 10.0);
    let turns = manifest::Turns {
        interleaved,
        ..Default::default()
    };
    [
        manifest::Table::RotaryCos {
            positions,
            head,
            base,
            turns,
        },
        manifest::Table::RotarySin {
            positions,
            head,
            base,
            turns,
        },
    ]
}

fn top(of: u32, from: u32) -> ops::TopTokens {
    ops::TopTokens {
        share: Share { of, from },
    }
}

/// Ops whose derivative is declared to be 0, not computed.
fn constant_to_derivatives(s: &Sample) -> bool {
    matches!(
        s.op,
        OpKind::StopGradient(_) | OpKind::Predicate(_) | OpKind::ScaledError(_)
    )
}

/// Ops (and results of them) that have no derivative, on purpose.
fn refused(s: &Sample, port: u32) -> bool {
    match s.op {
        OpKind::AttentionBackward(_) => true,
        OpKind::Append(_) | OpKind::FromPast(_) | OpKind::CachedAttention(_) => true,
        OpKind::ScanBackward(_) | OpKind::CarriedScan(_) => true,
        OpKind::Delayed(_) => true,
        OpKind::PositionSum(sum) => sum.beyond,
        OpKind::Attention(_) => port == 1,
        OpKind::LinearAttention(op) => op.reversed || op.continued,
        // precision is chosen after derivatives are taken
        OpKind::Bf16(_) => true,
        OpKind::MatMul(m) => m.rounded || m.weights.is_some(),
        OpKind::GroupedMatMul(m) => m.rounded,
        OpKind::GroupedOuter(m) => m.rounded,
        _ => false,
    }
}

#[test]
fn derivatives_agree_with_central_differences() {
    let mut random = Random(11);
    for s in ops::samples() {
        if constant_to_derivatives(&s) || s.ins.is_empty() {
            continue;
        }
        for port in 0..s.op.infer(&s.ins).expect("a sample").len() as u32 {
            let (graph, wrt) = match derivative(&s, port) {
                Err(DiffError::NotDifferentiable { .. }) if refused(&s, port) => continue,
                other => other.expect("a differentiable op"),
            };
            assert!(!refused(&s, port), "{} has a derivative", title(&s));
            verify(&graph).expect("the derivative's graph is sound");
            let operands = operands(&s);
            let mut feeds = BTreeMap::new();
            for (i, x) in operands.iter().enumerate() {
                feeds.insert(format!("in{i}"), x.clone());
            }
            let weight = s.op.infer(&s.ins).expect("a sample").remove(port as usize);
            feeds.insert(
                "weight".into(),
                random.tensor(&weight, s.bindings, (-1.0, 1.0), 0),
            );
            let exact = run(&graph, &feeds, s.bindings).expect("a safe sample");
            for i in wrt {
                let name = format!("in{i}");
                let n = operands[i].data.len();
                // every element of small operands; of large ones a few random directions, in each of which all elements count
                let directions: Vec<Vec<f64>> = match n {
                    0..16 => (0..n)
                        .map(|k| (0..n).map(|j| f64::from(u8::from(j == k))).collect())
                        .collect(),
                    _ => (0..5)
                        .map(|_| (0..n).map(|_| random.real(-1.0, 1.0)).collect())
                        .collect(),
                };
                for v in directions {
                    let analytic = match exact.get(&format!("d{i}")) {
                        Some(d) => d.data.iter().zip(&v).map(|(d, v)| d * v).sum(),
                        // said not to depend on it
                        None => 0.0,
                    };
                    let numeric = slope(|h| {
                        let mut feeds = feeds.clone();
                        let x = &mut feeds.get_mut(&name).expect("fed").data;
                        x.iter_mut().zip(&v).for_each(|(x, v)| *x += h * v);
                        run(&graph, &feeds, s.bindings).expect("still safe")["loss"].data[0]
                    });
                    let t = title(&s);
                    assert!(
                        close(analytic, numeric, 1e-8),
                        "{t} by {name}: {analytic} is not {numeric}"
                    );
                }
            }
        }
    }
}

#[test]
fn declared_derivatives_are_zero() {
    let declared: Vec<Sample> = ops::samples()
        .into_iter()
        .filter(constant_to_derivatives)
        .collect();
    assert!(declared.len() >= 3);
    for s in declared {
        let (graph, wrt) = derivative(&s, 0).expect("differentiable");
        assert!(!wrt.is_empty(), "{}", title(&s));
        let outputs: Vec<&str> = graph.outputs().iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(outputs, ["loss"], "{}", title(&s));
    }
}

/// What wrong operands are answered with.
#[test]
fn wrong_operands_are_errors() {
    let token = TensorType::state(1);
    let (s5, s4, row) = (
        TensorType::state(5),
        TensorType::state(4),
        TensorType::state(1),
    );
    let (scalar, at) = (TensorType::scalar(), TensorType::index(row.shape.clone()));
    let matrix = |m, n| TensorType::real([Dim::Fixed(m), Dim::Fixed(n)]);
    let table = |head, base| ops::Table {
        table: manifest::Table::RotaryCos {
            positions: 7,
            head,
            base,
            turns: Default::default(),
        },
    };
    let parameter = |path: &str, shape: &[u64]| ops::Parameter {
        path: path.into(),
        shape: shape.into(),
        init: Init::Zeros,
    };
    let rope = |head| ops::Rope {
        head,
        interleaved: false,
        inverse: false,
    };
    let attention = |heads| ops::Attention::new(heads, true);
    let backward = ops::AttentionBackward {
        attention: attention(2),
    };
    let empty = Size {
        factor: 0,
        batch: 1,
        seq: 0,
        past: 0,
        recent: 0,
        source: 0,
    };
    let cases: Vec<(OpKind, Vec<TensorType>)> = vec![
        (parameter("", &[2]).into(), vec![]),
        (parameter("w", &[2, 0]).into(), vec![]),
        (parameter("w", &[u64::MAX, 2]).into(), vec![]),
        (parameter("w", &[2]).into(), vec![s5.clone()]),
        (
            Input {
                name: "".into(),
                ty: s5.clone(),
            }
            .into(),
            vec![],
        ),
        (
            Input {
                name: "x".into(),
                ty: TensorType::real([Dim::Seq]),
            }
            .into(),
            vec![],
        ),
        (table(5, 10.0).into(), vec![]),
        (table(4, 0.0).into(), vec![]),
        (table(4, f64::NAN).into(), vec![]),
        (table(0, 10.0).into(), vec![]),
        (
            ops::Constant {
                value: Exact::one(),
            }
            .into(),
            vec![scalar.clone()],
        ),
        (ops::InverseCount { size: empty }.into(), vec![]),
        (ops::Add.into(), vec![s5.clone()]),
        (ops::Add.into(), vec![s5.clone(), s4.clone()]),
        (ops::Add.into(), vec![row.clone(), matrix(3, 5)]),
        (ops::Mul.into(), vec![s5.clone(), at.clone()]),
        (ops::Exp.into(), vec![at.clone()]),
        (ops::WherePositive.into(), vec![s5.clone(), row.clone()]),
        (ops::Combine::of([]).into(), vec![]),
        (ops::Combine::of([Exact::one()]).into(), vec![s5.clone(); 2]),
        (
            ops::Combine::of(vec![Exact::one(); 2]).into(),
            vec![s5.clone(), row.clone()],
        ),
        (ops::Combine::of([Exact::one()]).into(), vec![at.clone()]),
        (ops::Broadcast { to: s5.clone() }.into(), vec![s4.clone()]),
        (ops::Broadcast { to: at.clone() }.into(), vec![row.clone()]),
        (ops::SumCols.into(), vec![scalar.clone()]),
        (ops::MaxCols.into(), vec![scalar.clone()]),
        (ops::SumRows.into(), vec![scalar.clone()]),
        (ops::GatherCols.into(), vec![at.clone(), at.clone()]),
        (ops::GatherCols.into(), vec![s5.clone(), row.clone()]),
        (ops::GatherCols.into(), vec![matrix(3, 5), at.clone()]),
        (
            ops::ScatterCols { cols: 5 }.into(),
            vec![s5.clone(), at.clone()],
        ),
        (
            ops::ScatterCols { cols: 0 }.into(),
            vec![row.clone(), at.clone()],
        ),
        (rope(4).into(), vec![s5.clone(), matrix(7, 4), matrix(7, 4)]),
        (rope(0).into(), vec![s4.clone(), matrix(7, 4), matrix(7, 4)]),
        (rope(4).into(), vec![s4.clone(), matrix(7, 2), matrix(7, 2)]),
        (
            rope(2).into(),
            vec![matrix(3, 4), matrix(7, 2), matrix(7, 2)],
        ),
        (
            ops::MatMul::new(Layout::Nt).into(),
            vec![s5.clone(), matrix(7, 4)],
        ),
        (
            ops::MatMul::new(Layout::Nn).into(),
            vec![s5.clone(), s5.clone()],
        ),
        (
            ops::MatMul::new(Layout::Tn).into(),
            vec![s5.clone(), matrix(5, 5)],
        ),
        (
            ops::MatMul::new(Layout::Nt).into(),
            vec![s5.clone(), TensorType::real([Dim::Fixed(5)])],
        ),
        (attention(0).into(), vec![s4.clone(); 3]),
        (attention(3).into(), vec![s4.clone(); 3]),
        (
            attention(2).into(),
            vec![s4.clone(), s4.clone(), row.clone()],
        ),
        (attention(1).into(), vec![matrix(2, 4); 3]),
        (backward.into(), vec![s4.clone(); 6]),
        (ops::Embedding.into(), vec![s5.clone(), at.clone()]),
        (ops::Embedding.into(), vec![matrix(7, 5), row.clone()]),
        (
            ops::Embedding.into(),
            vec![matrix(7, 5), TensorType::index([Dim::Fixed(1)])],
        ),
        (
            ops::EmbeddingGrad { vocab: 7 }.into(),
            vec![row, s5.clone()],
        ),
        (ops::EmbeddingGrad { vocab: 0 }.into(), vec![at, s5.clone()]),
        (ops::Scan { chunks: 1 }.into(), vec![s5.clone(), s4.clone()]),
        (ops::Scan { chunks: 1 }.into(), vec![matrix(3, 5)]),
        (ops::Scan { chunks: 1 }.into(), vec![]),
        (ops::ScanBackward { chunks: 1 }.into(), vec![s5.clone(); 2]),
        (
            ops::ScanBackward { chunks: 1 }.into(),
            vec![s4.clone(), s4.clone(), s5.clone()],
        ),
        (ops::CarriedScan.into(), vec![]),
        (ops::CarriedScan.into(), vec![s5.clone(), s5.clone()]),
        (
            ops::CarriedScan.into(),
            vec![s5.clone(), s5.clone(), s4.clone()],
        ),
        (
            ops::Delayed {
                by: vec![2],
                each: false,
            }
            .into(),
            vec![s5.clone(), s4.clone()],
        ),
        (
            ops::Delayed {
                by: vec![0],
                each: false,
            }
            .into(),
            vec![s5, s4.clone()],
        ),
        (top(1, 2).into(), vec![token.clone(), s4.clone()]),
        (top(1, 2).into(), vec![token.clone()]),
        (top(3, 2).into(), vec![token.clone(), token.clone()]),
        (top(0, 2).into(), vec![token.clone(), token]),
    ];
    let mut text = String::new();
    for (op, ins) in cases {
        let shown: Vec<String> = ins.iter().map(|t| t.to_string()).collect();
        let error = op.infer(&ins).expect_err(op.name());
        text += &format!("({})  {error}\n", shown.join(", "));
    }
    insta::assert_snapshot!(text);
}

/// Ties go to the earlier token, and what is no number comes last, whoever is left out.
#[test]
fn of_equal_scores_the_earlier_is_taken() {
    let state = |x: &[f64]| Tensor::new(vec![1, x.len() as u64, 1], x.to_vec());
    let (nan, low) = (f64::NAN, f64::NEG_INFINITY);
    let chosen = |of, from, scores: &[f64], open: &[f64]| {
        let cx = EvalCx {
            bindings: Bindings::new(1, scores.len() as u64),
        };
        let op: OpKind = top(of, from).into();
        op.eval(&[&state(scores), &state(open)], &cx).unwrap()[0]
            .data
            .clone()
    };
    let all = [1.0; 6];
    let scores = [0.0, -0.0, nan, 2.0, low, 0.0];
    let taken = |n| chosen(n, 6, &scores, &all);
    assert_eq!(taken(2), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(taken(4), [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(taken(5), [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
    assert_eq!(taken(6), all);
    let open = [0.0, 1.0, 1.0, -1.0, nan, 1.0];
    assert_eq!(chosen(1, 3, &scores, &open), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(chosen(1, 1, &scores, &open), [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    // A share of all tokens, rounded up.
    assert_eq!(chosen(1, 5, &scores, &open), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
}

/// Values that do not fit are errors of evaluation, not panics.
#[test]
fn wrong_values_are_errors() {
    let eval = |op: OpKind, ins: &[&Tensor], batch| {
        let bindings = Bindings::new(batch, 9);
        op.eval(ins, &EvalCx { bindings })
            .expect_err("a wrong value")
            .to_string()
    };
    let (x, table) = (Tensor::zeros(vec![1, 9, 4]), Tensor::zeros(vec![7, 4]));
    let at = |i| Tensor::new(vec![1, 9, 1], vec![i; 9]);
    let rope = ops::Rope {
        head: 4,
        interleaved: false,
        inverse: false,
    };
    let count = ops::InverseCount {
        size: Size {
            factor: 1,
            batch: 2,
            seq: 0,
            past: 0,
            recent: 0,
            source: 0,
        },
    };
    let errors = [
        eval(rope.into(), &[&x, &table, &table], 1),
        eval(ops::Embedding.into(), &[&table, &at(7.0)], 1),
        eval(ops::Embedding.into(), &[&table, &at(-1.0)], 1),
        eval(ops::GatherCols.into(), &[&x, &at(0.5)], 1),
        eval(
            ops::ScatterCols { cols: 4 }.into(),
            &[&at(0.0), &at(f64::NAN)],
            1,
        ),
        eval(ops::EmbeddingGrad { vocab: 3 }.into(), &[&at(3.0), &x], 1),
        eval(count.clone().into(), &[], 0),
        eval(count.into(), &[], u64::MAX),
        eval(
            Input {
                name: "x".into(),
                ty: TensorType::scalar(),
            }
            .into(),
            &[],
            1,
        ),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

fn dims() -> impl Strategy<Value = Dim> {
    prop_oneof![
        Just(Dim::Batch),
        Just(Dim::Seq),
        prop_oneof![Just(0), Just(1), Just(2), Just(4), Just(u64::MAX)].prop_map(Dim::Fixed),
    ]
}

fn types() -> impl Strategy<Value = TensorType> {
    let shape = prop_oneof![
        prop::collection::vec(dims(), 0..4),
        prop_oneof![Just(1u64), Just(4)].prop_map(|n| vec![Dim::Batch, Dim::Seq, Dim::Fixed(n)]),
    ];
    (shape, any::<bool>()).prop_map(|(shape, real)| TensorType {
        elem: if real { Elem::Real } else { Elem::Index },
        shape: shape.into(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the operands: an answer or an error, and an answer can be evaluated.
    #[test]
    fn no_operands_make_an_op_panic(ins in prop::collection::vec(types(), 0..7), which in any::<prop::sample::Index>()) {
        let samples = ops::samples();
        let op = &which.get(&samples).op;
        let known = ins.iter().all(|t| t.check().is_ok());
        if let Ok(outs) = op.infer(&ins) && known {
            let bindings = Bindings::new(2, 3);
            let small = |t: &TensorType| t.size().at(bindings).is_some_and(|n| n < 10_000);
            if ins.iter().chain(&outs).all(small) {
                let mut random = Random(3);
                let values: Vec<Tensor> = ins.iter().map(|t| random.tensor(t, bindings, (-1.0, 1.0), 5)).collect();
                let refs: Vec<&Tensor> = values.iter().collect();
                if let Ok(found) = op.eval(&refs, &EvalCx { bindings }) {
                    for (t, out) in found.iter().zip(&outs) {
                        prop_assert_eq!(&t.shape, &out.concrete(bindings));
                    }
                }
                let _ = op.kind(&ins);
            }
        }
    }
}
