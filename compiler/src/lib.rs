//! The compiler: syntax trees in, a program and its manifest out.
//!
//! Takes what `odec-grammar` parsed; gives stage programs ([`scheme`]), tensor graphs ([`model`]) and the planned
//! program ([`passes`]), and says what is true of a scheme ([`analysis`]) and what a model costs ([`cost`]). Leaves graphs and autodiff to `odec-graph`, object code to `odec-mlir`, and every file to
//! whoever calls: nothing here does I/O.
//!
//! # Invariants
//!
//! Schemes:
//!
//! - Coefficients stay exact until an instruction is emitted. Then they are launch arguments, never part of a kernel,
//!   so the number of kernels does not grow with depth.
//! - Evaluations of a field at one value and time are one instruction of the stage program (`scheme/evaluate.rs`), so
//!   derivatives, keys and values are made once. Places with weights of their own (`scheme/per_use.rs`) stay apart; so
//!   do a value and the same one cut off from the gradient.
//! - The time of an evaluation is exact and follows from the stage program (`scheme/time.rs`): t is one more component
//!   of the state, so what is proved of fields without time holds.
//! - An order as computed counts the first steps (`analysis/start.rs`).
//! - Functions of a linear field are instructions of the stage program (`scheme/exponential.rs`), and op `phi` of a
//!   vector λ times a number in the graph. Only `decay` alone is such a field.
//!
//! Models:
//!
//! - Weights of time are made of parameters and the time in the graph (`model/of_time.rs`), once per time; decoding
//!   makes them in `prepare`.
//! - A mask of dropout belongs to a field and a step, never to an evaluation.
//! - Decoding is the forward graph with kept keys and values (`model/build.rs`, `Reach::Past`): reading a text in
//!   pieces gives, bit for bit, the logits of reading it whole. What outlives a run lies in slots of its own: `Cache`,
//!   and `Prepared` for what follows from parameters alone (packed ones, weights at their times). An operand may move
//!   with the tokens so far (`Operand::stride`), so decoding needs one kernel of its own.
//! - Tokens that halt one by one (`model/halting.rs`) keep their state by a choice of each row, in all steps. What none
//!   of a batch makes is passed over, but never in decoding, where its keys and values would be missed.
//!
//! Passes:
//!
//! - Precision is a graph pass (`passes/precision.rs`), after derivatives are taken. Rounding is an op or part of a
//!   contraction's meaning, so what is stored in bf16 is a question of memory, never of bits.
//! - A memory policy is a graph pass (`passes/revolve.rs`): replayed nodes carry their own `Site::replay`, and nothing
//!   downstream knows of it.
//! - What only the unchosen side of a `hold` reads is not computed (`passes/guard.rs`): a program stays a straight
//!   line, and an instruction may have a guard, a number that must be positive for a run to need it. Devices that run
//!   everything get the same bits: a guard is never part of a result, and memory that was passed over is never read.
//! - An entry is a straight line of instructions, but for stretches that take the tokens' rows in pieces
//!   (`passes/pieces.rs`, `Entry::launches`). The order of every sum stays, so pieces change no bit (but on tensor
//!   cores, whose order is the card's).
//! - A target is chosen when a program is assembled (`passes/parts.rs`); kernels keep to it.
//! - The memory a program needs is known when it is built: arena, packed panels and per-thread scratch are planned.
//! - Of parameters, those that are trained lie first (`passes/layout.rs`, `Program::trained_bytes`): gradients, their
//!   sums and moments are as large as these, and nothing else writes to the others but the vectors of
//!   `passes/spectral.rs`. What training adds to a model's own parameters is known by the ends of paths
//!   (`manifest::added`).
//! - Compiling takes work linear in the nodes of the graph, but for sorting: a chain of sums is opened once, sources
//!   are found by their paths, readers of a node by place, gaps of the arena by time (`passes/timeline.rs`). What is
//!   larger than `MAX_NODES` is refused at its evolve.
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
