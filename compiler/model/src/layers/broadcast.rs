//! `broadcast`: one column, as many times as there shall be columns.

use super::function::X;
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, ops};

const TO: Argument = Argument::size("to", "columns of the result, all of them equal");

#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    of: Network,
    cols: u64,
}

impl Layer for Repeat {
    const NAME: &'static str = "broadcast";
    const ABOUT: About = About {
        summary: "One column, repeated.",
        formula: "[x, x, …], x one column",
        source: "",
        notes: &[
            "Functions of two values do so by themselves: `maximum(id, linear(1))`. It is for what does not, such as `concat`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[X, TO];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "broadcast(mean, to: width)",
            meaning: "the mean of the columns in place of each",
        },
        Example {
            text: "broadcast(linear(1), to: 3)",
            meaning: "three equal columns",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let [(of, width)] = r.operands([&X])?;
        let cols = r.size(&TO, MAX_WIDTH)?;
        if width != 1 {
            let message = format!("`broadcast` repeats one column, and this value has {width}");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, r.span(), message);
            return r.fail(d.help("`linear(1)`, `mean` and `columns(from: 0, to: 1)` have one"));
        }
        Some((Repeat { of, cols }, cols))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.of.params()
    }

    fn reads(&self) -> Reads {
        self.of.reads()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let of = values(std::slice::from_ref(&self.of), b, at, w)?;
        let to = b.ty(of[0]).with_cols(self.cols);
        b.push1(ops::Broadcast { to }, &of)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
