//! Matrix products: specification, signature and meaning.

use super::signature::{Cols, Count, Mode, OperandAccess, Signature, Work, walked};
use super::validate::{self, MOST_OPERANDS, Scope};
use super::{Extent, Indices, Kind, Launch, Sample};
use crate::eval::{Evaluator, Memory};
use crate::expr::{Access, BinaryOp, Body, Expr, ExprId, UnaryOp};
use crate::quantized::Quantized;
use crate::real::Real;
use crate::{DType, dot, tile};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Register and cache blocking of a contraction; part of the spec so that tuning is frozen in the
/// artifact. `kc` fixes the order of summation, so it is part of the meaning too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blocking {
    /// Rows of a register tile.
    pub mr: u32,
    /// Columns of a register tile, and of a packed panel; a multiple of the vector length.
    pub nr: u32,
    /// Inner length of a cache block.
    pub kc: u32,
    /// Columns of a cache block; a multiple of `nr`.
    pub nc: u32,
}

impl Blocking {
    /// Elements between rows of A that are packed for tile registers: a chunk more than there are, so that rows of a tile lie in different sets of a cache.
    pub fn tile_row(self) -> u64 {
        u64::from(self.kc) + tile::K
    }

    pub(super) fn validate(self) -> Result<(), String> {
        let sizes = [self.mr, self.nr, self.kc, self.nc];
        match sizes.iter().all(|n| (1..=1 << 14).contains(n)) && self.nc.is_multiple_of(self.nr) {
            true => Ok(()),
            false => {
                Err("its blocking is not one (each of 1..=2¹⁴, `nc` a multiple of `nr`)".into())
            }
        }
    }
}

/// In which order a contraction adds up, within a block of its inner length, or attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Products are accumulated by FMA from zero, in order.
    #[default]
    Chain,
    /// In chunks of [`tile::K`], evens and odds of a chunk apart: [`tile::sum`]. Factors are bf16.
    Pairs,
    /// Two after two, the second of them first: [`dot::sum`]. Factors are bf16.
    Dots,
}

impl Order {
    pub(super) fn is_chain(&self) -> bool {
        *self == Order::Chain
    }

    /// Tiles of a contraction that are enough for threads to share: of one panel of rows, and of several.
    pub const fn tiles(self) -> [u64; 2] {
        match self {
            Order::Pairs => TILES_IN_REGISTERS,
            Order::Chain | Order::Dots => TILES,
        }
    }

    /// Whether panels hold pairs of neighbours in k.
    pub fn in_pairs(self) -> bool {
        !self.is_chain()
    }

    /// Values of k that are multiplied at once.
    pub const fn chunk(self) -> u64 {
        match self {
            Order::Chain => 1,
            Order::Pairs => tile::K,
            Order::Dots => 2,
        }
    }

    /// Values of k in a panel of inner length `k`: those of whole chunks, beyond `k` zeros.
    pub fn depth(self, k: u64) -> Option<u64> {
        k.checked_next_multiple_of(self.chunk())
    }

    /// The element that holds B(k, column), packed in panels of `nr` columns, `depth` values of k each.
    pub fn element(self, k: u64, column: u64, depth: u64, nr: u64) -> u64 {
        let (panel, j) = (column / nr * depth * nr, column % nr);
        panel
            + match self {
                Order::Chain => k * nr + j,
                Order::Pairs | Order::Dots => (k / 2 * nr + j) * 2 + k % 2,
            }
    }
}

/// Tiles of a contraction that are enough for threads to share: of one panel of rows, which is packed once for neighbours, and of several, each of
/// which is packed anew for every group of columns.
const TILES: [u64; 2] = [64, 16];
/// The same in tile registers, where packing has a larger share of the time: with these a product of 256 × 256 × 2048 took 0.8 of the time that it took
/// with the others (a Xeon with AMX, two threads, 2026).
const TILES_IN_REGISTERS: [u64; 2] = [64, 8];

