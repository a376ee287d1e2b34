//! Proves orders: a method has order p when its coefficient Φ(t) is 1/γ(t) for all coloured rooted trees of at most p vertices (Butcher
//! 1963; Hairer, Nørsett & Wanner 1993, II.2; for several fields Araújo, Murua & Sanz-Serna 1997).
//!
//! [`Weights`] gives Φ(t) of a tableau, also an implicit one. The stage vector of `left ∘ right` is the product of what
//! is known of the two parts, so each subtree is evaluated once, in whole numbers (`ring.rs`).

use crate::ring::{Int, Ring, is_zero};
use crate::tableau::Tableau;
use crate::trees::{TreeId, Trees};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::pow;
use odec_exact::Exact;

/// Coefficients of a method's expansion over trees.
pub trait Expansion {
    /// Φ(t). Trees of lower order have been asked for, or are known without.
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact;

    /// The first condition of an order that does not hold, if any, found without the values, where those of lower orders
    /// hold. `None`: not known.
    fn violated(&mut self, _trees: &Trees, _order: usize) -> Option<Option<TreeId>> {
        None
    }
}

/// An order condition that does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    pub tree: TreeId,
    /// What the method has.
    pub value: Exact,
    /// What the exact solution has.
    pub expected: Exact,
}

/// What was found about an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// All conditions up to this order hold.
    pub order: usize,
    /// The first one that does not; `None`: none was found up to the order that was asked for, or to where there are too
    /// many trees.
    pub violation: Option<Violation>,
}

/// 1/γ(t).
pub fn expected(trees: &Trees, t: TreeId) -> Exact {
    let density = BigInt::from(trees.density(t));
    Exact::from(BigRational::new(BigInt::from(1), density))
}

/// Checks conditions order by order, up to `up_to`; `within` is the residual that each may have, 0 by default.
pub fn prove(
    method: &mut dyn Expansion,
    trees: &mut Trees,
    up_to: usize,
    within: Option<&Exact>,
) -> Proof {
    for n in 1..=up_to {
        if trees.orders() < n && !trees.grow() {
            return Proof {
                order: n - 1,
                violation: None,
            };
        }
        let known = match within {
            None => method.violated(trees, n),
            Some(_) => None,
        };
        let open: Vec<TreeId> = match known {
            Some(violated) => violated.into_iter().collect(),
            None => trees.of_order(n).collect(),
        };
        for tree in open {
            let value = method.coefficient(trees, tree);
            let expected = expected(trees, tree);
            let off = &value - &expected;
            let off = if off.is_negative() { -&off } else { off };
            let holds = match within {
                None => off.is_zero(),
                Some(within) => off <= *within,
            };
            if !holds {
                let violation = Some(Violation {
                    tree,
                    value,
                    expected,
                });
                return Proof {
                    order: n - 1,
                    violation,
                };
            }
        }
    }
    Proof {
        order: up_to,
        violation: None,
    }
}

/// The order alone, up to `up_to`: what the first condition that does not hold has instead is not computed.
pub fn highest(method: &mut dyn Expansion, trees: &mut Trees, up_to: usize) -> usize {
    for n in 1..=up_to {
        if trees.orders() < n && !trees.grow() {
            return n - 1;
        }
        let violated = method.violated(trees, n).unwrap_or_else(|| {
            let mut all = trees.of_order(n);
            all.find(|t| method.coefficient(trees, *t) != expected(trees, *t))
        });
        if violated.is_some() {
            return n - 1;
        }
    }
    up_to
}

/// The conditions of order p + 1 that do not hold, with Φ − 1/γ each, and the norm of the principal error
/// `√Σ ((Φ − 1/γ)/σ)²` (Prince & Dormand 1981). `None`: there would be too many trees.
pub fn principal_error(
    method: &mut dyn Expansion,
    trees: &mut Trees,
    order: usize,
) -> Option<(Vec<(TreeId, Exact)>, f64)> {
    while trees.orders() < order + 1 {
        if !trees.grow() {
            return None;
        }
    }
    let (mut terms, mut squares) = (Vec::new(), 0.0);
    for t in trees.of_order(order + 1) {
        let off = &method.coefficient(trees, t) - &expected(trees, t);
        if !off.is_zero() {
            squares += (off.to_f64() / trees.symmetry(t) as f64).powi(2);
            terms.push((t, off));
        }
    }
    Some((terms, squares.sqrt()))
}

/// Elementary weights of a tableau.
pub struct Weights {
    ring: Ring,
    field_of: Vec<usize>,
    /// d·A, by rows, without zeros.
    a: Vec<Vec<(usize, Int)>>,
    /// d·b.
    b: Vec<Int>,
    /// Of each tree of n vertices, dⁿ⁻¹ times the coefficient of each stage's evaluation.
    evals: Vec<Vec<Int>>,
    /// dⁿ times that of each stage's argument; made when a tree is hung below another one.
    args: Vec<Option<Vec<Int>>>,
}

impl Weights {
    /// `None`: too many different roots among the coefficients.
    pub fn new(tableau: &Tableau) -> Option<Weights> {
        let ring = Ring::of(tableau.a.iter().flatten().chain(&tableau.b))?;
        let row = |row: &Vec<Exact>| {
            let entries = row.iter().enumerate().filter(|(_, a)| !a.is_zero());
            entries.map(|(j, a)| (j, ring.scaled(a))).collect()
        };
        Some(Weights {
            a: tableau.a.iter().map(row).collect(),
            b: tableau.b.iter().map(|b| ring.scaled(b)).collect(),
            field_of: tableau.field_of.clone(),
            ring,
            evals: Vec::new(),
            args: Vec::new(),
        })
    }

    /// Evaluates all trees up to this one.
    fn reach(&mut self, trees: &Trees, t: TreeId) {
        while self.evals.len() <= t.0 as usize {
            let tree = TreeId(self.evals.len() as u32);
            let colour = trees.colour(tree);
            let stages = self.field_of.len();
            if let Some((_, right)) = trees.parts(tree) {
                self.argue(right);
            }
            let own = |j: usize| self.field_of[j] == colour;
            let evals = match trees.parts(tree) {
                None => (0..stages)
                    .map(|j| match own(j) {
                        true => self.ring.one(),
                        false => self.ring.zero(),
                    })
                    .collect(),
                Some((left, right)) => {
                    let left = &self.evals[left.0 as usize];
                    let right = self.args[right.0 as usize].as_deref().unwrap_or(&[]);
                    (0..stages)
                        .map(|j| match own(j) {
                            true => self.ring.product(&left[j], &right[j]),
                            false => self.ring.zero(),
                        })
                        .collect()
                }
            };
            self.evals.push(evals);
            self.args.push(None);
        }
    }

    fn argue(&mut self, t: TreeId) {
        let at = t.0 as usize;
        if self.args[at].is_some() {
            return;
        }
        let evals = &self.evals[at];
        let sum = |row: &Vec<(usize, Int)>| {
            let mut sum = self.ring.zero();
            for (j, a) in row.iter().filter(|(j, _)| !is_zero(&evals[*j])) {
                self.ring.add_product(&mut sum, a, &evals[*j]);
            }
            sum
        };
        self.args[at] = Some(self.a.iter().map(sum).collect());
    }
}

impl Expansion for Weights {
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        self.reach(trees, t);
        let mut sum = self.ring.zero();
        for (b, eval) in self.b.iter().zip(&self.evals[t.0 as usize]) {
            self.ring.add_product(&mut sum, b, eval);
        }
        self.ring
            .exact(&sum, &pow(self.ring.denominator().clone(), trees.order(t)))
    }
}
