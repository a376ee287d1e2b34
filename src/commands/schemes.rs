//! `odec schemes`: the library by family, one line for each scheme.

use crate::cli;
use odec_compiler::analysis::report;
use odec_compiler::analysis::summary::{Size, Summary};
use odec_compiler::measure::instances;
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_grammar::ast::{Item, SchemeItem};
use odec_grammar::{nearest, parse};
use odec_library::LibraryScheme;
use odec_runtime::system::progress::{Show, Work};
use odec_runtime::{out, outln};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Families in the order of the page; what lies elsewhere follows.
const FAMILIES: [&str; 10] = [
    "runge_kutta/explicit",
    "runge_kutta/implicit",
    "runge_kutta/imex",
    "runge_kutta/stabilized",
    "multistep",
    "extrapolation",
    "exponential",
    "splitting",
    "partitioned",
    "transformer",
];

const HEAD: &str = "# The schemes of the library

Written by `odec schemes > docs/schemes.md`; a test compares them. `odec analyze FILE` says more of a scheme, [methods.md](methods.md) what is measured of its machine code.

A scheme is used by its name, whatever folder it lies in: `evolve rk4(layer) for 6 steps`. The models that come with odec are in [schemes/models](../schemes/models).

*Order* is proved in exact arithmetic, for arguments and learned coefficients as they are at first; of implicit methods for the iterations that are computed, of splittings for exact flows.
*Size* is what a step is made of: stages, steps of a multistep method, flows of a splitting, or field evaluations. *Embedded* is the order of the partner.
*Proved* says what holds in exact arithmetic, of implicit methods with their equations solved: stability (the strongest of L, A and I; else how far the negative real axis and the imaginary axis are stable),
the SSP coefficient, structure.
";

/// A scheme with its line.
struct Row {
    scheme: &'static LibraryScheme,
    summary: Summary,
    description: String,
    citations: Vec<String>,
}

pub fn run(args: &cli::Schemes) -> Done {
    let families = chosen(&args.families)?;
    let rows = rows(&families)?;
    if args.json {
        let all: Vec<Value> = rows.iter().map(object).collect();
        outln!("{:#}", Value::Array(all));
        return Ok(());
    }
    if args.families.is_empty() {
        out!("{HEAD}");
    }
    for (i, family) in families.iter().enumerate() {
        let first = i == 0 && !args.families.is_empty();
        let blank = if first { "" } else { "\n" };
        outln!("{blank}## [{family}](../schemes/{family})\n");
        outln!("| scheme | order | size | embedded | proved | cited |\n|---|---|---|---|---|---|");
        for row in rows.iter().filter(|row| row.scheme.family == *family) {
            outln!("{}", line(row));
        }
    }
    Ok(())
}

/// The schemes of some families, by name. Proofs take a few seconds.
fn rows(families: &[&str]) -> Done<Vec<Row>> {
    let wanted = LIBRARY.iter().filter(|s| families.contains(&s.family));
    let total = wanted.clone().count() as u64;
    let mut work = Work::new(Show::Auto, "schemes", total);
    let mut rows = Vec::new();
    for (done, scheme) in wanted.enumerate() {
        work.at(done as u64);
        rows.push(row(scheme)?);
    }
    work.finish();
    Ok(rows)
}

/// The families that are asked for: by their whole names, or by a part such as `runge_kutta`.
fn chosen(asked: &[String]) -> Done<Vec<&'static str>> {
    let mut all: Vec<&str> = FAMILIES.to_vec();
    let known: BTreeSet<&str> = LIBRARY.iter().map(|s| s.family).collect();
    all.retain(|family| known.contains(family));
    let others = known.iter().filter(|family| !FAMILIES.contains(family));
    all.extend(others);
    if asked.is_empty() {
        return Ok(all);
    }
    let named = |family: &str, word: &str| family == word || family.split('/').any(|p| p == word);
    if let Some(word) = (asked.iter()).find(|word| !all.iter().any(|family| named(family, word))) {
        let parts = all.iter().flat_map(|family| family.split('/'));
        let near = nearest(word, parts.chain(all.iter().copied()));
        let near = near.map(|n| format!("; did you mean `{n}`?"));
        return Err(Failure::Input(format!(
            "there is no family `{word}`{} (there are {})",
            near.unwrap_or_default(),
            all.join(", ")
        )));
    }
    all.retain(|family| asked.iter().any(|word| named(family, word)));
    Ok(all)
}

fn row(scheme: &'static LibraryScheme) -> Done<Row> {
    let instances = instances(scheme.name, scheme.text, LIBRARY).map_err(Failure::internal)?;
    let none = || Failure::internal(format!("{} holds no scheme", scheme.path()));
    let first = instances.first().ok_or_else(none)?;
    let (file, _) = parse(0, scheme.text);
    let (mut description, mut citations) = (String::new(), Vec::new());
    for item in file.items {
        let Item::Scheme(s) = item else { continue };
        description = s.doc.join(" ");
        citations.extend(s.items.into_iter().filter_map(|item| match item {
            SchemeItem::Cite { text, .. } => Some(text),
            _ => None,
        }));
    }
    Ok(Row {
        scheme,
        summary: Summary::new(&report::scheme(first, LIBRARY)),
        description,
        citations,
    })
}

fn line(row: &Row) -> String {
    let s = &row.summary;
    let number = |n: Option<usize>| n.map_or("–".into(), |n| n.to_string());
    let size = s.size.map(|size| match size.counted() {
        (1, what) => format!("1 {}", what.trim_end_matches('s')),
        (n, what) => format!("{n} {what}"),
    });
    let proved = Some(s.proved.join(", ")).filter(|said| !said.is_empty());
    let dash = || "–".to_string();
    format!(
        "| {} | {} | {} | {} | {} | {} |",
        row.scheme.name,
        number(s.order),
        size.unwrap_or_else(dash),
        number(s.embedded),
        proved.unwrap_or_else(dash),
        row.citations.join("; ").replace('|', "\\|")
    )
}

fn object(row: &Row) -> Value {
    let s = &row.summary;
    let (size, what) = s.size.map(Size::counted).unzip();
    json!({
        "name": row.scheme.name, "family": row.scheme.family, "description": row.description, "citations": row.citations,
        "order": s.order, "size": size, "size_counts": what, "embedded": s.embedded, "proved": s.proved,
    })
}
