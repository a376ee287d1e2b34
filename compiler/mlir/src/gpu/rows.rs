//! Row kernels: a group of threads takes a row and walks over its columns together.
//!
//! Takes a [`Rows`] spec; emits one sweep over the columns for each depth of reductions, and one for the results. In a
//! reduction the threads of a row hold its 16 virtual lanes (four threads four lanes each, or sixteen threads one), so
//! every lane sums the columns it should, in order; then lanes meet at distance 8, 4, 2, 1 by shuffles. In wide rows a
//! thread loads several columns before it works on the first of them: that many bytes have to be on their way at a time.
//!
//! Leaves rows that stay in registers between sweeps to [`super::held`], and sums of rows that a block takes to [`super::by_block`].

use super::access::{self, wide};
use super::held::Held;
use crate::access::{OperandRow, Position, RowAt, load_scalar, operand_row};
use crate::body::{Lowered, Values, binary};
use crate::emit::{Elem, Emitter, Type, Val};
use odec_program::eval::LANES;
use odec_program::expr::{Access, BinaryOp, ColMap, Expr, Level, ReduceOp};
use odec_program::gpu::{Split, WARP, rows};
use odec_program::kernel::{Rows, Store};

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(super) fn emit(e: &mut Emitter, kernel: &Rows) -> Result<(), String> {
    let low = Lowered::new(&kernel.body, kernel.dtype);
    if low.body.nodes.iter().any(|n| matches!(n, Expr::Acc)) {
        return Err("a row kernel has no accumulator".into());
    }
    let per_column = |s: &Store| s.access.col == ColMap::Col || kernel.cols == 1;
    if let Some(s) = kernel
        .stores
        .iter()
        .find(|s| !per_column(s) && low.levels[low.node(s.value)] >= Level::Col)
    {
        return Err(format!(
            "operand {} takes one value per row and is given one per column",
            s.operand
        ));
    }
    let split = Split::of(kernel);
    let place = Place::new(e, split, 0);
    let pointers = (0..kernel.operands.len() as u64)
        .map(|n| e.operand(n))
        .collect();
    let by_position = |n: &Expr| matches!(n, Expr::Load { access, .. } if access.row.by_position());
    let by_position = low.body.nodes.iter().any(by_position);
    let roots: Vec<usize> = kernel.stores.iter().map(|s| low.node(s.value)).collect();
    let needed = low.needed(&roots);
    let mut row = Row {
        kernel,
        split,
        low,
        needed,
        pointers,
        place,
        position: None,
    };
    // A warp has all of its threads here, or none.
    e.when(place.warp_exists, |e| {
        row.position = by_position.then(|| {
            let (seq, rows) = (e.dim(1), e.dim(0));
            let at = e.rem(place.row, seq);
            Position { at, seq, rows }
        });
        let mut scalars = row.low.no_values();
        row.scalars(e, 0, &mut scalars);
        let phases = row.reductions().map(|(i, ..)| row.low.phases[i]);
        let mut held = rows::held(kernel).then(|| row.held(e));
        for phase in 1..=phases.max().unwrap_or(0) {
            match &mut held {
                Some(columns) => row.reduce_held(e, phase, &mut scalars, columns),
                None if rows::by_block(kernel) => row.reduce_by_block(e, phase, &mut scalars),
                None => row.reduce(e, phase, &mut scalars),
            }
            row.scalars(e, phase, &mut scalars);
        }
        // Results may lie where other threads have read what is the same for the row.
        match rows::by_block(kernel) {
            true => e.barrier(),
            false => e.warp_barrier(),
        }
        row.results(e, &scalars, per_column, held);
    });
    Ok(())
}

/// The row that a thread works on, and its number among the threads of that row.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub row: Val,
    /// Whether the row exists; threads beyond the last row repeat it, and write nothing.
    pub exists: Val,
    /// Whether any row of the thread's warp exists.
    pub warp_exists: Val,
    pub member: Val,
}

impl Place {
    /// Rows are counted by `dims[dim]`.
    pub fn new(e: &mut Emitter, split: Split, dim: u64) -> Place {
        let (thread, block, rows) = (e.thread(), e.block(), e.dim(dim));
        let group = e.int(split.group as i64);
        let (number, member) = (e.div(thread, group), e.rem(thread, group));
        let first = e.mul_int(block, split.rows() as i64);
        let row = e.add(first, number);
        let exists = e.below(row, rows);
        let of_warp = e.floor_to(number, (WARP / split.group).max(1) as i64);
        let of_warp = e.add(first, of_warp);
        let warp_exists = e.below(of_warp, rows);
        let last = e.add_int(rows, -1);
        let row = e.min(row, last);
        Place {
            row,
            exists,
            warp_exists,
            member,
        }
    }
}

