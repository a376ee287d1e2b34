//! Why a step is no method of a kind: sentences without a full stop, each with the place that it is said of.
//!
//! They are here once, for claims, reports, adjoints and extrapolation alike.

use odec_grammar::Span;
use odec_numerics::linear_step::{MAX_TERMS, NoTableau};
use std::fmt::Display;

/// What no tableau has.
pub(super) const FUNCTION: &str = "its coefficients are functions of a linear field";
/// What a step program does that forgets `h`.
pub const DIFFERENT_POWERS: &str = "it adds what depends on `h` in different powers";
pub const FROM_START: &str = "it uses a value from the start of the evolution";
pub const PRODUCT: &str = "it multiplies states";
pub const SEVERAL: &str = "it evaluates a field of several states";
pub const TOO_LONG: &str = "it has too many values";
pub(super) const ALL_EARLIER: &str = "what it keeps for later steps depends on all earlier ones";
pub(super) const NO_STATE: &str = "its result is no state: `h` is missing, or too often there";
pub(super) const OTHER_FIELD: &str = "its first steps evaluate a field that later ones do not";
pub(super) const OTHER_MULTIPLE: &str = "a function of a linear field needs a multiple of `h`";
pub(super) const OTHER_TIME: &str = "it follows a flow over another time than a part of `h`";
pub(super) const PROJECTION: &str = "it projects a state onto a set";
pub(super) const RANDOM: &str = "it draws random numbers";
pub(super) const RATE: &str = "it evaluates a field at a rate, not at a state";
pub(super) const TOLERANCE: &str = "it solves to a tolerance";

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsupported {
    pub span: Span,
    /// One sentence without a full stop.
    pub why: String,
}

impl Unsupported {
    pub fn at(span: Span, why: impl Into<String>) -> Unsupported {
        let why = why.into();
        Unsupported { span, why }
    }

    /// `span`: where the value of [`NoTableau`] is written.
    pub(super) fn without_tableau<C: Display>(no: &NoTableau<C>, span: Span) -> Unsupported {
        let why = match no {
            NoTableau::Flow(_) => "an exact flow has no stages".to_string(),
            NoTableau::Phi(_) => FUNCTION.to_string(),
            NoTableau::History(_) => "it uses values of earlier steps".to_string(),
            NoTableau::State(_, c) => {
                format!("it takes {c} of the old state where a method of one step takes 1")
            }
            NoTableau::Large(_, terms) => {
                format!("its tableau would have {terms} terms, and {MAX_TERMS} is the limit")
            }
            NoTableau::Roots(_, why) => format!("of its coefficients together: {why}"),
        };
        Unsupported { span, why }
    }
}
