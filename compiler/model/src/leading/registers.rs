//! `registers`: learned rows that no output reads.

use super::{Leading, Rows, Told, not_of_tokens};
use crate::arguments::Argument;
use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::{LayerParam, Start};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Builder;
use odec_program::manifest::MOST_REGISTERS;

const ROWS: Argument = Argument::size("rows", "how many rows there are");

/// The part of a site, and the parameters below `embed`.
const PART: &str = "registers";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    rows: u64,
}

impl Registers {
    fn paths(&self) -> impl Iterator<Item = String> {
        (0..self.rows).map(|i| format!("{PART}.{i}"))
    }
}

impl Part for Registers {
    const DECLARATION: Declaration = Declaration {
        name: "registers",
        about: About {
            summary: "Rows that are trained stand before those of the input, where fields may keep what belongs to no place of it; outputs leave them out.",
            formula: "x = [r₁; …; rₙ; x₁; x₂; …], each r [width]",
            source: "Darcet, Oquab, Mairal & Bojanowski 2024, ICLR",
            notes: &[
                "The context is longer by them, and `positions` have rows for them, which the paper's have not. In fields, `context` stands for all rows.",
                "An output that says one thing of an input reads the class token: `class_token, registers(rows: 4)`, with `output layernorm |> classes(10, of: class_token)`.",
            ],
        },
        arguments: &[ROWS],
        examples: &[Example {
            text: "embed linear(width: 512, bias), registers(rows: 4)",
            meaning: "four, as in the paper, before vectors or patches with `output linear(3)`",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let rows = r.size(&ROWS, MOST_REGISTERS)?;
        Some(Registers { rows })
    }
}

impl Leading for Registers {
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        not_of_tokens("a register", span, of, sink);
    }

    fn told(&self) -> Told {
        Told::Registers
    }

    fn count(&self) -> u64 {
        self.rows
    }

    fn params(&self, width: u64) -> Vec<LayerParam> {
        let vector = |path: String| LayerParam::vector(&path, width, Start::Normal);
        self.paths().map(vector).collect()
    }

    fn rows(&self, b: &mut Builder, _: u64, w: &mut dyn EmbedScope) -> Rows {
        self.paths().map(|path| w.param(b, &path)).collect()
    }

    fn part(&self) -> &'static str {
        PART
    }
}
