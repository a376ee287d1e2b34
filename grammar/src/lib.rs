//! The odec language: text in, syntax tree with spans out.
//!
//! Takes source text; gives an [`ast::File`] or [`diag::Diagnostic`]s (several per run). Leaves names, types and
//! meaning to `odec-compiler`. Never panics on input.

pub mod ast;
pub mod diag;
mod dump;
mod explain;
mod format;
mod layout;
mod lex;
pub mod library;
mod nearest;
mod parse;
mod paths;
mod scan;
mod set;
pub mod span;
mod tree;
mod words;
pub mod work;

pub use diag::{CODES, Diagnostic, Severity, render};
pub use dump::{dump, dump_expr};
pub use format::format;
pub use library::LIBRARY;
pub use nearest::nearest;
pub use parse::{parse, parse_value};
pub use scan::MAX_BYTES;
pub use set::{Settable, set, settable};
pub use span::{Sources, Span};
