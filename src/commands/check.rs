//! `odec check`: parses and resolves files and prints what each model is.

use crate::cli;
use crate::fail::{Done, Failure};
use crate::source;
use crate::terminal;
use odec_compiler::analysis::report::{Evolved, order_of};
use odec_compiler::analysis::text;
use odec_compiler::model::Checked;
use odec_program::ACCUMULATE;
use odec_program::manifest::ClaimStatus;
use serde_json::{Value, json};
use std::path::Path;

pub fn run(args: &cli::Check) -> Done {
    let mut results = Vec::new();
    let mut errors = 0;
    for path in &args.files {
        match look(path, &args.set) {
            Ok((checked, memory)) if args.json => results.push(summary(path, &checked, memory)),
            Ok((checked, memory)) => print(path, &checked, memory),
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

/// Bytes that a model takes as planned for this machine.
#[derive(Clone, Copy)]
struct Memory {
    /// Values of the forward and backward pass.
    gradient: u64,
    /// Parameters, gradients and the optimiser's two moments.
    state: u64,
    /// Keys and values of a whole context.
    cache: u64,
}

fn look(path: &Path, set: &[String]) -> Done<(Checked, Option<Memory>)> {
    let mut parsed = source::parsed(path, set)?;
    let checked = parsed.checked()?;
    let Some(built) = &checked.built else {
        return Ok((checked, None));
    };
    let text = parsed.sources.text(parsed.main);
    let planned = source::assembled(built, text, source::target("cpu")?)?;
    let program = &planned.manifest.program;
    let memory = Memory {
        gradient: program.entries.get("grad").map_or(0, |e| e.arena_bytes),
        // with micro-batches, sums of gradients as well
        state: (4 + u64::from(program.entries.contains_key(ACCUMULATE))) * program.param_bytes,
        cache: program.cache_bytes,
    };
    Ok((checked, Some(memory)))
}

/// The order of a flow as it is computed, and what limits it.
fn order(e: &Evolved) -> String {
    match order_of(e) {
        Err(beyond) => format!("not known: {} ({})", beyond.why, e.title),
        Ok(found) => {
            let limit = found.limit.as_ref().map(text::brief);
            let limit = limit.map_or(String::new(), |l| format!("; {l}"));
            format!("{} as computed ({}{limit})", found.order, e.title)
        }
    }
}

fn status(s: ClaimStatus) -> &'static str {
    match s {
        ClaimStatus::Proved => "proved",
        ClaimStatus::ClaimedNotProved => "claimed, not proved",
    }
}

fn print(path: &Path, checked: &Checked, memory: Option<Memory>) {
    println!("{}", path.display());
    for c in &checked.claims {
        let note = match c.note.as_str() {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        println!(
            "  scheme {:<12} {}: {}{note}",
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
    for e in &checked.evolved {
        println!("    order            {}", order(e));
    }
    println!("    parameters       {}", terminal::thousands(s.parameters));
    println!(
        "    forward          {}FLOP per token",
        terminal::count(s.forward_flops)
    );
    println!(
        "    training         {}FLOP per token",
        terminal::count(s.training_flops)
    );
    if let Some(m) = memory {
        println!(
            "    memory           {} activations, {} parameters, gradients and moments",
            terminal::bytes(m.gradient),
            terminal::bytes(m.state)
        );
        if m.cache > 0 {
            println!(
                "    keys, values     {} for a context of {} tokens",
                terminal::bytes(m.cache),
                terminal::thousands(built.config.context)
            );
        }
    }
    if let Some(t) = &built.train {
        println!(
            "    train            {} steps of {} × {} tokens{}, {}",
            t.steps,
            t.batch,
            built.config.context,
            match t.accumulate {
                1 => String::new(),
                n => format!(" in {n} micro-batches"),
            },
            t.precision.name()
        );
    }
}

fn summary(path: &Path, checked: &Checked, memory: Option<Memory>) -> Value {
    let claims: Vec<Value> = checked
        .claims
        .iter()
        .map(|c| json!({ "scheme": c.scheme, "claim": c.claim, "status": status(c.status), "note": c.note }))
        .collect();
    let orders = checked.evolved.iter().map(order_of);
    let orders: Vec<Option<usize>> = orders.map(|f| f.ok().map(|f| f.order)).collect();
    let model = checked.built.as_ref().zip(memory).map(|(b, m)| {
        let s = &b.summary;
        json!({
            "name": b.name, "orders": orders, "steps": s.steps, "evaluations_per_step": s.evaluations_per_step,
            "evaluations": s.evaluations, "parameters": s.parameters,
            "forward_flops_per_token": s.forward_flops, "training_flops_per_token": s.training_flops,
            "activation_bytes": m.gradient, "state_bytes": m.state, "cache_bytes": m.cache,
            "precision": b.train.as_ref().map(|t| t.precision.name()),
        })
    });
    json!({ "file": path.display().to_string(), "claims": claims, "model": model })
}
