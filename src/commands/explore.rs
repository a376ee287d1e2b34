//! `odec explore`: plans the trials of an explore block, runs them, and ranks their models.

use crate::cli;
use crate::signals::Signals;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::{Parsed, parsed, report};
use odec_driver::terminal;
use odec_explore::folder::{Folder, step_times};
use odec_explore::identity;
use odec_explore::picture;
use odec_explore::plan::{Plan, plan};
use odec_explore::rank::rank;
use odec_explore::run::{Ended, run as run_trials};
use odec_explore::share::{cores, fit, share};
use odec_explore::space::{self, Space};
use odec_explore::times::{Measuring, Times};
use odec_explore::work::{Engine, Options, outcomes};
use odec_runtime::{Show, Shown, out, outln};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub fn run(args: &cli::Explore) -> Done {
    let signals = Signals::default();
    if let Some(limit) = args.time_limit.filter(|l| !(*l > 0.0 && l.is_finite())) {
        return Err(Failure::Input(format!(
            "a time limit of {limit} seconds is not positive; give a number of seconds above 0"
        )));
    }
    let options = Options {
        jobs: args.jobs.map(|n| n as usize),
        memory: args.memory,
        time_limit: args.time_limit,
        checkpoint_seconds: args.checkpoint_every,
        device: args.device,
        engine: match &args.engine {
            Engine::Ray { address, .. } => Engine::Ray {
                address: address.clone(),
                retries: args.max_retries,
            },
            Engine::Local => Engine::Local,
        },
        stop: signals.stop(),
        show: if args.json {
            Show::Warnings
        } else {
            Show::Auto
        },
    };
    let base = parsed(&args.source.file, &args.source.set)?;
    let (space, name) = spaced(&base)?;
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from("explorations").join(name));
    let (file, set) = (&args.source.file, &args.source.set);
    let measuring = |trials, fit| Measuring {
        path: file,
        set,
        device: args.device,
        threads: share(cores(), trials, fit, options.jobs).threads,
    };
    let known = match args.plan {
        true => BTreeMap::new(),
        false => step_times(&out)?,
    };
    let mut times = Times::new(measuring(space.points.len(), usize::MAX), known);
    let mut plan = plan(&base, &space, &mut times)?;
    if args.plan {
        if args.measure {
            let fit = fit(&plan, &base, &options)?;
            let trials = plan.trials.len();
            plan.measure(&measuring(trials, fit))?;
        }
        match args.json {
            true => outln!("{}", plan.json()),
            false => out!("{}", plan.text(terminal::screen())),
        }
        return Ok(());
    }
    // Data that are not there end it here, with their names.
    for model in &plan.models {
        identity::data(&model.examined.train)?;
    }
    if options.engine == Engine::Local {
        fit(&plan, &base, &options)?;
    }
    plan.time(&base, &mut times, args.measure)?;
    let folder = Folder::open(&out, &plan)?;
    if !times.known().is_empty() {
        folder.keep_step_times(times.known())?;
    }
    signals.listen().map_err(Failure::internal)?;
    let ended = run_trials(&plan, &folder, &base, file, set, &options)?;
    ranked(args, &plan, &folder)?;
    let again = format!(
        "trials are saved in {}; the same command goes on with them",
        folder.path().shown()
    );
    match ended {
        Ended::Complete => Ok(()),
        Ended::Asked => Err(Failure::Stopped {
            signal: signals.received(),
            what: again,
        }),
        Ended::TimeLimit => {
            if !args.json {
                outln!("time limit: {again}");
            }
            Ok(())
        }
        Ended::Budget => {
            if !args.json {
                outln!(
                    "budget: {} are used up, so nothing new was trained; a larger `budget` goes on in {}",
                    terminal::duration(plan.budget.unwrap_or_default()),
                    folder.path().shown()
                );
            }
            Ok(())
        }
    }
}

/// The space of a file whose model and explore block are right, and the model's name.
fn spaced(base: &Parsed) -> Done<(Space, String)> {
    let name = base.sources.name(base.main);
    let Some(block) = space::block(&base.file) else {
        return Err(Failure::Input(format!(
            "{name}: this file has no explore block; add `explore {{ scheme in [ … ] }}`"
        )));
    };
    // What is wrong with the file itself is said once.
    let model = base.clone().built()?.name;
    match space::read(block, &base.file, &base.sources) {
        Ok(space) => Ok((space, model)),
        Err(messages) => {
            report(&messages, &base.sources)?;
            Err(Failure::internal(
                "an explore block is wrong without an error",
            ))
        }
    }
}

/// Ranks what there is, writes it down, and prints it.
fn ranked(args: &cli::Explore, plan: &Plan, folder: &Folder) -> Done {
    let each = (0..plan.trials.len()).map(|n| outcomes(plan, folder, n));
    let outcomes = each.collect::<Done<Vec<_>>>()?;
    let ranking = rank(plan, &outcomes);
    let json = ranking.json(plan);
    let executed = ranking.executed(plan);
    folder.keep_ranking(&json, &executed, &picture::svg(plan, &ranking))?;
    let missing = ranking.missing.iter().map(|t| &plan.trials[*t].hash);
    let missing: Vec<_> = missing.collect();
    match args.json {
        true => outln!(
            "{}",
            json!({ "exploration": folder.path().display().to_string(), "missing": missing, "ranking": json, "executed": executed })
        ),
        false => {
            out!("{}", ranking.text(plan, terminal::screen()));
            outln!("\nexploration saved in {}", folder.path().shown());
        }
    }
    Ok(())
}
