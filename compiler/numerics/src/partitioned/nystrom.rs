//! Nyström methods: `Qᵢ = q + cᵢ h v + h² Σ āᵢⱼ F(Qⱼ)`, `q₁ = q + h v + h² Σ b̄ᵢ F(Qᵢ)`, `v₁ = v + h Σ bᵢ F(Qᵢ)` (Hairer, Nørsett &
//! Wanner 1993, II.14).
//!
//! Gives what is true of their structure: symplectic where `b̄ᵢ = bᵢ(1 − cᵢ)` and `bᵢ(b̄ⱼ − āᵢⱼ) = bⱼ(b̄ᵢ − āⱼᵢ)` (Suris 1989; Hairer, Lubich & Wanner
//! 2006, IV.2.3), symmetric where the adjoint is the same method, however its stages are numbered. Leaves orders to [`super::order`].

use super::{A, B, is_acyclic};
use crate::tableau::Tableau;
use odec_exact::Exact;
use std::collections::HashMap;

type Row = Vec<Exact>;

#[derive(Clone, Debug, PartialEq)]
pub struct Nystrom {
    pub c: Row,
    pub a: Vec<Row>,
    pub b_bar: Row,
    pub b: Row,
}

/// The first symplecticity condition that does not hold: stages from 0, and both sides of the condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// One stage: `b̄ᵢ = bᵢ(1 − cᵢ)`; two: `bᵢ(b̄ⱼ − āᵢⱼ) = bⱼ(b̄ᵢ − āⱼᵢ)`.
    pub stages: (usize, Option<usize>),
    pub left: Exact,
    pub right: Exact,
    /// The method has fewer stages than are written.
    pub reduced: bool,
}

/// The sum of entries in each class.
fn gathered(row: &Row, class: &[usize], classes: usize) -> Row {
    let mut sums = vec![Exact::zero(); classes];
    for (x, c) in row.iter().zip(class) {
        sums[*c] = &sums[*c] + x;
    }
    sums
}

impl Nystrom {
    pub fn stages(&self) -> usize {
        self.c.len()
    }

    /// As a pair with A(p) = p: A at p and, for each sum of evaluations, at p and that sum.
    pub fn tableau(&self, names: [String; 2]) -> Tableau {
        let s = self.stages();
        let sums: Vec<&Row> = self.a.iter().chain([&self.b_bar]).collect();
        // Stages of B, A at p, A at p and each sum.
        let n = s + 1 + sums.len();
        let wide = |row: &Row| -> Row {
            let mut wide = row.clone();
            wide.resize(n, Exact::zero());
            wide
        };
        let through = |c: &Exact, sum: usize| -> Row {
            let mut row = vec![Exact::zero(); n];
            row[s] = c - &Exact::one();
            row[s + 1 + sum] = Exact::one();
            row
        };
        let points = (0..s).map(|i| through(&self.c[i], i));
        let alone = [vec![Exact::zero(); n]];
        let mut b = through(&Exact::one(), s);
        b[..s].clone_from_slice(&self.b);
        Tableau {
            fields: names.into(),
            field_of: (0..n).map(|i| if i < s { B } else { A }).collect(),
            a: points
                .chain(alone)
                .chain(sums.iter().map(|r| wide(r)))
                .collect(),
            b,
            embedded: None,
        }
    }

    /// The class of each stage: stages are alike when each lies at the same time and takes the same of every class.
    fn classes(&self) -> (Vec<usize>, usize) {
        let (mut class, mut count) = (vec![0; self.stages()], 1);
        loop {
            let mut known: HashMap<(usize, Exact, Row), usize> = HashMap::new();
            let next = (0..self.stages()).map(|i| {
                let takes = gathered(&self.a[i], &class, count);
                let number = known.len();
                let key = (class[i], self.c[i].clone(), takes);
                *known.entry(key).or_insert(number)
            });
            let next: Vec<usize> = next.collect();
            if known.len() == count || known.is_empty() {
                return (next, known.len());
            }
            (class, count) = (next, known.len());
        }
    }

