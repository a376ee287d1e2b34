//! What a kernel touches: for each operand its element type, whether it is written, and how far it is
//! read or written for given dims.
//!
//! Takes a [`KernelSpec`]; gives a [`Footprint`], after checking that the spec is well formed in itself
//! ([`KernelSpec::validate`]). Leaves where operands lie to [`crate::artifact::check`]. The CPU
//! device asks for the reach before each launch, so a launch never leaves its operands.

use odec_program::expr::{ColMap, Expr, RowMap};
use odec_program::kernel::{Attend, Extent, KernelSpec, Layout, Order};
use odec_program::{Access, Body, DType};

/// The operands of a kernel, and its arguments.
#[derive(Clone, Debug)]
pub struct Footprint {
    pub operands: Vec<Touch>,
    /// What each of dims must equal; `None`: anything.
    pub dims: Vec<Option<u64>>,
    pub coeffs: usize,
}

/// How one operand is used.
#[derive(Clone, Debug)]
pub struct Touch {
    pub dtype: DType,
    pub written: bool,
    /// The furthest of these counts.
    reach: Vec<Reach>,
}

/// An upper bound of element numbers, as a function of dims.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reach {
    /// `factor · Π dims[i]` over the set bits of `dims`.
    Product { factor: u64, dims: u8 },
    /// `dims[n]` rounded up to `nr`, times the depth of `dims[k]` in that order.
    Panels {
        nr: u64,
        n: usize,
        k: usize,
        order: Order,
    },
    /// `factor · Σ dims`: rows of tokens so far.
    Tokens { factor: u64 },
    /// A walk over rows `0..dims[0]` and columns `0..cols`.
    Walk { access: Access, cols: Cols },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cols {
    Fixed(u64),
    Dim(usize),
}

impl Touch {
    fn new(dtype: DType, written: bool, reach: Vec<Reach>) -> Touch {
        Touch {
            dtype,
            written,
            reach,
        }
    }

    /// Elements from the operand's start that a launch with these dims may touch; `None` on overflow.
    pub fn elements(&self, dims: &[u64]) -> Option<u64> {
        self.reach
            .iter()
            .try_fold(0, |max: u64, r| Some(max.max(r.elements(dims)?)))
    }

    /// Whether this operand and `other` may start at the same place, one of them being written: every element of
    /// either is then touched by its own row and column only. (An operand that is written may have to ask this about
    /// itself.)
    pub fn may_coincide(&self, other: &Touch) -> bool {
        // With a single column there is no difference between an element and a row.
        let place = |r: &Reach| match *r {
            Reach::Walk {
                access,
                cols: Cols::Fixed(1),
            } if access.col == ColMap::Col => Some(Access {
                col: ColMap::Zero,
                ..access
            }),
            Reach::Walk { access, .. } => Some(access),
            _ => None,
        };
        let mut places = self.reach.iter().chain(&other.reach).map(place);
        let Some(first) = places.next() else {
            return true;
        };
        first.is_some_and(|a| a.row == RowMap::Row) && places.all(|p| p == first)
    }

    /// How far a launch with these dims may touch, in 4-byte words.
    pub fn words(&self, dims: &[u64]) -> Option<u64> {
        let bytes = self.elements(dims)?.checked_mul(self.dtype.bytes())?;
        Some(bytes.div_ceil(4))
    }
}

impl Reach {
    fn elements(&self, dims: &[u64]) -> Option<u64> {
        match *self {
            Reach::Product { factor, dims: set } => {
                let used = dims.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
                used.map(|(_, d)| *d).try_fold(factor, u64::checked_mul)
            }
            Reach::Tokens { factor } => dims
                .iter()
                .try_fold(0, |sum: u64, d| sum.checked_add(*d))?
                .checked_mul(factor),
            Reach::Panels { nr, n, k, order } => dims[n]
                .checked_next_multiple_of(nr)?
                .checked_mul(order.depth(dims[k])?),
            Reach::Walk { access, cols } => {
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
                };
                let col = match access.col {
                    ColMap::Col | ColMap::HalfSwap(_) => cols - 1,
                    ColMap::Zero => 0,
                    ColMap::Turn { cols: n, by } => (by % n).saturating_add(cols - 1).min(n - 1),
                };
                row.checked_mul(access.stride)?
                    .checked_add(col)?
                    .checked_add(1)
            }
        }
    }
}

