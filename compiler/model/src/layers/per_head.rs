//! `per_head`: layers applied to the columns of each head by itself, with one set of parameters for all heads.

use super::function::HEADS as ALL;
use super::heads::columns_of_head;
use super::network::Network;
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn};

const OF: Argument = Argument::operand(
    "of",
    "linear maps, norms and functions, applied to the columns of a head",
);
const HEADS: Argument = Argument::size(ALL.name, "heads, which divide the columns among them");

#[derive(Clone, Debug, PartialEq)]
pub struct PerHead {
    of: Network,
    heads: u64,
}

impl Layer for PerHead {
    const NAME: &'static str = "per_head";
    const ABOUT: About = About {
        summary: "Layers applied to the columns of each head by itself. All heads share their parameters.",
        formula: "[of(x₁), of(x₂), …], xᵢ the columns of head i",
        source: "",
        notes: &["Inside, `width` is that of a head."],
    };
    const ARGUMENTS: &'static [Argument] = &[OF, HEADS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "per_head(linear, heads: 4)",
            meaning: "one small matrix for all four heads",
        },
        Example {
            text: "per_head(standardize |> sigmoid, heads: 2)",
            meaning: "two groups of columns, as in group normalization",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let (of, heads) = (r.unnamed(&OF), r.needed(&HEADS));
        let Some(of) = of else {
            let message = "`per_head` is given no layer";
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, r.span(), message);
            return r.refuse(d.help("write `per_head(rmsnorm, heads: 4)`"));
        };
        let heads_said = heads?;
        let heads = r.whole(heads_said, MAX_WIDTH)?;
        let columns = columns_of_head(r, heads_said, heads, width)?;
        let (network, out) = r.applied_to(of, columns)?;
        if !network.is_row_by_row() || network.reads() != Reads::default() {
            let message = "inside `per_head`, this is not computed of a head alone";
            let d = Diagnostic::error(codes::INCOMPATIBLE, of.span, message);
            return r.fail(d.label("a layer of it may not stand here").help(
                "linear maps, norms, functions and arithmetic of them may; parameters may have names",
            ));
        }
        let all = out.saturating_mul(heads);
        if all > MAX_WIDTH {
            let message = format!("{all} columns are too many");
            let d = Diagnostic::error(codes::TOO_LARGE, r.span(), message);
            return r.fail(d.label(format!("at most {MAX_WIDTH}")));
        }
        Some((PerHead { of: network, heads }, all))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.of.params()
    }

    fn reads(&self) -> Reads {
        self.of.reads()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        nn::per_head(b, at.x, self.heads, |b, x| {
            self.of.value(b, Inputs { x, ..at }, w)
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
