//! The goal of a design: in floats for the search, certified for the report.

use super::explicit::{Coefficients, stability};
use crate::Tableau;
use crate::poly::Extent;
use crate::ssp::{Ssp, ssp};
use crate::stability::Stability;
use odec_exact::Exact;

/// Points of an axis at which the stability polynomial is held to its bound.
const POINTS: usize = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The least √Σ((Φ − 1/γ)/σ)² over the trees of the next order (Prince & Dormand 1981).
    Error,
    /// The least Σ 2^leaves |Φ − 1/γ|/σ: Lotkin's bound of the error (Lotkin 1951; Ralston 1962).
    ErrorBound,
    /// The largest coefficient of strong stability preservation.
    Ssp,
    /// The longest stable part of the negative real axis.
    RealAxis,
    /// The longest stable part of the imaginary axis.
    ImaginaryAxis,
    /// The largest region of stability.
    Area,
}

/// Bounds of a goal's value; `squared`: of its square.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    pub lo: Exact,
    pub hi: Exact,
    pub squared: bool,
}

impl Level {
    pub fn exactly(x: Exact) -> Level {
        Level {
            lo: x.clone(),
            hi: x,
            squared: false,
        }
    }
    /// The lower bound.
    pub fn float(&self) -> f64 {
        match self.squared {
            true => self.lo.to_f64().sqrt(),
            false => self.lo.to_f64(),
        }
    }
}

impl Goal {
    pub const ALL: [Goal; 6] = [
        Goal::Error,
        Goal::ErrorBound,
        Goal::Ssp,
        Goal::RealAxis,
        Goal::ImaginaryAxis,
        Goal::Area,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Goal::Error => "error",
            Goal::ErrorBound => "error_bound",
            Goal::Ssp => "ssp",
            Goal::RealAxis => "real_axis",
            Goal::ImaginaryAxis => "imaginary_axis",
            Goal::Area => "area",
        }
    }

    /// Whether less is better.
    pub fn is_error(self) -> bool {
        matches!(self, Goal::Error | Goal::ErrorBound)
    }

    /// Whether it depends on the stability polynomial alone.
    pub fn is_linear(self) -> bool {
        matches!(self, Goal::RealAxis | Goal::ImaginaryAxis | Goal::Area)
    }

    /// Numbers none of which is negative where a method of some order has at least a level.
    pub fn slack(self, m: &Coefficients<f64>, order: usize, level: f64) -> Vec<f64> {
        match self {
            Goal::Ssp => monotone(m, level),
            _ => self.bounded(&stability(m), order, level),
        }
    }

    /// The same, of a stability polynomial.
    pub fn bounded(self, polynomial: &[f64], order: usize, level: f64) -> Vec<f64> {
        let at = (0..=POINTS).map(|k| {
            // Closer at both ends.
            (1.0 - (std::f64::consts::PI * k as f64 / POINTS as f64).cos()) / 2.0
        });
        match self {
            Goal::RealAxis => at
                .flat_map(|t| on_real_axis(polynomial, level, t))
                .collect(),
            Goal::ImaginaryAxis => {
                let slack = on_imaginary_axis(polynomial, order, level);
                at.map(|t| horner(&slack, t)).collect()
            }
            Goal::Area => vec![area(polynomial) - level],
            _ => Vec::new(),
        }
    }

    /// The value of a method, in exact arithmetic; `None`: it is not decided, or not known exactly.
    pub fn certified(self, t: &Tableau) -> Option<Level> {
        match self {
            Goal::Ssp => match ssp(t)? {
                Ssp::None => Some(Level::exactly(Exact::zero())),
                Ssp::Exactly(c) => Some(Level::exactly(c)),
                Ssp::Between(e) => Some(Level {
                    lo: e.lo,
                    hi: e.hi,
                    squared: false,
                }),
                Ssp::Unbounded => None,
            },
            Goal::RealAxis | Goal::ImaginaryAxis => self.of_stability(&Stability::new(t)?),
            Goal::Error | Goal::ErrorBound | Goal::Area => None,
        }
    }

    /// The same, of what is stable.
    pub fn of_stability(self, s: &Stability) -> Option<Level> {
        let (extent, squared) = match self {
            Goal::RealAxis => (s.real.clone()?, false),
            Goal::ImaginaryAxis => (s.imaginary_squared.clone()?, true),
            _ => return None,
        };
        match extent {
            Extent::Zero => Some(Level::exactly(Exact::zero())),
            Extent::Until { lo, hi } => Some(Level { lo, hi, squared }),
            Extent::Infinite => None,
        }
    }
}

