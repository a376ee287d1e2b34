//! How a fixed point `z = f(z)` is found: how often f is evaluated, and how iterates are mixed.
//!
//! Schemes say it and graphs do it; neither needs the other's crate for that. Words are read in `odec-scheme`, iterates made in `odec-graph`.
//!
//! # Invariants
//!
//! - This is data: nothing is computed, and the crate knows neither schemes nor graphs.
//! - A [`Solver`] has an end: f is evaluated at most [`Solver::iterations`] times on the way to the solution, with a tolerance or without.
//! - A tolerance is an exact number, as the coefficients of schemes are.
//! - The test of [`Mixing::tol`] is one row's: whether a row is solved depends on no other.
//! - Schemes, and the texts of stage programs and of graphs, read a rule by [`Rule::name`].

use odec_exact::Exact;

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
