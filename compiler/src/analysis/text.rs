//! Reports as text: aligned tables of exact fractions, drawn trees.

use super::report::{Found, Limit, OneField, PrincipalError, Report};
use odec_graph::Exact;
use odec_numerics::Tableau;
use odec_numerics::multistep::{Facts, Multistep};
use odec_numerics::poly::{Extent, Poly};
use odec_numerics::properties::Ssp;
use odec_numerics::tableau::Part;
use std::fmt::Write;

/// Widest number that is written out in a table.
const WIDEST: usize = 26;
/// Most stages of a tableau that is printed.
const MAX_STAGES: usize = 32;
/// Columns of the names of facts.
const NAMES: usize = 20;

/// The whole report; ends with a line end.
pub fn text(r: &Report) -> String {
    let mut out = String::new();
    let stages = match &r.tableau {
        Ok(t) => format!(
            ", {}",
            crate::scheme::resolve::count(t.stages(), "evaluation")
        ),
        Err(_) => String::new(),
    };
    let _ = writeln!(out, "{} — {}{stages}\n", r.name, r.kind);
    if let Some((m, _)) = &r.multistep {
        out += &indented(&rows(m));
        out.push('\n');
    }
    if let Some((t, _)) = &r.implicit {
        out += &indented(&tableau(t));
        out.push('\n');
        out += "  as it is iterated:\n\n";
    }
    match &r.tableau {
        Ok(t) if t.stages() <= MAX_STAGES => out += &indented(&tableau(t)),
        Ok(_) => out += "  (too many stages to be printed; --json has them)\n",
        Err(beyond) => fact(&mut out, "tableau", &format!("none: {}", beyond.why)),
    }
    out.push('\n');
    facts(&mut out, r);
    let limit = r.order.as_ref().ok().and_then(|f| f.limit.as_ref());
    let shown = r.stepped.as_ref().and_then(|f| f.limit.as_ref()).or(limit);
    if let Some(limit) = shown {
        let _ = writeln!(
            out,
            "\n  What limits {}: {} where the exact solution has {}\n",
            if r.stepped.is_some() {
                "the order with Euler sub-steps"
            } else {
                "the order"
            },
            number(&limit.value),
            limit.expected
        );
        out += &indented(&limit.tree);
    }
    out
}

fn facts(out: &mut String, r: &Report) {
    let claimed = match r.claims.as_slice() {
        [] => String::new(),
        claims => format!("  (claimed: {})", claims.join(", ")),
    };
    match &r.order {
        Ok(f) => fact(out, "order", &format!("{}{claimed}", order(f))),
        Err(beyond) => fact(out, "order", &format!("not known: {}{claimed}", beyond.why)),
    }
    if let Some(f) = &r.stepped {
        fact(out, "Euler sub-steps", &order(f));
    }
    if let Some((_, f)) = &r.implicit {
        fact(out, "stages found exactly", &order(f));
    }
    if let Some(p) = r.embedded {
        fact(out, "embedded order", &p.to_string());
    }
    if let Some(e) = &r.error {
        fact(out, "principal error", &principal(e));
    }
    if let Some((_, f)) = &r.multistep {
        multistep(out, f);
    }
    if let Some(f) = &r.one_field {
        one_field(out, f, r.multistep.is_some());
    }
}

fn fact(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<NAMES$} {value}");
}

fn order(f: &Found) -> String {
    let within = f
        .within
        .as_ref()
        .map(|w| format!(" within {:e}", w.to_f64()));
    let least = if f.limit.is_none() { "at least " } else { "" };
    format!("{least}{}{}", f.order, within.unwrap_or_default())
}

/// `F'F has 1/4, exact 1/2`.
pub fn brief(l: &Limit) -> String {
    format!(
        "{} has {}, exact {}",
        l.differential,
        number(&l.value),
        l.expected
    )
}

fn principal(e: &PrincipalError) -> String {
    format!(
        "{:.4e}, {} of {} conditions missed",
        e.norm, e.missed, e.conditions
    )
}

