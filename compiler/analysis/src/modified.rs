//! The modified equation of a method, its effective order, and the orders up to which it preserves energy and the symplectic form.
//!
//! Takes a tableau or a splitting with its order; gives terms with names, as text, JSON and LaTeX. Says so where there are too many trees
//! to compute them. The mathematics is in `odec-numerics`.

use super::latex;
use super::report::Found;
use crate::scheme::method::LocatedStep;
use odec_exact::Exact;
use odec_numerics::effective::{Reached, effective};
use odec_numerics::invariants::{energy, symplectic};
use odec_numerics::modified::Modified;
use odec_numerics::order::{Expansion, Weights};
use odec_numerics::series::Series;
use odec_numerics::symplectic::symplectic as is_symplectic;
use odec_numerics::words::Words;
use odec_numerics::{Tableau, Trees, draw, lie};
use odec_text::number::FAST;
use odec_text::number::{sum, superscript};
use odec_text::page::Page;
use serde_json::{Value, json};

/// Most trees that are made.
const MAX_TREES: usize = 512;
/// Most products of numbers for all of them together, about.
const MAX_WORK: usize = 60_000;
/// The same for words, of which few are looked at.
const MAX_WORDS: usize = 2048;
const MAX_PRODUCTS: usize = 400_000;
/// Orders beyond that of the method in which terms are sought, and how many of these are shown.
const BEYOND: usize = 3;
const SHOWN: usize = 2;
/// Most terms of an order that are written out.
const MAX_TERMS: usize = 6;
/// Longer names may be cut at blanks where lines end.
const LONG: usize = 24;

/// A term: its name as text and in LaTeX.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    pub name: String,
    pub latex: String,
    pub coefficient: Exact,
}

/// `x' = Σ hⁿ⁻¹ (…)`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModifiedEquation {
    /// Those of order n that are not 0, n from 1; of the orders in between there are none.
    pub orders: Vec<(usize, Vec<Term>)>,
    /// Terms of higher orders were not computed.
    pub up_to: usize,
    /// Terms are commutators.
    pub commutators: bool,
    /// That of the method.
    pub order: usize,
    pub effective: Option<Reached>,
    pub energy: Option<Reached>,
    /// `None`: it is symplectic.
    pub symplectic: Option<Reached>,
}

/// The orders that have terms, and up to which they were sought.
type Orders = (Vec<(usize, Vec<Term>)>, usize);

/// The orders from 1 that have terms, up to where enough are found or there are too many.
fn orders(
    m: &mut Modified,
    of: &mut dyn FnMut(&mut Modified, usize) -> Option<Vec<Term>>,
) -> Orders {
    let mut found = Vec::new();
    let mut up_to = 0;
    for n in 1..=m.order() + BEYOND {
        let known = n > 1 && n <= m.order();
        if !known {
            let terms = match m.reach(n) {
                true => of(m, n),
                false => None,
            };
            let Some(terms) = terms else { break };
            if !terms.is_empty() {
                found.push((n, terms));
            }
        }
        up_to = n;
        if found.len() > SHOWN {
            break;
        }
    }
    (found, up_to)
}

/// A name of several letters is no product of them.
fn upright(name: &str) -> String {
    match name.len() {
        1 => name.to_string(),
        _ => format!("\\mathrm{{{name}}}"),
    }
}

/// With the derivatives that are numbered, from the fourth one on, in one exponent each.
fn raised(differential: &str) -> String {
    (4..=9).fold(differential.to_string(), |text, n| {
        text.replace(&format!("^({n})"), &format!("^{{({n})}}"))
    })
}

fn differentials(m: &mut Modified, n: usize, fields: &[String]) -> Vec<Term> {
    let upright: Vec<String> = fields.iter().map(|f| upright(f)).collect();
    let terms = m.terms(n).into_iter();
    let named = terms.map(|(t, coefficient)| Term {
        name: draw::differential(m.trees(), t, fields),
        latex: raised(&draw::differential(m.trees(), t, &upright)),
        coefficient,
    });
    named.collect()
}

/// Where an order is exactly known.
fn known(order: &Found) -> Option<usize> {
    order.limit.as_ref().map(|_| order.order)
}

