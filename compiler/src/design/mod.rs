//! Writes designed methods as `.ode` files, with the claims that hold.
//!
//! Takes a [`Design`]; gives text and a picture. The compiler proves the claims, as in any other file.

mod picture;

pub use odec_numerics::design::{
    Design, Goal, Level, Method, Refused, Traded, registers, runge_kutta, sdirk, splitting,
};
pub use picture::picture;

use odec_graph::Exact;
use odec_numerics::Tableau;
use odec_numerics::properties::{Kind, Properties};
use odec_numerics::stability::Stability;
use odec_text::number::about;
use std::fmt::Write;

/// Names of the fields of a splitting.
const FIELDS: [&str; 2] = ["A", "B"];

/// What a goal is called in a sentence.
pub fn called(goal: Goal) -> &'static str {
    match goal {
        Goal::Error => "principal error",
        Goal::ErrorBound => "Lotkin's bound of the error",
        Goal::Ssp => "SSP coefficient",
        Goal::RealAxis => "stable part of the negative real axis",
        Goal::ImaginaryAxis => "stable part of the imaginary axis",
        Goal::Area => "area of the region of stability",
    }
}

/// A goal's value with as many digits as are certain.
pub fn value(d: &Design) -> String {
    let Some(level) = &d.level else {
        return about(d.value);
    };
    if level.lo == level.hi {
        return level.lo.to_string();
    }
    let [lo, hi] = [&level.lo, &level.hi].map(|x| match level.squared {
        true => x.to_f64().sqrt(),
        false => x.to_f64(),
    });
    let alike = |places: &usize| format!("{lo:.places$}") == format!("{hi:.places$}");
    let places = (3..=9).rev().find(alike).unwrap_or(3);
    format!("{hi:.places$}")
}

/// The file: a scheme of some name, how it was made, and what is true of it.
pub fn text(name: &str, command: &str, d: &Design) -> String {
    let goal = match d.goal.is_error() {
        true => format!("least {} {}", called(d.goal), about(d.value)),
        false => format!("largest {} {}", called(d.goal), value(d)),
    };
    let (params, claims, body) = match &d.method {
        Method::Tableau(t) => tableau(t, d),
        Method::Flows(flows) => splitting(flows),
        Method::Registers { a, b } => registers_of(a, b),
    };
    let within = d.within.as_ref();
    let within = within.map_or(String::new(), |r| format!(" within {:e}", r.to_f64()));
    let mut all = vec![format!("order {}{within}", d.order)];
    all.extend(claims);
    let text = format!(
        "/// Designed for {goal}. Written by `{command}`.\nscheme {name}{params} {{\n{}\n{body}}}\n",
        all.join("; ")
    );
    odec_grammar::format(0, &text).unwrap_or(text)
}

/// A number as a tableau's entry: without blanks outside brackets.
fn entry(x: &Exact) -> String {
    match x.to_string() {
        text if text.contains(' ') => format!("({text})"),
        text => text,
    }
}

fn tableau(t: &Tableau, d: &Design) -> (String, Vec<String>, String) {
    let about = Properties::new(t);
    let mut claims = vec![match about.kind {
        Kind::Explicit => "explicit".to_string(),
        Kind::Sdirk => "sdirk".to_string(),
        Kind::Esdirk | Kind::Dirk => "dirk".to_string(),
        Kind::Firk => "firk".to_string(),
    }];
    match &d.level {
        Some(level) if d.goal == Goal::Ssp && level.lo == level.hi => {
            claims.push(format!("ssp {}", level.lo));
        }
        _ => {}
    }
    let stable = Stability::new(t);
    let is = |of: fn(&Stability) -> Option<bool>| stable.as_ref().and_then(of) == Some(true);
    let named = [
        ("L_stable", is(|s| s.l_stable)),
        ("A_stable", is(|s| s.a_stable) && !is(|s| s.l_stable)),
        ("stiffly_accurate", about.stiffly_accurate),
        ("symplectic", about.symplectic),
        ("symmetric", about.symmetric),
    ];
    let named = named.into_iter().filter(|(_, holds)| *holds);
    claims.extend(named.map(|(name, _)| name.to_string()));
    let mut rows = String::from("tableau {\n");
    for (i, (c, row)) in t.nodes().iter().zip(&t.a).enumerate() {
        let written = if t.is_explicit() { i } else { last(row) };
        let entries: Vec<String> = row[..written].iter().map(entry).collect();
        let _ = writeln!(rows, "{} | {}", entry(c), entries.join(" "));
    }
    let weights: Vec<String> = t.b.iter().map(entry).collect();
    let _ = writeln!(rows, "| {}\n}}", weights.join(" "));
    match t.is_explicit() {
        true => (String::new(), claims, rows),
        false => {
            let params = format!("(F, r = {})", d.order.max(2));
            rows.push_str("solve by fixed_point(iterations: r)\n");
            (params, claims, rows)
        }
    }
}

/// Williamson's form: `q` holds what is added next, `y` the state.
fn registers_of(a: &[Exact], b: &[Exact]) -> (String, Vec<String>, String) {
    let mut body = String::from("step x {\nq = h*F(x)\n");
    let mut state = "x";
    for (a, b) in a.iter().zip(b) {
        let _ = writeln!(body, "y = {state} + {b}*q\nq = {a}*q + h*F(y)");
        state = "y";
    }
    let last = b.last().cloned().unwrap_or_default();
    let _ = writeln!(body, "return {state} + {last}*q\n}}");
    ("(F)".into(), vec!["explicit".into()], body)
}

/// How many entries of a row there are up to the last one that is not 0.
fn last(row: &[Exact]) -> usize {
    row.iter().rposition(|a| !a.is_zero()).map_or(0, |n| n + 1)
}

fn splitting(flows: &[(usize, Exact)]) -> (String, Vec<String>, String) {
    let mirrored = flows.iter().eq(flows.iter().rev());
    let claims = mirrored.then(|| "symmetric".to_string());
    let flow = |(field, part): &(usize, Exact)| format!("{}({part})", FIELDS[*field]);
    let flows: Vec<String> = flows.iter().map(flow).collect();
    let body = format!("{}\n", flows.join(" "));
    ("(A, B)".into(), claims.into_iter().collect(), body)
}
