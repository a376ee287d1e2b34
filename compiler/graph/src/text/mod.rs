//! The textual form of a graph: what [`crate::print`] writes and [`parse`] reads.
//!
//! One line says one thing; empty lines and what follows `//` mean nothing:
//!
//! ```text
//! %2 = matmul(%0, %1) layout=nt : [B, S, 64] @ core: step.0 eval.0 att.q
//! output logits = %2
//! ```
//!
//! - A node is `%name = op(operands) attributes : types @ site`. Names are local to the text: printed ones are the nodes' numbers, and
//!   `%4.1` is the second result of a node with several. Operands come before their readers.
//! - Attributes are written and read by each op ([`crate::Op::attrs`], [`crate::Op::from_attrs`]). What the types of the results say,
//!   such as the shape of a parameter, is no attribute.
//! - A site has the label of its evolve, `step.3`, `eval.1`, the path of the field, `backward` and `replay.2`, each where there is one.
//! - A word that is not made of letters, digits, `_`, `.` and `-` stands in quotation marks.
//! - `solution z=[%1] f=[%2] outs=[%3] iterations=9` is a fixed point with a derivative of its own ([`crate::Solution`]).
//!
//! Exact numbers stay exact: `coeffs=[1/2 - sqrt(3)/6, 1]`. Spans and the names that pictures use are not written.

pub mod attrs;
mod parse;
mod site;

pub use odec_text::cursor::{Cursor, ParseError, Parsed};
pub use odec_text::word::word;
pub use parse::parse;
pub use site::site;
