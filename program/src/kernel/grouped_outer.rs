//! Sums of outer products over the rows of each group ([`Grouped`]): signature and meaning.

use super::contract::Layout;
use super::grouped::{Grouped, Groups, blocked};
use super::signature::{Count, Mode, Signature};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::real::Real;

pub(super) struct GroupedOuterKind;

impl Kind for GroupedOuterKind {
    type Spec = Grouped;
    const NAME: &'static str = "grouped_outer";

    fn dtype(g: &Grouped) -> DType {
        g.dtype
    }

    fn validate(g: &Grouped) -> Result<(), String> {
        match g.layout {
            Layout::Columns => g.validate(),
            Layout::Panels | Layout::Quantized(_) | Layout::Rows => {
                Err("it sums matrices that are not [n, k]".into())
            }
        }
    }

    fn signature(g: &Grouped) -> Signature {
        let Groups {
            groups,
            copies,
            n,
            k,
            ..
        } = g.of;
        g.takes([
            ("a", Mode::Read, Count::rows(&[0], copies * n)),
            ("b", Mode::Read, Count::rows(&[0], k)),
            ("matrices", Mode::Write, Count::fixed(groups * n * k)),
        ])
    }

    fn tiles(g: &Grouped, _: &[u64]) -> u64 {
        g.of.groups * g.of.n.div_ceil(g.height())
    }

    fn headline(g: &Grouped) -> String {
        g.in_words("sums of outer products")
    }

    fn run<T: Real>(g: &Grouped, m: &mut (impl Memory<T> + Indices), at: Launch) {
        let Groups {
            groups,
            copies,
            n,
            k,
            ..
        } = g.of;
        let rows = at.dims[0];
        let (a, b) = (g.factor(m, 1, rows * copies * n), g.factor(m, 2, rows * k));
        let named: Vec<(u64, Option<u64>)> = (0..).zip(g.groups(m, rows)).collect();
        for group in 0..groups {
            let of_group = |block: &[(u64, Option<u64>)]| -> Vec<u64> {
                let mine = block.iter().filter(|(_, of)| *of == Some(group));
                mine.map(|(i, _)| *i).collect()
            };
            let blocks: Vec<Vec<u64>> =
                named.chunks(g.blocking.kc as usize).map(of_group).collect();
            for (j, l) in (0..n).flat_map(|j| (0..k).map(move |l| (j, l))) {
                let factors = |i: &u64| {
                    let (a_at, b_at) = (i * n + j, i / copies * k + l);
                    (a[a_at as usize], b[b_at as usize])
                };
                let blocks = blocks.iter().map(|block| block.iter().map(factors));
                let sum: T = blocked(g.order, blocks);
                m.store(3, (group * n + j) * k + l, sum);
            }
        }
    }

    fn samples() -> Vec<Sample<Grouped>> {
        Grouped::samples_with(&[Layout::Columns])
    }
}
