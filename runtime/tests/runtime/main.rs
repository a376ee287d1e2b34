//! The runtime on a program written by hand: on the reference device, and compiled from C.

mod support;

mod artifact;
mod c;
mod compiled;
mod data;
mod device;
mod exec;
mod images;
mod integers;
mod labelled;
mod pairs;
mod place;
mod sentences;
mod train;
mod vectors;
