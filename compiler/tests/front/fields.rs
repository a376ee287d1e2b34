//! Fields of several arguments, products of states, lists of fields, projections.

use crate::common::{Cases, compile_text, model};
use crate::reference::{State, check_gradients, check_values, feeds, layer, sum};
use odec_compiler::model::Built;
use odec_graph::{OpKind, print};

const GATES: &str = "field one(u, v)  = concat(u, v) |> linear(1, bias) |> sigmoid
field each(u, v) = concat(u, v) |> linear(width) |> sigmoid
";

fn built(definitions: &str, flow: &str, options: &str) -> Built {
    let text = format!("{definitions}{}", model(flow, 2, options));
    compile_text(&text)
        .checked()
        .built
        .clone()
        .expect("a model")
}

/// A sigmoid of a linear map of both, for each row of the map.
fn gate(u: &State, v: &State, w: &[f64], bias: &[f64]) -> State {
    let row = |(u, v): (&Vec<f64>, &Vec<f64>)| {
        let both: Vec<f64> = u.iter().chain(v).copied().collect();
        let maps = w.chunks_exact(both.len()).zip(bias);
        let open = |(w, b): (&[f64], &f64)| {
            let z: f64 = w.iter().zip(&both).map(|(w, x)| w * x).sum();
            1.0 / (1.0 + (-z - b).exp())
        };
        maps.map(open).collect()
    };
    u.iter().zip(v).map(row).collect()
}

/// Column by column, or every column by the only one.
fn product(g: &State, x: &State) -> State {
    let row = |(g, x): (&Vec<f64>, &Vec<f64>)| {
        let of = |c: usize| g[if g.len() == 1 { 0 } else { c }];
        x.iter().enumerate().map(|(c, x)| of(c) * x).collect()
    };
    g.iter().zip(x).map(row).collect()
}

#[test]
fn gated_values() {
    for (name, biased) in [("one", true), ("each", false)] {
        let flow = format!("rk2_gated(layer, {name})");
        let options = format!("h = 1/2;  weights per step, {name} shared");
        let b = built(GATES, &flow, &options);
        let f = feeds(&b, 7);
        let w = f[&format!("{name}.linear.weight")].clone();
        let bias = match biased {
            true => f[&format!("{name}.linear.bias")].data.clone(),
            false => vec![0.0; 8],
        };
        check_values(name, &b, &f, 2, &mut |k, x| {
            let step = format!("step.{k}");
            let k1 = layer(x, &f, &step);
            let k2 = layer(&sum(&[(1.0, x), (0.5, &k1)]), &f, &step);
            let g = gate(&k1, &k2, &w.data, &bias);
            let open = product(&g, &sum(&[(1.0, &k1), (-1.0, &k2)]));
            sum(&[(1.0, x), (0.5, &open), (0.5, &k2)])
        });
        check_gradients(name, &b, &f);
    }
}

#[test]
fn graphs_of_two_steps() {
    let b = built(GATES, "rk2_gated(ffn, one)", "weights per step, one shared");
    insta::assert_snapshot!("fields_graph_gated", print::text(&b.forward));
    let maps = "field mix = attention(heads: 2, causal)\n";
    let flow = "encoder(mix, [linear(12, bias), linear(width, bias)])";
    let b = built(maps, flow, "");
    insta::assert_snapshot!("fields_graph_encoder", print::text(&b.forward));
    let paths: Vec<&str> = b.params.iter().map(|p| p.path.as_str()).collect();
    insta::assert_snapshot!("fields_params_encoder", paths.join("\n"));
}

/// Products are multiplied out and made once; `(1 - g)` is no value of its own.
#[test]
fn products() {
    let text = "scheme s(F, G) { step x { k = F(x);  g = G(k, x);  return x + (1 - g)*(2*k) + 3*k*g - (g - 2)*(g + 1)*h*k } }";
    insta::assert_snapshot!("fields_products", compile_text(text).checked().stages());
}

