//! Tables that a program reads and no training changes: of positions and of times.

use super::{is_false, is_zero};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// `[positions, head]`: `cos(p · base^(−2i/head))` at columns i and i + head/2 (Su et al. 2021, half-split), unless `turns` says otherwise.
    RotaryCos {
        positions: u64,
        head: u64,
        base: f64,
        #[serde(default, skip_serializing_if = "Turns::is_usual")]
        turns: Turns,
    },
    /// The same with sine, negated in the first column of a pair: `y = x·cos + swap(x)·sin`.
    RotarySin {
        positions: u64,
        head: u64,
        base: f64,
        #[serde(default, skip_serializing_if = "Turns::is_usual")]
        turns: Turns,
    },
    /// `[positions, width]`: `sin(p · base^(−2i/width))` at column 2i, the cosine at 2i + 1 (Vaswani et al. 2017).
    Sinusoid {
        positions: u64,
        width: u64,
        base: f64,
    },
    /// `[leading + rows · columns, width]`: a sinusoid of the row of each place of a grid, half as wide, and one of its column beside it; zeros in the first
    /// `leading` rows (He et al. 2022).
    Grid {
        #[serde(default, skip_serializing_if = "is_zero")]
        leading: u64,
        sides: [u64; 2],
        width: u64,
        base: f64,
    },
    /// `[positions, width]`: normal numbers of mean 0, those of [`crate::noise::normal`] with key 0.
    Normal {
        positions: u64,
        width: u64,
        std: f64,
        stream: u32,
    },
    /// `[1, columns]`: features of one time.
    Time { t: f64, waves: Waves },
    /// `[1, columns]`: how fast the angle of each feature grows with time; 0 where the feature is the time itself.
    Frequencies(Waves),
    /// `[1, columns]`: the angle of each feature at time 0.
    Phases(Waves),
    /// `[1, columns]`: the number of each column, from 0.
    Index { columns: u64 },
    /// `[distances, buckets]`: 1 at the bucket of each distance, 0 elsewhere (Raffel et al. 2020, section 2.1). Distances below half the number of buckets have
    /// one each, longer ones share the others evenly by their logarithms; the last distance is in the last bucket.
    Buckets { distances: u64, buckets: u64 },
}

/// The bucket of a distance, of so many distances and buckets.
fn bucket(distance: u64, distances: u64, buckets: u64) -> u64 {
    let (own, last) = (buckets / 2, buckets.saturating_sub(1));
    if distance + 1 >= distances {
        return last;
    }
    if distance < own || own == 0 {
        return distance.min(own);
    }
    let log = |n: u64| libm::log(n as f64 / own as f64);
    let share = log(distance) / log(distances);
    let further = (share * (buckets - own) as f64) as u64;
    last.min(own + further)
}

/// Which pairs of a head's columns rotary positions turn, and how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// Only so many columns of a head, the first half of them in each half: pair i by `p · base^(−2i/columns)`, the others by 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u64>,
    /// What positions are divided by (Chen et al. 2023, arXiv:2306.15595).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<f64>,
    /// Which waves `scaling` is for, where it is not for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongWaves>,
    /// What sines and cosines are multiplied by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub magnitude: Option<f64>,
    /// Whether columns 2i and 2i + 1 of a head are a pair, and not columns i and i + head/2.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interleaved: bool,
    /// Positions are places of a grid: the first half of the pairs turns by a place's row, the other half by its column, pair i of either by
    /// `p · base^(−4i/columns)` (Heo et al. 2024, ECCV, section 3.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<Places>,
}

/// Places of a grid, row by row, behind rows that stand nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Places {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leading: u64,
    /// Rows and columns.
    pub sides: [u64; 2],
}

impl Places {
    /// How many rows of a table there are.
    pub fn positions(&self) -> u64 {
        let [rows, columns] = self.sides;
        rows.saturating_mul(columns).saturating_add(self.leading)
    }

    /// The row and the column of a position; none of those before the grid.
    fn of(&self, p: u64) -> Option<[u64; 2]> {
        let at = p.checked_sub(self.leading)?;
        let columns = self.sides[1];
        Some([at.checked_div(columns)?, at.checked_rem(columns)?])
    }
}

/// Waves that turn less than `slow` times in a context are those of divided positions, those that turn more than `fast` times stay, and in between
/// the two are mixed (Peng et al. 2023, arXiv:2309.00071, definition 1 and equation 23).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongWaves {
    /// The context that a model was trained with.
    pub context: f64,
    pub slow: f64,
    pub fast: f64,
}

