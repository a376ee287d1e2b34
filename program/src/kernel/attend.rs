//! Attention: the specification that its three kernels share, its signature and its meaning.
//!
//! The meaning is the very bits that compiled kernels give. What the block
//! structure leaves of the order of summation is little: forward, the running maximum and sum move on once per
//! key block of [`Attend::BLOCK`]; everything else is one chain of multiply-adds, over columns for scores, over
//! keys for outputs and query gradients, over queries for key and value gradients, each in order, one by one or in pairs
//! ([`super::products`]).

use super::products::{self, pieces};
use super::scores::{Scores, Shaping};
use super::signature::{Count, Dimension, Mode, OperandAccess, Pairs, Signature, Work};
use super::validate::{self, MOST_HEAD, MOST_HEADS};
use super::{Indices, Kind, Launch, Order, Sample};
use crate::eval::{Evaluator, Memory};
use crate::expr::{BinaryOp, Body, Expr, ExprId, UnaryOp};
use crate::real::Real;
use crate::{DType, Recent};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// Fused scaled-dot-product attention over [batch, seq, heads · head] tensors (keys: kv_heads · head; values: kv_heads · value; results:
/// heads · value); no seq × seq matrix exists in memory.
///
/// dims: `[batch, seq]`, and `keys` behind them where keys and values are of other tokens ([`Attend::others`]): as many of each sequence, all of which every
/// query sees.
/// Forward: operands q, k, v, o, lse, and sinks and biases if there are; `lse` is [batch, seq, heads], the natural log of the sum of
/// exponentials of scores. tiles: `batch · heads · ceil(seq / BLOCK)`, one per block of query rows
/// (index = (b · heads + h) · blocks + block).
/// Backward: operands q, k, v, o, lse, d_o, d_q, d_k, d_v, with δ in the place of o where inputs are rounded ([`Attend::reads_delta`]); with biases,
/// behind these d_distances [batch, seq, columns of biases], the sums of the gradients of all scores at each distance, queries in order, and the biases. tiles:
/// `batch · kv_heads`.
/// Cached, one sequence (causal): dims `[seq, past]`, operands q, k, v, o, and sinks and biases if there are; k and v hold `past + seq` rows, query row i has
/// the position `past + i`. tiles: `heads · ceil(seq / QUERIES)`. The result is bit for bit that of the forward kernel for
/// these rows of the whole sequence.
/// Cached, several sequences (`room`): k and v hold `room` rows for each sequence. tiles: `sequences · heads · ceil(seq / QUERIES)`. Causal, there is one
/// query of each sequence, at a position of its own below `room`, and the result is as above: dims `[1, past, sequences, room]`, an operand of positions
/// (i32) behind o and before all others, of which none is above `past`, which says nothing else. Not causal, queries see all `room` rows, and `past` says
/// nothing: dims `[seq, past, sequences]`.
/// Partial: a last operand has a number for each token of the sequence, those that are kept included. A token takes part if its number is 0 or more: the
/// others are no keys, and results of their queries and gradients of their rows are 0. Blocks, pairs, and what causal queries see, are counted in the tokens that take part,
/// as if there were no others. Where keys are of other tokens, and where queries see all keys that are kept, the numbers are those of the keys, and all queries
/// take part: one that sees no key at all gives 0.
/// Elements of q, k, v (and of d_o, and o, where the backward kernel reads them) are `inputs`, those of o bf16 where it `rounds`, all others `dtype`, as is
/// arithmetic.
/// `scale` multiplies the scores (1/√head as a rounded constant); what becomes of them then say [`Scores`]. The order of every sum is that of this file,
/// except on tensor cores ([`crate::gpu::tensor`]).
///
/// With [`Order::Dots`] and [`Order::Pairs`], inputs are bf16, and all products are dot products of pairs of bf16, or chunks of them: q, k, v and d_o are, weights and gradients of scores are
/// rounded where they are factors. Softmax, its maximum and sum, `lse`, δ and all sums stay f32. Neighbours in the order of a
/// sum are a pair if the first is even, and a chunk begins at each multiple of its length, counted from the first column, or from the first token of the sequence, whichever part of it is read: a token that
/// is read alone makes the pairs and chunks that it makes in the whole. Every option of attention goes with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attend {
    pub dtype: DType,
    pub inputs: DType,
    pub heads: u64,
    /// Heads of keys and values, a divisor of `heads`: query head h reads number `h · kv_heads / heads`.
    pub kv_heads: u64,
    /// Columns of one head.
    pub head: u64,
    /// Columns of one head of values and of results, where they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    pub causal: bool,
    /// Rows of keys that each of several sequences has room for, in the cached kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// Most keys that a query sees: its own and those right before it. Causal attention only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    pub scale: f64,
    /// Whether the result is rounded to bf16 and stored so: on tensor cores, forward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rounds: bool,
    #[serde(default, skip_serializing_if = "Scores::is_plain")]
    pub scores: Scores,
    /// How products are added up.
    #[serde(default, skip_serializing_if = "Order::is_chain")]
    pub order: Order,
    /// Whether some tokens take no part. No distance between tokens counts then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether keys and values are of other tokens than queries, as many as a third dim says. No order of tokens counts then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
}

