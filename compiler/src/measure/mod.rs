//! Measured orders: methods applied to an equation with a known solution.
//!
//! Takes schemes; gives programs in f64 ([`graph`]) for the equations of [`problem`], and slopes of the errors that they make
//! ([`slope`]). A splitting's sub-flows are advanced by a Runge–Kutta method of at least its order, since its claim is about exact
//! sub-flows. Leaves running programs to the caller: compiled code, or the reference device. What is *proved* of a scheme is found by
//! [`crate::analysis`], which knows nothing of this.

pub mod graph;
pub mod library;
pub mod picture;
pub mod problem;
pub mod slope;

pub use graph::{INPUT, MeasureError, OUTPUT, Planned, Stepper};
pub use library::{Entry, entry, instances, of_text};
pub use problem::Problem;
pub use slope::{Curve, Point, measure};
