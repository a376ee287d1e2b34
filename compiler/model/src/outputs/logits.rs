//! `logits`: a number for each kind of tokens, of which the softmax is how likely that token is held.

use super::{Embedded, Output, OutputScope};
use crate::arguments::Argument;
use crate::inputs::MAX_CONTEXT;
use crate::layers::{LayerParam, Sizes, Start};
use crate::losses::Predicted;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TensorType, TypeResult, Value, nn, ops};
use odec_program::manifest::Predicts;
use odec_program::{Dim, ResultId, names};

const TIED: Argument = Argument::flag("tied", "use the table of `embed learned(…)` for W");
const AHEAD: Argument = Argument::index(
    "ahead",
    0,
    "how many tokens after the next one it predicts; of outputs with a label",
);

/// The part of a site, and the parameter below `output`.
const PART: &str = "logits";
const WEIGHT: &str = "logits.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logits {
    tied: bool,
    ahead: u64,
}

impl Part for Logits {
    const DECLARATION: Declaration = Declaration {
        name: "logits",
        about: About {
            summary: "A number for each kind of tokens at every position, linear in the last state.",
            formula: "y = x·Wᵀ, W [vocab, width]; behind a factorised embedding with `tied`, y = (x·W₂)·Wᵀ",
            source: "",
            notes: &[
                "Tied weights: Press & Wolf 2017, EACL.",
                "What is compared with them are the tokens to be predicted (`cross_entropy`, `masked`).",
                "With `ahead: n`, position i is compared with token i + 1 + n, and the last n positions of a text with nothing (Gloeckle et al. 2024, arXiv:2404.19737).",
            ],
        },
        arguments: &[TIED, AHEAD],
        examples: &[
            Example {
                text: "output logits",
                meaning: "weights of its own",
            },
            Example {
                text: "output rmsnorm |> logits(tied)",
                meaning: "normalised, then read by the embedding's table",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let tied = r.flag(&TIED);
        let ahead = r.count(&AHEAD, MAX_CONTEXT)?;
        Some(Logits { tied, ahead })
    }
}

impl Output for Logits {
    fn fit(&self, span: Span, sizes: Sizes, of: Embedded, sink: &mut Vec<Diagnostic>) {
        if sizes.vocab.is_none() {
            let d = incompatible(span, "`logits` are a number for each kind of tokens");
            let d = d.label("the positions of this model's input hold numbers");
            sink.push(d.help("for the class of each image, write `classes(10)`"));
        } else if self.tied && of.table.is_none() {
            let d = incompatible(span, "`logits(tied)` use the table of an embedding");
            sink.push(d.label("this model's embedding has none"));
        } else if self.ahead >= sizes.context {
            let message = format!("no text of this model has a token {} after the next", self.ahead);
            let d = incompatible(span, &message);
            sink.push(d.label(format!("its context is of {} tokens", sizes.context)));
        }
    }

    fn params(&self, of: Sizes) -> Vec<LayerParam> {
        let own = |vocab| LayerParam {
            path: WEIGHT.into(),
            shape: vec![vocab, of.width],
            start: Start::Normal,
        };
        let own = of.vocab.filter(|_| !self.tied).map(own);
        own.into_iter().collect()
    }

    fn result(&self) -> ResultId<'static> {
        ResultId::Logits
    }

    fn columns(&self, of: Sizes) -> u64 {
        of.vocab.unwrap_or(1)
    }

    fn build(&self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult {
        if self.tied {
            return b.part(PART, |b| w.embedded(b, state));
        }
        let weight = w.param(b, WEIGHT)?;
        b.part(PART, |b| nn::linear(b, state, weight))
    }

    fn targets(&self, _: Sizes) -> ops::Input {
        ops::Input {
            name: names::TARGETS.into(),
            ty: TensorType::index([Dim::Batch, Dim::Seq, Dim::Fixed(1)]),
        }
    }

    fn says(&self) -> Predicts {
        Predicts::Tokens
    }

    fn ahead(&self) -> u64 {
        self.ahead
    }

    fn predicted(&self, b: &mut Builder, result: Value, targets: Value) -> TypeResult<Predicted> {
        let softmax = nn::normaliser(b, result)?;
        Ok(Predicted::Logits { softmax, targets })
    }
}