/// By bits, of all but what seldom tells two kernels of a model apart.
impl Hash for Attend {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dtype, self.inputs, self.rounds).hash(state);
        (self.causal, self.scores).hash(state);
        (
            self.heads,
            self.kv_heads,
            self.head,
            self.window,
            self.partial,
            self.others,
        )
            .hash(state);
        self.scale.to_bits().hash(state);
    }
}

impl Attend {
    /// Query rows and key rows of a block.
    pub const BLOCK: u64 = Recent::BLOCK;
    /// Query rows of a tile of the cached kernel.
    pub const QUERIES: u64 = 16;

    /// Query heads that share a head of keys and values.
    pub fn group(&self) -> u64 {
        self.heads / self.kv_heads
    }

    /// The first of `keys` that a query at this position sees.
    pub fn first_key(&self, position: u64) -> u64 {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))
    }

    /// Head columns rounded up to whole vectors and chunks.
    pub fn padded_head(&self) -> u64 {
        self.padded(self.head)
    }

    /// Columns rounded up to whole vectors and chunks.
    pub fn padded(&self, columns: u64) -> u64 {
        columns.next_multiple_of(self.order.chunk().max(16))
    }

    /// Columns of a head of values.
    pub fn value_head(&self) -> u64 {
        self.value.unwrap_or(self.head)
    }

    /// The same rounded up to whole vectors and chunks.
    pub fn padded_value(&self) -> u64 {
        self.padded(self.value_head())
    }

    /// Whether the backward kernel reads δ = Σ d_o ∘ o, a number for each row and head of queries that a kernel over rows has made, in the place of o:
    /// where inputs are rounded.
    pub fn reads_delta(&self) -> bool {
        self.inputs != self.dtype
    }

    /// Whether an operand of one of the three kernels, by its number, has columns of values: v, o, d_o, d_v.
    pub fn is_of_values(operand: u64) -> bool {
        matches!(operand, 2 | 3 | 5 | 8)
    }

    /// Whether it has heads of keys: k, v, d_k, d_v.
    pub fn is_of_keys(operand: u64) -> bool {
        matches!(operand, 1 | 2 | 7 | 8)
    }

    /// Columns of one head of an operand.
    pub fn columns(&self, operand: u64) -> u64 {
        match Attend::is_of_values(operand) {
            true => self.value_head(),
            false => self.head,
        }
    }

    /// Columns of a row of an operand.
    fn width(&self, operand: u64) -> u64 {
        let heads = match Attend::is_of_keys(operand) {
            true => self.kv_heads,
            false => self.heads,
        };
        heads * self.columns(operand)
    }

    /// The dims of the tokens of sequences that an operand of the kernels of whole sequences has rows for.
    pub(super) fn tokens(&self, operand: u64) -> Dims {
        match self.others && Attend::is_of_keys(operand) {
            true => &[0, 2],
            false => &[0, 1],
        }
    }

    /// Sequences, queries of each and keys of each, in the kernels of whole sequences.
    pub fn lengths(&self, dims: &[u64]) -> [u64; 3] {
        let keys = if self.others { 2 } else { 1 };
        [dims[0], dims[1], dims[keys]]
    }

    /// Whether a query may see no key at all: where keys alone may take no part.
    pub fn may_see_nothing(&self) -> bool {
        self.partial && (self.others || (!self.causal && self.room.is_some()))
    }

    /// Operand number `n` of the kernels of whole sequences, which has a row for each token.
    pub(super) fn of_tokens(&self, n: u64, mode: Mode) -> OperandAccess {
        self.rows(n, mode, self.tokens(n))
    }

    /// Operand number `n` of the kernels, which has a row for each token.
    pub(super) fn rows(&self, n: u64, mode: Mode, dims: Dims) -> OperandAccess {
        let names = ["q", "k", "v", "o", "lse", "d_o", "d_q", "d_k", "d_v"];
        self.operand(names[n as usize], mode, Count::rows(dims, self.width(n)))
    }

    /// Keys or values that are kept: of one sequence those of all tokens so far, of several all that there is room for. Dims are those of the
    /// cached kernel.
    pub(super) fn kept(&self, name: &'static str, n: u64) -> OperandAccess {
        let each = self.width(n);
        let extent = match self.room {
            None => Count::Sum {
                dims: &[0, 1],
                each,
            },
            Some(room) if self.causal => Count::Kept { room, each },
            Some(room) => Count::rows(&[2], room.saturating_mul(each)),
        };
        self.operand(name, Mode::Read, extent)
    }

    /// The numbers of all tokens that are kept. Dims are those of the cached kernel.
    pub(super) fn kept_numbers(&self) -> OperandAccess {
        let (each, dims): (u64, &'static [usize]) = (1, &[0, 1]);
        let extent = match self.room {
            None => Count::Sum { dims, each },
            Some(room) if self.causal => Count::Kept { room, each },
            Some(room) => Count::rows(&[2], room),
        };
        self.operand("numbers", Mode::Read, extent)
    }

    /// The room of several sequences, in the cached kernel, each of which has a query at a position of its own.
    pub fn own_positions(&self) -> Option<u64> {
        self.room.filter(|_| self.causal)
    }

    /// The sinks, behind all else.
    pub(super) fn sinks(&self) -> Option<OperandAccess> {
        let sinks = || self.operand("sinks", Mode::Read, Count::fixed(self.heads));
        self.scores.sinks.then(sinks)
    }

    /// The numbers that say who takes part, behind all else: of the tokens of each sequence, or of those that are kept.
    pub(super) fn numbers(&self, extent: Count) -> Option<OperandAccess> {
        let numbers = || self.operand("numbers", Mode::Read, extent);
        self.partial.then(numbers)
    }

    /// A number for each row and head of queries.
    pub(super) fn statistic(&self, name: &'static str, mode: Mode, dims: Dims) -> OperandAccess {
        self.operand(name, mode, Count::rows(dims, self.heads))
    }

    fn operand(&self, name: &'static str, mode: Mode, extent: Count) -> OperandAccess {
        OperandAccess::new(name, self.dtype, mode, [extent])
    }

    /// Multiply-adds of a forward kernel for a pair of a query and a key that it sees.
    pub fn forward_products(&self) -> u64 {
        self.heads * (self.head + self.value_head())
    }

    /// Those of the backward kernel: scores again, gradients of weights, queries, keys and values.
    pub fn backward_products(&self) -> u64 {
        self.heads * (3 * self.head + 2 * self.value_head())
    }

    /// `each` multiply-adds for each pair of a query and a key that it sees; numbers of dims.
    pub(super) fn work(
        &self,
        each: u64,
        [sequences, past]: [Option<usize>; 2],
        queries: usize,
    ) -> Work {
        Work::attention(Count::Pairs(Pairs {
            sequences,
            queries,
            past,
            causal: self.causal,
            window: self.window,
            each,
        }))
    }

    /// The signature of a kernel whose first so many operands are in the type of inputs.
    pub(super) fn signature(&self, mut operands: Vec<OperandAccess>, inputs: usize) -> Signature {
        operands[..inputs]
            .iter_mut()
            .for_each(|o| o.dtype = self.inputs);
        if self.rounds {
            operands[O as usize].dtype = DType::Bf16;
        }
        let mut dims = vec![Dimension::any("batch"), Dimension::any("seq")];
        dims.extend(self.others.then(|| Dimension::any("keys")));
        let scratch = self.list_scratch(self.forward_scratch(), self.of_keys(2));
        Signature {
            dtype: self.dtype,
            operands,
            dims,
            coeffs: 0,
            scratch,
            work: self.work_of_whole(self.forward_products()),
        }
    }

    /// `each` for every key of a sequence, rounded up to blocks, in the kernels of whole sequences.
    pub(super) fn of_keys(&self, each: u64) -> Count {
        Count::Blocks {
            dim: if self.others { 2 } else { 1 },
            block: Self::BLOCK,
            each,
        }
    }

    /// `each` multiply-adds for each pair of whole sequences.
    pub(super) fn work_of_whole(&self, each: u64) -> Work {
        match self.others {
            true => Work::attention(Count::rows(&[0, 1, 2], each)),
            false => self.work(each, [Some(0), None], 1),
        }
    }

    /// Elements of scratch of a forward tile (the emitter documents the layout).
    pub(super) fn forward_scratch(&self) -> u64 {
        let (b, d, v) = (Self::BLOCK, self.padded_head(), self.padded_value());
        // q block, transposed k block, v block, o accumulator, scores, running max and sum; in pairs, blocks take half of that; on tile registers,
        // weights once more, a row of them for each query
        let rows = if self.order == Order::Pairs {
            b * b / 2
        } else {
            0
        };
        2 * b * (d + v) + b * b + rows + 4 * b + 64 + self.near()
    }

    /// Elements of scratch for the biases of the distances within a pair of blocks.
    pub fn near(&self) -> u64 {
        self.scores.distances.map_or(0, |_| 2 * Self::BLOCK)
    }

    /// Elements of a block of rows beside each other, of queries, keys or values.
    pub fn beside(&self) -> u64 {
        Self::BLOCK * self.padded_head().max(self.padded_value())
    }

    /// So many elements of scratch; where some tokens take no part, a block of rows beside each other as well, and the list of those that do: their
    /// numbers, 8 bytes each, and room for one more.
    pub(super) fn list_scratch(&self, fixed: u64, numbers: Count) -> Vec<Count> {
        match self.partial {
            true => vec![Count::fixed(fixed + self.beside() + 16), numbers],
            false => vec![Count::fixed(fixed)],
        }
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        validate::sums(self.dtype)?;
        validate::reads(self.dtype, self.inputs)?;
        if !(1..=MOST_HEADS).contains(&self.heads) || !(1..=MOST_HEAD).contains(&self.head) {
            return Err(format!("{} heads of {} columns", self.heads, self.head));
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "{} heads do not share {} of keys",
                self.heads, self.kv_heads
            ));
        }
        if !(1..=MOST_HEAD).contains(&self.value_head()) {
            return Err(format!("values of {} columns", self.value_head()));
        }
        self.scores.validate()?;
        match self.order {
            Order::Chain => {}
            Order::Pairs | Order::Dots => {
                validate::pairs(self.order, self.inputs, self.dtype)?;
            }
        }
        let halves = self.dtype == DType::F32 && self.inputs == DType::Bf16;
        if self.rounds && !halves {
            return Err("it rounds a result that is not made on tensor cores".into());
        }
        if let Some(room) = self.room {
            validate::length("rows that are kept", room)?;
        }
        if self.partial && (self.window.is_some() || self.scores.compare_places()) {
            return Err("distances count where some tokens take no part".into());
        }
        if self.others && (self.causal || self.scores.compare_places() || self.room.is_some()) {
            return Err("keys of other tokens have no order among its own".into());
        }
        match self.window {
            Some(0) => return Err("its window is empty".into()),
            Some(_) if !self.causal => return Err("its window looks ahead".into()),
            // However far it reaches, nothing is as large as it.
            Some(_) | None => {}
        }
        match self.scale.is_finite() {
            true => Ok(()),
            false => Err("its scale is not finite".into()),
        }
    }

    /// Of the kernels of whole sequences.
    pub(super) fn keeps_nothing(&self) -> Result<(), String> {
        match self.room {
            None => Ok(()),
            Some(_) => Err("it keeps keys of whole sequences".into()),
        }
    }

    pub(super) fn headline(&self) -> String {
        let mut mask = String::from(if self.causal { "causal" } else { "full" });
        if let Some(n) = self.room {
            mask += &format!(" of {n} kept");
        }
        if let Some(w) = self.window {
            mask += &format!(", window {w}");
        }
        if self.kv_heads < self.heads {
            mask += &format!(", {} heads of keys", self.kv_heads);
        }
        if let Some(n) = self.value {
            mask += &format!(", values × {n}");
        }
        let (heads, head, scale) = (self.heads, self.head, self.scale);
        let scores = self.scores.headline();
        let pairs = match self.order {
            Order::Chain => "",
            Order::Dots => ", products in pairs, added two after two",
            Order::Pairs => ", products in tile registers",
        };
        let rounds = if self.rounds { ", o in bf16" } else { "" };
        let some = if self.partial { ", of some tokens" } else { "" };
        let others = if self.others { ", keys of others" } else { "" };
        format!(
            "{heads} heads × {head}, {mask}{others}, scale {scale}{scores}{pairs}{rounds}{some}"
        )
    }

    /// Shared and own keys, masks of each kind, in every type; then values of other widths and other scores; then pairs.
    pub(super) fn samples_at(dims: &[u64], sinks: bool) -> Vec<Sample<Attend>> {
        let sample = |(dtype, inputs, kv_heads, causal, window)| {
            let spec = Attend {
                dtype,
                inputs,
                heads: 4,
                kv_heads,
                head: 3,
                value: None,
                causal,
                room: None,
                window,
                scale: 0.6,
                rounds: false,
                scores: Scores::default(),
                order: Order::Chain,
                partial: false,
                others: false,
            };
            Sample::new(spec, dims, &[])
        };
        let of = [
            (DType::F32, DType::F32, 4, true, None),
            (DType::F32, DType::Bf16, 2, true, Some(2)),
            (DType::F64, DType::F64, 1, true, None),
        ];
        let mut all: Vec<Sample<Attend>> = of.map(sample).into();
        let (mut values, mut scores) = (all[1].clone(), all[0].clone());
        values.spec.value = Some(5);
        scores.spec.scores = Scores {
            softcap: Some(1.5),
            alibi: true,
            distances: Some(3),
            sinks,
        };
        let mut pairs = values.clone();
        pairs.spec.order = Order::Dots;
        let mut some = values.clone();
        some.spec.window = None;
        some.spec.partial = true;
        some.spec.scores.sinks = sinks;
        let mut both = some.clone();
        both.spec.order = Order::Dots;
        let [mut tiles, mut some_tiles] = [pairs.clone(), both.clone()];
        (tiles.spec.order, some_tiles.spec.order) = (Order::Pairs, Order::Pairs);
        all.extend([values, scores, pairs, some, both, tiles, some_tiles]);
        all
    }

    /// Keys of other tokens, all or some of them, one by one and in pairs.
    pub(super) fn samples_of_others(dims: &[u64], sinks: bool) -> Vec<Sample<Attend>> {
        let mut all = vec![];
        for mut sample in Attend::samples_at(dims, sinks) {
            if sample.spec.scores.compare_places() {
                continue;
            }
            (sample.spec.causal, sample.spec.window) = (false, None);
            sample.spec.others = true;
            all.push(sample);
        }
        all
    }
}

