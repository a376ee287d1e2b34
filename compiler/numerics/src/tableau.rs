//! Additive Runge–Kutta tableaus: one stage for each evaluation, each with the field it evaluates.
//!
//! `Yᵢ = x + h Σ aᵢⱼ F⁽ʲ⁾(Yⱼ)`, `x₁ = x + h Σ bⱼ F⁽ʲ⁾(Yⱼ)`, where F⁽ʲ⁾ is the field of stage j. In the usual notation of one A
//! and b for each field (Sandu & Günther 2015, SIAM J. Numer. Anal. 53, 17) evaluations at the same point share a stage:
//! [`Tableau::parts`]. Leaves orders to [`crate::order`].

use odec_exact::Exact;
use std::collections::HashMap;

/// Coefficients of a method of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Tableau<C = Exact> {
    pub fields: Vec<String>,
    /// The field that each stage evaluates.
    pub field_of: Vec<usize>,
    /// `stages × stages`.
    pub a: Vec<Vec<C>>,
    pub b: Vec<C>,
    /// The weights of the embedded partner.
    pub embedded: Option<Vec<C>>,
}

/// The coefficients on one field's evaluations, over distinct points.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub field: String,
    /// `points × points`.
    pub a: Vec<Vec<Exact>>,
    pub b: Vec<Exact>,
    pub embedded: Option<Vec<Exact>>,
    /// Points at which this field is evaluated.
    pub used: Vec<usize>,
}

impl Part {
    /// Row sums: the time that this field has run for at each point.
    pub fn nodes(&self) -> Vec<Exact> {
        self.a.iter().map(|r| r.iter().cloned().sum()).collect()
    }
}

/// The sums over classes that are numbered by their first members.
fn summed(row: &[Exact], class: &[usize]) -> Vec<Exact> {
    let count = class.iter().max().map_or(0, |most| most + 1);
    let mut sums = vec![Exact::zero(); count];
    for (x, c) in row.iter().zip(class).filter(|(x, _)| !x.is_zero()) {
        sums[*c] = &sums[*c] + x;
    }
    sums
}

impl Tableau {
    /// A method of one field, called `F`.
    pub fn single(a: Vec<Vec<Exact>>, b: Vec<Exact>) -> Tableau {
        Tableau {
            fields: vec!["F".to_string()],
            field_of: vec![0; b.len()],
            a,
            b,
            embedded: None,
        }
    }

    pub fn stages(&self) -> usize {
        self.b.len()
    }
    /// Row sums: the times of the stages where all fields belong to one equation.
    pub fn nodes(&self) -> Vec<Exact> {
        self.a.iter().map(|r| r.iter().cloned().sum()).collect()
    }
    /// Whether each stage needs earlier ones alone.
    pub fn is_explicit(&self) -> bool {
        let below = |(i, row): (usize, &Vec<Exact>)| row[i..].iter().all(Exact::is_zero);
        self.a.iter().enumerate().all(below)
    }
    /// The partner as a method of its own.
    pub fn partner(&self) -> Option<Tableau> {
        Some(Tableau {
            b: self.embedded.clone()?,
            embedded: None,
            ..self.clone()
        })
    }

    /// The adjoint method `Φ*_h = Φ₋ₕ⁻¹`, its stages in reverse: `a*ᵢⱼ = b_{s+1−j} − a_{s+1−i,s+1−j}`, `b*ᵢ = b_{s+1−i}`
    /// (Hairer, Nørsett & Wanner 1993, II.8; Hairer, Lubich & Wanner 2006, II.3 and V.2). It has no embedded partner.
    pub fn adjoint(&self) -> Tableau {
        let row = |a: &Vec<Exact>| {
            let entries = self.b.iter().zip(a).rev();
            entries.map(|(b, a)| b - a).collect()
        };
        Tableau {
            fields: self.fields.clone(),
            field_of: self.field_of.iter().rev().copied().collect(),
            a: self.a.iter().rev().map(row).collect(),
            b: self.b.iter().rev().cloned().collect(),
            embedded: None,
        }
    }

    /// Whether the method is its own adjoint, however its stages are numbered.
    pub fn is_symmetric(&self) -> bool {
        let t = self.reduced();
        match t.is_explicit() {
            // The adjoint has b on its diagonal.
            true => t.stages() == 0,
            false => t.is_same_method(&t.adjoint()),
        }
    }

