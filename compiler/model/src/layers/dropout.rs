//! `dropout`: sets a random share of the elements, tokens or sequences to zero in training.

use super::arguments::Silent;
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, Reading, Reads, TypeResult,
    Weights,
};
use crate::codes;
use crate::scheme::args::Bounds;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{Broadcast, Constant, Mul, RepeatTokens};
use odec_graph::{Builder, Exact, TensorType, Value, ops};
use odec_program::Dim;

const BOUNDS: Bounds = Bounds::BelowOne;
const RATE: Argument = Argument::unnamed(
    "rate",
    Form::Rule(BOUNDS),
    Silent::Needed,
    "the share that is dropped",
);
const EACH: Argument = Argument::word(
    "each",
    &["token", "sequence", "element"],
    "what has a random number of its own: an element, a token with all its columns, or a sequence with all its tokens (stochastic depth: Huang et al. 2016)",
);

/// What has a random number of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Each {
    Element,
    Token,
    Sequence,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// Of each step of the evolve, or one for all.
    rates: Vec<Exact>,
    each: Each,
    /// Which one of its field it is, from 1.
    number: u32,
}

impl Layer for Dropout {
    const NAME: &'static str = "dropout";
    const ABOUT: About = About {
        summary: "In training, sets a random share of the elements, tokens or sequences to zero and divides the others by 1 − rate.",
        formula: "x · mask / (1 − rate)",
        source: "Srivastava et al. 2014, JMLR 15",
        notes: &[
            "Evaluation and generation leave it out. Each field has one mask per step, so all stages of a step see the same right-hand side.",
            "At the end of a field, `each: sequence` leaves the field out of a step for some of the texts or images of a batch. PyTorch's users know this as `DropPath`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[RATE, EACH];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "dropout(10%)",
            meaning: "one element of ten",
        },
        Example {
            text: "dropout(rate: 1/4)",
            meaning: "the same, with the argument's name",
        },
        Example {
            text: "dropout(10%, each: sequence)",
            meaning: "at the end of a field: a sequence in ten goes without it",
        },
        Example {
            text: "dropout(20%*(k + 1)/steps, each: sequence)",
            meaning: "more in each step, a fifth in the last",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let named = r.given(&RATE);
        let Some(rate) = named.or_else(|| r.unnamed(&RATE)) else {
            let message = "`dropout` needs its rate";
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, r.span(), message);
            return r.fail(d.help("write, for example, `dropout(10%)`"));
        };
        let each = r.word(&EACH, "`dropout` drops elements, tokens or sequences");
        let rates = r.in_steps(&RATE, rate)?;
        let each = [Each::Token, Each::Sequence, Each::Element][each?];
        let number = u32::try_from(r.number_of_kind()).ok()?;
        let layer = Dropout {
            rates,
            each,
            number,
        };
        Some((layer, r.width()))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        // What comes before the steps is computed as in the first.
        let k = b.site.step.map_or(0, |k| k as usize);
        let rate = self.rates.get(k).or(self.rates.first());
        let rate = rate.cloned().unwrap_or_else(Exact::zero);
        if rate.is_zero() {
            return Ok(at.x);
        }
        let Some((stream, key)) = w.mask(b, self.number)? else {
            return Ok(at.x);
        };
        let tokens = b.ty(at.x).tokens();
        let rows = match self.each {
            Each::Element => return b.push1(ops::Dropout { rate, stream }, &[at.x, key]),
            Each::Token => tokens,
            Each::Sequence => Dim::Fixed(1),
        };
        let one = b.push1(Constant { value: Exact::one() }, &[])?;
        let to = TensorType::real([Dim::Batch, rows, Dim::Fixed(1)]);
        let ones = b.push1(Broadcast { to }, &[one])?;
        let mut kept = b.push1(ops::Dropout { rate, stream }, &[ones, key])?;
        if rows != tokens {
            kept = b.push1(RepeatTokens { tokens }, &[kept])?;
        }
        b.push1(Mul, &[at.x, kept])
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
