//! Internal stability in reports: how much the rest of a step amplifies a rounding error of one stage.
//!
//! Takes a step as its program computes it; gives a fact, with a warning where errors grow much. The bounds are computed in
//! `odec-numerics`.

use super::report::{OneField, Report};
use crate::scheme::method::{LocatedStep, Unsupported};
use odec_numerics::internal::{Internal, internal};
use odec_numerics::poly::Extent;
use odec_text::number::subscript;
use odec_text::page::Page;
use serde_json::{Value, json};

/// Errors that grow more are worth a warning: of a number in f32 as many decimals are left as of one with half its digits.
const LARGE: f64 = 1e3;

/// On the real interval of stability; `None`: there is none, or the step is not explicit or too long.
pub(super) fn internal_stability(
    computed: &Result<LocatedStep, Unsupported>,
    facts: Option<&OneField>,
) -> Option<Internal> {
    let line = &computed.as_ref().ok()?.line;
    match facts?.stability.as_ref()?.real.as_ref()? {
        Extent::Until { hi, .. } => internal(line, hi),
        Extent::Zero | Extent::Infinite => None,
    }
}

/// Four digits, rounded down or up.
fn digits(x: f64, up: bool) -> String {
    let shift = 10f64.powi(3 - x.log10().floor() as i32);
    let cut = match up {
        true => (x * shift).ceil() / shift,
        false => (x * shift).floor() / shift,
    };
    let places = (3 - cut.log10().floor() as i32).max(0) as usize;
    match cut {
        0.001..1e5 => format!("{cut:.places$}"),
        _ => format!("{cut:.3e}"),
    }
}

pub(super) fn text(page: &mut Page, r: &Report) {
    let Some(i) = r.internal.as_ref().filter(|i| i.least > 0.0) else {
        return;
    };
    let large = match i.least > LARGE {
        true => "; this is large: each step amplifies rounding errors as much",
        false => "",
    };
    let cancels = match i.sums > LARGE {
        true => format!(
            "; the coefficients of states in one sum add up to {}, and so do rounding errors",
            digits(i.sums, true)
        ),
        false => String::new(),
    };
    let sentence = format!(
        "the computed step multiplies an error in the argument of k{} by {} to {} at most{large}{cancels}",
        subscript(i.stage),
        digits(i.least, false),
        digits(i.most, true),
    );
    page.fact("internal stability", &sentence);
}

pub(super) fn json(i: &Internal) -> Value {
    json!({ "least": i.least, "most": i.most, "stage": i.stage, "sums": i.sums })
}
