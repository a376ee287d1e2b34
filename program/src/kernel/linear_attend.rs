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
/// A sequence has `chunks` chunks of tokens ([`super::scan::chunk`]) that do not wait for each other. S begins with what the others leave, joined from
/// zero, chunk by chunk in the order in which tokens are read: `S ← product · S + end`, rounded once, of their ends
/// `[batch, chunks, heads · key, value]` and the products of their decays `[batch, chunks, columns of α]`, which other launches have made.
/// `ends`: this launch makes the former, S of each chunk from zero.
///
/// dims: `[batch, seq]`. Operands q and k `[batch, seq, heads · key]`, v `[batch, seq, heads · value]`, α unless there is none, of several chunks
/// the products, where there is an α, and the ends, o like v. `ends`: k, v, α and the ends.
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
    pub ends: bool,
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
        let each = 1 + u64::from(self.decay != Decay::None) + u64::from(!self.ends);
        (self.heads * self.key)
            .saturating_mul(self.value)
            .saturating_mul(each)
    }

    /// Whether chunks begin with what others have left.
    fn joins(&self) -> bool {
        self.chunks > 1 && !self.ends
    }

    /// The numbers of its operands.
    pub fn places(&self) -> Places {
        let mut count = 0;
        let mut next = |there: bool| {
            let number = count;
            count += u32::from(there);
            there.then_some(number)
        };
        let decays = self.decay != Decay::None;
        Places {
            q: next(!self.ends),
            k: next(true).unwrap_or(0),
            v: next(true).unwrap_or(0),
            decay: next(decays),
            products: next(self.joins() && decays),
            ends: next(self.chunks > 1),
            o: next(!self.ends),
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
    pub v: u32,
    pub decay: Option<u32>,
    /// Products of the decays of chunks.
    pub products: Option<u32>,
    /// S of chunks from zero: read, or the result.
    pub ends: Option<u32>,
    pub o: Option<u32>,
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
        if a.ends && a.chunks == 1 {
            return Err("the end of a sequence of one chunk is read by no other".into());
        }
        if a.chunks > 1 && (a.continued || a.delta) {
            return Err("neither what is continued nor the delta rule has chunks".into());
        }
        match a.reversed && a.continued {
            true => Err("what is read backwards has nothing to go on from".into()),
            false => Ok(()),
        }
    }

    fn signature(a: &LinearAttend) -> Signature {
        let places = a.places();
        let (keys, values) = (a.heads * a.key, a.heads * a.value);
        let left = |each| [left(a.chunks, each, a.reversed)];
        let rows = |name, mode, cols| a.operand(name, mode, cols);
        let of = |place: Option<u32>, operand| place.map(|_| operand);
        let (decays, matrix) = (a.decays().unwrap_or(0), keys * a.value);
        let (mode, ends) = match a.ends {
            true => (Mode::Write, [Count::rows(&[0], a.chunks * matrix)]),
            false => (Mode::Read, left(matrix)),
        };
        let whole = |name, mode, extent| OperandAccess::new(name, a.dtype, mode, extent);
        let operands = [
            of(places.q, rows("q", Mode::Read, keys)),
            Some(rows("k", Mode::Read, keys)),
            Some(rows("v", Mode::Read, values)),
            of(places.decay, rows("decay", Mode::Read, decays)),
            of(places.products, whole("products", Mode::Read, left(decays))),
            of(places.ends, whole("ends", mode, ends)),
            of(places.o, rows("o", Mode::Write, values)),
            of(
                places.matrices,
                whole("matrices", Mode::Accumulate, [Count::rows(&[0], matrix)]),
            ),
        ];
        let mut dims = vec![Dimension::any("batch"), Dimension::any("seq")];
        dims.extend(places.matrices.map(|_| Dimension::any("past")));
        let joined = match a.joins() {
            true => (a.chunks * (a.chunks - 1) / 2).saturating_mul(matrix),
            false => 0,
        };
        Signature {
            dtype: a.dtype,
            operands: operands.into_iter().flatten().collect(),
            dims,
            coeffs: 0,
            scratch: vec![Count::fixed(a.key * LinearAttend::COLS)],
            work: Work::recurrences(Count::rows(&[0, 1], a.products()))
                .with_others(Count::rows(&[0], joined)),
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
        let ends = if a.ends { ", ends" } else { "" };
        let chunks = match a.chunks {
            1 => String::new(),
            n => format!(" in {n} chunks"),
        };
        format!(
            "{} heads of {} × {}{chunks}{decay}{delta}{reversed}{continued}{ends}",
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
                ends: false,
            };
            let dims: &[u64] = if continued { &[2, 4, 3] } else { &[2, 4] };
            Sample::new(spec, dims, &[])
        };
        let in_chunks = |dtype, decay, reversed, ends| {
            let mut sample = sample(dtype, decay, [reversed, false, false]);
            (sample.spec.chunks, sample.spec.ends) = (3, ends);
            sample
        };
        vec![
            sample(DType::F32, Decay::None, [false, false, false]),
            sample(DType::F32, Decay::Head, [true, false, false]),
            sample(DType::F64, Decay::Key, [false, true, false]),
            sample(DType::F32, Decay::Value, [true, false, false]),
            sample(DType::F32, Decay::None, [false, true, false]),
            sample(DType::F32, Decay::Key, [false, false, true]),
            sample(DType::F32, Decay::Head, [true, false, true]),
            sample(DType::F64, Decay::None, [false, true, true]),
            in_chunks(DType::F32, Decay::None, false, false),
            in_chunks(DType::F32, Decay::Head, true, false),
            in_chunks(DType::F64, Decay::Key, false, false),
            in_chunks(DType::F32, Decay::Value, true, false),
            in_chunks(DType::F32, Decay::Key, false, true),
            in_chunks(DType::F32, Decay::Value, true, true),
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
            None => self.joined(m),
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
        if let (true, Some(ends)) = (a.ends, self.places.ends) {
            put(ends, self.matrix(self.batch * a.chunks + self.chunk));
        }
    }

    /// The elements of the head's matrix, of those of so many sequences or chunks.
    fn matrix(&self, before: u64) -> Range<u64> {
        let a = self.kernel;
        let first = (before * a.heads + self.number) * a.key * a.value;
        first..first + a.key * a.value
    }

    /// What the other chunks leave to this one.
    fn joined<T: Real>(&self, m: &impl Memory<T>) -> Vec<T> {
        let a = self.kernel;
        let mut state = vec![T::ZERO; (a.key * a.value) as usize];
        let Some(ends) = self.places.ends.filter(|_| !a.ends) else {
            return state;
        };
        let others: Vec<u64> = match a.reversed {
            false => (0..self.chunk).collect(),
            true => (self.chunk + 1..a.chunks).rev().collect(),
        };
        for chunk in others {
            let chunk = self.batch * a.chunks + chunk;
            for (i, at) in self.matrix(chunk).enumerate() {
                let (row, column) = (i as u64 / a.value, i as u64 % a.value);
                let end = m.load(ends, at);
                state[i] = match self.places.products {
                    Some(products) => {
                        let product = self.decay(m, products, chunk, [row, column]);
                        T::fma(product, state[i], end)
                    }
                    None => T::binary(BinaryOp::Add, state[i], end),
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
            let v = at(m, places.v, a.value, j);
            let missing = a.delta.then(|| T::binary(BinaryOp::Sub, v, read(m, state)));
            let written = missing.unwrap_or(v);
            for i in 0..a.key {
                state[place(i)] = T::fma(at(m, places.k, a.key, i), written, state[place(i)]);
            }
            if let Some(result) = places.o {
                let o = missing.unwrap_or_else(|| read(m, state));
                m.store(result, (row * a.heads + self.number) * a.value + j, o);
            }
            if a.reversed {
                fade(m, state);
            }
        }
    }
}