fn decided(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not decided",
    }
}

fn multistep(out: &mut String, f: &Facts) {
    if let Some(c) = &f.error_constant {
        fact(out, "error constant", &number(c));
    }
    let strongly = match f.strongly_stable {
        Some(true) => ", strongly",
        _ => "",
    };
    fact(
        out,
        "zero-stable",
        &format!("{}{strongly}", decided(f.zero_stable)),
    );
    fact(out, "A-stable", decided(f.a_stable));
    if let Some(angle) = f.angle.filter(|_| f.a_stable == Some(false)) {
        fact(out, "A(α)-stable", &format!("α = {angle:.2}° (estimated)"));
    }
}

fn one_field(out: &mut String, f: &OneField, multistep: bool) {
    if multistep {
        return;
    }
    let p = &f.properties;
    fact(out, "kind", p.kind.name());
    let assumptions = format!("B({}) C({}) D({})", p.quadrature, p.stages, p.weights);
    fact(
        out,
        "stage order",
        &format!("{}  {assumptions}", p.stage_order()),
    );
    if let Some(s) = &f.stability {
        let (num, den) = (&s.function.numerator, &s.function.denominator);
        let shown = match den.degree() {
            0 => polynomial(num),
            _ => format!("({}) / ({})", polynomial(num), polynomial(den)),
        };
        fact(out, "stability function", &shown);
        fact(out, "A-stable", decided(s.a_stable));
        fact(out, "L-stable", decided(s.l_stable));
        fact(out, "real axis", &extent(&s.real, false, "-"));
        fact(
            out,
            "imaginary axis",
            &extent(&s.imaginary_squared, true, "±"),
        );
    }
    let ssp = match &f.ssp {
        None => "not sought".to_string(),
        Some(Ssp::None) => "0".to_string(),
        Some(Ssp::Unbounded) => "unbounded".to_string(),
        Some(Ssp::Exactly(c)) => c.to_string(),
        Some(Ssp::Between(lo, _)) => format!("{:.5}", lo.to_f64()),
    };
    fact(out, "SSP coefficient", &ssp);
    let named = [
        ("stiffly accurate", p.stiffly_accurate),
        ("first same as last", p.first_same_as_last),
        ("symplectic", p.symplectic),
        ("symmetric", p.symmetric),
    ];
    let named = named.iter().filter(|(_, is)| *is).map(|(n, _)| *n);
    let named: Vec<&str> = named.collect();
    if !named.is_empty() {
        fact(out, "also", &named.join(", "));
    }
}

fn extent(e: &Option<Extent>, squared: bool, sign: &str) -> String {
    match e {
        None => "not decided".to_string(),
        Some(Extent::Zero) => "0".to_string(),
        Some(Extent::Infinite) => "unbounded".to_string(),
        Some(Extent::Until { hi, .. }) => format!("{sign}{:.10}", end(hi, squared)),
    }
}

/// The end of an extent.
pub fn end(hi: &Exact, squared: bool) -> f64 {
    let x = hi.to_f64();
    if squared { x.sqrt() } else { x }
}

/// A number, rounded where it is long.
pub fn number(x: &Exact) -> String {
    let text = x.to_string();
    match text.len() {
        0..=WIDEST => text,
        _ => format!("{:.12}…", x.to_f64()),
    }
}

/// `1 + z + 1/2 z² + 1/6 z³`.
fn polynomial(p: &Poly) -> String {
    let mut text = String::new();
    for (n, c) in p.0.iter().enumerate().filter(|(_, c)| !c.is_zero()) {
        let minus = c.is_negative();
        let magnitude = if minus { -c } else { c.clone() };
        text += match (text.is_empty(), minus) {
            (true, false) => "",
            (true, true) => "-",
            (false, false) => " + ",
            (false, true) => " - ",
        };
        let shown = match magnitude.is_sum() {
            true => format!("({})", number(&magnitude)),
            false => number(&magnitude),
        };
        text += &match (n, magnitude.is_one()) {
            (0, _) => shown,
            (1, true) => "z".to_string(),
            (1, false) => format!("{shown} z"),
            (_, true) => format!("z{}", superscript(n)),
            (_, false) => format!("{shown} z{}", superscript(n)),
        };
    }
    if text.is_empty() { "0".into() } else { text }
}

