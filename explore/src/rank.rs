//! The ranking: which models are better, and which differences are more than chance.
//!
//! Takes the outcomes of trials; gives intervals over seeds, differences to the first model paired by seed (trials of one seed see the same windows in
//! the same order), and which of these hold at 95 % after Holm's correction for their number. A model with a trial that diverged is not compared: the
//! seeds that are left would be chosen by their outcome.

use crate::folder::{Outcome, State};
use crate::plan::Plan;
use crate::space::Rank;
use crate::student::{half_width, holm, moments, needed, of_mean};
use odec_compiler::text::number;
use odec_compiler::text::page::{Page, Screen};
use odec_compiler::text::table::{Cell, Table};
use odec_driver::terminal::count;
use serde_json::{Value as Json, json};

/// The probability of a false difference that is accepted.
pub const LEVEL: f64 = 0.05;

/// All models, the best first.
#[derive(Clone, Debug)]
pub struct Ranking {
    pub by: Rank,
    /// Places in [`Plan::models`], in the order of their means; those without one last.
    pub rows: Vec<Row>,
    /// Trials that have no outcome yet.
    pub missing: usize,
    /// What was predicted: how many, of what.
    pub of: Option<(u64, String)>,
}

/// What is known of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub model: usize,
    /// Seeds with a result, and the results.
    pub seeds: Vec<u64>,
    pub values: Vec<f64>,
    pub diverged: usize,
    pub mean: Option<f64>,
    /// Half the width of its 95 % interval; of two seeds or more.
    pub half: Option<f64>,
    pub against: Against,
}

/// The difference to the first model.
#[derive(Clone, Debug, PartialEq)]
pub enum Against {
    /// It is the first.
    Itself,
    /// What is missing.
    NotCompared(&'static str),
    Compared(Difference),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub mean: f64,
    /// Of a sample.
    pub deviation: f64,
    /// Half the width of its 95 % interval.
    pub half: f64,
    /// Pairs of trials.
    pub seeds: usize,
    /// The probability of such a difference by chance, by a paired t test,
    pub p: f64,
    /// after the correction.
    pub corrected: f64,
    /// Whether it holds.
    pub holds: bool,
    /// How many seeds it would take, were mean and deviation to stay what they are; of those that do not hold.
    pub needed: Option<usize>,
}

/// What is said of a difference to the first model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    NotShown,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NotShown => "not shown",
        }
    }
}

impl Difference {
    pub fn verdict(&self, by: Rank) -> Verdict {
        let lower = self.mean < 0.0;
        match by {
            _ if !self.holds => Verdict::NotShown,
            Rank::HeldOut if lower => Verdict::Better,
            Rank::Accuracy if !lower => Verdict::Better,
            Rank::HeldOut | Rank::Accuracy => Verdict::Worse,
        }
    }
}

fn value(by: Rank, o: &Outcome) -> Option<f64> {
    match by {
        Rank::HeldOut => o.held_out_loss,
        Rank::Accuracy => o.accuracy,
    }
}

/// Ranks what there is; `outcomes` are those of [`Plan::trials`].
pub fn rank(plan: &Plan, outcomes: &[Option<Outcome>]) -> Ranking {
    let mut rows: Vec<Row> = (0..plan.models.len())
        .map(|model| {
            let own = plan.trials.iter().zip(outcomes);
            let own = own.filter(|(t, _)| t.model == model);
            let (mut seeds, mut values, mut diverged) = (Vec::new(), Vec::new(), 0);
            for (trial, outcome) in own {
                let Some(outcome) = outcome else { continue };
                match value(plan.rank, outcome).filter(|v| v.is_finite()) {
                    Some(v) if outcome.state == State::Complete => {
                        seeds.push(trial.seed);
                        values.push(v);
                    }
                    _ => diverged += 1,
                }
            }
            let known = moments(&values);
            let half = known
                .and_then(|(_, d)| d)
                .map(|d| half_width(d, values.len()));
            Row {
                model,
                seeds,
                mean: known.map(|(mean, _)| mean).filter(|_| diverged == 0),
                half,
                values,
                diverged,
                against: Against::Itself,
            }
        })
        .collect();
    compare(&mut rows);
    let sign = match plan.rank {
        Rank::HeldOut => 1.0,
        Rank::Accuracy => -1.0,
    };
    // Those without a mean are last, in the order of the plan.
    rows.sort_by(|a, b| {
        let key = |r: &Row| r.mean.map_or(f64::INFINITY, |m| sign * m);
        key(a).total_cmp(&key(b)).then(a.model.cmp(&b.model))
    });
    let first = outcomes.iter().flatten().find(|o| o.number.is_some());
    Ranking {
        by: plan.rank,
        rows,
        missing: outcomes.iter().filter(|o| o.is_none()).count(),
        of: first.and_then(|o| Some((o.number?, o.of.clone()?))),
    }
}

