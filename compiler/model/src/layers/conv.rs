//! `conv`: a convolution along the tokens of a text, of all columns together or of each by itself.
//!
//! Weights are read in the order in which PyTorch's `Conv1d` keeps them; the kernels read a tap after the other, so a transpose stands between.

use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads, Start,
    TypeResult, Weights, part_of,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{Add, Transpose};
use odec_graph::{Builder, Value, nn};

/// Most tokens that are multiplied.
const MAX_KERNEL: u64 = 64;
/// Most tokens from one that is multiplied to the next.
const MAX_DILATION: u64 = 1 << 16;

const X: Argument = Argument::operand("x", "the value whose rows are convolved");
const CAUSAL: Argument = Argument::flag(
    "causal",
    "a token sees itself and tokens before it; without it, as many tokens before as after it",
);
const DEPTHWISE: Argument = Argument::flag("depthwise", "each column is convolved by itself");
const BIAS: Argument = Argument::flag("bias", "a number for each column is added");
const KERNEL: Argument = Argument::size("kernel", "tokens that are multiplied; 64 at most");
const DILATION: Argument = Argument::whole(
    "dilation",
    "1",
    "tokens from one that is multiplied to the next",
);
const COLUMNS: Argument = Argument::whole(
    "columns",
    "the width of the input",
    "columns of the result; not with `depthwise`",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    x: Network,
    weight: String,
    bias: Option<String>,
    /// Columns of the result, and those that each of them is made of.
    columns: u64,
    inputs: u64,
    /// How many tokens before (after, if negative) each tap reads.
    by: Vec<i32>,
    depthwise: bool,
}

impl Layer for Conv {
    const NAME: &'static str = "conv";
    const ABOUT: About = About {
        summary: "A convolution along the tokens of a text, whose ends are padded with zeros.",
        formula: "y[t] = Σₖ W[.., k] x[t − (kernel − 1 − k) · dilation] + b; centred, dilation · (kernel − 1)/2 tokens later",
        source: "LeCun et al. 1989, Neural Computation 1; dilated: Yu & Koltun 2016, ICLR",
        notes: &[
            "Parameters are those of PyTorch's `Conv1d`: `weight` [columns, width, kernel], with `depthwise` [width, 1, kernel], and `bias` [columns]. Weights start as matrices do, biases at zero.",
            "While text is generated, as many rows are kept as it reaches back: a number for each column.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[CAUSAL, DEPTHWISE, BIAS, X, KERNEL, DILATION, COLUMNS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "conv(kernel: 4, causal, depthwise, bias)",
            meaning: "four tokens, each column by itself, as in Mamba",
        },
        Example {
            text: "conv(kernel: 3, causal, dilation: 2)",
            meaning: "tokens t, t − 2 and t − 4, all columns together",
        },
        Example {
            text: "conv(kernel: 3, columns: 2*width, bias)",
            meaning: "the tokens before and after as well, to twice the width",
        },
        Example {
            text: "conv(rmsnorm |> linear(12), kernel: 5, depthwise)",
            meaning: "of a value that is computed from the input",
        },
    ];
    const ROLE: Option<&'static str> = Some("conv");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let causal = r.flag(&CAUSAL);
        let depthwise = r.flag(&DEPTHWISE);
        let bias = r.flag(&BIAS);
        let x = r.operands([&X]);
        let kernel_expr = r.needed(&KERNEL);
        // All taken before anything can be wrong: what is left is called unknown.
        let dilation = r.given(&DILATION);
        let columns = r.given(&COLUMNS);
        let paths = r.paths();
        let [(x, width)] = x?;
        let kernel_expr = kernel_expr?;
        let kernel = r.whole(kernel_expr, MAX_KERNEL)?;
        let dilation = match dilation {
            Some(e) => r.whole(e, MAX_DILATION)?,
            None => 1,
        };
        if !causal && kernel.is_multiple_of(2) {
            if r.misspelt(&CAUSAL) {
                return None;
            }
            let message = format!("{kernel} tokens have none in the middle");
            let d = Diagnostic::error(codes::INCOMPATIBLE, kernel_expr.span, message)
                .label("a centred convolution takes an odd number of tokens")
                .help(format!(
                    "write `kernel: {}`, or `causal` for the tokens up to the current one",
                    kernel + 1
                ));
            return r.fail(d);
        }
        let columns = match columns {
            Some(e) if depthwise => {
                let message = "`columns` does not go with `depthwise`";
                let d = Diagnostic::error(codes::INCOMPATIBLE, e.span, message);
                return r.fail(d.label("each column of the input gives one of the result"));
            }
            Some(e) => r.whole(e, MAX_WIDTH)?,
            None => width,
        };
        let part = if depthwise { "depthwise" } else { "conv" };
        let conv = Conv {
            x,
            weight: paths.path(part, "weight"),
            bias: bias.then(|| paths.path(part, "bias")),
            columns,
            inputs: if depthwise { 1 } else { width },
            by: distances(kernel, dilation, causal),
            depthwise,
        };
        Some((conv, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        let weight = LayerParam {
            path: self.weight.clone(),
            shape: vec![self.columns, self.inputs, self.by.len() as u64],
            start: Start::Normal,
        };
        let bias = self.bias.iter();
        let bias = bias.map(|path| LayerParam::vector(path, self.columns, Start::Zeros));
        let own = [weight].into_iter().chain(bias);
        self.x.params().into_iter().chain(own).collect()
    }

    fn reads(&self) -> Reads {
        let width = if self.depthwise {
            self.columns
        } else {
            self.inputs
        };
        self.x.reads().and(Reads::shifted(&self.by, width))
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let x = values(std::slice::from_ref(&self.x), b, at, w)?[0];
        let weight = w.param(b, &self.weight)?;
        let bias = match &self.bias {
            Some(path) => Some(w.param(b, path)?),
            None => None,
        };
        let kernel = self.by.len() as u64;
        at.place(b, part_of(&self.weight), |b| {
            let y = match self.depthwise {
                true => {
                    let (rows, to) = (self.columns, vec![self.columns * kernel]);
                    let taps = b.push1(Transpose { rows, to }, &[weight])?;
                    w.depthwise(b, x, taps, &self.by)?
                }
                false => {
                    let (rows, to) = (self.inputs, vec![self.columns, self.inputs * kernel]);
                    let matrix = b.push1(Transpose { rows, to }, &[weight])?;
                    let rows = w.shifted(b, x, &self.by)?;
                    nn::linear(b, rows, matrix)?
                }
            };
            match bias {
                Some(bias) => b.push1(Add, &[y, bias]),
                None => Ok(y),
            }
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

/// How far before a token each tap reads, the earliest token first.
fn distances(kernel: u64, dilation: u64, causal: bool) -> Vec<i32> {
    let middle = if causal { 0 } else { (kernel - 1) / 2 };
    let distance = |k: u64| (kernel - 1 - k) as i32 - middle as i32;
    (0..kernel).map(|k| distance(k) * dilation as i32).collect()
}
