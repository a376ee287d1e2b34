//! Source texts and messages about them: positions, diagnostics and their rendering, error codes, suggestions.
//!
//! Takes texts and findings; gives messages with places. Knows no grammar: every crate that reports errors in a source uses this one.
//!
//! # Invariants
//!
//! - [`Sources`] only grows, so the number of a text, and with it a [`Span`], stays valid.
//! - [`render`] takes any span: one outside of its text is moved to the nearest boundary of a character inside.
//! - Names, messages and help are escaped where they are rendered: no control character and no mark that turns the direction of writing reaches a
//!   terminal (`escape.rs`).
//! - A code has a meaning, a remedy, and an input that gives it. Lists are in order, and no message has another code
//!   (`compiler/tests/front/errors.rs`, `grammar/tests/errors.rs`).
//! - A misspelt word is compared with at most `nearest::MOST` names, however many there are.
//! - Counts of work are kept for each thread and read by tests alone; no result depends on them.
//! - Nothing here reads files or prints.

pub mod codes;
pub mod diag;
pub mod escape;
pub mod nearest;
pub mod span;
pub mod work;

pub use diag::{Diagnostic, Severity, render};
pub use nearest::nearest;
pub use span::{Sources, Span};
