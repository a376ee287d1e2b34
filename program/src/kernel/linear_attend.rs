//! Linear attention: a matrix for each head that tokens decay, add to and read ([`LinearAttend`]): signature and meaning.
//!
//! The recurrence is followed token by token, each element by itself: no order of summation is left open, and reading a text in pieces
//! gives the bits of reading it whole.

use super::scan::{chunk, left};
use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::validate::{self, MOST_HEAD, MOST_HEADS};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Per sequence and head, `S_t = α_t S_{t−1} + k_tᵀ v_t`, `o_t = q_t S_t` (Katharopoulos et al. 2020; with decay α: Yang et al. 2024), S a
/// matrix of `key` × `value` that starts at zero. `reversed`: from the last token on, `S_t = α_{t+1} S_{t+1} + k_tᵀ v_t`.
/// `delta`: o_t is what the matrix before the token, faded, misses of v_t, and takes the place of v_t: `o_t = v_t − q_t α_t S_{t−1}`,
/// `S_t = α_t S_{t−1} + k_tᵀ o_t` (the delta rule of Widrow & Hoff 1960, as in Schlag et al. 2021).
///
/// A sequence has `chunks` chunks of tokens ([`super::chunk`]) that do not wait for each other. S begins with what the others leave, joined from
/// zero, chunk by chunk in the order in which tokens are read: `S ← product · S + end`, rounded once, of their ends
/// `[batch, chunks, heads · key, value]` and the products of their decays `[batch, chunks, columns of α]`, which other launches have made
/// ([`Part`]). `delta`: `S ← T S + end`, `T` the chunk's transition `[batch, chunks, heads · key, key]`; each element adds `T_il S_lj` over l in order
/// to that of the end by fused multiply-adds.
///
/// dims: `[batch, seq]`. Operands q and k `[batch, seq, heads · key]`, v `[batch, seq, heads · value]`, α unless there is none, of several chunks
/// the products, where there is an α, or the transitions, and the ends, o like v. Ends are made of k, v and α, under the delta rule of q too;
/// transitions of q, k and α.
/// `continued`: one operand more, the matrices that the last run left, `[batch, heads · key, value]`, of which those after the last token
/// take the place, and one of dims, `past`; where it is 0, S starts at zero.
/// tiles: `batch · chunks · heads · ceil(value / COLS)`, a block of columns of values each, index = ((b · chunks + c) · heads + h) · blocks + block.
///
/// In each element: the product with α rounded, then a fused multiply-add of k_i v_j; o_j sums `q_i S_ij` over i in order from zero by
/// fused multiply-add. `delta`: that sum is taken before the addition, and the difference of v_j and it rounded.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct LinearAttend {
    pub dtype: DType,
    pub heads: u64,
    /// Columns of a head of queries and keys: rows of S.
    pub key: u64,
    /// Columns of a head of values and results: columns of S.
    pub value: u64,
    pub decay: Decay,
    pub reversed: bool,
    pub continued: bool,
    pub delta: bool,
    /// 1: each sequence is one recurrence.
    pub chunks: u64,
    pub part: Part,
}

/// What a launch makes of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The results.
    Results,
    /// S of each chunk from zero, which is what it adds.
    Ends,
    /// S of each chunk from the identity with values of zero, which is what it makes of what came before under the delta rule. `value` is `key`.
    Transitions,
}

/// What α is a number for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// There is none: α is 1.
    None,
    /// Each head: `[batch, seq, heads]`.
    Head,
    /// Each column of a key, a row of S: `[batch, seq, heads · key]`.
    Key,
    /// Each column of a value: `[batch, seq, heads · value]`.
    Value,
}

impl LinearAttend {
    /// Columns of values of a tile.
    pub const COLS: u64 = 64;

    /// Columns of α, if there is one.
    pub fn decays(&self) -> Option<u64> {
        match self.decay {
            Decay::None => None,
            Decay::Head => Some(self.heads),
            Decay::Key => Some(self.heads * self.key),
            Decay::Value => Some(self.heads * self.value),
        }
    }

    /// Products for each token: by the decay, of keys and values, of queries and matrices.
    pub fn products(&self) -> u64 {
        let each = 1 + u64::from(self.decay != Decay::None) + u64::from(self.reads());
        (self.heads * self.key)
            .saturating_mul(self.value)
            .saturating_mul(each)
    }

    /// Whether tokens read the matrix.
    fn reads(&self) -> bool {
        self.delta || self.part == Part::Results
    }

    /// Whether chunks begin with what others have left.
    fn joins(&self) -> bool {
        self.chunks > 1 && self.part == Part::Results
    }

    /// Matrices of a head that a tile works in: one, and under the delta rule that which is joined from it.
    pub fn matrices(&self) -> u64 {
        1 + u64::from(self.joins() && self.delta)
    }

