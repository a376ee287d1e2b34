//! `hopfield`: one update of a continuous Hopfield network, which moves a state towards the patterns that it resembles.

use super::arguments::Silent;
use super::function::X;
use super::network::{Network, values};
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads, Start,
    TypeResult, Weights, part_of,
};
use crate::codes;
use crate::scheme::args::Bounds;
use crate::scheme::scalar::arithmetic;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::matmul::Layout;
use odec_graph::{Builder, Exact, Value, nn, ops};

const CAUSAL: Argument = Argument::flag(
    "causal",
    "where the tokens are the patterns: a token sees itself and the tokens before it",
);
const ENERGY: Argument = Argument::flag(
    "energy",
    "one more column, the last: the energy of what it is applied to; only with `patterns`",
);
const BETA: Argument = Argument::number(
    "beta",
    Bounds::Within(1e-6, 1e6),
    Silent::Follows("1/√width, of what it is applied to"),
    "the inverse temperature: with a large one, a state goes to the one pattern next to it",
);
const PATTERNS: Argument = Argument::whole(
    "patterns",
    "the tokens themselves",
    "how many patterns are trained",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Hopfield {
    of: Network,
    width: u64,
    beta: Exact,
    memory: Memory,
}

/// Where its patterns are.
#[derive(Clone, Debug, PartialEq)]
enum Memory {
    Trained {
        path: String,
        patterns: u64,
        energy: bool,
    },
    /// `factor`: of the scores of attention with one head, which divides by a root itself.
    Tokens { causal: bool, factor: Exact },
}

impl Layer for Hopfield {
    const NAME: &'static str = "hopfield";
    const ABOUT: About = About {
        summary: "One update of a continuous Hopfield network: a mean of patterns, weighted by how well the state resembles them.",
        formula: "softmax(beta · x Wᵀ) W, W [patterns, width]; energy −log(Σ e^(beta · x Wᵀ))/beta + x·x/2 + log(patterns)/beta + M²/2, M the length of the longest pattern",
        source: "Ramsauer et al. 2021, arXiv:2008.02217",
        notes: &[
            "An update does not raise the energy. Where a state is applied to it again and again, as under `map`, it comes to rest at a pattern or at a mean of some that are alike.",
            "Without `patterns`, the tokens are the patterns, which is attention of one head without linear maps; their keys and values are kept while text is generated.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[CAUSAL, ENERGY, X, BETA, PATTERNS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "hopfield(patterns: 64)",
            meaning: "a memory of 64 trained patterns",
        },
        Example {
            text: "hopfield(rmsnorm, patterns: 8, beta: 2, energy)",
            meaning: "of a normed state, and its energy as a last column",
        },
        Example {
            text: "hopfield(causal)",
            meaning: "a token finds those before it that it resembles",
        },
        Example {
            text: "hopfield(beta: 1/2)",
            meaning: "all tokens are patterns: for models that fill in masked tokens",
        },
    ];
    const ROLE: Option<&'static str> = Some("hopfield");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (causal, energy) = (r.flag(&CAUSAL), r.flag(&ENERGY));
        let [(of, width)] = r.operands([&X])?;
        let (beta, patterns) = (r.given(&BETA), r.given(&PATTERNS));
        let paths = r.paths();
        let root = Exact::int(i64::try_from(width).unwrap_or(i64::MAX)).root(2);
        let root = r.report(root.map_err(|why| arithmetic(why.into(), r.span())))?;
        let beta = match beta {
            Some(e) => r.within(&BETA, e)?,
            None => r.report(root.recip().map_err(|why| arithmetic(why.into(), r.span())))?,
        };
        let memory = match patterns {
            Some(e) => Memory::Trained {
                path: paths.path("patterns", "weight"),
                patterns: r.whole(e, MAX_WIDTH)?,
                energy,
            },
            None => Memory::Tokens {
                causal,
                factor: &beta * &root,
            },
        };
        let (misplaced, word, help) = match memory {
            Memory::Trained { .. } => {
                let help = "trained patterns are the same for all tokens";
                (causal, "causal", help)
            }
            Memory::Tokens { .. } => (energy, "energy", "give it trained patterns: `patterns: 64`"),
        };
        if misplaced {
            let message = format!("`hopfield` does not take `{word}` here");
            let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, r.span(), message);
            return r.refuse(d.help(help));
        }
        let hopfield = Hopfield {
            of,
            width,
            beta,
            memory,
        };
        Some((hopfield, width + u64::from(energy)))
    }

    fn params(&self) -> Vec<LayerParam> {
        let mut params = self.of.params();
        if let Memory::Trained { path, patterns, .. } = &self.memory {
            params.push(LayerParam {
                path: path.clone(),
                shape: vec![*patterns, self.width],
                start: Start::Normal,
            });
        }
        params
    }

    fn reads(&self) -> Reads {
        let own = match self.memory {
            Memory::Trained { .. } => Reads::default(),
            Memory::Tokens { causal, .. } => Reads {
                later_tokens: !causal,
                kept: 2 * self.width,
                ..Reads::default()
            },
        };
        self.of.reads().and(own)
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let x = values(std::slice::from_ref(&self.of), b, at, w)?[0];
        match &self.memory {
            Memory::Trained { path, energy, .. } => {
                let patterns = w.param(b, path)?;
                at.place(b, part_of(path), |b| {
                    let near = nn::linear(b, x, patterns)?;
                    let near = nn::combine(b, &[(self.beta.clone(), near)])?;
                    let shares = nn::softmax(b, near)?;
                    let update = b.push1(ops::MatMul::new(Layout::Nn), &[shares, patterns])?;
                    match energy {
                        true => {
                            let energy = nn::hopfield_energy(b, x, near, patterns, &self.beta)?;
                            b.push1(ops::Concat, &[update, energy])
                        }
                        false => Ok(update),
                    }
                })
            }
            Memory::Tokens { causal, factor } => {
                let q = nn::combine(b, &[(factor.clone(), x)])?;
                w.attend(b, ops::Attention::new(1, *causal), &[q, x, x], None)
            }
        }
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
