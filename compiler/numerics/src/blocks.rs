//! Solves order conditions block by block: each block is linear in as many unknowns as it has conditions.
//!
//! Takes conditions as [`Jet`]s that vanish at the point; gives a [`Chart`]. Nothing is multiplied out: each step of Gauss's elimination
//! is a variable of its own, computed from earlier ones, so that polynomials stay as short as the conditions are. The unknowns of a
//! block are not in the blocks before it. Pivots are not 0 at the point. Leaves conditions that are solved by substitution to
//! [`crate::manifold`].

use crate::jet::{Jet, Monomial, Space};
use crate::manifold::{Chart, Matrix, NoChart, Quotient};
use crate::poly::inverse;
use crate::series::Number;
use odec_exact::Exact;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Most terms of a polynomial; longer ones are sums of variables.
const MAX_TERMS: usize = 32;
/// Most variables of a chart.
const MAX_VARIABLES: usize = 2048;
/// Highest degree of a polynomial, and products of terms that all of them may take.
const DEGREE: usize = 64;
const WORK: usize = 300_000;

/// Conditions and the unknowns that they are solved for, in the order of elimination.
type Block = Vec<(usize, u32)>;

struct Elimination {
    space: Rc<Space>,
    /// Where nothing changes; the first ones are 0.
    values: Vec<Exact>,
    /// What is computed, in this order.
    bound: Vec<(u32, Quotient)>,
}

/// The solutions of conditions in some variables; changes of the coefficients are `basis · v`.
pub fn chart(conditions: &[Jet], basis: &Matrix) -> Result<Chart, NoChart> {
    if conditions.iter().any(Jet::is_lost) {
        return Err(NoChart::TooLarge);
    }
    let variables = basis.first().map_or(0, Vec::len);
    let mut all = Elimination {
        space: Space::new(DEGREE, WORK),
        values: vec![Exact::zero(); variables],
        bound: Vec::new(),
    };
    let own = |c: &Jet| {
        let terms = c.terms().map(|(m, x)| (m.clone(), x.clone()));
        Jet::from_terms(terms, Some(all.space.clone()))
    };
    let conditions: Vec<Jet> = conditions.iter().map(own).collect();
    let mut open: Vec<usize> = (0..conditions.len()).collect();
    // What earlier blocks mention is not theirs to solve for.
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    while let Some(first) = open.first() {
        let left: Vec<&Jet> = open.iter().map(|i| &conditions[*i]).collect();
        let block = all.block(&left, &taken).filter(|b| !b.is_empty());
        let block = block.ok_or(NoChart::NotTriangular(*first))?;
        let rows: Vec<(&Jet, u32)> = block.iter().map(|(at, v)| (left[*at], *v)).collect();
        all.solve(&rows).ok_or(NoChart::TooLarge)?;
        taken.extend(rows.iter().flat_map(|(c, _)| unknowns(c)));
        let solved: BTreeSet<usize> = block.iter().map(|(at, _)| open[*at]).collect();
        open.retain(|i| !solved.contains(i));
    }
    Ok(all.chart(basis))
}

fn unknowns(c: &Jet) -> BTreeSet<u32> {
    c.terms().flat_map(|(m, _)| m.iter().copied()).collect()
}

/// Variables in which all conditions are linear together: those of most conditions first.
fn linear(open: &[&Jet], taken: &BTreeSet<u32>) -> Vec<u32> {
    let all: BTreeSet<u32> = open.iter().flat_map(|c| unknowns(c)).collect();
    let monomials = || open.iter().flat_map(|c| c.terms()).map(|(m, _)| m);
    let squared = |v: u32| monomials().any(|m| m.iter().filter(|w| **w == v).count() > 1);
    let together = |v: u32, w: u32| monomials().any(|m| m.contains(&v) && m.contains(&w));
    let free = all
        .into_iter()
        .filter(|v| !taken.contains(v) && !squared(*v));
    let mut free: Vec<u32> = free.collect();
    free.sort_by_key(|v| std::cmp::Reverse(open.iter().filter(|c| c.has(*v)).count()));
    let mut chosen: Vec<u32> = Vec::new();
    for v in free {
        if chosen.iter().all(|w| !together(v, *w)) {
            chosen.push(v);
        }
    }
    chosen
}

impl Elimination {
    /// The conditions that are independent in variables in which all are linear, each with its pivot: first those that mention the
    /// fewest other unknowns, and among these fewest that could be solved for. `None`: a number is too large.
    fn block(&self, open: &[&Jet], taken: &BTreeSet<u32>) -> Option<Block> {
        let columns = linear(open, taken);
        let mut order: Vec<usize> = (0..open.len()).collect();
        // What is linear in another unknown can be solved for that one later.
        let is_squared = |v: &u32| {
            let mut monomials = open.iter().flat_map(|c| c.terms()).map(|(m, _)| m);
            monomials.any(|m| m.iter().filter(|w| *w == v).count() > 1)
        };
        let others = |c: &Jet| {
            let mut all = unknowns(c);
            all.retain(|v| !taken.contains(v) && !columns.contains(v));
            (all.len(), all.iter().filter(|v| !is_squared(v)).count())
        };
        order.sort_by_key(|at| others(open[*at]));
        let mut rows: Vec<(usize, Vec<Exact>)> = Vec::new();
        let mut block = Block::new();
        for at in order {
            let slope = |v: &u32| self.value(&open[at].in_powers_of(*v).pop().unwrap_or_default());
            let has = |v: &&u32| open[at].has(**v);
            let mut row: Vec<Exact> = columns
                .iter()
                .map(|v| Some(v).filter(has).map_or(Exact::zero(), slope))
                .collect();
            for (column, known) in &rows {
                let by = row[*column].clone();
                if !by.is_zero() {
                    let by = (&by * &inverse(&known[*column])?).checked().ok()?;
                    for (x, k) in row.iter_mut().zip(known) {
                        *x = &*x - &(&by * k);
                    }
                }
            }
            let size = |x: &Exact| if x.is_negative() { -x } else { x.clone() };
            let largest = row.iter().map(size).max().filter(|x| !x.is_zero());
            let pivot = largest.and_then(|most| row.iter().position(|x| size(x) == most));
            if let Some(pivot) = pivot {
                block.push((at, columns[pivot]));
                rows.push((pivot, row));
            }
        }
        Some(block)
    }