/// How many pieces of its inner length a contraction sums apart, so that a small C has enough blocks. C has rows of `n` numbers for each of
/// them, side by side: [m, parts · n].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Parts(pub u32);

impl Parts {
    pub const ONE: Parts = Parts(1);
    pub const MOST: u32 = 64;
    /// What a piece's length is a multiple of, but the last one's.
    const UNIT: u64 = 64;

    fn is_one(&self) -> bool {
        *self == Parts::ONE
    }

    /// The length of a piece; the last ones may be shorter, or of none.
    pub fn length(self, k: u64) -> u64 {
        let unit = Parts::UNIT;
        (k.div_ceil(unit)).div_ceil(self.0.into()) * unit
    }
}

impl Default for Parts {
    fn default() -> Parts {
        Parts::ONE
    }
}

/// How many products of the same sizes a contraction adds up, so that C is written once: on tensor cores of Hopper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms(pub u32);

impl Terms {
    pub const ONE: Terms = Terms(1);
    pub const MOST: u32 = 4;

    fn is_one(&self) -> bool {
        *self == Terms::ONE
    }
}

impl Default for Terms {
    fn default() -> Terms {
        Terms::ONE
    }
}

/// How a contraction's right-hand operand B(k, n) lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Panels made by [`Pack`](super::Pack).
    #[default]
    Panels,
    /// The same, of integers.
    Quantized(Quantized),
    /// [k, n], row stride n.
    Rows,
    /// [n, k], row stride k.
    Columns,
}

impl Layout {
    fn is_panels(&self) -> bool {
        *self == Layout::Panels
    }
}

/// `C(m, n) = epilogue(Σ_t Σ_k A_t(m, k) · B_t(k, n))`, with one term but where [`Terms`] says otherwise.
///
/// dims: `[m, n, k]`. tiles: a panel of `mr` rows and [`Contract::columns`] columns each; those of all rows come one after the other.
/// operands: A and B of each term, the epilogue's extra inputs, C. C is stored [m, n], row stride n.
/// `a_transposed: false`: A is stored [m, k]; `true`: stored [k, m] (row stride m).
/// Elements of A are `a`, those of packed B `b`, those of C bf16 where it `rounds`, as some of the epilogue's may be; all others are `dtype`, in which sums are taken. With bf16
/// panels, elements of A are rounded to bf16 too: the result is that of the `dtype` contraction of rounded operands, and
/// does not depend on whether A was rounded before it was stored. With panels of integers, whose elements are bytes, `b` says only whether elements of
/// A are rounded to bf16: the result is that of the `dtype` contraction with what the integers stand for ([`crate::quantized`]), which is exact in f32.
///
/// Order of summation: k is cut into blocks of `kc`; inside a block products are added up in its [`Order`], from zero; the
/// block sums are added in order (starting from C itself with `accumulate`:
/// C + block₀, then + block₁, …), then those of the next term. The epilogue sees the finished sum as [`crate::expr::Expr::Acc`], and
/// may load operands by element, column or scalar. (On tensor cores the order is the card's: [`crate::gpu::tensor`].)
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Contract {
    pub dtype: DType,
    pub a: DType,
    pub b: DType,
    pub m: Extent,
    pub n: Extent,
    pub k: Extent,
    pub a_transposed: bool,
    #[serde(default, skip_serializing_if = "Layout::is_panels")]
    pub layout: Layout,
    pub accumulate: bool,
    /// Whether C is rounded to bf16, after the epilogue, and stored so: on tensor cores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rounds: bool,
    /// Pieces of k that are summed apart, on tensor cores.
    #[serde(default, skip_serializing_if = "Parts::is_one")]
    pub parts: Parts,
    #[serde(default, skip_serializing_if = "Terms::is_one")]
    pub terms: Terms,
    #[serde(default, skip_serializing_if = "Order::is_chain")]
    pub order: Order,
    pub blocking: Blocking,
    pub epilogue: Option<Epilogue>,
}

