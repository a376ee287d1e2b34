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

/// How large a run may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maxima {
    pub batch: u64,
    pub seq: u64,
    /// Tokens of all its sequences together, where they are fewer than the longest of the most. Such runs of more than one token of each begin at the
    /// first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl Maxima {
    /// So many sequences, all of which may be the longest.
    pub const fn new(batch: u64, seq: u64) -> Maxima {
        Maxima {
            batch,
            seq,
            tokens: None,
        }
    }

    /// Whether a run may be of this size.
    pub fn hold(self, at: Bindings) -> bool {
        let end = at.past.saturating_add(at.seq);
        let begins = at.past == 0 || at.seq == 1;
        let fits = |n: u64| begins && at.batch.saturating_mul(at.seq) <= n;
        (1..=self.batch).contains(&at.batch)
            && at.seq > 0
            && end <= self.seq
            && self.tokens.is_none_or(fits)
    }

    /// As many of the longest sequences as there may be together, one at least.
    pub fn longest(self) -> Bindings {
        let fit = self.tokens.map_or(u64::MAX, |n| n / self.seq.max(1));
        Bindings::new(self.batch.min(fit.max(1)), self.seq)
    }

    /// Two sizes of which one has at least as much of everything that grows with a power of the batch times one of the length as any run:
    /// few of the longest sequences, and many of what length is left for these. On the way from one to the other, at `batch · seq` as large as it
    /// may be, `c · batchᵖ · seqᵠ` is an exponential function of log batch, and a sum of such functions is largest at an end.
    pub fn ends(self) -> [Bindings; 2] {
        let fit = |of: u64| self.tokens.map_or(u64::MAX, |n| n.div_ceil(of.max(1)));
        [
            Bindings::new(self.batch.min(fit(self.seq)), self.seq),
            Bindings::new(self.batch, self.seq.min(fit(self.batch))),
        ]
    }

    /// The largest number at any size; `None` where it cannot be counted.
    pub fn most(self, of: impl Fn(Bindings) -> Option<u64>) -> Option<u64> {
        let [a, b] = self.ends();
        Some(of(a)?.max(of(b)?))
    }
}

impl From<Bindings> for Maxima {
    fn from(at: Bindings) -> Maxima {
        Maxima::new(at.batch, at.seq)
    }
}

impl fmt::Display for Maxima {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "1..={} × 1..={}", self.batch, self.seq)?;
        match self.tokens {
            Some(n) => write!(f, ", at most {n} together"),
            None => Ok(()),
        }
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
