//! The signature of a kernel: operands with type, mode and extent, dims, scalars, scratch and work.
//!
//! Each kind of kernel defines it once, in [`super::KernelSpec::signature`], for a valid specification ([`super::KernelSpec::validate`]).
//! Memory planning, checks of manifests, devices, profiles and listings all use it.

use super::contract::Order;
use crate::DType;
use crate::expr::{Access, Body, ColMap, Expr, RowMap};
use crate::quantized::Quantized;

/// Operands, dims and scalars of a kernel in the order of its ABI, and what a launch costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The type of arithmetic.
    pub dtype: DType,
    /// Inputs, then outputs.
    pub operands: Vec<OperandAccess>,
    pub dims: Vec<Dimension>,
    /// Scalars.
    pub coeffs: usize,
    /// Elements of scratch that one thread needs, in the type of arithmetic.
    pub scratch: Vec<Count>,
    pub work: Work,
}

/// What a kernel does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// Reads row numbers below the dim of this number. The caller guarantees that they are.
    Index {
        rows: usize,
    },
    Write,
    /// Reads what is there and puts its result in its place: a sum with it, or the next of a recurrence.
    Accumulate,
    /// Writes some of its elements, and what the others hold stays.
    Place,
}

impl Mode {
    /// Of a result that is added to what is there, or not.
    pub(super) const fn written(accumulate: bool) -> Mode {
        match accumulate {
            true => Mode::Accumulate,
            false => Mode::Write,
        }
    }

    /// Whether what it holds afterwards, or what the kernel gives, depends on what was there.
    pub fn reads(self) -> bool {
        self != Mode::Write
    }

    pub fn writes(self) -> bool {
        matches!(self, Mode::Write | Mode::Accumulate | Mode::Place)
    }
}

/// How a kernel uses one operand.
#[derive(Clone, Debug, PartialEq)]
pub struct OperandAccess {
    pub name: &'static str,
    pub dtype: DType,
    pub mode: Mode,
    /// Elements from the operand's start; the largest of these counts.
    pub extent: Vec<Count>,
}

/// An integer argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub name: &'static str,
    /// The value that the kernel is made for; `None`: any.
    pub fixed: Option<u64>,
}

/// Scalar operations of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Multiply-adds of contractions,
    pub contractions: Count,
    /// of attention,
    pub attention: Count,
    /// and of recurrences along tokens.
    pub recurrences: Count,
    /// Expressions evaluated and elements moved, those of epilogues apart.
    pub others: Count,
}

/// A number of elements as a function of dims, which are named by their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Count {
    /// `each · Π dims`.
    Product {
        dims: &'static [usize],
        each: u64,
    },
    /// `each · (of · Π dims − 1)`: rows of `each` elements, all but the last.
    Earlier {
        dims: &'static [usize],
        of: u64,
        each: u64,
    },
    /// For each of the sequences, of which there are as many as the first of dims, `each` times its tokens, the second, and `once` more.
    Sequences {
        each: u64,
        once: u64,
    },
    /// `each · Σ dims`.
    Sum {
        dims: &'static [usize],
        each: u64,
    },
    /// `each` times a dim rounded up to whole blocks.
    Blocks {
        dim: usize,
        block: u64,
        each: u64,
    },
    /// Packed panels: `n` rounded up to whole panels of `nr` columns, times the depth of `k` in an order of summation.
    Panels {
        n: usize,
        nr: u64,
        k: usize,
        order: Order,
    },
    /// The same of weights in integers, in bytes.
    Quantized {
        n: usize,
        nr: u64,
        k: usize,
        of: Quantized,
    },
    /// From the first element to the last one that a walk over rows `0..dims[0]` and all columns visits.
    Walk {
        access: Access,
        cols: Cols,
    },
    Pairs(Pairs),
    /// `each` times the rows of keys that are kept of several sequences, `room` of each; dims `[seq, past, sequences]`.
    Kept {
        room: u64,
        each: u64,
    },
}

/// Columns that a body is evaluated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cols {
    Fixed(u64),
    Dim(usize),
}

/// `each` times the pairs of a query and a key that it sees, over sequences and rows of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// `None`: one sequence.
    pub sequences: Option<usize>,
    pub queries: usize,
    /// Keys before those of the queries; `None`: none.
    pub past: Option<usize>,
    pub causal: bool,
    pub window: Option<u64>,
    pub each: u64,
}

impl Count {
    pub const NONE: Count = Count::fixed(0);

    pub const fn fixed(each: u64) -> Count {
        Count::Product { dims: &[], each }
    }

    /// Rows of `each` elements, as many as the product of dims.
    pub const fn rows(dims: &'static [usize], each: u64) -> Count {
        Count::Product { dims, each }
    }

