//! Claims about stages, structure and stability: true of what the literature says, false of what it does not.

use crate::common::compile_text;
use odec_compiler::analysis::{report, stable};
use odec_grammar::ast::{Item, Scheme, SchemeItem};
use odec_library::{LibraryScheme, shipped};
use odec_program::manifest::ClaimStatus;

/// A scheme of the library with claims of its own.
fn with(name: &str, claims: &str) -> String {
    let text = shipped::text(name);
    let at = text.find(&format!("scheme {name}")).expect("a scheme");
    let open = at + text[at..].find('{').expect("its parts") + 1;
    let renamed = text[at..open].replace(name, "mine");
    format!("{}{renamed} {claims};{}", &text[..at], &text[open..])
}

/// Hairer & Wanner 1996, IV; Gottlieb, Shu & Tadmor 2001 for SSP coefficients; Sanz-Serna 1988 for Gauss.
#[test]
fn what_is_known_is_proved() {
    for (name, claims) in [
        ("rk4", "stages 4;  evaluations 4;  explicit"),
        ("ssp33", "ssp 1;  stages 3"),
        ("dormand_prince", "stages 7;  fsal;  embedded order 4"),
        (
            "gauss4",
            "stages 2;  firk;  A_stable;  symplectic;  symmetric;  stage_order 2;  evaluations 7",
        ),
        ("radau_iia3", "A_stable;  L_stable;  firk"),
        ("sdirk2", "sdirk;  dirk;  L_stable"),
        ("bdf2", "zero_stable;  A_stable"),
        ("ab2", "zero_stable;  explicit"),
    ] {
        let outcome = compile_text(&with(name, claims));
        let found = &outcome.checked().claims;
        let proved = found
            .iter()
            .filter(|c| c.status == ClaimStatus::Proved)
            .count();
        assert_eq!(proved, found.len(), "{name}: {}", outcome.rendered());
        assert!(found.len() >= claims.split(';').count(), "{name}");
    }
}

#[test]
fn what_is_not_is_refused() {
    for (name, claim, why) in [
        ("rk4", "stages 2", "it has 4"),
        ("gauss4", "L_stable", "it is A-stable, and R(∞) is not 0"),
        (
            "rk4",
            "A_stable",
            "|R| ≤ 1 on the axes: real -2.785, imaginary ±2.828",
        ),
        ("gauss4", "explicit", "it is FIRK"),
        ("ssp33", "ssp 2", "its SSP coefficient is 1"),
        ("heun", "embedded order 1", "it has no embedded partner"),
        (
            "dormand_prince",
            "embedded order 3",
            "it has a partner of order 4",
        ),
    ] {
        let outcome = compile_text(&with(name, claim));
        let errors: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
        assert_eq!(errors, ["false-claim"], "{name}: {}", outcome.rendered());
        assert!(outcome.rendered().contains(why), "{}", outcome.rendered());
    }
}

