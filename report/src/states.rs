//! What evolves report of the state, along their steps.
//!
//! Takes runs that can be compared; gives a picture for each name that one of them reports under.

use crate::curves::Drawn;
use crate::plot::{Across, Plot, SIZES, Unit};
use crate::runs::Run;
use std::collections::{BTreeMap, BTreeSet};

/// The last share of the steps of training whose reports are averaged: a twentieth.
const LAST: usize = 20;

/// The reports of a run by name: for each step of the evolve the mean over the last twentieth of the steps of training.
fn last(r: &Run) -> BTreeMap<&str, Vec<f64>> {
    let logged: Vec<_> = r.steps().filter(|s| !s.reports.is_empty()).collect();
    let last = &logged[logged.len() - logged.len().div_ceil(LAST)..];
    let mut sums: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for step in last {
        for (name, values) in &step.reports {
            let sum = sums.entry(name).or_default();
            sum.resize(values.len().max(sum.len()), 0.0);
            for (total, x) in sum.iter_mut().zip(values) {
                *total += x / last.len() as f64;
            }
        }
    }
    sums
}

/// The pictures, each wide and narrow; `id` begins the names that they have on the page.
pub fn pictures(runs: &[Drawn], id: &str) -> Vec<String> {
    let all: Vec<(&Drawn, BTreeMap<&str, Vec<f64>>)> =
        runs.iter().map(|d| (d, last(d.run))).collect();
    let names: BTreeSet<&str> = all.iter().flat_map(|(_, of)| of.keys().copied()).collect();
    let of = |name: &str| -> Vec<(&Drawn, Vec<(f64, f64)>)> {
        let points = |values: &Vec<f64>| {
            let each = values.iter().enumerate();
            let known = each.filter(|(_, x)| x.is_finite());
            known.map(|(n, x)| ((n + 1) as f64, *x)).collect()
        };
        let named = all.iter().filter_map(|(d, of)| Some((*d, of.get(name)?)));
        named.map(|(d, values)| (d, points(values))).collect()
    };
    let drawn = names.into_iter().enumerate();
    drawn
        .filter_map(|(n, name)| picture(name, &of(name), &format!("{id}-{n}")))
        .collect()
}

fn picture(name: &str, curves: &[(&Drawn, Vec<(f64, f64)>)], id: &str) -> Option<String> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let (low, high) = points().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| {
        (low.min(p.1), high.max(p.1))
    });
    if low > high {
        return None;
    }
    let most = points().map(|p| p.0).fold(0.0, f64::max);
    let unit = Unit::count("step of the evolve", most);
    let title = format!("{name} along the steps of the evolve");
    let drawn = SIZES.iter().map(|size| {
        let names = [title.as_str(), name];
        let mut plot = Plot::new(*size, id, &unit, Across::To(most), (low, high), names);
        for (d, points) in curves {
            plot.run(d.kind, d.run.called());
            plot.line("curve", points);
            for p in points {
                plot.dot("dot", *p, 3.0);
            }
            plot.end();
        }
        plot.finish()
    });
    Some(drawn.collect())
}
