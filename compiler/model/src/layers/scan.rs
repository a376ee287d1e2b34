//! `scan`: recurrences of first order along tokens.

use super::chunks::{CHUNKS, chunks};
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn};

const A: Argument = Argument::operand(
    "a",
    "how much of the state is kept at each token, in each column",
);
const B: Argument = Argument::operand(
    "b",
    "what each token adds, in each column; an operand of one column stands for all",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    operands: [Network; 2],
    columns: u64,
    chunks: u64,
}

impl Layer for Scan {
    const NAME: &'static str = "scan";
    const ABOUT: About = About {
        summary: "A linear recurrence along the tokens of a text, in each column by itself.",
        formula: "h_t = a_t h_{t−1} + b_t, h_0 = b_0",
        source: "Martin & Cundy 2018, ICLR; Gu & Dao 2023, arXiv:2312.00752",
        notes: &[
            "Its work and memory grow linearly with the text. While text is generated, the last h is kept: one number for each column, however long the text is.",
            "With `chunks: n` a text is walked over in n pieces at the same time: first for what each piece leaves, then for h. Then twice as much is read and written. It pays where texts times columns are fewer than what computes them: on GPUs. What generates a text walks token by token in any case.",
            "Factors from 0 to 1 keep h bounded: `sigmoid` and `exp` of something negative give them.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[A, B, CHUNKS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "scan(linear |> sigmoid, linear)",
            meaning: "how much is kept depends on the token",
        },
        Example {
            text: "scan(linear(1) |> sigmoid, linear(24))",
            meaning: "one factor for all columns of a token",
        },
        Example {
            text: "scan(linear |> sigmoid, linear, chunks: 4)",
            meaning: "in 4 chunks of the text beside each other",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let operands = r.operands([&A, &B]);
        let chunks = chunks(r);
        let ([(a, a_width), (b, b_width)], chunks) = (operands?, chunks?);
        let columns = a_width.max(b_width);
        if [a_width, b_width].iter().any(|n| ![1, columns].contains(n)) {
            let message = format!("`scan` is applied to {a_width} and to {b_width} columns");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, r.span(), message);
            let label = "both operands have as many columns, or one of them has one";
            return r.fail(d.label(label));
        }
        let operands = [a, b];
        let scan = Scan {
            operands,
            columns,
            chunks,
        };
        Some((scan, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.operands.iter().flat_map(Network::params).collect()
    }

    fn reads(&self) -> Reads {
        let operands = self.operands.iter().map(Network::reads);
        let carried = self.columns;
        operands.fold(
            Reads {
                carried,
                all_tokens: true,
                ..Reads::default()
            },
            Reads::and,
        )
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let operands = values(&self.operands, b, at, w)?;
        let to = b.ty(at.x).with_cols(self.columns);
        let each = operands
            .into_iter()
            .map(|x| nn::widened(b, x, to.clone()));
        let operands: Vec<Value> = each.collect::<TypeResult<_>>()?;
        let carry = w.carry(b, Self::NAME, [1, self.columns])?;
        nn::scan(b, &operands, carry, self.chunks)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
