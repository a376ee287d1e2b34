//! The loop of a contraction both of whose factors come by tensor maps.
//!
//! Takes the work of a launch, numbered; a block does every so many-th piece of it. The stages go round over the ends of pieces: while the
//! results of one are written, the first tiles of the next arrive. Of all tiles the thread that asks runs ahead by the stages but one, with a
//! place of its own in the work ([`Cursor`]). Leaves what a piece is, products and results to the kernel.

use super::boxes::Elected;
use super::ring::{Products, Ring};
use crate::emit::{Cmp, Elem, Emitter, Val};

/// A piece of work: a tile of C, or of one of its parts.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Where each factor's tile begins along its outer index.
    pub firsts: [Val; 2],
    /// What is summed over: the inner index from a multiple of a tile's depth to an end. Nothing, of all pieces, or of none.
    pub inner: [Val; 2],
}

/// The tile to be asked for next.
#[derive(Clone, Copy)]
struct Cursor {
    /// The number of its piece, and that.
    number: Val,
    piece: Piece,
}

impl Cursor {
    const LENGTH: usize = 5;

    fn values(&self) -> [Val; Cursor::LENGTH] {
        let ([a, b], [inner, end]) = (self.piece.firsts, self.piece.inner);
        [self.number, a, b, inner, end]
    }

    fn of(values: &[Val]) -> Cursor {
        let [number, a, b, inner, end] = values[..] else {
            unreachable!("a cursor has {} values", Cursor::LENGTH)
        };
        let piece = Piece {
            firsts: [a, b],
            inner: [inner, end],
        };
        Cursor { number, piece }
    }
}

/// Places and numbers as they are carried from turn to turn, in half of the registers, and back.
fn resized(e: &mut Emitter, values: &[Val], elem: Elem) -> Vec<Val> {
    values.iter().map(|x| e.convert(*x, elem)).collect()
}

/// What is done with pieces. It is a trait because of a fault of rustc 1.95 (rust-lang/rust#155241): of two closures that were called with the same
/// number, the second got another one in an optimised build.
pub(super) trait Work {
    /// The piece of a number below how many there are.
    fn piece(&self, e: &mut Emitter, number: Val) -> Piece;
    /// Its sums are begun.
    fn begins(&self, e: &mut Emitter, number: Val);
    /// Its sums are done: these, of a thread.
    fn done(&self, e: &mut Emitter, number: Val, sums: &[Val]) -> Result<(), String>;
}

/// The work of a launch.
pub(super) struct Stream<'a, W: Work> {
    pub ring: &'a Ring,
    /// How many pieces there are.
    pub count: Val,
    pub work: &'a W,
}

impl<W: Work> Stream<'_, W> {
    /// Sums up the block's pieces, `sums` numbers a thread.
    pub fn run(&self, e: &mut Emitter, sums: usize, by: &impl Products) -> Result<(), String> {
        let ring = self.ring;
        let (stages, stage, deep) = (ring.stages, ring.stage as i64, ring.deep as i64);
        let factors = ring.factors.each_ref();
        let elected = ring.elect(e);
        let (block, blocks) = (e.block(), e.blocks());
        let mut cursor = Cursor {
            number: block,
            piece: self.work.piece(e, block),
        };
        for n in 0..stages as i64 - 1 {
            let to = e.int(n * stage);
            self.ask(e, elected, cursor, to);
            cursor = self.after(e, cursor, blocks);
        }
        let (zero, one, all) = (e.int(0), e.int(1), e.int(stages as i64 * stage));
        // Where the tile to be read is, where the next one to arrive will be, which is where the one before was, and the parity of the phase that
        // ends when it is there: of a stage's tiles, every other one has the same.
        let mut start = vec![zero, e.int((stages as i64 - 1) * stage), zero];
        start.extend(cursor.values());
        let start = resized(e, &start, Elem::I32);
        let places = start.len();
        let mut written = Ok(());
        e.for_with_step(block, self.count, blocks, &start, |e, number, start| {
            self.work.begins(e, number);
            let [begin, end] = self.work.piece(e, number).inner;
            let mut first = vec![e.float(0.0, e.scalar()); sums];
            first.extend(start);
            let last = e.for_with(begin, end, deep, &first, |e, _, carried| {
                let (sums, carried) = carried.split_at(sums);
                let carried = resized(e, carried, Elem::I64);
                let [read, write, parity] = [0, 1, 2].map(|n| carried[n]);
                let cursor = Cursor::of(&carried[3..]);
                let mbarrier = e.add_int(read, ring.mbarrier as i64);
                e.await_phase(mbarrier, parity);
                // This tile's products are begun before those of the one before are waited for. Then everybody is done with that, and its
                // place is taken next.
                let sums = by.begin(e, factors, read, sums);
                let mut next = e.await_products_but(1, &sums);
                e.barrier();
                self.ask(e, elected, cursor, write);
                let cursor = self.after(e, cursor, blocks);
                let after = e.add_int(read, stage);
                let wraps = e.cmp(Cmp::Eq, after, all);
                let other = e.xor(parity, one);
                let mut places = vec![e.select(wraps, zero, after), read];
                places.push(e.select(wraps, other, parity));
                places.extend(cursor.values());
                next.extend(resized(e, &places, Elem::I32));
                next
            });
            let (sums, places) = last.split_at(last.len() - places);
            let sums = e.await_products_but(0, sums);
            written = self.work.done(e, number, &sums);
            places.to_vec()
        });
        written
    }

    /// Asks for the tile at a cursor, if there is one.
    fn ask(&self, e: &mut Emitter, by: Elected, at: Cursor, stage: Val) {
        let Piece {
            firsts,
            inner: [inner, end],
        } = at.piece;
        let (exists, some) = (e.below(at.number, self.count), e.below(inner, end));
        let exists = e.and(exists, some);
        let by = by.provided(e, exists);
        self.ring.ask(e, by, firsts, inner, stage);
    }

    /// The next tile: of this piece, or the first one of the block's next, `blocks` further.
    fn after(&self, e: &mut Emitter, at: Cursor, blocks: Val) -> Cursor {
        let [inner, end] = at.piece.inner;
        let next = e.add_int(inner, self.ring.deep as i64);
        let more = e.below(next, end);
        let values = e.either_with(more, &at.values(), |e, more| {
            let mut at = at;
            if more {
                at.piece.inner[0] = next;
                return at.values().to_vec();
            }
            at.number = e.add(at.number, blocks);
            // Of those beyond the last nothing is used.
            let one = e.int(1);
            let last = e.sub(self.count, one);
            let number = e.min(at.number, last);
            at.piece = self.work.piece(e, number);
            at.values().to_vec()
        });
        Cursor::of(&values)
    }
}
