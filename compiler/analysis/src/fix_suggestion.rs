//! Suggests a fix for a false order claim: one number, sign or fraction of a step program or splitting that would make the claim true.
//!
//! Takes a scheme and the order that it claims. A number of a step program becomes a learned coefficient, so that every condition is
//! a polynomial in its change ([`super::learned`]); the claim holds where all of them have a common root, which a gcd
//! finds exactly. Signs are tried one by one. Gives a place and a sentence. Leaves tableaus to `blame.rs`.

use super::claims::Instance;
use super::learned::{WORK, polynomials};
use super::opaque_field::alone;
use crate::scheme::define::{Body, SchemeDef};
use crate::scheme::expansion::{Expanded, expanded};
use crate::scheme::method::{LocatedStep, located};
use crate::scheme::per_use::SHARED;
use crate::scheme::scalar::{Scope, exact, is_root};
use crate::scheme::stage::Steps;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind, Ident, Learn, LearnLen, Step as Written, Stmt};
use odec_numerics::Trees;
use odec_numerics::jet::{Jet, Space};
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::order::expected;
use odec_numerics::poly::Poly;
use odec_numerics::series::{Number, Series};
use std::rc::Rc;

/// Most numbers and signs that are tried.
const MAX_SITES: usize = 48;
/// Most work: sites times trees times values of the line.
const MAX_WORK: usize = 1_000_000;
/// The name of a number that varies; no user can write it.
const VARIED: &str = "a number";

/// What would make a claim true.
pub struct Fix {
    pub span: Span,
    pub sentence: String,
}

/// How many sites may be tried.
fn most(trees: usize, line: &LocatedStep) -> usize {
    MAX_SITES.min(MAX_WORK / (trees * line.line.steps.len()).max(1))
}

/// The value of the change in which all conditions hold.
fn root(conditions: &[Jet], variable: u32) -> Option<Exact> {
    let mut common = Poly::default();
    for c in conditions {
        if c.is_lost() {
            return None;
        }
        let power = |n: usize| c.of(&vec![variable; n]);
        let own = Poly::new((0..=c.degree()).map(power).collect());
        common = match common.is_zero() {
            true => own,
            false => common.gcd(&own)?,
        };
        if !common.is_zero() && common.degree() == 0 {
            return None;
        }
    }
    if common.degree() > 1 {
        let repeated = common.gcd(&common.derivative())?;
        common = common.divided(&repeated)?.0;
    }
    match &common.0[..] {
        [c, slope] => Some(-&(c * &slope.recip().ok()?)),
        _ => None,
    }
}

/// Goes through an expression from the outside; `visit` says whether to go inside. Counts and exponents are left out.
fn walk(e: &mut Expr, visit: &mut dyn FnMut(&mut Expr) -> bool) {
    if !visit(e) {
        return;
    }
    match &mut e.kind {
        ExprKind::Neg(inner) => walk(inner, visit),
        ExprKind::Binary(op, a, b) => {
            walk(a, visit);
            if *op != BinOp::Pow {
                walk(b, visit);
            }
        }
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            items.iter_mut().for_each(|e| walk(e, visit));
        }
        ExprKind::Call(call) => call.args.iter_mut().for_each(|a| walk(&mut a.value, visit)),
        ExprKind::Sum { body, .. } => walk(body, visit),
        ExprKind::Flow { from, .. } => walk(from, visit),
        _ => {}
    }
}

fn statements(body: &mut [Stmt], visit: &mut dyn FnMut(&mut Expr) -> bool) {
    for s in body {
        match s {
            Stmt::Assign { value, .. } => walk(value, visit),
            Stmt::Repeat { body, .. } => statements(body, visit),
            Stmt::Solve { value, from, .. } => {
                walk(value, visit);
                walk(from, visit);
            }
            Stmt::Return { value, .. } => walk(value, visit),
        }
    }
}