impl Contract {
    /// A · B of one type, A stored [m, k] and B in panels.
    pub fn new(dtype: DType, [m, n, k]: [Extent; 3], blocking: Blocking) -> Contract {
        Contract {
            dtype,
            a: dtype,
            b: dtype,
            m,
            n,
            k,
            a_transposed: false,
            layout: Layout::Panels,
            accumulate: false,
            rounds: false,
            parts: Parts::ONE,
            terms: Terms::ONE,
            order: Order::Chain,
            blocking,
            epilogue: None,
        }
    }

    /// Operands and scalars of the epilogue.
    fn extras(&self) -> (usize, usize) {
        let extras = self.epilogue.as_ref();
        extras.map_or((0, 0), |e| (e.operands as usize, e.uniforms as usize))
    }

    /// Operands that are factors: A and B of each term.
    pub fn factors(&self) -> usize {
        2 * self.terms.0 as usize
    }

    /// The number of C among the operands, the last.
    pub fn out(&self) -> usize {
        self.factors() + self.extras().0
    }

    /// Elements of C.
    pub fn result(&self) -> DType {
        match self.rounds {
            true => DType::Bf16,
            false => self.dtype,
        }
    }

    /// The element that holds B(k, column), where B has `n` columns and inner length `len`.
    pub fn element(&self, k: u64, column: u64, n: u64, len: u64) -> u64 {
        match self.layout {
            Layout::Panels => {
                let depth = self.order.depth(len).expect("B is in memory");
                let nr = u64::from(self.blocking.nr);
                self.order.element(k, column, depth, nr)
            }
            Layout::Rows => k * n + column,
            Layout::Columns => column * len + k,
            Layout::Quantized(q) => q.place(k, column, len, self.blocking.nr.into()).integer,
        }
    }

    /// Element type of B in memory.
    pub fn right(&self) -> DType {
        match self.layout {
            Layout::Quantized(_) => DType::I8,
            _ => self.b,
        }
    }

    /// Whether B is widened before it is multiplied, a block at a time where a launch has several panels of rows.
    pub fn widens(&self) -> bool {
        match self.layout {
            Layout::Quantized(_) => true,
            _ => self.b != self.dtype && !self.order.in_pairs(),
        }
    }

    /// Columns of a tile, whole packed panels: as many as leave [`Order::tiles`], or all of them, where panels of rows are enough. A decoder that
    /// reads one token has one panel of rows, and its columns are what threads share.
    pub fn columns(&self, m: u64, n: u64) -> u64 {
        let nr = u64::from(self.blocking.nr);
        let (rows, panels) = (m.div_ceil(self.blocking.mr.into()), n.div_ceil(nr));
        let tiles = self.order.tiles()[usize::from(rows > 1)];
        (rows.saturating_mul(panels) / tiles).clamp(1, panels.max(1)) * nr
    }

    /// Elements of scratch before the widened panels: one packed panel of A, mr × kc, plus a full register tile for ragged
    /// edges.
    pub fn tile_scratch(&self) -> u64 {
        const VEC: u64 = 16; // elements of the widest vector: padding for overlapping stores
        let b = self.blocking;
        b.mr as u64 * b.kc as u64 + VEC * VEC + b.mr as u64 * b.nr as u64 + VEC
    }
    /// Elements of scratch of one thread: with panels of bf16 or integers that are multiplied in f32, also a block of them, widened, nc × kc. With tile
    /// registers, a register tile, a packed panel of A in bf16, and the configuration of the registers.
    pub fn scratch(&self) -> u64 {
        if self.order == Order::Pairs {
            let b = self.blocking;
            let (mr, nr) = (u64::from(b.mr), u64::from(b.nr));
            return mr * nr + mr * b.tile_row() / 2 + tile::CONFIGURATION / self.dtype.bytes();
        }
        let widened = match self.widens() {
            false => 0,
            true => self.blocking.nc as u64 * self.blocking.kc as u64,
        };
        match widened {
            0 => self.tile_scratch(),
            n => self.tile_scratch().next_multiple_of(16) + n,
        }
    }
}

