//! Functions over the columns of a token, or of each of its heads. A new one is an entry, as in `functions.rs`.

use super::function::{Domain, Function, HEADS, Over, X, number};
use super::{About, Argument, Example};
use crate::scheme::args::{self, Bounds};
use odec_graph::{Exact, nn, ops};

const NONE: About = About {
    summary: "",
    formula: "",
    source: "",
    notes: &[],
};
/// As many columns as there were.
const COLUMNS: Function = Function {
    name: "",
    about: NONE,
    arguments: &[X, HEADS],
    examples: &[],
    over: Over::Columns,
    domain: Domain::All,
    build: |_, of| Ok(of.x),
    with: None,
    gives_shares: false,
};
/// One column, or one for each head.
const HEAD: Function = Function {
    over: Over::Heads,
    ..COLUMNS
};

const EPS: Argument = number(
    "eps",
    Bounds::Within(1e-18, 1.0),
    (1, 1_000_000_000_000),
    "the length below which it divides by this number instead",
);
const EPS_OF_NORM: Argument = number("eps", args::EPS, (1, 100_000), "added inside the root");

const fn about(summary: &'static str, formula: &'static str) -> About {
    About {
        summary,
        formula,
        ..NONE
    }
}

const fn example(text: &'static str, meaning: &'static str) -> Example {
    Example { text, meaning }
}

pub const TABLE: &[Function] = &[
    Function {
        name: "sum",
        about: about("The sum of the columns: one column.", "Σ x"),
        examples: &[
            example("sum", "of all columns"),
            example("sum(heads: 4)", "four columns: the sum of each head"),
        ],
        build: |b, of| b.push1(ops::SumCols, &[of.x]),
        ..HEAD
    },
    Function {
        name: "mean",
        about: about(
            "The mean of the columns: one column.",
            "Σ x / n, n the columns",
        ),
        examples: &[
            example("mean", "of all columns"),
            example(
                "mean(linear, heads: 4)",
                "four columns: the mean of each head",
            ),
        ],
        build: |b, of| nn::mean_cols(b, of.x),
        ..HEAD
    },
    Function {
        name: "var",
        about: About {
            notes: &["It is divided by n, as in `layernorm`, not by n − 1."],
            ..about(
                "The variance of the columns: one column.",
                "Σ (x − mean(x))² / n, n the columns",
            )
        },
        examples: &[
            example("var", "of all columns"),
            example("var(heads: 4)", "four columns: the variance of each head"),
        ],
        build: |b, of| nn::variance(b, of.x),
        ..HEAD
    },
    Function {
        name: "max",
        about: About {
            notes: &["Equal columns share its derivative evenly."],
            ..about(
                "The largest column: one column. Of two values, `maximum`.",
                "max x",
            )
        },
        examples: &[
            example("max", "of all columns"),
            example("max(heads: 4)", "four columns: the largest of each head"),
        ],
        build: |b, of| b.push1(ops::MaxCols, &[of.x]),
        ..HEAD
    },
    Function {
        name: "min",
        about: About {
            notes: &["Equal columns share its derivative evenly."],
            ..about(
                "The smallest column: one column. Of two values, `minimum`.",
                "min x",
            )
        },
        examples: &[example("min", "of all columns")],
        build: |b, of| {
            let minus = nn::combine(b, &[(Exact::int(-1), of.x)])?;
            let largest = b.push1(ops::MaxCols, &[minus])?;
            nn::combine(b, &[(Exact::int(-1), largest)])
        },
        ..HEAD
    },
    Function {
        name: "logsumexp",
        about: About {
            notes: &["The largest column is taken away first, so that nothing overflows."],
            ..about(
                "The logarithm of the sum of the columns' exponentials: one column.",
                "log Σ e^x",
            )
        },
        examples: &[
            example("logsumexp", "of all columns"),
            example("logsumexp(heads: 4)", "four columns: one of each head"),
        ],
        build: |b, of| nn::logsumexp(b, of.x),
        ..HEAD
    },
    Function {
        name: "softmax",
        about: About {
            notes: &["The largest column is taken away first, so that nothing overflows."],
            ..about("Columns above 0 whose sum is 1.", "e^x / Σ e^x")
        },
        examples: &[
            example("softmax", "over all columns"),
            example("softmax(linear, heads: 4)", "over each of four heads"),
        ],
        build: |b, of| nn::softmax(b, of.x),
        gives_shares: true,
        ..COLUMNS
    },
    Function {
        name: "log_softmax",
        about: About {
            notes: &["The largest column is taken away first, so that nothing overflows."],
            ..about("The logarithm of `softmax`.", "x − log Σ e^x")
        },
        examples: &[
            example("log_softmax", "over all columns"),
            example("log_softmax(heads: 4)", "over each of four heads"),
        ],
        build: |b, of| nn::log_softmax(b, of.x),
        ..COLUMNS
    },
    Function {
        name: "normalize",
        about: About {
            notes: &["As `torch.nn.functional.normalize` with p = 2."],
            ..about(
                "Divides the columns by their length.",
                "x / max(‖x‖, eps), ‖x‖ = √(Σ x²)",
            )
        },
        arguments: &[X, EPS, HEADS],
        examples: &[
            example("normalize", "all columns together"),
            example(
                "normalize(linear, heads: 4)",
                "each of four heads, as queries and keys of cosine attention",
            ),
        ],
        build: |b, of| nn::unit_length(b, of.x, of.number),
        ..COLUMNS
    },
    Function {
        name: "rms_normalize",
        about: About {
            source: "Zhang & Sennrich 2019, NeurIPS",
            notes: &["`rmsnorm` multiplies by a gain, too."],
            ..about(
                "Divides the columns by the root of their mean square.",
                "x / √(mean(x²) + eps)",
            )
        },
        arguments: &[X, EPS_OF_NORM, HEADS],
        examples: &[
            example("rms_normalize", "all columns together"),
            example(
                "rms_normalize(linear, heads: 4)",
                "each of four heads, without a gain",
            ),
        ],
        build: |b, of| nn::of_unit_size(b, of.x, of.number),
        ..COLUMNS
    },
    Function {
        name: "standardize",
        about: About {
            source: "Ba, Kiros & Hinton 2016, arXiv:1607.06450",
            notes: &["As `jax.nn.standardize`. `layernorm` has a gain and a bias, too."],
            ..about(
                "Subtracts the mean of the columns, and divides by their standard deviation.",
                "(x − mean(x)) / √(var(x) + eps)",
            )
        },
        arguments: &[X, EPS_OF_NORM, HEADS],
        examples: &[
            example(
                "standardize",
                "layer normalization without parameters, as in OLMo",
            ),
            example("standardize(eps: 1e-6, heads: 4)", "each of four heads"),
        ],
        build: |b, of| nn::standardise(b, of.x, of.number),
        ..COLUMNS
    },
];
