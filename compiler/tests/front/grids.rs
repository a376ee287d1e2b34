//! Tokens on grids, and stages: convolutions against their definition, what becomes of sizes and parameters, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_compiler::model::alone::alone;
use odec_compiler::model::inputs::Unit;
use odec_compiler::model::layers::{Grid, LayerParam, Sizes};
use odec_graph::{OpKind, Tensor, TensorType, print, run};
use odec_library::shipped;
use odec_program::{Bindings, Dim, names};
use std::collections::BTreeMap;

const MODEL: &str = "field att_1 = layernorm |> conv_attention(heads: 2, bias)
field att_2 = layernorm |> conv_attention(heads: 3, bias)
field ffn = layernorm |> gelu(hidden: 2*width, bias)
model cvt {
  input  image(size: [12, 10], channels: 3)
  embed  conv(kernel: 5, stride: 2, padding: 2, width: 8, bias, norm), positions(grid)
  evolve one: lie(att_1, ffn) for 1 step { h = 1 }
  embed  conv(kernel: 3, stride: 2, padding: 1, width: 12, norm), class_token, positions(learned)
  evolve two: lie(att_2, ffn) for 2 steps { h = 1 }
  output layernorm |> classes(5, of: class_token)
}
train {
  data   images(\"a.npz\", classes: 5)
  loss   cross_entropy
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";

/// The model with one part of it changed.
#[track_caller]
fn changed(from: &str, to: &str) -> Outcome {
    common::changed(MODEL, &[(from, to)])
}

#[test]
fn a_stage_has_a_width_and_a_grid_of_its_own() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    let input = built.forward.nodes().find_map(|(_, n)| match &n.op {
        OpKind::Input(i) => Some(i.clone()),
        _ => None,
    });
    let input = input.expect("an input");
    // A run is given as many pixels in every image, and no sequence has a length of its own.
    let pixels = TensorType::real([Dim::Batch, Dim::Fixed(120), Dim::Fixed(3)]);
    assert_eq!((input.name.as_str(), input.ty), (names::PATCHES, pixels));
    assert!(!print::text(&built.grad).contains("[B, S"));
    assert_eq!((built.unit, built.decode.is_none()), (Unit::Pixel, true));
    let config = &built.config;
    assert_eq!((config.vocab, config.context, config.width), (5, 120, 12));
    let shapes = built.params.iter().map(|p| (p.path.as_str(), &p.shape[..]));
    let shapes: BTreeMap<&str, &[u64]> = shapes.collect();
    for (path, shape) in [
        ("embed.conv.weight", &[8, 3, 5, 5][..]),
        ("embed.conv.bias", &[8]),
        ("embed.norm.gain", &[8]),
        ("one.step.0.att_1.depthwise.1.weight", &[8, 1, 3, 3]),
        ("one.step.0.att_1.linear.4.weight", &[8, 8]),
        ("two.embed.conv.weight", &[12, 8, 3, 3]),
        ("two.embed.norm.bias", &[12]),
        ("two.embed.class_token", &[12]),
        // Six by five tokens are three by three.
        ("two.embed.position.weight", &[10, 12]),
        ("two.step.1.att_2.linear.1.weight", &[12, 12]),
        ("two.step.1.ffn.up.weight", &[24, 12]),
        ("output.classes.weight", &[5, 12]),
    ] {
        assert_eq!(
            shapes.get(path),
            Some(&shape),
            "{path} of {:?}",
            shapes.keys()
        );
    }
    assert!(!shapes.contains_key("two.embed.conv.bias"));
    // In fields, a stage's own numbers.
    let outcome = changed(
        "gelu(hidden: 2*width, bias)",
        "linear(context) |> linear(width)",
    );
    let named = |path: &str| {
        let mut all = outcome.built().params.iter();
        all.find(|p| p.path == path).expect(path).shape.clone()
    };
    assert_eq!(named("one.step.0.ffn.linear.1.weight"), [30, 8]);
    assert_eq!(named("two.step.0.ffn.linear.1.weight"), [10, 12]);
}

/// Pixels are patches of one; a stage may change the width alone; what is read in parts begins with a convolution of one token.
#[test]
fn other_stages() {
    let (model, _) = MODEL.split_once("train {").expect("a train block");
    let pixels = compile_text(model);
    let patches = model.replace(
        "image(size: [12, 10],",
        "patches(image: [12, 10], patch: 1,",
    );
    let patches = compile_text(&patches);
    let graphs = [&pixels, &patches].map(|o| print::text(&o.built().forward));
    assert_eq!(graphs[0], graphs[1]);
    for (from, to) in [
        (
            "conv(kernel: 3, stride: 2, padding: 1, width: 12, norm)",
            "linear(width: 12, bias)",
        ),
        (
            "input  image(size: [12, 10], channels: 3)",
            "input  patches(image: [24, 20], patch: 2)",
        ),
        (
            ", class_token, positions(learned)",
            ", class_token, positions(grid)",
        ),
        (
            ", class_token, positions(learned)",
            ", class_token, registers(rows: 2), positions(learned)",
        ),
        ("of: class_token", "of: mean"),
        (
            "layernorm |> conv_attention(heads: 2, bias)",
            "layernorm |> conv_attention(heads: 2, kernel: 5, stride: 1)",
        ),
        // Heads of 4 columns; in the next stage they would have 6.
        (
            "layernorm |> conv_attention(heads: 2, bias)",
            "layernorm |> attention(heads: 2, rope(grid))",
        ),
        (
            "for 1 step { h = 1 }",
            "for 1 step { h = 1;  weights of time { embed: 4, hidden: 4 } }",
        ),
    ] {
        let outcome = changed(from, to);
        assert!(outcome.checked.is_some(), "{to}: {}", outcome.rendered());
    }
}

fn on_grid(text: &str, grid: Grid) -> odec_compiler::model::alone::Alone {
    let [height, width] = grid.sides;
    let sizes = Sizes {
        vocab: None,
        context: height * width + grid.leading,
        width: 4,
        grid: Some(grid),
    };
    alone(text, sizes, shipped::library()).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

fn numbers(shape: &[u64], from: usize) -> Tensor {
    let n = shape.iter().product::<u64>() as usize;
    let number = |i: usize| (((i + from) * 7919 % 1009) as f64) / 1009.0 - 0.5;
    Tensor::new(shape.to_vec(), (0..n).map(number).collect())
}

/// What a layer gives for two images, with its input and its parameters.
fn result(text: &str, grid: Grid) -> (Tensor, Tensor, Vec<(LayerParam, Tensor)>) {
    let layer = on_grid(text, grid);
    let x = numbers(&[2, layer.sizes.context, 4], 5);
    let params = layer.params.iter().enumerate();
    let params: Vec<_> = params
        .map(|(i, p)| (p.clone(), numbers(&p.shape, 31 * i + 11)))
        .collect();
    let each = params.iter().map(|(p, v)| (p.path.clone(), v.clone()));
    let given: BTreeMap<String, Tensor> = each.chain([("x".to_string(), x.clone())]).collect();
    let y = run(&layer.graph, &given, Bindings::new(2, layer.sizes.context));
    let y = y.unwrap_or_else(|e| panic!("{text}: {e}"))["y"].clone();
    (y, x, params)
}

/// Of an image whose tokens begin behind `leading` rows, a convolution as PyTorch's `Conv2d` defines it: rows, columns and numbers.
fn convolved(x: &[f64], grid: Grid, w: &Tensor, stride: usize, padding: usize) -> Vec<Vec<f64>> {
    let [out, inputs, kernel, _] = [0, 1, 2, 3].map(|i| w.shape[i] as usize);
    let [height, width] = grid.sides.map(|n| n as usize);
    let columns = 4;
    let at = |i: i64, j: i64, c: usize| {
        let inside = (0..height as i64).contains(&i) && (0..width as i64).contains(&j);
        let row = || grid.leading as usize + i as usize * width + j as usize;
        if inside { x[row() * columns + c] } else { 0.0 }
    };
    let sides = [height, width].map(|n| (n + 2 * padding - kernel) / stride + 1);
    let mut tokens = Vec::new();
    for (i, j) in (0..sides[0]).flat_map(|i| (0..sides[1]).map(move |j| (i, j))) {
        let value = |o: usize| {
            let mut sum = 0.0;
            for (c, (a, b)) in (0..inputs)
                .flat_map(|c| (0..kernel).flat_map(move |a| (0..kernel).map(move |b| (c, (a, b)))))
            {
                let of = if inputs == 1 { o } else { c };
                let (y, x) = (i * stride + a, j * stride + b);
                let weight = w.data[((o * inputs + c) * kernel + a) * kernel + b];
                sum += weight * at(y as i64 - padding as i64, x as i64 - padding as i64, of);
            }
            sum
        };
        tokens.push((0..out).map(value).collect());
    }
    tokens
}

#[test]
fn a_convolution_is_that_of_its_definition() {
    let grid = |sides, leading| Grid {
        sides,
        leading,
        fixed: true,
    };
    for grid in [grid([3, 5], 0), grid([4, 4], 0), grid([2, 3], 1)] {
        for (text, kernel) in [
            ("conv2d(kernel: 3, depthwise)", 3),
            ("conv2d(kernel: 3)", 3),
            ("conv2d(kernel: 1)", 1),
            ("conv2d(kernel: 5, depthwise)", 5),
        ] {
            let (y, x, params) = result(text, grid);
            assert_eq!(params.len(), 1, "{text}");
            let rows = x.shape[1] as usize;
            for (image, made) in x.data.chunks(rows * 4).zip(y.data.chunks(rows * 4)) {
                let leading = grid.leading as usize * 4;
                assert_eq!(
                    made[..leading],
                    image[..leading],
                    "{text}: the row before the grid"
                );
                let want = convolved(image, grid, &params[0].1, 1, (kernel - 1) / 2);
                let want: Vec<f64> = want.into_iter().flatten().collect();
                assert_eq!(want.len(), made.len() - leading);
                for (got, want) in made[leading..].iter().zip(want) {
                    assert!((got - want).abs() < 1e-12, "{text}: {got}, not {want}");
                }
            }
        }
    }
}

/// Keys and values of every second token, one softmax for each query over them.
#[test]
fn attention_sees_fewer_keys_than_queries() {
    let conv = "conv2d(kernel: 1, stride: 2, depthwise)";
    let text = format!("attend(id, {conv}, {conv}, heads: 2)");
    for sides in [[3, 3], [2, 4], [1, 7]] {
        let grid = Grid {
            sides,
            leading: 0,
            fixed: true,
        };
        let (y, x, params) = result(&text, grid);
        let tokens = x.shape[1] as usize;
        for (image, made) in x.data.chunks(tokens * 4).zip(y.data.chunks(tokens * 4)) {
            let [keys, values] = [0, 1].map(|n| convolved(image, grid, &params[n].1, 2, 0));
            assert!(keys.len() < tokens);
            for (token, head) in (0..tokens).flat_map(|t| [(t, 0), (t, 1)]) {
                let own = 2 * head..2 * head + 2;
                let q = &image[token * 4..][..4][own.clone()];
                let score = |k: &Vec<f64>| {
                    let product = q.iter().zip(&k[own.clone()]).map(|(a, b)| a * b);
                    (product.sum::<f64>() / 2f64.sqrt()).exp()
                };
                let weights: Vec<f64> = keys.iter().map(score).collect();
                let all: f64 = weights.iter().sum();
                for c in own.clone() {
                    let parts = weights.iter().zip(&values).map(|(w, v)| w * v[c] / all);
                    let (got, want) = (made[token * 4 + c], parts.sum::<f64>());
                    assert!((got - want).abs() < 1e-12, "{sides:?}: {got}, not {want}");
                }
            }
        }
    }
}

/// Rows in the first half of the columns, columns in the second, each in waves of its own.
#[test]
fn positions_on_a_grid_are_those_of_two_axes() {
    let table = odec_program::manifest::Table::Grid {
        leading: 1,
        sides: [2, 3],
        width: 8,
        base: 10_000.0,
    };
    assert_eq!(table.shape(), [7, 8]);
    let values = table.values();
    let wave = |p: f64| [p.sin(), p.cos(), (p / 100.0).sin(), (p / 100.0).cos()];
    assert_eq!(values[..8], [0.0; 8]);
    for (n, row) in values[8..].chunks(8).enumerate() {
        let want = [wave((n / 3) as f64), wave((n % 3) as f64)].concat();
        for (got, want) in row.iter().zip(want) {
            assert!((got - want).abs() < 1e-15, "{n}: {got}, not {want}");
        }
    }
}

/// Half of the pairs turn by the row and half by the column; a class token and the columns that are left out stay.
#[test]
fn pairs_turn_by_rows_and_by_columns() {
    let grid = Grid {
        sides: [2, 3],
        leading: 1,
        fixed: false,
    };
    let turned = |row: f64, column: f64| [row, row / 10.0, column, column / 10.0, 0.0];
    for (words, pair) in [
        ("", [0, 1, 2, 3, 4].map(|i| [i, i + 5])),
        (", interleaved", [0, 1, 2, 3, 4].map(|i| [2 * i, 2 * i + 1])),
    ] {
        let text = format!("linear(20) |> rotary(heads: 2, grid, base: 100, share: 4/5{words})");
        let plain = result("linear(20)", grid).0;
        let (made, _, _) = result(&text, grid);
        let rows = plain.data.chunks(20).zip(made.data.chunks(20));
        for (token, (x, y)) in rows.enumerate() {
            let at = (token % 7).checked_sub(1);
            let angles = at.map_or([0.0; 5], |at| turned((at / 3) as f64, (at % 3) as f64));
            for (x, y) in x.chunks(10).zip(y.chunks(10)) {
                for ([a, b], angle) in pair.into_iter().zip(angles) {
                    let (sin, cos) = angle.sin_cos();
                    let want = [x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin];
                    for (got, want) in [y[a], y[b]].into_iter().zip(want) {
                        assert!(
                            (got - want).abs() < 1e-14,
                            "{text} {token}: {got}, not {want}"
                        );
                    }
                }
            }
        }
    }
}

/// Each mistake is said where it is made, before anything runs.
#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let first = "conv(kernel: 5, stride: 2, padding: 2, width: 8, bias, norm), positions(grid)";
    let second =
        "conv(kernel: 3, stride: 2, padding: 1, width: 12, norm), class_token, positions(learned)";
    let att = "layernorm |> conv_attention(heads: 2, bias)";
    let mut cases = Cases::default();
    for (name, from, to) in [
        (
            "a square larger than the image",
            "kernel: 5, stride: 2, padding: 2",
            "kernel: 15, stride: 2, padding: 2",
        ),
        (
            "a square larger than the grid",
            second,
            "conv(kernel: 6, width: 12)",
        ),
        (
            "a stride that steps over all",
            "kernel: 3, stride: 2,",
            "kernel: 3, stride: 7,",
        ),
        (
            "squares of zeros",
            "kernel: 3, stride: 2, padding: 1",
            "kernel: 3, padding: 3",
        ),
        ("a kernel too long", "kernel: 5,", "kernel: 17,"),
        ("no kernel", "kernel: 5, ", ""),
        (
            "a grid that was lost",
            first,
            "conv(kernel: 2, width: 8), class_token",
        ),
        ("two class tokens", first, "linear(width: 8), class_token"),
        (
            "heads that do not divide",
            "conv_attention(heads: 3, bias)",
            "conv_attention(heads: 5, bias)",
        ),
        (
            "no evolve in a stage",
            "  evolve two: lie(att_2, ffn) for 2 steps { h = 1 }\n",
            "",
        ),
        ("no label", "evolve two: ", "evolve "),
        ("a table for a state", second, "learned(width: 12)"),
        (
            "vectors",
            "image(size: [12, 10], channels: 3)",
            "vectors(width: 3, context: 12)",
        ),
        (
            "tokens",
            "image(size: [12, 10], channels: 3)",
            "tokens(vocab: 256, context: 12)",
        ),
        (
            "an odd width",
            "width: 8, bias, norm), positions(grid)",
            "width: 6, bias, norm), positions(grid)",
        ),
        (
            "a state of another stage",
            "layernorm |> conv_attention(heads: 3, bias)",
            "layernorm |> attention(heads: 3, from: one)",
        ),
        ("no grid behind a linear map", first, "linear(width: 8)"),
        ("a stride in a field", att, "conv2d(kernel: 3, stride: 2)"),
        ("an even side", att, "conv2d(kernel: 2)"),
        (
            "columns of each",
            att,
            "conv2d(kernel: 3, depthwise, columns: 8)",
        ),
        (
            "keys a stride over the grid apart",
            "layernorm |> conv_attention(heads: 3, bias)",
            "layernorm |> conv_attention(heads: 3, stride: 5)",
        ),
        (
            "a class token of other columns",
            "layernorm |> conv_attention(heads: 3, bias)",
            "conv2d(kernel: 3, columns: 6) |> linear(width)",
        ),
        (
            "other tokens for keys than for values",
            att,
            "attend(id, conv2d(kernel: 3, stride: 2), id, heads: 2)",
        ),
        (
            "fewer keys in order",
            att,
            "attend(id, conv2d(kernel: 3, stride: 2), conv2d(kernel: 3, stride: 2), heads: 2, causal)",
        ),
        (
            "other tokens behind a stride",
            att,
            "attend(id, conv2d(kernel: 3, stride: 2) |> conv2d(kernel: 3), conv2d(kernel: 3, stride: 2), heads: 2)",
        ),
        (
            "a head without pairs for two axes",
            att,
            "layernorm |> attention(heads: 4, rope(grid))",
        ),
        (
            "turned by places of another grid",
            att,
            "attend(id, conv2d(kernel: 3, stride: 2) |> rotary(heads: 2, grid), conv2d(kernel: 3, stride: 2), heads: 2)",
        ),
        (
            "numbers at each position",
            "layernorm |> classes(5, of: class_token)",
            "linear(3)",
        ),
        ("an image of nothing", "size: [12, 10]", "size: [0, 10]"),
        ("an image too large", "size: [12, 10]", "size: 65536"),
    ] {
        let outcome = changed(from, to);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    let texts = "field f = linear\nmodel m {\n  input tokens(vocab: 9, context: 4)\n  embed learned(width: 4), positions(grid)\n  \
                 evolve one: euler(f) for 1 step\n  embed linear(width: 6)\n  evolve two: euler(f) for 1 step\n  output logits\n}\n";
    let one = texts.replace(
        "  embed linear(width: 6)\n  evolve two: euler(f) for 1 step\n",
        "",
    );
    cases.add("a grid of texts", compile_text(&one).rendered());
    let one = one.replace(", positions(grid)", "");
    let turned = one.replace(
        "f = linear",
        "f = attention(heads: 1, rope(grid, base: 100))",
    );
    cases.add("texts turned on a grid", compile_text(&turned).rendered());
    cases.add(
        "stages of texts",
        compile_text(&texts.replace(", positions(grid)", "")).rendered(),
    );
    insta::assert_snapshot!(cases);
}
