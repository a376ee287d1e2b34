//! `keep order p`: trains learned coefficients only along directions that keep the method at order p.
//!
//! The conditions up to p are solved around the initial values ([`odec_numerics::manifold`]); what is trained are the free
//! directions `u`, all 0 at the start, and the coefficients are computed from them once per step ([`Derived`]). Takes
//! stage programs as `unroll` makes them; gives them with these coefficients in the place of the scheme's. Leaves
//! computing them to `odec-model`.

use super::claims::Instance;
use super::declared_tableau;
use super::learned::{Condition, Conditions, DEGREE, MAX_CONDITIONS, WORK, conditions};
use crate::codes;
use crate::scheme::coeff::{Coeff, CoeffError};
use crate::scheme::learn::{DIRECTION, Owner};
use crate::scheme::method::Unsupported;
use crate::scheme::scalar::{arithmetic, whole};
use crate::scheme::stage::Derived;
use crate::scheme::{Learned, StageProgram};
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_numerics::blocks;
use odec_numerics::draw;
use odec_numerics::jet::{Jet, Space};
use odec_numerics::manifold::{Chart, Matrix, NoChart, chart};
use odec_numerics::order::expected;
use odec_numerics::series::Number;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Highest order that is kept.
const MAX_ORDER: u64 = 10;

/// A scheme's coefficients on the methods of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub order: usize,
    /// The coefficients that the conditions mention, with their initial values.
    pub coefficients: Vec<Learned>,
    pub chart: Chart,
    /// What is trained instead.
    pub free: Vec<Learned>,
    /// Bound directions, then the coefficients.
    pub derived: Vec<Derived>,
}

/// How a scheme keeps an order; `None`: it does not say so.
pub fn kept(i: &Instance) -> Option<Result<Kept, Diagnostic>> {
    let (order, span) = i.scheme.keep.as_ref()?;
    let found = declared_tableau::scope(&i.scheme, &i.settings, i.listed).map(|scope| {
        let order = whole(order, &scope, 1, MAX_ORDER)? as usize;
        solved(i, order, *span)
    });
    // A scheme without a scope has been complained about.
    let found = found?;
    Some(found.map_err(|d| match i.applied {
        Some(applied) => d.also(applied, "applied here"),
        None => d,
    }))
}

fn refused(span: Span, order: usize, why: &str) -> Diagnostic {
    let message = format!("order {order} cannot be kept: {why}");
    Diagnostic::error(codes::KEEP_ORDER, span, message)
}

fn solved(i: &Instance, order: usize, span: Span) -> Result<Kept, Diagnostic> {
    let beyond = |b: Unsupported| {
        let d = refused(span, order, &b.why);
        match b.span == span {
            true => d,
            false => d.also(b.span, "the conditions cannot be found because of this"),
        }
    };
    let c = conditions(i, order).map_err(beyond)?;
    if c.trees.orders() < order {
        let why = format!("it has more than {MAX_CONDITIONS} conditions");
        return Err(refused(span, order, &why));
    }
    if let Some(broken) = c.all.iter().find(|k| !k.off.value().is_zero()) {
        return Err(not_there(i, &c, broken, order, span));
    }
    let touched: Vec<u32> = (0..c.learned.len() as u32)
        .filter(|v| c.all.iter().any(|k| k.off.has(*v)))
        .collect();
    let coefficients: Vec<Learned> = touched
        .iter()
        .map(|v| c.learned[*v as usize].clone())
        .collect();
    if let Some((first, other)) = mixed(&coefficients) {
        let message = format!(
            "`{}` and `{}` are learned in different ways",
            first.name, other.name
        );
        let d = refused(span, order, "its coefficients are learned in different ways")
            .label(message)
            .also(first.span, "one")
            .help("order conditions couple them: learn all per step or all shared, and all or none per channel");
        return Err(match first.span == other.span {
            true => d,
            false => d.also(other.span, "the other"),
        });
    }
    if c.of_earlier_steps {
        let why = "a step reads values that earlier steps computed with their own coefficients";
        return Err(
            refused(span, order, why).help("learn them `shared`: then all steps use the same ones")
        );
    }
    let number = |v: u32| touched.iter().position(|t| *t == v).unwrap_or(0) as u32;
    let renamed = |j: &Jet| {
        let terms = j
            .terms()
            .map(|(m, c)| (m.iter().map(|v| number(*v)).collect(), c.clone()));
        Jet::from_terms(terms, j.space())
    };
    let jets = c.up_to(order);
    let lost = !c.are_whole || c.orders < order || jets.iter().any(Jet::is_lost);
    let fewer = "learn fewer coefficients, such as the weights alone, in which the conditions are linear: `learn b[…] = […]` in a step program";
    let too_large =
        || refused(span, order, "its order conditions are too large to solve").help(fewer);
    if lost {
        return Err(too_large());
    }
    let jets: Vec<Jet> = jets.iter().map(renamed).collect();
    let whole = |chart| written_out(order, coefficients.clone(), chart, span);
    let none = |why| match why {
        NoChart::TooLarge => too_large(),
        NoChart::NotTriangular(at) => {
            let all: Vec<&Condition> = c.all.iter().filter(|k| !k.off.is_zero()).collect();
            let which = all.get(at).map_or(String::new(), |k| c.differential(k));
            refused(
                span,
                order,
                "its conditions cannot be solved one after the other",
            )
            .label(format!("the condition of {which} remains"))
            .help(fewer)
        }
    };
    let substituted = chart(&jets, touched.len()).map_err(none);
    let found = substituted.and_then(|chart| whole(chart).map_err(|_| too_large()));
    let found = found.or_else(|refused| {
        let (jets, basis) = by_row_sums(i, jets, &coefficients);
        let chart = blocks::chart(&jets, &basis).ok();
        chart.and_then(|c| whole(c).ok()).ok_or(refused)
    });
    let found = found?;
    if found.chart.free == 0 && !touched.is_empty() {
        let names: Vec<&str> = coefficients.iter().map(|l| l.name.as_str()).collect();
        let d = refused(span, order, "the conditions leave nothing to train")
            .label(format!("its conditions determine {}", names.join(", ")))
            .help("keep a lower order, or learn more coefficients");
        return Err(d);
    }
    Ok(found)
}