fn horner(p: &[f64], x: f64) -> f64 {
    p.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// Entries of rK(I + rK)⁻¹ below the diagonal, and what its rows leave of 1 (Kraaijevanger 1991).
fn monotone(m: &Coefficients<f64>, r: f64) -> Vec<f64> {
    let s = m.b.len();
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut slack = Vec::new();
    for i in 0..=s {
        let own = if i < s { &m.a[i] } else { &m.b };
        let mut row: Vec<f64> = own.iter().map(|a| r * a).collect();
        for (j, before) in rows.iter().enumerate().take(i) {
            for (x, y) in row.iter_mut().zip(before) {
                *x -= r * own[j] * y;
            }
        }
        slack.extend_from_slice(&row[..i.min(s)]);
        slack.push(1.0 - row.iter().sum::<f64>());
        rows.push(row);
    }
    slack
}

/// (1 − R(−x))/t and 1 + R(−x) at x = t·level.
fn on_real_axis(polynomial: &[f64], level: f64, t: f64) -> [f64; 2] {
    let scaled = polynomial.iter().enumerate();
    let scaled: Vec<f64> = scaled.map(|(k, c)| c * (-level).powi(k as i32)).collect();
    [-horner(&scaled[1..], t), 1.0 + horner(&scaled, t)]
}

/// (1 − |R(iy)|²)/tᵠ by powers of t, y² = t·level², without the powers that the order makes 0.
fn on_imaginary_axis(polynomial: &[f64], order: usize, level: f64) -> Vec<f64> {
    let n = polynomial.len();
    let mut squares = vec![0.0; n];
    for (i, a) in polynomial.iter().enumerate() {
        for (j, b) in polynomial
            .iter()
            .enumerate()
            .filter(|(j, _)| (i + j) % 2 == 0)
        {
            // iⁱ times the conjugate of iʲ.
            let sign = if (i + 3 * j) % 4 == 0 { 1.0 } else { -1.0 };
            squares[(i + j) / 2] -= sign * a * b;
        }
    }
    let scaled = squares.iter().enumerate().skip((order + 2) / 2);
    scaled.map(|(k, c)| c * level.powi(2 * k as i32)).collect()
}

/// The area where |R| ≤ 1, by cells that are cut along straight lines.
pub fn area(polynomial: &[f64]) -> f64 {
    let reach = 1.1 * polynomial.len() as f64 * 1.6;
    let cells = 120;
    let h = 2.0 * reach / cells as f64;
    let mut sum = 0.0;
    for i in 0..cells {
        for j in 0..cells / 2 {
            let (x, y) = (-1.7 * reach + (i as f64 + 0.5) * h, (j as f64 + 0.5) * h);
            let (mut re, mut im, mut dre, mut dim) = (0.0, 0.0, 0.0, 0.0);
            for c in polynomial.iter().rev() {
                (dre, dim) = (dre * x - dim * y + re, dre * y + dim * x + im);
                (re, im) = (re * x - im * y + c, re * y + im * x);
            }
            let (size, slope) = (f64::hypot(re, im), f64::hypot(dre, dim).max(1e-9));
            let share = 0.5 + (1.0 - size) / (slope * h);
            sum += share.clamp(0.0, 1.0);
        }
    }
    2.0 * sum * h * h
}
