//! `load_balance`: how unevenly mixtures of experts, and depths of recursion, are used.
//!
//! Leaves what a router chose, and the sum in the graph, to `model/balance.rs`.

use super::{Along, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, incompatible, no_effect, sum};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalance;

impl LossTerm for LoadBalance {
    const NAME: &'static str = "load_balance";
    const ABOUT: About = About {
        summary: "How unevenly experts are used, or numbers of steps that tokens choose.",
        formula: "Σ over routers of E Σ_e f_e p_e, f_e the share of all choices that are expert (or depth) e, p the router's softmax",
        source: "Fedus et al. 2021 (Switch Transformers), arXiv:2101.03961, equation 4",
        notes: &[
            "For each `moe`, and each evolve `for routed(…, choice: token) steps`; 1 where all E are used alike. Shares are of a micro-batch, and constants to the gradient.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1/100*load_balance",
        meaning: "with the coefficient of the paper",
    }];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = None;

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(LoadBalance)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    /// Says where nothing is routed, or where it is not known which evaluations of a mixture count.
    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) {
        if !evolves.iter().any(|e| e.has_experts() || e.routes_steps()) {
            let message = match evolves.iter().any(|e| e.steps_choose()) {
                true => "this model has no mixture of experts, and its steps choose their tokens",
                false => "this model has no mixture of experts and no routed steps",
            };
            let d = no_effect(span, message);
            sink.push(match evolves.iter().find(|e| e.steps_choose()) {
                Some(e) => d
                    .label("`load_balance` is about the choices of `moe`, and of tokens among numbers of steps")
                    .also(e.span(), "these steps take as many tokens as their capacities say, whatever the router's scores are")
                    .help("leave `load_balance` out"),
                None => d
                    .label("`load_balance` is about the choices of `moe` and of `routed`")
                    .help("write, for example, `moe(experts: 8, top_k: 2, hidden: 4*width)` for an MLP"),
            });
        } else if let Some(e) = evolves.iter().find(|e| e.has_experts() && e.iterates()) {
            let message =
                "`load_balance` needs steps that evaluate mixtures a known number of times";
            let d = incompatible(span, message);
            sink.push(
                d.also(
                    e.span(),
                    "these steps iterate until an equation is solved",
                )
                .help("leave `load_balance` out, or solve by `fixed_point(iterations: 3)`, of which every iteration counts"),
            );
        }
    }

    fn step(
        &self,
        model: &mut dyn Training,
        _: &mut Builder,
        _: &StepTaken,
    ) -> Result<Vec<Value>, BuildError> {
        Ok(model.balances())
    }

    fn rows(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        _: &Predicted,
    ) -> Result<Value, BuildError> {
        sum(b, model.given(Self::NAME))
    }
}
