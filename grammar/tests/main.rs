//! The grammar from outside.

mod errors;
mod examples;
mod format;
mod hostile;
mod set;
mod spans;
