//! The standard library: schemes that every file may name without a `use`.
//!
//! Gives their texts, embedded. Leaves parsing them and resolving names to `odec-compiler`.

/// Name and text of every library scheme, by name. Each text is one file of `schemes/` that holds one scheme of that
/// name and no model.
pub const LIBRARY: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/library.rs"));
