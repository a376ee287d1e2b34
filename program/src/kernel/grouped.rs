//! Products of rows with the matrix of their group: specification, signature and meaning.
//!
//! What mixtures of experts compute: each row meets one of several matrices, and the others are not read for it. Rows stay where
//! they are: a kernel looks for those of a group, and neither sorts nor copies them (Tan et al. 2024, "Scattered Mixture-of-Experts
//! Implementation", arXiv:2403.08245).

use super::contract::{Blocking, Layout, Order};
use super::products;
use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::validate::{self, MOST_HEADS};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::expr::{BinaryOp, UnaryOp};
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// Most elements of the matrices of all groups.
const MOST_WEIGHTS: u64 = 1 << 40;

/// How many matrices there are, and how rows meet them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Groups {
    pub groups: u64,
    /// Rows of the result that are made of one row of A, one after the other.
    pub copies: u64,
    /// Columns of the result, and the inner length.
    pub n: u64,
    pub k: u64,
    /// Whether a number that is not 0 or more names no group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

impl Groups {
    /// The group that a number names: how many of `1, 2, … groups − 1` are not above it. Every number names one, unless groups are
    /// `partial`.
    pub fn of(self, number: f64) -> Option<u64> {
        match number {
            x if self.partial && (x.is_nan() || x < 0.0) => None,
            x if x.is_nan() || x < 1.0 => Some(0),
            x if x >= self.groups as f64 => Some(self.groups - 1),
            x => Some(x as u64),
        }
    }
}

/// `C(i, :) = Σ_k A(i / copies, k) · B_g(k, :)`, g the group that row i's number names ([`Groups::of`]); zero where it names none.
///
/// dims: `[rows of A]`. operands: numbers (`copies` for each row of A, in the type of arithmetic), A, the matrices, C. A matrix lies
/// as `layout` says: [k, n] or [n, k], or all of them in the panels of one B(k, groups · n) ([`super::Pack`]). tiles: for each group one per
/// [`Grouped::width`] columns.
///
/// Order of summation: as that of a [`Contract`](super::Contract) of the same blocking and order: k is cut into blocks of `kc`; inside a block
/// products are accumulated from zero, in order, by FMA or two after two; the block sums are added in order.
///
/// GroupedOuter: `W_g(n, k) = Σ_i A(i, n) · B(i / copies, k)` over the rows i of group g, zero where it has none. operands: numbers, A,
/// B, the matrices, each [n, k]; tiles: for each group one per [`Grouped::height`] rows. Order of summation: rows are cut into blocks of
/// `kc`, whichever group they are of; inside a block the products of the group's rows are accumulated from zero, in order, by FMA or two after two; the block
/// sums are added in order.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Grouped {
    pub dtype: DType,
    /// Types in memory of the two factors: that of arithmetic, or bf16 where they are rounded.
    pub factors: [DType; 2],
    /// Whether factors are rounded to bf16: it does not matter to the result whether they were before they were stored.
    pub rounded: bool,
    pub of: Groups,
    pub layout: Layout,
    pub blocking: Blocking,
    /// How products are added up inside a block: no product is made in tile registers.
    #[serde(default, skip_serializing_if = "Order::is_chain")]
    pub order: Order,
}

impl Grouped {
    /// Rows that a processor looks through at a time.
    pub const RANGE: u64 = 512;
    /// Register tiles side by side, or below each other, of a tile of a launch.
    pub const TILES: u64 = 4;
    /// Elements of scratch behind what the last vector of a row may overrun into.
    const OVERRUN: u64 = 256;

    /// Values of k of a column of a matrix in panels.
    pub fn depth(&self) -> u64 {
        let depth = self.order.depth(self.of.k);
        depth.expect("matrices were counted")
    }

    /// Columns of a tile of a launch.
    pub fn width(&self) -> u64 {
        Self::TILES * u64::from(self.blocking.nr)
    }

    /// Rows of a tile of a launch of sums over rows.
    pub fn height(&self) -> u64 {
        Self::TILES * u64::from(self.blocking.mr)
    }

