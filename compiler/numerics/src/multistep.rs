//! Linear multistep methods `Σ αᵢ x[k+1−i] = h Σ βᵢ f[k+1−i]`: order, error constant, zero-stability, A-stability
//! (Hairer, Nørsett & Wanner 1993, III.2–3; Hairer & Wanner 1996, V.1).

use crate::angle::{self, Angle};
use crate::descartes::is_nonnegative;
use crate::glm::axis;
use crate::glm::characteristic::Characteristic;
use crate::poly::{Extent, Poly, chebyshev, inverse};
use crate::roots::squarefree;
use crate::ssp::Ssp;
use crate::unit_disc::root_condition;
use odec_exact::Exact;

/// Coefficients, newest first, equally long.
#[derive(Clone, Debug, PartialEq)]
pub struct Multistep {
    pub alpha: Vec<Exact>,
    pub beta: Vec<Exact>,
}

/// What is true of a multistep method; `None`: not decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub steps: usize,
    pub explicit: bool,
    pub order: usize,
    /// `C = C_{p+1}/σ(1)`.
    pub error_constant: Option<Exact>,
    /// All roots of ρ lie in the unit disc, those on the circle are simple.
    pub zero_stable: Option<bool>,
    /// The same, and 1 is the only root on the circle.
    pub strongly_stable: Option<bool>,
    /// Stable for all `x' = iωx`.
    pub i_stable: Option<bool>,
    pub a_stable: Option<bool>,
    /// The largest α for A(α)-stability, enclosed; `None` for methods that are not stable near infinity.
    pub angle: Option<Angle>,
    /// How far all roots of ρ − zσ lie in the closed unit disc on the negative real axis.
    pub real: Option<Extent>,
    /// The same on the imaginary axis, as y².
    pub imaginary_squared: Option<Extent>,
}

/// Highest order that is looked for.
const MAX_ORDER: usize = 40;

impl Multistep {
    /// Σ cᵢ ζᵏ⁻ⁱ.
    fn polynomial(row: &[Exact]) -> Poly {
        Poly::new(row.iter().rev().cloned().collect())
    }
    pub fn rho(&self) -> Poly {
        Self::polynomial(&self.alpha)
    }
    pub fn sigma(&self) -> Poly {
        Self::polynomial(&self.beta)
    }

    /// `C_q = Σ αᵢ tᵢ^q/q! − Σ βᵢ tᵢ^(q−1)/(q−1)!` with `tᵢ = k − i`.
    pub fn constant(&self, q: usize) -> Exact {
        let k = self.alpha.len() - 1;
        let power = |i: usize, n: usize| {
            let t = Exact::int((k - i) as i64);
            let product = (1..=n).map(|m| &t * &Exact::ratio(1, m as i64));
            product.fold(Exact::one(), |p, f| &p * &f)
        };
        let left: Exact = (0..=k).map(|i| &self.alpha[i] * &power(i, q)).sum();
        match q {
            0 => left,
            _ => {
                let right: Exact = (0..=k).map(|i| &self.beta[i] * &power(i, q - 1)).sum();
                &left - &right
            }
        }
    }

    /// Whether the method taken with −h goes back: `ζᵏρ(1/ζ) = −ρ(ζ)` and `ζᵏσ(1/ζ) = σ(ζ)`, or both with the other sign, without what ρ
    /// and σ have in common (Hairer, Lubich & Wanner 2006, XV.1).
    pub fn is_symmetric(&self) -> Option<bool> {
        let (rho, sigma) = (self.rho(), self.sigma());
        let common = rho.gcd(&sigma)?;
        let (rho, sigma) = (rho.divided(&common)?.0, sigma.divided(&common)?.0);
        let steps = rho.degree().max(sigma.degree());
        let reversed = |p: &Poly| Poly::new((0..=steps).rev().map(|i| p.coefficient(i)).collect());
        let minus = |p: &Poly| p.scaled(&Exact::int(-1));
        let (back, mirrored) = (reversed(&rho), reversed(&sigma));
        let odd = back == minus(&rho) && mirrored == sigma;
        Some(odd || back == rho && mirrored == minus(&sigma))
    }

    /// The coefficient of strong stability preservation: the least −αᵢ/βᵢ of earlier steps, where none of −αᵢ and βᵢ is negative
    /// (Gottlieb, Ketcheson & Shu 2011, 8.1).
    pub fn ssp(&self) -> Option<Ssp> {
        let over = inverse(&self.alpha[0])?;
        let old = self.alpha.iter().skip(1).map(|a| -&(a * &over));
        let slopes: Vec<Exact> = self.beta.iter().map(|b| b * &over).collect();
        let mut least: Option<Exact> = None;
        if slopes[0].is_negative() {
            return Some(Ssp::None);
        }
        for (a, b) in old.zip(&slopes[1..]) {
            if a.is_negative() || b.is_negative() {
                return Some(Ssp::None);
            }
            if !b.is_zero() {
                let quotient = &a * &inverse(b)?;
                least = Some(least.map_or(quotient.clone(), |l| l.min(quotient)));
            }
        }
        Some(match least {
            None => Ssp::Unbounded,
            Some(c) if c.is_zero() => Ssp::None,
            Some(c) => Ssp::Exactly(c),
        })
    }

