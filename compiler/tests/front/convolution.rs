//! `conv` and `shift` against their definitions, written down once more in f64, and what is said of mistakes.

use odec_compiler::model::CompileError;
use odec_compiler::model::alone::{Alone, alone};
use odec_compiler::model::layers::{LayerParam, Sizes};
use odec_graph::{Tensor, run};
use odec_library::shipped;
use odec_program::Bindings;
use std::collections::BTreeMap;

const WIDTH: u64 = 3;
const AT: Bindings = Bindings::new(2, 7);

fn small(text: &str) -> Result<Alone, CompileError> {
    let sizes = Sizes {
        vocab: Some(11),
        context: 8,
        width: WIDTH,
        grid: None,
    };
    alone(text, sizes, shipped::library())
}

fn numbers(shape: &[u64], from: usize) -> Tensor {
    let n = shape.iter().product::<u64>() as usize;
    let number = |i: usize| (((i + from) * 7919 % 1009) as f64) / 1009.0 - 0.5;
    Tensor::new(shape.to_vec(), (0..n).map(number).collect())
}

/// What a layer gives, with its input and its parameters.
fn result(text: &str) -> (Vec<f64>, Tensor, Vec<(LayerParam, Tensor)>) {
    let layer = small(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let x = numbers(&[AT.batch, AT.seq, WIDTH], 5);
    let params = layer.params.iter().enumerate();
    let params: Vec<_> = params
        .map(|(i, p)| (p.clone(), numbers(&p.shape, 31 * i + 11)))
        .collect();
    let mut given: BTreeMap<String, Tensor> = params
        .iter()
        .map(|(p, v)| (p.path.clone(), v.clone()))
        .collect();
    given.insert("x".into(), x.clone());
    let y = run(&layer.graph, &given, AT).unwrap_or_else(|e| panic!("{text}: {e}"));
    (y["y"].data.clone(), x, params)
}

/// A convolution as PyTorch's `Conv1d` defines it, of tokens `t − distance(k)`.
fn convolved(
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    depthwise: bool,
    distance: impl Fn(i64) -> i64,
) -> Vec<f64> {
    let [out, inputs, kernel] = [0, 1, 2].map(|i| w.shape[i] as usize);
    let (seq, width) = (AT.seq as usize, WIDTH as usize);
    let mut y = Vec::new();
    for text in x.data.chunks(seq * width) {
        for t in 0..seq as i64 {
            for o in 0..out {
                let mut sum = bias.map_or(0.0, |b| b.data[o]);
                for k in 0..kernel {
                    let from = t - distance(k as i64);
                    if !(0..seq as i64).contains(&from) {
                        continue;
                    }
                    for c in 0..inputs {
                        let column = if depthwise { o } else { c };
                        let weight = w.data[(o * inputs + c) * kernel + k];
                        sum += weight * text[from as usize * width + column];
                    }
                }
                y.push(sum);
            }
        }
    }
    y
}

#[track_caller]
fn close(text: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{text}");
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() < 1e-14, "{text}: {g} is not {w}");
    }
}

#[test]
fn a_convolution_is_its_sum() {
    for (text, out) in [
        ("conv(kernel: 4, causal, depthwise)", 3),
        ("conv(kernel: 4, causal, depthwise, bias, dilation: 2)", 3),
        ("conv(kernel: 3, depthwise)", 3),
        ("conv(kernel: 5, depthwise, dilation: 2, bias)", 3),
        ("conv(kernel: 2, causal)", 3),
        ("conv(kernel: 3, causal, dilation: 3, columns: 5, bias)", 5),
        ("conv(kernel: 3, columns: 2)", 2),
        ("conv(kernel: 9, dilation: 4, bias)", 3),
        ("conv(kernel: 1)", 3),
    ] {
        let (got, x, params) = result(text);
        let depthwise = text.contains("depthwise");
        let (weight, w) = &params[0];
        let kernel = w.shape[2] as i64;
        assert!(text.contains(&format!("kernel: {kernel}")), "{text}");
        let part = if depthwise { "depthwise" } else { "conv" };
        assert_eq!(weight.path, format!("{part}.weight"));
        assert_eq!(weight.shape[..2], [out, if depthwise { 1 } else { WIDTH }]);
        let bias = params.get(1).map(|(p, b)| {
            assert_eq!((&p.path, &p.shape), (&format!("{part}.bias"), &vec![out]));
            b
        });
        assert_eq!(bias.is_some(), text.contains("bias"), "{text}");
        let spread = text.split("dilation: ").nth(1).map_or(1, |rest| {
            let digit = rest.chars().next().and_then(|c| c.to_digit(10));
            i64::from(digit.expect("a digit"))
        });
        // PyTorch pads `dilation · (kernel − 1)` zeros, all before the text or half of them.
        let padding = match text.contains("causal") {
            true => spread * (kernel - 1),
            false => spread * (kernel - 1) / 2,
        };
        let want = convolved(&x, w, bias, depthwise, |k| padding - k * spread);
        close(text, &got, &want);
    }
}

#[test]
fn a_shift_is_the_row_of_another_token() {
    for (text, by) in [
        ("shift", 1),
        ("shift(by: 3)", 3),
        ("shift(by: 2, later)", -2),
    ] {
        let (got, x, params) = result(text);
        assert!(params.is_empty());
        let one = Tensor::new(vec![WIDTH, 1, 1], vec![1.0; WIDTH as usize]);
        close(text, &got, &convolved(&x, &one, None, true, |_| by));
    }
}

#[test]
fn mistakes_are_named() {
    let said = |text: &str| match small(text) {
        Err(CompileError::Source(messages)) => messages[0].message.clone(),
        _ => panic!("{text} is valid"),
    };
    let list = [
        "conv(kernel: 4, depthwise)",
        "conv(kernel: 3, depthwise, columns: 6)",
        "conv(kernel: 65, causal)",
        "conv(kernel: 3, dilation: 0)",
        "conv(causal)",
        "conv(id, id, kernel: 3)",
        "shift(by: 0)",
        "shift(by: 1, latter)",
    ];
    let list: Vec<String> = list.iter().map(|t| format!("{t}: {}", said(t))).collect();
    insta::assert_snapshot!(list.join("\n"), @r"
    conv(kernel: 4, depthwise): 4 tokens have none in the middle
    conv(kernel: 3, depthwise, columns: 6): `columns` does not go with `depthwise`
    conv(kernel: 65, causal): 65 is out of range
    conv(kernel: 3, dilation: 0): 0 is out of range
    conv(causal): `conv` needs `kernel`
    conv(id, id, kernel: 3): `conv` takes fewer values
    shift(by: 0): 0 is out of range
    shift(by: 1, latter): `shift` has no argument `latter`
    ");
}
