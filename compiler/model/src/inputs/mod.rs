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
    /// What stands at a position.
    fn unit(&self) -> Unit;
    /// The images that are cut into its positions, where they are.
    fn image(&self) -> Option<Image>;
}

/// The most positions of one row.
const MAX_CONTEXT: u64 = 1 << 24;

/// What stands at a position, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Token,
    /// Of an image.
    Patch,
    Vector,
}

impl Unit {
    /// All of them.
    pub fn many(self) -> &'static str {
        match self {
            Unit::Token => "tokens",
            Unit::Patch => "patches",
            Unit::Vector => "vectors",
        }
    }

    /// What reports count by: one of them, or a row of which nothing smaller has a meaning.
    pub fn counted(self) -> &'static str {
        match self {
            Unit::Token => "token",
            Unit::Patch => "image",
            Unit::Vector => "vector",
        }
    }

    /// What stands at all positions of a row.
    pub fn of_a_row(self) -> &'static str {
        match self {
            Unit::Token => "tokens of a text",
            Unit::Patch => "patches of an image",
            Unit::Vector => "vectors of a sequence",
        }
    }

    /// What a row of them is called.
    pub fn row(self) -> &'static str {
        match self {
            Unit::Patch => "image",
            Unit::Token | Unit::Vector => "sequence",
        }
    }
}

/// Images of one size that are cut into squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    pub height: u64,
    pub width: u64,
    pub channels: u64,
    /// Side of a square, which divides both sides.
    pub patch: u64,
}

impl Image {
    pub fn patches(&self) -> u64 {
        (self.height / self.patch) * (self.width / self.patch)
    }

    /// Numbers of a patch.
    pub fn columns(&self) -> u64 {
        self.patch
            .saturating_mul(self.patch)
            .saturating_mul(self.channels)
    }
}

parts! { Input: tokens::Tokens, patches::Patches, vectors::Vectors }

/// All inputs.
pub static INPUTS: Place<Rc<dyn Input>> = Place {
    parts: PARTS,
    later: &["image"],
    example: "tokens(vocab: 256, context: 256)",
};
