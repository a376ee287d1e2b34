//! `time_token`: a row that says how far the input is between noise and data.

use super::{Leading, Rows, Told, not_of_tokens};
use crate::arguments::Argument;
use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::{LayerParam, SINUSOID_BASE, Start};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{self, Add, Broadcast, Mul, Reshape, Sin, Table};
use odec_graph::{Builder, Exact, TensorType, nn};
use odec_program::manifest::{self, Waves};
use odec_program::{Dim, names};

/// Largest frequency.
const MAX_SCALE: u64 = 1 << 20;

const SCALE: Argument = Argument::count("scale", 1000, "the largest frequency of the waves");

/// The part of a site, and the parameter below `embed`.
const PART: &str = "time_token";
const WEIGHT: &str = "time_token.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeToken {
    scale: u64,
}

impl Part for TimeToken {
    const DECLARATION: Declaration = Declaration {
        name: "time_token",
        about: About {
            summary: "A row before those of the input, linear in sines and cosines of the time t between noise (0) and data (1).",
            formula: "x = [W e; x₁; x₂; …], e = sin(scale·t / 10⁴^(2i/width)) at column 2i, the cosine at column 2i + 1, W [width, width]",
            source: "Bao et al. 2023, CVPR (U-ViT)",
            notes: &[
                "For `loss velocity`, whose data give t as an input `time`, [batch, 1, 1]. Diffusion models count time up to 1000, which is the scale where nothing is said.",
                "A smaller scale makes the velocity smoother in t, which the order of a scheme counts on when `odec generate` integrates it.",
            ],
        },
        arguments: &[SCALE],
        examples: &[
            Example {
                text: "embed linear(width: 512, bias), time_token, positions(learned)",
                meaning: "as in U-ViT, with `output layernorm |> linear(16)` and `loss velocity`",
            },
            Example {
                text: "embed linear(width: 512, bias), label_token(classes: 10), time_token(scale: 32)",
                meaning: "after a row of the class, smoother in t",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let scale = r.count(&SCALE, MAX_SCALE)?;
        Some(TimeToken { scale })
    }
}

impl Leading for TimeToken {
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        not_of_tokens("a row of the time", span, of, sink);
    }

    fn told(&self) -> Told {
        Told::Time
    }

    fn count(&self) -> u64 {
        1
    }

    fn params(&self, width: u64) -> Vec<LayerParam> {
        vec![LayerParam {
            path: WEIGHT.into(),
            shape: vec![width, width],
            start: Start::Normal,
        }]
    }

    fn rows(&self, b: &mut Builder, width: u64, w: &mut dyn EmbedScope) -> Rows {
        let one_of_a_row = |cols| TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(cols)]);
        let time = ops::Input {
            name: names::TIME.into(),
            ty: one_of_a_row(1),
        };
        let time = b.push1(time, &[])?;
        let weight = w.param(b, WEIGHT)?;
        let waves = Waves::Positions {
            width,
            base: SINUSOID_BASE,
        };
        let scale = Exact::int(self.scale.try_into().unwrap_or(i64::MAX));
        let row = b.part(PART, |b| {
            let columns = |b: &mut Builder, table| {
                let row = b.push1(Table { table }, &[])?;
                b.push1(Reshape::fixed(&[width]), &[row])
            };
            let frequencies = columns(b, manifest::Table::Frequencies(waves))?;
            let phases = columns(b, manifest::Table::Phases(waves))?;
            let time = nn::combine(b, &[(scale, time)])?;
            let to = one_of_a_row(width);
            let time = b.push1(Broadcast { to }, &[time])?;
            let angles = b.push1(Mul, &[time, frequencies])?;
            let angles = b.push1(Add, &[angles, phases])?;
            let features = b.push1(Sin, &[angles])?;
            nn::linear(b, features, weight)
        })?;
        Ok(vec![row])
    }

    fn part(&self) -> &'static str {
        PART
    }
}
