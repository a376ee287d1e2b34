//! `linear`: a linear map of the numbers at each position.

use super::{EmbedScope, Embedding};
use crate::arguments::Argument;
use crate::inputs::Input;
use crate::layers::{Grid, LayerParam, MAX_WIDTH, Start};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{MatMul, matmul::Layout};
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::Dim;

const WIDTH: Argument = Argument::size("width", "columns of the state");
const BIAS: Argument = Argument::flag("bias", "the map has a bias");

/// The part of a site, and the parameters below `embed`.
const PART: &str = "linear";
const WEIGHT: &str = "linear.weight";
const BIAS_PATH: &str = "linear.bias";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    width: u64,
    bias: bool,
}

impl Part for Linear {
    const DECLARATION: Declaration = Declaration {
        name: "linear",
        about: About {
            summary: "A linear map of the numbers at each position, which is trained.",
            formula: "x = input·Wᵀ + b, W [width, numbers at a position]",
            source: "Dosovitskiy et al. 2021, ICLR, eq. 1",
            notes: &["In fields, `width` stands for this number."],
        },
        arguments: &[WIDTH, BIAS],
        examples: &[Example {
            text: "embed linear(width: 512, bias)",
            meaning: "patches of images; ViT adds `positions(learned)`",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let width = r.size(&WIDTH, MAX_WIDTH);
        let bias = r.flag(&BIAS);
        Some(Linear {
            width: width?,
            bias,
        })
    }
}

impl Embedding for Linear {
    fn width(&self, _: &dyn Input) -> u64 {
        self.width
    }

    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        if of.vocab().is_some() {
            let d = incompatible(span, "`linear` maps the numbers at each position");
            let d = d.label("the positions of this model's input hold tokens");
            sink.push(d.help(format!("write `embed learned(width: {})`", self.width)));
        }
    }

    fn params(&self, of: &dyn Input) -> Vec<LayerParam> {
        let weight = LayerParam {
            path: WEIGHT.into(),
            shape: vec![self.width, of.value().ty.cols()],
            start: Start::Normal,
        };
        let bias = || LayerParam::vector(BIAS_PATH, self.width, Start::Zeros);
        [weight].into_iter().chain(self.bias.then(bias)).collect()
    }

    fn table(&self) -> Option<&'static str> {
        None
    }

    fn grid(&self, of: &dyn Input) -> Option<Grid> {
        let fixed = matches!(of.value().ty.tokens(), Dim::Fixed(_));
        of.grid().map(|sides| Grid {
            sides,
            leading: 0,
            fixed,
        })
    }

    fn build(
        &self,
        b: &mut Builder,
        (_, input): (&dyn Input, Value),
        w: &mut dyn EmbedScope,
    ) -> TypeResult {
        let weight = w.param(b, WEIGHT)?;
        let bias = match self.bias {
            true => Some(w.param(b, BIAS_PATH)?),
            false => None,
        };
        b.part(PART, |b| nn::affine(b, input, nn::Affine { weight, bias }))
    }

    /// Columns of the state become those of the input. A bias would add the same number to all that an output says of a row.
    fn read_by(&self, b: &mut Builder, state: Value, w: &mut dyn EmbedScope) -> TypeResult {
        let weight = w.param(b, WEIGHT)?;
        b.part(PART, |b| b.push1(MatMul::new(Layout::Nn), &[state, weight]))
    }
}
