//! `image`: images as they are, the numbers of a pixel at each position.

use super::patches::{CHANNELS, MAX_CHANNELS, MAX_SIDE, few};
use super::{Image, Input, Unit};
use crate::arguments::Argument;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_graph::{TensorType, ops};
use odec_program::{Dim, names};

const SIZE: Argument = Argument::sides("size", "height and width in pixels");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    image: Image,
}

impl Part for Pixels {
    const DECLARATION: Declaration = Declaration {
        name: "image",
        about: About {
            summary: "Images of one size, a pixel at each position: a grid of tokens for `embed conv(…)`.",
            formula: "patches [batch, height·width, channels], row by row from the top left",
            source: "",
            notes: &[
                "The same as `patches(image: …, patch: 1)`; in fields behind `embed linear(…)`, `context` stands for the number of pixels.",
            ],
        },
        arguments: &[SIZE, CHANNELS],
        examples: &[
            Example {
                text: "input image(size: 28)",
                meaning: "784 grey pixels",
            },
            Example {
                text: "input image(size: [224, 160], channels: 3)",
                meaning: "35,840 pixels in colour",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let sides = r.sides(&SIZE, MAX_SIDE);
        let channels = r.count(&CHANNELS, MAX_CHANNELS);
        let [height, width] = sides?;
        let image = Image {
            height,
            width,
            channels: channels?,
            patch: 1,
        };
        let at = r.span();
        few(r, &image, at, "pixels")?;
        Some(Pixels { image })
    }
}

impl Input for Pixels {
    fn value(&self) -> ops::Input {
        let columns = Dim::Fixed(self.image.columns());
        ops::Input {
            name: names::PATCHES.into(),
            ty: TensorType::real([Dim::Batch, Dim::Seq, columns]),
        }
    }

    fn vocab(&self) -> Option<u64> {
        None
    }

    fn context(&self) -> u64 {
        self.image.patches()
    }

    fn grows(&self) -> bool {
        false
    }

    fn unit(&self) -> Unit {
        Unit::Pixel
    }

    fn image(&self) -> Option<Image> {
        Some(self.image)
    }

    fn grid(&self) -> Option<[u64; 2]> {
        Some(self.image.grid())
    }
}
