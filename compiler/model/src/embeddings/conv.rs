//! `conv`: a convolution over a grid of tokens, which gives a grid of tokens.

use super::{EmbedScope, Embedding, without_rows};
use crate::arguments::Argument;
use crate::codes;
use crate::inputs::Input;
use crate::layers::{Grid, LayerParam, MAX_WIDTH, Start, squares_fit};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, TypeError, TypeResult, Value, nn};
use odec_program::Window;

const NORM: Argument = Argument::flag("norm", "a layernorm of the result");
const BIAS: Argument = Argument::flag("bias", "the map has a bias");
const KERNEL: Argument = Argument::size("kernel", "side of the square of tokens that are multiplied; 16 at most");
const STRIDE: Argument = Argument::count("stride", 1, "tokens from one square to the next, along both axes");
const PADDING: Argument = Argument::index("padding", 0, "rows and columns of zeros around the grid");
const WIDTH: Argument = Argument::size("width", "columns of the state");

/// Longest side of a square.
const MAX_KERNEL: u64 = 16;

/// The part of a site, and the parameters below `embed`.
const PART: &str = "conv";
const WEIGHT: &str = "conv.weight";
const BIAS_PATH: &str = "conv.bias";
const NORM_PART: &str = "norm";
const GAIN: &str = "norm.gain";
const SHIFT: &str = "norm.bias";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    kernel: u64,
    stride: u64,
    padding: u64,
    width: u64,
    bias: bool,
    norm: bool,
    /// Where the kernel is said, and where the stride or all is.
    at: [Span; 2],
}

impl Part for Conv {
    const DECLARATION: Declaration = Declaration {
        name: "conv",
        about: About {
            summary: "A convolution over a grid of tokens: a token for each square, linear in all numbers of the tokens under it.",
            formula: "x[i, j] = Σ W[.., a, b] input[stride·i + a − padding, stride·j + b − padding] + b; (side + 2·padding − kernel)/stride + 1 rows and columns, rounded down",
            source: "Wu et al. 2021, ICCV, section 3.1 (with `norm`); Xiao et al. 2021, NeurIPS, for a stem",
            notes: &[
                "Parameters are those of PyTorch's `Conv2d`: `weight` [width, numbers at a token, kernel, kernel] and `bias`; `norm` adds those of a layernorm.",
                "In fields, `width` stands for this number and `context` for all rows of the state.",
                "Between evolves it begins a stage: its state is made of the one before it, and its parameters are named after the evolve that follows, `two.embed.conv.weight`.",
            ],
        },
        arguments: &[NORM, BIAS, KERNEL, STRIDE, PADDING, WIDTH],
        examples: &[
            Example {
                text: "embed conv(kernel: 7, stride: 4, padding: 2, width: 64, bias, norm)",
                meaning: "the first stage of CvT",
            },
            Example {
                text: "embed conv(kernel: 3, stride: 2, padding: 1, width: 192, bias, norm)",
                meaning: "between evolves: the next stage, a quarter as many tokens",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let (norm, bias) = (r.flag(&NORM), r.flag(&BIAS));
        let kernel = r.placed_size(&KERNEL, MAX_KERNEL);
        let stride = r.placed_count(&STRIDE, MAX_KERNEL);
        let padding = r.count(&PADDING, MAX_KERNEL);
        let width = r.size(&WIDTH, MAX_WIDTH);
        let ((kernel, at), (stride, stride_at)) = (kernel?, stride?);
        Some(Conv {
            kernel,
            stride,
            padding: padding?,
            width: width?,
            bias,
            norm,
            at: [at, stride_at],
        })
    }
}

impl Conv {
    fn window(&self, of: &dyn Input) -> Option<Window> {
        Window::fitted(of.grid()?, self.kernel, self.stride, self.padding)
    }
}

impl Embedding for Conv {
    fn width(&self, _: &dyn Input) -> u64 {
        self.width
    }

    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        let Some(sides) = of.grid() else {
            let d = incompatible(span, "`conv` lays squares over a grid of tokens");
            let what = of.unit().of_a_row();
            sink.push(match of.vocab() {
                Some(_) => d.label(format!("this model reads {what}")).help("write `embed learned(width: …)`, and `conv(kernel: …)` in a field"),
                None if of.unit().is_of_image() => d
                    .label("a class token stands before the grid here")
                    .help("write `class_token` in the last `embed` alone, as CvT does"),
                None => d.label(format!("this model reads {what}")).help("write `input image(size: 28, channels: 1)`"),
            });
            return;
        };
        squares_fit(sides, [self.kernel, self.stride, self.padding], self.at, sink);
        let columns = of.value().ty.cols().saturating_mul(self.kernel * self.kernel);
        if columns > MAX_WIDTH {
            let message = format!("{columns} numbers under a square");
            let d = Diagnostic::error(codes::TOO_LARGE, self.at[0], message);
            sink.push(d.label(format!("at most {MAX_WIDTH} are expected")));
        }
    }

    fn params(&self, of: &dyn Input) -> Vec<LayerParam> {
        let weight = LayerParam {
            path: WEIGHT.into(),
            shape: vec![self.width, of.value().ty.cols(), self.kernel, self.kernel],
            start: Start::Normal,
        };
        let vector = |path, start| LayerParam::vector(path, self.width, start);
        let bias = || vector(BIAS_PATH, Start::Zeros);
        let norm = || [vector(GAIN, Start::Ones), vector(SHIFT, Start::Zeros)];
        let bias = self.bias.then(bias).into_iter();
        let norm = self.norm.then(norm).into_iter().flatten();
        [weight].into_iter().chain(bias).chain(norm).collect()
    }

    fn table(&self) -> Option<&'static str> {
        None
    }

    fn grid(&self, of: &dyn Input) -> Option<Grid> {
        let [height, width] = self.window(of)?.windows.map(u64::from);
        Some(Grid {
            sides: [height, width],
            leading: 0,
            fixed: true,
        })
    }

    fn build(
        &self,
        b: &mut Builder,
        (of, input): (&dyn Input, Value),
        w: &mut dyn EmbedScope,
    ) -> TypeResult {
        let window = self.window(of).ok_or_else(|| TypeError {
            op: "conv",
            what: "no square fits into the grid".into(),
        })?;
        let weight = w.param(b, WEIGHT)?;
        let bias = match self.bias {
            true => Some(w.param(b, BIAS_PATH)?),
            false => None,
        };
        let norm = match self.norm {
            true => Some([w.param(b, GAIN)?, w.param(b, SHIFT)?]),
            false => None,
        };
        let x = b.part(PART, |b| nn::conv2d(b, input, window, nn::Affine { weight, bias }))?;
        match norm {
            None => Ok(x),
            Some([gain, bias]) => {
                let eps = Exact::ratio(1, 100_000);
                b.part(NORM_PART, |b| nn::layernorm(b, x, gain, bias, &eps))
            }
        }
    }

    fn read_by(&self, _: &mut Builder, _: Value, _: &mut dyn EmbedScope) -> TypeResult {
        without_rows(Self::DECLARATION.name)
    }
}
