//! Models of the velocity between noise and images: graphs against plain loops in f64, programs against their graphs, and images that methods draw
//! with them.

use crate::numbers::{close, differences, executor};
use crate::source;
use crate::systems::options;
use odec_compiler::cost::operations;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_graph::interp::{self, Tensor};
use odec_program::{Bindings, names};
use odec_runtime::infer::flow::{Method, Sampling, rows, sample};
use odec_runtime::{Executor, State, Value};
use std::collections::BTreeMap;

/// Six patches of four numbers, and two rows before them.
const AT: Bindings = Bindings::new(3, 8);
const NUMBERS: usize = 4;
const PATCHES: usize = 6;
const CLASSES: u64 = 3;
const MEAN: f64 = 0.5;
const STD: f64 = 0.25;

fn model(precision: &str) -> (Built, String) {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2)\nfield ffn = rmsnorm |> swiglu(hidden: 10)\n\
         model small {{\n  input patches(image: [4, 6], patch: 2)\n  \
         embed linear(width: 8), time_token(scale: 3), label_token(classes: {CLASSES}, dropped: 20%), positions(learned)\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> linear(4, bias)\n  init normal(std: 0.5) }}\n\
         train {{ data images(\"none.npz\", classes: {CLASSES}, mean: {MEAN}, std: {STD});  optimizer adamw(lr: 1e-2)\n\
         loss velocity;  batch 3;  steps 10;  precision {precision} }}\n"
    );
    let checked = source::checked(&text);
    (checked.built.expect("a model"), text)
}

fn runs((built, text): &(Built, String)) -> Executor {
    executor(&build_manifest(built, text, options()).unwrap().manifest)
}

/// Parameters for the interpreter.
fn params(e: &Executor) -> BTreeMap<String, Tensor> {
    let all = e.manifest().params.iter().map(|p| {
        let data = e.of(State::Params, p).iter().collect();
        (p.path.clone(), Tensor::new(p.shape.clone(), data))
    });
    all.collect()
}

/// Points, times, classes and velocities of three images: names, shapes and numbers.
fn given() -> Vec<(&'static str, Vec<u64>, Vec<f32>)> {
    let number = |i: usize| ((i * i % 37) as f32 * 0.21).sin();
    let rows = |from: usize| -> Vec<f32> {
        let each = (0..3 * 8).flat_map(|row| {
            let empty = row % 8 >= PATCHES;
            (0..NUMBERS).map(move |c| match empty {
                true => 0.0,
                false => number(from + row * NUMBERS + c),
            })
        });
        each.collect()
    };
    let label = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0];
    vec![
        (names::PATCHES, vec![3, 8, 4], rows(1)),
        (names::TIME, vec![3, 1, 1], vec![0.0, 0.3, 0.9]),
        (names::LABEL, vec![3, 1, CLASSES], label.to_vec()),
        (names::TARGETS, vec![3, 8, 4], rows(5)),
    ]
}

fn feeds(e: &Executor) -> BTreeMap<String, Tensor> {
    let mut all = params(e);
    all.extend(given().into_iter().map(|(name, shape, numbers)| {
        let numbers = numbers.into_iter().map(f64::from).collect();
        (name.to_string(), Tensor::new(shape, numbers))
    }));
    all
}

/// The velocity stands where its patch is in the input, whatever is before it in the state; the loss is the mean over these alone.
#[test]
fn the_loss_is_that_of_the_patches() {
    let model = model("f32");
    let f = feeds(&runs(&model));
    let values = interp::run(&model.0.forward, &f, AT).unwrap()["values"].clone();
    assert_eq!(values.shape, [3, 8, 4]);
    let rows = values
        .data
        .chunks(NUMBERS)
        .zip(f["targets"].data.chunks(NUMBERS));
    let (mut sum, mut count) = (0.0, 0.0);
    for (n, (said, moves)) in rows.enumerate() {
        match n % 8 < PATCHES {
            true => {
                count += NUMBERS as f64;
                sum += said
                    .iter()
                    .zip(moves)
                    .map(|(a, b)| (a - b).powi(2))
                    .sum::<f64>();
            }
            false => assert_eq!(said, [0.0; NUMBERS]),
        }
    }
    let loss = interp::run(&model.0.loss, &f, AT).unwrap()["loss"].data[0];
    assert!((loss - sum / count).abs() < 1e-12, "{loss}");
    // Empty rows are not read.
    let mut other = f.clone();
    let patches = &mut other.get_mut("patches").unwrap().data;
    for (i, x) in patches.iter_mut().enumerate() {
        *x += f64::from(u8::from(i / NUMBERS % 8 >= PATCHES));
    }
    let same = interp::run(&model.0.forward, &other, AT).unwrap()["values"].clone();
    assert_eq!(same.data, values.data);
}

