//! Laws of loss against training FLOPs, where models of one kind come in several sizes.
//!
//! Takes a plan and the outcomes of its trials; gives `L = a C^-b` (Kaplan et al. 2020, arXiv:2001.08361, section 6) of each kind, by least squares in logarithms, and of five sizes or
//! more also `L = c + a C^-b` (Hoffmann et al. 2022, arXiv:2203.15556, section 3.3, whose exponents are of parameters and tokens). A point is the mean over the seeds of a model that was
//! trained to its end: what a longer training is at that cost has another learning rate then. Seeds of a size err together where the law is wrong, so sizes are counted, not
//! trials, where an interval is told. Two sizes are refused: a line goes through any two points.

use crate::folder::{Outcome, State};
use crate::plan::Plan;
use crate::student::{moments, quantile};
use odec_compiler::text::number;
use odec_compiler::text::table::{Cell, Table};
use serde::{Deserialize, Serialize};

/// Sizes that a law takes at least,
pub const SIZES: usize = 3;
/// and one with a constant.
pub const SIZES_WITH_CONSTANT: usize = 5;
/// Relative difference of operations from which on sizes are two.
const APART: f64 = 0.01;

/// Models that differ in whole numbers alone, with what their losses follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// What tells them from others.
    pub label: String,
    /// By rising operations.
    pub points: Vec<Point>,
    /// `a C^-b`; `None` where there are too few sizes.
    pub law: Option<Law>,
    /// `c + a C^-b`; `None` where there are too few sizes, or the points do not say what c is.
    pub with_constant: Option<Law>,
    /// What is missing, as a sentence.
    pub why: Option<String>,
}

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place in [`Plan::models`].
    pub model: usize,
    /// Floating-point operations of a training: those that were launched, where they were counted, else those of the plan.
    pub flops: f64,
    /// On all held-out data, the mean over seeds.
    pub loss: f64,
}

/// `L = c + a C^-b`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Law {
    pub a: f64,
    pub b: f64,
    pub c: f64,
    /// Half the width of the 95 % interval of b.
    pub b_half_width: f64,
}

impl Law {
    pub fn at(&self, flops: f64) -> f64 {
        self.c + self.a * libm::pow(flops, -self.b)
    }

    /// `2.1 + 37.2 C^-0.081`.
    pub fn text(&self) -> String {
        let constant = match self.c == 0.0 {
            true => String::new(),
            false => format!("{} + ", digits(self.c)),
        };
        format!("{constant}{} C^{}", digits(self.a), digits(-self.b))
    }
}

/// A number of a law, in four digits.
pub fn digits(x: f64) -> String {
    let size = x.abs();
    match size {
        _ if size >= 1e5 || (size < 1e-3 && size > 0.0) => format!("{x:.3e}"),
        _ if size >= 100.0 => format!("{x:.1}"),
        _ if size >= 10.0 => format!("{x:.2}"),
        _ if size >= 1.0 => format!("{x:.3}"),
        _ => format!("{x:.4}"),
    }
}

/// The laws of an exploration, in the order of its models; none of kinds that have one size.
pub fn fits(plan: &Plan, outcomes: &[Vec<Option<Outcome>>]) -> Vec<Fit> {
    let is_size = |text: &str| text.parse::<u64>().is_ok();
    let key = |model: usize| -> Vec<(&str, &str)> {
        let settings = plan.models[model].settings.iter();
        let other = settings.filter(|(_, v)| !is_size(&v.text));
        other.map(|(p, v)| (p.as_str(), v.text.as_str())).collect()
    };
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for model in 0..plan.models.len() {
        match kinds.iter_mut().find(|k| key(k[0]) == key(model)) {
            Some(kind) => kind.push(model),
            None => kinds.push(vec![model]),
        }
    }
    let all: Vec<Vec<(&str, &str)>> = kinds.iter().map(|k| key(k[0])).collect();
    let found = kinds.iter().zip(&all).filter_map(|(kind, own)| {
        let told = own.iter().filter(|o| !all.iter().all(|k| k.contains(o)));
        let told: Vec<String> = told
            .map(|(path, text)| match path.rsplit('.').next() {
                Some("scheme") => text.to_string(),
                last => format!("{} {text}", last.unwrap_or(path)),
            })
            .collect();
        let label = match told.is_empty() {
            true => scheme(plan, kind[0], own),
            false => told.join(", "),
        };
        let points = kind.iter().filter_map(|m| point(plan, outcomes, *m));
        fit(label, points.collect())
    });
    found.collect()
}

/// What is told of the only kind that there is: its flow.
fn scheme(plan: &Plan, model: usize, settings: &[(&str, &str)]) -> String {
    let set = settings.iter().find(|(path, _)| path.ends_with("scheme"));
    let written = plan.models[model].examined.proved.first();
    match (set, written) {
        (Some((_, text)), _) => text.to_string(),
        (None, Some(flow)) => flow.flow.clone(),
        (None, None) => plan.model.clone(),
    }
}

