//! The picture of a model: one step drawn in full, equal steps as a loop.
//!
//! Takes a [`Diagram`]; gives an SVG that reads on light and dark backgrounds. Field evaluations stand in the left
//! column, combinations with their exact coefficients in the right one; time runs downwards. A value used further down
//! travels in a lane at the side; a dot marks where a line branches, crossings have none.

mod panel;
mod pen;

use crate::diagram::{Diagram, Part, Section, diagram};
use crate::ops::Graph;
use panel::{PAD, Panel};
use pen::{
    Colour, FIELD, HEADING, NAME, NOTE, OUTER_NAME, OUTER_NOTE, OUTER_TYPE, PART, Pen, STATE, SUM,
};
use std::collections::BTreeMap;

/// Room around the picture.
const MARGIN: f64 = 20.0;
/// Between sections.
const APART: f64 = 26.0;

/// The model of a graph, under a title if there is one; `weights` says of each evolve which steps share them.
pub fn svg(graph: &Graph, title: &str, weights: &BTreeMap<String, String>) -> String {
    draw(&diagram(graph), title, weights)
}

/// What stands on the centre line, which runs through the left columns of all steps.
enum Item<'a> {
    Part(&'a Part),
    Panel(Panel<'a>),
}

impl<'a> Item<'a> {
    fn of(section: &'a Section, weights: &BTreeMap<String, String>) -> Item<'a> {
        match section {
            Section::Part(p) => Item::Part(p),
            Section::Steps(s) => Item::Panel(Panel::new(s, weights.get(&s.evolve))),
        }
    }

    /// From the centre line to the left edge and to the right edge.
    fn extent(&self) -> (f64, f64) {
        match self {
            Item::Panel(p) => (p.left_extent(), p.right_extent()),
            Item::Part(p) => {
                let half = part_width(p) / 2.0;
                let inputs = p.inputs.iter().map(|i| OUTER_NAME.width(i) + 50.0);
                let inputs = inputs.fold(0.0, f64::max);
                (
                    half + inputs,
                    half + 10.0 + OUTER_TYPE.width(&result_name(p)),
                )
            }
        }
    }
}

pub fn draw(d: &Diagram, title: &str, weights: &BTreeMap<String, String>) -> String {
    let items = d.sections.iter().map(|s| Item::of(s, weights));
    let items: Vec<Item> = items.collect();
    let (left, right) = items
        .iter()
        .map(Item::extent)
        .fold((0.0, 0.0), |(l, r), (a, b)| {
            (f64::max(l, a), f64::max(r, b))
        });
    let centre = MARGIN + left;
    let width = (left + right).max(legend_width()).max(HEADING.width(title)) + 2.0 * MARGIN;

    let mut pen = Pen::default();
    let mut y = MARGIN;
    if !title.is_empty() {
        pen.text(MARGIN, y + 16.0, title, HEADING);
        y += 40.0;
    }
    for (i, item) in items.iter().enumerate() {
        let gap = [(centre, y), (centre, y + APART)];
        match item {
            _ if i == 0 => y -= APART,
            Item::Part(_) => pen.arrow(&gap, STATE),
            // the arrow's head is inside
            Item::Panel(_) => pen.line(&gap, STATE),
        }
        y += APART;
        y = match item {
            Item::Part(p) => part(&mut pen, p, centre, y),
            Item::Panel(p) => p.draw(&mut pen, centre, y),
        };
    }
    y += 24.0;
    legend(&mut pen, MARGIN, y);
    y += 14.0 + MARGIN;
    let name = if title.is_empty() { "model" } else { title };
    pen.finish(width.ceil(), y.ceil(), name)
}

fn result_name(p: &Part) -> String {
    match p.result.rank() {
        0 => "scalar".into(),
        _ => p.result.to_string(),
    }
}

fn part_width(p: &Part) -> f64 {
    let below = NOTE.width(&p.parts.join(" · "));
    NAME.width(&p.name).max(below).max(96.0) + 2.0 * PAD
}

/// A part of the model, its inputs at its left, its result's type at its right. Gives its lower edge.
fn part(pen: &mut Pen, p: &Part, centre: f64, y: f64) -> f64 {
    let (w, h) = (part_width(p), if p.parts.is_empty() { 34.0 } else { 48.0 });
    let left = centre - w / 2.0;
    pen.rect(left, y, w, h, 7.0, PART);
    pen.centred(centre, y + 21.5, &p.name, NAME);
    if !p.parts.is_empty() {
        pen.centred(centre, y + 38.5, &p.parts.join(" · "), NOTE);
    }
    for (i, name) in p.inputs.iter().enumerate() {
        let at = y + h * (i as f64 + 0.5) / p.inputs.len() as f64;
        let x = left - 34.0 - OUTER_NAME.width(name) / 2.0;
        pen.centred(x, at + 4.5, name, OUTER_NAME);
        pen.arrow(&[(left - 28.0, at), (left, at)], PART);
    }
    pen.text(
        left + w + 10.0,
        y + h / 2.0 + 4.0,
        &result_name(p),
        OUTER_TYPE,
    );
    y + h
}

const LEGEND: [(Colour, &str); 4] = [
    (STATE, "state"),
    (FIELD, "field evaluation (learned)"),
    (SUM, "combination (exact coefficients)"),
    (PART, "part of the model"),
];

fn legend_width() -> f64 {
    LEGEND.iter().map(|(_, s)| OUTER_NOTE.width(s) + 36.0).sum()
}

fn legend(pen: &mut Pen, mut x: f64, y: f64) {
    for (c, s) in LEGEND {
        pen.rect(x, y, 14.0, 14.0, 4.0, c);
        pen.text(x + 20.0, y + 11.0, s, OUTER_NOTE);
        x += OUTER_NOTE.width(s) + 36.0;
    }
}
