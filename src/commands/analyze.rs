//! `odec analyze`: what is true of a file's schemes, and of its model's flows as they are computed.

use crate::cli;
use crate::fail::{Done, Failure};
use crate::source;
use crate::terminal;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, latex, text};
use serde_json::Value;

pub fn run(args: &cli::Analyze) -> Done {
    let from = &args.source;
    let checked = source::parsed(&from.file, &from.set)?.checked()?;
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
        println!("{}", reports.iter().map(json::json).collect::<Value>());
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
        let texts: Vec<String> = texts.collect();
        print!("{}", texts.join("\n"));
    }
    Ok(())
}