/// Of a method of one step with this order.
pub(super) fn of_tableau(t: &Tableau, order: &Found) -> Option<ModifiedEquation> {
    let order = known(order)?;
    let entries = t.a.iter().flatten().filter(|a| !a.is_zero()).count();
    let most = MAX_TREES.min(MAX_WORK / (entries + t.stages()).max(1));
    let mut weights = Weights::new(t)?;
    let trees = Trees::new(t.fields.len()).at_most(most);
    let mut m = Modified::new(&mut weights, trees, order);
    let shown = &mut |m: &mut Modified, n| Some(differentials(m, n, &t.fields));
    let (orders, up_to) = orders(&mut m, shown);
    let consistent = order > 0;
    let beyond = order + BEYOND;
    Some(ModifiedEquation {
        orders,
        up_to,
        commutators: false,
        order,
        effective: consistent.then(|| effective(&mut m, beyond)),
        energy: consistent.then(|| energy(&mut m, beyond)),
        symplectic: (consistent && is_symplectic(t).is_err()).then(|| symplectic(&mut m, beyond)),
    })
}

/// Of a method with exact flows, in commutators if these are made one after the other.
pub(super) fn of_flows(p: &LocatedStep, order: &Found) -> Option<ModifiedEquation> {
    let order = known(order)?;
    let (line, fields) = (&p.line, p.line.fields.len());
    if p.reach > 0 {
        return None;
    }
    let most = MAX_TREES.min(MAX_WORK / (8 * line.steps.len()).max(1));
    let mut series = Series::new(line).ok()?;
    let mut all = Modified::new(&mut series, Trees::new(fields).at_most(most), order);
    let shown = match line.word() {
        Some(_) => in_commutators(p, order)?,
        None => orders(&mut all, &mut |m, n| {
            Some(differentials(m, n, &line.fields))
        }),
    };
    let consistent = order > 0;
    let beyond = order + BEYOND;
    let (orders, up_to) = shown;
    Some(ModifiedEquation {
        orders,
        up_to,
        commutators: line.word().is_some(),
        order,
        effective: consistent.then(|| effective(&mut all, beyond)),
        energy: consistent.then(|| energy(&mut all, beyond)),
        symplectic: None,
    })
}

fn in_commutators(p: &LocatedStep, order: usize) -> Option<Orders> {
    let (line, fields) = (&p.line, p.line.fields.len());
    let mut words = Words::new(line).ok()??;
    let each = line.steps.len() * words.dimension() * words.dimension();
    let method: &mut dyn Expansion = &mut words;
    let mut m = Modified::new(method, Trees::tall(fields).at_most(MAX_WORDS), order);
    let name = |f: usize| line.fields[f].clone();
    let shown = &mut |m: &mut Modified, n| {
        let products = lie::lyndon(fields, n).len() * n * n * each;
        if n > 1 && products > MAX_PRODUCTS {
            return None;
        }
        let terms = lie::terms(m, n)?.into_iter();
        let named = terms.map(|(bracket, coefficient)| Term {
            name: bracket.shown(&name),
            latex: bracket.shown(&|f| upright(&line.fields[f])),
            coefficient,
        });
        Some(named.collect())
    };
    Some(orders(&mut m, shown))
}

/// `h²`, `1` where it is nothing.
fn power(n: usize, raised: &dyn Fn(usize) -> String) -> String {
    match n - 1 {
        0 => String::new(),
        1 => "h".to_string(),
        k => format!("h{}", raised(k)),
    }
}