/// A map applied to the finished element of a contraction. Operand numbers are those of the launch.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Epilogue {
    pub operands: u32,
    /// Those of them that are bf16: on tensor cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub halves: Vec<u32>,
    pub uniforms: u32,
    pub body: Body,
    pub value: ExprId,
}

pub(super) struct ContractKind;

impl Kind for ContractKind {
    type Spec = Contract;
    const NAME: &'static str = "contract";

    fn dtype(c: &Contract) -> DType {
        c.dtype
    }

    fn validate(c: &Contract) -> Result<(), String> {
        validate::sums(c.dtype)?;
        for (name, e) in [("m", c.m), ("n", c.n), ("k", c.k)] {
            validate::extent(name, e)?;
        }
        for factor in [c.a, c.b] {
            validate::reads(c.dtype, factor)?;
        }
        c.blocking.validate()?;
        validate::pairs(c.order, c.b, c.dtype)?;
        let unpacked = matches!(c.layout, Layout::Rows | Layout::Columns);
        let halves = c.dtype == DType::F32 && c.b == DType::Bf16 && unpacked;
        if c.rounds && (c.accumulate || !halves) {
            return Err("it rounds sums that are not made on tensor cores".into());
        }
        if c.order.in_pairs() && c.layout != Layout::Panels {
            return Err("it multiplies pairs that are not packed".into());
        }
        if let Layout::Quantized(q) = c.layout {
            validate::quantized(q, c.blocking.nr, [c.dtype, DType::I8], c.order)?;
            if !c.blocking.kc.is_multiple_of(q.group) {
                return Err(format!(
                    "its blocks of k are not whole groups of {}",
                    q.group
                ));
            }
        }
        let parts = c.parts.0;
        let summed = parts == 1 || (!c.accumulate && !c.rounds && c.epilogue.is_none());
        if !(1..=Parts::MOST).contains(&parts) || !summed || (parts > 1 && !halves) {
            return Err(format!(
                "it sums {parts} pieces of k apart, which it cannot"
            ));
        }
        let terms = c.terms.0;
        let together = c.epilogue.is_none() && parts == 1 && halves;
        if !(1..=Terms::MOST).contains(&terms) || (terms > 1 && !together) {
            return Err(format!("it adds up {terms} products, which it cannot"));
        }
        let Some(e) = &c.epilogue else {
            return Ok(());
        };
        let extras = e.operands as usize;
        if extras > MOST_OPERANDS {
            return Err(format!("its epilogue has {extras} operands"));
        }
        let own = 2..2 + e.operands;
        if !e.halves.iter().all(|n| halves && own.contains(n)) {
            return Err("its epilogue reads bf16, but not on tensor cores".into());
        }
        let scope = Scope {
            loads: 2..2 + extras,
            uniforms: e.uniforms,
            cols: None,
            reductions: false,
            accumulator: true,
            positions: false,
        };
        validate::body(&e.body, c.dtype, &scope)?;
        validate::value(&e.body, e.value)
    }

    fn signature(c: &Contract) -> Signature {
        let right = match c.layout {
            Layout::Panels => Count::Panels {
                n: 1,
                nr: c.blocking.nr.into(),
                k: 2,
                order: c.order,
            },
            Layout::Quantized(of) => Count::Quantized {
                n: 1,
                nr: c.blocking.nr.into(),
                k: 2,
                of,
            },
            Layout::Rows | Layout::Columns => Count::rows(&[1, 2], 1),
        };
        let (extras, coeffs) = c.extras();
        let factors = [
            OperandAccess::new("a", c.a, Mode::Read, [Count::rows(&[0, 2], 1)]),
            OperandAccess::new("b", c.right(), Mode::Read, [right]),
        ];
        let mut operands = vec![factors; c.terms.0 as usize].concat();
        let halves = c.epilogue.as_ref().map_or(&[][..], |e| &e.halves);
        let extra = |n: usize| {
            let dtype = match halves.contains(&(n as u32)) {
                true => DType::Bf16,
                false => c.dtype,
            };
            OperandAccess::new("extra", dtype, Mode::Read, [])
        };
        let own = c.factors()..c.factors() + extras;
        operands.extend(own.map(extra));
        let mode = Mode::written(c.accumulate);
        operands.push(OperandAccess::new(
            "c",
            c.result(),
            mode,
            [Count::rows(&[0, 1], c.parts.0.into())],
        ));
        if let Some(e) = &c.epilogue {
            walked(&e.body, Cols::Dim(1), &mut operands);
        }
        Signature {
            dtype: c.dtype,
            operands,
            dims: vec![c.m.dimension("m"), c.n.dimension("n"), c.k.dimension("k")],
            coeffs,
            scratch: vec![Count::fixed(c.scratch())],
            work: Work::contractions(Count::rows(&[0, 1, 2], c.terms.0.into())),
        }
    }