    /// The number for given dims; `None` on overflow.
    pub fn at(&self, dims: &[u64]) -> Option<u64> {
        match *self {
            Count::Product { dims: of, each } => {
                of.iter().map(|d| dims[*d]).try_fold(each, u64::checked_mul)
            }
            Count::Earlier {
                dims: rows,
                of,
                each,
            } => rows
                .iter()
                .map(|d| dims[*d])
                .try_fold(of, u64::checked_mul)?
                .saturating_sub(1)
                .checked_mul(each),
            Count::Sequences { each, once } => dims[1]
                .checked_mul(each)?
                .checked_add(once)?
                .checked_mul(dims[0]),
            Count::Sum { dims: of, each } => of
                .iter()
                .map(|d| dims[*d])
                .try_fold(0, u64::checked_add)?
                .checked_mul(each),
            Count::Blocks { dim, block, each } => {
                dims[dim].checked_next_multiple_of(block)?.checked_mul(each)
            }
            Count::Panels { n, nr, k, order } => dims[n]
                .checked_next_multiple_of(nr)?
                .checked_mul(order.depth(dims[k])?),
            Count::Quantized { n, nr, k, of } => of.bytes(dims[n], nr, dims[k]),
            Count::Walk { access, cols } => walk(access, cols, dims),
            Count::Pairs(pairs) => pairs.at(dims),
            Count::Kept { room, each } => {
                let last = dims[1].checked_add(dims[0])?.max(room);
                let earlier = dims[2].saturating_sub(1).checked_mul(room)?;
                earlier.checked_add(last)?.checked_mul(each)
            }
        }
    }
}

fn walk(access: Access, cols: Cols, dims: &[u64]) -> Option<u64> {
    let cols = match cols {
        Cols::Fixed(n) => n,
        Cols::Dim(i) => dims[i],
    };
    if dims[0] == 0 || cols == 0 {
        return Some(0);
    }
    let row = match access.row {
        RowMap::Row => dims[0] - 1,
        RowMap::Zero => 0,
        RowMap::Position => dims[0].min(dims[1].max(1)) - 1,
        RowMap::Sequence => (dims[0] - 1) / dims[1].max(1),
        // It reads rows of the domain only, though not all of them.
        RowMap::Shift(_) => dims[0] - 1,
        // Of every sequence some row is read, at most the last.
        RowMap::Window(window, through) => {
            let [own, other] = window.rows(through);
            dims[0].div_ceil(own).checked_mul(other)? - 1
        }
    };
    let col = match access.col {
        ColMap::Col | ColMap::HalfSwap(_) | ColMap::Transposed { .. } => cols - 1,
        ColMap::Zero => 0,
        ColMap::Turn { cols: n, by } => (by % n).saturating_add(cols - 1).min(n - 1),
    };
    row.checked_mul(access.stride)?
        .checked_add(col)?
        .checked_add(1)
}

impl Pairs {
    fn at(&self, dims: &[u64]) -> Option<u64> {
        let sequences = self.sequences.map_or(1, |d| dims[d]);
        let (queries, past) = (dims[self.queries], self.past.map_or(0, |d| dims[d]));
        let keys = past.checked_add(queries)?;
        let pairs = match self.causal {
            false => queries.checked_mul(keys)?,
            true => seen(keys, self.window)?.checked_sub(seen(past, self.window)?)?,
        };
        pairs.checked_mul(sequences)?.checked_mul(self.each)
    }
}

/// `Σ min(p + 1, window)` over positions `p` in `0..end`: keys seen by all queries up to there.
fn seen(end: u64, window: Option<u64>) -> Option<u64> {
    let window = window.unwrap_or(end).min(end);
    let growing = window.checked_mul(window.checked_add(1)?)? / 2;
    (end - window).checked_mul(window)?.checked_add(growing)
}

impl Work {
    const NONE: Work = Work {
        contractions: Count::NONE,
        attention: Count::NONE,
        recurrences: Count::NONE,
        others: Count::NONE,
    };

    pub(super) const fn contractions(contractions: Count) -> Work {
        Work {
            contractions,
            ..Work::NONE
        }
    }

    pub(super) const fn attention(attention: Count) -> Work {
        Work {
            attention,
            ..Work::NONE
        }
    }

    pub(super) const fn recurrences(recurrences: Count) -> Work {
        Work {
            recurrences,
            ..Work::NONE
        }
    }

    pub(super) const fn others(others: Count) -> Work {
        Work {
            others,
            ..Work::NONE
        }
    }

    /// All scalar operations of a launch, up to the largest number there is.
    pub fn operations(&self, dims: &[u64]) -> u64 {
        let others = self.others.at(dims).unwrap_or(u64::MAX);
        self.multiply_adds(dims).saturating_add(others)
    }

