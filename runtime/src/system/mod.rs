//! The operating system: atomic files, printing, threads, the user's key.
//!
//! Knows the names of the files of runs and artifacts ([`owned`]), and nothing of what is in them.

pub(crate) mod caught;
pub mod files;
pub mod hash;
pub mod input;
pub(crate) mod key;
pub mod known;
mod os;
pub mod output;
pub mod owned;
pub mod pool;
pub mod private;
pub mod progress;
pub mod shown;
pub mod stdio;

pub use os::map_file;
