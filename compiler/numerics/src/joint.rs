//! Stability of additive methods: what a method of several fields does to `y' = Σ λᵢ y`, `zᵢ = hλᵢ`, as an exact rational function
//! `R(z₁, z₂, …)` (Ascher, Ruuth & Spiteri 1997, 3; Sandu & Günther 2015, 2.3).
//!
//! `R = det(I − AZ + 1bᵀZ) / det(I − AZ)`, Z the diagonal matrix of the stages' `zᵢ`. Leaves one field to [`crate::stability`].

use crate::poly::Poly;
use crate::stability::Stability;
use crate::tableau::Tableau;
use odec_exact::Exact;
use std::collections::BTreeMap;

/// Most terms of a polynomial.
const MAX_TERMS: usize = 2000;
/// Most products of polynomials on the way.
const MAX_PRODUCTS: usize = 60_000;
/// Most fields.
const MAX_FIELDS: usize = 8;
/// Most stages, and of an implicit method.
const MAX_STAGES: usize = 24;
const MAX_IMPLICIT: usize = 12;

/// A polynomial in several variables: exponents and coefficients, none of which is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Many(pub BTreeMap<Vec<u32>, Exact>);

impl Many {
    fn constant(c: Exact, variables: usize) -> Many {
        let one = (vec![0; variables], c);
        Many([one].into_iter().filter(|(_, c)| !c.is_zero()).collect())
    }

    fn add(&mut self, exponents: Vec<u32>, c: &Exact) {
        let sum = match self.0.get(&exponents) {
            Some(have) => have + c,
            None => c.clone(),
        };
        if sum.is_zero() {
            self.0.remove(&exponents);
        } else {
            self.0.insert(exponents, sum);
        }
    }

    fn plus(&self, other: &Many) -> Many {
        let mut sum = self.clone();
        other.0.iter().for_each(|(e, c)| sum.add(e.clone(), c));
        sum
    }

    fn scaled(&self, by: &Exact) -> Many {
        let terms = self.0.iter().filter(|_| !by.is_zero());
        Many(terms.map(|(e, c)| (e.clone(), c * by)).collect())
    }

    /// Times a variable.
    fn raised(&self, variable: usize) -> Many {
        let raise = |(e, c): (&Vec<u32>, &Exact)| {
            let mut e = e.clone();
            e[variable] += 1;
            (e, c.clone())
        };
        Many(self.0.iter().map(raise).collect())
    }

    /// The highest power of a variable.
    pub fn degree(&self, variable: usize) -> u32 {
        self.0.keys().map(|e| e[variable]).max().unwrap_or(0)
    }

    /// The coefficient of a power of a variable.
    fn before(&self, variable: usize, power: u32) -> Many {
        let terms = self.0.iter().filter(|(e, _)| e[variable] == power);
        let without = |(e, c): (&Vec<u32>, &Exact)| {
            let mut e = e.clone();
            e[variable] = 0;
            (e, c.clone())
        };
        Many(terms.map(without).collect())
    }

    /// As a polynomial in one variable; `None`: there are others.
    fn alone(&self, variable: usize) -> Option<Poly> {
        let mut p = vec![Exact::zero(); self.degree(variable) as usize + 1];
        for (e, c) in &self.0 {
            let others = e.iter().enumerate().any(|(v, n)| v != variable && *n > 0);
            if others {
                return None;
            }
            p[e[variable] as usize] = c.clone();
        }
        Some(Poly::new(p))
    }
}

/// `R = P/Q`, not reduced; `Q(0) = 1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub numerator: Many,
    pub denominator: Many,
}

/// The limit of R as one variable goes to infinity.
#[derive(Clone, Debug, PartialEq)]
pub enum AtInfinity {
    Zero,
    Infinite,
    /// A quotient of polynomials in the other variables.
    Quotient(Function),
}

/// What is true of a method of several fields.
#[derive(Clone, Debug)]
pub struct Joint {
    pub function: Function,
    /// The method of each field alone: the others are 0.
    pub alone: Vec<Option<Stability>>,
    /// All fields at once, with the same z.
    pub together: Option<Stability>,
    /// As the z of each field goes to infinity.
    pub far: Vec<AtInfinity>,
}

