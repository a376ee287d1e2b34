//! `linear`: one linear map of each token's columns.

use super::arguments::Silent;
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, MAX_WIDTH, Map, Reading,
    Reads, Start, TypeResult, Weights, part_of,
};
use odec_graph::{Builder, Value, nn};

const BIAS: Argument = Argument::flag("bias", "the map has a bias");
const ZERO: Argument = Argument::flag("zero", "the map starts at 0");
const COLUMNS: Argument = Argument::unnamed(
    "columns",
    Form::UnnamedWhole,
    Silent::Follows("the width of the state"),
    "columns of the result",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    map: Map,
    zero: bool,
}

impl Layer for Linear {
    const NAME: &'static str = "linear";
    const ABOUT: About = About {
        summary: "A linear map of each token's columns.",
        formula: "x Wᵀ + b, W [columns, width]",
        source: "",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[BIAS, ZERO, COLUMNS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "linear(4*width)",
            meaning: "to another width, for what comes after it in the field",
        },
        Example {
            text: "linear(bias)",
            meaning: "to the width of the state, with a bias",
        },
        Example {
            text: "linear(bias, zero)",
            meaning: "what it is added to, or multiplied by 1 plus it, is unchanged at the start of training",
        },
    ];
    const ROLE: Option<&'static str> = Some("linear");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let bias = r.flag(&BIAS);
        let zero = r.flag(&ZERO);
        let columns = match r.unnamed(&COLUMNS) {
            Some(n) => r.whole(n, MAX_WIDTH),
            None => Some(r.state_width()),
        };
        let paths = r.paths();
        let columns = columns?;
        let map = paths.map("linear", bias, [columns, width]);
        Some((Linear { map, zero }, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        let mut params = self.map.params();
        if self.zero {
            params.iter_mut().for_each(|p| p.start = Start::Zeros);
        }
        params
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let affine = self.map.build(b, w)?;
        at.place(b, part_of(&self.map.weight), |b| {
            nn::affine(b, at.x, affine)
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
