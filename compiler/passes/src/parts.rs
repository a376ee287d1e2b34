//! The inputs of program assembly: a model's graphs, and the target's blocking.
//!
//! Takes a [`Built`] model and a [`Target`]; gives plain data for [`mod@super::assemble`].

use super::fuse::Fusion;
use super::lower::Tiling;
use crate::model::{Built, Translation};
use odec_graph::Graph;
use odec_graph::ops::Parameter;
use odec_program::gpu::tensor::warpgroup::Tokens;
use odec_program::manifest::{self, Claim, Precision, StepCount, Train};
use odec_program::{Bindings, DType, EntryId, Quantized, Target};

/// What a manifest is assembled from.
#[derive(Clone, Debug)]
pub struct ModelParts<'a> {
    pub name: &'a str,
    /// The `.ode` source, whole.
    pub source: &'a str,
    pub model: manifest::Model,
    /// All parameters, those that no graph uses included.
    pub params: &'a [Parameter],
    /// tokens → `logits`.
    pub forward: &'a Graph,
    /// tokens → `logits`, one sequence, after other tokens.
    pub decode: Option<&'a Graph>,
    /// The same of a token of each of several texts.
    pub several: Option<&'a Graph>,
    /// source → what is kept of it; tokens → `logits`, a token of each of several texts: of two sequences.
    pub translation: Option<&'a Translation>,
    /// tokens, targets → `loss`.
    pub loss: Option<&'a Graph>,
    /// tokens, targets → `loss` and `grad.<path>` of parameters.
    pub grad: Option<&'a Graph>,
    pub train: Option<Train>,
    pub precision: Precision,
    pub claims: Vec<Claim>,
    pub depths: Vec<StepCount>,
    /// Largest batch, sequence and source that memory is planned for.
    pub maxima: Bindings,
}

impl<'a> ModelParts<'a> {
    /// One graph as the entry `forward`: nothing is trained. It knows so many kinds of tokens, and states of so many columns.
    pub fn alone(
        name: &'a str,
        forward: &'a Graph,
        params: &'a [Parameter],
        [vocab, width]: [u64; 2],
        (precision, maxima): (Precision, Bindings),
    ) -> ModelParts<'a> {
        ModelParts {
            name,
            source: "",
            model: manifest::Model {
                vocab,
                tokens: None,
                context: maxima.seq,
                source: 0,
                width,
                also: Default::default(),
            },
            params,
            forward,
            decode: None,
            several: None,
            translation: None,
            loss: None,
            grad: None,
            train: None,
            precision,
            claims: vec![],
            depths: vec![],
            maxima,
        }
    }

    /// A model of a source file, planned for its batch and context.
    pub fn new(built: &'a Built, source: &'a str) -> ModelParts<'a> {
        ModelParts {
            name: &built.name,
            source,
            model: built.config.clone(),
            params: &built.params,
            forward: &built.forward,
            decode: built.decode.as_ref(),
            several: built.several.as_ref(),
            translation: built.translation.as_ref(),
            loss: Some(&built.loss),
            grad: Some(&built.grad),
            train: built.train.clone(),
            precision: built.precision(),
            claims: built.claims.clone(),
            depths: built.depths.clone(),
            maxima: Bindings::new(built.batch, built.config.context).beside(built.config.source),
        }
    }
}

/// How a program is made: frozen in the artifact.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub tiling: Tiling,
    pub fusion: Fusion,
    /// What entries without a gradient read weights in, where that is no real type: all of them but [`EntryId::Encode`].
    pub weights: Option<Quantized>,
    /// Bytes above which what stands between launches is made in pieces ([`mod@super::row_chunking`]).
    pub piece: u64,
}

impl Options {
    /// What is best for a target and reals of this type.
    pub fn of(target: Target, real: DType) -> Options {
        Options {
            tiling: Tiling {
                blocking: target.blocking(real),
                packs: target.packs(),
                pairs: target.pairs(),
                warpgroups: (target == Target::Sm90a).then_some(Tokens::Many),
            },
            fusion: Fusion::On,
            weights: None,
            // A piece must keep a processor busy while the weights pass by, and a card still more so.
            piece: match target.is_gpu() {
                true => 512 << 20,
                false => 128 << 20,
            },
        }
    }
}

/// What planning one entry found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMemory {
    pub entry: EntryId,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of the same values side by side.
    pub unshared: u64,
    /// Bytes alive at the busiest launch.
    pub lower_bound: u64,
}