/// The first two rows of a state without steps are those of the time and the class.
#[test]
fn rows_before_the_patches_say_time_and_class() {
    let text = model("f32").1;
    let text = text.replace(
        "evolve lie(att, ffn) for 2 steps\n",
        "evolve euler(att) for 1 step { h = 1/1000000000 }\n",
    );
    let text = text.replace(
        "output rmsnorm |> linear(4, bias)",
        "output state(of: mean)",
    );
    let (text, _) = text.split_once("train {").unwrap();
    let built = source::checked(text).built.expect("a model");
    let e = executor(&build_manifest(&built, text, options()).unwrap().manifest);
    let f = feeds(&e);
    let got = interp::run(&built.forward, &f, AT).unwrap()["values"].clone();
    let weight = |path: &str| {
        f[path]
            .data
            .chunks(f[path].cols())
            .map(<[f64]>::to_vec)
            .collect::<Vec<_>>()
    };
    let (linear, time, label, position) = (
        weight("embed.linear.weight"),
        weight("embed.time_token.weight"),
        weight("embed.label_token.weight"),
        weight("embed.position.weight"),
    );
    let dot = |w: &[f64], x: &[f64]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    for image in 0..3 {
        let t = 3.0 * f["time"].data[image];
        let wave = |c: usize| {
            let angle = t * 1e4f64.powf(-((c / 2 * 2) as f64) / 8.0);
            if c.is_multiple_of(2) {
                angle.sin()
            } else {
                angle.cos()
            }
        };
        let waves: Vec<f64> = (0..8).map(wave).collect();
        let class = &f["label"].data[3 * image..][..3];
        let patches = &f["patches"].data[32 * image..][..24];
        for c in 0..8 {
            let first = dot(&time[c], &waves) + dot(&label[c], class);
            let later: f64 = patches.chunks(4).map(|p| dot(&linear[c], p)).sum();
            let positions: f64 = position.iter().map(|row| row[c]).sum();
            let want = (first + later + positions) / 8.0;
            let got = got.data[8 * image + c];
            assert!((got - want).abs() < 1e-7, "{image}, {c}: {got}, not {want}");
        }
    }
}

#[test]
fn programs_mean_their_graphs() {
    let model = model("f32");
    let mut e = runs(&model);
    let f = feeds(&e);
    let given = given();
    let all: Vec<(&str, Value)> = given.iter().map(|(n, _, x)| (*n, Value::F32(x))).collect();
    let want = interp::run(&model.0.forward, &f, AT).unwrap();
    let out = e.run("forward", AT, &all[..3], &[]).unwrap();
    let values = out.reals("values").unwrap().f32();
    close("values", values, &want["values"].data, 1e-4);
    let want = interp::run(&model.0.grad, &f, AT).unwrap();
    for entry in ["loss", "grad"] {
        let out = e.run(entry, AT, &all, &[]).unwrap();
        let loss = out.scalar("loss").unwrap() as f32;
        close(entry, &[loss], &want["loss"].data, 1e-5);
    }
    for p in e.manifest().params.clone() {
        let name = format!("grad.{}", p.path);
        let got: Vec<f32> = e.of(State::Grads, &p).iter().map(|x| x as f32).collect();
        close(&name, &got, &want[&name].data, 1e-4);
    }
}

/// Of every parameter some elements, moved both ways.
#[test]
fn gradients_are_differences() {
    let model = model("f32");
    let mut f = feeds(&runs(&model));
    differences("velocity", &model.0, &mut f, AT, 1e-6);
}

/// A model whose one field, an expression or a body, reads what it is told.
fn conditioned(field: &str) -> Built {
    let field = match field.starts_with('{') {
        true => field.to_string(),
        false => format!("= {field}"),
    };
    let text = format!(
        "field told {field}\nmodel small {{\n  input patches(image: [4, 6], patch: 2)\n  \
         embed linear(width: 8), condition(time_token(scale: 3), label_token(classes: {CLASSES}))\n  \
         evolve euler(told) for 2 steps\n  output rmsnorm |> linear(4, bias)\n  init normal(std: 0.5) }}\n\
         train {{ data images(\"none.npz\", classes: {CLASSES}, mean: {MEAN}, std: {STD});  optimizer adamw(lr: 1e-2)\n\
         loss velocity;  batch 3;  steps 10 }}\n"
    );
    source::checked(&text).built.expect("a model")
}