impl ModifiedEquation {
    /// `x' = F + h² (1/12 F'F'F - 1/24 F''(F, F)) + O(h⁴)`.
    pub fn shown(&self) -> String {
        let one = Exact::one();
        let fast = |name: &str| match name.chars().count() {
            ..=LONG => name.replace(' ', &FAST.to_string()),
            _ => name.to_string(),
        };
        let mut terms: Vec<(String, &Exact)> = Vec::new();
        for (n, all) in &self.orders {
            let h = power(*n, &superscript);
            let few = all.iter().take(MAX_TERMS);
            let few = few.map(|t| (fast(&t.name), &t.coefficient));
            match all.as_slice() {
                _ if *n == 1 => terms.extend(few),
                [t] => terms.push((format!("{h}{FAST}{}", fast(&t.name)), &t.coefficient)),
                _ => {
                    let more = match all.len().saturating_sub(MAX_TERMS) {
                        0 => String::new(),
                        more => format!(" +{FAST}{more}{FAST}more"),
                    };
                    terms.push((format!("{h}{FAST}({}{more})", sum(few)), &one));
                }
            }
        }
        let rest = format!("O({})", power(self.up_to + 1, &superscript));
        terms.push((rest, &one));
        format!("x'{FAST}={FAST}{}", sum(terms.into_iter()))
    }

    /// The same in LaTeX, with all terms.
    pub fn latex(&self) -> String {
        let raised = |k: usize| format!("^{{{k}}}");
        let mut text = String::from("\\dot{x} =");
        for (n, all) in &self.orders {
            let terms: String = all.iter().enumerate().map(summand).collect();
            text += &match *n {
                1 => terms,
                n => format!(" + {} ({} )", power(n, &raised), terms),
            };
        }
        format!("{text} + O({})\n", power(self.up_to + 1, &raised))
    }

    /// Whether terms beyond the equation's own were found, or could have been.
    fn is_known(&self) -> bool {
        self.up_to > self.order
    }
}

/// A term in LaTeX with its sign; the first one has none if it is positive.
fn summand((i, t): (usize, &Term)) -> String {
    let minus = t.coefficient.is_negative();
    let magnitude = if minus {
        -&t.coefficient
    } else {
        t.coefficient.clone()
    };
    let shown = match magnitude.is_one() {
        true => String::new(),
        false if magnitude.is_sum() => format!("({}) ", latex::number(&magnitude)),
        false => format!("{} ", latex::number(&magnitude)),
    };
    let sign = match (i, minus) {
        (_, true) => " - ",
        (0, false) => " ",
        _ => " + ",
    };
    format!("{sign}{shown}{}", t.latex)
}

/// What goes beyond the order.
fn beyond(order: usize, reached: Option<Reached>) -> Option<String> {
    let found = reached.filter(|r| r.order > order)?;
    let least = if found.exactly { "" } else { "at least " };
    Some(format!("{least}{}", found.order))
}

/// Facts of a report's section on its order.
pub(super) fn text(page: &mut Page, m: &ModifiedEquation) {
    if !m.is_known() {
        let sentence = format!("not computed: order {} has too many terms", m.order + 1);
        page.fact("modified equation", &sentence);
        return;
    }
    page.fact("modified equation", &m.shown());
    if m.commutators && m.orders.len() > 1 {
        let fields: Vec<&str> = m.orders[0].1.iter().map(|t| t.name.as_str()).collect();
        if let [a, b, ..] = fields[..] {
            let space = if b.len() > 1 || a.len() > 1 { " " } else { "" };
            page.fact(
                "",
                &format!("where [{a}, {b}] = {b}'{space}{a} - {a}'{space}{b}"),
            );
        }
    }
    if let Some(order) = beyond(m.order, m.effective) {
        page.fact("effective order", &order);
    }
    if let Some(order) = beyond(m.order, m.energy) {
        page.fact("energy order", &order);
    }
    if let Some(order) = beyond(m.order, m.symplectic) {
        page.fact("symplectic order", &order);
    }
}

pub(super) fn json(m: &ModifiedEquation) -> Value {
    let reached = |r: &Option<Reached>| {
        let found = |r: &Reached| json!({ "order": r.order, "exactly": r.exactly });
        r.as_ref().map(found)
    };
    let term = |power: usize, t: &Term| json!({ "power": power, "differential": t.name, "coefficient": t.coefficient.to_string() });
    let terms = m.orders.iter();
    let terms = terms.flat_map(|(n, all)| all.iter().map(move |t| term(n - 1, t)));
    json!({
        "terms": terms.collect::<Vec<_>>(), "up_to_power": m.up_to.checked_sub(1), "commutators": m.commutators,
        "effective_order": reached(&m.effective), "energy_order": reached(&m.energy),
        "symplectic_order": reached(&m.symplectic),
    })
}