impl Footprint {
    /// What the kernel touches.
    ///
    /// # Errors
    /// In words, what is not well formed in the spec.
    pub fn of(spec: &KernelSpec) -> Result<Footprint, String> {
        spec.validate()?;
        let product = |factor: u64, dims: u8| vec![Reach::Product { factor, dims }];
        match spec {
            KernelSpec::Rows(k) => {
                let cols = Cols::Fixed(k.cols);
                let mut operands: Vec<Touch> = k
                    .operands
                    .iter()
                    .map(|d| Touch::new(*d, false, vec![]))
                    .collect();
                loads(&k.body, cols, &mut operands);
                for s in &k.stores {
                    let o = &mut operands[s.operand as usize];
                    o.written = true;
                    o.reach.push(Reach::Walk {
                        access: s.access,
                        cols,
                    });
                }
                Ok(Footprint {
                    operands,
                    dims: vec![None; 2],
                    coeffs: k.uniforms as usize,
                })
            }
            KernelSpec::Columns(k) => {
                let mut operands: Vec<Touch> = k
                    .operands
                    .iter()
                    .map(|d| Touch::new(*d, false, vec![]))
                    .collect();
                loads(&k.body, Cols::Fixed(k.cols), &mut operands);
                if let Some(out) = operands.last_mut() {
                    out.written = true;
                    out.reach.extend(product(k.cols, 0));
                }
                Ok(Footprint {
                    operands,
                    dims: vec![None; 2],
                    coeffs: k.uniforms as usize,
                })
            }
            KernelSpec::Pack(p) => {
                let panels = Reach::Panels {
                    nr: p.nr.into(),
                    n: 0,
                    k: 1,
                    order: p.order,
                };
                let operands = vec![
                    Touch::new(p.from, false, product(1, 0b11)),
                    Touch::new(p.dtype, true, vec![panels]),
                ];
                Ok(Footprint {
                    operands,
                    dims: vec![fixed(p.n), fixed(p.k)],
                    coeffs: 0,
                })
            }
            KernelSpec::Contract(c) => {
                let extras = c.epilogue.as_ref().map_or(0, |e| e.operands as usize);
                let right = match c.layout {
                    Layout::Panels => Reach::Panels {
                        nr: c.blocking.nr.into(),
                        n: 1,
                        k: 2,
                        order: c.order,
                    },
                    Layout::Rows | Layout::Columns => Reach::Product {
                        factor: 1,
                        dims: 0b110,
                    },
                };
                let mut operands = vec![
                    Touch::new(c.a, false, product(1, 0b101)),
                    Touch::new(c.b, false, vec![right]),
                ];
                operands.extend((0..extras).map(|_| Touch::new(c.dtype, false, vec![])));
                operands.push(Touch::new(c.dtype, true, product(1, 0b011)));
                if let Some(e) = &c.epilogue {
                    loads(&e.body, Cols::Dim(1), &mut operands);
                }
                Ok(Footprint {
                    operands,
                    dims: vec![fixed(c.m), fixed(c.n), fixed(c.k)],
                    coeffs: c.epilogue.as_ref().map_or(0, |e| e.uniforms as usize),
                })
            }
            KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) => {
                let (width, narrow) = widths(a);
                let read = |width| Touch::new(a.inputs, false, product(width, 0b11));
                let rows = |width, written| Touch::new(a.dtype, written, product(width, 0b11));
                let lse = |written| Touch::new(a.dtype, written, product(a.heads, 0b11));
                let operands = match spec {
                    KernelSpec::Attend(_) => {
                        let inputs = [read(width), read(narrow), read(narrow)];
                        let outputs = [rows(width, true), lse(true)];
                        inputs.into_iter().chain(outputs).collect()
                    }
                    _ => {
                        let inputs = [read(width), read(narrow), read(narrow), read(width)];
                        let given = [lse(false), rows(width, false)];
                        let outputs = [rows(width, true), rows(narrow, true), rows(narrow, true)];
                        inputs.into_iter().chain(given).chain(outputs).collect()
                    }
                };
                Ok(Footprint {
                    operands,
                    dims: vec![None; 2],
                    coeffs: 0,
                })
            }
            KernelSpec::AttendCached(a) => {
                let (width, narrow) = widths(a);
                let rows = |dtype, written| Touch::new(dtype, written, product(width, 0b01));
                let kept = || Touch::new(a.inputs, false, vec![Reach::Tokens { factor: narrow }]);
                Ok(Footprint {
                    operands: vec![rows(a.inputs, false), kept(), kept(), rows(a.dtype, true)],
                    dims: vec![None; 2],
                    coeffs: 0,
                })
            }
            KernelSpec::PositionSum(g) => Ok(Footprint {
                operands: vec![
                    Touch::new(g.dtype, false, product(g.cols, 0b011)),
                    Touch::new(g.dtype, true, product(g.cols, 0b100)),
                ],
                dims: vec![None; 3],
                coeffs: 0,
            }),
            KernelSpec::Gather(g) | KernelSpec::ScatterAdd(g) => {
                let index = Touch::new(DType::I32, false, product(1, 0b01));
                let rows = |written| Touch::new(g.dtype, written, product(g.cols, 0b01));
                let table = |written| Touch::new(g.dtype, written, product(g.cols, 0b10));
                let operands = match spec {
                    KernelSpec::Gather(_) => vec![index, table(false), rows(true)],
                    _ => vec![index, rows(false), table(true)],
                };
                Ok(Footprint {
                    operands,
                    dims: vec![None; 2],
                    coeffs: 0,
                })
            }
        }
    }
}

