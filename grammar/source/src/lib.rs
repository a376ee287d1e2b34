//! Sources and what is said about them: texts, places in them, diagnostics and how they are rendered, codes, suggestions.
//!
//! Takes texts and findings; gives sentences with places. Knows no grammar: everything that has a place in a source stands on this.

pub mod codes;
pub mod diag;
pub mod escape;
pub mod nearest;
pub mod span;
pub mod work;

pub use diag::{Diagnostic, Severity, render};
pub use nearest::nearest;
pub use span::{Sources, Span};
