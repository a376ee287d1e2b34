//! `condition`: what a model is told beside its input, the same for all tokens.
//!
//! The value is the sum of the rows of `leading/` that stand inside of `condition(…)` in an `embed`. `ends.rs` adds them, and fields read the sum
//! as they read the state of an evolve of that name. It stays one row of each sequence through layers that are `ROW_BY_ROW`; `network.rs` repeats
//! it where it meets rows of tokens.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};

/// The name by which fields read it, among the states that they may read.
pub const CONDITION: &str = "condition";

#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    columns: u64,
}

impl Layer for Condition {
    const NAME: &'static str = CONDITION;
    const ABOUT: About = About {
        summary: "What the model is told beside its input: the sum of the rows that its `embed` names. It is the same for all tokens of an input, and what stands before it does not matter.",
        formula: "c, of each input",
        source: "Peebles & Xie 2023, ICCV (DiT)",
        notes: &[
            "For models with `embed …, condition(time_token, label_token(classes: 10))`. These rows stand nowhere in the sequence.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "condition",
            meaning: "as in `(1 + (condition |> silu |> linear(bias, zero)))*layernorm`, a norm that it scales",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = false;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        if let Some(columns) = r.condition() {
            return Some((Condition { columns }, columns));
        }
        let message = "this model is told nothing beside its input";
        let d = Diagnostic::error(codes::INCOMPATIBLE, r.span(), message);
        r.fail(d.help(
            "write, for example, `embed linear(width: 64, bias), condition(time_token, label_token(classes: 10)), positions(learned)`",
        ))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads {
            states: vec![CONDITION.into()],
            ..Reads::default()
        }
    }

    fn build(&self, b: &mut Builder, _: Inputs, w: &mut dyn Weights) -> TypeResult {
        w.state(b, CONDITION)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
