//! One command, one file: each takes its arguments and prints its result.

pub mod analyze;
pub mod average;
pub mod bench;
pub mod build;
pub mod check;
pub mod classify;
pub mod codegen;
pub mod compare;
pub mod completions;
pub mod design;
pub mod diff;
pub mod eval;
pub mod exec;
pub mod explain;
pub mod explore;
pub mod export;
pub mod fmt;
pub mod generate;
pub mod graph;
pub mod help;
pub mod methods;
pub mod new;
mod pages;
pub mod profile;
pub mod replay;
pub mod report;
pub mod runs;
pub mod sampling_errors;
pub mod schemes;
pub mod simulate;
pub mod tokenize;
pub mod train;
pub mod translate;
pub mod trial;
mod words;

use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::infer::quantized::Integers;
use odec_runtime::{DeviceChoice, Executor, Weights, open_run_with};
use std::path::Path;

/// The trained model of a run: with its running means where it has some and `no_ema` is not said.
fn trained(run: &Path, device: DeviceChoice, trust: bool, no_ema: bool) -> Done<Executor> {
    let (unsigned, weights) = (artifact::unsigned(trust), Weights::last_if(no_ema));
    open_run_with(run, device, None, unsigned, weights).map_err(Failure::input)
}

/// What of a program reads integers.
fn integers(x: &Executor) -> Done<Integers> {
    let found = Integers::of(&x.manifest().program, x.artifact().signatures());
    found.ok_or_else(|| {
        Failure::Input(format!(
            "no matrix of {} is read as it is, so there are none to read in integers; leave out --weights",
            x.manifest().name
        ))
    })
}

/// The same, in words.
fn in_integers(x: &Executor) -> Done<String> {
    let all = integers(x)?;
    let matrices = match all.matrices {
        1 => "1 matrix".to_string(),
        n => format!("{n} matrices"),
    };
    let mut text = format!(
        "{matrices} in {}, {} in the place of {}",
        all.of,
        terminal::bytes(all.bytes),
        terminal::bytes(all.reals)
    );
    if all.others > 0 {
        let others = terminal::bytes(all.others);
        text += &format!("; {others} that are made of several parameters stay as they are");
    }
    if all.grouped {
        text += "; matrices of experts and of heads stay as they are";
    }
    Ok(text)
}