    fn tiles(c: &Contract, dims: &[u64]) -> u64 {
        let rows = dims[0].div_ceil(c.blocking.mr.into());
        rows * dims[1].div_ceil(c.columns(dims[0], dims[1]))
    }

    fn headline(c: &Contract) -> String {
        let b = c.blocking;
        let a = if c.a_transposed { "Aᵀ" } else { "A" };
        let sign = if c.accumulate { "+=" } else { "=" };
        let epilogue = if c.epilogue.is_some() {
            ", with an epilogue"
        } else {
            ""
        };
        let rounds = if c.rounds { ", C in bf16" } else { "" };
        let parts = match c.parts {
            Parts::ONE => String::new(),
            Parts(n) => format!(", k in {n} pieces"),
        };
        let terms = match c.terms {
            Terms::ONE => String::new(),
            Terms(n) => format!(", a sum of {n}"),
        };
        let right = match (c.layout, c.order) {
            (Layout::Panels, Order::Pairs) => "B in pairs".into(),
            (Layout::Panels, Order::Dots) => "B in pairs, added two after two".into(),
            (Layout::Panels, Order::Chain) => "B".into(),
            (Layout::Quantized(q), _) => format!("B in {q}"),
            (Layout::Rows, _) => "B [k, n]".into(),
            (Layout::Columns, _) => "B [n, k]".into(),
        };
        format!(
            "C {sign} {a}·{right}, m = {}, n = {}, k = {}, tiles {}×{}, blocks k {} n {}{parts}{terms}{rounds}{epilogue}",
            c.m, c.n, c.k, b.mr, b.nr, b.kc, b.nc
        )
    }

    fn run<T: Real>(c: &Contract, m: &mut (impl Memory<T> + Indices), at: Launch) {
        multiply::<T>(c, m, at);
    }

    fn samples() -> Vec<Sample<Contract>> {
        let (m, n, k) = (5, 7, 9);
        let blocking = Blocking {
            mr: 4,
            nr: 4,
            kc: 4,
            nc: 8,
        };
        let sizes = [Extent::Dynamic, Extent::Static(n), Extent::Static(k)];
        let plain = |dtype, b| Contract {
            b,
            ..Contract::new(dtype, sizes, blocking)
        };
        let (f32s, f64s) = (plain(DType::F32, DType::F32), plain(DType::F64, DType::F64));
        let finished = Contract {
            epilogue: Some(Epilogue::sample(n)),
            layout: Layout::Columns,
            ..f32s.clone()
        };
        let summed = Contract {
            accumulate: true,
            a_transposed: true,
            layout: Layout::Rows,
            ..f64s
        };
        let paired = Contract {
            order: Order::Pairs,
            a: DType::Bf16,
            ..plain(DType::F32, DType::Bf16)
        };
        let dotted = Contract {
            order: Order::Dots,
            ..paired.clone()
        };
        let narrow = Contract {
            n: Extent::Static(8),
            k: Extent::Static(16),
            layout: Layout::Columns,
            rounds: true,
            ..plain(DType::F32, DType::Bf16)
        };
        let parted = Contract {
            rounds: false,
            k: Extent::Dynamic,
            parts: Parts(3),
            ..narrow.clone()
        };
        let of_terms = Contract {
            terms: Terms(2),
            accumulate: true,
            rounds: false,
            a: DType::Bf16,
            ..narrow.clone()
        };
        let quantized = [8, 4].map(|bits| {
            let q = Quantized { bits, group: 2 };
            let spec = Contract {
                layout: Layout::Quantized(q),
                b: if bits == 4 { DType::Bf16 } else { DType::F32 },
                ..f32s.clone()
            };
            Sample::new(spec, &[m, n, k], &[])
        });
        let dims = [m, n, k];
        let mut all: Vec<Sample<Contract>> = [f32s, summed, paired, dotted]
            .map(|spec| Sample::new(spec, &dims, &[]))
            .into();
        all.extend(quantized);
        all.push(Sample::new(finished, &dims, &[2.0]));
        all.push(Sample::new(narrow, &[m, 8, 16], &[]));
        all.push(Sample::new(of_terms, &[m, 8, 16], &[]));
        all.push(Sample::new(parted, &[m, 8, 150], &[]));
        all
    }
}

