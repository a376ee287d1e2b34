//! The passes end to end: hand-built decoders, planned and run on the reference device.

mod card;
mod costs;
mod depth;
mod double;
mod drift;
mod guards;
mod join;
mod learned;
mod library;
mod losses;
mod measured;
mod memory;
mod numbers;
mod of_time;
mod optimiser;
mod pieces;
mod planning;
mod precision;
mod programs;
mod random;
mod rewrites;
mod solves;
mod source;
mod starts;
mod systems;
