//! Layout of numbers, tables and pages on a terminal; places and words in the texts of graphs and stage programs.
//!
//! Takes values and words; gives text. Callers decide what to say.
//!
//! # Invariants
//!
//! - A number is written exactly where it has room. Otherwise its first digits stand before `…`, cut off and not rounded; very small and large ones
//!   are rounded, with an exponent (`number.rs`).
//! - Values of facts are wrapped and tables are cut into parts to fit the [`page::Screen`]; only a word or a column that is wider by itself stands
//!   out. Widths count characters.
//! - What [`word::word`] writes, [`cursor::Cursor::word`] reads back as the same word.
//! - A [`cursor::Cursor`] never reads past the end of its line, and an error has the line, the column, and what was expected. No text makes it
//!   panic.
//! - Nothing here prints or asks for the terminal: whoever calls gives the width.

pub mod cursor;
pub mod number;
pub mod page;
pub mod table;
pub mod word;
