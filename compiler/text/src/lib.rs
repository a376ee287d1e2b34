//! Layout of numbers, tables and pages on a terminal.
//!
//! Takes values and words; gives text. Callers decide what to say.

pub mod number;
pub mod page;
pub mod table;