/// Numbers of dims.
type Dims = &'static [usize];

pub(super) struct AttendKind;

impl Kind for AttendKind {
    type Spec = Attend;
    const NAME: &'static str = "attend";

    fn dtype(a: &Attend) -> DType {
        a.dtype
    }

    fn validate(a: &Attend) -> Result<(), String> {
        a.validate()?;
        a.keeps_nothing()
    }

    fn signature(a: &Attend) -> Signature {
        let operands = vec![
            a.of_tokens(0, Mode::Read),
            a.of_tokens(1, Mode::Read),
            a.of_tokens(2, Mode::Read),
            a.of_tokens(3, Mode::Write),
            a.statistic("lse", Mode::Write, &[0, 1]),
        ];
        let numbers = a.numbers(Count::rows(a.tokens(K.into()), 1));
        let behind = a.sinks().into_iter().chain(a.biases()).chain(numbers);
        a.signature(operands.into_iter().chain(behind).collect(), 3)
    }

    fn tiles(a: &Attend, dims: &[u64]) -> u64 {
        dims[0] * a.heads * dims[1].div_ceil(Attend::BLOCK)
    }

    fn headline(a: &Attend) -> String {
        a.headline()
    }

    fn run<T: Real>(a: &Attend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_attend::<T>(a, m, at.dims);
    }

