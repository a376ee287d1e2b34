//! Effective order and conjugacy (Butcher 1969; Butcher & Sanz-Serna 1996): a method of effective order q is another one of order q
//! between a change of variables and its inverse.
//!
//! Changes of variables exp(g) take the modified field b to exp(ad g) b, and g of order m − 1 changes what stands in order m by
//! `[g, f]`, f the equation's own field. The Lie algebra of trees is free (Foissy 2002; Chapoton 2010), so f commutes with its own multiples alone and g
//! is determined: order by order it exists or not, with no choice that later orders could regret.

use crate::cuts::Cuts;
use crate::modified::Modified;
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;

/// Coefficients of all trees up to an order.
type Field = Vec<Exact>;

/// Up to which order something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    pub order: usize,
    /// It does not hold of the next one.
    pub exactly: bool,
}

/// `[b, c] = ∂_b c − ∂_c b`, on the trees that both have.
fn bracket(cuts: &Cuts, b: &Field, c: &Field) -> Field {
    let value = |t: usize| {
        let mut sum = Exact::zero();
        for cut in cuts.of(TreeId(t as u32)) {
            let (trunk, branch) = (cut.trunk.0 as usize, cut.branch.0 as usize);
            for (x, y, sign) in [(&c[trunk], &b[branch], 1), (&b[trunk], &c[branch], -1)] {
                if !x.is_zero() && !y.is_zero() {
                    sum = &sum + &(&(x * y) * &Exact::int(sign * cut.times));
                }
            }
        }
        sum
    };
    (0..b.len().min(c.len())).map(value).collect()
}

/// `exp(ad g) b`; g has nothing below order `least`.
fn moved(cuts: &Cuts, g: &Field, b: &Field, orders: usize, least: usize) -> Field {
    let mut sum = b.clone();
    let mut term = b.clone();
    for k in 1..=(orders - 1) / least.max(1) {
        let over = Exact::ratio(1, k as i64);
        term = bracket(cuts, g, &term).iter().map(|x| x * &over).collect();
        sum = sum.iter().zip(&term).map(|(s, t)| s + t).collect();
    }
    sum
}

/// `[f, g]` at a tree.
fn commutator(trees: &Trees, cuts: &Cuts, g: &Field, t: TreeId) -> Exact {
    let mut sum = Exact::zero();
    for cut in cuts.of(t) {
        if trees.order(cut.branch) == 1 {
            sum = &sum + &(&g[cut.trunk.0 as usize] * &Exact::int(cut.times));
        }
        if trees.order(cut.trunk) == 1 {
            sum = &sum - &(&g[cut.branch.0 as usize] * &Exact::int(cut.times));
        }
    }
    sum
}

/// The g of order m − 1 with `[f, g] = r` on the trees of order m; `None`: there is none. A leaf of the first field hung at the root of u gives
/// an equation for g(u), in which all other trees have more leaves at the root, or as many and more of that field.
fn solved(trees: &Trees, cuts: &Cuts, r: &Field, m: usize) -> Option<Field> {
    let leaf = trees.of_order(1).next()?;
    let mut open: Vec<TreeId> = trees.of_order(m - 1).collect();
    open.sort_by_key(|u| {
        let children = trees.children(*u);
        let leaves = children.iter().filter(|c| trees.order(**c) == 1).count();
        let own = children.iter().filter(|c| **c == leaf).count();
        std::cmp::Reverse((leaves, own))
    });
    let mut g = vec![Exact::zero(); r.len()];
    // Of single vertices g is determined but for multiples of f: the first one stays 0.
    for u in open.into_iter().filter(|u| *u != leaf) {
        let t = cuts.product(trees, u, leaf)?;
        let own = |c: &&crate::cuts::Cut| c.trunk == u && c.branch == leaf;
        let times = cuts.of(t).iter().find(own)?.times;
        let rest = &r[t.0 as usize] - &commutator(trees, cuts, &g, t);
        g[u.0 as usize] = &rest * &Exact::ratio(1, times);
    }
    let holds = |t: TreeId| commutator(trees, cuts, &g, t) == r[t.0 as usize];
    trees.of_order(m).all(holds).then_some(g)
}

/// Up to which order, at most `up_to`, a change of variables takes one modified field into another one's.
fn joined(
    from: &mut Modified,
    up_to: usize,
    start: usize,
    target: &mut dyn FnMut(usize, &Trees) -> Option<Field>,
) -> Reached {
    // Of each change its lowest order.
    let mut changes: Vec<(usize, Field)> = Vec::new();
    for m in start..=up_to {
        let end = |exactly| Reached {
            order: m - 1,
            exactly,
        };
        if !from.reach(m) {
            return end(false);
        }
        let mut b = from.field(m);
        let Some(to) = target(m, from.trees()) else {
            return end(false);
        };
        let (trees, cuts) = (from.trees(), from.cuts());
        for (least, g) in &changes {
            let mut g = g.clone();
            g.resize(b.len(), Exact::zero());
            b = moved(cuts, &g, &b, m, *least);
        }
        // [g, f] = to − b.
        let r: Field = b.iter().zip(&to).map(|(b, to)| b - to).collect();
        let Some(g) = solved(trees, cuts, &r, m) else {
            return end(true);
        };
        if g.iter().any(|x| !x.is_zero()) {
            changes.push((m - 1, g));
        }
    }
    Reached {
        order: up_to,
        exactly: false,
    }
}

/// The effective order of a method with order 1 at least.
pub fn effective(method: &mut Modified, up_to: usize) -> Reached {
    let start = method.order() + 1;
    let exact = |m: usize, trees: &Trees| {
        let single = |t: TreeId| Exact::int(i64::from(trees.order(t) == 1));
        let all = (1..=m).flat_map(|n| trees.of_order(n));
        Some(all.map(single).collect())
    };
    joined(method, up_to, start, &mut { exact })
}

/// Up to which order two methods of order 1 at least are conjugate.
pub fn conjugate(one: &mut Modified, two: &mut Modified, up_to: usize) -> Reached {
    joined(one, up_to, 2, &mut |m, _| {
        two.reach(m).then(|| two.field(m))
    })
}
