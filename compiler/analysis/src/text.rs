//! Reports as text: the tableau, then sections of facts.
//!
//! Takes a report and a screen; gives lines that fit it. Leaves wrapping to `page.rs`, columns to `table.rs`, digits to
//! `number.rs`.

use super::general::General;
use super::internal;
use super::modified;
use super::notation::{extent, polynomial};
use super::report::{Found, Limit, OneField, PrincipalError, Report};
use super::stable;
use crate::scheme::resolve::count;
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::glm::{self, characteristic::Characteristic};
use odec_numerics::multistep::{Facts, Multistep};
use odec_numerics::poly::{Extent, Poly};
use odec_numerics::ssp::Ssp;
use odec_numerics::tableau::Part;
use odec_text::number::{FAST, about, number, subscript, superscript};
use odec_text::page::{Page, Screen};
use odec_text::table::{Cell, Table};

/// Most stages of a tableau that is printed.
const MAX_STAGES: usize = 32;
/// Most stages of a tableau whose rows and columns have no numbers.
const FEW: usize = 8;

/// The whole report for a page; ends with a line end.
pub fn text(r: &Report) -> String {
    text_on(r, Screen::PLAIN)
}

/// The whole report for a screen; ends with a line end.
pub fn text_on(r: &Report, screen: Screen) -> String {
    let mut page = Page::new(screen);
    page.title(&r.name, &format!("{}{}", r.kind, work(r)));
    coefficients(&mut page, r);
    page.section("Order");
    orders(&mut page, r);
    if let Some(f) = r.one_field.as_ref().filter(|_| r.multistep.is_none()) {
        page.section("Structure");
        structure(&mut page, f);
        page.section("Stability");
        stability(&mut page, f);
        iterated(&mut page, r);
        internal::text(&mut page, r);
        page.section(match &r.iterated {
            Some(_) => "Stable step as it is iterated, for a Lipschitz bound K",
            None => "Stable step, for a Lipschitz bound K",
        });
        stable::stable_step(&mut page, r);
    }
    if let Some(a) = r.additive.as_ref().filter(|_| r.multistep.is_none()) {
        page.section("Stability");
        stable::joint(&mut page, a);
    }
    if let Some((_, f)) = &r.multistep {
        page.section("Stability");
        multistep(&mut page, f);
        iterated(&mut page, r);
    }
    if let Some((_, f)) = &r.general {
        page.section("Stability");
        general(&mut page, f);
    }
    if let Some(p) = &r.pair {
        p.section(&mut page);
    }
    super::coefficients::section(&mut page, r);
    page.finish()
}

/// `, 4 evaluations`; how many of them one after the other, where some need not wait.
fn work(r: &Report) -> String {
    match &r.work {
        None => String::new(),
        Some(w) => {
            let most = if r.tolerance.is_some() {
                "at most "
            } else {
                ""
            };
            let chain = crate::scheme::work::chain(w.depth, w.evaluations);
            format!(", {most}{chain}")
        }
    }
}

/// The scheme as numbers.
fn coefficients(page: &mut Page, r: &Report) {
    page.blank();
    if !r.flows.is_empty() {
        let flow = |(name, c): &(String, Exact)| {
            let c = number(c).replace(' ', &FAST.to_string());
            format!("{name}({c})")
        };
        let flows: Vec<String> = r.flows.iter().map(flow).collect();
        page.paragraph(&flows.join(" "));
        page.blank();
    }
    if let Some((m, _)) = &r.multistep {
        page.table(&rows(m));
    }
    if let Some((t, _)) = &r.implicit {
        page.table(&tableau(t));
        if r.tableau.is_ok() {
            page.blank();
        }
    }
    match &r.tableau {
        Ok(t) => {
            let shown = tableau(t);
            let short = t.stages() <= MAX_STAGES && (!again(r) || page.holds(&shown));
            match (short, r.implicit.is_some(), r.flows.is_empty()) {
                (true, true, _) => page.paragraph("as it is iterated:"),
                (true, _, false) => page.paragraph("with one Euler step for each:"),
                (true, false, true) => {}
                (false, ..) => page.paragraph(&format!(
                    "{}: {} (--json has the tableau)",
                    match (r.implicit.is_some(), r.flows.is_empty()) {
                        (true, _) => "as it is iterated",
                        (_, false) => "with one Euler step for each",
                        _ => "tableau",
                    },
                    count(t.stages(), "stage")
                )),
            }
            if short && again(r) {
                page.blank();
            }
            if short {
                page.table(&shown);
            }
        }
        Err(_) if r.general.is_some() => {
            if let Some((g, _)) = &r.general {
                page.paragraph("as a general linear method:");
                page.blank();
                page.table(&matrices(g));
            }
        }
        Err(_) if r.implicit.is_some() => {}
        Err(_) if r.pair.is_some() => {}
        Err(beyond) if r.multistep.is_none() => {
            page.paragraph(&format!("no tableau: {}", beyond.why));
        }
        Err(_) => {}
    }
}

