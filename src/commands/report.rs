//! `odec report`: a page about runs.

use crate::cli;
use crate::commands::runs::folders;
use odec_driver::fail::{Done, Failure};
use odec_report::facts::Models;
use odec_report::{page, runs};
use odec_runtime::system::output;
use odec_runtime::system::progress::{Show, Work};
use odec_runtime::{Shown, errln, outln};

pub fn run(args: &cli::Report) -> Done {
    output::check(&args.output).map_err(Failure::input)?;
    folders(&args.folders)?;
    let found = runs::find(&args.folders);
    for r in &found.refused {
        errln!("note: {}: {}", r.folder, r.why);
    }
    if found.runs.is_empty() {
        return Err(Failure::input("there is no run to report"));
    }
    let mut work = Work::new(Show::Auto, "runs", found.runs.len() as u64);
    let models = Models::of(&found.runs, &mut |n| work.at(n as u64));
    work.finish();
    let page = page::page(&found, &models);
    output::write_text(&args.output, &page).map_err(Failure::input)?;
    outln!(
        "{} runs in {} ({} KiB)",
        found.runs.len(),
        args.output.shown(),
        page.len().div_ceil(1024)
    );
    Ok(())
}
