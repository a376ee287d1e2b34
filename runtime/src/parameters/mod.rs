//! Parameters in files: checkpoints, and what is taken from and given to other programs.

pub mod checkpoint;
pub mod factors;
pub mod import;
