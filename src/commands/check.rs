//! `odec check`: checks files for errors and describes each model.

use crate::cli;
use odec_compiler::analysis::claims::WITHOUT_TIME;
use odec_compiler::analysis::report::{Evolved, order_of, order_upgrade_of, steps_of};
use odec_compiler::analysis::text;
use odec_compiler::cost::{self, Cost};
use odec_compiler::model::groups;
use odec_compiler::model::inputs::Unit;
use odec_compiler::model::{Built, Checked};
use odec_compiler::scheme::method::times_differ;
use odec_compiler::text::number;
use odec_compiler::text::page::Page;
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_driver::source;
use odec_driver::terminal;
use odec_explore::space;
use odec_grammar::{Settable, settable};
use odec_program::manifest::{ClaimStatus, Train, Tune, added};
use odec_runtime::{Shown, out, outln};
use serde_json::{Value, json};
use std::path::Path;

pub fn run(args: &cli::Check) -> Done {
    if args.paths {
        return paths(args);
    }
    let mut results = Vec::new();
    let mut errors = 0;
    for path in &args.files {
        match look(path, &args.set) {
            Ok((checked, cost)) if args.json => {
                results.push(summary(path, &checked, cost.as_ref()));
            }
            Ok((checked, cost)) => print(path, &checked, cost.as_ref()),
            Err(Failure::Reported { errors: n }) => errors += n,
            Err(e) => return Err(e),
        }
    }
    if args.json {
        outln!("{}", Value::Array(results));
    }
    if errors > 0 {
        Err(Failure::Reported { errors })
    } else {
        Ok(())
    }
}

/// Everything in a file that `--set` takes.
fn settables(path: &Path, set: &[String]) -> Done<Vec<Settable>> {
    let mut parsed = source::parsed(path, set)?;
    Ok(settable(&mut parsed.file, &parsed.sources))
}

/// The paths of each file, with what stands there and of what kind it is.
fn paths(args: &cli::Check) -> Done {
    if args.json {
        let files = args.files.iter().map(|file| {
            let all = settables(file, &args.set)?;
            let path = |s: &Settable| json!({ "path": s.path, "type": s.kind.name(), "value": s.value, "given": s.given });
            let paths: Value = all.iter().map(path).collect();
            Ok(json!({ "file": file.display().to_string(), "paths": paths }))
        });
        outln!("{}", files.collect::<Done<Value>>()?);
        return Ok(());
    }
    for file in &args.files {
        let all = settables(file, &args.set)?;
        outln!("{}", file.shown());
        let width = all.iter().map(|s| s.path.len()).max().unwrap_or(0);
        let kinds = all.iter().map(|s| s.kind.name().len()).max().unwrap_or(0);
        for s in &all {
            let value = match (&s.value, s.given) {
                // A call may be written on several lines.
                (Some(value), true) => {
                    let lines: Vec<&str> = value.lines().map(str::trim).collect();
                    lines.join(" ")
                }
                (Some(value), false) => format!("{value} (by default)"),
                (None, _) => "(not set)".to_string(),
            };
            outln!("  {:<width$}  {:<kinds$}  {value}", s.path, s.kind.name());
        }
    }
    Ok(())
}

/// What a file says, and what its model costs.
fn look(path: &Path, set: &[String]) -> Done<(Checked, Option<Cost>)> {
    let mut parsed = source::parsed(path, set)?;
    let checked = parsed.checked()?;
    if let Some(block) = space::block(&parsed.file) {
        let read = space::read(block, &parsed.file, &parsed.sources);
        source::report(&read.err().unwrap_or_default(), &parsed.sources)?;
    }
    let cost = parsed.cost(&checked)?;
    let notes = checked.built.as_ref().map(source::missing_files);
    source::report(&notes.unwrap_or_default(), &parsed.sources)?;
    Ok((checked, cost))
}

/// The order of a flow as it is computed, and what limits it.
fn order(e: &Evolved) -> String {
    let (order, unequal) = steps_of(e);
    match order {
        Err(beyond) => format!("not known: {} ({})", beyond.why, e.title),
        Ok(found) => {
            let limit = match &found.first {
                Some(first) => Some(first.sentence()),
                None => found.limit.as_ref().map(text::brief),
            };
            let limit = limit.map_or(String::new(), |l| format!("; {l}"));
            let upgrade =
                order_upgrade_of(e, found.order, LIBRARY).map(|l| format!("; {}", l.sentence()));
            let upgrade = upgrade.unwrap_or_default();
            let least = found.first.as_ref().is_some_and(|first| !first.exactly);
            let least = if least { "at least " } else { "" };
            let on = unequal.map_or(String::new(), |u| format!(" {}", u.brief(found.order)));
            // At the end of a step Euler's method still has order 1.
            let others = e.at_end && found.order > 1 || times_differ(&e.flow);
            let timeless = match e.timed && others {
                true => format!(", {WITHOUT_TIME}"),
                false => String::new(),
            };
            format!(
                "{least}{} as computed{on}{timeless} ({}{limit}{upgrade})",
                found.order, e.title
            )
        }
    }
}

fn status(s: ClaimStatus) -> &'static str {
    match s {
        ClaimStatus::Proved => "proved",
        ClaimStatus::ClaimedNotProved => "claimed, not proved",
    }
}

