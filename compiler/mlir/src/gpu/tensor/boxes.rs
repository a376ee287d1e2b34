//! Tiles that come by tensor maps ([`odec_program::gpu::tensor::map`]): one thread asks for them, and an mbarrier says when they are
//! there.
//!
//! Takes tiles in panels and the mbarriers' places. Leaves to the kernels who waits, and that nobody uses what was at
//! a tile's place any more when it is asked for.

use super::Tile;
use crate::emit::{Boxes, Cmp, Emitter, Val};
use odec_program::DType;
use odec_program::gpu::tensor::warpgroup::PANEL;

/// A tile of an operand.
pub(super) struct Boxed {
    /// The number of its map.
    pub map: u64,
    pub tile: Tile,
    /// Whether all of its panels are one box. Then panels have a coordinate, the last.
    pub at_once: bool,
    /// Coordinates of its first element, the innermost first.
    pub first: Vec<Val>,
    /// Where it will be.
    pub to: Val,
}

/// The thread that asks, as an i1 of each.
#[derive(Clone, Copy)]
pub(super) struct Elected(Val);

impl Elected {
    pub fn new(e: &mut Emitter, thread: Val) -> Elected {
        let zero = e.int(0);
        Elected(e.cmp(Cmp::Eq, thread, zero))
    }

    /// Nobody, unless the i1 holds.
    pub fn provided(self, e: &mut Emitter, holds: Val) -> Elected {
        Elected(e.and(self.0, holds))
    }

    /// Makes mbarriers, and lets all threads and the copying unit see them.
    pub fn prepare(self, e: &mut Emitter, mbarriers: &[Val]) {
        for at in mbarriers {
            e.prepare_mbarrier(self.0, *at);
        }
        e.publish();
        e.barrier();
    }

    /// Asks for tiles, which are what this phase of the mbarrier waits for.
    pub fn ask(self, e: &mut Emitter, tiles: &[Boxed], mbarrier: Val) {
        self.expect(e, tiles, mbarrier);
        self.copy(e, tiles, mbarrier);
    }

    /// Tells the mbarrier how many bytes of tiles this phase waits for.
    pub fn expect(self, e: &mut Emitter, tiles: &[Boxed], mbarrier: Val) {
        let elements: u64 = tiles.iter().map(|t| t.tile.elements()).sum();
        e.expect(self.0, mbarrier, elements * DType::Bf16.bytes());
    }

    /// Begins to copy tiles that the mbarrier waits for.
    pub fn copy(self, e: &mut Emitter, tiles: &[Boxed], mbarrier: Val) {
        for t in tiles {
            let panels = match t.at_once {
                true => 1,
                false => t.tile.cols.div_ceil(PANEL),
            };
            let from: Vec<(Vec<Val>, Val)> = (0..panels)
                .map(|n| {
                    let mut first = t.first.clone();
                    first[0] = e.add_int(first[0], (n * PANEL) as i64);
                    let to = e.add_int(t.to, (n * PANEL * t.tile.rows) as i64);
                    (first, to)
                })
                .collect();
            let (map, from) = (t.map, &from[..]);
            e.copy_boxes(self.0, Boxes { map, from }, mbarrier);
        }
    }
}
