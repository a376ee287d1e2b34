//! Functions element by element: what each is called, computes and means at its edges. A new one is an entry.
//!
//! An entry says its name, its formula, what happens at its edges, examples, and how its graph is built. `function.rs` reads and builds all
//! entries. The value of a function in f64 is a line in `compiler/tests/front/field_functions.rs`, which fails without it.

use super::function::{A, B, Domain, Function, Over, X, number};
use super::{About, Argument, Example};
use crate::scheme::args::Bounds;
use crate::scheme::vocabulary::With;
use odec_graph::{Builder, Exact, TypeResult, Value, nn, ops};

const NONE: About = About {
    summary: "",
    formula: "",
    source: "",
    notes: &[],
};
/// What most entries have in common.
const ONE: Function = Function {
    name: "",
    about: NONE,
    arguments: &[X],
    examples: &[],
    over: Over::Elements,
    domain: Domain::All,
    with: None,
    build: |_, of| Ok(of.x),
    gives_shares: false,
};
const TWO: Function = Function {
    arguments: &[A, B],
    over: Over::Pairs,
    ..ONE
};

const ALPHA: Argument = number(
    "alpha",
    Bounds::Positive,
    (1, 1),
    "minus what it goes to far below 0",
);
const SLOPE: Argument = number("slope", Bounds::Share, (1, 100), "the slope below 0");

const APPROXIMATE: Argument = Argument::word(
    "approximate",
    &["tanh", "none"],
    "`tanh` for z/2 · (1 + tanh(√(2/π) (z + 0.044715 z³))) instead of z Φ(z)",
);

/// With `hidden`, the MLP of the library in which the function stands between two maps.
const fn mlp(layer: &'static str) -> Option<With> {
    Some(With {
        argument: "hidden",
        layer,
    })
}

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

fn scaled(b: &mut Builder, by: i64, x: Value) -> TypeResult {
    nn::combine(b, &[(Exact::int(by), x)])
}

/// `min(x, 0)`; its derivative at 0 is 1.
fn below_zero(b: &mut Builder, x: Value) -> TypeResult {
    let above = nn::relu(b, x)?;
    nn::combine(b, &[(Exact::one(), x), (Exact::int(-1), above)])
}

