//! Parameters in files: checkpoints, imports and exports.

pub mod checkpoint;
pub mod factors;
pub mod import;
pub mod values;
