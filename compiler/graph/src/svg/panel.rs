//! One step, laid out: rows downwards, fields in the left column, combinations in the right one, lanes at the sides.
//!
//! Takes [`Steps`]; gives boxes and lanes with their places, and draws them with a pen.

use super::pen::{Colour, FIELD, FORMULA, NOTE, OUTER_NAME, OUTER_NOTE, Pen, STATE, SUM};
use crate::diagram::{Cell, CellKind, Steps};
use std::collections::BTreeMap;

/// Room between a box and its text.
pub(super) const PAD: f64 = 12.0;
/// From one line of text to the next.
const LINE: f64 = 17.0;
/// From one lane to the next, and from one track to the next.
const LANE: f64 = 12.0;
const TRACK: f64 = 9.0;
const COLUMNS_APART: f64 = 44.0;
/// Characters after which a formula is broken.
const WRAP: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Left,
    Right,
}

/// A box of a panel.
struct Boxed {
    side: Side,
    row: usize,
    title: Vec<String>,
    below: String,
    colour: Colour,
    operands: Vec<usize>,
    width: f64,
    height: f64,
    /// Lanes that enter, in order.
    entries: Vec<usize>,
}

impl Boxed {
    fn new(
        side: Side,
        title: Vec<String>,
        below: String,
        colour: Colour,
        operands: &[usize],
    ) -> Boxed {
        let formula = title.iter().map(|t| FORMULA.width(t)).fold(0.0, f64::max);
        let mut b = Boxed {
            side,
            row: 0,
            width: formula.max(NOTE.width(&below)).max(24.0) + 2.0 * PAD,
            height: 0.0,
            title,
            below,
            colour,
            operands: operands.to_vec(),
            entries: Vec::new(),
        };
        b.height = b.text_height() + 13.0;
        b
    }

    fn of(cells: &[Cell], i: usize) -> Boxed {
        let c = &cells[i];
        let (side, title, below, colour) = match &c.kind {
            CellKind::Outside => {
                let side = if i == 0 { Side::Left } else { Side::Right };
                (side, vec![c.name.clone()], String::new(), STATE)
            }
            CellKind::Evaluation { field, parts } => {
                let at: Vec<&str> = c.operands.iter().map(|o| &*cells[*o].name).collect();
                let title = format!("{} = {field}({})", c.name, at.join(", "));
                (Side::Left, vec![title], parts.join(" · "), FIELD)
            }
            CellKind::Combination { terms } => {
                (Side::Right, wrapped(&c.name, terms), String::new(), SUM)
            }
        };
        Boxed::new(side, title, below, colour, &c.operands)
    }

    fn text_height(&self) -> f64 {
        self.title.len() as f64 * LINE + if self.below.is_empty() { 0.0 } else { 15.0 }
    }
}

/// A value that travels beside the boxes.
struct Lane {
    from: usize,
    side: Side,
    to: Vec<usize>,
    /// Place from the boxes outwards.
    place: usize,
}

/// A step, laid out.
pub(super) struct Panel<'a> {
    steps: &'a Steps,
    /// Which steps share their weights.
    weights: String,
    boxes: Vec<Boxed>,
    lanes: Vec<Lane>,
    rows: usize,
}

/// Where a panel's rows and columns are.
struct Places {
    centre: f64,
    right_column: f64,
    /// Of each row: its upper edge, its height, and the height of the gap below it.
    rows: Vec<(f64, f64, f64)>,
    bottom: f64,
}

impl Places {
    fn x(&self, b: &Boxed) -> f64 {
        match b.side {
            Side::Left => self.centre,
            Side::Right => self.right_column,
        }
    }
    fn middle(&self, b: &Boxed) -> f64 {
        let (top, height, _) = self.rows[b.row];
        top + height / 2.0
    }
    fn upper(&self, b: &Boxed) -> f64 {
        self.middle(b) - b.height / 2.0
    }
    fn lower(&self, b: &Boxed) -> f64 {
        self.middle(b) + b.height / 2.0
    }
    /// Upper and lower edge of the gap below a row.
    fn gap(&self, row: usize) -> (f64, f64) {
        let (top, height, gap) = self.rows[row];
        (top + height, top + height + gap)
    }
}

