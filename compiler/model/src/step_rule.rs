//! A number for each step of an evolve, by a rule such as `1/(k + 1)`: k is the number of the step, from 0, and `steps` how many there are.
//!
//! Takes the rule and the steps; gives the numbers. Leaves what they may be to whoever asked for them.

use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::run::MAX_WORK;
use crate::scheme::scalar::{Scope, measured};
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// What such a rule may name.
pub const NAMES: [&str; 2] = ["k", "steps"];

/// In which steps something is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    /// In as many, which are counted in the text.
    All(u64),
    /// In at most as many: how many are made is found while the model runs.
    AtMost(u64),
    /// In those of an evolve that is not known.
    Unknown,
    /// In none: before or after them.
    Outside,
}

impl Steps {
    /// How many numbers there are.
    fn count(self) -> u64 {
        match self {
            Steps::All(n) | Steps::AtMost(n) => n,
            Steps::Unknown | Steps::Outside => 1,
        }
    }

    /// What names mean in a step. Those `around` hide its own.
    fn scope(self, k: Option<u64>, around: &Scope) -> Scope {
        let steps = match self {
            Steps::All(n) => Some(n),
            // The first of two: `k/(steps - 1)` is a number.
            Steps::Unknown => Some(2),
            Steps::AtMost(_) | Steps::Outside => None,
        };
        let k = k.filter(|_| self != Steps::Outside);
        let whole = |n: u64| Coeff::constant(Exact::int(n as i64));
        let named = NAMES.iter().zip([k, steps]);
        let known = named.filter_map(|(name, n)| Some((name.to_string(), whole(n?))));
        let mut scope: Scope = known.collect();
        scope.extend(around.clone());
        scope
    }

    /// Says why a name means nothing.
    fn unknown(self, d: Diagnostic) -> Diagnostic {
        let about = |name: &str| {
            d.code == codes::UNKNOWN_NAME && d.message.starts_with(&format!("`{name}`"))
        };
        match self {
            Steps::Outside if about("k") || about("steps") => {
                d.help("`k` and `steps` are known in the fields of an evolve alone")
            }
            Steps::AtMost(_) if about("steps") => {
                d.help("how many steps are made is not known: write a number instead")
            }
            _ => d,
        }
    }

    /// What is wrong about a number of one step.
    fn in_step(self, d: Diagnostic, k: u64) -> Diagnostic {
        if d.code != codes::ARITHMETIC {
            return d;
        }
        let d = d.label(format!("in step {k}"));
        match (k, self) {
            (0, Steps::All(1)) => d.help("there is one step: k is 0 and `steps` is 1"),
            (0, _) => d.help("steps are counted from 0: write, for example, `1/(k + 1)`"),
            _ => d,
        }
    }
}

/// The numbers, if each `fits`, which is told its step where they differ. One for all steps, where the rule does not name k.
/// `around`: other names that it may use. `constant`: the number that a value is ([`crate::scheme::scalar::constant`], or rounded).
pub fn numbers(
    rule: &Expr,
    steps: Steps,
    around: &Scope,
    constant: fn(Coeff, Span) -> Result<Exact, Diagnostic>,
    fits: impl Fn(Option<u64>, Exact) -> Result<Exact, Diagnostic>,
) -> Result<Vec<Exact>, Diagnostic> {
    let mut work = 0u64;
    let mut at = |k: Option<u64>| -> Result<Exact, Diagnostic> {
        let found = measured(rule, &steps.scope(k, around));
        let (value, took) = found.map_err(|d| steps.unknown(d))?;
        work += took as u64;
        if work > MAX_WORK {
            let message = "the numbers of all steps take too long to compute";
            return Err(Diagnostic::error(codes::TOO_LARGE, rule.span, message));
        }
        constant(value, rule.span)
    };
    if let Ok(same) = at(None) {
        return Ok(vec![fits(None, same)?]);
    }
    let each = (0..steps.count()).map(|k| {
        let value = at(Some(k)).map_err(|d| steps.in_step(d, k))?;
        fits(Some(k), value)
    });
    each.collect()
}
