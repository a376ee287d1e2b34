//! The plan of an exploration: every trial with its cost, before anything runs.
//!
//! Takes a space over a checked file; solves for what all trials have alike, and gives the trials, as data, as a table and as JSON. Leaves running
//! them to `run.rs`.

use crate::examine::{Examined, Proved, applied, examine, parameters, tried};
use crate::identity;
use crate::ladder;
use crate::matching;
use crate::space::{Halving, Matched, Quantity, Rank, SEED, STEPS, Space, Value};
use crate::times::{Measuring, Times};
use odec_compiler::codes;
use odec_compiler::text::number;
use odec_compiler::text::page::{Page, Screen};
use odec_compiler::text::table::{Cell, Table};
use odec_driver::fail::{Done, Failure};
use odec_driver::source::{Parsed, report};
use odec_driver::terminal::count;
use odec_grammar::{Diagnostic, settable};
use odec_program::manifest::Predicts;
use serde_json::{Value as Json, json};

/// All trials of an exploration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file, as it was named.
    pub file: String,
    pub model: String,
    /// The paths that have several values.
    pub names: Vec<String>,
    /// The models, each with the seeds that it is trained by; the first one is what others are compared with.
    pub models: Vec<Candidate>,
    pub trials: Vec<Trial>,
    pub matches: Vec<Matched>,
    pub rank: Rank,
    pub halving: Option<Halving>,
    /// Seconds after which nothing new is trained.
    pub budget: Option<f64>,
}

/// What is the same in trials that differ in their seed alone.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What tells it from the others, in a few words.
    pub label: String,
    /// What is set over the file, with what was solved for, but for the seed.
    pub settings: Vec<(String, Value)>,
    /// Values that were solved for, by their paths.
    pub solved: Vec<(String, u64)>,
    pub seeds: Vec<u64>,
    pub steps: u64,
    /// The steps at which its rungs end; the last one is the end of training.
    pub rungs: Vec<u64>,
    pub examined: Examined,
    /// Relative differences to the first model in what is matched, in the order of the matches.
    pub off: Vec<f64>,
    /// Of a training step, where it was measured, or is known from an earlier sitting.
    pub seconds_per_step: Option<f64>,
}

/// One training.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What it is known by; `None` where data files are not there.
    pub hash: Option<String>,
    /// Its place in [`Plan::models`].
    pub model: usize,
    pub seed: u64,
    /// Everything that is set over the file.
    pub settings: Vec<(String, Value)>,
}

impl Candidate {
    /// Floating-point operations of the whole training.
    pub fn flops(&self) -> u128 {
        self.examined.flops_per_step * u128::from(self.steps)
    }

    fn quantity(&self, what: Quantity) -> u128 {
        match what {
            Quantity::Flops => self.flops(),
            Quantity::Parameters => self.examined.parameters.into(),
            Quantity::Memory => self.examined.memory.into(),
            Quantity::Time => nanoseconds(self.seconds()),
        }
    }

    /// Of a whole training, without looks at held-out data.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.seconds_per_step? * self.steps as f64)
    }
}

impl Trial {
    /// As `--set` takes them.
    pub fn overrides(&self) -> Vec<String> {
        let each = self.settings.iter();
        each.map(|(path, value)| format!("{path}={}", value.text))
            .collect()
    }
}

/// Of a time that is known.
fn nanoseconds(seconds: Option<f64>) -> u128 {
    libm::round(seconds.unwrap_or_default() * 1e9) as u128
}

/// What is set over a file.
type Set = Vec<(String, Value)>;

/// Prints a mistake, which ends the command.
fn refused<T>(d: Diagnostic, base: &Parsed) -> Done<T> {
    report(&[d], &base.sources)?;
    Err(Failure::internal("an error is none"))
}

