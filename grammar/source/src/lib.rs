//! Source texts and messages about them: positions, diagnostics and their rendering, error codes, suggestions.
//!
//! Takes texts and findings; gives messages with places. Knows no grammar: every crate that reports errors in a source uses this one.

pub mod codes;
pub mod diag;
pub mod escape;
pub mod nearest;
pub mod span;
pub mod work;

pub use diag::{Diagnostic, Severity, render};
pub use nearest::nearest;
pub use span::{Sources, Span};
