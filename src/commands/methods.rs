//! `odec methods`: the schemes of the library or of a file, with claimed, proved and measured orders.

use crate::cli;
use odec_compiler::analysis::claims::Instance;
use odec_compiler::measure::picture::{self, Line, Titles};
use odec_compiler::measure::{Curve, Entry, entry, of_text};
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_driver::measure;
use odec_driver::measure::Curves;
use odec_driver::source;
use odec_library::LibraryScheme;
use odec_runtime::system::output;
use odec_runtime::{Shown, out, outln};
use serde_json::{Value, json};
use std::path::Path;

/// Most curves that a picture keeps apart.
const MOST_CURVES: usize = picture::COLOURS.len();

pub fn run(args: &cli::Methods) -> Done {
    if let Some(file) = &args.svg {
        output::check_kind(file, &["svg"], &[]).map_err(Failure::input)?;
    }
    let entries = chosen(args)?;
    let curves = match measure::COMPILED {
        true => measure::curves(&entries)?,
        false => vec![None; entries.len()],
    };
    if let Some(file) = &args.svg {
        return draw(&entries, &curves, file);
    }
    let all = entries.iter().zip(&curves);
    let left_out = all
        .clone()
        .filter_map(|(e, c)| Some((&e.name, unmeasured(e, c.as_ref())?)));
    if args.json {
        outln!(
            "{:#}",
            all.map(|(e, c)| object(e, c.as_ref())).collect::<Value>()
        );
        return Ok(());
    }
    match &args.file {
        None => out!("{HEAD}{MEANING}"),
        Some(file) => out!("# The methods of {}\n\n{MEANING}", file.shown()),
    }
    let measured = if measure::COMPILED {
        " measured | on a general system |"
    } else {
        ""
    };
    outln!("| method | kind | fields | evaluations | claimed | proved |{measured}");
    outln!(
        "|---|---|---|---|---|---|{}",
        if measure::COMPILED { "---|---|" } else { "" }
    );
    for (e, c) in all {
        let dash = || "–".to_string();
        let order = e.proved.map_or_else(dash, |p| p.to_string());
        let claimed = e.claimed.clone().unwrap_or_else(dash);
        let claimed = claimed.trim_start_matches("order ");
        out!(
            "| {} | {} | {} | {} | {claimed} | {order} |",
            e.name,
            e.kind,
            arity(e),
            e.evaluations
        );
        if measure::COMPILED {
            for curve in [
                c.as_ref().map(|c| &c.graded),
                c.as_ref().map(|c| &c.general),
            ] {
                let found = curve.and_then(|c| c.order);
                out!(" {} |", found.map_or_else(dash, |p| format!("{p:.2}")));
            }
        }
        outln!();
    }
    let left_out: Vec<_> = left_out.collect();
    if !left_out.is_empty() {
        outln!("\nNot measured:\n");
        let lines = left_out.iter();
        lines.for_each(|(name, why)| outln!("- {name}: {why}"));
    }
    Ok(())
}

/// Why a figure is missing.
fn unmeasured(e: &Entry, c: Option<&Curves>) -> Option<String> {
    if !measure::COMPILED {
        return None;
    }
    let of = |c: &Curve, on: &str| c.why.as_ref().map(|why| format!("{why}{on}"));
    e.unmeasured().or_else(|| {
        let c = c?;
        of(&c.graded, "").or_else(|| of(&c.general, ", on the general system"))
    })
}

/// The schemes that are asked for, in the order of their names on the command line; all where none is named. The others are not proved.
fn chosen(args: &cli::Methods) -> Done<Vec<Entry>> {
    let Some(file) = &args.file else {
        let schemes: Vec<&LibraryScheme> = LIBRARY.iter().collect();
        let each = wanted(&args.names, &schemes, |s| s.name)?.into_iter();
        let each = each.map(|s| of_text(s.name, s.text, LIBRARY).map_err(Failure::internal));
        return Ok(each
            .collect::<Done<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect());
    };
    let checked = source::parsed(file, &[])?.checked()?;
    let instances: Vec<&Instance> = checked.instances.iter().collect();
    let each = wanted(&args.names, &instances, |i| &i.scheme.name.name)?.into_iter();
    each.map(|i| entry(i, LIBRARY).map_err(Failure::internal))
        .collect()
}

/// Most schemes that a message names.
const MOST_LISTED: usize = 10;

