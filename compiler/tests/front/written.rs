//! Layers written in the language: what they stand for, how their parameters are called, what is said of wrong ones.

use crate::common::{Files, Outcome, compile_files, compile_text};
use odec_compiler::model::alone::alone;
use odec_compiler::model::layers::Sizes;
use odec_graph::ops::{Input, Parameter};
use odec_graph::{Builder, TensorType, nn, print};
use odec_library::shipped;

/// A model of width 16 that evolves by a field `f`.
fn model(definitions: &str) -> String {
    format!(
        "{definitions}\nmodel m {{\n  input tokens(vocab: 11, context: 8)\n  embed learned(width: 16)\n  \
         evolve euler(f) for 2 steps\n  output rmsnorm |> logits(tied)\n}}\n"
    )
}

fn compiled(definitions: &str) -> Outcome {
    compile_text(&model(definitions)).on_its_flow()
}

/// Every graph of a model as text, its parameters among them.
fn graphs(outcome: &Outcome) -> Vec<String> {
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
    let built = outcome.checked().built.as_ref().expect("a model");
    let all = [
        Some(&built.forward),
        Some(&built.grad),
        built.decode.as_ref(),
    ];
    let params = built
        .params
        .iter()
        .map(|p| format!("{} {:?}", p.path, p.shape));
    all.into_iter()
        .flatten()
        .map(print::text)
        .chain(params)
        .collect()
}

