//! Numerics against the literature and against itself. One binary: a test costs its own time, not that of another link.

mod angles;
mod design;
mod exponential;
mod families;
mod glm;
mod modified;
mod orders;
mod partitioned;
mod stability;
mod steps;
mod structure;
mod variable;
mod work;
mod written;
