//! Stiff orders of exponential Runge–Kutta methods: error bounds that hold for all L that generate decay, however fast.
//!
//! The conditions up to order 4 of Hochbruck & Ostermann 2005 (SIAM J. Numer. Anal. 43, 1069, Table 2; Acta Numerica 2010, Table 2.2). With
//! `ψₚ(z) = φₚ(z) − Σ bᵢ(z) cᵢᵖ⁻¹/(p−1)!` and `ψₚ,ᵢ(z) = cᵢᵖ φₚ(cᵢz) − Σⱼ aᵢⱼ(z) cⱼᵖ⁻¹/(p−1)!` they are products of functions of hL with arbitrary
//! operators between them, so each function has a variable of its own. A method has order p where the conditions up to p − 1 hold and
//! those of order p hold weakly: with bᵢ(0) in the place of bᵢ(z), and ψₚ(0) = 0.

use super::method::Exponential;
use super::sums::{ExpSum, over_factorial, vanishes};
use odec_exact::Exact;

/// The highest order whose conditions are known here.
pub const MAX_STIFF: usize = 4;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StiffOrder {
    pub order: usize,
    /// Whether the conditions of this order hold for all z, not weakly alone.
    pub strong: bool,
    /// The first condition that does not hold for all z; `None`: all hold up to order 4.
    pub missed: Option<&'static str>,
}

/// A condition: its text, and products whose sum must vanish.
type Condition = (&'static str, Vec<Vec<ExpSum>>);

impl Exponential {
    fn power(&self, i: usize, n: usize) -> Exact {
        (0..n).fold(Exact::one(), |p, _| &p * &self.c[i])
    }

    /// `head − Σ wᵢ(z) cᵢᵖ⁻¹/(p−1)!`.
    fn defect(&self, head: ExpSum, weights: &[ExpSum], p: usize) -> ExpSum {
        let less = -&over_factorial(p as u32 - 1);
        let each = weights.iter().enumerate();
        each.fold(head, |sum, (i, w)| {
            sum.plus(&(&less * &self.power(i, p - 1)), w)
        })
    }

    /// ψₚ,ᵢ.
    fn of_stage(&self, p: usize, i: usize) -> ExpSum {
        let head = ExpSum::phi(p as u32, &self.c[i]).scaled(&self.power(i, p));
        self.defect(head, &self.a[i], p)
    }

    /// The conditions of an order.
    fn conditions(&self, p: usize, weak: bool) -> Vec<Condition> {
        let frozen = |f: &ExpSum| if weak { f.frozen() } else { f.clone() };
        let b: Vec<ExpSum> = self.b.iter().map(frozen).collect();
        let stages = 0..self.stages();
        let own = self.defect(ExpSum::phi(p as u32, &Exact::one()), &self.b, p);
        let own = vec![vec![frozen(&own)]];
        let before = |q: usize| -> Vec<Vec<ExpSum>> {
            let each = stages.clone();
            each.map(|i| vec![b[i].clone(), self.of_stage(q, i)])
                .collect()
        };
        match p {
            1 => vec![("Σ bᵢ(z) = φ₁(z)", own)],
            2 => {
                let rows =
                    stages.map(|i| ("Σⱼ aᵢⱼ(z) = cᵢ φ₁(cᵢz)", vec![vec![self.of_stage(1, i)]]));
                [("Σ bᵢ(z) cᵢ = φ₂(z)", own)]
                    .into_iter()
                    .chain(rows)
                    .collect()
            }
            3 => vec![
                ("Σ bᵢ(z) cᵢ²/2 = φ₃(z)", own),
                ("Σ bᵢ(z) J ψ₂,ᵢ(z) = 0", before(2)),
            ],
            _ => {
                let twice = stages.clone().flat_map(|i| {
                    let b = &b;
                    (0..self.stages())
                        .map(move |j| vec![b[i].clone(), self.a[i][j].clone(), self.of_stage(2, j)])
                });
                let weighed = stages
                    .clone()
                    .map(|i| vec![b[i].scaled(&self.c[i]), self.of_stage(2, i)]);
                vec![
                    ("Σ bᵢ(z) cᵢ³/6 = φ₄(z)", own),
                    ("Σ bᵢ(z) J ψ₃,ᵢ(z) = 0", before(3)),
                    ("Σ bᵢ(z) J Σⱼ aᵢⱼ(z) J ψ₂,ⱼ(z) = 0", twice.collect()),
                    ("Σ bᵢ(z) cᵢ K ψ₂,ᵢ(z) = 0", weighed.collect()),
                ]
            }
        }
    }

    /// The first condition of an order that does not hold.
    fn missed(&self, p: usize, weak: bool) -> Option<Option<&'static str>> {
        for (text, products) in self.conditions(p, weak) {
            if !vanishes(&products)? {
                return Some(Some(text));
            }
        }
        Some(None)
    }
}

/// The stiff order. `None`: its coefficients are too long.
pub fn stiff_order(m: &Exponential) -> Option<StiffOrder> {
    for p in 1..=MAX_STIFF {
        let Some(missed) = m.missed(p, false)? else {
            continue;
        };
        let weakly = m.missed(p, true)?.is_none();
        return Some(StiffOrder {
            order: if weakly { p } else { p - 1 },
            strong: !weakly,
            missed: Some(missed),
        });
    }
    Some(StiffOrder {
        order: MAX_STIFF,
        strong: true,
        missed: None,
    })
}
