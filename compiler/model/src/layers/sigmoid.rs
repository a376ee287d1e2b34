//! `sigmoid`: each element between 0 and 1.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use odec_graph::{Builder, Value, ops};

#[derive(Clone, Debug, PartialEq)]
pub struct Sigmoid;

impl Layer for Sigmoid {
    const NAME: &'static str = "sigmoid";
    const ABOUT: About = About {
        summary: "Maps each element to a number between 0 and 1.",
        formula: "1 / (1 + e^(−x))",
        source: "",
        notes: &["The field of `halting` ends with it."],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "sigmoid",
        meaning: "element by element",
    }];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        Some((Sigmoid, r.width()))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, _: &mut dyn Weights) -> TypeResult {
        b.push1(ops::Sigmoid, &[at.x])
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
