//! Claims about stages, structure and stability: true of what the literature says, false of what it does not.

use crate::common::compile_text;
use odec_program::manifest::ClaimStatus;

/// A scheme of the library with claims of its own.
fn with(name: &str, claims: &str) -> String {
    let known = |(n, _): &&(&str, &str)| *n == name;
    let (_, text) = odec_grammar::LIBRARY.iter().find(known).expect("a scheme");
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
        ("rk4", "stages 5", "it has 4"),
        ("gauss4", "L_stable", "it is not L-stable"),
        ("rk4", "A_stable", "it is not A-stable"),
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

/// The words are no keywords: a field may be called so.
#[test]
fn fields_may_have_the_names_of_claims() {
    let outcome =
        compile_text("scheme s(symmetric, stages) { symmetric(1/2) stages(1) symmetric(1/2) }");
    assert_eq!(outcome.checked().programs.len(), 1);
}
