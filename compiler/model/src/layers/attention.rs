//! `attention`: multi-head attention of the tokens of a text to each other.
//!
//! The op divides scores by the root of a head's width; another scale is a factor of the queries, so that kernels do not depend on it.

use super::angles::{self, BASE, FAST, GRID, INTERPOLATION, SCALING, SLOW, Said, TRAINED};
use super::arguments::Silent;
use super::network::Network;
use super::{
    About, Angles, Argument, Example, Facts, Inputs, Layer, LayerParam, Map, Reading,
    Reads, TypeResult, Weights,
};
use crate::codes;
use crate::scheme::args::Bounds;
use crate::scheme::scalar::{arithmetic, name_of};
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, Value, nn, ops};
use odec_program::kernel::{MOST_HEAD, MOST_HEADS};
use odec_program::manifest::Turns;

/// The linear maps.
const MAPS: [&str; 4] = ["q", "k", "v", "o"];
/// Most tokens of a window.
const MAX_WINDOW: u64 = 1 << 32;

pub(super) const CAUSAL: Argument = Argument::flag(
    "causal",
    "a token sees itself and the tokens before it; a model that generates needs it",
);
const ROPE: Argument = Argument::options(
    "rope",
    &[GRID, BASE, SCALING, INTERPOLATION, TRAINED, SLOW, FAST],
    "rotary positions (Su et al. 2021) for queries and keys; column i of a head is paired with column i + d/2",
);
const BIAS: Argument = Argument::some(
    "bias",
    &MAPS,
    "biases for all four maps, or for those listed",
);
const HEADS: Argument = Argument::size("heads", "heads, which divide the width among them");
const KV_HEADS: Argument = Argument::whole(
    "kv_heads",
    "`heads`",
    "heads of keys and values, each shared by equally many heads of queries (Ainslie et al. 2023)",
);
pub(super) const WINDOW: Argument = Argument::whole(
    "window",
    "all tokens",
    "how many tokens a token sees, itself included (Beltagy, Peters & Cohan 2020); only with `causal`",
);
pub(super) const SCALE: Argument = Argument::number(
    "scale",
    Bounds::Within(1e-6, 1e6),
    Silent::Follows("1/√d, d the columns of a head"),
    "the factor of the scores q·k",
);
const FROM: Argument = Argument::state(
    "from",
    "the layer's input",
    "what keys and values are made of: the state that an evolve before this one ends with, as in the decoder of a translator",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    q: Map,
    k: Map,
    v: Map,
    o: Map,
    attention: ops::Attention,
    rope: Option<Angles>,
    query_factor: Exact,
    /// What keys and values are made of, if it is not the layer's input.
    memory: Option<(Network, Keys)>,
}

/// The evolve that keys and values are of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Keys {
    pub label: String,
    /// Whether its rows are the tokens that queries are of.
    pub own: bool,
}

impl Keys {
    pub fn label(from: &Option<Keys>) -> Option<&str> {
        from.as_ref().map(|from| from.label.as_str())
    }

    /// What attention reads. All tokens of another sequence are there before the first of this one, and nothing is kept of these.
    pub fn reads(from: &Option<Keys>, attention: &ops::Attention, kept: u64) -> Reads {
        let own = from.as_ref().is_none_or(|from| from.own);
        Reads {
            later_tokens: own && !attention.causal,
            kept: if own { kept } else { 0 },
            ..Reads::default()
        }
    }
}

/// Tokens of two sequences have no distance, and none of one comes before one of the other.
pub(super) fn elsewhere_fits(
    r: &mut Reading,
    label: &str,
    words: &[(&str, bool)],
) -> Option<()> {
    let Some((word, _)) = words.iter().find(|(_, given)| *given) else {
        return Some(());
    };
    let message = format!("`{word}` compares places, and `{label}` is another sequence");
    let d = Diagnostic::error(codes::INCOMPATIBLE, r.span(), message);
    r.fail(d.label(format!("all tokens of `{label}` are seen")).help(format!("leave `{word}` out")))
}

