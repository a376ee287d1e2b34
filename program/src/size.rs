//! Dimensions that are fixed at build time or bound at launch, and products of them.
//!
//! A new length that a run is bound to is a variant of [`Dim`], a power of [`Size`], and a field of [`Bindings`] and [`Maxima`], as the source's
//! is. An input says that its rows have it (`Beginning::value` in `odec-model`; all inputs with labels share the source's), a batch how many there
//! are (`Batch::at` in `odec-runtime`). Attention between two lengths is `Attend::others`.

use crate::Recent;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One dimension of a tensor. Widths are `Fixed`; batch, sequence and source are bound at launch, up to the
/// planned maxima. Of two sequences, `Source` are the tokens of the first, `Seq` those of the one that is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    Fixed(u64),
    Batch,
    Seq,
    Source,
}

/// Values of the symbolic dimensions for one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    pub batch: u64,
    pub seq: u64,
    /// Tokens of each sequence that earlier runs have seen: the run's first token has this position.
    #[serde(default, skip_serializing_if = "nothing")]
    pub past: u64,
    /// Of the tokens before, the first ones of which windows keep nothing any more ([`Recent`]).
    #[serde(default, skip_serializing_if = "nothing")]
    pub dropped: u64,
    /// Tokens of each row of the source; 0 where a run reads none.
    #[serde(default, skip_serializing_if = "nothing")]
    pub source: u64,
}

impl Bindings {
    /// Sequences from their beginning.
    pub const fn new(batch: u64, seq: u64) -> Bindings {
        Bindings {
            batch,
            seq,
            past: 0,
            dropped: 0,
            source: 0,
        }
    }
    /// The same after `past` tokens.
    pub const fn after(self, past: u64) -> Bindings {
        Bindings { past, ..self }
    }
    /// The same beside sources of so many tokens.
    pub const fn beside(self, source: u64) -> Bindings {
        Bindings { source, ..self }
    }
    /// The same where windows keep nothing of the first tokens, so many.
    pub const fn dropping(self, dropped: u64) -> Bindings {
        Bindings { dropped, ..self }
    }
    /// Tokens before those of the run of which windows keep rows.
    pub const fn recent(self) -> u64 {
        self.past.saturating_sub(self.dropped)
    }
}

/// How large a run may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maxima {
    pub batch: u64,
    pub seq: u64,
    /// Tokens of the source; 0 where no run reads one. Runs that do begin at the first token.
    #[serde(default, skip_serializing_if = "nothing")]
    pub source: u64,
    /// Tokens of all its sequences together, and of all its sources, where they are fewer than the longest of the most. Such runs of more than one token of
    /// each begin at the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// What is kept of a text where attention has a window that is much shorter: runs read pieces of texts then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Recent>,
}

impl Maxima {
    /// So many sequences, all of which may be the longest.
    pub const fn new(batch: u64, seq: u64) -> Maxima {
        Maxima {
            batch,
            seq,
            source: 0,
            tokens: None,
            kept: None,
        }
    }

    /// The same beside sources of so many tokens.
    pub const fn beside(self, source: u64) -> Maxima {
        Maxima { source, ..self }
    }

    /// The most tokens of each sequence that a run may read.
    pub fn piece(self) -> u64 {
        let piece = self.kept.map_or(u64::MAX, Recent::piece);
        self.seq.min(piece)
    }

    /// Whether a run may be of this size.
    pub fn hold(self, at: Bindings) -> bool {
        let end = at.past.saturating_add(at.seq);
        let begins = at.past == 0 || at.seq == 1;
        let longer = at.seq.max(at.source);
        let fits = |n: u64| begins && at.batch.saturating_mul(longer) <= n;
        (1..=self.batch).contains(&at.batch)
            && at.seq > 0
            && end <= self.seq
            && at.seq <= self.piece()
            && at.source <= self.source
            && (self.source == 0 || at.source > 0 && at.past == 0)
            && self.tokens.is_none_or(fits)
    }

    /// As many of the longest sequences as there may be together, one at least.
    pub fn longest(self) -> Bindings {
        let longer = self.seq.max(self.source);
        let fit = self.tokens.map_or(u64::MAX, |n| n / longer.max(1));
        Bindings::new(self.batch.min(fit.max(1)), self.piece()).beside(self.source)
    }

