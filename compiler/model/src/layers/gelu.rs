//! `gelu`: the Gaussian error linear unit, exact or by tanh, alone or in an MLP.

use super::function::X;
use super::mlp::{BIAS, HIDDEN, Mlp};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, TypeResult, Weights,
};
use odec_graph::{Builder, Value, nn};

const APPROXIMATE: Argument = Argument::word(
    "approximate",
    &["tanh", "none"],
    "`tanh` for z/2 · (1 + tanh(√(2/π) (z + 0.044715 z³))) instead of z Φ(z)",
);
/// What the words mean.
const ACTIVATIONS: [nn::Activation; 2] = [nn::Activation::GeluTanh, nn::Activation::Gelu];

#[derive(Clone, Debug, PartialEq)]
pub struct Gelu(Mlp);

impl Layer for Gelu {
    const NAME: &'static str = "gelu";
    const ABOUT: About = About {
        summary: "The Gaussian error linear unit, element by element; with `hidden`, an MLP applied to each token: two linear maps with it between them.",
        formula: "gelu(z) = z Φ(z), Φ the normal distribution; down(gelu(up(x)))",
        source: "Hendrycks & Gimpel 2016, arXiv:1606.08415",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[BIAS, X, APPROXIMATE, HIDDEN];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "gelu(hidden: 4*width)",
            meaning: "four times as wide as the state",
        },
        Example {
            text: "gelu(hidden: 4*width, bias, approximate: tanh)",
            meaning: "as in GPT-2",
        },
        Example {
            text: "gelu(linear)",
            meaning: "the function alone, of a linear map",
        },
    ];
    const ROLE: Option<&'static str> = Some("mlp");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (mlp, width) = Mlp::read(r, |r| {
            let said = r.word(&APPROXIMATE, "GELU has no such approximation");
            said.map(|i| ACTIVATIONS[i])
        })?;
        Some((Gelu(mlp), width))
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
