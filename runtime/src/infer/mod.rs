//! What is done with a model that is not trained: judged, asked for text, run on given numbers. A new one is a file here, a command in
//! `src/commands/`, and its arguments in `src/cli/trained.rs`.

pub mod bleu;
pub mod classify;
pub mod confusion;
pub mod evaluate;
pub mod exec;
pub mod flow;
pub mod generate;
pub mod integrate;
pub mod quantized;
pub mod reader;
pub mod translate;
