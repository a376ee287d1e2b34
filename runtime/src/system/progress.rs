//! Progress on standard error: a bar on a terminal; elsewhere a training run prints a line every few seconds, and other work nothing.
//! With `--json` only warnings are shown.

use crate::errln;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use odec_text::number::clock;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How much to show on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Show {
    /// Progress and notes.
    #[default]
    Auto,
    /// Warnings alone, for programs that read the output.
    Warnings,
    Nothing,
}

/// Seconds between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(5);
/// Ticks of the bar.
const WHOLE: u64 = 10_000;

enum Kind {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
    Warnings,
    Silent,
}

/// Shows a run's state.
pub struct Display {
    kind: Kind,
}

/// What is shown after a step.
#[derive(Clone, Debug)]
pub struct State {
    pub step: u64,
    pub steps: u64,
    /// From 0 to 1.
    pub fraction: f64,
    pub loss: f64,
    /// What the data are counted in: tokens, images.
    pub unit: &'static str,
    pub held_out: Option<HeldOut>,
    /// The share of each expert in what the router chose whose choices are the least even; its path where there are several.
    pub experts: Option<(Option<String>, Vec<f64>)>,
    /// The largest share of choices that full experts did not take; the router's path where there are several.
    pub dropped: Option<(Option<String>, f64)>,
    /// What evolves report, after the first step and after the last.
    pub reports: Vec<(String, [f64; 2])>,
    pub per_s: f64,
    pub seconds_left: f64,
}

/// What was found on held-out data.
#[derive(Clone, Copy, Debug)]
pub struct HeldOut {
    pub loss: f64,
    /// The share of images whose class was predicted.
    pub accuracy: Option<f64>,
    /// How many tokens or images.
    pub number: u64,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "step {}/{}  loss {:.3}",
            self.step, self.steps, self.loss
        )?;
        if let Some(h) = self.held_out {
            let accuracy = h
                .accuracy
                .map(|share| format!(", {:.2} % correct", 100.0 * share));
            let accuracy = accuracy.unwrap_or_default();
            write!(
                f,
                "  held out {:.3}{accuracy} ({} {})",
                h.loss, h.number, self.unit
            )?;
        }
        let path = |router: &Option<String>| {
            router
                .iter()
                .map(|path| format!(" {path}"))
                .collect::<String>()
        };
        if let Some((router, shares)) = &self.experts {
            write!(f, "  experts{}", path(router))?;
            write_shares(f, shares)?;
        }
        if let Some((router, share)) = &self.dropped {
            write!(f, "  dropped{} {share:.3}", path(router))?;
        }
        for (name, [first, last]) in &self.reports {
            write!(f, "  {name} {first:.3} to {last:.3}")?;
        }
        write!(
            f,
            "  {}  {} left",
            rate(self.per_s, self.unit),
            clock(self.seconds_left)
        )
    }
}

/// Most shares that are shown one by one.
const MOST_SHARES: usize = 8;

/// Shares of experts, or the least and the largest of many.
fn write_shares(f: &mut std::fmt::Formatter, shares: &[f64]) -> std::fmt::Result {
    if shares.len() <= MOST_SHARES {
        return shares.iter().try_for_each(|share| write!(f, " {share:.2}"));
    }
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    write!(f, " {least:.3} to {most:.3}")
}

/// Shows how far a single piece of work is, on a terminal.
pub struct Work {
    bar: Option<ProgressBar>,
    what: &'static str,
    total: u64,
}

impl Work {
    pub fn new(show: Show, what: &'static str, total: u64) -> Work {
        let bar = match Display::new(show).kind {
            Kind::Bar(bar) => Some(bar),
            Kind::Lines { .. } | Kind::Warnings | Kind::Silent => None,
        };
        Work { bar, what, total }
    }