/// `A U` over `B V`.
fn matrices(g: &General) -> Table {
    let m = &g.glm;
    let (s, r) = (m.stages(), m.values());
    let mut table = Table::new(1);
    table.block(1, "");
    table.block(1 + s, "");
    let stage = |i: usize| format!("{}(Y{})", m.fields[m.field_of[i]], subscript(i + 1));
    let head = (0..s).map(stage).chain(g.names.iter().cloned());
    table.row(
        [Cell::Empty]
            .into_iter()
            .chain(head.map(Cell::right))
            .collect(),
    );
    for i in 0..s {
        let name = Cell::left(format!("Y{}", subscript(i + 1)));
        table.row(line(&[name], m.a[i].iter().chain(&m.u[i])));
    }
    table.rule();
    for i in 0..r {
        let name = Cell::left(g.names[i].as_str());
        table.row(line(&[name], m.b[i].iter().chain(&m.v[i])));
    }
    table
}

/// Whether the tableau repeats what is shown above it.
fn again(r: &Report) -> bool {
    r.implicit.is_some() || !r.flows.is_empty()
}

/// Φ(w, z) by powers of w.
fn characteristic(c: &Characteristic) -> String {
    let terms = c
        .by_w
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, p)| !p.is_zero());
    let term = |(n, p): (usize, &Poly)| {
        let w = match n {
            0 => String::new(),
            1 => "w".into(),
            _ => format!("w{}", superscript(n)),
        };
        match p.0.as_slice() {
            [one] if one.is_one() && n > 0 => w,
            _ if n > 0 => format!(
                "({}){FAST}{w}",
                polynomial(p).replace(' ', &FAST.to_string())
            ),
            _ => format!("({})", polynomial(p).replace(' ', &FAST.to_string())),
        }
    };
    terms
        .map(term)
        .collect::<Vec<_>>()
        .join(&format!(" +{FAST}"))
}

fn general(page: &mut Page, f: &glm::Facts) {
    let strongly = match f.strongly_stable {
        Some(true) => ", strongly",
        _ => "",
    };
    page.fact(
        "zero-stable",
        &format!("{}{strongly}", decided(f.zero_stable)),
    );
    if let Some(c) = &f.characteristic {
        page.fact("Φ(w, z)", &characteristic(c));
        page.fact("A-stable", decided(f.a_stable));
        axes(page, &f.real, &f.imaginary_squared);
    }
}

fn orders(page: &mut Page, r: &Report) {
    let claimed = match r.claims.as_slice() {
        [] => String::new(),
        claims => format!("  (claimed: {})", claims.join(", ")),
    };
    match &r.order {
        Ok(f) => {
            page.fact("order", &format!("{}{claimed}", order(f)));
            match &f.first {
                Some(_) => limited_first(page, f),
                None => limited(page, f),
            }
        }
        Err(beyond) => page.fact("order", &format!("not known: {}{claimed}", beyond.why)),
    }
    match &r.stiff {
        None => {}
        Some(Ok(s)) => page.fact("stiff order", &s.sentence()),
        Some(Err(beyond)) => page.fact("stiff order", &format!("not known: {}", beyond.why)),
    }
    if let Some(u) = &r.unequal {
        page.fact("steps", &u.sentence());
        if let Some(g) = &u.growth {
            page.fact("zero-stable", &g.sentence());
        }
    }
    if let Some(tol) = &r.tolerance {
        let sentence = format!(
            "each token until its residual is {tol} of its norm; these facts are about the solution"
        );
        page.fact("solved", &sentence);
    }
    if let Some(f) = &r.stepped {
        page.fact("Euler sub-steps", &order(f));
        limited(page, f);
    }
    if let Some(upgrade) = &r.upgrade {
        page.fact("raised by", &upgrade.sentence());
    }
    if let Some((_, f)) = r.implicit.as_ref().filter(|_| r.tolerance.is_none()) {
        page.fact("stages found exactly", &order(f));
    }
    if let Some(p) = r.embedded {
        page.fact("embedded order", &p.to_string());
    }
    if let Some(e) = &r.error {
        let order = r.order.as_ref().map_or(0, |f| f.order);
        let of = r.implicit.as_ref().map_or(order, |(_, f)| f.order);
        page.fact("principal error", &principal(e, of + 1));
    }
    if let Some(m) = &r.modified {
        modified::text(page, m);
    }
    let constant = match (&r.multistep, &r.general) {
        (Some((_, f)), _) => f.error_constant.as_ref(),
        (None, Some((_, f))) => f.error_constant.as_ref(),
        (None, None) => None,
    };
    if let Some(c) = constant {
        page.fact("error constant", &number(c));
    }
    if let Some(s) = &r.started {
        page.fact("started by", &s.sentence());
    }
    match &r.computed {
        None => {}
        Some(Ok(f)) => {
            page.fact("as computed", &order(f));
            limited_first(page, f);
        }
        Some(Err(_)) if r.order.is_err() => {}
        Some(Err(beyond)) => page.fact("as computed", &format!("not known: {}", beyond.why)),
    }
}

