//! `id`: the identity.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use odec_graph::{Builder, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct Identity;

impl Layer for Identity {
    const NAME: &'static str = "id";
    const ABOUT: About = About {
        summary: "The identity: its input unchanged, as a part of a sum or of `concat`.",
        formula: "x",
        source: "",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "id",
        meaning: "as in `concat(id, linear(4))`",
    }];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        Some((Identity, r.width()))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, _: &mut Builder, at: Inputs, _: &mut dyn Weights) -> TypeResult {
        Ok(at.x)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
