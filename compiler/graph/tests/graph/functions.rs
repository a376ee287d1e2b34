//! Functions of one element in f32 against f64, and where they bend, end or overflow.

use odec_graph::interp::EvalCx;
use odec_graph::op::{Kind, Scalars};
use odec_graph::ops::{self, Input, MaxCols, Maximum, Mul, SumCols, SumRows};
use odec_graph::{Builder, OpKind, Tensor, TensorType, Value, gradient, run};
use odec_program::eval::{Evaluator, Memory};
use odec_program::expr::{Access, Body};
use odec_program::{Bindings, Dim};
use std::collections::BTreeMap;

/// The one operand of a kernel.
struct Row(Vec<f32>);

impl Memory<f32> for Row {
    fn load(&self, _: u32, index: u64) -> f32 {
        self.0[index as usize]
    }
    fn store(&mut self, _: u32, _: u64, _: f32) {
        unreachable!("nothing is stored")
    }
}

/// What kernels compute in f32.
fn in_f32(op: &OpKind, xs: Vec<f32>) -> Vec<f32> {
    let n = xs.len();
    let Kind::Rows { rule, .. } = op.kind(&[TensorType::state(n as u64)]) else {
        panic!("{} has no row rule", op.name());
    };
    let (mut body, mut coeffs) = (Body::default(), Vec::new());
    let x = body.load(0, Access::full(n as u64));
    let mut scalars = Scalars {
        body: &mut body,
        coeffs: &mut coeffs,
    };
    let y = rule(&mut scalars, &[x]);
    let mut eval = Evaluator::new(&body, &[]);
    eval.row(&Row(xs), 0, [1, 1], 0..n as u64, &[]);
    (0..n).map(|c| eval.value(y, c)).collect()
}

/// What they mean.
fn in_f64(op: &OpKind, xs: &[f32]) -> Vec<f64> {
    let data = xs.iter().map(|x| f64::from(*x)).collect();
    let x = Tensor::new(vec![1, 1, xs.len() as u64], data);
    let bindings = Bindings::new(1, 1);
    let cx = EvalCx { bindings };
    op.eval(&[&x], &cx).expect("one operand").remove(0).data
}

#[test]
fn f32_is_right_to_the_last_bits() {
    let all = |low: f32, high: f32| -> Vec<f32> {
        let at = |i: u16| low + (high - low) * f32::from(i) / 20_000.0;
        (0..20_000).map(at).collect()
    };
    let cases: [(OpKind, Vec<f32>); 7] = [
        (ops::Tanh.into(), all(-12.0, 12.0)),
        (ops::Tanh.into(), all(-1e-3, 1e-3)),
        (ops::Tanh.into(), all(0.6, 0.65)),
        (ops::Softplus.into(), all(-12.0, 12.0)),
        (ops::Softplus.into(), all(-80.0, -12.0)),
        (ops::Sqrt.into(), all(0.0, 1e-30)),
        (ops::Sigmoid.into(), all(-80.0, 80.0)),
    ];
    for (op, xs) in cases {
        let pairs = in_f32(&op, xs.clone()).into_iter().zip(in_f64(&op, &xs));
        for ((y, exact), x) in pairs.zip(&xs) {
            let ulp = (exact.abs() as f32).max(f32::MIN_POSITIVE) * f32::EPSILON;
            let off = (f64::from(y) - exact).abs() / f64::from(ulp);
            assert!(off <= 4.0, "{}({x}) = {y}, off by {off}", op.name());
        }
    }
}

#[test]
fn nothing_overflows_and_no_number_is_lost() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let largest = f32::MAX;
    let cases: [(OpKind, [(f32, f32); 5]); 4] = [
        (
            ops::Tanh.into(),
            [
                (largest, 1.0),
                (-largest, -1.0),
                (inf, 1.0),
                (-inf, -1.0),
                (0.0, 0.0),
            ],
        ),
        (
            ops::Softplus.into(),
            [
                (largest, largest),
                (-largest, 0.0),
                (inf, inf),
                (-inf, 0.0),
                (100.0, 100.0),
            ],
        ),
        (
            ops::Sigmoid.into(),
            [
                (largest, 1.0),
                (-largest, 0.0),
                (inf, 1.0),
                (-inf, 0.0),
                (0.0, 0.5),
            ],
        ),
        (
            ops::Sqrt.into(),
            [
                (0.0, 0.0),
                (inf, inf),
                (4.0, 2.0),
                (1e-36, 1e-18),
                (1.0, 1.0),
            ],
        ),
    ];
    for (op, pairs) in cases {
        let xs = pairs.map(|(x, _)| x).to_vec();
        let (found, meant) = (in_f32(&op, xs.clone()), in_f64(&op, &xs));
        for (((x, wanted), y), exact) in pairs.iter().zip(found).zip(meant) {
            let close = |y: f32| y == *wanted || (y - wanted).abs() <= 1e-6 * wanted.abs();
            assert!(close(y) && close(exact as f32), "{}({x}) = {y}", op.name());
        }
        assert!(in_f32(&op, vec![nan])[0].is_nan(), "{}", op.name());
        assert!(in_f64(&op, &[nan])[0].is_nan(), "{}", op.name());
    }
}

