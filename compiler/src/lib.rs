//! What is asked of whole programs: what a model costs, what order a method shows, what a designed method is written as.
//!
//! Takes checked files and programs; gives counts, planned measurements and text. Passes the crates below on to programs that use
//! all of them: stage programs ([`scheme`]), what is true of them ([`analysis`]), tensor graphs ([`model`]), planned programs
//! ([`passes`]). Leaves object code to `odec-mlir`, and every file to whoever calls: nothing here does I/O.
//!
//! Everywhere: a user's mistake is a `Diagnostic` with a place; nothing panics on input. Output is deterministic: no
//! hash-map order reaches text, artifacts or kernels.

pub mod cost;
pub mod design;
pub mod measure;

pub use odec_analysis as analysis;
pub use odec_model as model;
pub use odec_passes as passes;
pub use odec_scheme as scheme;
pub use odec_source::codes;
pub use odec_text as text;
