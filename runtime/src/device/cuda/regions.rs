//! Maps ranges of this process's memory to GPU memory.
//!
//! Takes pairs of memories of one size; gives places on the card. Leaves their contents to copies.

use super::plan::Place;
use crate::device::memory::{WORD, Words};

/// Ranges of this process's memory and their places on the GPU.
#[derive(Default)]
pub struct Regions(Vec<Region>);

struct Region {
    /// Where it starts here,
    here: u64,
    words: u64,
    /// and on the card.
    card: u64,
}

impl Regions {
    /// `here` stands for as much at an address of the card.
    pub fn add(&mut self, here: Words, card: u64) {
        let region = Region {
            here: here.as_ptr() as u64,
            words: here.len() as u64,
            card,
        };
        let at = self.0.partition_point(|r| r.here < region.here);
        self.0.insert(at, region);
    }

    /// Where a part of a memory is on the card.
    ///
    /// # Errors
    /// When it is of none: a fault of ours.
    pub fn place(&self, words: Words) -> Result<Place, String> {
        let (start, count) = (words.as_ptr() as u64, words.len() as u64);
        // Nothing at the end of one memory may be at the start of the next.
        let before = self.0.partition_point(|r| r.here <= start);
        let region = before.checked_sub(1).map(|n| &self.0[n]);
        let inside = |r: &&Region| start - r.here + count * WORD <= r.words * WORD;
        match region.filter(inside) {
            Some(r) => Ok(Place {
                address: r.card + (start - r.here),
                words: count,
            }),
            None => Err(format!("{count} words at {start:#x} are not the card's")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::Buffer;

    #[test]
    fn parts_are_found_and_strangers_are_not() {
        let mut memories = [100, 7, 4096].map(|bytes| Buffer::zeroed(bytes).unwrap());
        let mut regions = Regions::default();
        for (n, m) in memories.iter_mut().enumerate() {
            regions.add(m.words(), 1 << (20 + n));
        }
        for (n, m) in memories.iter_mut().enumerate() {
            let words = m.words();
            for start in [0, 1, words.len()] {
                let place = regions.place(&words[start..]).unwrap();
                assert_eq!(place.words, (words.len() - start) as u64);
                // An empty part may as well be the start of what lies behind it.
                let address = (1 << (20 + n)) + start as u64 * WORD;
                assert!(place.address == address || place.words == 0, "{place:?}");
            }
        }
        let mut stranger = Buffer::zeroed(64).unwrap();
        assert!(regions.place(stranger.words()).is_err());
    }
}
