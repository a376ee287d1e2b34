//! Schemes: resolves names, and turns tableaus, splittings and step programs into stage programs with exact coefficients.
//!
//! Takes a syntax tree; gives a [`stage::StageProgram`] for each flow. A scheme, however it is written, is *executed* on
//! exact linear combinations ([`run`]): what comes out is a straight line of field evaluations and combinations, and
//! nothing downstream knows where it came from. Leaves the inside of fields, weights and tensors to `odec-model`.
//!
//! # Invariants
//!
//! - Coefficients stay exact until an instruction is emitted. Then they are launch arguments, never part of a kernel,
//!   so the number of kernels does not grow with depth.
//! - Evaluations of a field at one value and time are one instruction of the stage program (`evaluate.rs`), so
//!   derivatives, keys and values are made once. Places with weights of their own (`per_use.rs`) stay apart; so
//!   do a value and the same one cut off from the gradient.
//! - The time of an evaluation is exact and follows from the stage program (`time.rs`): t is one more component
//!   of the state, so what is proved of fields without time holds.
//! - A function of a number without an exact value (`function.rs`) is a symbol of coefficients: no proof takes it for a number.
//! - Functions of a linear field are instructions of the stage program (`exponential.rs`), and op `phi` of a
//!   vector λ times a number in the graph. Only `decay` alone is such a field.

use odec_source::codes;

mod adjoint;
pub mod algebra;
mod apply;
pub mod args;
mod body;
pub mod bounds;
mod call;
pub mod coeff;
pub mod combination;
pub mod define;
pub mod embedded;
mod evaluate;
pub mod expansion;
pub mod exponential;
mod expression;
mod factor;
mod field;
pub mod flow;
pub mod function;
pub mod history;
mod implicit;
mod known_order;
pub mod layer;
pub mod learn;
mod learn_from;
pub mod mentions;
pub mod method;
pub mod multistep;
pub mod names;
mod optional;
pub mod per_use;
pub mod polynomial;
pub mod resolve;
pub mod run;
pub mod scalar;
pub mod solver;
mod splitting;
pub mod stage;
mod step;
mod sub_flow;
mod tableau;
pub mod text;
pub mod time;
mod unknown;
pub mod unroll;
pub mod unused;
mod value;
pub mod vocabulary;
pub mod work;

pub use coeff::Coeff;
pub use combination::{Combination, ValueId};
pub use flow::{Field, Flow, Leaf};
pub use layer::{Layer, Layers};
pub use learn::Learned;
pub use names::{Loader, Namespace, NoFiles};
pub use per_use::PerUse;
pub use resolve::Resolver;
pub use stage::{Moment, StageInstr, StageProgram};
pub use vocabulary::Facts;
