//! Families with nonlinear conditions: solved by Newton's method, first in floats and then to many digits.
//!
//! Low storage in Williamson's form (1980), q = Aᵢ q + h F(y), y = y + Bᵢ q, and explicit methods with so many zeros that nodes are determined, too. A solution that fractions
//! satisfy exactly is found by rounding; any other is given to a residual that is proved.

use super::explicit::{Coefficients, Explicit, stability};
use super::round::between;
use super::scalar::{Scalar, pivots, solve};
use super::search::spread;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::One;
use odec_exact::Exact;

/// Steps of Newton's method from a start, and from a neighbour.
const FAR_STEPS: usize = 120;
const NEAR_STEPS: usize = 12;
/// Conditions are solved in floats when none is off by more.
const SOLVED: f64 = 1e-13;
/// Points further away than this are no proposals.
const BEYOND: f64 = 30.0;
/// Solutions nearer to each other are one.
const SAME: f64 = 1e-3;
/// Steps with exact residuals, each of which gains some ten digits.
const EXACT_STEPS: usize = 8;
/// Binary places of numbers while they are refined, decimal places that are kept of them, and what the conditions are then off by at most.
const PLACES: usize = 160;
const KEPT: i32 = 27;
const RESIDUAL: i32 = 24;
/// Fractions with longer denominators are not guesses; decimal places to which floats are compared with them.
const SHORT: u64 = 16;
const GUESS: i32 = 11;

/// What the variables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A₂ … Aₛ, then B₁ … Bₛ.
    TwoRegisters,
    /// Entries below the diagonal by rows, then weights; some are 0.
    Entries,
}

/// Methods of given stages that satisfy the conditions of an order.
#[derive(Clone, Debug)]
pub struct Curved {
    pub form: Form,
    pub all: Explicit,
}

/// Free directions at a solution: orthonormal vectors.
pub type Directions = Vec<Vec<f64>>;

/// The method of A₂ … Aₛ and B₁ … Bₛ.
pub fn two_registers<N: Scalar>(a: &[N], b: &[N]) -> Coefficients<N> {
    let s = b.len();
    let zero = || vec![N::ratio(0, 1); s];
    let (mut y, mut q) = (zero(), zero());
    let mut rows = Vec::new();
    for i in 0..s {
        rows.push(y.clone());
        if i > 0 {
            q.iter_mut().for_each(|q| *q = q.times(&a[i - 1]));
        }
        q[i] = q[i].plus(&N::ratio(1, 1));
        for (y, q) in y.iter_mut().zip(&q) {
            *y = y.plus(&q.times(&b[i]));
        }
    }
    let node = |r: &Vec<N>| r.iter().fold(N::ratio(0, 1), |s, a| s.plus(a));
    Coefficients {
        c: rows.iter().map(node).collect(),
        a: rows,
        b: y,
    }
}

impl Curved {
    pub fn two_registers(stages: usize, order: usize) -> Curved {
        Curved {
            form: Form::TwoRegisters,
            all: Explicit::new(stages, order, &[]),
        }
    }

    pub fn with_zeros(all: &Explicit) -> Curved {
        Curved {
            form: Form::Entries,
            all: all.clone(),
        }
    }

    /// Entries that are not prescribed, by row and column.
    fn entries(&self) -> Vec<(usize, usize)> {
        let s = self.all.stages;
        let all = (1..=s).flat_map(|i| (0..i.min(s)).map(move |j| (i, j)));
        all.filter(|at| !self.all.zeros.contains(at)).collect()
    }

    pub fn variables(&self) -> usize {
        match self.form {
            Form::TwoRegisters => 2 * self.all.stages - 1,
            Form::Entries => self.entries().len(),
        }
    }

    pub fn method<N: Scalar>(&self, x: &[N]) -> Coefficients<N> {
        let s = self.all.stages;
        if self.form == Form::TwoRegisters {
            return two_registers(&x[..s - 1], &x[s - 1..]);
        }
        let mut rows = vec![vec![N::ratio(0, 1); s]; s + 1];
        for ((i, j), x) in self.entries().into_iter().zip(x) {
            rows[i][j] = x.clone();
        }
        let b = rows.pop().unwrap_or_default();
        let node = |r: &Vec<N>| r.iter().fold(N::ratio(0, 1), |s, a| s.plus(a));
        Coefficients {
            c: rows.iter().map(node).collect(),
            a: rows,
            b,
        }
    }