/// A model that fills in bytes.
fn masked(vocab: u64, rate: &str) -> String {
    format!(
        "field see = rmsnorm |> attention(heads: 2)\n\
         model small {{ input tokens(vocab: {vocab}, context: 8);  embed learned(width: 8)\n  \
         evolve euler(see) for 2 steps\n  output logits(tied)\n}}\n\
         train {{ data text(\"a.txt\", tokenizer: bytes);  loss masked(rate: {rate})\n  \
         optimizer adamw(lr: 1e-3);  batch 2;  steps 4 }}"
    )
}

/// The loss counts hidden tokens only; the model sees later tokens without a warning, and has no way to read on.
#[test]
fn masked_tokens() {
    let outcome = compile_text(&masked(257, "15%"));
    let b = outcome.checked().built.clone().expect("a model");
    assert_eq!(outcome.messages, []);
    assert!(b.decode.is_none());
    insta::assert_snapshot!("fields_graph_masked", print::text(&b.loss));
}

#[test]
fn mistakes() {
    let scheme = |body: &str| format!("scheme s(F, G, L[..]) {{ step x {{ {body} }} }}\n");
    let fields = "field narrow = rmsnorm |> linear(1)\n";
    let with =
        |body: &str, flow: &str| format!("{GATES}{fields}{}{}", scheme(body), model(flow, 2, ""));
    let good = "return x + F(x)";
    let mut cases = Cases::default();
    for (name, text) in [
        ("arity", with("return x + G(x, x, x)", "s(ffn, one, [att])")),
        (
            "arity_one",
            with("return x + F(x, x)", "s(layer, one, [att])"),
        ),
        (
            "single",
            model("euler(gate)", 2, "") + "field gate(u, v) = concat(u, v) |> linear",
        ),
        (
            "beginning",
            model("euler(ffn)", 2, "") + "field gate(u, v) = linear(1) |> sigmoid",
        ),
        (
            "parameters",
            model("euler(ffn)", 2, "") + "field gate(u, u) = concat(u, u) |> linear",
        ),
        (
            "nothing",
            model("euler(ffn)", 2, "") + "field none = concat |> linear",
        ),
        ("added", with("return x + G(x, x)", "s(ffn, one, [att])")),
        ("ends", with("return x + F(x)", "s(narrow, one, [att])")),
        (
            "twice",
            with(
                "return x + h*G(x, x)*L[0](L[0](x))",
                "s(ffn, one, [narrow])",
            ),
        ),
        ("number", with("y = x + 1;  return y", "s(ffn, one, [att])")),
        ("divided", with("return x/F(x)", "s(ffn, one, [att])")),
        ("place", with("return L[2](x)", "s(ffn, one, [att, ffn])")),
        (
            "range",
            with(
                "v = x;  repeat l in L[..-4] { v = l(v) }  return v",
                "s(ffn, one, [att, ffn])",
            ),
        ),
        (
            "root_of_a_state",
            with("return x + sqrt(x)", "s(ffn, one, att)"),
        ),
        (
            "root_of_a_rate",
            with("return x + root(1 + h*F(x), 3)", "s(ffn, one, att)"),
        ),
        (
            "nested_root",
            with("return x + sqrt(2 + root(2, 3))*F(x)", "s(ffn, one, att)"),
        ),
        (
            "solve_by_newton",
            with(
                "solve z = F(z + x) from 0 by newton(tol: 1e-3, max: 40) gradient implicit;  return z",
                "s(ffn, one, att)",
            ),
        ),
        (
            "solve_to_a_tolerance",
            with(
                "solve z = F(z + x) from x by fixed_point(tol: 1e-3, iterations: 3);  return z",
                "s(ffn, one, att)",
            ),
        ),
        (
            "solve_from_a_number",
            with(
                "solve z = F(z + x) from 1 by fixed_point(iterations: 3);  return z",
                "s(ffn, one, att)",
            ),
        ),
        (
            "solve_nothing",
            with(
                "solve z = F(x) from 0 by fixed_point(iterations: 3);  return z",
                "s(ffn, one, att)",
            ),
        ),
        (
            "solve_for_the_state",
            with(
                "solve x = F(x) from 0 by fixed_point(iterations: 3);  return x",
                "s(ffn, one, att)",
            ),
        ),
        ("no_list", with(good, "s(ffn, one, [])")),
        ("length", with("return x + len(x)*F(x)", "s(ffn, one, att)")),
        (
            "lengths",
            with("return x + len(L, L)*F(x)", "s(ffn, one, att)"),
        ),
        ("nested_list", with(good, "s(ffn, one, att, [ffn])")),
        (
            "inner_scheme_in_a_list",
            with("return x + L[1](x)", "s(ffn, one, att, ffn by heun)"),
        ),
        (
            "flow_in_a_list",
            with(
                "return x + sum l in L[..] { l(x) }",
                "s(ffn, one, euler(att))",
            ),
        ),
        (
            "sum_of_a_field",
            with("return x + sum F in L[..] { F(x) }", "s(ffn, one, att)"),
        ),
        ("missing_list", with(good, "s(ffn, one)")),
        ("unknown_list", with("return M[0](x)", "s(ffn, one, [att])")),
        ("splitting", "scheme two(A, L[..]) { A(1) }".into()),
        (
            "late",
            "scheme late(L[..], A) { step x { return x + A(x) } }".into(),
        ),
        (
            "moments",
            with("return normalize(x, mean: x, std: 1)", "s(ffn, one, [att])"),
        ),
        (
            "moment",
            with("return normalize(x, mean: 0)", "s(ffn, one, [att])"),
        ),
        (
            "label",
            with("return nonnegative(x, mean: 0)", "s(ffn, one, [att])"),
        ),
        ("mask", masked(256, "15%")),
        ("rate", masked(257, "0%")),
        (
            "states",
            with("return nonnegative(x, x)", "s(ffn, one, [att])"),
        ),
    ] {
        let outcome = compile_text(&text);
        assert!(outcome.checked.is_none(), "{name}");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!("fields_mistakes", cases);
}

/// What attention shares and sees, and what is dropped: each mistake by itself, the labels after it still known.
#[test]
fn mistakes_in_primitives() {
    let mut cases = Cases::default();
    for (name, field) in [
        (
            "shared",
            "rmsnorm |> attention(heads: 4, kv_heads: 3, window: 4, causal)",
        ),
        ("window", "rmsnorm |> attention(heads: 4, window: 4)"),
        (
            "empty_window",
            "rmsnorm |> attention(heads: 4, window: 0, causal)",
        ),
        ("dropped", "rmsnorm |> linear |> dropout(120%)"),
        (
            "dropped_later",
            "rmsnorm |> linear |> dropout(60%*(k + 1)/(steps - 1))",
        ),
        ("divided_by_step", "rmsnorm |> linear |> dropout(10%/k)"),
        (
            "dropped_batch",
            "rmsnorm |> linear |> dropout(10%, each: batch)",
        ),
    ] {
        let head = "input tokens(vocab: 256, context: 8)\n embed learned(width: 8)";
        let text = format!(
            "field f = {field}\nmodel m {{\n {head}\n evolve euler(f) for 2 steps\n output rmsnorm |> logits(tied)\n}}"
        );
        let outcome = compile_text(&text);
        assert!(outcome.checked.is_none(), "{name}");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!("fields_primitives", cases);
}

/// A share that is dropped may depend on the step, in the fields of steps alone.
#[test]
fn shares_of_steps() {
    let of = |flow: &str, output: &str| {
        compile_text(&format!(
            "field f = rmsnorm |> linear |> dropout(30%*k/(steps - 1), each: sequence) |> dropout(exp(log(2)*k/3) - 1)\n\
             model m {{ input tokens(vocab: 256, context: 8)\n embed learned(width: 8)\n evolve {flow}\n output rmsnorm |> {output}logits(tied) }}\n\
             train {{ data text(\"t\", tokenizer: bytes)\n loss cross_entropy\n optimizer adamw(lr: 1e-3)\n batch 2; steps 1 }}"
        ))
    };
    let outcome = of("heun(f) for 3 steps { h = 1 }", "");
    let mut shares = Vec::new();
    for (_, node) in outcome.built().grad.nodes() {
        if let OpKind::Dropout(d) = &node.op {
            shares.push((node.site.step.unwrap(), d.rate.to_f64()));
        }
    }
    // Stages of a step, and derivatives, drop alike.
    shares.sort_by(|a, b| a.partial_cmp(b).unwrap());
    shares.dedup();
    // Nothing is dropped in the first step.
    let grown = |t: f64| 2f64.powf(t) - 1.0;
    let expected = [
        (1, 0.15),
        (1, grown(1.0 / 3.0)),
        (2, 0.3),
        (2, grown(2.0 / 3.0)),
    ];
    assert_eq!(shares.len(), expected.len(), "{shares:?}");
    for ((step, share), (at, meant)) in shares.iter().zip(&expected) {
        assert!(step == at && (share - meant).abs() < 1e-15, "{shares:?}");
    }
    // A report may read such a field: nothing is dropped in it.
    let reported = of("heun(f) for 3 steps { h = 1;  report seen = f }", "");
    reported.built();
    // A layer's number is one of the names.
    let layered = compile_text(
        "layer kept(x: value, share: number from 0 below 1) { return x |> linear |> dropout(share*(k + 1)/steps) }\n\
         field f = rmsnorm |> kept(share: 1/2)\n\
         model m { input tokens(vocab: 256, context: 8)\n embed learned(width: 8)\n evolve euler(f) for 2 steps\n output rmsnorm |> logits(tied) }\n\
         train { data text(\"t\", tokenizer: bytes)\n loss cross_entropy\n optimizer adamw(lr: 1e-3)\n batch 2; steps 1 }",
    );
    let nodes = layered.built().grad.nodes();
    let mut rates: Vec<String> = nodes
        .filter_map(|(_, node)| match &node.op {
            OpKind::Dropout(d) => Some(d.rate.to_string()),
            _ => None,
        })
        .collect();
    rates.sort();
    rates.dedup();
    assert_eq!(rates, ["1/2", "1/4"]);
    let mut cases = Cases::default();
    for (name, flow, output) in [
        ("one_step", "euler(f) for 1 steps", ""),
        ("output", "euler(f) for 3 steps", "dropout(k*10%) |> "),
        (
            "drawn",
            "euler(f) for random(log_normal_poisson(mean: 4), max: 8) steps { weights shared }",
            "",
        ),
    ] {
        cases.add(name, of(flow, output).rendered());
    }
    insta::assert_snapshot!("fields_shares_of_steps", cases);
}

/// An equation solved by iteration is the loop one would write, and counts come from parameters.
#[test]
fn equations() {
    let solved = "scheme s(F, G, n = 3) { step x { r = 2;  solve z = F(z + h*G(x)) from x by fixed_point(iterations: n + r - 2) gradient unroll;  return z } }";
    let looped =
        "scheme s(F, G, n = 3) { step x { z = x;  repeat n { z = F(z + h*G(x)) } return z } }";
    let stages = |text: &str| compile_text(text).checked().stages();
    assert_eq!(stages(solved), stages(looped));
    let none =
        "scheme s(F) { step x { solve z = F(z) from x by fixed_point(iterations: 0);  return z } }";
    assert!(stages(none).contains("return x"));
    let past = "scheme s(F) { step x { solve z = F(z + z[-1]) from 0 by fixed_point(iterations: 2);  return z } }";
    insta::assert_snapshot!("fields_equation_with_a_past", stages(past));
}

/// A scheme that is looked at alone has as many entries in its list as it reads by number.
#[test]
fn entries_of_a_list_are_read_by_number() {
    let scheme = "scheme s(L[..]) { step x { return x + h*L[2](L[-4](x)) } }\n";
    let with = |flow: &str| compile_text(&format!("{scheme}{}", model(flow, 2, "weights per use")));
    with("s(att, ffn, layer, both)").on_its_flow().checked();
    compile_text(scheme).checked();
    for (refused, message) in [
        (
            with("s(att, ffn, both)"),
            "-4 is not an index of a list of 3",
        ),
        (
            compile_text(&scheme.replace("L[2]", "L[1000000000]")),
            "1000000000 is not an index",
        ),
    ] {
        let rendered = refused.rendered();
        assert!(
            refused.checked.is_none() && rendered.contains(message),
            "{rendered}"
        );
    }
}
