//! What is named and never read draws a warning at its place, which says what it means; `_` before a name is consent.

use crate::common::{Outcome, compile_files, compile_text};
use odec_compiler::codes;
use odec_grammar::Severity;
use odec_library::shipped;

/// The names that a text is warned about, as they are written there.
fn unread(outcome: &Outcome) -> Vec<&str> {
    assert!(outcome.checked.is_some(), "{}", outcome.rendered());
    let unused = outcome
        .messages
        .iter()
        .filter(|d| d.code == codes::UNUSED_NAME);
    let place = |d: &odec_grammar::Diagnostic| d.labels[0].span;
    unused
        .inspect(|d| assert_eq!(d.severity, Severity::Warning, "{d:?}"))
        .map(place)
        .map(|s| &outcome.sources.text(s.source)[s.start as usize..s.end as usize])
        .collect()
}

fn model(definitions: &str, flow: &str) -> String {
    format!(
        "{definitions}\nmodel m {{ input tokens(vocab: 9, context: 8)\n embed learned(width: 8)\n evolve {flow} for 2 steps\n output logits(tied) }}"
    )
}

#[test]
fn a_scheme_that_forgets_a_field() {
    let fields = "field att = rmsnorm |> attention(heads: 2, causal)\nfield ffn = rmsnorm |> swiglu(hidden: 8)\n";
    for (scheme, forgotten) in [
        (
            "scheme s(A, B) { step x { y = x + h*A(x);  return y + h*A(y) } }",
            vec!["B"],
        ),
        ("scheme s(A, B) { A(1/2) A(1/2) }", vec!["B"]),
        (
            "scheme s(A, B) { method compose(euler(A)(1/2), euler(A)(1/2)) }",
            vec!["B"],
        ),
        ("scheme s(A, _B) { step x { return x + h*A(x) } }", vec![]),
        ("scheme s(A, B) { A(1/2) B(1) A(1/2) }", vec![]),
        ("scheme s(A, B) { method power(lie, 2) }", vec![]),
        (
            "scheme s(A, B) { step x { return flow A(1) B(1) from x } }",
            vec![],
        ),
    ] {
        let outcome = compile_text(&model(&format!("{fields}{scheme}"), "s(att, ffn)"));
        assert_eq!(
            unread(&outcome),
            forgotten,
            "{scheme}\n{}",
            outcome.rendered()
        );
    }
    let list = "scheme s(A, L[..]) { step x { return x + h*A(x) } }";
    assert_eq!(unread(&compile_text(list)), ["L"]);
    let shown = compile_text("scheme s(A, B) { A(1) }").rendered();
    assert!(shown.contains("field `B` is never evaluated"), "{shown}");
    assert!(shown.contains("not trained"), "{shown}");
}

#[test]
fn numbers_values_and_stages_that_nothing_reads() {
    for (scheme, names) in [
        (
            "scheme s(F, r = 3, n = 2) { step x { y = x;  repeat n { y = x + h*F(y) } return y } }",
            vec!["r"],
        ),
        (
            "scheme s(F) { let a = 1/2\n let _b = 1\n step x { return x + h*F(x) } }",
            vec!["a"],
        ),
        (
            "scheme s(F) { step x { k1 = F(x);  k2 = F(x + h*k1);  _k3 = F(x);  return x + h*k1 } }",
            vec!["k2"],
        ),
        (
            "scheme s(F) { step x { f = F(x);  return x + h*f + 0*f[-1] } }",
            vec![],
        ),
        (
            "scheme s(F, tol = 1e-3) { step x { z = x;  solve z = x + h*F(z) from x by fixed_point(tol: tol, max: 9);  return z } }",
            vec![],
        ),
        (
            "scheme s { tableau {\n 0 |\n 1 | 1\n 1/2 | 1/2 0\n | 1/2 1/2 0\n } }",
            vec!["1/2 | 1/2 0"],
        ),
        (
            "scheme s { tableau {\n 0 |\n 1 | 1\n | 1/2 1/2\n } }",
            vec![],
        ),
    ] {
        let outcome = compile_text(scheme);
        let found: Vec<&str> = unread(&outcome).iter().map(|n| n.trim()).collect();
        assert_eq!(found, names, "{scheme}\n{}", outcome.rendered());
    }
}

#[test]
fn fields_beside_a_model() {
    let fields =
        "field a = rmsnorm\nfield b = a + rmsnorm\nfield c = rmsnorm\nfield _d = rmsnorm\n";
    assert_eq!(unread(&compile_text(&model(fields, "euler(b)"))), ["c"]);
    assert_eq!(
        unread(&compile_text(fields)),
        [""; 0],
        "a file of fields for others"
    );
    // A value or a parameter of this name is not the field, what is called is.
    let shadowed = "field att = rmsnorm\nfield b { att = linear;  return att + rmsnorm }\n";
    assert_eq!(unread(&compile_text(&model(shadowed, "euler(b)"))), ["att"]);
    let given = "field ffn = rmsnorm\nlayer l(ffn: value) = ffn |> linear\nfield b = l\n";
    assert_eq!(unread(&compile_text(&model(given, "euler(b)"))), ["ffn"]);
    let read = "field att = rmsnorm\nlayer l(x: value) { y = x |> att;  return y }\nfield b { att = l;  return att }\n";
    assert_eq!(unread(&compile_text(&model(read, "euler(b)"))), [""; 0]);
}

/// Mistakes, not warnings, for what they say cannot be trained or kept; each says why.
#[test]
fn reasons() {
    let learned = compile_text("scheme s(F) { learn g = 1;  step x { return x + h*F(x) } }");
    let shown = learned.rendered();
    assert!(shown.contains("no gradient reaches it"), "{shown}");
    let narrow = "field g = rmsnorm |> linear(1)\nscheme s(F, G) { step x { g = G(x);  return x + h*g[-1]*F(x) + g*x } }";
    let shown = compile_text(&model(&format!("field f = rmsnorm\n{narrow}"), "s(f, g)")).rendered();
    assert!(
        shown.contains("`g` has width 1, and later steps read it"),
        "{shown}"
    );
    assert!(shown.contains("zeros of that width"), "{shown}");
}

#[test]
fn the_library_names_nothing_in_vain() {
    for file in shipped::all() {
        let mut none = crate::common::Files::default();
        let outcome = compile_files(&file.name, &file.text, &mut none);
        assert!(
            outcome
                .messages
                .iter()
                .all(|d| d.code != codes::UNUSED_NAME),
            "{}",
            outcome.rendered()
        );
    }
}

/// Directions take the place of coefficients that keep an order: these are used all the same.
#[test]
fn coefficients_that_keep_an_order_are_used() {
    let scheme = "scheme two(F) { order 2;  learn b1 = 1/4;  learn b2 = 3/4;  learn c = 2/3;  keep order 2\n\
                  step x { k = F(x);  return x + h*(b1*k + b2*F(x + c*h*k)) } }\n";
    let fields = format!("{scheme}field f = rmsnorm |> swiglu(hidden: 8)\n");
    let outcome = compile_text(&model(&fields, "two(f)"));
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
    assert!(!outcome.checked().stages().is_empty());
}