    /// The numbers of its operands.
    pub fn places(&self) -> Places {
        let mut count = 0;
        let mut next = |there: bool| {
            let number = count;
            count += u32::from(there);
            there.then_some(number)
        };
        let (decays, joins) = (self.decay != Decay::None, self.joins());
        Places {
            q: next(self.reads()),
            k: next(true).unwrap_or(0),
            v: next(self.part != Part::Transitions),
            decay: next(decays),
            products: next(joins && decays && !self.delta),
            transitions: next(joins && self.delta),
            ends: next(joins),
            out: next(true).unwrap_or(0),
            matrices: next(self.continued),
            all: count,
        }
    }

    fn operand(&self, name: &'static str, mode: Mode, cols: u64) -> OperandAccess {
        OperandAccess::new(name, self.dtype, mode, [Count::rows(&[0, 1], cols)])
    }
}

/// Numbers of operands.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub q: Option<u32>,
    pub k: u32,
    pub v: Option<u32>,
    pub decay: Option<u32>,
    /// Products of the decays of chunks.
    pub products: Option<u32>,
    pub transitions: Option<u32>,
    /// S of chunks from zero.
    pub ends: Option<u32>,
    /// o, ends or transitions.
    pub out: u32,
    /// The matrices that outlive a launch.
    pub matrices: Option<u32>,
    /// How many there are.
    pub all: u32,
}

pub(super) struct LinearAttendKind;

impl Kind for LinearAttendKind {
    type Spec = LinearAttend;
    const NAME: &'static str = "linear_attend";

    fn dtype(a: &LinearAttend) -> DType {
        a.dtype
    }

    fn validate(a: &LinearAttend) -> Result<(), String> {
        validate::sums(a.dtype)?;
        let fits = |n: u64| (1..=MOST_HEAD).contains(&n);
        if !(1..=MOST_HEADS).contains(&a.heads) || !fits(a.key) || !fits(a.value) {
            return Err(format!(
                "{} heads of {} and {} columns",
                a.heads, a.key, a.value
            ));
        }
        validate::chunks(a.chunks)?;
        if a.part != Part::Results && a.chunks == 1 {
            return Err("what a sequence of one chunk leaves is read by no other".into());
        }
        if a.chunks > 1 && a.continued {
            return Err("what is continued has no chunks".into());
        }
        if a.chunks > 1 && a.delta && a.decay == Decay::Value {
            return Err("a transition for each column of a value".into());
        }
        if a.part == Part::Transitions && !(a.delta && a.key == a.value) {
            return Err("transitions are square matrices of the delta rule".into());
        }
        match a.reversed && a.continued {
            true => Err("what is read backwards has nothing to go on from".into()),
            false => Ok(()),
        }
    }

    fn signature(a: &LinearAttend) -> Signature {
        let places = a.places();
        let (keys, values) = (a.heads * a.key, a.heads * a.value);
        let (decays, matrix) = (a.decays().unwrap_or(0), keys * a.value);
        let left = |name, each| {
            OperandAccess::new(
                name,
                a.dtype,
                Mode::Read,
                [left(a.chunks, each, a.reversed)],
            )
        };
        let made = |name| {
            let extent = Count::rows(&[0], a.chunks * matrix);
            OperandAccess::new(name, a.dtype, Mode::Write, [extent])
        };
        let kept = Count::rows(&[0], matrix);
        let of = |place: Option<u32>, operand| place.map(|_| operand);
        let operands = [
            of(places.q, a.operand("q", Mode::Read, keys)),
            Some(a.operand("k", Mode::Read, keys)),
            of(places.v, a.operand("v", Mode::Read, values)),
            of(places.decay, a.operand("decay", Mode::Read, decays)),
            of(places.products, left("products", decays)),
            of(places.transitions, left("transitions", keys * a.key)),
            of(places.ends, left("ends", matrix)),
            Some(match a.part {
                Part::Results => a.operand("o", Mode::Write, values),
                Part::Ends => made("ends"),
                Part::Transitions => made("transitions"),
            }),
            of(
                places.matrices,
                OperandAccess::new("matrices", a.dtype, Mode::Accumulate, [kept]),
            ),
        ];
        let mut dims = vec![Dimension::any("batch"), Dimension::any("seq")];
        dims.extend(places.matrices.map(|_| Dimension::any("past")));
        let once = match a.joins() {
            true => (a.chunks * (a.chunks - 1) / 2)
                .saturating_mul(matrix)
                .saturating_mul(if a.delta { a.key } else { 1 }),
            false => 0,
        };
        Signature {
            dtype: a.dtype,
            operands: operands.into_iter().flatten().collect(),
            dims,
            coeffs: 0,
            scratch: vec![Count::fixed(a.matrices() * a.key * LinearAttend::COLS)],
            work: Work::recurrences(Count::Sequences {
                each: a.products(),
                once,
            }),
        }
    }

