//! What a model reads: `input tokens(vocab: 256, context: 256)`. Each kind says its type, its sizes and whether it can be read on.
//!
//! An input is one file and one line in the list; nothing outside of this folder knows which there are. Leaves the first state that is made
//! of it to `embeddings/` and `positions/`. What stands at a position, for reports, is the `Unit` of an input.

use crate::layers::Sizes;
use crate::part::{Place, parts};
use odec_graph::{TensorType, ops};
use odec_program::Dim;
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
    /// Rows and columns of the grid that its positions stand on, where they do.
    fn grid(&self) -> Option<[u64; 2]>;
}

/// The state that evolves ended with, as what the next state of the same sequence is made of.
#[derive(Clone, Debug)]
pub struct Ended {
    pub sizes: Sizes,
    pub unit: Unit,
}

impl Input for Ended {
    fn value(&self) -> ops::Input {
        let (tokens, columns) = (self.sizes.tokens(), Dim::Fixed(self.sizes.width));
        ops::Input {
            name: String::new(),
            ty: TensorType::real([Dim::Batch, tokens, columns]),
        }
    }

    fn vocab(&self) -> Option<u64> {
        None
    }

    fn context(&self) -> u64 {
        self.sizes.context
    }

    fn grows(&self) -> bool {
        false
    }

    fn unit(&self) -> Unit {
        self.unit
    }

    fn image(&self) -> Option<Image> {
        None
    }

    /// None behind a class token.
    fn grid(&self) -> Option<[u64; 2]> {
        let grid = self.sizes.grid.filter(|grid| grid.leading == 0);
        grid.map(|grid| grid.sides)
    }
}

/// The most positions of one row.
pub const MAX_CONTEXT: u64 = 1 << 24;

/// What stands at a position, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Token,
    /// Of an image.
    Patch,
    Pixel,
    Vector,
}

impl Unit {
    /// All of them.
    pub fn many(self) -> &'static str {
        match self {
            Unit::Token => "tokens",
            Unit::Patch => "patches",
            Unit::Pixel => "pixels",
            Unit::Vector => "vectors",
        }
    }

    /// Whether positions are those of an image.
    pub fn is_of_image(self) -> bool {
        matches!(self, Unit::Patch | Unit::Pixel)
    }

    /// What reports count by: one of them, or a row of which nothing smaller has a meaning.
    pub fn counted(self) -> &'static str {
        match self {
            Unit::Token => "token",
            Unit::Patch | Unit::Pixel => "image",
            Unit::Vector => "vector",
        }
    }

    /// What stands at all positions of a row.
    pub fn of_a_row(self) -> &'static str {
        match self {
            Unit::Token => "tokens of a text",
            Unit::Patch => "patches of an image",
            Unit::Pixel => "pixels of an image",
            Unit::Vector => "vectors of a sequence",
        }
    }

    /// What a row of them is called.
    pub fn row(self) -> &'static str {
        match self {
            Unit::Patch | Unit::Pixel => "image",
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
    /// Rows and columns of patches.
    pub fn grid(&self) -> [u64; 2] {
        [self.height / self.patch, self.width / self.patch]
    }

    pub fn patches(&self) -> u64 {
        self.grid().into_iter().product()
    }

    /// Numbers of a patch.
    pub fn columns(&self) -> u64 {
        self.patch
            .saturating_mul(self.patch)
            .saturating_mul(self.channels)
    }
}

parts! { Input: tokens::Tokens, patches::Patches, image::Pixels, vectors::Vectors }

/// All inputs.
pub static INPUTS: Place<Rc<dyn Input>> = Place {
    parts: PARTS,
    later: &[],
    example: "tokens(vocab: 256, context: 256)",
};