/// A model whose trials have all been trained to their end, and none diverged.
fn point(plan: &Plan, outcomes: &[Vec<Option<Outcome>>], model: usize) -> Option<Point> {
    let own = plan.trials.iter().zip(outcomes);
    let own = own.filter(|(t, _)| t.model == model);
    let last = own.map(|(_, o)| o.last()?.as_ref().filter(|o| o.state == State::Complete));
    let last: Vec<&Outcome> = last.collect::<Option<_>>()?;
    let losses: Vec<f64> = last
        .iter()
        .map(|o| o.held_out_loss)
        .collect::<Option<_>>()?;
    let counted: Option<u64> = last.iter().map(|o| o.flops).sum();
    Some(Point {
        model,
        flops: match counted {
            Some(all) => all as f64 / last.len() as f64,
            None => plan.models[model].flops() as f64,
        },
        loss: moments(&losses)?.0,
    })
}

/// What points follow; `None` where all are of one size.
pub fn fit(label: String, mut points: Vec<Point>) -> Option<Fit> {
    points.sort_by(|a, b| a.flops.total_cmp(&b.flops).then(a.model.cmp(&b.model)));
    let mut sizes: Vec<f64> = Vec::new();
    for p in &points {
        if sizes.last().is_none_or(|s| p.flops > s * (1.0 + APART)) {
            sizes.push(p.flops);
        }
    }
    let usable = points.iter().all(|p| p.flops > 0.0 && p.loss > 0.0);
    let why = match sizes.len() {
        0 | 1 => return None,
        _ if !usable => Some("a loss is not above 0, so it has no logarithm".to_string()),
        n if n < SIZES => Some(format!(
            "{n} sizes: a line goes through any two points; a law needs {SIZES} sizes that differ in training FLOPs, one with a constant {SIZES_WITH_CONSTANT}"
        )),
        _ => None,
    };
    let law = why.is_none().then(|| power(&points, 0.0)).flatten();
    let enough = sizes.len() >= SIZES_WITH_CONSTANT;
    let with_constant = law.filter(|_| enough).and_then(|_| constant(&points));
    Some(Fit {
        label,
        points,
        law,
        with_constant,
        why,
    })
}

/// `log C`, from the mean of all.
fn logs(points: &[Point]) -> (f64, Vec<f64>) {
    let logs: Vec<f64> = points.iter().map(|p| libm::log(p.flops)).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    (mean, logs.iter().map(|x| x - mean).collect())
}

/// `log(L − c) = log a − b log C` by least squares, with the interval of b for a c that is known.
fn power(points: &[Point], c: f64) -> Option<Law> {
    let (mean, x) = logs(points);
    let y: Vec<f64> = points.iter().map(|p| libm::log(p.loss - c)).collect();
    let n = points.len() as f64;
    let middle = y.iter().sum::<f64>() / n;
    let squares: f64 = x.iter().map(|x| x * x).sum();
    let slope = x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>() / squares;
    let off = x.iter().zip(&y).map(|(x, y)| y - middle - slope * x);
    let freedom = n - 2.0;
    let deviation = libm::sqrt(off.map(|r| r * r).sum::<f64>() / freedom);
    let law = Law {
        a: libm::exp(middle - slope * mean),
        b: -slope,
        c,
        b_half_width: quantile(0.05, freedom) * deviation / libm::sqrt(squares),
    };
    [law.a, law.b, law.b_half_width]
        .iter()
        .all(|x| x.is_finite())
        .then_some(law)
}

/// Most steps of the search, and the relative change that ends it.
const STEPS: usize = 500;
const CHANGE: f64 = 1e-13;

/// The residuals of `log L = log(c + exp(α − b x))`, and their derivatives with respect to `α`, `b` and `log c`.
fn residuals(x: &[f64], y: &[f64], [alpha, b, gamma]: [f64; 3]) -> Vec<(f64, [f64; 3])> {
    let each = x.iter().zip(y).map(|(x, y)| {
        let (power, c) = (libm::exp(alpha - b * x), libm::exp(gamma));
        let all = power + c;
        let r = y - libm::log(all);
        (r, [power / all, -x * power / all, c / all])
    });
    each.collect()
}

fn squares(r: &[(f64, [f64; 3])]) -> f64 {
    r.iter().map(|(r, _)| r * r).sum()
}

/// `JᵀJ`, and `Jᵀr`.
fn normal(r: &[(f64, [f64; 3])]) -> ([[f64; 3]; 3], [f64; 3]) {
    let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for (r, j) in r {
        for m in 0..3 {
            right[m] += j[m] * r;
            for n in 0..3 {
                matrix[m][n] += j[m] * j[n];
            }
        }
    }
    (matrix, right)
}

/// Gaussian elimination with pivots; `None` of a matrix that is as good as singular.
fn solve(mut m: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    let largest = m.iter().flatten().fold(0.0, |a: f64, x| a.max(x.abs()));
    for k in 0..3 {
        let pivot = (k..3).max_by(|a, b| m[*a][k].abs().total_cmp(&m[*b][k].abs()))?;
        if m[pivot][k].abs() <= 1e-14 * largest {
            return None;
        }
        m.swap(k, pivot);
        right.swap(k, pivot);
        for i in k + 1..3 {
            let by = m[i][k] / m[k][k];
            let above = m[k];
            m[i].iter_mut().zip(above).for_each(|(x, y)| *x -= by * y);
            right[i] -= by * right[k];
        }
    }
    for k in (0..3).rev() {
        let known: f64 = (k + 1..3).map(|n| m[k][n] * right[n]).sum();
        right[k] = (right[k] - known) / m[k][k];
    }
    Some(right)
}

