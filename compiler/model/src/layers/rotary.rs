//! `rotary`: turns pairs of columns of each head by the token's position.

use super::angles::{self, BASE, FAST, GRID, INTERPOLATION, SCALING, SLOW, Said, TRAINED};
use super::arguments::Silent;
use super::heads::columns_of_head;
use super::network::{Network, values};
use super::{
    About, Angles, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use crate::scheme::args::Bounds;
use crate::scheme::resolve::count;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, Value, nn};
use odec_program::manifest::Turns;

const X: Argument = Argument::operand("x", "queries or keys");
const HEADS: Argument = Argument::size("heads", "heads, which divide the columns among them");
const SHARE: Argument = Argument::number(
    "share",
    Bounds::Within(1e-3, 1.0),
    Silent::Ratio(1, 1),
    "how much of each head is turned, the first columns of either half, or of all with `interleaved` (Black et al. 2022)",
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
        GRID,
        X,
        HEADS,
        SHARE,
        BASE,
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
            text: "rotary(heads: 4, grid, base: 100)",
            meaning: "patches of images, by their rows and columns",
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
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let interleaved = r.flag(&INTERLEAVED);
        let grid = r.flag(&GRID);
        let [(of, width)] = r.operands([&X])?;
        let heads_said = r.needed(&HEADS);
        let share_said = r.given(&SHARE);
        let angles_said = Said::of(r.span(), grid, |a| r.given(a));
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
            let d = d.label("an even number of columns is turned");
            return r.fail(match share_said {
                Some(_) => d,
                None => d.help(even_heads(heads, width)),
            });
        }
        let turns = Turns {
            columns: (turned < head).then_some(turned),
            interleaved,
            ..Turns::default()
        };
        let angles = angles::read(r, &angles_said, (head, turns, said.span))?;
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

/// How many heads have an even number of columns.
fn even_heads(heads: u64, width: u64) -> String {
    let mut fewer = (1..heads).rev();
    match fewer.find(|n| width.is_multiple_of(2 * n)) {
        Some(n) => format!(
            "{} would have {} each",
            count(n as usize, "head"),
            count((width / n) as usize, "column")
        ),
        None => format!("no number of heads divides the width {width} so: make it even"),
    }
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
