//! Right-hand operands packed in panels: specification, signature and meaning.

use super::contract::Order;
use super::signature::{Count, Mode, OperandAccess, Signature, Work};
use super::validate::{self, MOST_PANEL};
use super::{Extent, Indices, Kind, Launch, Sample};
use crate::eval::Memory;
use crate::quantized::Quantized;
use crate::real::Real;
use crate::{DType, bf16};
use serde::{Deserialize, Serialize};

/// Copies a right-hand operand B into panels of `nr` columns, arranged for contractions of an order:
/// `packed[p][k][j] = B(k, p·nr + j)`, with pairs ([`Order::in_pairs`]) `packed[p][k/2][j][k mod 2]`; zero where `p·nr + j ≥ n`, and,
/// with pairs, up to whole chunks of k ([`Order::depth`]). Elements of B are `from`, those of the panels `dtype`; bf16
/// panels of an f32 B are rounded. A B that is `quantized` has bytes for panels: of each panel, groups of rows one after the other, of each group the
/// scales of the columns and then its rows of integers ([`Quantized::place`]). Columns that do not exist are zeros, rows that do not exist are left out.
///
/// dims: `[n, k]`. tiles: one per panel, `ceil(n / nr)`, or of what has a row for each token [`Pack::ROWS`] rows each ([`Pack::by_rows`]). operands: B, packed.
/// `transposed: false`: B is stored [k, n] (row stride n); `true`: stored [n, k] (row stride k).
/// The packed buffer holds `ceil(n / nr) · nr · depth` elements, `depth` that of the order; of a quantized B [`Quantized::bytes`].
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Pack {
    pub dtype: DType,
    pub from: DType,
    pub n: Extent,
    pub k: Extent,
    pub nr: u32,
    pub transposed: bool,
    #[serde(default, skip_serializing_if = "Order::is_chain")]
    pub order: Order,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantized: Option<Quantized>,
}

pub(super) struct PackKind;

impl Kind for PackKind {
    type Spec = Pack;
    const NAME: &'static str = "pack";

    /// Panels may be bf16; packing computes nothing.
    fn dtype(k: &Pack) -> DType {
        k.from.arithmetic()
    }

    fn validate(p: &Pack) -> Result<(), String> {
        validate::extent("n", p.n)?;
        validate::extent("k", p.k)?;
        if !(1..=MOST_PANEL).contains(&p.nr) {
            return Err(format!("its panels have {} columns", p.nr));
        }
        if let Some(q) = p.quantized {
            return validate::quantized(q, p.nr, [p.from, p.dtype], p.order);
        }
        match (p.from, p.dtype) {
            (DType::F32 | DType::Bf16, DType::Bf16) => {}
            (from, to) if from == to && !matches!(to, DType::I32 | DType::I8) => {}
            (from, to) => return Err(format!("{from:?} is not packed into panels of {to:?}")),
        }
        validate::pairs(p.order, p.dtype, p.from.arithmetic())
    }

    fn signature(p: &Pack) -> Signature {
        let (nr, order) = (p.nr.into(), p.order);
        let (n, k) = (0, 1);
        let panels = match p.quantized {
            None => Count::Panels { n, nr, k, order },
            Some(of) => Count::Quantized { n, nr, k, of },
        };
        let b = Count::rows(&[0, 1], 1);
        Signature {
            dtype: Self::dtype(p),
            operands: vec![
                OperandAccess::new("b", p.from, Mode::Read, [b]),
                OperandAccess::new("packed", p.dtype, Mode::Write, [panels]),
            ],
            dims: vec![p.n.dimension("n"), p.k.dimension("k")],
            coeffs: 0,
            scratch: p.quantized.iter().map(|q| p.scratch(*q)).collect(),
            work: Work::others(b),
        }
    }

    fn tiles(p: &Pack, dims: &[u64]) -> u64 {
        match p.by_rows() {
            true => dims[1].div_ceil(Pack::ROWS),
            false => dims[0].div_ceil(p.nr.into()),
        }
    }

