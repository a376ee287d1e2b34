//! Costs as text: sections of a report, with the memory policies side by side.

use super::{Cost, Operations};
use crate::model::Capacity;
use crate::model::inputs::Unit;
use crate::scheme::resolve::count;
use crate::scheme::work::{EvolveWork, StepWork};
use odec_text::number::{bytes, flops, thousands};
use odec_text::page::Page;
use odec_text::table::{Cell, Table};

/// `att 4, ffn 4`.
fn fields(of: &[(String, u64)]) -> String {
    let each = of
        .iter()
        .map(|(name, n)| format!("{name} {}", thousands(*n)));
    each.collect::<Vec<_>>().join(", ")
}

/// `8 per step (att 4, ffn 4)`.
pub fn step(w: &StepWork) -> String {
    match w.fields.len() {
        0 | 1 => w.evaluations.to_string(),
        _ => format!("{} ({})", w.evaluations, fields(&w.fields)),
    }
}

fn evolve(e: &EvolveWork) -> String {
    // Steps that compute different things may be alike in this.
    let mut each: Vec<(u64, String)> = Vec::new();
    for (times, w) in &e.each {
        let text = step(w);
        match each.iter_mut().find(|(_, known)| *known == text) {
            Some((all, _)) => *all += times,
            None => each.push((*times, text)),
        }
    }
    let each: Vec<String> = match &each[..] {
        [(_, alike)] => vec![format!("{alike} per step")],
        several => {
            let each = several
                .iter()
                .map(|(times, text)| format!("{text} in {}", count(*times as usize, "step")));
            each.collect()
        }
    };
    let most = if e.at_most { "at most " } else { "" };
    let all = thousands(e.evaluations);
    format!("{}; {most}{all} in all", each.join(", "))
}

/// `ffn.router: at most 20 of 64 tokens of a text for each of 4 experts`.
fn capacity(of: &Capacity, context: u64, unit: Unit) -> String {
    let all = thousands(context);
    let experts = thousands(of.experts);
    let tokens = match of.tokens < context {
        true => format!("at most {} of {all}", thousands(of.tokens)),
        false => format!("all {all}"),
    };
    format!(
        "{}: {tokens} {} for each of {experts} experts",
        of.router,
        unit.of_a_row()
    )
}

/// Sections for a page.
pub fn write(page: &mut Page, c: &Cost) {
    page.section("Work");
    for e in &c.evolves {
        let name = match e.label.as_str() {
            "" => "evaluations".to_string(),
            label => format!("evaluations, {label}"),
        };
        page.fact(&name, &evolve(e));
    }
    if c.solves {
        page.fact(
            "solves",
            "to a tolerance; costs are counted with the most iterations",
        );
    }
    let (depth, all) = (c.depth(), c.evaluations());
    let beside = if depth < all {
        "; others can run in parallel"
    } else {
        ""
    };
    page.fact(
        "longest chain",
        &format!("{} of {}{beside}", thousands(depth), thousands(all)),
    );
    for m in &c.capacities {
        page.fact("capacity", &capacity(m, c.context, c.unit));
    }
    let p = c.parameters;
    page.fact(
        "parameters",
        &format!(
            "{}: embedding {}, other {}",
            thousands(p.embedding + p.other),
            thousands(p.embedding),
            thousands(p.other)
        ),
    );
    let per = |of| flops(c.per_unit(of));
    let (mut unit, context) = (c.unit.counted().to_string(), thousands(c.context));
    let mut source = String::new();
    if c.source > 0 {
        unit = format!("target {unit}");
        source = format!(", source {}", thousands(c.source));
    }
    page.section(&match c.unit {
        Unit::Patch | Unit::Pixel => format!("FLOP per image of {context} {}", c.unit.many()),
        Unit::Token | Unit::Vector => format!("FLOP per {unit}, context {context}{source}"),
    });
    let most = if c.at_most() { "at most " } else { "" };
    let shown = |all, even: Option<Operations>| match even {
        None => format!("{most}{}", per(all)),
        Some(even) => format!(
            "{most}{}, {} where all numbers of steps are used alike",
            per(all),
            per(even)
        ),
    };
    let trained = |all, even, drawn: Option<Operations>| match drawn {
        None => shown(all, even),
        Some(mean) => format!(
            "at most {}, {most}{} in the mean of the draws",
            per(all),
            per(mean)
        ),
    };
    let forward = trained(
        c.forward,
        c.even.map(|e| e.forward),
        c.drawn.map(|d| d.forward),
    );
    let alone = match c.unit {
        Unit::Patch | Unit::Pixel => "without reports",
        Unit::Token | Unit::Vector => "prefill",
    };
    let later = match c.chooses_later() && most.is_empty() {
        true => "at most ",
        false => "",
    };
    match (c.prefill == c.forward, c.unit) {
        (true, Unit::Token | Unit::Vector) => page.fact("forward, prefill", &forward),
        (true, Unit::Patch | Unit::Pixel) => page.fact("forward", &forward),
        (false, _) => {
            page.fact("forward", &forward);
            let prefill = shown(c.prefill, c.even.map(|e| e.prefill));
            page.fact(alone, &format!("{later}{prefill}"));
        }
    }
    let (even, drawn) = (c.even.map(|e| e.backward), c.drawn.map(|d| d.backward));
    page.fact("backward", &trained(c.backward, even, drawn));
    if let Some(d) = c.decode {
        let (first, last) = (d.first.flops() as f64, d.last.flops() as f64);
        let shown = format!(
            "{later}{most}{} for the first token, {} for token {}",
            flops(first),
            flops(last),
            thousands(c.context)
        );
        page.fact("decode", &shown);
    }
    let rows = count(c.batch as usize, c.unit.row());
    let beside = match c.source {
        0 => String::new(),
        n => format!(", sources of {}", thousands(n)),
    };
    let of = c.unit.many();
    page.section(&format!("Memory, {rows} of {context} {of}{beside}"));
    let mut table = Table::new(1);
    let mean = if c.drawn.is_some() { ", mean" } else { "" };
    let training = format!("FLOP per {unit}, training{mean}");
    let heads = ["activations, gradients", "recomputed", &training];
    let first = [Cell::left("policy")].into_iter();
    table.row(first.chain(heads.map(Cell::right)).collect());
    for p in &c.policies {
        let own = if p.memory == c.own { " *" } else { "" };
        table.row(vec![
            Cell::left(format!("{}{own}", p.memory)),
            Cell::right(p.activations.map_or("above 1 TiB".to_string(), bytes)),
            Cell::right(thousands(p.replayed)),
            Cell::right(format!(
                "{most}{}",
                flops(c.per_unit(p.training) / c.batch as f64)
            )),
        ]);
    }
    page.table(&table);
    page.fact(
        "training state",
        &format!("{}: parameters, moments", bytes(c.state_bytes)),
    );
    if let Some(d) = c.decode {
        let bounded = d.window_bytes + d.carried_bytes;
        if d.bytes_per_token > 0 || bounded == 0 {
            let all = c.cache_bytes.saturating_sub(bounded);
            let (each, all) = (bytes(d.bytes_per_token), bytes(all));
            let said = format!("{each} per token, {all} for the context");
            page.fact("KV cache", &said);
        }
        if d.window_bytes > 0 {
            let kept = bytes(d.window_bytes);
            let said = format!("{kept} for windows, however long the text is");
            page.fact("KV cache", &said);
        }
        if d.carried_bytes > 0 {
            let said = format!("{}, however long the text is", bytes(d.carried_bytes));
            page.fact("carried state", &said);
        }
    }
}
