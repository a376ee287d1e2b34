//! How numbers, tables and pages look on a terminal.
//!
//! Takes values and words; gives text. Leaves what is said to whoever says it.

pub mod number;
pub mod page;
pub mod table;