    /// Whether both give the same result for all fields: their stages, side by side, fall into classes of equal ones, and each class
    /// has the same weight in both.
    pub fn is_same_method(&self, other: &Tableau) -> bool {
        let (one, two) = (self.reduced(), other.reduced());
        let (s, n) = (one.stages(), one.stages() + two.stages());
        let placed = |row: &Vec<Exact>, from: usize| {
            let mut wide = vec![Exact::zero(); n];
            wide[from..from + row.len()].clone_from_slice(row);
            wide
        };
        let rows = one.a.iter().map(|r| placed(r, 0));
        let both = Tableau {
            fields: one.fields.clone(),
            field_of: [one.field_of.as_slice(), &two.field_of].concat(),
            a: rows.chain(two.a.iter().map(|r| placed(r, s))).collect(),
            b: vec![Exact::zero(); n],
            embedded: None,
        };
        let class = both.classes();
        let weights = |b: &Vec<Exact>, from: usize| summed(&placed(b, from), &class);
        one.fields == two.fields && weights(&one.b, 0) == weights(&two.b, s)
    }

    /// The class of each stage, numbered by first members: stages of one field are alike when each takes the same of every class, so that
    /// their values are equal (Hundsdorfer & Spijker 1981). Classes by field are split until that holds; where each stage needs earlier
    /// ones alone, one after the other is put into its class.
    fn classes(&self) -> Vec<usize> {
        if self.is_explicit() {
            let mut known: HashMap<(usize, Vec<Exact>), usize> = HashMap::new();
            let mut class = Vec::new();
            for (i, field) in self.field_of.iter().enumerate() {
                let mut takes = summed(&self.a[i][..i], &class);
                while takes.last().is_some_and(Exact::is_zero) {
                    takes.pop();
                }
                let number = known.len();
                class.push(*known.entry((*field, takes)).or_insert(number));
            }
            return class;
        }
        let mut class = self.field_of.clone();
        let mut count = 0;
        loop {
            let mut known: HashMap<(usize, Vec<Exact>), usize> = HashMap::new();
            let takes = |i: usize| (class[i], summed(&self.a[i], &class));
            let next = (0..self.stages()).map(|i| {
                let number = known.len();
                *known.entry(takes(i)).or_insert(number)
            });
            class = next.collect();
            if known.len() == count {
                return class;
            }
            count = known.len();
        }
    }

    /// The distinct points, as numbers of the first stages that lie there, and the point of each stage.
    pub fn points(&self) -> (Vec<usize>, Vec<usize>) {
        let mut points: Vec<usize> = Vec::new();
        let mut point_of = Vec::new();
        for (i, row) in self.a.iter().enumerate() {
            let known = points.iter().position(|p| self.a[*p] == *row);
            point_of.push(known.unwrap_or_else(|| {
                points.push(i);
                points.len() - 1
            }));
        }
        (points, point_of)
    }

    /// One A and b for each field.
    pub fn parts(&self) -> Vec<Part> {
        let (points, point_of) = self.points();
        let gathered = |row: &[Exact], field: usize| {
            let mut sums = vec![Exact::zero(); points.len()];
            for (j, a) in row.iter().enumerate() {
                if self.field_of[j] == field {
                    sums[point_of[j]] = &sums[point_of[j]] + a;
                }
            }
            sums
        };
        let part = |(field, name): (usize, &String)| Part {
            field: name.clone(),
            a: points
                .iter()
                .map(|p| gathered(&self.a[*p], field))
                .collect(),
            b: gathered(&self.b, field),
            embedded: self.embedded.as_ref().map(|b| gathered(b, field)),
            used: (0..points.len())
                .filter(|p| {
                    (0..self.stages()).any(|j| point_of[j] == *p && self.field_of[j] == field)
                })
                .collect(),
        };
        self.fields.iter().enumerate().map(part).collect()
    }

    /// The method for the equation in which each field stands with the weight that the method gives it, as learned fields
    /// with weights of their own may: all Σ b of a field become 1, where they are not 0.
    pub fn normalised(&self) -> Tableau {
        let weight = |field: usize| -> Exact {
            let own = (0..self.stages()).filter(|j| self.field_of[*j] == field);
            own.map(|j| self.b[j].clone()).sum()
        };
        let over = |field: usize| crate::poly::inverse(&weight(field)).unwrap_or_else(Exact::one);
        let over: Vec<Exact> = (0..self.fields.len()).map(over).collect();
        let scaled = |row: &Vec<Exact>| -> Vec<Exact> {
            let entries = row.iter().zip(&self.field_of);
            entries.map(|(a, f)| a * &over[*f]).collect()
        };
        Tableau {
            a: self.a.iter().map(scaled).collect(),
            b: scaled(&self.b),
            embedded: self.embedded.as_ref().map(scaled),
            ..self.clone()
        }
    }