/// A layer means what its body means in its place: the same graphs, parameters of the same names.
#[test]
fn a_layer_stands_for_its_body() {
    let cases = [
        (
            "layer ffn(hidden) = rmsnorm |> gelu(hidden: hidden)\nfield f = ffn(hidden: 2*width)",
            "field f = rmsnorm |> gelu(hidden: 32)",
        ),
        // Twice in one field, with other arguments. `width` is that of what the layer is applied to; roles are counted through the field.
        (
            "layer two(a, b = 2*width, scale: number = 1/2) = linear(a) |> linear(b) + scale*linear(b)/2 - linear(b)*2\n\
             field f = linear(4) |> two(a: 5) |> two(a: 3, b: width, scale: 3)",
            "field f = linear(4) |> (linear(5) |> linear(8) + 1/4*linear(8) - 2*linear(8)) \
             |> (linear(3) |> linear(16) + 3/2*linear(16) - 2*linear(16))",
        ),
        // A layer of layers; words that stand alone are handed on or not.
        (
            "layer att(heads, causal: flag, rope: flag) = rmsnorm |> attention(heads: heads, causal, rope)\n\
             layer both(heads, rope: flag) = att(heads: heads, causal, rope) + att(heads: 1, causal)\n\
             field f = id |> both(heads: 2, rope)",
            "field f = id |> (rmsnorm |> attention(heads: 2, causal, rope) + rmsnorm |> attention(heads: 1, causal))",
        ),
        // In a field of several arguments, and as an argument of `concat`.
        (
            "layer mix(n) = sigmoid |> linear(n)\nfield g(u, v) = concat(u, v) |> mix(n: width/2)\n\
             field f = concat(mix(n: 2), id) |> linear",
            "field g(u, v) = concat(u, v) |> sigmoid |> linear(16)\n\
             field f = concat(sigmoid |> linear(2), id) |> linear",
        ),
        // What reads nothing of its input begins where values have names.
        (
            "layer clock(x: value) = x + time(embed: width) + positions(sinusoidal)\nfield f = rmsnorm |> clock",
            "field f = rmsnorm |> (id + time(embed: 16) + positions(sinusoidal))",
        ),
        // An MLP under the name of its function; a word that is handed on, and one that is meant where nothing is said.
        (
            "field f = gelu_mlp(hidden: 24, bias, approximate: tanh) |> relu_mlp(hidden: 8) |> gelu_mlp(hidden: 4)",
            "field f = gelu(hidden: 24, bias, approximate: tanh) |> relu(hidden: 8) |> gelu(hidden: 4, approximate: none)",
        ),
        (
            "layer mine(hidden, form: word, other: word = tanh) = gelu(hidden: hidden, approximate: form) |> gelu(approximate: other)\n\
             field f = mine(hidden: 24, form: none)",
            "field f = gelu(hidden: 24) |> gelu(approximate: tanh)",
        ),
        // What a flag chooses; optional numbers, also of a layer inside and of a word with arguments.
        (
            "layer att(heads, window = none, scale: number = none, rope: flag) = attend(\n\
             linear |> when(rope, rotary(heads: heads)), linear |> when(rope, rotary(heads: heads)), linear, heads: heads, causal, \
             window: window, scale: scale) |> linear\n\
             field f = att(heads: 2, rope) |> att(heads: 4, window: width/4 - 1, scale: 1/5)",
            "field f = attend(linear |> rotary(heads: 2), linear |> rotary(heads: 2), linear, heads: 2, causal) |> linear \
             |> attend(linear, linear, linear, heads: 4, causal, window: 3, scale: 1/5) |> linear",
        ),
        (
            "layer a(window = none) = attention(heads: 2, causal, window: window)\nlayer b(near = none) = a(window: near) |> a(window: 2)\n\
             field f = b(near: none) |> b(near: 5)",
            "field f = attention(heads: 2, causal) |> attention(heads: 2, causal, window: 2) \
             |> attention(heads: 2, causal, window: 5) |> attention(heads: 2, causal, window: 2)",
        ),
        (
            "layer a(base: number = none) = attention(heads: 2, causal, rope(base: base))\nfield f = a |> a(base: 500)",
            "field f = attention(heads: 2, causal, rope) |> attention(heads: 2, causal, rope(base: 500))",
        ),
        (
            "layer gate(open: flag, hidden = none) = when(open, id, when(hidden, linear(2*hidden) |> sigmoid |> linear(width), sigmoid))\n\
             field f = gate |> gate(open) |> gate(hidden: 3) |> gate(hidden: 3, open)",
            "field f = sigmoid |> id |> (linear(6) |> sigmoid |> linear(16)) |> id",
        ),
        // Optional layers, of those in Rust and in the language, handed on with what they are given; flags under other names, and those that others switch on.
        (
            "layer a(heads, turn: rotary, wide: flag, all: flag = wide) = attend(\n\
             linear(width, bias: all) |> turn(heads: heads), turn(linear, heads: heads, share: 1/2), linear(bias: wide), heads: heads, causal)\n\
             layer b(heads, base, turn: rotary) = a(heads: heads, turn, all) |> a(heads: 2, turn(base: base))\n\
             field f = a(heads: 2, turn(base: 2*width), wide) |> b(heads: 4, base: 7) |> b(heads: 4, base: 5, turn(interpolation: linear, scaling: 3))",
            "field f = attend(linear(width, bias) |> rotary(heads: 2, base: 32), linear |> rotary(heads: 2, share: 1/2, base: 32), linear(bias), \
             heads: 2, causal) |> attend(linear(width, bias), linear, linear, heads: 4, causal) |> attend(linear |> rotary(heads: 2, base: 7), \
             linear |> rotary(heads: 2, share: 1/2, base: 7), linear, heads: 2, causal) |> attend(linear(width, bias) |> rotary(heads: 4, scaling: 3), linear |> rotary(heads: 4, share: 1/2, scaling: 3), linear, heads: 4, causal) |> attend(\
             linear |> rotary(heads: 2, base: 5), linear |> rotary(heads: 2, share: 1/2, base: 5), linear, heads: 2, causal)",
        ),
        (
            "layer inner(n, bias: flag) = linear(n, bias) |> sigmoid\nlayer a(then: inner, first: inner) = first |> linear |> then(n: width)\n\
             field f = a(first(n: 3), then(bias)) |> a(then)",
            "field f = linear(3) |> sigmoid |> linear |> linear(16, bias) |> sigmoid |> linear |> linear(16) |> sigmoid",
        ),
        // A head's columns are the width inside.
        (
            "layer small(x: value) = x |> linear(width) |> sigmoid\nfield f = per_head(small |> linear(3*width), heads: 4) |> linear",
            "field f = per_head(linear(4) |> sigmoid |> linear(12), heads: 4) |> linear",
        ),
        // Sizes that are rounded.
        (
            "layer ffn(hidden = 8*ceil(width/3)) = gelu(hidden: hidden)\nfield f = ffn |> ffn(hidden: floor(17/2)) |> linear(ceil(-1/2) + 16)",
            "field f = gelu(hidden: 48) |> gelu(hidden: 8) |> linear(16)",
        ),
        // Alone under a scheme, and what it multiplies: a function of the field is defined as for its body.
        (
            "layer fade = decay\nlayer mlp = gelu(hidden: 24)\nfield A = fade\nfield B = mlp\nfield f = increment(lawson_euler(A, B))",
            "field A = decay\nfield B = gelu(hidden: 24)\nfield f = increment(lawson_euler(A, B))",
        ),
    ];
    for (with, without) in cases {
        let [with_graphs, without_graphs] = [with, without].map(|d| graphs(&compiled(d)));
        assert_eq!(with_graphs, without_graphs, "{with}");
    }
    // In front of the logits, too.
    let ends = |text: &str| model(text).replace("output rmsnorm", "output last");
    let written = compile_text(&ends("layer last = rmsnorm\nfield f = id"));
    let plain = compile_text(&model("field f = id"));
    assert_eq!(graphs(&written), graphs(&plain));
}