fn is_number(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Number(_) | ExprKind::Quantity(..) => true,
        ExprKind::Neg(inner) => is_number(inner),
        ExprKind::Binary(_, a, b) => is_number(a) && is_number(b),
        ExprKind::Tuple(items) => items.len() == 1 && is_number(&items[0]),
        ExprKind::Call(call) => is_root(call) && call.args.iter().all(|a| is_number(&a.value)),
        _ => false,
    }
}

/// A number as it is written, and whether something is divided by it.
struct Site {
    number: Expr,
    under: bool,
}

/// Numbers, and sums and differences, in the order of the text.
fn sites(step: &Written) -> (Vec<Site>, Vec<(Span, Span, BinOp)>) {
    let (mut numbers, mut signs) = (Vec::new(), Vec::new());
    let mut body = step.body.clone();
    statements(&mut body, &mut |e| {
        if is_number(e) {
            let number = e.clone();
            let known = |s: &Site| s.under && s.number.span == number.span;
            if !numbers.iter().any(known) {
                let under = false;
                numbers.push(Site { number, under });
            }
            return false;
        }
        match &e.kind {
            ExprKind::Binary(BinOp::Div, _, by) if is_number(by) => numbers.push(Site {
                number: (**by).clone(),
                under: true,
            }),
            ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), _, b) => {
                signs.push((e.span, b.span, *op))
            }
            _ => {}
        }
        true
    });
    (numbers, signs)
}

fn with_body(i: &Instance, step: &Written, body: Vec<Stmt>) -> Instance {
    let step = Written {
        body,
        ..step.clone()
    };
    let scheme = Rc::new(SchemeDef {
        body: Body::Step(step),
        keep: None,
        ..(*i.scheme).clone()
    });
    Instance {
        scheme,
        ..i.clone()
    }
}

/// One number of a step program, or one of its signs: the smallest change.
pub fn step(
    i: &Instance,
    step: &Written,
    order: usize,
    (trees, line): (usize, &LocatedStep),
) -> Option<Fix> {
    let (mut numbers, mut signs) = sites(step);
    numbers.truncate(most(trees, line));
    signs.truncate(most(trees, line));
    let mut best: Option<(Exact, Fix)> = None;
    let mut offer = |by: Exact, mend: Fix| {
        let by = if by.is_negative() { -&by } else { by };
        if best.as_ref().is_none_or(|(b, _)| by < *b) {
            best = Some((by, mend));
        }
    };
    for site in numbers {
        if let Some((by, value)) = number(i, step, &site, order) {
            let span = site.number.span;
            let sentence = format!("did you mean {value} here?");
            offer(by, Fix { span, sentence });
        }
    }
    for (span, at, op) in signs {
        let (other, word) = match op {
            BinOp::Add => (BinOp::Sub, "minus"),
            _ => (BinOp::Add, "plus"),
        };
        let mut body = step.body.clone();
        statements(&mut body, &mut |e| {
            if let (true, ExprKind::Binary(op, ..)) = (e.span == span, &mut e.kind) {
                *op = other;
            }
            !is_number(e)
        });
        let changed = with_body(i, step, body);
        if holds(&changed, order, None) {
            let sentence = format!("did you mean {word} here?");
            offer(Exact::one(), Fix { span: at, sentence });
        }
    }
    best.map(|(_, mend)| mend)
}

/// Whether a scheme has an order, all of whose conditions hold within that.
pub(super) fn holds(i: &Instance, order: usize, within: Option<&Exact>) -> bool {
    expansion(i).is_some_and(|mut e| e.prove(order, within).order >= order)
}

/// What order conditions are proved of.
pub(super) fn expansion(i: &Instance) -> Option<Expanded> {
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let line = located(&flow, Steps::Exact, &SHARED);
    line.and_then(|p| expanded(&p)).ok()
}

