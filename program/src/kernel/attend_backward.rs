//! Gradients of attention ([`Attend`]): signature and meaning.

use super::attend::{Apply, Attend, Head, K, LSE, O, Q, V, each_head};
use super::products::{self, pieces};
use super::scores::Shaping;
use super::signature::{Count, Mode, OperandAccess, Signature};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::{LANES, Memory, tree};
use crate::expr::{BinaryOp, ReduceOp, UnaryOp};
use crate::real::Real;
use std::ops::Range;

/// Where the operands are that come after those of the forward kernel.
/// In the place of o.
const DELTA: u32 = O;
const D_O: u32 = 5;
const D_Q: u32 = 6;
const D_K: u32 = 7;
const D_V: u32 = 8;
/// Never together.
const NUMBERS: u32 = 9;
const D_DISTANCES: u32 = 9;
const BIASES: u32 = 10;

pub(super) struct AttendBackwardKind;

impl Kind for AttendBackwardKind {
    type Spec = Attend;
    const NAME: &'static str = "attend_backward";

    fn dtype(a: &Attend) -> DType {
        a.dtype
    }

    fn validate(a: &Attend) -> Result<(), String> {
        if a.scores.sinks {
            return Err("gradients of attention know no sinks".into());
        }
        if a.rounds {
            return Err("gradients of attention are not rounded".into());
        }
        a.validate().and_then(|()| a.keeps_nothing())
    }

    fn signature(a: &Attend) -> Signature {
        let d_o = OperandAccess {
            dtype: a.inputs,
            ..a.of_tokens(5, Mode::Read)
        };
        let fourth = match a.reads_delta() {
            true => a.statistic("delta", Mode::Read, &[0, 1]),
            false => a.of_tokens(3, Mode::Read),
        };
        let operands = vec![
            a.of_tokens(0, Mode::Read),
            a.of_tokens(1, Mode::Read),
            a.of_tokens(2, Mode::Read),
            fourth,
            a.statistic("lse", Mode::Read, &[0, 1]),
            d_o,
            a.of_tokens(6, Mode::Write),
            a.of_tokens(7, Mode::Write),
            a.of_tokens(8, Mode::Write),
        ];
        let of_distances = Count::rows(&[0, 1], a.bias_columns());
        let of_distances = a
            .biases()
            .map(|_| OperandAccess::new("d_distances", a.dtype, Mode::Write, [of_distances]));
        let numbers = a.numbers(Count::rows(a.tokens(K.into()), 1));
        let behind = of_distances.into_iter().chain(a.biases()).chain(numbers);
        let operands = operands.into_iter().chain(behind).collect();
        let (block, d, v) = (Attend::BLOCK, a.padded_head(), a.padded_value());
        // qᵀ, q, k, d_q and d_oᵀ, d_o, v blocks; weights and their gradient; lse and delta. In pairs, all blocks but k and d_q take half of that, which leaves
        // more than the half block that holds the gradient once more, and another one on tile registers.
        let fixed = block * (4 * d + 3 * v) + 2 * block * block + 2 * block + 64 + 2 * a.near();
        let mut scratch = a.list_scratch(fixed, a.of_keys(2));
        // d_k and d_v of the sequence
        scratch.push(a.of_keys(d + v));
        Signature {
            scratch,
            work: a.work_of_whole(a.backward_products()),
            ..a.signature(operands, 3)
        }
    }

    /// Heads that share keys add to the same gradients.
    fn tiles(a: &Attend, dims: &[u64]) -> u64 {
        dims[0] * a.kv_heads
    }

    fn headline(a: &Attend) -> String {
        a.headline()
    }

    fn run<T: Real>(a: &Attend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_attend_backward::<T>(a, m, at.dims);
    }

    fn samples() -> Vec<Sample<Attend>> {
        let mut all = Attend::samples_at(&[2, 5], false);
        let mut some = all[0].clone();
        (some.spec.causal, some.spec.partial) = (false, true);
        let mut far = all[0].clone();
        far.spec.causal = false;
        far.spec.scores.distances = Some(2);
        all.extend([some, far]);
        all.extend(Attend::samples_of_others(&[2, 5, 3], false));
        all
    }
}