/// The graph of a layer with values is that of one in Rust, to the order of its nodes: all parameters, then values at the places that they are
/// called after.
#[test]
fn a_layer_with_values_is_built_as_one_in_rust() {
    let sizes = Sizes {
        vocab: Some(11),
        context: 8,
        width: 16,
        grid: None,
    };
    let found = alone("swiglu(hidden: 24, bias)", sizes, shipped::library());
    let found = found.unwrap_or_else(|e| panic!("{e:?}"));
    let mut b = Builder::new();
    let (name, ty) = ("x".into(), TensorType::state(16));
    let x = b.push1(Input { name, ty }, &[]).unwrap();
    let mut params = found.params.iter().map(|p| {
        let (path, shape, init) = (p.path.clone(), p.shape.clone(), p.init(0.02));
        b.push1(Parameter { path, shape, init }, &[]).unwrap()
    });
    let mut map = || {
        let (weight, bias) = (params.next().unwrap(), params.next());
        nn::Affine { weight, bias }
    };
    let maps = [map(), map(), map()];
    drop(params);
    let y = nn::swiglu(&mut b, x, maps[0], maps[1], maps[2]).unwrap();
    b.output("y", y);
    assert_eq!(print::text(&found.graph), print::text(&b.finish()));
}

#[test]
fn layers_come_from_the_library_and_from_imports() {
    // What a library layer names is the library's, whatever the file calls so.
    let own = "layer rank = sigmoid\nfield f = adapter(rank: 4) |> rank";
    let plain = "field f = (id + gelu(hidden: 4, bias)) |> sigmoid";
    assert_eq!(graphs(&compiled(own)), graphs(&compiled(plain)));

    let mut files = Files::default();
    files.0.insert(
        "mine.ode".into(),
        "layer mine(n) = linear(n) |> linear\n".into(),
    );
    let text = model("use \"mine.ode\"\nfield f = mine(n: 3)");
    let imported = compile_files("test.ode", &text, &mut files);
    assert_eq!(
        graphs(&imported),
        graphs(&compiled("field f = linear(3) |> linear"))
    );

    // A file's own comes first, and that is said; what the library says is no news.
    let other = compile_text(&model(
        "layer adapter(rank) = linear(rank) |> linear\nfield f = adapter(rank: 2)",
    ));
    let said: Vec<&str> = other.messages.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(said, ["`adapter` is also the name of a library layer"]);
    let same =
        compiled("layer adapter(rank) = id + gelu(hidden: rank, bias)\nfield f = adapter(rank: 2)");
    assert!(same.messages.is_empty(), "{}", same.rendered());
}

/// A field is called as before where `layer` begins no definition.
#[test]
fn layer_is_a_name_elsewhere() {
    let text = "field layer =\n  rmsnorm |> linear\nlayer layer2(n) = linear(n)\nfield g = layer2(n: width)\nfield f =\n  layer\n  + g\n";
    let outcome = compiled(text);
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
}

/// Mistakes inside of a body are shown there, with the uses that lead to it; those of arguments, where they are given.
#[test]
fn mistakes() {
    let cases = [
        "layer a(n) = rmsnorm |> b(heads: n)\nlayer b(heads) = attention(heads: heads, causal)\nfield f = a(n: 3)",
        "layer a(n) = linear(n) + id\nfield f = a(n: 3)",
        "layer a(n) = linear(n)\nfield f = a(n: 7/2)\nfield g = a(m: 3)\nfield h = a(n: 3, n: 4)\nfield i = a(4)\nfield j = a\nfield k = a(n: causal)",
        "layer a(n, causal: flag) = attention(heads: n, causal)\nfield f = a(n: 2, causal: 1)",
        "layer a(n) = linear(n) |> b\nlayer b = sigmoid |> a(n: 3)\nfield f = b",
        "layer rmsnorm = linear\nlayer heun = linear\nlayer a = linear\nlayer a = id\nfield f = a",
        "layer a(width, n: length, n: flag = 3, unread) = linear(n)\nfield f = a",
        "layer a = rmsnorm |> liner\nlayer adaptor = adaptr(rank: 3)\nfield f = adapterr(rank: 3)",
        "layer a = rmsnorm\nfield g = rmsnorm\nfield f = rk4(a) + a(rmsnorm) + g(a)",
        "layer a = linear * linear\nfield f = a + a/0",
        "layer a(n, unread, _unread) = linear(n)\nfield f = a(n: 3, unread: 4, _unread: 5) |> linear",
        "layer a = linear\nlayer b = a(c: 1)\nfield f = euler(a) + heun(b)\nscheme s(F) { step x { return a(x) } }",
    ];
    let shown = cases.map(|c| format!("== {c}\n{}", compile_text(&model(c)).rendered()));
    insta::assert_snapshot!(shown.join("\n\n"));
}

