//! What is shown while trials run, and when it is time to stop.

use crate::work::{Work, locked};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use odec_driver::terminal::count;
use odec_runtime::system::owned::METRICS;
use odec_runtime::{Show, errln};
use serde_json::Value as Json;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Says what there is to do.
pub(crate) fn started(work: &Work, jobs: usize, threads: usize, by: &str) {
    // Where all that are left wait for a promotion, that is still one trial.
    let (left, all) = (work.left().max(1), work.plan.trials.len());
    if work.o.show == Show::Auto {
        let text = format!(
            "{} ({} of {all} known), {jobs} at once, {} each{by}",
            count(left, "trial"),
            all - left,
            count(threads, "thread")
        );
        errln!("{text}");
    }
}

/// Looks whether it is time to stop, and shows where everything is.
pub(crate) fn watch(work: &Work, display: &mut Display) {
    let out_of_time = |limit| work.elapsed() >= limit;
    if work.o.stop.load(Ordering::Relaxed) || work.o.time_limit.is_some_and(out_of_time) {
        work.halt.store(true, Ordering::Relaxed);
    }
    if let Err(failure) = work.note_time(false) {
        work.refuse(failure);
    }
    display.show(work);
}

/// Where a run stands: its step and the loss there.
fn position(run: &Path) -> Option<(u64, f64)> {
    const TAIL: u64 = 8192;
    let mut file = std::fs::File::open(run.join(METRICS)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))
        .ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let mut lines = text.lines().rev();
    lines.find_map(|l| {
        let record: Json = serde_json::from_str(l).ok()?;
        Some((record["step"].as_u64()?, record["loss"].as_f64()?))
    })
}

/// On a terminal a bar of all trials and a line for each that runs; elsewhere a line for each that has ended.
pub(crate) struct Display {
    bars: Option<(MultiProgress, ProgressBar, Vec<ProgressBar>)>,
    looked: Option<Instant>,
}

impl Display {
    pub(crate) fn new(work: &Work, workers: usize) -> Display {
        let wanted = work.o.show == Show::Auto && std::io::stderr().is_terminal();
        let bars = wanted.then(|| {
            let all = MultiProgress::new();
            let line = |template: &str| {
                let style = ProgressStyle::with_template(template);
                style.unwrap_or_else(|_| ProgressStyle::default_bar())
            };
            let trials = all.add(ProgressBar::new(work.plan.trials.len() as u64));
            trials.set_style(line("{pos}/{len} trials {wide_bar}"));
            let each = (0..workers).map(|_| {
                let bar = all.add(ProgressBar::new(1));
                bar.set_style(line("  {wide_msg}"));
                bar
            });
            let each = each.collect();
            (all, trials, each)
        });
        Display { bars, looked: None }
    }

    fn show(&mut self, work: &Work) {
        let said = work.heard();
        let Some((all, trials, each)) = &self.bars else {
            if work.o.show == Show::Auto {
                said.iter().for_each(|line| errln!("{line}"));
            }
            return;
        };
        for line in said {
            // A terminal that is gone is no reason to stop.
            let _ = all.println(line);
        }
        if self
            .looked
            .is_some_and(|at| at.elapsed() < Duration::from_millis(500))
        {
            return;
        }
        self.looked = Some(Instant::now());
        trials.set_position((work.plan.trials.len() - work.left()) as u64);
        let under_way = locked(&work.under_way).clone();
        for (worker, bar) in each.iter().enumerate() {
            let Some(task) = under_way.get(&worker) else {
                bar.set_message("");
                continue;
            };
            let t = &work.plan.trials[task.trial];
            let run = t.hash.as_deref().map(|h| work.folder.run(h));
            let steps = work.plan.models[t.model].rungs[task.rung];
            let at = match run.and_then(|run| position(&run)) {
                Some((step, loss)) => format!("step {step}/{steps}  loss {loss:.3}"),
                None => "building".to_string(),
            };
            bar.set_message(format!("{}  {at}", work.name(task.trial)));
        }
    }

    pub(crate) fn finish(mut self, work: &Work) {
        self.show(work);
        if let Some((all, ..)) = self.bars {
            let _ = all.clear();
        }
    }
}
