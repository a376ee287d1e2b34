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
mod cursor;
mod parse;
mod site;

pub use cursor::{Cursor, ParseError, Parsed};
pub use parse::parse;
pub use site::site;

/// A word as it is written: in quotation marks where it has other characters than words have.
pub fn word(word: &str) -> String {
    match is_plain(word) {
        true => word.to_string(),
        false => quoted(word),
    }
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(is_word)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

fn quoted(word: &str) -> String {
    let mut out = String::from('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