    /// A-stable, and all roots of ρ − zσ go to 0 as z goes to −∞.
    pub fn l_stable(&self) -> Option<bool> {
        let damped = Characteristic::of_multistep(&self.alpha, &self.beta)?.is_damped();
        Some(damped && self.facts().a_stable?)
    }

    /// All roots of ρ lie in the unit disc, those on the circle are simple.
    pub fn zero_stable(&self) -> Option<bool> {
        Some(root_condition(&self.rho())?.0)
    }

    pub fn facts(&self) -> Facts {
        let holds = |q: &usize| self.constant(*q).is_zero();
        let order = (0..=MAX_ORDER).take_while(holds).count().saturating_sub(1);
        let sigma = self.sigma().at(&Exact::one());
        let error_constant = sigma.recip().ok();
        let explicit = self.beta[0].is_zero();
        let a_stable = if explicit {
            Some(false)
        } else {
            self.a_stable()
        };
        let (zero_stable, circle) = match root_condition(&self.rho()) {
            Some((stable, circle)) => (Some(stable), Some(circle)),
            None => (None, None),
        };
        let damped = root_condition(&self.sigma()).is_some_and(|(stable, _)| stable);
        let characteristic = Characteristic::of_multistep(&self.alpha, &self.beta);
        Facts {
            steps: self.alpha.len() - 1,
            explicit,
            order,
            error_constant: error_constant.map(|o| &self.constant(order + 1) * &o),
            strongly_stable: zero_stable.zip(circle).map(|(z, c)| z && c == 1),
            angle: match zero_stable == Some(true) && !explicit && damped {
                true => self.angle(),
                false => None,
            },
            real: characteristic.as_ref().and_then(axis::real),
            imaginary_squared: characteristic.as_ref().and_then(axis::imaginary),
            i_stable: self.i_stable(a_stable),
            zero_stable,
            a_stable,
        }
    }

    /// The largest modulus of a root is subharmonic in `hλ` but for a pole at α₀/β₀; so what holds on the imaginary axis holds left of it,
    /// where that pole lies to the right. If it lies to the left, so it does for −σ, which is the same on the axis.
    fn i_stable(&self, a_stable: Option<bool>) -> Option<bool> {
        let (alpha, beta) = (self.alpha[0].sign(), self.beta[0].sign());
        if beta.is_eq() {
            return Some(self.sigma().is_zero() && root_condition(&self.rho())?.0);
        }
        if alpha == beta {
            return a_stable;
        }
        let mirrored = Multistep {
            alpha: self.alpha.clone(),
            beta: self.beta.iter().map(|b| -b).collect(),
        };
        mirrored.a_stable()
    }

    /// ρ/σ maps the outside of the unit disc into the right half-plane: σ has no root outside, `Re ρσ̄ ≥ 0` on the circle, as a
    /// polynomial in cos θ (Dahlquist 1963), and one point to the left is stable: a root of σ on the circle may let all of the left
    /// half-plane through.
    fn a_stable(&self) -> Option<bool> {
        let (sigma, _) = root_condition(&self.sigma())?;
        let (rho, _) = root_condition(&self.rho())?;
        if !sigma || !rho || !self.stable_at_minus_one()? {
            return Some(false);
        }
        is_nonnegative(&self.real_part(), &Exact::int(-1), &Exact::one())
    }

    /// Whether no root of ρ − zσ lies outside the disc at z = −1. How many do changes only across the boundary locus.
    fn stable_at_minus_one(&self) -> Option<bool> {
        let p = self.rho().plus(&self.sigma());
        if p.degree() + 1 < self.alpha.len() {
            return Some(false);
        }
        Some(root_condition(&squarefree(&p)?)?.0)
    }

    /// Re ρσ̄ on the circle, as a polynomial in cos θ.
    fn real_part(&self) -> Poly {
        let chebyshev = chebyshev(self.alpha.len());
        let mut real = Poly::default();
        for (i, a) in self.alpha.iter().enumerate() {
            for (j, b) in self.beta.iter().enumerate() {
                real = real.plus(&chebyshev[i.abs_diff(j)].scaled(&(a * b)));
            }
        }
        real
    }

    /// The smallest angle between the negative axis and the boundary locus ρ(e^{iθ})/σ(e^{iθ}).
    fn angle(&self) -> Option<Angle> {
        // U₀, U₁, … : sin nθ = sin θ Uₙ₋₁(cos θ).
        let mut sines = vec![
            Poly::constant(Exact::one()),
            Poly::new(vec![Exact::zero(), Exact::int(2)]),
        ];
        while sines.len() < self.alpha.len() {
            let next = sines[1].times(&sines[sines.len() - 1]);
            sines.push(next.minus(&sines[sines.len() - 2]));
        }
        let mut imaginary = Poly::default();
        for (i, a) in self.alpha.iter().enumerate() {
            for (j, b) in self.beta.iter().enumerate().filter(|(j, _)| *j != i) {
                let sine = sines[i.abs_diff(j) - 1].scaled(&(a * b));
                imaginary = match i < j {
                    true => imaginary.plus(&sine),
                    false => imaginary.minus(&sine),
                };
            }
        }
        match angle::least(&self.real_part(), &imaginary)? {
            found if found.is_none() || self.stable_at_minus_one()? => Some(found),
            _ => Some(Angle::none()),
        }
    }
}
