//! `images`: files of images with their classes.

use super::{DataSource, Ends, NamedTokenizer};
use crate::arguments::{Argument, Silent};
use crate::codes;
use crate::layers::MAX_WIDTH;
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use crate::scheme::args::Bounds;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{self, Data, Form, Predicts};

const FILES: Argument = Argument::paths("files", "images, one file after the other");
const CLASSES: Argument = Argument::size("classes", "how many classes there are");
const MEAN: Argument = Argument::number(
    "mean",
    Bounds::Share,
    Silent::Ratio(0, 1),
    "what is subtracted from each number of a pixel",
);
const STD: Argument = Argument::number(
    "std",
    Bounds::Positive,
    Silent::Ratio(1, 1),
    "what is left is divided by this",
);
const CROP: Argument = Argument::index(
    "crop",
    0,
    "each image of a training step is shifted by up to so many pixels, up or down and left or right",
);
const FLIP: Argument = Argument::flag(
    "flip",
    "half of the images of a training step have left and right changed",
);
const HELD_OUT: Argument = Argument::percent(
    "held_out",
    (1, 50),
    10,
    "how many of them are kept for evaluation",
);

/// What is said after a share that is out of range.
const NOT_HELD_OUT: &str = "of the images cannot be held out";

#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    files: Vec<String>,
    classes: u64,
    /// Where their number is said, and all of it.
    at: [Span; 2],
    mean: f64,
    std: f64,
    crop: u64,
    flip: bool,
    held_out_percent: u32,
}

impl Part for Images {
    const DECLARATION: Declaration = Declaration {
        name: "images",
        about: About {
            summary: "Images with the number of a class for each, cut into the patches that the model reads.",
            formula: "(n − mean) / std for each number n of a pixel, from 0 to 1",
            source: "",
            notes: &[
                "All images have the size of the model's `patches`. An image of another size, and a class that is not below `classes`, are named when they are read.",
                "Shifts and flips are drawn anew for each step and row, by the seed. Pixels that a shift uncovers are 0 before `mean` is subtracted: black. Held-out images are read as they are.",
                "Paths are relative to the folder in which the command runs; `--data` names other files.",
            ],
        },
        arguments: &[FILES, CLASSES, MEAN, STD, CROP, FLIP, HELD_OUT],
        examples: &[
            Example {
                text: "data images(\"data/mnist.npz\", classes: 10, mean: 0.1307, std: 0.3081)",
                meaning: "digits, as training on MNIST normalises them",
            },
            Example {
                text: "data images(\"photos\", classes: 10, mean: 0.5, std: 0.25, crop: 4, flip)",
                meaning: "photographs, shifted and flipped while the model is trained",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let files = r.paths(&FILES);
        let classes = r.placed_size(&CLASSES, MAX_WIDTH);
        let (mean, std) = (r.number(&MEAN), r.number(&STD));
        let (crop, flip) = (r.count(&CROP, MAX_WIDTH), r.flag(&FLIP));
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        let (classes, at) = classes?;
        Some(Images {
            files: files?,
            classes,
            at: [at, r.span()],
            mean: mean?,
            std: std?,
            crop: crop?,
            flip,
            held_out_percent: held_out_percent?,
        })
    }
}

impl DataSource for Images {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let [classes, all] = self.at;
        let Some(image) = of.input.image() else {
            let d = incompatible(all, "`images` are cut into patches");
            let d = d.label(format!("this model reads {}", of.input.unit().many()));
            sink.push(d.help("write `input patches(image: 28, patch: 4)`"));
            return None;
        };
        let side = image.height.min(image.width);
        if self.crop >= side {
            let message = format!("a shift by {} pixels leaves nothing of an image of {side}", self.crop);
            let d = Diagnostic::error(codes::OUT_OF_RANGE, all, message);
            sink.push(d.label(format!("a `crop` below {side} is expected")));
            return None;
        }
        let told = of.output.columns(of.sizes);
        // Where a model is told the time, it moves from noise to images.
        let moves = of.told.time && of.output.says() == Predicts::Numbers;
        let differ = match moves {
            true => of.told.classes.filter(|n| *n != self.classes).map(|n| {
                (
                    format!("`label_token` has a column for each of {n}"),
                    format!("write `label_token(classes: {})`", self.classes),
                )
            }),
            false => (of.output.says() != Predicts::Class || told != self.classes).then(|| {
                (
                    format!("the model tells {told} apart"),
                    format!("write `output … |> classes({})`", self.classes),
                )
            }),
        };
        if let Some((differ, help)) = differ {
            let message = format!("images of {} classes, and {differ}", self.classes);
            let d = Diagnostic::error(codes::VOCABULARY_MISMATCH, classes, message);
            sink.push(d.help(help));
            return None;
        }
        Some(Data {
            files: self.files.clone(),
            form: Form::Images(manifest::Images {
                height: image.height,
                width: image.width,
                channels: image.channels,
                patch: image.patch,
                classes: self.classes,
                mean: self.mean,
                std: self.std,
                crop: self.crop,
                flip: self.flip,
                leading: of.leading,
                // The loss says whether there is one (`train.rs`).
                flow: None,
            }),
            held_out_percent: self.held_out_percent,
        })
    }

    fn has_targets(&self, _: &OutputSpec) -> bool {
        false
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        None
    }
}
