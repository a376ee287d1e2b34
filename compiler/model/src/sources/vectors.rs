//! `vectors`: arrays of numbers, with the numbers that are predicted for them.

use super::{DataSource, Ends, NamedTokenizer};
use crate::arguments::{Argument, Silent};
use crate::inputs::Unit;
use crate::outputs::Output;
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use crate::scheme::args::Bounds;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::Dim;
use odec_program::manifest::{self, Data, Form, Predicts, Target};

/// Largest magnitude of a mean.
const MOST: f64 = 1e30;

const FILES: Argument = Argument::paths("files", "arrays, one file after the other");
const INPUTS: Argument = Argument::text("inputs", "x", "the array of what the model reads");
const TARGETS: Argument = Argument::text("targets", "y", "the array of what it predicts");
const MEAN: Argument = Argument::number(
    "mean",
    Bounds::Within(-MOST, MOST),
    Silent::Ratio(0, 1),
    "what is subtracted from each number of an input",
);
const STD: Argument = Argument::number(
    "std",
    Bounds::Positive,
    Silent::Ratio(1, 1),
    "what is left is divided by this",
);
const HELD_OUT: Argument = Argument::percent(
    "held_out",
    (1, 50),
    10,
    "how many of them are kept for evaluation",
);

/// What is said after a share that is out of range.
const NOT_HELD_OUT: &str = "of the sequences cannot be held out";

#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    files: Vec<String>,
    inputs: String,
    targets: String,
    span: Span,
    mean: f64,
    std: f64,
    held_out_percent: u32,
}

impl Part for Vectors {
    const DECLARATION: Declaration = Declaration {
        name: "vectors",
        about: About {
            summary: "Sequences of vectors, and the numbers or the class that the model predicts for each; or those that it moves noise to.",
            formula: "inputs [n, positions, width], (x − mean) / std; targets [n, positions, m], or [n, m] for outputs that say one thing of a sequence, or classes [n]",
            source: "",
            notes: &[
                "Files named `….npz` hold both arrays. Of a file named `….npy`, whose name has the word that `inputs` says, the targets are in the file beside it that has the word of `targets` in its place: `train-x.npy`, `train-y.npy`.",
                "Numbers are real, of 4 or 8 bytes; classes, which `classes(m)` tells, are whole ones from 0 to m − 1. All are read before training begins: an array of another shape, and a number that is none, are named. Targets of `bce` are from 0 to 1.",
                "An output with a label is compared with the array of that name: `output kind: layernorm |> classes(3)` with `kind`, in the same archive, or in the file beside that has this word.",
                "With `loss velocity` noise is moved to the inputs, whose sequences are as long as the context. `targets` are the classes that `label_token` is told, and are not read without one.",
                "Which sequences are held out is drawn, once for all; training goes through all others before any comes again.",
            ],
        },
        arguments: &[FILES, INPUTS, TARGETS, MEAN, STD, HELD_OUT],
        examples: &[Example {
            text: "data vectors(\"train.npz\", inputs: \"x\", targets: \"y\", held_out: 20%)",
            meaning: "with `output rmsnorm |> linear(3)` and `loss mse`, or `output rmsnorm |> classes(10)`",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let files = r.paths(&FILES);
        let (inputs, targets) = (r.text(&INPUTS), r.text(&TARGETS));
        let (mean, std) = (r.number(&MEAN), r.number(&STD));
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        Some(Vectors {
            files: files?,
            inputs: inputs?,
            targets: targets?,
            span: r.span(),
            mean: mean?,
            std: std?,
            held_out_percent: held_out_percent?,
        })
    }
}

impl Vectors {
    /// Of a model that is told the time: it moves from noise to the inputs, and is told their classes, if any.
    fn flow(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        if let Some(other) = of.also.first() {
            let message = "a model that moves from noise to vectors has one output";
            let d = incompatible(other.span, message);
            sink.push(d.help("leave this one out"));
            return None;
        }
        let class = |classes| Target {
            output: String::new(),
            array: self.targets.clone(),
            columns: classes,
            whole: true,
            events: false,
            classes: true,
        };
        Some(self.data_with(of, of.told.classes.map(class).into_iter().collect()))
    }

    /// What runs are told, with these targets.
    fn data_with(&self, of: Ends, targets: Vec<Target>) -> Data {
        Data {
            files: self.files.clone(),
            form: Form::Vectors(manifest::Vectors {
                inputs: self.inputs.clone(),
                positions: of.input.context(),
                width: of.input.value().ty.cols(),
                targets,
                mean: self.mean,
                std: self.std,
                leading: of.leading,
                // The loss says whether there is one (`train.rs`).
                flow: None,
            }),
            held_out_percent: self.held_out_percent,
        }
    }
}

impl DataSource for Vectors {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        if of.input.unit() != Unit::Vector {
            let d = incompatible(self.span, "`vectors` are sequences of vectors");
            let d = d.label(format!("this model reads {}", of.input.unit().many()));
            sink.push(d.help("write `input vectors(width: 12, context: 100)`"));
            return None;
        }
        if of.told.time && of.output.says() == Predicts::Numbers {
            return self.flow(of, sink);
        }
        let target = |label: &str, array: &str, output: &dyn Output| {
            let classes = match output.says() {
                Predicts::Numbers => false,
                Predicts::Class => true,
                Predicts::Tokens => return None,
            };
            let rows = output.targets(of.sizes).ty;
            Some(Target {
                output: label.into(),
                array: array.into(),
                columns: output.columns(of.sizes),
                whole: rows.shape.get(1) == Some(&Dim::Fixed(1)),
                // The loss says whether they are (`train.rs`).
                events: false,
                classes,
            })
        };
        let first = target("", &self.targets, of.output);
        let others = of.also.iter().map(|o| target(&o.label, &o.label, &*o.kind));
        let targets: Option<Vec<Target>> = [first].into_iter().chain(others).collect();
        let Some(targets) = targets else {
            let d = incompatible(self.span, "`vectors` have numbers or a class to compare with");
            let d = d.label("this model tells tokens");
            sink.push(d.help("write `output … |> linear(3)` and `loss mse`, or `output … |> classes(10)`"));
            return None;
        };
        let arrays = || [&self.inputs, &self.targets];
        if let Some(o) = of.also.iter().find(|o| arrays().contains(&&o.label)) {
            let message = format!("the array `{}` is that of another output, or of the input", o.label);
            let d = incompatible(o.span, &message).also(self.span, "named here");
            sink.push(d.help("give the output another label: what it is compared with is the array of its label"));
            return None;
        }
        Some(self.data_with(of, targets))
    }

    fn has_targets(&self, _: &OutputSpec) -> bool {
        true
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        None
    }
}
