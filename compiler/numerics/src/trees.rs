//! Rooted trees, each vertex in one of some colours: the index of order conditions (Butcher 1963; with colours Araújo,
//! Murua & Sanz-Serna 1997, SIAM J. Numer. Anal. 34, 1926).
//!
//! A tree stands for an elementary differential: a vertex is one evaluation of the field of its colour, a child the
//! argument of one derivative. Trees are numbered order by order; each one of more than one vertex is `left ∘ right`
//! (Butcher's product): the tree `right` hung as the last child below the root of `left`. Children never decrease, so
//! every tree is made once, and what is known of `left` and `right` gives what is wanted of the tree.

/// Most trees that are made.
pub const MAX_TREES: usize = 40_000;
/// Most coefficients, trees times values of a step, that [`Trees::for_values`] lets a proof ask for.
pub const MAX_WORK: usize = 600_000;
/// Largest order: the densities still fit into 128 bits.
pub const MAX_ORDER: usize = 32;

/// A tree by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(pub u32);

#[derive(Clone, Debug)]
struct Tree {
    colour: usize,
    order: usize,
    parts: Option<(TreeId, TreeId)>,
    /// Product of the densities of the children.
    below: u128,
    symmetry: u128,
    /// How many of the last children are the same.
    alike: u128,
}

/// All trees up to some order, or all without branches.
#[derive(Clone, Debug)]
pub struct Trees {
    colours: usize,
    /// Only trees without branches.
    tall: bool,
    /// Colours of linear fields.
    linear: Vec<bool>,
    /// No vertex has a child of its own colour; `Some(true)`: one of colour 0 has one child at most.
    alternating: Option<bool>,
    /// No more are made.
    most: usize,
    trees: Vec<Tree>,
    /// Number of the first tree of each order, from order 1; the last entry is the number of trees.
    starts: Vec<usize>,
}

impl Trees {
    /// Trees of so many colours; none is made yet.
    pub fn new(colours: usize) -> Trees {
        Trees {
            colours,
            tall: false,
            linear: vec![false; colours],
            alternating: None,
            most: MAX_TREES,
            trees: Vec::new(),
            starts: vec![0],
        }
    }
    /// Trees without branches: words over the colours. They are enough for products of exact flows, which differ from
    /// the flow of the sum by words alone.
    pub fn tall(colours: usize) -> Trees {
        Trees {
            tall: true,
            ..Trees::new(colours)
        }
    }
    /// Trees of `q' = A(p)`, `p' = B(q)`, A of colour 0 (Hairer, Lubich & Wanner 2006, III.2.1).
    pub fn separable() -> Trees {
        Trees {
            alternating: Some(false),
            ..Trees::new(2)
        }
    }
    /// Trees of `q' = p`, `p' = B(q)`, which are those of `q'' = B(q)` (Nyström trees: Hairer, Nørsett & Wanner 1993, II.14).
    pub fn nystrom() -> Trees {
        Trees {
            alternating: Some(true),
            ..Trees::new(2)
        }
    }
    /// The same for steps of so many values, each of which has a coefficient for every tree: fewer where they are many.
    pub fn for_values(self, values: usize) -> Trees {
        let most = MAX_TREES.min(MAX_WORK / values.max(1));
        Trees { most, ..self }
    }
    /// The same where no more than so many are wanted.
    pub fn at_most(self, most: usize) -> Trees {
        let most = self.most.min(most);
        Trees { most, ..self }
    }

    /// The same where some fields are linear: their second derivative is zero, so no vertex of their colours has two children.
    pub fn linear(self, linear: Vec<bool>) -> Trees {
        Trees { linear, ..self }
    }