    fn tiles(a: &LinearAttend, dims: &[u64]) -> u64 {
        dims[0] * a.chunks * a.heads * a.value.div_ceil(LinearAttend::COLS)
    }

    fn headline(a: &LinearAttend) -> String {
        let decay = match a.decay {
            Decay::None => "",
            Decay::Head => ", decay of heads",
            Decay::Key => ", decay of keys",
            Decay::Value => ", decay of values",
        };
        let reversed = if a.reversed { ", reversed" } else { "" };
        let continued = if a.continued { ", continued" } else { "" };
        let delta = if a.delta { ", delta rule" } else { "" };
        let part = match a.part {
            Part::Results => "",
            Part::Ends => ", ends",
            Part::Transitions => ", transitions",
        };
        let chunks = match a.chunks {
            1 => String::new(),
            n => format!(" in {n} chunks"),
        };
        format!(
            "{} heads of {} × {}{chunks}{decay}{delta}{reversed}{continued}{part}",
            a.heads, a.key, a.value
        )
    }

    fn run<T: Real>(a: &LinearAttend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_linear_attend::<T>(a, m, at.dims);
    }

    fn samples() -> Vec<Sample<LinearAttend>> {
        let sample = |dtype, decay, [reversed, continued, delta]: [bool; 3]| {
            let spec = LinearAttend {
                dtype,
                heads: 2,
                key: 3,
                value: 5,
                decay,
                reversed,
                continued,
                delta,
                chunks: 1,
                part: Part::Results,
            };
            let dims: &[u64] = if continued { &[2, 4, 3] } else { &[2, 4] };
            Sample::new(spec, dims, &[])
        };
        let in_chunks = |dtype, decay, [reversed, delta]: [bool; 2], part| {
            let mut sample = sample(dtype, decay, [reversed, false, delta]);
            (sample.spec.chunks, sample.spec.part) = (3, part);
            if part == Part::Transitions {
                sample.spec.value = sample.spec.key;
            }
            sample
        };
        let [sums, turned, rule, turned_rule] =
            [[false, false], [true, false], [false, true], [true, true]];
        vec![
            sample(DType::F32, Decay::None, [false, false, false]),
            sample(DType::F32, Decay::Head, [true, false, false]),
            sample(DType::F64, Decay::Key, [false, true, false]),
            sample(DType::F32, Decay::Value, [true, false, false]),
            sample(DType::F32, Decay::None, [false, true, false]),
            sample(DType::F32, Decay::Key, [false, false, true]),
            sample(DType::F32, Decay::Head, [true, false, true]),
            sample(DType::F64, Decay::None, [false, true, true]),
            in_chunks(DType::F32, Decay::None, sums, Part::Results),
            in_chunks(DType::F32, Decay::Head, turned, Part::Results),
            in_chunks(DType::F64, Decay::Key, sums, Part::Results),
            in_chunks(DType::F32, Decay::Value, turned, Part::Results),
            in_chunks(DType::F32, Decay::Key, sums, Part::Ends),
            in_chunks(DType::F32, Decay::Value, turned, Part::Ends),
            in_chunks(DType::F32, Decay::None, rule, Part::Results),
            in_chunks(DType::F32, Decay::Key, turned_rule, Part::Results),
            in_chunks(DType::F32, Decay::Head, rule, Part::Ends),
            in_chunks(DType::F32, Decay::Head, turned_rule, Part::Transitions),
            in_chunks(DType::F64, Decay::None, rule, Part::Transitions),
        ]
    }
}

/// Runs a whole launch. `dims` are `[batch, seq]`, and `past` if it is continued.
pub fn eval_linear_attend<T: Real>(
    kernel: &LinearAttend,
    memory: &mut impl Memory<T>,
    dims: &[u64],
) {
    for batch in 0..dims[0] {
        for (chunk, number) in
            (0..kernel.chunks).flat_map(|c| (0..kernel.heads).map(move |h| (c, h)))
        {
            let head = Head {
                kernel,
                places: kernel.places(),
                number,
                batch,
                chunk,
                first: batch * dims[1],
            };
            head.run::<T>(memory, dims);
        }
    }
}

/// One head of a chunk of a sequence.
struct Head<'a> {
    kernel: &'a LinearAttend,
    places: Places,
    number: u64,
    batch: u64,
    chunk: u64,
    /// Rows before those of the sequence.
    first: u64,
}

