//! The systems of the library and of the weights policies: paths, numbers and graphs.

use crate::common::{Cases, Files, compile_files, compile_text, model};
use crate::reference::SYSTEMS;
use odec_compiler::model::Built;
use odec_graph::print;
use odec_graph::verify::verify;
use odec_library::shipped;

fn built(flow: &str, steps: u64, options: &str) -> Built {
    let outcome = compile_text(&model(flow, steps, options));
    outcome.checked().built.clone().expect("a model")
}

fn paths(b: &Built) -> String {
    let line = |p: &odec_graph::ops::Parameter| format!("{} {:?} {:?}", p.path, p.shape, p.init);
    b.params.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn library_models() {
    let mut numbers = Vec::new();
    for name in ["prenorm", "macaron", "rk2", "rk4_layer", "iiet", "gpt"] {
        let outcome = compile_text(shipped::text(name));
        let built = outcome
            .checked()
            .built
            .as_ref()
            .expect("the file has a model");
        assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
        assert_eq!(
            built.grad.outputs().len(),
            built.params.len() + 1,
            "the loss and a gradient for each parameter"
        );
        for g in [&built.forward, &built.loss, &built.grad] {
            verify(g).expect("a sound graph");
        }
        let claims: Vec<String> = built
            .claims
            .iter()
            .map(|c| format!("{} {}", c.scheme, c.claim))
            .collect();
        numbers.push(format!(
            "{name} {:?}\n  {}\n  {:?}",
            built.summary,
            claims.join(", "),
            built.train
        ));
    }
    insta::assert_snapshot!(numbers.join("\n"));
}

#[test]
fn graphs_of_two_steps() {
    let mut params = Cases::default();
    for (name, flow, options) in SYSTEMS {
        let b = built(flow, 2, options);
        insta::assert_snapshot!(format!("graph_{name}"), print::text(&b.forward));
        params.add(name, paths(&b));
    }
    insta::assert_snapshot!("params_of_systems", params);
    insta::assert_snapshot!(
        "graph_prenorm_loss_and_gradient",
        print::text(&built("lie(att, ffn)", 2, "").grad)
    );
}

#[test]
fn policies() {
    let mut cases = Cases::default();
    for (name, flow, steps, options) in [
        ("shared", "lie(att, ffn)", 3, "weights shared"),
        (
            "one_shared",
            "lie(att, ffn)",
            2,
            "weights per step, ffn shared",
        ),
        ("every", "euler(ffn)", 4, "weights every 2"),
        ("cycle", "euler(ffn)", 4, "weights cycle 2"),
        (
            "learned_h",
            "lie(att, ffn)",
            2,
            "learn per channel h = 1/(k + 1)",
        ),
        (
            "shared_h",
            "lie(att, ffn)",
            2,
            "learn shared h = 1/steps;  weights shared",
        ),
        (
            "per_use_inner",
            "strang(ffn by heun, att)",
            1,
            "weights per use",
        ),
        ("per_use_repeat", "iie(layer, r: 3)", 1, "weights per use"),
        ("per_use_tableau", "rk4(ffn)", 1, "weights per use"),
        (
            "unnamed",
            "lie(rmsnorm |> linear, rmsnorm |> linear |> rmsnorm |> linear)",
            1,
            "",
        ),
        (
            "unnamed_sum",
            "euler(rmsnorm |> linear + linear - 1/2*ffn)",
            1,
            "",
        ),
        (
            "layernorm",
            "lie(layernorm |> linear |> layernorm |> rmsnorm, layernorm)",
            1,
            "",
        ),
        (
            "mlps",
            "lie(gelu(hidden: 2*width, bias) |> relu(hidden: 3), attention(heads: 4, bias) |> linear(3, bias) |> linear(8))",
            1,
            "",
        ),
        (
            "inner_sum",
            "euler(rmsnorm |> (swiglu(hidden: 4) + swiglu(hidden: width/2)))",
            1,
            "",
        ),
    ] {
        cases.add(name, paths(&built(flow, steps, options)));
    }
    insta::assert_snapshot!("policies", cases);
}

/// Lists give every step its own iterations.
#[test]
fn lists_per_step() {
    let outcome = compile_text(&model("iie(ffn, r: [3, 1, 1, 2])", 4, ""));
    let checked = outcome.checked();
    let each: Vec<usize> = checked.programs.iter().map(|p| p.evaluations()).collect();
    assert_eq!(each, [4, 2, 3]);
    assert_eq!(
        checked.built.as_ref().map(|b| b.summary.evaluations),
        Some(11)
    );
    let outcome = compile_text(&model("gauss4(ffn, r: [3, 4])", 2, ""));
    let each = &outcome.checked().programs;
    let each: Vec<usize> = each.iter().map(|p| p.evaluations()).collect();
    assert_eq!(each, [7, 9], "1 + 2 per iteration");
}

/// A costly rule without `k` is computed once for all steps.
#[test]
fn step_sizes_of_many_steps() {
    let rule = "h = 1/(7/10 + sqrt(2) + sqrt(3) + root(2, 3)/9);  weights shared";
    assert_eq!(built("euler(ffn)", 400, rule).summary.steps, 400);
}

/// `h = 1/(k+1)` reaches the coefficients exactly.
#[test]
fn step_sizes() {
    let b = built("euler(ffn)", 3, "h = 1/(k + 2)");
    let text = print::text_unfolded(&b.forward);
    for coeffs in ["[1, 1/2]", "[1, 1/3]", "[1, 1/4]"] {
        assert!(text.contains(coeffs), "{coeffs} in\n{text}");
    }
}

/// A field that only an embedded partner evaluates has no parameters in steps of a fixed size.
#[test]
fn fields_of_embedded_partners() {
    let scheme = "scheme pair(A, B, C) { A(1) B(1);  embedded C(1) B(1) }\n\
                  field spare = rmsnorm |> swiglu(hidden: 3)\n";
    for policy in ["per step", "per use", "shared"] {
        let options = format!("weights {policy}");
        let text = format!("{scheme}{}", model("pair(att, ffn, spare)", 2, &options));
        let outcome = compile_text(&text);
        let built = outcome.checked().built.as_ref().expect("a model");
        let paths: Vec<&str> = built.params.iter().map(|p| p.path.as_str()).collect();
        assert!(paths.iter().any(|p| p.contains("ffn.up")), "{paths:?}");
        assert!(paths.iter().all(|p| !p.contains("spare")), "{paths:?}");
    }
}

/// One flow for each step.
#[test]
fn flows_per_step() {
    let outcome = compile_text(&model("[heun(layer), lie(att, ffn), heun(layer)]", 3, ""));
    let checked = outcome.checked();
    let each: Vec<(&str, usize)> = checked
        .programs
        .iter()
        .map(|p| (p.title.as_str(), p.evaluations()))
        .collect();
    assert_eq!(
        each,
        [("heun(layer), steps 0, 2", 4), ("lie(att, ffn), step 1", 2)]
    );
    let summary = checked.built.as_ref().map(|b| b.summary.evaluations);
    assert_eq!(summary, Some(10));
}

#[test]
fn several_evolves() {
    let text = model("lie(att, ffn)", 1, "").replace(
        "  evolve",
        "  evolve head: euler(att) for 1 step\n  evolve tail:",
    );
    let outcome = compile_text(&text);
    let b = outcome.checked().built.clone().expect("a model");
    insta::assert_snapshot!(paths(&b));
}

/// A file may repeat a scheme of the library, word for word but for comments and citations.
#[test]
fn repeated_library_schemes() {
    let own = "scheme kutta3 { order 3;  tableau { 0 |; 1/2 | 1/2; 1 | -1 2; | 1/6 2/3 1/6 } }\n";
    let text = format!("{own}{}", model("kutta3(ffn)", 1, ""));
    assert_eq!(compile_text(&text).checked().programs.len(), 2);
    let outcome = compile_text(&text.replace("2/3", "4/6")).on_its_flow();
    let codes: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
    assert_eq!(codes, ["redefinition"]);
    assert_eq!(outcome.checked().programs.len(), 2);
}

/// A definition of a file's own comes before the library's, with a warning; the library's schemes keep meaning each other.
#[test]
fn own_schemes_with_a_library_name() {
    let own =
        "scheme heun(F) { step x { return x } }\nfield kutta3 = rmsnorm |> swiglu(hidden: 3)\n";
    let text = format!("{own}{}", model("ab2(kutta3)", 3, ""));
    let outcome = compile_text(&text).on_its_flow();
    insta::assert_snapshot!("own_schemes_with_a_library_name", outcome.rendered());
    let evaluations: Vec<usize> = outcome
        .checked()
        .programs
        .iter()
        .map(|p| p.evaluations())
        .collect();
    assert_eq!(evaluations, [0, 2, 1], "own heun; the library's heun; ab2");
    let outcome = compile_text(&text.replace("ab2(kutta3)", "heun(kutta3)"));
    assert_eq!(outcome.checked().programs[1].evaluations(), 0);
    let mistake = compile_text(&format!(
        "scheme heun(F) {{ step x {{ return y }} }}\n{}",
        model("heun(ffn)", 1, "")
    ));
    assert!(mistake.checked.is_none());
}

/// Imports bring fields.
#[test]
fn imports() {
    let mut files = Files::default();
    files.0.insert(
        "fields.ode".into(),
        "field att = rmsnorm |> attention(heads: 2, causal)".into(),
    );
    let text = "use \"fields.ode\"\nuse \"fields.ode\"\nmodel m { input tokens(vocab: 5, context: 4)\n embed learned(width: 4)\n evolve euler(att) for 1 step\n output logits }";
    let outcome = compile_files("main.ode", text, &mut files);
    insta::assert_snapshot!(paths(outcome.checked().built.as_ref().expect("a model")));
}
