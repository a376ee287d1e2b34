//! The linear maps that layers have as parts: `x Wᵀ + b`, as parameters and as values.

use super::{LayerParam, Start, TypeResult, Weights};
use odec_graph::{Builder, nn};

/// A linear map, with or without a bias, by the paths of its parameters below the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    pub weight: String,
    pub bias: Option<String>,
    pub rows: u64,
    pub cols: u64,
}

impl Map {
    pub fn params(&self) -> Vec<LayerParam> {
        let weight = LayerParam {
            path: self.weight.clone(),
            shape: vec![self.rows, self.cols],
            start: Start::Normal,
        };
        let bias = self.bias.iter();
        let bias = bias.map(|path| LayerParam::vector(path, self.rows, Start::Zeros));
        [weight].into_iter().chain(bias).collect()
    }

    pub fn build(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult<nn::Affine> {
        let weight = w.param(b, &self.weight)?;
        let bias = match &self.bias {
            Some(path) => Some(w.param(b, path)?),
            None => None,
        };
        Ok(nn::Affine { weight, bias })
    }
}
