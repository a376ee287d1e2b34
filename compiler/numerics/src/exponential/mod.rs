//! Exponential integrators: methods whose coefficients are `e^{hL}` and functions `φₖ(chL)` of a linear field L.
//!
//! `φ₀(z) = e^z` and `φₖ(z) = Σⱼ zʲ/(j + k)!`. [`sums`] computes with such coefficients exactly, [`method`] reads them off a line, and
//! [`stiff`] decides orders that do not depend on how stiff L is. Classical orders are those of [`crate::series`].

pub mod method;
pub mod stiff;
pub mod sums;

pub use method::{Exponential, Unfit};
pub use stiff::{StiffOrder, stiff_order};
pub use sums::ExpSum;
