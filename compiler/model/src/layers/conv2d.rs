//! `conv2d`: a convolution over a grid of tokens, of all columns together or of each by itself.
//!
//! With a stride it gives fewer tokens than the state has: such a value stands where attention reads keys and values and nowhere else (`fewer.rs`).

use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads, Start,
    TypeResult, Weights, part_of,
};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn};
use odec_program::Window;

/// Longest side of a square.
const MAX_KERNEL: u64 = 11;
/// Most tokens from a square to the next.
const MAX_STRIDE: u64 = 8;

const X: Argument = Argument::operand("x", "the value whose rows are convolved");
const DEPTHWISE: Argument = Argument::flag("depthwise", "each column is convolved by itself");
const BIAS: Argument = Argument::flag("bias", "a number for each column is added");
const KERNEL: Argument = Argument::size(
    "kernel",
    "side of the square of tokens that are multiplied, an odd number; 11 at most",
);
pub(super) const STRIDE: Argument = Argument::count(
    "stride",
    1,
    "tokens from one square to the next, along both axes; above 1 only of keys and values, `attend(q, conv2d(…, stride: 2) |> …, …)`",
);
const COLUMNS: Argument = Argument::whole(
    "columns",
    "the width of the input",
    "columns of the result; not with `depthwise`",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Conv2d {
    x: Network,
    weight: String,
    bias: Option<String>,
    /// Columns of the result, and those that each of them is made of.
    columns: u64,
    inputs: u64,
    pub(super) window: Window,
    /// Rows before the grid, which stay as they are.
    leading: u64,
    depthwise: bool,
}

impl Layer for Conv2d {
    const NAME: &'static str = "conv2d";
    const ABOUT: About = About {
        summary: "A convolution over the grid of a state's tokens, whose sides are padded with zeros. A class token before the grid stays as it is.",
        formula: "y[i, j] = Σ W[.., a, b] x[stride·i + a − p, stride·j + b − p] + b, p = (kernel − 1)/2",
        source: "LeCun et al. 1989, Neural Computation 1; depthwise, before attention: Wu et al. 2021, ICCV",
        notes: &[
            "The grid is that of the last `embed conv(…)`.",
            "Parameters are those of PyTorch's `Conv2d`: `weight` [columns, width, kernel, kernel], with `depthwise` [width, 1, kernel, kernel], and `bias` [columns].",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[DEPTHWISE, BIAS, X, KERNEL, STRIDE, COLUMNS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "conv2d(kernel: 3, depthwise, bias)",
            meaning: "nine tokens, each column by itself",
        },
        Example {
            text: "conv2d(kernel: 3, columns: 2*width)",
            meaning: "all columns together, to twice the width",
        },
    ];
    const ROLE: Option<&'static str> = Some("conv2d");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let may_be_fewer = r.take_fewer();
        let depthwise = r.flag(&DEPTHWISE);
        let bias = r.flag(&BIAS);
        let x = r.operands([&X]);
        let kernel_expr = r.needed(&KERNEL);
        // All taken before anything can be wrong: what is left is called unknown.
        let stride_expr = r.given(&STRIDE);
        let columns = r.given(&COLUMNS);
        let paths = r.paths();
        let [(x, width)] = x?;
        let kernel_expr = kernel_expr?;
        let kernel = r.whole(kernel_expr, MAX_KERNEL)?;
        let stride = match stride_expr {
            Some(e) => r.whole(e, MAX_STRIDE)?,
            None => 1,
        };
        if kernel.is_multiple_of(2) {
            let message = format!("{kernel} × {kernel} tokens have none in the middle");
            let d = Diagnostic::error(codes::INCOMPATIBLE, kernel_expr.span, message)
                .label("an odd side is expected")
                .help(format!("write `kernel: {}`", kernel + 1));
            return r.fail(d);
        }
        let stride_at = stride_expr.map_or(r.span(), |e| e.span);
        if stride > 1 && !may_be_fewer {
            let message = "a stride leaves fewer tokens than the state has";
            let d = Diagnostic::error(codes::MISPLACED, stride_at, message)
                .label("only attention reads a value of other tokens")
                .help("write it among keys and values: `attend(q, conv2d(…, stride: 2) |> linear, conv2d(…, stride: 2) |> linear, heads: …)`");
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
        let grid = match r.grid() {
            Some(grid) if grid.fixed => grid,
            found => {
                let message = "the tokens of this state stand on no grid";
                let d = Diagnostic::error(codes::INCOMPATIBLE, r.span(), message);
                let d = d.label("`conv2d` reads the tokens beside each");
                return r.fail(match found {
                    Some(_) => d.help("begin with `embed conv(kernel: 1, width: …)` in the place of `embed linear(width: …)`"),
                    None => d.help("write `conv(kernel: …)` for tokens in a row, or begin with `input image(size: …)` and `embed conv(…)`"),
                });
            }
        };
        if grid.leading > 0 && columns != width {
            let message = format!("a class token of {width} columns does not become one of {columns}");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, r.span(), message);
            return r.fail(d.label("the row before the grid stays as it is"));
        }
        let padding = (kernel - 1) / 2;
        let before = r.messages();
        squares_fit(grid.sides, [kernel, stride, padding], [kernel_expr.span, stride_at], before);
        let window = Window::fitted(grid.sides, kernel, stride, padding)?;
        let part = if depthwise { "depthwise" } else { "conv2d" };
        let conv = Conv2d {
            x,
            weight: paths.path(part, "weight"),
            bias: bias.then(|| paths.path(part, "bias")),
            columns,
            inputs: if depthwise { 1 } else { width },
            window,
            leading: grid.leading,
            depthwise,
        };
        Some((conv, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        let side = u64::from(self.window.kernel);
        let weight = LayerParam {
            path: self.weight.clone(),
            shape: vec![self.columns, self.inputs, side, side],
            start: Start::Normal,
        };
        let bias = self.bias.iter();
        let bias = bias.map(|path| LayerParam::vector(path, self.columns, Start::Zeros));
        let own = [weight].into_iter().chain(bias);
        self.x.params().into_iter().chain(own).collect()
    }

    fn reads(&self) -> Reads {
        self.x.reads().and(Reads {
            later_tokens: true,
            padding: true,
            all_tokens: true,
            grid: true,
            ..Reads::default()
        })
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let x = values(std::slice::from_ref(&self.x), b, at, w)?[0];
        let weight = w.param(b, &self.weight)?;
        let bias = match &self.bias {
            Some(path) => Some(w.param(b, path)?),
            None => None,
        };
        let map = nn::Affine { weight, bias };
        at.place(b, part_of(&self.weight), |b| {
            nn::behind(b, x, self.leading, |b, x| match self.depthwise {
                true => nn::depthwise2d(b, x, self.window, map),
                false => nn::conv2d(b, x, self.window, map),
            })
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

/// Says so where squares of a kernel's side, a stride apart and with so much padding, do not lie over a grid. `at`: where kernel and stride are said.
pub fn squares_fit(
    sides: [u64; 2],
    [kernel, stride, padding]: [u64; 3],
    at: [Span; 2],
    sink: &mut Vec<Diagnostic>,
) {
    let [height, width] = sides;
    let (least, padded) = (height.min(width), |side: u64| side + 2 * padding);
    let d = if kernel > padded(least) {
        let message = format!("a square of {kernel} × {kernel} is larger than the grid");
        let d = Diagnostic::error(codes::OUT_OF_RANGE, at[0], message);
        match padding {
            0 => d.label(format!("the grid has {height} × {width} tokens")),
            _ => d.label(format!(
                "the grid has {height} × {width} tokens, with padding {} × {}",
                padded(height),
                padded(width)
            )),
        }
    } else if padding >= kernel {
        let message = format!("with {padding} rows of zeros, squares of {kernel} × {kernel} lie beside the grid");
        let d = Diagnostic::error(codes::OUT_OF_RANGE, at[0], message);
        d.label("a side longer than the padding is expected")
    } else if stride > height.max(width) {
        let message = format!("a stride of {stride} steps over the grid");
        let d = Diagnostic::error(codes::OUT_OF_RANGE, at[1], message);
        d.label(format!("the grid has {height} × {width} tokens"))
    } else {
        return;
    };
    sink.push(d);
}
