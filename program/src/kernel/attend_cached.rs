//! Attention to the KV cache ([`Attend`]): signature and meaning.

use super::attend::{Attend, K, O, Q, Query, V, each_head};
use super::signature::{Dimension, Mode, Signature};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;

/// Behind the others.
const SINKS: u32 = 4;

pub(super) struct AttendCachedKind;

impl Kind for AttendCachedKind {
    type Spec = Attend;
    const NAME: &'static str = "attend_cached";

    fn dtype(a: &Attend) -> DType {
        a.dtype
    }

    fn validate(a: &Attend) -> Result<(), String> {
        match a.causal {
            true => a.validate(),
            false => Err("attention to kept keys is not causal".into()),
        }
    }

    fn signature(a: &Attend) -> Signature {
        let operands = vec![
            a.rows(0, Mode::Read, &[0]),
            a.kept("k", 1, &[0, 1]),
            a.kept("v", 2, &[0, 1]),
            a.rows(3, Mode::Write, &[0]),
        ];
        let operands = operands.into_iter().chain(a.sinks()).collect();
        Signature {
            dims: vec![Dimension::any("seq"), Dimension::any("past")],
            work: a.work(a.forward_products(), None, Some(1)),
            ..a.signature(operands, 3)
        }
    }

    fn tiles(a: &Attend, dims: &[u64]) -> u64 {
        a.heads * dims[0].div_ceil(Attend::QUERIES)
    }

    fn headline(a: &Attend) -> String {
        a.headline()
    }

    fn run<T: Real>(a: &Attend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_attend_cached::<T>(a, m, [at.dims[0], at.dims[1]]);
    }

    fn samples() -> Vec<Sample<Attend>> {
        Attend::samples_at(&[3, 4], true)
    }
}

/// Runs a whole launch of the cached kernel. `dims` are `[seq, past]`.
pub fn eval_attend_cached<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: [u64; 2]) {
    let [seq, past] = dims;
    let mut query = Query::<T>::new(kernel);
    // One sequence of all rows: queries are read and written by their own numbers, keys and values by their positions.
    each_head(kernel, memory, [1, past + seq], |mut head| {
        let (k, v) = (head.rows::<T>(K), head.rows::<T>(V));
        let of = (head.number, head.sink::<T>(SINKS));
        for i in 0..seq {
            let (q, position) = (head.row::<T>(Q, i), past + i);
            let (o, _) = query.attend(of, position, &q, &k, &v, head.keys(position));
            head.write(O, i, &o);
        }
    });
}
