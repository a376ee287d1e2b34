//! Trees with one edge cut: derivatives of B-series, brackets and the modified equation are sums over them.
//!
//! An edge that is cut leaves the trunk, with the root, and the branch (Hairer, Lubich & Wanner 2006, IX.9: splittings). On trees
//! without branches these are a word's two parts.

use crate::trees::{TreeId, Trees};
use std::collections::HashMap;

/// A way to cut a tree in two, and at how many of its edges it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub trunk: TreeId,
    pub branch: TreeId,
    pub times: i64,
}

/// The cuts of all trees that were made.
#[derive(Default)]
pub struct Cuts {
    products: HashMap<(TreeId, TreeId), TreeId>,
    of: Vec<Vec<Cut>>,
}

impl Cuts {
    /// Finds those of trees that were made since.
    pub fn extend(&mut self, trees: &Trees) {
        for t in (self.of.len()..trees.len()).map(|i| TreeId(i as u32)) {
            if let Some(parts) = trees.parts(t) {
                self.products.insert(parts, t);
            }
            let cuts = self.found(trees, t);
            self.of.push(cuts);
        }
    }

    pub fn of(&self, t: TreeId) -> &[Cut] {
        &self.of[t.0 as usize]
    }

    /// `left ∘ right`, whatever the sequence of children; `None`: it was not made.
    pub fn product(&self, trees: &Trees, left: TreeId, right: TreeId) -> Option<TreeId> {
        if let Some(t) = self.products.get(&(left, right)) {
            return Some(*t);
        }
        // (u ∘ v) ∘ w = (u ∘ w) ∘ v.
        let (first, last) = trees.parts(left).filter(|(_, last)| right < *last)?;
        let inner = self.product(trees, first, right)?;
        self.products.get(&(inner, last)).copied()
    }

    fn found(&self, trees: &Trees, t: TreeId) -> Vec<Cut> {
        let Some((left, right)) = trees.parts(t) else {
            return Vec::new();
        };
        let mut found = vec![Cut {
            trunk: left,
            branch: right,
            times: 1,
        }];
        let in_left = self.of(left).iter().map(|c| {
            let trunk = self.product(trees, c.trunk, right);
            (trunk, c)
        });
        let in_right = self.of(right).iter().map(|c| {
            let trunk = self.product(trees, left, c.trunk);
            (trunk, c)
        });
        for (trunk, c) in in_left.chain(in_right) {
            let trunk = trunk.expect("trees of lower orders were made");
            let same = |f: &&mut Cut| f.trunk == trunk && f.branch == c.branch;
            match found.iter_mut().find(same) {
                Some(f) => f.times += c.times,
                None => found.push(Cut { trunk, ..*c }),
            }
        }
        found
    }
}
