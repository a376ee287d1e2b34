//! `odec replay`: runs launches of single kernels from files on a device, and compares with the expected results.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::conformance::cases::{CaseError, Cases};
use odec_runtime::device::Device;
use odec_runtime::{DeviceChoice, Shown, outln};
use std::path::{Path, PathBuf};

pub fn run(args: &cli::Replay) -> Done {
    let dry = matches!(args.device, DeviceChoice::Dry { .. });
    if matches!(args.device, DeviceChoice::Cuda(_)) && !args.trust {
        return Err(Failure::Input(
            "the files hold GPU code that odec did not compile here; add `--trust` if you trust its origin".into(),
        ));
    }
    let (mut launches, mut wrong, mut unread) = (0, 0, 0);
    // The device of the file before stays until the next one is there: a card would begin anew for each.
    let mut kept = None;
    for path in files(&args.launches)? {
        // What one file's kernels do to a card is no reason not to try the others.
        match replay(&path, args.device, dry, &mut kept) {
            Ok((count, differences)) => {
                launches += count;
                wrong += differences.len();
                differences
                    .iter()
                    .for_each(|d| outln!("{}: {d}", path.shown()));
            }
            Err(refused) => {
                unread += 1;
                outln!("{refused}");
            }
        }
    }
    let verdict = if dry {
        "nothing was computed"
    } else {
        "as expected"
    };
    let files = terminal::count(unread, "file");
    match (wrong, unread) {
        (0, 0) => {
            outln!("{}, {verdict}", terminal::count(launches, "launch"));
            Ok(())
        }
        (0, _) => Err(Failure::Input(match launches {
            0 => format!("{files} could not be replayed"),
            n => format!(
                "{files} could not be replayed; {} of others: {verdict}",
                terminal::count(n, "launch")
            ),
        })),
        (n, unread) => Err(Failure::Input(format!(
            "{n} of the launches in {} are not as expected{}",
            args.launches.shown(),
            match unread {
                0 => String::new(),
                _ => format!("; {files} could not be replayed"),
            }
        ))),
    }
}

/// The launches of a file, and what was wrong with some of them.
fn replay(
    path: &Path,
    device: DeviceChoice,
    dry: bool,
    kept: &mut Option<Box<dyn Device>>,
) -> Result<(usize, Vec<String>), String> {
    // What is wrong with a file names it.
    let cases = Cases::open(path).map_err(|e| e.to_string())?;
    let on_device = |e: CaseError| format!("{}: {e}", path.shown());
    let mut device = cases.device(device).map_err(on_device)?;
    let mut memory = cases.memory(&mut *device).map_err(on_device)?;
    let mut differences = vec![];
    for case in &cases.cases {
        let got = case.run_in(&mut *device, &mut memory).map_err(on_device)?;
        let found = (!dry)
            .then(|| case.difference(&cases.kernels, &got))
            .flatten();
        let symbol = &cases.kernels[case.kernel].symbol;
        differences.extend(found.map(|what| format!("{symbol}, dims {:?}: {what}", case.dims)));
    }
    drop(memory);
    *kept = Some(device);
    Ok((cases.cases.len(), differences))
}

/// A file, or all of a folder, by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |e| Failure::Input(format!("{}: {e}", path.shown()));
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let found = std::fs::read_dir(path).map_err(wrong)?;
    let found: Result<Vec<PathBuf>, _> = found.map(|f| f.map(|f| f.path())).collect();
    let mut found = found.map_err(wrong)?;
    found.sort();
    match found.is_empty() {
        true => Err(Failure::Input(format!("{} is empty", path.shown()))),
        false => Ok(found),
    }
}
