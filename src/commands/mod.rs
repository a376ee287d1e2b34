//! One command, one file: each takes its arguments and prints its result.

pub mod analyze;
pub mod bench;
pub mod build;
pub mod check;
pub mod codegen;
pub mod compare;
pub mod completions;
pub mod design;
pub mod eval;
pub mod exec;
pub mod explain;
pub mod explore;
pub mod export;
pub mod fmt;
pub mod generate;
pub mod graph;
pub mod help;
pub mod methods;
pub mod new;
pub mod replay;
pub mod schemes;
pub mod simulate;
pub mod tokenize;
pub mod train;
pub mod translate;
