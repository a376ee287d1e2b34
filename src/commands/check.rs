//! `odec check`: parses and resolves files and prints what each model is.

use crate::cli;
use crate::fail::{Done, Failure};
use crate::source;
use crate::terminal;
use odec_compiler::model::Checked;
use odec_program::manifest::ClaimStatus;
use serde_json::{Value, json};
use std::path::Path;

pub fn run(args: &cli::Check) -> Done {
    let mut results = Vec::new();
    let mut errors = 0;
    for path in &args.files {
        let checked = source::parsed(path, &args.set).and_then(|mut p| p.checked());
        match checked {
            Ok(checked) if args.json => results.push(summary(path, &checked)),
            Ok(checked) => print(path, &checked),
            Err(Failure::Reported { errors: n }) => errors += n,
            Err(e) => return Err(e),
        }
    }
    if args.json {
        println!("{}", Value::Array(results));
    }
    if errors > 0 {
        Err(Failure::Reported { errors })
    } else {
        Ok(())
    }
}

fn status(s: ClaimStatus) -> &'static str {
    match s {
        ClaimStatus::Proved => "proved",
        ClaimStatus::ClaimedNotProved => "claimed, not proved",
    }
}

fn print(path: &Path, checked: &Checked) {
    println!("{}", path.display());
    for c in &checked.claims {
        println!(
            "  scheme {:<12} {}: {}",
            c.scheme,
            c.claim,
            status(c.status)
        );
    }
    let Some(built) = &checked.built else {
        println!("  {} stage programs, no model", checked.programs.len());
        return;
    };
    let s = &built.summary;
    println!("  model  {}", built.name);
    println!("    steps            {}", s.steps);
    println!(
        "    evaluations      {} per step, {} in all",
        s.evaluations_per_step, s.evaluations
    );
    println!("    parameters       {}", terminal::thousands(s.parameters));
    println!(
        "    forward          {}FLOP per token",
        terminal::count(s.forward_flops)
    );
    println!(
        "    training         {}FLOP per token",
        terminal::count(s.training_flops)
    );
    if let Some(t) = &built.train {
        println!(
            "    train            {} steps of {} × {} tokens{}",
            t.steps,
            t.batch,
            built.config.context,
            match t.accumulate {
                1 => String::new(),
                n => format!(" in {n} micro-batches"),
            }
        );
    }
}

fn summary(path: &Path, checked: &Checked) -> Value {
    let claims: Vec<Value> = checked
        .claims
        .iter()
        .map(|c| json!({ "scheme": c.scheme, "claim": c.claim, "status": status(c.status) }))
        .collect();
    let model = checked.built.as_ref().map(|b| {
        let s = &b.summary;
        json!({
            "name": b.name, "steps": s.steps, "evaluations_per_step": s.evaluations_per_step,
            "evaluations": s.evaluations, "parameters": s.parameters,
            "forward_flops_per_token": s.forward_flops, "training_flops_per_token": s.training_flops,
        })
    });
    json!({ "file": path.display().to_string(), "claims": claims, "model": model })
}