impl LongWaves {
    /// How much of a wave stays that turns so far from one position to the next.
    fn kept(self, turn: f64) -> f64 {
        let turns = self.context * turn / std::f64::consts::TAU;
        ((turns - self.slow) / (self.fast - self.slow)).clamp(0.0, 1.0)
    }
}

impl Turns {
    /// Whether all columns are turned by the position itself.
    pub fn is_usual(&self) -> bool {
        *self == Turns::default()
    }

    /// The angle of column pair `i` of a head of `head` columns at position `p`.
    fn angle(&self, base: f64, head: u64, p: u64, i: u64) -> f64 {
        let columns = self.columns.unwrap_or(head);
        if i >= columns / 2 {
            return 0.0;
        }
        let (p, i, columns) = match self.grid {
            None => (p, i, columns),
            Some(places) => {
                let (half, pairs) = (columns / 2, columns / 4);
                match (places.of(p), i.checked_sub(pairs)) {
                    (None, _) => return 0.0,
                    (Some([row, _]), None) => (row, i, half),
                    (Some([_, column]), Some(i)) => (column, i, half),
                }
            }
        };
        let turn = base.powf(-2.0 * i as f64 / columns as f64);
        let scaling = self.scaling.unwrap_or(1.0);
        match self.long {
            None => p as f64 / scaling * turn,
            Some(long) => {
                let kept = long.kept(turn);
                p as f64 * ((1.0 - kept) * turn / scaling + kept * turn)
            }
        }
    }

    /// The pair of a column, and whether it is the first of it.
    fn pair(&self, c: u64, head: u64) -> (u64, bool) {
        match self.interleaved {
            true => (c / 2, c.is_multiple_of(2)),
            false => (c % (head / 2), c < head / 2),
        }
    }
}

/// Features of a time t: `sin(ω t + φ)`, some of them after t itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waves {
    /// `[t, sin ω₀t … sin ωₙ₋₁t, cos ω₀t … cos ωₙ₋₁t]`, `ωᵢ = scale · base^(−i/n)` (Tong et al. 2025, appendix A).
    Weights { n: u64, base: f64, scale: f64 },
    /// A row of positions at a position that need not be whole: [`Table::Sinusoid`].
    Positions { width: u64, base: f64 },
}

impl Waves {
    /// The time itself, without waves.
    pub const NONE: Waves = Waves::Weights {
        n: 0,
        base: 1.0,
        scale: 1.0,
    };

    pub fn columns(self) -> u64 {
        match self {
            Waves::Weights { n, .. } => n.saturating_mul(2).saturating_add(1),
            Waves::Positions { width, .. } => width,
        }
    }

    /// The first column that is a wave.
    pub fn first(self) -> u64 {
        match self {
            Waves::Weights { .. } => 1,
            Waves::Positions { .. } => 0,
        }
    }

    fn base(self) -> f64 {
        match self {
            Waves::Weights { base, .. } | Waves::Positions { base, .. } => base,
        }
    }

    fn frequency(self, c: u64) -> f64 {
        match self {
            Waves::Weights { .. } if c == 0 => 0.0,
            Waves::Weights { n, base, scale } => {
                let i = (c - 1) % n;
                scale * base.powf(-(i as f64) / n as f64)
            }
            Waves::Positions { width, base } => base.powf(-2.0 * (c / 2) as f64 / width as f64),
        }
    }

    /// Whether a column is a cosine.
    fn turned(self, c: u64) -> bool {
        match self {
            Waves::Weights { n, .. } => c > n,
            Waves::Positions { .. } => !c.is_multiple_of(2),
        }
    }
}

impl Table {
    pub fn shape(&self) -> [u64; 2] {
        match *self {
            Table::RotaryCos {
                positions, head, ..
            }
            | Table::RotarySin {
                positions, head, ..
            } => [positions, head],
            Table::Sinusoid {
                positions, width, ..
            }
            | Table::Normal {
                positions, width, ..
            } => [positions, width],
            Table::Grid {
                leading,
                sides: [rows, columns],
                width,
                ..
            } => [rows.saturating_mul(columns).saturating_add(leading), width],
            Table::Time { waves, .. } | Table::Frequencies(waves) | Table::Phases(waves) => {
                [1, waves.columns()]
            }
            Table::Index { columns } => [1, columns],
            Table::Buckets { distances, buckets } => [distances, buckets],
        }
    }