    fn samples() -> Vec<Sample<Attend>> {
        let mut all = Attend::samples_at(&[2, 5], true);
        let mut full = all[0].clone();
        full.spec.causal = false;
        let mut some = full.clone();
        some.spec.partial = true;
        let mut far = full.clone();
        far.spec.scores.distances = Some(2);
        let mut rounding = all[1].clone();
        rounding.spec.rounds = true;
        all.extend([full, some, far, rounding]);
        all.extend(Attend::samples_of_others(&[2, 5, 3], true));
        all
    }
}

/// Where the operands are; the backward kernel has others after these.
pub(super) const Q: u32 = 0;
pub(super) const K: u32 = 1;
pub(super) const V: u32 = 2;
pub(super) const O: u32 = 3;
pub(super) const LSE: u32 = 4;

/// Behind those of the forward kernel.
const SINKS: u32 = 5;

/// One head of one sequence.
pub(super) struct Head<'a, M> {
    kernel: &'a Attend,
    pub(super) memory: &'a mut M,
    seq: u64,
    /// Rows of keys that a sequence has.
    keys: u64,
    pub(super) batch: u64,
    pub(super) number: u64,
}

impl<M> Head<'_, M> {
    /// Element number of the row's statistic.
    pub(super) fn statistic(&self, row: u64) -> u64 {
        (self.batch * self.seq + row) * self.kernel.heads + self.number
    }

    /// Element number of the gradient of a distance's biases, of keys before queries or behind them.
    pub(super) fn of_distance(&self, distance: u64, side: u64) -> u64 {
        let row = self.batch * self.seq + distance;
        row * self.kernel.bias_columns() + side * self.kernel.heads + self.number
    }

    /// Element number of the row's first column in an operand.
    fn first(&self, operand: u32, row: u64) -> u64 {
        let row = match Attend::is_of_keys(operand.into()) {
            true => {
                let rows = (self.batch * self.keys + row) * self.kernel.kv_heads;
                rows + self.number / self.kernel.group()
            }
            false => self.statistic(row),
        };
        row * self.kernel.columns(operand.into())
    }

    pub(super) fn row<T: Real>(&self, operand: u32, row: u64) -> Vec<T>
    where
        M: Memory<T>,
    {
        let first = self.first(operand, row);
        let last = first + self.kernel.columns(operand.into());
        let mut out = Vec::new();
        self.memory.load_all(operand, first..last, &mut out);
        out
    }

    /// These rows.
    pub(super) fn rows<T: Real>(&self, operand: u32, rows: &[u64]) -> Vec<Vec<T>>
    where
        M: Memory<T>,
    {
        rows.iter().map(|r| self.row(operand, *r)).collect()
    }

    /// Those of so many rows of keys that take part, in order. `numbers`: the operand that says so.
    pub(super) fn part<T: Real>(&self, rows: u64, numbers: u32) -> Vec<u64>
    where
        M: Memory<T>,
    {
        let first = self.batch * self.keys;
        let takes = |r: &u64| {
            let number = || self.memory.load(numbers, first + r).to_f64();
            !self.kernel.partial || number() >= 0.0
        };
        (0..rows).filter(takes).collect()
    }

    /// Those rows of queries that take part, where these are the keys that do: the same tokens, or all of others.
    pub(super) fn queries(&self, part: &[u64]) -> Vec<u64> {
        match self.kernel.others {
            true => (0..self.seq).collect(),
            false => part.to_vec(),
        }
    }

    /// Writes zeros to those rows of queries, or of keys, that are not among these.
    pub(super) fn clear<T: Real>(&mut self, operand: u32, part: &[u64])
    where
        M: Memory<T>,
    {
        let rows = match Attend::is_of_keys(operand.into()) {
            true => self.keys,
            false => self.seq,
        };
        let zeros = vec![T::ZERO; self.kernel.columns(operand.into()) as usize];
        for r in (0..rows).filter(|r| !part.contains(r)) {
            self.write(operand, r, &zeros);
        }
    }

    pub(super) fn write<T: Real>(&mut self, operand: u32, row: u64, values: &[T])
    where
        M: Memory<T>,
    {
        let first = self.first(operand, row);
        for (i, x) in (first..).zip(values) {
            self.memory.store(operand, i, *x);
        }
    }

    /// The head's sink, where sinks are that operand.
    pub(super) fn sink<T: Real>(&self, operand: u32) -> Option<T>
    where
        M: Memory<T>,
    {
        let number = self.number;
        (self.kernel.scores.sinks).then(|| self.memory.load(operand, number))
    }

    /// Keys that a query row sees, of so many that take part.
    pub(super) fn keys(&self, row: u64, keys: usize) -> Range<usize> {
        let end = if self.kernel.causal {
            row + 1
        } else {
            keys as u64
        };
        self.kernel.first_key(row) as usize..end as usize
    }
}

