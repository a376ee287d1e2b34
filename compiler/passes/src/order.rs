//! Groups of nodes that stay in topological order while they are merged.
//!
//! Takes the dependencies of nodes; gives a [`Groups`] where two groups can be merged if no path leaves one and
//! re-enters the other (the merged kernel would have to run both before and after what lies between). Leaves the
//! choice of what to merge to `fuse`.

use petgraph::unionfind::UnionFind;

/// The farthest that two groups may lie apart in the order and still be merged. Bounds the work of a merge; what
/// belongs together lies close together in graph order.
pub const REACH: usize = 600;

/// Index of a group.
pub type GroupId = usize;

/// A partition of nodes and a topological order of its parts.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Members in rising order of node number; empty once merged into another group.
    pub members: Vec<Vec<u32>>,
    /// Groups whose results a group reads, by the ids they had when it was made: `merged` leads on.
    before: Vec<Vec<GroupId>>,
    /// Ids that mean the same group.
    merged: UnionFind<GroupId>,
    of: Vec<Option<GroupId>>,
    /// Every merge leaves one [`GONE`] behind.
    order: Vec<GroupId>,
    position: Vec<usize>,
    /// The merge that a group was last found to depend on the earlier group of.
    reached: Vec<u32>,
    merges: u32,
}

const GONE: GroupId = usize::MAX;

impl Groups {
    /// One group per list of members, in the given order, which must be topological; `depends(node)` are the nodes
    /// that a node needs.
    pub fn new(nodes: usize, members: Vec<Vec<u32>>, depends: impl Fn(u32) -> Vec<u32>) -> Groups {
        let mut of = vec![None; nodes];
        for (g, list) in members.iter().enumerate() {
            list.iter().for_each(|n| of[*n as usize] = Some(g));
        }
        let before = members
            .iter()
            .enumerate()
            .map(|(g, list)| {
                let deps = list.iter().flat_map(|n| depends(*n));
                deps.filter_map(|d| of[d as usize])
                    .filter(|d| *d != g)
                    .collect()
            })
            .collect();
        let order: Vec<GroupId> = (0..members.len()).collect();
        Groups {
            merged: UnionFind::new(members.len()),
            position: order.clone(),
            reached: vec![0; members.len()],
            merges: 0,
            order,
            members,
            before,
            of,
        }
    }

    /// Groups in execution order.
    pub fn in_order(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.order.iter().copied().filter(|g| *g != GONE)
    }

    /// The group of a node, if it is in one.
    pub fn of(&self, node: u32) -> Option<GroupId> {
        self.of[node as usize].map(|g| self.merged.find(g))
    }

    /// Whether two groups lie within [`REACH`] of each other: others are never merged.
    pub fn are_near(&self, a: GroupId, b: GroupId) -> bool {
        self.position[a].abs_diff(self.position[b]) <= REACH
    }

    /// Whether a group depends on the earlier one of the merge at hand, or is it.
    fn is_reached(&self, g: GroupId) -> bool {
        self.reached[self.merged.find(g)] == self.merges
    }

    /// Merges two groups when a topological order of the rest remains, and says whether it did. The merged group
    /// has the id of one of them.
    ///
    /// Only the stretch of the order between the two changes: what does not depend on the earlier one moves before
    /// the merged group, what does moves behind it (as in Pearce & Kelly 2007, "A dynamic topological sort algorithm").
    pub fn merge(&mut self, a: GroupId, b: GroupId) -> bool {
        if a == b {
            return false;
        }
        let (first, last) = match self.position[a] < self.position[b] {
            true => (a, b),
            false => (b, a),
        };
        let (start, end) = (self.position[first], self.position[last]);
        if !self.are_near(a, b) {
            return false;
        }
        self.merges += 1;
        self.reached[first] = self.merges;
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        for &g in self.order[start + 1..end].iter().filter(|g| **g != GONE) {
            match self.before[g].iter().any(|p| self.is_reached(*p)) {
                true => {
                    self.reached[g] = self.merges;
                    tail.push(g);
                }
                false => head.push(g),
            }
        }
        let between = |p: &GroupId| self.merged.find(*p) != first && self.is_reached(*p);
        if self.before[last].iter().any(between) {
            return false;
        }

        self.merged.union(a, b);
        let (into, other) = match self.merged.find(a) == a {
            true => (a, b),
            false => (b, a),
        };
        let moved = std::mem::take(&mut self.members[other]);
        self.members[into].extend(moved);
        self.members[into].sort_unstable();
        let theirs = std::mem::take(&mut self.before[other]);
        self.before[into].extend(theirs);

        let stretch = head
            .into_iter()
            .chain([into])
            .chain(tail)
            .chain(std::iter::repeat(GONE));
        for (p, g) in (start..=end).zip(stretch) {
            self.order[p] = g;
            if g != GONE {
                self.position[g] = p;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups(edges: &[(u32, u32)], n: u32) -> Groups {
        let deps = |x: u32| edges.iter().filter(|e| e.1 == x).map(|e| e.0).collect();
        Groups::new(n as usize, (0..n).map(|i| vec![i]).collect(), deps)
    }

    #[test]
    fn a_path_that_leaves_and_re_enters_forbids_merging() {
        let mut g = groups(&[(0, 1), (1, 2), (0, 2)], 3);
        assert!(!g.merge(0, 2));
        assert!(g.merge(0, 1) && g.merge(0, 2));
        assert_eq!(g.members[0], [0, 1, 2]);
    }

    #[test]
    fn cycles_between_groups_are_seen() {
        // 0 → 3 and 1 → 2: {0, 2} and {1, 3} would need each other.
        let mut g = groups(&[(0, 3), (1, 2)], 4);
        assert!(g.merge(0, 2));
        assert!(!g.merge(1, 3));
    }

    proptest! {
        #[test]
        fn the_order_stays_topological(
            edges in prop::collection::vec((0u32..24, 0u32..24), 0..60),
            merges in prop::collection::vec((0usize..24, 0usize..24), 0..40),
        ) {
            let edges: Vec<(u32, u32)> = edges.into_iter().filter(|(a, b)| a < b).collect();
            let mut g = groups(&edges, 24);
            for (a, b) in merges {
                let (a, b) = (g.of(a as u32).unwrap(), g.of(b as u32).unwrap());
                g.merge(a, b);
                let order: Vec<_> = g.in_order().collect();
                let at = |n: u32| order.iter().position(|x| *x == g.of(n).unwrap()).unwrap();
                for (a, b) in &edges {
                    prop_assert!(at(*a) <= at(*b), "{a} must run before {b}");
                }
                prop_assert_eq!(order.iter().map(|x| g.members[*x].len()).sum::<usize>(), 24);
            }
        }
    }
}
