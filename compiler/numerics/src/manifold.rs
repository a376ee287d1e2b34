//! The coefficients of a family of methods that satisfy some conditions, near a point that does: how many directions are
//! free, whether they make a manifold, and a chart of it.
//!
//! Takes conditions as [`Jet`]s that vanish at the point. Those that are linear are solved by an exact null space with small
//! whole entries; of the others each is solved for a variable in which it is linear, with a factor that is not 0 at the
//! point, and put into the next ones. What a chart says is true wherever its denominators are not 0, not only near
//! the point. Leaves making the conditions to odec-compiler.

use crate::jet::{Jet, Monomial};
use crate::poly::inverse;
use crate::series::Number;
use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};
use odec_exact::Exact;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of numbers.
pub type Matrix = Vec<Vec<Exact>>;

/// All solutions near a point: changes of the coefficients are `basis · v`.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// A row for each coefficient, a column for each variable.
    pub basis: Matrix,
    /// The first variables, which may be anything.
    pub free: usize,
    /// The others, each computed from those before it.
    pub bound: Vec<Quotient>,
}

/// `over/under`; the denominator is not 0 at the point.
#[derive(Clone, Debug, PartialEq)]
pub struct Quotient {
    pub over: Jet,
    pub under: Jet,
}

/// Why there is no chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChart {
    /// The polynomials are too large.
    TooLarge,
    /// This condition is linear in no variable with a factor that is not 0 at the point.
    NotTriangular(usize),
}

/// What the solutions near a point look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A manifold with the tangent space that the derivatives say.
    Manifold,
    /// Some direction in which no derivative changes leaves the solutions in second order.
    Singular,
    Undecided,
}

/// `jets` by their derivatives at the point.
pub fn jacobian(jets: &[Jet], variables: usize) -> Matrix {
    let row = |j: &Jet| (0..variables as u32).map(|v| j.slope(v)).collect();
    jets.iter().map(row).collect()
}

/// Reduced row echelon form without zero rows, and the column of each row's first entry. `None`: a number is too large.
fn reduced(mut rows: Matrix, columns: usize) -> Option<(Matrix, Vec<usize>)> {
    let mut pivots = Vec::new();
    for column in 0..columns {
        let at = pivots.len();
        let Some(pivot) = (at..rows.len()).find(|i| !rows[*i][column].is_zero()) else {
            continue;
        };
        rows.swap(at, pivot);
        let over = inverse(&rows[at][column])?;
        let scaled: Option<Vec<Exact>> = rows[at].iter().map(|x| product(x, &over)).collect();
        let scaled = scaled?;
        rows[at] = scaled.clone();
        for (i, row) in rows.iter_mut().enumerate() {
            if i != at && !row[column].is_zero() {
                let by = row[column].clone();
                for (x, p) in row.iter_mut().zip(&scaled) {
                    *x = &*x - &product(&by, p)?;
                }
            }
        }
        pivots.push(column);
    }
    rows.truncate(pivots.len());
    Some((rows, pivots))
}

fn product(a: &Exact, b: &Exact) -> Option<Exact> {
    (a * b).checked().ok()
}

pub fn rank(rows: &Matrix, columns: usize) -> Option<usize> {
    reduced(rows.clone(), columns).map(|(_, pivots)| pivots.len())
}

/// Vectors that span the null space, with whole entries without a common factor where they are rational.
pub fn null_space(rows: &Matrix, columns: usize) -> Option<Matrix> {
    let (rows, pivots) = reduced(rows.clone(), columns)?;
    let mut basis = Matrix::new();
    for free in (0..columns).filter(|c| !pivots.contains(c)) {
        let mut v = vec![Exact::zero(); columns];
        v[free] = Exact::one();
        for (row, pivot) in rows.iter().zip(&pivots) {
            v[*pivot] = -&row[free];
        }
        basis.push(v);
    }
    let whole: Option<Vec<Vec<BigInt>>> = basis.iter().map(|v| primitive(v)).collect();
    let Some(mut whole) = whole else {
        return Some(basis);
    };
    shorten(&mut whole);
    let exact = |x: &BigInt| Exact::from(BigRational::from_integer(x.clone()));
    Some(
        whole
            .iter()
            .map(|v| v.iter().map(exact).collect())
            .collect(),
    )
}

