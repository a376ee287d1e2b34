//! Which trial is trained next, and how far: asynchronous successive halving (Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar 2020,
//! "A system for massively parallel hyperparameter tuning", algorithm 2).
//!
//! Takes what is known of all trials: results at the ends of rungs, steps of checkpoints, earlier promotions; gives tasks and promotions. Seeds of a
//! model go together: a model has finished a rung when all of its trials have, and is worth the mean of them. It is promoted as soon as it is among the
//! best `1/factor` of those that have finished the rung. Without halving there is one rung, which is the whole training. Leaves training and
//! files to `run.rs`.

use std::cmp::Ordering;

/// What came out of a trial at the end of a rung: what models are ranked by; `None`: it diverged.
pub type Mark = Option<f64>;

/// A trial, to be trained to the end of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub trial: usize,
    /// From 0.
    pub rung: usize,
}

/// A model that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promotion {
    pub model: usize,
    /// The rung that it goes on to, from 1.
    pub to: usize,
    /// How many models had finished the rung before.
    pub among: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Task(Task),
    /// To be written down; then ask again.
    Promoted(Promotion),
    /// What is under way decides.
    Wait,
    /// Everything is done.
    Nothing,
}

/// What there is to do.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// By model: its trials.
    trials: Vec<Vec<usize>>,
    /// By model: the steps at which its rungs end.
    rungs: Vec<Vec<u64>>,
    /// By trial.
    model: Vec<usize>,
    /// By trial and rung.
    marks: Vec<Vec<Option<Mark>>>,
    /// By trial: finished steps, where it was begun.
    position: Vec<Option<u64>>,
    under_way: Vec<bool>,
    /// By model: the rung that it is trained to.
    to: Vec<usize>,
    factor: usize,
    best: Best,
}

/// Which of two marks is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    Smallest,
    Largest,
}

impl Ladder {
    /// Of models by trial, with the steps at which the rungs of each model end.
    pub fn new(model: &[usize], rungs: &[Vec<u64>], factor: u64, best: Best) -> Ladder {
        let own = |m: usize| (0..model.len()).filter(|t| model[*t] == m).collect();
        Ladder {
            trials: (0..rungs.len()).map(own).collect(),
            rungs: rungs.to_vec(),
            model: model.to_vec(),
            marks: model.iter().map(|m| vec![None; rungs[*m].len()]).collect(),
            position: vec![None; model.len()],
            under_way: vec![false; model.len()],
            to: vec![0; rungs.len()],
            factor: usize::try_from(factor).unwrap_or(usize::MAX).max(1),
            best,
        }
    }

    /// That a trial has finished so many steps, in an earlier sitting perhaps. One that is past a rung goes on to the next.
    pub fn stands(&mut self, trial: usize, step: u64) {
        let model = self.model[trial];
        self.position[trial] = Some(step);
        let rungs = &self.rungs[model];
        let within = rungs.iter().position(|end| *end >= step);
        self.to[model] = self.to[model].max(within.unwrap_or(rungs.len() - 1));
    }

    /// That a model was promoted to a rung, in an earlier sitting.
    pub fn promoted(&mut self, model: usize, to: usize) {
        self.to[model] = self.to[model].max(to.min(self.rungs[model].len() - 1));
    }

    /// That a task is done; results of earlier sittings are told so, too.
    pub fn done(&mut self, task: Task, mark: Mark) {
        let Task { trial, rung } = task;
        let end = self.rungs[self.model[trial]][rung];
        self.marks[trial][rung] = Some(mark);
        self.stands(trial, self.position[trial].unwrap_or(0).max(end));
        self.under_way[trial] = false;
    }

    /// That a task was ended before it was done, at a step.
    pub fn returned(&mut self, task: Task, step: Option<u64>) {
        self.under_way[task.trial] = false;
        if let Some(step) = step {
            self.stands(task.trial, step);
        }
    }

    /// What is trained next; `begin`: whether something new may be, else what was begun is finished.
    pub fn next(&mut self, begin: bool) -> Next {
        let task = self.pending(begin, |rung| rung > 0);
        let task = task.or_else(|| self.pending(false, |_| true));
        if task.is_none()
            && begin
            && let Some(promotion) = self.promote()
        {
            return Next::Promoted(promotion);
        }
        match task.or_else(|| self.pending(begin, |_| true)) {
            Some(task) => {
                self.under_way[task.trial] = true;
                Next::Task(task)
            }
            None if self.under_way.contains(&true) => Next::Wait,
            None => Next::Nothing,
        }
    }

