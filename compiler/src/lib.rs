//! Questions about whole programs: the cost of a model, the measured order of a method, designed methods as files, the paths of points that a
//! model moves.
//!
//! Takes checked files and programs; gives counts, planned measurements and text. Re-exports the crates below for programs that use all
//! of them: stage programs ([`scheme`]), their properties ([`analysis`]), tensor graphs ([`model`]), planned programs ([`passes`]).
//! `odec-mlir` makes object code.
//!
//! # Invariants
//!
//! - A user's mistake is a `Diagnostic` with a place; nothing panics on input.
//! - Output is deterministic: no hash-map order reaches text, artifacts or kernels. Equal costs, curves and paths give equal bytes.
//! - Nothing here does I/O. Programs to measure are handed to the caller, who runs them as compiled code or on the reference device.
//! - Costs are those of the program that runs. `tests/passes/costs.rs` compares multiply-adds, evaluations of fields, and bytes of the arena and of
//!   kept keys and values with what the reference device executes.
//! - A measured order proves nothing, and no proof reads one. Claims are decided by `odec-analysis` from coefficients; `tests/passes/measured.rs`
//!   compares the two.
//! - A designed method is a `.ode` file, whose claims are proved as those of any other.
//! - Paths of points are interpreted in f64, so they have the same bits on every machine.

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