/// Plans a space over a file that is right by itself.
///
/// # Errors
/// A value that does not fit its place, or something that cannot be matched, at its place.
pub fn plan(base: &Parsed, space: &Space, times: &mut Times) -> Done<Plan> {
    let mut models: Vec<(Set, Vec<Value>)> = Vec::new();
    for point in &space.points {
        let all = space
            .names
            .iter()
            .map(|n| n.path.clone())
            .zip(point.0.iter().cloned());
        let (seeds, settings): (Vec<_>, Vec<_>) = all.partition(|(path, _)| path == SEED);
        let texts = |s: &[(String, Value)]| -> Vec<String> {
            s.iter().map(|(_, v)| v.text.clone()).collect()
        };
        let known = models
            .iter()
            .position(|(s, _)| texts(s) == texts(&settings));
        let at = known.unwrap_or_else(|| {
            models.push((settings, Vec::new()));
            models.len() - 1
        });
        models[at].1.extend(seeds.into_iter().map(|(_, seed)| seed));
    }
    let many: Vec<bool> = (0..models.first().map_or(0, |(s, _)| s.len()))
        .map(|i| {
            models
                .iter()
                .any(|(s, _)| s[i].1.text != models[0].0[i].1.text)
        })
        .collect();
    let mut plan = Plan {
        file: base.sources.name(base.main).to_string(),
        model: String::new(),
        names: space.names.iter().map(|n| n.path.clone()).collect(),
        models: Vec::new(),
        trials: Vec::new(),
        matches: space.matches.clone(),
        rank: space.rank,
        halving: space.halving,
        budget: space.budget,
    };
    for (settings, seeds) in models {
        let label = label(&settings, &many);
        let first = plan.models.first();
        let mut one = candidate(base, space, label, settings, first, times)?;
        // A seed that is none is told where it is written.
        let mut trials = Vec::new();
        for seed in &seeds {
            let mut settings = one.settings.clone();
            settings.push((SEED.to_string(), seed.clone()));
            one.seeds.push(seed_of(base, &settings)?);
            trials.push(settings);
        }
        if seeds.is_empty() {
            one.seeds.push(one.examined.train.seed);
            trials.push(one.settings.clone());
        }
        let data = identity::data(&one.examined.train).ok();
        for (settings, seed) in trials.into_iter().zip(&one.seeds) {
            let parsed = applied(base, &settings)?;
            let source = identity::source(&parsed);
            let hash = data
                .as_ref()
                .map(|d| identity::trial(&source, &one.examined.imports, d));
            plan.trials.push(Trial {
                hash,
                model: plan.models.len(),
                seed: *seed,
                settings,
            });
        }
        one.rungs = rungs(base, space, &one, plan.models.first().unwrap_or(&one))?;
        plan.models.push(one);
    }
    enough(base, &plan)?;
    if let Some(first) = plan.models.first() {
        plan.model = first.examined.model.clone();
        let train = &first.examined.train;
        let classes = (train.losses()).any(|loss| loss.predicts() == Predicts::Class);
        if let Some(span) = space
            .rank_span
            .filter(|_| plan.rank == Rank::Accuracy && !classes)
        {
            let d = Diagnostic::error(codes::INCOMPATIBLE, span, "this model tells no classes");
            return refused(d.help("rank by the loss: `rank held_out`"), base);
        }
    }
    Ok(plan)
}

/// Whether a model is left at the last rung.
fn enough(base: &Parsed, plan: &Plan) -> Done {
    let Some(h) = plan.halving else {
        return Ok(());
    };
    let mut left = vec![plan.models.len() as u64];
    for _ in 1..h.rungs {
        left.push(left[left.len() - 1] / h.factor);
    }
    if left[left.len() - 1] > 0 {
        return Ok(());
    }
    let message = "no model would be trained to its end";
    let shown: Vec<String> = left.iter().map(u64::to_string).collect();
    let d = Diagnostic::error(codes::OUT_OF_RANGE, h.span, message)
        .label(format!("{} models finish the rungs", shown.join(", ")));
    let most = u32::try_from(h.rungs - 1).unwrap_or(u32::MAX);
    refused(
        d.help(format!(
            "{} by {} take {} at least: say fewer rungs, or try more models",
            count(h.rungs as usize, "rung"),
            h.factor,
            count(h.factor.saturating_pow(most) as usize, "model")
        )),
        base,
    )
}