pub(super) struct Row<'a> {
    pub kernel: &'a Rows,
    pub split: Split,
    pub low: Lowered,
    needed: Vec<bool>,
    pointers: Vec<Val>,
    pub place: Place,
    position: Option<Position>,
}

/// As many columns of the row as a thread takes at a time, from `first` on, and what is known in them.
pub(super) struct Column {
    pub first: Val,
    pub values: Values,
}

/// Loads of a thread that are on their way at a time, where rows are reduced, and numbers that they bring elsewhere: those come in vectors.
const LOADS: u64 = 16;
const NUMBERS: u64 = 32;
/// As many where a thread has few registers.
const FEW_NUMBERS: u64 = 16;
/// Operations that are written out for one turn of a loop.
const MOST_CODE: u64 = 1024;

impl Row<'_> {
    fn base(&self, e: &mut Emitter, operand: u32, access: Access) -> (OperandRow, Elem) {
        let elem = Elem::of(self.kernel.operands[operand as usize]);
        let pointer = self.pointers[operand as usize];
        let at = RowAt {
            row: self.place.row,
            position: self.position,
        };
        (operand_row(e, pointer, elem, access, at), elem)
    }

    /// Needed reductions: node, kind, argument.
    pub fn reductions(&self) -> impl Iterator<Item = (usize, ReduceOp, usize)> {
        let nodes = self.low.body.nodes.iter().enumerate();
        nodes.filter_map(|(i, n)| match n {
            Expr::Reduce(op, a) if self.needed[i] => Some((i, *op, a.0 as usize)),
            _ => None,
        })
    }

    /// Emits what is the same for the whole row and needs no deeper reductions than `phase`.
    fn scalars(&self, e: &mut Emitter, phase: u32, values: &mut Values) {
        let marks: Vec<bool> = (0..self.needed.len())
            .map(|i| {
                self.needed[i] && self.low.levels[i] <= Level::Row && self.low.phases[i] <= phase
            })
            .collect();
        let ty = e.scalar();
        self.low.emit(e, &marks, ty, values, |e, node| match *node {
            Expr::Uniform(n) => e.coeff(n as u64),
            Expr::Load { operand, access } => {
                let (row, elem) = self.base(e, operand, access);
                let x = load_scalar(e, row.base, elem);
                row.or_zero(e, x)
            }
            Expr::RowIndex => e.convert(self.place.row, e.elem),
            _ => unreachable!("column numbers are no scalars"),
        });
    }

    /// The columns from `first` on, in which nothing is known but what is the same for the row.
    pub fn column(&self, e: &mut Emitter, roots: &[usize], scalars: &Values, first: Val) -> Column {
        let vector = self.split.vector;
        let ty = wide(e.elem, vector);
        let marks = self.low.needed_until(roots, |i| scalars[i].is_some());
        let mut values = self.low.no_values();
        for (i, value) in values.iter_mut().enumerate() {
            *value = match (scalars[i], vector) {
                (Some(x), 1) => Some(x),
                (Some(_), n) if marks[i] => Some(match self.low.body.nodes[i] {
                    Expr::Const(c) => e.float(c, ty),
                    _ => e.broadcast(scalars[i].expect("it has a value"), n),
                }),
                _ => None,
            };
        }
        Column { first, values }
    }

    /// What `roots` load in these columns: nodes without a value.
    pub fn loads(&self, roots: &[usize], values: &Values) -> Vec<bool> {
        let mut marks = self.low.needed_until(roots, |i| values[i].is_some());
        for (i, mark) in marks.iter_mut().enumerate() {
            *mark &= values[i].is_none() && matches!(self.low.body.nodes[i], Expr::Load { .. });
        }
        marks
    }

    /// Emits the loads that `roots` need.
    pub fn fetch(&self, e: &mut Emitter, roots: &[usize], column: &mut Column) {
        let marks = self.loads(roots, &column.values);
        self.emit(e, &marks, column);
    }

    /// Emits the values of `roots`.
    pub fn compute(&self, e: &mut Emitter, roots: &[usize], column: &mut Column) -> Vec<Val> {
        let has = |i: usize| column.values[i].is_some();
        let marks = self.low.needed_until(roots, has);
        self.emit(e, &marks, column);
        let value = |r: &usize| column.values[*r].expect("the root is marked");
        roots.iter().map(value).collect()
    }

    fn emit(&self, e: &mut Emitter, marks: &[bool], column: &mut Column) {
        let (vector, first) = (self.split.vector, column.first);
        let ty = wide(e.elem, vector);
        self.low
            .emit(e, marks, ty, &mut column.values, |e, node| match *node {
                Expr::Load { operand, access } => {
                    let (row, elem) = self.base(e, operand, access);
                    let x = access::load(e, row.base, elem, access, first, vector);
                    row.or_zero(e, x)
                }
                Expr::ColIndex => {
                    let numbers: Vec<Val> = (0..vector as i64)
                        .map(|i| {
                            let c = e.add_int(first, i);
                            e.convert(c, Elem::I32)
                        })
                        .collect();
                    let numbers = if vector > 1 {
                        e.join(&numbers)
                    } else {
                        numbers[0]
                    };
                    e.convert(numbers, e.elem)
                }
                _ => unreachable!("uniform and per-row nodes have values"),
            });
    }

    /// How many columns, or vectors of them, a thread loads before it works on the first of them.
    pub fn together(&self, roots: &[usize], scalars: &Values) -> u64 {
        let count = |marks: Vec<bool>| marks.iter().filter(|m| **m).count().max(1) as u64;
        let loads = count(self.loads(roots, scalars));
        let code = count(self.low.needed_until(roots, |i| scalars[i].is_some()));
        let numbers = match (rows::reduces(self.kernel), rows::by_block(self.kernel)) {
            (false, _) => NUMBERS,
            (true, true) => FEW_NUMBERS,
            (true, false) => return (LOADS / loads).clamp(2, (MOST_CODE / code).max(2)),
        };
        let vector = self.split.vector;
        (numbers / (loads * vector)).clamp(1, (MOST_CODE / (code * vector)).max(1))
    }

    /// A walk over the columns of this thread, with values carried along. `step` takes columns whose loads are emitted, in order.
    pub fn sweep(
        &self,
        e: &mut Emitter,
        roots: &[usize],
        scalars: &Values,
        start: &[Val],
        step: impl Fn(&mut Emitter, &mut Column, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let first = e.mul_int(self.place.member, self.split.vector as i64);
        let stride = self.split.vector * self.split.group;
        let turns = (self.kernel.cols / stride).max(1);
        let together = match self.kernel.cols >= rows::WIDE {
            true => self.together(roots, scalars).min(turns),
            false => 1,
        };
        let turn = together * stride;
        let whole = self.kernel.cols / turn * turn;
        let walk = |e: &mut Emitter, [from, to]: [Val; 2], together: u64, start: &[Val]| {
            e.for_with(
                from,
                to,
                (together * stride) as i64,
                start,
                |e, c, carried| {
                    let columns = (0..together).map(|n| {
                        let c = e.add_int(c, (n * stride) as i64);
                        let mut column = self.column(e, roots, scalars, c);
                        self.fetch(e, roots, &mut column);
                        column
                    });
                    let columns: Vec<Column> = columns.collect();
                    let mut carried = carried.to_vec();
                    for mut column in columns {
                        carried = step(e, &mut column, &carried);
                    }
                    carried
                },
            )
        };
        let end = e.int(self.kernel.cols as i64);
        if together == 1 || whole == 0 {
            return walk(e, [first, end], 1, start);
        }
        let middle = e.int(whole as i64);
        let carried = walk(e, [first, middle], together, start);
        if whole == self.kernel.cols {
            return carried;
        }
        let first = e.add(first, middle);
        walk(e, [first, end], 1, &carried)
    }

    /// The reductions of a phase.
    pub fn due(&self, phase: u32) -> Vec<(usize, ReduceOp, usize)> {
        let of_phase = |r: &(usize, ReduceOp, usize)| self.low.phases[r.0] == phase;
        self.reductions().filter(of_phase).collect()
    }

    /// Emits the reductions of a phase.
    fn reduce(&self, e: &mut Emitter, phase: u32, scalars: &mut Values) {
        let due = self.due(phase);
        let arguments: Vec<usize> = due.iter().map(|r| r.2).collect();
        let ty = wide(e.elem, self.split.vector);
        let start: Vec<Val> = due
            .iter()
            .map(|r| e.float(combination(r.1).1, ty))
            .collect();
        let sums = self.sweep(e, &arguments, scalars, &start, |e, column, sums| {
            let values = self.compute(e, &arguments, column);
            due.iter()
                .zip(sums.iter().zip(values))
                .map(|(r, (sum, x))| binary(e, combination(r.1).0, *sum, x))
                .collect()
        });
        for ((node, op, _), sum) in due.iter().zip(sums) {
            scalars[*node] = Some(self.tree(e, combination(*op).0, sum));
        }
    }

    /// Combines the virtual lanes, of which each thread of the row holds `vector`.
    pub fn tree(&self, e: &mut Emitter, op: BinaryOp, lanes: Val) -> Val {
        let mut lanes = e.parts(lanes);
        let held = lanes.len() as u64;
        let mut distance = LANES as u64 / 2;
        while distance > 0 {
            match distance / held {
                0 => {
                    let far = lanes.split_off(distance as usize);
                    lanes = lanes
                        .iter()
                        .zip(far)
                        .map(|(a, b)| binary(e, op, *a, b))
                        .collect();
                }
                threads => {
                    lanes = lanes
                        .iter()
                        .map(|near| {
                            let far = e.at_distance(*near, threads);
                            binary(e, op, *near, far)
                        })
                        .collect();
                }
            }
            distance /= 2;
        }
        // The first thread has combined near with far, in this order, all the way; the others take its word.
        let thread = e.thread();
        let warp = e.int(WARP as i64);
        let lane = e.rem(thread, warp);
        let first = e.floor_to(lane, self.split.group as i64);
        e.of_lane(lanes[0], first)
    }

    /// Writes everything.
    fn results(
        &self,
        e: &mut Emitter,
        scalars: &Values,
        per_column: impl Fn(&Store) -> bool,
        held: Option<Vec<Held>>,
    ) {
        let (wide, single): (Vec<&Store>, Vec<&Store>) =
            self.kernel.stores.iter().partition(|s| per_column(s));
        e.when(self.place.exists, |e| {
            let roots: Vec<usize> = wide.iter().map(|s| self.low.node(s.value)).collect();
            let write = |e: &mut Emitter, column: &mut Column| {
                let values = self.compute(e, &roots, column);
                for (s, x) in wide.iter().zip(values) {
                    let (row, elem) = self.base(e, s.operand, s.access);
                    let x = self.low.stored(e, self.low.node(s.value), x, elem);
                    access::store(e, x, row.base, s.access, column.first);
                }
            };
            match held {
                _ if wide.is_empty() => {}
                Some(columns) => self.write_held(e, &roots, scalars, columns, write),
                None => {
                    self.sweep(e, &roots, scalars, &[], |e, column, _| {
                        write(e, column);
                        vec![]
                    });
                }
            }
            if !single.is_empty() {
                let zero = e.int(0);
                let first = e.cmp(crate::emit::Cmp::Eq, self.place.member, zero);
                e.when(first, |e| {
                    for s in single {
                        let x =
                            scalars[self.low.node(s.value)].expect("it is the same for the row");
                        let (row, elem) = self.base(e, s.operand, s.access);
                        let x = self.low.stored(e, self.low.node(s.value), x, elem);
                        e.store(x, row.base);
                    }
                });
            }
        });
    }
}

pub(super) fn combination(op: ReduceOp) -> (BinaryOp, f64) {
    match op {
        ReduceOp::Sum => (BinaryOp::Add, 0.0),
        ReduceOp::Max => (BinaryOp::Max, f64::NEG_INFINITY),
    }
}

/// An address of a row of a matrix of `cols` columns.
pub(super) fn row_at(e: &mut Emitter, base: Val, r: Val, cols: u64) -> Val {
    let offset = e.mul_int(r, cols as i64);
    e.at(base, offset, e.elem)
}

/// Loads an index as i64.
pub(super) fn index(e: &mut Emitter, base: Val, r: Val) -> Val {
    let p = e.at(base, r, Elem::I32);
    let i = e.load(p, Type::scalar(Elem::I32));
    e.convert(i, Elem::I64)
}
