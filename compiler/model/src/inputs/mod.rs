//! What a model reads: `input tokens(vocab: 256, context: 256)`. Each kind says its type, its sizes and whether it can be read on.
//!
//! An input is one file and one line in the list; nothing outside of this folder knows which there are. Leaves the first state that is made
//! of it to `embeddings/` and `positions/`.

use crate::part::{Place, parts};
use odec_graph::ops;
use std::fmt::Debug;
use std::rc::Rc;

/// What a model reads.
pub trait Input: Debug {
    /// What all graphs of the model are given: its name, and elements for each position of each row.
    fn value(&self) -> ops::Input;
    /// How many kinds of tokens there are; `None`: its positions hold numbers.
    fn vocab(&self) -> Option<u64>;
    /// The most positions of one row.
    fn context(&self) -> u64;
    /// Whether positions may come one after the other, so that a model that looks back alone can be read on.
    fn grows(&self) -> bool;
}

parts! { Input: tokens::Tokens }

/// All inputs.
pub static INPUTS: Place<Rc<dyn Input>> = Place {
    parts: PARTS,
    later: &["patches", "vectors", "image"],
    example: "tokens(vocab: 256, context: 256)",
};
