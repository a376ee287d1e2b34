//! `vectors`: numbers at each position, as they are.

use super::{Image, Input, MAX_CONTEXT, Unit};
use crate::arguments::Argument;
use crate::layers::MAX_WIDTH;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_graph::{TensorType, ops};
use odec_program::{Dim, names};

const WIDTH: Argument = Argument::size("width", "numbers of a vector");
const CONTEXT: Argument = Argument::size("context", "the most vectors of one sequence");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    width: u64,
    context: u64,
}

impl Part for Vectors {
    const DECLARATION: Declaration = Declaration {
        name: "vectors",
        about: About {
            summary: "Sequences of vectors of `width` numbers, at most `context` of them.",
            formula: "vectors [batch, positions, width]",
            source: "",
            notes: &[
                "In fields, `context` stands for that number; `width` stands for the columns of the state.",
            ],
        },
        arguments: &[WIDTH, CONTEXT],
        examples: &[Example {
            text: "input vectors(width: 12, context: 100)",
            meaning: "a hundred measurements of twelve numbers",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let (width, context) = (r.size(&WIDTH, MAX_WIDTH), r.size(&CONTEXT, MAX_CONTEXT));
        Some(Vectors {
            width: width?,
            context: context?,
        })
    }
}

impl Input for Vectors {
    fn value(&self) -> ops::Input {
        ops::Input {
            name: names::VECTORS.into(),
            ty: TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(self.width)]),
        }
    }

    fn vocab(&self) -> Option<u64> {
        None
    }

    fn context(&self) -> u64 {
        self.context
    }

    fn grows(&self) -> bool {
        false
    }

    fn unit(&self) -> Unit {
        Unit::Vector
    }

    fn image(&self) -> Option<Image> {
        None
    }

    fn grid(&self) -> Option<[u64; 2]> {
        None
    }
}