/// Calls `f` for each head of a launch on so many sequences, of so many queries and keys each.
pub(super) fn each_head<M>(
    kernel: &Attend,
    memory: &mut M,
    [batch, seq, keys]: [u64; 3],
    mut f: impl FnMut(Head<M>),
) {
    for batch in 0..batch {
        for number in 0..kernel.heads {
            f(Head {
                kernel,
                memory,
                seq,
                keys,
                batch,
                number,
            });
        }
    }
}

/// `e^x` or `ln x` of many numbers, as kernels compute them.
pub(super) struct Apply<T> {
    evaluator: Evaluator<T>,
    root: ExprId,
}

struct NoMemory;

impl<T> Memory<T> for NoMemory {
    fn load(&self, _: u32, _: u64) -> T {
        unreachable!("a body without loads")
    }
    fn store(&mut self, _: u32, _: u64, _: T) {}
}

impl<T: Real> Apply<T> {
    pub(super) fn new(op: UnaryOp) -> Apply<T> {
        let mut body = Body::default();
        let x = body.push(Expr::Acc);
        let root = body.unary(op, x);
        Apply {
            evaluator: Evaluator::new(&body, &[]),
            root,
        }
    }

    pub(super) fn all(&mut self, xs: &[T]) -> Vec<T> {
        let all = 0..xs.len() as u64;
        self.evaluator.row(&NoMemory, 0, [1, 1], all, xs);
        self.evaluator.values(self.root).to_vec()
    }

