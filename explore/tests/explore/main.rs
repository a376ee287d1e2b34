//! Parts of explorations that know no files.

mod evidence;
mod ladder;
mod matched;
