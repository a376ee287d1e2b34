//! The compiler: syntax trees in, a program and its manifest out.
//!
//! Takes what `odec-grammar` parsed; gives stage programs ([`scheme`]), tensor graphs ([`model`]) and the planned
//! program ([`passes`]), and says what is true of a scheme ([`analysis`]) and what a model costs ([`cost`]). Leaves graphs and autodiff to `odec-graph`, object code to `odec-mlir`, and every file to
//! whoever calls: nothing here does I/O.

pub mod cost;
pub mod design;
pub mod measure;

pub use odec_analysis as analysis;
pub use odec_model as model;
pub use odec_passes as passes;
pub use odec_scheme as scheme;
pub use odec_source::codes;
pub use odec_text as text;