    /// Where nothing changes.
    fn value(&self, j: &Jet) -> Exact {
        let at = |v: u32| Jet::constant(&self.values[v as usize]);
        j.at(&at).value()
    }

    fn variable(&self, v: u32) -> Jet {
        let term = (Monomial::from([v]), Exact::one());
        Jet::from_terms([term].into_iter(), Some(self.space.clone()))
    }

    /// A polynomial of few terms that has this value.
    fn short(&mut self, j: Jet) -> Option<Jet> {
        if j.is_lost() {
            return None;
        }
        let terms: Vec<(Monomial, Exact)> =
            j.terms().map(|(m, c)| (m.clone(), c.clone())).collect();
        let part = |part: &[(Monomial, Exact)], s: &Elimination| {
            Jet::from_terms(part.iter().cloned(), Some(s.space.clone()))
        };
        if terms.len() <= MAX_TERMS {
            return Some(part(&terms, self));
        }
        let one = Jet::constant(&Exact::one());
        let mut sum = Vec::new();
        for some in terms.chunks(MAX_TERMS) {
            let v = self.quotient(part(some, self), one.clone())?;
            sum.push((Monomial::from([v]), Exact::one()));
        }
        let sum = part(&sum, self);
        self.short(sum)
    }

    /// A variable for a polynomial that is more than a number or a variable.
    fn named(&mut self, j: Jet) -> Option<Jet> {
        let is_plain = j.degree() == 0
            || (j.terms().count() == 1 && j.degree() == 1 && j.terms().all(|(_, c)| c.is_one()));
        if is_plain {
            return Some(j);
        }
        let v = self.quotient(j, Jet::constant(&Exact::one()))?;
        Some(self.variable(v))
    }

    /// A variable more.
    fn quotient(&mut self, over: Jet, under: Jet) -> Option<u32> {
        let (over, under) = (self.short(over)?, self.short(under)?);
        let value = &self.value(&over) * &inverse(&self.value(&under))?;
        let v = self.values.len() as u32;
        self.values.push(value.checked().ok()?);
        self.bound.push((v, Quotient { over, under }));
        (self.values.len() < MAX_VARIABLES).then_some(v)
    }

    /// Solves a block for its unknowns, the last one first.
    fn solve(&mut self, block: &[(&Jet, u32)]) -> Option<()> {
        let less = Jet::constant(&Exact::int(-1));
        let mut rows: Vec<(Vec<Jet>, Jet)> = Vec::new();
        for (c, _) in block {
            let (mut rest, mut row) = ((*c).clone(), Vec::new());
            for (_, v) in block {
                let powers = rest.in_powers_of(*v);
                let entry = powers.get(1).cloned().unwrap_or_default();
                rest = powers.into_iter().next().unwrap_or_default();
                row.push(self.named(entry)?);
            }
            let rest = rest.times(&less);
            rows.push((row, self.named(rest)?));
        }
        let n = rows.len();
        for p in 0..n {
            let (pivot, right) = rows[p].clone();
            for (row, own) in rows.iter_mut().skip(p + 1) {
                if row[p].is_zero() {
                    continue;
                }
                let by = self.quotient(row[p].times(&less), pivot[p].clone())?;
                let by = self.variable(by);
                for (entry, above) in row.iter_mut().zip(&pivot).skip(p + 1) {
                    *entry = self.named(entry.plus(&by.times(above)))?;
                }
                *own = self.named(own.plus(&by.times(&right)))?;
            }
        }
        for p in (0..n).rev() {
            let (row, mut sum) = rows[p].clone();
            for (entry, (_, v)) in row.iter().zip(block).skip(p + 1) {
                sum = sum.minus(&entry.times(&self.variable(*v)));
            }
            let (over, under) = (self.short(sum)?, self.short(row[p].clone())?);
            self.bound.push((block[p].1, Quotient { over, under }));
        }
        Some(())
    }

    /// Free variables first, then those that are computed.
    fn chart(&self, basis: &Matrix) -> Chart {
        let is_bound = |v: &u32| self.bound.iter().any(|(b, _)| b == v);
        let all = 0..self.values.len() as u32;
        let mut order: Vec<u32> = all.filter(|v| !is_bound(v)).collect();
        let free = order.len();
        order.extend(self.bound.iter().map(|(v, _)| *v));
        let mut number = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            number[*old as usize] = new as u32;
        }
        let column = |row: &Vec<Exact>, v: &u32| row.get(*v as usize).cloned().unwrap_or_default();
        Chart {
            basis: basis
                .iter()
                .map(|row| order.iter().map(|v| column(row, v)).collect())
                .collect(),
            free,
            bound: self
                .bound
                .iter()
                .map(|(_, q)| Quotient {
                    over: q.over.renamed(&number),
                    under: q.under.renamed(&number),
                })
                .collect(),
        }
    }
}