/// `log L = log(c + a C^-b)` by least squares (Levenberg and Marquardt's method from nine constants), with the interval of b by the derivatives at the end. `None` where the points do not
/// say what c is: the interval of b or that of c holds 0.
fn constant(points: &[Point]) -> Option<Law> {
    let (mean, x) = logs(points);
    let y: Vec<f64> = points.iter().map(|p| libm::log(p.loss)).collect();
    let least = points.iter().map(|p| p.loss).fold(f64::INFINITY, f64::min);
    let mut best: Option<(f64, [f64; 3])> = None;
    for tenth in 1..10 {
        let c = 0.1 * f64::from(tenth) * least;
        let Some(start) = power(points, c) else {
            continue;
        };
        let alpha = libm::log(start.a) - start.b * mean;
        let (sum, at) = search(&x, &y, [alpha, start.b, libm::log(c)]);
        if best.is_none_or(|(known, _)| sum < known) {
            best = Some((sum, at));
        }
    }
    let (sum, at) = best?;
    let c = libm::exp(at[2]);
    let (matrix, _) = normal(&residuals(&x, &y, at));
    let freedom = points.len() as f64 - 3.0;
    let half = |variance: f64| quantile(0.05, freedom) * libm::sqrt(variance * sum / freedom);
    // Of log c; where it is 1, that of c reaches to 0.
    let c_half = half(solve(matrix, [0.0, 0.0, 1.0])?[2]);
    let law = Law {
        a: libm::exp(at[0] + at[1] * mean),
        b: at[1],
        c,
        b_half_width: half(solve(matrix, [0.0, 1.0, 0.0])?[1]),
    };
    let finite = [law.a, law.b, law.b_half_width]
        .iter()
        .all(|x| x.is_finite());
    (finite && law.b > law.b_half_width && c_half < 1.0).then_some(law)
}

/// The least sum of squares near a place.
fn search(x: &[f64], y: &[f64], mut at: [f64; 3]) -> (f64, [f64; 3]) {
    let mut damping = 1e-3;
    let mut now = residuals(x, y, at);
    for _ in 0..STEPS {
        let (mut matrix, right) = normal(&now);
        (0..3).for_each(|k| matrix[k][k] *= 1.0 + damping);
        let Some(step) = solve(matrix, right) else {
            break;
        };
        let next = [0, 1, 2].map(|k| at[k] + step[k]);
        let there = residuals(x, y, next);
        let (old, new) = (squares(&now), squares(&there));
        if new <= old {
            let small = (0..3).all(|k| step[k].abs() <= CHANGE * (1.0 + at[k].abs()));
            (at, now) = (next, there);
            damping = (0.1 * damping).max(1e-12);
            if small {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    (squares(&now), at)
}

/// A table of laws, where there are some, and what is to be said of them.
pub fn table(fits: &[Fit]) -> (Option<Table>, Vec<String>) {
    let mut table = Table::new(1);
    let mut head = vec![Cell::left("models")];
    head.extend(["sizes", "FLOPs"].map(Cell::right));
    head.push(Cell::left("loss"));
    head.extend(["exponent", "± 95%"].map(Cell::right));
    table.row(head);
    table.rule();
    for f in fits {
        let ends = f.points.first().zip(f.points.last());
        let ends = ends.map_or(String::new(), |(a, b)| {
            format!("{} to {}", number::flops(a.flops), number::flops(b.flops))
        });
        for (n, law) in [f.law, f.with_constant].iter().flatten().enumerate() {
            let (label, sizes, ends) = match n {
                0 => (f.label.as_str(), f.points.len().to_string(), ends.as_str()),
                _ => ("", String::new(), ""),
            };
            table.row(vec![
                Cell::left(label),
                Cell::right(sizes),
                Cell::right(ends),
                Cell::left(law.text()),
                Cell::right(digits(-law.b)),
                Cell::right(digits(law.b_half_width)),
            ]);
        }
    }
    let known = fits.iter().any(|f| f.law.is_some());
    let missing = fits.iter().filter_map(|f| Some((f, f.why.as_ref()?)));
    let mut notes: Vec<String> = missing
        .map(|(f, why)| format!("No law of {}: {why}.", f.label))
        .collect();
    if known {
        notes.push(format!(
            "Loss as a C^-b of the training FLOPs C, by least squares in logarithms of means over seeds (Kaplan et al. 2020); with a constant (Hoffmann et al. 2022) from {SIZES_WITH_CONSTANT} sizes on, \
             where they say what it is. Intervals are by Student's t over sizes: they say nothing about sizes beyond."
        ));
    }
    (known.then_some(table), notes)
}
