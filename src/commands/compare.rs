//! `odec compare`: compares a device with the reference device, for every entry of a model.

use crate::cli;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::conformance::compare::compare;
use odec_runtime::conformance::launches::{Found, Wrong, launches};
use odec_runtime::{Artifact, DeviceChoice, Shown, out, outln};
use serde_json::json;

pub fn run(args: &cli::Compare) -> Done {
    let (artifact, _guard) = artifact::open(
        &args.model.model,
        &args.model.set,
        args.device,
        args.model.trust,
    )?;
    if args.launches {
        return each_launch(args, &artifact);
    }
    let found = compare(&artifact, args.device, args.steps).map_err(Failure::input)?;
    let name = &artifact.manifest().name;
    let dry = matches!(args.device, DeviceChoice::Dry { .. });
    let wrong = found.iter().filter(|d| !d.good()).count();
    if args.json {
        let one = |d: &odec_runtime::conformance::compare::Difference| {
            json!({
                "what": d.what, "elements": d.elements, "differ": d.differ,
                "apart": d.apart.is_finite().then_some(d.apart), "most": d.most, "good": d.good(),
            })
        };
        let out = json!({
            "model": name, "computed": !dry, "good": wrong == 0,
            "results": found.iter().map(one).collect::<Vec<_>>(),
        });
        outln!("{out}");
    } else if dry {
        outln!("{name}: every launch fits; nothing was computed");
    } else {
        for d in &found {
            let verdict = match (d.good(), d.differ) {
                (true, 0) => "every bit".into(),
                (good, n) => format!(
                    "{n} of {} differ, {:.1e} apart{}",
                    terminal::thousands(d.elements as u64),
                    d.apart,
                    if good { "" } else { ": WRONG" }
                ),
            };
            outln!("{:<28}  {verdict}", d.what);
        }
    }
    match wrong {
        0 => Ok(()),
        n => Err(Failure::Input(format!(
            "{} of {name}, not as on the reference device",
            terminal::count(n, "result")
        ))),
    }
}

/// Every launch beside the reference device.
fn each_launch(args: &cli::Compare, artifact: &Artifact) -> Done {
    let dump = args.dump.as_deref();
    if let Some(taken) = dump.filter(|d| d.exists()) {
        let shown = taken.shown();
        return Err(Failure::Input(format!("{shown} exists; name a new folder")));
    }
    let found = launches(artifact, args.device, dump).map_err(Failure::input)?;
    let name = &artifact.manifest().name;
    let dry = matches!(args.device, DeviceChoice::Dry { .. });
    if args.json {
        let out = json!({
            "model": name, "computed": !dry, "good": found.failed == 0, "launches": found.launches,
            "bounded": found.bounded, "worst": found.worst.is_finite().then_some(found.worst),
            "failed": found.failed, "wrong": found.wrong, "dump": found.dump,
        });
        outln!("{out}");
    } else if dry {
        outln!(
            "{name}: every launch fits, {} in all; nothing was computed",
            terminal::count(found.launches as usize, "launch")
        );
    } else {
        out!("{}", found.wrong.iter().map(line).collect::<String>());
        outln!("{}", summary(&found));
    }
    match found.failed {
        0 => Ok(()),
        n => Err(Failure::Input(format!(
            "{n} of {} of {name}, not as on the reference device{}",
            terminal::count(found.launches as usize, "launch"),
            (found.dump.as_ref()).map_or(String::new(), |d| format!(
                "; the first is in {}",
                d.shown()
            ))
        ))),
    }
}

fn line(w: &Wrong) -> String {
    let bound = match w.bound > 0.0 {
        true => format!(" ± {:.1e}", w.bound),
        false => String::new(),
    };
    format!(
        "launch {}, {}: kernel {} {:?}, operand {}: {} of {} WRONG, element {} is {:e}, not {:e}{bound}\n",
        w.launch,
        w.site,
        w.kernel,
        w.dims,
        w.operand,
        w.differ,
        terminal::count(w.elements, "element"),
        w.first,
        w.got,
        w.want
    )
}

fn summary(found: &Found) -> String {
    let exact = found.launches - found.bounded;
    let good = match found.failed {
        0 => "as on the reference device".to_string(),
        n => format!("{n} wrong"),
    };
    match found.bounded {
        0 => format!(
            "{}, every bit: {good}",
            terminal::count(found.launches as usize, "launch")
        ),
        n => format!(
            "{} by every bit, {n} on tensor cores within their bounds, of which they use {:.0}%: {good}",
            terminal::count(exact as usize, "launch"),
            100.0 * found.worst
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_launch_is_one() {
        let of = |launches, bounded| {
            let found = Found {
                launches,
                bounded,
                worst: 0.5,
                failed: 0,
                wrong: Vec::new(),
                dump: None,
            };
            summary(&found)
        };
        assert!(of(1, 0).starts_with("1 launch, every bit"), "{}", of(1, 0));
        assert!(of(2, 0).starts_with("2 launches, "), "{}", of(2, 0));
        assert!(of(3, 2).starts_with("1 launch by every bit, 2 on "));
    }
}