    pub fn colours(&self) -> usize {
        self.colours
    }
    /// The largest order that has been made.
    pub fn orders(&self) -> usize {
        self.starts.len() - 1
    }
    pub fn len(&self) -> usize {
        self.trees.len()
    }
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }
    /// The trees of one order, from 1, in a fixed sequence; none if it has not been made.
    pub fn of_order(&self, order: usize) -> impl DoubleEndedIterator<Item = TreeId> + use<> {
        let range = match (order.checked_sub(1), self.starts.get(order)) {
            (Some(before), Some(end)) => self.starts[before]..*end,
            _ => 0..0,
        };
        range.map(|i| TreeId(i as u32))
    }

    /// Makes the trees of the next order; `false`: there would be too many, and none is made.
    pub fn grow(&mut self) -> bool {
        let n = self.orders() + 1;
        if n > MAX_ORDER || self.trees.len().saturating_mul(2) > self.most {
            return false;
        }
        let before = self.trees.len();
        if n == 1 {
            for colour in 0..self.colours {
                self.trees.push(Tree {
                    colour,
                    order: 1,
                    parts: None,
                    below: 1,
                    symmetry: 1,
                    alike: 0,
                });
            }
        }
        for m in 1..n {
            if self.tall && m > 1 {
                break;
            }
            for left in self.of_order(m) {
                for right in self.of_order(n - m) {
                    if !self.may_bear(left, right) {
                        continue;
                    }
                    let last = self.parts(left).map(|(_, last)| last);
                    if last.is_some() && self.linear[self.colour(left)] {
                        break;
                    }
                    if last.is_some_and(|last| right < last) {
                        continue;
                    }
                    if self.trees.len() >= self.most {
                        self.trees.truncate(before);
                        return false;
                    }
                    self.push(left, right);
                }
            }
        }
        self.starts.push(self.trees.len());
        true
    }

    /// Whether a tree may be hung below the root of another one.
    fn may_bear(&self, left: TreeId, right: TreeId) -> bool {
        let Some(linear) = self.alternating else {
            return true;
        };
        let (root, child) = (self.colour(left), self.colour(right));
        root != child && !(linear && root == 0 && self.parts(left).is_some())
    }

    fn push(&mut self, left: TreeId, right: TreeId) {
        let (l, r) = (self.tree(left), self.tree(right));
        let alike = match l.parts {
            Some((_, last)) if last == right => l.alike + 1,
            _ => 1,
        };
        let tree = Tree {
            colour: l.colour,
            order: l.order + r.order,
            parts: Some((left, right)),
            below: l.below * r.order as u128 * r.below,
            symmetry: l.symmetry * r.symmetry * alike,
            alike,
        };
        self.trees.push(tree);
    }

    fn tree(&self, t: TreeId) -> &Tree {
        &self.trees[t.0 as usize]
    }
    /// Vertices.
    pub fn order(&self, t: TreeId) -> usize {
        self.tree(t).order
    }
    /// The colour of the root.
    pub fn colour(&self, t: TreeId) -> usize {
        self.tree(t).colour
    }
    /// `left` and `right` of `left ∘ right`; `None` for a single vertex.
    pub fn parts(&self, t: TreeId) -> Option<(TreeId, TreeId)> {
        self.tree(t).parts
    }
    /// γ: the product, over all vertices, of the number of vertices at or above it. The exact solution has 1/γ.
    pub fn density(&self, t: TreeId) -> u128 {
        let tree = self.tree(t);
        tree.order as u128 * tree.below
    }
    /// σ: the number of ways to map the tree onto itself.
    pub fn symmetry(&self, t: TreeId) -> u128 {
        self.tree(t).symmetry
    }
    /// What is written of a tree: where A(p) = p, a vertex of A with a branch is that branch.
    pub(crate) fn seen(&self, t: TreeId) -> TreeId {
        match (self.alternating, self.parts(t)) {
            (Some(true), Some((_, branch))) if self.colour(t) == 0 => branch,
            _ => t,
        }
    }
    /// The subtrees at the root, in a fixed sequence.
    pub fn children(&self, t: TreeId) -> Vec<TreeId> {
        let mut children = Vec::new();
        let mut rest = t;
        while let Some((left, right)) = self.parts(rest) {
            children.push(right);
            rest = left;
        }
        children.reverse();
        children
    }
}
