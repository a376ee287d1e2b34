//! `moe`: a sparse mixture of experts. Each token meets a few of several MLPs, and no others are computed for it.
//!
//! Nothing is dropped: an expert takes as many tokens as the router sends to it, so there is no capacity to choose.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads, Routed,
    Start, TypeResult, Weights, part_of,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{ArgTop, Concat, Exp, GroupedMatMul, Mul, OneHot, Recip, Slice, SumCols};
use odec_graph::{Builder, Exact, Value, nn};

const EXPERTS: Argument = Argument::size("experts", "MLPs to choose from");
const TOP_K: Argument = Argument::size("top_k", "experts of each token");
const HIDDEN: Argument = Argument::size("hidden", "hidden columns of an expert");
const ACTIVATION: Argument = Argument::word(
    "activation",
    &["gelu", "swiglu"],
    "what stands between the maps of an expert: GELU, or SiLU of a third map's columns as a gate",
);
/// Most experts: their numbers are exact in every type of arithmetic.
const MOST_EXPERTS: u64 = 1 << 12;

#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    router: String,
    /// With `swiglu`.
    gate: Option<String>,
    up: String,
    down: String,
    experts: u64,
    top_k: u64,
    hidden: u64,
    width: u64,
}

impl Layer for Moe {
    const NAME: &'static str = "moe";
    const ABOUT: About = About {
        summary: "A sparse mixture of experts: a router chooses a few of several MLPs for each token.",
        formula: "Σ_e w_e down_e(silu(gate_e(x)) · up_e(x)) over the top_k experts e with the largest router(x); w is the softmax of these",
        source: "Shazeer et al. 2017, arXiv:1701.06538; the softmax over the chosen, and no dropped tokens: Jiang et al. 2024 (Mixtral), arXiv:2401.04088; Gale et al. 2022 (MegaBlocks), arXiv:2211.15841",
        notes: &[
            "Of equal scores the expert that comes first is chosen. The choice has no derivative: the router learns by the weights, and by `load_balance` in the loss.",
            "An expert's matrices are read by the rows that go to it; what is computed does not depend on the number of experts.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[EXPERTS, TOP_K, HIDDEN, ACTIVATION];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "moe(experts: 8, top_k: 2, hidden: 4*width)",
            meaning: "two of eight experts for each token, as in Mixtral",
        },
        Example {
            text: "moe(experts: 4, top_k: 1, hidden: 24, activation: gelu)",
            meaning: "one of four: the router learns by `load_balance` alone, for the weight of the only expert is 1",
        },
    ];
    const ROLE: Option<&'static str> = Some("mlp");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let experts = r.size(&EXPERTS, MOST_EXPERTS);
        let top_k = r.size(&TOP_K, ArgTop::MOST + 1);
        let hidden = r.size(&HIDDEN, MAX_WIDTH);
        let message = "this is no activation of experts";
        let gated = r.word(&ACTIVATION, message).map(|word| word == 1);
        let paths = r.paths();
        let (experts, top_k, hidden, gated) = (experts?, top_k?, hidden?, gated?);
        if top_k > experts {
            let message = format!("{top_k} of {experts} experts cannot be chosen");
            let d = Diagnostic::error(codes::OUT_OF_RANGE, r.span(), message);
            return r.fail(d.help(format!("write `top_k: {experts}` or less")));
        }
        let path = |part| paths.path(part, "weight");
        let layer = Moe {
            router: path("router"),
            gate: gated.then(|| path("gate")),
            up: path("up"),
            down: path("down"),
            experts,
            top_k,
            hidden,
            width,
        };
        Some((layer, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        let normal = |path: &String, shape: Vec<u64>| LayerParam {
            path: path.clone(),
            shape,
            start: Start::Normal,
        };
        let into = || vec![self.experts, self.hidden, self.width];
        let gate = self.gate.iter().map(|path| normal(path, into()));
        let router = normal(&self.router, vec![self.experts, self.width]);
        let up = normal(&self.up, into());
        let down = normal(&self.down, vec![self.experts, self.width, self.hidden]);
        std::iter::once(router)
            .chain(gate)
            .chain([up, down])
            .collect()
    }

    fn reads(&self) -> Reads {
        Reads {
            routes: true,
            ..Reads::default()
        }
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let (chosen, weights) = at.place(b, part_of(&self.router), |b| self.route(b, at.x, w))?;
        let mut map = |b: &mut Builder, x: Value, path: &String| {
            let matrices = w.param(b, path)?;
            let product = GroupedMatMul {
                transposed: false,
                partial: false,
                rounded: false,
            };
            b.push1(product, &[x, chosen, matrices])
        };
        let up = at.place(b, part_of(&self.up), |b| map(b, at.x, &self.up))?;
        let hidden = match &self.gate {
            Some(path) => {
                let gate = at.place(b, part_of(path), |b| map(b, at.x, path))?;
                let gate = nn::silu(b, gate)?;
                b.push1(Mul, &[gate, up])?
            }
            None => nn::gelu(b, up)?,
        };
        let each = at.place(b, part_of(&self.down), |b| map(b, hidden, &self.down))?;
        let part = |(n, weight): (u64, &Value)| {
            let cols = self.width;
            let from = n * cols;
            let y = b.push1(Slice { from, cols }, &[each])?;
            b.push1(Mul, &[y, *weight])
        };
        let parts: Vec<Value> = (0..).zip(&weights).map(part).collect::<TypeResult<_>>()?;
        sum(b, &parts)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

impl Moe {
    /// The experts of each token, and their weights.
    fn route(
        &self,
        b: &mut Builder,
        x: Value,
        w: &mut dyn Weights,
    ) -> TypeResult<(Value, Vec<Value>)> {
        let router = w.param(b, &self.router)?;
        let logits = nn::linear(b, x, router)?;
        let cols = self.experts;
        let (mut chosen, mut hot) = (Vec::new(), Vec::new());
        for rank in 0..self.top_k {
            let number = b.push1(ArgTop { rank }, &[logits])?;
            hot.push(b.push1(OneHot { cols }, &[number])?);
            chosen.push(number);
        }
        let all = sum(b, &hot)?;
        let top_k = self.top_k;
        w.routed(
            b,
            part_of(&self.router),
            Routed {
                logits,
                chosen: all,
                top_k,
            },
        )?;
        // The largest is among the chosen, so no exponential overflows and their sum is at least 1.
        let (shifted, _) = nn::below_max(b, logits)?;
        let e = b.push1(Exp, &[shifted])?;
        let e = b.push1(Mul, &[e, all])?;
        let total = b.push1(SumCols, &[e])?;
        let over = b.push1(Recip, &[total])?;
        let shares = b.push1(Mul, &[e, over])?;
        let weight = |hot: &Value| {
            let own = b.push1(Mul, &[shares, *hot])?;
            b.push1(SumCols, &[own])
        };
        let weights = hot.iter().map(weight).collect::<TypeResult<_>>()?;
        Ok((b.push1(Concat, &chosen)?, weights))
    }
}

fn sum(b: &mut Builder, terms: &[Value]) -> TypeResult {
    let terms: Vec<(Exact, Value)> = terms.iter().map(|v| (Exact::one(), *v)).collect();
    nn::combine(b, &terms)
}