    fn headline(p: &Pack) -> String {
        let stored = if p.transposed {
            "stored [n, k]"
        } else {
            "stored [k, n]"
        };
        let quantized = p.quantized.map_or(String::new(), |q| format!(", {q}"));
        format!(
            "n = {}, k = {}, {stored}, panels of {}{quantized}",
            p.n, p.k, p.nr
        )
    }

    fn run<T: Real>(p: &Pack, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let (n, k, nr) = (at.dims[0], at.dims[1], u64::from(p.nr));
        if let Some(q) = p.quantized {
            return quantize(p, q, m, [n, k, nr]);
        }
        let depth = p.order.depth(k).expect("the launch was checked");
        for column in 0..n.next_multiple_of(nr) {
            for i in 0..depth {
                let value = match (column < n && i < k, p.transposed) {
                    (false, _) => T::ZERO,
                    (true, false) => m.load(0, i * n + column),
                    (true, true) => m.load(0, column * k + i),
                };
                m.store(1, p.order.element(i, column, depth, nr), value);
            }
        }
    }

    fn samples() -> Vec<Sample<Pack>> {
        let sample = |(dtype, from, transposed, order)| {
            let spec = Pack {
                dtype,
                from,
                n: Extent::Static(7),
                k: Extent::Dynamic,
                nr: 4,
                transposed,
                order,
                quantized: None,
            };
            Sample::new(spec, &[7, 5], &[])
        };
        let quantized = |(bits, transposed)| {
            let dtype = DType::I8;
            let mut s = sample((dtype, DType::F32, transposed, Order::Chain));
            s.spec.quantized = Some(Quantized { bits, group: 2 });
            s
        };
        let of = [
            (DType::F32, DType::F32, false, Order::Chain),
            (DType::Bf16, DType::F32, true, Order::Pairs),
            (DType::Bf16, DType::Bf16, true, Order::Dots),
            (DType::Bf16, DType::Bf16, false, Order::Chain),
            (DType::F64, DType::F64, true, Order::Chain),
        ];
        let mut all: Vec<Sample<Pack>> = of.map(sample).into();
        all.extend([(8, false), (4, true)].map(quantized));
        all
    }
}

impl Pack {
    /// Rows of a tile, whole chunks of all orders.
    pub const ROWS: u64 = 64;

    /// Whether a tile is some rows of B in all panels, not a panel: threads read the rows of tokens that they have made.
    pub fn by_rows(&self) -> bool {
        let tokens = !self.transposed && self.k == Extent::Dynamic;
        tokens && self.quantized.is_none()
    }

    /// Scratch where B is quantized: a group of a panel in f32.
    fn scratch(&self, q: Quantized) -> Count {
        Count::fixed(u64::from(q.group) * u64::from(self.nr))
    }
}

/// Packs a B that is quantized.
fn quantize<T: Real>(p: &Pack, q: Quantized, m: &mut impl Memory<T>, [n, k, nr]: [u64; 3]) {
    let at = |i: u64, column: u64| match p.transposed {
        false => i * n + column,
        true => column * k + i,
    };
    for first in (0..n.next_multiple_of(nr)).step_by(nr as usize) {
        for start in (0..k).step_by(q.group as usize) {
            let rows = start..(start + u64::from(q.group)).min(k);
            let mut columns = Vec::new();
            for column in first..first + nr {
                let number = |i: u64| match column < n {
                    true => m.load(0, at(i, column)).to_f64() as f32,
                    false => 0.0,
                };
                let numbers: Vec<f32> = rows.clone().map(number).collect();
                let scale = q.scale(&numbers);
                let integers = numbers.iter().map(|x| q.integer(*x, scale));
                columns.push(integers.collect::<Vec<i8>>());
                let place = q.place(start, column, k, nr);
                let bytes = bf16::of_f32(scale).to_le_bytes();
                for (byte, i) in bytes.into_iter().zip(place.scale..) {
                    m.store(1, i, T::of((byte as i8).into()));
                }
            }
            for (row, i) in rows.enumerate() {
                let integers: Vec<i8> = columns.iter().map(|column| column[row]).collect();
                q.store_row(m, 1, q.place(i, first, k, nr).integer, &integers);
            }
        }
    }
}