/// The shortest whole multiple of a rational vector, in the same direction.
fn primitive(v: &[Exact]) -> Option<Vec<BigInt>> {
    let v: Option<Vec<&BigRational>> = v.iter().map(Exact::as_rational).collect();
    let v = v?;
    let denominator = v.iter().fold(BigInt::one(), |d, x| d.lcm(x.denom()));
    let whole: Vec<BigInt> = v.iter().map(|x| (*x * &denominator).to_integer()).collect();
    let common = whole.iter().fold(BigInt::zero(), |g, x| g.gcd(x));
    Some(whole.iter().map(|x| x / &common).collect())
}

/// Takes whole multiples of vectors from each other while that makes one shorter.
fn shorten(basis: &mut [Vec<BigInt>]) {
    let dot = |a: &[BigInt], b: &[BigInt]| -> BigInt { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let mut again = true;
    while again {
        again = false;
        for i in 0..basis.len() {
            for j in 0..basis.len() {
                if i == j {
                    continue;
                }
                let own = dot(&basis[j], &basis[j]);
                let along = dot(&basis[i], &basis[j]);
                // To the nearest whole number, to 0 where two are as near.
                let twice: BigInt = along.abs() * 2;
                let n: BigInt = (twice + &own - 1) / (&own * 2) * along.signum();
                if !n.is_zero() {
                    let by = basis[j].clone();
                    for (x, y) in basis[i].iter_mut().zip(&by) {
                        *x -= &n * y;
                    }
                    again = true;
                }
            }
        }
    }
}

/// The solutions of conditions in some coefficients.
pub fn chart(conditions: &[Jet], coefficients: usize) -> Result<Chart, NoChart> {
    use NoChart::TooLarge;
    if conditions.iter().any(Jet::is_lost) {
        return Err(TooLarge);
    }
    let linear: Vec<Jet> = conditions
        .iter()
        .filter(|c| c.degree() < 2)
        .cloned()
        .collect();
    let columns = null_space(&jacobian(&linear, coefficients), coefficients).ok_or(TooLarge)?;
    let variables = columns.len();
    // In the null space's variables.
    let space = |jets: &[Jet]| jets.iter().find_map(Jet::space);
    let moved = |i: u32| {
        let column = |(j, v): (usize, &Vec<Exact>)| (vec![j as u32], v[i as usize].clone());
        Jet::from_terms(columns.iter().enumerate().map(column), space(conditions))
    };
    let mut open: Vec<(usize, Jet)> = Vec::new();
    for (i, c) in conditions.iter().enumerate() {
        open.push((i, c.at(&moved)));
    }
    let mut solved: Vec<(u32, Quotient)> = Vec::new();
    loop {
        if open.iter().any(|(_, c)| c.is_lost()) {
            return Err(TooLarge);
        }
        open.retain(|(_, c)| !c.is_zero());
        let Some((first, _)) = open.first() else {
            break;
        };
        let (variable, quotient) =
            solvable(&open, variables as u32).ok_or(NoChart::NotTriangular(*first))?;
        for (_, c) in &mut open {
            *c = put(c, variable, &quotient);
        }
        solved.push((variable, quotient));
    }
    // Free variables first, then those that are computed, the last one solved for first.
    let is_bound = |v: &u32| solved.iter().any(|(b, _)| b == v);
    let mut order: Vec<u32> = (0..variables as u32).filter(|v| !is_bound(v)).collect();
    let free = order.len();
    order.extend(solved.iter().rev().map(|(v, _)| *v));
    let mut number = vec![0; variables];
    for (new, old) in order.iter().enumerate() {
        number[*old as usize] = new as u32;
    }
    Ok(Chart {
        basis: (0..coefficients)
            .map(|i| {
                order
                    .iter()
                    .map(|v| columns[*v as usize][i].clone())
                    .collect()
            })
            .collect(),
        free,
        bound: solved
            .iter()
            .rev()
            .map(|(_, q)| Quotient {
                over: q.over.renamed(&number),
                under: q.under.renamed(&number),
            })
            .collect(),
    })
}

/// A condition solved for a variable.
struct Candidate {
    /// The variable's degree in the other conditions, the factor's degree and terms.
    key: (usize, usize, usize),
    /// How large the factor is at the point.
    size: Exact,
    variable: u32,
    value: Quotient,
}

/// A condition that is linear in a variable with a factor that is not 0 at the point, solved for it: best where the
/// variable has a low degree in the other conditions, then where the factor is short, then where it is large.
fn solvable(open: &[(usize, Jet)], variables: u32) -> Option<(u32, Quotient)> {
    let mut best: Option<Candidate> = None;
    for v in 0..variables {
        let powers: Vec<Vec<Jet>> = open.iter().map(|(_, c)| c.in_powers_of(v)).collect();
        for (at, own) in powers.iter().enumerate() {
            let [rest, factor] = &own[..] else {
                continue;
            };
            let value = factor.value();
            if value.is_zero() {
                continue;
            }
            let size = if value.is_negative() { -&value } else { value };
            let others = powers.iter().enumerate().filter(|(i, _)| *i != at);
            let degree = others.map(|(_, p)| p.len() - 1).max().unwrap_or(0);
            let key = (degree.max(1), factor.degree(), factor.terms().count());
            let better = match &best {
                None => true,
                Some(b) => key < b.key || (key == b.key && size > b.size),
            };
            if better {
                let over = rest.times(&Jet::constant(&Exact::int(-1)));
                let under = factor.clone();
                best = Some(Candidate {
                    key,
                    size,
                    variable: v,
                    value: Quotient { over, under },
                });
            }
        }
    }
    best.map(|b| (b.variable, b.value))
}

/// A polynomial with a quotient for a variable, times a power of the denominator.
fn put(c: &Jet, variable: u32, q: &Quotient) -> Jet {
    let powers = c.in_powers_of(variable);
    let degree = powers.len() - 1;
    let power = |j: &Jet, n: usize| {
        let one = Jet::constant(&Exact::one());
        (0..n).fold(one, |p, _| p.times(j))
    };
    let mut sum = Jet::constant(&Exact::zero());
    for (n, p) in powers.iter().enumerate() {
        let term = p.times(&power(&q.over, n));
        sum = sum.plus(&term.times(&power(&q.under, degree - n)));
    }
    sum
}

impl Chart {
    /// The changes of the coefficients for some values of the free variables; `None` where a denominator is 0, or a number
    /// too large.
    pub fn at(&self, free: &[Exact]) -> Option<Vec<Exact>> {
        let mut values = free.to_vec();
        for q in &self.bound {
            let at = |j: &Jet| j.at(&|v| Jet::constant(&values[v as usize])).value();
            let value = product(&at(&q.over), &inverse(&at(&q.under))?)?;
            values.push(value);
        }
        let row = |row: &Vec<Exact>| row.iter().zip(&values).map(|(n, v)| n * v).sum();
        Some(self.basis.iter().map(row).collect())
    }
}

/// What the solutions of some conditions look like where all of them hold.
pub fn shape(conditions: &[Jet], coefficients: usize) -> Shape {
    if conditions.iter().any(Jet::is_lost) {
        return Shape::Undecided;
    }
    decided(conditions, coefficients).unwrap_or(Shape::Undecided)
}

fn decided(conditions: &[Jet], coefficients: usize) -> Option<Shape> {
    let slopes = jacobian(conditions, coefficients);
    let monomials: BTreeSet<&Monomial> = conditions
        .iter()
        .flat_map(|c| c.terms())
        .map(|(m, _)| m)
        .collect();
    let row = |c: &Jet| monomials.iter().map(|m| c.of(m)).collect();
    let all: Matrix = conditions.iter().map(row).collect();
    // As many derivatives are independent as polynomials: the implicit function theorem.
    if rank(&slopes, coefficients)? == rank(&all, monomials.len())? {
        return Some(Shape::Manifold);
    }
    let columns = (0..coefficients).map(|v| slopes.iter().map(|r| r[v].clone()).collect());
    let transposed: Matrix = columns.collect();
    let tangent = null_space(&slopes, coefficients)?;
    for weights in null_space(&transposed, conditions.len())? {
        let mut second: BTreeMap<(u32, u32), Exact> = BTreeMap::new();
        for (w, c) in weights.iter().zip(conditions) {
            for (m, x) in c.terms() {
                if let [a, b] = m[..] {
                    let slot = second.entry((a, b)).or_default();
                    *slot = &*slot + &product(w, x)?;
                }
            }
        }
        // A quadratic form vanishes on a space if its bilinear form does on a basis.
        for (i, u) in tangent.iter().enumerate() {
            for v in &tangent[..=i] {
                let term = |((a, b), c): (&(u32, u32), &Exact)| {
                    let (a, b) = (*a as usize, *b as usize);
                    let both = &(&u[a] * &v[b]) + &(&u[b] * &v[a]);
                    c * &both
                };
                let value: Exact = second.iter().map(term).sum();
                if !value.is_zero() {
                    return Some(Shape::Singular);
                }
            }
        }
    }
    Some(Shape::Undecided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jet::Space;
    use proptest::prelude::*;

    fn q(n: i64, d: i64) -> Exact {
        Exact::ratio(n, d)
    }

    #[test]
    fn the_null_space_of_a_vandermonde_matrix_is_the_last_difference() {
        let rows: Matrix = (0..3)
            .map(|k| (0..4).map(|j: i64| Exact::int(j.pow(k))).collect())
            .collect();
        let signs = null_space(&rows, 4).unwrap();
        assert_eq!(signs, [[-1, 3, -3, 1].map(Exact::int).to_vec()]);
    }

    /// The circle x² + y² = 1 at (1, 0) is solved for no variable rationally; at (3/5, 4/5) neither, and both are regular. The
    /// cross xy = 0 is singular at its centre.
    #[test]
    fn shapes() {
        let space = Space::new(64, 10_000);
        let at = |x: Exact, y: Exact| (Jet::variable(0, &x, &space), Jet::variable(1, &y, &space));
        let less = |j: &Jet| j.minus(&Jet::constant(&Exact::one()));
        for (a, b) in [(q(1, 1), q(0, 1)), (q(3, 5), q(4, 5))] {
            let (x, y) = at(a, b);
            let circle = [less(&x.times(&x).plus(&y.times(&y)))];
            assert_eq!(shape(&circle, 2), Shape::Manifold);
            assert_eq!(chart(&circle, 2), Err(NoChart::NotTriangular(0)));
        }
        let (x, y) = at(Exact::zero(), Exact::zero());
        assert_eq!(shape(&[x.times(&y)], 2), Shape::Singular);
        // A parabola is the graph of a polynomial: one variable is bound, without a quotient.
        let parabola = y.minus(&x.times(&x));
        let c = chart(&[parabola], 2).unwrap();
        assert_eq!(
            (c.free, c.bound.len(), c.bound[0].under.degree()),
            (1, 1, 0)
        );
    }

    proptest! {
        /// Σb = 1 and Σ b c = 1/2 in a method of two stages: whatever the free variable is, both hold.
        #[test]
        fn a_chart_stays_on_its_manifold(n in -40i64..40, d in 1i64..9) {
            let space = Space::new(64, 10_000);
            let var = |i, x: Exact| Jet::variable(i, &x, &space);
            let (a, b0, b1) = (var(0, q(1, 1)), var(1, q(1, 2)), var(2, q(1, 2)));
            let constant = |x: Exact| Jet::constant(&x);
            let conditions = [
                b0.plus(&b1).minus(&constant(q(1, 1))),
                b1.times(&a).minus(&constant(q(1, 2))),
            ];
            let c = chart(&conditions, 3).unwrap();
            prop_assert_eq!((c.free, c.bound.len()), (1, 1));
            if let Some(change) = c.at(&[q(n, d)]) {
                let at = |j: &Jet| j.at(&|v| constant(change[v as usize].clone())).value();
                prop_assert!(conditions.iter().all(|j| at(j).is_zero()));
            } else {
                // a = 0: no method of order 2.
                prop_assert!(n == -d);
            }
        }

        #[test]
        fn a_null_space_is_one(rows in prop::collection::vec(prop::collection::vec(-3i64..4, 6), 0..5)) {
            let rows: Matrix = rows.iter().map(|r| r.iter().map(|x| Exact::int(*x)).collect()).collect();
            let basis = null_space(&rows, 6).unwrap();
            prop_assert_eq!(basis.len() + rank(&rows, 6).unwrap(), 6);
            prop_assert_eq!(rank(&basis, 6).unwrap(), basis.len());
            for (r, v) in rows.iter().flat_map(|r| basis.iter().map(move |v| (r, v))) {
                let dot: Exact = r.iter().zip(v).map(|(a, b)| a * b).sum();
                prop_assert!(dot.is_zero());
            }
        }
    }
}