/// Compares all with the first.
pub fn compare(rows: &mut [Row]) {
    let Some((first, others)) = rows.split_first_mut() else {
        return;
    };
    let mut found: Vec<(usize, Difference)> = Vec::new();
    for (at, row) in others.iter_mut().enumerate() {
        let pairs = row.seeds.iter().zip(&row.values).filter_map(|(seed, v)| {
            let same = first.seeds.iter().position(|s| s == seed)?;
            Some(v - first.values[same])
        });
        let pairs: Vec<f64> = pairs.collect();
        row.against = Against::NotCompared(match (row.diverged + first.diverged, pairs.len()) {
            (1.., _) if row.diverged > 0 => "it diverged",
            (1.., _) => "the first model diverged",
            (0, 0) => "no seed in common",
            (0, 1) => "one seed says nothing about chance",
            _ => {
                let (mean, deviation) = moments(&pairs).unwrap_or_default();
                let deviation = deviation.unwrap_or_default();
                let n = pairs.len();
                let difference = Difference {
                    mean,
                    deviation,
                    half: half_width(deviation, n),
                    seeds: n,
                    p: of_mean(mean, deviation, n),
                    corrected: 1.0,
                    holds: false,
                    needed: None,
                };
                found.push((at, difference));
                ""
            }
        });
    }
    let raw: Vec<f64> = found.iter().map(|(_, d)| d.p).collect();
    let corrected = holm(&raw);
    for ((at, mut d), corrected) in found.into_iter().zip(corrected) {
        d.corrected = corrected;
        d.holds = corrected <= LEVEL;
        if !d.holds {
            // The factor that the correction puts before this one.
            let factor = raw.iter().filter(|p| **p >= d.p).count().max(1) as f64;
            d.needed = needed(d.mean, d.deviation, LEVEL / factor);
        }
        others[at].against = Against::Compared(d);
    }
}

/// Four decimals: losses differ in the third.
fn shown(x: f64) -> String {
    format!("{x:.4}")
}

impl Ranking {
    /// A table for the terminal.
    pub fn text(&self, plan: &Plan, screen: Screen) -> String {
        let mut page = Page::new(screen);
        let by = match self.by {
            Rank::HeldOut => "loss",
            Rank::Accuracy => "accuracy",
        };
        let of = match &self.of {
            Some((n, unit)) => format!("held-out {by} on all {} {unit}", number::thousands(*n)),
            None => "no trial has ended with a result".to_string(),
        };
        page.title(&plan.model, &of);
        page.section("ranking");
        let mut table = Table::new(2);
        let head = ["", "model"].map(Cell::left).into_iter();
        let columns = [by, "± 95%", "seeds", "difference", "± 95%", "p", ""];
        table.row(head.chain(columns.map(Cell::right)).collect());
        table.rule();
        for (place, row) in self.rows.iter().enumerate() {
            let m = &plan.models[row.model];
            let place = row.mean.map_or(String::new(), |_| (place + 1).to_string());
            let mut cells = vec![
                Cell::right(place),
                Cell::left(&*m.label),
                Cell::right(row.mean.map_or("–".into(), shown)),
                Cell::right(row.half.map_or("–".into(), shown)),
                Cell::right(row.values.len().to_string()),
            ];
            let (difference, half, p, said) = match &row.against {
                Against::Itself => (
                    "".into(),
                    "".into(),
                    "".into(),
                    "what others are compared with".into(),
                ),
                Against::NotCompared(why) => ("–".into(), "–".into(), "–".into(), why.to_string()),
                Against::Compared(d) => {
                    let verdict = d.verdict(self.by).word();
                    let said = match d.needed {
                        Some(n) => format!("{verdict}; {n} seeds might"),
                        None => verdict.to_string(),
                    };
                    let p = match d.corrected < 1e-4 {
                        true => "< 0.0001".to_string(),
                        false => shown(d.corrected),
                    };
                    (format!("{:+.4}", d.mean), shown(d.half), p, said)
                }
            };
            cells.extend([difference, half, p].map(Cell::Right));
            cells.push(Cell::Left(said));
            table.row(cells);
        }
        page.table(&table);
        page.blank();
        if self.missing > 0 {
            let said = count(self.missing, "trial");
            page.paragraph(&format!(
                "{said} of {} without a result yet.",
                plan.trials.len()
            ));
        }
        page.paragraph(
            "Differences are to the first model of the file, paired by seed; p by Student's t test, with Holm's correction for their number. \
             Intervals are over seeds: they say nothing about other data.",
        );
        page.finish()
    }

    /// As `ranking.json` has it.
    pub fn json(&self, plan: &Plan) -> Json {
        let rows = self.rows.iter().map(|r| {
            let m = &plan.models[r.model];
            let against = match &r.against {
                Against::Itself | Against::NotCompared(_) => Json::Null,
                Against::Compared(d) => json!({
                    "mean": d.mean, "deviation": d.deviation, "half_width": d.half, "seeds": d.seeds, "p": d.p, "p_corrected": d.corrected,
                    "holds": d.holds, "seeds_needed": d.needed,
                }),
            };
            let why = match &r.against {
                Against::NotCompared(why) => Some(*why),
                _ => None,
            };
            json!({
                "model": r.model, "label": m.label, "mean": r.mean, "half_width": r.half, "seeds": r.seeds,
                "values": r.values, "diverged": r.diverged, "difference": against, "not_compared": why,
                "training_flops": m.flops() as f64, "parameters": m.examined.parameters,
            })
        });
        json!({
            "format": 1, "by": self.by.word(), "level": LEVEL, "baseline": 0,
            "number": self.of.as_ref().map(|(n, _)| n), "of": self.of.as_ref().map(|(_, of)| of),
            "missing": self.missing, "rows": rows.collect::<Vec<_>>(),
        })
    }
}
