//! `patches`: images, cut into squares; the numbers of a square at each position.

use super::{Image, Input, MAX_CONTEXT, Unit};
use crate::arguments::Argument;
use crate::codes;
use crate::layers::MAX_WIDTH;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{TensorType, ops};
use odec_program::{Dim, names};

/// Longest side of an image, and most channels.
pub(super) const MAX_SIDE: u64 = 1 << 16;
pub(super) const MAX_CHANNELS: u64 = 1 << 10;

const IMAGE: Argument = Argument::sides("image", "height and width in pixels");
const PATCH: Argument = Argument::size("patch", "side of a patch, which divides both");
pub(super) const CHANNELS: Argument = Argument::count("channels", 1, "numbers of a pixel");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    image: Image,
}

impl Part for Patches {
    const DECLARATION: Declaration = Declaration {
        name: "patches",
        about: About {
            summary: "Images of one size, cut into squares of `patch` pixels, whose numbers stand at a position each.",
            formula: "patches [batch, height·width / patch², patch²·channels], row by row from the top left; the numbers of a patch in the order y, x, channel",
            source: "Dosovitskiy et al. 2021, ICLR",
            notes: &[
                "In fields, `context` stands for the number of patches.",
                "All patches are there at once: nothing is generated, and fields need not look back alone.",
            ],
        },
        arguments: &[IMAGE, PATCH, CHANNELS],
        examples: &[
            Example {
                text: "input patches(image: 28, patch: 4)",
                meaning: "49 patches of 16 numbers, grey",
            },
            Example {
                text: "input patches(image: [224, 160], patch: 16, channels: 3)",
                meaning: "140 patches of 768 numbers, in colour",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let sides = r.sides(&IMAGE, MAX_SIDE);
        let patch = r.placed_size(&PATCH, MAX_SIDE);
        let channels = r.count(&CHANNELS, MAX_CHANNELS);
        let ([height, width], (patch, at)) = (sides?, patch?);
        if let Some(side) = [height, width].iter().find(|s| !s.is_multiple_of(patch)) {
            let message = format!("{side} pixels are not cut into patches of {patch}");
            let d = Diagnostic::error(codes::INVALID_VALUE, at, message);
            let d = d.label("a divisor of the image's sides is expected");
            return r.fail(match common_divisor(height, width, patch) {
                1 => d,
                fits => d.help(format!("write `patch: {fits}`")),
            });
        }
        let image = Image {
            height,
            width,
            channels: channels?,
            patch,
        };
        if image.columns() > MAX_WIDTH {
            let message = format!("a patch of {} numbers", image.columns());
            let d = Diagnostic::error(codes::TOO_LARGE, at, message);
            return r.fail(d.label(format!("at most {MAX_WIDTH} are expected")));
        }
        few(r, &image, at, "patches")?;
        Some(Patches { image })
    }
}

/// Says so where an image has too many positions.
pub(super) fn few(r: &mut PartReading, image: &Image, at: Span, what: &str) -> Option<()> {
    let count = image.patches();
    if count > MAX_CONTEXT {
        let message = format!("an image of {count} {what}");
        let d = Diagnostic::error(codes::TOO_LARGE, at, message);
        return r.fail(d.label(format!("at most {MAX_CONTEXT} are expected")));
    }
    Some(())
}

/// The largest divisor of both sides that is not above `most`.
fn common_divisor(height: u64, width: u64, most: u64) -> u64 {
    let divides = |n: &u64| height.is_multiple_of(*n) && width.is_multiple_of(*n);
    (1..=most).rev().find(divides).unwrap_or(1)
}

impl Input for Patches {
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
        Unit::Patch
    }

    fn image(&self) -> Option<Image> {
        Some(self.image)
    }

    fn grid(&self) -> Option<[u64; 2]> {
        Some(self.image.grid())
    }
}
