//! `concat`: concatenates the columns of several results.

use super::arguments::Silent;
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, ops};

const PARTS: Argument = Argument::unnamed(
    "parts",
    Form::Fields,
    Silent::Needed,
    "parameters of the field, or pipelines that are applied to the layer's input",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Concat {
    parts: Vec<Network>,
}

impl Layer for Concat {
    const NAME: &'static str = "concat";
    const ABOUT: About = About {
        summary: "Concatenates the columns of its parts.",
        formula: "[p₁(x), p₂(x), …]",
        source: "",
        notes: &[
            "A field of several values begins with it: `field gate(u, v) = concat(u, v) |> linear`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[PARTS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "concat(id, rmsnorm |> linear(4))",
            meaning: "the input, and four columns computed from it",
        },
        Example {
            text: "concat(linear(1) |> sigmoid, linear(2), attention(heads: 2, causal))",
            meaning: "three parts, each with its own parameters",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (mut parts, mut width) = (Vec::new(), 0u64);
        while let Some(part) = r.field(&PARTS) {
            let (part, columns) = part?;
            parts.push(part);
            width += columns;
        }
        if parts.is_empty() {
            let message = "`concat` has no parts";
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, r.span(), message);
            return r.fail(d.help("name its parts: `concat(u, v)`"));
        }
        if width > MAX_WIDTH {
            let message = format!("{width} columns are too many");
            let d = Diagnostic::error(codes::TOO_LARGE, r.span(), message);
            return r.fail(d.label(format!("at most {MAX_WIDTH}")));
        }
        Some((Concat { parts }, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.parts.iter().flat_map(Network::params).collect()
    }

    fn reads(&self) -> Reads {
        let parts = self.parts.iter().map(Network::reads);
        parts.fold(Reads::default(), Reads::and)
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let parts = values(&self.parts, b, at, w)?;
        b.push1(ops::Concat, &parts)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