/// What the first steps leave.
fn limited_first(page: &mut Page, f: &Found) {
    if let Some(first) = &f.first {
        page.fact("limited by", &first.sentence());
    }
}

/// The first condition that does not hold, and its tree.
fn limited(page: &mut Page, f: &Found) {
    if let Some(limit) = &f.limit {
        let brief = brief(limit).replace("exact ", &format!("exact{FAST}"));
        page.fact("limited by", &brief);
        page.beside(&limit.tree);
    }
}

fn order(f: &Found) -> String {
    let within = f
        .within
        .as_ref()
        .map(|w| format!(" within {:e}", w.to_f64()));
    let exactly = match &f.first {
        Some(first) => first.exactly,
        None => f.limit.is_some(),
    };
    let least = if exactly { "" } else { "at least " };
    format!("{least}{}{}", f.order, within.unwrap_or_default())
}

/// `F'F has 1/4, exact 1/2`, or what that means.
pub fn brief(l: &Limit) -> String {
    let numbers = || {
        let value = number(&l.value);
        format!("{} has {value}, exact {}", l.differential, l.expected)
    };
    l.meaning.clone().unwrap_or_else(numbers)
}

fn principal(e: &PrincipalError, order: usize) -> String {
    let norm = about(e.norm);
    format!(
        "{norm}, {} of {} of order {order} missed",
        e.missed,
        count(e.conditions, "condition")
    )
}

/// `yes`, `no`, or not known.
pub fn decided(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not decided",
    }
}

fn multistep(page: &mut Page, f: &Facts) {
    let strongly = match f.strongly_stable {
        Some(true) => ", strongly",
        _ => "",
    };
    page.fact(
        "zero-stable",
        &format!("{}{strongly}", decided(f.zero_stable)),
    );
    page.fact("A-stable", decided(f.a_stable));
    page.fact("I-stable", decided(f.i_stable));
    if let Some(angle) = f.angle.as_ref().filter(|_| f.a_stable == Some(false)) {
        let (lo, _) = angle.degrees();
        page.fact("A(α)-stable", &format!("α = {lo:.2}°"));
    }
    axes(page, &f.real, &f.imaginary_squared);
}

fn structure(page: &mut Page, f: &OneField) {
    let p = &f.properties;
    page.fact("kind", p.kind.name());
    let assumptions = format!("B({}) C({}) D({})", p.quadrature, p.stages, p.weights);
    page.fact(
        "stage order",
        &format!("{}  {assumptions}", p.stage_order()),
    );
    let named = [
        ("stiffly accurate", p.stiffly_accurate),
        ("first same as last", p.first_same_as_last),
        ("symplectic", p.symplectic),
        ("symmetric", p.symmetric),
    ];
    let named = named.iter().filter(|(_, is)| *is).map(|(n, _)| *n);
    let named: Vec<&str> = named.collect();
    if !named.is_empty() {
        page.fact("also", &named.join(", "));
    }
}

fn stability(page: &mut Page, f: &OneField) {
    if let Some(s) = &f.stability {
        let (num, den) = (&s.function.numerator, &s.function.denominator);
        let shown = match den.degree() {
            0 => polynomial(num),
            _ => format!("({}) / ({})", polynomial(num), polynomial(den)),
        };
        page.fact("stability function", &shown);
        page.fact("A-stable", decided(s.a_stable));
        page.fact("I-stable", decided(s.i_stable));
        page.fact("L-stable", decided(s.l_stable));
        axes(page, &s.real, &s.imaginary_squared);
    }
    let ssp = match &f.ssp {
        None => "not computed".to_string(),
        Some(Ssp::None) => "0".to_string(),
        Some(Ssp::Unbounded) => "unbounded".to_string(),
        Some(Ssp::Exactly(c)) => c.to_string(),
        Some(Ssp::Between(c)) => format!("{:.5}", c.lo.to_f64()),
    };
    page.fact("SSP coefficient", &ssp);
}

