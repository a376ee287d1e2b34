//! Tests of the front half: text in, stage programs, graphs and messages out.

mod algebra;
mod analysis;
mod claims;
mod common;
mod depth;
mod docs;
mod errors;
mod examples;
mod fields;
mod general;
mod history;
mod hostile;
mod kept;
mod learned;
mod losses;
mod mends;
mod of_time;
mod parts;
mod properties;
mod reference;
mod solves;
mod splittings;
mod stability;
mod stages;
mod systems;
mod tuning;
