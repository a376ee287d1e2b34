//! `odec diff`: in what two runs differ.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_report::diff::diff;
use odec_report::facts::{self, ModelFacts};
use odec_report::runs::{self, Run};
use odec_runtime::system::known::{self, Kind};
use odec_runtime::{Shown, errln, out, outln};
use std::path::Path;

pub fn run(args: &cli::Diff) -> Done {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let models = [&a, &b].map(model);
    let found = diff([&a, &b], models.each_ref().map(Option::as_ref));
    match args.json {
        true => outln!("{}", found.json()),
        false => out!("{}", found.text(terminal::screen())),
    }
    Ok(())
}

fn read(folder: &Path) -> Done<Run> {
    let shown = folder.shown();
    if let Some(what) = known::instead(folder, &[Kind::Run]) {
        return Err(Failure::Input(format!("{shown} is not a run: it {what}")));
    }
    runs::read(folder).map_err(|why| Failure::Input(format!("{shown}: {why}")))
}

/// The model of a run; without it, what the compiler would say is left out.
pub fn model(r: &Run) -> Option<ModelFacts> {
    let model = facts::model(&r.manifest);
    model
        .inspect_err(|why| errln!("note: {}: {why}", r.folder.shown()))
        .ok()
}