fn superscript(n: usize) -> String {
    let digit = |c: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(c as usize - '0' as usize);
    n.to_string().chars().filter_map(digit).collect()
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|l| format!("  {l}").trim_end().to_string() + "\n")
        .collect()
}

fn rows(m: &Multistep) -> String {
    let row =
        |name: &str, r: &[Exact]| [vec![name.to_string()], r.iter().map(number).collect()].concat();
    aligned(&[row("α", &m.alpha), row("β", &m.beta)], &[1])
}

/// `c | A` over `| b` and `| b̂`; with several fields the points, and one block of columns for each field, of the points where it
/// is evaluated.
pub fn tableau(t: &Tableau) -> String {
    let (points, _) = t.points();
    let (parts, nodes) = (t.parts(), t.nodes());
    let single = parts.len() == 1;
    // With one field every stage has its own row and column, as it is written.
    let c: Vec<&Exact> = match single {
        true => nodes.iter().collect(),
        false => points.iter().map(|p| &nodes[*p]).collect(),
    };
    let n = c.len();
    let explicit = t.is_explicit();
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut bars = vec![1];
    let blocks: Vec<Part> = match single {
        true => vec![Part {
            field: String::new(),
            a: t.a.clone(),
            b: t.b.clone(),
            embedded: t.embedded.clone(),
            used: (0..n).collect(),
        }],
        false => parts,
    };
    if !single {
        let mut head = vec![String::new()];
        for p in &blocks {
            head.extend(p.used.iter().enumerate().map(|(i, _)| match i {
                0 => p.field.clone(),
                _ => String::new(),
            }));
        }
        lines.push(head);
    }
    for p in &blocks {
        bars.push(bars[bars.len() - 1] + p.used.len());
    }
    for (i, c) in c.iter().enumerate() {
        let mut line = vec![match single {
            true => number(c),
            false => format!("Y{}", i + 1),
        }];
        for p in &blocks {
            line.extend(p.used.iter().map(|j| match explicit && single && *j >= i {
                true => String::new(),
                false => number(&p.a[i][*j]),
            }));
        }
        lines.push(line);
    }
    let weights = |of: &dyn Fn(&Part) -> Option<Vec<Exact>>| -> Option<Vec<String>> {
        let mut line = vec![String::new()];
        for p in &blocks {
            let b = of(p)?;
            line.extend(p.used.iter().map(|j| number(&b[*j])));
        }
        Some(line)
    };
    let rule = lines.len();
    lines.extend(weights(&|p| Some(p.b.clone())));
    lines.extend(weights(&|p| p.embedded.clone()));
    bars.pop();
    let text = aligned(&lines, &bars);
    let mut shown: Vec<&str> = text.lines().collect();
    let line: String = shown
        .iter()
        .max_by_key(|l| l.chars().count())
        .map_or(String::new(), |l| {
            l.chars()
                .map(|c| if c == '│' { '┼' } else { '─' })
                .collect()
        });
    shown.insert(rule, &line);
    shown.join("\n")
}

/// Columns to the right, with a bar before some of them.
fn aligned(lines: &[Vec<String>], bars: &[usize]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |s: &String| s.chars().count();
    let width = |j: usize| {
        lines
            .iter()
            .filter_map(|l| l.get(j))
            .map(wide)
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        for (j, w) in widths.iter().enumerate() {
            let cell = line.get(j).map_or("", String::as_str);
            let before = match (j, bars.contains(&j)) {
                (0, _) => "",
                (_, true) => " │ ",
                (_, false) => "  ",
            };
            let _ = write!(
                out,
                "{before}{}{cell}",
                " ".repeat(w - cell.chars().count())
            );
        }
        out.push('\n');
    }
    out
}