/// The steps at which a model's rungs end: equal shares of training where trials are matched by their steps, else of the first model's operations.
fn rungs(base: &Parsed, space: &Space, one: &Candidate, first: &Candidate) -> Done<Vec<u64>> {
    let Some(h) = space.halving else {
        return Ok(vec![one.steps]);
    };
    let matched = space.matches.iter().any(|m| m.by.path == STEPS);
    let aim = (!matched).then(|| first.flops());
    let of_step = one.examined.flops_per_step;
    let ends = ladder::ends(one.steps, h.factor, h.rungs, aim, of_step);
    let Some(two) = ends.windows(2).position(|pair| pair[0] >= pair[1]) else {
        return Ok(ends);
    };
    let message = format!("`{}` has no steps between two rungs", one.label);
    let d = Diagnostic::error(codes::OUT_OF_RANGE, h.span, message).label(format!(
        "rung {} would end at step {}, rung {} at step {}",
        two + 1,
        ends[two],
        two + 2,
        ends[two + 1]
    ));
    let d = match matched {
        true => d.help("train for more steps, or say fewer rungs or a smaller factor"),
        false => d.help(
            "rungs are equal in operations: `match flops by train.steps` makes whole trainings so; or train for more steps, or say fewer rungs",
        ),
    };
    let tried = one.settings.first().map(|(_, v)| v.span);
    refused(tried.map_or(d.clone(), |at| d.also(at, "tried here")), base)
}

/// The seed of a trial, which must be one that a train block takes.
fn seed_of(base: &Parsed, settings: &[(String, Value)]) -> Done<u64> {
    let text = settings.last().map_or("", |(_, v)| v.text.as_str());
    match text.parse() {
        Ok(seed) => Ok(seed),
        // Not a plain number: what the train block says of it.
        Err(_) => Ok(examine(base, settings)?.train.seed),
    }
}

/// What tells a model from others: the values of names that have several.
fn label(settings: &[(String, Value)], many: &[bool]) -> String {
    let shown = settings.iter().zip(many).filter(|(_, many)| **many);
    let parts: Vec<String> = shown
        .map(|((path, value), _)| match path.rsplit('.').next() {
            Some("scheme") => value.text.clone(),
            last => format!("{} {}", last.unwrap_or(path), value.text),
        })
        .collect();
    match parts.is_empty() {
        true => "as written".to_string(),
        false => parts.join(", "),
    }
}

/// A model with all that is known of it, as alike to the first one as was asked for.
fn candidate(
    base: &Parsed,
    space: &Space,
    label: String,
    mut settings: Vec<(String, Value)>,
    first: Option<&Candidate>,
    times: &mut Times,
) -> Done<Candidate> {
    let mut solved = Vec::new();
    if let Some(first) = first {
        for m in space.matches.iter().filter(|m| m.by.path != STEPS) {
            let value = sized(base, m, &settings, first)?;
            solved.push((m.by.path.clone(), value));
            settings.push((m.by.path.clone(), written(value, m)));
        }
    }
    let examined = examine(base, &settings)?;
    let mut one = Candidate {
        label,
        steps: examined.train.steps,
        rungs: Vec::new(),
        settings,
        solved,
        seeds: Vec::new(),
        examined,
        off: Vec::new(),
        seconds_per_step: None,
    };
    if let Some(m) = space.matches.iter().find(|m| m.what == Quantity::Time) {
        one.seconds_per_step = times.of(base, &one.settings, &one.examined)?;
        if one.seconds_per_step.is_none() {
            return unmeasured(base, m, &one);
        }
    }
    let Some(first) = first else {
        one.off = vec![0.0; space.matches.len()];
        return Ok(one);
    };
    for m in space.matches.iter().filter(|m| m.by.path == STEPS) {
        let of_step = match m.what {
            Quantity::Time => nanoseconds(one.seconds_per_step),
            _ => one.examined.flops_per_step,
        };
        one.steps = matching::steps(first.quantity(m.what), of_step);
        one.solved.push((STEPS.to_string(), one.steps));
        one.settings
            .push((STEPS.to_string(), written(one.steps, m)));
    }
    for m in &space.matches {
        let (is, aim) = (one.quantity(m.what), first.quantity(m.what));
        let off = matching::off(is, aim);
        if off.abs() > m.within {
            let what = m.what.name();
            let message = format!("{what} cannot be the same for `{}`", one.label);
            let found = one.solved.iter().find(|(path, _)| *path == m.by.path);
            let value = found.map_or(0, |(_, v)| *v);
            let d = Diagnostic::error(codes::OUT_OF_RANGE, m.span, message).label(format!(
                "the nearest is `{} {value}`, {:+.1}% off",
                m.by.path,
                100.0 * off
            ));
            let d = match m.by.path == STEPS {
                true => d.help(format!(
                    "one step is {} of the whole: train for more steps, or allow a larger difference, `within {}%`",
                    match m.what {
                        Quantity::Time => milliseconds(one.seconds_per_step),
                        _ => number::flops(one.examined.flops_per_step as f64),
                    },
                    (off.abs() * 100.0).ceil().min(99.0)
                )),
                false => d.help(format!(
                    "allow a larger difference, `within {}%`, or solve for another value",
                    (off.abs() * 100.0).ceil().min(99.0)
                )),
            };
            let tried = one.settings.first().map(|(_, v)| v.span);
            let d = tried.map_or(d.clone(), |at| d.also(at, "tried here"));
            return refused(d, base);
        }
        one.off.push(off);
    }
    Ok(one)
}

