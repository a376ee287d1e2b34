//! The computation inside a field: sequences and sums of layers.
//!
//! A [`Network`] is made by `pipeline.rs`, with widths that fit; it lists its parameters and, on demand, appends its
//! nodes. Leaves what a layer is to its file, whose parameters they are to the model.

use super::{Angles, Inputs, LayerKind, LayerParam, Reads, TypeResult, Weights};
use odec_graph::{Builder, Exact, TypeError, Value, nn};

/// A map from states to states (or, inside a pipeline, between widths).
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    Layer(LayerKind),
    /// One of the values that a field is evaluated at.
    Argument(usize),
    Pipe(Vec<Network>),
    /// `Σ cᵢ fᵢ(x)`.
    Sum(Vec<(Exact, Network)>),
}

/// The values of a layer's operands.
pub fn values(
    of: &[Network],
    b: &mut Builder,
    at: Inputs,
    w: &mut dyn Weights,
) -> TypeResult<Vec<Value>> {
    of.iter().map(|part| part.build(b, at.all, w)).collect()
}

impl Network {
    /// What it is applied to, as it is.
    pub fn input() -> Network {
        Network::Pipe(Vec::new())
    }

    /// Its layers, in the order of the computation.
    fn layers(&self) -> Vec<&LayerKind> {
        match self {
            Network::Layer(layer) => vec![layer],
            Network::Argument(_) => Vec::new(),
            Network::Pipe(parts) => parts.iter().flat_map(Network::layers).collect(),
            Network::Sum(terms) => terms.iter().flat_map(|(_, n)| n.layers()).collect(),
        }
    }

    /// All parameters, in the order of the computation.
    pub fn params(&self) -> Vec<LayerParam> {
        self.layers()
            .into_iter()
            .flat_map(LayerKind::params)
            .collect()
    }

    /// What its layers read beside their inputs and parameters.
    pub fn reads(&self) -> Reads {
        let layers = self.layers().into_iter().map(LayerKind::reads);
        layers.fold(Reads::default(), Reads::and)
    }

    /// Whether a token's result depends on tokens after it.
    pub fn looks_ahead(&self) -> bool {
        self.reads().later_tokens
    }

    /// Whether it adds something of its own to each position.
    pub fn sees_positions(&self) -> bool {
        self.reads().sinusoids
    }

    /// How heads are rotated.
    pub fn rotated(&self) -> Vec<Angles> {
        self.reads().rotary
    }

    /// Whether it ends in a layer whose results are from 0 to 1.
    pub fn ends_in_shares(&self) -> bool {
        match self {
            Network::Layer(layer) => layer.gives_shares(),
            Network::Pipe(parts) => parts.last().is_some_and(Network::ends_in_shares),
            Network::Argument(_) | Network::Sum(_) => false,
        }
    }

    /// The number for each column, where columns times numbers are all that it computes.
    pub fn rates(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult<Option<Value>> {
        match self {
            Network::Layer(layer) => layer.rates(b, w),
            Network::Argument(_) | Network::Pipe(_) | Network::Sum(_) => Ok(None),
        }
    }

    /// Appends its nodes at the builder's site; `at` is what it is applied to.
    pub fn build(&self, b: &mut Builder, at: &[Value], w: &mut dyn Weights) -> TypeResult {
        let wrong = |what: &str| TypeError {
            op: "field",
            what: what.into(),
        };
        match self {
            Network::Layer(layer) => {
                let x = *at.first().ok_or_else(|| wrong("is evaluated at nothing"))?;
                layer.build(b, Inputs { x, all: at }, w)
            }
            Network::Argument(i) => {
                let missing = || wrong(&format!("has no argument {i}"));
                at.get(*i).copied().ok_or_else(missing)
            }
            Network::Pipe(parts) => {
                let mut value = at.to_vec();
                for part in parts {
                    value = vec![part.build(b, &value, w)?];
                }
                Ok(value[0])
            }
            Network::Sum(terms) => {
                let values: Vec<(Exact, Value)> = terms
                    .iter()
                    .map(|(c, part)| Ok((c.clone(), part.build(b, at, w)?)))
                    .collect::<TypeResult<_>>()?;
                nn::combine(b, &values)
            }
        }
    }
}
