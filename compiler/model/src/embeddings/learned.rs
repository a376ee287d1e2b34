//! `learned`: a row of numbers for each kind of tokens.

use super::{EmbedScope, Embedding};
use crate::arguments::Argument;
use crate::inputs::Input;
use crate::layers::{Grid, LayerParam, MAX_WIDTH, Start};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use crate::scheme::scalar::arithmetic;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, TypeResult, Value, nn, ops};

const SCALED: Argument = Argument::flag("scaled", "rows are multiplied by √width");
const WIDTH: Argument = Argument::size("width", "columns of the state");

/// The parameter, below `embed`.
const TABLE: &str = "token.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    width: u64,
    /// What rows are multiplied by.
    scale: Exact,
}

impl Part for Learned {
    const DECLARATION: Declaration = Declaration {
        name: "learned",
        about: About {
            summary: "A row of `width` numbers for each kind of tokens, which is trained.",
            formula: "x = W[token], W [vocab, width]; with `scaled`, x = √width·W[token]",
            source: "Vaswani et al. 2017, NeurIPS, section 3.4 (`scaled`)",
            notes: &[
                "In fields, `width` stands for this number.",
                "Rows that start at a deviation of 0.02 are small beside sinusoids, whose mean square is 1/2: with `positions(sinusoidal)`, `scaled` lets fields see both. An output that uses the rows as well, `logits(tied)`, reads them as they are.",
                "A table of narrower rows and a matrix that widens them: `learned(width: 64) |> linear(width: 512)`, x = W₂ W[token], where a table 512 wide would have more numbers than both (Lan et al. 2020, ICLR, section 3.1). `logits(tied)` reads both the other way round: y = (x W₂) Wᵀ. `--set model.width` changes the matrix, `model.embed.learned.width` the table.",
            ],
        },
        arguments: &[SCALED, WIDTH],
        examples: &[
            Example {
                text: "embed learned(width: 512)",
                meaning: "tokens alone; `attention(…, rope)` or a field sees their order",
            },
            Example {
                text: "embed learned(width: 512, scaled), positions(sinusoidal)",
                meaning: "as in the Transformer of 2017",
            },
            Example {
                text: "embed learned(width: 64) |> linear(width: 512)",
                meaning: "as in ALBERT, factorised",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let scaled = r.flag(&SCALED);
        let width = r.size(&WIDTH, MAX_WIDTH)?;
        let scale = match scaled {
            true => {
                let root = Exact::int(i64::try_from(width).unwrap_or(i64::MAX)).root(2);
                r.report(root.map_err(|why| arithmetic(why.into(), r.span())))?
            }
            false => Exact::one(),
        };
        Some(Learned { width, scale })
    }
}

impl Embedding for Learned {
    fn width(&self, _: &dyn Input) -> u64 {
        self.width
    }

    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        if of.vocab().is_none() {
            let d = incompatible(span, "`learned` has a row for each kind of tokens");
            let d = d.label("the positions of this model's input hold numbers");
            sink.push(d.help(format!("write `embed linear(width: {})`", self.width)));
        }
    }

    fn params(&self, of: &dyn Input) -> Vec<LayerParam> {
        let table = |vocab| LayerParam {
            path: TABLE.into(),
            shape: vec![vocab, self.width],
            start: Start::Normal,
        };
        of.vocab().map(table).into_iter().collect()
    }

    fn table(&self) -> Option<&'static str> {
        Some(TABLE)
    }

    fn grid(&self, _: &dyn Input) -> Option<Grid> {
        None
    }

    fn build(
        &self,
        b: &mut Builder,
        (_, input): (&dyn Input, Value),
        w: &mut dyn EmbedScope,
    ) -> TypeResult {
        let table = w.param(b, TABLE)?;
        let x = b.push1(ops::Embedding, &[table, input])?;
        nn::combine(b, &[(self.scale.clone(), x)])
    }

    /// The table as it is, whatever rows are multiplied by.
    fn read_by(&self, b: &mut Builder, state: Value, w: &mut dyn EmbedScope) -> TypeResult {
        let table = w.param(b, TABLE)?;
        nn::linear(b, state, table)
    }
}
