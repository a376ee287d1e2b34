//! `relu`: the rectified linear unit, alone or in an MLP.

use super::function::X;
use super::mlp::{BIAS, HIDDEN, Mlp};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use odec_graph::{Builder, Value, nn};

#[derive(Clone, Debug, PartialEq)]
pub struct Relu(Mlp);

impl Layer for Relu {
    const NAME: &'static str = "relu";
    const ABOUT: About = About {
        summary: "The rectified linear unit, element by element; with `hidden`, an MLP applied to each token: two linear maps with it between them.",
        formula: "relu(z) = max(z, 0); down(relu(up(x)))",
        source: "Vaswani et al. 2017, NeurIPS",
        notes: &["The derivative of max(z, 0) at 0 is 0."],
    };
    const ARGUMENTS: &'static [Argument] = &[BIAS, X, HIDDEN];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "relu(hidden: 4*width)",
            meaning: "four times as wide as the state",
        },
        Example {
            text: "relu(hidden: 4*width, bias)",
            meaning: "as in the first Transformer",
        },
        Example {
            text: "relu(linear)",
            meaning: "the function alone, of a linear map",
        },
    ];
    const ROLE: Option<&'static str> = Some("mlp");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (mlp, width) = Mlp::read(r, |_| Some(nn::Activation::Relu))?;
        Some((Relu(mlp), width))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.0.params()
    }

    fn reads(&self) -> Reads {
        self.0.reads()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        self.0.build(b, at, w)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
