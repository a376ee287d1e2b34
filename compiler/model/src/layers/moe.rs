//! `moe`: a sparse mixture of experts. Each token meets a few of several MLPs, and no others are computed for it.
//!
//! An expert takes as many tokens as the router sends to it, or the first of them, up to its capacity.

use super::arguments::Silent;
use super::{
    About, Argument, Capacity, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading,
    Reads, Routed, Start, TypeResult, Weights, part_of, whole,
};
use crate::codes;
use crate::scheme::args::Bounds;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{
    ArgTop, Concat, Exp, GroupedMatMul, Mul, OneHot, Recip, Shift, Slice, SumCols, WherePositive,
};
use odec_graph::{Builder, Exact, Value, nn};

const EXPERTS: Argument = Argument::size("experts", "MLPs to choose from");
const TOP_K: Argument = Argument::size("top_k", "experts of each token");
const HIDDEN: Argument = Argument::size("hidden", "hidden columns of an expert");
const ACTIVATION: Argument = Argument::word(
    "activation",
    &["gelu", "swiglu"],
    "what stands between the maps of an expert: GELU, or SiLU of a third map's columns as a gate",
);
const CAPACITY: Argument = Argument::number(
    "capacity",
    Bounds::Within(1e-3, MOST_EXPERTS as f64),
    Silent::Follows("no bound"),
    "an expert takes at most ⌈capacity · context · top_k / experts⌉ tokens of a text: with 1, as many as where all experts are used alike",
);
const WEIGHTS: Argument = Argument::word(
    "weights",
    &["all", "chosen"],
    "the weights of results: `chosen` is the softmax over the scores of the chosen experts, `all` the softmax over all scores",
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
    /// The most tokens of a text that an expert takes, and whether there may be more.
    capacity: Option<(u64, bool)>,
    /// Whether weights are shares in all scores.
    of_all: bool,
}

/// Which experts compute for a token, and how their results are added.
struct Route {
    /// The number of each choice's expert, below 0 where it takes no more.
    experts: Value,
    /// Of each choice.
    weights: Vec<Value>,
    /// Whether some choices are of no expert.
    partial: bool,
}

impl Layer for Moe {
    const NAME: &'static str = "moe";
    const ABOUT: About = About {
        summary: "A sparse mixture of experts: a router chooses a few of several MLPs for each token.",
        formula: "Σ_e w_e down_e(silu(gate_e(x)) · up_e(x)) over the top_k experts e with the largest router(x); w is the softmax of these",
        source: "Shazeer et al. 2017, arXiv:1701.06538; the softmax over the chosen, and no dropped tokens: Jiang et al. 2024 (Mixtral), arXiv:2401.04088; Gale et al. 2022 (MegaBlocks), arXiv:2211.15841; capacity: Lepikhin et al. 2020 (GShard), arXiv:2006.16668; Fedus et al. 2021 (Switch), arXiv:2101.03961",
        notes: &[
            "Of equal scores the expert that comes first is chosen. The choice has no derivative: the router learns by the weights, and by `load_balance` in the loss.",
            "With `capacity` an expert takes the first tokens of a text that choose it. Of later ones the choice is dropped: the expert adds nothing, and the weights of a token's other experts stay as they are.",
            "Tokens come one after the other, each with all of its choices, so what is dropped does not depend on later tokens. `context` is the model's, also for a shorter text: a text that is generated has the bits of the text read whole.",
            "An expert's matrices are read by the rows that go to it; what is computed does not depend on the number of experts.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[EXPERTS, TOP_K, HIDDEN, CAPACITY, WEIGHTS, ACTIVATION];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "moe(experts: 8, top_k: 2, hidden: 4*width)",
            meaning: "two of eight experts for each token, as in Mixtral",
        },
        Example {
            text: "moe(experts: 8, top_k: 1, hidden: 4*width, capacity: 5/4, weights: all)",
            meaning: "one of eight, weighted by its share in all scores, and a quarter more room than even use needs, as in Switch Transformers",
        },
        Example {
            text: "moe(experts: 4, top_k: 1, hidden: 24, activation: gelu)",
            meaning: "one of four: the router learns by `load_balance` alone, for the weight of the only expert is 1",
        },
    ];
    const ROLE: Option<&'static str> = Some("mlp");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let experts = r.size(&EXPERTS, MOST_EXPERTS);
        let top_k = r.size(&TOP_K, ArgTop::MOST + 1);
        let hidden = r.size(&HIDDEN, MAX_WIDTH);
        let capacity = r.number(&CAPACITY);
        let of_all = r.word(&WEIGHTS, "these are no weights of experts");
        let message = "this is no activation of experts";
        let gated = r.word(&ACTIVATION, message).map(|word| word == 1);
        let paths = r.paths();
        let (experts, top_k, hidden, gated) = (experts?, top_k?, hidden?, gated?);
        let of_all = of_all? == 0;
        if top_k > experts {
            let message = format!("{top_k} of {experts} experts cannot be chosen");
            let d = Diagnostic::error(codes::OUT_OF_RANGE, r.span(), message);
            return r.fail(d.help(format!("write `top_k: {experts}` or less")));
        }
        let capacity = capacity.map(|capacity| {
            let context = r.context();
            let even = Exact::ratio(whole(context * top_k), whole(experts));
            let tokens = ceil(&(&capacity * &even)).min(context);
            (tokens, tokens < context)
        });
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
            capacity,
            of_all,
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
        let capacity = self.capacity.map(|(tokens, _)| Capacity {
            router: part_of(&self.router).into(),
            tokens,
            experts: self.experts,
            top_k: self.top_k,
        });
        Reads {
            routes: true,
            // How many tokens each expert was chosen by.
            carried: self.bound().map_or(0, |_| self.experts),
            capacities: capacity.into_iter().collect(),
            ..Reads::default()
        }
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let route = at.place(b, part_of(&self.router), |b| self.route(b, at.x, w))?;
        let most = self.bound().map(|tokens| tokens * self.experts);
        let mut map = |b: &mut Builder, x: Value, path: &String| {
            let matrices = w.param(b, path)?;
            let product = GroupedMatMul {
                transposed: false,
                partial: route.partial,
                most,
                rounded: false,
            };
            b.push1(product, &[x, route.experts, matrices])
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
        let parts: Vec<Value> = (0..)
            .zip(&route.weights)
            .map(part)
            .collect::<TypeResult<_>>()?;
        sum(b, &parts)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}

impl Moe {
    /// The most tokens of a text that an expert takes, where more may choose it.
    fn bound(&self) -> Option<u64> {
        self.capacity
            .filter(|(_, more)| *more)
            .map(|(tokens, _)| tokens)
    }

