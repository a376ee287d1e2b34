//! A device beside the reference device: entries, launches, and launches that are kept in files.

pub mod cases;
pub mod compare;
pub mod launches;
