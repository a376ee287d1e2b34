//! One command, one file: each takes its arguments and prints its result.

pub mod analyze;
pub mod average;
pub mod bench;
pub mod build;
pub mod check;
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

use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_runtime::{DeviceChoice, Executor, Weights, open_run_with};
use std::path::Path;

/// The trained model of a run: with its running means where it has some and `no_ema` is not said.
fn trained(run: &Path, device: DeviceChoice, trust: bool, no_ema: bool) -> Done<Executor> {
    let (unsigned, weights) = (artifact::unsigned(trust), Weights::last_if(no_ema));
    open_run_with(run, device, None, unsigned, weights).map_err(Failure::input)
}
