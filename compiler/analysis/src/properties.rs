//! Proves claims other than orders: `stages 4`, `embedded order 4`, `A_stable`, `symplectic`, `ssp 1` …
//!
//! Takes a scheme with settings; gives what was found, and an error at the line of each false claim, with the true value. `decide.rs`
//! decides whether a claim is true.

use super::claims::Instance;
use super::decide::{Found, Subject, decide};
use super::declared_tableau;
use crate::codes;
use crate::scheme::define::PropertyClaim;
use crate::scheme::scalar::{exact, shown};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Claim, ClaimStatus};

/// Proves all such claims of a scheme.
pub fn claims(i: &Instance, sink: &mut Vec<Diagnostic>) -> Vec<Claim> {
    if i.scheme.properties.is_empty() {
        return Vec::new();
    }
    let subject = Subject::new(i);
    let all = i.scheme.properties.iter();
    all.filter_map(|c| claim(i, c, &subject, sink)).collect()
}

fn claim(
    i: &Instance,
    c: &PropertyClaim,
    s: &Subject,
    sink: &mut Vec<Diagnostic>,
) -> Option<Claim> {
    let scope = declared_tableau::scope(&i.scheme, &i.settings, i.listed)?;
    let value = match &c.value {
        None => None,
        Some(e) => Some(exact(e, &scope).map_err(|d| sink.push(d)).ok()?),
    };
    let found = decide(&c.name, value.as_ref(), s).unwrap_or_else(|other| other);
    let text = match value.as_ref().zip(c.value.as_ref()) {
        Some((v, e)) => format!("{} {}", c.name, shown(v, e)),
        None => c.name.clone(),
    };
    let name = &i.scheme.name.name;
    let (status, note) = match found {
        Found::True(note) => (ClaimStatus::Proved, note.unwrap_or_default()),
        Found::False(actual) => {
            let message = format!("`{text}` is not true of `{name}`: {actual}");
            sink.push(match i.applied {
                None => Diagnostic::error(codes::FALSE_CLAIM, c.span, message)
                    .label("this claim is false"),
                Some(applied) => Diagnostic::error(codes::FALSE_CLAIM, applied, message)
                    .label("applied here")
                    .also(c.span, "this claim does not hold"),
            });
            return None;
        }
        Found::Unknown(why) => {
            let message = format!("cannot prove that `{name}` is `{text}`: {why}");
            sink.push(
                Diagnostic::warning(codes::UNPROVED_CLAIM, c.span, message).label("claimed here"),
            );
            (ClaimStatus::ClaimedNotProved, why)
        }
    };
    Some(Claim {
        scheme: name.clone(),
        claim: text,
        status,
        note,
    })
}