/// Says that a time cannot be matched.
fn unmeasured<T>(base: &Parsed, m: &Matched, one: &Candidate) -> Done<T> {
    let message = format!("the time of a step of `{}` cannot be measured", one.label);
    let d = Diagnostic::error(codes::INVALID_VALUE, m.span, message);
    let d = d
        .label("its numbers stop being finite in the first steps")
        .help(
            "try another learning rate, or make operations the same: `match flops by train.steps`",
        );
    let tried = one.settings.first().map(|(_, v)| v.span);
    refused(tried.map_or(d.clone(), |at| d.also(at, "tried here")), base)
}

fn written(value: u64, m: &Matched) -> Value {
    Value {
        text: value.to_string(),
        span: m.by.span,
    }
}

/// The value of a size at which a model costs what the first one does.
fn sized(base: &Parsed, m: &Matched, settings: &[(String, Value)], first: &Candidate) -> Done<u64> {
    let mut copy = applied(base, settings)?;
    let known = settable(&mut copy.file, &copy.sources);
    let said = known.iter().find(|s| s.path == m.by.path);
    let start = said.and_then(|s| s.value.as_ref()?.parse().ok());
    let Some(start) = start else {
        // What `--set` says of a path that there is not.
        let one = [(m.by.path.clone(), written(1, m))];
        applied(base, &one)?;
        let message = format!("`{}` is no whole number that the file says", m.by.path);
        let d = Diagnostic::error(codes::INVALID_VALUE, m.by.span, message);
        return refused(
            d.help("`odec check FILE --paths` lists the numbers of a file"),
            base,
        );
    };
    let aim = first.quantity(m.what);
    let found = matching::size(start, aim, &mut |value| {
        let mut settings = settings.to_vec();
        settings.push((m.by.path.clone(), written(value, m)));
        Ok(match m.what {
            Quantity::Parameters => parameters(base, &settings)?.map(u128::from),
            Quantity::Memory => tried(base, &settings)?.map(|e| e.memory.into()),
            // By the number of steps alone.
            Quantity::Time => None,
            Quantity::Flops => {
                tried(base, &settings)?.map(|e| e.flops_per_step * u128::from(e.train.steps))
            }
        })
    })?;
    match found {
        Some((value, _)) => Ok(value),
        // What is wrong with the model at any size.
        None => {
            examine(base, settings)?;
            let message = format!("no value of `{}` gives a model", m.by.path);
            refused(
                Diagnostic::error(codes::INVALID_VALUE, m.by.span, message),
                base,
            )
        }
    }
}

/// Of a step.
fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or("–".into(), |s| {
        format!("{} ms", number::milliseconds(1e3 * s))
    })
}

/// How far along an axis a method is stable.
fn reach(x: Option<f64>) -> String {
    match x {
        None => "–".into(),
        Some(x) if x.is_infinite() => "∞".into(),
        Some(x) if x < 1e-3 => "0".into(),
        Some(x) => format!("{x:.3}"),
    }
}

/// One of each flow.
fn each(proved: &[Proved], of: impl Fn(&Proved) -> String) -> String {
    let mut all: Vec<String> = proved.iter().map(of).collect();
    all.dedup();
    all.join(", ")
}

fn order(p: &Proved) -> String {
    match p.order {
        Some(n) if p.at_least => format!("≥ {n}"),
        Some(n) => n.to_string(),
        None => "–".into(),
    }
}

impl Plan {
    /// Seconds of all trainings one after the other, where they were measured.
    pub fn seconds(&self) -> Option<f64> {
        let each = self.models.iter();
        each.map(|m| Some(m.seconds()? * m.seeds.len() as f64))
            .sum()
    }

