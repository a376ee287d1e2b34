//! Claims about anything but the order, proved: `stages 4`, `embedded order 4`, `A_stable`, `symplectic`, `ssp 1` …
//!
//! Takes a scheme with settings; gives what was found, and an error at its line for each claim that is not true, with
//! the value that is. Facts of an implicit method are those of the tableau as it is written, as in a report. Leaves the
//! mathematics to `odec-numerics`.

use super::claims::Instance;
use super::line::{Beyond, Placed, placed};
use super::report::{embedded, embedded_in, evaluations};
use super::stand_in::alone;
use super::written;
use crate::codes;
use crate::scheme::define::PropertyClaim;
use crate::scheme::per_use::SHARED;
use crate::scheme::scalar::exact;
use crate::scheme::stage::Steps;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_numerics::Tableau;
use odec_numerics::multistep::Multistep;
use odec_numerics::properties::{Kind, Properties};
use odec_numerics::ssp::{Ssp, ssp};
use odec_numerics::stability::Stability;
use odec_program::manifest::{Claim, ClaimStatus};

/// What was found about a claim.
enum Found {
    True,
    /// What is true instead.
    False(String),
    Unknown(String),
}

/// Proves all such claims of a scheme.
pub fn claims(i: &Instance, sink: &mut Vec<Diagnostic>) -> Vec<Claim> {
    if i.scheme.properties.is_empty() {
        return Vec::new();
    }
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let computed = placed(&flow, Steps::Euler, &SHARED);
    let meant = placed(&flow, Steps::Exact, &SHARED);
    let subject = Subject {
        computed: computed.and_then(|p| p.tableau()),
        implicit: written::tableau(&i.scheme, &i.settings).filter(|t| !t.is_explicit()),
        multistep: written::multistep(&i.scheme, &i.settings)
            .map(|(alpha, beta)| Multistep { alpha, beta }),
        evaluated: evaluations(&flow),
        flows: meant.ok().filter(Placed::has_flows),
    };
    let all = i.scheme.properties.iter();
    all.filter_map(|c| claim(i, c, &subject, sink)).collect()
}

/// A scheme as the methods that claims may be about.
struct Subject {
    computed: Result<Tableau, Beyond>,
    implicit: Option<Tableau>,
    multistep: Option<Multistep>,
    /// Evaluations of a step.
    evaluated: Option<usize>,
    /// With exact sub-flows, where it has such.
    flows: Option<Placed>,
}

impl Subject {
    fn tableau(&self) -> Result<&Tableau, String> {
        match (&self.implicit, &self.computed) {
            (Some(t), _) | (None, Ok(t)) => Ok(t),
            (None, Err(beyond)) => Err(format!("it has no tableau: {}", beyond.why)),
        }
    }
    fn of_one_field(&self) -> Result<&Tableau, String> {
        let t = self.tableau()?;
        match t.fields.len() {
            1 => Ok(t),
            n => Err(format!(
                "it has {n} fields, and this is said of methods of one"
            )),
        }
    }
}

fn claim(
    i: &Instance,
    c: &PropertyClaim,
    s: &Subject,
    sink: &mut Vec<Diagnostic>,
) -> Option<Claim> {
    let scope = written::scope(&i.scheme, &i.settings, i.listed)?;
    let value = match &c.value {
        None => None,
        Some(e) => Some(exact(e, &scope).map_err(|d| sink.push(d)).ok()?),
    };
    let found = decide(&c.name, value.as_ref(), s).unwrap_or_else(Found::Unknown);
    let text = match &value {
        Some(v) => format!("{} {v}", c.name),
        None => c.name.clone(),
    };
    let name = &i.scheme.name.name;
    let (status, note) = match found {
        Found::True => (ClaimStatus::Proved, String::new()),
        Found::False(actual) => {
            let message = format!("`{text}` is not true of `{name}`: {actual}");
            sink.push(match i.applied {
                None => Diagnostic::error(codes::FALSE_CLAIM, c.span, message)
                    .label("this claim is false"),
                Some(applied) => Diagnostic::error(codes::FALSE_CLAIM, applied, message)
                    .label("applied here")
                    .also(c.span, "this claim does not hold"),
            });
            return None;
        }
        Found::Unknown(why) => {
            let message = format!("that `{name}` is `{text}` is not proved: {why}");
            sink.push(
                Diagnostic::warning(codes::UNPROVED_CLAIM, c.span, message).label("claimed here"),
            );
            (ClaimStatus::ClaimedNotProved, why)
        }
    };
    Some(Claim {
        scheme: name.clone(),
        claim: text,
        status,
        note,
    })
}

fn either(is: bool, actual: impl FnOnce() -> String) -> Found {
    match is {
        true => Found::True,
        false => Found::False(actual()),
    }
}

