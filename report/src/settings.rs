//! Which settings of runs differ: the values of their files under the paths that `--set` takes.
//!
//! Takes runs; gives paths with what each run has there. Of a call the labelled arguments are values of their own. What `--set` replaced, seed and steps are those of the
//! run. Data are left to `diff.rs`, and what has no path to its difference of the sources.

use crate::runs::Run;
use odec_driver::library::LIBRARY;
use odec_grammar::{MAX_BYTES, Sources, parse, set, settable};
use odec_source::escape::escaped;
use std::collections::{BTreeMap, BTreeSet};

/// A setting that is not the same in all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// As `--set` takes it.
    pub name: String,
    /// Of each run; absent where its file does not say it.
    pub values: Vec<Option<String>>,
}

struct Said {
    /// The shortest path in this file.
    brief: String,
    value: String,
}

/// The settings that differ, by their paths.
pub fn differing(runs: &[&Run]) -> Vec<Setting> {
    let all: Vec<BTreeMap<String, Said>> = runs.iter().map(|r| said(r)).collect();
    let paths: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let briefs = |path: &String| -> BTreeSet<&String> {
        let here = all.iter().filter_map(|run| run.get(path));
        here.map(|s| &s.brief).collect()
    };
    let mut meant: BTreeMap<&String, usize> = BTreeMap::new();
    for brief in paths.iter().flat_map(|path| briefs(path)) {
        *meant.entry(brief).or_default() += 1;
    }
    let each = paths.iter().map(|path| {
        // The same place may have a longer path in another run, and its short one mean another place there.
        let mut briefs = briefs(path).into_iter();
        let name = match (briefs.next(), briefs.next()) {
            (Some(one), None) if meant[one] == 1 => one,
            _ => *path,
        };
        Setting {
            name: name.clone(),
            values: all
                .iter()
                .map(|run| run.get(*path).map(|s| s.value.clone()))
                .collect(),
        }
    });
    each.filter(|s| s.values.windows(2).any(|w| !same(&w[0], &w[1])))
        .collect()
}

/// Whether values are equal, however a number is written.
fn same(a: &Option<String>, b: &Option<String>) -> bool {
    let number = |v: &Option<String>| v.as_ref()?.parse::<f64>().ok();
    a == b || number(a).is_some_and(|a| number(b) == Some(a))
}

/// What a run's file says, under the most exact paths.
fn said(r: &Run) -> BTreeMap<String, Said> {
    let mut found = BTreeMap::new();
    let mut add = |full: &str, brief: &str, value: &str| {
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = Said {
            brief: escaped(brief),
            value: escaped(&value),
        };
        found.insert(escaped(full), said);
    };
    if r.manifest.source.len() <= MAX_BYTES {
        let mut sources = Sources::with(LIBRARY);
        let main = sources.add(r.manifest.name.clone(), r.manifest.source.clone());
        let (mut file, _) = parse(main, sources.text(main));
        for (path, value) in r.manifest.settings.iter().filter_map(|s| s.split_once('=')) {
            let (path, value) = (path.trim(), value.trim());
            // A path of an older odec's may be known no more.
            if set(&mut file, &mut sources, path, value).is_err() {
                add(path, path, value);
            }
        }
        let all = settable(&mut file, &sources).into_iter();
        for s in all.filter(|s| s.given && !format!("{}.", s.full).starts_with("train.data.")) {
            add(&s.full, &s.path, &s.own.unwrap_or_default());
        }
    }
    let p = &r.progress;
    for (path, value) in [("train.seed", p.seed), ("train.steps", p.steps)] {
        add(path, path, &value.to_string());
    }
    if let Some(limit) = p.time_limit {
        add("--time-limit", "--time-limit", &limit.to_string());
    }
    found
}
