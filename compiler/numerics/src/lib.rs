//! Numerical analysis of methods in exact arithmetic: order, error constants, stability, and more.
//!
//! Takes coefficients as [`odec_exact::Exact`] numbers; gives facts about them. Order conditions run over rooted trees with
//! one colour for each field ([`trees`]): [`order`] evaluates them on additive tableaus, [`series`] on any straight
//! line of evaluations, exact flows and past values. Leaves the language, places and messages to odec-compiler.
//!
//! # Invariants
//!
//! - Nothing is computed in floating point before it is printed. `design/` alone searches in floats; of them it says
//!   nothing but areas and norms of errors, and what it finds is proved.
//! - An order as computed counts the first steps (`glm/first.rs`): they are expanded as they are run, zeros before the
//!   first one included.

pub mod angle;
pub mod blocks;
pub mod cuts;
pub mod descartes;
pub mod design;
pub mod draw;
pub mod effective;
pub mod exponential;
pub mod extrapolation;
pub mod glm;
pub mod internal;
pub mod invariants;
pub mod jet;
pub mod joint;
pub mod lie;
pub mod linear_step;
pub mod manifold;
pub mod modified;
mod modular;
pub mod multistep;
pub mod order;
pub mod partitioned;
pub mod past;
pub mod poly;
pub mod properties;
mod ring;
pub mod roots;
pub mod series;
pub mod ssp;
pub mod stability;
pub mod stages;
pub mod steps;
pub mod symplectic;
pub mod tableau;
pub mod trees;
mod unit_disc;
pub mod variable;
pub mod words;

pub use linear_step::LinearStep;
pub use order::{Proof, Violation, prove};
pub use tableau::Tableau;
pub use trees::{TreeId, Trees};