    /// Some of the stages, in their order.
    fn kept(&self, stages: &[usize]) -> Tableau {
        let row = |r: &Vec<Exact>| stages.iter().map(|j| r[*j].clone()).collect();
        Tableau {
            fields: self.fields.clone(),
            field_of: stages.iter().map(|j| self.field_of[*j]).collect(),
            a: stages.iter().map(|i| row(&self.a[*i])).collect(),
            b: row(&self.b),
            embedded: self.embedded.as_ref().map(row),
        }
    }

    /// The method without the stages on which the result does not depend, and with one stage for those of a field that are alike; no
    /// embedded partner (Dahlquist & Jeltsch 1979; Hundsdorfer & Spijker 1981: irreducible).
    pub fn reduced(&self) -> Tableau {
        let mut t = self.without_idle();
        loop {
            let class = t.classes();
            let first = |(i, c): (usize, &usize)| (!class[..i].contains(c)).then_some(i);
            let firsts: Vec<usize> = class.iter().enumerate().filter_map(first).collect();
            if firsts.len() == t.stages() {
                return t;
            }
            let merged = Tableau {
                fields: t.fields.clone(),
                field_of: firsts.iter().map(|i| t.field_of[*i]).collect(),
                a: firsts.iter().map(|i| summed(&t.a[*i], &class)).collect(),
                b: summed(&t.b, &class),
                embedded: None,
            };
            t = merged.without_idle();
        }
    }

    /// Without the stages on which the result does not depend.
    fn without_idle(&self) -> Tableau {
        let mut needed: Vec<bool> = self.b.iter().map(|b| !b.is_zero()).collect();
        let mut open: Vec<usize> = (0..self.stages()).filter(|j| needed[*j]).collect();
        while let Some(i) = open.pop() {
            for (j, a) in self.a[i].iter().enumerate() {
                if !a.is_zero() && !std::mem::replace(&mut needed[j], true) {
                    open.push(j);
                }
            }
        }
        let rest: Vec<usize> = (0..self.stages()).filter(|j| needed[*j]).collect();
        let mut t = self.kept(&rest);
        t.embedded = None;
        t
    }

    /// The method of one field alone: the others are 0.
    pub fn of_field(&self, field: usize) -> Tableau {
        let own: Vec<usize> = (0..self.stages())
            .filter(|j| self.field_of[*j] == field)
            .collect();
        Tableau {
            fields: vec![self.fields[field].clone()],
            field_of: vec![0; own.len()],
            ..self.kept(&own)
        }
    }

    /// The method with its fixed-point iterations carried to the end. `written` says of each stage where it is written: stages of one
    /// field, written once, whose points are `y, y + c h F(y), y + c h F(y + …)`, and which serve the next one alone, converge to a stage `Y = y + c h F(Y)`. `None`: there
    /// are no such stages.
    pub fn converged<W: PartialEq>(&self, written: &[W]) -> Option<Tableau> {
        let mut t = self.clone();
        let mut found = false;
        let mut at = 0;
        while at < t.stages() {
            let base = t.a[at].clone();
            // c of the next stage, if it is the base and one evaluation of the last one.
            let next = |t: &Tableau, last: usize| {
                let same = written.get(last + 1)? == written.get(last)?
                    && t.field_of.get(last + 1)? == t.field_of.get(last)?;
                let others = |j: usize| j == last || t.a[last + 1][j] == base[j];
                let c = &t.a[last + 1][last] - &base[last];
                (same && !c.is_zero() && (0..t.stages()).all(others)).then_some(c)
            };
            let mut last = at;
            let mut factor: Option<Exact> = None;
            while let Some(c) = next(&t, last) {
                if factor.as_ref().is_some_and(|f| *f != c) {
                    break;
                }
                factor = Some(c);
                last += 1;
            }
            // An iterate serves the next one alone; the steps of a flow cut into pieces serve all later ones.
            let elsewhere = |i: usize, j: usize| i != j + 1 && t.a[i][j] != base[j];
            let serves =
                (at..last).any(|j| !t.b[j].is_zero() || (at..t.stages()).any(|i| elsewhere(i, j)));
            if let Some(c) = factor.filter(|_| !serves) {
                found = true;
                t.a[last] = base;
                t.a[last][last] = &t.a[last][last] + &c;
            }
            at = last + 1;
        }
        found.then(|| t.reduced())
    }
}
