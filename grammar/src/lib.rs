//! The odec language: text in, syntax tree with spans out.
//!
//! Takes source text; gives an [`ast::File`] or [`diag::Diagnostic`]s (several per run). Leaves names, types and
//! meaning to `odec-compiler`. Never panics on input.

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

pub use dump::{dump, dump_expr};
pub use format::format;
pub use odec_source::diag::{CODES, Diagnostic, Severity, render};
pub use odec_source::{Sources, Span, diag, nearest, span, work};
pub use parse::{parse, parse_value};
pub use scan::MAX_BYTES;
pub use set::{Settable, set, settable};
