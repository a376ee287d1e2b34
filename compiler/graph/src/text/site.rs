//! Sites as text: `core: step.3 eval.1 att.q backward replay.2`.

use crate::graph::{Pass, Site};
use odec_text::cursor::{Cursor, Parsed};
use odec_text::word::{is_plain, quoted};

/// The parts that a site has; empty where it has none.
pub fn site(site: &Site) -> String {
    let mut parts = Vec::new();
    if !site.evolve.is_empty() {
        parts.push(format!("{}:", super::word(&site.evolve)));
    }
    parts.extend(site.step.map(|k| format!("step.{k}")));
    parts.extend(site.evaluation.map(|k| format!("eval.{k}")));
    if !site.path.is_empty() {
        parts.push(match is_plain(&site.path) && part(&site.path).is_none() {
            true => site.path.clone(),
            false => quoted(&site.path),
        });
    }
    if site.pass == Pass::Backward {
        parts.push("backward".into());
    }
    if site.replay > 0 {
        parts.push(format!("replay.{}", site.replay));
    }
    parts.join(" ")
}

/// A part that is no path.
enum Part {
    Step(u32),
    Evaluation(u32),
    Backward,
    Replay(u32),
}

fn part(word: &str) -> Option<Part> {
    if word == "backward" {
        return Some(Part::Backward);
    }
    let (name, number) = word.split_once('.')?;
    let number = number
        .parse()
        .ok()
        .filter(|n: &u32| n.to_string() == number)?;
    match name {
        "step" => Some(Part::Step(number)),
        "eval" => Some(Part::Evaluation(number)),
        "replay" if number > 0 => Some(Part::Replay(number)),
        _ => None,
    }
}

/// What stands after `@`.
pub(super) fn parse(cursor: &mut Cursor) -> Parsed<Site> {
    let mut site = Site::default();
    // Parts stand in the order in which they are printed, so each stands once.
    let mut last = 0;
    while !cursor.rest().is_empty() {
        let start = cursor.at;
        let in_quotes = cursor.rest().starts_with('"');
        let word = cursor.word("a part of a site")?;
        let place = match part(&word).filter(|_| !in_quotes) {
            _ if cursor.take(":") => {
                site.evolve = word;
                1
            }
            Some(Part::Step(k)) => {
                site.step = Some(k);
                2
            }
            Some(Part::Evaluation(k)) => {
                site.evaluation = Some(k);
                3
            }
            None => {
                site.path = word;
                4
            }
            Some(Part::Backward) => {
                site.pass = Pass::Backward;
                5
            }
            Some(Part::Replay(k)) => {
                site.replay = k;
                6
            }
        };
        if place <= last {
            let order = "a site is `evolve: step.0 eval.0 path backward replay.1`, each part where there is one";
            return cursor.error(start, order);
        }
        last = place;
    }
    match last {
        0 => cursor.expected("a site"),
        _ => Ok(site),
    }
}
