//! Pictures of models: what their boxes say.

use crate::common::{compile_text, model};
use odec_graph::diagram::{CellKind, Section, diagram};
use odec_graph::svg::svg;

/// The boxes of each panel that are combinations, as `name = terms`, and the picture.
fn sums(flow: &str, steps: u64, options: &str, scheme: &str) -> (Vec<Vec<String>>, String) {
    let outcome = compile_text(&format!("{scheme}\n{}", model(flow, steps, options)));
    let built = outcome.checked().built.as_ref().expect("a model");
    let panels = diagram(&built.forward).sections.into_iter();
    let panels = panels.filter_map(|s| match s {
        Section::Steps(s) => Some(s.cells),
        Section::Part(_) => None,
    });
    let sum = |c: odec_graph::diagram::Cell| match c.kind {
        CellKind::Combination { terms } => Some(format!("{} = {}", c.name, terms.join(" "))),
        _ => None,
    };
    let sums = panels.map(|cells| cells.into_iter().filter_map(sum).collect());
    (sums.collect(), svg(&built.forward, "", &built.weights))
}

/// Learned coefficients have their names, and stand where they are multiplied; histories are called as in the source.
#[test]
fn learned_coefficients_are_named() {
    let dlcl = "scheme mixed(F) { learn w[..] = uniform  start { z = F(x);  x = z }
        step x { z = F(x)  return sum j in 0.. { w[j]*z[-j] } } }";
    let (panels, _) = sums("mixed(ffn)", 2, "", dlcl);
    assert_eq!(
        panels,
        [
            ["x′ = w[0] z + w[1] x"].map(String::from).to_vec(),
            ["x′ = w[0] z + w[1] z[−1] + w[2] z of the start"]
                .map(String::from)
                .to_vec(),
        ]
    );
    let theta = "scheme between(F) { learn theta = 1/2
        step x { return (1 - theta)*x + theta*F(x) } }";
    let (panels, _) = sums("between(ffn)", 3, "", theta);
    assert_eq!(panels, [["x′ = (1 − theta) x + theta k₁"]]);
}

/// Functions of learned numbers are written out.
#[test]
fn functions_of_learned_numbers_are_formulas() {
    let decaying = "scheme decaying(F) { learn a = 1/2
        step x { return exp(-a*h)*x + h/(1 + a)*F(x) + sqrt(a)*F(2*x) } }";
    let (panels, picture) = sums("decaying(ffn)", 3, "h = 1/2", decaying);
    let formula = panels.concat().join("; ");
    for part in ["exp(−1/2 a) x", "sqrt(a)", "1/(1 + a)"] {
        assert!(formula.contains(part), "{formula} has no {part}");
        assert!(picture.contains(part), "the picture has no {part}");
    }
}

/// Values are called as in the source; of those that have one name in turn the last keeps it.
#[test]
fn values_have_their_names() {
    let named = "scheme named(F) { step x { k = F(x)  mid = x + h/2*k
        repeat 2 { k = F(mid)  mid = x + h*k }
        return mid + h*F(mid) } }";
    let (panels, picture) = sums("named(ffn)", 3, "", named);
    let said = [
        "mid₁ = x + 1/2 k₁",
        "mid₂ = x + k₂",
        "mid = x + k",
        "x′ = mid + k₄",
    ];
    assert_eq!(panels, [said]);
    assert!(picture.contains(">k₂ = ffn(mid₁)<"), "{picture}");
    // Numbered names are nobody else's.
    let iterated = "scheme twice(F) { step x { y = x + h*F(2*x)  repeat 2 { y = x + h*F(y) } return y + h*F(y) } }";
    let (panels, _) = sums("twice(ffn)", 3, "", iterated);
    let said = [
        "y₁ = 2 x",
        "y₂ = x + k₁",
        "y₃ = x + k₂",
        "y = x + k₃",
        "x′ = y + k₄",
    ];
    assert_eq!(panels, [said]);
}

/// Steps of two kinds that take turns are drawn once each.
#[test]
fn steps_that_take_turns_are_drawn_once() {
    let scheme = "scheme some(F, n = 1) { step x { return x + h*n*F(x) } }";
    let (panels, picture) = sums("some(ffn, n: [1, 2, 1, 2, 1, 2, 3])", 7, "", scheme);
    assert_eq!(
        panels,
        [["x′ = x + k₁"], ["x′ = x + 2 k₁"], ["x′ = x + 3 k₁"]]
    );
    for title in [
        "steps 0, 2, … 4 · one of 3 drawn",
        "steps 1, 3, … 5 · one of 3 drawn",
        "step 6",
    ] {
        assert!(
            picture.contains(&format!(">{title}<")),
            "{title}: {picture}"
        );
    }
    let (panels, picture) = sums("some(ffn, n: [1, 2, 1, 2])", 4, "", scheme);
    assert_eq!(panels.len(), 2);
    assert!(
        picture.contains(">steps 1 and 3 · one of 2 drawn<"),
        "{picture}"
    );
}

/// A projection is one box.
#[test]
fn projections_are_one_box() {
    let sphere = "scheme sphere(F) { learn per channel m = 0;  learn s = 1
        step x {
          u = normalize(x + h*F(x), mean: 0, std: 2)
          v = nonnegative(u)
          return normalize(u + v, mean: m, std: s)
        } }";
    let (panels, _) = sums("sphere(ffn)", 3, "", sphere);
    let one = [
        "y₁ = x + k₁",
        "u = normalize(y₁, std: 2)",
        "v = nonnegative(u)",
        "y₄ = u + v",
        "x′ = normalize(y₄, std: s, mean: m)",
    ];
    assert_eq!(panels, [one]);
}

/// Steps say how they share weights, and equal ones are drawn once whoever owns these.
#[test]
fn weights_are_said_as_they_are_shared() {
    for (policy, said) in [
        ("weights per step", "weights per step<"),
        ("weights per use", "weights per use<"),
        ("weights every 2", "weights shared by every 2 steps<"),
        (
            "weights per step, ffn shared",
            "weights of ffn shared by all steps, of att per step<",
        ),
    ] {
        let (panels, picture) = sums("strang(ffn, att)", 4, policy, "");
        assert_eq!(panels.len(), 1, "{policy}");
        assert!(picture.contains(said), "{policy}: {picture}");
        assert!(picture.contains("× 4"), "{policy}");
    }
}

/// The gradient has its steps, last ones first.
#[test]
fn training_shows_the_backward_pass() {
    let outcome = compile_text(&model("lie(att, ffn)", 3, ""));
    let built = outcome.checked().built.as_ref().expect("a model");
    let picture = svg(&built.grad, "", &built.weights);
    assert!(picture.contains("gradient of steps 2–0"), "{picture}");
    assert!(!svg(&built.forward, "", &built.weights).contains("gradient"));
}
