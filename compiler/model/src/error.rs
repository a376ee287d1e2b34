//! Errors when a checked model becomes a graph: it is too large, or odec has an internal error.

use odec_grammar::Span;
use odec_graph::{DiffError, TypeError};
use thiserror::Error;

/// Most nodes of a model's tensor graph; that of its gradient has about three times as many.
pub const MAX_NODES: u32 = 100_000;

/// Our own mistakes: a checked model that does not build. And a model that is too large, which only building it tells.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum BuildError {
    #[error("more than {MAX_NODES} nodes at step {step}")]
    TooLarge { step: usize, span: Span },
    #[error("internal: {0}")]
    Type(#[from] TypeError),
    #[error("internal: {0}")]
    Diff(#[from] DiffError),
    #[error("internal: {0} has no value")]
    Missing(String),
}
