//! Learned coefficients in reports: which conditions each one affects, how many directions are free, and what is kept.

use super::keep::Kept;
use super::learned::Learning;
use super::report::Report;
use odec_exact::Exact;
use odec_numerics::manifold::Shape;
use odec_text::number::number;
use odec_text::page::Page;

/// Most slopes that are listed of a coefficient.
const MAX_SLOPES: usize = 4;

/// A section for schemes that learn coefficients.
pub fn section(page: &mut Page, r: &Report) {
    if r.learning.is_none() && r.kept.is_none() {
        return;
    }
    page.section("Learned coefficients");
    match &r.learning {
        Some(Ok(l)) => learning(page, l),
        Some(Err(beyond)) => page.fact("conditions", &format!("not known: {}", beyond.why)),
        None => {}
    }
    if let Some(k) = &r.kept {
        kept(page, k);
    }
}

fn learning(page: &mut Page, l: &Learning) {
    for c in &l.coefficients {
        let slope = |(_, tree, s): &(usize, String, Exact)| format!("∂{tree} = {}", number(s));
        let shown: Vec<String> = c.slopes.iter().take(MAX_SLOPES).map(slope).collect();
        let more = match c.slopes.len().saturating_sub(MAX_SLOPES) {
            0 => String::new(),
            n => format!(", {n} more up to order {}", l.up_to),
        };
        let said = match (c.breaks, shown.as_slice()) {
            (None, _) => format!("touches no condition up to order {}", l.up_to),
            (Some(p), []) => format!("can break order {p}, but all slopes are 0"),
            (Some(p), _) => format!("can break order {p}: {}{more}", shown.join(", ")),
        };
        page.fact(&c.name, &said);
    }
    let n = l.coefficients.len();
    for m in &l.methods {
        let shape = match m.shape {
            Shape::Manifold => "",
            Shape::Singular => "; a singular point, where not all of them lead to such methods",
            Shape::Undecided => " in first order; whether they make a manifold is not decided",
        };
        let free = format!("{} of {n} directions are free{shape}", m.tangent);
        page.fact(&format!("order ≥ {}", m.order), &free);
    }
}

fn kept(page: &mut Page, k: &Kept) {
    page.fact("keeps order", &format!("{}: {}", k.order, k.dimension()));
    for d in &k.derived {
        page.fact("", &d.to_string());
    }
}
