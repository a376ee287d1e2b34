//! `attend`: attention of queries to keys and values that are computed elsewhere.
//!
//! It has no maps of its own: what queries, keys and values are is said where it is used, and so is what becomes of its result.

use super::arguments::Silent;
use super::fewer;
use super::heads::{columns_of_head, narrow_enough, shared_heads};
use super::network::{Network, values};
use super::states::{Elsewhere, compares_places};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads, Start,
    TypeResult, Weights,
};
use crate::codes;
use crate::scheme::args::Bounds;
use crate::scheme::scalar::arithmetic;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::matmul::Layout;
use odec_graph::{Builder, Exact, Value, nn, ops};
use odec_program::kernel::MOST_HEADS;
use odec_program::manifest::Table;

/// Most rows of a table of biases.
const MAX_DISTANCES: u64 = 1 << 16;
/// Most tokens of a window.
const MAX_WINDOW: u64 = 1 << 32;

const CAUSAL: Argument = Argument::flag(
    "causal",
    "a token sees itself and the tokens before it; a model that generates needs it",
);
const Q: Argument = Argument::operand("q", "queries");
const K: Argument = Argument::operand(
    "k",
    "keys; where they begin with the label of an evolve before this one, they are made of the state that it ends with, and so are the values",
);
const V: Argument = Argument::operand("v", "values, of as many heads as the keys");
const HEADS: Argument = Argument::size(
    "heads",
    "heads of queries, which divide their columns among them",
);
const KV_HEADS: Argument = Argument::whole(
    "kv_heads",
    "as many as the columns of `k` are heads",
    "heads of keys and values, each shared by equally many heads of queries (Shazeer 2019, Ainslie et al. 2023)",
);
const WINDOW: Argument = Argument::whole(
    "window",
    "all tokens",
    "how many tokens a token sees, itself included (Beltagy, Peters & Cohan 2020); only with `causal`",
);
const SCALE: Argument = Argument::number(
    "scale",
    Bounds::Within(1e-6, 1e6),
    Silent::Follows("1/√d, d the columns of a head"),
    "the factor of the scores q·k",
);
const BIAS: Argument = Argument::word(
    "bias",
    &["alibi", "none"],
    "`alibi`: scores of head h of H fall by 2^(−8h/H) for each token that lies between query and key (Press, Smith & Lewis 2022)",
);
const DISTANCES: Argument = Argument::whole(
    "distances",
    "none",
    "a learned number for each head and each distance below this many is added to scores; farther tokens share the last one (Raffel et al. 2020). Without `causal`, tokens behind a query have numbers of their own",
);
const BUCKETS: Argument = Argument::whole(
    "buckets",
    "as many as `distances`",
    "numbers of each head, where distances share some: those below half of them have one each, longer ones share the others evenly by their logarithms, as in T5",
);
const SOFTCAP: Argument = Argument::number(
    "softcap",
    Bounds::Within(1e-3, 1e6),
    Silent::Follows("none"),
    "a bound c of the scores, which become c · tanh(score/c) before any bias (Gemma Team 2024)",
);
const SINKS: Argument = Argument::flag(
    "sinks",
    "a learned score for each head that takes weight from all tokens and gives nothing (Xiao et al. 2024, OpenAI 2025)",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Attend {
    operands: [Network; 3],
    /// The evolve that keys and values are of.
    from: Option<Elsewhere>,
    /// Columns of keys and of values.
    kept: u64,
    attention: ops::Attention,
    query_factor: Exact,
    sinks: Option<LayerParam>,
    biases: Option<LayerParam>,
}

impl Layer for Attend {
    const NAME: &'static str = "attend";
    const ABOUT: About = About {
        summary: "Attention of queries to keys and values: in each head, a token takes a mean of the values of the tokens that it sees, weighted by how well its query matches their keys.",
        formula: "softmax(c · tanh(scale · q kᵀ / c) − slope · |i − j| + bias(i − j)) v over the tokens that are seen, in each head by itself",
        source: "Vaswani et al. 2017, NeurIPS",
        notes: &[
            "It has no parameters of its own but sinks and biases: `attention` is written with it and linear maps.",
            "Heads of values may be wider or narrower than those of queries and keys; the result is as wide as all heads of values.",
            "While text is generated, the keys and values of earlier tokens are kept: as many numbers of each token as `k` and `v` have columns. A value that is read as keys and as values, or by several evaluations of a step, is kept once. Where all that reads them has a `window` much shorter than the context, those of recent tokens alone are kept ([windows](guide/memory.md#windows-in-generation)).",
        ],
    };
    // Flags first: what is left without a name are operands.
    const ARGUMENTS: &'static [Argument] = &[
        CAUSAL, SINKS, Q, K, V, HEADS, KV_HEADS, WINDOW, SCALE, BIAS, DISTANCES, BUCKETS, SOFTCAP,
    ];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "attend(linear, linear, linear, heads: 4, causal)",
            meaning: "with linear maps for queries, keys and values",
        },
        Example {
            text: "attend(linear, linear(width/4), linear(width/4), heads: 4, causal)",
            meaning: "multi-query attention: all heads share one head of keys and values",
        },
        Example {
            text: "attend(heads: 2, causal, window: 3, scale: 1/16)",
            meaning: "of its input to itself, without any map",
        },
        Example {
            text: "attend(linear, linear, linear(2*width), heads: 4, causal, bias: alibi)",
            meaning: "distances instead of positions, and values twice as wide as keys",
        },
        Example {
            text: "attend(linear, linear, linear, heads: 4, causal, distances: 128, buckets: 32)",
            meaning: "learned numbers of distances instead of positions, as in T5",
        },
        Example {
            text: "attend(linear, linear, linear, heads: 2, causal, softcap: 50)",
            meaning: "bounded scores, as in Gemma 2",
        },
        Example {
            text: "attend(linear, linear(width/2), linear(width/2), heads: 4, causal, window: 4, sinks)",
            meaning: "sinks, as in gpt-oss",
        },
    ];
    const ROLE: Option<&'static str> = Some("attend");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (causal, sinks) = (r.flag(&CAUSAL), r.flag(&SINKS));
        let operands = r.operands_from([&Q, &K, &V], 1)?;
        let heads_said = r.needed(&HEADS);
        let kv_heads = r.given(&KV_HEADS);
        let window = r.given(&WINDOW);
        let scale = r.given(&SCALE);
        let bias = r.word(&BIAS, "attention has no such bias");
        let distances = r.given(&DISTANCES);
        let buckets = r.given(&BUCKETS);
        let softcap = r.given(&SOFTCAP);
        let paths = r.paths();
        if !causal && r.misspelt(&CAUSAL) {
            return None;
        }
        let [(q, queries, _), (k, keys, of_keys), (v, values, of_values)] = operands;
        let label = |e: &Option<Elsewhere>| e.as_ref().map(|e| e.label.clone());
        if label(&of_keys) != label(&of_values) {
            let message = "keys and values are of different evolves";
            let d = Diagnostic::error(codes::INCOMPATIBLE, r.span(), message);
            let name = label(&of_keys).or(label(&of_values)).unwrap_or_default();
            return r.fail(d.help(format!(
                "write `attend(q, {name} |> …, {name} |> …, heads: …)`"
            )));
        }
        let alibi = bias.is_none_or(|bias| bias == 0);
        let compares = [
            ("causal", causal),
            ("bias: alibi", alibi),
            ("distances", distances.is_some()),
        ];
        let others = [("sinks", sinks)];
        let on_a_grid = compares.iter().chain(&others).find(|(_, given)| *given);
        let compares = compares.iter().find(|(_, given)| *given);
        if let (Some(of), Some((word, _))) = (of_keys.as_ref().filter(|of| !of.own), compares) {
            let d = compares_places(word, &of.label, r.span());
            return r.fail(d);
        }
        let grids = [&k, &v].map(fewer::grid_of);
        if grids[0] != grids[1] {
            let message = "keys and values are of different tokens";
            let d = Diagnostic::error(codes::INCOMPATIBLE, r.span(), message);
            return r.fail(d.help("give both convolutions the same `stride`"));
        }
        if let (Some([rows, columns]), Some((word, _))) = (grids[0], on_a_grid) {
            let message = format!("`{word}` does not go with fewer keys than queries");
            let d = Diagnostic::error(codes::INCOMPATIBLE, r.span(), message);
            let d = d.label(format!("keys stand on a grid of {rows} × {columns}"));
            return r.fail(d.help(format!("leave `{word}` out")));
        }
        let heads_said = heads_said?;
        let heads = r.whole(heads_said, MOST_HEADS)?;
        let head = columns_of_head(r, heads_said, heads, queries)?;
        narrow_enough(r, heads_said.span, "queries", head)?;
        let kv_heads = heads_of_keys(r, kv_heads, (heads, head), keys)?;
        if !values.is_multiple_of(kv_heads) {
            let message = format!("values of {values} columns have no {kv_heads} heads");
            let d = Diagnostic::error(codes::HEAD_COUNT, r.span(), message);
            return r.fail(d.label(format!("keys of {keys} columns have {kv_heads} heads")));
        }
        narrow_enough(r, heads_said.span, "values", values / kv_heads)?;
        let columns = values / kv_heads * heads;
        if columns > MAX_WIDTH {
            let message = format!("{columns} columns are too many");
            let d = Diagnostic::error(codes::TOO_LARGE, r.span(), message);
            return r.fail(d.label(format!("at most {MAX_WIDTH}")));
        }
        let window = match window {
            Some(e) => Some(tokens_of_window(r, e, causal)?),
            None => None,
        };
        let query_factor = match scale {
            Some(e) => query_factor(r, e, head)?,
            None => Exact::one(),
        };
        let softcap = match softcap {
            Some(e) => Some(r.within(&SOFTCAP, e)?.to_f64()),
            None => None,
        };
        let distances = match distances {
            Some(e) => Some(r.whole(e, MAX_DISTANCES)?),
            None => None,
        };
        let rows = match (distances, buckets) {
            (Some(distances), Some(e)) => Some(r.whole(e, distances)?),
            (None, Some(e)) => {
                let message = "`buckets` needs `distances`";
                let d = Diagnostic::error(codes::MISSING_ARGUMENT, e.span, message)
                    .label("distances that share numbers");
                return r.fail(d.help("write `distances: 128, buckets: 32`"));
            }
            (distances, None) => distances,
        };
        let sink = || LayerParam::vector(&paths.path("attend", "sinks"), heads, Start::Zeros);
        let layer = Attend {
            operands: [q, k, v],
            from: of_keys,
            kept: keys + values,
            attention: ops::Attention {
                kv_heads,
                window,
                softcap,
                alibi: bias? == 0,
                distances,
                ..ops::Attention::new(heads, causal)
            },
            query_factor,
            sinks: sinks.then(sink),
            biases: None,
        };
        let table = |rows| LayerParam {
            path: paths.path("attend", "distances"),
            shape: vec![rows, layer.attention.bias_columns()],
            start: Start::Zeros,
        };
        let biases = rows.map(table);
        Some((Attend { biases, ..layer }, columns))
    }

    fn params(&self) -> Vec<LayerParam> {
        let of_operands = self.operands.iter().flat_map(Network::params);
        let own = self.sinks.iter().chain(&self.biases).cloned();
        of_operands.chain(own).collect()
    }

    fn reads(&self) -> Reads {
        let attention = &self.attention;
        // Where distances count, scores say what is left out: a bound would lift them.
        let distances = attention.window.is_some() || attention.compares_places();
        let bounded = attention.softcap.is_some() && distances;
        // All tokens of another sequence are there before the first of this one, and nothing is kept of these.
        let of_own = self.from.as_ref().is_none_or(|from| from.own);
        let own = Reads {
            all_tokens: bounded,
            padding: bounded && !attention.causal,
            later_tokens: of_own && !attention.causal,
            kept: if of_own { self.kept } else { 0 },
            ..Reads::default()
        };
        self.operands
            .iter()
            .map(Network::reads)
            .fold(own, Reads::and)
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let mut operands = values(&self.operands, b, at, w)?;
        if let Some(sinks) = &self.sinks {
            operands.push(w.param(b, &sinks.path)?);
        }
        operands.extend(self.biases_by_distance(b, w)?);
        b.part("attend", |b| {
            operands[0] = nn::combine(b, &[(self.query_factor.clone(), operands[0])])?;
            let from = self.from.as_ref().map(|from| from.label.as_str());
            w.attend(b, self.attention, &operands, from)
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

impl Attend {
    /// A row of biases for each distance, where there are some.
    fn biases_by_distance(
        &self,
        b: &mut Builder,
        w: &mut dyn Weights,
    ) -> TypeResult<Option<Value>> {
        let Some((biases, distances)) = self.biases.as_ref().zip(self.attention.distances) else {
            return Ok(None);
        };
        let rows = w.param(b, &biases.path)?;
        let buckets = biases.shape[0];
        if buckets == distances {
            return Ok(Some(rows));
        }
        let table = Table::Buckets { distances, buckets };
        let table = b.push1(ops::Table { table }, &[])?;
        let product = ops::MatMul::new(Layout::Nn);
        b.push1(product, &[table, rows]).map(Some)
    }
}

/// Heads of keys that have so many columns, where a head of queries has `head`.
fn heads_of_keys(
    r: &mut Reading,
    said: Option<&Expr>,
    (heads, head): (u64, u64),
    columns: u64,
) -> Option<u64> {
    let span = said.map_or(r.span(), |e| e.span);
    let n = match said {
        Some(e) => shared_heads(r, e, heads)?,
        None => columns / head,
    };
    let wrong = |message: String| Diagnostic::error(codes::HEAD_COUNT, span, message);
    if n.checked_mul(head) != Some(columns) {
        let d = wrong(format!(
            "keys of {columns} columns for queries whose heads have {head}"
        ));
        let d = match said {
            Some(_) => d.label(format!("{n} heads of {head} columns are {}", n * head)),
            None => d.label(format!("{columns} / {head} is not whole")),
        };
        return r.fail(d.help(columns_of_keys(heads, head)));
    }
    if n == 0 || !heads.is_multiple_of(n) {
        let d = wrong(format!(
            "{heads} heads cannot share {n} heads of keys and values"
        ));
        let d = d.label(format!("{heads} / {n} is not whole"));
        return r.fail(d.help(columns_of_keys(heads, head)));
    }
    Some(n)
}

fn columns_of_keys(heads: u64, head: u64) -> String {
    let all = heads * head;
    match heads {
        1 => format!("keys have {all} columns, as queries do"),
        _ => format!(
            "queries are {heads} heads of {head} columns; keys are as many, {all} columns, or {head} columns that all of them share"
        ),
    }
}

/// How many tokens a token sees; only tokens before it can be counted so.
fn tokens_of_window(r: &mut Reading, said: &Expr, causal: bool) -> Option<u64> {
    if causal {
        return r.whole(said, MAX_WINDOW);
    }
    let message = "`window` needs `causal`";
    let d = Diagnostic::error(codes::MISSING_ARGUMENT, said.span, message)
        .label("a window counts the tokens up to the current one");
    r.fail(d.help("write `causal, window: …`"))
}

/// What queries are multiplied by for a scale of scores that are divided by the root of a head's width.
fn query_factor(r: &mut Reading, scale: &Expr, head: u64) -> Option<Exact> {
    let s = r.within(&SCALE, scale)?;
    let root = Exact::int(i64::try_from(head).unwrap_or(i64::MAX)).root(2);
    let factor = root.and_then(|root| (&s * &root).checked());
    r.report(factor.map_err(|why| arithmetic(why.into(), scale.span)))
}
