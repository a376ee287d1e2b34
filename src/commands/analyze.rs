//! `odec analyze`: analyzes the schemes of a file, and the flows of its model as they are computed. Schemes are analyzed where they claim
//! what is not true, too: the error comes first.

use crate::cli;
use crate::commands::methods;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, latex, svg, text};
use odec_compiler::cost;
use odec_compiler::measure::{Entry, entry};
use odec_compiler::text::page::Page;
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_driver::measure;
use odec_driver::source;
use odec_driver::terminal;
use odec_graph::Exact;
use odec_runtime::system::{files, output};
use odec_runtime::{Shown, out, outln};
use serde_json::{Value, json};
use std::path::Path;

pub fn run(args: &cli::Analyze) -> Done {
    if let Some(folder) = &args.svg {
        output::check_folder(folder).map_err(Failure::input)?;
    }
    let from = &args.source;
    let mut parsed = source::parsed(&from.file, &from.set)?;
    let (checked, messages) = parsed.examined()?;
    let verdict = source::report(&messages, &parsed.sources);
    let checked = checked.filter(|_| verdict.is_ok());
    let (instances, evolved) = match &checked {
        Some(checked) => (checked.instances.clone(), &checked.evolved[..]),
        None => match parsed.schemes(&messages) {
            Some(schemes) => (schemes, &[][..]),
            None => {
                return verdict.and(Err(Failure::internal(
                    "compilation failed without an error",
                )));
            }
        },
    };
    let cost = match (&checked, &from.name) {
        (Some(checked), None) => parsed.cost(checked)?,
        _ => None,
    };
    let built = checked.as_ref().and_then(|c| c.built.as_ref());
    let model = built.zip(cost);
    let wanted = |name: &str| from.name.as_ref().is_none_or(|n| n == name);
    let schemes = instances.iter();
    let schemes = schemes.filter(|i| wanted(&i.scheme.name.name));
    let mut reports: Vec<Report> = schemes.map(|i| report::scheme(i, LIBRARY)).collect();
    if from.name.is_none() {
        reports.extend(evolved.iter().map(|e| report::evolve(e, LIBRARY)));
    }
    if let (Some(name), true) = (&from.name, reports.is_empty()) {
        let names = instances.iter().map(|i| i.scheme.name.name.as_str());
        let mut names: Vec<&str> = names.collect();
        names.dedup();
        let file = from.file.shown();
        return Err(Failure::Input(format!(
            "{file}: no scheme `{name}` is defined or applied here; known schemes: {}",
            match names.as_slice() {
                [] => "none".to_string(),
                names => names.join(", "),
            }
        )));
    }
    let lipschitz = args.lipschitz.as_deref().map(bound).transpose()?;
    reports
        .iter_mut()
        .for_each(|r| r.lipschitz.clone_from(&lipschitz));
    if args.json {
        let mut all: Vec<Value> = reports.iter().map(json::json).collect();
        all.extend(model.iter().map(|(built, cost)| {
            let cost = cost::json::json(cost);
            json!({ "name": built.name, "kind": "model", "cost": cost })
        }));
        outln!("{}", Value::Array(all));
    } else if args.latex {
        for r in &reports {
            match latex::latex(r) {
                Some(array) => out!("% {}\n{array}", r.name),
                None => outln!("% {}: there is no tableau", r.name),
            }
        }
    } else {
        let screen = terminal::screen();
        let texts = reports.iter().map(|r| text::text_on(r, screen));
        let mut texts: Vec<String> = texts.collect();
        texts.extend(model.iter().map(|(built, cost)| {
            let mut page = Page::new(screen);
            page.title(&built.name, "model");
            cost::text::write(&mut page, cost);
            page.finish()
        }));
        out!("{}", texts.join("\n"));
    }
    // Pictures come last: what is wrong with them loses no words.
    if let Some(folder) = &args.svg {
        draw(&reports, folder)?;
        if measure::COMPILED {
            let all = instances.iter().filter(|i| wanted(&i.scheme.name.name));
            let all = all.map(|i| entry(i, LIBRARY).map_err(Failure::internal));
            converge(&all.collect::<Done<Vec<_>>>()?, folder)?;
        }
    }
    verdict
}

/// A positive number, as decimal or fraction.
fn bound(text: &str) -> Done<Exact> {
    let (n, d) = text.split_once('/').unwrap_or((text, "1"));
    let number = Exact::decimal(n).ok().zip(Exact::decimal(d).ok());
    let quotient = number.and_then(|(n, d)| Some(&n * &d.recip().ok()?));
    let positive = quotient.filter(|q| q > &Exact::zero());
    positive.ok_or_else(|| {
        Failure::Input(format!(
            "--lipschitz {text}: not a positive number such as 20, 0.5 or 1/3"
        ))
    })
}

/// Measures the machine code of each scheme whose order is proved, and draws its errors.
fn converge(entries: &[Entry], folder: &Path) -> Done {
    for (e, curves) in entries.iter().zip(measure::curves(entries)?) {
        let (name, one) = (&e.name, std::slice::from_ref(e));
        if let Some(picture) = methods::picture(name, one, &[curves]) {
            let path = folder.join(format!("{}.convergence.svg", svg::stem(name)));
            output::write_text(&path, &picture).map_err(Failure::input)?;
        }
    }
    Ok(())
}

/// Writes the pictures; later reports of the same name have a number.
fn draw(reports: &[Report], folder: &Path) -> Done {
    let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", folder.shown()));
    files::create_folder(folder).map_err(failed)?;
    let mut names: Vec<String> = Vec::new();
    for r in reports {
        let stem = svg::stem(&r.name);
        let same = names.iter().filter(|n| **n == stem).count();
        names.push(stem.clone());
        let stem = if same == 0 {
            stem
        } else {
            format!("{stem}-{}", same + 1)
        };
        for (kind, picture) in svg::pictures(r) {
            let path = folder.join(format!("{stem}.{kind}.svg"));
            output::write_text(&path, &picture).map_err(Failure::input)?;
        }
    }
    Ok(())
}