    /// Whether nothing is left, promotions among it.
    pub fn is_complete(&self) -> bool {
        let mut copy = self.clone();
        !self.under_way.contains(&true) && copy.next(true) == Next::Nothing
    }

    /// The rung that a trial is to finish.
    pub fn due(&self, trial: usize) -> Option<usize> {
        let model = self.model[trial];
        let (marks, rungs) = (&self.marks[trial], &self.rungs[model]);
        let over = marks[rungs.len() - 1].is_some() || marks.contains(&Some(None));
        let at = self.position[trial].unwrap_or(0);
        let open = |r: &usize| marks[*r].is_none() && rungs[*r] >= at;
        (0..=self.to[model]).find(open).filter(|_| !over)
    }

    /// The task of the highest rung, the first of the plan.
    fn pending(&self, begin: bool, of: impl Fn(usize) -> bool) -> Option<Task> {
        let each = (0..self.model.len()).filter(|t| !self.under_way[*t]);
        let tasks = each.filter_map(|trial| {
            let rung = self.due(trial)?;
            let task = Task { trial, rung };
            (of(rung) && (begin || self.is_begun(task))).then_some(task)
        });
        // Of equals `max_by_key` takes the last.
        tasks.rev().max_by_key(|t| t.rung)
    }

    /// Whether some of a task's own steps are done.
    fn is_begun(&self, task: Task) -> bool {
        let rungs = &self.rungs[self.model[task.trial]];
        match task.rung.checked_sub(1) {
            None => self.position[task.trial].is_some(),
            Some(before) => self.position[task.trial].is_some_and(|at| at > rungs[before]),
        }
    }

    /// A model's mean at the end of a rung: inside, `None` where one of its trials diverged; outside, where one has not finished it.
    fn mark(&self, model: usize, rung: usize) -> Option<Mark> {
        let mut sum = Some(0.0);
        for trial in &self.trials[model] {
            let marks = &self.marks[*trial];
            let diverged = marks[..=rung].contains(&Some(None));
            match marks[rung] {
                _ if diverged => sum = None,
                Some(Some(mark)) => sum = sum.map(|s| s + mark),
                _ => return None,
            }
        }
        Some(sum.map(|s| s / self.trials[model].len() as f64))
    }

    /// Promotes the first model that may be, from the highest rung down.
    fn promote(&mut self) -> Option<Promotion> {
        let last = self.rungs.first().map_or(0, |r| r.len() - 1);
        for rung in (0..last).rev() {
            let models = 0..self.trials.len();
            let finished = models.filter_map(|m| Some((m, self.mark(m, rung)?)));
            let mut finished: Vec<(usize, Mark)> = finished.collect();
            let among = finished.len();
            finished.sort_by(|(a, x), (b, y)| self.order(*x, *y).then(a.cmp(b)));
            finished.truncate(among / self.factor);
            let found = finished
                .iter()
                .find(|(m, mark)| mark.is_some() && self.to[*m] == rung);
            if let Some((model, _)) = found {
                let (model, to) = (*model, rung + 1);
                self.to[model] = to;
                return Some(Promotion { model, to, among });
            }
        }
        None
    }

    /// The better one first; what diverged is last.
    fn order(&self, a: Mark, b: Mark) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self.best == Best::Smallest => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

/// The steps at which the rungs of a training end, the last one its own end: `1/factor` of the work of the next. In steps where `aim` is `None`, else in
/// operations: rungs are shares of `aim`, at so many a step.
pub fn ends(steps: u64, factor: u64, rungs: u64, aim: Option<u128>, of_step: u128) -> Vec<u64> {
    let before_last = (1..rungs).rev().map(|below| {
        let part = u128::from(factor).saturating_pow(u32::try_from(below).unwrap_or(u32::MAX));
        match aim {
            None => crate::matching::steps(u128::from(steps), part),
            Some(aim) => crate::matching::steps(aim, of_step.saturating_mul(part)),
        }
    });
    before_last.chain([steps]).collect()
}