    /// Without idle stages, and with one for those that are alike.
    pub fn reduced(&self) -> Nystrom {
        let (class, n) = self.classes();
        let first = |c: usize| class.iter().position(|own| *own == c);
        let firsts: Vec<usize> = (0..n).filter_map(first).collect();
        let merged = Nystrom {
            c: firsts.iter().map(|i| self.c[*i].clone()).collect(),
            a: firsts
                .iter()
                .map(|i| gathered(&self.a[*i], &class, n))
                .collect(),
            b_bar: gathered(&self.b_bar, &class, n),
            b: gathered(&self.b, &class, n),
        };
        let mut needed: Vec<bool> = (0..n)
            .map(|i| !merged.b[i].is_zero() || !merged.b_bar[i].is_zero())
            .collect();
        let mut open: Vec<usize> = (0..n).filter(|i| needed[*i]).collect();
        while let Some(i) = open.pop() {
            for (j, a) in merged.a[i].iter().enumerate() {
                if !a.is_zero() && !std::mem::replace(&mut needed[j], true) {
                    open.push(j);
                }
            }
        }
        let rest: Vec<usize> = (0..n).filter(|i| needed[*i]).collect();
        let row = |r: &Row| -> Row { rest.iter().map(|j| r[*j].clone()).collect() };
        Nystrom {
            c: row(&merged.c),
            a: rest.iter().map(|i| row(&merged.a[*i])).collect(),
            b_bar: row(&merged.b_bar),
            b: row(&merged.b),
        }
    }

    pub fn symplectic(&self) -> Result<(), Box<Broken>> {
        let r = self.reduced();
        let broken = |stages, left: Exact, right: Exact| match left == right {
            true => Ok(()),
            false => Err(Box::new(Broken {
                stages,
                left,
                right,
                reduced: r.stages() < self.stages(),
            })),
        };
        for i in 0..r.stages() {
            let right = &r.b[i] * &(&Exact::one() - &r.c[i]);
            broken((i, None), r.b_bar[i].clone(), right)?;
            for j in 0..i {
                let left = &r.b[i] * &(&r.b_bar[j] - &r.a[i][j]);
                let right = &r.b[j] * &(&r.b_bar[i] - &r.a[j][i]);
                broken((i, Some(j)), left, right)?;
            }
        }
        Ok(())
    }

    /// The inverse of a step of −h: `c* = 1 − c`, `b* = b`, `b̄* = b − b̄`, `ā*ᵢⱼ = (1 − cᵢ)bⱼ − b̄ⱼ + āᵢⱼ`.
    pub fn adjoint(&self) -> Nystrom {
        let less = |x: &Exact| &Exact::one() - x;
        let row = |(c, a): (&Exact, &Row)| -> Row {
            let entry = |(j, a): (usize, &Exact)| {
                let whole = &less(c) * &self.b[j];
                &(&whole - &self.b_bar[j]) + a
            };
            a.iter().enumerate().map(entry).collect()
        };
        let weights = self.b.iter().zip(&self.b_bar);
        Nystrom {
            c: self.c.iter().map(less).collect(),
            a: self.c.iter().zip(&self.a).map(row).collect(),
            b_bar: weights.map(|(b, own)| b - own).collect(),
            b: self.b.clone(),
        }
    }

    /// Whether both give the same result: their stages, side by side, fall into classes with the same weights in both.
    pub fn is_same_method(&self, other: &Nystrom) -> bool {
        let (s, n) = (self.stages(), self.stages() + other.stages());
        let placed = |row: &Row, from: usize| -> Row {
            let mut wide = vec![Exact::zero(); n];
            wide[from..from + row.len()].clone_from_slice(row);
            wide
        };
        let rows = self.a.iter().map(|r| placed(r, 0));
        let both = Nystrom {
            c: [self.c.as_slice(), &other.c].concat(),
            a: rows.chain(other.a.iter().map(|r| placed(r, s))).collect(),
            b_bar: vec![Exact::zero(); n],
            b: vec![Exact::zero(); n],
        };
        let (class, count) = both.classes();
        let weights = |row: &Row, from: usize| gathered(&placed(row, from), &class, count);
        weights(&self.b, 0) == weights(&other.b, s)
            && weights(&self.b_bar, 0) == weights(&other.b_bar, s)
    }

    /// The same method for `q + δ h v` in the place of q.
    fn shifted(&self, by: &Exact) -> Nystrom {
        let weights = self.b_bar.iter().zip(&self.b);
        Nystrom {
            c: self.c.iter().map(|c| c - by).collect(),
            b_bar: weights.map(|(own, b)| own + &(by * b)).collect(),
            ..self.clone()
        }
    }

    pub fn is_symmetric(&self) -> bool {
        self.symmetric_with_offset().is_some_and(|c| c.is_zero())
    }

    /// See [`super::Partitioned::symmetric_with_offset`]. Σ b̄ = ½ Σ b is necessary, so there is one shift that serves.
    pub fn symmetric_with_offset(&self) -> Option<Exact> {
        let (all, own) = (
            self.b.iter().cloned().sum::<Exact>(),
            self.b_bar.iter().cloned().sum::<Exact>(),
        );
        let offset = &Exact::ratio(1, 2) - &(&own * &crate::poly::inverse(&all)?);
        let r = self.shifted(&offset);
        r.is_same_method(&r.adjoint()).then_some(offset)
    }

    pub fn is_explicit_backwards(&self) -> bool {
        is_acyclic(&self.reduced().adjoint().a)
    }
}