    /// Multiply-adds of a launch, the same.
    pub fn multiply_adds(&self, dims: &[u64]) -> u64 {
        let of = |count: &Count| count.at(dims).unwrap_or(u64::MAX);
        let products = [self.contractions, self.attention, self.recurrences];
        products.iter().map(of).fold(0, u64::saturating_add)
    }
}

impl Dimension {
    pub const fn any(name: &'static str) -> Dimension {
        Dimension { name, fixed: None }
    }
}

impl OperandAccess {
    pub fn new(
        name: &'static str,
        dtype: DType,
        mode: Mode,
        extent: impl IntoIterator<Item = Count>,
    ) -> OperandAccess {
        OperandAccess {
            name,
            dtype,
            mode,
            extent: extent.into_iter().collect(),
        }
    }

    /// Elements from the operand's start that a launch with these dims may touch; `None` on overflow.
    pub fn elements(&self, dims: &[u64]) -> Option<u64> {
        self.extent
            .iter()
            .try_fold(0, |max: u64, count| Some(max.max(count.at(dims)?)))
    }

    /// The same in 4-byte words.
    pub fn words(&self, dims: &[u64]) -> Option<u64> {
        let bytes = self.elements(dims)?.checked_mul(self.dtype.bytes())?;
        Some(bytes.div_ceil(4))
    }

    /// How the elements are walked over, row by row; of other operands, nothing.
    pub fn walks(&self) -> impl Iterator<Item = Access> + '_ {
        self.extent.iter().filter_map(|count| match count {
            Count::Walk { access, .. } => Some(*access),
            _ => None,
        })
    }

    /// Whether this operand and `other` may start at the same place, one of them being written: every element of
    /// either is then touched by its own row and column only. (An operand that is written may have to ask this about
    /// itself.)
    pub fn may_coincide(&self, other: &OperandAccess) -> bool {
        // With a single column there is no difference between an element and a row.
        let place = |count: &Count| match *count {
            Count::Walk {
                access,
                cols: Cols::Fixed(1),
            } if access.col == ColMap::Col => Some(Access {
                col: ColMap::Zero,
                ..access
            }),
            Count::Walk { access, .. } => Some(access),
            _ => None,
        };
        let mut places = self.extent.iter().chain(&other.extent).map(place);
        let Some(first) = places.next() else {
            return true;
        };
        first.is_some_and(|a| a.row == RowMap::Row) && places.all(|p| p == first)
    }
}

impl Signature {
    /// Element type of operand `n`; of one that there is not, the type of arithmetic.
    pub fn operand_type(&self, n: usize) -> DType {
        self.operands.get(n).map_or(self.dtype, |o| o.dtype)
    }

    /// Bytes of scratch that one thread needs, up to the largest number there is.
    pub fn scratch_bytes(&self, dims: &[u64]) -> u64 {
        let elements = (self.scratch.iter()).try_fold(0u64, |sum, c| sum.checked_add(c.at(dims)?));
        elements
            .and_then(|n| n.checked_mul(self.dtype.bytes()))
            .unwrap_or(u64::MAX)
    }

    /// 4-byte words of all operands, each counted once.
    pub fn words(&self, dims: &[u64]) -> u64 {
        let words = self.operands.iter().filter_map(|o| o.words(dims));
        words.fold(0, u64::saturating_add)
    }

    /// Checks that a launch has all arguments, and operands of so many words that reach far enough.
    ///
    /// # Errors
    /// What is missing, in words: an error of the caller.
    pub fn check(
        &self,
        words: impl ExactSizeIterator<Item = u64>,
        dims: &[u64],
        coeffs: &[f64],
    ) -> Result<(), String> {
        let given = (words.len(), dims.len(), coeffs.len());
        if given != (self.operands.len(), self.dims.len(), self.coeffs) {
            return Err("another number of arguments".into());
        }
        let short = |(words, o): (u64, &OperandAccess)| o.words(dims).is_none_or(|w| w > words);
        match words.zip(&self.operands).position(short) {
            Some(n) => Err(format!("operand {n} is too short")),
            None => Ok(()),
        }
    }
}

