//! Rows that are drawn one by one, images or sequences: which are held out, and in what order the others come.
//!
//! Files may be sorted, so which rows are held out is drawn, once for all: a row's number in the data decides, not the seed of a run. Training goes
//! through all other rows before any comes again, in an order of its own each time.

use crate::data::dataset::Draw;
use crate::data::draw::{divided, drawn, spread};
use odec_program::rng::Stream;
use std::ops::Range;

/// Numbers of rows, in order.
pub struct Parts {
    /// What they are, which names the streams: `images`.
    of: &'static str,
    pub train: Vec<u32>,
    pub held_out: Vec<u32>,
}

/// Rows of a training step.
pub struct Drawn {
    pub rows: Vec<u32>,
    /// What dropout chooses its masks by.
    pub key: i32,
}

impl Parts {
    /// Divides so many rows: `percent` per cent (rounded down) are held out, as the stream `held-out images` draws them.
    pub fn new(of: &'static str, rows: u32, percent: u32) -> Parts {
        let (train, held_out) = divided(&format!("held-out {of}"), rows, percent);
        Parts {
            of,
            train,
            held_out,
        }
    }

    /// All of them held out.
    pub fn all_held_out(&self) -> Parts {
        Parts {
            of: self.of,
            train: vec![],
            held_out: (0..(self.train.len() + self.held_out.len()) as u32).collect(),
        }
    }

    /// Row r of step s is number `s · batch + r` of all draws. So many draws as there are rows for training are an epoch: each is drawn
    /// once, in the order of the seed and the epoch.
    pub fn drawn(&self, draw: Draw, rows: Range<u64>) -> Drawn {
        let all = self.train.len() as u64;
        let order = Stream::new(draw.seed, self.of);
        let row = |r: u64| self.train[drawn(&order, number(draw, r), all) as usize];
        Drawn {
            key: draw.key(rows.start),
            rows: rows.map(row).collect(),
        }
    }

    /// The held-out rows in the order of the data, each once, so many at a time; with `most`, so many of them, evenly spread.
    pub fn held_out(&self, together: u64, most: Option<u64>) -> impl Iterator<Item = Vec<u32>> {
        let (together, all) = (together.max(1) as usize, self.held_out.len());
        let taken = most.map_or(all, |n| all.min(n as usize));
        (0..taken).step_by(together).map(move |n| {
            let rows = (n..(n + together).min(taken)).map(|w| self.held_out[spread(w, taken, all)]);
            rows.collect()
        })
    }
}

/// The number of a row of a step among all draws.
pub fn number(draw: Draw, row: u64) -> u128 {
    u128::from(draw.step) * u128::from(draw.batch) + u128::from(row)
}
