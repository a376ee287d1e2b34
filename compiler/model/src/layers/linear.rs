//! `linear`: one linear map of each token's columns, with a matrix of its own or one that the body around it has.

use super::arguments::Silent;
use super::network::Network;
use super::reading::Matrix;
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, MAX_WIDTH, Map, Reading,
    Reads, Start, TypeResult, Weights, part_of,
};
use crate::codes;
use crate::scheme::scalar::name_of;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Add;
use odec_graph::{Builder, Value, nn};

const BIAS: Argument = Argument::flag("bias", "the map has a bias");
const ZERO: Argument = Argument::flag("zero", "the map starts at 0");
const TRANSPOSED: Argument = Argument::flag(
    "transposed",
    "by the transpose of a matrix that the body around it learns",
);
const COLUMNS: Argument = Argument::unnamed(
    "columns",
    Form::UnnamedWhole,
    Silent::Follows("the width of the state"),
    "columns of the result; or a matrix that the body around it learns, `learn w[columns, width] = normal`, or computes of such: `linear(softplus(w))`; several maps may share it. Of a list of matrices, `learn w[heads, columns, width/heads] = normal`, each head's columns meet their own",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    map: Map,
    zero: bool,
    shared: Option<Shared>,
}

/// A matrix of the body, or one for each head.
#[derive(Clone, Debug, PartialEq)]
struct Shared {
    of: Network,
    /// How many there are, where there is a list of them.
    heads: Option<u64>,
    /// Whether it multiplies by the transpose.
    transposed: bool,
}

impl Layer for Linear {
    const NAME: &'static str = "linear";
    const ABOUT: About = About {
        summary: "A linear map of each token's columns.",
        formula: "x Wᵀ + b, W [columns, width]; with `transposed` x W + b, W [width, columns]",
        source: "",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[BIAS, ZERO, TRANSPOSED, COLUMNS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "linear(4*width)",
            meaning: "to another width, for what comes after it in the field",
        },
        Example {
            text: "linear(bias)",
            meaning: "to the width of the state, with a bias",
        },
        Example {
            text: "linear(bias, zero)",
            meaning: "what it is added to, or multiplied by 1 plus it, is unchanged at the start of training",
        },
    ];
    const ROLE: Option<&'static str> = Some("linear");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let [bias, zero, transposed] = [&BIAS, &ZERO, &TRANSPOSED].map(|a| r.flag(a));
        let said = r.unnamed(&COLUMNS);
        let paths = r.paths();
        if let Some(matrix) = said.and_then(|e| r.matrix(e)) {
            return shared(r, matrix?, (bias, zero, transposed), paths);
        }
        if transposed {
            let message = "`transposed` is said of a matrix that has a name";
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, r.span(), message);
            return r.fail(d.help("write `learn w[rows, width] = normal` in the body, then `linear(w)` and `linear(w, transposed)`"));
        }
        let columns = match said {
            Some(n) if name_of(n).is_none() && r.constant(n).is_none() => {
                let message = "this is neither a number of columns nor a matrix";
                let d = Diagnostic::error(codes::NOT_A_NUMBER, n.span, message);
                return r.fail(d.help("matrices are learned, `learn w[columns, width] = normal`, or made of such by functions and arithmetic: `linear(exp(w))`"));
            }
            Some(n) => r.whole(n, MAX_WIDTH)?,
            None => r.state_width(),
        };
        let map = paths.map("linear", bias, [columns, width]);
        let shared = None;
        Some((Linear { map, zero, shared }, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        let mut params = self.map.params();
        if self.zero {
            params.iter_mut().for_each(|p| p.start = Start::Zeros);
        }
        if let Some(shared) = &self.shared {
            params.remove(0);
            params.extend(shared.of.params());
        }
        params
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let Some(shared) = &self.shared else {
            let map = self.map.build(b, w)?;
            return at.place(b, part_of(&self.map.weight), |b| nn::affine(b, at.x, map));
        };
        let weight = shared.of.value(b, at, w)?;
        let bias = self.map.bias.as_ref();
        let bias = bias.map(|path| w.param(b, path)).transpose()?;
        at.place(b, part_of(&self.map.weight), |b| {
            let y = match (shared.heads, shared.transposed) {
                (Some(heads), transposed) => {
                    nn::linear_heads(b, at.x, weight, (heads, transposed))?
                }
                (None, true) => nn::linear_transposed(b, at.x, weight)?,
                (None, false) => return nn::affine(b, at.x, nn::Affine { weight, bias }),
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

/// A map by the matrix of a body.
fn shared(
    r: &mut Reading,
    matrix: Matrix,
    (bias, zero, transposed): (bool, bool, bool),
    paths: super::naming::Paths,
) -> Option<(Linear, u64)> {
    let width = r.width();
    if zero {
        let message = "`zero` is said where the matrix is learned";
        let d = Diagnostic::error(codes::UNKNOWN_OPTION, r.span(), message);
        return r.fail(d.also(matrix.span, "here").help("write `learn w[…, …] = 0`"));
    }
    let (rows, columns) = (matrix.rows.all(), matrix.rows.count() * matrix.columns);
    let [of, to] = match transposed {
        true => [rows, columns],
        false => [columns, rows],
    };
    if of != width {
        let message = format!("{width} columns meet a matrix for {of}");
        let d = Diagnostic::error(codes::WIDTH_MISMATCH, r.span(), message);
        let d = d.label(format!("what stands before it has {width} columns"));
        let d = d.also(matrix.span, matrix.rows.said(matrix.columns));
        let other = to == width;
        return r.fail(match (other, transposed) {
            (true, false) => d.help("add `transposed`"),
            (true, true) => d.help("leave `transposed` out"),
            (false, _) if matrix.rows.heads.is_some() => d.help("each matrix multiplies the columns of one head: `learn w[heads, rows, width/heads] = normal`; with `transposed`, `learn w[heads, width/heads, columns] = normal`"),
            (false, _) => d.help("`linear(w)` takes as many columns as `w` has, and gives as many as it has rows; with `transposed`, the other way round"),
        });
    }
    let linear = Linear {
        map: paths.map("linear", bias, [to, of]),
        zero,
        shared: Some(Shared {
            of: matrix.of,
            heads: matrix.rows.heads,
            transposed,
        }),
    };
    Some((linear, to))
}