/// Facts of the computed step; all others are about the equation.
fn iterated(page: &mut Page, r: &Report) {
    if let Some(i) = &r.iterated {
        let real = format!("real axis{FAST}{}", extent(&i.real, false, "-"));
        let sentence = match i.shown() {
            Some(function) => format!(
                "{function}, {real}, imaginary axis{FAST}{}",
                extent(&i.imaginary_squared, true, "±")
            ),
            None => real,
        };
        page.fact("as it is iterated", &sentence);
    }
}

fn axes(page: &mut Page, real: &Option<Extent>, imaginary_squared: &Option<Extent>) {
    page.fact("real axis", &extent(real, false, "-"));
    page.fact("imaginary axis", &extent(imaginary_squared, true, "±"));
}

fn rows(m: &Multistep) -> Table {
    let mut table = Table::new(1);
    table.block(1, "");
    for (name, row) in [("α", &m.alpha), ("β", &m.beta)] {
        let cells = row.iter().cloned().map(Cell::Number);
        table.row([Cell::right(name)].into_iter().chain(cells).collect());
    }
    table
}

/// `c | A` over `| b` and `| b̂`, numbered where there are many stages; with several fields the points, and one block of columns
/// for each field, of the points where it is evaluated.
pub fn tableau(t: &Tableau) -> Table {
    match t.fields.len() {
        1 => of_one(t),
        _ => of_several(t),
    }
}

/// A line of the first columns and of numbers.
fn line<'x>(first: &[Cell], numbers: impl Iterator<Item = &'x Exact>) -> Vec<Cell> {
    let numbers = numbers.cloned().map(Cell::Number);
    first.iter().cloned().chain(numbers).collect()
}

/// Every stage has its own row and column, as it is written.
fn of_one(t: &Tableau) -> Table {
    let (n, explicit) = (t.stages(), t.is_explicit());
    let numbered = n > FEW;
    let fixed = if numbered { 2 } else { 1 };
    let mut table = Table::new(fixed);
    table.block(fixed, "");
    let name = |i: usize| Cell::right(format!("k{}", subscript(i + 1)));
    let none = vec![Cell::Empty; fixed];
    if numbered {
        table.row(none.iter().cloned().chain((0..n).map(name)).collect());
    }
    for (i, c) in t.nodes().iter().enumerate() {
        let c = Cell::Number(c.clone());
        let first = if numbered { vec![name(i), c] } else { vec![c] };
        let known = if explicit { i } else { n };
        let mut cells = line(&first, t.a[i].iter().take(known));
        cells.resize(fixed + n, Cell::Empty);
        table.row(cells);
    }
    table.rule();
    for b in [Some(&t.b), t.embedded.as_ref()].into_iter().flatten() {
        table.row(line(&none, b.iter()));
    }
    table
}

fn of_several(t: &Tableau) -> Table {
    let (points, parts) = (t.points().0.len(), t.parts());
    let explicit = t.is_explicit();
    let mut table = Table::new(1);
    let name = |i: usize| Cell::right(format!("Y{}", subscript(i + 1)));
    let mut names = vec![Cell::Empty];
    for p in parts.iter().filter(|p| !p.used.is_empty()) {
        table.block(names.len(), &p.field);
        names.extend(p.used.iter().map(|j| name(*j)));
    }
    table.row(names);
    for i in 0..points {
        let entries = parts
            .iter()
            .flat_map(|p| p.used.iter().map(move |j| (p, *j)));
        let cells = entries.map(|(p, j)| match explicit && j >= i {
            true => Cell::Empty,
            false => Cell::Number(p.a[i][j].clone()),
        });
        table.row([name(i)].into_iter().chain(cells).collect());
    }
    table.rule();
    let weights = |of: &dyn Fn(&Part) -> Option<Vec<Exact>>| -> Option<Vec<Cell>> {
        let mut cells = vec![Cell::Empty];
        for p in &parts {
            let b = of(p)?;
            cells.extend(p.used.iter().map(|j| Cell::Number(b[*j].clone())));
        }
        Some(cells)
    };
    let b = [
        weights(&|p| Some(p.b.clone())),
        weights(&|p| p.embedded.clone()),
    ];
    b.into_iter().flatten().for_each(|cells| table.row(cells));
    table
}
