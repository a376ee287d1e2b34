//! The ranking: which models are better, and which differences are more than chance.
//!
//! Takes the outcomes of trials; gives intervals over seeds, differences to the first model paired by seed (trials of one seed see the same windows in
//! the same order), and which of these hold at 95 % after Holm's correction for their number. A model with a trial that diverged is not compared: the
//! seeds that are left would be chosen by their outcome. Where models stop at rungs, each is ranked by what it was at the last rung that it has finished, among those
//! that got as far, and compared with what the first model was there.

use crate::executed::{self, Ended, Executed};
use crate::fit::{self, Fit, fits};
use crate::folder::Outcome;
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
    /// Those that got farthest first, in the order of their means; those without one last.
    pub rows: Vec<Row>,
    /// Places in [`Plan::trials`] of those that have no outcome yet.
    pub missing: Vec<usize>,
    /// What was predicted: how many, of what.
    pub of: Option<(u64, String)>,
    /// What losses follow where models of one kind come in several sizes.
    pub fits: Vec<Fit>,
}

/// What is known of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub model: usize,
    /// The last rung that all of its trials have finished, from 0.
    pub rung: usize,
    /// Seeds with a result, and the results.
    pub seeds: Vec<u64>,
    pub values: Vec<f64>,
    pub diverged: usize,
    pub mean: Option<f64>,
    /// Half the width of its 95 % interval; of two seeds or more.
    pub half: Option<f64>,
    pub against: Against,
    pub executed: Executed,
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

/// What is known of a model at the end of a rung.
fn row(plan: &Plan, outcomes: &[Vec<Option<Outcome>>], model: usize, rung: usize) -> Row {
    let own = plan.trials.iter().zip(outcomes);
    let own = own.filter(|(t, _)| t.model == model);
    let (mut seeds, mut values, mut diverged) = (Vec::new(), Vec::new(), 0);
    let mut ended = Vec::new();
    for (trial, outcomes) in own {
        let Some(outcome) = at(plan, outcomes, rung) else {
            continue;
        };
        match outcome.value(plan.rank) {
            Some(v) => {
                ended.push(outcome);
                seeds.push(trial.seed);
                values.push(v);
            }
            None => diverged += 1,
        }
    }
    let known = moments(&values);
    let half = known
        .and_then(|(_, d)| d)
        .map(|d| half_width(d, values.len()));
    Row {
        model,
        rung,
        seeds,
        mean: known.map(|(mean, _)| mean).filter(|_| diverged == 0),
        half,
        values,
        diverged,
        against: Against::Itself,
        executed: executed::executed(&plan.models[model], &ended),
    }
}

/// What came out of a trial at the end of a rung; one that diverged before stays what it is.
fn at<'o>(plan: &Plan, outcomes: &'o [Option<Outcome>], rung: usize) -> Option<&'o Outcome> {
    let mut before = outcomes[..rung].iter().flatten();
    let diverged = before.find(|o| o.value(plan.rank).is_none());
    diverged.or(outcomes[rung].as_ref())
}

/// Ranks what there is; `outcomes` are those of [`Plan::trials`], at the ends of their rungs.
pub fn rank(plan: &Plan, outcomes: &[Vec<Option<Outcome>>]) -> Ranking {
    let reached = |model: usize| {
        let own = plan.trials.iter().zip(outcomes);
        let own: Vec<_> = own.filter(|(t, _)| t.model == model).collect();
        let rungs = (0..plan.models[model].rungs.len()).rev();
        let all = |rung: &usize| own.iter().all(|(_, o)| o[*rung].is_some());
        let whole = rungs.clone().find(all);
        // Where one diverged, others of the model may have got farther.
        whole.or_else(|| {
            let some = |rung: &usize| own.iter().all(|(_, o)| at(plan, o, *rung).is_some());
            rungs.rev().find(some)
        })
    };
    let mut rows: Vec<Row> = (0..plan.models.len())
        .map(|model| row(plan, outcomes, model, reached(model).unwrap_or(0)))
        .collect();
    let firsts: Vec<Row> = match rows.first() {
        Some(first) => (0..=first.rung)
            .map(|r| row(plan, outcomes, 0, r))
            .collect(),
        None => Vec::new(),
    };
    if let Some((_, others)) = rows.split_first_mut() {
        compare(&firsts, others);
    }
    let sign = match plan.rank {
        Rank::HeldOut => 1.0,
        Rank::Accuracy => -1.0,
    };
    // Those without a mean are last, in the order of the plan.
    rows.sort_by(|a, b| {
        let key = |r: &Row| r.mean.map_or(f64::INFINITY, |m| sign * m);
        let rung = |r: &Row| r.mean.map(|_| r.rung);
        (rung(b).cmp(&rung(a)))
            .then(key(a).total_cmp(&key(b)))
            .then(a.model.cmp(&b.model))
    });
    let all = || outcomes.iter().flatten().flatten();
    let first = all().find(|o| o.number.is_some());
    let missing = (0..outcomes.len()).filter(|t| outcomes[*t].iter().flatten().next().is_none());
    Ranking {
        by: plan.rank,
        rows,
        missing: missing.collect(),
        of: first.and_then(|o| Some((o.number?, o.of.clone()?))),
        fits: fits(plan, outcomes),
    }
}

