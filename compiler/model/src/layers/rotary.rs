//! `rotary`: turns pairs of columns of each head by the token's position.

use super::arguments::Silent;
use super::attention::columns_of_head;
use super::network::{Network, values};
use super::{
    About, Angles, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use crate::scheme::args::Bounds;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, Value, nn};
use odec_program::manifest::{LongWaves, Turns};

/// Longest context that a model was trained with.
const MOST_TRAINED: u64 = 1 << 40;

const X: Argument = Argument::operand("x", "queries or keys");
const HEADS: Argument = Argument::size("heads", "heads, which divide the columns among them");
const BASE: Argument = Argument::number(
    "base",
    Bounds::Within(1.0, 1e12),
    Silent::Ratio(10_000, 1),
    "the angle of column pair i at position p is p · base^(−2i/r), r the columns of a head that are turned",
);
const SHARE: Argument = Argument::number(
    "share",
    Bounds::Within(1e-3, 1.0),
    Silent::Ratio(1, 1),
    "how much of each head is turned, the first columns of either half, or of all with `interleaved` (Black et al. 2022)",
);
const SCALING: Argument = Argument::number(
    "scaling",
    Bounds::Within(1e-3, 1e6),
    Silent::Ratio(1, 1),
    "how much longer the context is than the one that a model was trained with",
);
const WAYS: &[&str] = &["llama3", "yarn", "ntk", "linear"];
const INTERPOLATION: Argument = Argument::word(
    "interpolation",
    WAYS,
    "how `scaling` changes angles: `linear` divides positions (Chen et al. 2023); `ntk` has the base b · scaling^(r/(r − 2)) (bloc97 2023); `yarn` and `llama3` divide by \
     `scaling` what turns slowly, and `yarn` multiplies sines and cosines by 0.1 ln scaling + 1",
);
const TRAINED: Argument = Argument::whole(
    "trained",
    "needed for `yarn` and `llama3`",
    "the context that a model was trained with",
);
const SLOW: Argument = Argument::number(
    "slow",
    Bounds::Within(0.0, 1e6),
    Silent::Follows("1"),
    "of `yarn` and `llama3`: waves with fewer turns in the trained context are divided by `scaling`",
);
const FAST: Argument = Argument::number(
    "fast",
    Bounds::Within(0.0, 1e6),
    Silent::Follows("32 for `yarn`, 4 for `llama3`"),
    "of the same: waves with more turns stay; those in between are mixed, in proportion to their turns",
);
const INTERLEAVED: Argument = Argument::flag(
    "interleaved",
    "pairs are columns 2i and 2i + 1 of a head, as in the released LLaMA and GPT-J",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    of: Network,
    angles: Angles,
}

