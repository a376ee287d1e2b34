//! `linear_attention`: a matrix for each head that tokens decay, add to and read.
//!
//! Time grows with the text and memory does not: while text is generated, the matrices are all that is kept of it.

use super::chunks::{CHUNKS, chunks};
use super::heads::narrow_enough;
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads,
    TypeResult, Weights,
};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{self, Broadcast, Concat};
use odec_graph::{Builder, Exact, Value, nn};
use odec_program::kernel::{Decay, MOST_HEADS};

const Q: Argument = Argument::operand("q", "queries");
const K: Argument = Argument::operand("k", "keys, as wide as queries");
const V: Argument = Argument::operand("v", "values, of any width that the heads divide");
const DECAY: Argument = Argument::value(
    "decay",
    "1",
    "what is left of a matrix from token to token, from 0 to 1: a column for each head (Mamba-2), or one for each column of the keys (gated linear attention)",
);
const RETENTION: Argument = Argument::flag(
    "retention",
    "head h, from 0, decays by 1 − 2^(−5−h) with each token, as in RetNet",
);
const DELTA: Argument = Argument::value(
    "delta",
    "the whole value is added",
    "the delta rule: a column for each head, from 0 to 1, the share of what the matrix gave for a key that makes way for the value (DeltaNet)",
);
const HEADS: Argument = Argument::size(
    "heads",
    "heads, which divide the columns of queries, keys and values among them",
);

/// The last head whose decay is another number than 1 in f64; those after it share it.
const LAST_DECAY: u64 = 48;

#[derive(Clone, Debug, PartialEq)]
pub struct LinearAttention {
    /// Queries, keys, values, the decay if it is a value, and the rates of the delta rule if it is followed.
    operands: Vec<Network>,
    heads: u64,
    decay: Decay,
    /// Whether the decays are RetNet's.
    retention: bool,
    delta: bool,
    /// Columns of all keys, and of all values.
    keys: u64,
    values: u64,
    chunks: u64,
}

impl Layer for LinearAttention {
    const NAME: &'static str = "linear_attention";
    const ABOUT: About = About {
        summary: "Linear attention: in each head, a token adds the product of its key and value to a matrix that fades from token to token, and reads it with its query.",
        formula: "o_t = q_t S_t, S_t = diag(α_t) S_{t−1} + k_tᵀ v_t, S_0 = 0, in each head by itself; with `delta` S_t = diag(α_t) S_{t−1} + β_t k_tᵀ (v_t − k_t diag(α_t) S_{t−1})",
        source: "Katharopoulos et al. 2020, arXiv:2006.16236; with decays Sun et al. 2023, arXiv:2307.08621, Yang et al. 2024, arXiv:2312.06635, and Dao & Gu 2024, arXiv:2405.21060; with the delta rule Schlag et al. 2021, arXiv:2102.11174, and Yang et al. 2024, arXiv:2406.06484 and arXiv:2412.06464",
        notes: &[
            "It is causal. Its time and its memory in training grow with the length of the text, not with its square.",
            "While text is generated, heads · (columns of a key) · (columns of a value) numbers are kept, however long the text is. Reading it in pieces gives the bits of reading it whole.",
            "The delta rule wants keys of length 1, as `normalize(heads: n)` makes them: at β = 1 the key then gives its value and nothing else. Its matrices are walked over twice and kept twice while text is generated.",
            "With `chunks: n` a text is walked over in n pieces at the same time: first for the matrix that each piece leaves, then for the results. That takes up to 1.7 times the work, and pays where texts times heads are few: on GPUs; under the delta rule 2.3 times, since what a piece makes of the matrix before it is then a matrix, too. What generates a text walks token by token in any case.",
            "Nothing is scaled or normalised: put a norm after it. A column of ones among a head's values gives the sum of its weights.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[Q, K, V, DECAY, RETENTION, DELTA, HEADS, CHUNKS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "linear_attention(linear, linear, linear, heads: 4)",
            meaning: "sums over all tokens so far",
        },
        Example {
            text: "linear_attention(linear(8), linear(8), linear(24), heads: 4, retention)",
            meaning: "constant decays, as in RetNet; values are wider than keys",
        },
        Example {
            text: "linear_attention(linear, linear, linear, heads: 4, chunks: 4)",
            meaning: "in 4 chunks of the text beside each other",
        },
        Example {
            text: "linear_attention(linear(8), linear(8), linear, heads: 2, decay: linear(2) |> sigmoid)",
            meaning: "each token decides how much a head keeps, as in Mamba-2",
        },
        Example {
            text: "linear_attention(linear(8), linear(8), linear, heads: 2, decay: linear(8) |> sigmoid)",
            meaning: "and how much of each column of the keys, as in gated linear attention",
        },
        Example {
            text: "linear_attention(linear(8), linear(8) |> normalize(heads: 2), linear, heads: 2, delta: linear(2) |> sigmoid)",
            meaning: "the delta rule: what the key gave makes way for the value",
        },
        Example {
            text: "linear_attention(linear(8), linear(8) |> normalize(heads: 2), linear, heads: 2, delta: linear(2) |> sigmoid, decay: linear(2) |> sigmoid)",
            meaning: "with decays, the gated delta rule",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let operands = r.operands([&Q, &K, &V]);
        let decay = r.named_value(&DECAY);
        let retention = r.flag(&RETENTION);
        let delta = r.named_value(&DELTA);
        let heads_expr = r.needed(&HEADS);
        let chunks = chunks(r);
        let span = r.span();
        let [(q, queries), (k, keys), (v, values)] = operands?;
        let (heads_expr, chunks) = (heads_expr?, chunks?);
        let heads = r.whole(heads_expr, MOST_HEADS)?;
        for (what, columns) in [("queries", queries), ("values", values)] {
            divided(r, heads_expr.span, heads, what, columns)?;
            narrow_enough(r, heads_expr.span, what, columns / heads)?;
        }
        if queries != keys {
            let message = format!("queries have {queries} columns, keys {keys}");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, span, message);
            return r.fail(d.label("a query reads a row of the matrix for each column of a key"));
        }
        let mut operands = vec![q, k, v];
        let kind = match (decay, retention) {
            (Some(_), true) => {
                let message = "`retention` and `decay` both say how matrices fade";
                let d = Diagnostic::error(codes::REPEATED_ARGUMENT, span, message);
                return r.fail(d.help("leave one of them out"));
            }
            (Some(decay), false) => {
                let (decay, columns) = decay?;
                operands.push(decay);
                faded(r, span, heads, keys, columns)?
            }
            (None, true) => Decay::Head,
            (None, false) => Decay::None,
        };
        let follows = delta.is_some();
        if let Some(delta) = delta {
            let (delta, columns) = delta?;
            operands.push(delta);
            rated(r, span, heads, columns)?;
        }
        let layer = LinearAttention {
            operands,
            heads,
            decay: kind,
            retention,
            delta: follows,
            keys,
            values,
            chunks,
        };
        Some((layer, values))
    }

