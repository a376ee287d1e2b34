//! `concat`: concatenates the columns of several results.

use super::arguments::Silent;
use super::function::HEADS as ALL;
use super::heads::columns_of_head;
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn, ops};
use odec_program::kernel::MOST_HEADS;

const PARTS: Argument = Argument::unnamed(
    "parts",
    Form::Fields,
    Silent::Needed,
    "parameters of the field, or pipelines that are applied to the layer's input",
);

const HEADS: Argument = Argument::whole(
    ALL.name,
    "one",
    "heads, which divide the columns of each part among them: the columns of a head stand side by side",
);
const EACH: Argument = Argument::value(
    "each",
    "nothing is added",
    "columns behind those of every head, the same for all heads",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Concat {
    parts: Vec<Network>,
    heads: u64,
    each: Option<Network>,
}

impl Concat {
    fn all(&self) -> impl Iterator<Item = &Network> {
        self.parts.iter().chain(&self.each)
    }
}

impl Layer for Concat {
    const NAME: &'static str = "concat";
    const ABOUT: About = About {
        summary: "Concatenates the columns of its parts.",
        formula: "[p₁(x), p₂(x), …]; with heads, head i is [p₁(x)ᵢ, p₂(x)ᵢ, …, each(x)]",
        source: "",
        notes: &[
            "A field of several values begins with it: `field gate(u, v) = concat(u, v) |> linear`.",
            "Without `heads` the first head of `attend(concat(q, r), …, heads: 2)` has the columns of q alone.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[PARTS, HEADS, EACH];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "concat(id, rmsnorm |> linear(4))",
            meaning: "the input, and four columns computed from it",
        },
        Example {
            text: "concat(linear(1) |> sigmoid, linear(2), attention(heads: 2, causal))",
            meaning: "three parts, each with its own parameters",
        },
        Example {
            text: "concat(linear(8), heads: 2, each: linear(4) |> rotary(heads: 1))",
            meaning: "keys of two heads: four columns of each, then four that both share",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (mut parts, mut widths) = (Vec::new(), Vec::new());
        while let Some(part) = r.field(&PARTS) {
            let (part, columns) = part?;
            parts.push(part);
            widths.push(columns);
        }
        let width = widths.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let said = r.given(&HEADS);
        let each = match r.named_value(&EACH) {
            Some(each) => Some(each?),
            None => None,
        };
        let heads = match said {
            Some(said) => {
                let heads = r.whole(said, MOST_HEADS)?;
                for columns in &widths {
                    columns_of_head(r, said, heads, *columns)?;
                }
                heads
            }
            None => 1,
        };
        let shared = each.as_ref().map_or(0, |(_, columns)| *columns);
        let width = width.saturating_add(heads.saturating_mul(shared));
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
        let each = each.map(|(each, _)| each);
        Some((Concat { parts, heads, each }, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.all().flat_map(Network::params).collect()
    }

    fn reads(&self) -> Reads {
        let parts = self.all().map(Network::reads);
        parts.fold(Reads::default(), Reads::and)
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let parts = values(&self.parts, b, at, w)?;
        if self.heads == 1 && self.each.is_none() {
            return b.push1(ops::Concat, &parts);
        }
        let each = match &self.each {
            Some(each) => values(std::slice::from_ref(each), b, at, w)?.pop(),
            None => None,
        };
        nn::concat_heads(b, &parts, each, self.heads)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