    /// Measures the steps of models whose times are not known.
    ///
    /// # Errors
    /// When a model cannot be trained.
    pub fn measure(&mut self, measuring: &Measuring) -> Done {
        for m in self
            .models
            .iter_mut()
            .filter(|m| m.seconds_per_step.is_none())
        {
            m.seconds_per_step = measuring.step(&m.settings)?;
        }
        Ok(())
    }

    /// Fills in the times of steps that are known, and measures the others where that is asked for.
    ///
    /// # Errors
    /// When a model cannot be trained, or data are not there.
    pub fn time(&mut self, base: &Parsed, times: &mut Times, measure: bool) -> Done {
        for m in &mut self.models {
            // As it was measured by: before its number of steps was solved for.
            let solved = m.solved.iter().any(|(path, _)| path == STEPS);
            let known = m.settings.iter();
            let known = known.filter(|(path, _)| !(solved && path == STEPS));
            let known: Vec<_> = known.cloned().collect();
            m.seconds_per_step = match measure {
                true => times.of(base, &known, &m.examined)?,
                false => times.told(base, &known, &m.examined)?,
            };
        }
        Ok(())
    }

    /// A table for the terminal.
    pub fn text(&self, screen: Screen) -> String {
        let mut page = Page::new(screen);
        let (models, trials) = (self.models.len(), self.trials.len());
        let of = format!(
            "exploration of {} in {}",
            count(models, "model"),
            count(trials, "trial")
        );
        page.title(&self.model, &of);
        page.section("what is alike");
        for m in &self.matches {
            let worst = self
                .models
                .iter()
                .map(|c| self.off_of(c, m))
                .fold(0.0, f64::max);
            let said = format!(
                "by {}, within {:.3}% (at most {}% was asked for)",
                m.by.path,
                100.0 * worst,
                100.0 * m.within
            );
            page.fact(m.what.name(), &said);
        }
        if self.matches.is_empty() {
            page.paragraph("Nothing: trials differ in cost as well. `match flops by train.steps` makes their training equal.");
        }
        if self.halving.is_some() || self.budget.is_some() {
            page.section("how it is searched");
        }
        if let Some(h) = self.halving {
            let ends: Vec<String> = self.models.first().map_or(Vec::new(), |m| {
                m.rungs.iter().map(|n| number::thousands(*n)).collect()
            });
            let said = format!(
                "the best 1/{} of the models goes on at each of {} rungs; those of the first model end at steps {}",
                h.factor,
                h.rungs,
                ends.join(", ")
            );
            page.fact("halving", &said);
        }
        if let Some(budget) = self.budget {
            let said = format!("nothing new is trained after {}", number::duration(budget));
            page.fact("budget", &said);
        }
        page.section("trials");
        page.table(&self.table());
        page.section("together");
        let all: u128 = self
            .models
            .iter()
            .map(|m| m.flops() * m.seeds.len() as u128)
            .sum();
        let most = if self.halving.is_some() {
            "at most "
        } else {
            ""
        };
        page.fact(
            "training FLOPs",
            &format!("{most}{}", number::flops(all as f64)),
        );
        let largest = self.models.iter().map(|m| m.examined.memory).max();
        page.fact(
            "memory",
            &format!(
                "{} for the largest trial",
                number::bytes(largest.unwrap_or(0))
            ),
        );
        if let Some(seconds) = self.seconds() {
            let said = format!(
                "{} one after the other, without evaluations",
                number::duration(seconds)
            );
            page.fact("time", &said);
        }
        let mut notes = Vec::new();
        if self.models.iter().any(|m| m.examined.at_most) {
            notes.push("≤: tokens are left out, or steps are decided while the model runs, so operations are the most that there can be.");
        }
        if self.models.iter().any(|m| m.seconds_per_step.is_some()) {
            notes.push("Times: the median of steps that were measured here, a second for each model, evaluations aside.");
        }
        let several = |m: &Candidate| m.examined.proved.iter().any(|p| p.real.is_none());
        if self.models.iter().any(several) {
            notes.push("Order: of the flow as it is computed, its fields taken as wholes. Axes: how far |R| ≤ 1, of methods of one field.");
        } else {
            notes.push("Order: of the flow as it is computed, its fields taken as wholes. Axes: how far |R| ≤ 1.");
        }
        page.blank();
        notes.iter().for_each(|note| page.paragraph(note));
        page.finish()
    }

    fn off_of(&self, c: &Candidate, m: &Matched) -> f64 {
        let at = self.matches.iter().position(|other| other == m);
        at.and_then(|at| c.off.get(at)).map_or(0.0, |off| off.abs())
    }

