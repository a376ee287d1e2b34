//! Dimensions that are fixed at build time or bound at launch, and products of them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One dimension of a tensor. Widths are `Fixed`; batch and sequence are bound at launch, up to the
/// planned maxima.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    Fixed(u64),
    Batch,
    Seq,
}

/// Values of the symbolic dimensions for one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    pub batch: u64,
    pub seq: u64,
    /// Tokens of each sequence that earlier runs have seen: the run's first token has this position.
    #[serde(default, skip_serializing_if = "nothing")]
    pub past: u64,
}

impl Bindings {
    /// Sequences from their beginning.
    pub const fn new(batch: u64, seq: u64) -> Bindings {
        Bindings {
            batch,
            seq,
            past: 0,
        }
    }
    /// The same after `past` tokens.
    pub const fn after(self, past: u64) -> Bindings {
        Bindings { past, ..self }
    }
}

pub(crate) fn nothing(n: &u64) -> bool {
    *n == 0
}

impl Dim {
    pub fn at(self, b: Bindings) -> u64 {
        match self {
            Dim::Fixed(n) => n,
            Dim::Batch => b.batch,
            Dim::Seq => b.seq,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Batch => f.write_str("B"),
            Dim::Seq => f.write_str("S"),
        }
    }
}

/// A product `factor · B^batch · S^seq · P^past`, P the tokens that earlier runs have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size {
    pub factor: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seq: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub past: u8,
}

fn is_zero(n: &u8) -> bool {
    *n == 0
}

impl Size {
    pub const ONE: Size = Size::fixed(1);
    pub const BATCH: Size = Size {
        factor: 1,
        batch: 1,
        seq: 0,
        past: 0,
    };
    pub const SEQ: Size = Size {
        factor: 1,
        batch: 0,
        seq: 1,
        past: 0,
    };
    pub const PAST: Size = Size {
        factor: 1,
        batch: 0,
        seq: 0,
        past: 1,
    };
    /// The tokens of a run, one row each.
    pub const TOKENS: Size = Size {
        factor: 1,
        batch: 1,
        seq: 1,
        past: 0,
    };

    pub const fn fixed(factor: u64) -> Size {
        Size {
            factor,
            batch: 0,
            seq: 0,
            past: 0,
        }
    }

    /// The number of elements of a shape. `None` when the fixed part overflows.
    pub fn of(shape: &[Dim]) -> Option<Size> {
        shape.iter().try_fold(Size::ONE, |s, d| s.times(*d))
    }

    pub fn times(self, d: Dim) -> Option<Size> {
        Some(match d {
            Dim::Fixed(n) => Size {
                factor: self.factor.checked_mul(n)?,
                ..self
            },
            Dim::Batch => Size {
                batch: self.batch.checked_add(1)?,
                ..self
            },
            Dim::Seq => Size {
                seq: self.seq.checked_add(1)?,
                ..self
            },
        })
    }

    /// The value for given bindings. `None` on overflow.
    pub fn at(self, b: Bindings) -> Option<u64> {
        let p = |base: u64, e: u8| base.checked_pow(e as u32);
        self.factor
            .checked_mul(p(b.batch, self.batch)?)?
            .checked_mul(p(b.seq, self.seq)?)?
            .checked_mul(p(b.past, self.past)?)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut parts = Vec::new();
        if self.factor != 1 || (self.batch, self.seq, self.past) == (0, 0, 0) {
            parts.push(self.factor.to_string());
        }
        parts.extend((0..self.batch).map(|_| "B".to_string()));
        parts.extend((0..self.seq).map(|_| "S".to_string()));
        parts.extend((0..self.past).map(|_| "P".to_string()));
        f.write_str(&parts.join("·"))
    }
}
