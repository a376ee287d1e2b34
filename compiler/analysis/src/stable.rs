//! Stability in reports: how long a step may be, and what a method of several fields does to linear equations.
//!
//! Takes a report; gives lines of a page, and the bounds of `hK` that `json.rs` prints too. They hold for a known Lipschitz bound K of
//! the field, a known step size h of an evolve, or both. The mathematics is in `odec-numerics`.

use super::notation::extent;
use super::report::{Additive, Report};
use super::text::decided;
use odec_exact::Exact;
use odec_numerics::joint::{AtInfinity, Function, Many};
use odec_numerics::poly::Extent;
use odec_numerics::stability::Stability;
use odec_numerics::steps::{MAX_DEGREE, StepBounds};
use odec_text::number::FAST;
use odec_text::number::{number, subscript, sum, superscript};
use odec_text::page::Page;
use std::cmp::Ordering;

/// Most terms of a polynomial in several variables that is written out.
const MAX_TERMS: usize = 24;

/// How large `hK` may be for one kind of field.
pub struct Bound<'r> {
    pub name: &'static str,
    pub extent: Option<&'r Extent>,
    /// The extent is that of (hK)².
    squared: bool,
    /// What to say where there is no extent.
    unknown: String,
}

impl Bound<'_> {
    /// The largest hK that is certainly stable, or the number of five digits that may be the limit itself; infinite where there is no
    /// bound.
    pub fn value(&self) -> Option<f64> {
        let (lo, hi) = match self.extent? {
            Extent::Zero => return Some(0.0),
            Extent::Infinite => return Some(f64::INFINITY),
            Extent::Until { lo, hi } => (lo.to_f64(), hi.to_f64()),
        };
        let (lo, hi) = if self.squared {
            (lo.sqrt(), hi.sqrt())
        } else {
            (lo, hi)
        };
        let short: f64 = format!("{hi:.4e}").parse().unwrap_or(lo);
        Some(if (lo..=hi).contains(&short) {
            short
        } else {
            lo
        })
    }

    /// Whether `hK` is below the bound; `None`: not decided, or within the interval around it.
    pub fn holds(&self, hk: &Exact) -> Option<bool> {
        let hk = if self.squared { hk * hk } else { hk.clone() };
        match self.extent? {
            Extent::Zero => Some(hk.sign() == Ordering::Equal),
            Extent::Infinite => Some(true),
            Extent::Until { lo, .. } if hk <= *lo => Some(true),
            Extent::Until { hi, .. } if hk > *hi => Some(false),
            Extent::Until { .. } => None,
        }
    }
}

/// All bounds of a method of one field, as it is iterated where it is.
pub fn bounds(r: &Report) -> Vec<Bound<'_>> {
    let Some(one) = r.one_field.as_ref().filter(|_| r.multistep.is_none()) else {
        return Vec::new();
    };
    let (Some(s), Some(steps)) = (&one.stability, &one.steps) else {
        return Vec::new();
    };
    let bound = |name, extent, squared| Bound {
        name,
        extent,
        squared,
        unknown: "not decided".to_string(),
    };
    let degree = StepBounds::degree(s);
    let disc = |name, extent| Bound {
        unknown: match degree {
            ..=MAX_DEGREE => "not decided".to_string(),
            _ => format!("not computed: R has degree {degree}, above {MAX_DEGREE}"),
        },
        ..bound(name, extent, false)
    };
    let (real, imaginary_squared, steps) = match &r.iterated {
        Some(i) => (&i.real, &i.imaginary_squared, i.steps.as_ref()),
        None => (&s.real, &s.imaginary_squared, Some(steps)),
    };
    let Some(steps) = steps else {
        return Vec::new();
    };
    vec![
        bound("real decay", real.as_ref(), false),
        bound("oscillation", imaginary_squared.as_ref(), true),
        disc("dissipation", steps.dissipation.as_ref()),
        disc("disc of stability", steps.disc.as_ref()),
        bound("contractivity", steps.contractive.as_ref(), false),
    ]
}

/// Five digits, rounded down.
fn down(x: f64) -> String {
    if x == 0.0 {
        return "0".into();
    }
    let shift = 10f64.powi(4 - x.log10().floor() as i32);
    let cut = (x * shift * (1.0 + 1e-14)).floor() / shift;
    if (1e-3..1e5).contains(&cut) {
        let decimals = (4 - cut.log10().floor() as i32).max(0) as usize;
        let text = format!("{cut:.decimals$}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
            false => text,
        }
    } else {
        format!("{cut:.4e}")
    }
}