    fn table(&self) -> Table {
        let mut table = Table::new(1);
        let measured = self.models.iter().any(|m| m.seconds_per_step.is_some());
        let sizes: Vec<&str> = (self.matches.iter().map(|m| m.by.path.as_str()))
            .filter(|path| *path != STEPS)
            .collect();
        let mut head = vec![
            Cell::left("model"),
            Cell::right("seeds"),
            Cell::right("steps"),
        ];
        head.extend(sizes.iter().map(|s| Cell::right(*s)));
        head.extend(["FLOPs", "±", "parameters", "memory"].map(Cell::right));
        if measured {
            head.extend(["a step", "time"].map(Cell::right));
        }
        head.extend(["order", "real", "imaginary"].map(Cell::right));
        table.row(head);
        table.rule();
        let aim = self.models.first().map_or(0, Candidate::flops);
        for m in &self.models {
            let e = &m.examined;
            let most = if e.at_most { "≤ " } else { "" };
            let mut row = vec![
                Cell::left(&*m.label),
                Cell::right(m.seeds.len().to_string()),
                Cell::right(number::thousands(m.steps)),
            ];
            row.extend(sizes.iter().map(|s| {
                let found = m.solved.iter().find(|(path, _)| path == s);
                Cell::right(found.map_or("as written".to_string(), |(_, v)| v.to_string()))
            }));
            row.push(Cell::right(format!(
                "{most}{}",
                number::flops(m.flops() as f64)
            )));
            let off = 100.0 * matching::off(m.flops(), aim);
            row.push(Cell::right(match off == 0.0 {
                true => "0".to_string(),
                false => format!("{off:+.2}%"),
            }));
            row.push(Cell::right(number::thousands(e.parameters)));
            row.push(Cell::right(number::bytes(e.memory)));
            if measured {
                row.push(Cell::right(milliseconds(m.seconds_per_step)));
                row.push(Cell::right(
                    m.seconds().map_or("–".into(), number::duration),
                ));
            }
            row.push(Cell::right(each(&e.proved, order)));
            row.push(Cell::right(each(&e.proved, |p| reach(p.real))));
            row.push(Cell::right(each(&e.proved, |p| reach(p.imaginary))));
            table.row(row);
        }
        table
    }

    /// As `exploration.json` and `--plan --json` have it.
    pub fn json(&self) -> Json {
        let aim = self.models.first();
        let settings = |s: &[(String, Value)]| -> Json {
            let each = s.iter();
            each.map(|(path, v)| json!({ "path": path, "value": v.text }))
                .collect()
        };
        let models = self.models.iter().map(|m| {
            let e = &m.examined;
            let flows = e.proved.iter().map(|p| {
                let end = |x: Option<f64>| x.map(|x| if x.is_finite() { json!(x) } else { json!("unbounded") });
                json!({
                    "flow": p.flow, "order": p.order, "at_least": p.at_least,
                    "real_axis": end(p.real), "imaginary_axis": end(p.imaginary),
                })
            });
            let matched = self.matches.iter().zip(&m.off);
            let matched = matched.map(|(m, off)| json!({ "what": m.what.word(), "by": m.by.path, "off": off }));
            json!({
                "label": m.label, "settings": settings(&m.settings), "seeds": m.seeds, "steps": m.steps, "rungs": m.rungs,
                "training_flops": m.flops() as f64, "flops_at_most": e.at_most,
                "flops_off": aim.map(|a| matching::off(m.flops(), a.flops())),
                "parameters": e.parameters, "memory_bytes": e.memory, "matched": matched.collect::<Vec<_>>(),
                "seconds": m.seconds(), "seconds_per_step": m.seconds_per_step, "flows": flows.collect::<Vec<_>>(),
            })
        });
        let trials = self.trials.iter().map(|t| {
            json!({ "hash": t.hash, "model": t.model, "seed": t.seed, "settings": settings(&t.settings) })
        });
        json!({
            "format": 1, "file": self.file, "model": self.model, "names": self.names, "rank": self.rank.word(),
            "halving": self.halving.map(|h| json!({ "factor": h.factor, "rungs": h.rungs })), "budget_seconds": self.budget,
            "baseline": 0, "models": models.collect::<Vec<_>>(), "trials": trials.collect::<Vec<_>>(),
        })
    }
}