    /// Sizes of which one has at least as much of everything that grows with powers of the batch and of lengths as any run: few of the longest
    /// sequences, or as many as leave one of the two lengths as it may be, and many of what lengths are left for these. Between two neighbours, with lengths as
    /// large as they may be, `c · batchᵖ · seqᵠ · sourceʳ` is an exponential function of log batch, and a sum of such functions is largest at an end.
    pub fn ends(self) -> Vec<Bindings> {
        let fit = |of: u64| self.tokens.map_or(u64::MAX, |n| n.div_ceil(of.max(1)));
        let mut batches = vec![self.seq, self.source];
        batches.retain(|tokens| *tokens > 0);
        let mut batches: Vec<u64> = batches.into_iter().map(fit).collect();
        batches.push(self.batch);
        let mut ends: Vec<Bindings> = vec![];
        for batch in batches.into_iter().map(|n| n.min(self.batch)) {
            let left = |tokens: u64| tokens.min(fit(batch));
            ends.push(Bindings::new(batch, left(self.piece())).beside(left(self.source)));
        }
        ends.sort_by_key(|at| at.batch);
        ends.dedup();
        ends
    }

    /// The largest number at any size; `None` where it cannot be counted.
    pub fn most(self, of: impl Fn(Bindings) -> Option<u64>) -> Option<u64> {
        self.ends()
            .into_iter()
            .try_fold(0, |most, at| Some(of(at)?.max(most)))
    }
}

impl From<Bindings> for Maxima {
    fn from(at: Bindings) -> Maxima {
        Maxima::new(at.batch, at.seq).beside(at.source)
    }
}

impl fmt::Display for Maxima {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "1..={} × 1..={}", self.batch, self.seq)?;
        if self.source > 0 {
            write!(f, " beside 1..={}", self.source)?;
        }
        if let Some(n) = self.tokens {
            write!(f, ", at most {n} together")?;
        }
        match self.kept {
            Some(kept) => write!(f, ", in pieces of at most {}", kept.piece()),
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
            Dim::Source => b.source,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Batch => f.write_str("B"),
            Dim::Seq => f.write_str("S"),
            Dim::Source => f.write_str("T"),
        }
    }
}

/// A product `factor · B^batch · S^seq · T^source · P^past · R^recent`, P the tokens that earlier runs have seen, R those of them that windows keep rows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size {
    pub factor: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seq: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub past: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recent: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub source: u8,
}

fn is_zero(n: &u8) -> bool {
    *n == 0
}

impl Size {
    pub const ONE: Size = Size::fixed(1);
    pub const BATCH: Size = Size {
        batch: 1,
        ..Size::ONE
    };
    pub const SEQ: Size = Size {
        seq: 1,
        ..Size::ONE
    };
    pub const PAST: Size = Size {
        past: 1,
        ..Size::ONE
    };
    pub const RECENT: Size = Size {
        recent: 1,
        ..Size::ONE
    };
    pub const SOURCE: Size = Size {
        source: 1,
        ..Size::ONE
    };
    /// The tokens of a run, one row each.
    pub const TOKENS: Size = Size {
        batch: 1,
        ..Size::SEQ
    };
    /// Those of its sources.
    pub const SOURCES: Size = Size {
        batch: 1,
        ..Size::SOURCE
    };

    pub const fn fixed(factor: u64) -> Size {
        Size {
            factor,
            batch: 0,
            seq: 0,
            past: 0,
            recent: 0,
            source: 0,
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
            Dim::Source => Size {
                source: self.source.checked_add(1)?,
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
            .checked_mul(p(b.source, self.source)?)?
            .checked_mul(p(b.past, self.past)?)?
            .checked_mul(p(b.recent(), self.recent)?)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut parts = Vec::new();
        let powers = [self.batch, self.seq, self.source, self.past, self.recent];
        if self.factor != 1 || powers == [0; 5] {
            parts.push(self.factor.to_string());
        }
        parts.extend((0..self.batch).map(|_| "B".to_string()));
        parts.extend((0..self.seq).map(|_| "S".to_string()));
        parts.extend((0..self.source).map(|_| "T".to_string()));
        parts.extend((0..self.past).map(|_| "P".to_string()));
        parts.extend((0..self.recent).map(|_| "R".to_string()));
        f.write_str(&parts.join("·"))
    }
}