/// `hK ≤ 2.7852`, and what follows for the K or the h that is known.
pub fn stable_step(page: &mut Page, r: &Report) {
    for b in bounds(r) {
        let first = match b.value() {
            None => b.unknown.clone(),
            Some(0.0) => "no step".to_string(),
            Some(x) if x.is_infinite() => "every step".to_string(),
            Some(x) => format!("hK{FAST}≤{FAST}{}", down(x)),
        };
        let finite = b.value().filter(|x| x.is_finite() && *x > 0.0);
        let more = match (finite, &r.h, &r.lipschitz) {
            (_, Some(h), Some(k)) => format!(
                ", stable at hK = {}: {}",
                number(&(h * k)),
                decided(b.holds(&(h * k)))
            ),
            (Some(x), Some(h), None) => {
                format!(", K ≤ {} at h = {}", down(x / h.to_f64()), number(h))
            }
            (Some(x), None, Some(k)) => {
                format!(", h ≤ {} at K = {}", down(x / k.to_f64()), number(k))
            }
            _ => String::new(),
        };
        page.fact(b.name, &format!("{first}{more}"));
    }
}

/// `1 + z₁ + 1/2 z₁ z₂`.
fn many(p: &Many) -> String {
    if p.0.len() > MAX_TERMS {
        return format!("{} terms", p.0.len());
    }
    let mut terms: Vec<(&Vec<u32>, &Exact)> = p.0.iter().collect();
    // By degree, then the first variables first.
    terms.sort_by_key(|(e, _)| (e.iter().sum::<u32>(), std::cmp::Reverse((*e).clone())));
    let power = |(v, n): (usize, &u32)| {
        let raised = match n {
            1 => String::new(),
            n => superscript(*n as usize),
        };
        format!("z{}{raised}", subscript(v + 1))
    };
    let named = terms.into_iter().map(|(e, c)| {
        let powers = e.iter().enumerate().filter(|(_, n)| **n > 0).map(power);
        (powers.collect::<Vec<_>>().join(&FAST.to_string()), c)
    });
    sum(named)
}

fn quotient(f: &Function) -> String {
    let one = f
        .denominator
        .0
        .iter()
        .all(|(e, c)| e.iter().all(|n| *n == 0) && c.is_one());
    match one {
        true => many(&f.numerator),
        false => format!("({}) / ({})", many(&f.numerator), many(&f.denominator)),
    }
}

/// The limits on the axes, or that there are none.
fn brief(s: &Option<Stability>) -> String {
    match s {
        None => "not computed".to_string(),
        Some(s) if s.l_stable == Some(true) => "A-stable, L-stable".to_string(),
        Some(s) if s.a_stable == Some(true) => "A-stable".to_string(),
        Some(s) => format!(
            "real axis{FAST}{}, imaginary axis{FAST}{}",
            extent(&s.real, false, "-"),
            extent(&s.imaginary_squared, true, "±")
        ),
    }
}

/// `R(z₁, z₂, …)` and what it is on the axes, on the diagonal and far out.
pub fn joint(page: &mut Page, a: &Additive) {
    let variable = |f: usize| format!("z{}", subscript(f + 1));
    let variables: Vec<String> = (0..a.fields.len()).map(variable).collect();
    let limit = match a.converged {
        true => ", iterations carried to the end",
        false => "",
    };
    let terms = a.fields.iter().zip(&variables);
    let equation: Vec<String> = terms
        .map(|(f, z)| format!("{z}{FAST}of{FAST}{f}"))
        .collect();
    page.fact("R", &quotient(&a.joint.function));
    page.fact("where", &format!("{}{limit}", equation.join(", ")));
    for (field, alone) in a.fields.iter().zip(&a.joint.alone) {
        page.fact(&format!("{field} alone"), &brief(alone));
    }
    page.fact("all equal", &brief(&a.joint.together));
    for (z, far) in variables.iter().zip(&a.joint.far) {
        match far {
            AtInfinity::Infinite => {}
            AtInfinity::Zero => page.fact(&format!("{z} → ∞"), "R → 0"),
            AtInfinity::Quotient(f) => {
                page.fact(&format!("{z} → ∞"), &format!("R → {}", quotient(f)));
            }
        }
    }
}
