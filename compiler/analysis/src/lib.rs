//! Proves properties of schemes: their equivalent tableaus, and the claims in their files.
//!
//! Takes resolved schemes and flows; gives facts in exact numbers, and messages about claims. The mathematics is in `odec-numerics`.
//!
//! # Invariants
//!
//! - An order as computed counts the first steps (`start.rs`).

use odec_scheme as scheme;
use odec_source::codes;

pub mod blame;
pub mod claims;
mod coefficients;
mod decide;
pub mod declared_tableau;
pub mod exponential;
mod fix_suggestion;
pub mod general;
mod internal;
pub mod iterated;
pub mod json;
pub mod keep;
pub mod latex;
pub mod learned;
pub mod modified;
mod more_iterations;
pub mod notation;
pub mod opaque_field;
pub mod order_upgrade;
pub mod pair;
pub mod pair_facts;
mod pair_start;
mod properties;
mod rates;
pub mod report;
mod same_field;
pub mod stable;
pub mod start;
pub mod summary;
pub mod svg;
pub mod text;
pub mod unequal;
mod varied;