impl Epilogue {
    /// `2·sum + bias + table`, of rows of `n`.
    fn sample(n: u64) -> Epilogue {
        let mut body = Body::default();
        let (sum, factor) = (body.push(Expr::Acc), body.uniform(0));
        let (bias, table) = (body.load(2, Access::PER_COL), body.load(3, Access::full(n)));
        let scaled = body.mul(sum, factor);
        let with_bias = body.add(scaled, bias);
        Epilogue {
            operands: 2,
            halves: vec![],
            uniforms: 1,
            value: body.add(with_bias, table),
            body,
        }
    }
}

/// Multiplications of a launch that are worth several threads.
const MANY: u64 = 1 << 24;

fn multiply<T: Real>(c: &Contract, memory: &mut impl Memory<T>, at: Launch) {
    let (m, n, k) = (at.dims[0], at.dims[1], at.dims[2]);
    let nr = u64::from(c.blocking.nr);
    let elements = match c.layout {
        Layout::Panels => {
            n.next_multiple_of(nr) * c.order.depth(k).expect("the launch was checked")
        }
        Layout::Quantized(q) => q.bytes(n, nr, k).expect("the launch was checked"),
        Layout::Rows | Layout::Columns => n * k,
    };
    let mut epilogue = c
        .epilogue
        .as_ref()
        .map(|e| (Evaluator::<T>::new(&e.body, at.coeffs), e.value));
    let out = c.out() as u32;
    let rounded = |x: T| match c.b {
        DType::Bf16 => T::unary(UnaryOp::Bf16, x),
        _ => x,
    };
    let all = |operand: u32, count: u64| {
        let mut all = Vec::new();
        memory.load_all(operand, 0..count, &mut all);
        all
    };
    let right = |b: &[T], l: u64, j: u64| match c.layout {
        Layout::Quantized(q) => {
            let byte = |n: u64| b[n as usize].to_f64() as i8;
            T::of(q.number(q.place(l, j, k, nr), byte).into())
        }
        _ => b[c.element(l, j, n, k) as usize],
    };
    let factors = (0..c.factors() as u32).step_by(2).map(|first| {
        let a: Vec<T> = all(first, m * k).into_iter().map(rounded).collect();
        let b: Vec<T> = all(first + 1, elements);
        // B(k, n) by rows, as sums of many columns side by side read it.
        let places = (0..k).flat_map(|l| (0..n).map(move |j| (l, j)));
        let b: Vec<T> = places.map(|(l, j)| right(&b, l, j)).collect();
        (a, b)
    });
    let factors: Vec<(Vec<T>, Vec<T>)> = factors.collect();
    let before = c.accumulate.then(|| all(out, m * n));
    let parts = u64::from(c.parts.0);
    let mut sums = vec![T::ZERO; (m * parts * n) as usize];
    // Rows do not depend on one another.
    let work = m.saturating_mul(n).saturating_mul(k);
    let threads = if work < MANY { 1 } else { at.threads.max(1) };
    let each = (m * parts).div_ceil(threads as u64).max(1);
    std::thread::scope(|scope| {
        let part = |first: u64, sums: &mut [T]| {
            for (i, row) in (first..).zip(sums.chunks_mut(n.max(1) as usize)) {
                let (i, piece) = (i / parts, i % parts);
                let length = c.parts.length(k);
                let inner = (piece * length).min(k)..((piece + 1) * length).min(k);
                if let Some(c) = &before {
                    row.copy_from_slice(&c[(i * n) as usize..][..n as usize]);
                }
                for (term, (a, b)) in factors.iter().enumerate() {
                    let begun = before.is_some() || term > 0;
                    sum_row(c, (a, b), [m, n, k], (i, inner.clone()), (begun, row));
                }
            }
        };
        let shares = sums.chunks_mut((each * n).max(1) as usize);
        for (first, sums) in (0..m * parts).step_by(each as usize).zip(shares) {
            match threads {
                1 => part(first, sums),
                _ => drop(scope.spawn(move || part(first, sums))),
            }
        }
    });
    for (i, row) in (0..m * parts).zip(sums.chunks(n.max(1) as usize)) {
        if let Some((body, _)) = &mut epilogue {
            body.row(memory, i, [m, 1], 0..n, row);
        }
        for (j, sum) in row.iter().enumerate() {
            let value = epilogue
                .as_ref()
                .map_or(*sum, |(body, id)| body.value(*id, j));
            memory.store(out, i * n + j as u64, value);
        }
    }
}