/// What a number must be, and by how much that is larger.
fn number(i: &Instance, step: &Written, site: &Site, order: usize) -> Option<(Exact, Exact)> {
    let span = site.number.span;
    let mut body = step.body.clone();
    let name = || ExprKind::Name(VARIED.to_string());
    statements(&mut body, &mut |e| {
        match &mut e.kind {
            ExprKind::Binary(op @ BinOp::Div, _, by) if site.under && by.span == span => {
                *op = BinOp::Mul;
                by.kind = name();
            }
            _ if !site.under && e.span == span => e.kind = name(),
            _ => {}
        }
        !is_number(e)
    });
    let written = exact(&site.number, &Scope::new()).ok()?;
    let start = match site.under {
        true => written.recip().ok()?,
        false => written.clone(),
    };
    let mut changed = with_body(i, step, body);
    let mut scheme = (*changed.scheme).clone();
    let one = Expr {
        kind: ExprKind::Number("1".into()),
        span,
    };
    scheme.learns.push(Learn {
        shared: true,
        per_channel: false,
        name: Ident {
            name: VARIED.to_string(),
            span,
        },
        len: LearnLen::Scalar,
        init: match site.under {
            true => Expr {
                kind: ExprKind::Binary(BinOp::Div, Box::new(one), Box::new(site.number.clone())),
                span,
            },
            false => site.number.clone(),
        },
        span,
    });
    changed.scheme = Rc::new(scheme);
    let c = polynomials(&changed, order).ok()?;
    let variable = c.learned.iter().position(|l| l.name == VARIED)?;
    let value = &start + &root(&c.up_to(order), variable as u32)?;
    let value = match site.under {
        true => value.recip().ok()?,
        false => value,
    };
    (c.orders >= order).then(|| (&value - &written, value))
}

/// One fraction of a splitting.
pub fn splitting(p: &LocatedStep, order: usize, trees: usize) -> Option<Fix> {
    let flows = p.line.steps.iter().enumerate();
    let flows = flows.filter_map(|(n, s)| match s {
        Step::Flow { fraction, .. } => Some((n, fraction.clone())),
        _ => None,
    });
    let mut best: Option<(Exact, Fix)> = None;
    for (n, fraction) in flows.take(most(trees, p)) {
        let space = Space::new(64, WORK);
        let jet = |c: &Exact| Jet::constant(c);
        let varied = |(m, s): (usize, &Step)| match s {
            Step::Eval { field, at } => Step::Eval {
                field: *field,
                at: *at,
            },
            Step::Combine(terms) => {
                Step::Combine(terms.iter().map(|(v, c)| (*v, jet(c))).collect())
            }
            Step::Past(time) => Step::Past(jet(time)),
            Step::Phi {
                field,
                index,
                over,
                at,
            } => Step::Phi {
                field: *field,
                index: *index,
                over: jet(over),
                at: *at,
            },
            Step::Flow {
                field,
                at,
                fraction,
            } => Step::Flow {
                field: *field,
                at: *at,
                fraction: match m == n {
                    true => Jet::variable(0, fraction, &space),
                    false => jet(fraction),
                },
            },
        };
        let line = LinearStep {
            fields: p.line.fields.clone(),
            steps: p.line.steps.iter().enumerate().map(varied).collect(),
            result: p.line.result,
            embedded: None,
        };
        let (mut series, states) = Series::of(&line);
        let mut trees = match line.is_product_of_flows() {
            true => Trees::tall(line.fields.len()),
            false => Trees::new(line.fields.len()).linear(line.linear()),
        }
        .for_values(line.steps.len());
        let mut all: Vec<Jet> = states.into_iter().map(|(_, off)| off).collect();
        for n in 1..=order {
            if !trees.grow() {
                return None;
            }
            for t in trees.of_order(n) {
                all.push(series.value(&trees, t).minus(&jet(&expected(&trees, t))));
            }
            // Most fractions can mend nothing, which the first orders say.
            all.retain(|c| !c.is_zero());
            if !all.is_empty() && root(&all, 0).is_none() {
                break;
            }
        }
        if let (Some(by), true) = (root(&all, 0), trees.orders() == order) {
            let size = if by.is_negative() { -&by } else { by.clone() };
            if best.as_ref().is_none_or(|(b, _)| size < *b) {
                let sentence = format!("did you mean {} as this fraction?", &fraction + &by);
                let span = p.span(n + 1);
                best = Some((size, Fix { span, sentence }));
            }
        }
    }
    best.map(|(_, mend)| mend)
}
