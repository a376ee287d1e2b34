//! `masked(rate: 15%)`: cross-entropy of masked tokens.

use super::{
    Along, Asked, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, cross_entropy,
    incompatible,
};
use crate::arguments::{Argument, Silent};
use crate::codes;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::bounds::Bounds;
use odec_program::manifest::{self, Loss, Predicts, Times};

const RATE: Argument = Argument::number(
    "rate",
    Bounds::PositiveShare,
    Silent::Needed,
    "the chance of each token to be hidden; at least one of every window is",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Masked {
    rate: f64,
}

impl LossTerm for Masked {
    const NAME: &'static str = "masked";
    const ABOUT: About = About {
        summary: "The cross-entropy of tokens that are hidden from the model, which fills them in.",
        formula: "−log p(target)",
        source: "Devlin et al. 2019, NAACL, 3.1",
        notes: &[
            "The mean is over hidden tokens. A hidden token is read as the last kind of token, so bytes need `tokens(vocab: 257, …)`; what separates `segments(…)` is not hidden. Which tokens are hidden depends on seed, step and place, and evaluations always hide the same ones.",
            "Such a model may attend to all tokens, without `causal`, and does not generate.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[RATE];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss masked(rate: 15%)",
        meaning: "hides as many tokens as BERT does",
    }];
    const PLAIN: Option<Rows> = Some(cross_entropy::rows);
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(r: &mut PartReading) -> Option<Self> {
        r.needed_number(&RATE).map(|rate| Masked { rate })
    }

    fn asks(&self) -> Option<&dyn Asks> {
        Some(self)
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    fn fit(&self, _: Span, _: &[&dyn Along], _: &mut Vec<Diagnostic>) {}

    fn step(
        &self,
        _: &mut dyn Training,
        _: &mut Builder,
        _: &StepTaken,
    ) -> Result<Vec<Value>, BuildError> {
        Ok(Vec::new())
    }

    fn rows(
        &self,
        _: &mut dyn Training,
        b: &mut Builder,
        of: &Predicted,
    ) -> Result<Value, BuildError> {
        cross_entropy::rows(b, of)
    }
}

impl Asks for Masked {
    fn loss(&self, of: &Asked, sink: &mut Vec<Diagnostic>) -> Option<Loss> {
        let why = match (of.given.predicts(), of.given.translates()) {
            (Predicts::Class, _) => Some("this model says a class"),
            (_, true) => Some("this model makes a second text of a first one"),
            _ => None,
        };
        if let Some(why) = why {
            let message = format!("`{}` asks for tokens that are hidden", Self::NAME);
            sink.push(incompatible(of.term, &message).label(why).help("write `cross_entropy`"));
            return None;
        }
        let vocab = of.input.vocab().unwrap_or(u64::MAX);
        let token = vocab.saturating_sub(1);
        if of.separator == Some(token) {
            let message = format!("token {token} hides others, and it ends segments");
            let help = "the last kind of token is the mask; give `segments` another separator";
            sink.push(incompatible(of.all, &message).help(help));
        }
        if of.kinds == Some(vocab) {
            let message = "bytes are all kinds of tokens that the model knows: none is left to hide others behind";
            let d = Diagnostic::error(codes::VOCABULARY_MISMATCH, of.all, message);
            sink.push(d.help(format!(
                "write `input tokens(vocab: {}, …)`: the last kind is the mask",
                vocab + 1
            )));
        }
        Some(Loss::Masked(manifest::Masked {
            rate: self.rate,
            token,
            kept: of.separator,
        }))
    }

    fn times(&self) -> Option<Times> {
        None
    }
}