    /// Where the pieces of scratch begin, in elements: row numbers of 8 bytes each, the left factor, the right factor, the end.
    pub fn scratch(&self) -> [u64; 4] {
        let kc = u64::from(self.blocking.kc);
        let left = (2 * Self::RANGE.max(kc)).next_multiple_of(16);
        let right = (left + self.height() * kc + Self::OVERRUN).next_multiple_of(16);
        [0, left, right, right + self.width() * kc + Self::OVERRUN]
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        validate::sums(self.dtype)?;
        let Groups {
            groups,
            copies,
            n,
            k,
            ..
        } = self.of;
        let types = [self.dtype, DType::Bf16];
        let known = |t: &DType| types[..1 + usize::from(self.rounded)].contains(t);
        if !self.factors.iter().all(known) || (self.rounded && self.dtype != DType::F32) {
            return Err(format!(
                "it reads {:?} in arithmetic in {:?}",
                self.factors, self.dtype
            ));
        }
        validate::length("columns", n)?;
        validate::length("inner columns", k)?;
        if ![groups, copies]
            .iter()
            .all(|n| (1..=MOST_HEADS).contains(n))
        {
            return Err(format!("it has {groups} groups, {copies} copies of a row"));
        }
        if (n * k).checked_mul(groups).is_none_or(|e| e > MOST_WEIGHTS) {
            return Err(format!("it has {groups} matrices of {n} × {k}"));
        }
        match self.order {
            Order::Chain => {}
            Order::Dots if self.rounded && self.blocking.kc.is_multiple_of(2) => {}
            Order::Dots | Order::Pairs => return Err(format!("its products are {:?}", self.order)),
        }
        self.blocking.validate()
    }