    /// The base of its angles; 1 where it has none.
    pub fn base(&self) -> f64 {
        match *self {
            Table::RotaryCos { base, .. }
            | Table::RotarySin { base, .. }
            | Table::Sinusoid { base, .. }
            | Table::Grid { base, .. } => base,
            Table::Normal { .. } | Table::Index { .. } | Table::Buckets { .. } => 1.0,
            Table::Time { waves, .. } | Table::Frequencies(waves) | Table::Phases(waves) => {
                waves.base()
            }
        }
    }

    /// The values in f64, row-major.
    pub fn values(&self) -> Vec<f64> {
        let ([positions, cols], base) = (self.shape(), self.base());
        let angle = |p: u64, i: u64| p as f64 * base.powf(-2.0 * i as f64 / cols as f64);
        let turned = |turns: &Turns, p: u64, c: u64| {
            let (pair, first) = turns.pair(c, cols);
            let angle = turns.angle(base, cols, p, pair);
            (angle, first, turns.magnitude.unwrap_or(1.0))
        };
        let value = |p: u64, c: u64| match self {
            Table::RotaryCos { turns, .. } => {
                let (angle, _, magnitude) = turned(turns, p, c);
                magnitude * angle.cos()
            }
            Table::RotarySin { turns, .. } => {
                let (angle, first, magnitude) = turned(turns, p, c);
                let sine = magnitude * angle.sin();
                if first { -sine } else { sine }
            }
            Table::Sinusoid { .. } if c.is_multiple_of(2) => angle(p, c / 2).sin(),
            Table::Sinusoid { .. } => angle(p, c / 2).cos(),
            Table::Grid { leading, .. } if p < *leading => 0.0,
            Table::Grid { leading, sides, .. } => {
                let (at, half) = (p - leading, cols / 2);
                let along = match c < half {
                    true => at / sides[1],
                    false => at % sides[1],
                };
                let c = c % half.max(1);
                let angle = along as f64 * base.powf(-2.0 * (c / 2) as f64 / half as f64);
                if c.is_multiple_of(2) {
                    angle.sin()
                } else {
                    angle.cos()
                }
            }
            Table::Normal { std, stream, .. } => {
                std * crate::noise::normal([0, *stream, p as u32, c as u32])
            }
            Table::Time { t, waves } if c < waves.first() => *t,
            Table::Time { t, waves } if waves.turned(c) => (t * waves.frequency(c)).cos(),
            Table::Time { t, waves } => (t * waves.frequency(c)).sin(),
            Table::Frequencies(waves) => waves.frequency(c),
            Table::Phases(waves) if waves.turned(c) => std::f64::consts::FRAC_PI_2,
            Table::Phases(_) => 0.0,
            Table::Index { .. } => c as f64,
            Table::Buckets { distances, buckets } => {
                f64::from(u8::from(bucket(p, *distances, *buckets) == c))
            }
        };
        (0..positions)
            .flat_map(|p| (0..cols).map(move |c| (p, c)))
            .map(|(p, c)| value(p, c))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    /// Those of the released code of T5 for a decoder, of 32 buckets and 128 distances.
    #[test]
    fn distances_share_buckets_by_their_logarithms() {
        let begins = [
            (0, 0),
            (15, 15),
            (16, 16),
            (18, 16),
            (19, 17),
            (20, 17),
            (21, 18),
            (23, 18),
            (24, 19),
            (26, 19),
            (27, 20),
            (30, 20),
            (31, 21),
            (34, 21),
            (35, 22),
            (39, 22),
            (40, 23),
            (45, 23),
            (46, 24),
            (51, 24),
            (52, 25),
            (58, 25),
            (59, 26),
            (66, 26),
            (67, 27),
            (76, 27),
            (77, 28),
            (86, 28),
            (87, 29),
            (98, 29),
            (99, 30),
            (112, 30),
            (113, 31),
            (127, 31),
        ];
        for (distance, wanted) in begins {
            assert_eq!(bucket(distance, 128, 32), wanted, "{distance}");
        }
        // As few as there can be, and one for each distance.
        assert_eq!([0, 1, 2].map(|n| bucket(n, 3, 1)), [0; 3]);
        assert_eq!([0, 1, 2, 3].map(|n| bucket(n, 4, 4)), [0, 1, 2, 3]);
        assert_eq!(bucket(0, 1, 1), 0);
    }
}
