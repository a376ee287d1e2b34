//! Which parts of an arena are in use when: a segment tree over launches.
//!
//! A part is kept at the nodes that make up its lifetime (`all`), and at all nodes above them (`some`). So the parts that overlap a
//! lifetime are found at a number of nodes that grows as the logarithm of the launches, however many blocks have been placed.

use super::plan::Lifetime;
use odec_grammar::work;

/// Starts and ends, rising and apart from each other.
type Stretches = Vec<(u64, u64)>;

pub(super) struct Timeline {
    /// Launches, a power of two.
    width: usize,
    /// Taken during all launches of a node.
    all: Vec<Stretches>,
    /// Taken during some launch of a node.
    some: Vec<Stretches>,
}

/// A node: its number, and its launches from the first to before the last.
type Node = (usize, usize, usize);

impl Timeline {
    pub fn new(launches: usize) -> Timeline {
        let width = launches.next_power_of_two();
        let nodes = vec![Stretches::new(); 2 * width];
        Timeline {
            width,
            all: nodes.clone(),
            some: nodes,
        }
    }

    /// Takes a stretch for a lifetime.
    pub fn add(&mut self, life: Lifetime, start: u64, end: u64) {
        let mut left = vec![self.root()];
        while let Some(node) = left.pop() {
            let (n, ..) = node;
            join(&mut self.some[n], start, end);
            match is_within(node, life) {
                true => join(&mut self.all[n], start, end),
                false => left.extend(halves(node).into_iter().filter(|half| meets(*half, life))),
            }
        }
    }

    /// The stretches that are taken at some launch of a lifetime, by their starts; they may overlap.
    pub fn during(&self, life: Lifetime) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut left = vec![self.root()];
        while let Some(node) = left.pop() {
            let (n, ..) = node;
            let here = match is_within(node, life) {
                true => &self.some[n],
                false => {
                    left.extend(halves(node).into_iter().filter(|half| meets(*half, life)));
                    &self.all[n]
                }
            };
            found.extend(here);
        }
        work::add(found.len());
        found.sort_unstable();
        found
    }

    fn root(&self) -> Node {
        (1, 0, self.width)
    }
}

fn halves((n, from, to): Node) -> [Node; 2] {
    let middle = from.midpoint(to);
    [(2 * n, from, middle), (2 * n + 1, middle, to)]
}

fn is_within((_, from, to): Node, life: Lifetime) -> bool {
    life.first as usize <= from && to <= life.last as usize + 1
}

fn meets((_, from, to): Node, life: Lifetime) -> bool {
    from <= life.last as usize && (life.first as usize) < to
}

/// Adds a stretch, joined with those that it touches.
fn join(stretches: &mut Stretches, mut start: u64, mut end: u64) {
    let first = stretches.partition_point(|(_, e)| *e < start);
    let touched = stretches[first..].partition_point(|(s, _)| *s <= end);
    if touched == 0 {
        return stretches.insert(first, (start, end));
    }
    let last = first + touched - 1;
    start = start.min(stretches[first].0);
    end = end.max(stretches[last].1);
    stretches[first] = (start, end);
    stretches.drain(first + 1..=last);
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Block, Lifetime, place};
    use proptest::prelude::*;

    /// Best fit as it is defined: every block beside every other.
    fn one_by_one(blocks: &[Block]) -> Vec<u64> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|i| {
            (
                std::cmp::Reverse(blocks[*i].bytes),
                blocks[*i].life.first,
                *i,
            )
        });
        let (mut offsets, mut placed) = (vec![0u64; blocks.len()], Vec::<usize>::new());
        for i in order {
            let (a, need) = (blocks[i].life, blocks[i].bytes);
            let meets = |p: &&usize| {
                let b = blocks[**p].life;
                a.first <= b.last && b.first <= a.last
            };
            let (mut best, mut free_from) = (None::<(u64, u64)>, 0u64);
            for &p in placed.iter().filter(meets) {
                let gap = offsets[p].saturating_sub(free_from);
                if gap >= need && best.is_none_or(|(size, _)| gap < size) {
                    best = Some((gap, free_from));
                }
                free_from = free_from.max(offsets[p] + blocks[p].bytes);
            }
            offsets[i] = best.map_or(free_from, |(_, at)| at);
            let rank = placed.partition_point(|p| offsets[*p] <= offsets[i]);
            placed.insert(rank, i);
        }
        offsets
    }

    fn block() -> impl Strategy<Value = Block> {
        (1u64..6, 0u32..40, 0u32..40).prop_map(|(lines, a, b)| Block {
            bytes: 64 * lines,
            life: Lifetime {
                first: a.min(b),
                last: a.max(b),
            },
        })
    }

    proptest! {
        #[test]
        fn blocks_lie_where_best_fit_puts_them(blocks in prop::collection::vec(block(), 0..60)) {
            prop_assert_eq!(place(&blocks, &[]).0, one_by_one(&blocks));
        }
    }
}