    /// By how much each condition is missed, those on the stability polynomial included.
    fn missed<N: Scalar>(&self, x: &[N]) -> Vec<N> {
        let m = self.method(x);
        let mut missed = self.all.conditions(&m);
        if !self.all.polynomial.is_empty() {
            let have = stability(&m).split_off(self.all.order + 1);
            let wanted = self.all.polynomial.iter();
            missed.extend(have.iter().zip(wanted).map(|(c, w)| c.minus(&N::exact(w))));
        }
        missed
    }

    /// The same family with a given stability polynomial.
    pub fn with_polynomial(&self, coefficients: &[Exact]) -> Curved {
        Curved {
            form: self.form.clone(),
            all: self.all.with_polynomial(coefficients),
        }
    }

    /// Solutions that starts lead to, each once.
    pub fn solutions(&self, starts: usize) -> Vec<Vec<f64>> {
        let mut all: Vec<Vec<f64>> = Vec::new();
        for x in (0..starts).filter_map(|n| self.solution(&self.start(n))) {
            let near = |other: &&Vec<f64>| x.iter().zip(*other).all(|(a, b)| (a - b).abs() < SAME);
            if all.iter().find(near).is_none() {
                all.push(x);
            }
        }
        all
    }

    /// Nothing special: steps and weights that are positive, registers that keep a part of what they had.
    pub fn start(&self, n: usize) -> Vec<f64> {
        let s = self.all.stages;
        let unit = spread(n, self.variables());
        match self.form {
            Form::TwoRegisters => {
                let (a, b) = unit.split_at(s - 1);
                let a = a.iter().map(|u| -2.0 * u);
                a.chain(b.iter().map(|u| 0.05 + 0.9 * u)).collect()
            }
            Form::Entries => {
                let scale = |(u, (i, _)): (&f64, (usize, usize))| (2.0 * u - 0.4) / i as f64 * 1.5;
                unit.iter().zip(self.entries()).map(scale).collect()
            }
        }
    }

    /// Derivatives of the conditions by central differences: rows of conditions.
    fn slopes(&self, x: &[f64]) -> Vec<Vec<f64>> {
        const D: f64 = 1e-6;
        let moved = |k: usize, by: f64| {
            let mut x = x.to_vec();
            x[k] += by;
            self.missed(&x)
        };
        let columns: Vec<(Vec<f64>, Vec<f64>)> =
            (0..x.len()).map(|k| (moved(k, D), moved(k, -D))).collect();
        let row = |i: usize| {
            let entry = |(more, less): &(Vec<f64>, Vec<f64>)| (more[i] - less[i]) / (2.0 * D);
            columns.iter().map(entry).collect()
        };
        (0..self.missed(x).len()).map(row).collect()
    }

    /// The solution that a start leads to, by steps of least length (Levenberg 1944, Marquardt 1963).
    pub fn solution(&self, start: &[f64]) -> Option<Vec<f64>> {
        self.solved(start, FAR_STEPS)
    }

    fn solved(&self, start: &[f64], steps: usize) -> Option<Vec<f64>> {
        let mut x = start.to_vec();
        let mut missed = self.missed(&x);
        let mut damping = 1.0;
        for _ in 0..steps {
            if size(&missed) < SOLVED {
                break;
            }
            let slopes = self.slopes(&x);
            let step = least(&slopes, &missed, damping * size(&missed).min(1.0).powi(2))?;
            let next: Vec<f64> = x.iter().zip(&step).map(|(x, d)| x - d).collect();
            let after = self.missed(&next);
            match size(&after) < size(&missed) {
                true => (x, missed, damping) = (next, after, damping / 4.0),
                false if size(&missed) < 1e3 * SOLVED => break,
                false => damping = (damping * 8.0).max(1e-6),
            }
        }
        let good = size(&missed) < 1e3 * SOLVED && x.iter().all(|x| x.abs() < BEYOND);
        good.then_some(x)
    }

    /// The solution near a point of the tangent space.
    pub fn moved(&self, x: &[f64], directions: &Directions, by: &[f64]) -> Option<Vec<f64>> {
        let mut start = x.to_vec();
        for (d, by) in directions.iter().zip(by) {
            start.iter_mut().zip(d).for_each(|(x, d)| *x += by * d);
        }
        self.solved(&start, NEAR_STEPS)
    }

