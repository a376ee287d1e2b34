//! `columns`: some of the columns, those that stand side by side.

use super::arguments::Silent;
use super::function::X;
use super::network::Network;
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, ops};

const FROM: Argument = Argument::unnamed(
    "from",
    Form::Index,
    Silent::Ratio(0, 1),
    "the first of them, counted from 0",
);
const TO: Argument = Argument::whole(
    "to",
    "the last column",
    "the column behind the last of them",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    of: Network,
    slice: ops::Slice,
}

impl Layer for Columns {
    const NAME: &'static str = "columns";
    const ABOUT: About = About {
        summary: "The columns from one number to below another.",
        formula: "x[.., from..to]",
        source: "",
        notes: &["`concat` puts columns side by side again."],
    };
    const ARGUMENTS: &'static [Argument] = &[X, FROM, TO];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "columns(to: width/2)",
            meaning: "the first half",
        },
        Example {
            text: "columns(linear(8), from: 6)",
            meaning: "the last two columns of a linear map",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let [(of, width)] = r.operands([&X])?;
        let (from, to) = (r.given(&FROM), r.given(&TO));
        let first = match from {
            Some(e) => r.index(e, MAX_WIDTH)?,
            None => 0,
        };
        let end = match to {
            Some(e) => r.whole(e, MAX_WIDTH)?,
            None => width,
        };
        if first >= end || end > width {
            let said = if end > width { to } else { from.or(to) };
            let span = said.map_or(r.span(), |e| e.span);
            let message =
                format!("there are no columns {first} to {end} in a value of width {width}");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, span, message);
            return r.fail(d.label(format!("columns are 0 to {}", width - 1)));
        }
        let cols = end - first;
        let slice = ops::Slice { from: first, cols };
        Some((Columns { of, slice }, cols))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.of.params()
    }

    fn reads(&self) -> Reads {
        self.of.reads()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let of = self.of.value(b, at, w)?;
        match b.ty(of).cols() == self.slice.cols {
            true => Ok(of),
            false => b.push1(self.slice, &[of]),
        }
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