    /// Operands by name, with mode and extent, in order; the numbers are the first.
    pub(super) fn takes(&self, operands: [(&'static str, Mode, Count); 3]) -> Signature {
        let Groups { copies, n, k, .. } = self.of;
        let numbers = ("numbers", Mode::Read, Count::rows(&[0], copies));
        let [a, b] = self.factors;
        let mut types = [self.dtype, a, b, self.dtype].into_iter();
        let operand = |(name, mode, extent)| {
            let dtype = types.next().unwrap_or(self.dtype);
            OperandAccess::new(name, dtype, mode, [extent])
        };
        Signature {
            dtype: self.dtype,
            operands: [numbers].into_iter().chain(operands).map(operand).collect(),
            dims: vec![Dimension::any("rows")],
            coeffs: 0,
            scratch: vec![Count::fixed(self.scratch()[3])],
            work: Work::contractions(Count::rows(&[0], copies * n * k)),
        }
    }

    /// The group of every row.
    pub(super) fn groups<T: Real>(&self, m: &impl Memory<T>, rows: u64) -> Vec<Option<u64>> {
        let group = |i| self.of.of(m.load(0, i).to_f64());
        (0..rows * self.of.copies).map(group).collect()
    }

    /// `count` elements of a factor.
    pub(super) fn factor<T: Real>(&self, m: &impl Memory<T>, operand: u32, count: u64) -> Vec<T> {
        let rounded = |x: T| match self.rounded {
            true => T::unary(UnaryOp::Bf16, x),
            false => x,
        };
        (0..count).map(|i| rounded(m.load(operand, i))).collect()
    }

    /// Elements of the matrices of all groups, as they lie.
    fn matrices(&self) -> u64 {
        let Groups { groups, n, k, .. } = self.of;
        match self.layout {
            Layout::Panels => groups * n * self.depth(),
            _ => groups * n * k,
        }
    }

    pub(super) fn in_words(&self, what: &str) -> String {
        let Groups {
            groups,
            copies,
            n,
            k,
            partial,
        } = self.of;
        let some = if partial { ", some rows" } else { "" };
        let rounded = if self.rounded {
            ", factors rounded"
        } else {
            ""
        };
        let pairs = match self.order {
            Order::Chain => "",
            Order::Dots | Order::Pairs => ", in pairs",
        };
        let packed = match self.layout {
            Layout::Panels => ", in panels",
            _ => "",
        };
        format!(
            "{what} of {groups} groups{packed}, n = {n}, k = {k}, rows {copies} times{some}{rounded}{pairs}"
        )
    }

    pub(super) fn samples_with(layouts: &[Layout]) -> Vec<Sample<Grouped>> {
        let of = Groups {
            groups: 3,
            copies: 2,
            n: 7,
            k: 9,
            partial: false,
        };
        let blocking = Blocking {
            mr: 4,
            nr: 4,
            kc: 4,
            nc: 8,
        };
        type Of = ([DType; 2], DType, bool, Order);
        let sample = |((factors, dtype, partial, order), layout): (Of, &Layout)| {
            let layout = *layout;
            let spec = Grouped {
                dtype,
                factors,
                rounded: factors.contains(&DType::Bf16),
                of: Groups { partial, ..of },
                layout,
                blocking,
                order,
            };
            Sample::new(spec, &[5], &[])
        };
        let types = [
            ([DType::F32; 2], DType::F32, false, Order::Chain),
            ([DType::F64; 2], DType::F64, false, Order::Chain),
            ([DType::F32; 2], DType::F32, true, Order::Chain),
            ([DType::Bf16, DType::F32], DType::F32, false, Order::Chain),
            ([DType::Bf16; 2], DType::F32, false, Order::Chain),
            ([DType::F32, DType::Bf16], DType::F32, true, Order::Dots),
        ];
        let each = types
            .into_iter()
            .flat_map(|t| layouts.iter().map(move |l| (t, l)));
        each.map(sample).collect()
    }
}

/// Sums of blocks, each from zero, added in order.
pub(super) fn blocked<T: Real>(
    order: Order,
    blocks: impl Iterator<Item = impl Iterator<Item = (T, T)>>,
) -> T {
    let blocks = blocks.map(|of| {
        let (a, b): (Vec<T>, Vec<T>) = of.unzip();
        products::sum(order, &a, &b)
    });
    let total = blocks.reduce(|total, block| T::binary(BinaryOp::Add, total, block));
    total.unwrap_or(T::ZERO)
}

pub(super) struct GroupedKind;

impl Kind for GroupedKind {
    type Spec = Grouped;
    const NAME: &'static str = "grouped";

    fn dtype(g: &Grouped) -> DType {
        g.dtype
    }

    fn validate(g: &Grouped) -> Result<(), String> {
        g.validate()?;
        let read = match g.rounded {
            true => DType::Bf16,
            false => g.dtype,
        };
        let whole = g.of.n.is_multiple_of(g.blocking.nr.into()) && g.factors[1] == read;
        match g.layout {
            Layout::Panels if !whole => Err("its matrices are no whole panels".into()),
            Layout::Quantized(_) => Err("its matrices are integers".into()),
            _ => Ok(()),
        }
    }

    fn signature(g: &Grouped) -> Signature {
        let Groups { copies, n, k, .. } = g.of;
        g.takes([
            ("a", Mode::Read, Count::rows(&[0], k)),
            ("matrices", Mode::Read, Count::fixed(g.matrices())),
            ("c", Mode::Write, Count::rows(&[0], copies * n)),
        ])
    }

    fn tiles(g: &Grouped, _: &[u64]) -> u64 {
        g.of.groups * g.of.n.div_ceil(g.width())
    }

    fn headline(g: &Grouped) -> String {
        g.in_words("rows times the matrix")
    }

    fn run<T: Real>(g: &Grouped, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let Groups { copies, n, k, .. } = g.of;
        let (kc, nr, depth) = (
            u64::from(g.blocking.kc),
            u64::from(g.blocking.nr),
            g.depth(),
        );
        let (a, b) = (g.factor(m, 1, at.dims[0] * k), g.factor(m, 2, g.matrices()));
        for (i, group) in (0..).zip(g.groups(m, at.dims[0])) {
            let Some(group) = group else {
                (0..n).for_each(|j| m.store(3, i * n + j, T::ZERO));
                continue;
            };
            for j in 0..n {
                let element = |l: u64| match g.layout {
                    Layout::Columns => (group * n + j) * k + l,
                    Layout::Panels => g.order.element(l, group * n + j, depth, nr),
                    _ => (group * k + l) * n + j,
                };
                let factors = |l| (a[(i / copies * k + l) as usize], b[element(l) as usize]);
                let starts = (0..k).step_by(kc as usize);
                let blocks = starts.map(|l| (l..(l + kc).min(k)).map(factors));
                let sum: T = blocked(g.order, blocks);
                m.store(3, i * n + j, sum);
            }
        }
    }

    fn samples() -> Vec<Sample<Grouped>> {
        let mut all = Grouped::samples_with(&[Layout::Rows, Layout::Columns]);
        let mut packed = Grouped::samples_with(&[Layout::Panels]);
        packed.iter_mut().for_each(|s| s.spec.of.n = 8);
        packed.retain(|s| GroupedKind::validate(&s.spec).is_ok());
        all.extend(packed);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_names_a_group() {
        let of = Groups {
            groups: 3,
            copies: 1,
            n: 1,
            k: 1,
            partial: false,
        };
        let named = [-1.0, 0.0, 0.9, 1.0, 1.5, 2.0, 7.0, f64::INFINITY, f64::NAN].map(|x| of.of(x));
        assert_eq!(named, [0, 0, 0, 1, 1, 2, 2, 2, 0].map(Some));
        let one = Groups { groups: 1, ..of };
        let all = [f64::NEG_INFINITY, 0.0, 5.0].map(|x| one.of(x));
        assert_eq!(all, [Some(0); 3]);
        let some = Groups {
            partial: true,
            ..of
        };
        let named = [f64::NEG_INFINITY, -1e-30, f64::NAN, -0.0, 0.5, 7.0].map(|x| some.of(x));
        assert_eq!(named, [None, None, None, Some(0), Some(0), Some(2)]);
    }
}
