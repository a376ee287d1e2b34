//! Linear attention against its other form: sums over pairs of tokens, each weighted by the decays between them.

use crate::common::{Random, close};
use odec_graph::interp::{EvalCx, Tensor};
use odec_graph::ops::LinearAttention;
use odec_graph::{InferTypes, OpKind, TensorType};
use odec_program::Bindings;
use odec_program::kernel::Decay;

const HEADS: usize = 2;
/// Columns of a head of keys, and of one of values.
const KEY: usize = 3;
const VALUE: usize = 4;

fn eval(op: LinearAttention, ins: &[Tensor], bindings: Bindings) -> Vec<Tensor> {
    let ins: Vec<&Tensor> = ins.iter().collect();
    OpKind::from(op)
        .eval(&ins, &EvalCx { bindings })
        .expect("operands that fit")
}

/// q, k, v and decays for a text, the same for all decays.
fn operands(decay: Decay, at: Bindings) -> Vec<Tensor> {
    let mut random = Random(3);
    let mut tensor = |cols: usize, low| {
        let ty = TensorType::state(cols as u64);
        random.tensor(&ty, at, (low, 1.0), 0)
    };
    let mut all = vec![
        tensor(HEADS * KEY, -1.0),
        tensor(HEADS * KEY, -1.0),
        tensor(HEADS * VALUE, -1.0),
    ];
    match decay {
        Decay::None => {}
        Decay::Head => all.push(tensor(HEADS, 0.0)),
        Decay::Key => all.push(tensor(HEADS * KEY, 0.0)),
        Decay::Value => all.push(tensor(HEADS * VALUE, 0.0)),
    }
    all
}

/// `o_tj = Σ_s Σ_i q_ti k_si v_sj Π α_uij`, the product over the tokens after s up to t (reversed: after t up to s).
fn by_pairs(op: LinearAttention, ins: &[Tensor]) -> Vec<f64> {
    let (batch, seq) = (ins[0].shape[0] as usize, ins[0].shape[1] as usize);
    let mut o = vec![0.0; batch * seq * HEADS * VALUE];
    for b in 0..batch {
        let row = |t: usize, h: usize| (b * seq + t) * HEADS + h;
        let decay = |u: usize, h: usize, i: usize, j: usize| match op.decay {
            Decay::None => 1.0,
            Decay::Head => ins[3].data[row(u, h)],
            Decay::Key => ins[3].data[row(u, h) * KEY + i],
            Decay::Value => ins[3].data[row(u, h) * VALUE + j],
        };
        for (t, s, h) in
            (0..seq * seq * HEADS).map(|n| (n / HEADS / seq, n / HEADS % seq, n % HEADS))
        {
            let seen = if op.reversed { s >= t } else { s <= t };
            for (i, j) in (0..KEY * VALUE).map(|n| (n / VALUE, n % VALUE)) {
                if seen {
                    let between = s.min(t) + 1..s.max(t) + 1;
                    let faded: f64 = between.map(|u| decay(u, h, i, j)).product();
                    let weight =
                        ins[0].data[row(t, h) * KEY + i] * ins[1].data[row(s, h) * KEY + i];
                    o[row(t, h) * VALUE + j] += weight * faded * ins[2].data[row(s, h) * VALUE + j];
                }
            }
        }
    }
    o
}

#[test]
fn the_recurrence_is_the_sum_over_pairs() {
    let at = Bindings::new(2, 9);
    for decay in [Decay::None, Decay::Head, Decay::Key, Decay::Value] {
        for reversed in [false, true] {
            let op = LinearAttention {
                reversed,
                ..LinearAttention::new(HEADS as u64, decay)
            };
            let ins = operands(decay, at);
            let found = eval(op, &ins, at).remove(0);
            for (a, b) in found.data.iter().zip(by_pairs(op, &ins)) {
                assert!(close(*a, b, 1e-13), "{op:?}: {a} is not {b}");
            }
        }
    }
}

/// What the matrices miss of the values under the delta rule, with the matrices as products:
/// `S_t = (I − k_tᵀ q_t) F(S) + k_tᵀ v_t`, F(S) the matrix of the token before (reversed: behind), faded.
fn missed(op: LinearAttention, ins: &[Tensor]) -> Vec<f64> {
    let (batch, seq) = (ins[0].shape[0] as usize, ins[0].shape[1] as usize);
    let mut o = vec![0.0; batch * seq * HEADS * VALUE];
    for (b, h) in (0..batch * HEADS).map(|n| (n / HEADS, n % HEADS)) {
        let row = |t: usize| (b * seq + t) * HEADS + h;
        let decay = |u: usize, i: usize, j: usize| match op.decay {
            Decay::None => 1.0,
            Decay::Head => ins[3].data[row(u)],
            Decay::Key => ins[3].data[row(u) * KEY + i],
            Decay::Value => ins[3].data[row(u) * VALUE + j],
        };
        let mut s = [[0.0; VALUE]; KEY];
        for n in 0..seq {
            let t = if op.reversed { seq - 1 - n } else { n };
            // Between two tokens the decay of the later one counts.
            let between = if op.reversed { t + 1 } else { t };
            let faded = |i: usize, j: usize| match n {
                0 => 0.0,
                _ => decay(between, i, j) * s[i][j],
            };
            let [q, k] = [0, 1].map(|x: usize| &ins[x].data[row(t) * KEY..][..KEY]);
            let v = &ins[2].data[row(t) * VALUE..][..VALUE];
            let next = std::array::from_fn(|i| {
                std::array::from_fn(|j| {
                    let unit = |l: usize| if l == i { 1.0 } else { 0.0 };
                    let kept = |l: usize| (unit(l) - k[i] * q[l]) * faded(l, j);
                    (0..KEY).map(kept).sum::<f64>() + k[i] * v[j]
                })
            });
            for j in 0..VALUE {
                let read: f64 = (0..KEY).map(|i| q[i] * faded(i, j)).sum();
                o[row(t) * VALUE + j] = v[j] - read;
            }
            s = next;
        }
    }
    o
}