/// Keys and values of another evolve, or of any value: where a layer says `from`, in values with names, and in `attend`.
#[test]
fn states_are_read_under_names() {
    let model = |definitions: &str| {
        let text = format!(
            "field f = rmsnorm |> gelu(hidden: 8)\n{definitions}\nmodel m {{\n  input tokens(vocab: 11, context: 8)\n  embed learned(width: 16)\n  \
             evolve first: euler(f) for 1 step\n  evolve last: euler(g) for 1 step\n  output logits\n}}\n"
        );
        graphs(&compile_text(&text).on_its_flow())
    };
    let layer = "layer reads(x: value, heads, from y: state = x) {\n  q = x |> linear\n  k = y |> linear\n  v = y |> linear\n  \
                 o = attend(q, k, v, heads: heads, causal) |> linear\n  return o\n}\n\
                 layer around(x: value, from memory: state = x) = reads(x, heads: 2, from: memory |> sigmoid)";
    let same = |field: &str, k: &str| {
        let body = format!(
            "field g {{\n  m = {k}\n  q = id |> linear\n  k = m |> linear\n  v = m |> linear\n  o = attend(q, k, v, heads: 2, causal) |> linear\n  return o\n}}"
        );
        let written = model(&format!("{layer}\nfield g {field}"));
        let plain = model(&body);
        // Where the value is made differs, and nothing else.
        let without_places = |graphs: Vec<String>| -> Vec<String> {
            let lines = graphs.iter().flat_map(|g| g.lines());
            lines
                .map(|l| l.split(" @ ").next().unwrap_or_default().to_string())
                .collect()
        };
        assert_eq!(without_places(written), without_places(plain), "{field}");
    };
    let sigmoid = "first |> sigmoid";
    same("= reads(heads: 2, from: first)", "first");
    same("= reads(heads: 2)", "id");
    same("= reads(heads: 2, from: first |> sigmoid)", sigmoid);
    // Through two layers, given and not.
    same("= around(from: first)", sigmoid);
    same("= around", "id |> sigmoid");
    // Any value of the same tokens.
    same(
        "{ m = rmsnorm; return reads(id, heads: 2, from: m) }",
        "rmsnorm",
    );
}

/// Norms are the functions without parameters, and what stands behind them.
#[test]
fn norms_are_functions_and_gains() {
    let graph = |definitions: &str| graphs(&compiled(definitions)).join("\n");
    for (norm, parts) in [
        ("layernorm", "standardize |> affine"),
        ("rmsnorm", "rms_normalize |> layer_scale(init: 1)"),
        (
            "layernorm(heads: 4)",
            "per_head(standardize |> affine, heads: 4)",
        ),
    ] {
        // Of a value, whose name the parameters have.
        let [whole, made] =
            [norm, parts].map(|f| graph(&format!("field f {{ n = {f}; return n }}")));
        assert_eq!(whole, made, "{norm}");
    }
}