pub const TABLE: &[Function] = &[
    Function {
        name: "exp",
        about: About {
            notes: &["In f32 it is infinite above 88.72, and 0 below −87.68."],
            ..about("The exponential of each element.", "e^x")
        },
        examples: &[
            example("exp", "element by element"),
            example("exp(linear(4))", "of a linear map's four columns"),
        ],
        build: |b, of| b.push1(ops::Exp, &[of.x]),
        ..ONE
    },
    Function {
        name: "log",
        about: About {
            notes: &[
                "It is minus infinity at 0, and not a number below: `log(softplus)` and `logsumexp` are safe.",
            ],
            ..about(
                "The natural logarithm of each element, which must be above 0.",
                "log x",
            )
        },
        examples: &[example("log(softplus)", "of positive numbers")],
        domain: Domain::Positive,
        build: |b, of| b.push1(ops::Log, &[of.x]),
        ..ONE
    },
    Function {
        name: "sqrt",
        about: About {
            notes: &[
                "Its derivative at 0 is infinite, and below 0 it is not a number: add a little to what may be 0.",
            ],
            ..about(
                "The square root of each element, which must not be negative.",
                "√x",
            )
        },
        examples: &[example("sqrt(softplus)", "of positive numbers")],
        domain: Domain::Positive,
        build: |b, of| b.push1(ops::Sqrt, &[of.x]),
        ..ONE
    },
    Function {
        name: "rsqrt",
        about: About {
            notes: &["It is infinite at 0, and not a number below."],
            ..about(
                "One over the square root of each element, which must be above 0.",
                "1/√x",
            )
        },
        examples: &[example("rsqrt(softplus)", "of positive numbers")],
        domain: Domain::Positive,
        build: |b, of| b.push1(ops::Rsqrt, &[of.x]),
        ..ONE
    },
    Function {
        name: "reciprocal",
        about: About {
            notes: &["It is infinite at 0."],
            ..about("One over each element.", "1/x")
        },
        examples: &[example("reciprocal(softplus)", "of positive numbers")],
        domain: Domain::NotZero,
        build: |b, of| b.push1(ops::Recip, &[of.x]),
        ..ONE
    },
    Function {
        name: "square",
        about: about("The square of each element.", "x²"),
        examples: &[
            example("square", "element by element"),
            example(
                "square(relu)",
                "the squared ReLU (So et al. 2021, arXiv:2109.08668)",
            ),
        ],
        build: |b, of| b.push1(ops::Mul, &[of.x, of.x]),
        ..ONE
    },
    Function {
        name: "abs",
        about: About {
            notes: &["Its derivative at 0 is 0."],
            ..about("The absolute value of each element.", "|x|")
        },
        examples: &[example("abs", "element by element")],
        build: |b, of| {
            let minus = scaled(b, -1, of.x)?;
            b.push1(ops::Maximum, &[of.x, minus])
        },
        ..ONE
    },
    Function {
        name: "maximum",
        about: About {
            notes: &[
                "Of equal elements each takes half of the derivative: that of `maximum(x, 0)` at 0 is 1/2, where `relu` takes 0.",
            ],
            ..about(
                "The larger of two elements; of several columns, `max`.",
                "max(a, b)",
            )
        },
        examples: &[
            example(
                "maximum(linear, linear)",
                "maxout of two linear maps (Goodfellow et al. 2013, arXiv:1302.4389)",
            ),
            example("maximum(-1/10)", "of the layer's input and a number"),
            example("maximum(id, linear(1))", "with one column for all"),
        ],
        build: |b, of| b.push1(ops::Maximum, &[of.x, of.y]),
        ..TWO
    },
    Function {
        name: "minimum",
        about: About {
            notes: &["Of equal elements each takes half of the derivative."],
            ..about(
                "The smaller of two elements; of several columns, `min`.",
                "min(a, b)",
            )
        },
        examples: &[
            example("minimum(linear, rmsnorm)", "of two values"),
            example("minimum(relu, 6)", "ReLU up to 6"),
        ],
        build: |b, of| {
            let (x, y) = (scaled(b, -1, of.x)?, scaled(b, -1, of.y)?);
            let larger = b.push1(ops::Maximum, &[x, y])?;
            scaled(b, -1, larger)
        },
        ..TWO
    },
    Function {
        name: "sin",
        about: About {
            notes: &["For angles of some thousands at most; in f32 an angle x is off by 6e-8·x."],
            ..about("The sine of each element, an angle in radians.", "sin x")
        },
        examples: &[example("sin", "element by element")],
        build: |b, of| b.push1(ops::Sin, &[of.x]),
        ..ONE
    },
    Function {
        name: "cos",
        about: About {
            notes: &["For angles of some thousands at most; in f32 an angle x is off by 6e-8·x."],
            ..about("The cosine of each element, an angle in radians.", "cos x")
        },
        examples: &[example("cos", "element by element")],
        build: |b, of| {
            let by = Exact::decimal("1.57079632679489661923132169163975");
            let by = by.expect("a decimal");
            let ahead = b.push1(ops::Shift { by }, &[of.x])?;
            b.push1(ops::Sin, &[ahead])
        },
        ..ONE
    },
    Function {
        name: "tanh",
        about: about(
            "Maps each element to a number between −1 and 1.",
            "tanh x = 1 − 2/(e^2x + 1)",
        ),
        examples: &[
            example("tanh", "element by element"),
            example("tanh(linear)", "of a linear map"),
        ],
        build: |b, of| b.push1(ops::Tanh, &[of.x]),
        ..ONE
    },
    Function {
        name: "sigmoid",
        about: About {
            notes: &["The field of `halting` ends with it."],
            ..about(
                "Maps each element to a number between 0 and 1.",
                "1 / (1 + e^(−x))",
            )
        },
        examples: &[
            example("sigmoid", "element by element"),
            example("sigmoid(linear(1))", "one gate for all columns"),
        ],
        build: |b, of| b.push1(ops::Sigmoid, &[of.x]),
        gives_shares: true,
        ..ONE
    },
    Function {
        name: "silu",
        about: About {
            source: "Elfwing, Uchibe & Doya 2018, arXiv:1702.03118",
            ..about("The sigmoid linear unit, or Swish.", "x / (1 + e^(−x))")
        },
        examples: &[example("silu", "element by element")],
        build: |b, of| nn::silu(b, of.x),
        ..ONE
    },
    Function {
        name: "gelu",
        about: About {
            source: "Hendrycks & Gimpel 2016, arXiv:1606.08415",
            notes: &["`gelu(hidden: …)` is the MLP `gelu_mlp`."],
            ..about(
                "The Gaussian error linear unit.",
                "x Φ(x), Φ the normal distribution",
            )
        },
        arguments: &[X, APPROXIMATE],
        examples: &[
            example("gelu(linear)", "of a linear map"),
            example("gelu(approximate: tanh)", "as in GPT-2"),
        ],
        with: mlp("gelu_mlp"),
        build: |b, of| match of.word {
            0 => nn::gelu_tanh(b, of.x),
            _ => nn::gelu(b, of.x),
        },
        ..ONE
    },
    Function {
        name: "relu",
        about: About {
            notes: &[
                "Its derivative at 0 is 0.",
                "`relu(hidden: …)` is the MLP `relu_mlp`.",
            ],
            ..about("The rectified linear unit.", "max(x, 0)")
        },
        examples: &[example("relu(linear)", "of a linear map")],
        with: mlp("relu_mlp"),
        build: |b, of| nn::relu(b, of.x),
        ..ONE
    },
    Function {
        name: "softplus",
        about: About {
            notes: &[
                "Its derivative is `sigmoid`. Nothing overflows: above 20 it is x, far below 0 it is e^x, to the last bits.",
            ],
            ..about("A smooth maximum of each element and 0.", "log(1 + e^x)")
        },
        examples: &[example("softplus", "element by element")],
        build: |b, of| b.push1(ops::Softplus, &[of.x]),
        ..ONE
    },
    Function {
        name: "elu",
        about: About {
            source: "Clevert, Unterthiner & Hochreiter 2016, arXiv:1511.07289",
            notes: &["Its derivative at 0 is alpha."],
            ..about(
                "The exponential linear unit.",
                "x where x > 0, else alpha (e^x − 1)",
            )
        },
        arguments: &[X, ALPHA],
        examples: &[
            example("elu", "element by element"),
            example("elu(alpha: 1/2)", "to −1/2 far below 0"),
        ],
        // e^m − 1 = 2t/(1 − t) with t = tanh(m/2) of an m up to 0: no digits cancel near 0, and nothing overflows.
        build: |b, of| {
            let (one, above) = (Exact::one(), nn::relu(b, of.x)?);
            let low = below_zero(b, of.x)?;
            let half = nn::combine(b, &[(Exact::ratio(1, 2), low)])?;
            let t = b.push1(ops::Tanh, &[half])?;
            let minus = scaled(b, -1, t)?;
            let rest = b.push1(ops::Shift { by: one.clone() }, &[minus])?;
            let rest = b.push1(ops::Recip, &[rest])?;
            let grown = b.push1(ops::Mul, &[t, rest])?;
            nn::combine(b, &[(one, above), (&Exact::int(2) * of.number, grown)])
        },
        ..ONE
    },
    Function {
        name: "leaky_relu",
        about: About {
            source: "Maas, Hannun & Ng 2013, ICML",
            notes: &["Its derivative at 0 is `slope`."],
            ..about(
                "The rectified linear unit, with a slope below 0.",
                "x where x > 0, else slope · x",
            )
        },
        arguments: &[X, SLOPE],
        examples: &[
            example("leaky_relu", "element by element"),
            example("leaky_relu(slope: 1/5)", "with another slope"),
        ],
        build: |b, of| {
            let (above, below) = (nn::relu(b, of.x)?, below_zero(b, of.x)?);
            nn::combine(b, &[(Exact::one(), above), (of.number.clone(), below)])
        },
        ..ONE
    },
];
