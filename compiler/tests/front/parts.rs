//! Decoders of the parts that GPT and the post-norm Transformer are made of, beside plain loops: layer normalisation,
//! biases, MLPs with one activation, attention to all tokens. Forward values and gradients, in f64, on one tiny model.

use crate::common::compile_text;
use crate::reference::{
    BINDINGS, Feeds, SEQ, State, VOCAB, WIDTH, check_gradients, feeds, linear, sum,
};
use odec_compiler::model::Built;
use odec_graph::run;

const STEPS: usize = 2;

/// What a decoder is made of.
struct Parts {
    name: &'static str,
    att: &'static str,
    ffn: &'static str,
    activation: fn(f64) -> f64,
    causal: bool,
    bias: bool,
}

fn gelu(x: f64) -> f64 {
    x * (1.0 + libm::erf(x / 2f64.sqrt())) / 2.0
}

const DECODERS: [Parts; 2] = [
    Parts {
        name: "gpt",
        att: "attention(heads: 2, causal, bias)",
        ffn: "gelu(hidden: 3*width, bias)",
        activation: gelu,
        causal: true,
        bias: true,
    },
    Parts {
        name: "encoder",
        att: "attention(heads: 2)",
        ffn: "relu(hidden: 12)",
        activation: |x| x.max(0.0),
        causal: false,
        bias: false,
    },
];

fn built(parts: &Parts) -> Built {
    let text = format!(
        "field att = layernorm |> {}\nfield ffn = layernorm |> {}\n\
         model small {{\n  input tokens(vocab: {VOCAB}, context: 16)\n  embed learned(width: {WIDTH})\n  \
         evolve lie(att, ffn) for {STEPS} steps\n  output layernorm |> linear(5, bias) |> linear({WIDTH}) |> logits(tied)\n}}\n",
        parts.att, parts.ffn
    );
    compile_text(&text)
        .checked()
        .built
        .clone()
        .expect("a model")
}

fn layernorm(x: &State, f: &Feeds, path: &str) -> State {
    let (gain, bias) = (
        &f[&format!("{path}.gain")].data,
        &f[&format!("{path}.bias")].data,
    );
    let row = |r: &Vec<f64>| {
        let n = r.len() as f64;
        let mean = r.iter().sum::<f64>() / n;
        let deviation = (r.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
        (0..r.len())
            .map(|c| (r[c] - mean) / deviation * gain[c] + bias[c])
            .collect()
    };
    x.iter().map(row).collect()
}

/// x Wᵀ + b.
fn affine(x: &State, f: &Feeds, path: &str, bias: bool) -> State {
    let mut y = linear(x, &f[&format!("{path}.weight")]);
    if bias {
        let b = &f[&format!("{path}.bias")].data;
        y.iter_mut()
            .for_each(|r| r.iter_mut().zip(b).for_each(|(y, b)| *y += b));
    }
    y
}

fn att(x: &State, f: &Feeds, prefix: &str, parts: &Parts) -> State {
    let head = WIDTH / 2;
    let x = layernorm(x, f, &format!("{prefix}.norm"));
    let of = |part: &str| affine(&x, f, &format!("{prefix}.{part}"), parts.bias);
    let (q, k, v) = (of("q"), of("k"), of("v"));
    let mut o = vec![vec![0.0; WIDTH]; x.len()];
    for h in 0..2 {
        let cols = h * head..(h + 1) * head;
        for i in 0..x.len() {
            let seen = if parts.causal { i + 1 } else { x.len() };
            let score = |j: usize| {
                cols.clone().map(|c| q[i][c] * k[j][c]).sum::<f64>() / (head as f64).sqrt()
            };
            let weights: Vec<f64> = (0..seen).map(|j| score(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            for c in cols.clone() {
                o[i][c] = (0..seen).map(|j| weights[j] / total * v[j][c]).sum();
            }
        }
    }
    affine(&o, f, &format!("{prefix}.o"), parts.bias)
}

fn ffn(x: &State, f: &Feeds, prefix: &str, parts: &Parts) -> State {
    let x = layernorm(x, f, &format!("{prefix}.norm"));
    let mut hidden = affine(&x, f, &format!("{prefix}.up"), parts.bias);
    hidden
        .iter_mut()
        .flatten()
        .for_each(|x| *x = (parts.activation)(*x));
    affine(&hidden, f, &format!("{prefix}.down"), parts.bias)
}

#[test]
fn decoders_of_parts() {
    for parts in &DECODERS {
        let built = built(parts);
        let f = feeds(&built, 7);
        let table = &f["embed.token.weight"];
        let token = |t: &f64| table.data[*t as usize * WIDTH..][..WIDTH].to_vec();
        let mut x: State = f["tokens"].data.iter().map(token).collect();
        for k in 0..STEPS {
            x = sum(&[
                (1.0, &x),
                (1.0, &att(&x, &f, &format!("step.{k}.att"), parts)),
            ]);
            x = sum(&[
                (1.0, &x),
                (1.0, &ffn(&x, &f, &format!("step.{k}.ffn"), parts)),
            ]);
        }
        x = layernorm(&x, &f, "output.norm");
        x = affine(&x, &f, "output.linear.1", true);
        x = affine(&x, &f, "output.linear.2", false);
        let logits = linear(&x, table);
        let got = run(&built.forward, &f, BINDINGS).expect("it runs");
        assert_eq!(got["logits"].data.len(), SEQ * VOCAB);
        for (a, b) in logits.iter().flatten().zip(&got["logits"].data) {
            let close = (a - b).abs() < 1e-12 * (1.0 + a.abs());
            assert!(close, "{}: {a} and {b}", parts.name);
        }
        check_gradients(parts.name, &built, &f);
    }
}