    fn route(&self, b: &mut Builder, x: Value, w: &mut dyn Weights) -> TypeResult<Route> {
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
        let (among, here) = among(b, x, all)?;
        let taken = match self.bound() {
            Some(most) => self.taken(b, here, most, w)?,
            None => here,
        };
        let top_k = self.top_k;
        w.routed(
            b,
            part_of(&self.router),
            Routed {
                logits,
                chosen: here,
                top_k,
                taken: self.bound().map(|_| taken),
                among,
            },
        )?;
        let shares = self.shares(b, logits, all)?;
        let weight = |hot: &Value| {
            let own = b.push1(Mul, &[shares, *hot])?;
            b.push1(SumCols, &[own])
        };
        let weights = hot.iter().map(weight).collect::<TypeResult<_>>()?;
        let partial = among.is_some() || self.bound().is_some();
        if partial {
            for (number, hot) in chosen.iter_mut().zip(&hot) {
                *number = or_none(b, *number, *hot, taken)?;
            }
        }
        let experts = b.push1(Concat, &chosen)?;
        Ok(Route {
            experts,
            weights,
            partial,
        })
    }

    /// The softmax of the scores that weights are of, 0 or more for those that were not chosen.
    fn shares(&self, b: &mut Builder, logits: Value, chosen: Value) -> TypeResult {
        if self.of_all {
            return nn::softmax(b, logits);
        }
        // The largest is among the chosen, so no exponential overflows and their sum is at least 1.
        let (shifted, _) = nn::below_max(b, logits)?;
        let e = b.push1(Exp, &[shifted])?;
        let e = b.push1(Mul, &[e, chosen])?;
        let total = b.push1(SumCols, &[e])?;
        let over = b.push1(Recip, &[total])?;
        b.push1(Mul, &[e, over])
    }

    /// Of the choices of each token, 1 for an expert that no more than `most` tokens of the text have chosen by then. They are counted in whole
    /// numbers, up to the context, which f32 holds exactly.
    fn taken(&self, b: &mut Builder, chosen: Value, most: u64, w: &mut dyn Weights) -> TypeResult {
        let to = b.ty(chosen).with_cols(self.experts);
        let chosen = nn::widened(b, chosen, to)?;
        let carry = w.carry(b, "chosen", [1, self.experts])?;
        let so_far = nn::scan(b, &[chosen], carry, 1)?;
        let room = nn::combine(b, &[(Exact::int(-1), so_far)])?;
        let by = Exact::int(whole(most + 1));
        let room = b.push1(Shift { by }, &[room])?;
        b.push1(WherePositive, &[room, chosen])
    }
}

/// Where only some tokens take the step at hand: 1 for these, 0 for the others, and what these choose.
fn among(b: &mut Builder, x: Value, chosen: Value) -> TypeResult<(Option<Value>, Value)> {
    let rows = b.rows.filter(|rows| *b.ty(*rows) == b.ty(x).per_row());
    let Some(rows) = rows else {
        return Ok((None, chosen));
    };
    let taking = b.push1(Shift { by: Exact::one() }, &[rows])?;
    Ok((Some(taking), b.push1(Mul, &[chosen, taking])?))
}

/// The number of a choice, or −1 if its expert does not take it.
fn or_none(b: &mut Builder, number: Value, hot: Value, taken: Value) -> TypeResult {
    let own = b.push1(Mul, &[hot, taken])?;
    let is_taken = b.push1(SumCols, &[own])?;
    let above = b.push1(Shift { by: Exact::one() }, &[number])?;
    let above = b.push1(Mul, &[above, is_taken])?;
    b.push1(Shift { by: Exact::int(-1) }, &[above])
}

/// The least whole number that is not below a positive one.
fn ceil(x: &Exact) -> u64 {
    let near = x.to_f64() as i64;
    let above = (near - 1..).find(|n| Exact::int(*n) >= *x);
    above
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(u64::MAX)
}

fn sum(b: &mut Builder, terms: &[Value]) -> TypeResult {
    let terms: Vec<(Exact, Value)> = terms.iter().map(|v| (Exact::one(), *v)).collect();
    nn::combine(b, &terms)
}
