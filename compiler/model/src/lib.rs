//! Models: fields expanded, weights policies applied, tensor graphs built.
//!
//! Takes a parsed file whose names [`crate::scheme`] resolves; gives a [`Built`] model: parameters, the graphs of
//! `forward`, `loss` and `grad`, and what the manifest says about them. Leaves turning graphs into programs to
//! `odec-passes`.

use odec_analysis as analysis;
use odec_scheme as scheme;
use odec_source::codes;

mod adaptive;
pub mod alone;
mod build;
pub mod coefficient;
mod compile;
mod constrain;
pub mod data;
mod depth;
mod drift;
mod error;
mod evolve;
mod halting;
pub mod layers;
mod lora;
pub mod loss;
mod losses;
mod of_time;
pub mod page;
mod params;
mod random;
mod spec;
pub mod step;
mod terms;
mod train;
mod unread;
mod widths;

use crate::scheme::args;

pub use build::{BuildError, MAX_NODES};
pub use compile::{Built, Checked, CompileError, Summary, compile};
pub use params::MAX_PARAMETERS;
