//! `broadcast`: one column, or one of each head, as many times as there shall be columns.

use super::function::{HEADS as ALL, X};
use super::heads::columns_of_head;
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn, ops};

const TO: Argument = Argument::size("to", "columns of the result");
const HEADS: Argument = Argument::whole(
    ALL.name,
    "one",
    "heads, which divide the columns of the result among them: each has its own column, repeated",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    of: Network,
    heads: u64,
    cols: u64,
}

impl Layer for Repeat {
    const NAME: &'static str = "broadcast";
    const ABOUT: About = About {
        summary: "One column, repeated; or the column of each head.",
        formula: "[x, x, …], x one column; with heads [x₁, x₁, … x₂, x₂, …]",
        source: "",
        notes: &[
            "Functions of two values and arithmetic repeat one column by themselves: `maximum(id, linear(1))`. It is for what does not, such as `concat`, and for numbers of heads: `q*broadcast(s, to: width, heads: 4)`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[X, TO, HEADS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "broadcast(mean, to: width)",
            meaning: "the mean of the columns in place of each",
        },
        Example {
            text: "broadcast(linear(1), to: 3)",
            meaning: "three equal columns",
        },
        Example {
            text: "broadcast(linear(4) |> sigmoid, to: width, heads: 4)",
            meaning: "a gate for each of four heads",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let [(of, width)] = r.operands([&X])?;
        let (said, heads) = (r.needed(&TO), r.given(&HEADS));
        let said = said?;
        let cols = r.whole(said, MAX_WIDTH)?;
        let heads = match heads {
            Some(e) => r.whole(e, MAX_WIDTH)?,
            None => 1,
        };
        columns_of_head(r, said, heads, cols)?;
        if width != heads {
            let message = match heads {
                1 => format!("`broadcast` repeats one column, and this value has {width}"),
                _ => format!("{heads} heads have a column each, and this value has {width}"),
            };
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, r.span(), message);
            return r.fail(match heads {
                1 if cols.is_multiple_of(width) => d.help(format!(
                    "`heads: {width}` repeats each of them; `linear(1)`, `mean` and `columns(from: 0, to: 1)` have one"
                )),
                1 => d.help("`linear(1)`, `mean` and `columns(from: 0, to: 1)` have one"),
                _ => d.help(format!(
                    "`linear({heads})` has {heads}, and so has `sum(heads: {heads})`"
                )),
            });
        }
        Some((Repeat { of, heads, cols }, cols))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.of.params()
    }

    fn reads(&self) -> Reads {
        self.of.reads()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let of = values(std::slice::from_ref(&self.of), b, at, w)?;
        nn::per_head(b, of[0], self.heads, |b, x| {
            let to = b.ty(x).with_cols(self.cols / self.heads);
            b.push1(ops::Broadcast { to }, &[x])
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