impl Head<'_> {
    fn run<T: Real>(&self, m: &mut impl Memory<T>, dims: &[u64]) {
        let a = self.kernel;
        let elements = self.matrix(self.batch);
        let goes_on = |_: &u32| dims[2] > 0;
        let mut state = match self.places.matrices.filter(goes_on) {
            Some(before) => elements.clone().map(|i| m.load(before, i)).collect(),
            None => self.start(m),
        };
        let tokens = chunk(dims[1], a.chunks, self.chunk);
        let tokens: Vec<u64> = match a.reversed {
            true => tokens.rev().collect(),
            false => tokens.collect(),
        };
        for t in tokens {
            self.token(m, self.first + t, &mut state);
        }
        let mut put = |operand, elements: Range<u64>| {
            for (i, x) in elements.zip(&state) {
                m.store(operand, i, *x);
            }
        };
        if let Some(after) = self.places.matrices {
            put(after, elements);
        }
        if a.part != Part::Results {
            put(
                self.places.out,
                self.matrix(self.batch * a.chunks + self.chunk),
            );
        }
    }

    /// The elements of the head's matrix, of those of so many sequences or chunks.
    fn matrix(&self, before: u64) -> Range<u64> {
        let a = self.kernel;
        let first = (before * a.heads + self.number) * a.key * a.value;
        first..first + a.key * a.value
    }

    /// What a chunk begins with: the identity, or what the other chunks leave to this one.
    fn start<T: Real>(&self, m: &impl Memory<T>) -> Vec<T> {
        let a = self.kernel;
        let mut state = vec![T::ZERO; (a.key * a.value) as usize];
        if a.part == Part::Transitions {
            (0..a.key).for_each(|i| state[(i * a.key + i) as usize] = T::of(1.0));
        }
        let Some(ends) = self.places.ends else {
            return state;
        };
        let others: Vec<u64> = match a.reversed {
            false => (0..self.chunk).collect(),
            true => (self.chunk + 1..a.chunks).rev().collect(),
        };
        for chunk in others {
            let chunk = self.batch * a.chunks + chunk;
            let before = state.clone();
            for (i, at) in self.matrix(chunk).enumerate() {
                let (row, column) = (i as u64 / a.value, i as u64 % a.value);
                let end = m.load(ends, at);
                state[i] = match (self.places.transitions, self.places.products) {
                    (Some(transitions), _) => (0..a.key).fold(end, |x, l| {
                        let first = (chunk * a.heads + self.number) * a.key * a.key;
                        let by = m.load(transitions, first + row * a.key + l);
                        T::fma(by, before[(l * a.value + column) as usize], x)
                    }),
                    (None, Some(products)) => {
                        let product = self.decay(m, products, chunk, [row, column]);
                        T::fma(product, state[i], end)
                    }
                    (None, None) => T::binary(BinaryOp::Add, state[i], end),
                };
            }
        }
        state
    }

    /// The decay of an element of the matrix, of those of row `row` of an operand.
    fn decay<T: Real>(&self, m: &impl Memory<T>, operand: u32, row: u64, [i, j]: [u64; 2]) -> T {
        let (a, first) = (self.kernel, row * self.kernel.heads + self.number);
        match a.decay {
            Decay::None => T::of(1.0),
            Decay::Head => m.load(operand, first),
            Decay::Key => m.load(operand, first * a.key + i),
            Decay::Value => m.load(operand, first * a.value + j),
        }
    }

    fn token<T: Real>(&self, m: &mut impl Memory<T>, row: u64, state: &mut [T]) {
        let (a, places) = (self.kernel, self.places);
        let at = |m: &_, operand, cols: u64, c: u64| -> T {
            Memory::load(m, operand, (row * a.heads + self.number) * cols + c)
        };
        for j in 0..a.value {
            let place = |i: u64| (i * a.value + j) as usize;
            let fade = |m: &_, state: &mut [T]| {
                let Some(decays) = places.decay else {
                    return;
                };
                for i in 0..a.key {
                    let by = self.decay(m, decays, row, [i, j]);
                    state[place(i)] = T::binary(BinaryOp::Mul, by, state[place(i)]);
                }
            };
            if !a.reversed {
                fade(m, state);
            }
            let read = |m: &_, state: &[T]| {
                let query = |i| at(m, places.q.unwrap_or(0), a.key, i);
                (0..a.key).fold(T::ZERO, |o, i| T::fma(query(i), state[place(i)], o))
            };
            let v = places.v.map_or(T::ZERO, |v| at(m, v, a.value, j));
            let missing = a.delta.then(|| T::binary(BinaryOp::Sub, v, read(m, state)));
            let written = missing.unwrap_or(v);
            for i in 0..a.key {
                state[place(i)] = T::fma(at(m, places.k, a.key, i), written, state[place(i)]);
            }
            if a.part == Part::Results {
                let o = missing.unwrap_or_else(|| read(m, state));
                m.store(places.out, (row * a.heads + self.number) * a.value + j, o);
            }
            if a.reversed {
                fade(m, state);
            }
        }
    }
}
