//! `tokens`: the number of a kind at each position.

use super::{Image, Input, MAX_CONTEXT, Unit};
use crate::arguments::Argument;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_graph::{TensorType, ops};
use odec_program::{Dim, names};

/// Largest vocabulary.
const MAX_VOCAB: u64 = 1 << 24;

const VOCAB: Argument = Argument::size("vocab", "kinds of tokens, which are numbered from 0");
const CONTEXT: Argument = Argument::size("context", "the most tokens of one text");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    vocab: u64,
    context: u64,
}

impl Part for Tokens {
    const DECLARATION: Declaration = Declaration {
        name: "tokens",
        about: About {
            summary: "Texts as numbers of tokens: `vocab` kinds of them, at most `context` in a text.",
            formula: "tokens [batch, positions], whole numbers below vocab",
            source: "",
            notes: &["In fields, `vocab` and `context` stand for these numbers."],
        },
        arguments: &[VOCAB, CONTEXT],
        examples: &[Example {
            text: "input tokens(vocab: 256, context: 1024)",
            meaning: "bytes",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let (vocab, context) = (r.size(&VOCAB, MAX_VOCAB), r.size(&CONTEXT, MAX_CONTEXT));
        Some(Tokens {
            vocab: vocab?,
            context: context?,
        })
    }
}

impl Input for Tokens {
    fn value(&self) -> ops::Input {
        ops::Input {
            name: names::TOKENS.into(),
            ty: TensorType::index([Dim::Batch, Dim::Seq, Dim::Fixed(1)]),
        }
    }

    fn vocab(&self) -> Option<u64> {
        Some(self.vocab)
    }

    fn context(&self) -> u64 {
        self.context
    }

    fn grows(&self) -> bool {
        true
    }

    fn unit(&self) -> Unit {
        Unit::Token
    }

    fn image(&self) -> Option<Image> {
        None
    }

    fn grid(&self) -> Option<[u64; 2]> {
        None
    }
}