/// What is made of the condition, row by row, is computed once for all tokens, and is what it is where a row of each token is added to it: loss and gradients.
#[test]
fn what_is_the_same_for_all_tokens_is_computed_once() {
    const GATED: &str = "(condition |> silu |> linear(bias))*(rmsnorm |> attention(heads: 2))";
    let at = Bindings::new(3, PATCHES as u64);
    for field in [
        GATED,
        "condition |> linear",
        "maximum(condition |> linear, id)",
        "maximum(condition, condition |> linear) + id",
        "concat(condition |> linear(3), id) |> linear",
        "attend(linear, condition |> linear, linear, heads: 2)",
        "attend(condition |> linear, linear, linear, heads: 2)",
        "(condition |> linear(1))*id",
        "condition |> softmax(heads: 2) |> layernorm",
        "id - 2*(condition |> rmsnorm)*(condition |> linear(1) |> sigmoid)",
        "condition |> shift |> linear",
        "condition |> attention(heads: 2)",
        "condition |> moe(experts: 3, top_k: 1, hidden: 4)",
        "{ told = condition |> silu\n  both = told |> linear(16, bias)\n  learn gain[8] = 1\n  \
         scale = both |> columns(to: 8)\n  return gain*(1 + scale)*layernorm + (both |> columns(from: 8))^2 }",
        "{ learn gain[8] = 1\n  one = condition |> linear(1)\n  return gain*one }",
    ] {
        let field = field.replace("{ ", "{\n  ");
        let once = conditioned(&field);
        let each = conditioned(&field.replace("condition", "(condition + (id - id))"));
        let e = executor(&build_manifest(&once, "", options()).unwrap().manifest);
        let mut feeds = params(&e);
        for (name, shape, numbers) in given() {
            let width = numbers.len() / 24;
            let rows = numbers
                .chunks(8 * width.max(1))
                .flat_map(|of| &of[..PATCHES * width]);
            let (shape, numbers) = match shape[1] {
                8 => (vec![3, PATCHES as u64, shape[2]], rows.copied().collect()),
                _ => (shape, numbers),
            };
            let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
            feeds.insert(name.into(), Tensor::new(shape, numbers));
        }
        let [got, want] = [&once, &each].map(|built| interp::run(&built.grad, &feeds, at).unwrap());
        assert_eq!(got.len(), want.len());
        for (name, got) in &got {
            let size = want[name].data.iter().fold(1.0f64, |m, x| m.max(x.abs()));
            for (got, want) in got.data.iter().zip(&want[name].data) {
                assert!(
                    (got - want).abs() <= 1e-11 * size,
                    "{field}, {name}: {got}, not {want}"
                );
            }
        }
        if field == GATED {
            let flops = |built: &Built| operations::count(&built.forward, at, |_| true).flops();
            // A matrix in each of two steps, of 8 × 8, meets one row of three images where it met six.
            assert_eq!(flops(&each) - flops(&once), 2 * 2 * 8 * 8 * 3 * 5);
        }
    }
}

fn method(a: &[&[f64]], b: &[f64]) -> Method {
    let row = |row: &&[f64]| {
        (0..b.len())
            .map(|j| row.get(j).copied().unwrap_or(0.0))
            .collect()
    };
    Method {
        a: a.iter().map(row).collect(),
        b: b.to_vec(),
        c: a.iter().map(|row| row.iter().sum()).collect(),
    }
}

fn rk4() -> Method {
    let a: [&[f64]; 4] = [&[], &[0.5], &[0.0, 0.5], &[0.0, 0.0, 1.0]];
    method(&a, &[1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0])
}

fn asked(classes: &[u64], steps: u64, seed: u64) -> Sampling {
    Sampling {
        classes: classes.iter().map(|c| Some(*c)).collect(),
        steps,
        seed,
        guidance: 1.0,
    }
}

fn drawn(e: &mut Executor, method: &Method, s: &Sampling) -> Vec<Vec<f64>> {
    sample(e, method, s, &mut |_| {}).unwrap()
}

/// Four steps of the classical method, written out over the interpreter, from the noise that is left of an image when nothing moves.
#[test]
fn images_are_what_a_plain_loop_makes_of_noise() {
    for guidance in [1.0, 0.0, 2.5] {
        is_the_plain_loop(guidance);
    }
}

