//! `odec runs`: the runs in folders, a line each.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_report::{runs, table};
use odec_runtime::system::known::{self, Kind};
use odec_runtime::{Shown, out, outln};
use std::path::PathBuf;
use std::time::SystemTime;

pub fn run(args: &cli::Runs) -> Done {
    let usual = [PathBuf::from("runs")];
    let named = match args.folders.as_slice() {
        [] => &usual[..],
        named => named,
    };
    folders(named)?;
    let found = runs::find(named);
    if args.json {
        outln!("{}", table::json(&found));
        return Ok(());
    }
    let (width, ascii) = (terminal::screen().width, terminal::ascii());
    out!("{}", table::text(&found, width, ascii, SystemTime::now()));
    Ok(())
}

/// That all folders are there.
pub fn folders(named: &[PathBuf]) -> Done {
    let Some(missing) = named.iter().find(|f| !f.is_dir()) else {
        return Ok(());
    };
    let shown = missing.shown();
    Err(Failure::Input(
        match known::instead(missing, &[Kind::Run, Kind::Exploration]) {
            Some(what) => format!("{shown} is not a folder of runs: it {what}"),
            None => format!(
                "there is no folder {shown}; name the folder of a run, or one that holds runs"
            ),
        },
    ))
}
