//! Runs beside each other: listed, compared, drawn on a page, written for other tools.
//!
//! Takes folders of runs; gives what they say ([`runs`]), what the compiler says of their models ([`facts`]), and from these tables,
//! differences, a page and files of metrics. Trains nothing and runs no compiled code. Leaves arguments and printing to `src/`, and who wins to the reader.
//!
//! ```text
//! runs       what the folder of a run says; runs that differ in their seed alone are of one kind, with one colour
//! facts      what the compiler says of its model
//! table      columns of `odec runs`
//! settings   which settings differ, under the paths of `--set`
//! diff       rows of `odec diff`
//! page       sections of `odec report`, a function each
//! curves     losses of several runs; what they are drawn against is a variant of `Against`
//! pareto     fronts of loss and cost; a cost is a variant of `Cost`
//! laws       laws of an exploration
//! states     what evolves report
//! samples    texts that models continue
//! events     metrics for other tools
//! ```
//!
//! # Invariants
//!
//! - Equal folders give equal bytes.
//! - What a file says is data, and is escaped where it becomes text for a terminal or markup.
//! - A folder that cannot be read is named with the reason, and the others are read.

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
mod settings;
pub mod sparkline;
mod states;
pub mod table;
