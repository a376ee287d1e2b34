//! Compares a device with the reference device: by entry, by launch, and by launches in files.

pub mod cases;
pub mod compare;
pub mod launches;