    /// So much of the total is done.
    pub fn at(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            let fraction = done as f64 / self.total.max(1) as f64;
            bar.set_position((fraction * WHOLE as f64) as u64);
            bar.set_message(self.what);
        }
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Tokens or images per second, to three digits.
fn rate(r: f64, unit: &str) -> String {
    if r >= 99_950.0 {
        format!("{:.0}k {unit}/s", r / 1000.0)
    } else if r >= 1000.0 {
        format!("{:.1}k {unit}/s", r / 1000.0)
    } else {
        format!("{r:.0} {unit}/s")
    }
}

impl Display {
    pub fn new(show: Show) -> Display {
        let kind = match show {
            Show::Nothing => Kind::Silent,
            Show::Warnings => Kind::Warnings,
            Show::Auto if std::io::stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(
                    Some(WHOLE),
                    ProgressDrawTarget::stderr_with_hz(8),
                );
                // The template is a constant; without it the bar only looks plainer.
                if let Ok(style) =
                    ProgressStyle::with_template("{bar:24.cyan/dim} {percent:>3} %  {msg}")
                {
                    bar.set_style(style.progress_chars("━━╌"));
                }
                Kind::Bar(bar)
            }
            Show::Auto => Kind::Lines { last: None },
        };
        Display { kind }
    }

    /// A step is done.
    pub fn step(&mut self, s: &State) {
        match &mut self.kind {
            Kind::Silent | Kind::Warnings => {}
            Kind::Bar(bar) => {
                bar.set_position((s.fraction * WHOLE as f64) as u64);
                bar.set_message(s.to_string());
            }
            Kind::Lines { last } => {
                if last.is_none_or(|t| t.elapsed() >= LINES) {
                    *last = Some(Instant::now());
                    errln!("{:3.0} %  {s}", 100.0 * s.fraction);
                }
            }
        }
    }

    /// A line that stays.
    pub fn note(&self, text: &str) {
        if !matches!(self.kind, Kind::Warnings) {
            self.warn(text);
        }
    }

    /// A line that stays, also where only warnings are shown.
    pub fn warn(&self, text: &str) {
        match &self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => bar.suspend(|| errln!("{text}")),
            Kind::Lines { .. } | Kind::Warnings => errln!("{text}"),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_in_words() {
        let mut s = State {
            step: 120,
            steps: 1000,
            fraction: 0.12,
            loss: 2.34567,
            held_out: None,
            experts: None,
            dropped: None,
            reports: Vec::new(),
            unit: "tokens",
            per_s: 41_234.0,
            seconds_left: 95.4,
        };
        assert_eq!(
            s.to_string(),
            "step 120/1000  loss 2.346  41.2k tokens/s  1:35 left"
        );
        let held_out = |number, accuracy| HeldOut {
            loss: 2.5,
            accuracy,
            number,
        };
        s.held_out = Some(held_out(8192, None));
        s.per_s = 812.0;
        s.seconds_left = 7290.0;
        assert_eq!(
            s.to_string(),
            "step 120/1000  loss 2.346  held out 2.500 (8192 tokens)  812 tokens/s  2 h 01 min left"
        );
        let images = State {
            unit: "images",
            held_out: Some(held_out(1000, Some(0.9812))),
            ..s.clone()
        };
        assert_eq!(
            images.to_string(),
            "step 120/1000  loss 2.346  held out 2.500, 98.12 % correct (1000 images)  812 images/s  2 h 01 min left"
        );
        s.held_out = None;
        s.experts = Some((None, vec![0.314, 0.216, 0.25, 0.22]));
        assert_eq!(
            s.to_string(),
            "step 120/1000  loss 2.346  experts 0.31 0.22 0.25 0.22  812 tokens/s  2 h 01 min left"
        );
        s.dropped = Some((None, 0.0547));
        assert_eq!(
            s.to_string(),
            "step 120/1000  loss 2.346  experts 0.31 0.22 0.25 0.22  dropped 0.055  812 tokens/s  2 h 01 min left"
        );
        s.dropped = Some((Some("step.0.ffn.router".into()), 0.0));
        assert!(
            s.to_string()
                .contains("  dropped step.0.ffn.router 0.000  ")
        );
        s.dropped = None;
        s.experts = None;
        s.reports = vec![("energy".into(), [2.25, 0.5])];
        assert_eq!(
            s.to_string(),
            "step 120/1000  loss 2.346  energy 2.250 to 0.500  812 tokens/s  2 h 01 min left"
        );
        s.reports.clear();
        let many = (0..16).map(|n| f64::from(n) / 120.0);
        s.experts = Some((Some("step.3.ffn.router".into()), many.collect()));
        assert!(
            s.to_string()
                .contains("  experts step.3.ffn.router 0.000 to 0.125  ")
        );
    }
}
