//! By what angles rotary positions turn, read for `rotary` and for `rope` in `attention`: base, and how they are stretched for a longer context.

use super::arguments::Silent;
use super::{Angles, Argument, Reading};
use crate::codes;
use crate::scheme::args::Bounds;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{LongWaves, Places, Turns};

/// Longest context that a model was trained with.
const MOST_TRAINED: u64 = 1 << 40;

pub(super) const GRID: Argument = Argument::flag(
    "grid",
    "the first half of the pairs turns by the token's row on its grid and the other half by its column, pair i of either by p · base^(−4i/r), p from 0; a class token \
     is not turned (Heo et al. 2024, ECCV, section 3.2, with base 100)",
);
pub(super) const BASE: Argument = Argument::number(
    "base",
    Bounds::Within(1.0, 1e12),
    Silent::Ratio(10_000, 1),
    "the angle of column pair i at position p is p · base^(−2i/r), r the columns of a head that are turned",
);
pub(super) const SCALING: Argument = Argument::number(
    "scaling",
    Bounds::Within(1e-3, 1e6),
    Silent::Ratio(1, 1),
    "how much longer the context is than the one that a model was trained with",
);
const WAYS: &[&str] = &["llama3", "yarn", "ntk", "linear"];
pub(super) const INTERPOLATION: Argument = Argument::word(
    "interpolation",
    WAYS,
    "how `scaling` changes angles: `linear` divides positions (Chen et al. 2023); `ntk` has the base b · scaling^(r/(r − 2)) (bloc97 2023); `yarn` and `llama3` divide by \
     `scaling` what turns slowly, and `yarn` multiplies sines and cosines by 0.1 ln scaling + 1",
);
pub(super) const TRAINED: Argument = Argument::whole(
    "trained",
    "needed for `yarn` and `llama3`",
    "the context that a model was trained with",
);
pub(super) const SLOW: Argument = Argument::number(
    "slow",
    Bounds::Within(0.0, 1e6),
    Silent::Follows("1"),
    "of `yarn` and `llama3`: waves with fewer turns in the trained context are divided by `scaling`",
);
pub(super) const FAST: Argument = Argument::number(
    "fast",
    Bounds::Within(0.0, 1e6),
    Silent::Follows("32 for `yarn`, 4 for `llama3`"),
    "of the same: waves with more turns stay; those in between are mixed, in proportion to their turns",
);

/// What is given for each of these arguments.
pub(super) struct Said<'e> {
    grid: bool,
    base: Option<&'e Expr>,
    scaling: Option<&'e Expr>,
    interpolation: Option<&'e Expr>,
    trained: Option<&'e Expr>,
    slow: Option<&'e Expr>,
    fast: Option<&'e Expr>,
    /// Where the arguments stand.
    at: Span,
}

impl<'e> Said<'e> {
    pub fn of(at: Span, grid: bool, mut given: impl FnMut(&Argument) -> Option<&'e Expr>) -> Self {
        Said {
            grid,
            base: given(&BASE),
            scaling: given(&SCALING),
            interpolation: given(&INTERPOLATION),
            trained: given(&TRAINED),
            slow: given(&SLOW),
            fast: given(&FAST),
            at,
        }
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

/// The angles of heads of so many columns; `turns` says which of them are turned, `heads` where that is written.
pub(super) fn read(
    r: &mut Reading,
    said: &Said,
    (head, turns, heads): (u64, Turns, Span),
) -> Option<Angles> {
    let base = r.number_said(&BASE, said.base);
    let Stretched { by, how } = stretched(r, said)?;
    let mut base = base?.to_f64();
    let turned = turns.columns.unwrap_or(head);
    let grid = match said.grid {
        true => Some(places(r, said.at, (turned, heads))?),
        false => None,
    };
    // Each axis has waves of its own.
    let turned = if said.grid { turned / 2 } else { turned };
    let mut turns = Turns {
        scaling: (by != 1.0).then_some(by),
        grid,
        ..turns
    };
    match how {
        How::Linear => {}
        How::Ntk if turned == 2 => {
            let message = "two columns have one wave, whose base says nothing";
            let d = Diagnostic::error(codes::HEAD_COUNT, heads, message);
            return r.fail(d.help("write `interpolation: linear`, or turn more columns"));
        }
        How::Ntk => {
            let columns = turned as f64;
            base *= by.powf(columns / (columns - 2.0));
            turns.scaling = None;
        }
        How::Slow { long, magnitude } => {
            turns.long = (by != 1.0).then_some(long);
            turns.magnitude = magnitude.filter(|m| *m != 1.0);
        }
    }
    Some(Angles { head, base, turns })
}

/// The grid by whose rows and columns so many columns of a head are turned.
fn places(r: &mut Reading, at: Span, (turned, heads): (u64, Span)) -> Option<Places> {
    let Some(grid) = r.grid() else {
        let message =
            "`grid` turns by rows and columns, and the tokens of this state stand on no grid";
        let d = Diagnostic::error(codes::INCOMPATIBLE, at, message);
        return r.fail(d.help("leave `grid` out: tokens in a row are turned by their positions"));
    };
    if !turned.is_multiple_of(4) {
        let message = format!("{turned} columns have no pairs for each of two axes");
        let d = Diagnostic::error(codes::HEAD_COUNT, heads, message);
        return r.fail(d.label("a multiple of 4 is expected"));
    }
    Some(Places {
        leading: grid.leading,
        sides: grid.sides,
    })
}

/// Reads `scaling` and what says how it is meant.
fn stretched(r: &mut Reading, said: &Said) -> Option<Stretched> {
    let by = r.number_said(&SCALING, said.scaling);
    let wrong = "this is no way to stretch positions";
    let word = r.word_said(&INTERPOLATION, said.interpolation, wrong);
    let trained = said.trained.map(|e| r.whole(e, MOST_TRAINED));
    let slow = said.slow.map(|e| r.within(&SLOW, e));
    let fast = said.fast.map(|e| r.within(&FAST, e));
    let by = by?.to_f64();
    let named = word.map(|n| WAYS[n])?;
    let yarn = named == "yarn";
    if !yarn && named != "llama3" {
        if let Some(e) = said.trained.or(said.slow).or(said.fast) {
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
        let d = Diagnostic::error(codes::MISSING_ARGUMENT, said.at, message);
        return r.fail(d.help("write `trained: 8192`"));
    };
    let slow = slow.map_or(Some(1.0), |x| Some(x?.to_f64()))?;
    let usual = if yarn { 32.0 } else { 4.0 };
    let fast = fast.map_or(Some(usual), |x| Some(x?.to_f64()))?;
    if slow >= fast {
        let at = said.fast.or(said.slow).map_or(said.at, |e| e.span);
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
