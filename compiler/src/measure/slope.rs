//! Errors against step counts, and the slope of their logarithms.
//!
//! Takes a method and who runs programs; gives points in the region where errors fall as a power of the step size: below what is
//! still rough, above rounding.

use super::graph::{MeasureError, Planned, Stepper};
use super::library::Entry;
use super::problem::{MAX_GRADED, Problem};
use crate::passes::assemble::Options;

/// Methods are run from time 0 to this, which makes no step size a simple number: no coefficient becomes ±1 by it.
pub const UNTIL: (i64, i64) = (93, 50);

/// Step counts, each about √2 times the one before.
const COUNTS: [usize; 16] = [
    2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
];
/// Points that the slope is fitted on, those of the smallest steps; on graded systems any would do.
const FITTED: usize = 4;
/// Errors below are mostly rounding.
const FLOOR: f64 = 1e-12;
/// The same on graded systems, where few steps are taken.
const FLOOR_GRADED: f64 = 5e-14;

/// The error at the end after so many steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub steps: usize,
    pub h: f64,
    /// Field evaluations, all fields together.
    pub evaluations: usize,
    pub error: f64,
}

/// What was measured of a method.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub points: Vec<Point>,
    /// The fitted slope of log error against log h; `None` where there are too few points.
    pub order: Option<f64>,
    /// Why there are too few.
    pub why: Option<String>,
}

/// Where counts begin for a method of an order, and where they end: low orders need small steps, high ones reach rounding.
fn counts(order: Option<usize>, looks_back: bool) -> &'static [usize] {
    match order {
        Some(5..) if looks_back => &COUNTS[10..14],
        // A history may grow with each step, so programs grow as the square of the steps.
        Some(1) if looks_back => &COUNTS[8..12],
        Some(1) => &COUNTS[11..],
        Some(2) => &COUNTS[9..15],
        Some(3) => &COUNTS[7..13],
        Some(4) => &COUNTS[5..12],
        Some(5 | 6) => &COUNTS[3..12],
        Some(_) => &COUNTS[1..12],
        None => &COUNTS[9..15],
    }
}

impl Entry {
    /// The program of the fewest steps that it is measured with.
    ///
    /// # Errors
    /// When it cannot be planned.
    pub fn first(&self, options: Options) -> Result<Planned, MeasureError> {
        let problem = self.general();
        Stepper::new(&self.flow).plan(problem, self.counts(problem)[0], UNTIL, options)
    }

    /// The system of many equations of the kind that it is a method for.
    pub fn general(&self) -> Problem {
        (self.force).map_or(Problem::General, |force| Problem::Second { force })
    }

    /// The system on which errors have no terms after the first, where there is one; of methods for x'' = F(x) the general one.
    pub fn graded(&self) -> Option<Problem> {
        let measurable = |p: &usize| *p <= MAX_GRADED && self.unmeasured.is_none();
        let p = self.proved.filter(measurable)?;
        Some(match self.force {
            Some(force) => Problem::Second { force },
            None => Problem::Graded(p + 1),
        })
    }

    /// Where counts begin and end. What a multistep method's start leaves behind is of higher order, but not zero.
    fn counts(&self, problem: Problem) -> &'static [usize] {
        match problem {
            Problem::Graded(_) if !self.flow.scheme.looks_back() => &COUNTS[..5],
            _ => counts(self.proved, self.flow.scheme.looks_back()),
        }
    }
}

/// Measures a method. `run` gives the state after a planned program's runs.
///
/// # Errors
/// When the method cannot be planned, or `run` fails.
pub fn measure<E: From<MeasureError>>(
    entry: &Entry,
    problem: Problem,
    options: Options,
    run: &mut dyn FnMut(&Planned) -> Result<Vec<f64>, E>,
) -> Result<Curve, E> {
    let end = UNTIL.0 as f64 / UNTIL.1 as f64;
    let floor = match problem {
        Problem::General | Problem::Second { .. } => FLOOR,
        Problem::Graded(_) => FLOOR_GRADED,
    };
    let stepper = Stepper::new(&entry.flow);
    let mut points: Vec<Point> = Vec::new();
    let mut end_of_points = None;
    for &steps in entry.counts(problem) {
        let planned = match stepper.plan(problem, steps, UNTIL, options) {
            // A history that grows makes longer evolutions too large to be unrolled.
            Err(MeasureError::Scheme(why)) => {
                end_of_points = Some(format!("{steps} steps cannot be computed: {why}"));
                break;
            }
            planned => planned?,
        };
        let state = run(&planned)?;
        let error = problem.error(&state, end);
        if error < floor {
            end_of_points = Some(format!("the error of {steps} steps is below rounding"));
            break;
        }
        points.push(Point {
            steps,
            h: end / steps as f64,
            evaluations: planned.evaluations,
            error,
        });
    }
    let fitted = &points[points.len().saturating_sub(FITTED)..];
    let order = (fitted.len() > 2).then(|| slope(fitted));
    Ok(Curve {
        points,
        why: end_of_points.filter(|_| order.is_none()),
        order,
    })
}

/// By least squares.
fn slope(points: &[Point]) -> f64 {
    let n = points.len() as f64;
    let logs = points.iter().map(|p| (p.h.ln(), p.error.ln()));
    let (x, y) = logs
        .clone()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let (above, below) = logs.fold((0.0, 0.0), |(a, b), (h, e)| {
        (a + (h - x) * (e - y), b + (h - x) * (h - x))
    });
    above / below
}
