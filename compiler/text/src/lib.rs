//! Layout of numbers, tables and pages on a terminal; places and words in the texts of graphs and stage programs.
//!
//! Takes values and words; gives text. Callers decide what to say.

pub mod cursor;
pub mod number;
pub mod page;
pub mod table;
pub mod word;
