//! A scheme in one line: order, size, embedded order, and its proved stability and structure.
//!
//! Takes a scheme or its [`Report`], as its claims are meant; leaves proofs to that.

use super::claims::Instance;
use super::notation::end;
use super::report::{self, Additive, Detail, OneField, Report};
use odec_exact::Exact;
use odec_library::Library;
use odec_numerics::poly::Extent;
use odec_numerics::properties::Kind;
use odec_numerics::ssp::Ssp;
use odec_numerics::stability::Stability;

/// Shortest stable part of an axis that is told.
const SHORT: f64 = 1e-3;

/// A scheme's line in an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// `None`: none is proved.
    pub order: Option<usize>,
    /// `None`: its steps grow with their number.
    pub size: Option<Size>,
    pub embedded: Option<usize>,
    /// `A-stable`, `real -2.785`, `SSP 1`, `symplectic`.
    pub proved: Vec<String>,
}

/// The size of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Stages(usize),
    /// Of a multistep method.
    Steps(usize),
    /// Of a splitting.
    Flows(usize),
    /// Of a step program that is none of these.
    Evaluations(usize),
}

impl Size {
    /// The number, and what it counts.
    pub fn counted(self) -> (usize, &'static str) {
        match self {
            Size::Stages(n) => (n, "stages"),
            Size::Steps(n) => (n, "steps"),
            Size::Flows(n) => (n, "flows"),
            Size::Evaluations(n) => (n, "evaluations"),
        }
    }
}

impl Summary {
    /// The line of a scheme on fields of which nothing is known.
    pub fn of(i: &Instance, library: Library) -> Summary {
        Summary::new(&report::described(i, library, Detail::Line))
    }

    pub fn new(r: &Report) -> Summary {
        let of_state = r.pair.as_ref().and_then(|facts| facts.state);
        let order = of_state.or_else(|| r.order.as_ref().ok().map(|found| found.order));
        Summary {
            order: order.filter(|p| *p > 0),
            size: size(r),
            embedded: r.embedded.filter(|p| *p > 0),
            proved: proved(r),
        }
    }
}

fn size(r: &Report) -> Option<Size> {
    let tableau = r
        .implicit
        .as_ref()
        .map(|(t, _)| t)
        .or(r.tableau.as_ref().ok());
    let counted = match (&r.multistep, &r.stiff, tableau) {
        (Some((_, facts)), ..) => Size::Steps(facts.steps),
        _ if !r.flows.is_empty() => Size::Flows(r.flows.len()),
        (None, Some(Ok(stiff)), _) => Size::Stages(stiff.stages),
        (None, None, Some(t)) if t.fields.len() == 1 => Size::Stages(t.stages()),
        _ => Size::Evaluations(r.work.as_ref()?.evaluations as usize),
    };
    Some(counted)
}

fn proved(r: &Report) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(one) = &r.one_field {
        of_one_field(one, &mut said);
    }
    if let Some((_, facts)) = &r.multistep {
        zero_stable(facts.zero_stable, &mut said);
        if facts.a_stable == Some(true) {
            said.push("A-stable".into());
        } else {
            let angle = facts.angle.as_ref().map(|angle| angle.degrees().0);
            said.extend(angle.map(|degrees| format!("A({degrees:.1}°)-stable")));
            axes(&facts.real, &facts.imaginary_squared, &mut said);
        }
    }
    if let Some((_, facts)) = r.general.as_ref().filter(|_| r.multistep.is_none()) {
        zero_stable(facts.zero_stable, &mut said);
        if facts.a_stable == Some(true) {
            said.push("A-stable".into());
        } else {
            axes(&facts.real, &facts.imaginary_squared, &mut said);
        }
    }
    if let Some(Ok(stiff)) = &r.stiff {
        said.push(format!("stiff order {}", stiff.order.order));
    }
    if let Some(additive) = r.additive.as_ref().filter(|_| r.flows.is_empty()) {
        of_fields(additive, &mut said);
    }
    if let Some(pair) = &r.pair {
        said.extend(pair.symplectic.is_ok().then(|| "symplectic".into()));
        let symmetric = pair.symmetric.as_ref().is_some_and(Exact::is_zero);
        said.extend(symmetric.then(|| "symmetric".into()));
    }
    said
}

fn of_one_field(one: &OneField, said: &mut Vec<String>) {
    let p = &one.properties;
    let implicit = p.kind != Kind::Explicit;
    if implicit && p.kind != Kind::Firk {
        said.push(p.kind.name().into());
    }
    if let Some(s) = &one.stability {
        said.extend(strongest(s).map(String::from));
        if s.a_stable != Some(true) {
            axes(&s.real, &s.imaginary_squared, said);
        }
    }
    let structure = [
        ("stiffly accurate", p.stiffly_accurate && implicit),
        ("first same as last", p.first_same_as_last),
        ("symplectic", p.symplectic),
        ("symmetric", p.symmetric),
    ];
    let structure = structure.iter().filter(|(_, is)| *is);
    said.extend(structure.map(|(name, _)| name.to_string()));
    match &one.ssp {
        Some(Ssp::Exactly(c)) => said.push(format!("SSP {}", decimals(c.to_f64()))),
        Some(Ssp::Between(c)) => said.push(format!("SSP {}", decimals(c.lo.to_f64()))),
        Some(Ssp::Unbounded) => said.push("SSP unbounded".into()),
        Some(Ssp::None) | None => {}
    }
}

/// The methods of the single fields: `B L-stable`.
fn of_fields(additive: &Additive, said: &mut Vec<String>) {
    for (field, alone) in additive.fields.iter().zip(&additive.joint.alone) {
        let strongest = alone.as_ref().and_then(strongest);
        said.extend(strongest.map(|word| format!("{field} {word}")));
    }
}

/// The strongest of these words that holds.
fn strongest(s: &Stability) -> Option<&'static str> {
    let words = [
        (s.l_stable, "L-stable"),
        (s.a_stable, "A-stable"),
        (s.i_stable, "I-stable"),
    ];
    let holds = words.iter().find(|(is, _)| *is == Some(true));
    holds.map(|(_, word)| *word)
}

fn zero_stable(is: Option<bool>, said: &mut Vec<String>) {
    match is {
        Some(true) => said.push("zero-stable".into()),
        Some(false) => said.push("not zero-stable".into()),
        None => {}
    }
}

/// How far the axes are stable: `real -2.785`, `imaginary ±2.828`; nothing of an axis that is unstable at once, or after what
/// decimals in coefficients leave.
/// How far |R| ≤ 1 on the axes: `real -2.785`, `imaginary ±2.828`.
pub(super) fn axes(
    real: &Option<Extent>,
    imaginary_squared: &Option<Extent>,
    said: &mut Vec<String>,
) {
    let axis = |extent: &Option<Extent>, squared: bool, name: &str, sign: &str| match extent {
        Some(Extent::Infinite) => Some(format!("{name} unbounded")),
        Some(Extent::Until { hi, .. }) => Some(end(hi, squared))
            .filter(|x| *x >= SHORT)
            .map(|x| format!("{name} {sign}{}", decimals(x))),
        Some(Extent::Zero) | None => None,
    };
    said.extend(axis(real, false, "real", "-"));
    said.extend(axis(imaginary_squared, true, "imaginary", "±"));
}

/// Three decimals at most.
fn decimals(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
