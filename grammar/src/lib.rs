//! The odec language: text in, syntax tree with spans out.
//!
//! Takes source text; gives an [`ast::File`] or [`diag::Diagnostic`]s (several per run). Leaves names, types and
//! meaning to `odec-compiler`. Never panics on input.
//!
//! # Invariants
//!
//! - A user's mistake is a [`Diagnostic`] with a place; our own is an internal error (exit code 3). Nothing panics on
//!   input.
//! - Alternatives of the grammar never parse the same brackets twice, so parsing is linear.
//! - A broken item costs only itself: the others of a file are parsed, and several mistakes are reported in one run.
//! - A loop that may grow faster than its input counts what it does (`work.rs`).

pub mod ast;
mod dump;
mod explain;
mod format;
mod layout;
mod lex;
mod parse;
mod paths;
mod rules;
mod scan;
mod set;
mod tree;
mod words;
mod written;

pub use dump::{dump, dump_expr};
pub use format::format;
pub use odec_source::diag::{Diagnostic, Severity, render};
pub use odec_source::{Sources, Span, codes, diag, nearest, span, work};
pub use parse::{parse, parse_value};
pub use scan::MAX_BYTES;
pub use set::{Kind, Settable, set, settable};
