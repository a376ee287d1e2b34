//! Right-hand operands packed in panels: specification, signature and meaning.

use super::contract::Order;
use super::signature::{Count, Mode, OperandAccess, Signature, Work};
use super::validate::{self, MOST_PANEL};
use super::{Extent, Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// Copies a right-hand operand B into panels of `nr` columns, arranged for contractions of an order:
/// `packed[p][k][j] = B(k, p·nr + j)`, with pairs ([`Order::in_pairs`]) `packed[p][k/2][j][k mod 2]`; zero where `p·nr + j ≥ n`, and,
/// with pairs, up to whole chunks of k ([`Order::depth`]). Elements of B are `from`, those of the panels `dtype`; bf16
/// panels of an f32 B are rounded.
///
/// dims: `[n, k]`. tiles: one per panel, `ceil(n / nr)`. operands: B, packed.
/// `transposed: false`: B is stored [k, n] (row stride n); `true`: stored [n, k] (row stride k).
/// The packed buffer holds `ceil(n / nr) · nr · depth` elements, `depth` that of the order.
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
        match (p.from, p.dtype) {
            (DType::F32 | DType::Bf16, DType::Bf16) => {}
            (from, to) if from == to && to != DType::I32 => {}
            (from, to) => return Err(format!("{from:?} is not packed into panels of {to:?}")),
        }
        validate::pairs(p.order, p.dtype, p.from.arithmetic())
    }

    fn signature(p: &Pack) -> Signature {
        let panels = Count::Panels {
            n: 0,
            nr: p.nr.into(),
            k: 1,
            order: p.order,
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
            scratch: vec![],
            work: Work::others(b),
        }
    }

    fn tiles(p: &Pack, dims: &[u64]) -> u64 {
        dims[0].div_ceil(p.nr.into())
    }

    fn headline(p: &Pack) -> String {
        let stored = if p.transposed {
            "stored [n, k]"
        } else {
            "stored [k, n]"
        };
        format!("n = {}, k = {}, {stored}, panels of {}", p.n, p.k, p.nr)
    }

    fn run<T: Real>(p: &Pack, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let (n, k, nr) = (at.dims[0], at.dims[1], u64::from(p.nr));
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
            };
            Sample::new(spec, &[7, 5], &[])
        };
        let of = [
            (DType::F32, DType::F32, false, Order::Chain),
            (DType::Bf16, DType::F32, true, Order::Pairs),
            (DType::Bf16, DType::Bf16, true, Order::Dots),
            (DType::Bf16, DType::Bf16, false, Order::Chain),
            (DType::F64, DType::F64, true, Order::Chain),
        ];
        of.map(sample).into()
    }
}
