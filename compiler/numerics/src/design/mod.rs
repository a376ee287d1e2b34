//! Designs methods: searches the free directions of the order conditions for the best value of a goal, then makes the coefficients exact.
//!
//! A family turns some free numbers into a method that satisfies the conditions, in floats and in exact numbers alike ([`explicit`]). The
//! search ([`search`]) proposes free numbers, which become fractions ([`round`]); what is said of the result is computed from its
//! exact coefficients. Leaves texts and files to odec-compiler.

pub mod curved;
pub mod explicit;
pub mod goal;
pub mod registers;
pub mod round;
pub mod runge_kutta;
pub mod scalar;
pub mod sdirk;
pub mod search;
pub mod splitting;

pub use goal::{Goal, Level};

use crate::Tableau;
use odec_exact::Exact;

/// Why there is no such design.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    Impossible { what: String, help: String },
    NotFound,
}

/// Coefficients of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    Tableau(Tableau),
    /// Flows of two fields in turn, each with its part of the step.
    Flows(Vec<(usize, Exact)>),
    /// Two registers (Williamson 1980): q = Aᵢ q + h F(y), y = y + Bᵢ q, with A from the second stage on.
    Registers {
        a: Vec<Exact>,
        b: Vec<Exact>,
    },
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Design {
    pub method: Method,
    pub order: usize,
    /// What each condition may be off by; `None`: nothing.
    pub within: Option<Exact>,
    pub goal: Goal,
    /// The goal's value, where exact arithmetic decides it.
    pub level: Option<Level>,
    /// The goal's value in floats, of the exact coefficients.
    pub value: f64,
    /// The norm of the next order's terms.
    pub error: f64,
    /// What `traded` has levels of.
    pub against: Goal,
    pub traded: Vec<Traded>,
}

/// A level of a goal, and the least error that was found with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traded {
    pub level: f64,
    pub error: f64,
}
