//! Runs beside each other: listed, compared, drawn on a page, written for other tools.
//!
//! Takes folders of runs; gives what they say ([`runs`]), what the compiler says of their models ([`facts`]), and from these tables,
//! differences, a page and files of metrics. Trains nothing and runs no compiled code. Leaves arguments and printing to `src/`, and who wins to the reader.
//!
//! Invariants: equal folders give equal bytes; what a file says is data, and is escaped where it becomes text for a terminal or markup; a folder that
//! cannot be read is named with the reason, and the others are read.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod curves;
pub mod diff;
pub mod events;
pub mod facts;
mod laws;
mod learned;
pub mod page;
mod pareto;
mod plot;
pub mod runs;
pub mod samples;
pub mod sparkline;
mod states;
pub mod table;
