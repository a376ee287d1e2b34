//! Losses over steps, what was seen, operations and time, of several runs in one picture.
//!
//! Takes runs with what the compiler says of them; gives pictures. Training losses are means over equal stretches of steps; held-out losses are dots.

use crate::facts::ModelFacts;
use crate::plot::{Across, Plot, SIZES, Size, Unit};
use crate::runs::Run;
use crate::table::loss;

/// What losses are drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    Steps,
    Seen,
    Flops,
    Time,
}

impl Against {
    pub const ALL: [Against; 4] = [Against::Steps, Against::Seen, Against::Flops, Against::Time];

    pub fn key(self) -> &'static str {
        match self {
            Against::Steps => "steps",
            Against::Seen => "seen",
            Against::Flops => "flops",
            Against::Time => "time",
        }
    }
}

/// A run to be drawn, with its number on the page, and that of its kind: runs that differ in their seed alone are of one, and have one colour.
pub struct Drawn<'a> {
    pub number: usize,
    pub kind: usize,
    pub run: &'a Run,
    pub model: Option<&'a ModelFacts>,
}

/// Points of a curve.
struct Curve {
    kind: usize,
    said: String,
    training: Vec<(f64, f64)>,
    held_out: Vec<(f64, f64)>,
}

impl Drawn<'_> {
    /// Where a step stands on the axis; `None` where that is not known.
    fn place(&self, against: Against) -> Option<Box<dyn Fn(f64) -> f64 + '_>> {
        let times = |each: f64| Box::new(move |step: f64| step * each);
        Some(match against {
            Against::Steps => times(1.0),
            Against::Seen => times(self.run.per_step().0 as f64),
            Against::Flops => times(self.model?.step_flops(self.run.batch())),
            Against::Time => {
                let known: Vec<(f64, f64)> = self
                    .run
                    .steps()
                    .map(|s| (s.step as f64, s.seconds))
                    .collect();
                Box::new(move |step| {
                    let after = known.partition_point(|(s, _)| *s < step);
                    known
                        .get(after)
                        .or(known.last())
                        .map_or(0.0, |(_, seconds)| *seconds)
                })
            }
        })
    }

    fn curve(&self, against: Against, points: usize) -> Option<Curve> {
        let place = self.place(against)?;
        let curve = self.run.curve();
        let stretches = curve.stretches(points);
        let on = |(step, loss): (f64, f64)| (place(step), loss);
        let held = curve
            .held_out
            .last()
            .map(|(_, x)| format!(", held out {}", loss(*x)));
        let trained = stretches
            .last()
            .map_or(String::new(), |s| format!(": training {}", loss(s.mean)));
        Some(Curve {
            kind: self.kind,
            said: format!("{}{trained}{}", self.run.called(), held.unwrap_or_default()),
            training: stretches.iter().map(|s| on((s.step, s.mean))).collect(),
            held_out: curve.held_out.iter().map(|p| on(*p)).collect(),
        })
    }
}

/// The losses of runs that can be compared, wide and narrow; `None` where there is nothing to draw. `id` is the picture's own on the page.
pub fn losses(runs: &[Drawn], against: Against, id: &str) -> Option<String> {
    let drawn = SIZES.iter().map(|size| one(runs, against, *size, id));
    drawn.collect::<Option<String>>()
}

fn one(runs: &[Drawn], against: Against, size: Size, id: &str) -> Option<String> {
    let points = (size.width / 4.0) as usize;
    let curves: Vec<Curve> = runs
        .iter()
        .filter_map(|r| r.curve(against, points))
        .collect();
    let all = || {
        curves
            .iter()
            .flat_map(|c| c.training.iter().chain(&c.held_out))
    };
    let most = all().map(|p| p.0).fold(0.0, f64::max);
    let y = range(&curves)?;
    let first = runs.first()?.run;
    let what = match against {
        Against::Steps => Unit::count("step", 1.0),
        Against::Seen => Unit::count(&format!("{} seen", first.per_step().1), most),
        Against::Flops => {
            let at_most = runs.iter().any(|r| {
                r.model
                    .is_some_and(|m| m.is_at_most(&r.run.progress.data.form))
            });
            Unit::flops(
                if at_most {
                    "training FLOPs at most"
                } else {
                    "training FLOPs"
                },
                most,
            )
        }
        Against::Time => Unit::seconds(most),
    };
    let title = format!("Loss against {}", what.name);
    let measure = format!("loss, {}", first.measure());
    let mut plot = Plot::new(size, id, &what, Across::To(most), y, [&title, &measure]);
    for c in &curves {
        plot.run(c.kind, &c.said);
        // Where text is held out, what was learned by heart stands back.
        let class = if c.held_out.is_empty() {
            "curve"
        } else {
            "curve back"
        };
        plot.line(class, &c.training);
        plot.line("curve", &c.held_out);
        c.held_out.iter().for_each(|p| plot.dot("dot", *p, 3.0));
        plot.end();
    }
    Some(plot.finish())
}

/// The range of losses to show: all, but for what is lost in the first tenth of a curve.
fn range(curves: &[Curve]) -> Option<(f64, f64)> {
    let late = curves.iter().flat_map(|c| {
        let from = c.training.len() / 10;
        let held = c.held_out.len() / 10;
        c.training[from..].iter().chain(&c.held_out[held..])
    });
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for (_, loss) in late {
        low = low.min(*loss);
        high = high.max(*loss);
    }
    (low <= high).then_some((low, high))
}