impl Function {
    pub fn new(t: &Tableau) -> Option<Function> {
        let (s, n) = (t.stages(), t.fields.len());
        if n > MAX_FIELDS || s > MAX_STAGES {
            return None;
        }
        let one = Many::constant(Exact::one(), n);
        if t.is_explicit() {
            // Yᵢ = 1 + Σ aᵢⱼ zⱼ Yⱼ, and the result likewise.
            let mut slopes: Vec<Many> = Vec::new();
            let mut products = 0;
            let sum = |row: &[Exact], slopes: &[Many]| {
                let terms = row.iter().zip(slopes).filter(|(a, _)| !a.is_zero());
                terms.fold(one.clone(), |sum, (a, k)| sum.plus(&k.scaled(a)))
            };
            for (row, field) in t.a.iter().zip(&t.field_of) {
                let used = row.iter().zip(&slopes).filter(|(a, _)| !a.is_zero());
                products += used.map(|(_, k)| k.0.len()).sum::<usize>();
                let slope = sum(row, &slopes).raised(*field);
                if slope.0.len() > MAX_TERMS || products > MAX_PRODUCTS {
                    return None;
                }
                slopes.push(slope);
            }
            return Some(Function {
                numerator: sum(&t.b, &slopes),
                denominator: one,
            });
        }
        if s > MAX_IMPLICIT {
            return None;
        }
        let with = |i: usize, j: usize| &t.a[i][j] - &t.b[j];
        let own = |i: usize, j: usize| t.a[i][j].clone();
        Some(Function {
            numerator: determinant(t, with)?,
            denominator: determinant(t, own)?,
        })
    }

    fn at_infinity(&self, variable: usize) -> AtInfinity {
        let (p, q) = (&self.numerator, &self.denominator);
        match (p.degree(variable), q.degree(variable)) {
            (n, d) if n < d => AtInfinity::Zero,
            (n, d) if n > d => AtInfinity::Infinite,
            (n, _) => AtInfinity::Quotient(Function {
                numerator: p.before(variable, n),
                denominator: q.before(variable, n),
            }),
        }
    }

    /// As quotient of polynomials in one variable, where no other occurs.
    pub fn alone(&self, variable: usize) -> Option<(Poly, Poly)> {
        Some((
            self.numerator.alone(variable)?,
            self.denominator.alone(variable)?,
        ))
    }
}

/// `det(I − MZ)` by Faddeev and LeVerrier's recursion on polynomials.
fn determinant(t: &Tableau, m: impl Fn(usize, usize) -> Exact) -> Option<Many> {
    let (s, n) = (t.stages(), t.fields.len());
    let zero = || vec![vec![Many::default(); s]; s];
    let mut last = Many::constant(Exact::one(), n);
    let mut sum = last.clone();
    let mut current = zero();
    let mut products = 0;
    for k in 1..=s {
        for (i, row) in current.iter_mut().enumerate() {
            row[i] = row[i].plus(&last);
        }
        let mut next = zero();
        for (i, next) in next.iter_mut().enumerate() {
            for (j, row) in current.iter().enumerate() {
                let a = m(i, j);
                if a.is_zero() {
                    continue;
                }
                for (x, c) in next.iter_mut().zip(row).filter(|(_, c)| !c.0.is_empty()) {
                    *x = x.plus(&c.scaled(&a).raised(t.field_of[j]));
                    products += 1;
                    if products > MAX_PRODUCTS || x.0.len() > MAX_TERMS {
                        return None;
                    }
                }
            }
        }
        current = next;
        let trace = (0..s).fold(Many::default(), |sum, i| sum.plus(&current[i][i]));
        last = trace.scaled(&Exact::ratio(-1, k as i64));
        sum = sum.plus(&last);
    }
    Some(sum)
}

impl Joint {
    pub fn new(t: &Tableau) -> Option<Joint> {
        let function = Function::new(t)?;
        let fields = 0..t.fields.len();
        Some(Joint {
            alone: fields
                .clone()
                .map(|f| Stability::new(&t.of_field(f)))
                .collect(),
            together: Stability::new(t),
            far: fields.map(|f| function.at_infinity(f)).collect(),
            function,
        })
    }
}