    /// Directions in which no condition changes.
    pub fn directions(&self, x: &[f64]) -> Option<Directions> {
        let slopes = self.slopes(x);
        let n = x.len();
        let free = n.checked_sub(slopes.len())?;
        let along = |k: usize| -> Option<Vec<f64>> {
            let own: Vec<f64> = slopes.iter().map(|r| r[k]).collect();
            let step = least(&slopes, &own, 0.0)?;
            let entry = |(j, d): (usize, f64)| f64::from(u8::from(j == k)) - d;
            Some(step.into_iter().enumerate().map(entry).collect())
        };
        let mut open: Vec<Vec<f64>> = (0..n).map(along).collect::<Option<_>>()?;
        let mut found = Directions::new();
        while found.len() < free {
            let longest = open
                .iter()
                .max_by(|a, b| dot(a, a).total_cmp(&dot(b, b)))?
                .clone();
            let length = dot(&longest, &longest).sqrt();
            if length < 1e-6 {
                return None;
            }
            let unit: Vec<f64> = longest.iter().map(|x| x / length).collect();
            for v in &mut open {
                let along = dot(v, &unit);
                v.iter_mut().zip(&unit).for_each(|(v, u)| *v -= along * u);
            }
            found.push(unit);
        }
        Some(found)
    }

    /// Variables that may be fractions: the conditions determine the others near the point.
    pub fn free(&self, x: &[f64]) -> Option<Vec<usize>> {
        let solved = pivots(self.slopes(x))?;
        Some((0..x.len()).filter(|v| !solved.contains(v)).collect())
    }

    /// All variables where some are given: fractions that satisfy the conditions, or ones that miss them by no more than the number with them,
    /// which are kept to some places more.
    pub fn exact(
        &self,
        x: &[f64],
        free: &[usize],
        given: &[Exact],
        more: i32,
    ) -> Option<(Vec<Exact>, Option<Exact>)> {
        let floats = self.near(x, free, given)?;
        let own: Vec<usize> = (0..x.len()).filter(|v| !free.contains(v)).collect();
        let slopes = self.slopes(&floats);
        let mut all: Vec<Exact> = floats
            .iter()
            .map(|x| Exact::float(*x))
            .collect::<Option<_>>()?;
        for (v, x) in free.iter().zip(given) {
            all[*v] = x.clone();
        }
        for _ in 0..EXACT_STEPS {
            let missed = self.missed(&all);
            let of = |(row, m): (&Vec<f64>, &Exact)| {
                let mut row: Vec<f64> = own.iter().map(|v| row[*v]).collect();
                row.push(m.to_f64());
                row
            };
            let step = solve(slopes.iter().zip(&missed).map(of).collect::<Vec<_>>())?;
            for (v, d) in own.iter().zip(step) {
                all[*v] = cut(&(&all[*v] - &Exact::float(d)?))?;
            }
        }
        let simple: Option<Vec<Exact>> = all.iter().map(|x| short(x, 2 * KEPT / 3)).collect();
        if let Some(simple) = simple.filter(|x| self.missed(x).iter().all(Exact::is_zero)) {
            return Some((simple, None));
        }
        for v in &own {
            all[*v] = close(&all[*v], KEPT + more)?;
        }
        let residual = Exact::from(BigRational::new(
            BigInt::one(),
            BigInt::from(10).pow(RESIDUAL as u32),
        ));
        let good = |m: &Exact| !(&residual - &magnitude(m)).is_negative();
        (self.missed(&all).iter().all(good)).then_some((all, Some(residual)))
    }

    /// Short fractions that satisfy the conditions, with some variables given, if there are such.
    pub fn short(&self, x: &[f64], free: &[usize], given: &[Exact]) -> Option<Vec<Exact>> {
        let all = self.near(x, free, given)?;
        let guess = |x: &f64| short(&Exact::float(*x)?, GUESS);
        let all: Option<Vec<Exact>> = all.iter().map(guess).collect();
        all.filter(|x| self.missed(x).iter().all(Exact::is_zero))
    }