impl Layer for Rotary {
    const NAME: &'static str = "rotary";
    const ABOUT: About = About {
        summary: "Rotary positions: turns pairs of columns of each head by angles that grow with the token's position, so that products of queries and keys depend on their distance.",
        formula: "column i of a head of d columns is paired with column i + d/2: (x cos θ − y sin θ, y cos θ + x sin θ), θ = p/scaling · base^(−2i/r)",
        source: "Su et al. 2021, arXiv:2104.09864; `linear` Chen et al. 2023, arXiv:2306.15595; `yarn` Peng et al. 2023, arXiv:2309.00071, definition 1 and equation 22; `llama3` the released code of LLaMA 3.1",
        notes: &[
            "`attention(heads: …, rope)` turns its queries and keys by itself.",
            "With `yarn` and `llama3` the angle per token ω = base^(−2i/r) becomes (1 − γ) ω/scaling + γ ω, γ = (trained · ω/2π − slow)/(fast − slow) between 0 and 1.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[
        INTERLEAVED,
        X,
        HEADS,
        BASE,
        SHARE,
        SCALING,
        INTERPOLATION,
        TRAINED,
        SLOW,
        FAST,
    ];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "rotary(linear, heads: 4)",
            meaning: "queries or keys of four heads",
        },
        Example {
            text: "rotary(heads: 2, base: 1000000, share: 1/2)",
            meaning: "half of each head's columns, with long waves",
        },
        Example {
            text: "rotary(heads: 4, scaling: 4)",
            meaning: "for a context four times as long",
        },
        Example {
            text: "rotary(heads: 2, interleaved, scaling: 4, interpolation: yarn, trained: 4)",
            meaning: "neighbours are pairs, and only slow waves are slowed down",
        },
        Example {
            text: "rotary(heads: 2, base: 500000, scaling: 8, interpolation: llama3, trained: 8192)",
            meaning: "as LLaMA 3.1",
        },
    ];
    const ROLE: Option<&'static str> = Some("rotary");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let interleaved = r.flag(&INTERLEAVED);
        let [(of, width)] = r.operands([&X])?;
        let heads_said = r.needed(&HEADS);
        let base = r.number(&BASE);
        let share_said = r.given(&SHARE);
        let stretched = stretched(r);
        let heads_said = heads_said?;
        let heads = r.whole(heads_said, MAX_WIDTH)?;
        let head = columns_of_head(r, heads_said, heads, width)?;
        let (turned, said) = match share_said {
            Some(e) => (share_of(r, e, head)?, e),
            None => (head, heads_said),
        };
        if turned == 0 || !turned.is_multiple_of(2) {
            let message = format!("{turned} columns of a head of {head} cannot be turned in pairs");
            let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message);
            return r.fail(d.label("an even number of columns is turned"));
        }
        let Stretched { by, how } = stretched?;
        let columns = turned as f64;
        let mut base = base?.to_f64();
        let mut turns = Turns {
            columns: (turned < head).then_some(turned),
            scaling: (by != 1.0).then_some(by),
            interleaved,
            ..Turns::default()
        };
        match how {
            How::Linear => {}
            How::Ntk if turned == 2 => {
                let message = "two columns have one wave, whose base says nothing";
                let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message);
                return r.fail(d.help("write `interpolation: linear`, or turn more columns"));
            }
            How::Ntk => {
                base *= by.powf(columns / (columns - 2.0));
                turns.scaling = None;
            }
            How::Slow { long, magnitude } => {
                turns.long = (by != 1.0).then_some(long);
                turns.magnitude = magnitude.filter(|m| *m != 1.0);
            }
        }
        let angles = Angles { head, base, turns };
        Some((Rotary { of, angles }, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.of.params()
    }

    fn reads(&self) -> Reads {
        let own = Reads {
            rotary: vec![self.angles],
            ..Reads::default()
        };
        self.of.reads().and(own)
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let x = values(std::slice::from_ref(&self.of), b, at, w)?[0];
        let tables = w.rotary(b, self.angles)?;
        nn::rotated(b, x, tables)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

/// How angles are made for a longer context.
struct Stretched {
    by: f64,
    how: How,
}

enum How {
    Linear,
    Ntk,
    Slow {
        long: LongWaves,
        magnitude: Option<f64>,
    },
}

/// Reads `scaling` and what says how it is meant.
fn stretched(r: &mut Reading) -> Option<Stretched> {
    let by = r.number(&SCALING);
    let word = r.word(&INTERPOLATION, "this is no way to stretch positions");
    let [trained_said, slow_said, fast_said] = [&TRAINED, &SLOW, &FAST].map(|a| r.given(a));
    let trained = trained_said.map(|e| r.whole(e, MOST_TRAINED));
    let slow = slow_said.map(|e| r.within(&SLOW, e));
    let fast = fast_said.map(|e| r.within(&FAST, e));
    let by = by?.to_f64();
    let named = word.map(|n| WAYS[n])?;
    let yarn = named == "yarn";
    if !yarn && named != "llama3" {
        if let Some(e) = trained_said.or(slow_said).or(fast_said) {
            let message = format!("`{named}` stretches all waves alike");
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message);
            return r.fail(d.help("write `interpolation: yarn` or `interpolation: llama3`, which tell slow waves from fast ones"));
        }
        let how = if named == "ntk" {
            How::Ntk
        } else {
            How::Linear
        };
        return Some(Stretched { by, how });
    }
    let Some(context) = trained else {
        let message = format!("`{named}` needs the context that the model was trained with");
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, r.span(), message);
        return r.fail(d.help("write `trained: 8192`"));
    };
    let slow = slow.map_or(Some(1.0), |x| Some(x?.to_f64()))?;
    let usual = if yarn { 32.0 } else { 4.0 };
    let fast = fast.map_or(Some(usual), |x| Some(x?.to_f64()))?;
    if slow >= fast {
        let at = fast_said.or(slow_said).map_or(r.span(), |e| e.span);
        let message = format!("`slow` is {slow}, and `fast` {fast}");
        let d = Diagnostic::error(codes::OUT_OF_RANGE, at, message);
        return r.fail(d.help("`fast` is larger than `slow`"));
    }
    let long = LongWaves {
        context: context? as f64,
        slow,
        fast,
    };
    // Positions that are not stretched leave scores as they are.
    let magnitude = yarn.then(|| 0.1 * by.max(1.0).ln() + 1.0);
    let how = How::Slow { long, magnitude };
    Some(Stretched { by, how })
}

/// A share of a head's columns.
fn share_of(r: &mut Reading, said: &Expr, head: u64) -> Option<u64> {
    let share = r.within(&SHARE, said)?;
    let columns = &share * &Exact::int(i64::try_from(head).unwrap_or(i64::MAX));
    let whole = columns.as_integer().and_then(|n| u64::try_from(n).ok());
    whole.or_else(|| {
        let message = format!("this share of {head} columns is not whole");
        let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message);
        r.fail(d.label(format!("a head has {head} columns")))
    })
}