/// Columns of queries, and of keys and values.
fn widths(a: &Attend) -> (u64, u64) {
    (a.heads * a.head, a.kv_heads * a.head)
}

fn fixed(e: Extent) -> Option<u64> {
    match e {
        Extent::Static(n) => Some(n),
        Extent::Dynamic => None,
    }
}

/// Adds the reach of a body's loads to the operands.
fn loads(b: &Body, cols: Cols, operands: &mut [Touch]) {
    for e in &b.nodes {
        if let Expr::Load { operand, access } = *e {
            let reach = Reach::Walk { access, cols };
            operands[operand as usize].reach.push(reach);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn access() -> impl Strategy<Value = Access> {
        let row = prop_oneof![
            Just(RowMap::Row),
            Just(RowMap::Zero),
            Just(RowMap::Position)
        ];
        let col = prop_oneof![
            Just(ColMap::Col),
            Just(ColMap::Zero),
            (1..9u64, 0..20u64).prop_map(|(cols, by)| ColMap::Turn { cols, by }),
            Just(ColMap::HalfSwap(4)),
        ];
        (row, col, 0..20u64).prop_map(|(row, col, stride)| Access { row, col, stride })
    }

    proptest! {
        /// The reach of a walk is one more than the largest element number that the walk visits.
        #[test]
        fn a_walk_reaches_exactly_what_it_visits(access in access(), rows in 1..7u64, seq in 1..7u64, groups in 1..4u64) {
            let cols = 4 * groups;
            let visited = (0..rows).flat_map(|r| (0..cols).map(move |c| {
                let row = match access.row {
                    RowMap::Row => r,
                    RowMap::Zero => 0,
                    RowMap::Position => r % seq,
                };
                row * access.stride + access.col.apply(c)
            }));
            let largest = visited.max().unwrap();
            let reach = Reach::Walk { access, cols: Cols::Fixed(cols) };
            // A stride shorter than the columns walks back and forth: the bound may then be larger, never smaller.
            let bound = reach.elements(&[rows, seq]).unwrap();
            prop_assert!(bound > largest);
            prop_assert!(bound == largest + 1 || access.stride < cols);
        }
    }

    #[test]
    fn operands_may_coincide_only_where_each_element_is_its_own() {
        let touch = |row, col, cols| {
            let access = Access {
                row,
                col,
                stride: cols,
            };
            Touch::new(
                DType::F32,
                true,
                vec![Reach::Walk {
                    access,
                    cols: Cols::Fixed(cols),
                }],
            )
        };
        let full = touch(RowMap::Row, ColMap::Col, 8);
        assert!(full.may_coincide(&full));
        assert!(!full.may_coincide(&touch(RowMap::Row, ColMap::HalfSwap(8), 8)));
        assert!(!full.may_coincide(&touch(RowMap::Row, ColMap::Zero, 8)));
        assert!(!full.may_coincide(&touch(RowMap::Position, ColMap::Col, 8)));
        let one = touch(RowMap::Row, ColMap::Col, 1);
        assert!(one.may_coincide(&touch(RowMap::Row, ColMap::Zero, 1)));
        let whole = Touch::new(
            DType::F32,
            true,
            vec![Reach::Product { factor: 8, dims: 1 }],
        );
        assert!(!full.may_coincide(&whole) && !whole.may_coincide(&whole));
    }
}
