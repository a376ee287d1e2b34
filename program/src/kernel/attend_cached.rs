//! Attention to the KV cache ([`Attend`]): signature and meaning.

use super::attend::{Attend, K, O, Q, Query, V, each_head};
use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;

/// Positions, where each sequence has its own.
const PLACES: u32 = 4;

pub(super) struct AttendCachedKind;

impl Kind for AttendCachedKind {
    type Spec = Attend;
    const NAME: &'static str = "attend_cached";

    fn dtype(a: &Attend) -> DType {
        a.dtype
    }

    fn validate(a: &Attend) -> Result<(), String> {
        a.validate()?;
        match (a.causal, a.room) {
            (false, None) => Err("attention to the kept keys of one sequence is causal".into()),
            (false, Some(_)) if a.scores.compare_places() => {
                Err("its queries have no places".into())
            }
            _ if a.others => Err("keys that are kept are of a number of their own".into()),
            _ => Ok(()),
        }
    }

    fn signature(a: &Attend) -> Signature {
        let rows: &[usize] = match a.room {
            None => &[0],
            Some(_) => &[2, 0],
        };
        let operands = vec![
            a.rows(0, Mode::Read, rows),
            a.kept("k", 1),
            a.kept("v", 2),
            a.rows(3, Mode::Write, rows),
        ];
        let operands = operands.into_iter().chain(places(a)).chain(a.sinks());
        let operands = operands
            .chain(a.biases())
            .chain(a.partial.then(|| a.kept_numbers()));
        let operands = operands.collect();
        let mut dims = vec![Dimension::any("seq"), Dimension::any("past")];
        dims.extend(a.room.map(|_| Dimension::any("sequences")));
        if let Some(room) = a.own_positions() {
            let fixed = |name, n| Dimension {
                name,
                fixed: Some(n),
            };
            dims[0] = fixed("seq", 1);
            dims.push(fixed("room", room));
        }
        let work = match (a.causal, a.room) {
            (true, None) => a.work(a.forward_products(), [None, Some(1)], 0),
            (true, Some(_)) => a.work(a.forward_products(), [Some(2), Some(1)], 0),
            (false, room) => {
                let each = a.forward_products().saturating_mul(room.unwrap_or(0));
                Work::attention(Count::rows(&[2, 0], each))
            }
        };
        let numbers = match a.room {
            None => Count::Sum {
                dims: &[0, 1],
                each: 2,
            },
            Some(room) => Count::fixed(room.saturating_mul(2)),
        };
        Signature {
            dims,
            work,
            scratch: a.list_scratch(a.forward_scratch(), numbers),
            ..a.signature(operands, 3)
        }
    }

    fn tiles(a: &Attend, dims: &[u64]) -> u64 {
        let sequences = a.room.map_or(1, |_| dims[2]);
        sequences * a.heads * dims[0].div_ceil(Attend::QUERIES)
    }

    fn headline(a: &Attend) -> String {
        a.headline()
    }

    fn run<T: Real>(a: &Attend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_attend_cached::<T>(a, m, at.dims);
    }

    fn samples() -> Vec<Sample<Attend>> {
        let mut all = Attend::samples_at(&[3, 4], true);
        for Sample { spec, .. } in Attend::samples_at(&[3, 4], true) {
            let of = |room| Attend {
                room: Some(room),
                ..spec.clone()
            };
            // The room is full behind these tokens.
            all.push(Sample::new(of(8), &[1, 7, 1, 8], &[]));
            all.push(Sample::new(of(1), &[1, 0, 2, 1], &[]));
            let full = Attend {
                causal: false,
                window: None,
                ..of(8)
            };
            if !full.scores.compare_places() {
                all.push(Sample::new(full, &[3, 4, 2], &[]));
            }
        }
        all
    }
}

/// The position of the query of each sequence, below a dim that is as large as their room.
fn places(a: &Attend) -> Option<OperandAccess> {
    a.own_positions()?;
    let (mode, each) = (Mode::Index { rows: 3 }, Count::rows(&[2], 1));
    Some(OperandAccess::new("places", DType::I32, mode, [each]))
}

/// Runs a whole launch of the cached kernel. `dims` are `[seq, past]`, or `[seq, past, sequences]` where each has room of its own, and the room behind
/// them where each has a position of its own.
pub fn eval_attend_cached<T: Real>(
    kernel: &Attend,
    memory: &mut (impl Memory<T> + Indices),
    dims: &[u64],
) {
    let (seq, past) = (dims[0], dims[1]);
    let (sequences, keys) = match kernel.room {
        None => (1, past + seq),
        Some(room) => (dims[2], room),
    };
    let own = kernel.own_positions().is_some();
    let sinks = PLACES + u32::from(own);
    // Never together.
    let [numbers, biases] = [sinks + u32::from(kernel.scores.sinks); 2];
    let mut query = Query::<T>::new(kernel, memory, biases);
    each_head(kernel, memory, [sequences, seq, keys], |mut head| {
        let past = match own {
            true => head.memory.index(PLACES, head.batch),
            false => past,
        };
        let seen = match kernel.causal {
            true => past + seq,
            false => keys,
        };
        let part = head.part::<T>(seen, numbers);
        let [k, v] = [K, V].map(|operand| head.rows::<T>(operand, &part));
        let of = (head.number, head.sink::<T>(sinks));
        let mut queries = vec![];
        for i in 0..seq {
            // Where queries see all keys, all queries take part.
            let position = match kernel.causal {
                true => part.iter().position(|row| *row == past + i),
                false => Some((past + i) as usize),
            };
            let Some(position) = position else { continue };
            let seen = head.keys(position as u64, part.len());
            let q = head.row::<T>(Q, i);
            let (o, _) = query.attend(of, position as u64, &q, &k, &v, seen);
            head.write(O, i, &o);
            queries.push(i);
        }
        head.clear::<T>(O, &queries);
    });
}