/// Operands of a kernel that evaluates a body: each walked over by the loads that name it.
pub(super) fn walked(body: &Body, cols: Cols, operands: &mut [OperandAccess]) {
    for e in &body.nodes {
        if let Expr::Load { operand, access } = *e
            && let Some(o) = operands.get_mut(operand as usize)
        {
            o.extent.push(Count::Walk { access, cols });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Through, Window};
    use proptest::prelude::*;

    fn access() -> impl Strategy<Value = Access> {
        let row = prop_oneof![
            Just(RowMap::Row),
            Just(RowMap::Zero),
            Just(RowMap::Position),
            Just(RowMap::Sequence),
            (-4..5i32).prop_map(RowMap::Shift),
            (1..4u64, 1..3u64, 0..4u32).prop_map(|(kernel, stride, of)| {
                let window = Window::fitted([3, 2], kernel, stride, 1).expect("it fits");
                let place = kernel as u32 - 1;
                RowMap::Window(
                    window,
                    [
                        Through::Places,
                        Through::Place(place),
                        Through::Under(place),
                        Through::Under(0),
                    ][of as usize],
                )
            }),
        ];
        let col = prop_oneof![
            Just(ColMap::Col),
            Just(ColMap::Zero),
            (1..9u64, 0..20u64).prop_map(|(cols, by)| ColMap::Turn { cols, by }),
            Just(ColMap::HalfSwap(4)),
            Just(ColMap::Transposed { rows: 2, cols: 4 }),
        ];
        (row, col, 0..20u64).prop_map(|(row, col, stride)| Access { row, col, stride })
    }

    proptest! {
        /// The extent of a walk is one more than the largest element number that the walk visits.
        #[test]
        fn a_walk_reaches_exactly_what_it_visits(access in access(), rows in 1..7u64, seq in 1..7u64, groups in 1..4u64) {
            let cols = match access.col {
                ColMap::Transposed { rows, cols } => rows * cols,
                _ => 4 * groups,
            };
            let visited = (0..rows).filter_map(|r| access.row.apply(r, seq, rows)).flat_map(|row| {
                (0..cols).map(move |c| row * access.stride + access.col.apply(c))
            });
            let largest = visited.max().unwrap_or(0);
            let walk = Count::Walk { access, cols: Cols::Fixed(cols) };
            // A stride shorter than the columns walks back and forth: the bound may then be larger, never smaller.
            let bound = walk.at(&[rows, seq]).unwrap();
            prop_assert!(bound > largest);
            let tight = !matches!(access.row, RowMap::Shift(_) | RowMap::Window(..)) && access.stride >= cols;
            prop_assert!(bound == largest + 1 || !tight);
        }

        /// Pairs by their formula are those that are counted one by one.
        #[test]
        fn pairs_are_those_that_see_each_other(batch in 0..4u64, seq in 0..9u64, past in 0..9u64, causal: bool, window in 0..12u64) {
            let window = Some(window).filter(|w| causal && *w > 0);
            let sees = |q: u64, k: u64| !causal || k <= q && window.is_none_or(|w| k + w > q);
            let queries = past..past + seq;
            let counted: usize = queries.map(|q| (0..past + seq).filter(|k| sees(q, *k)).count()).sum();
            let pairs = Pairs { sequences: Some(0), queries: 1, past: Some(2), causal, window, each: 5 };
            prop_assert_eq!(Count::Pairs(pairs).at(&[batch, seq, past]), Some(5 * batch * counted as u64));
        }
    }

    #[test]
    fn operands_may_coincide_only_where_each_element_is_its_own() {
        let walked = |row, col, cols| {
            let access = Access {
                row,
                col,
                stride: cols,
            };
            let cols = Cols::Fixed(cols);
            OperandAccess::new("", DType::F32, Mode::Write, [Count::Walk { access, cols }])
        };
        let full = walked(RowMap::Row, ColMap::Col, 8);
        assert!(full.may_coincide(&full));
        assert!(!full.may_coincide(&walked(RowMap::Row, ColMap::HalfSwap(8), 8)));
        assert!(!full.may_coincide(&walked(RowMap::Row, ColMap::Zero, 8)));
        assert!(!full.may_coincide(&walked(RowMap::Position, ColMap::Col, 8)));
        assert!(!full.may_coincide(&walked(RowMap::Sequence, ColMap::Col, 8)));
        assert!(!full.may_coincide(&walked(RowMap::Shift(1), ColMap::Col, 8)));
        let one = walked(RowMap::Row, ColMap::Col, 1);
        assert!(one.may_coincide(&walked(RowMap::Row, ColMap::Zero, 1)));
        let whole = OperandAccess::new("", DType::F32, Mode::Write, [Count::rows(&[0], 8)]);
        assert!(!full.may_coincide(&whole) && !whole.may_coincide(&whole));
    }

    #[test]
    fn a_number_too_large_is_none() {
        let most = u64::MAX;
        assert_eq!(Count::rows(&[0, 1], 2).at(&[most, 1]), None);
        assert_eq!(
            Count::Sum {
                dims: &[0, 1],
                each: 1
            }
            .at(&[most, 1]),
            None
        );
        assert_eq!(
            Work::contractions(Count::rows(&[0], 2)).operations(&[most]),
            most
        );
    }
}