/// Runs a whole launch of the backward kernel. `dims` are `[batch, seq]`, and `keys` where these are others. With P the softmax of the scores and
/// δ = Σ dO ∘ O per row, of dO as it is read, in the order of a row reduction (where inputs are rounded it is an operand): dV = Pᵀ·dO, dS = scale · P ∘ (dO·Vᵀ − δ), dQ = dS·K, dK = dSᵀ·Q; where scores are bounded, dS is multiplied by what
/// the bound's derivative is. The gradient of a bias is `P ∘ (dO·Vᵀ − δ)`. Heads that share keys add to their gradients one after the other. Sinks, with which o and lse were made, are part of
/// both: P are the weights that are left to keys.
pub fn eval_attend_backward<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: &[u64]) {
    let op = T::binary;
    let mut exp = Apply::new(UnaryOp::Exp);
    let mut shaping = Shaping::new(kernel, memory, BIASES);
    let (scale, order) = (T::of(kernel.scale), kernel.order);
    let lengths = kernel.lengths(dims);
    each_head(kernel, memory, lengths, |mut head| {
        let part = head.part::<T>(lengths[2], NUMBERS);
        let own = head.queries(&part);
        let [q, d_o] = [Q, D_O].map(|operand| head.rows::<T>(operand, &own));
        let [k, v] = [K, V].map(|operand| head.rows::<T>(operand, &part));
        let o = (!kernel.reads_delta()).then(|| head.rows::<T>(O, &own));
        let zero = |columns: u64| vec![vec![T::ZERO; columns as usize]; k.len()];
        let (mut d_k, mut d_v) = match head.number % kernel.group() {
            0 => (zero(kernel.head), zero(kernel.value_head())),
            _ => (head.rows::<T>(D_K, &part), head.rows::<T>(D_V, &part)),
        };
        let mut d_biases = Biases::of(kernel, lengths[1]);
        // Queries that are multiplied together.
        for queries in pieces(0..q.len(), order.chunk()) {
            let mut all: Vec<Seen<T>> = vec![];
            for i in queries.clone() {
                let lse = head.memory.load(LSE, head.statistic(own[i]));
                let delta = match &o {
                    Some(o) => row_product(&o[i], &d_o[i]),
                    None => head.memory.load(DELTA, head.statistic(own[i])),
                };
                let keys = head.keys(i as u64, part.len());
                let score = |j: usize| {
                    let scaled = op(BinaryOp::Mul, products::sum(order, &k[j], &q[i]), scale);
                    shaping.of(head.number, scaled, i as u64, j as u64)
                };
                let (scores, bends): (Vec<T>, Vec<Option<T>>) = keys.clone().map(score).unzip();
                let shifted: Vec<T> = scores.iter().map(|s| op(BinaryOp::Sub, *s, lse)).collect();
                let weights = exp.all(&shifted);
                let slope = |((j, p), bend): ((usize, &T), Option<T>)| {
                    let rate = products::sum(order, &v[j], &d_o[i]);
                    let slope = op(BinaryOp::Mul, *p, op(BinaryOp::Sub, rate, delta));
                    d_biases.add(i, j, slope);
                    let slope = bend.map_or(slope, |bend| op(BinaryOp::Mul, slope, bend));
                    op(BinaryOp::Mul, slope, scale)
                };
                let each = keys.clone().zip(&weights).zip(bends);
                all.push(Seen {
                    slopes: each.map(slope).collect(),
                    weights,
                    keys,
                });
            }
            for (i, seen) in queries.clone().zip(&all) {
                let mut d_q = vec![T::ZERO; kernel.head as usize];
                for keys in pieces(seen.keys.clone(), order.chunk()) {
                    let (first, term) = (keys.start, |j| (seen.at(&seen.slopes, j), &k[j][..]));
                    let terms: Vec<(T, &[T])> = keys.map(term).collect();
                    products::add(order, &mut d_q, first, &terms);
                }
                d_q.iter_mut()
                    .for_each(|x| *x = products::result(order, *x));
                head.write(D_Q, own[i], &d_q);
            }
            // Of several queries the last sees the last keys, the first one the first.
            let (first, last) = (all.first(), all.last());
            let keys = first.map_or(0, |s| s.keys.start)..last.map_or(0, |s| s.keys.end);
            for j in keys {
                let each = || queries.clone().zip(&all);
                let terms = each().map(|(i, s)| (s.at(&s.weights, j), &d_o[i][..]));
                products::add(
                    order,
                    &mut d_v[j],
                    queries.start,
                    &terms.collect::<Vec<_>>(),
                );
                let terms = each().map(|(i, s)| (s.at(&s.slopes, j), &q[i][..]));
                products::add(
                    order,
                    &mut d_k[j],
                    queries.start,
                    &terms.collect::<Vec<_>>(),
                );
            }
        }
        let sums = d_k.iter_mut().chain(&mut d_v).flatten();
        sums.for_each(|x| *x = products::result(order, *x));
        for (row, (d_k, d_v)) in part.iter().zip(d_k.iter().zip(&d_v)) {
            head.write(D_K, *row, d_k);
            head.write(D_V, *row, d_v);
        }
        d_biases.write(&mut head);
        head.clear::<T>(D_Q, &own);
        for operand in [D_K, D_V] {
            head.clear::<T>(operand, &part);
        }
    });
}

/// The gradients of a head's biases, by distance, of keys before queries and behind them: nothing where there are none.
struct Biases<T> {
    sums: Vec<Vec<T>>,
}

impl<T: Real> Biases<T> {
    fn of(kernel: &Attend, seq: u64) -> Biases<T> {
        let sides = match kernel.scores.distances {
            Some(_) => kernel.bias_columns() / kernel.heads,
            None => 0,
        };
        Biases {
            sums: vec![vec![T::ZERO; seq as usize]; sides as usize],
        }
    }

    fn add(&mut self, i: usize, j: usize, slope: T) {
        if let Some(side) = self.sums.get_mut(usize::from(j > i)) {
            let sum = &mut side[i.abs_diff(j)];
            *sum = T::binary(BinaryOp::Add, *sum, slope);
        }
    }

    fn write<M: Memory<T>>(&self, head: &mut Head<M>) {
        for (side, sums) in self.sums.iter().enumerate() {
            for (distance, sum) in sums.iter().enumerate() {
                let at = head.of_distance(distance as u64, side as u64);
                head.memory.store(D_DISTANCES, at, *sum);
            }
        }
    }
}

/// What a query makes of the keys that it sees.
struct Seen<T> {
    keys: Range<usize>,
    weights: Vec<T>,
    slopes: Vec<T>,
}

impl<T: Real> Seen<T> {
    /// Its weight or slope of key `j`, zero if it does not see it.
    fn at(&self, of: &[T], j: usize) -> T {
        match self.keys.contains(&j) {
            true => of[j - self.keys.start],
            false => T::ZERO,
        }
    }
}

/// `Σ x ∘ y` over the 16 virtual lanes of a row reduction, products fused into the lanes' sums.
fn row_product<T: Real>(x: &[T], y: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    for (c, (x, y)) in x.iter().zip(y).enumerate() {
        lanes[c % LANES] = T::fma(*x, *y, lanes[c % LANES]);
    }
    tree(ReduceOp::Sum, lanes)
}
