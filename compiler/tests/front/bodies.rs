//! Bodies with named values: what they compute, how their parameters are called, and what policies do with those.

use crate::common::compile_text;
use crate::random_body::{FORMS, VOCAB, number, random};
use odec_compiler::model::Built;
use odec_graph::{Graph, OpKind, Tensor, print, run};
use odec_program::Bindings;
use std::collections::BTreeMap;

/// A model of width 8 that takes steps along a field `f`.
fn model(definitions: &str, options: &str) -> String {
    format!(
        "{definitions}\nmodel m {{\n  input tokens(vocab: 11, context: 8)\n  embed learned(width: 8)\n  \
         evolve euler(f) for 2 steps {{ {options} }}\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.5)\n}}\n"
    )
}

fn built(text: &str) -> Built {
    let outcome = compile_text(text);
    outcome.checked().built.clone().expect("a model")
}

/// The parameters of the field's first step, below its name.
fn names(definitions: &str) -> Vec<String> {
    let built = built(&model(definitions, ""));
    let own = built.params.iter();
    let own = own.filter_map(|p| p.path.strip_prefix("step.0.").map(|path| (path, &p.shape)));
    own.map(|(path, shape)| format!("{path} {shape:?}"))
        .collect()
}

/// The field as text, with numbers for its parameters by their names.
fn loss(built: &Built) -> (f64, BTreeMap<String, Tensor>) {
    let at = Bindings::new(2, 5);
    let fed = built.grad.nodes().filter_map(|(_, node)| {
        let (name, index) = match &node.op {
            OpKind::Parameter(p) => (p.path.clone(), false),
            OpKind::Input(i) => (i.name.clone(), true),
            _ => return None,
        };
        let shape = node.types[0].concrete(at);
        let from = name
            .bytes()
            .fold(7, |h: usize, b| (h * 31 + b as usize) % 9973);
        let data = (0..shape.iter().product::<u64>() as usize).map(|i| match index {
            true => ((from + 5 * i) % 11) as f64,
            false => ((from + 37 * i) % 61) as f64 / 61.0 - 0.5,
        });
        Some((name, Tensor::new(shape, data.collect())))
    });
    let mut made = run(&built.grad, &fed.collect(), at).expect("a gradient");
    (made.remove("loss").expect("a loss").data[0], made)
}

/// What a body says in statements is what an expression says; a layer that a body writes is the one in Rust.
#[test]
fn a_body_computes_what_it_says() {
    let cases = [
        // The same nodes in another order: the same numbers, parameters of the same names.
        (
            "layer swish(x: value) { return x*sigmoid(x) }\n\
             layer mine(x: value, hidden) {\n  gate = x |> linear(hidden)\n  up = x |> linear(hidden)\n  \
             down = swish(gate) * up |> linear(width)\n  return down\n}\nfield f = rmsnorm |> mine(hidden: 12)",
            "field f = rmsnorm |> swiglu(hidden: 12)",
        ),
        // Twice, as what stands before it and as an argument: roles are counted alike.
        (
            "layer mine(x: value, hidden) {\n  gate = x |> linear(hidden)\n  up = x |> linear(hidden)\n  \
             down = gate*sigmoid(gate)*up |> linear(width)\n  return down\n}\n\
             field f = mine(mine(hidden: 12), hidden: 3)",
            "field f = swiglu(hidden: 12) |> swiglu(hidden: 3)",
        ),
        // A field with statements, one with a parameter, one without either.
        (
            "field f { y = rmsnorm; return y |> linear(4) |> linear }",
            "field f(x) { y = rmsnorm(x); return y |> linear(4) |> linear }",
        ),
        (
            "field f(x) { y = x |> linear(4) |> linear; return 2*y - x/2 }",
            "field f { y = linear(4) |> linear; return y + (y - id/2) }",
        ),
        // Numbers before and behind; a coefficient goes through a product.
        (
            "field f { y = linear; return (2*y) * (-y/4) + 1 - 3*(1 - y) }",
            "field f { y = linear; return 3*y - 2 - 1/2*y^2 }",
        ),
        (
            "field f { y = linear; return y^-2*y^5 / y^2 }",
            "field f { y = linear; return y }",
        ),
        (
            "field f { y = 2 + linear^2; return y^(3/2) / y^(1/2) * y^(-1/2) }",
            "field f { y = 2 + linear^2; return y^(1/2) }",
        ),
        // Powers that are neither whole nor halves.
        (
            "field f { y = 2 + linear^2; return y^(5/3) + y^(-1/3) }",
            "field f { y = 2 + linear^2; return exp(5/3*log(y)) + exp(-1/3*log(y)) }",
        ),
        (
            "field f { y = 2 + linear^2; return y^(1/3) * y^(1/6) }",
            "field f { y = 2 + linear^2; return y^(1/2) }",
        ),
        // One column for each token stands for all columns.
        (
            "field f { w = linear(1); y = linear(4); return concat(y*w, w*y) - concat(y, y)*w + w }",
            "field f { w = linear(1); y = 0*linear(4); return concat(y, y) + w }",
        ),
        // A field inside of another is the field.
        (
            "field att = rmsnorm |> attention(heads: 2, causal)\nfield f = id |> (att*att - att^2) + id",
            "field f = id + 0*linear",
        ),
    ];
    for (body, plain) in cases {
        let [(a, mut of_a), (b, of_b)] = [body, plain].map(|text| loss(&built(&model(text, ""))));
        assert!((a - b).abs() < 1e-12, "{body}: {a} is not {b}");
        // Only the last has other parameters.
        let alike = !body.contains("att");
        assert!(!alike || of_a.keys().eq(of_b.keys()), "{body}");
        of_a.retain(|path, _| of_b.contains_key(path));
        for (path, d) in of_a {
            let mut pairs = d.data.iter().zip(&of_b[&path].data);
            let close = pairs.all(|(a, b)| (a - b).abs() < 1e-10);
            assert!(close, "{body}: {path}");
        }
    }
}