#[test]
fn the_delta_rule_multiplies_by_matrices() {
    let at = Bindings::new(2, 9);
    for decay in [Decay::None, Decay::Head, Decay::Key, Decay::Value] {
        for reversed in [false, true] {
            let op = LinearAttention {
                reversed,
                delta: true,
                ..LinearAttention::new(HEADS as u64, decay)
            };
            let ins = operands(decay, at);
            let found = eval(op, &ins, at).remove(0);
            for (a, b) in found.data.iter().zip(missed(op, &ins)) {
                assert!(close(*a, b, 1e-12), "{op:?}: {a} is not {b}");
            }
        }
    }
}

/// Under the delta rule a key of length 1 gives back the value that it was just given, whatever was there before.
#[test]
fn a_key_of_length_1_gives_its_value() {
    let at = Bindings::new(2, 9);
    let mut ins = operands(Decay::None, at);
    for key in ins[1].data.chunks_exact_mut(KEY) {
        let length = key.iter().map(|x| x * x).sum::<f64>().sqrt();
        key.iter_mut().for_each(|x| *x /= length);
    }
    let sums = LinearAttention::new(HEADS as u64, Decay::None);
    let delta = LinearAttention {
        delta: true,
        ..sums
    };
    ins[0] = ins[1].clone();
    let values = ins[2].clone();
    ins[2] = eval(delta, &ins, at).remove(0);
    let read = eval(sums, &ins, at).remove(0);
    for (a, b) in read.data.iter().zip(&values.data) {
        assert!(close(*a, *b, 1e-13), "{a} is not {b}");
    }
}

/// Rows from one token to another of every sequence.
fn piece(x: &Tensor, from: usize, to: usize) -> Tensor {
    let (batch, seq, cols) = (x.shape[0] as usize, x.shape[1] as usize, x.cols());
    let rows = |b: usize| &x.data[(b * seq + from) * cols..(b * seq + to) * cols];
    let data = (0..batch).flat_map(rows).copied().collect();
    Tensor::new(vec![x.shape[0], (to - from) as u64, cols as u64], data)
}

/// In every bit, and whatever the memory held before the text began.
#[test]
fn pieces_are_the_whole() {
    let whole = Bindings::new(2, 9);
    let decays = [Decay::None, Decay::Head, Decay::Key, Decay::Value];
    for (decay, delta) in decays.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let op = LinearAttention {
            delta,
            ..LinearAttention::new(HEADS as u64, decay)
        };
        let ins = operands(decay, whole);
        let wanted = eval(op, &ins, whole).remove(0);
        let op = LinearAttention {
            continued: true,
            ..op
        };
        let shape = vec![2, (HEADS * KEY) as u64, VALUE as u64];
        let mut matrices = Tensor::new(shape, vec![7.0; 2 * HEADS * KEY * VALUE]);
        for (from, to) in [(0, 3), (3, 4), (4, 9)] {
            let at = Bindings::new(2, (to - from) as u64).after(from as u64);
            let mut ins: Vec<Tensor> = ins.iter().map(|x| piece(x, from, to)).collect();
            ins.push(matrices);
            let mut found = eval(op, &ins, at);
            matrices = found.pop().expect("matrices");
            assert_eq!(found[0].data, piece(&wanted, from, to).data, "{op:?}");
        }
    }
}

/// A token whose decay is 0 forgets all before it, and nothing becomes infinite.
#[test]
fn a_decay_of_zero_forgets() {
    let at = Bindings::new(1, 6);
    let op = LinearAttention::new(HEADS as u64, Decay::Head);
    let mut ins = operands(Decay::Head, at);
    ins[3].data[3 * HEADS..4 * HEADS].fill(0.0);
    let all = eval(op, &ins, at).remove(0);
    let late: Vec<Tensor> = ins.iter().map(|x| piece(x, 3, 6)).collect();
    let alone = eval(op, &late, Bindings::new(1, 3)).remove(0);
    assert_eq!(piece(&all, 3, 6).data, alone.data);
}

#[test]
fn wrong_operands_are_named() {
    let said = |op: LinearAttention, columns: &[u64]| {
        let ins: Vec<TensorType> = columns.iter().map(|c| TensorType::state(*c)).collect();
        OpKind::from(op).infer(&ins).expect_err("wrong").what
    };
    let of = LinearAttention::new;
    let continued = LinearAttention {
        continued: true,
        ..of(2, Decay::None)
    };
    let all = [
        said(of(2, Decay::None), &[4, 4]),
        said(of(2, Decay::None), &[5, 5, 4]),
        said(of(0, Decay::None), &[4, 4, 4]),
        said(of(2, Decay::None), &[4, 6, 4]),
        said(of(2, Decay::Head), &[4, 4, 6, 4]),
        said(of(2, Decay::Value), &[4, 4, 6, 4]),
        said(continued, &[4, 4, 6, 4]),
    ];
    let wanted = [
        "takes 3 operands, not 2",
        "5 columns are not 2 heads",
        "4 columns are not 0 heads",
        "queries [B, S, 4] and keys [B, S, 6] differ",
        "a decay of type [B, S, 4], not [B, S, 2]",
        "a decay of type [B, S, 4], not [B, S, 6]",
        "matrices of type [B, S, 4], not [B, 4, 3]",
    ];
    assert_eq!(all, wanted);
}