/// Each claim of each kind of scheme is proved or refused: it is never left open where it can be decided.
#[test]
fn every_claim_of_every_kind_is_decided() {
    // A tableau of one field, an implicit one, a splitting, multistep methods, a step program with a history, a pair of fields.
    let kinds: [(&str, &[&str]); 9] = [
        (
            "rk4",
            &[
                "stages 4",
                "evaluations 4",
                "stage_order 1",
                "ssp 0",
                "zero_stable",
                "explicit",
            ],
        ),
        (
            "gauss4",
            &[
                "stages 2",
                "evaluations 7",
                "stage_order 2",
                "ssp 0",
                "A_stable",
                "zero_stable",
                "symplectic",
                "symmetric",
                "firk",
            ],
        ),
        (
            "lie",
            &[
                "stages 2",
                "evaluations 2",
                "zero_stable",
                "symplectic",
                "explicit",
            ],
        ),
        (
            "strang",
            &[
                "stages 3",
                "evaluations 3",
                "zero_stable",
                "symplectic",
                "symmetric",
                "explicit",
            ],
        ),
        (
            "bdf2",
            &[
                "evaluations 3",
                "ssp 0",
                "A_stable",
                "L_stable",
                "zero_stable",
            ],
        ),
        (
            "nystrom2",
            &[
                "evaluations 1",
                "ssp 0",
                "zero_stable",
                "symmetric",
                "explicit",
            ],
        ),
        (
            "milne_pece4",
            &["stages 2", "evaluations 2", "zero_stable", "explicit"],
        ),
        (
            "imex_euler",
            &[
                "stages 3",
                "evaluations 3",
                "zero_stable",
                "symplectic",
                "explicit",
            ],
        ),
        (
            "ssp33",
            &[
                "stages 3",
                "evaluations 3",
                "stage_order 1",
                "ssp 1",
                "zero_stable",
                "explicit",
            ],
        ),
    ];
    let all = [
        "stages 99",
        "evaluations 99",
        "stage_order 99",
        "ssp 99",
        "embedded order 99",
        "A_stable",
        "L_stable",
        "zero_stable",
        "symplectic",
        "symmetric",
        "fsal",
        "stiffly_accurate",
        "explicit",
        "dirk",
        "sdirk",
        "firk",
    ];
    // What nobody decides for methods that keep values of earlier steps.
    let open = ["ssp 99", "symplectic", "symmetric"];
    let mut wrong = Vec::new();
    for (name, truths) in kinds {
        for claim in truths.iter().chain(&all) {
            let is = truths.contains(claim);
            let undecided = name == "milne_pece4" && open.contains(claim);
            let outcome = compile_text(&with(name, claim));
            let codes: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
            let expected: &[&str] = match (is, undecided) {
                (true, _) => &[],
                (_, true) => &["unproved-claim"],
                _ => &["false-claim"],
            };
            if codes != expected {
                wrong.push(format!("{name}, {claim}: {}", outcome.rendered()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn outcome(parts: &str) -> (Vec<&'static str>, String, Vec<String>) {
    let outcome = compile_text(&format!("scheme mine{parts}"));
    let codes = outcome.messages.iter().map(|d| d.code).collect();
    let claims = outcome.checked.iter().flat_map(|c| &c.claims);
    let notes = claims.map(|c| c.note.clone()).collect();
    (codes, outcome.rendered(), notes)
}

/// A claim of an SSP coefficient is a claim of that number, not of one near it.
#[test]
fn an_ssp_coefficient_is_claimed_exactly() {
    let with = |c: &str| {
        outcome(&format!(
            " {{ ssp {c}; tableau {{
                0     |
                1     | 1
                5/6   | 1/2  1/3
                5/4   | 1/3  1/4  2/3
                17/12 | 1/3  1/4  1/3  1/2
                      | 1/5  1/5  1/5  1/7  1/8
            }} }}"
        ))
    };
    let (codes, shown, _) = with("0.5");
    assert_eq!(codes, ["false-claim"], "{shown}");
    let from = shown.find("its SSP coefficient is ").expect("the number") + 23;
    let digits: String = shown[from..].chars().take_while(|c| *c != '…').collect();
    // So many digits more until the claim is within the interval that is known first, and beyond.
    let mut claimed = digits;
    while claimed.len() < 40 {
        let (codes, shown, _) = with(&claimed);
        assert_eq!(codes, ["false-claim"], "{shown}");
        let from = shown.find("its SSP coefficient is ").expect("the number") + 23;
        let digits: String = shown[from..].chars().take_while(|c| *c != '…').collect();
        assert!(
            digits.starts_with(&claimed) && digits.len() > claimed.len(),
            "{digits} {claimed}"
        );
        claimed = digits;
    }
}

/// What earlier steps have evaluated is not evaluated again.
#[test]
fn evaluations_of_methods_with_a_history() {
    for (name, n) in [
        ("ab2", 1),
        ("ab4", 1),
        ("abm4", 2),
        ("hamming5", 2),
        ("rk4", 4),
        ("bogacki_shampine", 3),
    ] {
        let of = |n: usize| compile_text(&with(name, &format!("evaluations {n}"))).messages;
        assert!(of(n).is_empty(), "{name}: {:?}", of(n));
        assert_eq!(of(n + 1)[0].code, "false-claim", "{name}");
    }
}

/// What is said of an implicit method is said of its equation; the explicit step that is computed has a polynomial for R.
#[test]
fn what_is_left_in_the_computed_step_is_said() {
    let notes = |parts: &str| {
        let (codes, shown, notes) = outcome(parts);
        assert!(codes.is_empty(), "{shown}");
        notes.join("\n")
    };
    let euler = |how: &str| {
        notes(&format!(
            "(F) {{ A_stable; L_stable; tableau {{ 1 | 1\n | 1 }} solve by {how} }}"
        ))
    };
    insta::assert_snapshot!(
        [
            euler("fixed_point(iterations: 1)"),
            euler("fixed_point(iterations: 2)"),
            euler("fixed_point(tol: 1e-3, max: 9)"),
            notes("(F) { symplectic; symmetric; tableau { 1/2 | 1/2\n | 1 } solve by fixed_point(iterations: 2) }"),
            notes("(F) { A_stable; multistep { alpha 3/2 -2 1/2; beta 1 } start by heun; solve by fixed_point(iterations: 1) }"),
        ]
        .join("\n\n")
    );
}

/// A step that is stable for the equation may be none for its iterations.
#[test]
fn stable_steps_are_those_that_are_computed() {
    let text = "scheme mine(F) { tableau { 1 | 1\n | 1 } solve by HOW }";
    let bounds = |how: &str| {
        let outcome = compile_text(&text.replace("HOW", how));
        let report = report::scheme(&outcome.checked().instances[0], shipped::library());
        let bounds = stable::bounds(&report);
        bounds.iter().map(|b| b.value()).collect::<Vec<_>>()
    };
    let iterated = bounds("fixed_point(iterations: 1)");
    assert_eq!(iterated[..2], [Some(1.0), Some(1.0)]);
    assert!(
        iterated.iter().all(|b| b.is_some_and(f64::is_finite)),
        "{iterated:?}"
    );
    let solved = bounds("fixed_point(tol: 1e-3, max: 9)");
    assert_eq!(solved[..2], [Some(f64::INFINITY); 2]);
}

/// A scheme without a stable history is consistent and of no use.
#[test]
fn zero_stability_of_step_programs() {
    let step = |result: &str| {
        outcome(&format!(
            "(F) {{ zero_stable; step x {{ return {result} }} start by heun }}"
        ))
        .0
    };
    assert_eq!(
        step("5*x[-1] - 4*x + h*(4*F(x) + 2*F(x[-1]))"),
        ["false-claim"]
    );
    assert_eq!(step("x[-1] + 2*h*F(x)"), Vec::<&str>::new());
    let (codes, shown, _) = outcome("(F) { zero_stable; step x { return 2*x + h*F(x) } }");
    assert_eq!(codes, ["false-claim"], "{shown}");
}

/// Störmer and Verlet's method with Euler steps is symplectic where each flow changes what its field does not depend on; with exact flows
/// it always is. A pair that is neither is refused.
#[test]
fn pairs_and_splittings() {
    let (codes, shown, notes) = outcome(
        "(A, B) { symplectic; step x { y = x + h/2*A(x); z = y + h*B(y); return z + h/2*A(z) } }",
    );
    assert!(codes.is_empty(), "{shown}");
    assert_eq!(
        notes,
        ["of separable Hamiltonian systems q' = A(p), p' = B(q)"]
    );
    let (codes, shown, notes) =
        outcome("(A, B) { symplectic; symmetric; A(1/2) B(1/3) B(2/3) A(1/2) }");
    assert!(codes.is_empty(), "{shown}");
    let flows = "of its exact flows";
    assert_eq!(
        notes,
        [
            format!("{flows}, where each field is Hamiltonian"),
            flows.into()
        ]
    );
    let refused = [
        (
            "(A, B) { symplectic; step x { return x + h*A(x) + h*B(x) } }",
            "b2 a21 + b1 a12 = 0, where b2 b1 = 1",
        ),
        (
            "(A, B) { symmetric; A(1/2) B(1) A(1/4) A(1/8) A(1/8) B(0) B(1/8) }",
            "it has B(1/8) in place of A(1/2)",
        ),
        (
            "(F) { symmetric; tableau { 0 |\n 1 | 1\n | 1/2 1/2 } }",
            "its adjoint is another method",
        ),
    ];
    for (parts, why) in refused {
        let (codes, shown, _) = outcome(parts);
        assert_eq!(codes, ["false-claim"], "{shown}");
        assert!(shown.contains(why), "{shown}");
    }
}

/// Gauss's method of order 6 with its last two stages exchanged; the implicit midpoint rule with its stage twice.
#[test]
fn the_numbering_of_stages_does_not_matter() {
    let gauss = "(F, r = 5) { symmetric; symplectic; A_stable
      let s = sqrt(15)
      tableau {
        (1/2 - s/10) | 5/36          (5/36 - s/30)  (2/9 - s/15)
        (1/2 + s/10) | (5/36 + s/30) 5/36           (2/9 + s/15)
        1/2          | (5/36 + s/24) (5/36 - s/24)  2/9
                     | 5/18          5/18           4/9
      }
      solve by fixed_point(iterations: r) }";
    let twice = "(F) { symmetric; symplectic; tableau { 1/2 | 1/2 0\n 1/2 | 0 1/2\n | 1/3 2/3 } solve by fixed_point(iterations: 2) }";
    for parts in [gauss, twice] {
        let (codes, shown, _) = outcome(parts);
        assert!(codes.is_empty(), "{shown}");
    }
}

/// Words of descriptions, and the claims that say the same.
const ADJECTIVES: [(&str, &[&str]); 11] = [
    ("A-stable", &["A_stable", "L_stable"]),
    ("L-stable", &["L_stable"]),
    ("ero-stable", &["zero_stable"]),
    ("ymplectic", &["symplectic"]),
    ("ymmetric", &["symmetric"]),
    ("xplicit", &["explicit"]),
    ("iagonally implicit", &["dirk", "sdirk"]),
    ("SDIRK", &["dirk", "sdirk"]),
    ("tiffly accurate", &["stiffly_accurate"]),
    ("ame as last", &["fsal"]),
    ("trong-stability-preserving", &["ssp"]),
];

/// What the description of a scheme of the library says in an adjective, the scheme claims.
#[test]
fn adjectives_are_claims() {
    let mut seen = 0;
    for LibraryScheme { text, .. } in shipped::library().iter() {
        for item in odec_grammar::parse(0, text).0.items {
            if let Item::Scheme(scheme) = item {
                seen += adjectives(&scheme, text);
            }
        }
    }
    assert!(seen > 25, "{seen} adjectives");
}

/// How many adjectives a description has; each is a claim.
fn adjectives(scheme: &Scheme, text: &str) -> usize {
    let name = &scheme.name.name;
    let described = scheme.doc.join(" ");
    let mut rest = described.replace("implicit–explicit", "");
    rest = rest.replace("explicit first stage", "");
    // Of the parts of a pair there are no claims, but reports.
    let pair = "A explicit, B diagonally implicit";
    if rest.contains(pair) {
        let outcome = compile_text(text);
        let report = report::scheme(&outcome.checked().instances[0], shipped::library());
        let alone = report.additive.expect("two fields").joint.alone;
        let part = |f: usize| alone[f].as_ref().expect("a function");
        assert_eq!(part(0).function.denominator.degree(), 0, "{name}, A");
        assert!(part(1).function.denominator.degree() > 0, "{name}, B");
        if rest.contains("implicit and L-stable") {
            assert_eq!(part(1).l_stable, Some(true), "{name}, B");
        }
        rest = rest.replace(pair, "").replace("and L-stable", "");
    }
    let found: Vec<_> = ADJECTIVES
        .iter()
        .filter(|(word, _)| rest.contains(word))
        .collect();
    for (word, claims) in &found {
        let claimed = scheme.items.iter().any(|item| match item {
            SchemeItem::Property { name, .. } => claims.contains(&name.name.as_str()),
            _ => false,
        });
        assert!(
            claimed,
            "{name} is described as {word}, which it does not claim"
        );
    }
    found.len()
}

/// The words are no keywords: a field may be called so.
#[test]
fn fields_may_have_the_names_of_claims() {
    let outcome =
        compile_text("scheme s(symmetric, stages) { symmetric(1/2) stages(1) symmetric(1/2) }");
    assert_eq!(outcome.checked().programs.len(), 1);
}
