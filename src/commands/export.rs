//! `odec export`: a run's parameters as safetensors, or the metrics of runs for other tools.

use crate::cli::{self, Metrics};
use crate::commands::runs::folders;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_report::events::{EVENTS, csv, events, json_lines};
use odec_report::runs::{self, Run};
use odec_runtime::parameters::import;
use odec_runtime::system::{files, output};
use odec_runtime::{DeviceChoice, Shown, Unsigned, Weights, errln, open_run_with, outln};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

pub fn run(args: &cli::Export) -> Done {
    match (args.metrics, args.runs.as_slice()) {
        (Some(format), _) => metrics(args, format),
        (None, [run]) => parameters(run, &args.output, Weights::last_if(args.no_ema)),
        (None, _) => Err(Failure::input(
            "parameters are exported of one run; --metrics exports what several have logged",
        )),
    }
}

fn parameters(run: &Path, to: &Path, weights: Weights) -> Done {
    output::check_beside(to, &["safetensors"], run).map_err(Failure::input)?;
    // nothing is computed, so no compiled code is needed
    let x = open_run_with(
        run,
        DeviceChoice::Reference,
        None,
        Unsigned::Refuse,
        weights,
    )
    .map_err(Failure::input)?;
    let (tensors, numbers) = import::export(to, &x).map_err(Failure::input)?;
    outln!(
        "{} in {}: {}",
        terminal::count(numbers as usize, "parameter"),
        terminal::count(tensors, "tensor"),
        to.shown()
    );
    Ok(())
}

fn metrics(args: &cli::Export, format: Metrics) -> Done {
    match format {
        Metrics::Tensorboard => output::check_folder(&args.output),
        Metrics::Csv => output::check_kind(&args.output, &["csv"], &[]),
        Metrics::Jsonl => output::check_kind(&args.output, &["jsonl"], &[]),
    }
    .map_err(Failure::input)?;
    folders(&args.runs)?;
    let found = runs::find(&args.runs);
    for r in &found.refused {
        errln!("note: {}: {}", r.folder.shown(), r.why);
    }
    if found.runs.is_empty() {
        return Err(Failure::input("there is no run to export"));
    }
    let text = |text: &str| output::write_text(&args.output, text).map_err(Failure::input);
    match format {
        Metrics::Tensorboard => tensorboard(&found.runs, &args.output)?,
        Metrics::Csv => text(&csv(&found.runs))?,
        Metrics::Jsonl => text(&json_lines(&found.runs))?,
    }
    let lines: usize = found.runs.iter().map(|r| r.records.len()).sum();
    outln!(
        "{} of {}: {}",
        terminal::count(lines, "line"),
        terminal::count(found.runs.len(), "run"),
        args.output.shown()
    );
    Ok(())
}

/// An event file in a folder for each run, called as the run is.
fn tensorboard(runs: &[Run], to: &Path) -> Done {
    // They lie below the folder, whatever the folders of the runs are called.
    let below = |r: &Run| -> PathBuf {
        let parts = Path::new(&r.name).components();
        let normal = parts.filter(|part| matches!(part, Component::Normal(_)));
        to.join(normal.collect::<PathBuf>())
    };
    let places: Vec<PathBuf> = runs.iter().map(below).collect();
    let mut taken = BTreeSet::new();
    if let Some(twice) = places.iter().find(|place| !taken.insert(*place)) {
        return Err(Failure::Input(format!(
            "two runs would be written to {}; export them one by one",
            twice.shown()
        )));
    }
    for (r, folder) in runs.iter().zip(&places) {
        let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", folder.shown()));
        files::create_folder(folder).map_err(failed)?;
        let bytes = events(r);
        let written = output::write(&folder.join(EVENTS), |file| file.write_all(&bytes));
        written.map_err(Failure::input)?;
    }
    Ok(())
}
