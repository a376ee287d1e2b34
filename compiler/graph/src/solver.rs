//! How a fixed point is found: what a graph keeps of it beside its nodes.

use crate::exact::Exact;
use crate::value::Value;

/// When a row is solved, and how it gets there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mixing {
    /// A row is solved when `‖f − z‖² ≤ tol² (‖f‖² + 10⁻²⁰)`.
    pub tol: Exact,
    /// Differences of earlier iterates that the next one is mixed with; 0: plain iteration.
    pub memory: usize,
    pub rule: Rule,
}

/// What the next iterate is made by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The least residual of a mixture.
    #[default]
    Anderson,
    /// A quasi-Newton step.
    Broyden,
}

impl Rule {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Anderson => "anderson",
            Rule::Broyden => "broyden",
        }
    }
}

/// How a fixed point is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Solver {
    /// `None`: plain iteration without a test.
    pub mixing: Option<Mixing>,
    /// How often f is evaluated.
    pub iterations: usize,
}

/// An iterate and what f makes of it, each one value for every unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub z: Vec<Value>,
    pub f: Vec<Value>,
}