/// A matrix that a body learns is multiplied by from both sides, under one name.
#[test]
fn matrices_are_shared_by_maps() {
    let memory = "layer memory(x: value, n, beta: number) {\n  learn patterns[n, width] = normal\n  near = beta*linear(x, patterns)\n  \
                  return near |> softmax |> linear(patterns, transposed)\n}\n";
    // Twice in a field, with a bias, and beside a map of its own.
    let names = |definitions: &str| -> Vec<String> {
        let outcome = compiled(definitions);
        let built = outcome.checked().built.as_ref().expect("a model");
        let params = built.params.iter();
        let first = params.filter_map(|p| {
            Some(format!(
                "{} {:?}",
                p.path.strip_prefix("step.0.f.")?,
                p.shape
            ))
        });
        first.collect()
    };
    let twice = format!("{memory}field f = memory(n: 12, beta: 3) |> memory(n: 4, beta: 1)");
    assert_eq!(
        names(&twice),
        ["patterns.1.weight [12, 16]", "patterns.2.weight [4, 16]"]
    );
    let both = "field f {\n  learn w[6, width] = 0\n  low = id |> linear(w, bias)\n  return low |> linear(w, transposed) + id |> linear\n}";
    let found = names(both);
    assert!(found.contains(&"w.weight [6, 16]".to_string()), "{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn mistakes_of_matrices_and_heads() {
    let cases = [
        "field f { learn w[8, width] = normal; return id |> linear(w) }",
        "field f { learn w[8, width] = normal; a = id |> linear(w); return a |> linear(w) }",
        "field f { learn w[8, 4] = normal; return id |> linear(w) }",
        "field f { learn w[8, width] = normal; return w + id }\nfield g { learn w[8, width] = normal; return silu(w) }\n\
         field m { learn w[8, width] = normal; return id |> w }",
        "field e { learn w[2, 8, width, 2] = normal; return id |> linear(w) }\nfield f { learn w[4, 8, width] = normal; return id |> linear(w) }\n\
         field k { learn w[4, 8, width] = normal; learn v[8, width] = normal; return linear(w + v) }\n\
         field n { learn w[4, width, width/4] = normal; return linear(w, transposed) }\nfield o { learn w[1000000, 1, width/4] = normal; return linear(w) }\nfield g { learn w[0, width] = normal; return id |> linear(w) }",
        "field f { learn w[8, width] = normal; return id |> linear(w, zero) }\nfield g = linear(8, transposed)\nfield m { learn a[8] = 1; return linear(a) }",
        "field f = per_head(heads: 4)\nfield g = per_head(attention(heads: 1), heads: 4)\nfield m = per_head(rmsnorm, heads: 3)\nfield n = per_head(shift, heads: 2)\n\
         field o { y = linear; return id |> per_head(y, heads: 2) }",
        "layer a(turn: a) = linear |> turn\nfield f = a(turn)",
        "layer a(x: value, w: value) = linear(x, w)\nfield f { learn w[8, width] = normal; return a(id, w) }",
        "field f { learn w[8, width] = normal; return id |> linear(w*id) }\nfield g { learn w[8, width] = normal; learn v[4, width] = 1; return id |> linear(w + v) }\n\
         field m { learn w[8, width] = normal; learn v[8] = 1; return id |> linear(maximum(w, v)) }",
        "field f { learn w[8, width] = normal; return id |> linear(exp(w), transposed) }\n\
         field m { learn w[8, width] = normal; return id + sum(w, heads: 2) }",
        "field f { learn w[8, width] = normal; return exp(w) }\nfield g { learn w[8, width] = normal; a = exp(w); return a }\n\
         field m { learn w[8, width] = normal; return w |> exp }\nfield n { learn w[8, width] = normal; return attend(w, w, w, heads: 1) }",
        "field f = exp(1000)*id\nfield g = log(0)*id\nfield m = id/log(1)\nfield n = exp(h)*id",
    ];
    let shown = cases.map(|c| format!("== {c}\n{}", compile_text(&model(c)).rendered()));
    insta::assert_snapshot!(shown.join("\n\n"));
}

/// Arguments that are optional layers, states and flags of flags, and what is given for them.
#[test]
fn mistakes_of_optional_layers_and_states() {
    let cases = [
        "layer a(turn: rotry) = id\nlayer b(turn: rotary = id) = turn(heads: 2)\nlayer c(x: value, from y: state = z) = x + y\n\
         layer d(on: flag = off, off: flag) = linear(bias: on)\nlayer e(x: value, from y: state, from z: state) = attend(x, y, z, heads: 2)\nfield f = id",
        "layer a(turn: rotary, heads = 2) = turn(heads: heads)\nfield f = a(turn(base: heads))\nfield g = a(turn(heads: 4))\nfield m = a(turn: 3)\n\
         field i = a(turn, turn(base: 2))\nfield j = a(turn(bse: 3))\nfield k = a(turn(base: 0))\nfield l = a(turn(7))",
        "layer a(turn: rotary, heads = 2) = turn(heads: heads)\nfield f = a(turn(interpolation: yarn))\nfield g = a(turn, heads: 3)\n\
         field m = a(turn(interpolation: soft))",
        "layer a(x: value, from y: state) = attend(x, y, y, heads: 2)\nfield f = a\nfield g = a(from: none)\nfield m = a(linear, from: linear)",
        "layer a(x: value, from y: state = x) = x + y\nfield f { m = a(from: id); return m }",
        "layer a(on: flag) = linear(bias: on)\nfield f = a(on: on)\nfield g = linear(bias: on)\nfield m = linear(bias: 3)",
    ];
    let shown = cases.map(|c| format!("== {c}\n{}", compile_text(&model(c)).rendered()));
    insta::assert_snapshot!(shown.join("\n\n"));
}

/// Layers of a choice that is not taken count where parameters are numbered.
#[test]
fn both_choices_are_counted() {
    let names = |field: &str| -> Vec<String> {
        let layer =
            "layer a(wide: flag) = when(wide, linear(24) |> sigmoid, sigmoid) |> linear(width)";
        let outcome = compile_text(&model(&format!("{layer}\nfield f = {field}")));
        let built = outcome.checked().built.as_ref().expect("a model");
        let params = built.params.iter();
        let first = params.filter_map(|p| p.path.strip_prefix("step.0."));
        first.map(String::from).collect()
    };
    let numbered = |n| format!("f.linear.{n}.weight");
    assert_eq!(names("a"), [numbered(1)]);
    assert_eq!(names("a(wide)"), [numbered(1), numbered(2)]);
}

/// Optional numbers stand where they need no value, and `when` asks for what a layer may be given or not.
#[test]
fn mistakes_of_choices() {
    let cases = [
        "layer a(n = none) = linear(n)\nfield f = a(n: width)",
        "layer a(n = none, m = 2*n) = linear(m) |> attention(heads: n + 1, causal)\nfield f = a",
        "layer a(n = none) = when(n, id, linear(n))\nfield f = a",
        "layer a(x: value = none, rope: flag = none) = x |> when(rope, sigmoid)\nfield f = a",
        "layer a(n, rope: flag) = linear(n) |> when(n, sigmoid)\nfield f = a(n: width)",
        "field f = linear |> when(rope, sigmoid)",
        "layer a(rope: flag) = linear |> when(rope)\nlayer b(rope: flag) = when(rope, id, id, id)\nlayer c(rope: flag) = when(rope, then: id)\n\
         field f = a |> b |> c |> when",
        "layer a(x: value, rope: flag) {\n  y = when(rope, sigmoid(x))\n  return y\n}\nfield f = a",
        "layer when = id\nfield f = wen(id)",
        "layer a(n = none) = attention(heads: n, causal)\nfield f = a",
    ];
    let shown = cases.map(|c| format!("== {c}\n{}", compile_text(&model(c)).rendered()));
    insta::assert_snapshot!(shown.join("\n\n"));
}

/// Layers of layers grow quickly: what they would take is counted before they are written out.
#[test]
fn layers_that_double_are_refused() {
    let mut text = String::from("layer l0 = id\n");
    for n in 1..40 {
        text += &format!("layer l{n} = l{0} |> l{0}\n", n - 1);
    }
    let outcome = compiled(&format!("{text}field f = l39"));
    let said: Vec<&str> = outcome
        .messages
        .iter()
        .map(|d| d.message.as_str())
        .collect();
    assert_eq!(said, ["written out, the layers have more than 16384 parts"]);

    // Many fields of large layers, and chains of layers.
    let fields: String = (0..40).map(|n| format!("field f{n} = l14\n")).collect();
    let text: String = text.lines().take(15).map(|l| format!("{l}\n")).collect();
    let outcome = compiled(&format!("{text}{fields}field f = l1"));
    let many = |d: &&odec_grammar::Diagnostic| d.message.starts_with("written out");
    assert!(
        outcome.messages.iter().any(|d| many(&d)),
        "{}",
        outcome.rendered()
    );
    let chain = |n: usize| -> String {
        let link = |n: usize| format!("layer l{n} = (id + l{}) |> id\n", n - 1);
        (1..n).rev().map(link).collect()
    };
    let deep = compiled(&format!("{}layer l0 = id\nfield f = l199", chain(200)));
    let said = |d: &odec_grammar::Diagnostic| d.message.contains("too deeply");
    assert!(deep.messages.iter().any(said), "{}", deep.rendered());
    // As deep as it may be, under a field that is as long as it may be.
    let sum = vec!["l45"; 80].join(" + ");
    let fits = compiled(&format!(
        "layer l0 = id\n{}field f = id |> ({sum})",
        chain(46)
    ));
    assert!(fits.checked.is_some(), "{}", fits.rendered());
}