    pub(super) fn one(&mut self, x: T) -> T {
        self.all(&[x])[0]
    }
}

/// What a query row makes of the keys and values that it sees, all of them: the row of O and its statistic.
pub(super) struct Query<'a, T> {
    kernel: &'a Attend,
    shaping: Shaping<T>,
    exp: Apply<T>,
    log: Apply<T>,
}

impl<'a, T: Real> Query<'a, T> {
    /// `biases`: the operand that they are, where there are some.
    pub(super) fn new(kernel: &'a Attend, memory: &impl Memory<T>, biases: u32) -> Self {
        let (exp, log) = (Apply::new(UnaryOp::Exp), Apply::new(UnaryOp::Log));
        let shaping = Shaping::new(kernel, memory, biases);
        Query {
            kernel,
            shaping,
            exp,
            log,
        }
    }

    /// Of the query at a position, in a head with or without a sink.
    pub(super) fn attend(
        &mut self,
        (head, sink): (u64, Option<T>),
        position: u64,
        q: &[T],
        k: &[Vec<T>],
        v: &[Vec<T>],
        seen: Range<usize>,
    ) -> (Vec<T>, T) {
        let op = T::binary;
        let (scale, order) = (T::of(self.kernel.scale), self.kernel.order);
        let (mut max, mut sum) = match sink {
            Some(sink) => (sink, T::of(1.0)),
            None => (T::of(f64::NEG_INFINITY), T::ZERO),
        };
        let mut o = vec![T::ZERO; self.kernel.value_head() as usize];
        for keys in pieces(seen, Attend::BLOCK) {
            let shaping = &mut self.shaping;
            let score = |j: usize| {
                let scaled = op(BinaryOp::Mul, products::sum(order, &k[j], q), scale);
                shaping.of(head, scaled, position, j as u64).0
            };
            let scores: Vec<T> = keys.clone().map(score).collect();
            let before = max;
            max = scores.iter().fold(max, |max, s| op(BinaryOp::Max, max, *s));
            let shrink = self.exp.one(op(BinaryOp::Sub, before, max));
            let shifted: Vec<T> = scores.iter().map(|s| op(BinaryOp::Sub, *s, max)).collect();
            let weights = self.exp.all(&shifted);
            let total = weights
                .iter()
                .fold(T::ZERO, |sum, p| op(BinaryOp::Add, sum, *p));
            sum = T::fma(sum, shrink, total);
            o.iter_mut()
                .for_each(|x| *x = op(BinaryOp::Mul, *x, shrink));
            let first = keys.start;
            for some in pieces(keys, order.chunk()) {
                let (at, term) = (some.start, |j: usize| (weights[j - first], &v[j][..]));
                let terms: Vec<(T, &[T])> = some.map(term).collect();
                products::add(order, &mut o, at, &terms);
            }
        }
        if self.kernel.may_see_nothing() {
            // The largest weight is 1, so the sum of some is no less.
            sum = op(BinaryOp::Max, sum, T::of(1.0));
        }
        let inverse = op(BinaryOp::Div, T::of(1.0), sum);
        o.iter_mut()
            .for_each(|x| *x = products::result(order, op(BinaryOp::Mul, *x, inverse)));
        let lse = op(BinaryOp::Add, max, self.log.one(sum));
        (o, lse)
    }
}

