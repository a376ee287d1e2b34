//! Gradients of attention ([`Attend`]): signature and meaning.

use super::attend::{Apply, Attend, K, LSE, O, OF_KEYS, Q, V, add_scaled, dot, each_head};
use super::signature::{Count, Mode, Signature};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::{LANES, Memory, tree};
use crate::expr::{BinaryOp, ReduceOp, UnaryOp};
use crate::real::Real;

/// Where the operands are that come after those of the forward kernel.
const D_O: u32 = 5;
const D_Q: u32 = 6;
const D_K: u32 = OF_KEYS[2];
const D_V: u32 = OF_KEYS[3];

pub(super) struct AttendBackwardKind;

impl Kind for AttendBackwardKind {
    type Spec = Attend;
    const NAME: &'static str = "attend_backward";

    fn dtype(a: &Attend) -> DType {
        a.dtype
    }

    fn validate(a: &Attend) -> Result<(), String> {
        a.validate()
    }

    fn signature(a: &Attend) -> Signature {
        let operands = vec![
            a.wide("q", Mode::Read, &[0, 1]),
            a.narrow("k", Mode::Read, &[0, 1]),
            a.narrow("v", Mode::Read, &[0, 1]),
            a.wide("o", Mode::Read, &[0, 1]),
            a.statistic(Mode::Read, &[0, 1]),
            a.wide("d_o", Mode::Read, &[0, 1]),
            a.wide("d_q", Mode::Write, &[0, 1]),
            a.narrow("d_k", Mode::Write, &[0, 1]),
            a.narrow("d_v", Mode::Write, &[0, 1]),
        ];
        let (block, d) = (Attend::BLOCK, a.padded_head());
        // qᵀ, d_oᵀ, q, d_o, k, v, d_q blocks; weights and their gradient; lse and delta
        let fixed = 7 * block * d + 2 * block * block + 2 * block + 64;
        // d_k and d_v of the sequence
        let of_sequence = Count::Blocks {
            dim: 1,
            block,
            each: 2 * d,
        };
        Signature {
            scratch: vec![Count::fixed(fixed), of_sequence],
            // Scores again, gradients of weights, queries, keys and values.
            work: a.work(5, Some(0), None),
            ..a.signature(operands, 4)
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
        eval_attend_backward::<T>(a, m, [at.dims[0], at.dims[1]]);
    }

    fn samples() -> Vec<Sample<Attend>> {
        Attend::samples_at(&[2, 5])
    }
}

/// Runs a whole launch of the backward kernel. `dims` are `[batch, seq]`. With P the softmax of the scores and
/// δ = Σ dO ∘ O per row: dV = Pᵀ·dO, dS = scale · P ∘ (dO·Vᵀ − δ), dQ = dS·K, dK = dSᵀ·Q. Heads that share keys add to
/// their gradients one after the other.
pub fn eval_attend_backward<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: [u64; 2]) {
    let op = T::binary;
    let mut exp = Apply::new(UnaryOp::Exp);
    let scale = T::of(kernel.scale);
    each_head(kernel, memory, dims, |mut head| {
        let [q, k, v, o, d_o] = [Q, K, V, O, D_O].map(|operand| head.rows::<T>(operand));
        let zero = vec![vec![T::ZERO; kernel.head as usize]; q.len()];
        let (mut d_k, mut d_v) = match head.number % kernel.group() {
            0 => (zero.clone(), zero),
            _ => (head.rows::<T>(D_K), head.rows::<T>(D_V)),
        };
        for i in 0..q.len() {
            let lse = head.memory.load(LSE, head.statistic(i as u64));
            let delta = row_product(&o[i], &d_o[i]);
            let keys = head.keys(i as u64);
            let score = |k: &Vec<T>| op(BinaryOp::Mul, dot(k, &q[i]), scale);
            let shifted: Vec<T> = k[keys.clone()]
                .iter()
                .map(|k| op(BinaryOp::Sub, score(k), lse))
                .collect();
            let mut d_q = vec![T::ZERO; kernel.head as usize];
            for (j, p) in keys.zip(exp.all(&shifted)) {
                let away = op(BinaryOp::Sub, dot(&v[j], &d_o[i]), delta);
                let slope = op(BinaryOp::Mul, op(BinaryOp::Mul, p, away), scale);
                add_scaled(&mut d_v[j], p, &d_o[i]);
                add_scaled(&mut d_k[j], slope, &q[i]);
                add_scaled(&mut d_q, slope, &k[j]);
            }
            head.write(D_Q, i as u64, &d_q);
        }
        for (r, (d_k, d_v)) in d_k.iter().zip(&d_v).enumerate() {
            head.write(D_K, r as u64, d_k);
            head.write(D_V, r as u64, d_v);
        }
    });
}

/// `Σ x ∘ y` over the 16 virtual lanes of a row reduction, products fused into the lanes' sums.
fn row_product<T: Real>(x: &[T], y: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    for (c, (x, y)) in x.iter().zip(y).enumerate() {
        lanes[c % LANES] = T::fma(*x, *y, lanes[c % LANES]);
    }
    tree(ReduceOp::Sum, lanes)
}