/// Along the velocity of a class, `guidance` times as far from the one without a class.
fn is_the_plain_loop(guidance: f64) {
    let model = model("f64");
    let mut e = runs(&model);
    let classes = [2, 0, 1, 1];
    let asked = |classes: &[u64], steps, seed| Sampling {
        guidance,
        ..asked(classes, steps, seed)
    };
    let images = drawn(&mut e, &rk4(), &asked(&classes, 4, 9));
    assert_eq!(images.len(), 4);
    let nothing = method(&[&[]], &[0.0]);
    let noise = drawn(&mut e, &nothing, &asked(&classes, 1, 9));
    let params = params(&e);
    // Patch by patch, as the model reads an image of 4 × 6.
    let pixel = |i: usize| {
        let (patch, inside) = (i / 4, i % 4);
        let (y, x) = (patch / 3 * 2 + inside / 2, patch % 3 * 2 + inside % 2);
        y * 6 + x
    };
    let one = Bindings::new(1, 8);
    for (n, class) in classes.into_iter().enumerate() {
        let mut state: Vec<f64> = (0..24).map(|i| (noise[n][pixel(i)] - MEAN) / STD).collect();
        let told = |class: Option<u64>, x: &[f64], t: f64| -> Vec<f64> {
            let mut f = params.clone();
            let mut points = x.to_vec();
            points.resize(32, 0.0);
            let label = (0..CLASSES)
                .map(|c| f64::from(u8::from(Some(c) == class)))
                .collect();
            f.insert("patches".into(), Tensor::new(vec![1, 8, 4], points));
            f.insert("time".into(), Tensor::new(vec![1, 1, 1], vec![t]));
            f.insert("label".into(), Tensor::new(vec![1, 1, CLASSES], label));
            interp::run(&model.0.forward, &f, one).unwrap()["values"].data[..24].to_vec()
        };
        let velocity = |x: &[f64], t: f64| -> Vec<f64> {
            let both = told(Some(class), x, t).into_iter().zip(told(None, x, t));
            both.map(|(v, free)| (1.0 - guidance) * free + guidance * v)
                .collect()
        };
        let plus = |x: &[f64], h: f64, k: &[f64]| -> Vec<f64> {
            x.iter().zip(k).map(|(x, k)| x + h * k).collect()
        };
        let h = 0.25;
        for step in 0..4 {
            let t = h * f64::from(step);
            let k1 = velocity(&state, t);
            let k2 = velocity(&plus(&state, h / 2.0, &k1), t + h / 2.0);
            let k3 = velocity(&plus(&state, h / 2.0, &k2), t + h / 2.0);
            let k4 = velocity(&plus(&state, h, &k3), t + h);
            for (k, w) in [(k1, 1.0), (k2, 2.0), (k3, 2.0), (k4, 1.0)] {
                state = plus(&state, h * w / 6.0, &k);
            }
        }
        for i in 0..24 {
            let (got, want) = (images[n][pixel(i)], state[i] * STD + MEAN);
            assert!((got - want).abs() < 1e-10, "{n}, {i}: {got}, not {want}");
        }
    }
    // An image is that of its number and class, whatever is drawn beside it; another seed gives other noise.
    let fewer = drawn(&mut e, &rk4(), &asked(&classes[..2], 4, 9));
    assert_eq!(fewer, images[..2]);
    let other = drawn(&mut e, &nothing, &asked(&classes, 1, 10));
    assert!(other.iter().zip(&noise).all(|(a, b)| a != b));
}

/// Errors against many small steps fall as the order of a method says.
#[test]
fn methods_have_their_order_on_a_model() {
    let mut e = runs(&model("f64"));
    // Weights so small that steps are where errors are those of the order.
    let smaller: Vec<f64> = e.state(State::Params).iter().map(|x| x / 2.0).collect();
    e.state_mut(State::Params).fill(smaller.into_iter());
    let mut end = |method: &Method, steps| drawn(&mut e, method, &asked(&[1], steps, 4)).remove(0);
    let best = end(&rk4(), 1024);
    let heun = method(&[&[], &[1.0]], &[0.5, 0.5]);
    let euler = method(&[&[]], &[1.0]);
    for (method, order, steps) in [(euler, 1.0, 64), (heun, 2.0, 32), (rk4(), 4.0, 64)] {
        let mut error = |steps| {
            let off = end(&method, steps);
            let squares = off.iter().zip(&best).map(|(a, b)| (a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let slope = (error(steps) / error(2 * steps)).log2();
        assert!((slope - order).abs() < 0.25, "order {order}: {slope}");
    }
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let mut e = runs(&model("f32"));
    assert_eq!(rows(&e, None).unwrap(), [Some(0), Some(1), Some(2)]);
    assert_eq!(rows(&e, Some(2)).unwrap(), [Some(2)]);
    let said = rows(&e, Some(3)).unwrap_err().to_string();
    assert!(said.contains("0 to 2; 3 is none of them"), "{said}");
    e.state_mut(State::Params).fill(std::iter::repeat(f64::NAN));
    let broken = sample(&mut e, &rk4(), &asked(&[0], 1, 0), &mut |_| {});
    assert!(broken.unwrap_err().to_string().contains("not finite"));
}