impl<'a> Panel<'a> {
    pub fn new(steps: &'a Steps, weights: Option<&String>) -> Panel<'a> {
        let weights = weights.map_or(String::new(), |w| format!(" · weights {w}"));
        let mut boxes: Vec<Boxed> = (0..steps.cells.len())
            .map(|i| Boxed::of(&steps.cells, i))
            .collect();
        let outside = steps
            .cells
            .iter()
            .filter(|c| c.kind == CellKind::Outside)
            .count();
        let (mut row, mut taken) = (0, [false, false]);
        for (i, b) in boxes.iter_mut().enumerate() {
            // one in the left column opens a row; one in the right column may stand beside it
            let slot = usize::from(b.side == Side::Right);
            if taken[slot] || (b.side == Side::Left && taken[1]) || (i == outside && i > 0) {
                row += 1;
                taken = [false, false];
            }
            taken[slot] = true;
            b.row = row;
        }
        // the state after the step
        let mut last = Boxed::new(
            Side::Left,
            vec!["x′".into()],
            String::new(),
            STATE,
            &[steps.result],
        );
        last.row = row + 1;
        boxes.push(last);
        for side in [Side::Left, Side::Right] {
            let of_side = |b: &&mut Boxed| b.side == side && b.colour != STATE;
            let widths = boxes.iter_mut().filter(of_side).map(|b| b.width);
            let widest = widths.fold(0.0, f64::max);
            boxes
                .iter_mut()
                .filter(of_side)
                .for_each(|b| b.width = widest);
        }
        let lanes = lanes(&boxes);
        for (n, lane) in lanes.iter().enumerate() {
            for b in &lane.to {
                boxes[*b].entries.push(n);
            }
        }
        for b in &mut boxes {
            b.height = b.height.max(b.entries.len() as f64 * TRACK + 10.0);
            // outer lanes enter lower
            b.entries.sort_by_key(|n| lanes[*n].place);
        }
        let rows = row + 2;
        Panel {
            steps,
            weights,
            boxes,
            lanes,
            rows,
        }
    }

    fn column(&self, side: Side) -> f64 {
        let columns = self.boxes.iter().filter(|b| b.side == side);
        columns.map(|b| b.width).fold(0.0, f64::max)
    }
    fn lanes_width(&self, side: Side) -> f64 {
        let lanes = self.lanes.iter().filter(|l| l.side == side);
        lanes.map(|l| l.place as f64 + 1.0).fold(0.0, f64::max) * LANE
    }
    fn repeated(&self) -> bool {
        self.steps.last > self.steps.first && self.steps.every == 1
    }
    /// From the centre of the left column to the panel's left edge.
    pub fn left_extent(&self) -> f64 {
        let back = if self.repeated() { 44.0 } else { 0.0 };
        self.column(Side::Left) / 2.0 + 22.0 + self.lanes_width(Side::Left) + back
    }
    /// From the centre of the left column to the panel's right edge.
    pub fn right_extent(&self) -> f64 {
        let columns = self.column(Side::Left) / 2.0 + COLUMNS_APART + self.column(Side::Right);
        let (title, about) = self.header();
        (columns + 26.0 + self.lanes_width(Side::Right))
            .max(OUTER_NAME.bold().width(&title) + 28.0)
            .max(OUTER_NOTE.width(&about) + 28.0)
    }

    fn header(&self) -> (String, String) {
        let s = self.steps;
        let evolve = match &*s.evolve {
            "" => String::new(),
            e => format!("{e} · "),
        };
        let numbers = match (s.count(), s.every) {
            (1, _) => format!("step {}", s.first),
            (n, 1) => format!("steps {}–{} · one of {n} drawn", s.first, s.last),
            (2, _) => format!("steps {} and {} · one of 2 drawn", s.first, s.last),
            (n, every) => format!(
                "steps {}, {}, … {} · one of {n} drawn",
                s.first,
                s.first + every,
                s.last
            ),
        };
        let title = format!("{evolve}{numbers}");
        let evaluation = |c: &&Cell| matches!(c.kind, CellKind::Evaluation { .. });
        let n = s.cells.iter().filter(evaluation).count();
        let plural = if n == 1 { "" } else { "s" };
        let about = format!("{n} field evaluation{plural} per step{}", self.weights);
        (title, about)
    }

    fn places(&self, centre: f64, top: f64) -> Places {
        let mut y = top + 64.0;
        let mut rows = Vec::new();
        for row in 0..self.rows {
            let in_row = self.boxes.iter().filter(|b| b.row == row);
            let height = in_row.map(|b| b.height).fold(0.0, f64::max);
            let tracks = self
                .lanes
                .iter()
                .filter(|l| self.boxes[l.from].row == row)
                .count();
            let gap = if row + 1 == self.rows {
                20.0
            } else {
                26.0 + tracks as f64 * TRACK
            };
            rows.push((y, height, gap));
            y += height + gap;
        }
        let (left, right) = (self.column(Side::Left), self.column(Side::Right));
        let right_column = centre + left / 2.0 + COLUMNS_APART + right / 2.0;
        Places {
            centre,
            right_column,
            rows,
            bottom: y,
        }
    }

    /// Draws the panel with its left column at `centre`; gives its lower edge.
    pub fn draw(&self, pen: &mut Pen, centre: f64, top: f64) -> f64 {
        let places = self.places(centre, top);
        let (left, width) = (
            centre - self.left_extent(),
            self.left_extent() + self.right_extent(),
        );
        pen.frame(left, top, width, places.bottom - top);
        let (title, about) = self.header();
        pen.text(centre + 14.0, top + 22.0, &title, OUTER_NAME.bold());
        pen.text(centre + 14.0, top + 39.0, &about, OUTER_NOTE);
        self.draw_short_lines(pen, &places);
        self.draw_lanes(pen, &places);
        let ends = self.boxes.first().zip(self.boxes.last());
        if let Some((first, last)) = ends {
            // the state enters and leaves
            pen.arrow(&[(centre, top), (centre, places.upper(first))], STATE);
            pen.line(
                &[(centre, places.lower(last)), (centre, places.bottom)],
                STATE,
            );
            if self.repeated() {
                let (from, to) = (places.middle(last), places.middle(first));
                let (x, start, end) = (
                    left + 24.0,
                    centre - last.width / 2.0,
                    centre - first.width / 2.0,
                );
                pen.arrow(&[(start, from), (x, from), (x, to), (end, to)], STATE);
                let label = format!("× {}", self.steps.count());
                let (w, y) = (FORMULA.width(&label) + 12.0, (from + to) / 2.0);
                pen.rect(x - w / 2.0, y - 12.0, w, 24.0, 12.0, STATE);
                pen.centred(x, y + 4.5, &label, FORMULA);
            }
        }
        for b in &self.boxes {
            draw_box(pen, b, places.x(b), places.upper(b));
        }
        places.bottom
    }

    /// Lines between neighbours.
    fn draw_short_lines(&self, pen: &mut Pen, places: &Places) {
        for b in &self.boxes {
            for a in b
                .operands
                .iter()
                .map(|a| &self.boxes[*a])
                .filter(|a| adjacent(a, b))
            {
                let (from, to) = (places.x(a), places.x(b));
                let (start, end) = ((from, places.lower(a)), (to, places.upper(b)));
                if a.row == b.row {
                    let (start, end) = (from + a.width / 2.0, to - b.width / 2.0);
                    pen.arrow(
                        &[(start, places.middle(a)), (end, places.middle(b))],
                        a.colour,
                    );
                } else if a.side == b.side {
                    pen.arrow(&[start, end], a.colour);
                } else {
                    // below the tracks of lanes
                    let y = places.gap(a.row).1 - 15.0;
                    pen.arrow(&[start, (from, y), (to, y), end], a.colour);
                }
            }
        }
    }

    /// From below its box, along a track of the gap, down the lane, into the sides of the boxes that read it.
    fn draw_lanes(&self, pen: &mut Pen, places: &Places) {
        let mut tracks = vec![0.0; self.rows];
        for (n, lane) in self.lanes.iter().enumerate() {
            let a = &self.boxes[lane.from];
            let track = tracks[a.row];
            tracks[a.row] += 1.0;
            let y = places.gap(a.row).0 + 6.0 + track * TRACK;
            let outwards = (lane.place as f64 + 1.0) * LANE;
            let (x, direction) = match lane.side {
                Side::Left => (
                    places.centre - self.column(Side::Left) / 2.0 - outwards,
                    -1.0,
                ),
                Side::Right => (
                    places.right_column + self.column(Side::Right) / 2.0 + 4.0 + outwards,
                    1.0,
                ),
            };
            let exit = places.x(a) + direction * (a.width / 2.0 - 8.0).min(12.0 + 10.0 * track);
            let entry = |t: &usize| {
                let b = &self.boxes[*t];
                let at = b.entries.iter().position(|e| *e == n).unwrap_or(0) as f64 + 1.0;
                let edge = places.x(b) + direction * b.width / 2.0;
                (
                    edge,
                    places.upper(b) + b.height * at / (b.entries.len() as f64 + 1.0),
                )
            };
            let mut entries: Vec<(f64, f64)> = lane.to.iter().map(entry).collect();
            entries.sort_by(|p, q| p.1.total_cmp(&q.1));
            let Some(((edge, last), others)) = entries.split_last() else {
                continue;
            };
            let corners = [
                (exit, places.lower(a)),
                (exit, y),
                (x, y),
                (x, *last),
                (*edge, *last),
            ];
            pen.arrow(&corners, a.colour);
            for (edge, at) in others {
                pen.arrow(&[(x, *at), (*edge, *at)], a.colour);
                pen.dot(x, *at, a.colour);
            }
        }
    }
}

/// Whether a line from `a` to `b` needs no lane: to the right in a row, or down to the next.
fn adjacent(a: &Boxed, b: &Boxed) -> bool {
    let beside = a.row == b.row && a.side == Side::Left && b.side == Side::Right;
    let below = a.row + 1 == b.row && (a.side == b.side || b.side == Side::Left);
    beside || below
}

/// One lane for each value and side that needs one; long ones stand outside.
fn lanes(boxes: &[Boxed]) -> Vec<Lane> {
    let mut wanted: BTreeMap<(usize, Side), Vec<usize>> = BTreeMap::new();
    for (i, b) in boxes.iter().enumerate() {
        for a in b.operands.iter().filter(|a| !adjacent(&boxes[**a], b)) {
            wanted.entry((*a, b.side)).or_default().push(i);
        }
    }
    // the rows each passes
    let mut lanes: Vec<(usize, usize, Lane)> = wanted
        .into_iter()
        .map(|((from, side), to)| {
            let last = to.iter().map(|b| boxes[*b].row).max().unwrap_or(0);
            let place = 0;
            (
                boxes[from].row,
                last,
                Lane {
                    from,
                    side,
                    to,
                    place,
                },
            )
        })
        .collect();
    lanes.sort_by_key(|(a, b, lane)| (b - a, lane.from));
    let mut placed: Vec<(usize, usize, Lane)> = Vec::new();
    for (a, b, mut lane) in lanes {
        let clash = |place: usize| {
            let of_place = placed
                .iter()
                .filter(|(_, _, l)| l.side == lane.side && l.place == place);
            of_place.into_iter().any(|(c, d, _)| *c <= b && a <= *d)
        };
        lane.place = (0..).find(|p| !clash(*p)).expect("places do not end");
        placed.push((a, b, lane));
    }
    placed.into_iter().map(|(_, _, lane)| lane).collect()
}

fn draw_box(pen: &mut Pen, b: &Boxed, x: f64, y: f64) {
    let round = if b.colour == STATE {
        b.height / 2.0
    } else {
        7.0
    };
    pen.rect(x - b.width / 2.0, y, b.width, b.height, round, b.colour);
    let mut at = y + (b.height - b.text_height()) / 2.0 + 13.0;
    for line in &b.title {
        pen.centred(x, at, line, FORMULA);
        at += LINE;
    }
    if !b.below.is_empty() {
        pen.centred(x, at - 1.0, &b.below, NOTE);
    }
}

/// `y₁ = x + 1/2 k₁`, broken before terms.
fn wrapped(name: &str, terms: &[String]) -> Vec<String> {
    let mut lines = vec![format!("{name} =")];
    for (i, t) in terms.iter().enumerate() {
        let last = lines.last_mut().expect("never empty");
        if i > 0 && last.chars().count() + 1 + t.chars().count() > WRAP {
            lines.push(t.clone());
        } else {
            last.push(' ');
            last.push_str(t);
        }
    }
    lines
}