/// Compares others with what the first model was at the ends of its rungs.
pub fn compare(firsts: &[Row], others: &mut [Row]) {
    let mut found: Vec<(usize, Difference)> = Vec::new();
    for (at, row) in others.iter_mut().enumerate() {
        let Some(first) = firsts.get(row.rung) else {
            row.against = Against::NotCompared("the first model stopped earlier");
            continue;
        };
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

/// Most models that are named in a sentence.
const NAMED: usize = 8;

/// Models of trials with their seeds, the first few of them.
fn names(plan: &Plan, trials: &[usize]) -> String {
    let mut models: Vec<(usize, Vec<String>)> = Vec::new();
    for t in trials.iter().map(|t| &plan.trials[*t]) {
        match models.last_mut().filter(|(m, _)| *m == t.model) {
            Some((_, seeds)) => seeds.push(t.seed.to_string()),
            None => models.push((t.model, vec![t.seed.to_string()])),
        }
    }
    let shown = models.iter().take(NAMED);
    let shown = shown.map(|(m, seeds)| {
        let word = if seeds.len() == 1 { "seed" } else { "seeds" };
        format!("`{}` {word} {}", plan.models[*m].label, seeds.join(", "))
    });
    let mut shown: Vec<String> = shown.collect();
    if let Some(more) = models.len().checked_sub(NAMED).filter(|n| *n > 0) {
        shown.push(format!("and {more} more"));
    }
    shown.join("; ")
}

/// The last rung that a model has finished, of how many.
pub fn rung_of(plan: &Plan, row: &Row) -> String {
    let all = plan.models[row.model].rungs.len();
    format!("{} of {all}", row.rung + 1)
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
        let rung = plan.halving.map(|_| Cell::right("rung"));
        let columns = [by, "± 95%", "seeds", "difference", "± 95%", "p", ""];
        let columns = columns.map(Cell::right);
        table.row(head.chain(rung).chain(columns).collect());
        table.rule();
        for (place, row) in self.rows.iter().enumerate() {
            let m = &plan.models[row.model];
            let place = row.mean.map_or(String::new(), |_| (place + 1).to_string());
            let mut cells = vec![Cell::right(place), Cell::left(&*m.label)];
            cells.extend(plan.halving.map(|_| Cell::right(rung_of(plan, row))));
            cells.extend([
                Cell::right(row.mean.map_or("–".into(), shown)),
                Cell::right(row.half.map_or("–".into(), shown)),
                Cell::right(row.values.len().to_string()),
            ]);
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
                        Some(n) => format!("{verdict}; {} might", count(n, "seed")),
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
        if !self.missing.is_empty() {
            let said = count(self.missing.len(), "trial");
            page.paragraph(&format!(
                "{said} of {} without a result yet: {}.",
                plan.trials.len(),
                names(plan, &self.missing)
            ));
        }
        if plan.halving.is_some() {
            page.paragraph(
                "Rung: the last one that a model has finished. Those that are not promoted stop there, and stand behind those that got farther. \
                 What is trained farther was chosen by results of the same seeds, which intervals and p do not know.",
            );
        }
        page.paragraph(
            "Differences are to the first model of the file, paired by seed; p by Student's t test, with Holm's correction for their number. \
             Intervals are over seeds: they say nothing about other data.",
        );
        if !self.fits.is_empty() {
            page.section("loss against training FLOPs");
            let (laws, notes) = fit::table(&self.fits);
            if let Some(laws) = laws {
                page.table(&laws);
                page.blank();
            }
            notes.iter().for_each(|note| page.paragraph(note));
        }
        let each = self.rows.iter();
        let each = each.map(|r| (&plan.models[r.model], &r.executed));
        if let Some((table, notes)) = executed::table(each) {
            page.section("predicted and executed");
            page.table(&table);
            page.blank();
            notes.iter().for_each(|note| page.paragraph(note));
        }
        page.finish()
    }

    /// As `executed.json` has it: what trials took is no evidence, and its times are never the same twice.
    pub fn executed(&self, plan: &Plan) -> Json {
        let models = self.rows.iter().map(|r| {
            let label = plan.models[r.model].label.clone();
            Ended {
                model: r.model,
                label,
                seeds: r.values.len(),
                executed: r.executed.clone(),
            }
        });
        json!({ "format": 1, "models": models.map(|m| m.json()).collect::<Vec<_>>() })
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
                "model": r.model, "label": m.label, "rung": r.rung + 1, "steps": m.rungs[r.rung], "mean": r.mean, "half_width": r.half, "seeds": r.seeds,
                "values": r.values, "diverged": r.diverged, "difference": against, "not_compared": why,
                "training_flops": m.flops() as f64, "parameters": m.examined.parameters,
            })
        });
        json!({
            "format": 1, "by": self.by.word(), "level": LEVEL, "baseline": 0,
            "number": self.of.as_ref().map(|(n, _)| n), "of": self.of.as_ref().map(|(_, of)| of),
            "missing": self.missing.len(), "rows": rows.collect::<Vec<_>>(), "fits": self.fits,
        })
    }
}