    fn params(&self) -> Vec<LayerParam> {
        self.operands.iter().flat_map(Network::params).collect()
    }

    fn reads(&self) -> Reads {
        let parts = self.operands.iter().map(Network::reads);
        let kept = if self.delta { 2 } else { 1 };
        let own = Reads {
            carried: kept * self.keys * (self.values / self.heads),
            all_tokens: true,
            ..Reads::default()
        };
        parts.fold(own, Reads::and)
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let mut operands = values(&self.operands, b, at, w)?;
        let rates = self.delta.then(|| operands.pop()).flatten();
        if self.retention {
            operands.push(retention(b, operands[0], self.heads)?);
        }
        if let Some(rates) = rates {
            self.correct(b, rates, &mut operands, w)?;
        }
        self.run(b, "matrices", false, operands, w)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

impl LinearAttention {
    /// Linear attention of these operands, from what the last run left where there is such.
    fn run(
        &self,
        b: &mut Builder,
        kept: &'static str,
        delta: bool,
        mut operands: Vec<Value>,
        w: &mut dyn Weights,
    ) -> TypeResult {
        let matrices = w.carry(b, kept, [self.keys, self.values / self.heads])?;
        operands.extend(matrices);
        let op = ops::LinearAttention {
            delta,
            continued: matrices.is_some(),
            chunks: if matrices.is_some() { 1 } else { self.chunks },
            ..ops::LinearAttention::new(self.heads, self.decay)
        };
        Ok(b.push(op, &operands)?[0])
    }

    /// The delta rule `S_t = S + β_t k_tᵀ(v_t − k_t S)`, S the matrix before the token, faded, is the sum of `(β_t k_t)ᵀ e_t`: e_t, what the
    /// matrix misses of the value, takes the place of the value, and β_t k_t that of the key.
    fn correct(
        &self,
        b: &mut Builder,
        rates: Value,
        operands: &mut [Value],
        w: &mut dyn Weights,
    ) -> TypeResult<()> {
        let key = operands[1];
        operands[1] = nn::scale_heads(b, key, rates)?;
        let mut of_key = operands.to_vec();
        of_key[0] = key;
        operands[2] = self.run(b, "corrections", true, of_key, w)?;
        Ok(())
    }
}

/// Says so where heads do not divide columns.
fn divided(r: &mut Reading, said: Span, heads: u64, what: &str, columns: u64) -> Option<()> {
    if columns.is_multiple_of(heads) {
        return Some(());
    }
    let message = format!("{heads} heads do not divide the {columns} columns of {what}");
    let d = Diagnostic::error(codes::HEAD_COUNT, said, message);
    r.fail(d.label(format!("{columns} / {heads} is not whole")))
}

/// Says so where the delta rule has other than a rate for each head.
fn rated(r: &mut Reading, at: Span, heads: u64, columns: u64) -> Option<()> {
    if columns == heads {
        return Some(());
    }
    let message = format!("the rates of the delta rule have {columns} columns");
    let d = Diagnostic::error(codes::WIDTH_MISMATCH, at, message);
    r.fail(d.label(format!("{heads} are expected, one for each head")))
}

/// What a decay of so many columns is a number for.
fn faded(r: &mut Reading, at: Span, heads: u64, keys: u64, columns: u64) -> Option<Decay> {
    match columns {
        n if n == heads => Some(Decay::Head),
        n if n == keys => Some(Decay::Key),
        n => {
            let message = format!("the decay has {n} columns");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, at, message);
            r.fail(d.label(format!(
                "{heads} are expected, one for each head, or {keys}, one for each column of the keys"
            )))
        }
    }
}

/// RetNet's decays, a column for each head, for each token of `x`.
fn retention(b: &mut Builder, x: Value, heads: u64) -> TypeResult {
    let tokens = b.ty(x).clone();
    let last = LAST_DECAY.min(heads - 1);
    let columns = |h: u64| if h == last { heads - last } else { 1 };
    let decays: Vec<Value> = (0..=last)
        .map(|h| {
            let power = 1i64 << (5 + h);
            let decay = nn::constant(b, Exact::ratio(power - 1, power))?;
            let to = tokens.with_cols(columns(h));
            b.push1(Broadcast { to }, &[decay])
        })
        .collect::<TypeResult<_>>()?;
    match decays[..] {
        [all] => Ok(all),
        _ => b.push1(Concat, &decays),
    }
}