/// Conditions of a tableau with its row sums in the place of the entries of its first column, so that powers of a row sum are
/// powers of one variable; and what these variables are. Other conditions stay as they are.
fn by_row_sums(i: &Instance, jets: Vec<Jet>, coefficients: &[Learned]) -> (Vec<Jet>, Matrix) {
    let n = coefficients.len();
    let one = |v: usize| (0..n).map(move |w| Exact::int(i64::from(v == w)));
    let mut basis: Matrix = (0..n).map(|v| one(v).collect()).collect();
    if i.scheme.learned.is_none() {
        return (jets, basis);
    }
    for (v, first) in coefficients.iter().enumerate() {
        let Some(row) = first
            .name
            .strip_suffix("[0]")
            .filter(|r| r.starts_with("a["))
        else {
            continue;
        };
        for (w, other) in coefficients.iter().enumerate() {
            if w != v
                && other
                    .name
                    .strip_prefix(row)
                    .is_some_and(|c| c.starts_with('['))
            {
                basis[v][w] = Exact::int(-1);
            }
        }
    }
    let space = Space::new(DEGREE, WORK);
    let sum = |v: u32| {
        let terms = basis[v as usize].iter().enumerate();
        let terms = terms.map(|(w, c)| (vec![w as u32], c.clone()));
        Jet::from_terms(terms, Some(space.clone()))
    };
    let jets = jets.iter().map(|j| j.at(&sum)).collect();
    (jets, basis)
}

/// Coefficients that one condition ties together, and that live apart.
fn mixed(coefficients: &[Learned]) -> Option<(&Learned, &Learned)> {
    let first = coefficients.first()?;
    let kind = |l: &Learned| (l.shared, l.per_channel);
    let other = coefficients.iter().find(|l| kind(l) != kind(first))?;
    Some((first, other))
}

/// The initial values have a lower order.
fn not_there(
    i: &Instance,
    c: &Conditions,
    broken: &Condition,
    order: usize,
    span: Span,
) -> Diagnostic {
    let name = &i.scheme.name.name;
    let has = broken.order.saturating_sub(1);
    let message = format!("order {order} cannot be kept: `{name}` starts with order {has}");
    let d = Diagnostic::error(codes::KEEP_ORDER, span, message)
        .label("training can only keep an order that the initial values have");
    let Some(tree) = broken.tree else {
        return d;
    };
    let exact = expected(&c.trees, tree);
    d.help(format!(
        "the order condition of {} fails at the initial values: the scheme has {}, the exact solution has {exact}\n{}",
        c.differential(broken),
        &broken.off.value() + &exact,
        draw::tree(&c.trees, tree, &c.fields),
    ))
}

fn direction(number: usize) -> String {
    format!("{DIRECTION}[{number}]")
}

/// A polynomial in directions.
fn polynomial(j: &Jet) -> Result<Coeff, CoeffError> {
    let mut sum = Coeff::zero();
    for (m, c) in j.terms() {
        let mut product = Coeff::constant(c.clone());
        for v in m {
            product = product.mul(&Coeff::symbol(&direction(*v as usize)))?;
        }
        sum = sum.add(&product)?;
    }
    Ok(sum)
}