fn counted(claimed: &Exact, actual: usize, what: &str) -> Found {
    either(*claimed == Exact::int(actual as i64), || {
        format!("it has {what} {actual}")
    })
}

/// Whether a claim holds, or a sentence why that is not known.
fn decide(name: &str, value: Option<&Exact>, s: &Subject) -> Result<Found, String> {
    let zero = Exact::zero();
    let value = value.unwrap_or(&zero);
    let undecided = || "that is not decided".to_string();
    Ok(match name {
        "stages" => {
            let n = s.tableau()?.stages();
            either(*value == Exact::int(n as i64), || format!("it has {n}"))
        }
        "evaluations" => {
            let n = s.evaluated.ok_or("its evaluations cannot be counted")?;
            either(*value == Exact::int(n as i64), || {
                format!("a step takes {n}")
            })
        }
        "embedded order" => {
            let (is_there, order) = match &s.flows {
                Some(p) => (p.line.embedded.is_some(), embedded_in(p, None)),
                None => {
                    let t = s.tableau()?;
                    (t.embedded.is_some(), embedded(t, None))
                }
            };
            match order {
                _ if !is_there => Found::False("it has no embedded partner".to_string()),
                Some(p) => counted(value, p, "a partner of order"),
                None => return Err(undecided()),
            }
        }
        "stage_order" => counted(
            value,
            Properties::new(s.of_one_field()?).stage_order(),
            "stage order",
        ),
        "ssp" => {
            let t = s.of_one_field()?;
            match ssp(t).ok_or("the coefficient is not sought for such a method")? {
                Ssp::None => either(value.is_zero(), || "its SSP coefficient is 0".to_string()),
                Ssp::Unbounded => Found::False("its SSP coefficient is unbounded".to_string()),
                Ssp::Exactly(c) => either(*value == c, || format!("its SSP coefficient is {c}")),
                Ssp::Between(lo, hi) => either(lo <= *value && *value <= hi, || {
                    format!("its SSP coefficient is about {:.6}", lo.to_f64())
                }),
            }
        }
        "A_stable" | "L_stable" => {
            let what = if name == "A_stable" {
                "A-stable"
            } else {
                "L-stable"
            };
            let is = match &s.multistep {
                // The largest root at infinity is not looked at.
                Some(m) if name == "A_stable" => m.facts().a_stable,
                Some(_) => return Err("L-stability is said of methods of one step".to_string()),
                None => {
                    let stability = Stability::new(s.of_one_field()?).ok_or_else(undecided)?;
                    if name == "A_stable" {
                        stability.a_stable
                    } else {
                        stability.l_stable
                    }
                }
            };
            either(is.ok_or_else(undecided)?, || format!("it is not {what}"))
        }
        "zero_stable" => match &s.multistep {
            Some(m) => {
                let is = m.facts().zero_stable.ok_or_else(undecided)?;
                either(is, || {
                    "a root of ρ lies outside the unit disc, or is not simple on the circle"
                        .to_string()
                })
            }
            None => return Err("this is said of multistep methods".to_string()),
        },
        "symplectic" | "symmetric" | "fsal" => {
            let p = Properties::new(s.of_one_field()?);
            match name {
                "symplectic" => either(p.symplectic, || broken_symplecticity(s)),
                "symmetric" => either(p.symmetric, || {
                    "reversing it gives another method".to_string()
                }),
                _ => either(p.first_same_as_last, || {
                    "its last stage is not the first one of the next step".to_string()
                }),
            }
        }
        kind => {
            let own = match &s.multistep {
                Some(m) if m.facts().explicit => Kind::Explicit,
                Some(_) => return Err("this is said of tableaus".to_string()),
                None => Properties::new(s.tableau()?).kind,
            };
            let is = match kind {
                "explicit" => own == Kind::Explicit,
                "sdirk" => own == Kind::Sdirk,
                "dirk" => matches!(own, Kind::Dirk | Kind::Sdirk | Kind::Esdirk),
                _ => own == Kind::Firk,
            };
            either(is, || format!("it is {}", own.name()))
        }
    })
}

/// The first pair of stages that breaks `bᵢaᵢⱼ + bⱼaⱼᵢ = bᵢbⱼ`.
fn broken_symplecticity(s: &Subject) -> String {
    let Ok(t) = s.tableau() else {
        return String::new();
    };
    let pairs = (0..t.stages()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    let off = |(i, j): (usize, usize)| {
        let left = &(&t.b[i] * &t.a[i][j]) + &(&t.b[j] * &t.a[j][i]);
        let right = &t.b[i] * &t.b[j];
        (left != right).then(|| {
            let (i, j) = (i + 1, j + 1);
            format!("b{i} a{i}{j} + b{j} a{j}{i} = {left}, where b{i} b{j} = {right}")
        })
    };
    pairs.into_iter().find_map(off).unwrap_or_default()
}