/// Row `i` of the sums of a contraction of two factors over a range of k; where it is begun, they are added to what is there.
fn sum_row<T: Real>(
    c: &Contract,
    (a, b): (&[T], &[T]),
    [m, n, k]: [u64; 3],
    (i, inner): (u64, Range<u64>),
    (begun, row): (bool, &mut [T]),
) {
    let kc = u64::from(c.blocking.kc);
    let left = |l: u64| a[if c.a_transposed { l * m + i } else { i * k + l } as usize];
    let right = |l: u64| &b[(l * n) as usize..][..n as usize];
    let mut blocks = inner.clone().step_by(kc as usize).map(|start| {
        let block = start..(start + kc).min(inner.end);
        let mut sums = vec![T::ZERO; n as usize];
        match c.order {
            Order::Chain => block.for_each(|l| T::axpy(left(l), right(l), &mut sums)),
            Order::Pairs | Order::Dots => {
                let f32s = |x: T| x.to_f64() as f32;
                for (j, sum) in sums.iter_mut().enumerate() {
                    let terms = block.clone().map(|l| (f32s(left(l)), f32s(right(l)[j])));
                    let added = match c.order {
                        Order::Dots => dot::sum(terms),
                        _ => tile::sum(terms),
                    };
                    *sum = T::of(added.into());
                }
            }
        }
        sums
    });
    if !begun {
        row.copy_from_slice(&blocks.next().unwrap_or_else(|| vec![T::ZERO; n as usize]));
    }
    for block in blocks {
        for (total, sum) in row.iter_mut().zip(block) {
            *total = T::binary(BinaryOp::Add, *total, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token's products have a tile for every packed panel, up to [`Order::tiles`]; those of a batch one for every panel of rows.
    #[test]
    fn few_rows_are_shared_by_columns() {
        let blocking = Blocking {
            mr: 14,
            nr: 32,
            kc: 256,
            nc: 512,
        };
        let c = Contract {
            blocking,
            ..ContractKind::samples()[0].spec.clone()
        };
        let tiles = |m, n| ContractKind::tiles(&c, &[m, n, 256]);
        assert_eq!(tiles(1, 704), 22);
        assert_eq!(tiles(14, 64 * 32 * 3), Order::Chain.tiles()[0]);
        assert_eq!(tiles(15, 704), 2 * 11);
        assert_eq!(tiles(256, 704), 256u64.div_ceil(14));
        assert_eq!(tiles(0, 704), 0);
    }
}
