//! Builds models: expands fields, applies weights policies, and makes tensor graphs.
//!
//! Takes a parsed file whose names [`crate::scheme`] resolves; gives a [`Built`] model: parameters, the graphs of
//! `forward`, `loss` and `grad`, and what the manifest says about them. Leaves turning graphs into programs to
//! `odec-passes`.
//!
//! # Invariants
//!
//! - Weights of time are made of parameters and the time in the graph (`time_dependent.rs`), once per time; decoding
//!   makes them in `prepare`.
//! - A mask of dropout belongs to a field and a step, never to an evaluation.
//! - Decoding is the forward graph with kept keys and values (`kv.rs`, `KvMode::Cached`): reading a text in
//!   pieces gives, bit for bit, the logits of reading it whole. What outlives a run lies in slots of its own: `Cache`,
//!   and `Prepared` for what follows from parameters alone (packed ones, weights at their times). An operand may move
//!   with the tokens so far (`Operand::stride`), so decoding needs one kernel of its own. Several texts are read by a third graph (`KvMode::Several`), in
//!   which each has a place of its own: an input says where its token stands, and what is kept goes there.
//! - A model is an input, an embedding, evolves, an output and a loss. What these are is known in `inputs/`, `embeddings/`,
//!   `positions/`, `outputs/`, `sources/` and `losses/` alone; everything else asks their traits, and they know nothing of models.
//! - A model reads one sequence or several; each `embed` begins a state, and the evolves behind it move that one (`beginnings.rs`). Rows of two sequences
//!   meet in attention alone, as queries on one side, keys and values on the other (`layers/states.rs`). What fills up rows is never seen by a token
//!   (`kv.rs`), and no mean counts it: a pair gives the same loss alone and in any batch.
//! - Tokens that halt one by one (`halting.rs`) keep their state by a choice of each row, in all steps. What none
//!   of a batch makes is passed over, but never in decoding, where its keys and values would be missed.
//! - In a step that a router gives to some tokens (`routed.rs`), linear maps and attention are of these alone, by numbers of rows that the
//!   builder has; a layer that meets other tokens in another way is refused ([`layers::Reads`]).

use odec_analysis as analysis;
use odec_scheme as scheme;
use odec_source::codes;

mod adaptive;
pub mod alone;
mod arguments;
mod balance;
mod beginnings;
mod build;
pub mod chapters;
pub mod coefficient;
mod compile;
mod constrain;
mod decider;
mod defined;
mod drift;
pub mod embeddings;
mod ends;
mod error;
mod evolve;
mod graph_builder;
pub mod groups;
mod halting;
pub mod inputs;
mod kv;
pub mod layers;
mod leading;
mod lora;
pub mod loss;
mod losses;
mod marks;
pub mod outputs;
pub mod page;
mod param_values;
mod parametrization;
mod params;
pub mod part;
pub mod passed;
mod phase;
mod position_tables;
pub mod positions;
mod random;
mod recent;
mod reports;
mod routed;
mod routing;
mod scoped_params;
pub mod settings;
mod shared_values;
pub mod sources;
mod spec;
pub mod step;
mod step_count;
mod step_rule;
mod terms;
mod time_dependent;
mod train;
mod unread;
mod untrained;
mod widths;

use crate::scheme::args;

pub use build::Translation;
pub use compile::{Built, Checked, CompileError, Summary, compile, schemes};
pub use error::{BuildError, MAX_NODES};
pub use layers::Capacity;
pub use params::MAX_PARAMETERS;
