//! `odec analyze`: what is true of a file's schemes, and of its model's flows as they are computed.

use crate::cli;
use crate::fail::{Done, Failure};
use crate::source;
use crate::terminal;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, latex, page::Page, text};
use odec_compiler::cost;
use serde_json::{Value, json};

pub fn run(args: &cli::Analyze) -> Done {
    let from = &args.source;
    let mut parsed = source::parsed(&from.file, &from.set)?;
    let checked = parsed.checked()?;
    let cost = match from.name {
        None => parsed.cost(&checked)?,
        Some(_) => None,
    };
    let model = checked.built.as_ref().zip(cost);
    let wanted = |name: &str| from.name.as_ref().is_none_or(|n| n == name);
    let schemes = checked.instances.iter();
    let schemes = schemes.filter(|i| wanted(&i.scheme.name.name));
    let mut reports: Vec<Report> = schemes.map(report::scheme).collect();
    if from.name.is_none() {
        reports.extend(checked.evolved.iter().map(report::evolve));
    }
    if let (Some(name), true) = (&from.name, reports.is_empty()) {
        let names = checked
            .instances
            .iter()
            .map(|i| i.scheme.name.name.as_str());
        let mut names: Vec<&str> = names.collect();
        names.dedup();
        let file = from.file.display();
        return Err(Failure::Input(format!(
            "{file}: no scheme `{name}` is defined or applied here; there is {}",
            match names.as_slice() {
                [] => "none".to_string(),
                names => names.join(", "),
            }
        )));
    }
    if args.json {
        let mut all: Vec<Value> = reports.iter().map(json::json).collect();
        all.extend(model.iter().map(|(built, cost)| {
            let cost = cost::json::json(cost);
            json!({ "name": built.name, "kind": "model", "cost": cost })
        }));
        println!("{}", Value::Array(all));
    } else if args.latex {
        for r in &reports {
            match latex::latex(r) {
                Some(array) => print!("% {}\n{array}", r.name),
                None => println!("% {}: there is no tableau", r.name),
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
        print!("{}", texts.join("\n"));
    }
    Ok(())
}