/// The parameters of a body are called after its values; those of a field that is named, after the field.
#[test]
fn parameters_are_called_after_values() {
    let cases: [(&str, &[&str]); 11] = [
        (
            "field f { gate = linear(3); two = linear(4) |> linear(5); n = rmsnorm; a = rmsnorm |> linear(3) \
             return concat(gate, two*1) |> linear |> linear + n + a |> linear }",
            &[
                "f.gate.weight [3, 8]",
                "f.two.1.weight [4, 8]",
                "f.two.2.weight [5, 4]",
                "f.n.gain [8]",
                "f.a.norm.gain [8]",
                "f.a.weight [3, 8]",
                "f.linear.1.weight [8, 8]",
                "f.linear.2.weight [8, 8]",
                "f.linear.3.weight [8, 3]",
            ],
        ),
        // Of a layer that is used once, as if it stood there; of one that is used twice, by numbers.
        (
            "layer l(x: value) { learn gain[width] = 1; learn a = 1/2; y = x |> swiglu(hidden: 3); return gain*y + a }\nfield f = l",
            &[
                "f.gain [8]",
                "f.a []",
                "f.y.gate.weight [3, 8]",
                "f.y.up.weight [3, 8]",
                "f.y.down.weight [8, 3]",
            ],
        ),
        (
            "layer l(x: value) { learn a = 0; gate = x |> linear; return a*gate }\nfield f = l |> l |> linear",
            &[
                "f.a.1 []",
                "f.gate.1.weight [8, 8]",
                "f.a.2 []",
                "f.gate.2.weight [8, 8]",
                "f.linear.weight [8, 8]",
            ],
        ),
        // Below a value, whose name comes first.
        (
            "layer l(x: value) { gate = x |> linear; return gate |> linear(bias) }\nfield f { y = l; return l(y) }",
            &[
                "f.y.gate.weight [8, 8]",
                "f.y.weight [8, 8]",
                "f.y.bias [8]",
                "f.gate.weight [8, 8]",
                "f.linear.weight [8, 8]",
                "f.linear.bias [8]",
            ],
        ),
        // A value may be called as a part of a layer in Rust: no two share a path.
        (
            "field f { gate = linear; return gate * swiglu(hidden: 3) }",
            &[
                "f.gate.weight [8, 8]",
                "f.gate.2.weight [3, 8]",
                "f.up.weight [3, 8]",
                "f.down.weight [8, 3]",
            ],
        ),
        // A field has one set of parameters, however often and however deep it is named.
        (
            "field g(u, v) { w = u |> linear(3) |> linear; return w * a(v) }\nfield a = rmsnorm |> linear\n\
             field f = id |> (a * g(a, id) + g(id, linear))",
            &[
                "f.a.norm.gain [8]",
                "f.a.linear.weight [8, 8]",
                "f.g.w.1.weight [3, 8]",
                "f.g.w.2.weight [8, 3]",
                "f.linear.weight [8, 8]",
            ],
        ),
        // Terms of a sum are fields of their own; a pipeline is one.
        (
            "field a = rmsnorm |> linear\nfield f = rmsnorm |> (a*id) + 1/2*a",
            &[
                "f.norm.gain [8]",
                "f.a.norm.gain [8]",
                "f.a.linear.weight [8, 8]",
                "a.norm.gain [8]",
                "a.linear.weight [8, 8]",
            ],
        ),
        // A sum with a number is one field, whatever the number is made of.
        (
            "field f = linear/sqrt(width) + 1/width - log(context)",
            &["f.linear.weight [8, 8]"],
        ),
        // Layers with a role are numbered together, and each of their parameters has the number.
        (
            "layer wide(x: value) as mlp {\n  learn gain[width] = 1\n  up = gain*x |> linear(4)\n  return linear(up, 8)\n}\n\
             field f = rmsnorm |> (swiglu(hidden: 4) + (wide |> gelu(hidden: 6, bias)))",
            &[
                "f.norm.gain [8]",
                "f.gate.1.weight [4, 8]",
                "f.up.1.weight [4, 8]",
                "f.down.1.weight [8, 4]",
                "f.gain.2 [8]",
                "f.up.2.weight [4, 8]",
                "f.linear.2.weight [8, 4]",
                "f.up.3.weight [6, 8]",
                "f.up.3.bias [6]",
                "f.down.3.weight [8, 6]",
                "f.down.3.bias [8]",
            ],
        ),
        (
            "field f {\n  a = swiglu(hidden: 4)\n  b = relu(hidden: 4)\n  return a + b |> relu\n}",
            &[
                "f.a.gate.weight [4, 8]",
                "f.a.up.weight [4, 8]",
                "f.a.down.weight [8, 4]",
                "f.b.up.weight [4, 8]",
                "f.b.down.weight [8, 4]",
            ],
        ),
        (
            "field a(x) = linear(x, 2)\nfield f = linear(a |> linear |> sigmoid, 8)",
            &[
                "f.a.linear.weight [2, 8]",
                "f.linear.1.weight [8, 2]",
                "f.linear.2.weight [8, 8]",
            ],
        ),
    ];
    for (definitions, wanted) in cases {
        assert_eq!(names(definitions), wanted, "{definitions}");
    }
}

