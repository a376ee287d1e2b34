//! Proves properties of schemes: their equivalent tableaus, and the claims in their files.
//!
//! Takes resolved schemes and flows; gives facts in exact numbers, and messages about claims. The mathematics is in `odec-numerics`.
//!
//! # Invariants
//!
//! - An order as computed counts the first steps (`start.rs`).

use odec_scheme as scheme;
use odec_source::codes;

pub mod claims;
mod coefficients;
mod decide;
pub mod exponential;
pub mod general;
mod internal;
pub mod iterated;
pub mod json;
pub mod keep;
pub mod latex;
pub mod learned;
pub mod lift;
mod mend;
pub mod modified;
pub mod notation;
pub mod pair;
pub mod pair_facts;
mod pair_start;
mod properties;
mod rates;
pub mod report;
pub mod stable;
pub mod stand_in;
pub mod start;
pub mod summary;
pub mod suspect;
pub mod svg;
pub mod text;
pub mod unequal;
mod varied;
pub mod written;
