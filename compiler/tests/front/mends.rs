//! What would mend a false claim: slips of published code, and one wrong number or sign in each kind of scheme.

use crate::common::compile_text;

fn told(text: &str) -> String {
    let outcome = compile_text(text);
    assert!(outcome.checked.is_none(), "{text}");
    outcome.rendered()
}

/// ODE Transformer's released method of three stages begins its last one at `x - k2 + 2*k2`, where Kutta has `x - k1 + 2*k2`.
#[test]
fn the_released_rk3_of_ode_transformer() {
    let told = told(
        "scheme rk3_released(F) {
  order 3
  step x {
    k1 = h*F(x)
    k2 = h*F(x + 1/2*k1)
    k3 = h*F(x - k2 + 2*k2)
    return x + 1/6*(k1 + 4*k2 + k3)
  }
}",
    );
    assert!(told.contains("has order 2, not 3"), "{told}");
    assert!(
        told.contains("-1 times evaluation 1 and 2 times evaluation 2"),
        "{told}"
    );
    insta::assert_snapshot!(told);
}

/// Gauss's method of order 4 with the first node in both rows, as a library had it.
#[test]
fn gauss_with_one_node_twice() {
    let told = told(
        "scheme gauss_slip(F) {
  order 4
  tableau {
    (1/2 - sqrt(3)/6) | 1/4                (1/4 - sqrt(3)/6)
    (1/2 - sqrt(3)/6) | (1/4 + sqrt(3)/6)  1/4
                      | 1/2                1/2
  }
  solve by fixed_point(iterations: 3)
}",
    );
    assert!(told.contains("the row sums to 1/2 + sqrt(3)/6"), "{told}");
}

#[test]
fn numbers_signs_and_fractions() {
    for (text, mend) in [
        // Heun, Kutta and Strang, each with one slip.
        (
            "scheme s(F) { order 2\n step x { k = F(x)\n return x + h/3*(k + F(x + h*k)) } }",
            "did you mean 2 here?",
        ),
        (
            "scheme s(F) { order 3\n step x { k = F(x)\n l = F(x + h*(1/2)*k)\n return x + h*(1/6*k + 2/3*l + 1/3*F(x + h*(2*l - k))) } }",
            "did you mean 1/6 here?",
        ),
        (
            "scheme s(F) { order 3\n step x { k = F(x)\n l = F(x + h/2*k)\n return x + h*(1/6*k + 2/3*l + 1/6*F(x + h*(2*l + k))) } }",
            "did you mean minus here?",
        ),
        (
            "scheme s(A, B) { order 2\n A(1/2) B(1) A(1/3) }",
            "did you mean 1/2 as this fraction?",
        ),
        (
            "scheme s(A, B) { order 3\n A(7/24) B(2/3) A(3/4) B(2/3) A(-1/24) B(1) }",
            "did you mean -2/3 as this fraction?",
        ),
        // The weights of an implicit method.
        (
            "scheme s(F) { order 4\n tableau { (1/2 - sqrt(3)/6) | 1/4 (1/4 - sqrt(3)/6);  (1/2 + sqrt(3)/6) | (1/4 + sqrt(3)/6) 1/4;  | 1/3 2/3 }\n solve by fixed_point(iterations: 3) }",
            "the weights would have the order with 1/2 as entry 1 and 1/2 as entry 2",
        ),
    ] {
        let told = told(text);
        assert!(told.contains(mend), "{told}");
    }
}

/// Where no single change helps nothing is proposed.
#[test]
fn two_slips_are_not_mended() {
    let told = told("scheme s(F) { order 2\n step x { return x + h/3*(F(x) + F(x + 3*h*F(x))) } }");
    assert!(!told.contains("did you mean"), "{told}");
}