/// `d Σ w y` by all inputs, for a `y` that is made of inputs with these numbers.
fn derivatives(
    inputs: &[&[f64]],
    make: impl Fn(&mut Builder, &[Value]) -> Value,
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut b = Builder::new();
    let (mut feeds, mut values) = (BTreeMap::new(), Vec::new());
    for (i, xs) in inputs.iter().enumerate() {
        let (name, n) = (format!("in{i}"), xs.len() as u64);
        let ty = TensorType::real([Dim::Fixed(1), Dim::Fixed(n)]);
        feeds.insert(name.clone(), Tensor::new(vec![1, n], xs.to_vec()));
        values.push(b.push1(Input { name, ty }, &[]).expect("an input"));
    }
    let y = make(&mut b, &values);
    b.output("y", y);
    let sum = b.push1(SumCols, &[y]).expect("columns");
    let loss = b.push1(SumRows, &[sum]).expect("rows");
    let (graph, found) = gradient(b.finish(), loss, &values).expect("derivatives");
    let mut b = Builder::extend(graph);
    for (i, d) in found.iter().enumerate() {
        b.output(format!("d{i}"), d.expect("it depends on all"));
    }
    let results = run(&b.finish(), &feeds, Bindings::new(1, 1)).expect("safe");
    let d = (0..inputs.len()).map(|i| results[&format!("d{i}")].data.clone());
    (results["y"].data.clone(), d.collect())
}

#[test]
fn equal_elements_share_a_derivative() {
    let pair = |b: &mut Builder, xs: &[Value]| b.push1(Maximum, xs).expect("a pair");
    let (y, d) = derivatives(&[&[1.0, 2.0, 5.0], &[3.0, 2.0, 4.0]], pair);
    assert_eq!(y, [3.0, 2.0, 5.0]);
    assert_eq!(d, [[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]]);

    let columns = |b: &mut Builder, xs: &[Value]| b.push1(MaxCols, xs).expect("columns");
    let (y, d) = derivatives(&[&[3.0, 7.0, 7.0, 1.0]], columns);
    assert_eq!(y, [7.0]);
    assert_eq!(d, [[0.0, 0.5, 0.5, 0.0]]);

    // |x| as max(x, −x).
    let size = |b: &mut Builder, xs: &[Value]| {
        let minus = odec_graph::nn::combine(b, &[(odec_graph::Exact::int(-1), xs[0])]);
        let minus = minus.expect("one term");
        b.push1(Maximum, &[xs[0], minus]).expect("a pair")
    };
    let (y, d) = derivatives(&[&[-2.0, 0.0, 3.0]], size);
    assert_eq!(y, [2.0, 0.0, 3.0]);
    assert_eq!(d, [[-1.0, 0.0, 1.0]]);
}

#[test]
fn what_is_no_number_stays_so_in_a_maximum() {
    let nan = f64::NAN;
    let cx = EvalCx {
        bindings: Bindings::new(1, 1),
    };
    let [a, b] = [[nan, 1.0], [1.0, nan]].map(|x| Tensor::new(vec![1, 2], x.to_vec()));
    let y = OpKind::from(Maximum).eval(&[&a, &b], &cx).expect("a pair");
    assert!(y[0].data.iter().all(|x| x.is_nan()));
    let rows = [[1.0, 2.0], [2.0, 2.0]].map(|x| Tensor::new(vec![1, 2], x.to_vec()));
    let heavy = OpKind::from(ops::Heaviside).eval(&[&rows[0], &rows[1]], &cx);
    assert_eq!(heavy.expect("a pair")[0].data, [0.0, 0.5]);
}

/// Columns as heads and back: the same elements in the same order, for any batch and length.
#[test]
fn columns_become_heads_and_columns_again() {
    let bindings = Bindings::new(2, 3);
    let heads = TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(2), Dim::Fixed(4)]);
    let mut b = Builder::new();
    let x = Input {
        name: "x".into(),
        ty: TensorType::state(8),
    };
    let x = b.push1(x, &[]).expect("an input");
    let to = heads.shape.clone();
    let split = b.push1(ops::Reshape::of(to), &[x]).expect("as many");
    let sum = b.push1(SumCols, &[split]).expect("columns");
    let scaled = b.push1(Mul, &[split, sum]).expect("a number per row");
    let to = TensorType::state(8).shape;
    let back = b.push1(ops::Reshape::of(to), &[scaled]).expect("as many");
    b.output("y", back);
    let data: Vec<f64> = (0..48).map(f64::from).collect();
    let feeds = BTreeMap::from([("x".to_string(), Tensor::new(vec![2, 3, 8], data.clone()))]);
    let y = run(&b.finish(), &feeds, bindings).expect("safe")["y"].clone();
    assert_eq!(y.shape, [2, 3, 8]);
    for (group, found) in data.chunks(4).zip(y.data.chunks(4)) {
        let sum: f64 = group.iter().sum();
        let wanted: Vec<f64> = group.iter().map(|x| x * sum).collect();
        assert_eq!(found, wanted);
    }
}