/// Those of the names, or all.
fn wanted<'s, T>(
    names: &[String],
    all: &[&'s T],
    name: impl Fn(&'s T) -> &'s str,
) -> Done<Vec<&'s T>> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| {
        let found = all.iter().find(|s| name(s) == wanted).copied();
        found.ok_or_else(|| {
            let near = odec_grammar::nearest(wanted, all.iter().map(|s| name(s)));
            let known = || match all.len() {
                n @ ..=MOST_LISTED => {
                    let names: Vec<&str> = all[..n].iter().map(|s| name(s)).collect();
                    format!("there are: {}", names.join(", "))
                }
                _ => "`odec schemes` lists them".to_string(),
            };
            let help = near.map_or_else(known, |n| format!("did you mean `{n}`?"));
            Failure::Input(format!("there is no scheme `{wanted}`; {help}"))
        })
    };
    names.iter().map(find).collect()
}

/// The curves of errors of what was measured, as a picture; `None` where nothing was.
pub fn picture(title: &str, entries: &[Entry], curves: &[Option<Curves>]) -> Option<String> {
    let lines = entries.iter().zip(curves).filter_map(|(e, c)| {
        Some(Line {
            name: &e.name,
            proved: e.proved,
            curve: &c.as_ref()?.general,
        })
    });
    let lines: Vec<Line> = lines.collect();
    let titles = Titles {
        title,
        subject: "test problem: ten equations with known solutions",
        error: "error at t = 1.86",
    };
    (!lines.is_empty()).then(|| picture::svg(titles, &lines))
}

fn draw(entries: &[Entry], curves: &[Option<Curves>], file: &Path) -> Done {
    if entries.len() > MOST_CURVES {
        return Err(Failure::Input(format!(
            "--svg draws at most {MOST_CURVES} methods, not {}; name some of them",
            entries.len()
        )));
    }
    let Some(drawn) = picture("Work and precision", entries, curves) else {
        return Err(Failure::input(match measure::COMPILED {
            true => "none of these methods has a proved order, so nothing is measured",
            false => "this odec was built without code generation (feature `mlir`)",
        }));
    };
    output::write_text(file, &drawn).map_err(Failure::input)
}

const HEAD: &str = "# The methods of the library

Generated by `odec methods > docs/methods.md`; a test compares names, claims and proofs.

";

/// What the columns mean.
const MEANING: &str = "\
*Claimed* is the order in the scheme's file; a false claim is an error. *Proved* is the order in exact arithmetic over rooted trees, up to the residual of the claim where it gives one: for splittings with
exact sub-flows, for implicit methods with their iterations as computed. *Measured* is the slope of log error against log h of the compiled code in f64: on a non-linear system whose errors have a leading
term alone, and on a general system (linear, non-linear and non-autonomous equations). There, methods with a small leading term look better than their order until rounding dominates
(`compiler/src/measure/problem.rs`). Fields see the time that they are evaluated at, or that `at:` says. The sub-flows of splittings are integrated by a Runge–Kutta method of at least their order.
Methods for x'' = F(x) are measured on equations of second order, the same in both columns. Learned coefficients have their initial values. *Evaluations* are per step after the first steps; a sub-flow counts as one Euler step. `n+` fields: a list.

";

fn arity(e: &Entry) -> String {
    match e.list {
        true => format!("{}+", e.fields),
        false => e.fields.to_string(),
    }
}

fn object(e: &Entry, c: Option<&Curves>) -> Value {
    let mut o = json!({
        "name": e.name, "kind": e.kind, "fields": e.fields, "list": e.list, "evaluations": e.evaluations,
        "claimed": e.claimed, "proved": e.proved, "why_not": e.why,
    });
    if measure::COMPILED {
        let points = |c: &Curve| {
            let point = |p: &odec_compiler::measure::Point| json!({ "steps": p.steps, "h": p.h, "evaluations": p.evaluations, "error": p.error });
            c.points.iter().map(point).collect::<Value>()
        };
        o["measured"] = json!(c.and_then(|c| c.graded.order));
        o["general"] = json!(c.and_then(|c| c.general.order));
        o["why_not_measured"] = json!(unmeasured(e, c));
        o["points"] = json!(c.map(|c| points(&c.graded)));
        o["general_points"] = json!(c.map(|c| points(&c.general)));
    }
    o
}
