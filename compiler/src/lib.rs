//! Questions about whole programs: the cost of a model, the measured order of a method, designed methods as files, the paths of points that a
//! model moves.
//!
//! Takes checked files and programs; gives counts, planned measurements and text. Re-exports the crates below for programs that use all
//! of them: stage programs ([`scheme`]), their properties ([`analysis`]), tensor graphs ([`model`]), planned programs ([`passes`]).
//! `odec-mlir` makes object code. Nothing here does I/O.
//!
//! Everywhere: a user's mistake is a `Diagnostic` with a place; nothing panics on input. Output is deterministic: no
//! hash-map order reaches text, artifacts or kernels.

pub mod cost;
pub mod design;
pub mod measure;
pub mod simulate;

pub use odec_analysis as analysis;
pub use odec_model as model;
pub use odec_passes as passes;
pub use odec_scheme as scheme;
pub use odec_source::codes;
pub use odec_text as text;