fn written_out(
    order: usize,
    coefficients: Vec<Learned>,
    chart: Chart,
    span: Span,
) -> Result<Kept, CoeffError> {
    let mut derived = Vec::new();
    for (n, q) in chart.bound.iter().enumerate() {
        derived.push(Derived {
            name: direction(chart.free + n),
            over: polynomial(&q.over)?,
            under: polynomial(&q.under)?,
        });
    }
    for (l, row) in coefficients.iter().zip(&chart.basis) {
        let mut sum = Coeff::constant(l.init.clone());
        for (n, c) in row.iter().enumerate().filter(|(_, c)| !c.is_zero()) {
            let term = Coeff::symbol(&direction(n)).mul(&Coeff::constant(c.clone()))?;
            sum = sum.add(&term)?;
        }
        derived.push(Derived {
            name: l.name.clone(),
            over: sum,
            under: Coeff::one(),
        });
    }
    let free = coefficients.first().into_iter().flat_map(|like| {
        (0..chart.free).map(|n| Learned {
            name: direction(n),
            path: format!("{DIRECTION}.{n}"),
            shared: like.shared,
            per_channel: like.per_channel,
            init: Exact::zero(),
            span,
            owner: None,
        })
    });
    Ok(Kept {
        order,
        free: free.collect(),
        derived,
        coefficients,
        chart,
    })
}

impl Kept {
    /// The coefficients for some values of the directions, in the order of `coefficients`; `None` where a denominator is 0.
    pub fn coefficients_at(&self, free: &[Exact]) -> Option<Vec<Exact>> {
        let changes = self.chart.at(free)?;
        let each = self.coefficients.iter().zip(&changes);
        Some(each.map(|(l, d)| &l.init + d).collect())
    }

    /// `3 of 4 directions are trained`.
    pub fn dimension(&self) -> String {
        match self.coefficients.len() {
            0 => "no learned coefficient changes it".to_string(),
            n => format!("{} of {n} directions are trained", self.chart.free),
        }
    }
}

/// Puts directions in the place of coefficients that keep an order.
pub fn rewrite(programs: &mut [StageProgram], sink: &mut Vec<Diagnostic>) -> Option<()> {
    let mut known: Vec<(Rc<Owner>, Kept)> = Vec::new();
    for p in programs {
        let mut owners: Vec<Rc<Owner>> = Vec::new();
        for owner in p.learned.iter().filter_map(|l| l.owner.as_ref()) {
            if !owners.contains(owner) {
                owners.push(owner.clone());
            }
        }
        for owner in owners {
            let found = match known.iter().find(|(o, _)| *o == owner) {
                Some((_, kept)) => kept.clone(),
                None => {
                    let alone = owner.applied == owner.scheme.name.span;
                    let instance = Instance {
                        scheme: owner.scheme.clone(),
                        settings: owner.settings.clone(),
                        listed: owner.listed,
                        start_by: owner.start_by.clone(),
                        applied: (!alone).then_some(owner.applied),
                    };
                    let kept = kept(&instance)?.map_err(|d| sink.push(d)).ok()?;
                    known.push((owner.clone(), kept.clone()));
                    kept
                }
            };
            let done = put(p, &found);
            done.map_err(|why| sink.push(arithmetic(why, owner.applied)))
                .ok()?;
        }
    }
    Some(())
}

/// The directions that the coefficients of a program need, and how these are computed.
fn put(p: &mut StageProgram, kept: &Kept) -> Result<(), CoeffError> {
    // What cannot move is a number.
    for d in &kept.derived {
        if let (Some(value), true) = (d.over.as_constant(), d.under.is_one()) {
            p.with(&d.name, &value)?;
            p.learned.retain(|l| l.name != d.name);
        }
    }
    let own = |name: &str| kept.coefficients.iter().any(|l| l.name == name);
    let used: BTreeSet<String> = p
        .learned
        .iter()
        .map(|l| l.name.clone())
        .filter(|n| own(n))
        .collect();
    let mut needed = used.clone();
    let by_name: BTreeMap<&str, &Derived> =
        kept.derived.iter().map(|d| (d.name.as_str(), d)).collect();
    let mut open: Vec<String> = used.into_iter().collect();
    while let Some(name) = open.pop() {
        let Some(d) = by_name.get(name.as_str()) else {
            continue;
        };
        for s in d.over.symbols().into_iter().chain(d.under.symbols()) {
            if needed.insert(s.to_string()) {
                open.push(s.to_string());
            }
        }
    }
    let at = p.learned.iter().position(|l| own(&l.name)).unwrap_or(0);
    p.learned.retain(|l| !own(&l.name));
    let free = kept
        .free
        .iter()
        .filter(|l| needed.contains(&l.name))
        .cloned();
    p.learned.splice(at..at, free);
    let derived = kept.derived.iter().filter(|d| needed.contains(&d.name));
    p.derived.extend(derived.cloned());
    Ok(())
}
