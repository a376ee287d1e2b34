//! `shift`: the rows of other tokens in place of a token's own.

use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use odec_graph::{Builder, Value};

/// Most tokens that it reaches over.
const MAX_DISTANCE: u64 = 1 << 16;

const X: Argument = Argument::operand("x", "the value whose rows are moved");
const LATER: Argument = Argument::flag(
    "later",
    "the token is after the one at hand, and not before it",
);
const BY: Argument = Argument::whole("by", "1", "how many tokens are from one to the other");

#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    x: Network,
    width: u64,
    /// Tokens before the one at hand; negative: after it.
    by: i32,
    /// Which one of its field it is.
    name: String,
}

impl Layer for Shift {
    const NAME: &'static str = "shift";
    const ABOUT: About = About {
        summary: "Token shift: a token takes the row of the token before it, and zeros where the text begins.",
        formula: "y[t] = x[t − by]",
        source: "Peng et al. 2023, Findings of EMNLP, section 3",
        notes: &[
            "While text is generated, as many rows are kept as it reaches back: a number for each column.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[LATER, X, BY];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "shift",
            meaning: "the token before",
        },
        Example {
            text: "shift(rmsnorm, by: 2)",
            meaning: "of a value that is computed from the input, two tokens before",
        },
        Example {
            text: "shift(by: 1, later)",
            meaning: "the token after: for models that fill in masked tokens",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let later = r.flag(&LATER);
        let x = r.operands([&X]);
        let by = r.given(&BY);
        let number = r.number_of_kind();
        let [(x, width)] = x?;
        let by = match by {
            Some(e) => r.whole(e, MAX_DISTANCE)?,
            None => 1,
        };
        let by = i32::try_from(by).ok()?;
        let shift = Shift {
            x,
            width,
            by: if later { -by } else { by },
            name: format!("shift.{number}"),
        };
        Some((shift, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.x.params()
    }

    fn reads(&self) -> Reads {
        self.x.reads().and(Reads::shifted(&[self.by], self.width))
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let x = values(std::slice::from_ref(&self.x), b, at, w)?[0];
        b.part(&self.name, |b| w.shifted(b, x, &[self.by]))
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