impl Layer for Attention {
    const NAME: &'static str = "attention";
    const ABOUT: About = About {
        summary: "Multi-head attention: in each head, a token takes a mean of the values of the tokens that it sees, weighted by how well its query matches their keys.",
        formula: "o(softmax(scale · q(x) k(x)ᵀ) v(x)), softmax over the tokens that are seen, in each head by itself",
        source: "Vaswani et al. 2017, NeurIPS",
        notes: &[
            "While text is generated, the keys and values of earlier tokens are kept: 2 · kv_heads · (width/heads) numbers of each token.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[
        CAUSAL, ROPE, BIAS, HEADS, KV_HEADS, WINDOW, SCALE, FROM,
    ];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "attention(heads: 8, causal, rope)",
            meaning: "as in LLaMA",
        },
        Example {
            text: "attention(heads: 8, kv_heads: 2, causal, rope(base: 1000000), bias: [q, k, v])",
            meaning: "as in Qwen2: four heads share keys and values",
        },
        Example {
            text: "attention(heads: 4, causal, rope(base: 500000, scaling: 8, interpolation: llama3, trained: 8192))",
            meaning: "as in LLaMA 3.1, for a context eight times as long as the one that it was first trained with",
        },
        Example {
            text: "attention(heads: 4, causal, window: 3, scale: 1/16, bias)",
            meaning: "three tokens at most, another scale, and all biases",
        },
        Example {
            text: "attention(heads: 4, rope(grid, base: 100))",
            meaning: "patches of images, whose rows and columns turn queries and keys",
        },
        Example {
            text: "attention(heads: 2)",
            meaning: "all tokens see all: for models that fill in masked tokens",
        },
    ];
    const ROLE: Option<&'static str> = Some("attention");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let causal = r.flag(&CAUSAL);
        let rope = r.options(&ROPE);
        let biases = biases(r);
        let heads_expr = r.needed(&HEADS);
        // All taken before anything can be wrong: what is left is called unknown.
        let kv_heads = r.given(&KV_HEADS);
        let window = r.given(&WINDOW);
        let scale = r.given(&SCALE);
        let from = r.given(&FROM);
        let paths = r.paths();
        let elsewhere = match from {
            Some(e) => Some(r.elsewhere(e)?),
            None => None,
        };
        if let Some(of) = elsewhere.as_ref().filter(|of| !of.own) {
            elsewhere_fits(r, &of.label, &[("causal", causal), ("rope", rope.is_some())])?;
        }
        let heads_expr = heads_expr?;
        let heads = r.whole(heads_expr, MOST_HEADS)?;
        let head = columns_of_head(r, heads_expr, heads, width)?;
        narrow_enough(r, heads_expr.span, "queries", head)?;
        if rope.is_some() && !head.is_multiple_of(2) {
            return r.fail(
                Diagnostic::error(
                    codes::HEAD_COUNT,
                    heads_expr.span,
                    format!("`rope` cannot rotate heads of {head} columns"),
                )
                .label("`rope` rotates pairs of columns, so a head needs an even number of them")
                .help(even_heads(heads, width)),
            );
        }
        if !causal && r.misspelt(&CAUSAL) {
            return None;
        }
        let kv_heads = match kv_heads {
            Some(e) => shared_heads(r, e, heads)?,
            None => heads,
        };
        let window = match window {
            Some(e) => Some(tokens_of_window(r, e, causal)?),
            None => None,
        };
        let attention = ops::Attention {
            kv_heads,
            window,
            ..ops::Attention::new(heads, causal)
        };
        let query_factor = match scale {
            Some(e) => query_factor(r, e, head)?,
            None => Exact::one(),
        };
        let rope = match rope {
            Some(mut inside) => {
                let grid = inside.flag(GRID.name);
                let said = Said::of(inside.span, grid, |a| r.option(&mut inside, a));
                r.finish(inside);
                let heads = (head, Turns::default(), heads_expr.span);
                Some(angles::read(r, &said, heads)?)
            }
            None => None,
        };
        let biases = biases?;
        let narrow = head * kv_heads;
        let rows = [width, narrow, narrow, width];
        let read = elsewhere.as_ref().map_or(width, |of| of.columns);
        let cols = [width, read, read, width];
        let [q, k, v, o] = [0, 1, 2, 3].map(|i| paths.map(MAPS[i], biases[i], [rows[i], cols[i]]));
        let memory = elsewhere.map(|of| {
            let from = Keys {
                label: of.label,
                own: of.own,
            };
            (of.network, from)
        });
        let layer = Attention {
            q,
            k,
            v,
            o,
            attention,
            rope,
            query_factor,
            memory,
        };
        Some((layer, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        let maps = [&self.q, &self.k, &self.v, &self.o];
        let memory = self.memory.iter().flat_map(|(of, _)| of.params());
        memory
            .chain(maps.into_iter().flat_map(Map::params))
            .collect()
    }

    fn reads(&self) -> Reads {
        let from = self.from();
        let own = Reads {
            rotary: self.rope.into_iter().collect(),
            ..Keys::reads(&from, &self.attention, self.k.rows + self.v.rows)
        };
        match &self.memory {
            Some((of, _)) => own.and(of.reads()),
            None => own,
        }
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let weights = nn::AttentionWeights {
            q: self.q.build(b, w)?,
            k: self.k.build(b, w)?,
            v: self.v.build(b, w)?,
            o: self.o.build(b, w)?,
        };
        let rotary = match self.rope {
            Some(angles) => Some(w.rotary(b, angles)?),
            None => None,
        };
        let memory = match &self.memory {
            Some((of, _)) => of.value(b, at, w)?,
            None => at.x,
        };
        let from = self.from();
        nn::multi_head_attention(b, [at.x, memory], weights, rotary, |b, [q, k, v]| {
            let q = nn::combine(b, &[(self.query_factor.clone(), q)])?;
            w.attend(b, self.attention, &[q, k, v], Keys::label(&from))
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

impl Attention {
    fn from(&self) -> Option<Keys> {
        self.memory.as_ref().map(|(_, from)| from.clone())
    }
}

/// Which of q, k, v and o have a bias: `bias`, `bias: [q, k, v]`.
fn biases(r: &mut Reading) -> Option<[bool; 4]> {
    let all = r.flag(&BIAS);
    let Some(e) = r.given(&BIAS) else {
        return Some([all; 4]);
    };
    let wrong = |span| {
        let message = "`bias` takes a list of attention's maps";
        Diagnostic::error(codes::UNKNOWN_OPTION, span, message)
            .label("a list of `q`, `k`, `v` and `o` is expected, each at most once")
            .help("write `bias` for all four, `bias: [q, k, v]` for three of them")
    };
    let mut found = [false; 4];
    let ExprKind::List(items) = &e.kind else {
        return r.fail(wrong(e.span));
    };
    for item in items {
        let name = name_of(item);
        let at = name.and_then(|n| MAPS.iter().position(|m| *m == n.name));
        match at {
            Some(i) if !found[i] && !all => found[i] = true,
            _ => return r.fail(wrong(item.span)),
        }
    }
    Some(found)
}

/// How many heads have an even number of columns.
fn even_heads(heads: u64, width: u64) -> String {
    let mut fewer = (1..heads).rev();
    match fewer.find(|n| width.is_multiple_of(2 * n)) {
        Some(n) => format!("{n} heads would have {} columns each", width / n),
        None => format!("no number of heads divides the width {width} so: make it even"),
    }
}

/// Columns of each head.
pub(super) fn columns_of_head(r: &mut Reading, said: &Expr, heads: u64, width: u64) -> Option<u64> {
    if width.is_multiple_of(heads) {
        return Some(width / heads);
    }
    let mut fewer = (1..=heads).rev();
    let near = fewer.find(|n| width.is_multiple_of(*n)).unwrap_or(1);
    let message = format!("{heads} heads do not divide the width {width}");
    let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message)
        .label(format!("{width} / {heads} is not whole"));
    let columns = width / near;
    r.fail(d.help(format!("{near} heads would have {columns} columns each")))
}

/// Says so where kernels take no head of so many columns.
pub(super) fn narrow_enough(
    r: &mut Reading,
    said: Span,
    what: &str,
    columns: u64,
) -> Option<()> {
    if columns <= MOST_HEAD {
        return Some(());
    }
    let message = format!("a head of {what} has {columns} columns");
    let d = Diagnostic::error(codes::TOO_LARGE, said, message);
    r.fail(d.label(format!("at most {MOST_HEAD}")).help("write more heads"))
}

/// How many tokens a token sees; only tokens before it can be counted so.
pub(super) fn tokens_of_window(r: &mut Reading, said: &Expr, causal: bool) -> Option<u64> {
    if causal {
        return r.whole(said, MAX_WINDOW);
    }
    let name = r.name();
    let message = "`window` needs `causal`";
    let d = Diagnostic::error(codes::MISSING_ARGUMENT, said.span, message)
        .label("a window counts the tokens up to the current one");
    r.fail(d.help(format!("write `{name}(…, causal, window: …)`")))
}

/// Heads of keys and values.
pub(super) fn shared_heads(r: &mut Reading, said: &Expr, heads: u64) -> Option<u64> {
    let n = r.whole(said, heads)?;
    if heads.is_multiple_of(n) {
        return Some(n);
    }
    let message = format!("{heads} heads cannot share {n} heads of keys and values");
    let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message);
    r.fail(d.label(format!("{heads} / {n} is not whole")))
}

/// What queries are multiplied by for a scale of scores that are divided by the root of a head's width.
pub(super) fn query_factor(r: &mut Reading, scale: &Expr, head: u64) -> Option<Exact> {
    let s = r.within(&SCALE, scale)?;
    let root = Exact::int(i64::try_from(head).unwrap_or(i64::MAX)).root(2);
    let factor = root.and_then(|root| (&s * &root).checked());
    r.report(factor.map_err(|why| arithmetic(why.into(), scale.span)))
}
