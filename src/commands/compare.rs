//! `odec compare`: every entry of a model on a device and on the reference device.

use crate::cli;
use crate::fail::{Done, Failure};
use crate::source;
use odec_runtime::DeviceChoice;
use odec_runtime::compare::compare;
use serde_json::json;

pub fn run(args: &cli::Compare) -> Done {
    let (artifact, _guard) = source::artifact(
        &args.model.model,
        &args.model.set,
        args.device,
        args.model.trust,
    )?;
    let found = compare(&artifact, args.device, args.steps).map_err(Failure::input)?;
    let name = &artifact.manifest().name;
    let dry = matches!(args.device, DeviceChoice::Dry { .. });
    let wrong = found.iter().filter(|d| !d.good()).count();
    if args.json {
        let one = |d: &odec_runtime::compare::Difference| {
            json!({
                "what": d.what, "elements": d.elements, "differ": d.differ,
                "apart": d.apart.is_finite().then_some(d.apart), "most": d.most, "good": d.good(),
            })
        };
        let out = json!({
            "model": name, "computed": !dry, "good": wrong == 0,
            "results": found.iter().map(one).collect::<Vec<_>>(),
        });
        println!("{out}");
    } else if dry {
        println!("{name}: every launch fits; nothing was computed");
    } else {
        for d in &found {
            let verdict = match (d.good(), d.differ) {
                (true, 0) => "every bit".into(),
                (good, n) => format!(
                    "{} of {} differ, {:.1e} apart{}",
                    n,
                    d.elements,
                    d.apart,
                    if good { "" } else { ": WRONG" }
                ),
            };
            println!("{:<28}  {verdict}", d.what);
        }
    }
    match wrong {
        0 => Ok(()),
        n => Err(Failure::Input(format!(
            "{n} results of {name} are not those of the reference device"
        ))),
    }
}