const BODY: &str = "field f {\n  learn gain[width] = 1\n  learn a = 1/4\n  y = rmsnorm |> linear(12)\n  \
    z = y*sigmoid(y) |> linear\n  return gain*z + a*id\n}";

/// Each weights policy, LoRA, bounds and drift see what a body learns.
#[test]
fn policies_see_the_parameters_of_a_body() {
    let own = |options: &str, train: &str| -> Vec<String> {
        let built = built(&(model(BODY, options) + train));
        assert!(loss(&built).0.is_finite());
        let params = built.params.iter().map(|p| p.path.clone());
        params
            .filter(|p| !p.starts_with("embed") && !p.starts_with("output"))
            .collect()
    };
    let of = |prefix: &str| -> Vec<String> {
        let all = ["gain", "a", "y.norm.gain", "y.weight", "z.weight"];
        all.iter().map(|p| format!("{prefix}f.{p}")).collect()
    };
    assert_eq!(own("weights shared", ""), of(""));
    assert_eq!(
        own("weights per step", ""),
        [of("step.0."), of("step.1.")].concat()
    );
    assert_eq!(
        own("weights per use", ""),
        [of("step.0."), of("step.1.")].concat()
    );
    let timed = own("weights of time { embed: 2, hidden: 3, scale: 3 }", "");
    let beside = |p: &String| timed.iter().any(|t| t.starts_with(&format!("{p}.time.")));
    assert!(of("").iter().all(beside), "{timed:?}");
    let train = |more: &str| {
        format!(
            "train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-2)\nbatch 2;  steps 6;  {more} }}\n"
        )
    };
    let wide = |text: &str| text.replace("vocab: 11", "vocab: 256");
    let added = |more: &str, end: &str| -> Vec<String> {
        let built = built(&wide(&(model(BODY, "weights shared") + &train(more))));
        let params = built.params.iter().map(|p| p.path.clone());
        params
            .filter(|p| p.starts_with("f.") && p.ends_with(end))
            .collect()
    };
    let two = |end: &str| [format!("f.y.weight{end}"), format!("f.z.weight{end}")];
    assert_eq!(
        added("from \"run\";  tune lora(rank: 2)", ".lora.a"),
        two(".lora.a")
    );
    assert_eq!(
        added("constrain spectral(max: 1.0)", ".spectral.u").len(),
        2
    );
}

/// A body is read on token by token, bit for bit, with as many caches as it attends.
#[test]
fn two_attentions_of_a_field_keep_their_own() {
    let text = "field att = attention(heads: 2, causal)\nfield f { a = att; b = att(a); return a*b + attention(heads: 1, causal) }";
    let built = built(&model(text, ""));
    let decode = built.decode.as_ref().expect("causal");
    let caches = decode.nodes().filter_map(|(_, n)| match &n.op {
        OpKind::Cache(c) => Some(c.path.clone()),
        _ => None,
    });
    let caches: Vec<String> = caches.collect();
    let different: std::collections::BTreeSet<&String> = caches.iter().collect();
    assert_eq!((caches.len(), different.len()), (12, 12), "{caches:?}");
}

