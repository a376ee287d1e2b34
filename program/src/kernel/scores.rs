//! What becomes of attention's scores before their softmax: a bound that is approached smoothly, biases by distance, and sinks.
//!
//! `sᵢⱼ ← softcap · tanh(sᵢⱼ / softcap)` (Gemma 2, 2024), then `sᵢⱼ ← sᵢⱼ − slope · |i − j|` (Press, Smith & Lewis 2022), where head h of H, from 1, has
//! the slope `2^(−8h/H)`; then `sᵢⱼ ← sᵢⱼ + b`, a number of a table (Raffel et al. 2020): row `min(|i − j|, rows − 1)`. A sink is one more score in the denominator of each query of its head, with a value of zero (Xiao et al. 2024).

use super::attend::{Apply, Attend};
use super::signature::{Count, Mode, OperandAccess};
use super::validate;
use crate::eval::Memory;
use crate::expr::{BinaryOp, UnaryOp};
use crate::real::Real;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// What is made of scaled scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// No score is larger, nor smaller than its negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f64>,
    /// Scores fall with the distance of query and key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alibi: bool,
    /// A table of so many rows, the last of which serves all distances from its own on, is added: an operand. Column h is that of head h; where queries
    /// see keys behind them, those are of the columns `heads + h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<u64>,
    /// Each head has a sink: the last operand, a number for each head. The backward kernel knows of none: results and statistics
    /// say all that it needs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sinks: bool,
}

/// By bits.
impl Hash for Scores {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let softcap = self.softcap.map(f64::to_bits);
        (softcap, self.alibi, self.distances, self.sinks).hash(state);
    }
}

impl Scores {
    /// Nothing is.
    pub fn is_plain(&self) -> bool {
        *self == Scores::default()
    }

    /// Whether weights are those of the scaled scores.
    pub fn are_scaled_products(&self) -> bool {
        self.softcap.is_none() && !self.compare_places()
    }

    /// Whether it matters how far a key is from a query.
    pub fn compare_places(&self) -> bool {
        self.alibi || self.distances.is_some()
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        if let Some(rows) = self.distances {
            validate::length("distances that have biases", rows)?;
        }
        match self.softcap {
            Some(c) if !(c.is_finite() && c > 0.0) => Err(format!("scores are bounded by {c}")),
            _ => Ok(()),
        }
    }

    pub(super) fn headline(&self) -> String {
        let cap = self
            .softcap
            .map_or(String::new(), |c| format!(", softcap {c}"));
        let words = [(self.alibi, ", alibi"), (self.sinks, ", sinks")];
        let words = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word);
        let biases = self
            .distances
            .map_or(String::new(), |n| format!(", biases of {n} distances"));
        cap + &words.collect::<String>() + &biases
    }
}

impl Attend {
    /// Columns of the table of biases, and of its gradient.
    pub fn bias_columns(&self) -> u64 {
        self.heads * if self.causal { 1 } else { 2 }
    }

    /// The biases, before who takes part.
    pub(super) fn biases(&self) -> Option<OperandAccess> {
        let extent = |rows: u64| Count::fixed(rows.saturating_mul(self.bias_columns()));
        let biases = |rows| OperandAccess::new("biases", self.dtype, Mode::Read, [extent(rows)]);
        self.scores.distances.map(biases)
    }

    /// The slope of head h, from 1, is `e` to so many times h.
    pub fn slope_exponent(&self) -> f64 {
        -8.0 * std::f64::consts::LN_2 / self.heads as f64
    }
}

/// Scores as kernels compute them, with `tanh x = 1 − 2/(1 + e^(2x))`.
pub(super) struct Shaping<T> {
    causal: bool,
    exp: Apply<T>,
    /// The bound, and 2 over it.
    cap: Option<[T; 2]>,
    /// Of each head, where scores fall.
    slopes: Vec<T>,
    /// The table of biases by rows, each of so many columns, and heads.
    biases: Vec<T>,
    columns: usize,
    heads: usize,
}

impl<T: Real> Shaping<T> {
    /// `biases`: the operand that they are, where there are some.
    pub(super) fn new(kernel: &Attend, memory: &impl Memory<T>, biases: u32) -> Shaping<T> {
        let mut exp = Apply::new(UnaryOp::Exp);
        let factor = T::of(kernel.slope_exponent());
        let mut slope = |head: u64| {
            let exponent = T::binary(BinaryOp::Mul, factor, T::of(head as f64));
            exp.one(exponent)
        };
        let slopes = match kernel.scores.alibi {
            true => (1..=kernel.heads).map(&mut slope).collect(),
            false => vec![],
        };
        Shaping {
            causal: kernel.causal,
            exp,
            cap: kernel.scores.softcap.map(|c| [T::of(c), T::of(2.0 / c)]),
            slopes,
            biases: {
                let mut all = vec![];
                if let Some(rows) = kernel.scores.distances {
                    memory.load_all(biases, 0..rows * kernel.bias_columns(), &mut all);
                }
                all
            },
            columns: kernel.bias_columns() as usize,
            heads: kernel.heads as usize,
        }
    }

    /// The bias of a head for query `i` and key `j`, where there is one.
    fn bias(&self, head: u64, i: u64, j: u64) -> Option<T> {
        let last = (self.biases.len() / self.columns).checked_sub(1)?;
        let row = last.min(i.abs_diff(j) as usize);
        let behind = if j > i { self.heads } else { 0 };
        Some(self.biases[row * self.columns + behind + head as usize])
    }

    /// What becomes of the scaled score of query `i` and key `j` in a head, and what its derivative is multiplied by.
    pub(super) fn of(&mut self, head: u64, scaled: T, i: u64, j: u64) -> (T, Option<T>) {
        let op = T::binary;
        let (mut score, mut bend) = (scaled, None);
        if let Some([cap, twice]) = self.cap {
            let one = T::of(1.0);
            let e = self.exp.one(op(BinaryOp::Mul, scaled, twice));
            let rest = op(BinaryOp::Div, T::of(2.0), op(BinaryOp::Add, one, e));
            let tanh = op(BinaryOp::Sub, one, rest);
            score = op(BinaryOp::Mul, cap, tanh);
            let minus = op(BinaryOp::Sub, T::ZERO, tanh);
            bend = Some(T::fma(minus, tanh, one));
        }
        if let Some(slope) = self.slopes.get(head as usize) {
            let mut ahead = T::of(j as f64 - i as f64);
            if !self.causal {
                let back = op(BinaryOp::Sub, T::ZERO, ahead);
                ahead = op(BinaryOp::Min, ahead, back);
            }
            score = T::fma(*slope, ahead, score);
        }
        if let Some(bias) = self.bias(head, i, j) {
            score = op(BinaryOp::Add, score, bias);
        }
        (score, bend)
    }
}
