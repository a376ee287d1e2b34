//! `cumsum`: sums over the tokens so far.

use super::chunks::{CHUNKS, chunks};
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use odec_graph::{Builder, Value, nn};

const X: Argument = Argument::operand("x", "what is added up");

#[derive(Clone, Debug, PartialEq)]
pub struct CumSum {
    operand: [Network; 1],
    columns: u64,
    chunks: u64,
}

impl Layer for CumSum {
    const NAME: &'static str = "cumsum";
    const ABOUT: About = About {
        summary: "Adds up the tokens so far, a token itself included, in each column by itself.",
        formula: "h_t = h_{t−1} + x_t",
        source: "",
        notes: &[
            "It is `scan` with factors of 1, which are not multiplied by. While text is generated, one number for each column is kept.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[X, CHUNKS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "cumsum",
            meaning: "of the layer's input",
        },
        Example {
            text: "cumsum(linear(8))",
            meaning: "of eight columns; a norm behind it keeps what follows from growing with the text",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let operand = r.operands([&X]);
        let chunks = chunks(r);
        let [(x, columns)] = operand?;
        let sums = CumSum {
            operand: [x],
            columns,
            chunks: chunks?,
        };
        Some((sums, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.operand.iter().flat_map(Network::params).collect()
    }

    fn reads(&self) -> Reads {
        let carried = self.columns;
        let operand = self.operand.iter().map(Network::reads);
        operand.fold(
            Reads {
                carried,
                all_tokens: true,
                ..Reads::default()
            },
            Reads::and,
        )
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let operand = values(&self.operand, b, at, w)?;
        let to = b.ty(at.x).with_cols(self.columns);
        let x = nn::widened(b, operand[0], to)?;
        let carry = w.carry(b, Self::NAME, [1, self.columns])?;
        nn::scan(b, &[x], carry, self.chunks)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