/// Values for all that a graph is fed with: tokens, and numbers that follow from paths.
fn fed(graph: &Graph, at: Bindings) -> BTreeMap<String, Tensor> {
    let fed = graph.nodes().filter_map(|(_, node)| {
        let shape = node.types[0].concrete(at);
        let n = shape.iter().product::<u64>() as usize;
        let (name, data): (&String, Vec<f64>) = match &node.op {
            OpKind::Parameter(p) => (&p.path, (0..n).map(|i| number(&p.path, i)).collect()),
            OpKind::Input(i) => (&i.name, (0..n).map(|i| (i * 3 % VOCAB) as f64).collect()),
            _ => return None,
        };
        Some((name.clone(), Tensor::new(shape, data)))
    });
    fed.collect()
}

/// The graph of a random body computes what plain loops compute; its derivative along all parameters is that of differences.
#[test]
fn random_bodies_mean_what_they_say() {
    let at = Bindings::new(1, 5);
    let tokens: Vec<usize> = (0..5).map(|i| i * 3 % VOCAB).collect();
    let mut all = String::new();
    for seed in 1..=60 {
        let (text, wanted) = random(seed, &tokens);
        all += &text;
        let built = built(&text);
        let logits = &run(&built.forward, &fed(&built.forward, at), at).expect(&text)["logits"];
        let pairs = logits.data.iter().zip(wanted.iter().flatten());
        for (a, b) in pairs {
            assert!(
                (a - b).abs() <= 1e-11 * (1.0 + b.abs()),
                "{text}\n{a} is not {b}"
            );
        }
        let given = fed(&built.grad, at);
        let found = run(&built.grad, &given, at).expect(&text);
        let way = |i: usize| if i.is_multiple_of(3) { 1.0 } else { -0.5 };
        let slope: f64 = (built.params.iter())
            .flat_map(|p| found[&format!("grad.{}", p.path)].data.iter().enumerate())
            .map(|(i, d)| d * way(i))
            .sum();
        let moved = |h: f64| {
            let mut given = given.clone();
            for p in &built.params {
                let x = &mut given.get_mut(&p.path).expect("a parameter").data;
                x.iter_mut().enumerate().for_each(|(i, x)| *x += h * way(i));
            }
            run(&built.grad, &given, at).expect(&text)["loss"].data[0]
        };
        let h = 1e-5;
        let difference = (moved(h) - moved(-h)) / (2.0 * h);
        let close = (slope - difference).abs() <= 1e-6 * (1.0 + slope.abs());
        assert!(close, "{text}\n{slope} is not {difference}");
    }
    assert!(FORMS.iter().all(|form| all.contains(form)));
}

/// A value is computed once, however often it is read.
#[test]
fn a_value_is_computed_once() {
    let of = |text: &str| {
        let text = print::text_unfolded(&built(&model(text, "")).forward);
        text.matches("matmul").count()
    };
    let once = of("field f { y = linear; return y*y*y + y }");
    assert_eq!(of("field f = linear*linear*linear + linear"), once + 2 * 3);
}

/// What is written out counts once for each place that it is used at, and is counted once.
#[test]
fn layers_that_double_are_refused_in_time() {
    let mut text = String::from("layer l0(x: value) = x + 1\n");
    for i in 1..=29 {
        let of = i - 1;
        text += &format!("layer l{i}(x: value) {{ y = l{of}(x); return l{of}(y) }}\n");
    }
    text += "field f = l29\n";
    let outcome = compile_text(&text);
    assert!(outcome.checked.is_none());
    assert!(
        outcome.rendered().contains("have more than"),
        "{}",
        outcome.rendered()
    );
}

/// What a message says instead of a flow in a pipeline can be written, and is that.
#[test]
fn a_flow_in_a_pipeline_is_a_scheme() {
    let refused = "field att = rmsnorm |> attention(heads: 2, causal)\nfield ffn = rmsnorm |> linear\n\
                   field f = rmsnorm |> increment(lie(att, ffn))";
    let message = compile_text(&model(refused, "")).rendered();
    let (_, proposed) = message.split_once("= help: ").expect("a help");
    let proposed = proposed.split('`').nth(1).expect("a scheme").to_string();
    let definitions = refused.rsplit_once('\n').expect("fields").0;
    let text = model(
        &format!("{definitions}\nfield norm = rmsnorm\n{proposed}"),
        "",
    );
    let text = text.replace("euler(f)", "within(norm, att, ffn)");
    let norms = built(&text).params;
    let mut of_step = norms.iter().filter(|p| p.path.starts_with("step.1."));
    assert!(
        of_step.any(|p| p.path == "step.1.norm.norm.gain"),
        "{norms:?}"
    );
}
