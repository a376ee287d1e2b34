//! `odec train`: trains a model and saves the run.

use crate::cli;
use crate::commands::eval::evaluation;
use crate::signals::Signals;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_runtime::Shown;
use odec_runtime::parameters::import::Init;
use odec_runtime::system::owned::CHART;
use odec_runtime::train::{chart, lock};
use odec_runtime::{End, Run, Settings, Show, Summary, out, outln};
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn run(args: &cli::Train) -> Done {
    let signals = Signals::default();
    let settings = Settings {
        init: init(args)?,
        steps: args.steps,
        time_limit: args.time_limit,
        data: args.data.clone(),
        device: args.device,
        unsigned: artifact::unsigned(args.trust),
        checkpoint_seconds: args.checkpoint_every,
        stop: signals.stop(),
        show: if args.json {
            Show::Warnings
        } else {
            Show::Auto
        },
        ..Settings::default()
    };
    if let Some(out) = &args.resume {
        return finish(
            args,
            Run::resume(out, &settings).map_err(Failure::input)?,
            out,
            &settings,
            &signals,
        );
    }
    let Some(model) = &args.model else {
        return Err(Failure::Input(
            "name a .ode file or a .odex artifact, or --resume RUN".into(),
        ));
    };
    if let Some(out) = &args.out {
        lock::claim_apart(out).map_err(Failure::input)?;
    }
    let folder = |name: &str| {
        let out = args.out.clone();
        out.unwrap_or_else(|| PathBuf::from("runs").join(name))
    };
    let claim = |name: &str| lock::claim_apart(&folder(name)).map_err(Failure::input);
    let (artifact, _guard) = artifact::trainable(model, &args.set, args.device, args.trust, claim)?;
    let out = folder(&artifact.manifest().name);
    finish(
        args,
        Run::start(&artifact, &out, &settings).map_err(Failure::input)?,
        &out,
        &settings,
        &signals,
    )
}

/// Where `--init` and `--map` say that parameters come from.
fn init(args: &cli::Train) -> Done<Option<Init>> {
    let open = |path: &PathBuf| Init::open(path, args.map.as_deref()).map_err(Failure::input);
    args.init.as_ref().map(open).transpose()
}

fn finish(
    args: &cli::Train,
    mut run: Run,
    out: &Path,
    settings: &Settings,
    signals: &Signals,
) -> Done {
    signals.listen().map_err(Failure::internal)?;
    let summary: Summary = run.finish(settings).map_err(Failure::input)?;
    if summary.end == End::Asked {
        return Err(Failure::Stopped {
            signal: signals.received(),
            what: format!(
                "step {} is saved in {}; continue with `odec train --resume {}`",
                summary.steps,
                out.shown(),
                out.shown()
            ),
        });
    }
    if args.json {
        let held_out = summary.held_out.as_ref().map(evaluation);
        let end = match summary.end {
            End::TimeLimit => "time_limit",
            End::Patience => "patience",
            End::Complete | End::Asked | End::Paused => "complete",
        };
        outln!(
            "{}",
            json!({
                "run": out.display().to_string(), "steps": summary.steps, "seconds": summary.seconds, "end": end,
                "loss": summary.loss, "held_out": held_out, "warning": summary.warning,
            })
        );
        return Ok(());
    }
    out!("{}", chart::terminal(&run.curve(), 72, 14));
    let why = match summary.end {
        End::TimeLimit => " (time limit)",
        End::Patience => " (no lower held-out loss)",
        End::Complete | End::Asked | End::Paused => "",
    };
    let steps = terminal::count(summary.steps as usize, "step");
    outln!("{steps} in {:.0} s{why}", summary.seconds);
    if let Some(e) = &summary.held_out {
        outln!(
            "held-out {} on {}{}",
            match (e.measure, e.accuracy) {
                (Some(measure), _) => format!("{measure} {:.3e},", e.loss),
                (None, None) => format!(
                    "loss {:.3} nats/{}, perplexity {:.2},",
                    e.loss,
                    e.of.unit().one(),
                    e.perplexity()
                ),
                (None, Some(share)) => format!(
                    "loss {:.3} nats/{}, {:.2} % correct,",
                    e.loss,
                    e.of.unit().one(),
                    100.0 * share
                ),
            },
            terminal::count(e.of.number() as usize, e.of.unit().one()),
            match summary.held_out_part {
                true => format!(" (all that is held out: `odec eval {}`)", out.shown()),
                false => String::new(),
            },
        );
    }
    if let Some(warning) = &summary.warning {
        outln!("warning: {warning}");
    }
    outln!(
        "run saved in {} (loss curve: {})",
        out.shown(),
        out.join(CHART).shown()
    );
    Ok(())
}