    /// The solution in floats with some variables given.
    fn near(&self, x: &[f64], free: &[usize], given: &[Exact]) -> Option<Vec<f64>> {
        let mut x = x.to_vec();
        for (v, g) in free.iter().zip(given) {
            x[*v] = g.to_f64();
        }
        let own: Vec<usize> = (0..x.len()).filter(|v| !free.contains(v)).collect();
        for _ in 0..2 * NEAR_STEPS {
            let missed = self.missed(&x);
            if size(&missed) < SOLVED {
                break;
            }
            let of = |(row, m): (Vec<f64>, &f64)| {
                let mut row: Vec<f64> = own.iter().map(|v| row[*v]).collect();
                row.push(*m);
                row
            };
            let step = solve(
                self.slopes(&x)
                    .into_iter()
                    .zip(&missed)
                    .map(of)
                    .collect::<Vec<_>>(),
            )?;
            for (v, d) in own.iter().zip(step) {
                x[*v] -= d;
            }
        }
        (size(&self.missed(&x)) < 1e3 * SOLVED).then_some(x)
    }
}

fn magnitude(x: &Exact) -> Exact {
    if x.is_negative() { -x } else { x.clone() }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn size(x: &[f64]) -> f64 {
    let most = x.iter().fold(0.0, |most, x| f64::max(most, x.abs()));
    match x.iter().all(|x| x.is_finite()) {
        true => most,
        false => f64::INFINITY,
    }
}

/// The shortest step that undoes what is missed: Jᵀ (J Jᵀ + μ)⁻¹ m.
fn least(slopes: &[Vec<f64>], missed: &[f64], damping: f64) -> Option<Vec<f64>> {
    let equation = |(i, row): (usize, &Vec<f64>)| {
        let entry =
            |(j, other): (usize, &Vec<f64>)| dot(row, other) + if i == j { damping } else { 0.0 };
        let mut all: Vec<f64> = slopes.iter().enumerate().map(entry).collect();
        all.push(missed[i]);
        all
    };
    let by = solve(slopes.iter().enumerate().map(equation).collect::<Vec<_>>())?;
    let n = slopes.first()?.len();
    let entry = |k: usize| slopes.iter().zip(&by).map(|(r, y)| r[k] * y).sum();
    Some((0..n).map(entry).collect())
}

/// A number with so many binary places.
fn cut(x: &Exact) -> Option<Exact> {
    let x = x.as_rational()?;
    let scale = BigRational::from(BigInt::one() << PLACES);
    Some(Exact::from((x * &scale).round() / scale))
}

/// The fraction with the smallest denominator that agrees to so many decimal places.
fn close(x: &Exact, places: i32) -> Option<Exact> {
    let x = x.as_rational()?;
    let by = BigRational::new(BigInt::one(), BigInt::from(10).pow(places as u32));
    Some(Exact::from(between(&(x - &by), &(x + &by))))
}

/// A guess of what a number is, if a short fraction agrees to so many decimal places.
fn short(x: &Exact, places: i32) -> Option<Exact> {
    let guess = close(x, places)?;
    let bits = guess.as_rational()?.denom().bits();
    (bits <= SHORT).then_some(guess)
}

/// Fractions near a number with denominators up to a bound, nearest first.
pub fn fractions(x: f64, reach: f64, most: i64) -> Vec<Exact> {
    let mut all: Vec<(i64, i64)> = Vec::new();
    for d in 1..=most {
        let (lo, hi) = ((x - reach) * d as f64, (x + reach) * d as f64);
        let numerators = lo.ceil() as i64..=hi.floor() as i64;
        all.extend(
            numerators
                .filter(|n| num_integer::gcd(*n, d) == 1)
                .map(|n| (n, d)),
        );
    }
    all.sort_by(|a, b| {
        let away = |(n, d): &(i64, i64)| (*n as f64 / *d as f64 - x).abs();
        away(a).total_cmp(&away(b))
    });
    all.into_iter().map(|(n, d)| Exact::ratio(n, d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Williamson's third-order method (1980).
    #[test]
    fn registers_are_a_tableau() {
        let q = Exact::ratio;
        let m = two_registers(&[q(-5, 9), q(-153, 128)], &[q(1, 3), q(15, 16), q(8, 15)]);
        assert_eq!(m.a[2][..2], [q(-3, 16), q(15, 16)]);
        assert_eq!(m.b, [q(1, 6), q(3, 10), q(8, 15)]);
        let family = Curved::two_registers(3, 3);
        assert!(family.all.conditions(&m).iter().all(Exact::is_zero));
    }
}