fn print(path: &Path, checked: &Checked, cost: Option<&Cost>) {
    outln!("{}", path.shown());
    for c in &checked.claims {
        let note = match c.note.as_str() {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        outln!(
            "  scheme {:<12} {}: {}{note}",
            c.scheme,
            c.claim,
            status(c.status)
        );
    }
    let Some(built) = &checked.built else {
        let programs = terminal::count(checked.programs.len(), "stage program");
        outln!("  {programs}, no model");
        return;
    };
    let mut page = Page::new(terminal::screen());
    let steps = terminal::count(built.summary.steps as usize, "step");
    page.blank();
    let most = built.summary.evolves.iter().any(|e| e.at_most);
    let most = if most { "at most " } else { "" };
    page.title(&built.name, &format!("model, {most}{steps}"));
    let mut orders: Vec<String> = checked.evolved.iter().map(order).collect();
    orders.dedup();
    for order in &orders {
        page.fact("order", order);
    }
    if let Some(t) = &built.train {
        let micro = match t.accumulate {
            1 => String::new(),
            n => format!(" in {n} micro-batches"),
        };
        let (batch, context) = (t.batch, built.config.context);
        let (precision, of) = (t.precision.name(), built.unit.many());
        let own = context - built.leading;
        let leading = match built.leading {
            0 => "",
            1 => " and a row before them",
            _ => " and rows before them",
        };
        let rows = match (built.unit, t.tokens) {
            (_, Some(tokens)) => format!(
                "{} of either text",
                terminal::count(tokens as usize, "token")
            ),
            (Unit::Patch | Unit::Pixel, _) => format!(
                "{} of {own} {of}{leading}",
                terminal::count(batch as usize, "image")
            ),
            (Unit::Token | Unit::Vector, _) => {
                let beside = match built.config.source {
                    0 => String::new(),
                    n => format!(", sources of {n}"),
                };
                format!("{batch} × {own} {of}{leading}{beside}")
            }
        };
        let steps = terminal::count(t.steps as usize, "step");
        let shown = format!("{steps} of {rows}{micro}, {precision}");
        page.fact("train", &shown);
        for m in groups::members(&built.params, t) {
            let name = match m.names.is_empty() {
                true => "optimizer",
                false => "  except",
            };
            let names = m.names.join(", ");
            let names = if names.is_empty() {
                names
            } else {
                format!("{names}: ")
            };
            let paths = m.short().join(", ");
            let paths = if paths.is_empty() {
                "none".into()
            } else {
                paths
            };
            page.fact(
                name,
                &format!(
                    "{names}{}; {}: {paths}",
                    m.optimizer,
                    terminal::count(m.numbers as usize, "number")
                ),
            );
        }
        if let Some(n) = t.patience {
            let evaluations = terminal::count(n as usize, "evaluation");
            page.fact(
                "patience",
                &format!("{evaluations} without a lower held-out loss"),
            );
        }
        if let Some(most) = t.ema {
            page.fact(
                "ema",
                &format!("running means of parameters, {most} of them kept by a step"),
            );
        }
        if let Tune::Lora { rank } = t.tune {
            let s = &built.summary;
            let shown = format!(
                "factors of rank {rank}: trained {} of {}",
                number::thousands(s.trained),
                terminal::count(s.parameters as usize, "parameter")
            );
            page.fact("tune", &shown);
        }
        if let Some(max) = t.spectral {
            let vectors = built.params.iter();
            let n = vectors
                .filter(|p| p.path.ends_with(added::SPECTRAL))
                .count();
            // Depthwise convolutions are bounded row by row, and keep no vector.
            let shown = match n {
                0 => format!("spectral norms of depthwise convolutions at most {max}"),
                _ => format!(
                    "spectral norms at most {max}: {}",
                    terminal::count(n, "matrix")
                ),
            };
            page.fact("constrain", &shown);
        }
        if let Some((bytes, _)) = built.named.budget {
            let chosen = t.memory.to_string();
            page.fact(
                "memory",
                &format!("{chosen}, within {}", number::bytes(bytes)),
            );
        }
        for (name, what) in built.named.objective.lines(t.loss, built.unit) {
            page.fact(&name, &what);
        }
    }
    if let Some(c) = cost {
        cost::text::write(&mut page, c);
    }
    out!("{}", page.finish());
}

/// What each group of parameters follows; nothing where all follow the same.
fn optimizers(b: &Built, t: &Train) -> Vec<Value> {
    let each = groups::members(&b.params, t).into_iter();
    let each = each.map(|m| {
        json!({
            "names": m.names, "optimizer": m.optimizer, "numbers": m.numbers, "parameters": m.paths,
        })
    });
    each.collect()
}

fn summary(path: &Path, checked: &Checked, cost: Option<&Cost>) -> Value {
    let claims: Vec<Value> = checked
        .claims
        .iter()
        .map(|c| json!({ "scheme": c.scheme, "claim": c.claim, "status": status(c.status), "note": c.note }))
        .collect();
    let orders = checked.evolved.iter().map(order_of);
    let orders: Vec<Option<usize>> = orders.map(|f| f.ok().map(|f| f.order)).collect();
    let model = checked.built.as_ref().zip(cost).map(|(b, c)| {
        let s = &b.summary;
        let activations = c.chosen().and_then(|p| p.activations);
        let training = c.forward + c.backward;
        json!({
            "name": b.name, "orders": orders, "steps": s.steps, "evaluations_per_step": s.evaluations_per_step,
            "evaluations": s.evaluations, "parameters": s.parameters, "trained": s.trained,
            "forward_flops_per_token": c.per_token(c.forward), "training_flops_per_token": c.per_token(training),
            "activation_bytes": activations, "state_bytes": c.state_bytes, "cache_bytes": c.cache_bytes,
            "precision": b.train.as_ref().map(|t| t.precision.name()),
            "optimizers": b.train.as_ref().map(|t| optimizers(b, t)),
            "loss": b.train.as_ref().map(|t| b.named.objective.lines(t.loss, b.unit)),
            "cost": cost::json::json(c),
        })
    });
    json!({ "file": path.display().to_string(), "claims": claims, "model": model })
}