/// Runs a whole launch of the forward kernel. `dims` are `[batch, seq]`, and `keys` where these are others.
pub fn eval_attend<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: &[u64]) {
    let biases = SINKS + u32::from(kernel.scores.sinks);
    let mut query = Query::<T>::new(kernel, memory, biases);
    let lengths = kernel.lengths(dims);
    let [_, seq, keys] = lengths;
    // Never with biases.
    let numbers = biases;
    each_head(kernel, memory, lengths, |mut head| {
        let part = head.part::<T>(keys, numbers);
        let own = head.queries(&part);
        let q = head.rows::<T>(Q, &own);
        let [k, v] = [K, V].map(|operand| head.rows::<T>(operand, &part));
        let of = (head.number, head.sink::<T>(SINKS));
        for (i, row) in own.iter().enumerate() {
            let seen = head.keys(i as u64, part.len());
            let (o, lse) = query.attend(of, i as u64, &q[i], &k, &v, seen);
            head.write(O, *row, &o);
            let at = head.statistic(*row);
            head.memory.store(LSE, at, lse);
        }
        head.clear::<T>(O, &own);
        for row in (0..seq).filter(|r| !own.contains(r)) {
            let at = head.statistic(row);
            head.memory.store(LSE, at, T::ZERO);
        }
    });
}
